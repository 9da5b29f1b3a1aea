/* SPDX-License-Identifier: MIT */
#include "nvme/retry.h"

#include <stdlib.h>

#include "nvme/end.h"
#include "nvme/status.h"

#define CRD_UNIT_NS (100 * NSEC_PER_MSEC)
#define BACKOFF_NS NSEC_PER_MSEC
#define BACKOFF_SHIFTS 7 /* 128 ms at most */

struct nvme_retries {
	struct nvme_retry *used, *spare;
	struct nvme_retry all[NVME_RETRIES_MOST];
};

/* Taken at the lane's first failure: who never has one pays nothing. */
static struct nvme_retries *pool(struct nvme_lane *l)
{
	if (l->retries)
		return l->retries;
	l->retries = calloc(1, sizeof(*l->retries));
	for (uint32_t i = 0; l->retries && i < NVME_RETRIES_MOST; i++) {
		l->retries->all[i].next = l->retries->spare;
		l->retries->spare = &l->retries->all[i];
	}
	return l->retries;
}

void nvme_retry_free(struct nvme_lane *l)
{
	free(l->retries);
	l->retries = NULL;
}

static struct nvme_retry *find(struct nvme_lane *l, const struct nvme_op *op, uint64_t slba)
{
	for (struct nvme_retry *r = l->retries->used; r; r = r->next)
		if (r->op == op && r->slba == slba)
			return r;
	return NULL;
}

static struct nvme_retry *take(struct nvme_lane *l)
{
	struct nvme_retry *r = l->retries->spare;

	if (!r)
		return NULL;
	l->retries->spare = r->next;
	memset(r, 0, sizeof(*r));
	r->timer.is_retry = true;
	r->next = l->retries->used;
	l->retries->used = r;
	return r;
}

/* Where the command began. An operation of one command knows; else its entry has to be in the queue still, which it is
 * unless as many commands as the queue has entries were sent since. */
static bool where(struct nvme_lane *l, const struct nvme_op *op, const struct nvme_done *d,
		  uint64_t *ret_slba)
{
	struct nvme_qpair *qp = l->qp[op->qp];
	uint64_t start = op->slba - ((op->buf_off - op->buf_start) >> op->ns->lba_shift), bytes;

	if (d->nbytes == op->nbytes) {
		*ret_slba = start;
		return true;
	}
	if (!qp->ops->sent_slba || !qp->ops->sent_slba(qp, d->cid, ret_slba))
		return false;
	bytes = (*ret_slba - start) << op->ns->lba_shift;
	return *ret_slba >= start && bytes + d->nbytes <= op->nbytes;
}

/* Negative: later than a command may take. A controller can name up to 109 minutes, also by mistake; who asked for the
 * operation is told, and decides. */
static int64_t delay_of(const struct nvme_ctrl *c, uint16_t status, uint32_t tries)
{
	uint32_t crd = NVME_STATUS_CRD(status);
	int64_t told = crd ? c->crdt[crd - 1] * CRD_UNIT_NS : 0;

	if (told)
		return told <= c->p.hang_io_ns ? told : -1;
	return tries ? BACKOFF_NS << min_u32(tries - 1, BACKOFF_SHIFTS) : 0;
}

static bool send(struct nvme_lane *l, struct nvme_retry *r, int64_t now)
{
	struct nvme_qpair *qp = l->qp[r->op->qp];
	struct nvme_op part = *r->op; /* as if it were no more than this command */
	struct nvme_io io;

	if (l->failed || !qp->space)
		return false;
	part.slba = r->slba;
	part.buf_off = r->buf_off;
	part.left = r->nbytes;
	nvme_lane_describe(&part, &io);
	io.owner = r->op;
	if (qp->ops->submit(qp, &io, 1, now) != 1)
		return false;
	l->st.retries++;
	if (r->op->flags & NVME_OPF_HEAVY)
		nvme_sched_out(l, r->op, r->nbytes);
	nvme_lane_sent(l, qp, 1, false);
	return true;
}

bool nvme_retry_failed(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d)
{
	struct nvme_retry *r;
	int64_t now, delay;
	uint64_t slba;

	if (op->flags & NVME_OPF_CANCELLED || op->err || !nvme_status_may_retry(d->status) || !pool(l) ||
	    !where(l, op, d, &slba))
		return false;
	r = find(l, op, slba);
	delay = delay_of(l->ctrl, d->status, r ? r->tries : 0);
	if (delay < 0 || (r && r->tries >= l->ctrl->p.retries))
		return false;
	if (!r)
		r = take(l);
	if (!r)
		return false;
	r->op = op;
	r->slba = slba;
	r->buf_off = op->buf_off - ((op->slba - slba) << op->ns->lba_shift);
	r->nbytes = d->nbytes;
	r->tries++;
	/* so that its end gives the records back, on the path of what has a timer */
	op->flags |= NVME_OPF_TIMED | NVME_OPF_RETRIED;
	op->inflight++;
	now = now_ns();
	if (!delay && send(l, r, now))
		return true;
	r->waiting = true;
	nvme_lane_add_queued(l, 1);
	nvme_lane_timer(l, &r->timer, now + delay);
	return true;
}

void nvme_retry_due(struct nvme_lane *l, struct nvme_retry *r, int64_t now)
{
	if (send(l, r, now)) {
		r->waiting = false;
		nvme_lane_add_queued(l, (uint32_t)-1);
		return;
	}
	nvme_lane_timer(l, &r->timer, now + BACKOFF_NS); /* no room just now */
}

static void unwait(struct nvme_lane *l, struct nvme_retry *r)
{
	if (!r->waiting)
		return;
	r->waiting = false;
	/* the walk that ends what is overdue may stand on it */
	if (l->expiring == &r->timer.link)
		l->expiring = r->timer.link.next;
	nvme_link_del(&r->timer.link);
	nvme_lane_add_queued(l, (uint32_t)-1);
	r->op->inflight--;
}

void nvme_retry_drop(struct nvme_lane *l, struct nvme_op *op, int err)
{
	if (!(op->flags & NVME_OPF_RETRIED))
		return;
	for (struct nvme_retry *r = l->retries->used; r; r = r->next) {
		if (r->op != op || !r->waiting)
			continue;
		unwait(l, r);
		if (!op->err)
			op->err = err;
	}
}

void nvme_retry_forget(struct nvme_lane *l, struct nvme_op *op)
{
	for (struct nvme_retry **p = &l->retries->used, *r; (r = *p);) {
		if (r->op != op) {
			p = &r->next;
			continue;
		}
		unwait(l, r);
		*p = r->next;
		r->next = l->retries->spare;
		l->retries->spare = r;
	}
	op->flags &= (uint16_t)~NVME_OPF_RETRIED;
}

struct nvme_op *nvme_retry_first(struct nvme_lane *l)
{
	for (struct nvme_retry *r = l->retries ? l->retries->used : NULL; r; r = r->next)
		if (r->waiting)
			return r->op;
	return NULL;
}
