/* SPDX-License-Identifier: MIT */
/* What we use of the CUDA driver API (cuda.h is not needed to build): handles and device addresses as integers. */
#ifndef GPU_CUDA_API_H
#define GPU_CUDA_API_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
};

enum {
	CU_STREAM_NON_BLOCKING = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_MEMHOSTALLOC_PORTABLE = 1,
	CU_MEMHOSTALLOC_DEVICEMAP = 2,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
	CU_FLUSH_TARGET_CURRENT_CTX = 0,
	CU_FLUSH_TO_OWNER = 100,
};

/* CUmemorytype */
enum {
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,
};

/* CUdevice_attribute */
enum {
	CU_CAN_USE_STREAM_MEM_OPS_V1 = 92,
	CU_CAN_FLUSH_REMOTE_WRITES = 98,
	CU_GPU_DIRECT_RDMA_WRITES_ORDERING = 118, /* below CU_FLUSH_TO_OWNER: a flush is needed */
	CU_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
	CU_DMA_BUF_SUPPORTED = 124,
};

/* CUpointer_attribute */
enum {
	CU_POINTER_CONTEXT = 1,
	CU_POINTER_MEMORY_TYPE = 2,
	CU_POINTER_BUFFER_ID = 7,
	CU_POINTER_IS_MANAGED = 8,
	CU_POINTER_DEVICE_ORDINAL = 9,
	CU_POINTER_RANGE_START = 11,
	CU_POINTER_RANGE_SIZE = 12,
	CU_POINTER_MEMORY_BLOCK_ID = 20,
};

/* CUstreamBatchMemOpType, CUstreamWaitValue_flags */
enum {
	CU_MEM_OP_WAIT_VALUE_32 = 1,
	CU_MEM_OP_WRITE_VALUE_32 = 2,
	CU_WAIT_VALUE_GEQ = 0,
	CU_WAIT_VALUE_FLUSH = 1 << 30,
};

#define CU_MEM_OPS_MAX 255 /* in one call */

/* CUstreamBatchMemOpParams: a wait or a write. */
struct cu_mem_op {
	uint32_t operation;
	uint64_t address;
	union {
		uint32_t value;
		uint64_t value64;
	};
	uint32_t flags;
	uint64_t alias;
	uint64_t pad;
};

static_assert(sizeof(struct cu_mem_op) == 48, "six words");
static_assert(offsetof(struct cu_mem_op, address) == 8 && offsetof(struct cu_mem_op, value) == 16 &&
		      offsetof(struct cu_mem_op, flags) == 24 && offsetof(struct cu_mem_op, alias) == 32,
	      "as in cuda.h");

typedef void cu_host_fn(void *arg);

/* The version is that of the first CUDA whose form of the function this is. */
#define CUDA_FUNCTIONS(X)                                                                                  \
	X(cuDeviceGet, 2000, 0, (int *device, int ordinal))                                                \
	X(cuDeviceGetAttribute, 2000, 0, (int *value, int attribute, int device))                          \
	X(cuDevicePrimaryCtxRetain, 7000, 0, (uintptr_t *ctx, int device))                                 \
	X(cuDevicePrimaryCtxRelease, 11000, 0, (int device))                                               \
	X(cuDevicePrimaryCtxGetState, 7000, 0, (int device, unsigned *flags, int *active))                 \
	X(cuCtxGetCurrent, 4000, 0, (uintptr_t *ctx))                                                      \
	X(cuCtxPushCurrent, 4000, 0, (uintptr_t ctx))                                                      \
	X(cuCtxPopCurrent, 4000, 0, (uintptr_t *ctx))                                                      \
	X(cuCtxGetDevice, 2000, 0, (int *device))                                                          \
	X(cuMemcpyHtoDAsync, 3020, 0, (uint64_t dst, const void *src, size_t n, uintptr_t stream))         \
	X(cuMemcpyDtoHAsync, 3020, 0, (void *dst, uint64_t src, size_t n, uintptr_t stream))               \
	X(cuStreamCreate, 2000, 0, (uintptr_t *stream, unsigned flags))                                    \
	X(cuStreamDestroy, 4000, 0, (uintptr_t stream))                                                    \
	X(cuStreamGetId, 12000, 1, (uintptr_t stream, unsigned long long *id))                             \
	X(cuStreamGetCtx, 9020, 0, (uintptr_t stream, uintptr_t *ctx))                                     \
	X(cuStreamGetFlags, 5050, 0, (uintptr_t stream, unsigned *flags))                                  \
	X(cuStreamQuery, 2000, 0, (uintptr_t stream))                                                      \
	X(cuStreamSynchronize, 2000, 0, (uintptr_t stream))                                                \
	X(cuStreamIsCapturing, 10000, 0, (uintptr_t stream, int *status))                                  \
	X(cuThreadExchangeStreamCaptureMode, 10010, 0, (int *mode))                                        \
	X(cuStreamWaitEvent, 3020, 0, (uintptr_t stream, uintptr_t event, unsigned flags))                 \
	X(cuEventCreate, 2000, 0, (uintptr_t *event, unsigned flags))                                      \
	X(cuEventDestroy, 4000, 0, (uintptr_t event))                                                      \
	X(cuEventRecord, 2000, 0, (uintptr_t event, uintptr_t stream))                                     \
	X(cuEventQuery, 2000, 0, (uintptr_t event))                                                        \
	X(cuMemHostAlloc, 2020, 0, (void **host, size_t n, unsigned flags))                                \
	X(cuMemFreeHost, 2000, 0, (void *host))                                                            \
	X(cuMemHostGetDevicePointer, 3020, 0, (uint64_t *dev, void *host, unsigned flags))                 \
	X(cuStreamBatchMemOp, 11070, 1, (uintptr_t stream, unsigned n, struct cu_mem_op *, unsigned))      \
	X(cuStreamWaitValue32, 11070, 1, (uintptr_t stream, uint64_t addr, uint32_t val, unsigned flags))  \
	X(cuStreamWriteValue32, 11070, 1, (uintptr_t stream, uint64_t addr, uint32_t val, unsigned flags)) \
	X(cuLaunchHostFunc, 10000, 0, (uintptr_t stream, cu_host_fn *fn, void *arg))                       \
	X(cuPointerGetAttribute, 4000, 0, (void *value, int attribute, uint64_t addr))                     \
	X(cuPointerGetAttributes, 7000, 0,                                                                 \
	  (unsigned n, const int *attributes, void **values, uint64_t addr))                               \
	X(cuMemGetAddressRange, 3020, 0, (uint64_t *base, size_t *n, uint64_t addr))                       \
	X(cuMemGetHandleForAddressRange, 11070, 1,                                                         \
	  (int *fd, uint64_t addr, size_t n, int type, unsigned long long))                                \
	X(cuMemAlloc, 3020, 0, (uint64_t *addr, size_t n))                                                 \
	X(cuMemFree, 3020, 0, (uint64_t addr))                                                             \
	X(cuFlushGPUDirectRDMAWrites, 11030, 1, (int target, int scope))                                   \
	X(cuGetErrorName, 6000, 0, (int code, const char **name))

#endif
