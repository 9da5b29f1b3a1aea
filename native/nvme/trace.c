/* SPDX-License-Identifier: MIT */
#include "nvme/trace.h"

#include "nvme/chan.h"

/* Any thread. Whoever reads takes an event whose number is right before and after. */
static void put(struct nvme_tallies *all, const uint64_t word[7])
{
	uint64_t at = atomic_fetch_add_explicit(&all->head->watch[1][0], 1, memory_order_relaxed);
	struct trace_event *e = &all->events[at & (TRACE_EVENTS - 1)];
	_Atomic uint64_t *to = &e->number;

	atomic_store_explicit(to, 0, memory_order_relaxed);
	/* release: the number is gone before anything else changes, */
	atomic_thread_fence(memory_order_release);
	for (int i = 0; i < 7; i++)
		atomic_store_explicit(&to[i + 1], word[i], memory_order_relaxed);
	/* and is back after it */
	atomic_store_explicit(to, at + 1, memory_order_release);
}

static uint64_t where(const struct nvme_qpair *qp, uint32_t nbytes, uint16_t cid)
{
	return nbytes | (uint64_t)qp->conf.qid << 32 | (uint64_t)cid << 48;
}

static uint64_t what(enum trace_kind kind, uint8_t opcode, uint8_t cls, const struct nvme_chan *ch,
		     uint16_t status)
{
	return kind | (uint64_t)opcode << 8 | (uint64_t)cls << 16 |
	       (uint64_t)(uint16_t)(ch ? ch->fd : 0) << 32 | (uint64_t)status << 48;
}

void nvme_trace_command(struct nvme_lane *l, struct nvme_qpair *qp, const struct nvme_done *d)
{
	const struct nvme_op *op = d->owner;
	int64_t start = op->batch ? op->batch->start : op->start;
	uint64_t slba = op->slba;

	/* an operation of several commands is past this one already */
	if (qp->ops->sent_slba && op->map && !qp->ops->sent_slba(qp, d->cid, &slba))
		slba = op->slba;
	put(qp->tally->all,
	    (uint64_t[]){ (uint64_t)l->reaped_at, nvme_op_token(op->batch ? op->batch->handle : op),
			  (uint64_t)(start < d->sent_ns ? start : d->sent_ns), (uint64_t)d->sent_ns, slba,
			  where(qp, d->nbytes, d->cid),
			  what(TRACE_COMMAND, op->opcode, nvme_op_class(op), op->chan, d->status) });
}

void nvme_trace_doorbell(struct nvme_qpair *qp, uint32_t n)
{
	put(qp->tally->all, (uint64_t[]){ (uint64_t)now_ns(), 0, 0, 0, n, where(qp, 0, 0),
					  what(TRACE_DOORBELL, 0, 0, NULL, 0) });
}

void nvme_trace_mark(struct nvme_chan *ch, uint64_t token, enum trace_kind kind)
{
	if (ch->ctrl->tallies)
		put(ch->ctrl->tallies,
		    (uint64_t[]){ (uint64_t)now_ns(), token, 0, 0, 0, 0, what(kind, 0, 0, ch, 0) });
}

void nvme_trace_until(struct nvme_tallies *all, int64_t ns)
{
	int64_t most = now_ns() + TRACE_MOST_NS;

	atomic_store_explicit(&all->head->watch[0][0],
			      (uint64_t)(ns < 0	     ? 0
					 : ns < most ? ns
						     : most),
			      memory_order_relaxed);
}

void nvme_trace_expire(struct nvme_tallies *all, int64_t now)
{
	uint64_t until = atomic_load_explicit(&all->head->watch[0][0], memory_order_relaxed);

	if (until && (uint64_t)now >= until) /* unless somebody asked again just now */
		atomic_compare_exchange_strong_explicit(&all->head->watch[0][0], &until, 0,
							memory_order_relaxed, memory_order_relaxed);
}
