/* SPDX-License-Identifier: MIT */
/*
 * A GPU made of threads, under native/stream alone. Its memory is ours; its hardware connections are threads, and a
 * stream that waits for a word holds one, so that whoever needs more of them than there are hangs as on a real one.
 */
#ifndef TESTS_FAKE_GPU_H
#define TESTS_FAKE_GPU_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/gpu.h"

#define FAKE_LOST 700 /* sticky */
#define FAKE_REFUSED 1
#define FAKE_CONNECTIONS 8

enum fake_kind { FAKE_WRITE, FAKE_WAIT, FAKE_COPY, FAKE_RECORD, FAKE_KERNEL, FAKE_CALLBACK };

struct fake_op {
	struct fake_op *next;
	enum fake_kind kind;
	_Atomic uint32_t *word;
	uint32_t val;
	void *to;
	const void *from;
	size_t nbytes;
	struct fake_event *event;
	uint64_t mark;
	void (*fn)(void *arg);
	void *arg;
};

struct fake_event {
	_Atomic uint64_t asked, done;
	_Atomic bool dead; /* destroyed, as its user sees it */
};

struct fake_stream {
	struct fake_stream *next; /* ready list */
	struct fake_op *first, **tail;
	bool held; /* by a connection, or on the ready list */
	_Atomic bool capturing;
	uint64_t id;
};

struct fake_gpu {
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct fake_stream *ready, **ready_tail;
	bool stop;
	pthread_t connection[64];
	uint32_t nr_connections;
	pthread_mutex_t callbacks; /* one host function at a time */
	_Atomic bool lost;
	_Atomic bool stuck; /* whoever asks about an event waits */
	_Atomic uint32_t asking;
	_Atomic uint32_t nr_calls, fail_at; /* the call of this number is refused */
	_Atomic uint32_t nr_memops, nr_copies, nr_pinned;
	uint32_t caps;
	bool ordered; /* streams come behind default ones */
	_Atomic bool ids; /* it tells them */
	_Atomic int flush_code; /* what flushing answers, */
	_Atomic uint32_t nr_flushes; /* and how often it was asked to */
};

static struct fake_gpu fake;

static void fake_rest(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };

	nanosleep(&ts, NULL);
}

static bool fake_reached(const struct fake_op *op)
{
	return (int32_t)(atomic_load_explicit(op->word, memory_order_acquire) - op->val) >= 0;
}

static void fake_wait(const struct fake_op *op)
{
	for (uint32_t i = 0; !fake_reached(op) && !atomic_load(&fake.lost); i++)
		if (i > 100)
			fake_rest(5000);
}

static void fake_run(struct fake_op *op)
{
	if (atomic_load(&fake.lost))
		return;
	switch (op->kind) {
	case FAKE_WRITE:
		atomic_store_explicit(op->word, op->val, memory_order_release);
		break;
	case FAKE_WAIT:
		fake_wait(op);
		break;
	case FAKE_COPY:
		memcpy(op->to, op->from, op->nbytes);
		break;
	case FAKE_RECORD:
		atomic_store_explicit(&op->event->done, op->mark, memory_order_release);
		break;
	case FAKE_KERNEL:
		op->fn(op->arg);
		break;
	case FAKE_CALLBACK:
		pthread_mutex_lock(&fake.callbacks);
		op->fn(op->arg);
		pthread_mutex_unlock(&fake.callbacks);
		break;
	}
}

static struct fake_op *fake_next(struct fake_stream *s)
{
	struct fake_op *op;

	pthread_mutex_lock(&fake.lock);
	op = s->first;
	if (op) {
		s->first = op->next;
		if (!s->first)
			s->tail = &s->first;
	} else {
		s->held = false;
	}
	pthread_mutex_unlock(&fake.lock);
	return op;
}

static void *fake_connection(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&fake.lock);
	while (!fake.stop) {
		struct fake_stream *s = fake.ready;
		struct fake_op *op;

		if (!s) {
			pthread_cond_wait(&fake.some, &fake.lock);
			continue;
		}
		fake.ready = s->next;
		if (!fake.ready)
			fake.ready_tail = &fake.ready;
		pthread_mutex_unlock(&fake.lock);
		while ((op = fake_next(s))) {
			fake_run(op);
			free(op);
		}
		pthread_mutex_lock(&fake.lock);
	}
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

/* 0, or the runtime's answer. */
static int fake_call(void)
{
	uint32_t n = atomic_fetch_add(&fake.nr_calls, 1) + 1;

	if (atomic_load(&fake.lost))
		return FAKE_LOST;
	return n == atomic_load(&fake.fail_at) ? FAKE_REFUSED : 0;
}

