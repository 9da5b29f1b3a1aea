/* SPDX-License-Identifier: MIT */
/* GPU runtimes: what of them Python needs C to do. Also read by cffi. */
#ifndef UGDS_GPU_H
#define UGDS_GPU_H

#include "include/ugds.h"

#define UGDS_GPU_CUDA 1
#define UGDS_GPU_HIP 2

#define UGDS_GPU_MEM_NONE 0 /* the runtime does not know it: plain host memory */
#define UGDS_GPU_MEM_DEVICE 1
#define UGDS_GPU_MEM_HOST 2 /* pinned by the runtime */
#define UGDS_GPU_MEM_MANAGED 3

#define UGDS_GPU_CAN_MEMOPS 0x1 /* a stream can wait for a word */
#define UGDS_GPU_CAN_DMABUF 0x2
#define UGDS_GPU_HAS_FLUSH 0x10 /* a call can */
#define UGDS_GPU_CAN_FLUSH 0x4 /* a wait can flush remote writes */
#define UGDS_GPU_NEEDS_FLUSH 0x8 /* what a peer wrote is not seen by itself */

struct ugds_gpu_pointer {
	uint32_t vendor;
	int32_t device;
	uint64_t ctx; /* CUDA: 0 where no context is current or active */
	uint32_t kind; /* UGDS_GPU_MEM_* */
	uint32_t reserved;
	uint64_t base; /* of the allocation that it lies in */
	uint64_t nbytes;
	uint64_t buffer_id; /* another one for each allocation, also at the same address */
};

/* The entry points of a runtime that ugds_gpu_load() takes, in its order; NULL: no more. @ret_version: as
 * cuGetProcAddress wants it. */
const char *ugds_gpu_symbol(uint32_t vendor, uint32_t i, uint32_t *ret_version, uint32_t *ret_optional);
/* @addrs: one for each symbol, 0 where it is not there. -ENOSYS: a needed one is not, named in @err. Once per process
 * and vendor; again is no error. */
int ugds_gpu_load(uint32_t vendor, const uint64_t *addrs, uint32_t n, struct ugds_error *err);

/* 0 or a negative errno (-ENXIO: not loaded); *@ret_code: the runtime's own. All keep the caller's current device. */
int ugds_gpu_pointer(uint32_t vendor, uint64_t addr, struct ugds_gpu_pointer *ret, int *ret_code);
/* A dma-buf (CLOEXEC) of a range, whose bounds the runtime may want aligned. @flags: the runtime's own. */
int ugds_gpu_export(const struct ugds_gpu_pointer *of, uint64_t addr, uint64_t nbytes, uint64_t flags,
		    int *ret_fd, int *ret_code);
/* In the device's primary context, which is made if there is none. */
int ugds_gpu_alloc(uint32_t vendor, int32_t device, uint64_t nbytes, struct ugds_gpu_pointer *ret,
		   int *ret_code);
int ugds_gpu_free(const struct ugds_gpu_pointer *mem, int *ret_code);
int ugds_gpu_caps(uint32_t vendor, int32_t device, uint32_t *ret, int *ret_code);
/* Copies that are done when they return; the host memory need not be pinned. */
int ugds_gpu_copy_in(const struct ugds_gpu_pointer *of, uint64_t dst, const void *host, uint64_t nbytes,
		     int *ret_code);
int ugds_gpu_copy_out(const struct ugds_gpu_pointer *of, void *host, uint64_t src, uint64_t nbytes,
		      int *ret_code);
/* Of a stream handle, as the calling thread sees it: the context that it belongs to (default streams: the current one). */
int ugds_gpu_stream_place(uint32_t vendor, uint64_t stream, int32_t *ret_device, uint64_t *ret_ctx,
			  int *ret_code);
/* 1: the stream is captured into a graph. */
int ugds_gpu_stream_capturing(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t stream, int *ret_code);
/* A new event behind all that is queued on the stream (of the thread that calls, for its default stream). */
int ugds_gpu_event_record(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t stream, uint64_t *ret_event,
			  int *ret_code);
/* 1: reached; 0: not yet; a negative errno: what was before it failed. */
int ugds_gpu_event_query(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event, int *ret_code);
int ugds_gpu_event_free(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event, int *ret_code);
int ugds_gpu_stream_wait_event(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t stream, uint64_t event,
			       int *ret_code);
/* Pinned host memory that the device can address too, zeroed. */
int ugds_gpu_host_alloc(uint32_t vendor, int32_t device, uint64_t nbytes, void **ret, uint64_t *ret_dev,
			int *ret_code);
int ugds_gpu_host_free(uint32_t vendor, int32_t device, void *host, int *ret_code);
int ugds_gpu_error_sticky(uint32_t vendor, int code);
const char *ugds_gpu_error_name(uint32_t vendor, int code); /* "" where not loaded */

#endif
