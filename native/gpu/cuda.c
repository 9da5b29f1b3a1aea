/* SPDX-License-Identifier: MIT */
/* The table over the CUDA driver API. */
#include <stdatomic.h>

#include "gpu/backend.h"
#include "gpu/cuda_api.h"
#include "support/util.h"

static struct {
	CUDA_FUNCTIONS(GPU_FUNCTION)
} fn;

static int not_ready(int code) { return code == CUDA_ERROR_NOT_READY ? GPU_NOT_READY : code; }

/* ---- contexts ---- */

#define KEPT_MAX 64

static int device_place(int32_t device, bool make, struct gpu_place *ret)
{
	static _Atomic bool kept[KEPT_MAX];
	int dev, active = 0, code;
	unsigned flags;
	uintptr_t ctx = 0;

	*ret = (struct gpu_place){ GPU_CUDA, device, 0 };
	code = fn.cuDeviceGet(&dev, device);
	if (!code)
		code = fn.cuDevicePrimaryCtxGetState(dev, &flags, &active);
	if (code || (!active && !make))
		return code;
	/* There is no other way to learn its handle. */
	code = fn.cuDevicePrimaryCtxRetain(&ctx, dev);
	if (code)
		return code;
	ret->ctx = ctx;
	/* Kept once; a reset of the device (it is not active then) took that back. */
	if (make && device < KEPT_MAX && (!atomic_exchange(&kept[device], true) || !active))
		return 0;
	return fn.cuDevicePrimaryCtxRelease(dev);
}

static int relax(int mode, int *ret_before)
{
	/* While another thread captures in global mode, an allocation or a query of an event in a thread that is not
	 * relaxed would break that capture. */
	*ret_before = mode;
	return fn.cuThreadExchangeStreamCaptureMode(ret_before);
}

static int enter(const struct gpu_place *p, struct gpu_before *b)
{
	struct gpu_place primary = *p;
	uintptr_t current;
	int code = relax(CU_STREAM_CAPTURE_MODE_RELAXED, &b->capture_mode);

	if (code)
		return code;
	b->pushed = false;
	if (!primary.ctx)
		code = device_place(p->device, false, &primary);
	if (!code && !primary.ctx)
		code = CUDA_ERROR_INVALID_CONTEXT;
	if (!code)
		code = fn.cuCtxGetCurrent(&current);
	if (!code && current != primary.ctx) {
		code = fn.cuCtxPushCurrent((uintptr_t)primary.ctx);
		b->pushed = !code;
	}
	if (code)
		fn.cuThreadExchangeStreamCaptureMode(&b->capture_mode);
	return code;
}

static void leave(const struct gpu_place *p, const struct gpu_before *b)
{
	int mode = b->capture_mode;
	uintptr_t ours;

	(void)p;
	if (b->pushed)
		fn.cuCtxPopCurrent(&ours);
	fn.cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- copies ---- */

static int copy_in(uint64_t dst, const void *host, size_t nbytes, uint64_t stream)
{
	return fn.cuMemcpyHtoDAsync(dst, host, nbytes, (uintptr_t)stream);
}

static int copy_out(void *host, uint64_t src, size_t nbytes, uint64_t stream)
{
	return fn.cuMemcpyDtoHAsync(host, src, nbytes, (uintptr_t)stream);
}

/* ---- streams and events ---- */

static int stream_new(uint64_t *ret)
{
	uintptr_t s = 0;
	int code = fn.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);

	*ret = s;
	return code;
}

static int stream_free(uint64_t stream) { return fn.cuStreamDestroy((uintptr_t)stream); }

static int stream_place(uint64_t stream, struct gpu_place *ret)
{
	struct gpu_before b;
	uintptr_t ctx = 0;
	int code = fn.cuStreamGetCtx((uintptr_t)stream, &ctx);

	*ret = (struct gpu_place){ GPU_CUDA, 0, ctx };
	if (!code)
		code = enter(ret, &b);
	if (code)
		return code;
	code = fn.cuCtxGetDevice(&ret->device);
	leave(ret, &b);
	return code;
}

