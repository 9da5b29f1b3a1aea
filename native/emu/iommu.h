/* SPDX-License-Identifier: MIT */
/*
 * The controller's IOMMU. Look-ups take no lock: a leaf names a mapping and a page in it; the device counts
 * itself in on the mapping, looks at the leaf again, and may then use the memory until it counts itself out.
 * Unmapping clears the leaves and waits for that count alone, never for commands on other memory.
 */
#ifndef EMU_IOMMU_H
#define EMU_IOMMU_H

#include <pthread.h>

#include "emu/emu.h"
#include "emu/lock.h"

#define EMU_IO_SHIFT 12
#define EMU_IO_PAGE (1u << EMU_IO_SHIFT)

/* A leaf: permissions 3:0, page in the mapping 39:4, mapping slot 63:40. Zero: nothing is mapped. */
#define EMU_LEAF_PERM 15u
#define EMU_LEAF_SLOT(l) ((uint32_t)((l) >> 40))
#define EMU_LEAF_PAGE(l) (((l) >> 4) & ((1ull << 36) - 1))
/* Far memory has permissions of its own, so whoever asks for memory that it can address misses it. */
#define EMU_FAR(perm) ((perm) << 2)

#define EMU_LEAF_SHIFT 16 /* leaves in a chunk */
#define EMU_LEAF_CHUNKS (1u << 16)
#define EMU_MAP_SHIFT 10
#define EMU_MAP_CHUNKS (1u << 14)

struct emu_stage;

struct emu_span {
	uint64_t page;
	uint64_t nr;
};

/* Slots are never freed before the IOMMU, so that a late look-up may touch a dead one. */
struct emu_map {
	struct emu_count users;
	_Atomic uint32_t nr_rings; /* queue rings inside: unmapping takes them from their queues */
	uint8_t *vaddr; /* of far memory its address there, which is never used as a pointer */
	uint64_t nr_pages;
	struct emu_stage *stage; /* what far memory is reached through; NULL: it is not far */
	uint64_t far_lo, far_hi; /* the very bytes */
	uint32_t gen;
	uint32_t next_free;
	uint32_t nr_spans;
	bool live;
	bool onward; /* what is written there goes on to another device */
	struct emu_span *spans; /* &one where that is enough */
	struct emu_span one;
} __attribute__((aligned(CACHELINE)));

struct emu_iommu {
	uint64_t base; /* bus address of page 0; no user address has its bits */
	_Atomic uint64_t capacity; /* pages */
	_Atomic bool off; /* bus mastering is off */
	_Atomic uint64_t *_Atomic *leaves;
	struct emu_map *_Atomic *maps;
	_Atomic uint32_t nr_slots;
	pthread_mutex_t lock; /* map and unmap */
	uint64_t cursor; /* pages are handed out from here on, round and round */
	uint64_t live_pages;
	uint64_t rng;
	uint32_t free_head;
	uint32_t unit; /* IO pages in the smallest memory page (CAP.MPSMIN): never torn apart */
};

int emu_iommu_init(struct emu_iommu *io, uint64_t seed, uint32_t unit);
void emu_iommu_done(struct emu_iommu *io);
/* @stage: the memory is far, and @vaddr where it lies there. */
int emu_iommu_map(struct emu_iommu *io, void *vaddr, size_t nbytes, uint32_t flags, struct emu_stage *stage,
		  struct emu_extent **ret_ext, size_t *ret_nr, uint64_t *ret_handle);
/* Take the leaves away and wait; the slot is kept until emu_iommu_unmap_finish(). */
int emu_iommu_unmap_begin(struct emu_iommu *io, uint64_t handle, struct emu_map **ret);
void emu_iommu_unmap_finish(struct emu_iommu *io, uint64_t handle);
/* No access begins after this, and none is going on. */
void emu_iommu_stop(struct emu_iommu *io);
uint64_t emu_rand(uint64_t *state);

static inline struct emu_map *emu_iommu_slot(struct emu_iommu *io, uint32_t slot)
{
	struct emu_map *chunk = atomic_load_explicit(&io->maps[slot >> EMU_MAP_SHIFT], memory_order_acquire);

	return &chunk[slot & ((1u << EMU_MAP_SHIFT) - 1)];
}

static inline uint64_t emu_iommu_leaf(struct emu_iommu *io, uint64_t iova)
{
	uint64_t page = (iova - io->base) >> EMU_IO_SHIFT;
	_Atomic uint64_t *chunk;

	if (unlikely(page >= atomic_load_explicit(&io->capacity, memory_order_relaxed)))
		return 0;
	chunk = atomic_load_explicit(&io->leaves[page >> EMU_LEAF_SHIFT], memory_order_acquire);
	if (unlikely(!chunk))
		return 0;
	/* acquire: the mapping's fields were written before its leaves */
	return atomic_load_explicit(&chunk[page & ((1u << EMU_LEAF_SHIFT) - 1)], memory_order_acquire);
}

#endif
