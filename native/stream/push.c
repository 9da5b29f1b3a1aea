/* SPDX-License-Identifier: MIT */
/* What a stream is given to do for an operation: copies, words that it writes, and waits for words. */
#include "stream/stream.h"

#define MOST_MEMOPS 2
#define GROUP 3 /* chunks */

/* What lies side by side on both sides is one copy. */
struct copy {
	uint64_t gpu, stage, nbytes;
};

static int flush_copy(struct stream *s, struct copy *c, bool out)
{
	int code;

	if (!c->nbytes)
		return 0;
	s->gpu_calls++;
	code = out ? s->rt->copy_out(s->stage + c->stage, c->gpu, c->nbytes, s->handle)
		   : s->rt->copy_in(c->gpu, s->stage + c->stage, c->nbytes, s->handle);
	c->nbytes = 0;
	return code;
}

static int copy_chunk(struct stream *s, struct stream_op *op, struct stream_cursor *at, struct copy *c,
		      uint32_t seq, bool out)
{
	uint64_t slot = (seq % s->slots) * s->chunk, used = 0;
	struct stream_seg seg;
	int code = 0;

	while (stream_walk(s, op, at, &used, &seg)) {
		const struct stream_part *p = &op->parts[seg.part];
		uint64_t gpu = p->is.gpu_addr + seg.off, stage = slot + seg.stage;

		if (code || (out ? !stream_copied_out(p, op->flags) : !stream_copied_in(p)))
			continue;
		if (c->gpu + c->nbytes != gpu || c->stage + c->nbytes != stage) {
			code = flush_copy(s, c, out);
			c->gpu = gpu;
			c->stage = stage;
		}
		c->nbytes += seg.nbytes;
	}
	return code;
}

/* Copies of chunks @seq to @end, the first of which begins at *@at, which moves behind them. */
static int copies(struct stream *s, struct stream_op *op, struct stream_cursor *at, uint32_t seq,
		  uint32_t end, bool out)
{
	struct copy c = { 0 };
	int code = 0;

	for (; stream_reached(end, seq); seq++) {
		int err = copy_chunk(s, op, at, &c, seq, out);

		code = code ? code : err;
	}
	return code ? code : flush_copy(s, &c, out);
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
 * The last of the chunks that are waited for and copied together, from @seq on. A wait and a copy for each would take as long
 * to enqueue as they take to be read. Copies are faster than reads: what is left to copy in the end is the last group, so
 * groups become smaller towards it.
 */
static uint32_t end_of_group(const struct stream *s, const struct stream_op *op, uint32_t seq)
{
	uint32_t n = min_u32(GROUP, (op->last - seq) / 2 + 1), end = seq;

	/* in an operation that is larger than the ring each lets a later one begin */
	if (!op->tails || op->heads || op->last - op->first >= s->slots)
		return seq;
	while (end - seq + 1 < n && (end + 1) % s->slots)
		end++;
	return end;
}

/*
 * A chunk's slot is free for a copy out once the chunk @slots before is done; a chunk whose copies come behind done frees
 * it in the stream's order by itself.
 */
static int push_chunks(struct stream *s, struct stream_op *op, uint32_t seq, uint32_t end,
		       struct stream_cursor *at)
{
	struct gpu_memop m[MOST_MEMOPS];
	struct stream_cursor start = *at;
	uint32_t n = 0;
	int code = 0;

	if (op->heads)
		code = copies(s, op, at, seq, end, true);
	if (code)
		return code;
	if (needs_go(s, op, seq))
		m[n++] = write_op(&s->go, seq);
	if (op->early)
		; /* there is nothing to wait for */
	else if (op->tails || end == op->last)
		m[n++] = wait_op(s, end);
	else if (stream_reached(seq + 1 - s->slots, op->first))
		m[n++] = wait_op(s, seq + 1 - s->slots);
	code = n ? memops(s, m, n) : 0;
	if (code)
		return code;
	op->gone = true;
	if (op->tails) {
		*at = start;
		code = copies(s, op, at, seq, end, false);
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

int stream_push_passed(struct stream *s, const struct stream_op *op)
{
	struct gpu_memop passed = write_op(&s->passed, op->last);

	return memops(s, &passed, 1);
}

int stream_push_all(struct stream *s, struct stream_op *op)
{
	struct stream_cursor at = { 0 };
	int code = 0;

	if (s->by_callback || op->flags & STREAM_CALLBACK)
		return push_call(s, op);
	for (uint32_t seq = op->first, end; !code && stream_reached(op->last, seq); seq = end + 1) {
		end = end_of_group(s, op, seq);
		code = push_chunks(s, op, seq, end, &at);
	}
	if (!code && op->tails && !op->early)
		code = stream_push_passed(s, op);
	return code;
}
