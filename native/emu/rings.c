/* SPDX-License-Identifier: MIT */
/*
 * Rings in host memory, and shadow doorbells. A ring is translated once, at creation. It is used under its
 * queue's lock only, so unmapping its memory takes it from the queue under that lock: no count per access.
 */
#include "emu/internal.h"

#define BAD_FIELD (NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_FIELD) | EMU_DNR)
#define BAD_OFFSET (NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_PRP_OFFSET) | EMU_DNR)
#define TRANSFER_ERROR NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_DATA_TRANSFER)

/* The actor holds the mapping on return; the ring is counted on it, until emu_ring_drop(). */
uint16_t emu_ring_find(struct emu_actor *a, uint64_t iova, uint64_t nbytes, uint32_t perm, void **ret,
		       struct emu_map **ret_map)
{
	struct emu_map *m;
	uint8_t *base, *p;

	if (iova & (atomic_load_explicit(&a->e->page_bytes, memory_order_relaxed) - 1))
		return BAD_OFFSET;
	base = emu_translate(a, iova, perm);
	if (!base)
		return TRANSFER_ERROR;
	m = a->hold[a->nr_hold - 1].map;
	for (uint64_t off = EMU_IO_PAGE; off < nbytes; off += EMU_IO_PAGE) {
		p = emu_translate(a, iova + off, perm);
		if (!p)
			return TRANSFER_ERROR;
		/* contiguous on the bus (PC = 1), and here one mapping as well */
		if (p != base + off || a->hold[a->nr_hold - 1].map != m)
			return BAD_FIELD;
	}
	atomic_fetch_add_explicit(&m->nr_rings, 1, memory_order_relaxed);
	*ret = base;
	*ret_map = m;
	return 0;
}

void emu_ring_drop(struct emu_map *m)
{
	if (m)
		atomic_fetch_sub_explicit(&m->nr_rings, 1, memory_order_relaxed);
}

/* @m has no leaves and no users any more; whoever found a ring in it was a user until the queue had it. */
void emu_rings_forget(struct emu_ctrl *e, struct emu_map *m)
{
	if (!atomic_load_explicit(&m->nr_rings, memory_order_relaxed))
		return;
	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++) {
		struct emu_sq *sq = &e->sq[qid];
		struct emu_cq *cq = &e->cq[qid];

		emu_lock(&sq->lock);
		if (sq->map == m) {
			sq->ring = NULL;
			sq->map = NULL;
			emu_ring_drop(m);
		}
		emu_unlock(&sq->lock);
		emu_lock(&cq->lock);
		if (cq->map == m) {
			cq->ring = NULL;
			cq->map = NULL;
			emu_ring_drop(m);
		}
		emu_unlock(&cq->lock);
	}
}

/* Whoever uses a ring now has left it when this returns. */
void emu_rings_fence(struct emu_ctrl *e)
{
	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++) {
		emu_lock(&e->sq[qid].lock);
		emu_unlock(&e->sq[qid].lock);
		emu_lock(&e->cq[qid].lock);
		emu_unlock(&e->cq[qid].lock);
	}
}

/* A slot of the shadow doorbell or EventIdx page. A host that unmapped them is back to plain doorbells. */
_Atomic uint32_t *emu_shadow_slot(struct emu_actor *a, bool event, uint32_t qid, bool cq)
{
	struct emu_ctrl *e = a->e;
	uint64_t base = atomic_load_explicit(event ? &e->shadow_ev : &e->shadow_db, memory_order_relaxed);
	uint8_t *p;

	p = emu_translate(a, base + ((2ull * qid + cq) << (2 + e->p.dstrd)),
			  event ? EMU_DMA_WRITE : EMU_DMA_READ);
	if (!p)
		atomic_store_explicit(&e->shadow, false, memory_order_relaxed);
	/* Looked at again after counting in on the page: see emu_shadow_stop(). */
	else if (!atomic_load_explicit(&e->shadow, memory_order_relaxed))
		return NULL;
	return (_Atomic uint32_t *)(void *)p;
}

/* No device thread touches the pages when this returns. A scan, or a late announcement, holds no queue's lock. */
void emu_shadow_stop(struct emu_ctrl *e)
{
	const uint64_t base[] = { atomic_load_explicit(&e->shadow_db, memory_order_relaxed),
				  atomic_load_explicit(&e->shadow_ev, memory_order_relaxed) };

	if (!atomic_exchange_explicit(&e->shadow, false, memory_order_seq_cst))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(base); i++) {
		uint64_t leaf = emu_iommu_leaf(&e->io, base[i]);

		if (leaf)
			emu_count_wait_zero(&emu_iommu_slot(&e->io, EMU_LEAF_SLOT(leaf))->users);
	}
}

void emu_protocol_error(struct emu_ctrl *e, uint32_t info)
{
	emu_stat_add(&e->protocol_errors, 1);
	atomic_fetch_or_explicit(&e->event_bits, 1u << info, memory_order_release);
	emu_wake_one(e);
}
