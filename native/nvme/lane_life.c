/* SPDX-License-Identifier: MIT */
/* A lane's beginning, its lease of queue pairs, and its end. */
#include "nvme/lane.h"

#include <stdlib.h>

#include "nvme/end.h"
#include "nvme/retry.h"

void nvme_lane_init(struct nvme_lane *l, struct nvme_ctrl *c, int fd, _Atomic uint32_t *word)
{
	memset(l, 0, sizeof(*l));
	l->ctrl = c;
	l->fd = fd;
	l->word = word;
	for (int i = 0; i < NVME_FLOWS; i++)
		l->pending[i].tail = &l->pending[i].head;
	l->sched.heavy_above = c->p.fifo ? UINT64_MAX : NVME_HEAVY_BYTES;
	nvme_link_init(&l->timers);
	nvme_link_init(&l->to_abort);
	l->next_timer = INT64_MAX;
}

bool nvme_lane_take(struct nvme_lane *l, struct nvme_qslot *s, bool deaf_too)
{
	struct nvme_lane *none = NULL;
	struct nvme_qpair *qp = s->qp;
	uint32_t i = l->nr_qp;

	if (!atomic_compare_exchange_strong_explicit(&s->lane, &none, l, memory_order_acquire,
						     memory_order_relaxed))
		return false;
	l->bound[i] = qp->conf.irq &&
		      !l->ctrl->ops->wake_bind(l->ctrl->t, qp->conf.vector, l->fd, l->word, &l->bind[i]);
	if (qp->conf.irq && !l->bound[i]) {
		if (!deaf_too) {
			atomic_store_explicit(&s->lane, NULL, memory_order_release);
			return false;
		}
		l->deaf = true;
	}
	/* housekeeping walks the pairs under the lane's lock */
	owner_lock(&l->lock);
	l->base_doorbells += qp->nr_doorbells;
	l->base_unknown += qp->nr_unknown_cid;
	l->qp[i] = qp;
	l->nr_qp = i + 1;
	owner_unlock(&l->lock);
	return true;
}

static bool for_class(const struct nvme_qpair *qp)
{
	return qp->conf.kind == NVME_QPAIR_URGENT || qp->conf.kind == NVME_QPAIR_LOW;
}

/* What is queued from now on goes to the pair that was taken last. */
static void route(struct nvme_lane *l, enum nvme_qpair_kind kind)
{
	const uint8_t at = (uint8_t)(l->nr_qp - 1);

	owner_lock(&l->lock);
	if (kind == NVME_QPAIR_BATCH) {
		l->pair[NVME_FLOW_BATCH] = l->pair[NVME_FLOW_BULK] = at;
		if (l->qp[l->pair[NVME_FLOW_BACKGROUND]]->conf.kind != NVME_QPAIR_LOW)
			l->pair[NVME_FLOW_BACKGROUND] = at;
	} else if (kind == NVME_QPAIR_URGENT) {
		l->pair[NVME_FLOW_LATENCY] = at;
	} else if (kind == NVME_QPAIR_LOW) {
		l->pair[NVME_FLOW_BACKGROUND] = at;
	}
	owner_unlock(&l->lock);
}

void nvme_lane_class(struct nvme_lane *l, enum nvme_flow flow)
{
	if (!l->nr_qp || l->sched.asked[flow == NVME_FLOW_LATENCY])
		return; /* the executor's pair is everybody's */
	l->sched.asked[flow == NVME_FLOW_LATENCY] = true;
	if (l->ctrl->nr_class &&
	    nvme_lane_lease(l, flow == NVME_FLOW_LATENCY ? NVME_QPAIR_URGENT : NVME_QPAIR_LOW))
		return;
	if (flow != NVME_FLOW_LATENCY)
		return;
	owner_lock(&l->lock);
	l->sched.keep = l->qp[0]->conf.depth / 8;
	owner_unlock(&l->lock);
}

bool nvme_lane_lease(struct nvme_lane *l, enum nvme_qpair_kind kind)
{
	struct nvme_ctrl *c = l->ctrl;
	uint32_t last = c->nr_qpairs - 1, nr_free = 0; /* the last one is the executor's */

	for (uint32_t i = 0; i < last; i++)
		nr_free +=
			!for_class(c->q[i].qp) && !atomic_load_explicit(&c->q[i].lane, memory_order_relaxed);
	if (kind == NVME_QPAIR_BATCH && nr_free < 2)
		return false;
	for (uint32_t i = 0; i < last; i++)
		if (c->q[i].qp->conf.kind == kind && nvme_lane_take(l, &c->q[i], false)) {
			route(l, kind);
			return true;
		}
	/* a general lease takes a deep pair rather than none */
	for (uint32_t i = 0; i < last && kind == NVME_QPAIR_GENERAL; i++)
		if (!for_class(c->q[i].qp) && nvme_lane_take(l, &c->q[i], false))
			return true;
	return false;
}

void nvme_lane_done(struct nvme_lane *l)
{
	struct nvme_ctrl *c = l->ctrl;

	nvme_retry_free(l);
	free(l->turns);
	l->turns = NULL;
	nvme_sched_forget(l);
	for (uint32_t i = 0; i < l->nr_qp; i++) {
		struct nvme_qpair *qp = l->qp[i];

		if (l->bound[i])
			c->ops->wake_unbind(c->t, l->bind[i]);
		l->st.doorbells += qp->nr_doorbells;
		l->st.unknown_cids += qp->nr_unknown_cid;
		for (uint32_t k = 0; k < c->nr_qpairs; k++)
			if (c->q[k].qp == qp) /* release: the pair is as we leave it */
				atomic_store_explicit(&c->q[k].lane, NULL, memory_order_release);
	}
	l->st.doorbells -= l->base_doorbells;
	l->st.unknown_cids -= l->base_unknown;
	pthread_mutex_lock(&c->stray_lock);
	nvme_lane_stats_add(c->gone, &l->st);
	pthread_mutex_unlock(&c->stray_lock);
}

void nvme_lane_stats_add(struct nvme_lane_stats *sum, const struct nvme_lane_stats *st)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)st;

	for (size_t i = 0; i < sizeof(*st) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

void nvme_lane_stats_get(struct nvme_lane *l, struct nvme_lane_stats *ret)
{
	*ret = l->st;
	for (uint32_t i = 0; i < l->nr_qp; i++) {
		ret->doorbells += l->qp[i]->nr_doorbells;
		ret->unknown_cids += l->qp[i]->nr_unknown_cid;
	}
	ret->doorbells -= l->base_doorbells;
	ret->unknown_cids -= l->base_unknown;
}
