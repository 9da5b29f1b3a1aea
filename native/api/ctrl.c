/* SPDX-License-Identifier: MIT */
/* ugds.h: controllers, namespaces, memory. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"
#include "nvme/tally.h"
#include "nvme/wait.h"
#include "stream/stream.h"

void api_error(struct ugds_error *to, int err, uint32_t status, const char *text)
{
	to->err = err;
	to->status = status;
	snprintf(to->text, sizeof(to->text), "%s", text);
}

int api_open(const char *transport, const struct nvme_ctrl_ops *ops, void *t,
	     const struct ugds_open_params *p, struct ugds_ctrl **ret, struct ugds_error *err)
{
	struct nvme_open_params np = {
		.readonly = p->flags & UGDS_OPEN_READONLY,
		.no_shadow = p->flags & UGDS_OPEN_NO_SHADOW,
		.no_hugepage = p->flags & UGDS_OPEN_NO_HUGEPAGE,
		.wrr = p->flags & UGDS_OPEN_WRR,
		.no_tallies = p->flags & UGDS_OPEN_NO_TALLIES,
		.wrr_auto = p->flags & UGDS_OPEN_WRR_AUTO,
		.fifo = p->flags & UGDS_OPEN_FIFO,
		.chunk = p->chunk,
		.bulk_bytes = p->bulk_bytes,
		.background_bytes = p->background_bytes,
		.segment = p->flags & UGDS_OPEN_SEGMENT,
		.segment_fd = p->segment_fd,
		.io_queues = p->io_queues,
		.batch_queues = p->batch_queues,
		.depth = p->depth,
		.batch_depth = p->batch_depth,
		.max_transfer = p->max_transfer,
		.vectors = p->vectors,
		.qprio = p->qprio,
		.arb_burst = p->arb_burst,
		.wrr_weights = p->wrr_weights,
		.retries = p->retries,
		.coalesce = p->coalesce,
		.pollers = (struct nvme_pollers *)p->executor,
		.spin_ns = (int64_t)p->spin_ns,
		.hang_io_ns = (int64_t)p->hang_io_ns,
		.hang_admin_ns = (int64_t)p->hang_admin_ns,
		.cancel_grace_ns = (int64_t)p->cancel_grace_ns,
	};
	struct nvme_err ne = { 0 };
	struct ugds_ctrl *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		ops->close(t);
		api_error(err, -ENOMEM, 0, "no memory for the controller object");
		return -ENOMEM;
	}
	rc = nvme_ctrl_open(ops, t, &np, &c->c, &ne);
	if (rc) {
		api_error(err, rc, ne.status, ne.text);
		free(c);
		return rc;
	}
	c->transport = transport;
	*ret = c;
	return 0;
}

struct ugds_ctrl *api_enter(struct ugds_ctrl *uc)
{
	/* acquire: what was freed is not looked at; seq_cst order of the one word makes the closer see us, or us it */
	if (!(atomic_fetch_add_explicit(&uc->visitors, 1, memory_order_acq_rel) & API_CLOSED))
		return uc;
	atomic_fetch_sub_explicit(&uc->visitors, 1, memory_order_release);
	return NULL;
}

void api_leave(struct ugds_ctrl **in)
{
	if (*in)
		atomic_fetch_sub_explicit(&(*in)->visitors, 1, memory_order_release);
}

int ugds_ctrl_close(struct ugds_ctrl *uc, int force)
{
	struct stream_exec *x;
	int err;

	if (atomic_exchange_explicit(&uc->closing, true, memory_order_acq_rel))
		return atomic_load_explicit(&uc->visitors, memory_order_acquire) & API_CLOSED ? 0 : -EBUSY;
	x = atomic_load_explicit(&uc->streams, memory_order_acquire);
	err = x ? stream_exec_quiet(x, force) : 0;
	if (!err)
		err = nvme_ctrl_retire(uc->c, force);
	if (err) {
		atomic_store_explicit(&uc->closing, false, memory_order_release);
		return err;
	}
	atomic_fetch_or_explicit(&uc->visitors, API_CLOSED, memory_order_acq_rel);
	/* they stay for microseconds; a reset that was asked for finds the controller closed and returns */
	for (int64_t start = now_ns();
	     atomic_load_explicit(&uc->visitors, memory_order_acquire) != API_CLOSED;)
		nvme_pause(now_ns() - start);
	x = atomic_load_explicit(&uc->streams, memory_order_acquire);
	if (x)
		stream_exec_end(x);
	nvme_ctrl_end(uc->c);
	uc->c = NULL;
	return 0;
}

