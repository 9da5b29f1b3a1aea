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

/* Items of a batch, alike but for where. */
struct run {
	uint64_t kind; /* of each; ALL_ONES is none's */
	uint64_t fate;
	struct nvme_batch *batch; /* NULL: none */
	struct mem_map *map;
	struct nvme_ns *ns;
	int64_t sent_ns;
	uint32_t each; /* bytes of each */
	uint32_t first, tail; /* in the batch's ring */
	uint8_t opcode;
	uint8_t cls;
};

#define ALL_ONES UINT64_MAX

/* All that tells commands apart while they are under way: two words of the operation. */
static inline uint64_t word_at(const struct nvme_op *op, size_t offset)
{
	uint64_t w;

	memcpy(&w, (const char *)op + offset, sizeof(w));
	return w;
}
/* Opcode, flow, pair, state, and whether there is more to send. */
static inline uint64_t kind_of(const struct nvme_op *op)
{
	return word_at(op, offsetof(struct nvme_op, opcode));
}
/* What went wrong so far, and flags. */
static inline uint64_t fate_of(const struct nvme_op *op)
{
	return word_at(op, offsetof(struct nvme_op, err));
}
static_assert(offsetof(struct nvme_op, state) == offsetof(struct nvme_op, opcode) + 7, "one word");
static_assert(offsetof(struct nvme_op, flags) == offsetof(struct nvme_op, err) + 6, "one word");

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

static void run_settle(struct nvme_lane *l, struct run *r, struct nvme_tally *tally)
{
	struct nvme_batch *b = r->batch;
	const uint32_t n = r->tail - r->first;

	r->batch = NULL;
	r->kind = ALL_ONES;
	count_done(&l->st, r->opcode, n, (uint64_t)n * r->each);
	if (tally)
		nvme_tally_add(tally, r->cls, r->opcode, r->each, n, false, l->reaped_at - r->sent_ns);
	nvme_puts_add(l, r->map, r->ns, n);
	nvme_batch_publish(l, b, r->tail);
}

static void run_begin(struct run *r, const struct nvme_op *op, const struct nvme_done *d)
{
	const uint32_t tail = atomic_load_explicit(&op->batch->ring_tail, memory_order_relaxed);

	*r = (struct run){
		.kind = kind_of(op),
		.fate = fate_of(op),
		.batch = op->batch,
		.map = op->map,
		.ns = op->ns,
		.first = tail,
		.tail = tail,
		.sent_ns = d->sent_ns,
		.each = d->nbytes,
		.opcode = op->opcode,
		.cls = nvme_op_class(op),
	};
}

/* Well in every way, and this is its last command. */
static inline bool plain(const struct nvme_op *op, const struct nvme_done *d)
{
	return op->inflight == 1 && !op->more && !d->status && !op->err &&
	       nvme_op_state(op) == NVME_OP_SENT && !(op->flags & (NVME_OPF_TIMED | NVME_OPF_HEAVY));
}

/* Plain, as the run's first one was. */
static inline bool alike(const struct run *r, const struct nvme_op *op, const struct nvme_done *d)
{
	return !((kind_of(op) ^ r->kind) | (fate_of(op) ^ r->fate) |
		 ((uintptr_t)op->batch ^ (uintptr_t)r->batch) | ((uintptr_t)op->map ^ (uintptr_t)r->map) |
		 ((uintptr_t)op->ns ^ (uintptr_t)r->ns) | (uint64_t)(d->sent_ns ^ r->sent_ns) |
		 (d->nbytes ^ r->each) | (op->inflight ^ 1) | d->status);
}

/* It ends as nvme_op_end() would end it. */
static inline void end_item(struct run *r, struct nvme_op *op, const struct nvme_done *d)
{
	op->inflight = 0;
	op->done += d->nbytes;
	op->dw0 = d->dw0;
	nvme_op_set(op, NVME_OP_ENDED);
	r->batch->ring[r->tail++ & r->batch->ring_mask] = op->slot;
}

