/* SPDX-License-Identifier: MIT */
/* Opening and closing a controller. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nvme/admin.h"
#include "nvme/chan.h"
#include "nvme/hk.h"
#include "nvme/recovery.h"
#include "nvme/tally.h"

#define MAX_PAGE_SHIFT 16

static int engine_map(void *ctx, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct nvme_ctrl *c = ctx;

	return c->ops->map(c->t, vaddr, nbytes, flags, ret);
}

static int engine_unmap(void *ctx, uint64_t handle)
{
	struct nvme_ctrl *c = ctx;

	return c->ops->unmap(c->t, handle);
}

static int engine_map_foreign(void *ctx, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			      struct dma_mapping *ret)
{
	struct nvme_ctrl *c = ctx;

	return c->ops->map_foreign ? c->ops->map_foreign(c->t, from, nbytes, flags, ret) : -EOPNOTSUPP;
}

static const struct mem_ops engine_mem_ops = {
	.map = engine_map,
	.map_foreign = engine_map_foreign,
	.unmap = engine_unmap,
};

static uint32_t or_default(uint32_t v, uint32_t def) { return v ? v : def; }

static int take_params(struct nvme_ctrl *c, const struct nvme_open_params *p, struct nvme_err *err)
{
	c->p = *p;
	if (p->pollers)
		atomic_fetch_add_explicit(&p->pollers->users, 1, memory_order_relaxed);
	nvme_sched_init(c);
	c->p.depth = or_default(p->depth, 128);
	c->p.batch_depth = or_default(p->batch_depth, 512);
	c->p.max_transfer = or_default(p->max_transfer, 1u << 20);
	if (p->hang_io_ns <= 0)
		c->p.hang_io_ns = 30 * NSEC_PER_SEC;
	if (p->hang_admin_ns <= 0)
		c->p.hang_admin_ns = 60 * NSEC_PER_SEC;
	if (!p->io_queues || p->io_queues > NVME_MAX_QPAIRS)
		return nvme_err_set(err, -EINVAL, 0, "io_queues is %u; it must be 1 to %u", p->io_queues,
				    NVME_MAX_QPAIRS);
	if (p->qprio > 3)
		return nvme_err_set(err, -EINVAL, 0, "qprio is %u; it must be 0 (urgent) to 3 (low)",
				    p->qprio);
	if (p->arb_burst > 7)
		return nvme_err_set(err, -EINVAL, 0,
				    "arb_burst is %u; it must be 0 to 6 (2^n commands) or 7 (no limit)",
				    p->arb_burst);
	c->p.chunk = or_default(p->chunk, 256u << 10);
	c->p.bulk_bytes = p->bulk_bytes ? p->bulk_bytes : 32u << 20;
	c->p.background_bytes = p->background_bytes ? p->background_bytes : 4u << 20;
	if (c->p.chunk < NVME_CHUNK_LEAST || c->p.chunk & (c->p.chunk - 1))
		return nvme_err_set(err, -EINVAL, 0, "chunk is %u; it must be a power of two, at least %u",
				    p->chunk, NVME_CHUNK_LEAST);
	if (p->wrr_weights >> 24)
		return nvme_err_set(err, -EINVAL, 0, "wrr_weights 0x%x has more than three bytes",
				    p->wrr_weights);
	return 0;
}

/* What the registers say before anything is changed. */
static int read_caps(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint64_t vs = 0;
	uint32_t mpsmin, depth_max, have;
	int rc = c->ops->prop_get(c->t, NVME_REG_CAP, 8, &c->cap);

	if (!rc)
		rc = c->ops->prop_get(c->t, NVME_REG_VS, 4, &vs);
	if (rc)
		return nvme_err_set(err, rc, 0,
				    "the controller does not answer: its registers read all ones (errno %d)",
				    -rc);
	c->vs = (uint32_t)vs;
	mpsmin = NVME_CAP_MPSMIN(c->cap);
	c->page_shift = 12 + mpsmin; /* 4 KiB if it can be had */
	if (c->page_shift > MAX_PAGE_SHIFT)
		return nvme_err_set(err, -EOPNOTSUPP, 0,
				    "the controller's smallest memory page is 2^%u bytes; at most 2^%u is "
				    "supported",
				    c->page_shift, MAX_PAGE_SHIFT);
	if (NVME_CAP_MPSMAX(c->cap) < mpsmin)
		return nvme_err_set(
			err, -EOPNOTSUPP, 0,
			"the controller contradicts itself: its largest memory page (CAP.MPSMAX %u) is "
			"smaller than its smallest (CAP.MPSMIN %u)",
			NVME_CAP_MPSMAX(c->cap), mpsmin);
	if (!(NVME_CAP_CSS(c->cap) & 1))
		return nvme_err_set(err, -EOPNOTSUPP, 0, "the controller has no NVM command set (CAP 0x%llx)",
				    (unsigned long long)c->cap);
	depth_max = NVME_CAP_MQES(c->cap) + 1;
	if (depth_max < 2)
		return nvme_err_set(err, -EOPNOTSUPP, 0,
				    "the controller allows queues of one entry only (CAP.MQES 0)");
	c->p.depth = c->p.depth < 2 ? 2 : min_u32(c->p.depth, depth_max);
	c->p.batch_depth = c->p.batch_depth < 2 ? 2 : min_u32(c->p.batch_depth, depth_max);
	c->wrr = c->p.wrr || (c->p.wrr_auto && NVME_CAP_AMS(c->cap) & 1);
	if (c->wrr && !(NVME_CAP_AMS(c->cap) & 1))
		return nvme_err_set(err, -EOPNOTSUPP, 0,
				    "weighted round robin was asked for, but CAP.AMS (%u) does not offer "
				    "it; open without it",
				    NVME_CAP_AMS(c->cap));
	have = c->ops->nr_vectors(c->t);
	c->nr_vectors = c->p.vectors ? min_u32(c->p.vectors, have) : have;
	c->tr_flags = c->ops->flags(c->t);
	return 0;
}