void ugds_ctrl_free(struct ugds_ctrl *uc)
{
	if (atomic_load_explicit(&uc->visitors, memory_order_acquire) == API_CLOSED)
		free(uc);
}

void ugds_ctrl_fork_child(struct ugds_ctrl *c)
{
	/* being closed at the time: what of it is left cannot be told */
	if (atomic_load_explicit(&c->visitors, memory_order_acquire) & API_CLOSED)
		return;
	nvme_ctrl_fork_child(c->c);
}

static uint32_t caps_of(const struct nvme_ctrl *c, const struct nvme_place *place)
{
	uint32_t caps = 0;

	caps |= c->tr_flags & NVME_TR_ARM ? UGDS_CAP_ARM : 0;
	caps |= c->tr_flags & NVME_TR_STEP ? UGDS_CAP_STEP : 0;
	caps |= c->tr_flags & NVME_TR_MAP_INLINE ? UGDS_CAP_MAP_INLINE : 0;
	caps |= c->tr_flags & NVME_TR_DIRECT ? UGDS_CAP_DIRECT : 0;
	caps |= c->shadow ? UGDS_CAP_SHADOW : 0;
	caps |= c->huge ? UGDS_CAP_HUGEPAGE : 0;
	caps |= place->coherent ? UGDS_CAP_COHERENT : 0;
	caps |= c->wrr ? UGDS_CAP_WRR : 0;
	caps |= c->vwc & NVME_VWC_PRESENT ? UGDS_CAP_VWC : 0;
	caps |= c->oncs & NVME_ONCS_COMPARE ? UGDS_CAP_COMPARE : 0;
	caps |= c->oncs & NVME_ONCS_DSM ? UGDS_CAP_DEALLOCATE : 0;
	caps |= c->oncs & NVME_ONCS_WRITE_ZEROES ? UGDS_CAP_WRITE_ZEROES : 0;
	caps |= c->oncs & NVME_ONCS_VERIFY ? UGDS_CAP_VERIFY : 0;
	caps |= c->p.readonly ? UGDS_CAP_READONLY : 0;
	caps |= c->step_most ? UGDS_CAP_INLINE_READS : 0;
	return caps;
}

int ugds_ctrl_info(struct ugds_ctrl *uc, struct ugds_ctrl_info *ret)
{
	api_visitor *in = api_enter(uc);

	if (!in)
		return -ESHUTDOWN;

	struct nvme_ctrl *c = uc->c;
	struct nvme_place place = { .numa_node = -1 };
	uint32_t nr_free = 0;

	if (c->ops->place)
		c->ops->place(c->t, &place);

	for (uint32_t i = 0; i + 1 < c->nr_qpairs; i++)
		nr_free += !atomic_load_explicit(&c->q[i].lane, memory_order_relaxed);
	*ret = (struct ugds_ctrl_info){
		.cap = c->cap,
		.vs = c->vs,
		.state = atomic_load_explicit(&c->state, memory_order_acquire),
		.caps = caps_of(c, &place),
		.page_bytes = 1u << c->page_shift,
		.mdts_bytes = c->mdts_bytes,
		.max_transfer = c->max_transfer,
		.io_queues = c->nr_qpairs,
		.batch_queues = c->nr_batch,
		.class_queues = c->nr_class,
		.depth = c->q[0].qp->conf.depth,
		.batch_depth = c->q[c->nr_qpairs - 1].qp->conf.depth,
		.vectors = c->nr_vectors,
		.free_queues = nr_free,
		.vid = c->vid,
		.acl = c->acl,
		.aerl = c->aerl,
		.awupf_blocks = c->awupf + 1, /* zero based in the identify data */
		.crdt = { c->crdt[0], c->crdt[1], c->crdt[2] },
		.revoked = atomic_load_explicit(&c->revoked, memory_order_acquire),
		.iommu = place.iommu,
		.numa_node = place.numa_node,
		.segment_err = c->tallies ? c->tallies->file_err : -EOPNOTSUPP,
		.spin_ns = (uint64_t)c->p.spin_ns,
		.wake_ns = (uint64_t)c->wake_ns,
		.open_ns = (uint64_t)c->open_ns,
		.state_since_ns = (uint64_t)atomic_load_explicit(&c->state_since, memory_order_relaxed),
	};
	snprintf(ret->transport, sizeof(ret->transport), "%s", uc->transport);
	snprintf(ret->bus, sizeof(ret->bus), "%s", place.bus);
	snprintf(ret->serial, sizeof(ret->serial), "%s", c->serial);
	snprintf(ret->model, sizeof(ret->model), "%s", c->model);
	snprintf(ret->firmware, sizeof(ret->firmware), "%s", c->firmware);
	nvme_ctrl_reason(c, ret->reason, sizeof(ret->reason));
	return 0;
}

