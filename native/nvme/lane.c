/* SPDX-License-Identifier: MIT */
/* Sending operations, and giving them up. The lane's lock is held throughout. */
#include "nvme/lane.h"

#include "nvme/chan.h"
#include "nvme/end.h"
#include "nvme/retry.h"
#include "nvme/trace.h"
#include "nvme/turns.h"
#include "support/probe.h"

#define PUMP 32 /* commands built before they are handed on */

/* Batch items go to the deep pair where there is one. */
static inline uint8_t pick(const struct nvme_lane *l, const struct nvme_op *op)
{
	if (unlikely(op->flow != NVME_FLOW_NORMAL))
		return op->flow;
	if (nvme_is_bulk(l, op))
		return NVME_FLOW_BULK;
	return op->batch && l->pair[NVME_FLOW_BATCH] ? NVME_FLOW_BATCH : NVME_FLOW_NORMAL;
}

void nvme_lane_queue(struct nvme_lane *l, struct nvme_op *op)
{
	struct nvme_fifo *f;
	uint8_t turn;

	/* kept: another pair may be leased while the operation waits */
	op->flow = pick(l, op);
	op->qp = l->pair[op->flow];
	turn = nvme_turn_of(l, op->flow, op->chan, op->ns);
	nvme_op_set_turn(op, turn);
	nvme_turn_begins(l, op->flow, turn);
	f = nvme_turn_list(l, op->flow, turn);
	op->next = NULL;
	op->pprev = f->tail;
	*f->tail = op;
	f->tail = &op->next;
	nvme_op_set(op, NVME_OP_QUEUED);
	nvme_lane_add_queued(l, 1);
	if (unlikely(op->flow >= NVME_FLOW_BULK)) {
		op->flags |= NVME_OPF_HEAVY;
		nvme_sched_count(l);
	}
}

/* A run of a batch's items, linked already. */
void nvme_lane_splice(struct nvme_lane *l, enum nvme_flow flow, struct nvme_op *first, struct nvme_op *last,
		      uint32_t n)
{
	struct nvme_fifo *f = nvme_turn_list(l, flow, nvme_op_turn(first));

	nvme_turn_begins(l, flow, nvme_op_turn(first));
	*f->tail = first;
	f->tail = &last->next;
	nvme_lane_add_queued(l, n);
	if (likely(flow < NVME_FLOW_BULK))
		return;
	for (; first; first = first->next)
		first->flags |= NVME_OPF_HEAVY;
	nvme_sched_count(l);
}

void nvme_lane_unqueue(struct nvme_lane *l, struct nvme_op *op)
{
	*op->pprev = op->next;
	if (op->next)
		op->next->pprev = op->pprev;
	else
		nvme_turn_list(l, op->flow, nvme_op_turn(op))->tail = op->pprev;
	nvme_turn_ends(l, op->flow, nvme_op_turn(op));
	nvme_lane_add_queued(l, (uint32_t)-1);
	if (unlikely(op->flags & NVME_OPF_HEAVY))
		nvme_sched_count(l);
}

static inline uint32_t rw_cdw12(const struct nvme_op *op, uint64_t nbytes)
{
	return ((uint32_t)(nbytes >> op->ns->lba_shift) - 1) | (op->flags & NVME_OPF_FUA ? NVME_RW_FUA : 0);
}

/* Commands other than read, write and compare. */
static void next_other(struct nvme_op *op, struct nvme_io *io)
{
	const struct nvme_ns *ns = op->ns;
	uint64_t n = op->left;

	io->map = NULL;
	switch (op->opcode) {
	case NVME_IO_VERIFY:
		n = min_u64(n, ns->max_bytes);
		break;
	case NVME_IO_WRITE_ZEROES:
		n = min_u64(n, 65536ull << ns->lba_shift); /* NLB is 16 bits, zero based */
		break;
	case NVME_IO_DSM:
		n = min_u64(n, 1ull << 30); /* so that the byte count stays in 32 bits */
		op->dsm = (struct nvme_dsm_range){ .slba = le64_put(op->slba),
						   .nlb = le32_put((uint32_t)(n >> ns->lba_shift)) };
		io->inl = &op->dsm;
		io->inl_len = sizeof(op->dsm);
		io->nbytes = (uint32_t)n;
		io->cdw10_11 = (uint64_t)NVME_DSM_AD << 32;
		io->cdw12 = 0;
		return;
	default: /* flush */
		io->nbytes = 0;
		io->cdw10_11 = 0;
		io->cdw12 = 0;
		return;
	}
	io->nbytes = (uint32_t)n;
	io->cdw10_11 = op->slba;
	io->cdw12 = rw_cdw12(op, n);
}

