/* SPDX-License-Identifier: MIT */
/* Completion queues: posting, phase tags, and what waits when the host has left no room. */
#include "emu/internal.h"

#define NO_HEAD 0xffffffffu
#define INVALID_DOORBELL_VALUE 1u

uint16_t emu_cq_create(struct emu_actor *a, uint16_t qid, uint64_t iova, uint32_t size, bool ien,
		       uint16_t vector)
{
	struct emu_cq *cq = &a->e->cq[qid];
	struct emu_map *m;
	void *ring;
	uint16_t st;

	st = emu_ring_find(a, iova, (uint64_t)size << NVME_CQES, EMU_DMA_WRITE, &ring, &m);
	if (st) {
		emu_actor_release(a);
		return st;
	}
	emu_lock(&cq->lock);
	cq->ring = ring;
	cq->map = m;
	cq->size = size;
	cq->ien = ien;
	cq->vector = vector;
	cq->head = 0;
	cq->tail = 0;
	cq->phase = 1;
	cq->bad_head = NO_HEAD;
	cq->nr_sqs = 0;
	atomic_store_explicit(cq->db, 0, memory_order_relaxed);
	atomic_store_explicit(&cq->live, true, memory_order_release);
	emu_unlock(&cq->lock);
	emu_actor_release(a);
	return 0;
}

void emu_cq_delete(struct emu_ctrl *e, struct emu_cq *cq)
{
	emu_lock(&cq->lock);
	atomic_store_explicit(&cq->live, false, memory_order_release);
	emu_ring_drop(cq->map);
	cq->ring = NULL;
	cq->map = NULL;
	while (cq->done_first) {
		struct emu_cmd *slot = cq->done_first;

		cq->done_first = slot->next;
		emu_slot_put(e, slot);
		atomic_fetch_sub_explicit(&cq->nr_done, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&e->nr_done, 1, memory_order_relaxed);
	}
	cq->done_last = NULL;
	emu_unlock(&cq->lock);
}

static void read_head(struct emu_actor *a, struct emu_cq *cq)
{
	struct emu_ctrl *e = a->e;
	_Atomic uint32_t *db = cq->db;
	uint32_t head, used = (cq->tail + cq->size - cq->head) % cq->size, left;

	if (cq->qid && atomic_load_explicit(&e->shadow, memory_order_relaxed))
		db = emu_shadow_slot(a, false, cq->qid, true);
	/* acquire: the host read the entries before it gave them back */
	head = atomic_load_explicit(db ? db : cq->db, memory_order_acquire);
	if (head == cq->head || head == cq->bad_head)
		return;
	left = (cq->tail + cq->size - head) % cq->size;
	if (head >= cq->size || left > used) {
		cq->bad_head = head;
		emu_protocol_error(e, INVALID_DOORBELL_VALUE);
		return;
	}
	if (db == cq->db)
		emu_stat_add(&cq->db_seen, 1);
	cq->head = head;
	cq->bad_head = NO_HEAD;
}

bool emu_cq_full(struct emu_actor *a, struct emu_cq *cq)
{
	uint32_t next = cq->tail + 1 == cq->size ? 0 : cq->tail + 1;

	/* the doorbell's cache line is the host's: looked at only when what was seen of it says full */
	if (likely(next != cq->head))
		return false;
	read_head(a, cq);
	return next == cq->head;
}

/* Past the tail, so that a host that believes it sees a full queue; or no position at all. */
static uint16_t insane_head(const struct emu_cmd *c, uint32_t head)
{
	if (le16_get(c->sqe.cid) & 1)
		return (uint16_t)(0xffff - head);
	return (uint16_t)(head + 1 == c->sq->size ? 0 : head + 1);
}

static void put_cqe(struct emu_actor *a, struct emu_cq *cq, const struct emu_cmd *c, uint16_t sqid,
		    uint16_t cid)
{
	const uint32_t stuck = c->flags & EMU_CMD_STUCK ? 1 : 0;
	struct nvme_cqe *cqe;

	if (unlikely(!cq->ring)) {
		emu_stat_add(&a->e->iommu_faults, 1);
		return;
	}
	cqe = &cq->ring[cq->tail];
	cqe->dw0 = le32_put(c->dw0);
	cqe->dw1 = 0;
	/* acquire: with the entries that this head gives back, their copying is over */
	cqe->sqhd = le16_put((uint16_t)atomic_load_explicit(&c->sq->head, memory_order_acquire));
	if (unlikely(c->flags & EMU_CMD_SQHD))
		cqe->sqhd = le16_put(insane_head(c, le16_get(cqe->sqhd)));
	cqe->sqid = le16_put(sqid);
	/* release: the phase tag is the last that the host may see of an entry, and of the data */
	__atomic_store_n(&cqe->dw3, le32_put(cid | (cq->phase ^ stuck) << 16 | (uint32_t)c->status << 17),
			 __ATOMIC_RELEASE);
	if (++cq->tail == cq->size) {
		cq->tail = 0;
		cq->phase ^= 1;
	}
	a->nr_posted++;
	if (cq->ien && !(c->flags & EMU_CMD_QUIET)) {
		a->signal_vector = cq->vector;
		a->signal_now |= !cq->qid;
		a->nr_signal++;
	}
}