static struct nvme_ctrl *ctrl_alloc(const struct nvme_ctrl_ops *ops, void *t)
{
	struct nvme_ctrl *c = aligned_alloc(CACHELINE, align_up(sizeof(*c), CACHELINE));

	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->ops = ops;
	c->t = t;
	c->hk_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->gone = calloc(1, sizeof(*c->gone));
	atomic_init(&c->hk_next, INT64_MAX);
	atomic_init(&c->state, NVME_RESETTING); /* until bring-up is complete */
	nvme_link_init(&c->strays);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->admin_lock, NULL);
	pthread_mutex_init(&c->stray_lock, NULL);
	pthread_mutex_init(&c->ns_lock, NULL);
	return c;
}

/* @safe: the device cannot reach the queues any more. If it can, they stay allocated: a leak, but not a
 * corruption. */
static void ctrl_free(struct nvme_ctrl *c, bool safe)
{
	if (safe) {
		for (uint32_t i = 0; i < c->nr_qpairs; i++)
			if (c->q[i].qp)
				c->q[i].qp->ops->free(c->q[i].qp);
		nvme_admin_done(c);
		if (c->mem.ops)
			mem_table_done(&c->mem);
	}
	nvme_hk_free(c);
	c->ops->close(c->t);
	if (c->hk_fd >= 0)
		close(c->hk_fd);
	if (c->event_fd >= 0)
		close(c->event_fd);
	if (c->p.pollers) /* release: its threads are not looked for any more */
		atomic_fetch_sub_explicit(&c->p.pollers->users, 1, memory_order_release);
	pthread_mutex_destroy(&c->stray_lock);
	pthread_mutex_destroy(&c->ns_lock);
	pthread_mutex_destroy(&c->admin_lock);
	pthread_mutex_destroy(&c->lock);
	nvme_tallies_free(c->tallies);
	free(c->gone);
	free(c->ns);
	free(c);
}

