/* SPDX-License-Identifier: MIT */
/* The kernel's rbtree as a treap: same calls, balanced by chance. */
#ifndef TESTS_RBTREE_IN_USER_H
#define TESTS_RBTREE_IN_USER_H

#include <stddef.h>
#include <stdint.h>

struct rb_node {
	struct rb_node *rb_left, *rb_right, *parent;
	uint32_t rank;
};

struct rb_root {
	struct rb_node *rb_node;
};

#define RB_ROOT ((struct rb_root){ NULL })
#define rb_entry(ptr, type, member) container_of(ptr, type, member)

static inline void rb_link_node(struct rb_node *node, struct rb_node *parent, struct rb_node **link)
{
	static uint64_t seed = 1;

	seed = seed * 6364136223846793005u + 1442695040888963407u;
	node->rb_left = node->rb_right = NULL;
	node->parent = parent;
	node->rank = (uint32_t)(seed >> 32);
	*link = node;
}

static inline struct rb_node **rb_link_to(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *parent = node->parent;

	if (!parent)
		return &root->rb_node;
	return parent->rb_left == node ? &parent->rb_left : &parent->rb_right;
}

/* A child takes the place of its parent, which becomes its child. */
static inline void rb_lift(struct rb_node *child, struct rb_root *root)
{
	struct rb_node *top = child->parent, *moved;

	*rb_link_to(top, root) = child;
	child->parent = top->parent;
	if (top->rb_left == child) {
		moved = top->rb_left = child->rb_right;
		child->rb_right = top;
	} else {
		moved = top->rb_right = child->rb_left;
		child->rb_left = top;
	}
	if (moved)
		moved->parent = top;
	top->parent = child;
}

static inline void rb_insert_color(struct rb_node *node, struct rb_root *root)
{
	while (node->parent && node->parent->rank < node->rank)
		rb_lift(node, root);
}

static inline void rb_erase(struct rb_node *node, struct rb_root *root)
{
	while (node->rb_left && node->rb_right)
		rb_lift(node->rb_left->rank > node->rb_right->rank ? node->rb_left : node->rb_right, root);

	struct rb_node *only = node->rb_left ? node->rb_left : node->rb_right;

	*rb_link_to(node, root) = only;
	if (only)
		only->parent = node->parent;
}

static inline struct rb_node *rb_next(const struct rb_node *node)
{
	struct rb_node *at = node->rb_right;

	if (at) {
		while (at->rb_left)
			at = at->rb_left;
		return at;
	}
	for (at = node->parent; at && at->rb_right == node; at = at->parent)
		node = at;
	return at;
}

static inline struct rb_node *rb_prev(const struct rb_node *node)
{
	struct rb_node *at = node->rb_left;

	if (at) {
		while (at->rb_right)
			at = at->rb_right;
		return at;
	}
	for (at = node->parent; at && at->rb_left == node; at = at->parent)
		node = at;
	return at;
}

#endif
