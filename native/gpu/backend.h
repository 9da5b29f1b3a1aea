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

/* The table of an adapter, whose functions have the names of their entries. */
#define GPU_CALLS                                                                                           \
	.enter = enter, .leave = leave, .copy_in = copy_in, .copy_out = copy_out, .stream_new = stream_new, \
	.stream_free = stream_free, .stream_place = stream_place, .stream_id = stream_id,                   \
	.stream_alone = stream_alone, .stream_query = stream_query, .stream_sync = stream_sync,             \
	.stream_capturing = stream_capturing, .stream_wait_event = stream_wait_event,                       \
	.event_new = event_new, .event_free = event_free, .event_record = event_record,                     \
	.event_query = event_query, .host_alloc = host_alloc, .host_free = host_free,                       \
	.words_alloc = words_alloc, .words_free = words_free, .memops = memops, .host_func = host_func,     \
	.pointer = pointer, .export_range = export_range, .alloc = alloc, .free = mem_free,                 \
	.flush_remote_writes = flush_remote_writes, .device_place = device_place, .caps = caps,             \
	.error_name = error_name, .sticky = sticky

#endif
