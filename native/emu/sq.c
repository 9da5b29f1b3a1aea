/* SPDX-License-Identifier: MIT */
/* Submission queues: creation, doorbells, and an end that waits for everything on the way. */
#include <stdlib.h>

#include "emu/far.h"

#define NO_TAIL 0xffffffffu
#define INVALID_DOORBELL_VALUE 1u

static int slots_new(struct emu_ctrl *e, struct emu_sq *sq, uint32_t size)
{
	uint32_t nr = size + EMU_SPARE_SLOTS + (sq->qid ? 0 : EMU_AER_MAX);
	struct emu_cmd *slots = calloc(nr, sizeof(*slots));
	int rc = slots ? emu_wait_reserve(e, nr) : -1;

	if (rc) {
		free(slots);
		return rc;
	}
	for (uint32_t i = 0; i + 1 < nr; i++)
		slots[i].next = &slots[i + 1];
	pthread_mutex_lock(&e->wait_lock);
	sq->slots = slots;
	sq->free_slot = slots;
	sq->pool = nr;
	pthread_mutex_unlock(&e->wait_lock);
	return 0;
}

uint16_t emu_sq_create(struct emu_actor *a, uint16_t qid, uint64_t iova, uint32_t size, uint8_t prio,
		       struct emu_cq *cq)
{
	struct emu_ctrl *e = a->e;
	struct emu_sq *sq = &e->sq[qid];
	struct emu_map *m;
	void *ring;
	uint16_t st;

	st = emu_ring_find(a, iova, (uint64_t)size << NVME_SQES, EMU_DMA_READ, &ring, &m);
	if (st) {
		emu_actor_release(a);
		return st;
	}
	if (slots_new(e, sq, size)) {
		emu_ring_drop(m);
		emu_actor_release(a);
		return NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INTERNAL);
	}
	emu_lock(&sq->lock);
	sq->ring = ring;
	sq->map = m;
	sq->size = size;
	atomic_store_explicit(&sq->prio, prio, memory_order_relaxed);
	sq->cq = cq;
	sq->last_db = 0;
	sq->nr_aborts = 0;
	atomic_store_explicit(&sq->nr_slots, size, memory_order_relaxed);
	atomic_store_explicit(&sq->head, 0, memory_order_relaxed);
	atomic_store_explicit(&sq->bad_tail, NO_TAIL, memory_order_relaxed);
	atomic_store_explicit(&sq->handoff, false, memory_order_relaxed);
	atomic_store_explicit(&sq->broken, false, memory_order_relaxed);
	atomic_store_explicit(sq->db, 0, memory_order_relaxed);
	atomic_store_explicit(&sq->live, true, memory_order_release);
	emu_unlock(&sq->lock);
	emu_actor_release(a);
	cq->nr_sqs++;
	atomic_fetch_or_explicit(&e->live_sqs[qid / 64], 1ull << qid % 64, memory_order_release);
	return 0;
}

void emu_sq_delete(struct emu_actor *a, struct emu_sq *sq, uint16_t status)
{
	struct emu_ctrl *e = a->e;
	struct emu_cmd c;

	emu_lock(&sq->lock);
	/* from here on nothing is fetched, and what wants to wait is refused (wait.c) */
	atomic_store_explicit(&sq->live, false, memory_order_seq_cst);
	while (status && emu_sq_avail(a, sq)) {
		uint32_t head = atomic_load_explicit(&sq->head, memory_order_relaxed);

		emu_fill_cmd(&c, sq, &sq->ring[head]);
		atomic_store_explicit(&sq->head, head + 1 == sq->size ? 0 : head + 1, memory_order_release);
		c.status = status;
		emu_complete(a, &c);
	}
	emu_unlock(&sq->lock);
	while (emu_wait_take(e, sq, -1, &c)) {
		c.status = status;
		if (status)
			emu_complete(a, &c);
	}
	emu_actor_release(a);
	emu_signal(a);
	atomic_fetch_and_explicit(&e->live_sqs[sq->qid / 64], ~(1ull << sq->qid % 64), memory_order_release);
	emu_count_wait_zero(&sq->busy);
	/* those on far memory end as those on a thread do: with what comes of them */
	if (emu_count_peek(&sq->far))
		emu_far_drain(a, sq);

	emu_cq_forget_sq(e, sq->cq, sq);
	emu_lock(&sq->lock);
	emu_ring_drop(sq->map);
	sq->ring = NULL;
	sq->map = NULL;
	free(sq->gather);
	sq->gather = NULL;
	emu_unlock(&sq->lock);
	pthread_mutex_lock(&e->wait_lock);
	free(sq->slots);
	free(sq->jobs);
	sq->slots = NULL;
	sq->jobs = NULL;
	sq->free_slot = NULL;
	atomic_store_explicit(&sq->waiting, 0, memory_order_relaxed);
	pthread_mutex_unlock(&e->wait_lock);
	sq->cq->nr_sqs--;
}

