/* SPDX-License-Identifier: MIT */
/* How the functions of both faces begin. */
#ifndef SOFT_FACE_H
#define SOFT_FACE_H

#include "soft.h"

/* Counted, under the lock until the function returns. */
#define CALL()       \
	SOFT_CALL(); \
	SOFT_LOCK()

/* The same, with the current context in @ctx. */
#define CALL_IN(ctx)                               \
	CALL();                                    \
	struct soft_ctx *ctx;                      \
	do {                                       \
		int code_ = soft_current(&ctx);    \
		if (code_)                         \
			return soft_answer(code_); \
	} while (0)

/* The same, with a stream. */
#define CALL_ON(s, handle)                                             \
	CALL();                                                        \
	struct soft_stream *s;                                         \
	do {                                                           \
		int code_ = soft_stream_find((uintptr_t)(handle), &s); \
		if (code_)                                             \
			return soft_answer(code_);                     \
	} while (0)

/* The same, with an event. */
#define CALL_OF(e, handle)                                           \
	CALL();                                                      \
	struct soft_event *e = soft_event_find((uintptr_t)(handle)); \
	if (!e)                                                      \
	return soft_answer(SOFT_INVALID_HANDLE)

/* Free memory of these kinds: all work on the device ends first, as with the real ones. Without the lock. */
static inline int soft_free_now(uint64_t addr, unsigned kinds)
{
	struct soft_alloc *a;
	struct soft_ctx *ctx;
	int code;

	pthread_mutex_lock(&soft_lock);
	a = soft_find(addr);
	code = soft_current(&ctx);
	if (!code && (!a || a->addr != addr || !(kinds >> a->kind & 1)))
		code = SOFT_INVALID_VALUE;
	if (!code)
		code = soft_capture_unsafe();
	if (!code)
		code = soft_sync_device(a->device, NULL);
	pthread_mutex_unlock(&soft_lock);
	if (code)
		return code;
	pthread_rwlock_wrlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	code = soft_free(addr, kinds);
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_unlock(&soft_memory);
	return code;
}

static inline int soft_export_now(uint64_t addr, size_t nbytes, int *ret_fd)
{
	int code;

	pthread_rwlock_wrlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	code = soft_export(addr, nbytes, ret_fd);
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_unlock(&soft_memory);
	return code;
}

#endif
