/* SPDX-License-Identifier: MIT */
/*
 * Reset: the one thing that ends a quarantine for a controller that stays. It runs on the housekeeping
 * thread, which owns the admin queue. Lanes are locked one at a time and briefly, so that no owner waits
 * for a slow device.
 */
#include "nvme/recovery.h"

#include "nvme/admin.h"
#include "nvme/chan.h"
#include "nvme/hk.h"

int nvme_recovery_stop(struct nvme_ctrl *c)
{
	if (atomic_load_explicit(&c->state, memory_order_relaxed) != NVME_REMOVED &&
	    !nvme_ctrl_disable(c, NULL))
		return 0;
	/* not obeyed, or registers of all ones, which alone prove nothing */
	return c->ops->stop_dma(c->t);
}

static void forget_lane(struct nvme_lane *l, int err)
{
	owner_lock(&l->lock);
	nvme_lane_forget(l, err);
	for (uint32_t i = 0; i < l->nr_qp; i++)
		l->qp[i]->ops->disconnect(l->qp[i], false);
	owner_unlock(&l->lock);
}

/* DMA has stopped: every command is over. */
static void forget_all(struct nvme_ctrl *c, int err)
{
	pthread_mutex_lock(&c->lock);
	for (struct nvme_chan *ch = c->chans; ch; ch = ch->next)
		if (ch->owns)
			forget_lane(&ch->own, err);
	if (c->exec) {
		nvme_exec_drain(c->exec);
		forget_lane(&c->exec->lane, err);
	}
	pthread_mutex_unlock(&c->lock);
	nvme_admin_forget(c, err);
	nvme_admin_fail(c, err);
}

void nvme_recovery_cut(struct nvme_ctrl *c, int err) { forget_all(c, err); }

int nvme_recovery_quiesce(struct nvme_ctrl *c, void *unused)
{
	int rc;

	(void)unused;
	if (atomic_load_explicit(&c->state, memory_order_relaxed) != NVME_REMOVED)
		nvme_ctrl_set_state(c, NVME_WEDGED, "stopped for a forced close");
	rc = nvme_recovery_stop(c);
	if (!rc)
		forget_all(c, -ECANCELED);
	return rc;
}

struct reconnect {
	struct nvme_err *err;
	bool done[NVME_MAX_QPAIRS];
};

/* A pair is rewound under the lock of the lane that runs it. An owner that still saw LIVE may have sent
 * something to a queue that did not exist any more: that is forgotten first, while the controller does not
 * know the queue. */
static int reconnect_lane(struct nvme_ctrl *c, struct nvme_lane *l, struct reconnect *r)
{
	int rc = 0;

	owner_lock(&l->lock);
	nvme_lane_forget(l, -ECANCELED);
	for (uint32_t i = 0; i < l->nr_qp && !rc; i++) {
		uint32_t k = l->qp[i]->conf.qid - 1u;

		rc = nvme_ctrl_connect_pair(c, k, r->err);
		r->done[k] = true;
	}
	owner_unlock(&l->lock);
	return rc;
}

static bool lane_is_new(struct nvme_lane *l, const struct reconnect *r)
{
	bool is_new;

	owner_lock(&l->lock); /* a lane may lease another pair just now */
	is_new = l->nr_qp && !r->done[l->qp[0]->conf.qid - 1u];
	owner_unlock(&l->lock);
	return is_new;
}

/* One lane; c->lock keeps it in being, and is let go between lanes. 1: did one, 0: all are done. */
static int reconnect_next(struct nvme_ctrl *c, struct reconnect *r)
{
	struct nvme_lane *l = NULL;
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	for (struct nvme_chan *ch = c->chans; ch && !l; ch = ch->next)
		if (ch->owns && lane_is_new(&ch->own, r))
			l = &ch->own;
	if (!l && c->exec && lane_is_new(&c->exec->lane, r))
		l = &c->exec->lane;
	if (l)
		rc = reconnect_lane(c, l, r);
	pthread_mutex_unlock(&c->lock);
	return rc ? rc : l != NULL;
}

static int reconnect_all(struct nvme_ctrl *c, struct nvme_err *err)
{
	struct reconnect r = { .err = err };
	int rc;

	do
		rc = reconnect_next(c, &r);
	while (rc > 0);
	/* the rest is free, or leased since the state changed: nobody sends on it before LIVE */
	for (uint32_t i = 0; !rc && i < c->nr_qpairs; i++)
		if (!r.done[i])
			rc = nvme_ctrl_connect_pair(c, i, err);
	return rc;
}

static int reset_fn(struct nvme_ctrl *c, void *arg)
{
	struct nvme_err *err = arg;
	uint32_t was = atomic_load_explicit(&c->state, memory_order_relaxed);
	int rc;

	if (was == NVME_REMOVED || was == NVME_CLOSED)
		return nvme_err_set(err, was == NVME_REMOVED ? -ENODEV : -ESHUTDOWN, 0,
				    was == NVME_REMOVED
					    ? "the controller was removed: there is nothing to reset"
					    : "the controller is closed");
	nvme_ctrl_set_state(c, NVME_RESETTING, "reset asked for");
	rc = nvme_ctrl_halt(c, err);
	if (rc) {
		bool stopped = !c->ops->stop_dma(c->t);

		if (stopped)
			forget_all(c, -ECANCELED); /* the quarantine ends all the same */
		nvme_ctrl_set_state(c, rc == -ENODEV ? NVME_REMOVED : NVME_WEDGED, err->text);
		return rc;
	}
	forget_all(c, -ECANCELED);
	/* a reset before this one may not have been obeyed, or memory was taken away */
	rc = nvme_ctrl_start_dma(c, err);
	if (!rc && c->ops->map_revoked)
		mem_table_revoke(&c->mem, c->ops->map_revoked, c->t);
	if (!rc)
		rc = nvme_ctrl_start(c, err);
	if (!rc)
		rc = reconnect_all(c, err);
	if (!rc)
		rc = nvme_ctrl_coalesce(c, err);
	if (rc) {
		nvme_ctrl_set_state(c, rc == -ENODEV ? NVME_REMOVED : NVME_WEDGED, err->text);
		return rc;
	}
	nvme_hk_events_rearm(c);
	atomic_fetch_add_explicit(&c->nr_resets, 1, memory_order_relaxed);
	c->cut = false;
	atomic_store_explicit(&c->revoked, false, memory_order_relaxed);
	nvme_ctrl_set_state(c, NVME_LIVE, "");
	return 0;
}

int nvme_ctrl_reset(struct nvme_ctrl *c, struct nvme_err *err)
{
	struct nvme_err local = { 0 };
	int rc = nvme_hk_call(c, reset_fn, &local);

	if (rc && !local.err)
		nvme_err_set(&local, rc, 0, "the controller is being closed");
	if (rc && err)
		*err = local;
	return rc;
}
