// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Covered pages as disjoint segments.
 *
 * A segment remembers how many mappings begin at its first page and end at its last one. A border
 * between neighbours is there for as long as a live mapping begins or ends at it, so removing a
 * range finds its borders and needs no memory; a border that nothing needs any more is merged away,
 * so segments never outnumber 2 * mappings.
 */
#include "cover.h"

struct segment {
	struct rb_node node;
	u64 space;
	u64 first;
	u64 last;
	u64 count; /* mappings that cover it */
	u64 starts;
	u64 ends;
	const void *owner;
	u32 flags;
	struct segment *next; /* while it is spare */
};

static struct segment *of(struct rb_node *node)
{
	return rb_entry(node, struct segment, node);
}

static bool before(const struct segment *s, u64 space, u64 page)
{
	return s->space < space || (s->space == space && s->last < page);
}

/* The first segment that ends at or after a page, in that space or a later one. */
static struct segment *at_or_after(struct ugds_cover *c, u64 space, u64 page)
{
	struct rb_node *node = c->root.rb_node;
	struct segment *found = NULL;

	while (node) {
		if (before(of(node), space, page)) {
			node = node->rb_right;
		} else {
			found = of(node);
			node = node->rb_left;
		}
	}
	return found;
}

/* The segment after s if it begins in the range. */
static struct segment *next_in(struct segment *s, const struct ugds_range *r)
{
	struct rb_node *node = rb_next(&s->node);

	if (!node || of(node)->space != r->space || of(node)->first > r->last)
		return NULL;
	return of(node);
}

static struct segment *first_in(struct ugds_cover *c, const struct ugds_range *r)
{
	struct segment *s = at_or_after(c, r->space, r->first);

	return s && s->space == r->space && s->first <= r->last ? s : NULL;
}

static void insert(struct ugds_cover *c, struct segment *s)
{
	struct rb_node **link = &c->root.rb_node;
	struct rb_node *parent = NULL;

	while (*link) {
		parent = *link;
		link = before(of(parent), s->space, s->first) ? &parent->rb_right
							      : &parent->rb_left;
	}
	rb_link_node(&s->node, parent, link);
	rb_insert_color(&s->node, &c->root);
	c->segments++;
}

static void erase(struct ugds_cover *c, struct segment *s)
{
	rb_erase(&s->node, &c->root);
	c->segments--;
	kfree(s);
}

static struct segment *take(struct segment **spare)
{
	struct segment *s = *spare;

	*spare = s->next;
	s->next = NULL;
	return s;
}

static void drop(struct segment *spare)
{
	while (spare)
		kfree(take(&spare));
}

/* Cut s before page; return the right part. */
static struct segment *split(struct ugds_cover *c, struct segment *s, u64 page,
			     struct segment **spare)
{
	struct segment *right = take(spare);

	*right = *s;
	right->first = page;
	right->starts = 0;
	s->last = page - 1;
	s->ends = 0;
	insert(c, right);
	return right;
}

static struct segment *fill(struct ugds_cover *c, const struct ugds_range *r, u64 first, u64 last,
			    struct segment **spare)
{
	struct segment *s = take(spare);

	*s = (struct segment){
		.space = r->space,
		.first = first,
		.last = last,
		.count = 1,
		.owner = r->owner,
		.flags = r->flags,
	};
	insert(c, s);
	c->pages += last - first + 1;
	return s;
}

/* How many segments an add makes, and pages it covers anew. -EEXIST: it is in conflict. */
static int survey(struct ugds_cover *c, const struct ugds_range *r, u64 *ret_need, u64 *ret_new)
{
	u64 at = r->first, need = 0, fresh = 0;
	struct segment *s;

	for (s = first_in(c, r); s; s = next_in(s, r)) {
		if (s->owner != r->owner || s->flags != r->flags)
			return -EEXIST;
		if (s->first < r->first)
			need++;
		if (s->last > r->last)
			need++;
		if (s->first > at) {
			need++;
			fresh += s->first - at;
		}
		at = s->last + 1;
	}
	if (at <= r->last) {
		need++;
		fresh += r->last - at + 1;
	}
	*ret_need = need;
	*ret_new = fresh;
	return 0;
}

static int spares(u64 need, struct segment **ret)
{
	struct segment *list = NULL;

	while (need--) {
		struct segment *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);

		if (!s) {
			drop(list);
			return -ENOMEM;
		}
		s->next = list;
		list = s;
	}
	*ret = list;
	return 0;
}

void ugds_cover_init(struct ugds_cover *c)
{
	c->root = RB_ROOT;
	c->pages = 0;
	c->segments = 0;
}

int ugds_cover_add(struct ugds_cover *c, const struct ugds_range *r, u64 *ret_new)
{
	struct segment *s, *spare, *head = NULL, *tail = NULL;
	u64 at = r->first, need;
	int err;

	err = survey(c, r, &need, ret_new);
	if (err)
		return err;
	err = spares(need, &spare);
	if (err)
		return err;

	for (s = first_in(c, r); s; s = next_in(s, r)) {
		if (s->first < r->first)
			s = split(c, s, r->first, &spare);
		if (s->last > r->last)
			split(c, s, r->last + 1, &spare);
		if (s->first > at) {
			tail = fill(c, r, at, s->first - 1, &spare);
			head = head ?: tail;
		}
		s->count++;
		at = s->last + 1;
		head = head ?: s;
		tail = s;
	}
	if (at <= r->last) {
		tail = fill(c, r, at, r->last, &spare);
		head = head ?: tail;
	}
	head->starts++;
	tail->ends++;
	return 0;
}

/* Join the segments on both sides of a border, if there are two and no mapping needs it. */
static void heal(struct ugds_cover *c, u64 space, u64 page)
{
	struct segment *right = at_or_after(c, space, page);
	struct segment *left;
	struct rb_node *node;

	if (!right || right->space != space || right->first != page || right->starts)
		return;
	node = rb_prev(&right->node);
	if (!node)
		return;
	left = of(node);
	if (left->space != space || left->last + 1 != page || left->ends)
		return;
	left->last = right->last;
	left->ends = right->ends;
	erase(c, right);
}

u64 ugds_cover_remove(struct ugds_cover *c, const struct ugds_range *r)
{
	struct segment *s = first_in(c, r), *next;
	u64 freed = 0;

	if (WARN_ON_ONCE(!s || s->first != r->first))
		return 0;
	s->starts--;
	for (; s; s = next) {
		next = next_in(s, r);
		if (!next)
			s->ends--;
		if (--s->count)
			continue;
		freed += s->last - s->first + 1;
		erase(c, s);
	}
	c->pages -= freed;
	heal(c, r->space, r->first);
	heal(c, r->space, r->last + 1);
	return freed;
}
