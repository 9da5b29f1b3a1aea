/* SPDX-License-Identifier: MIT */
/* A queue pair over rings in memory and doorbell registers: its private parts. */
#ifndef PCIE_RING_H
#define PCIE_RING_H

#include "pcie/pcie_ops.h"
#include "support/barrier.h"

#define NO_LIST UINT16_MAX

/* One per command identifier slot. A cid is {use count, slot}: a completion for an earlier use of the slot (late, or
 * doubled) does not match and is never delivered. */
struct pcie_tracker {
	void *owner; /* NULL: not in use */
	int64_t sent_ns;
	uint32_t nbytes;
	uint16_t cid;
	uint16_t list; /* index of its list page */
};

struct pcie_qpair {
	struct nvme_qpair base;
	struct pcie_dev *dev;

	/* submission: the owner */
	struct nvme_sqe *sq;
	volatile uint32_t *sq_db;
	uint32_t sq_tail;
	uint32_t sq_rung; /* tail that the doorbell holds */
	bool held; /* a doorbell was written and a sleeping software device was not told */
	uint32_t depth;
	struct pcie_tracker *tr;
	uint16_t *free_slots; /* a ring: an identifier rests as long as possible */
	uint32_t free_head, free_tail;
	uint32_t cid_step; /* a power of two: what the next use of a slot adds to its cid */
	uint32_t slot_mask; /* of a cid; trackers past depth - 2 are never used */
	uint64_t *list_iova;
	uint64_t *lists; /* list pages, one after another */
	uint16_t *free_lists;
	uint32_t nr_free_lists;
	uint32_t list_entries; /* per page */

	/* completion: the owner; peek() reads cq_pos from any thread */
	struct nvme_cqe *cq;
	volatile uint32_t *cq_db;
	_Atomic uint32_t cq_pos; /* head << 1 | expected phase */
	uint32_t cq_rung; /* head that the doorbell holds */
	uint32_t cq_lag; /* entries consumed since, from which on it is written at once */

	/* shadow doorbells (Base 5.8 Doorbell Buffer Config), NULL: off */
	_Atomic uint32_t *sq_shadow, *sq_event, *cq_shadow, *cq_event;

	uint64_t sq_iova, cq_iova;
	void *ring_mem, *list_mem;
	size_t ring_bytes, list_bytes;
	uint64_t ring_handle, list_handle;
	bool ring_from_dev;
};

static inline struct pcie_qpair *pcie_qp(struct nvme_qpair *qp)
{
	return container_of(qp, struct pcie_qpair, base);
}

static inline volatile uint32_t *pcie_doorbell(struct pcie_dev *dev, uint64_t cap, uint32_t qid, bool cq)
{
	size_t stride = (size_t)4 << NVME_CAP_DSTRD(cap);

	return (volatile uint32_t *)((volatile uint8_t *)dev->doorbells + (2 * qid + (cq ? 1 : 0)) * stride);
}

/* All in one page: no second entry. */
static inline bool pcie_prp_one(const struct mem_map *map, uint64_t off, uint32_t nbytes, uint64_t *ret_prp1)
{
	uint64_t pos = map->first_off + off, in = pos & ((1ull << map->shift) - 1);

	*ret_prp1 = map->iova[pos >> map->shift] + in;
	return in + nbytes <= 1ull << map->shift;
}

/* prp.c: fill prp1/prp2 for [off, off + nbytes) of @map. 0, or -EAGAIN when no list page is free. */
int pcie_prp_build(struct pcie_qpair *q, const struct mem_map *map, uint64_t off, uint32_t nbytes,
		   uint64_t *ret_prp1, uint64_t *ret_prp2, uint16_t *ret_list);

/* qpair_look.c; see nvme_qpair_ops */
bool pcie_qpair_sent_slba(struct nvme_qpair *qp, uint16_t cid, uint64_t *ret);
bool pcie_qpair_oldest(struct nvme_qpair *qp, int64_t before, struct nvme_stuck *ret);
void pcie_qpair_excuse(struct nvme_qpair *qp, int64_t gap, int64_t now);
void pcie_qpair_each(struct nvme_qpair *qp, void (*fn)(void *ctx, void *owner, uint16_t cid), void *ctx);
bool pcie_qpair_next(struct nvme_qpair *qp, const void *owner, uint32_t *pos, uint16_t *ret_cid);
uint32_t pcie_qpair_landed(struct nvme_qpair *qp, const void *owner);

/* qpair_mem.c */
int pcie_qpair_alloc(struct pcie_qpair *q);
void pcie_qpair_release(struct pcie_qpair *q);
void pcie_qpair_rewind(struct pcie_qpair *q);

/* doorbell.h's writer: publish @val. */
static inline void pcie_ring_doorbell(volatile uint32_t *db, _Atomic uint32_t *shadow,
				      _Atomic uint32_t *event, uint32_t val)
{
	/* entries and lists are in memory before the device can learn of them */
	dma_wmb();
	if (shadow) {
		uint32_t old = atomic_load_explicit(shadow, memory_order_relaxed), ei;

		atomic_store_explicit(shadow, htole32(val), memory_order_release);
		/* the device sets its event index, then looks at the shadow again; we store, then look at the index */
		atomic_thread_fence(memory_order_seq_cst);
		ei = le32toh(atomic_load_explicit(event, memory_order_relaxed));
		if ((uint16_t)(val - ei - 1) >= (uint16_t)(val - le32toh(old)))
			return;
	}
	/* the register itself: a plain 32-bit store for hardware, with release order for a device made of threads */
	atomic_store_explicit((volatile _Atomic uint32_t *)db, htole32(val), memory_order_release);
}

#endif
