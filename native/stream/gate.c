/* SPDX-License-Identifier: MIT */
/* Enqueueing: what is checked before, and in which order the executor and the stream get to know of it. */
#include "stream/stream.h"

#include <stdlib.h>

#include "nvme/check.h"
#include "support/barrier.h"

#define GPU_REPLACED (-2) /* beside GPU_NOT_READY, which here means that it is captured */

static int room_for(struct stream_op *op, uint32_t n)
{
	struct stream_part *parts;

	if (n <= op->cap_parts)
		return 0;
	if (n == 1) {
		op->parts = &op->one;
		op->cap_parts = 1;
		return 0;
	}
	parts = calloc(n, sizeof(*parts));
	if (!parts)
		return -ENOMEM;
	if (op->parts != &op->one)
		free(op->parts);
	op->parts = parts;
	op->cap_parts = n;
	return 0;
}

static int check_part(struct stream *s, struct stream_op *op, struct stream_part *p)
{
	const struct stream_item *is = &p->is;

	if (is->opcode != NVME_IO_READ && is->opcode != NVME_IO_WRITE)
		return -EOPNOTSUPP;
	p->map = mem_get(&s->x->c->mem, is->map, 1);
	if (!p->map)
		return mem_refusal(&s->x->c->mem, is->map);
	p->staged = s->staged && is->gpu_addr;
	p->at = is->offset;
	p->length = is->nbytes;
	/* a device's memory is reached through the stream's copies only: others could depend on a stream that waits */
	if (s->staged && !is->gpu_addr && !p->map->vaddr)
		return -EINVAL;
	return nvme_check_range(s->x->c, op->ns, p->map, is->buf_off, is->nbytes,
				is->offset_cell ? 0 : is->offset, is->opcode);
}

/* Take the items and a reference on each mapping. */
static int take_parts(struct stream *s, struct stream_op *op, stream_get *get, const void *ctx, uint32_t n,
		      const struct stream_how *how, uint32_t *ret_bad)
{
	int err = room_for(op, n);

	op->nr_parts = 0;
	op->heads = op->tails = op->bare = false;
	while (!err && op->nr_parts < n) {
		struct stream_part *p = &op->parts[op->nr_parts];

		*ret_bad = op->nr_parts;
		p->map = NULL;
		get(ctx, op->nr_parts, &p->is);
		err = check_part(s, op, p);
		if (p->map)
			op->nr_parts++; /* there is something to give back */
		if (err || !p->staged)
			continue;
		op->heads |= stream_copied_out(p, how->flags);
		op->tails |= stream_copied_in(p);
		op->bare |= stream_copied_in(p) && !stream_copied_out(p, how->flags);
	}
	return err;
}

/* Something that was enqueued before is not over, or was not seen to be. */
static bool is_behind(const struct stream *s)
{
	return atomic_load_explicit(&s->fifo_tail, memory_order_relaxed) !=
	       atomic_load_explicit(&s->fifo_head, memory_order_relaxed);
}

/*
 * Is the handle another stream's by now? What was enqueued on a stream that was destroyed goes on, so the order of its words
 * would be mixed with the new one's. Where nothing is left of it, the new one may as well go on with its numbers.
 */
static bool is_another(struct stream *s)
{
	uint64_t id = s->unique;

	/* relaxed: of those enqueued before by others, their lock told us */
	if (!id || !is_behind(s))
		return false;
	s->gpu_calls++;
	return !s->rt->stream_id(s->handle, &id) && id != s->unique;
}

/* What can be refused by the runtime without harm. */
static int prepare(struct stream *s, struct stream_op *op, const struct stream_how *how, bool *ret_capturing)
{
	int code;

	*ret_capturing = false;
	if (is_another(s))
		return GPU_REPLACED;
	s->gpu_calls++;
	code = s->rt->stream_capturing(s->handle, ret_capturing);
	if (code || *ret_capturing)
		return code;
	if (!op->has_event) {
		code = s->rt->event_new(&op->event);
		op->has_event = !code;
	}
	for (uint32_t i = 0; !code && i < how->nr_after; i++) {
		s->gpu_calls++;
		code = s->rt->stream_wait_event(s->handle, how->after[i]);
	}
	return code;
}

static bool is_quiet_behind(const struct stream *s)
{
	const struct stream_op *newest = atomic_load_explicit(&s->newest, memory_order_relaxed);

	return newest && atomic_load_explicit(&newest->quiet, memory_order_relaxed) && is_behind(s);
}

/*
 * If the stream is idle it has come to the operation, which may begin before the stream is told of it: not one that
 * begins with copies of the stream, and not on a stream that default ones order, since they may not be idle.
 */
