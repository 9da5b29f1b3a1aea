/* SPDX-License-Identifier: MIT */
/*
 * Memory that a controller may reach. One table per controller; one entry ("mapping") per registration and
 * controller, named by a handle {generation, slot}. The byte length is the one the user gave: pages are the
 * transport's business. Entries are type-stable (slots are never freed before the table), so a stale handle
 * is an error and never a use after free.
 */
#ifndef MEM_REGISTRATION_H
#define MEM_REGISTRATION_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "gpu/gpu.h"
#include "support/util.h"

struct dma_extent {
	uint64_t iova;
	uint64_t nbytes;
};

/* What a transport answers to a map request: extents in address order, covering whole pages from the page
 * that holds the first byte. The array is malloc()ed by the transport and freed by the caller. */
struct dma_mapping {
	struct dma_extent *extents;
	size_t nr;
	uint64_t handle; /* the transport's own name for it, passed back to unmap */
	uint64_t first_off; /* bytes between the first extent's start and the first byte */
	uint32_t traits; /* MEM_* */
};

/* Memory that is not ours to address. */
struct mem_foreign {
	uint32_t kind; /* MEM_FOREIGN_* */
	int fd; /* of a dma-buf */
	uint64_t addr; /* of device memory, as its runtime names it */
	uint64_t offset; /* of the first byte in the dma-buf */
	struct gpu_place peer; /* of a GPU that sees what devices wrote after a flush only; vendor 0: none */
};

#define MEM_FOREIGN_DMABUF 1u
#define MEM_FOREIGN_CUDA 2u
#define MEM_FOREIGN_HIP 3u

/* What became of it. */
#define MEM_SYSTEM 0x1u /* it lies in system memory, not in a device */
#define MEM_PERSISTENT 0x2u /* it stays although its owner frees it */
#define MEM_REVOCABLE 0x4u /* its owner may take it away */
#define MEM_STAGED 0x8u /* bytes go through pinned host memory */

#define DMA_READ 0x1u /* the device may read it */
#define DMA_WRITE 0x2u /* the device may write it */
#define DMA_CONTIG 0x4u /* one extent, or refused (rings) */
#define DMA_PEER 0x8u /* memory of a device, or refused (foreign memory) */
#define DMA_ONWARD \
	0x10u /* what is written there goes on to another device: a hint for the embedded controller */

/* What mem/ needs from the layer above it. */
struct mem_ops {
	int (*map)(void *ctx, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret);
	int (*map_foreign)(void *ctx, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			   struct dma_mapping *ret);
	int (*unmap)(void *ctx, uint64_t handle);
};

/* A transport's mapping that several entries look into. Under the table's lock. */
struct mem_shared {
	uint32_t entries;
	uint64_t *iova; /* of the first one; NULL: it has its own */
};

#define MEM_REF_DEAD (1ull << 63)
#define MEM_REF_REVOKED (1ull << 62) /* its memory was taken away: it can be released, and nothing else */

struct mem_map {
	/* Bit 63: dead, 62: revoked. Low 32 bits: requests in flight. Taken with fetch_add, so that a dead entry's
	 * count is still balanced by whoever backs off. */
	_Atomic uint64_t ref;
	_Atomic uint32_t gen;
	uint32_t slot;
	uint32_t flags; /* DMA_* */
	uint32_t traits; /* MEM_* */
	uint8_t shift; /* log2 of the page-table unit: the controller's page */
	uint64_t first_off;
	uint64_t nbytes;
	uint64_t *iova; /* one per unit */
	uint64_t iova1;
	uint64_t handle;
	_Atomic uint32_t nr_stuck; /* ranges that a timed-out or cancelled command may still touch */
	void *vaddr; /* NULL: foreign memory */
	struct mem_shared *shared; /* NULL: the mapping is this entry's alone */
	struct gpu_place peer; /* as of struct mem_foreign */
	uint32_t next_free;
} __attribute__((aligned(CACHELINE)));

#define MEM_CHUNK 256
#define MEM_CHUNKS 4096

