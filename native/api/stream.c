/* SPDX-License-Identifier: MIT */
/* ugds_stream.h. Thin: types are translated, nothing else. */
#include "stream/stream.h"

#include <stdio.h>

#include "api/api.h"
#include "include/ugds_plan.h"
#include "include/ugds_stream.h"

static_assert(UGDS_SOP_WAITING == STREAM_WAITING && UGDS_SOP_RUNNING == STREAM_RUNNING &&
		      UGDS_SOP_DONE == STREAM_DONE && UGDS_SOP_CANCELLED == STREAM_CANCELLED &&
		      UGDS_SOP_FAILED == STREAM_FAILED && UGDS_SOP_STALLED == STREAM_STALLED,
	      "one order");
static_assert(UGDS_SOP_STALL == STREAM_STALL && UGDS_SOP_CALLBACK == STREAM_CALLBACK &&
		      UGDS_SOP_KEEP == STREAM_KEEP,
	      "one order");
static_assert(sizeof(struct ugds_stream_result) == sizeof(struct stream_result) &&
		      offsetof(struct ugds_stream_result, done) == offsetof(struct stream_result, done) &&
		      offsetof(struct ugds_stream_result, offset) == offsetof(struct stream_result, offset) &&
		      offsetof(struct ugds_stream_result, over) == offsetof(struct stream_result, over),
	      "results are passed through");
static_assert(sizeof(struct ugds_stream_cell) == sizeof(struct stream_cell) &&
		      offsetof(struct ugds_stream_cell, nbytes) == offsetof(struct stream_cell, nbytes),
	      "cells are passed through");

static struct stream *stream_of(struct ugds_stream *s) { return (struct stream *)s; }
static struct stream_sink *sink_of(struct ugds_sink *k) { return (struct stream_sink *)k; }

/* The controller's executor, made with the first call. */
static int exec_of(struct ugds_ctrl *uc, struct stream_exec **ret)
{
	struct stream_exec *x = atomic_load_explicit(&uc->streams, memory_order_acquire), *none = NULL;
	int err;

	if (!x) {
		err = stream_exec_new(uc->c, &x);
		if (err)
			return err;
		if (!atomic_compare_exchange_strong_explicit(&uc->streams, &none, x, memory_order_acq_rel,
							     memory_order_acquire)) {
			stream_exec_put(x);
			x = none;
		}
	}
	*ret = x;
	return 0;
}

static int answer(struct ugds_error *err, int rc, const struct nvme_err *ne)
{
	if (rc)
		api_error(err, rc, ne->status, ne->text);
	return rc;
}

int ugds_stream_open(struct ugds_ctrl *c, const struct ugds_stream_params *p, struct ugds_stream **ret,
		     struct ugds_error *err)
{
	const struct gpu_rt *rt = gpu_find(p->vendor);
	struct stream_params sp = {
		.place = { p->vendor, p->device, p->ctx },
		.stream = p->stream,
		.chunk = p->chunk_bytes,
		.slots = p->slots,
		.connections = p->connections,
		.max_waiting = p->max_waiting,
		.max_chunks = p->max_chunks,
		.spin_ns = (int64_t)min_u64(p->spin_ns, INT64_MAX),
	};
	struct nvme_err ne = { 0 };
	struct stream_exec *x;
	api_visitor *in = api_enter(c);
	int rc;

	if (!in)
		return answer(err, -ESHUTDOWN, &ne);
	if (!rt) {
		nvme_err_set(&ne, -ENXIO, 0, "the GPU runtime is not loaded");
		return answer(err, -ENXIO, &ne);
	}
	rc = exec_of(c, &x);
	if (!rc)
		rc = stream_open(x, rt, &sp, (struct stream **)ret, &ne);
	return answer(err, rc, &ne);
}

int ugds_stream_close(struct ugds_stream *s, int force) { return stream_close(stream_of(s), force); }

void ugds_stream_free(struct ugds_stream *s) { stream_free(stream_of(s)); }

int ugds_stream_info(struct ugds_stream *us, struct ugds_stream_info *ret)
{
	struct stream *s = stream_of(us);

	if (stream_forked(s->x))
		return -ENODEV;
	stream_learn(s);
	pthread_mutex_lock(&s->enq);
	pthread_mutex_lock(&s->x->lock);
	*ret = (struct ugds_stream_info){
		.staged = s->staged,
		.slots = s->slots,
		.chunk_bytes = s->chunk,
		.waiting = s->nr_waiting,
		.held = s->nr_held,
		.spare = stream_rings_spare(s->x),
		.operations = s->nr_ops,
		.chunks = s->nr_chunks,
		.gpu_calls = s->gpu_calls,
	};
	pthread_mutex_unlock(&s->x->lock);
	pthread_mutex_unlock(&s->enq);
	return 0;
}

#define CHUNK_BITS (0xfu << UGDS_CHUNK_SHIFT)

/* 0: as usual */
static int64_t spin_of(uint64_t op)
{
	const uint64_t said = op >> UGDS_SPIN_SHIFT & 0xfff;

	return said > 1 ? (int64_t)min_u64(said - 1, UGDS_SPIN_MOST) * NSEC_PER_USEC : 0;
}

static enum stream_eager eager_of(uint64_t op)
{
	if (op & UGDS_F_POLL)
		return STREAM_SPINS;
	return op & UGDS_F_NOSPIN || (op >> UGDS_SPIN_SHIFT & 0xfff) == 1 ? STREAM_SLEEPS : STREAM_ADAPTIVE;
}

