/* SPDX-License-Identifier: MIT */
/*
 * Commands that wait without a thread: for a time (latency model, delays) in a heap, or for the fault script
 * to let them go. Each sits in a slot of its queue, taken when the queue was made.
 */
#include <errno.h>
#include <stdlib.h>

#include "emu/far.h"

/* Room in the heap for @nr more slots. */
int emu_wait_reserve(struct emu_ctrl *e, uint32_t nr)
{
	struct emu_cmd **more;
	uint32_t need = nr;

	pthread_mutex_lock(&e->wait_lock);
	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++)
		need += e->sq[qid].slots ? e->sq[qid].pool : 0;
	if (need > e->max_heap) {
		more = realloc(e->heap, need * sizeof(struct emu_cmd *));
		if (!more) {
			pthread_mutex_unlock(&e->wait_lock);
			return -ENOMEM;
		}
		e->heap = more;
		e->max_heap = need;
	}
	pthread_mutex_unlock(&e->wait_lock);
	return 0;
}

static struct emu_cmd *slot_get(const struct emu_cmd *c)
{
	struct emu_sq *sq = c->sq;
	struct emu_cmd *slot = sq->free_slot;
	uint32_t waiting = atomic_load_explicit(&sq->waiting, memory_order_relaxed);

	/* every fetched command has a slot to fall back to, so extras take only what is left over */
	if (!slot || (c->flags & EMU_CMD_EXTRA && waiting + emu_count_peek(&sq->busy) >= sq->pool))
		return NULL;
	sq->free_slot = slot->next;
	*slot = *c;
	slot->state = EMU_CMD_DONE;
	atomic_store_explicit(&sq->waiting, waiting + 1, memory_order_relaxed);
	return slot;
}

static void slot_put(struct emu_cmd *slot)
{
	struct emu_sq *sq = slot->sq;

	slot->state = EMU_CMD_FREE;
	slot->next = sq->free_slot;
	sq->free_slot = slot;
	atomic_store_explicit(&sq->waiting, atomic_load_explicit(&sq->waiting, memory_order_relaxed) - 1,
			      memory_order_relaxed);
}

struct emu_cmd *emu_slot_get(struct emu_ctrl *e, const struct emu_cmd *c)
{
	struct emu_cmd *slot;

	pthread_mutex_lock(&e->wait_lock);
	slot = slot_get(c);
	pthread_mutex_unlock(&e->wait_lock);
	return slot;
}

void emu_slot_put(struct emu_ctrl *e, struct emu_cmd *slot)
{
	pthread_mutex_lock(&e->wait_lock);
	slot_put(slot);
	pthread_mutex_unlock(&e->wait_lock);
}

struct emu_job *emu_job_get(struct emu_ctrl *e, const struct emu_cmd *c)
{
	struct emu_sq *sq = c->sq;
	struct emu_job *job = NULL;
	struct emu_cmd *slot;

	pthread_mutex_lock(&e->wait_lock);
	if (!sq->jobs)
		sq->jobs = calloc(sq->pool, sizeof(*sq->jobs));
	slot = sq->jobs ? slot_get(c) : NULL;
	if (slot) {
		slot->state = EMU_CMD_FAR;
		job = &sq->jobs[slot - sq->slots];
		job->slot = slot;
		/* while the command is on a thread, so whoever deletes the queue waits for it here or there */
		emu_count_get(&sq->far, 1);
	}
	pthread_mutex_unlock(&e->wait_lock);
	return job;
}

void emu_job_put(struct emu_ctrl *e, struct emu_cmd *slot, struct emu_cmd *ret)
{
	pthread_mutex_lock(&e->wait_lock);
	*ret = *slot;
	emu_count_get(&slot->sq->busy, 1);
	slot_put(slot);
	pthread_mutex_unlock(&e->wait_lock);
}

static void place(struct emu_ctrl *e, uint32_t pos, struct emu_cmd *c)
{
	e->heap[pos] = c;
	c->heap_pos = pos;
}

static void sift_up(struct emu_ctrl *e, uint32_t pos, struct emu_cmd *c)
{
	while (pos && e->heap[(pos - 1) / 2]->due > c->due) {
		place(e, pos, e->heap[(pos - 1) / 2]);
		pos = (pos - 1) / 2;
	}
	place(e, pos, c);
}

static void sift_down(struct emu_ctrl *e, uint32_t pos, struct emu_cmd *c)
{
	for (;;) {
		uint32_t kid = 2 * pos + 1;

		if (kid + 1 < e->nr_heap && e->heap[kid + 1]->due < e->heap[kid]->due)
			kid++;
		if (kid >= e->nr_heap || e->heap[kid]->due >= c->due)
			break;
		place(e, pos, e->heap[kid]);
		pos = kid;
	}
	place(e, pos, c);
}

