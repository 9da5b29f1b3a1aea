/* SPDX-License-Identifier: MIT */
/* ugds_gpu.h */
#include <errno.h>
#include <stdio.h>

#include "api/api.h"
#include "api/gpu_visit.h"

static_assert(UGDS_GPU_CUDA == GPU_CUDA && UGDS_GPU_HIP == GPU_HIP, "one order");
static_assert(UGDS_GPU_MEM_NONE == GPU_MEM_NONE && UGDS_GPU_MEM_DEVICE == GPU_MEM_DEVICE &&
		      UGDS_GPU_MEM_HOST == GPU_MEM_HOST && UGDS_GPU_MEM_MANAGED == GPU_MEM_MANAGED,
	      "one order");
static_assert(UGDS_GPU_CAN_MEMOPS == GPU_CAN_MEMOPS && UGDS_GPU_CAN_DMABUF == GPU_CAN_DMABUF &&
		      UGDS_GPU_CAN_FLUSH == GPU_CAN_FLUSH && UGDS_GPU_NEEDS_FLUSH == GPU_NEEDS_FLUSH &&
		      UGDS_GPU_HAS_FLUSH == GPU_HAS_FLUSH,
	      "one order");

const char *ugds_gpu_symbol(uint32_t vendor, uint32_t i, uint32_t *ret_version, uint32_t *ret_optional)
{
	const struct gpu_symbol *s = gpu_symbol(vendor, i);

	if (!s)
		return NULL;
	*ret_version = s->version;
	*ret_optional = s->optional;
	return s->name;
}

int ugds_gpu_load(uint32_t vendor, const uint64_t *addrs, uint32_t n, struct ugds_error *err)
{
	const char *missing = NULL;
	int rc = gpu_load(vendor, addrs, n, &missing);

	if (rc == -ENOSYS) {
		char text[sizeof(err->text)];

		snprintf(text, sizeof(text), "the GPU driver has no %s: it is too old", missing);
		api_error(err, rc, 0, text);
	} else if (rc) {
		api_error(err, rc, 0, "no such GPU vendor, or not one address for each symbol");
	}
	return rc;
}

static struct gpu_place place_of(const struct ugds_gpu_pointer *of)
{
	return (struct gpu_place){ of->vendor, of->device, of->ctx };
}

static void fill(struct ugds_gpu_pointer *ret, const struct gpu_pointer *p)
{
	*ret = (struct ugds_gpu_pointer){
		.vendor = p->place.vendor,
		.device = p->place.device,
		.ctx = p->place.ctx,
		.kind = p->kind,
		.base = p->base,
		.nbytes = p->nbytes,
		.buffer_id = p->buffer_id,
	};
}

int ugds_gpu_pointer(uint32_t vendor, uint64_t addr, struct ugds_gpu_pointer *ret, int *ret_code)
{
	const struct gpu_rt *rt = gpu_find(vendor);
	struct gpu_pointer p = { 0 };

	*ret_code = 0;
	if (!rt)
		return -ENXIO;

	int rc = answer(rt, rt->pointer(addr, &p), ret_code);

	if (!rc)
		fill(ret, &p);
	return rc;
}

int ugds_gpu_export(const struct ugds_gpu_pointer *of, uint64_t addr, uint64_t nbytes, uint64_t flags,
		    int *ret_fd, int *ret_code)
{
	const struct gpu_place p = place_of(of);
	visiting v;
	int rc = visit(&v, &p, ret_code);

	return rc ? rc : answer(v.rt, v.rt->export_range(addr, nbytes, flags, ret_fd), ret_code);
}