static void get_item(const void *ctx, uint32_t i, struct stream_item *ret)
{
	const struct ugds_stream_item *u = &((const struct ugds_stream_item *)ctx)[i];

	*ret = (struct stream_item){
		.map = u->map,
		.buf_off = u->buf_off,
		.nbytes = u->nbytes,
		.offset = u->offset,
		.gpu_addr = u->gpu_addr,
		.opcode = u->op & 0xff,
		.flags = (uint32_t)u->op & (UGDS_F_FUA | UGDS_F_LATENCY | UGDS_F_BACKGROUND | CHUNK_BITS),
		.offset_cell = u->offset_cell,
		.nbytes_cell = u->nbytes_cell,
	};
}

int ugds_stream_enqueue(struct ugds_stream *s, struct ugds_ns *ns, const struct ugds_stream_item *items,
			uint32_t n, const struct ugds_stream_how *how, struct ugds_stream_started *ret,
			struct ugds_error *err)
{
	struct stream_how sh = {
		.flags = how->flags,
		.eager = n ? eager_of(items[0].op) : STREAM_ADAPTIVE,
		.spin_ns = n ? spin_of(items[0].op) : 0,
		.after = how->after,
		.nr_after = how->nr_after,
		.timeout_ns = (int64_t)min_u64(how->timeout_ns, INT64_MAX / 2),
		.cell = (struct stream_cell *)(void *)how->cell,
	};
	struct stream_started started;
	struct nvme_err ne = { 0 };
	int rc = stream_enqueue(stream_of(s), ns_of(ns), get_item, items, n, &sh, &started, &ne);

	*ret = (struct ugds_stream_started){ started.token, started.event, started.item, started.gpu_code };
	return answer(err, rc, &ne);
}

int ugds_stream_rw(struct ugds_stream *s, struct ugds_ns *ns, uint64_t map, uint64_t buf_off, uint64_t nbytes,
		   uint64_t offset, uint64_t gpu_addr, uint64_t op, struct ugds_stream_started *ret)
{
	const struct ugds_stream_item item = { .map = map,
					       .buf_off = buf_off,
					       .nbytes = nbytes,
					       .offset = offset,
					       .gpu_addr = gpu_addr,
					       .op = op };
	const struct stream_how how = { .eager = eager_of(op), .spin_ns = spin_of(op) };
	struct stream_started started;
	struct nvme_err ne;
	int rc = stream_enqueue(stream_of(s), ns_of(ns), get_item, &item, 1, &how, &started, &ne);

	*ret = (struct ugds_stream_started){ started.token, started.event, started.item, started.gpu_code };
	return rc ? rc : started.quiet;
}

int ugds_stream_state(struct ugds_stream *s, uint64_t token, struct ugds_stream_result *ret)
{
	return stream_state(stream_of(s), token, (struct stream_result *)(void *)ret);
}

int ugds_stream_cancel(struct ugds_stream *s, uint64_t token) { return stream_cancel(stream_of(s), token); }

int ugds_stream_resume(struct ugds_stream *s, uint64_t token)
{
	return stream_decide(stream_of(s), token, STREAM_RESUME);
}

int ugds_stream_fail(struct ugds_stream *s, uint64_t token)
{
	return stream_decide(stream_of(s), token, STREAM_FAIL);
}

void ugds_stream_leave(struct ugds_stream *s, uint64_t token) { stream_leave(stream_of(s), token); }

void ugds_stream_release(struct ugds_stream *s, uint64_t token) { stream_release(stream_of(s), token); }

uint32_t ugds_stream_reap(struct ugds_stream *s, const uint64_t *tokens, uint32_t n)
{
	return stream_reap(stream_of(s), tokens, n);
}

int ugds_sink_open(struct ugds_ctrl *c, struct ugds_sink **ret)
{
	struct stream_exec *x;
	int err;

	if (!c) {
		err = stream_exec_new(NULL, &x);
		if (err)
			return err;
		err = sink_open(x, (struct stream_sink **)ret);
		stream_exec_put(x); /* the sink's only */
		return err;
	}

	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	err = exec_of(c, &x);
	return err ? err : sink_open(x, (struct stream_sink **)ret);
}

int ugds_sink_fd(struct ugds_sink *k) { return sink_fd(sink_of(k)); }

int ugds_sink_reap(struct ugds_sink *k, struct ugds_stream_result *out, uint32_t max)
{
	return sink_reap(sink_of(k), (struct stream_result *)(void *)out, max);
}

int ugds_sink_spin(struct ugds_sink *k, struct ugds_stream *s, uint64_t token)
{
	return sink_spin(sink_of(k), stream_of(s), token);
}

void ugds_sink_close(struct ugds_sink *k) { sink_close(sink_of(k)); }

int ugds_stream_watch(struct ugds_stream *s, uint64_t token, struct ugds_sink *k, int lazily)
{
	return sink_watch(stream_of(s), token, sink_of(k), lazily);
}

int ugds_sink_event(struct ugds_sink *k, uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event,
		    uint64_t *ret_token, int *ret_code)
{
	const struct gpu_rt *rt = gpu_find(vendor);
	const struct gpu_place p = { vendor, device, ctx };

	*ret_code = 0;
	return rt ? sink_event(sink_of(k), rt, &p, event, ret_token, ret_code) : -ENXIO;
}

void ugds_sink_event_drop(struct ugds_sink *k, uint64_t token) { sink_event_drop(sink_of(k), token); }
