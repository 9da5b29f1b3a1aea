/* SPDX-License-Identifier: MIT */
/* A stream's life: its words, its staging ring, and its end. */
#include "stream/stream.h"

#include <sched.h>
#include <stdlib.h>

#define CHUNK (2u << 20)
#define CHUNK_LEAST (64u << 10) /* the largest block */
#define CHUNK_MOST (64u << 20)
#define SLOTS 2 /* of a stream's first staging ring, */
#define SLOTS_LARGE 8 /* and once a large operation finds it idle */
#define CONNECTIONS 8
#define WAITING 4096
#define WAITING_MOST (1u << 20)
#define CHUNKS 4096
#define SEQ_LATE 0xc0000000u /* HIP compares without wrapping round: words begin again in time */
#define SEQ_LAST 0xfff00000u

static uint64_t or_default(uint64_t v, uint64_t def) { return v ? v : def; }

static int take_params(struct stream *s, const struct stream_params *p, struct nvme_err *err)
{
	s->chunk = or_default(p->chunk, CHUNK);
	s->slots = s->staged ? (uint32_t)or_default(p->slots, SLOTS) : 1;
	s->may_grow = s->staged && !p->slots;
	s->connections = (uint32_t)or_default(p->connections, CONNECTIONS);
	s->max_waiting = (uint32_t)or_default(p->max_waiting, WAITING);
	s->max_chunks = (uint32_t)or_default(p->max_chunks, CHUNKS);
	if (s->chunk < CHUNK_LEAST || s->chunk > CHUNK_MOST || !is_pow2(s->chunk))
		return nvme_err_set(err, -EINVAL, 0,
				    "chunks of %llu bytes: it must be a power of two from %u to %u",
				    (unsigned long long)s->chunk, CHUNK_LEAST, CHUNK_MOST);
	if (s->slots > STREAM_SLOTS)
		return nvme_err_set(err, -EINVAL, 0, "%u slots of a staging ring: the most are %u", s->slots,
				    STREAM_SLOTS);
	if (s->max_waiting > WAITING_MOST || s->max_chunks > WAITING_MOST)
		return nvme_err_set(err, -EINVAL, 0,
				    "%u operations that wait, of %u chunks: the most of each are %u",
				    s->max_waiting, s->max_chunks, WAITING_MOST);
	return 0;
}

/* Is the device able to, and how is what the SSD wrote made visible? */
static int look_at_device(struct stream *s, struct nvme_err *err)
{
	uint32_t caps = 0;
	int code = s->rt->caps(s->place.device, &caps);

	if (code)
		return nvme_err_set(err, gpu_errno(s->rt, code), 0, "%s says nothing of device %d: %s",
				    s->rt->name, s->place.device, s->rt->error_name(code));
	s->by_callback = !(caps & GPU_CAN_MEMOPS);
	code = s->rt->stream_alone(s->handle, &s->alone);
	if (code)
		return nvme_err_set(err, gpu_errno(s->rt, code), 0, "%s says nothing of the stream: %s",
				    s->rt->name, s->rt->error_name(code));
	if (s->by_callback && s->staged)
		return nvme_err_set(
			err, -EOPNOTSUPP, 0,
			"device %d has no stream memory operations, and the embedded controller cannot do "
			"with "
			"host functions: it moves the data with copies of the stream, and no call of the GPU "
			"runtime is allowed inside one",
			s->place.device);
	if (!s->staged && caps & GPU_NEEDS_FLUSH) {
		s->wait_flushes = caps & GPU_CAN_FLUSH && !s->by_callback;
		/* without either, memory of the GPU is not registered to be read into */
		s->must_flush = !s->wait_flushes && caps & GPU_HAS_FLUSH;
	}
	return 0;
}

static int make_memory(struct stream *s, struct nvme_err *err)
{
	struct gpu_before before;
	int rc, code = s->rt->enter(&s->place, &before);

	if (code)
		return nvme_err_set(err, gpu_errno(s->rt, code), 0,
				    "the stream's context cannot be made current: %s",
				    s->rt->error_name(code));
	rc = look_at_device(s, err);
	if (!rc && s->rt->stream_id && s->rt->stream_id(s->handle, &s->unique))
		s->unique = 0;
	if (!rc)
		rc = stream_ring_get(s, err);
	s->rt->leave(&s->place, &before);
	return rc;
}

