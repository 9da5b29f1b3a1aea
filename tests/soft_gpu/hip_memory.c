/* SPDX-License-Identifier: MIT */
/* The face of the HIP runtime API: memory. */
#include "face.h"

#define BIT(kind) (1u << (kind))

enum { SIGNAL_MEMORY = 2, SIGNAL_BYTES = 8 };

static int allocate(enum soft_kind kind, size_t nbytes, uint64_t *ret)
{
	struct soft_ctx *ctx;
	int code = soft_current(&ctx);

	if (!code)
		code = soft_capture_unsafe();
	return soft_answer(code ? code : soft_alloc(ctx, ctx->device, kind, nbytes, ret));
}

SOFT_EXPORT int hipMalloc(uint64_t *addr, size_t nbytes)
{
	CALL();

	return allocate(SOFT_DEVICE, nbytes, addr);
}

/* Signal memory comes in cells of exactly eight bytes. */
SOFT_EXPORT int hipExtMallocWithFlags(uint64_t *addr, size_t nbytes, unsigned flags)
{
	CALL();

	if (flags != SIGNAL_MEMORY)
		return allocate(SOFT_DEVICE, nbytes, addr);
	return nbytes == SIGNAL_BYTES ? allocate(SOFT_SIGNAL, nbytes, addr) : soft_answer(SOFT_INVALID_VALUE);
}

SOFT_EXPORT int hipFree(uint64_t addr)
{
	SOFT_CALL();
	if (!addr)
		return SOFT_OK;
	return soft_answer(soft_free_now(addr, BIT(SOFT_DEVICE) | BIT(SOFT_MANAGED) | BIT(SOFT_POOLED) |
						       BIT(SOFT_SIGNAL)));
}

SOFT_EXPORT int hipMallocManaged(uint64_t *addr, size_t nbytes, unsigned flags)
{
	CALL();

	(void)flags;
	return allocate(SOFT_MANAGED, nbytes, addr);
}

SOFT_EXPORT int hipMallocAsync(uint64_t *addr, size_t nbytes, uintptr_t stream)
{
	CALL_ON(s, stream);

	return soft_answer(soft_alloc(NULL, s->device, SOFT_POOLED, nbytes, addr));
}

SOFT_EXPORT int hipFreeAsync(uint64_t addr, uintptr_t stream)
{
	CALL_ON(s, stream);
	struct soft_alloc *a = soft_find(addr);

	if (!a || a->kind != SOFT_POOLED || a->addr != addr)
		return soft_answer(SOFT_INVALID_VALUE);
	return soft_answer(soft_enqueue(s, (struct soft_op){ .kind = SOFT_FREE, .dst = addr }, NULL));
}

SOFT_EXPORT int hipHostMalloc(uint64_t *host, size_t nbytes, unsigned flags)
{
	CALL();

	(void)flags;
	return allocate(SOFT_HOST, nbytes, host);
}

SOFT_EXPORT int hipHostFree(uint64_t host)
{
	SOFT_CALL();

	return soft_answer(soft_free_now(host, BIT(SOFT_HOST)));
}

SOFT_EXPORT int hipHostRegister(void *host, size_t nbytes, unsigned flags)
{
	CALL_IN(ctx);
	int code = soft_capture_unsafe();

	return soft_answer(code ? code : soft_register(ctx, host, nbytes, flags));
}

SOFT_EXPORT int hipHostUnregister(void *host)
{
	SOFT_CALL();
	int code = soft_free_now((uint64_t)(uintptr_t)host, BIT(SOFT_REGISTERED));

	return soft_answer(code == SOFT_INVALID_VALUE ? SOFT_NOT_REGISTERED : code);
}

SOFT_EXPORT int hipHostGetDevicePointer(uint64_t *dev, void *host, unsigned flags)
{
	CALL();

	*dev = (uint64_t)(uintptr_t)host;
	return soft_answer(flags || !soft_is_pinned(host) ? SOFT_INVALID_VALUE : SOFT_OK);
}

SOFT_EXPORT int hipMemGetInfo(size_t *free_bytes, size_t *total)
{
	CALL_IN(ctx);

	*total = soft_memory_total[ctx->device];
	*free_bytes = *total - soft_memory_used(ctx->device);
	return SOFT_OK;
}