static bool may_post(struct emu_ctrl *e, struct emu_cq *cq)
{
	return atomic_load_explicit(&cq->live, memory_order_relaxed) &&
	       !atomic_load_explicit(&e->halted, memory_order_relaxed) &&
	       !atomic_load_explicit(&e->io.off, memory_order_relaxed);
}

void emu_cq_post(struct emu_actor *a, struct emu_cq *cq, const struct emu_cmd *c, uint16_t sqid, uint16_t cid)
{
	struct emu_ctrl *e = a->e;
	struct emu_cmd *slot;

	if (unlikely(!may_post(e, cq)))
		return;
	if (likely(!cq->done_first && !emu_cq_full(a, cq))) {
		put_cqe(a, cq, c, sqid, cid);
		return;
	}
	slot = emu_slot_get(e, c);
	if (!slot) /* only extra completions of the fault script run out of slots */
		return;
	slot->sqe.cid = le16_put(cid);
	slot->sqe.cdw2 = le32_put(sqid);
	slot->next = NULL;
	if (cq->done_first)
		cq->done_last->next = slot;
	else
		cq->done_first = slot;
	cq->done_last = slot;
	atomic_fetch_add_explicit(&cq->nr_done, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->nr_done, 1, memory_order_release);
}

/* Post what waited for room, in order, as far as there is some. Under cq->lock. */
void emu_cq_drain_done(struct emu_actor *a, struct emu_cq *cq)
{
	while (cq->done_first && may_post(a->e, cq) && !emu_cq_full(a, cq)) {
		struct emu_cmd *slot = cq->done_first;

		cq->done_first = slot->next;
		put_cqe(a, cq, slot, (uint16_t)le32_get(slot->sqe.cdw2), le16_get(slot->sqe.cid));
		emu_slot_put(a->e, slot);
		atomic_fetch_sub_explicit(&cq->nr_done, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&a->e->nr_done, 1, memory_order_relaxed);
	}
}

/* The queue is going, and so are its slots: what still has no room is dropped. */
void emu_cq_forget_sq(struct emu_ctrl *e, struct emu_cq *cq, struct emu_sq *sq)
{
	struct emu_cmd **p, *slot;

	emu_lock(&cq->lock);
	cq->done_last = NULL;
	for (p = &cq->done_first; (slot = *p);) {
		if (slot->sq != sq) {
			cq->done_last = slot;
			p = &slot->next;
			continue;
		}
		*p = slot->next;
		emu_slot_put(e, slot);
		atomic_fetch_sub_explicit(&cq->nr_done, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&e->nr_done, 1, memory_order_relaxed);
	}
	emu_unlock(&cq->lock);
}

void emu_signal(struct emu_actor *a)
{
	struct emu_irq *q = &a->e->irq;
	uint32_t n = a->nr_signal;
	bool now = a->signal_now;

	if (!n)
		return;
	a->nr_signal = 0;
	a->signal_now = false;
	/* acquire: with the number comes the time */
	if (likely(atomic_load_explicit(&q->together, memory_order_acquire) == 1) || now ||
	    !emu_coalesce(a->e, a->signal_vector, n))
		emu_irq_raise(q, a->signal_vector, n);
}

void emu_cq_lock(struct emu_actor *a, struct emu_cq *cq)
{
	if (a->kept_cq != cq)
		emu_lock(&cq->lock);
}

void emu_cq_unlock(struct emu_actor *a, struct emu_cq *cq)
{
	if (a->kept_cq != cq)
		emu_unlock(&cq->lock);
}

void emu_complete(struct emu_actor *a, const struct emu_cmd *c)
{
	struct emu_cq *cq = c->sq->cq;

	if (unlikely(c->status))
		emu_error_log(a->e, c, c->status);
	if (a->nr_signal && a->signal_vector != cq->vector)
		emu_signal(a);
	emu_cq_lock(a, cq);
	emu_cq_post(a, cq, c, c->sq->qid, le16_get(c->sqe.cid));
	if (unlikely(c->flags & EMU_CMD_TWICE)) {
		struct emu_cmd extra = *c;

		extra.flags |= EMU_CMD_EXTRA;
		emu_cq_post(a, cq, &extra, c->sq->qid, le16_get(c->sqe.cid));
	}
	emu_cq_unlock(a, cq);
}

/* The host is to ring the doorbell when it takes an entry from here on. Under cq->lock. */
void emu_cq_announce(struct emu_actor *a, struct emu_cq *cq)
{
	_Atomic uint32_t *ev = emu_shadow_slot(a, true, cq->qid, true);

	if (ev)
		atomic_store_explicit(ev, cq->head, memory_order_seq_cst);
}