int ugds_gpu_alloc(uint32_t vendor, int32_t device, uint64_t nbytes, struct ugds_gpu_pointer *ret,
		   int *ret_code)
{
	const struct gpu_rt *rt = gpu_find(vendor);
	struct gpu_pointer got = { 0 };
	struct gpu_place p;
	uint64_t addr;
	int rc;

	*ret_code = 0;
	if (!rt)
		return -ENXIO;
	rc = answer(rt, rt->device_place(device, true, &p), ret_code);
	if (rc)
		return rc;

	visiting v;

	rc = visit(&v, &p, ret_code);
	if (rc)
		return rc;
	rc = answer(v.rt, v.rt->alloc(nbytes, &addr), ret_code);
	if (rc)
		return rc;
	rc = answer(v.rt, v.rt->pointer(addr, &got), ret_code);
	if (rc) {
		v.rt->free(addr);
		return rc;
	}
	fill(ret, &got);
	return 0;
}

int ugds_gpu_free(const struct ugds_gpu_pointer *mem, int *ret_code)
{
	const struct gpu_place p = place_of(mem);
	visiting v;
	int rc = visit(&v, &p, ret_code);

	return rc ? rc : answer(v.rt, v.rt->free(mem->base), ret_code);
}

int ugds_gpu_caps(uint32_t vendor, int32_t device, uint32_t *ret, int *ret_code)
{
	const struct gpu_rt *rt = gpu_find(vendor);

	*ret_code = 0;
	return rt ? answer(rt, rt->caps(device, ret), ret_code) : -ENXIO;
}

/*
 * There when it returns, on a stream of its own: the runtime's blocking copy waits for all that default streams wait for,
 * and may return while what came from pageable memory is on its way.
 */
static int copy_now(const struct ugds_gpu_pointer *of, bool out, uint64_t addr, void *host, uint64_t nbytes,
		    int *ret_code)
{
	const struct gpu_place p = place_of(of);
	uint64_t stream = 0;
	visiting v;
	int rc = visit(&v, &p, ret_code), code;

	if (rc)
		return rc;
	code = v.rt->stream_new(&stream);
	if (code)
		return answer(v.rt, code, ret_code);
	code = out ? v.rt->copy_out(host, addr, nbytes, stream) : v.rt->copy_in(addr, host, nbytes, stream);
	if (!code)
		code = v.rt->stream_sync(stream);
	v.rt->stream_free(stream);
	return answer(v.rt, code, ret_code);
}

int ugds_gpu_copy_in(const struct ugds_gpu_pointer *of, uint64_t dst, const void *host, uint64_t nbytes,
		     int *ret_code)
{
	return copy_now(of, false, dst, (void *)(uintptr_t)host, nbytes, ret_code);
}

int ugds_gpu_copy_out(const struct ugds_gpu_pointer *of, void *host, uint64_t src, uint64_t nbytes,
		      int *ret_code)
{
	return copy_now(of, true, src, host, nbytes, ret_code);
}

int ugds_gpu_stream_place(uint32_t vendor, uint64_t stream, int32_t *ret_device, uint64_t *ret_ctx,
			  int *ret_code)
{
	const struct gpu_rt *rt = gpu_find(vendor);
	struct gpu_place p = { 0 };

	*ret_code = 0;
	if (!rt)
		return -ENXIO;

	int rc = answer(rt, rt->stream_place(stream, &p), ret_code);

	*ret_device = p.device;
	*ret_ctx = p.ctx;
	return rc;
}

int ugds_gpu_stream_capturing(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t stream, int *ret_code)
{
	const struct gpu_place p = { vendor, device, ctx };
	visiting v;
	int rc = visit(&v, &p, ret_code);
	bool capturing = false;

	if (!rc)
		rc = answer(v.rt, v.rt->stream_capturing(stream, &capturing), ret_code);
	return rc ? rc : capturing;
}

int ugds_gpu_error_sticky(uint32_t vendor, int code)
{
	const struct gpu_rt *rt = gpu_find(vendor);

	return rt && rt->sticky(code);
}

const char *ugds_gpu_error_name(uint32_t vendor, int code)
{
	const struct gpu_rt *rt = gpu_find(vendor);

	return rt ? rt->error_name(code) : "";
}
