/* SPDX-License-Identifier: MIT */
/* Device threads: fetch under the queue's lock, several commands at once; run them outside it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "emu/far.h"
#include "emu/merge.h"
#include "support/thread.h"

#define MAX_HOLD (2 * EMU_IOV_MAX)
#define TIMERS_PER_PASS 32
#define TIMED_BYTES (64u << 10) /* then it looks for new commands, whose time runs from then on */
#define WARM_BYTES (256u << 10) /* of a command that is one of several, as a rule */

/* What one thread needs, in one piece. */
struct room {
	uint8_t scratch[EMU_SCRATCH_BYTES] __attribute__((aligned(EMU_IO_PAGE))); /* O_DIRECT */
	struct iovec iov[EMU_IOV_MAX];
	struct emu_hold hold[MAX_HOLD];
	struct emu_cmd batch[EMU_BATCH];
};

/* Under sq->lock: copy commands out of the ring, as many as one thread should take. */
static uint32_t fetch(struct emu_actor *a, struct emu_sq *sq, uint32_t max)
{
	struct emu_ctrl *e = a->e;
	uint32_t head = atomic_load_explicit(&sq->head, memory_order_relaxed), n = 0;
	uint64_t bytes = 0, joined = 0, share;
	bool file = e->ns[0].fd >= 0 && !e->nodata, merges = file && sq->qid && emu_merges(e);
	const uint64_t most = e->ns[0].direct_fd < 0 ? EMU_MERGE_BYTES : EMU_MERGE_DIRECT;
	bool far = atomic_load_explicit(&e->stages, memory_order_relaxed), light = false;

	max = min_u32(max, emu_sq_room(sq));
	share = emu_sq_avail(a, sq);
	max = min_u32(max, (uint32_t)share);
	/* joined ones leave some for every thread; a pair is always one */
	share = max_u64(2, share / e->nr_workers);
	while (n < max && bytes < e->fetch_bytes) {
		struct emu_cmd *c = &a->batch[n];

		/* copies that were gathered do not wait for what may take its time */
		if (unlikely(far) && n && light != emu_far_light(e, &sq->ring[head]))
			break;
		n++;
		emu_fill_cmd(c, sq, &sq->ring[head]);
		head = head + 1 == sq->size ? 0 : head + 1;
		if (unlikely(sq->nr_aborts) && emu_sq_take_abort(sq, le16_get(c->sqe.cid)))
			c->flags |= EMU_CMD_ABORTED;
		/* a file may block for any command, but for those that go along; memory for the bytes only */
		if (unlikely(far))
			light = emu_far_light(e, &c->sqe);
		if (merges && n < max) {
			joined += emu_io_bytes(e, &c->sqe);
			if (n < share && joined < most &&
			    emu_merge_follows(&e->ns[0], &c->sqe, &sq->ring[head]))
				continue;
		}
		if (!e->nodata)
			bytes += !file || light ? emu_io_bytes(e, &c->sqe) : e->fetch_bytes;
	}
	if (n) {
		emu_count_get(&sq->busy, n);
		/* release: the entries were copied before the host may have them back */
		atomic_store_explicit(&sq->head, head, memory_order_release);
		atomic_store_explicit(&sq->handoff, false, memory_order_relaxed);
	}
	return n;
}

static bool serve(struct emu_actor *a, struct emu_sq *sq, uint32_t max)
{
	struct emu_ctrl *e = a->e;
	uint32_t n = 0;

	/* somebody else, a stepper perhaps, is at this queue */
	if (!emu_trylock(&sq->lock))
		return false;
	if (atomic_load_explicit(&sq->live, memory_order_relaxed))
		n = fetch(a, sq, max);
	emu_unlock(&sq->lock);
	if (!n)
		return false;
	/* enough for another thread: wake one, which may wake the next; and copies are looked after */
	if (atomic_load_explicit(&e->sleepers, memory_order_relaxed) &&
	    (emu_work_left(a, sq) || emu_far_any(e)))
		emu_kick_others(e);
	if (e->nodata && sq->qid) {
		emu_lock(&sq->cq->lock);
		a->kept_cq = sq->cq;
	}
	for (uint32_t i = 0, ran; i < n; i += ran) {
		if (e->warm && emu_io_bytes(e, &a->batch[i].sqe) >= WARM_BYTES)
			emu_stay_warm(a);
		ran = sq->qid ? emu_run_merged(a, &a->batch[i], n - i) : 0;
		if (ran)
			continue;
		emu_run(a, &a->batch[i]);
		ran = 1;
	}
	if (a->kept_cq)
		emu_unlock(&a->kept_cq->lock);
	a->kept_cq = NULL;
	emu_gather_begin(a);
	emu_actor_release(a);
	emu_signal(a);
	emu_count_put(&sq->busy, n);
	return true;
}

