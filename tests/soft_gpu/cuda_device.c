/* SPDX-License-Identifier: MIT */
/* The face of the CUDA driver API: devices and contexts. Handles and enumerations as integers. */
#include <stdio.h>
#include <string.h>

#include "face.h"
#include "names.h"

const struct soft_vendor soft_vendor = {
	.name = "CUDA",
	.connections_env = "CUDA_DEVICE_MAX_CONNECTIONS",
	.cyclic_waits = true,
	.alignment = 512,
};

int soft_answer(int code) { return code; }

SOFT_EXPORT int cuInit(unsigned flags)
{
	CALL();

	return flags ? SOFT_INVALID_VALUE : soft_init();
}

SOFT_EXPORT int cuDriverGetVersion(int *version)
{
	SOFT_CALL();
	*version = 13000;
	return SOFT_OK;
}

SOFT_EXPORT int cuGetErrorName(int code, const char **name)
{
	*name = soft_error_name(code, false);
	return *name ? SOFT_OK : SOFT_INVALID_VALUE;
}

SOFT_EXPORT int cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }

SOFT_EXPORT int cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags, int *status)
{
	static const char *const newest[] = { "_v4", "_v3", "_v2", "", NULL }, *const second[] = { "_v2",
												   NULL };
	bool old = !strcmp(symbol, "cuCtxCreate") && version < 12050;

	(void)flags;
	*fn = soft_symbol(symbol, old ? second : newest);
	if (soft_controls.missing & SOFT_NO_FLUSH_CALL && !strcmp(symbol, "cuFlushGPUDirectRDMAWrites"))
		*fn = NULL;
	if (status)
		*status = !*fn;
	return *fn ? SOFT_OK : SOFT_NOT_FOUND;
}

SOFT_EXPORT int cuDeviceGetCount(int *n)
{
	CALL();

	*n = soft_nr_devices;
	return soft_initialized ? SOFT_OK : SOFT_NOT_INITIALIZED;
}

SOFT_EXPORT int cuDeviceGet(int *device, int ordinal)
{
	CALL();

	*device = ordinal;
	return !soft_initialized	     ? SOFT_NOT_INITIALIZED
	       : soft_device_exists(ordinal) ? SOFT_OK
					     : SOFT_INVALID_DEVICE;
}

SOFT_EXPORT int cuDeviceGetName(char *name, int len, int device)
{
	CALL();

	snprintf(name, (size_t)len, "software GPU %d", device);
	return soft_device_exists(device) ? SOFT_OK : SOFT_INVALID_DEVICE;
}

SOFT_EXPORT int cuDeviceGetPCIBusId(char *id, int len, int device)
{
	CALL();

	snprintf(id, (size_t)len, "0000:%02x:00.0", 0xf0 + device);
	return soft_device_exists(device) ? SOFT_OK : SOFT_INVALID_DEVICE;
}

SOFT_EXPORT int cuDeviceTotalMem_v2(size_t *nbytes, int device)
{
	CALL();

	if (!soft_device_exists(device))
		return SOFT_INVALID_DEVICE;
	*nbytes = soft_memory_total[device];
	return SOFT_OK;
}

SOFT_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	CALL();
	uint32_t missing = soft_controls.missing;

	if (!soft_device_exists(device))
		return SOFT_INVALID_DEVICE;
	switch (attribute) {
	case 33: /* PCI_BUS_ID */
		*value = 0xf0 + device;
		break;
	case 41: /* UNIFIED_ADDRESSING */
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
	case 102: /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
	case 115: /* MEMORY_POOLS_SUPPORTED */
	case 116: /* GPU_DIRECT_RDMA_SUPPORTED */
		*value = attribute == 75 ? 9 : 1;
		break;
	case 98: /* CAN_FLUSH_REMOTE_WRITES */
		*value = !(missing & SOFT_NO_FLUSH);
		break;
	case 118: /* GPU_DIRECT_RDMA_WRITES_ORDERING */
		*value = missing & SOFT_UNORDERED_WRITES ? 0 : 100;
		break;
	case 92: /* CAN_USE_STREAM_MEM_OPS_V1 */
	case 122: /* CAN_USE_64_BIT_STREAM_MEM_OPS */
		*value = !(missing & SOFT_NO_MEMOPS);
		break;
	case 124: /* DMA_BUF_SUPPORTED */
		*value = !(missing & SOFT_NO_DMABUF);
		break;
	default:
		*value = 0;
	}
	return SOFT_OK;
}

/* ---- contexts ---- */

SOFT_EXPORT int cuDevicePrimaryCtxRetain(uintptr_t *ctx, int device)
{
	CALL();

	if (!soft_device_exists(device))
		return SOFT_INVALID_DEVICE;
	*ctx = (uintptr_t)soft_primary_activate(device);
	soft_primary(device)->retains++;
	return SOFT_OK;
}