/* Describe the next command of @op, of @max bytes at most; every field is set. */
static inline void next_io(struct nvme_op *op, struct nvme_io *io, uint32_t max)
{
	const struct nvme_ns *ns = op->ns;
	uint32_t n;

	io->owner = op;
	io->nsid = ns->nsid;
	io->opcode = op->opcode;
	io->inl_len = 0;
	if (unlikely(!op->map)) {
		next_other(op, io);
		return;
	}
	n = (uint32_t)min_u64(op->left, max);
	io->map = op->map;
	io->buf_off = op->buf_off;
	io->nbytes = n;
	io->cdw10_11 = op->slba;
	io->cdw12 = rw_cdw12(op, n);
}

void nvme_lane_describe(struct nvme_op *op, struct nvme_io *ret) { next_io(op, ret, op->ns->max_bytes); }

/* The last command of an operation leaves its place where it is: nobody needs the next one. */
static inline void advance(struct nvme_op *op, uint32_t nbytes)
{
	op->left -= nbytes;
	op->more = op->left;
	if (unlikely(op->left)) {
		op->buf_off += nbytes;
		op->slba += nbytes >> op->ns->lba_shift;
	}
}

/* It was not accepted after all. */
static inline void rewind_op(struct nvme_op *op, uint32_t nbytes)
{
	if (op->left) {
		op->buf_off -= nbytes;
		op->slba -= nbytes >> op->ns->lba_shift;
	}
	op->left += nbytes;
	op->more = true;
	op->inflight--;
}

/* Operations at the head that are out completely. */
static inline void pop_sent(struct nvme_lane *l, struct nvme_fifo *f)
{
	struct nvme_op *op = f->head;
	uint32_t n = 0;

	for (; op && !op->more; op = op->next, n++)
		nvme_op_set(op, NVME_OP_SENT);
	f->head = op;
	if (op)
		op->pprev = &f->head;
	else
		f->tail = &f->head;
	nvme_lane_add_queued(l, -n);
}

/* @n commands, one at least, went into the queue. */
static inline __attribute__((always_inline)) void sent(struct nvme_lane *l, struct nvme_qpair *qp, uint32_t n,
						       bool hold)
{
	l->st.commands += n;
	if (qp->tally)
		tally_add(&qp->tally->pair->sent, n);
	nvme_lane_add_inflight(l, n);
	qp->ops->kick(qp, hold);
	PROBE("submit", "2@%0 4@%1", "m"(qp->conf.qid), "r"(n));
	if (qp->tally && nvme_traced(qp->tally, 0))
		nvme_trace_doorbell(qp, n);
}

void nvme_lane_sent(struct nvme_lane *l, struct nvme_qpair *qp, uint32_t n, bool hold)
{
	if (n)
		sent(l, qp, n, hold);
}

bool nvme_lane_send(struct nvme_lane *l, struct nvme_op *op, bool hold)
{
	const uint8_t idx = l->pair[op->flow];
	const struct nvme_ns *ns = op->ns;
	struct nvme_qpair *qp = l->qp[idx];
	struct nvme_io io;

	if (unlikely(nvme_lane_waiting(l) || l->failed || !op->map || op->nbytes > ns->max_bytes ||
		     op->nbytes > l->sched.heavy_above || op->flow > NVME_FLOW_LATENCY ||
		     !nvme_lane_space(l, qp, op->flow)))
		return false;
	next_io(op, &io, ns->max_bytes);
	if (unlikely(!qp->ops->submit_one(qp, &io, op->start)))
		return false;
	op->qp = idx;
	op->left = 0;
	op->more = false;
	op->inflight = 1;
	nvme_op_set(op, NVME_OP_SENT);
	sent(l, qp, 1, hold);
	return true;
}