static void lists_free(struct stream *s)
{
	free(s->fifo);
	free(s->calls);
	sem_destroy(&s->called);
	pthread_mutex_destroy(&s->enq);
	free(s);
}

static int lists_new(struct stream *s)
{
	uint32_t n = 1;

	while (n < s->max_waiting)
		n *= 2;
	s->fifo_mask = n - 1;
	s->fifo = calloc(n, sizeof(struct stream_op *));
	s->calls = s->staged ? NULL : calloc(n, sizeof(*s->calls));
	return s->fifo && (s->staged || s->calls) ? 0 : -ENOMEM;
}

int stream_open(struct stream_exec *x, const struct gpu_rt *rt, const struct stream_params *p,
		struct stream **ret, struct nvme_err *err)
{
	struct stream *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->x = x;
	s->rt = rt;
	s->place = p->place;
	s->handle = p->stream;
	s->staged = x->c->tr_flags & NVME_TR_STAGED;
	s->next_seq = 1;
	pthread_mutex_init(&s->enq, NULL);
	sem_init(&s->called, 0, 0);
	rc = take_params(s, p, err);
	if (!rc)
		rc = lists_new(s);
	if (!rc)
		rc = stream_exec_start(x);
	if (!rc)
		rc = stream_ask_start(x);
	if (!rc)
		rc = make_memory(s, err);
	if (rc) {
		lists_free(s);
		return rc;
	}
	if (p->spin_ns)
		atomic_store_explicit(&x->spin_ns, p->spin_ns, memory_order_relaxed);
	pthread_mutex_lock(&x->lock);
	s->id = x->next_id = (x->next_id + 1) & 0x7fffff;
	s->next_all = x->all;
	x->all = s;
	x->refs++;
	pthread_mutex_unlock(&x->lock);
	*ret = s;
	return 0;
}

/* Has the stream executed all that it was given? What it was given names our words. */
static bool all_passed(struct stream *s)
{
	const struct stream_op *op = atomic_load_explicit(&s->newest, memory_order_relaxed);

	/* a code: the context is gone, and its streams */
	return !op || stream_ask_event(s->rt, &s->place, op->event) != GPU_NOT_READY;
}

static bool all_over(struct stream *s)
{
	bool over;

	pthread_mutex_lock(&s->x->lock);
	over = !s->nr_waiting;
	pthread_mutex_unlock(&s->x->lock);
	return over;
}

int stream_idle(struct stream *s)
{
	int err = 0;

	pthread_mutex_lock(&s->enq);
	stream_learn(s);
	if (!s->closed && (!all_over(s) || !all_passed(s)))
		err = -EBUSY;
	pthread_mutex_unlock(&s->enq);
	return err;
}

bool stream_rewind(struct stream *s)
{
	if (s->next_seq < SEQ_LATE)
		return true;
	stream_learn(s);
	if (!all_over(s) || !all_passed(s))
		return s->next_seq < SEQ_LAST;
	stream_word_set(&s->go, 0);
	stream_word_set(&s->done, 0);
	stream_word_set(&s->passed, 0);
	stream_forget(s);
	s->next_seq = 1;
	return true;
}

void stream_grow(struct stream *s)
{
	struct stream_ring *small = s->ring;
	struct gpu_before before;
	struct nvme_err err;
	bool alone;

	if (!s->may_grow)
		return;
	stream_learn(s);
	pthread_mutex_lock(&s->x->lock);
	alone = s->nr_waiting == 1; /* the one that is being enqueued */
	pthread_mutex_unlock(&s->x->lock);
	if (!alone || stream_ring_busy(s) || !all_passed(s) || s->rt->enter(&s->place, &before))
		return;
	s->slots = SLOTS_LARGE;
	s->may_grow = false;
	if (stream_ring_get(s, &err)) {
		s->slots = SLOTS;
	} else {
		stream_ring_put(s->x, small);
		stream_forget(s);
		s->next_seq = 1;
	}
	s->rt->leave(&s->place, &before);
}