SOFT_EXPORT int hipMemGetAddressRange(uint64_t *base, size_t *nbytes, uint64_t addr)
{
	CALL();
	struct soft_alloc *a = soft_find(addr);

	if (!a)
		return soft_answer(SOFT_NOT_FOUND);
	if (base)
		*base = a->addr;
	if (nbytes)
		*nbytes = a->nbytes;
	return SOFT_OK;
}

SOFT_EXPORT int hipMemGetHandleForAddressRange(int *handle, uint64_t addr, size_t nbytes, int type,
					       unsigned long long flags)
{
	SOFT_CALL();
	if (type != 1 || flags)
		return soft_answer(SOFT_INVALID_VALUE);
	return soft_answer(soft_export_now(addr, nbytes, handle));
}

struct attributes { /* hipPointerAttribute_t */
	int type, device;
	uint64_t device_pointer, host_pointer;
	int managed;
	unsigned flags;
};

SOFT_EXPORT int hipPointerGetAttributes(struct attributes *ret, uint64_t addr)
{
	CALL();
	struct soft_alloc *a = soft_find(addr);

	if (!a)
		return soft_answer(SOFT_INVALID_VALUE);
	*ret = (struct attributes){ .type = a->kind == SOFT_MANAGED ? 3
					    : a->block		    ? 2
								    : 1,
				    .device = a->device };
	ret->device_pointer = addr;
	ret->host_pointer = soft_is_pinned((void *)(uintptr_t)addr) ? addr : 0;
	ret->managed = a->kind == SOFT_MANAGED;
	return SOFT_OK;
}

SOFT_EXPORT int hipPointerGetAttribute(uint32_t *value, int which, uint64_t addr)
{
	CALL();
	struct soft_alloc *a = soft_find(addr);

	if (!a || which != 7) /* BUFFER_ID */
		return soft_answer(SOFT_INVALID_VALUE);
	*value = (uint32_t)a->id;
	return SOFT_OK;
}

/* ---- copies ---- */

static int copy(uintptr_t stream, uint64_t dst, uint64_t src, void *host, size_t n, bool now)
{
	struct soft_stream *s;
	int code = soft_stream_find(stream, &s);

	return soft_answer(code ? code : soft_copy(s, dst, src, host, n, now));
}

SOFT_EXPORT int hipMemcpyHtoD(uint64_t dst, void *src, size_t n)
{
	CALL();

	return copy(0, dst, 0, src, n, true);
}

SOFT_EXPORT int hipMemcpyDtoH(void *dst, uint64_t src, size_t n)
{
	CALL();

	return copy(0, 0, src, dst, n, true);
}

SOFT_EXPORT int hipMemcpyHtoDAsync(uint64_t dst, void *src, size_t n, uintptr_t stream)
{
	CALL();

	return copy(stream, dst, 0, src, n, false);
}

SOFT_EXPORT int hipMemcpyDtoHAsync(void *dst, uint64_t src, size_t n, uintptr_t stream)
{
	CALL();

	return copy(stream, 0, src, dst, n, false);
}

SOFT_EXPORT int hipMemcpyAsync(uint64_t dst, uint64_t src, size_t n, int kind, uintptr_t stream)
{
	CALL();

	if (kind == 1)
		return copy(stream, dst, 0, (void *)(uintptr_t)src, n, false);
	if (kind == 2)
		return copy(stream, 0, src, (void *)(uintptr_t)dst, n, false);
	return copy(stream, dst, src, NULL, n, false);
}

SOFT_EXPORT int hipMemcpy(uint64_t dst, uint64_t src, size_t n, int kind)
{
	CALL();

	if (kind == 1)
		return copy(0, dst, 0, (void *)(uintptr_t)src, n, true);
	if (kind == 2)
		return copy(0, 0, src, (void *)(uintptr_t)dst, n, true);
	return copy(0, dst, src, NULL, n, true);
}

SOFT_EXPORT int hipMemsetAsync(uint64_t dst, int value, size_t n, uintptr_t stream)
{
	CALL_ON(s, stream);

	if (!soft_reach(dst, n))
		return soft_answer(SOFT_INVALID_VALUE);
	return soft_answer(soft_enqueue(
		s, (struct soft_op){ .kind = SOFT_FILL, .dst = dst, .value = (uint32_t)value, .nbytes = n },
		NULL));
}