/* At most @most commands, or some more. */
static uint32_t pump_one(struct nvme_lane *l, struct nvme_fifo *f, uint32_t flow, uint32_t most, int64_t now,
			 bool hold)
{
	const uint8_t idx = f->head->qp;
	struct nvme_qpair *qp = l->qp[idx];
	struct nvme_io ios[PUMP];
	uint32_t total = 0;

	while (f->head && f->head->qp == idx && total < most) {
		uint32_t n = 0, sent,
			 max = min_u32(min_u32(PUMP, most - total), nvme_lane_space(l, qp, flow));
		struct nvme_op *op = f->head;

		while (n < max && op && op->qp == idx) {
			next_io(op, &ios[n], op->ns->max_bytes);
			advance(op, ios[n++].nbytes);
			op->inflight++;
			if (op->opcode ==
			    NVME_IO_DSM) /* its range buffer is copied before it is used again */
				break;
			if (!op->more)
				op = op->next;
		}
		if (!n)
			break;
		sent = qp->ops->submit(qp, ios, n, now);
		for (uint32_t i = n; i > sent; i--)
			rewind_op(ios[i - 1].owner, ios[i - 1].nbytes);
		total += sent;
		pop_sent(l, f);
		if (sent < n)
			break;
	}
	nvme_lane_sent(l, qp, total, hold);
	return total;
}

/* The next one's turn. */
static void to_the_end(struct nvme_fifo *f, struct nvme_op *op)
{
	*op->pprev = op->next;
	op->next->pprev = op->pprev;
	op->next = NULL;
	op->pprev = f->tail;
	*f->tail = op;
	f->tail = &op->next;
}

static uint32_t pump_chunks(struct nvme_lane *l, struct nvme_fifo *f, enum nvme_flow flow, uint32_t most,
			    uint32_t chunk, int64_t now, bool hold)
{
	uint32_t total = 0, sent = 0, n = 0;

	while (f->head && total < most && sent == n) {
		struct nvme_op *op = f->head;
		const uint8_t idx = op->qp;
		struct nvme_qpair *qp = l->qp[idx];
		uint32_t max = min_u32(min_u32(PUMP, most - total), nvme_lane_space(l, qp, flow));
		struct nvme_io ios[PUMP];

		/* Operations that are out completely stay where they are, so these come first when the run is over. */
		for (n = 0; n < max && op && op->qp == idx;) {
			struct nvme_op *next = op->next;

			next_io(op, &ios[n], nvme_op_chunk(op, min_u32(chunk, op->ns->max_bytes)));
			advance(op, ios[n++].nbytes);
			op->inflight++;
			if (op->opcode == NVME_IO_DSM)
				break;
			if (op->more && next)
				to_the_end(f, op);
			if (!op->more || next)
				op = next;
		}
		if (!n)
			break;
		sent = qp->ops->submit(qp, ios, n, now);
		for (uint32_t i = n; i > sent; i--)
			rewind_op(ios[i - 1].owner, ios[i - 1].nbytes);
		for (uint32_t i = 0; i < sent; i++)
			nvme_sched_out(l, ios[i].owner, ios[i].nbytes);
		total += sent;
		pop_sent(l, f);
		nvme_lane_sent(l, qp, sent, hold);
	}
	return total;
}

/* The lists of @flow in turns; @most commands at most, of @chunk bytes where the flow is a heavy one. */
static uint32_t pump_fairly(struct nvme_lane *l, enum nvme_flow flow, uint32_t most, uint32_t chunk,
			    int64_t now, bool hold)
{
	struct nvme_turns *t = l->turns;
	uint32_t total = 0;

	for (uint32_t empty = 0; total < most && empty <= NVME_TURNS;) {
		uint32_t turn = t->cursor[flow], n;
		struct nvme_fifo *f = nvme_turn_list(l, flow, turn);

		t->cursor[flow] = turn < NVME_TURNS ? turn + 1 : 0;
		if (!f->head) {
			empty++;
			continue;
		}
		n = flow < NVME_FLOW_BULK
			    ? pump_one(l, f, flow, min_u32(NVME_TURN_COMMANDS, most - total), now, hold)
			    : pump_chunks(l, f, flow, 1, chunk, now, hold);
		nvme_turn_ends(l, flow, turn);
		if (!n) { /* there is no room: when there is, it comes first */
			t->cursor[flow] = turn;
			break;
		}
		total += n;
		empty = 0;
	}
	return total;
}

