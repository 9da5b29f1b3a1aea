/* SPDX-License-Identifier: MIT */
/* The face of the CUDA driver API: memory. */
#include "face.h"
#include "vmm.h"

#define BIT(kind) (1u << (kind))

static int allocate(enum soft_kind kind, size_t nbytes, uint64_t *ret)
{
	struct soft_ctx *ctx;
	int code = soft_current(&ctx);

	if (!code)
		code = soft_capture_unsafe();
	return code ? code : soft_alloc(ctx, ctx->device, kind, nbytes, ret);
}

SOFT_EXPORT int cuMemAlloc_v2(uint64_t *addr, size_t nbytes)
{
	CALL();

	return allocate(SOFT_DEVICE, nbytes, addr);
}

SOFT_EXPORT int cuMemFree_v2(uint64_t addr)
{
	SOFT_CALL();

	return soft_free_now(addr, BIT(SOFT_DEVICE) | BIT(SOFT_MANAGED) | BIT(SOFT_POOLED));
}

SOFT_EXPORT int cuMemAllocManaged(uint64_t *addr, size_t nbytes, unsigned flags)
{
	CALL();

	(void)flags;
	return allocate(SOFT_MANAGED, nbytes, addr);
}

SOFT_EXPORT int cuMemAllocAsync(uint64_t *addr, size_t nbytes, uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_alloc(NULL, s->device, SOFT_POOLED, nbytes, addr);
}

SOFT_EXPORT int cuMemFreeAsync(uint64_t addr, uintptr_t stream)
{
	CALL_ON(s, stream);
	struct soft_alloc *a = soft_find(addr);

	if (!a || a->kind != SOFT_POOLED || a->addr != addr)
		return SOFT_INVALID_VALUE;
	return soft_enqueue(s, (struct soft_op){ .kind = SOFT_FREE, .dst = addr }, NULL);
}

SOFT_EXPORT int cuMemHostAlloc(void **host, size_t nbytes, unsigned flags)
{
	CALL();
	uint64_t addr = 0;
	int code = flags & ~7u ? SOFT_INVALID_VALUE : allocate(SOFT_HOST, nbytes, &addr);

	*host = (void *)(uintptr_t)addr;
	return code;
}

SOFT_EXPORT int cuMemAllocHost_v2(void **host, size_t nbytes) { return cuMemHostAlloc(host, nbytes, 0); }

SOFT_EXPORT int cuMemFreeHost(void *host)
{
	SOFT_CALL();

	return soft_free_now((uint64_t)(uintptr_t)host, BIT(SOFT_HOST));
}

SOFT_EXPORT int cuMemHostRegister_v2(void *host, size_t nbytes, unsigned flags)
{
	CALL_IN(ctx);
	int code = soft_capture_unsafe();

	return code ? code : soft_register(ctx, host, nbytes, flags);
}

SOFT_EXPORT int cuMemHostUnregister(void *host)
{
	SOFT_CALL();
	int code = soft_free_now((uint64_t)(uintptr_t)host, BIT(SOFT_REGISTERED));

	return code == SOFT_INVALID_VALUE ? SOFT_NOT_REGISTERED : code;
}

SOFT_EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *dev, void *host, unsigned flags)
{
	CALL_IN(ctx);

	(void)ctx;
	*dev = (uint64_t)(uintptr_t)host;
	return flags || !soft_is_pinned(host) ? SOFT_INVALID_VALUE : SOFT_OK;
}

SOFT_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CALL_IN(ctx);

	*total = soft_memory_total[ctx->device];
	*free_bytes = *total - soft_memory_used(ctx->device);
	return SOFT_OK;
}

SOFT_EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *nbytes, uint64_t addr)
{
	CALL_IN(ctx);
	struct soft_alloc *a = soft_find(addr);

	(void)ctx;
	if (!a)
		return SOFT_INVALID_VALUE;
	if (base)
		*base = a->addr;
	if (nbytes)
		*nbytes = a->nbytes;
	return SOFT_OK;
}

SOFT_EXPORT int cuMemGetHandleForAddressRange(int *handle, uint64_t addr, size_t nbytes, int type,
					      unsigned long long flags)
{
	SOFT_CALL();
	if (type != 1 || flags > 1)
		return SOFT_INVALID_VALUE;
	return soft_export_now(addr, nbytes, handle);
}

/* ---- pointer attributes ---- */

