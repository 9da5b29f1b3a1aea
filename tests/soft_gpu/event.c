/* SPDX-License-Identifier: MIT */
/* Events: the ticket of the operation that they were recorded as. */
#include <stdlib.h>

#include "soft.h"

static struct soft_event *events;

int soft_event_new(struct soft_ctx *ctx, struct soft_event **ret)
{
	struct soft_event *e = calloc(1, sizeof(*e));

	*e = (struct soft_event){ .next = events, .ctx = ctx };
	events = e;
	*ret = e;
	return SOFT_OK;
}

struct soft_event *soft_event_find(uintptr_t handle)
{
	for (struct soft_event *e = events; e; e = e->next)
		if ((uintptr_t)e == handle)
			return e;
	return NULL;
}

int soft_event_destroy(uintptr_t handle)
{
	for (struct soft_event **at = &events; *at; at = &(*at)->next)
		if ((uintptr_t)*at == handle) {
			struct soft_event *e = *at;

			*at = e->next;
			soft_ticket_put(e->ticket);
			free(e);
			return SOFT_OK;
		}
	return SOFT_INVALID_HANDLE;
}

int soft_event_record(struct soft_event *e, struct soft_stream *s)
{
	struct soft_ticket *t;
	int code;

	if (e->ctx != s->ctx)
		return SOFT_INVALID_HANDLE;
	code = soft_enqueue(s, (struct soft_op){ .kind = SOFT_RECORD }, &t);
	if (code)
		return code;
	soft_counters.events_recorded++;
	soft_ticket_put(e->ticket);
	e->ticket = t;
	e->captured = !t;
	return SOFT_OK;
}

int soft_event_query(struct soft_event *e)
{
	int code = soft_capture_unsafe();

	if (code)
		return code;
	if (e->captured)
		return SOFT_CAPTURED_EVENT;
	if (e->ctx->sticky)
		return e->ctx->sticky;
	return e->ticket && !e->ticket->done ? SOFT_NOT_READY : SOFT_OK;
}

int soft_event_sync(struct soft_event *e)
{
	int code = soft_capture_unsafe();

	soft_counters.synchronises++;
	if (code)
		return code;
	if (e->captured)
		return SOFT_CAPTURED_EVENT;
	return soft_ticket_wait(e->ticket, e->ctx);
}

int soft_stream_wait_event(struct soft_stream *s, struct soft_event *e)
{
	struct soft_op op = { .kind = SOFT_JOIN };

	if (e->captured != (s->capture == 1) && e->captured)
		return SOFT_CAPTURED_EVENT;
	if (!e->ticket || e->ticket->done)
		return SOFT_OK;
	if (s->capture == 1)
		return SOFT_OK;
	op.after = malloc(sizeof(struct soft_ticket *));
	op.after[0] = soft_ticket_get(e->ticket);
	op.nr_after = 1;
	return soft_enqueue(s, op, NULL);
}

SOFT_EXPORT uint64_t soft_gpu_events(void)
{
	SOFT_LOCK();
	uint64_t n = 0;

	for (struct soft_event *e = events; e; e = e->next)
		n++;
	return n;
}

void soft_events_of(struct soft_ctx *ctx)
{
	struct soft_event *e, *next;

	for (e = events; e; e = next) {
		next = e->next;
		if (e->ctx == ctx)
			soft_event_destroy((uintptr_t)e);
	}
}

void soft_events_reset(void)
{
	while (events)
		soft_event_destroy((uintptr_t)events);
}
