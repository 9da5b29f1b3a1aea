/* SPDX-License-Identifier: MIT */
/* Enqueueing: what is checked before, and what the stream is given to do. */
#include "stream/stream.h"

#include <stdlib.h>

#include "nvme/check.h"
#include "support/barrier.h"

#define MOST_MEMOPS 2
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

/* What copies of one chunk lie side by side on both sides is one copy. */
struct copy {
	uint64_t gpu, stage, nbytes;
};

static int flush_copy(struct stream *s, struct copy *c, uint8_t *slot, bool out)
{
	int code;

	if (!c->nbytes)
		return 0;
	s->gpu_calls++;
	code = out ? s->rt->copy_out(slot + c->stage, c->gpu, c->nbytes, s->handle)
		   : s->rt->copy_in(c->gpu, slot + c->stage, c->nbytes, s->handle);
	c->nbytes = 0;
	return code;
}

/* Copies of the chunk that begins at *@at, which moves behind it. */
static int copies(struct stream *s, struct stream_op *op, struct stream_cursor *at, uint32_t seq, bool out)
{
	uint8_t *slot = s->stage + (seq % s->slots) * s->chunk;
	struct copy c = { 0 };
	struct stream_seg seg;
	uint64_t used = 0;
	int code = 0;

	while (stream_walk(s, op, at, &used, &seg)) {
		const struct stream_part *p = &op->parts[seg.part];
		uint64_t gpu = p->is.gpu_addr + seg.off;

		if (code || (out ? !stream_copied_out(p, op->flags) : !stream_copied_in(p)))
			continue;
		if (c.gpu + c.nbytes != gpu || c.stage + c.nbytes != seg.stage) {
			code = flush_copy(s, &c, slot, out);
			c.gpu = gpu;
			c.stage = seg.stage;
		}
		c.nbytes += seg.nbytes;
	}
	return code ? code : flush_copy(s, &c, slot, out);
}

static struct gpu_memop write_op(const struct gpu_word *w, uint32_t val)
{
	return (struct gpu_memop){ .addr = w->dev, .val = val };
}

static struct gpu_memop wait_op(const struct stream *s, uint32_t val)
{
	return (struct gpu_memop){ .wait = true, .flush = s->wait_flushes, .addr = s->done.dev, .val = val };
}

static int memops(struct stream *s, const struct gpu_memop *ops, uint32_t n)
{
	s->gpu_calls++;
	return s->rt->memops(s->handle, ops, n);
}

/* The executor reads ahead as far as the ring goes, so most chunks need none; those that begin with copies each do. */
static bool needs_go(const struct stream *s, const struct stream_op *op, uint32_t seq)
{
	if (seq == op->first)
		return !op->here;
	return op->heads || stream_reached(op->last, seq + s->slots - 1);
}

/*
 * A chunk's slot is free for a copy out once the chunk @slots before is done; a chunk whose copies come behind done frees
 * it in the stream's order by itself.
 */
static int push_chunk(struct stream *s, struct stream_op *op, uint32_t seq, struct stream_cursor *at)
{
	struct gpu_memop m[MOST_MEMOPS];
	struct stream_cursor start = *at;
	uint32_t n = 0;
	int code = 0;

	if (op->heads)
		code = copies(s, op, at, seq, true);
	if (code)
		return code;
	if (needs_go(s, op, seq))
		m[n++] = write_op(&s->go, seq);
	if ((op->tails || seq == op->last) && stream_is_over_soon(s, op))
		; /* there is nothing to wait for */
	else if (op->tails || seq == op->last)
		m[n++] = wait_op(s, seq);
	else if (stream_reached(seq + 1 - s->slots, op->first))
		m[n++] = wait_op(s, seq + 1 - s->slots);
	code = n ? memops(s, m, n) : 0;
	if (code)
		return code;
	op->gone = true;
	if (op->tails) {
		*at = start;
		code = copies(s, op, at, seq, false);
	}
	return code;
}

static void call_back(void *arg)
{
	const struct stream_call *call = arg;
	struct stream *s = call->s;

	stream_word_set(&s->go, call->seq);
	stream_exec_poke(s->x);
	while (!stream_reached(stream_word(&s->done), call->seq))
		sem_wait(&s->called);
}

static int push_call(struct stream *s, struct stream_op *op)
{
	struct stream_call *call = &s->calls[op->first & s->fifo_mask];
	int code;

	*call = (struct stream_call){ s, op->first };
	s->gpu_calls++;
	code = s->rt->host_func(s->handle, call_back, call);
	op->gone = !code;
	return code;
}

/* Everything between go and the event. A code of the runtime. */
static int push_all(struct stream *s, struct stream_op *op)
{
	struct stream_cursor at = { 0 };
	struct gpu_memop passed = write_op(&s->passed, op->last);
	int code = 0;

	if (s->by_callback || op->flags & STREAM_CALLBACK)
		return push_call(s, op);
	for (uint32_t seq = op->first; !code && stream_reached(op->last, seq); seq++)
		code = push_chunk(s, op, seq, &at);
	if (!code && op->tails)
		code = memops(s, &passed, 1);
	return code;
}

/*
 * Is the handle another stream's by now? What was enqueued on a stream that was destroyed goes on, so the order of its words
 * would be mixed with the new one's. Where nothing is left of it, the new one may as well go on with its numbers.
 */
static bool is_another(struct stream *s)
{
	uint64_t id = s->unique;

	/* relaxed: of those enqueued before by others, their lock told us */
	if (!id || atomic_load_explicit(&s->fifo_tail, memory_order_relaxed) ==
			   atomic_load_explicit(&s->fifo_head, memory_order_relaxed))
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

/*
 * If the stream is idle it has come to the operation, which may begin before the stream is told of it: not one that
 * begins with copies of the stream, and not on a stream that default ones order, since they may not be idle.
 */
static bool is_here(struct stream *s, const struct stream_op *op, const struct stream_how *how)
{
	if (!s->alone || s->by_callback || op->heads || how->nr_after || how->flags)
		return false;
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
	stream_exec_add(s->x, s, op->here);
}

/*
 * The executor knows of it before the stream does: go may come at once. If the runtime refuses halfway, what the stream
 * was given already passes, without any transfer, and the operation goes away by itself.
 */
int stream_push(struct stream *s, struct stream_op *op, const struct stream_how *how)
{
	struct gpu_memop passed = write_op(&s->passed, op->last);
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
	if (op->here)
		stream_word_set(&s->go, op->first);
	stream_drive_soon(s, op);
	publish(s, op);
	code = push_all(s, op);
	s->gpu_calls++;
	if (!code)
		code = s->rt->event_record(op->event, s->handle);
	/* what names our words and its memory is behind the stream with this one */
	if (code && op->gone)
		op->ends = !memops(s, &passed, 1) && !s->rt->event_record(op->event, s->handle);
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
	op->timeout_ns = how->timeout_ns;
	op->cell = how->cell;
	op->gone = op->ends = op->settled = false;
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
	/* by the time that it has something to do, it is awake; operations ahead of this one keep it so */
	if (!atomic_load_explicit(&s->active, memory_order_relaxed))
		stream_exec_wake(s->x);
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
