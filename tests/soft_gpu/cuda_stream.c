/* SPDX-License-Identifier: MIT */
/* The face of the CUDA driver API: streams, events, words, graphs. */
#include <stdlib.h>

#include "face.h"

SOFT_EXPORT int cuStreamCreate(uintptr_t *stream, unsigned flags)
{
	CALL_IN(ctx);
	struct soft_stream *s;
	int code = flags > 1 ? SOFT_INVALID_VALUE : soft_stream_new(ctx, !flags, &s);

	if (!code)
		*stream = s->handle;
	return code;
}

SOFT_EXPORT int cuStreamCreateWithPriority(uintptr_t *stream, unsigned flags, int priority)
{
	(void)priority;
	return cuStreamCreate(stream, flags);
}

SOFT_EXPORT int cuStreamDestroy_v2(uintptr_t stream)
{
	CALL();

	return soft_stream_destroy(stream);
}

SOFT_EXPORT int cuStreamQuery(uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_stream_query(s);
}

SOFT_EXPORT int cuStreamSynchronize(uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_stream_sync(s);
}

SOFT_EXPORT int cuStreamGetCtx(uintptr_t stream, uintptr_t *ctx)
{
	CALL_ON(s, stream);

	*ctx = (uintptr_t)s->ctx;
	return SOFT_OK;
}

SOFT_EXPORT int cuStreamGetDevice(uintptr_t stream, int *device)
{
	CALL_ON(s, stream);

	*device = s->device;
	return SOFT_OK;
}

SOFT_EXPORT int cuStreamGetId(uintptr_t stream, unsigned long long *id)
{
	CALL_ON(s, stream);

	*id = s->id;
	return SOFT_OK;
}

SOFT_EXPORT int cuStreamGetFlags(uintptr_t stream, unsigned *flags)
{
	CALL_ON(s, stream);

	*flags = !s->blocking;
	return SOFT_OK;
}

SOFT_EXPORT int cuStreamWaitEvent(uintptr_t stream, uintptr_t event, unsigned flags)
{
	CALL_ON(s, stream);
	struct soft_event *e = soft_event_find(event);

	if (!e)
		return SOFT_INVALID_HANDLE;
	return flags > 1 ? SOFT_INVALID_VALUE : soft_stream_wait_event(s, e);
}

SOFT_EXPORT int cuLaunchHostFunc(uintptr_t stream, void (*fn)(void *arg), void *arg)
{
	CALL_ON(s, stream);

	if (!fn)
		return SOFT_INVALID_VALUE;
	return soft_enqueue(s, (struct soft_op){ .kind = SOFT_HOST_FUNC, .fn = fn, .arg = arg }, NULL);
}

/* ---- words ---- */

#define FLUSH (1u << 30)

static int wait_word(struct soft_stream *s, uint64_t addr, uint32_t value, uint32_t flags)
{
	if (flags & ~(FLUSH | 3u) || (flags & FLUSH && soft_controls.missing & SOFT_NO_FLUSH))
		return SOFT_NOT_SUPPORTED;
	return soft_wait_value(s, addr, value, flags & 3u, UINT32_MAX);
}

SOFT_EXPORT int cuStreamWaitValue32_v2(uintptr_t stream, uint64_t addr, uint32_t value, unsigned flags)
{
	CALL_ON(s, stream);

	return wait_word(s, addr, value, flags);
}

SOFT_EXPORT int cuStreamWriteValue32_v2(uintptr_t stream, uint64_t addr, uint32_t value, unsigned flags)
{
	CALL_ON(s, stream);

	return flags > 1 ? SOFT_INVALID_VALUE : soft_write_value(s, addr, value);
}

struct memop { /* CUstreamBatchMemOpParams */
	uint32_t operation;
	uint64_t address, value;
	uint32_t flags;
	uint64_t alias, pad;
};

/* All or nothing, as far as it can be told before. */
SOFT_EXPORT int cuStreamBatchMemOp_v2(uintptr_t stream, unsigned n, const struct memop *ops, unsigned flags)
{
	CALL_ON(s, stream);
	int code = n > 255 || flags ? SOFT_INVALID_VALUE : SOFT_OK;

	for (unsigned i = 0; !code && i < n; i++)
		if ((ops[i].operation != 1 && ops[i].operation != 2) || ops[i].address % 4 ||
		    !soft_find(ops[i].address))
			code = SOFT_INVALID_VALUE;
	for (unsigned i = 0; !code && i < n; i++)
		code = ops[i].operation == 1
			       ? wait_word(s, ops[i].address, (uint32_t)ops[i].value, ops[i].flags)
			       : soft_write_value(s, ops[i].address, (uint32_t)ops[i].value);
	return code;
}

/* ---- events ---- */

SOFT_EXPORT int cuEventCreate(uintptr_t *event, unsigned flags)
{
	CALL_IN(ctx);
	struct soft_event *e;
	int code = flags & ~7u ? SOFT_INVALID_VALUE : soft_event_new(ctx, &e);

	if (!code)
		*event = (uintptr_t)e;
	return code;
}

SOFT_EXPORT int cuEventDestroy_v2(uintptr_t event)
{
	CALL();

	return soft_event_destroy(event);
}

SOFT_EXPORT int cuEventRecord(uintptr_t event, uintptr_t stream)
{
	CALL_ON(s, stream);
	struct soft_event *e = soft_event_find(event);

	return e ? soft_event_record(e, s) : SOFT_INVALID_HANDLE;
}

SOFT_EXPORT int cuEventQuery(uintptr_t event)
{
	CALL_OF(e, event);

	return soft_event_query(e);
}

SOFT_EXPORT int cuEventSynchronize(uintptr_t event)
{
	CALL_OF(e, event);

	return soft_event_sync(e);
}

/* ---- capture ---- */

SOFT_EXPORT int cuStreamBeginCapture_v2(uintptr_t stream, int mode)
{
	CALL_ON(s, stream);

	return soft_capture_begin(s, mode);
}

SOFT_EXPORT int cuStreamEndCapture(uintptr_t stream, uintptr_t *graph)
{
	CALL_ON(s, stream);
	int code = soft_capture_end(s);

	*graph = code ? 0 : (uintptr_t)malloc(8);
	return code;
}

SOFT_EXPORT int cuGraphDestroy(uintptr_t graph)
{
	free((void *)graph);
	return SOFT_OK;
}

SOFT_EXPORT int cuStreamIsCapturing(uintptr_t stream, int *status)
{
	CALL_ON(s, stream);

	return soft_capture_status(s, status);
}

SOFT_EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	CALL();
	struct soft_thread *t = soft_thread();
	int was = t->capture_mode;

	t->capture_mode = *mode;
	*mode = was;
	return SOFT_OK;
}