static void fake_push(uint64_t stream, struct fake_op from)
{
	struct fake_stream *s = (struct fake_stream *)(uintptr_t)stream;
	struct fake_op *op = malloc(sizeof(*op));

	*op = from;
	op->next = NULL;
	pthread_mutex_lock(&fake.lock);
	*s->tail = op;
	s->tail = &op->next;
	if (!s->held) {
		s->held = true;
		s->next = NULL;
		*fake.ready_tail = s;
		fake.ready_tail = &s->next;
		pthread_cond_signal(&fake.some);
	}
	pthread_mutex_unlock(&fake.lock);
}

static int fake_enter(const struct gpu_place *p, struct gpu_before *b)
{
	(void)p;
	(void)b;
	return 0;
}

static void fake_leave(const struct gpu_place *p, const struct gpu_before *b)
{
	(void)p;
	(void)b;
}

static int fake_copy_in(uint64_t dst, const void *host, size_t n, uint64_t stream)
{
	int code = fake_call();

	atomic_fetch_add(&fake.nr_copies, 1);
	if (!code)
		fake_push(stream, (struct fake_op){ .kind = FAKE_COPY,
						    .to = (void *)(uintptr_t)dst,
						    .from = host,
						    .nbytes = n });
	return code;
}

static int fake_copy_out(void *host, uint64_t src, size_t n, uint64_t stream)
{
	int code = fake_call();

	atomic_fetch_add(&fake.nr_copies, 1);
	if (!code)
		fake_push(stream, (struct fake_op){ .kind = FAKE_COPY,
						    .to = host,
						    .from = (const void *)(uintptr_t)src,
						    .nbytes = n });
	return code;
}

static int fake_capturing(uint64_t stream, bool *ret)
{
	*ret = atomic_load(&((struct fake_stream *)(uintptr_t)stream)->capturing);
	return fake_call();
}

static int fake_event_new(uint64_t *ret)
{
	*ret = (uint64_t)(uintptr_t)calloc(1, sizeof(struct fake_event));
	return 0;
}

static int fake_event_free(uint64_t event)
{
	free((void *)(uintptr_t)event);
	return 0;
}

static int fake_event_record(uint64_t event, uint64_t stream)
{
	struct fake_event *e = (struct fake_event *)(uintptr_t)event;
	int code = fake_call();

	if (!code) {
		uint64_t mark = atomic_fetch_add(&e->asked, 1) + 1;

		fake_push(stream, (struct fake_op){ .kind = FAKE_RECORD, .event = e, .mark = mark });
	}
	return code;
}

static int fake_event_query(uint64_t event)
{
	struct fake_event *e = (struct fake_event *)(uintptr_t)event;

	if (atomic_load(&e->dead))
		abort();
	atomic_fetch_add(&fake.asking, 1);
	while (atomic_load(&fake.stuck))
		fake_rest(100000);
	atomic_fetch_sub(&fake.asking, 1);
	if (atomic_load(&fake.lost))
		return FAKE_LOST;
	return atomic_load_explicit(&e->done, memory_order_acquire) >= atomic_load(&e->asked) ? 0
											      : GPU_NOT_READY;
}

static void fake_wait_event(void *arg)
{
	while (fake_event_query((uint64_t)(uintptr_t)arg) == GPU_NOT_READY)
		fake_rest(20000);
}

static int fake_stream_wait_event(uint64_t stream, uint64_t event)
{
	int code = fake_call();

	if (!code)
		fake_push(stream, (struct fake_op){ .kind = FAKE_KERNEL,
						    .fn = fake_wait_event,
						    .arg = (void *)(uintptr_t)event });
	return code;
}

static int fake_host_alloc(size_t n, void **ret, uint64_t *ret_dev)
{
	atomic_fetch_add(&fake.nr_pinned, 1);
	*ret = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	*ret_dev = (uint64_t)(uintptr_t)*ret;
	return 0;
}

static int fake_host_free(void *host)
{
	free(host);
	return 0;
}

static int fake_words_alloc(uint32_t n, struct gpu_word *ret)
{
	for (uint32_t i = 0; i < n; i++) {
		ret[i].host = aligned_alloc(64, 64);
		*ret[i].host = 0;
		ret[i].dev = (uint64_t)(uintptr_t)ret[i].host;
	}
	return 0;
}

static int fake_words_free(uint32_t n, const struct gpu_word *words)
{
	for (uint32_t i = 0; i < n; i++)
		free(words[i].host);
	return 0;
}

static int fake_memops(uint64_t stream, const struct gpu_memop *ops, uint32_t n)
{
	int code = fake_call();

	atomic_fetch_add(&fake.nr_memops, 1);
	for (uint32_t i = 0; !code && i < n; i++)
		fake_push(stream, (struct fake_op){ .kind = ops[i].wait ? FAKE_WAIT : FAKE_WRITE,
						    .word = (_Atomic uint32_t *)(uintptr_t)ops[i].addr,
						    .val = ops[i].val });
	return code;
}

static int fake_alone(uint64_t stream, bool *ret)
{
	(void)stream;
	*ret = !fake.ordered;
	return 0;
}