static inline uint32_t pump_flow(struct nvme_lane *l, enum nvme_flow flow, int64_t now, bool hold)
{
	if (unlikely(nvme_turns_any(l, flow)))
		return pump_fairly(l, flow, UINT32_MAX, 0, now, hold);
	return l->pending[flow].head ? pump_one(l, &l->pending[flow], flow, UINT32_MAX, now, hold) : 0;
}

uint32_t nvme_lane_pump(struct nvme_lane *l, int64_t now, bool hold)
{
	uint32_t total = 0;
	bool heavy;

	if (unlikely(l->failed))
		return 0;
	heavy = nvme_turns_first(l, NVME_FLOW_BULK) || nvme_turns_first(l, NVME_FLOW_BACKGROUND);
	if (unlikely(heavy))
		total += nvme_sched_floor(l, now, hold);
	total += pump_flow(l, NVME_FLOW_LATENCY, now, hold);
	total += pump_flow(l, NVME_FLOW_NORMAL, now, hold);
	total += pump_flow(l, NVME_FLOW_BATCH, now, hold);
	if (unlikely(heavy))
		total += nvme_sched_pump(l, now, hold);
	return total;
}

uint32_t nvme_lane_pump_turns(struct nvme_lane *l, enum nvme_flow flow, uint32_t most, uint32_t chunk,
			      int64_t now, bool hold)
{
	if (likely(!nvme_turns_any(l, flow)))
		return pump_chunks(l, &l->pending[flow], flow, most, chunk, now, hold);
	return pump_fairly(l, flow, most, chunk, now, hold);
}

void nvme_lane_kick(struct nvme_lane *l)
{
	for (uint32_t i = 0; i < l->nr_qp; i++)
		l->qp[i]->ops->kick(l->qp[i], false);
}

void nvme_lane_tell(struct nvme_lane *l, bool fenced)
{
	for (uint32_t i = 0; i < l->nr_qp; i++)
		if (l->qp[i]->ops->tell)
			l->qp[i]->ops->tell(l->qp[i], fenced);
}

void nvme_lane_ack(struct nvme_lane *l)
{
	for (uint32_t i = 0; i < l->nr_qp; i++)
		if (l->qp[i]->ops->ack)
			l->qp[i]->ops->ack(l->qp[i]);
}

uint32_t nvme_lane_step(struct nvme_lane *l, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->nr_qp && n < max; i++)
		if (l->qp[i]->inflight && l->qp[i]->ops->step)
			n += l->qp[i]->ops->step(l->qp[i], max - n);
	return n;
}

bool nvme_lane_peek(struct nvme_lane *l)
{
	for (uint32_t i = 0; i < l->nr_qp; i++)
		if (l->qp[i]->ops->peek(l->qp[i]))
			return true;
	return false;
}

/* The end of sending for @op. */
static void stop_sending(struct nvme_lane *l, struct nvme_op *op, int err)
{
	if (nvme_op_state(op) != NVME_OP_QUEUED)
		return;
	nvme_lane_unqueue(l, op);
	nvme_op_set(op, NVME_OP_SENT);
	if (!op->more)
		return;
	op->more = false;
	if (!op->err)
		op->err = err;
	if (!op->inflight && op->left == op->nbytes)
		op->outcome = NVME_NEVER_SENT;
}

void nvme_lane_cancel(struct nvme_lane *l, struct nvme_op *op, int err)
{
	if (!nvme_op_live(op))
		return;
	op->flags |= NVME_OPF_CANCELLED;
	nvme_retry_drop(l, op, err);
	stop_sending(l, op, err);
	if (!op->inflight)
		nvme_op_end(l, op);
}

void nvme_lane_abandon(struct nvme_lane *l, struct nvme_op *op, int err)
{
	if (!nvme_op_live(op))
		return;
	nvme_retry_drop(l, op, err);
	stop_sending(l, op, err);
	if (!op->err)
		op->err = err;
	if (!op->inflight)
		nvme_op_end(l, op);
	else
		nvme_op_stray(l, op);
}
