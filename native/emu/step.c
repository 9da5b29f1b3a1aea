/* SPDX-License-Identifier: MIT */
/*
 * Stepping: a host thread that waits for its own queue serves it, where that can be done at once. What cannot
 * is left at the head of the queue, in order, for the device threads.
 */
#include "emu/far.h"
#include "support/barrier.h"

#define STEP_BYTES (32u << 10)
#define STEP_LONG_BYTES (256u << 10) /* by a caller that asks for one command, and waits for no other */
#define STEP_IOV 18 /* pages of a read on far memory */
#define STEP_HOLD 32
#define STEP_COPY_NS \
	(20 * NSEC_PER_USEC) /* what copies of small reads may take, before they are the device threads' */

/* Nothing about the command makes it wait for a device, or for a script. */
static bool at_once(struct emu_ctrl *e, struct emu_sq *sq, const struct nvme_sqe *s, uint64_t most)
{
	struct emu_ns *ns = &e->ns[0];
	uint64_t nbytes;

	if (unlikely(atomic_load_explicit(&e->nr_faults, memory_order_relaxed)) &&
	    emu_fault_concerns(e, sq->qid, s))
		return false;
	if (e->nodata)
		return s->opcode != NVME_IO_DSM; /* its ranges need a buffer */
	if (s->opcode != NVME_IO_READ)
		return false;
	if (unlikely(atomic_load_explicit(&ns->nsid, memory_order_relaxed) != le32_get(s->nsid)))
		ns = emu_ns_find(e, le32_get(s->nsid));
	if (!ns || !(ns->fd < 0 || ns->nowait || ns->memory_like))
		return false;
	nbytes = ((le32_get(s->cdw12) & 0xffff) + 1ull) << ns->shift;
	return nbytes <= STEP_BYTES || (emu_far_here(e, s) ? nbytes <= EMU_FAR_LIGHT : nbytes <= most);
}

/* Under sq->lock, as all that steps. */
static __attribute__((noinline)) uint16_t begin_far(struct emu_actor *a, struct emu_sq *sq,
						    const struct emu_cmd *c)
{
	if (!a->gather) {
		if (!sq->gather)
			sq->gather = emu_gather_new(EMU_FAR_STEP_COPIES);
		if (!sq->gather)
			return EMU_STATUS_AGAIN;
		sq->gather->before = emu_count_peek(&sq->far);
		a->gather = sq->gather;
	}
	return emu_far_start(a, c);
}

/* Serve from the head on, until one has to be left. Under sq->lock. */
static uint32_t serve(struct emu_actor *a, struct emu_sq *sq, uint32_t max, bool *ret_left)
{
	struct emu_ctrl *e = a->e;
	struct emu_cq *cq = sq->cq;
	uint32_t head = atomic_load_explicit(&sq->head, memory_order_relaxed), n = 0;
	bool keep = e->nodata; /* the queue's lock for the whole run: no command takes long */
	const uint64_t most = max == 1 ? STEP_LONG_BYTES : STEP_BYTES;
	struct emu_cmd c;

	max = min_u32(max, emu_sq_avail(a, sq));
	if (!max)
		return 0;
	max = min_u32(max, emu_sq_room(sq)); /* a full completion queue makes completions wait in slots */
	if (keep)
		emu_lock(&cq->lock);
	while (n < max) {
		/* what waits for room, or is to be aborted, is the device threads' */
		*ret_left = sq->nr_aborts || atomic_load_explicit(&cq->nr_done, memory_order_relaxed);
		if (unlikely(*ret_left))
			break;
		emu_fill_cmd(&c, sq, &sq->ring[head]);
		c.status = at_once(e, sq, &c.sqe, most) ? emu_io_exec(a, &c.sqe) : EMU_STATUS_AGAIN;
		if (unlikely(c.status >= EMU_STATUS_FAR)) {
			if (c.status == EMU_STATUS_FAR)
				c.status = begin_far(a, sq, &c);
			if (c.status == EMU_STATUS_AGAIN) {
				*ret_left = true;
				break;
			}
			max -= c.status == EMU_STATUS_BEGUN;
		}
		head = head + 1 == sq->size ? 0 : head + 1;
		/* release: the entry was copied before the host may have it back */
		atomic_store_explicit(&sq->head, head, memory_order_release);
		if (unlikely(c.status)) {
			if (c.status == EMU_STATUS_BEGUN)
				continue;
			emu_error_log(e, &c, c.status);
		}
		n++;
		emu_stat_own(&a->stats->commands, 1);
		if (keep) {
			emu_cq_post(a, cq, &c, sq->qid, le16_get(c.sqe.cid));
			continue;
		}
		emu_actor_release(a);
		emu_lock(&cq->lock);
		emu_cq_post(a, cq, &c, sq->qid, le16_get(c.sqe.cid));
		emu_unlock(&cq->lock);
	}
	if (keep)
		emu_unlock(&cq->lock);
	return n;
}

/* A small copy takes no longer than handing it over. What does not end soon is left to the device threads. */
static __attribute__((noinline)) void await_copies(struct emu_actor *a, struct emu_sq *sq)
{
	int64_t end = 0, now;

	emu_gather_begin(a);
	for (;;) {
		emu_far_poll(a, sq);
		if (emu_count_peek(&sq->far) <= a->gather->before)
			return;
		now = now_ns();
		end = end ? end : now + STEP_COPY_NS;
		if (now >= end)
			break;
		cpu_relax();
	}
	emu_kick(a->e, sq->qid);
}

uint32_t emu_step(struct emu_ctrl *e, uint32_t qid, uint32_t max)
{
	struct iovec iov[STEP_IOV];
	struct emu_hold hold[STEP_HOLD];
	struct emu_sq *sq;
	struct emu_actor a;
	bool left = false;
	uint32_t n;

	if (unlikely(!e->step || !qid || qid > EMU_MAX_QID))
		return 0;
	sq = &e->sq[qid];
	/* a look without the lock first: an idle queue costs next to nothing */
	if (atomic_load_explicit(&sq->handoff, memory_order_relaxed) || !emu_trylock(&sq->lock))
		return 0;
	if (!atomic_load_explicit(&sq->live, memory_order_relaxed)) {
		emu_unlock(&sq->lock);
		return 0;
	}
	a.e = e;
	a.iov = iov;
	a.nr_iov = 0;
	a.max_iov = STEP_IOV;
	a.hold = hold;
	a.nr_hold = 0;
	a.max_hold = STEP_HOLD;
	a.nowait = true;
	a.faulted = false;
	a.signal_vector = 0;
	a.signal_now = false;
	a.nr_signal = 0;
	a.nr_posted = 0;
	a.kept_cq = NULL;
	a.stats = &sq->stepped;
	a.scratch = NULL;
	a.batch = NULL;
	a.gather = NULL;
	n = serve(&a, sq, max, &left);
	if (unlikely(a.gather))
		await_copies(&a, sq);
	if (left)
		atomic_store_explicit(&sq->handoff, true, memory_order_relaxed);
	emu_actor_release(&a);
	emu_signal(&a);
	emu_unlock(&sq->lock);
	if (left)
		emu_kick(e, qid);
	return n;
}
