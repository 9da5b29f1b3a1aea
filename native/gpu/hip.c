/* SPDX-License-Identifier: MIT */
/* The table over the HIP runtime API. */
#include <unistd.h>

#include "gpu/backend.h"
#include "gpu/hip_api.h"
#include "support/util.h"

static struct {
	HIP_FUNCTIONS(GPU_FUNCTION)
} fn;

/*
 * HIP keeps a thread's last error, and frameworks look at it after their own launches: an error that is ours, and
 * handled, must not be found there.
 */
static int clean(int code)
{
	if (code)
		fn.hipGetLastError();
	return code;
}

static int query(int code)
{
	clean(code);
	return code == HIP_ERROR_NOT_READY ? GPU_NOT_READY : code;
}

/* ---- devices ---- */

static int device_place(int32_t device, bool make, struct gpu_place *ret)
{
	(void)make;
	*ret = (struct gpu_place){ GPU_HIP, device, 0 };
	return 0;
}

static int enter(const struct gpu_place *p, struct gpu_before *b)
{
	int code;

	/* While another thread captures in global mode, an allocation or a query of an event in a thread that is not
	 * relaxed would break that capture. */
	b->capture_mode = HIP_STREAM_CAPTURE_MODE_RELAXED;
	code = clean(fn.hipThreadExchangeStreamCaptureMode(&b->capture_mode));
	if (code)
		return code;
	b->pushed = false;
	code = fn.hipGetDevice(&b->device);
	if (!code && b->device != p->device) {
		code = fn.hipSetDevice(p->device);
		b->pushed = !code;
	}
	if (code)
		fn.hipThreadExchangeStreamCaptureMode(&b->capture_mode);
	return clean(code);
}

static void leave(const struct gpu_place *p, const struct gpu_before *b)
{
	int mode = b->capture_mode;

	(void)p;
	if (b->pushed)
		clean(fn.hipSetDevice(b->device));
	clean(fn.hipThreadExchangeStreamCaptureMode(&mode));
}

/* ---- copies ---- */

static int copy_in(uint64_t dst, const void *host, size_t nbytes, uint64_t stream)
{
	return clean(fn.hipMemcpyHtoDAsync(dst, host, nbytes, (uintptr_t)stream));
}

static int copy_out(void *host, uint64_t src, size_t nbytes, uint64_t stream)
{
	return clean(fn.hipMemcpyDtoHAsync(host, src, nbytes, (uintptr_t)stream));
}

/* ---- streams and events ---- */

static int stream_new(uint64_t *ret)
{
	uintptr_t s = 0;
	int code = clean(fn.hipStreamCreateWithFlags(&s, HIP_STREAM_NON_BLOCKING));

	*ret = s;
	return code;
}

static int stream_free(uint64_t stream) { return clean(fn.hipStreamDestroy((uintptr_t)stream)); }

static int stream_place(uint64_t stream, struct gpu_place *ret)
{
	*ret = (struct gpu_place){ GPU_HIP, 0, 0 };
	return clean(stream ? fn.hipStreamGetDevice((uintptr_t)stream, &ret->device)
			    : fn.hipGetDevice(&ret->device));
}

static int stream_id(uint64_t stream, uint64_t *ret)
{
	unsigned long long id = 0;
	int code = fn.hipStreamGetId ? clean(fn.hipStreamGetId((uintptr_t)stream, &id)) : 0;

	*ret = id;
	return code;
}

static int stream_alone(uint64_t stream, bool *ret)
{
	unsigned flags = 0;
	int code = clean(fn.hipStreamGetFlags((uintptr_t)stream, &flags));

	*ret = flags & HIP_STREAM_NON_BLOCKING;
	return code;
}

static int stream_query(uint64_t stream) { return query(fn.hipStreamQuery((uintptr_t)stream)); }
static int stream_sync(uint64_t stream) { return clean(fn.hipStreamSynchronize((uintptr_t)stream)); }