static bool run_timers(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	int64_t due = atomic_load_explicit(&e->next_due, memory_order_relaxed);
	uint64_t bytes = 0;
	struct emu_cmd c;
	uint32_t n = 0;

	if (likely(due == INT64_MAX))
		return false;
	if (unlikely(atomic_load_explicit(&e->irq.due, memory_order_relaxed) != INT64_MAX))
		n += emu_coalesce_expire(e, now_ns());
	while (n < TIMERS_PER_PASS && bytes < TIMED_BYTES && emu_wait_pop(e, now_ns(), &c)) {
		/* it may take its time on a file: others see to what else is due */
		if (!e->nodata && atomic_load_explicit(&e->sleepers, memory_order_relaxed) &&
		    (emu_work_pending(a) || emu_far_any(e)))
			emu_kick_others(e);
		emu_run(a, &c);
		emu_gather_begin(a);
		emu_actor_release(a);
		emu_signal(a);
		emu_count_put(&c.sq->busy, 1);
		bytes += e->nodata ? 0 : emu_io_bytes(e, &c.sqe);
		n++;
	}
	return n;
}

static bool drain_full_queues(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;

	a->nr_posted = 0;
	if (likely(!atomic_load_explicit(&e->nr_done, memory_order_acquire)))
		return false;
	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++) {
		struct emu_cq *cq = &e->cq[qid];

		if (!atomic_load_explicit(&cq->nr_done, memory_order_relaxed))
			continue;
		emu_lock(&cq->lock);
		emu_cq_drain_done(a, cq);
		emu_unlock(&cq->lock);
		emu_signal(a);
		emu_actor_release(a);
	}
	return a->nr_posted;
}

bool emu_pass(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	struct emu_sq *sq;
	uint32_t max;
	bool did;

	if (unlikely(atomic_load_explicit(&e->event_bits, memory_order_relaxed)))
		emu_raise_event_bits(a);
	did = run_timers(a);
	did |= drain_full_queues(a);
	if (emu_far_any(e))
		did |= emu_far_poll(a, NULL);
	sq = emu_arbitrate(a, &max);
	did |= sq && serve(a, sq, max);
	emu_actor_release(a);
	return did;
}

static void *worker_main(void *arg)
{
	struct emu_worker *w = arg;
	struct emu_ctrl *e = w->e;
	struct room *room = w->room;
	struct emu_actor a = { .e = e,
			       .stats = &w->served,
			       .iov = room->iov,
			       .max_iov = EMU_IOV_MAX,
			       .hold = room->hold,
			       .max_hold = MAX_HOLD,
			       .scratch = room->scratch,
			       .gather = w->gather,
			       .batch = room->batch,
			       .cursor = w->index };

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* the latency model's times are tens of microseconds */
	while (!atomic_load_explicit(&e->quit, memory_order_relaxed))
		if (!emu_pass(&a))
			emu_idle(&a);
	return NULL;
}

int emu_workers_start(struct emu_ctrl *e)
{
	char name[16];
	int rc = 0;

	e->workers = aligned_alloc(CACHELINE, e->p.threads * sizeof(*e->workers));
	if (!e->workers)
		return -ENOMEM;
	memset(e->workers, 0, e->p.threads * sizeof(*e->workers));
	e->nr_workers = e->p.threads;
	e->warm = sysconf(_SC_NPROCESSORS_ONLN) >= 2 * (long)e->nr_workers;
	for (uint32_t i = 0; i < e->nr_workers && !rc; i++) {
		struct emu_worker *w = &e->workers[i];

		*w = (struct emu_worker){ .e = e,
					  .index = i,
					  .room = aligned_alloc(EMU_IO_PAGE, sizeof(struct room)),
					  .gather = emu_gather_new(EMU_IOV_MAX) };
		snprintf(name, sizeof(name), "ugds-emu-%u", (uint16_t)i);
		rc = w->room && w->gather ? thread_start(&w->thread, name, worker_main, w) : -ENOMEM;
		w->started = !rc;
	}
	return rc;
}

void emu_workers_stop(struct emu_ctrl *e)
{
	atomic_store_explicit(&e->quit, true, memory_order_seq_cst);
	for (uint32_t i = 0; i < e->nr_workers; i++)
		emu_wake_one(e);
	for (uint32_t i = 0; i < e->nr_workers; i++) {
		if (e->workers[i].started)
			pthread_join(e->workers[i].thread, NULL);
		free(e->workers[i].room);
		free(e->workers[i].gather);
	}
	free(e->workers);
	e->workers = NULL;
	e->nr_workers = 0;
}