static bool is_here(struct stream *s, const struct stream_op *op, const struct stream_how *how)
{
	if (!s->alone || s->by_callback || op->heads || how->nr_after || how->flags)
		return false;
	/* of a large one what it would save is less than what asking costs, where others are known to be ahead */
	if (op->first != op->last && is_behind(s))
		return false;
	/* where streams have no ids, the handle may be another one's by now: then only the event tells of the old one */
	if (!s->unique && is_quiet_behind(s)) {
		s->gpu_calls++;
		stream_learn(s);
		if (is_behind(s))
			return false;
	}
	s->gpu_calls++;
	return !s->rt->stream_query(s->handle);
}

static void publish(struct stream *s, struct stream_op *op)
{
	uint32_t tail = atomic_load_explicit(&s->fifo_tail, memory_order_relaxed);

	s->fifo[tail & s->fifo_mask] = op;
	/* release: the operation is filled */
	atomic_store_explicit(&s->fifo_tail, tail + 1, memory_order_release);
	atomic_store_explicit(&s->newest, op, memory_order_release);
	op->early = stream_may_be_early(s, op) && stream_drive(s, op);
	if (!op->early)
		stream_exec_add(s->x, s, op->here);
}

/*
 * The executor knows of it before the stream does: go may come at once. If the runtime refuses halfway, what the stream
 * was given already passes, without any transfer, and the operation goes away by itself.
 */
int stream_push(struct stream *s, struct stream_op *op, const struct stream_how *how)
{
	struct gpu_before before;
	bool capturing;
	int code = s->rt->enter(&s->place, &before);

	if (code)
		return code;
	code = prepare(s, op, how, &capturing);
	if (code || capturing) {
		s->rt->leave(&s->place, &before);
		return capturing ? GPU_NOT_READY : code;
	}
	s->next_seq = op->last + 1;
	s->nr_ops++;
	s->nr_chunks += op->last - op->first + 1;
	op->here = is_here(s, op, how);
	if (op->here) {
		stream_known(s, op->first - 1);
		stream_word_set(&s->go, op->first);
	}
	/* by the time that it has something to do, it is awake; operations ahead of this one keep it so */
	if (!stream_may_be_early(s, op) && !atomic_load_explicit(&s->active, memory_order_relaxed))
		stream_exec_wake(s->x);
	publish(s, op);
	code = stream_push_all(s, op);
	s->gpu_calls++;
	if (!code)
		code = s->rt->event_record(op->event, s->handle);
	/* what names our words and its memory is behind the stream with this one */
	if (code && op->gone)
		op->ends = !stream_push_passed(s, op) && !s->rt->event_record(op->event, s->handle);
	if (!code && op->early && op->tails)
		stream_be_quiet(s, op);
	s->rt->leave(&s->place, &before);
	return code;
}

static int check_how(const struct stream *s, const struct stream_how *how, struct nvme_err *err)
{
	if (how->flags & ~(uint32_t)(STREAM_STALL | STREAM_CALLBACK | STREAM_KEEP))
		return -EINVAL;
	if (how->flags & STREAM_CALLBACK && s->staged)
		return nvme_err_set(
			err, -EOPNOTSUPP, 0,
			"order=\"callback\" is refused on the embedded controller: it moves the data with "
			"copies of "
			"the stream, and no call of the GPU runtime is allowed inside a host function; leave "
			"order out");
	return 0;
}

static int refuse_all(struct stream *s, const struct stream_how *how, struct nvme_err *err)
{
	int rc = check_how(s, how, err);

	if (rc)
		return rc;
	if (s->closed)
		return -ESHUTDOWN;
	rc = nvme_ctrl_may(s->x->c);
	if (rc)
		return rc;
	/* acquire: the entry that is written over was taken */
	if (atomic_load_explicit(&s->fifo_tail, memory_order_relaxed) -
		    atomic_load_explicit(&s->fifo_head, memory_order_acquire) >=
	    s->max_waiting)
		return nvme_err_set(
			err, -EAGAIN, 0,
			"%u operations wait on this stream, which is the most: wait for some of them",
			s->max_waiting);
	if (!stream_rewind(s))
		return nvme_err_set(
			err, -EAGAIN, 0,
			"the stream's words have come to the end of their numbers: wait until it is idle");
	return 0;
}