struct mem_table {
	const struct mem_ops *ops;
	void *ctx;
	uint8_t shift;
	pthread_mutex_t lock; /* registration and release only, never I/O */
	struct mem_map *_Atomic chunk[MEM_CHUNKS];
	_Atomic uint32_t nr_slots;
	uint32_t free_head;
	_Atomic uint32_t nr_peers; /* mappings with a peer that needs flushes */
	_Atomic uint32_t nr_live; /* mappings of the transport, however many entries look into one */
};

int mem_table_init(struct mem_table *t, const struct mem_ops *ops, void *ctx, uint8_t shift);
/* Unmap everything that is left and free the table. Nothing may be in flight. */
void mem_table_done(struct mem_table *t);
int mem_register(struct mem_table *t, void *vaddr, size_t nbytes, uint32_t flags, uint64_t *ret_handle);
int mem_register_foreign(struct mem_table *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			 uint32_t *ret_traits, uint64_t *ret_handle);
/* A part of what @parent maps, with a handle, bounds and requests of its own. The mapping stays until the last entry
 * that looks into it is released, in whatever order. -ESTALE, -EKEYREVOKED of the parent; -EFAULT past its end, -EACCES
 * for more than it may. */
int mem_register_within(struct mem_table *t, uint64_t parent, uint64_t off, size_t nbytes, uint32_t flags,
			uint64_t *ret_handle);
/* While nothing is in flight and none can be: mark what @revoked(ctx, the transport's name for it) says is lost. */
void mem_table_revoke(struct mem_table *t, bool (*revoked)(void *ctx, uint64_t handle), void *ctx);
/* What devices wrote to it is seen by its GPU afterwards. Calls the runtime. Not 0: it refused, and it is not seen: its number
 * in the high eight bits, its code below. */
uint32_t mem_make_visible(const struct mem_map *m);
/* Why mem_get() answers NULL for @handle: -EKEYREVOKED or -ESTALE. */
int mem_refusal(struct mem_table *t, uint64_t handle);
/* 0, -EBUSY while requests are in flight (nothing changes), -ESTALE for a handle that is not live. */
int mem_unregister(struct mem_table *t, uint64_t handle);

static inline uint64_t mem_handle(const struct mem_map *m)
{
	return (uint64_t)atomic_load_explicit(&m->gen, memory_order_relaxed) << 32 | m->slot;
}

static inline struct mem_map *mem_slot(struct mem_table *t, uint32_t slot)
{
	struct mem_map *chunk;

	if (unlikely(slot >= atomic_load_explicit(&t->nr_slots, memory_order_acquire)))
		return NULL;
	chunk = atomic_load_explicit(&t->chunk[slot / MEM_CHUNK], memory_order_relaxed);
	return &chunk[slot % MEM_CHUNK];
}

static inline void mem_put(struct mem_map *m, uint32_t n)
{
	/* release: the request's last use of the page table comes before the entry can die */
	atomic_fetch_sub_explicit(&m->ref, n, memory_order_release);
}

/* Take @n references on a live mapping, or NULL when the handle is stale. */
static inline struct mem_map *mem_get(struct mem_table *t, uint64_t handle, uint32_t n)
{
	struct mem_map *m = mem_slot(t, (uint32_t)handle);

	if (unlikely(!m))
		return NULL;
	/* acquire: pairs with the release that made this generation live */
	if (unlikely(atomic_fetch_add_explicit(&m->ref, n, memory_order_acquire) &
		     (MEM_REF_DEAD | MEM_REF_REVOKED)) ||
	    unlikely(atomic_load_explicit(&m->gen, memory_order_relaxed) != (uint32_t)(handle >> 32))) {
		mem_put(m, n);
		return NULL;
	}
	return m;
}

static inline uint32_t mem_inflight(struct mem_map *m)
{
	return (uint32_t)atomic_load_explicit(&m->ref, memory_order_acquire);
}

/* Device address of byte @off. */
static inline uint64_t mem_iova(const struct mem_map *m, uint64_t off)
{
	uint64_t pos = m->first_off + off;

	return m->iova[pos >> m->shift] + (pos & ((1ull << m->shift) - 1));
}

#endif
