/* SPDX-License-Identifier: MIT */
/* Which runtimes are loaded: their entry points come as addresses, once. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "gpu/backend.h"

static const struct gpu_backend *const backends[GPU_VENDORS] = {
	[GPU_CUDA] = &gpu_cuda,
	[GPU_HIP] = &gpu_hip,
};

static _Atomic(const struct gpu_rt *) loaded[GPU_VENDORS];

static const struct gpu_backend *backend(uint32_t vendor)
{
	return vendor < GPU_VENDORS ? backends[vendor] : NULL;
}

const struct gpu_rt *gpu_find(uint32_t vendor)
{
	/* Acquire: the functions' addresses are written before the table is shown. */
	return vendor < GPU_VENDORS ? atomic_load_explicit(&loaded[vendor], memory_order_acquire) : NULL;
}

const struct gpu_symbol *gpu_symbol(uint32_t vendor, uint32_t i)
{
	const struct gpu_backend *b = backend(vendor);

	return b && i < b->nr_symbols ? &b->symbols[i] : NULL;
}

static int fill(const struct gpu_backend *b, const uint64_t *addrs, const char **ret_missing)
{
	for (uint32_t i = 0; i < b->nr_symbols; i++)
		if (!addrs[i] && !b->symbols[i].optional) {
			*ret_missing = b->symbols[i].name;
			return -ENOSYS;
		}
	for (uint32_t i = 0; i < b->nr_symbols; i++)
		b->slots[i] = (uintptr_t)addrs[i];
	return 0;
}

int gpu_load(uint32_t vendor, const uint64_t *addrs, uint32_t n, const char **ret_missing)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct gpu_backend *b = backend(vendor);
	int rc = 0;

	if (!b || n != b->nr_symbols)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	if (!gpu_find(vendor)) {
		rc = fill(b, addrs, ret_missing);
		if (!rc)
			atomic_store_explicit(&loaded[vendor], b->rt, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* HIP gave its errors the numbers of CUDA's. */
int gpu_errno(const struct gpu_rt *rt, int code)
{
	(void)rt;
	switch (code) {
	case 0:
		return 0;
	case 1: /* INVALID_VALUE */
	case 400: /* INVALID_HANDLE */
		return -EINVAL;
	case 2: /* OUT_OF_MEMORY */
		return -ENOMEM;
	case 3: /* NOT_INITIALIZED */
	case 4: /* DEINITIALIZED */
	case 46: /* DEVICE_UNAVAILABLE */
	case 100: /* NO_DEVICE */
	case 101: /* INVALID_DEVICE */
	case 201: /* INVALID_CONTEXT */
	case 709: /* CONTEXT_IS_DESTROYED */
		return -ENODEV;
	case 801: /* NOT_SUPPORTED */
		return -EOPNOTSUPP;
	default:
		/* 900..908: not while a stream is captured into a graph. */
		return code >= 900 && code <= 908 ? -EOPNOTSUPP : -EIO;
	}
}