static int refused_by_gpu(struct stream *s, int code, struct stream_started *ret, struct nvme_err *err)
{
	if (code == GPU_NOT_READY)
		return nvme_err_set(
			err, -EPERM, 0,
			"the stream is capturing a graph: a transfer cannot be part of one; enqueue "
			"it before the capture begins or after it ended");
	if (code == GPU_REPLACED)
		return nvme_err_set(err, -EIDRM, 0, "the handle is another stream's by now: open it anew");
	ret->gpu_code = code;
	return nvme_err_set(err, gpu_errno(s->rt, code), 0, "%s refused it: %s", s->rt->name,
			    s->rt->error_name(code));
}

/* It was published: the executor ends it. Until then copies and cells are its own still, so it keeps its name. */
static void leave_broken(struct stream *s, struct stream_op *op, int code)
{
	pthread_mutex_lock(&s->x->lock);
	/* release: gone and ends are as they stay */
	atomic_store_explicit(&op->broken, code, memory_order_release);
	/* the transfer has ended well already, but what was to bring it there is not in the stream */
	if (op->settled)
		stream_write_cell(op, STREAM_FAILED, -EIO, 0);
	pthread_mutex_unlock(&s->x->lock);
	stream_exec_add(s->x, s, true);
}

static int enqueue(struct stream *s, struct stream_op *op, stream_get *get, const void *ctx, uint32_t n,
		   const struct stream_how *how, struct stream_started *ret, struct nvme_err *err)
{
	uint32_t before, chunks;
	int rc = take_parts(s, op, get, ctx, n, how, &ret->item);

	if (rc)
		return rc;
	chunks = stream_count_chunks(s, op, s->max_chunks);
	if (chunks > s->max_chunks)
		return nvme_err_set(err, -E2BIG, 0,
				    "it takes more than %u chunks of %llu bytes, which is the most that an "
				    "operation may have: split it",
				    s->max_chunks, (unsigned long long)s->chunk);
	if (chunks > s->slots)
		stream_grow(s);
	before = s->next_seq;
	op->first = before;
	op->last = before + chunks - 1;
	op->flags = how->flags;
	op->eager = how->eager;
	op->spin_ns = how->spin_ns;
	op->timeout_ns = how->timeout_ns;
	op->cell = how->cell;
	op->gone = op->ends = op->settled = false;
	atomic_store_explicit(&op->quiet, false, memory_order_relaxed);
	if (how->flags & STREAM_STALL && stream_may_stall(s))
		return nvme_err_set(err, -ENOBUFS, 0,
				    "on_error=\"stall\" is refused: the GPU has %u hardware connections "
				    "(CUDA_DEVICE_MAX_CONNECTIONS), and with this one all but one of them "
				    "could be held by "
				    "streams that stall; wait for some of them, or raise it up to 32",
				    s->connections);
	rc = stream_push(s, op, how);
	if (s->next_seq != before) { /* it was published */
		ret->token = stream_token(op);
		ret->event = op->event;
		ret->quiet = op->early && op->tails;
	}
	if (!rc)
		return 0;
	if (s->next_seq == before) {
		if (how->flags & STREAM_STALL) {
			pthread_mutex_lock(&s->x->lock);
			stream_no_stall(s);
			pthread_mutex_unlock(&s->x->lock);
		}
		return refused_by_gpu(s, rc, ret, err);
	}
	refused_by_gpu(s, rc, ret, err);
	leave_broken(s, op, rc);
	return 1;
}

int stream_enqueue(struct stream *s, struct nvme_ns *ns, stream_get *get, const void *ctx, uint32_t n,
		   const struct stream_how *how, struct stream_started *ret, struct nvme_err *err)
{
	struct stream_op *op;
	int rc;

	*ret = (struct stream_started){ 0 };
	if (stream_forked(s->x))
		return -ENODEV;
	if (!n)
		return -EINVAL;
	pthread_mutex_lock(&s->enq);
	rc = refuse_all(s, how, err);
	if (rc)
		goto unlock;
	op = stream_op_get(s);
	if (!op) {
		rc = -ENOMEM;
		goto unlock;
	}
	/* as for any operation: a window that is used is not closed */
	atomic_fetch_add_explicit(&ns->ref, 1, memory_order_relaxed);
	op->ns = ns;
	rc = stream_exec_start(s->x);
	if (!rc)
		rc = enqueue(s, op, get, ctx, n, how, ret, err);
	if (rc > 0) { /* the executor's already */
		rc = gpu_errno(s->rt, ret->gpu_code);
	} else if (rc) {
		stream_op_drop_refs(op);
		pthread_mutex_lock(&s->x->lock);
		op->over = op->released = true;
		s->nr_waiting--;
		s->nr_held--;
		stream_op_put(s, op);
		pthread_mutex_unlock(&s->x->lock);
	}
unlock:
	pthread_mutex_unlock(&s->enq);
	return rc;
}
