/* SPDX-License-Identifier: MIT */
/* The face of the HIP runtime API: streams, events, words, graphs. */
#include <stdlib.h>

#include "face.h"

SOFT_EXPORT int hipStreamCreateWithFlags(uintptr_t *stream, unsigned flags)
{
	CALL_IN(ctx);
	struct soft_stream *s;
	int code = flags > 1 ? SOFT_INVALID_VALUE : soft_stream_new(ctx, !flags, &s);

	if (!code)
		*stream = s->handle;
	return soft_answer(code);
}

SOFT_EXPORT int hipStreamCreate(uintptr_t *stream) { return hipStreamCreateWithFlags(stream, 0); }

SOFT_EXPORT int hipStreamDestroy(uintptr_t stream)
{
	CALL();

	return soft_answer(soft_stream_destroy(stream));
}

SOFT_EXPORT int hipStreamQuery(uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_answer(soft_stream_query(s));
}

SOFT_EXPORT int hipStreamSynchronize(uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_answer(soft_stream_sync(s));
}

SOFT_EXPORT int hipStreamGetDevice(uintptr_t stream, int *device)
{
	CALL_ON(s, stream);

	*device = s->device;
	return SOFT_OK;
}

SOFT_EXPORT int hipStreamGetId(uintptr_t stream, unsigned long long *id)
{
	CALL_ON(s, stream);

	*id = s->id;
	return SOFT_OK;
}

SOFT_EXPORT int hipStreamGetFlags(uintptr_t stream, unsigned *flags)
{
	CALL_ON(s, stream);

	*flags = !s->blocking;
	return SOFT_OK;
}

SOFT_EXPORT int hipStreamWaitEvent(uintptr_t stream, uintptr_t event, unsigned flags)
{
	CALL_ON(s, stream);
	struct soft_event *e = soft_event_find(event);

	if (!e)
		return soft_answer(SOFT_INVALID_HANDLE);
	return soft_answer(flags > 1 ? SOFT_INVALID_VALUE : soft_stream_wait_event(s, e));
}

SOFT_EXPORT int hipLaunchHostFunc(uintptr_t stream, void (*fn)(void *arg), void *arg)
{
	CALL_ON(s, stream);

	if (!fn)
		return soft_answer(SOFT_INVALID_VALUE);
	return soft_answer(
		soft_enqueue(s, (struct soft_op){ .kind = SOFT_HOST_FUNC, .fn = fn, .arg = arg }, NULL));
}

SOFT_EXPORT int hipStreamWaitValue32(uintptr_t stream, uint64_t addr, uint32_t value, unsigned flags,
				     uint32_t mask)
{
	CALL_ON(s, stream);

	return soft_answer(flags > 3 ? SOFT_INVALID_VALUE : soft_wait_value(s, addr, value, flags, mask));
}

SOFT_EXPORT int hipStreamWriteValue32(uintptr_t stream, uint64_t addr, uint32_t value, unsigned flags)
{
	CALL_ON(s, stream);

	return soft_answer(flags ? SOFT_INVALID_VALUE : soft_write_value(s, addr, value));
}

/* ---- events ---- */

SOFT_EXPORT int hipEventCreateWithFlags(uintptr_t *event, unsigned flags)
{
	CALL_IN(ctx);
	struct soft_event *e;
	int code = soft_event_new(ctx, &e);

	(void)flags;
	if (!code)
		*event = (uintptr_t)e;
	return soft_answer(code);
}

SOFT_EXPORT int hipEventCreate(uintptr_t *event) { return hipEventCreateWithFlags(event, 0); }

SOFT_EXPORT int hipEventDestroy(uintptr_t event)
{
	CALL();

	return soft_answer(soft_event_destroy(event));
}

SOFT_EXPORT int hipEventRecord(uintptr_t event, uintptr_t stream)
{
	CALL_ON(s, stream);
	struct soft_event *e = soft_event_find(event);

	return soft_answer(e ? soft_event_record(e, s) : SOFT_INVALID_HANDLE);
}

SOFT_EXPORT int hipEventQuery(uintptr_t event)
{
	CALL_OF(e, event);

	return soft_answer(soft_event_query(e));
}

SOFT_EXPORT int hipEventSynchronize(uintptr_t event)
{
	CALL_OF(e, event);

	return soft_answer(soft_event_sync(e));
}

/* ---- capture ---- */

SOFT_EXPORT int hipStreamBeginCapture(uintptr_t stream, int mode)
{
	CALL_ON(s, stream);

	return soft_answer(soft_capture_begin(s, mode));
}

SOFT_EXPORT int hipStreamEndCapture(uintptr_t stream, uintptr_t *graph)
{
	CALL_ON(s, stream);
	int code = soft_capture_end(s);

	*graph = code ? 0 : (uintptr_t)malloc(8);
	return soft_answer(code);
}

SOFT_EXPORT int hipGraphDestroy(uintptr_t graph)
{
	free((void *)graph);
	return SOFT_OK;
}

SOFT_EXPORT int hipStreamIsCapturing(uintptr_t stream, int *status)
{
	CALL_ON(s, stream);

	return soft_answer(soft_capture_status(s, status));
}

SOFT_EXPORT int hipThreadExchangeStreamCaptureMode(int *mode)
{
	CALL();
	struct soft_thread *t = soft_thread();
	int was = t->capture_mode;

	t->capture_mode = *mode;
	*mode = was;
	return SOFT_OK;
}
