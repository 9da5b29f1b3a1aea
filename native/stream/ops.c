/* SPDX-License-Identifier: MIT */
/* The operations of a stream: their slots, and what their users ask and decide. */
#include "stream/stream.h"

#include <stdlib.h>

#include "support/thread.h"

bool stream_forked(const struct stream_exec *x) { return forks() != x->forks; }

static int add_ops(struct stream *s)
{
	struct stream_op *seg;

	if (s->nr_op_segs == STREAM_OP_SEGS)
		return -ENOSPC;
	seg = calloc(STREAM_OP_SEG, sizeof(*seg));
	if (!seg)
		return -ENOMEM;
	for (uint32_t i = STREAM_OP_SEG; i-- > 0;) {
		seg[i].s = s;
		seg[i].slot = s->nr_op_segs * STREAM_OP_SEG + i;
		seg[i].next_free = s->free_ops;
		s->free_ops = &seg[i];
	}
	s->seg[s->nr_op_segs++] = seg;
	return 0;
}

/* s->enq held. */
struct stream_op *stream_op_get(struct stream *s)
{
	struct stream_op *op = NULL;

	pthread_mutex_lock(&s->x->lock);
	if (s->free_ops || !add_ops(s)) {
		op = s->free_ops;
		s->free_ops = op->next_free;
		op->gen++;
		op->verdict = STREAM_UNDECIDED;
		op->told = op->over = op->released = op->left = false;
		op->res = (struct stream_result){ .token = stream_token(op) };
		op->nr_parts = 0;
		atomic_store_explicit(&op->broken, 0, memory_order_relaxed);
		atomic_store_explicit(&op->state, STREAM_WAITING, memory_order_relaxed);
		s->nr_waiting++;
		s->nr_held++;
	}
	pthread_mutex_unlock(&s->x->lock);
	return op;
}

void stream_op_put(struct stream *s, struct stream_op *op)
{
	op->gen++;
	op->next_free = s->free_ops;
	s->free_ops = op;
}

struct stream_op *stream_op_find(struct stream *s, uint64_t token)
{
	uint32_t slot = token & 0xfffff;
	struct stream_op *op;

	if (slot >= s->nr_op_segs * STREAM_OP_SEG)
		return NULL;
	op = &s->seg[slot / STREAM_OP_SEG][slot % STREAM_OP_SEG];
	return op->gen & 1 && stream_token(op) == token && !op->released ? op : NULL;
}

void stream_op_drop_refs(struct stream_op *op)
{
	for (uint32_t i = 0; i < op->nr_parts; i++)
		mem_put(op->parts[i].map, 1);
	/* release: the last look at the namespace */
	atomic_fetch_sub_explicit(&op->ns->ref, 1, memory_order_release);
}

int stream_state(struct stream *s, uint64_t token, struct stream_result *ret)
{
	struct stream_op *op;

	if (stream_forked(s->x))
		return -ENODEV;
	pthread_mutex_lock(&s->x->lock);
	if (s->quiet) {
		pthread_mutex_unlock(&s->x->lock);
		stream_learn(s);
		pthread_mutex_lock(&s->x->lock);
	}
	op = stream_op_find(s, token);
	if (op) {
		*ret = op->res;
		ret->over = op->over;
		if (!op->told)
			ret->state = atomic_load_explicit(&op->state, memory_order_relaxed);
	}
	pthread_mutex_unlock(&s->x->lock);
	return op ? 0 : -ENOENT;
}

int stream_cancel(struct stream *s, uint64_t token)
{
	uint32_t waiting = STREAM_WAITING;
	struct stream_op *op;
	int won = 0;

	if (stream_forked(s->x))
		return 0;
	pthread_mutex_lock(&s->x->lock);
	op = stream_op_find(s, token);
	/* either the executor begins it or we end it */
	if (op && atomic_compare_exchange_strong_explicit(&op->state, &waiting, STREAM_CANCELLED,
							  memory_order_acq_rel, memory_order_relaxed)) {
		op->res.state = STREAM_CANCELLED;
		op->res.result = -ECANCELED;
		op->told = true;
		sink_tell(op);
		won = 1;
	}
	pthread_mutex_unlock(&s->x->lock);
	return won;
}

int stream_decide(struct stream *s, uint64_t token, enum stream_verdict v)
{
	struct stream_op *op;
	int won = 0;

	if (stream_forked(s->x))
		return 0;
	pthread_mutex_lock(&s->x->lock);
	op = stream_op_find(s, token);
	if (op && !op->verdict && atomic_load_explicit(&op->state, memory_order_relaxed) == STREAM_STALLED) {
		op->verdict = v;
		op->told = false;
		won = 1;
	}
	pthread_mutex_unlock(&s->x->lock);
	if (won)
		stream_exec_add(s->x, s, true);
	return won;
}

void stream_leave(struct stream *s, uint64_t token)
{
	struct stream_op *op;
	bool stalls = false;

	if (stream_forked(s->x))
		return;
	pthread_mutex_lock(&s->x->lock);
	op = stream_op_find(s, token);
	if (op) {
		op->left = true;
		stalls = atomic_load_explicit(&op->state, memory_order_relaxed) == STREAM_STALLED;
		if (stalls && !op->verdict)
			op->told = false;
	}
	pthread_mutex_unlock(&s->x->lock);
	if (stalls)
		stream_exec_add(s->x, s, true);
}

void stream_release(struct stream *s, uint64_t token)
{
	struct stream_op *op;

	if (stream_forked(s->x))
		return;
	pthread_mutex_lock(&s->x->lock);
	op = stream_op_find(s, token);
	if (op) {
		op->released = true;
		s->nr_held--;
		if (op->over)
			stream_op_put(s, op);
	}
	pthread_mutex_unlock(&s->x->lock);
}

uint32_t stream_reap(struct stream *s, const uint64_t *tokens, uint32_t n)
{
	uint32_t i = 0;

	if (stream_forked(s->x))
		return 0;
	stream_learn(s);
	pthread_mutex_lock(&s->x->lock);
	while (i < n) {
		struct stream_op *op = stream_op_find(s, tokens[i]);

		if (!op || !op->over || op->res.state != STREAM_DONE)
			break;
		op->released = true;
		s->nr_held--;
		stream_op_put(s, op);
		i++;
	}
	pthread_mutex_unlock(&s->x->lock);
	return i;
}

/*
 * Streams of this process that could stall, by device: they hold hardware connections, which a device has for the
 * whole process, whatever controller they wait for.
 */
static _Atomic uint32_t could_stall[GPU_VENDORS][64];

static _Atomic uint32_t *stalls_of(const struct stream *s)
{
	return &could_stall[s->place.vendor % GPU_VENDORS][(uint32_t)s->place.device % 64];
}

int stream_may_stall(struct stream *s)
{
	int err = 0;

	pthread_mutex_lock(&s->x->lock);
	if (!s->nr_stall &&
	    atomic_fetch_add_explicit(stalls_of(s), 1, memory_order_relaxed) + 1 >= s->connections) {
		atomic_fetch_sub_explicit(stalls_of(s), 1, memory_order_relaxed);
		err = -ENOBUFS;
	}
	if (!err)
		s->nr_stall++;
	pthread_mutex_unlock(&s->x->lock);
	return err;
}

void stream_no_stall(struct stream *s)
{
	if (!--s->nr_stall)
		atomic_fetch_sub_explicit(stalls_of(s), 1, memory_order_relaxed);
}
