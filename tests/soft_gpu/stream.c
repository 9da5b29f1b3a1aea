/* SPDX-License-Identifier: MIT */
/* Streams: what is enqueued ends in its order. */
#include <stdlib.h>
#include <string.h>

#include "soft.h"

static struct soft_stream *streams;
static uint64_t next_stream = 1;

/* ---- tickets ---- */

struct soft_ticket *soft_ticket_get(struct soft_ticket *t)
{
	if (t)
		t->refs++;
	return t;
}

void soft_ticket_put(struct soft_ticket *t)
{
	if (t && !--t->refs)
		free(t);
}

int soft_ticket_wait(struct soft_ticket *t, struct soft_ctx *ctx)
{
	soft_ticket_get(t);
	while (t && !t->done && !ctx->sticky && !soft_controls.stopping)
		pthread_cond_wait(&soft_progress, &soft_lock);
	soft_ticket_put(t);
	return ctx->sticky;
}

/* ---- streams ---- */

/* Handles are given again, the last one first. */
static struct handle {
	struct handle *next;
} *spare;

static uintptr_t handle_take(void)
{
	struct handle *h = spare;

	if (h)
		spare = h->next;
	else
		h = malloc(sizeof(*h));
	return (uintptr_t)h;
}

static void handle_give(struct soft_stream *s)
{
	struct handle *h = (struct handle *)s->handle;

	if (!h)
		return;
	h->next = spare;
	spare = h;
	s->handle = 0;
}

static struct soft_stream *new_stream(struct soft_ctx *ctx, bool blocking)
{
	struct soft_stream *s = calloc(1, sizeof(*s));

	*s = (struct soft_stream){ .next = streams, .id = next_stream++, .ctx = ctx, .device = ctx->device };
	s->blocking = blocking;
	s->handle = handle_take();
	streams = s;
	return s;
}

int soft_stream_new(struct soft_ctx *ctx, bool blocking, struct soft_stream **ret)
{
	*ret = new_stream(ctx, blocking);
	return SOFT_OK;
}

static void let_go(struct soft_stream *s)
{
	struct soft_stream **at = &streams;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	soft_ticket_put(s->last);
	handle_give(s);
	free(s);
}

/* Of a stream that was destroyed, what was enqueued still ends. */
void soft_stream_drained(struct soft_stream *s)
{
	if (s->destroyed && !s->pending)
		let_go(s);
}

static struct soft_stream *legacy_of(struct soft_ctx *ctx)
{
	if (!ctx->legacy) {
		ctx->legacy = new_stream(ctx, true);
		ctx->legacy->legacy = true;
	}
	return ctx->legacy;
}

int soft_stream_find(uintptr_t handle, struct soft_stream **ret)
{
	struct soft_ctx *ctx;

	if (handle <= 2) {
		int code = soft_current(&ctx);

		*ret = code ? NULL : legacy_of(ctx);
		return code;
	}
	for (struct soft_stream *s = streams; s; s = s->next)
		if (s->handle == handle && !s->destroyed && !s->legacy) {
			*ret = s;
			return s->ctx->sticky;
		}
	return SOFT_INVALID_HANDLE;
}

int soft_stream_destroy(uintptr_t handle)
{
	struct soft_stream *s;
	int code = handle <= 2 ? SOFT_INVALID_HANDLE : soft_stream_find(handle, &s);

	if (code == SOFT_INVALID_HANDLE)
		return code;
	s->destroyed = true;
	handle_give(s);
	soft_stream_drained(s);
	return code;
}

/* ---- enqueueing ---- */

/* What an operation holds besides its stream. */
void soft_op_drop(struct soft_op *op)
{
	for (unsigned i = 0; i < op->nr_after; i++)
		soft_ticket_put(op->after[i]);
	free(op->after);
	if (op->owns_host)
		free(op->host);
	op->after = NULL;
	op->nr_after = 0;
	op->owns_host = false;
}

static void depend(struct soft_op *op, struct soft_ticket *t)
{
	if (!t || t->done)
		return;
	op->after = realloc(op->after, (op->nr_after + 1) * sizeof(struct soft_ticket *));
	op->after[op->nr_after++] = soft_ticket_get(t);
}

