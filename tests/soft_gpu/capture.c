/* SPDX-License-Identifier: MIT */
/* Capture of streams into graphs: what it refuses, not the graphs, which hold nothing here. */
#include "capture.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED }; /* modes of a capture, and of a thread */

static uint64_t self(void) { return (uint64_t)(uintptr_t)soft_thread(); }

int soft_capture_begin(struct soft_stream *s, int mode)
{
	if (s->legacy)
		return SOFT_CAPTURE_IMPLICIT;
	if (s->capture || mode < GLOBAL || mode > RELAXED)
		return SOFT_INVALID_VALUE;
	s->capture = 1;
	s->capture_mode = mode;
	s->capture_thread = self();
	return SOFT_OK;
}

int soft_capture_end(struct soft_stream *s)
{
	int was = s->capture;

	s->capture = 0;
	return !was ? SOFT_CAPTURE_UNMATCHED : was == 2 ? SOFT_CAPTURE_INVALIDATED : SOFT_OK;
}

int soft_capture_status(struct soft_stream *s, int *ret)
{
	if (s->legacy && soft_blocking_captured(s->ctx))
		return SOFT_CAPTURE_IMPLICIT;
	*ret = s->capture;
	return SOFT_OK;
}

int soft_capture_enqueue(struct soft_stream *s, bool *ret_captured)
{
	*ret_captured = s->capture == 1;
	if (s->capture == 2)
		return SOFT_CAPTURE_INVALIDATED;
	/* It would wait for work that is only written down. */
	return s->legacy && soft_blocking_captured(s->ctx) ? SOFT_CAPTURE_IMPLICIT : SOFT_OK;
}

/* A wait for, or a look at, a stream that is captured breaks the capture. */
int soft_capture_sync(struct soft_stream *s)
{
	if (s->capture) {
		s->capture = 2;
		return SOFT_CAPTURE_UNSUPPORTED;
	}
	return s->legacy && soft_blocking_captured(s->ctx) ? SOFT_CAPTURE_IMPLICIT : SOFT_OK;
}

/*
 * Allocations, and questions about events, might wait for the device. They break captures in global mode wherever they
 * come from, and this thread's own in thread-local mode, unless the thread has said that it knows (relaxed).
 */
int soft_capture_unsafe(void)
{
	int mode = soft_thread()->capture_mode, code = SOFT_OK;

	if (mode == RELAXED)
		return SOFT_OK;
	if (mode == GLOBAL && soft_anything_captured(GLOBAL, 0)) {
		soft_captures_invalidate(GLOBAL, 0);
		code = SOFT_CAPTURE_UNSUPPORTED;
	}
	for (int m = GLOBAL; m <= THREAD_LOCAL; m++)
		if (soft_anything_captured(m, self())) {
			soft_captures_invalidate(m, self());
			code = SOFT_CAPTURE_UNSUPPORTED;
		}
	return code;
}
