/* SPDX-License-Identifier: MIT */
/*
 * As much of the kernel as the parts of kmod/ without hardware use, for tests in user space: same
 * names and meaning, no concurrency. Allocation can be made to fail, one at a time.
 */
#ifndef TESTS_KERNEL_IN_USER_H
#define TESTS_KERNEL_IN_USER_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define U64_MAX UINT64_MAX
#define PAGE_SHIFT 12
#define PAGE_SIZE (1ul << PAGE_SHIFT)
#define BIT(n) (1ul << (n))
#define BIT_ULL(n) (1ull << (n))
#define fallthrough __attribute__((__fallthrough__))
#define min_t(type, a, b) ((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define check_add_overflow(a, b, d) __builtin_add_overflow(a, b, d)

#define WARN_ON(cond)                                                              \
	({                                                                         \
		bool warn_ = (cond);                                               \
		if (warn_) {                                                       \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                   \
		}                                                                  \
		warn_;                                                             \
	})
#define WARN_ON_ONCE WARN_ON

/* ---- memory ---- */

#define GFP_KERNEL_ACCOUNT 0

/* What is allocated and not freed, and after how many allocations the next one fails (-1: never). */
static long allocated, fail_after = -1;

static inline void *kzalloc(size_t nbytes, int gfp)
{
	(void)gfp;
	if (fail_after == 0)
		return NULL;
	if (fail_after > 0)
		fail_after--;
	allocated++;
	return calloc(1, nbytes);
}

static inline void kfree(const void *at)
{
	if (at)
		allocated--;
	free((void *)(uintptr_t)at);
}

static inline void *kvmalloc_array(size_t nr, size_t nbytes, int gfp) { return kzalloc(nr * nbytes, gfp); }

#define kvfree kfree

/* ---- counts, locks, lists ---- */

struct kref {
	int count;
};

static inline void kref_init(struct kref *ref) { ref->count = 1; }

static inline void kref_get(struct kref *ref) { WARN_ON(ref->count++ <= 0); }

static inline int kref_put(struct kref *ref, void (*release)(struct kref *ref))
{
	WARN_ON(ref->count <= 0);
	if (--ref->count)
		return 0;
	release(ref);
	return 1;
}

typedef struct {
	int value;
} atomic_t;

typedef struct {
	long value;
} atomic_long_t;

#define ATOMIC_LONG_INIT(n) { (n) }
#define atomic_long_inc(a) ((a)->value++)
#define atomic_long_dec(a) ((a)->value--)
#define atomic_long_read(a) ((a)->value)

struct mutex {
	bool held;
};

static inline void mutex_init(struct mutex *m) { m->held = false; }

static inline void mutex_lock(struct mutex *m)
{
	WARN_ON(m->held);
	m->held = true;
}

static inline void mutex_unlock(struct mutex *m)
{
	WARN_ON(!m->held);
	m->held = false;
}

static inline void mutex_destroy(struct mutex *m) { WARN_ON(m->held); }

struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list) { list->next = list->prev = list; }

static inline bool list_empty(const struct list_head *list) { return list->next == list; }

static inline void list_add_tail(struct list_head *node, struct list_head *list)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

static inline void list_del_init(struct list_head *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	INIT_LIST_HEAD(node);
}

#define list_last_entry(list, type, member) container_of((list)->prev, type, member)

/* ---- xarray: a table that grows, since tokens are drawn in order ---- */

struct xarray {
	void **slots;
	unsigned long room;
};

#define RESERVED ((void *)1ul)

static inline void xa_init(struct xarray *xa) { memset(xa, 0, sizeof(*xa)); }

static inline void xa_destroy(struct xarray *xa)
{
	free(xa->slots);
	xa_init(xa);
}

#define xa_lock(xa) ((void)(xa))
#define xa_unlock(xa) ((void)(xa))

static inline void *xa_load(struct xarray *xa, unsigned long index)
{
	void *entry = index < xa->room ? xa->slots[index] : NULL;

	return entry == RESERVED ? NULL : entry;
}

static inline int xa_reserve(struct xarray *xa, unsigned long index, int gfp)
{
	(void)gfp;
	if (fail_after == 0)
		return -ENOMEM;
	while (index >= xa->room) {
		unsigned long room = xa->room ? xa->room * 2 : 16;

		xa->slots = realloc(xa->slots, room * sizeof(void *));
		memset(xa->slots + xa->room, 0, (room - xa->room) * sizeof(void *));
		xa->room = room;
	}
	if (!xa->slots[index])
		xa->slots[index] = RESERVED;
	return 0;
}

static inline void xa_release(struct xarray *xa, unsigned long index)
{
	if (index < xa->room && xa->slots[index] == RESERVED)
		xa->slots[index] = NULL;
}

static inline void *__xa_store(struct xarray *xa, unsigned long index, void *entry, int gfp)
{
	(void)gfp;
	WARN_ON(index >= xa->room || xa->slots[index] != RESERVED);
	xa->slots[index] = entry;
	return NULL;
}

static inline void *__xa_erase(struct xarray *xa, unsigned long index)
{
	void *entry = xa_load(xa, index);

	if (entry)
		xa->slots[index] = NULL;
	return entry;
}

/* ---- scatter lists: the DMA side only ---- */

struct scatterlist {
	u64 dma_address;
	unsigned int dma_length;
};

struct sg_table {
	struct scatterlist *sgl;
	unsigned int nents;
};

#define sg_dma_address(sg) ((sg)->dma_address)
#define sg_dma_len(sg) ((sg)->dma_length)
#define for_each_sgtable_dma_sg(sgt, sg, i) \
	for ((i) = 0, (sg) = (sgt)->sgl; (i) < (sgt)->nents; (i)++, (sg)++)

#include "rbtree_in_user.h"

#endif