static int stream_capturing(uint64_t stream, bool *ret)
{
	int status = 0, code = clean(fn.hipStreamIsCapturing((uintptr_t)stream, &status));

	/* The legacy default stream, while a stream that it waits for is captured. */
	if (code == HIP_ERROR_STREAM_CAPTURE_IMPLICIT) {
		*ret = true;
		return 0;
	}
	*ret = status;
	return code;
}

static int stream_wait_event(uint64_t stream, uint64_t event)
{
	return clean(fn.hipStreamWaitEvent((uintptr_t)stream, (uintptr_t)event, 0));
}

static int event_new(uint64_t *ret)
{
	uintptr_t e = 0;
	int code = clean(fn.hipEventCreateWithFlags(&e, HIP_EVENT_DISABLE_TIMING));

	*ret = e;
	return code;
}

static int event_free(uint64_t event) { return clean(fn.hipEventDestroy((uintptr_t)event)); }

static int event_record(uint64_t event, uint64_t stream)
{
	return clean(fn.hipEventRecord((uintptr_t)event, (uintptr_t)stream));
}

static int event_query(uint64_t event) { return query(fn.hipEventQuery((uintptr_t)event)); }

static int host_func(uint64_t stream, void (*f)(void *arg), void *arg)
{
	return clean(fn.hipLaunchHostFunc((uintptr_t)stream, f, arg));
}

static int memops(uint64_t stream, const struct gpu_memop *ops, uint32_t n)
{
	int code = 0;

	for (uint32_t i = 0; !code && i < n; i++)
		code = ops[i].wait ? fn.hipStreamWaitValue32((uintptr_t)stream, ops[i].addr, ops[i].val,
							     HIP_WAIT_VALUE_GTE, UINT32_MAX)
				   : fn.hipStreamWriteValue32((uintptr_t)stream, ops[i].addr, ops[i].val, 0);
	return clean(code);
}

/* ---- memory ---- */

static int host_alloc(size_t nbytes, void **ret, uint64_t *ret_dev)
{
	int code = clean(fn.hipHostMalloc(ret, nbytes, HIP_HOST_MALLOC_PORTABLE | HIP_HOST_MALLOC_MAPPED));

	if (code)
		return code;
	code = clean(fn.hipHostGetDevicePointer(ret_dev, *ret, 0));
	if (code)
		fn.hipHostFree(*ret);
	return code;
}

static int host_free(void *host) { return clean(fn.hipHostFree(host)); }

static int words_free(uint32_t n, const struct gpu_word *words)
{
	int code = 0;

	for (uint32_t i = 0; i < n; i++) {
		int rc = clean(fn.hipFree(words[i].dev));

		code = code ? code : rc;
	}
	return code;
}

static int words_alloc(uint32_t n, struct gpu_word *ret)
{
	for (uint32_t i = 0; i < n; i++) {
		void *cell;
		int code = clean(fn.hipExtMallocWithFlags(&cell, HIP_SIGNAL_BYTES, HIP_MALLOC_SIGNAL_MEMORY));

		if (code) {
			words_free(i, ret);
			return code;
		}
		*(uint64_t *)cell = 0;
		ret[i] = (struct gpu_word){ cell, (uintptr_t)cell };
	}
	return 0;
}

static int pointer(uint64_t addr, struct gpu_pointer *ret)
{
	struct hip_pointer_attribute at = { 0 };
	size_t nbytes = 0;
	uint64_t base = 0;
	int code = clean(fn.hipPointerGetAttributes(&at, addr));

	*ret = (struct gpu_pointer){ .place = { GPU_HIP, at.device, 0 } };
	if (code == HIP_ERROR_INVALID_VALUE || at.type == HIP_MEMORY_UNREGISTERED)
		return 0;
	if (code)
		return code;
	ret->kind = at.managed || at.type == HIP_MEMORY_MANAGED ? GPU_MEM_MANAGED
		    : at.type == HIP_MEMORY_HOST		? GPU_MEM_HOST
								: GPU_MEM_DEVICE;
	code = clean(fn.hipMemGetAddressRange(&base, &nbytes, addr));
	if (code)
		return code;
	ret->base = base;
	ret->nbytes = nbytes;
	if (fn.hipPointerGetAttribute)
		clean(fn.hipPointerGetAttribute(&ret->buffer_id, HIP_POINTER_BUFFER_ID, addr));
	return 0;
}