static int fake_stream_id(uint64_t stream, uint64_t *ret)
{
	*ret = atomic_load(&fake.ids) ? ((struct fake_stream *)(uintptr_t)stream)->id : 0;
	return 0;
}

static int fake_query(uint64_t stream)
{
	const struct fake_stream *s = (struct fake_stream *)(uintptr_t)stream;
	bool busy;

	if (atomic_load(&fake.lost))
		return FAKE_LOST;
	pthread_mutex_lock(&fake.lock);
	busy = s->held;
	pthread_mutex_unlock(&fake.lock);
	return busy ? GPU_NOT_READY : 0;
}

static int fake_host_func(uint64_t stream, void (*fn)(void *arg), void *arg)
{
	int code = fake_call();

	if (!code)
		fake_push(stream, (struct fake_op){ .kind = FAKE_CALLBACK, .fn = fn, .arg = arg });
	return code;
}

static int fake_flush(void)
{
	atomic_fetch_add(&fake.nr_flushes, 1);
	return atomic_load(&fake.flush_code);
}

static int fake_caps(int32_t device, uint32_t *ret)
{
	(void)device;
	*ret = fake.caps;
	return 0;
}

static const char *fake_error_name(int code) { return code == FAKE_LOST ? "FAKE_LOST" : "FAKE_REFUSED"; }

static bool fake_sticky(int code) { return code == FAKE_LOST; }

__attribute__((unused)) static const struct gpu_rt fake_rt = {
	.vendor = GPU_CUDA,
	.name = "fake",
	.enter = fake_enter,
	.leave = fake_leave,
	.copy_in = fake_copy_in,
	.copy_out = fake_copy_out,
	.stream_alone = fake_alone,
	.stream_id = fake_stream_id,
	.stream_query = fake_query,
	.stream_capturing = fake_capturing,
	.stream_wait_event = fake_stream_wait_event,
	.event_new = fake_event_new,
	.event_free = fake_event_free,
	.event_record = fake_event_record,
	.event_query = fake_event_query,
	.host_alloc = fake_host_alloc,
	.host_free = fake_host_free,
	.words_alloc = fake_words_alloc,
	.words_free = fake_words_free,
	.memops = fake_memops,
	.host_func = fake_host_func,
	.flush_remote_writes = fake_flush,
	.caps = fake_caps,
	.error_name = fake_error_name,
	.sticky = fake_sticky,
};

__attribute__((unused)) static struct fake_stream *fake_stream_new(void)
{
	static _Atomic uint64_t ids;
	struct fake_stream *s = calloc(1, sizeof(*s));

	s->tail = &s->first;
	s->id = atomic_fetch_add(&ids, 1) + 1;
	return s;
}

__attribute__((unused)) static void fake_kernel(struct fake_stream *s, void (*fn)(void *arg), void *arg)
{
	fake_push((uint64_t)(uintptr_t)s, (struct fake_op){ .kind = FAKE_KERNEL, .fn = fn, .arg = arg });
}

/* Is all that was enqueued executed? Waits for it. */
__attribute__((unused)) static bool fake_sync(struct fake_stream *s, uint64_t timeout_ns)
{
	for (uint64_t waited = 0; waited < timeout_ns; waited += 50000) {
		bool held;

		pthread_mutex_lock(&fake.lock);
		held = s->held;
		pthread_mutex_unlock(&fake.lock);
		if (!held)
			return true;
		fake_rest(50000);
	}
	return false;
}

__attribute__((unused)) static void fake_stream_free(struct fake_stream *s)
{
	fake_sync(s, 10000000000);
	free(s);
}

/* A kernel that runs until it is let go. */
__attribute__((unused)) static void fake_gate(void *arg)
{
	while (!atomic_load_explicit((_Atomic bool *)arg, memory_order_acquire) && !atomic_load(&fake.lost))
		fake_rest(20000);
}

__attribute__((unused)) static void fake_start(uint32_t connections)
{
	memset(&fake, 0, sizeof(fake));
	pthread_mutex_init(&fake.lock, NULL);
	pthread_mutex_init(&fake.callbacks, NULL);
	pthread_cond_init(&fake.some, NULL);
	fake.ready_tail = &fake.ready;
	fake.caps = GPU_CAN_MEMOPS;
	fake.nr_connections = connections;
	for (uint32_t i = 0; i < connections; i++)
		pthread_create(&fake.connection[i], NULL, fake_connection, NULL);
}

__attribute__((unused)) static void fake_stop(void)
{
	pthread_mutex_lock(&fake.lock);
	fake.stop = true;
	pthread_cond_broadcast(&fake.some);
	pthread_mutex_unlock(&fake.lock);
	for (uint32_t i = 0; i < fake.nr_connections; i++)
		pthread_join(fake.connection[i], NULL);
}

#endif