/* The last release ends it. */
static int release(int device, bool *ret_last)
{
	SOFT_LOCK();

	if (!soft_device_exists(device))
		return SOFT_INVALID_DEVICE;
	if (!soft_primary(device)->retains)
		return SOFT_INVALID_CONTEXT;
	*ret_last = !--soft_primary(device)->retains;
	return SOFT_OK;
}

SOFT_EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	SOFT_CALL();
	bool last = false;
	int code = release(device, &last);

	if (last)
		soft_ctx_end(soft_primary(device));
	return code;
}

SOFT_EXPORT int cuDevicePrimaryCtxReset_v2(int device)
{
	SOFT_CALL();
	if (!soft_device_exists(device))
		return SOFT_INVALID_DEVICE;
	soft_ctx_end(soft_primary(device));
	return SOFT_OK;
}

SOFT_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	CALL();

	if (!soft_device_exists(device))
		return SOFT_INVALID_DEVICE;
	*flags = 0;
	*active = soft_primary(device)->active;
	return SOFT_OK;
}

static int set_top(uintptr_t handle)
{
	struct soft_thread *t = soft_thread();
	struct soft_ctx *c = handle ? soft_ctx_find(handle) : NULL;

	if (handle && !c)
		return SOFT_CONTEXT_DESTROYED;
	if (!t->depth)
		t->depth = 1;
	t->stack[t->depth - 1] = c;
	return SOFT_OK;
}

SOFT_EXPORT int cuCtxCreate_v2(uintptr_t *ctx, unsigned flags, int device)
{
	CALL();
	struct soft_thread *t = soft_thread();

	(void)flags;
	if (!soft_device_exists(device) || t->depth == SOFT_DEPTH)
		return SOFT_INVALID_DEVICE;
	*ctx = (uintptr_t)soft_ctx_new(device);
	t->depth++;
	return set_top(*ctx);
}

SOFT_EXPORT int cuCtxCreate_v4(uintptr_t *ctx, const void *params, unsigned flags, int device)
{
	(void)params;
	return cuCtxCreate_v2(ctx, flags, device);
}

static struct soft_ctx *of_its_own(uintptr_t handle)
{
	SOFT_LOCK();
	struct soft_ctx *c = soft_ctx_find(handle);
	struct soft_thread *t = soft_thread();

	if (!c || c->primary)
		return NULL;
	if (t->depth && t->stack[t->depth - 1] == c)
		t->depth--;
	return c;
}

SOFT_EXPORT int cuCtxDestroy_v2(uintptr_t ctx)
{
	SOFT_CALL();
	struct soft_ctx *c = of_its_own(ctx);

	if (!c)
		return SOFT_INVALID_CONTEXT;
	soft_ctx_end(c);
	return SOFT_OK;
}

SOFT_EXPORT int cuCtxGetCurrent(uintptr_t *ctx)
{
	CALL();
	struct soft_thread *t = soft_thread();

	*ctx = t->depth ? (uintptr_t)t->stack[t->depth - 1] : 0;
	return SOFT_OK;
}

SOFT_EXPORT int cuCtxSetCurrent(uintptr_t ctx)
{
	CALL();

	return set_top(ctx);
}

SOFT_EXPORT int cuCtxPushCurrent_v2(uintptr_t ctx)
{
	CALL();
	struct soft_thread *t = soft_thread();
	struct soft_ctx *c = soft_ctx_find(ctx);

	if (!c || !c->active)
		return SOFT_CONTEXT_DESTROYED;
	if (t->depth == SOFT_DEPTH)
		return SOFT_INVALID_CONTEXT;
	t->depth++;
	return set_top(ctx);
}

SOFT_EXPORT int cuCtxPopCurrent_v2(uintptr_t *ctx)
{
	CALL();
	struct soft_thread *t = soft_thread();

	if (!t->depth)
		return SOFT_INVALID_CONTEXT;
	t->depth--;
	if (ctx)
		*ctx = (uintptr_t)t->stack[t->depth];
	return SOFT_OK;
}

SOFT_EXPORT int cuCtxGetDevice(int *device)
{
	CALL_IN(ctx);

	*device = ctx->device;
	return SOFT_OK;
}

SOFT_EXPORT int cuCtxSynchronize(void)
{
	CALL_IN(ctx);

	soft_counters.synchronises++;
	return soft_sync_device(ctx->device, ctx);
}

SOFT_EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	CALL_IN(ctx);

	(void)ctx;
	return target || (scope != 100 && scope != 200) ? SOFT_INVALID_VALUE : SOFT_OK;
}