static int export_range(uint64_t addr, uint64_t nbytes, uint64_t flags, int *ret_fd)
{
	uint64_t offset = 0;

	if (fn.hipMemGetHandleForAddressRange)
		return clean(fn.hipMemGetHandleForAddressRange(ret_fd, addr, nbytes, HIP_MEM_RANGE_DMA_BUF_FD,
							       flags));
	if (!fn.hsa_amd_portable_export_dmabuf_v2)
		return HIP_ERROR_NOT_SUPPORTED;
	if (fn.hsa_amd_portable_export_dmabuf_v2(addr, nbytes, ret_fd, &offset, flags))
		return HIP_ERROR_INVALID_VALUE;
	if (offset) {
		/* It begins before the range, and nobody here is told where. */
		close(*ret_fd);
		return HIP_ERROR_NOT_SUPPORTED;
	}
	return 0;
}

static int alloc(uint64_t nbytes, uint64_t *ret) { return clean(fn.hipMalloc(ret, nbytes)); }
static int mem_free(uint64_t addr) { return clean(fn.hipFree(addr)); }

/* What a peer wrote may be held in the host data path until this register is written. */
static int flush_remote_writes(void)
{
	volatile uint32_t *reg = NULL; /* volatile: a device register */
	int device, code = fn.hipGetDevice(&device);

	if (!code)
		code = fn.hipDeviceGetAttribute((int *)(void *)&reg, HIP_HDP_MEM_FLUSH, device);
	if (!code && reg)
		*reg = 1;
	return clean(code);
}

/* ---- what a device can, and errors ---- */

static int caps(int32_t device, uint32_t *ret)
{
	int memops_ok = 0, dmabuf = 0, code;
	uint64_t reg = 0;

	*ret = 0;
	code = clean(fn.hipDeviceGetAttribute(&memops_ok, HIP_CAN_USE_STREAM_WAIT_VALUE, device));
	if (code)
		return code;
	if (memops_ok)
		*ret |= GPU_CAN_MEMOPS;
	/* ROCm 6 does not know the attribute: what it can is what it has the function for. */
	if (clean(fn.hipDeviceGetAttribute(&dmabuf, HIP_DMA_BUF_SUPPORTED, device)))
		dmabuf = 1;
	if (dmabuf && (fn.hipMemGetHandleForAddressRange || fn.hsa_amd_portable_export_dmabuf_v2))
		*ret |= GPU_CAN_DMABUF;
	if (!clean(fn.hipDeviceGetAttribute((int *)(void *)&reg, HIP_HDP_MEM_FLUSH, device)) && reg)
		*ret |= GPU_NEEDS_FLUSH | GPU_HAS_FLUSH;
	return 0;
}

static const char *error_name(int code)
{
	const char *name = ((const char *(*)(int))(uintptr_t)fn.hipGetErrorName)(code);

	return name ? name : "an unknown HIP error";
}

static bool sticky(int code)
{
	switch (code) {
	case 4: /* Deinitialized */
	case 214: /* ECCNotCorrectable */
	case 700: /* IllegalAddress */
	case 702: /* LaunchTimeOut */
	case 709: /* ContextIsDestroyed */
	case 710: /* Assert */
	case 719: /* LaunchFailure */
	case 999: /* Unknown */
	case 1052: /* RuntimeMemory */
	case 1053: /* RuntimeOther */
		return true;
	default:
		return false;
	}
}

static const struct gpu_rt hip_rt = {
	.vendor = GPU_HIP,
	.name = "HIP",
	GPU_CALLS,
};

static const struct gpu_symbol symbols[] = { HIP_FUNCTIONS(GPU_SYMBOL) };

const struct gpu_backend gpu_hip = { &hip_rt, symbols, ARRAY_SIZE(symbols), (uintptr_t *)(void *)&fn };

static_assert(sizeof(fn) == ARRAY_SIZE(symbols) * sizeof(uintptr_t), "a slot for each symbol");