static void range(const struct soft_alloc *a, uint64_t *base, size_t *nbytes)
{
	if (a->kind == SOFT_MAPPED && soft_vmm_range(a->addr, base, nbytes))
		return;
	*base = a->addr;
	*nbytes = a->nbytes;
}

static int attribute(void *value, int which, uint64_t addr)
{
	struct soft_alloc *a = soft_find(addr);
	uint64_t base = 0;
	size_t nbytes = 0;

	if (a)
		range(a, &base, &nbytes);
	switch (which) {
	case 1: /* CONTEXT */
		*(uint64_t *)value = a ? (uint64_t)(uintptr_t)a->ctx : 0;
		break;
	case 2: /* MEMORY_TYPE: 1 host, 2 device */
		*(uint32_t *)value = !a ? 0 : a->kind == SOFT_HOST || a->kind == SOFT_REGISTERED ? 1 : 2;
		break;
	case 3: /* DEVICE_POINTER */
		*(uint64_t *)value = a ? addr : 0;
		break;
	case 4: /* HOST_POINTER */
		*(uint64_t *)value = a && soft_is_pinned((void *)(uintptr_t)addr) ? addr : 0;
		break;
	case 7: /* BUFFER_ID: of mapped memory, of the addresses */
		*(uint64_t *)value = !a ? 0 : a->kind == SOFT_MAPPED ? base >> 9 : a->id;
		break;
	case 8: /* IS_MANAGED: one byte */
		*(uint8_t *)value = a && a->kind == SOFT_MANAGED;
		break;
	case 9: /* DEVICE_ORDINAL */
		*(int *)value = a ? a->device : -2;
		break;
	case 11: /* RANGE_START_ADDR */
		*(uint64_t *)value = base;
		break;
	case 12: /* RANGE_SIZE */
		*(size_t *)value = nbytes;
		break;
	case 13: /* MAPPED */
		*(uint8_t *)value = a != NULL;
		break;
	case 18: /* MAPPING_SIZE */
		*(size_t *)value = a ? a->nbytes : 0;
		break;
	case 19: /* MAPPING_BASE_ADDR */
		*(uint64_t *)value = a ? a->addr : 0;
		break;
	case 20: /* MEMORY_BLOCK_ID */
		*(uint64_t *)value = !a ? 0 : a->block_id ? a->block_id : a->id;
		break;
	default:
		return SOFT_INVALID_VALUE;
	}
	return SOFT_OK;
}

/* An address that is not known is an error for one attribute, and zeros for several. */
SOFT_EXPORT int cuPointerGetAttribute(void *value, int which, uint64_t addr)
{
	CALL();

	if (!soft_initialized)
		return SOFT_NOT_INITIALIZED;
	return soft_find(addr) ? attribute(value, which, addr) : SOFT_INVALID_VALUE;
}

SOFT_EXPORT int cuPointerGetAttributes(unsigned n, const int *which, void **values, uint64_t addr)
{
	CALL();
	int code = soft_initialized ? SOFT_OK : SOFT_NOT_INITIALIZED;

	for (unsigned i = 0; !code && i < n; i++)
		code = attribute(values[i], which[i], addr);
	return code;
}

/* ---- copies ---- */

SOFT_EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t n)
{
	CALL_ON(s, 0);

	return soft_copy(s, dst, 0, (void *)(uintptr_t)src, n, true);
}

SOFT_EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t n)
{
	CALL_ON(s, 0);

	return soft_copy(s, 0, src, dst, n, true);
}

SOFT_EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_copy(s, dst, 0, (void *)(uintptr_t)src, n, false);
}

SOFT_EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_copy(s, 0, src, dst, n, false);
}

SOFT_EXPORT int cuMemcpyDtoD_v2(uint64_t dst, uint64_t src, size_t n)
{
	CALL_ON(s, 0);

	return soft_copy(s, dst, src, NULL, n, true);
}

SOFT_EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_copy(s, dst, src, NULL, n, false);
}

SOFT_EXPORT int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t n, uintptr_t stream)
{
	CALL_ON(s, stream);

	if (!soft_reach(dst, n))
		return SOFT_INVALID_VALUE;
	return soft_enqueue(s, (struct soft_op){ .kind = SOFT_FILL, .dst = dst, .value = value, .nbytes = n },
			    NULL);
}

SOFT_EXPORT int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t n)
{
	int code = cuMemsetD8Async(dst, value, n, 0);

	if (code)
		return code;
	CALL_ON(s, 0);
	return soft_stream_sync(s);
}