static int bring_up(struct nvme_ctrl *c, const struct nvme_open_params *p, struct nvme_err *err)
{
	int rc;

	if (c->hk_fd < 0 || c->event_fd < 0)
		return nvme_err_set(err, -EMFILE, 0,
				    "no file descriptors left for the controller's eventfds");
	if (!c->gone)
		return nvme_err_set(err, -ENOMEM, 0, "no memory for the controller");
	rc = take_params(c, p, err);
	if (!rc)
		rc = read_caps(c, err);
	if (rc)
		return rc;
	rc = mem_table_init(&c->mem, &engine_mem_ops, c, (uint8_t)c->page_shift);
	if (!rc)
		rc = nvme_ctrl_halt(c, err);
	if (!rc)
		rc = nvme_ctrl_start_dma(c, err);
	if (rc)
		return rc;
	rc = nvme_admin_init(c);
	if (rc == -EINVAL)
		return nvme_err_set(
			err, rc, 0,
			"the admin queue's doorbells lie outside the controller's registers (CAP.DSTRD %u)",
			NVME_CAP_DSTRD(c->cap));
	if (rc)
		return nvme_err_set(err, rc, 0, "the admin queue cannot be made (errno %d)", -rc);
	rc = nvme_ctrl_start(c, err);
	if (!rc)
		rc = nvme_ctrl_make_pairs(c, err);
	for (uint32_t i = 0; !rc && i < c->nr_qpairs; i++)
		rc = nvme_ctrl_connect_pair(c, i, err);
	if (!rc)
		rc = nvme_ctrl_coalesce(c, err);
	if (rc)
		return rc;
	atomic_store_explicit(&c->state, NVME_LIVE, memory_order_release);
	rc = nvme_hk_start(c);
	if (rc)
		nvme_err_set(err, rc, 0, "the housekeeping thread cannot be started (errno %d)", -rc);
	return rc;
}

int nvme_ctrl_open(const struct nvme_ctrl_ops *ops, void *t, const struct nvme_open_params *p,
		   struct nvme_ctrl **ret, struct nvme_err *err)
{
	int64_t start = now_ns();
	struct nvme_ctrl *c = ctrl_alloc(ops, t);
	int rc;

	if (!c) {
		ops->close(t);
		return nvme_err_set(err, -ENOMEM, 0, "no memory for the controller");
	}
	rc = bring_up(c, p, err);
	if (rc) {
		/* nothing of ours may be reachable when it is freed; before the admin queue there is
		 * nothing */
		ctrl_free(c, !c->adm || !nvme_recovery_stop(c));
		return rc;
	}
	c->open_ns = now_ns() - start;
	*ret = c;
	return 0;
}

static bool mem_busy(struct nvme_ctrl *c)
{
	uint32_t nr = atomic_load_explicit(&c->mem.nr_slots, memory_order_acquire);

	for (uint32_t i = 0; i < nr; i++)
		if (mem_inflight(mem_slot(&c->mem, i)))
			return true;
	return false;
}

static int settle(struct nvme_ctrl *c, void *unused)
{
	(void)c;
	(void)unused;
	return 0;
}

int nvme_ctrl_retire(struct nvme_ctrl *c, bool force)
{
	uint32_t was;
	bool busy;

	/* housekeeping frees what is orphaned and idle before a call to it is over */
	if (force && atomic_load_explicit(&c->nr_quarantined, memory_order_relaxed))
		nvme_hk_call(c, nvme_recovery_quiesce, NULL);
	else
		nvme_hk_call(c, settle, NULL);
	pthread_mutex_lock(&c->lock);
	busy = c->chans || atomic_load_explicit(&c->nr_ns_open, memory_order_acquire) ||
	       atomic_load_explicit(&c->nr_quarantined, memory_order_acquire) || mem_busy(c);
	was = atomic_load_explicit(&c->state, memory_order_relaxed);
	if (was == NVME_RESETTING)
		busy = true;
	if (!busy) {
		c->retired_live = was == NVME_LIVE;
		nvme_ctrl_set_state(c, NVME_CLOSED, "closed");
	}
	pthread_mutex_unlock(&c->lock);
	return busy ? -EBUSY : 0;
}

void nvme_ctrl_end(struct nvme_ctrl *c)
{
	struct nvme_exec *x;
	bool safe;

	/* a channel that came too late may have started it anew */
	pthread_mutex_lock(&c->lock);
	x = c->exec;
	c->exec = NULL;
	pthread_mutex_unlock(&c->lock);
	nvme_exec_free(x);
	nvme_hk_stop(c);
	if (c->retired_live) {
		for (uint32_t i = 0; i < c->nr_qpairs; i++)
			if (c->q[i].qp->ops->disconnect(c->q[i].qp, true))
				break; /* disabling the controller deletes them as well */
		nvme_ctrl_shutdown(c);
	}
	safe = !nvme_recovery_stop(c);
	nvme_admin_fail(c, -ESHUTDOWN);
	if (safe)
		nvme_admin_forget(c, -ESHUTDOWN);
	ctrl_free(c, safe);
}

int nvme_ctrl_close(struct nvme_ctrl *c, bool force)
{
	int err = nvme_ctrl_retire(c, force);

	if (!err)
		nvme_ctrl_end(c);
	return err;
}
