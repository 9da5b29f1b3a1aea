/* SPDX-License-Identifier: MIT */
/* The ends of an operation: its own, a failure, or abandoned with commands still at the device. */
#include "nvme/end.h"

#include "nvme/chan.h"
#include "nvme/retry.h"

#define STATUS_CODE 0x7ffu /* without CRD, More and Do Not Retry */

void nvme_op_failed(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d)
{
	const uint16_t code = d->status & STATUS_CODE;

	if (l->ctrl->p.retries && nvme_retry_failed(l, op, d))
		return;
	l->st.errors++;
	if (!op->status) {
		op->status = d->status;
		op->dw0 = d->dw0;
	}
	if (!op->err)
		op->err = nvme_status_errno(d->status);
	nvme_retry_drop(l, op, op->err);
	if (code == NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_REQUESTED) ||
	    code == NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_SQ_DELETED)) {
		if (op->outcome == NVME_DONE)
			op->outcome = NVME_ABORTED;
		if (op->flags & NVME_OPF_CANCELLED)
			op->err = -ECANCELED;
	}
	if (nvme_op_state(op) == NVME_OP_QUEUED) { /* no further command after a failure */
		nvme_lane_unqueue(l, op);
		nvme_op_set(op, NVME_OP_SENT);
		op->more = false;
	}
}

void nvme_op_hand_over(struct nvme_lane *l, struct nvme_op *op)
{
	if (op == l->want)
		return;
	if (op->batch && !op->silent)
		nvme_batch_item_ended(l, op);
	else if (l->sink && l->sink->n < l->sink->max)
		l->sink->out[l->sink->n++] = op;
	else
		l->woke |= nvme_chan_post_ended(op->chan, op);
}

static void drop_timer(struct nvme_op *op)
{
	nvme_lane_no_timer(&op->timer);
	/* only written when set: whoever collects one that was given up reads the flags while its commands come back */
	if (op->flags & NVME_OPF_TIMED)
		op->flags &= (uint16_t)~NVME_OPF_TIMED;
}

static void stray_back(struct nvme_lane *l, struct nvme_op *op)
{
	struct nvme_ctrl *c = l->ctrl;

	pthread_mutex_lock(&c->stray_lock);
	nvme_link_del(&op->stray);
	pthread_mutex_unlock(&c->stray_lock);
	if (op->map)
		atomic_fetch_sub_explicit(&op->map->nr_stuck, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&c->nr_quarantined, 1, memory_order_relaxed);
}

void nvme_op_end_rare(struct nvme_lane *l, struct nvme_op *op)
{
	bool stray = nvme_op_state(op) == NVME_OP_STRAY;

	drop_timer(op);
	if (op->flags & NVME_OPF_RETRIED)
		nvme_retry_forget(l, op);
	if (unlikely(stray))
		stray_back(l, op);
	nvme_puts_add(l, op->map, op->ns, 1);
	nvme_op_set(op, NVME_OP_ENDED);
	/* A stray was reported when it was abandoned. If that report was collected (silent), hand it over to be freed;
	 * if not, whoever collects it now finds it ENDED and frees it. */
	if (likely(!stray) || op->silent)
		nvme_op_hand_over(l, op);
}

/* Which command of the operation is out: for whoever looks into the quarantine. */
static void note_command(void *ctx, void *owner, uint16_t cid)
{
	struct nvme_op *op = ctx;

	if (owner == op)
		op->last_cid = cid;
}

void nvme_op_stray(struct nvme_lane *l, struct nvme_op *op)
{
	struct nvme_ctrl *c = l->ctrl;
	struct nvme_qpair *qp = l->qp[op->qp];

	qp->ops->each(qp, note_command, op);
	op->last_qid = qp->conf.qid;

	drop_timer(op);
	nvme_op_set(op, NVME_OP_STRAY);
	op->outcome = NVME_UNKNOWN;
	op->stray_since = now_ns();
	pthread_mutex_lock(&c->stray_lock);
	nvme_link_add(&c->strays, &op->stray);
	pthread_mutex_unlock(&c->stray_lock);
	if (op->map)
		atomic_fetch_add_explicit(&op->map->nr_stuck, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->nr_quarantined, 1, memory_order_relaxed);
	nvme_op_hand_over(l, op);
}

bool nvme_range_is_stray(struct nvme_ctrl *c, const struct mem_map *map, uint64_t off, uint64_t nbytes)
{
	bool hit = false;

	pthread_mutex_lock(&c->stray_lock);
	for (struct nvme_link *p = c->strays.next; p != &c->strays && !hit; p = p->next) {
		const struct nvme_op *op = container_of(p, struct nvme_op, stray);

		hit = op->map == map && off < op->buf_start + op->nbytes && op->buf_start < off + nbytes;
	}
	pthread_mutex_unlock(&c->stray_lock);
	return hit;
}
