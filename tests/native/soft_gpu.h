/* SPDX-License-Identifier: MIT */
/* The software GPU (tests/soft_gpu), loaded as Python loads a driver: by the address of each of its functions. */
#ifndef TESTS_SOFT_GPU_H
#define TESTS_SOFT_GPU_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu.h"

struct soft {
	uint32_t vendor;
	void *lib;
	const struct gpu_rt *rt;
	/* soft_gpu_*: what they do stands in control.c. */
	void (*reset)(void);
	int (*connections)(int n);
	void (*missing)(uint32_t bits);
	void (*lose)(int device, int code);
	void (*fail)(const char *function, uint32_t skip, uint32_t count, int code, int sticky);
	int (*kernel)(uint64_t stream, uint64_t ns);
	void (*end_kernels)(uint64_t n);
	uint64_t (*calls)(const char *function);
	uint64_t (*contexts)(int device);
	uint64_t (*allocations)(unsigned kinds);
	uint64_t (*in_flight)(void);
	int (*peek)(uint64_t addr, void *host, uint64_t nbytes, int write);
};

static inline void *soft_symbol(void *lib, const char *name)
{
	void *found = dlsym(lib, name);

	if (!found) {
		fprintf(stderr, "%s: %s\n", name, dlerror());
		exit(1);
	}
	return found;
}

/* As cuGetProcAddress and hipGetProcAddress answer: 0 where it is not there. */
static inline uint64_t soft_address(const struct soft *s, const struct gpu_symbol *symbol)
{
	static int (*ask[GPU_VENDORS])(const char *, void **, int, uint64_t, int *);
	void *found = NULL;
	int status;

	*(void **)&ask[s->vendor] =
		soft_symbol(s->lib, s->vendor == GPU_CUDA ? "cuGetProcAddress_v2" : "hipGetProcAddress");
	return ask[s->vendor](symbol->name, &found, (int)symbol->version, 0, &status) ? 0 : (uintptr_t)found;
}

/* The driver is initialised, and the table of the vendor loaded. @give: the address of each symbol that it is to have. */
static inline struct soft soft_open_with(uint32_t vendor, uint64_t (*give)(const struct soft *s,
									   const struct gpu_symbol *symbol))
{
	struct soft s = { .vendor = vendor,
			  .lib = dlopen(vendor == GPU_CUDA ? SOFT_CUDA : SOFT_HIP, RTLD_NOW | RTLD_LOCAL) };
	const struct gpu_symbol *symbol;
	const char *missing = NULL;
	uint64_t addrs[128];
	uint32_t n = 0;
	int (*init)(unsigned);

	if (!s.lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&init = soft_symbol(s.lib, vendor == GPU_CUDA ? "cuInit" : "hipInit");
	init(0);
	for (; (symbol = gpu_symbol(vendor, n)); n++)
		addrs[n] = give(&s, symbol);
	if (gpu_load(vendor, addrs, n, &missing)) {
		fprintf(stderr, "it lacks %s\n", missing);
		exit(1);
	}
	s.rt = gpu_find(vendor);
#define SOFT_BIND(name) *(void **)&s.name = soft_symbol(s.lib, "soft_gpu_" #name)
	SOFT_BIND(reset);
	SOFT_BIND(connections);
	SOFT_BIND(missing);
	SOFT_BIND(lose);
	SOFT_BIND(fail);
	SOFT_BIND(kernel);
	SOFT_BIND(end_kernels);
	SOFT_BIND(calls);
	SOFT_BIND(contexts);
	SOFT_BIND(allocations);
	SOFT_BIND(in_flight);
	SOFT_BIND(peek);
#undef SOFT_BIND
	return s;
}

static inline struct soft soft_open(uint32_t vendor) { return soft_open_with(vendor, soft_address); }

#endif