static void add_lane(struct nvme_lane_stats *sum, struct nvme_lane *l, uint32_t *inflight)
{
	struct nvme_lane_stats st;

	owner_lock(&l->lock);
	nvme_lane_stats_get(l, &st);
	owner_unlock(&l->lock);
	nvme_lane_stats_add(sum, &st);
	*inflight += atomic_load_explicit(&l->inflight, memory_order_relaxed);
}

int ugds_ctrl_stats(struct ugds_ctrl *uc, struct ugds_ctrl_stats *ret)
{
	api_visitor *in = api_enter(uc);

	if (!in)
		return -ESHUTDOWN;

	struct nvme_ctrl *c = uc->c;
	struct nvme_lane_stats st = { 0 };
	uint32_t inflight = 0, chans;

	pthread_mutex_lock(&c->stray_lock);
	nvme_lane_stats_add(&st, c->gone);
	pthread_mutex_unlock(&c->stray_lock);
	pthread_mutex_lock(&c->lock);
	for (struct nvme_chan *ch = c->chans; ch; ch = ch->next)
		add_lane(&st, &ch->own, &inflight);
	if (c->exec)
		add_lane(&st, &c->exec->lane, &inflight);
	chans = c->nr_chans;
	pthread_mutex_unlock(&c->lock);
	*ret = (struct ugds_ctrl_stats){
		.reads = st.reads,
		.writes = st.writes,
		.others = st.others,
		.read_bytes = st.read_bytes,
		.write_bytes = st.write_bytes,
		.errors = st.errors,
		.retries = st.retries,
		.commands = st.commands,
		.doorbells = st.doorbells,
		.inline_completions = st.inline_done,
		.wakeups = st.wakeups,
		.stragglers = atomic_load_explicit(&c->nr_stragglers, memory_order_relaxed),
		.timeouts = atomic_load_explicit(&c->nr_timeouts, memory_order_relaxed),
		.cancels = atomic_load_explicit(&c->nr_cancels, memory_order_relaxed),
		.aborts = atomic_load_explicit(&c->nr_aborts, memory_order_relaxed),
		.resets = atomic_load_explicit(&c->nr_resets, memory_order_relaxed),
		.unknown_cids = st.unknown_cids,
		.dropped = atomic_load_explicit(&c->nr_dropped, memory_order_relaxed),
		.adopted = atomic_load_explicit(&c->nr_adopted, memory_order_relaxed),
		.inflight = inflight,
		.mappings = atomic_load_explicit(&c->mem.nr_live, memory_order_relaxed),
		.channels = chans,
		.quarantined = atomic_load_explicit(&c->nr_quarantined, memory_order_relaxed),
	};
	return 0;
}

int ugds_ctrl_reset(struct ugds_ctrl *c, struct ugds_error *err)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	struct nvme_err ne = { 0 };
	int rc = nvme_ctrl_reset(c->c, &ne);

	if (rc)
		api_error(err, rc, ne.status, ne.text);
	return rc;
}

int ugds_ctrl_events(struct ugds_ctrl *c, uint32_t *out, uint32_t max)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return (int)nvme_ctrl_events(c->c, out, max);
}

int ugds_ctrl_event_fd(struct ugds_ctrl *c)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->c->event_fd;
}