static void publish_due(struct emu_ctrl *e)
{
	int64_t due = e->nr_heap ? e->heap[0]->due : INT64_MAX;
	int64_t irq = atomic_load_explicit(&e->irq.due, memory_order_relaxed);

	atomic_store_explicit(&e->nr_timed, e->nr_heap, memory_order_relaxed);
	atomic_store_explicit(&e->next_due, irq < due ? irq : due, memory_order_seq_cst);
}

bool emu_wait_irq(struct emu_ctrl *e, int64_t due, bool reset)
{
	bool earlier;

	pthread_mutex_lock(&e->wait_lock);
	earlier = due < atomic_load_explicit(&e->irq.due, memory_order_relaxed);
	if (earlier || reset) {
		atomic_store_explicit(&e->irq.due, due, memory_order_relaxed);
		publish_due(e);
	}
	pthread_mutex_unlock(&e->wait_lock);
	return earlier;
}

static void heap_push(struct emu_ctrl *e, struct emu_cmd *c)
{
	c->state = EMU_CMD_TIMED;
	sift_up(e, e->nr_heap++, c);
	publish_due(e);
}

static void heap_remove(struct emu_ctrl *e, struct emu_cmd *c)
{
	uint32_t pos = c->heap_pos;
	struct emu_cmd *last = e->heap[--e->nr_heap];

	if (last != c) {
		if (pos && e->heap[(pos - 1) / 2]->due > last->due)
			sift_up(e, pos, last);
		else
			sift_down(e, pos, last);
	}
	publish_due(e);
}

static void held_remove(struct emu_ctrl *e, struct emu_cmd *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		e->held = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

/* False: the queue is being deleted, and the command will not run. */
bool emu_wait_until(struct emu_actor *a, struct emu_cmd *c, int64_t due)
{
	struct emu_ctrl *e = a->e;
	struct emu_cmd *slot = NULL;

	pthread_mutex_lock(&e->wait_lock);
	if (atomic_load_explicit(&c->sq->live, memory_order_seq_cst))
		slot = slot_get(c);
	if (slot) {
		slot->due = due;
		heap_push(e, slot);
	}
	pthread_mutex_unlock(&e->wait_lock);
	return slot;
}

bool emu_wait_held(struct emu_actor *a, struct emu_cmd *c, int fault_id)
{
	struct emu_ctrl *e = a->e;
	struct emu_cmd *slot = NULL;

	pthread_mutex_lock(&e->wait_lock);
	if (atomic_load_explicit(&c->sq->live, memory_order_seq_cst))
		slot = slot_get(c);
	if (slot) {
		slot->state = EMU_CMD_HELD;
		slot->fault_id = fault_id;
		slot->prev = NULL;
		slot->next = e->held;
		if (e->held)
			e->held->prev = slot;
		e->held = slot;
	}
	pthread_mutex_unlock(&e->wait_lock);
	return slot;
}

bool emu_wait_pop(struct emu_ctrl *e, int64_t now, struct emu_cmd *ret)
{
	struct emu_cmd *c = NULL;

	pthread_mutex_lock(&e->wait_lock);
	if (e->nr_heap && e->heap[0]->due <= now) {
		c = e->heap[0];
		heap_remove(e, c);
		/* before it leaves the heap for others: a deletion finds it here or there */
		emu_count_get(&c->sq->busy, 1);
		*ret = *c;
		slot_put(c);
	}
	pthread_mutex_unlock(&e->wait_lock);
	return c;
}

void emu_wait_release(struct emu_ctrl *e, int fault_id)
{
	struct emu_cmd *c, *next;
	bool any = false;

	pthread_mutex_lock(&e->wait_lock);
	for (c = e->held; c; c = next) {
		next = c->next;
		if (c->fault_id != fault_id)
			continue;
		held_remove(e, c);
		c->due = 0;
		heap_push(e, c);
		any = true;
	}
	pthread_mutex_unlock(&e->wait_lock);
	if (any)
		emu_wake_one(e);
}

bool emu_wait_take(struct emu_ctrl *e, struct emu_sq *sq, int cid, struct emu_cmd *ret)
{
	bool found = false;

	pthread_mutex_lock(&e->wait_lock);
	for (uint32_t i = 0; sq->slots && i < sq->pool && !found; i++) {
		struct emu_cmd *c = &sq->slots[i];

		if ((c->state != EMU_CMD_TIMED && c->state != EMU_CMD_HELD) ||
		    (cid >= 0 && le16_get(c->sqe.cid) != cid))
			continue;
		if (c->state == EMU_CMD_TIMED)
			heap_remove(e, c);
		else
			held_remove(e, c);
		*ret = *c;
		slot_put(c);
		found = true;
	}
	pthread_mutex_unlock(&e->wait_lock);
	return found;
}