static inline void tally(struct nvme_lane *l, struct nvme_tally *t, const struct nvme_op *op,
			 const struct nvme_done *d)
{
	if (t)
		nvme_tally_add(t, nvme_op_class(op), op->opcode, d->nbytes, 1, d->status,
			       l->reaped_at - d->sent_ns);
}

/* A single operation that is plain; the same as below. @only: nothing else came back with it, so there is nothing to
 * gather references with. */
static inline void end_single(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d,
			      struct nvme_tally *t, bool only)
{
	tally(l, t, op, d);
	count_done(&l->st, op->opcode, 1, d->nbytes);
	op->inflight = 0;
	op->done += d->nbytes;
	op->dw0 = d->dw0;
	if (only)
		nvme_puts_now(op->map, op->ns);
	else
		nvme_puts_add(l, op->map, op->ns, 1);
	nvme_op_set(op, NVME_OP_ENDED);
	if (op != l->want)
		nvme_op_hand_over(l, op);
}

/* One command of its operation came back. */
static __attribute__((noinline)) void command_done(struct nvme_lane *l, struct nvme_op *op,
						   const struct nvme_done *d, struct nvme_tally *t)
{
	tally(l, t, op, d);
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
 * is for all that came before it. No callback of a runtime takes the lane's lock. What the GPU does not see was not
 * transferred, and ends as if the device had said so, with the runtime's code in the place of a command's result.
 */
static void make_visible(struct nvme_done *done, uint32_t n)
{
	const struct mem_map *last = NULL;
	uint32_t refused = 0;

	for (uint32_t k = 0; k < n; k++) {
		const struct nvme_op *op = done[k].owner;
		const struct mem_map *m = op->map;

		if (op->opcode != NVME_IO_READ || !m || !m->peer.vendor)
			continue;
		if (!last || last->peer.vendor != m->peer.vendor || last->peer.device != m->peer.device ||
		    last->peer.ctx != m->peer.ctx)
			refused = mem_make_visible(m);
		last = m;
		if (unlikely(refused) && !done[k].status) {
			done[k].status = NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_DATA_TRANSFER);
			done[k].dw0 = refused;
		}
	}
}

static uint32_t reap_one(struct nvme_lane *l, struct nvme_qpair *qp, bool *stamped)
{
	struct nvme_tally *const t = qp->tally;
	struct nvme_done done[REAP];
	uint32_t n, total = 0;
	bool traced = false;
	struct run r;

	r.batch = NULL;
	r.kind = ALL_ONES;
	do {
		n = qp->ops->reap(qp, done, REAP);
		if (!n)
			break;
		if (t) {
			if (!*stamped)
				l->reaped_at = now_ns();
			*stamped = true;
			traced = nvme_traced(t, l->reaped_at);
		}
		if (unlikely(atomic_load_explicit(&l->ctrl->mem.nr_peers, memory_order_relaxed)))
			make_visible(done, n);
		for (const struct nvme_done *d = done; d < done + n; d++) {
			struct nvme_op *op = d->owner;

			PROBE_BASE(d);
			/* six at most: bpftrace knows no more on x86-64 */
			PROBE("complete", "2@%0 1@%1 4@%2 2@%3 8@%4 8@%5", "m"(qp->conf.qid), "m"(op->opcode),
			      "m"(d->nbytes), "m"(d->status), "m"(d->sent_ns), "m"(l->reaped_at));
			if (unlikely(traced))
				nvme_trace_command(l, qp, d);
			if (op->batch && likely(alike(&r, op, d))) {
				end_item(&r, op, d);
				continue;
			}
			if (r.batch)
				run_settle(l, &r, t);
			if (unlikely(!plain(op, d))) {
				command_done(l, op, d, t);
			} else if (op->batch) {
				run_begin(&r, op, d);
				end_item(&r, op, d);
			} else {
				end_single(l, op, d, t, n == 1);
			}
		}
		total += n;
	} while (n == REAP && !(l->sink && l->sink->n >= l->sink->max));
	if (r.batch)
		run_settle(l, &r, t);
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