static uint32_t read_tail(struct emu_actor *a, struct emu_sq *sq)
{
	_Atomic uint32_t *db = sq->db;

	if (unlikely(sq->qid && atomic_load_explicit(&a->e->shadow, memory_order_relaxed))) {
		db = emu_shadow_slot(a, false, sq->qid, false);
		if (!db)
			db = sq->db;
	}
	/* acquire: the entries were written before the doorbell */
	return atomic_load_explicit(db, memory_order_acquire);
}

/* Commands in the ring that were not fetched. Under sq->lock. */
uint32_t emu_sq_avail(struct emu_actor *a, struct emu_sq *sq)
{
	uint32_t tail = read_tail(a, sq), head = atomic_load_explicit(&sq->head, memory_order_relaxed);
	uint32_t db = atomic_load_explicit(sq->db, memory_order_relaxed);

	if (db != sq->last_db) {
		sq->last_db = db;
		/* no read-modify-write: written under the lock only */
		atomic_store_explicit(&sq->db_seen, emu_stat_get(&sq->db_seen) + 1, memory_order_relaxed);
	}
	if (tail == head || atomic_load_explicit(&a->e->halted, memory_order_relaxed) ||
	    atomic_load_explicit(&a->e->io.off, memory_order_relaxed))
		return 0;
	if (unlikely(tail >= sq->size)) {
		if (atomic_exchange_explicit(&sq->bad_tail, tail, memory_order_relaxed) != tail)
			emu_protocol_error(a->e, INVALID_DOORBELL_VALUE);
		return 0;
	}
	if (unlikely(!sq->ring)) {
		if (!atomic_exchange_explicit(&sq->broken, true, memory_order_relaxed))
			emu_stat_add(&a->e->iommu_faults, 1);
		return 0;
	}
	return tail > head ? tail - head : tail + sq->size - head;
}

/* Slots that fetched commands could still need. */
uint32_t emu_sq_room(struct emu_sq *sq)
{
	uint32_t used = emu_count_peek(&sq->busy) + atomic_load_explicit(&sq->waiting, memory_order_relaxed);
	uint32_t nr = atomic_load_explicit(&sq->nr_slots, memory_order_relaxed);

	return used < nr ? nr - used : 0;
}

/* Worth a fetch? A look without the lock, for scans. */
bool emu_sq_pending(struct emu_actor *a, struct emu_sq *sq)
{
	uint32_t tail;

	if (!atomic_load_explicit(&sq->live, memory_order_acquire) ||
	    atomic_load_explicit(&sq->broken, memory_order_relaxed))
		return false;
	tail = read_tail(a, sq);
	return tail != atomic_load_explicit(&sq->head, memory_order_relaxed) &&
	       tail != atomic_load_explicit(&sq->bad_tail, memory_order_relaxed) && emu_sq_room(sq) &&
	       !atomic_load_explicit(&a->e->halted, memory_order_relaxed) &&
	       !atomic_load_explicit(&a->e->io.off, memory_order_relaxed);
}

/* The host asked to abort a command before it was fetched. Under sq->lock. */
bool emu_sq_take_abort(struct emu_sq *sq, uint16_t cid)
{
	for (uint32_t i = 0; i < sq->nr_aborts; i++) {
		if (sq->aborts[i] == cid) {
			sq->aborts[i] = sq->aborts[--sq->nr_aborts];
			return true;
		}
	}
	return false;
}

/* The host is to ring the doorbell when it sends more than what is there now. */
void emu_sq_announce(struct emu_actor *a, struct emu_sq *sq)
{
	_Atomic uint32_t *ev = emu_shadow_slot(a, true, sq->qid, false);
	uint32_t tail;

	if (!ev)
		return;
	/* Another thread may announce at the same time. A mark from before it must not stay the last word: the host
	 * would take it for one that it has passed, and ring no more. */
	do {
		tail = read_tail(a, sq);
		atomic_store_explicit(ev, tail, memory_order_seq_cst);
		emu_full_fence();
	} while (read_tail(a, sq) != tail);
}
