/* SPDX-License-Identifier: MIT */
/* A vendor's adapter, as the loader sees it. */
#ifndef GPU_BACKEND_H
#define GPU_BACKEND_H

#include "gpu/gpu.h"

struct gpu_backend {
	const struct gpu_rt *rt;
	const struct gpu_symbol *symbols;
	uint32_t nr_symbols;
	uintptr_t *slots; /* the functions' addresses, in the order of the symbols */
};

extern const struct gpu_backend gpu_cuda, gpu_hip;

/* Of a list X(name, version, optional, (arguments)): the table of symbols, and the functions by name. */
#define GPU_SYMBOL(name, version, optional, ...) { #name, version, optional },
#define GPU_FUNCTION(name, version, optional, ...) int(*name) __VA_ARGS__;

#endif