/* The legacy default stream waits for the blocking streams of its context, and they for it. */
static void order_with_legacy(struct soft_op *op)
{
	struct soft_stream *s = op->stream;

	if (!s->legacy) {
		if (s->blocking && s->ctx->legacy)
			depend(op, s->ctx->legacy->last);
		return;
	}
	for (struct soft_stream *o = streams; o; o = o->next)
		if (o->ctx == s->ctx && o->blocking && o != s)
			depend(op, o->last);
}

int soft_enqueue(struct soft_stream *s, struct soft_op op, struct soft_ticket **ret_ticket)
{
	bool captured = false;
	int code = soft_capture_enqueue(s, &captured);
	struct soft_op *copy;

	if (ret_ticket)
		*ret_ticket = NULL;
	if (code || captured) {
		soft_op_drop(&op);
		return code;
	}
	copy = malloc(sizeof(op));
	op.stream = s;
	op.ticket = calloc(1, sizeof(*op.ticket));
	op.ticket->refs = 2; /* the operation's, and the stream's */
	*copy = op;
	order_with_legacy(copy);
	soft_ticket_put(s->last);
	s->last = op.ticket;
	if (ret_ticket)
		*ret_ticket = soft_ticket_get(op.ticket);
	soft_channel_push(copy);
	return SOFT_OK;
}

int soft_stream_query(struct soft_stream *s)
{
	int code = soft_capture_sync(s);

	if (code)
		return code;
	if (s->last && !s->last->done)
		return SOFT_NOT_READY;
	for (struct soft_stream *o = streams; s->legacy && o; o = o->next)
		if (o->ctx == s->ctx && o->blocking && o->last && !o->last->done)
			return SOFT_NOT_READY;
	return SOFT_OK;
}

int soft_stream_sync(struct soft_stream *s)
{
	struct soft_ctx *ctx = s->ctx;
	int code = soft_capture_sync(s);

	soft_counters.synchronises++;
	if (code)
		return code;
	if (s->legacy) {
		struct soft_ticket *t;

		code = soft_enqueue(s, (struct soft_op){ .kind = SOFT_JOIN }, &t);
		if (!code)
			code = soft_ticket_wait(t, ctx);
		soft_ticket_put(t);
		return code;
	}
	return soft_ticket_wait(s->last, ctx);
}

/* All streams of a context; NULL: of the device. */
int soft_sync_device(int device, struct soft_ctx *ctx)
{
	struct soft_stream *s;
	int code = SOFT_OK;

	do {
		for (s = streams; s; s = s->next)
			if (s->device == device && (!ctx || s->ctx == ctx) && s->last && !s->last->done)
				break;
		if (s)
			code = soft_ticket_wait(s->last, s->ctx);
	} while (s && !code && !soft_controls.stopping);
	return code;
}

bool soft_anything_captured(int mode, uint64_t thread)
{
	for (struct soft_stream *s = streams; s; s = s->next)
		if (s->capture == 1 && s->capture_mode == mode && (!thread || s->capture_thread == thread))
			return true;
	return false;
}

void soft_captures_invalidate(int mode, uint64_t thread)
{
	for (struct soft_stream *s = streams; s; s = s->next)
		if (s->capture == 1 && s->capture_mode == mode && (!thread || s->capture_thread == thread))
			s->capture = 2;
}

bool soft_blocking_captured(const struct soft_ctx *ctx)
{
	for (struct soft_stream *s = streams; s; s = s->next)
		if (s->capture && s->blocking && !s->legacy && s->ctx == ctx)
			return true;
	return false;
}

SOFT_EXPORT uint64_t soft_gpu_streams(void)
{
	SOFT_LOCK();
	uint64_t n = 0;

	for (struct soft_stream *s = streams; s; s = s->next)
		n += !s->legacy && !s->destroyed;
	return n;
}

void soft_streams_of(struct soft_ctx *ctx)
{
	struct soft_stream *s, *next;

	do {
		for (s = streams; s && !(s->ctx == ctx && s->pending); s = s->next)
			;
		if (s)
			pthread_cond_wait(&soft_progress, &soft_lock);
	} while (s);
	for (s = streams; s; s = next) {
		next = s->next;
		if (s->ctx == ctx)
			let_go(s);
	}
	ctx->legacy = NULL;
}

void soft_streams_reset(void)
{
	while (streams)
		let_go(streams);
}
