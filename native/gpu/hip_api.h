/* SPDX-License-Identifier: MIT */
/* What we use of the HIP runtime API of ROCm 6 and 7: handles and device addresses as integers. */
#ifndef GPU_HIP_API_H
#define GPU_HIP_API_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HIP_SUCCESS = 0,
	HIP_ERROR_INVALID_VALUE = 1,
	HIP_ERROR_NOT_READY = 600,
	HIP_ERROR_NOT_SUPPORTED = 801,
	HIP_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
};

enum {
	HIP_STREAM_NON_BLOCKING = 1,
	HIP_EVENT_DISABLE_TIMING = 2,
	HIP_HOST_MALLOC_PORTABLE = 1,
	HIP_HOST_MALLOC_MAPPED = 2,
	HIP_MALLOC_SIGNAL_MEMORY = 2,
	HIP_STREAM_CAPTURE_MODE_RELAXED = 2,
	HIP_WAIT_VALUE_GTE = 0,
	HIP_MEM_RANGE_DMA_BUF_FD = 1,
	HIP_POINTER_BUFFER_ID = 7, /* hipPointer_attribute */
};

/* hipMemoryType: the numbers of ROCm 6 and 7; ROCm 5 had others */
enum {
	HIP_MEMORY_UNREGISTERED = 0,
	HIP_MEMORY_HOST = 1,
	HIP_MEMORY_DEVICE = 2,
	HIP_MEMORY_MANAGED = 3,
};

/* hipDeviceAttribute_t */
enum {
	HIP_DMA_BUF_SUPPORTED = 93,
	HIP_HDP_MEM_FLUSH = 10005, /* answers the address of a register */
	HIP_CAN_USE_STREAM_WAIT_VALUE = 10013,
};

#define HIP_SIGNAL_BYTES 8 /* an allocation of signal memory is exactly one such cell */

struct hip_pointer_attribute { /* hipPointerAttribute_t of ROCm 6 and 7 */
	int32_t type;
	int32_t device;
	void *device_pointer;
	void *host_pointer;
	int32_t managed;
	uint32_t allocation_flags;
};

static_assert(sizeof(struct hip_pointer_attribute) == 32 &&
		      offsetof(struct hip_pointer_attribute, device_pointer) == 8 &&
		      offsetof(struct hip_pointer_attribute, managed) == 24,
	      "as in hip_runtime_api.h");

typedef void hip_host_fn(void *arg);

/* The version is that of the ROCm whose form of the function this is: hundreds are the major number. */
#define HIP_FUNCTIONS(X)                                                                                  \
	X(hipGetDevice, 600, 0, (int *device))                                                            \
	X(hipSetDevice, 600, 0, (int device))                                                             \
	X(hipDeviceGetAttribute, 600, 0, (int *value, int attribute, int device))                         \
	X(hipMemcpyHtoDAsync, 600, 0, (uint64_t dst, const void *src, size_t n, uintptr_t stream))        \
	X(hipMemcpyDtoHAsync, 600, 0, (void *dst, uint64_t src, size_t n, uintptr_t stream))              \
	X(hipStreamCreateWithFlags, 600, 0, (uintptr_t *stream, unsigned flags))                          \
	X(hipStreamDestroy, 600, 0, (uintptr_t stream))                                                   \
	X(hipStreamGetDevice, 600, 0, (uintptr_t stream, int *device))                                    \
	X(hipStreamGetId, 700, 1, (uintptr_t stream, unsigned long long *id))                             \
	X(hipStreamGetFlags, 600, 0, (uintptr_t stream, unsigned *flags))                                 \
	X(hipStreamQuery, 600, 0, (uintptr_t stream))                                                     \
	X(hipStreamSynchronize, 600, 0, (uintptr_t stream))                                               \
	X(hipStreamIsCapturing, 600, 0, (uintptr_t stream, int *status))                                  \
	X(hipThreadExchangeStreamCaptureMode, 600, 0, (int *mode))                                        \
	X(hipStreamWaitEvent, 600, 0, (uintptr_t stream, uintptr_t event, unsigned flags))                \
	X(hipEventCreateWithFlags, 600, 0, (uintptr_t *event, unsigned flags))                            \
	X(hipEventDestroy, 600, 0, (uintptr_t event))                                                     \
	X(hipEventRecord, 600, 0, (uintptr_t event, uintptr_t stream))                                    \
	X(hipEventQuery, 600, 0, (uintptr_t event))                                                       \
	X(hipHostMalloc, 600, 0, (void **host, size_t n, unsigned flags))                                 \
	X(hipHostFree, 600, 0, (void *host))                                                              \
	X(hipHostGetDevicePointer, 600, 0, (uint64_t *dev, void *host, unsigned flags))                   \
	X(hipExtMallocWithFlags, 600, 0, (void **ptr, size_t n, unsigned flags))                          \
	X(hipStreamWaitValue32, 600, 0,                                                                   \
	  (uintptr_t stream, uint64_t addr, uint32_t val, unsigned flags, uint32_t mask))                 \
	X(hipStreamWriteValue32, 600, 0, (uintptr_t stream, uint64_t addr, uint32_t val, unsigned flags)) \
	X(hipLaunchHostFunc, 600, 0, (uintptr_t stream, hip_host_fn *fn, void *arg))                      \
	X(hipPointerGetAttributes, 600, 0, (struct hip_pointer_attribute * ret, uint64_t addr))           \
	X(hipPointerGetAttribute, 600, 1, (void *value, int attribute, uint64_t addr))                    \
	X(hipMemGetAddressRange, 600, 0, (uint64_t *base, size_t *n, uint64_t addr))                      \
	X(hipMemGetHandleForAddressRange, 700, 1,                                                         \
	  (int *fd, uint64_t addr, size_t n, int type, unsigned long long))                               \
	X(hipMalloc, 600, 0, (uint64_t *addr, size_t n))                                                  \
	X(hipFree, 600, 0, (uint64_t addr))                                                               \
	X(hipGetLastError, 600, 0, (void))                                                                \
	X(hipGetErrorName, 600, 0, (int code))                                                            \
	X(hsa_amd_portable_export_dmabuf_v2, 600, 1,                                                      \
	  (uint64_t addr, size_t n, int *fd, uint64_t *offset, uint64_t flags))

#endif
