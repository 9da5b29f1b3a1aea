/* SPDX-License-Identifier: MIT */
/*
 * Completing operations: the engine's hot path, with the lane's lock held. Items of a batch mostly end in runs that
 * are alike, so what they have in common (references, statistics, the batch's tail) is settled once a run. All that one
 * call finds came back at one time, as far as the tallies are concerned: the clock is read once.
 */
#include "nvme/chan.h"
#include "nvme/end.h"
#include "nvme/trace.h"
#include "support/probe.h"

#define REAP 64

struct run {
	struct nvme_batch *batch; /* NULL: none */
	struct mem_map *map;
	struct nvme_ns *ns;
	struct nvme_tally *tally; /* NULL: none */
	int64_t sent_ns;
	uint64_t nbytes;
	uint32_t each; /* bytes of each */
	uint32_t n;
	uint32_t tail; /* of the batch's ring, with this run */
	uint8_t opcode;
	uint8_t cls;
};

static inline void count_done(struct nvme_lane_stats *st, uint8_t opcode, uint32_t n, uint64_t nbytes)
{
	switch (opcode) {
	case NVME_IO_READ:
		st->reads += n;
		st->read_bytes += nbytes;
		break;
	case NVME_IO_WRITE:
		st->writes += n;
		st->write_bytes += nbytes;
		break;
	default:
		st->others += n;
	}
}

static void run_settle(struct nvme_lane *l, struct run *r)
{
	struct nvme_batch *b = r->batch;

	if (!b)
		return;
	r->batch = NULL;
	count_done(&l->st, r->opcode, r->n, r->nbytes);
	if (r->tally)
		nvme_tally_add(r->tally, r->cls, r->opcode, r->each, r->n, false, l->reaped_at - r->sent_ns);
	nvme_puts_add(l, r->map, r->ns, r->n);
	nvme_batch_publish(l, b, r->tail);
}

static void run_begin(struct run *r, const struct nvme_op *op, const struct nvme_done *d,
		      struct nvme_tally *tally)
{
	*r = (struct run){
		.batch = op->batch,
		.map = op->map,
		.ns = op->ns,
		.tail = atomic_load_explicit(&op->batch->ring_tail, memory_order_relaxed),
		.tally = tally,
		.sent_ns = d->sent_ns,
		.each = d->nbytes,
		.opcode = op->opcode,
		.cls = nvme_op_class(op),
	};
}

/* An item of a batch, well in every way, whose last command this is. */
static inline bool plain(const struct nvme_op *op, const struct nvme_done *d)
{
	return op->inflight == 1 && !op->more && !d->status && !op->err && op->batch &&
	       nvme_op_state(op) == NVME_OP_SENT && !(op->flags & (NVME_OPF_TIMED | NVME_OPF_HEAVY));
}

/* It ends as nvme_op_end() would end it. */
static inline void end_plain(struct nvme_lane *l, struct run *r, struct nvme_op *op,
			     const struct nvme_done *d, struct nvme_tally *tally)
{
	struct nvme_batch *b = op->batch;

	if (unlikely(b != r->batch || op->map != r->map || op->ns != r->ns || op->opcode != r->opcode ||
		     d->sent_ns != r->sent_ns || d->nbytes != r->each || nvme_op_class(op) != r->cls)) {
		run_settle(l, r);
		run_begin(r, op, d, tally);
	}
	op->inflight = 0;
	op->done += d->nbytes;
	op->dw0 = d->dw0;
	nvme_op_set(op, NVME_OP_ENDED);
	b->ring[r->tail++ & b->ring_mask] = op->slot;
	r->nbytes += d->nbytes;
	r->n++;
}

/* One command of its operation came back. */
static void command_done(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d,
			 struct nvme_tally *tally)
{
	if (tally)
		nvme_tally_add(tally, nvme_op_class(op), op->opcode, d->nbytes, 1, d->status,
			       l->reaped_at - d->sent_ns);
	count_done(&l->st, op->opcode, 1, d->status ? 0 : d->nbytes);
	op->inflight--;
	if (unlikely(op->flags & NVME_OPF_HEAVY))
		nvme_sched_back(l, op, d->nbytes);
	if (unlikely(nvme_op_state(op) == NVME_OP_STRAY)) {
		/* reported already; whoever reads the report does so without the lock */
	} else if (likely(!d->status)) {
		op->done += d->nbytes;
		/* what a command that failed had to say stays */
		op->dw0 = unlikely(op->status) ? op->dw0 : d->dw0;
	} else {
		nvme_op_failed(l, op, d);
	}
	if (likely(!op->inflight && !op->more))
		nvme_op_end(l, op);
}

/*
 * Before anybody hears that they are done: bytes that the device wrote into a GPU which does not see them by itself. One call
 * is for all that came before it. No callback of a runtime takes the lane's lock.
 */
static void make_visible(const struct nvme_done *done, uint32_t n)
{
	const struct mem_map *last = NULL;

	for (uint32_t k = 0; k < n; k++) {
		const struct nvme_op *op = done[k].owner;
		const struct mem_map *m = op->map;

		if (op->opcode != NVME_IO_READ || !m || !m->peer.vendor ||
		    (last && last->peer.vendor == m->peer.vendor && last->peer.device == m->peer.device &&
		     last->peer.ctx == m->peer.ctx))
			continue;
		mem_make_visible(m);
		last = m;
	}
}

static uint32_t reap_one(struct nvme_lane *l, struct nvme_qpair *qp, bool *stamped)
{
	struct nvme_done done[REAP];
	struct nvme_tally *const tally = qp->tally;
	struct run r = { 0 };
	uint32_t n, total = 0;
	bool traced = false;

	do {
		n = qp->ops->reap(qp, done, REAP);
		if (n && tally && !*stamped) {
			l->reaped_at = now_ns();
			*stamped = true;
		}
		if (unlikely(atomic_load_explicit(&l->ctrl->mem.nr_peers, memory_order_relaxed)))
			make_visible(done, n);
		if (n && tally)
			traced = nvme_traced(tally, l->reaped_at);
		for (uint32_t k = 0; k < n; k++) {
			const struct nvme_done *d = &done[k];
			struct nvme_op *op = d->owner;

			PROBE_BASE(d);
			PROBE("complete", "2@%0 2@%1 1@%2 4@%3 2@%4 8@%5 8@%6", "m"(qp->conf.qid),
			      "m"(d->cid), "m"(op->opcode), "m"(d->nbytes), "m"(d->status), "m"(d->sent_ns),
			      "m"(l->reaped_at));
			if (unlikely(traced))
				nvme_trace_command(l, qp, d);
			if (likely(plain(op, d))) {
				end_plain(l, &r, op, d, tally);
				continue;
			}
			run_settle(l, &r);
			command_done(l, op, d, tally);
		}
		total += n;
	} while (n == REAP && !(l->sink && l->sink->n >= l->sink->max));
	run_settle(l, &r);
	return total;
}

uint32_t nvme_lane_reap(struct nvme_lane *l, bool hold)
{
	uint32_t total = 0;
	bool stamped = false;

	for (uint32_t i = 0; i < l->nr_qp; i++)
		if (l->qp[i]->inflight)
			total += reap_one(l, l->qp[i], &stamped);
	if (total) {
		nvme_lane_add_inflight(l, -total);
		nvme_puts_flush(&l->puts);
		if (nvme_lane_waiting(l))
			nvme_lane_pump(l, stamped ? l->reaped_at : now_ns(), hold);
		if (unlikely(l->sched.counted[0]))
			nvme_sched_count(l);
	}
	return total;
}