static int stream_id(uint64_t stream, uint64_t *ret)
{
	unsigned long long id = 0;
	int code = fn.cuStreamGetId ? fn.cuStreamGetId((uintptr_t)stream, &id) : 0;

	*ret = id;
	return code;
}

static int stream_alone(uint64_t stream, bool *ret)
{
	unsigned flags = 0;
	int code = fn.cuStreamGetFlags((uintptr_t)stream, &flags);

	*ret = flags & CU_STREAM_NON_BLOCKING;
	return code;
}

static int stream_query(uint64_t stream) { return not_ready(fn.cuStreamQuery((uintptr_t)stream)); }
static int stream_sync(uint64_t stream) { return fn.cuStreamSynchronize((uintptr_t)stream); }

static int stream_capturing(uint64_t stream, bool *ret)
{
	int status = 0, code = fn.cuStreamIsCapturing((uintptr_t)stream, &status);

	/* The legacy default stream, while a stream that it waits for is captured. */
	if (code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
		*ret = true;
		return 0;
	}
	*ret = status;
	return code;
}

static int stream_wait_event(uint64_t stream, uint64_t event)
{
	return fn.cuStreamWaitEvent((uintptr_t)stream, (uintptr_t)event, 0);
}

static int event_new(uint64_t *ret)
{
	uintptr_t e = 0;
	int code = fn.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);

	*ret = e;
	return code;
}

static int event_free(uint64_t event) { return fn.cuEventDestroy((uintptr_t)event); }

static int event_record(uint64_t event, uint64_t stream)
{
	return fn.cuEventRecord((uintptr_t)event, (uintptr_t)stream);
}

static int event_query(uint64_t event) { return not_ready(fn.cuEventQuery((uintptr_t)event)); }

static int host_func(uint64_t stream, void (*f)(void *arg), void *arg)
{
	return fn.cuLaunchHostFunc((uintptr_t)stream, f, arg);
}

static int one_by_one(uintptr_t stream, const struct cu_mem_op *ops, uint32_t n)
{
	int code = 0;

	if (!fn.cuStreamWaitValue32 || !fn.cuStreamWriteValue32)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (uint32_t i = 0; !code && i < n; i++)
		code = ops[i].operation == CU_MEM_OP_WAIT_VALUE_32
			       ? fn.cuStreamWaitValue32(stream, ops[i].address, ops[i].value, ops[i].flags)
			       : fn.cuStreamWriteValue32(stream, ops[i].address, ops[i].value, ops[i].flags);
	return code;
}

static int memops(uint64_t stream, const struct gpu_memop *ops, uint32_t n)
{
	struct cu_mem_op cu[32];
	uint32_t count;
	int code = 0;

	static_assert(ARRAY_SIZE(cu) <= CU_MEM_OPS_MAX, "more than a call takes");
	for (; !code && n; n -= count, ops += count) {
		count = min_u32(n, ARRAY_SIZE(cu));
		for (uint32_t i = 0; i < count; i++)
			cu[i] = (struct cu_mem_op){
				.operation = ops[i].wait ? CU_MEM_OP_WAIT_VALUE_32 : CU_MEM_OP_WRITE_VALUE_32,
				.address = ops[i].addr,
				.value64 = ops[i].val,
				.flags = ops[i].wait && ops[i].flush ? CU_WAIT_VALUE_FLUSH | CU_WAIT_VALUE_GEQ
								     : 0,
			};
		code = fn.cuStreamBatchMemOp ? fn.cuStreamBatchMemOp((uintptr_t)stream, count, cu, 0)
					     : one_by_one((uintptr_t)stream, cu, count);
	}
	return code;
}

/* ---- memory ---- */