int ugds_ctrl_quarantine(struct ugds_ctrl *uc, struct ugds_stuck *out, uint32_t max)
{
	api_visitor *in = api_enter(uc);

	if (!in)
		return -ESHUTDOWN;

	struct nvme_ctrl *c = uc->c;
	uint32_t n = 0;

	pthread_mutex_lock(&c->stray_lock);
	for (struct nvme_link *p = c->strays.next; p != &c->strays; p = p->next, n++) {
		const struct nvme_op *op = container_of(p, struct nvme_op, stray);

		if (n >= max)
			continue;
		out[n] = (struct ugds_stuck){
			.map = op->map ? mem_handle(op->map) : 0,
			.ns = (struct ugds_ns *)op->ns,
			.buf_off = op->buf_start,
			.nbytes = op->nbytes,
			.since_ns = (uint64_t)op->stray_since,
			.qid = op->last_qid,
			.cid = op->last_cid,
		};
	}
	pthread_mutex_unlock(&c->stray_lock);
	return (int)n;
}

int ugds_map(struct ugds_ctrl *c, void *ptr, uint64_t nbytes, uint32_t flags, uint64_t *ret_handle)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	if (flags & ~(uint32_t)UGDS_MEM_READONLY)
		return -EINVAL;
	return mem_register(&c->c->mem, ptr, nbytes, DMA_READ | (flags & UGDS_MEM_READONLY ? 0 : DMA_WRITE),
			    ret_handle);
}

static_assert(UGDS_FOREIGN_DMABUF == MEM_FOREIGN_DMABUF && UGDS_FOREIGN_CUDA == MEM_FOREIGN_CUDA &&
		      UGDS_FOREIGN_HIP == MEM_FOREIGN_HIP && UGDS_TRAIT_SYSTEM == MEM_SYSTEM &&
		      UGDS_TRAIT_REVOCABLE == MEM_REVOCABLE && UGDS_TRAIT_STAGED == MEM_STAGED,
	      "one numbering");

/* Where the device's own DMA needs a flush before the GPU sees it. -ENOPROTOOPT: it cannot be told to, and would not see it. */
static int flushed_peer(const struct nvme_ctrl *c, const struct ugds_foreign *u, struct gpu_place *ret)
{
	const struct gpu_rt *rt = u->gpu_vendor ? gpu_find(u->gpu_vendor) : NULL;
	uint32_t caps = 0;

	*ret = (struct gpu_place){ 0 };
	if (!rt || !(c->tr_flags & NVME_TR_DIRECT) || u->flags & UGDS_FOREIGN_READONLY ||
	    rt->caps(u->gpu_device, &caps) || !(caps & GPU_NEEDS_FLUSH))
		return 0;
	if (!(caps & GPU_HAS_FLUSH))
		return -ENOPROTOOPT;
	*ret = (struct gpu_place){ u->gpu_vendor, u->gpu_device, u->gpu_ctx };
	return 0;
}

int ugds_map_foreign(struct ugds_ctrl *c, struct ugds_foreign *u, uint64_t *ret_handle)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	struct mem_foreign from = { .kind = u->kind, .fd = u->fd, .addr = u->addr, .offset = u->offset };
	int err;

	if (u->flags & ~(uint32_t)(UGDS_FOREIGN_PEER | UGDS_FOREIGN_READONLY))
		return -EINVAL;
	err = flushed_peer(c->c, u, &from.peer);
	if (err)
		return err;
	err = mem_register_foreign(&c->c->mem, &from, u->nbytes,
				   DMA_READ | (u->flags & UGDS_FOREIGN_READONLY ? 0 : DMA_WRITE) |
					   (u->flags & UGDS_FOREIGN_PEER ? DMA_PEER : 0),
				   &u->ret_traits, ret_handle);
	return err;
}

int ugds_map_within(struct ugds_ctrl *c, uint64_t parent, uint64_t off, uint64_t nbytes, uint32_t flags,
		    uint64_t *ret_handle)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	if (flags & ~(uint32_t)UGDS_MEM_READONLY)
		return -EINVAL;
	return mem_register_within(&c->c->mem, parent, off, nbytes,
				   DMA_READ | (flags & UGDS_MEM_READONLY ? 0 : DMA_WRITE), ret_handle);
}

int ugds_unmap(struct ugds_ctrl *c, uint64_t handle)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return mem_unregister(&c->c->mem, handle);
}

int64_t ugds_map_inflight(struct ugds_ctrl *c, uint64_t handle)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	struct mem_map *m = mem_get(&c->c->mem, handle, 1);
	uint32_t n;

	if (!m)
		return -ESTALE;
	n = mem_inflight(m) - 1; /* less our own */
	mem_put(m, 1);
	return n;
}
