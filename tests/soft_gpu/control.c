/* SPDX-License-Identifier: MIT */
/* What tests ask of the software GPU, besides what they ask of a GPU. control.py is its Python. */
#include <stdlib.h>
#include <string.h>

#include "soft.h"

#define PINNED (1ull << 30)

struct soft_counters soft_counters;
struct soft_controls soft_controls;

static void defaults(void)
{
	const char *n = getenv(soft_vendor.connections_env);
	int connections = n ? atoi(n) : 8;

	soft_connections = connections < 1		    ? 1
			   : connections > SOFT_CONNECTIONS ? SOFT_CONNECTIONS
							    : connections;
	soft_controls = (struct soft_controls){ .pinned_limit = PINNED };
}

__attribute__((constructor)) static void begin(void)
{
	defaults();
	soft_memory_reset();
}

/* As if the process had just started. What is in flight ends unexecuted. */
SOFT_EXPORT void soft_gpu_reset(void)
{
	pthread_mutex_lock(&soft_lock);
	soft_channels_stop();
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_wrlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	soft_events_reset();
	soft_streams_reset();
	soft_memory_reset();
	soft_devices_reset();
	soft_fault_clear();
	memset(&soft_counters, 0, sizeof(soft_counters));
	defaults();
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_unlock(&soft_memory);
	void soft_gpu_calls_clear(void);
	soft_gpu_calls_clear();
}

SOFT_EXPORT void soft_gpu_counters(struct soft_counters *ret)
{
	SOFT_LOCK();

	*ret = soft_counters;
}

SOFT_EXPORT void soft_gpu_counters_clear(void)
{
	SOFT_LOCK();

	memset(&soft_counters, 0, sizeof(soft_counters));
}

/* How many there are; refused while work is in flight. */
SOFT_EXPORT int soft_gpu_connections(int n)
{
	uint64_t soft_gpu_in_flight(void);

	if (n < 1 || n > SOFT_CONNECTIONS || soft_gpu_in_flight())
		return SOFT_INVALID_VALUE;
	SOFT_LOCK();
	soft_connections = n;
	return SOFT_OK;
}

SOFT_EXPORT void soft_gpu_devices(int n)
{
	SOFT_LOCK();

	soft_nr_devices = n < 0 ? 0 : n > SOFT_DEVICES ? SOFT_DEVICES : n;
}

SOFT_EXPORT void soft_gpu_memory(int device, uint64_t nbytes)
{
	SOFT_LOCK();

	soft_memory_total[device] = nbytes;
}

SOFT_EXPORT void soft_gpu_pinned_limit(uint64_t nbytes)
{
	SOFT_LOCK();

	soft_controls.pinned_limit = nbytes;
}

SOFT_EXPORT void soft_gpu_missing(uint32_t bits)
{
	SOFT_LOCK();

	soft_controls.missing = bits;
}

SOFT_EXPORT void soft_gpu_copy_time(uint64_t ns, uint64_t ns_per_mib)
{
	SOFT_LOCK();

	soft_controls.copy_ns = ns;
	soft_controls.copy_ns_per_mib = ns_per_mib;
}

/* Copies do not start, but for @ticks of them, until it is said again with @hold 0. */
SOFT_EXPORT void soft_gpu_hold_copies(int hold, uint64_t ticks)
{
	SOFT_LOCK();

	soft_controls.hold_copies = hold;
	soft_controls.ticks = ticks;
	pthread_cond_broadcast(&soft_progress);
}

/* A kernel on a stream: it takes @ns, or until soft_gpu_end_kernels(). */
SOFT_EXPORT int soft_gpu_kernel(uint64_t stream, uint64_t ns)
{
	SOFT_LOCK();
	struct soft_stream *s;
	int code = soft_stream_find((uintptr_t)stream, &s);

	return code ? code : soft_enqueue(s, (struct soft_op){ .kind = SOFT_KERNEL, .nbytes = ns }, NULL);
}

SOFT_EXPORT void soft_gpu_end_kernels(uint64_t n)
{
	SOFT_LOCK();

	soft_controls.kernels += n;
	pthread_cond_broadcast(&soft_progress);
}

SOFT_EXPORT void soft_gpu_lose(int device, int code)
{
	SOFT_LOCK();

	soft_lose(device, code);
}

SOFT_EXPORT uint64_t soft_gpu_contexts(int device)
{
	SOFT_LOCK();

	return soft_contexts_made(device);
}

SOFT_EXPORT uint64_t soft_gpu_used(int device)
{
	SOFT_LOCK();

	return soft_memory_used(device);
}

/* What the GPU sees at an address, read or written behind every stream's back. */
SOFT_EXPORT int soft_gpu_peek(uint64_t addr, void *host, uint64_t nbytes, int write)
{
	int code = SOFT_INVALID_VALUE;
	void *at;

	pthread_rwlock_rdlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	at = soft_reach(addr, nbytes);
	if (at) {
		memcpy(write ? at : host, write ? host : at, nbytes);
		code = SOFT_OK;
	}
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_unlock(&soft_memory);
	return code;
}