static int host_alloc(size_t nbytes, void **ret, uint64_t *ret_dev)
{
	int code = fn.cuMemHostAlloc(ret, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

	if (code)
		return code;
	code = fn.cuMemHostGetDevicePointer(ret_dev, *ret, 0);
	if (code)
		fn.cuMemFreeHost(*ret);
	return code;
}

static int host_free(void *host) { return fn.cuMemFreeHost(host); }

static int words_alloc(uint32_t n, struct gpu_word *ret)
{
	uint64_t dev;
	void *host;
	int code = host_alloc((size_t)n * CACHELINE, &host, &dev);

	if (code)
		return code;
	for (uint32_t i = 0; i < n; i++) {
		ret[i].host = (uint32_t *)((char *)host + (size_t)i * CACHELINE);
		ret[i].dev = dev + (uint64_t)i * CACHELINE;
		*ret[i].host = 0;
	}
	return 0;
}

static int words_free(uint32_t n, const struct gpu_word *words)
{
	return n ? fn.cuMemFreeHost(words[0].host) : 0;
}

/*
 * Of memory that is mapped (cuMemMap, cuMemAllocAsync) the buffer is the reserved address, which outlives what is
 * mapped there: what lies there now has an id of its own, where the driver knows of it (12.3).
 */
static uint64_t mapped_id(uint64_t addr)
{
	uint64_t block = 0;

	return fn.cuPointerGetAttribute(&block, CU_POINTER_MEMORY_BLOCK_ID, addr) ? 0 : block << 32;
}

static int pointer(uint64_t addr, struct gpu_pointer *ret)
{
	static const int attributes[] = { CU_POINTER_CONTEXT,	     CU_POINTER_MEMORY_TYPE,
					  CU_POINTER_BUFFER_ID,	     CU_POINTER_IS_MANAGED,
					  CU_POINTER_DEVICE_ORDINAL, CU_POINTER_RANGE_START,
					  CU_POINTER_RANGE_SIZE };
	uint64_t ctx = 0, id = 0, start = 0, size = 0, base = 0;
	uint32_t type = 0, managed = 0; /* of managed memory one byte is written, or four */
	int device = 0;
	void *values[] = { &ctx, &type, &id, &managed, &device, &start, &size };
	struct gpu_before b;
	size_t nbytes = 0;
	int code = fn.cuPointerGetAttributes(ARRAY_SIZE(attributes), attributes, values, addr);

	static_assert(ARRAY_SIZE(values) == ARRAY_SIZE(attributes), "one value for each");
	*ret = (struct gpu_pointer){ .place = { GPU_CUDA, device, ctx } };
	if (code || !type)
		return code;
	ret->kind = managed ? GPU_MEM_MANAGED : type == CU_MEMORYTYPE_HOST ? GPU_MEM_HOST : GPU_MEM_DEVICE;
	ret->buffer_id = ctx ? id : id ^ mapped_id(addr);
	ret->base = start;
	ret->nbytes = size;
	if (!ctx) {
		/* No context is its own: the device's primary one, if the process uses it. */
		code = device_place(device, false, &ret->place);
		if (code || !ret->place.ctx)
			return code;
	}
	/* The range above is of the reservation; what is mapped, and can be exported, is less. */
	code = enter(&ret->place, &b);
	if (code)
		return code;
	if (!fn.cuMemGetAddressRange(&base, &nbytes, addr)) {
		ret->base = base;
		ret->nbytes = nbytes;
	}
	leave(&ret->place, &b);
	return 0;
}

static int export_range(uint64_t addr, uint64_t nbytes, uint64_t flags, int *ret_fd)
{
	if (!fn.cuMemGetHandleForAddressRange)
		return CUDA_ERROR_NOT_SUPPORTED;
	return fn.cuMemGetHandleForAddressRange(ret_fd, addr, nbytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
						flags);
}

static int alloc(uint64_t nbytes, uint64_t *ret) { return fn.cuMemAlloc(ret, nbytes); }
static int mem_free(uint64_t addr) { return fn.cuMemFree(addr); }

static int flush_remote_writes(void)
{
	if (!fn.cuFlushGPUDirectRDMAWrites)
		return CUDA_ERROR_NOT_SUPPORTED;
	return fn.cuFlushGPUDirectRDMAWrites(CU_FLUSH_TARGET_CURRENT_CTX, CU_FLUSH_TO_OWNER);
}

/* ---- what a device can, and errors ---- */

static int caps(int32_t device, uint32_t *ret)
{
	int dev, flush = 0, ordering = 0, dmabuf = 0, words = 0, old_words = 0,
		 code = fn.cuDeviceGet(&dev, device);

	*ret = 0;
	if (code)
		return code;
	/* A driver that does not know an attribute lacks what it tells of. */
	fn.cuDeviceGetAttribute(&flush, CU_CAN_FLUSH_REMOTE_WRITES, dev);
	fn.cuDeviceGetAttribute(&ordering, CU_GPU_DIRECT_RDMA_WRITES_ORDERING, dev);
	fn.cuDeviceGetAttribute(&dmabuf, CU_DMA_BUF_SUPPORTED, dev);
	/* There is none for 32-bit words alone since they are always there: a device with neither has no words. */
	fn.cuDeviceGetAttribute(&words, CU_CAN_USE_64_BIT_STREAM_MEM_OPS, dev);
	fn.cuDeviceGetAttribute(&old_words, CU_CAN_USE_STREAM_MEM_OPS_V1, dev);
	if ((words || old_words) &&
	    (fn.cuStreamBatchMemOp || (fn.cuStreamWaitValue32 && fn.cuStreamWriteValue32)))
		*ret |= GPU_CAN_MEMOPS;
	if (dmabuf && fn.cuMemGetHandleForAddressRange)
		*ret |= GPU_CAN_DMABUF;
	if (flush)
		*ret |= GPU_CAN_FLUSH;
	if (ordering < CU_FLUSH_TO_OWNER)
		*ret |= GPU_NEEDS_FLUSH;
	if (fn.cuFlushGPUDirectRDMAWrites)
		*ret |= GPU_HAS_FLUSH;
	return 0;
}

static const char *error_name(int code)
{
	const char *name = NULL;

	return fn.cuGetErrorName(code, &name) || !name ? "an unknown CUDA error" : name;
}

static bool sticky(int code)
{
	switch (code) {
	case 4: /* DEINITIALIZED */
	case 214: /* ECC_UNCORRECTABLE */
	case 220: /* NVLINK_UNCORRECTABLE */
	case 226: /* CONTAINED */
	case 700: /* ILLEGAL_ADDRESS */
	case 702: /* LAUNCH_TIMEOUT */
	case 709: /* CONTEXT_IS_DESTROYED */
	case 710: /* ASSERT */
	case 714: /* HARDWARE_STACK_ERROR */
	case 715: /* ILLEGAL_INSTRUCTION */
	case 716: /* MISALIGNED_ADDRESS */
	case 717: /* INVALID_ADDRESS_SPACE */
	case 718: /* INVALID_PC */
	case 719: /* LAUNCH_FAILED */
	case 721: /* TENSOR_MEMORY_LEAK */
	case 806: /* MPS_RPC_FAILURE */
	case 810: /* MPS_CLIENT_TERMINATED */
	case 911: /* EXTERNAL_DEVICE */
	case 999: /* UNKNOWN */
		return true;
	default:
		return false;
	}
}

static const struct gpu_rt cuda_rt = {
	.vendor = GPU_CUDA,
	.name = "CUDA",
	GPU_CALLS,
};

static const struct gpu_symbol symbols[] = { CUDA_FUNCTIONS(GPU_SYMBOL) };

const struct gpu_backend gpu_cuda = { &cuda_rt, symbols, ARRAY_SIZE(symbols), (uintptr_t *)(void *)&fn };

static_assert(sizeof(fn) == ARRAY_SIZE(symbols) * sizeof(uintptr_t), "a slot for each symbol");