/* What stalls is let pass; by force, what the stream has not come to is withdrawn, and all else fails. */
static void give_up(struct stream *s, bool force)
{
	pthread_mutex_lock(&s->x->lock);
	for (uint32_t i = 0; i < s->nr_op_segs * STREAM_OP_SEG; i++) {
		struct stream_op *op = &s->seg[i / STREAM_OP_SEG][i % STREAM_OP_SEG];
		uint32_t was = atomic_load_explicit(&op->state, memory_order_relaxed);

		if (!(op->gen & 1) || op->over)
			continue;
		if (was == STREAM_STALLED) {
			op->verdict = STREAM_FAIL;
			op->told = false;
		}
		was = STREAM_WAITING;
		if (force &&
		    atomic_compare_exchange_strong_explicit(&op->state, &was, STREAM_CANCELLED,
							    memory_order_acq_rel, memory_order_relaxed)) {
			op->res.state = STREAM_CANCELLED;
			op->res.result = -ESHUTDOWN;
			op->told = true;
			sink_tell(op);
		}
	}
	pthread_mutex_unlock(&s->x->lock);
	if (force)
		atomic_store_explicit(&s->abandoned, true, memory_order_release);
	stream_exec_add(s->x, s, true);
}

void stream_abandon(struct stream *s)
{
	pthread_mutex_lock(&s->enq);
	if (!s->closed && !all_over(s))
		give_up(s, true);
	pthread_mutex_unlock(&s->enq);
}

static bool is_looked_at(struct stream *s)
{
	bool is;

	pthread_mutex_lock(&s->x->lock);
	is = atomic_load_explicit(&s->active, memory_order_relaxed) &&
	     atomic_load_explicit(&s->x->running, memory_order_relaxed);
	pthread_mutex_unlock(&s->x->lock);
	return is;
}

int stream_close_locked(struct stream *s, bool force)
{
	int err = 0;

	if (stream_forked(s->x))
		return 0;
	pthread_mutex_lock(&s->enq);
	if (s->closed)
		goto unlock;
	stream_learn(s);
	if (!all_over(s))
		give_up(s, force);
	err = all_over(s) && all_passed(s) ? 0 : -EBUSY;
	/* what a timed-out command may touch stays: until a reset */
	if (!err && stream_ring_busy(s))
		err = -EBUSY;
	if (err)
		goto unlock;
	s->closed = true;
	stream_forget(s);
	while (is_looked_at(s))
		sched_yield(); /* the executor finds it idle, and takes it off its list */
	stream_ring_put(s->x, s->ring);
	s->ring = NULL;
unlock:
	pthread_mutex_unlock(&s->enq);
	return err;
}

int stream_close(struct stream *s, bool force)
{
	int err;

	if (stream_forked(s->x))
		return 0;
	pthread_mutex_lock(&s->x->closing);
	err = stream_close_locked(s, force);
	pthread_mutex_unlock(&s->x->closing);
	return err;
}

static void unlink_stream(struct stream *s)
{
	struct stream_exec *x = s->x;

	pthread_mutex_lock(&x->closing);
	pthread_mutex_lock(&x->lock);
	for (struct stream **p = &x->all; *p; p = &(*p)->next_all)
		if (*p == s) {
			*p = s->next_all;
			break;
		}
	stream_until_asked(x);
	pthread_mutex_unlock(&x->lock);
	pthread_mutex_unlock(&x->closing);
}

static void free_ops(struct stream *s, bool events)
{
	for (uint32_t i = 0; i < s->nr_op_segs; i++) {
		for (uint32_t k = 0; k < STREAM_OP_SEG; k++) {
			struct stream_op *op = &s->seg[i][k];

			if (op->has_event && events)
				s->rt->event_free(op->event);
			if (op->cap_parts > 1)
				free(op->parts);
		}
		free(s->seg[i]);
	}
}

void stream_free(struct stream *s)
{
	struct stream_exec *x = s->x;
	struct gpu_before before;
	bool entered;

	if (stream_forked(x) || !s->closed || s->stuck) /* a leak, but not a corruption */
		return;
	unlink_stream(s);
	entered = !s->rt->enter(&s->place, &before);
	free_ops(s, entered);
	if (entered)
		s->rt->leave(&s->place, &before);
	lists_free(s);
	stream_exec_put(x);
}
