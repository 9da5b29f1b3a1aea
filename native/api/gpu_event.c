/* SPDX-License-Identifier: MIT */
/* ugds_gpu.h: events, and pinned memory. */
#include <errno.h>
#include <string.h>

#include "api/gpu_visit.h"

int ugds_gpu_event_record(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t stream, uint64_t *ret_event,
			  int *ret_code)
{
	const struct gpu_place p = { vendor, device, ctx };
	visiting v;
	int rc = visit(&v, &p, ret_code);

	if (!rc)
		rc = answer(v.rt, v.rt->event_new(ret_event), ret_code);
	if (rc)
		return rc;
	rc = answer(v.rt, v.rt->event_record(*ret_event, stream), ret_code);
	if (rc)
		v.rt->event_free(*ret_event);
	return rc;
}

int ugds_gpu_event_query(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event, int *ret_code)
{
	const struct gpu_place p = { vendor, device, ctx };
	visiting v;
	int rc = visit(&v, &p, ret_code);

	if (rc)
		return rc;

	int code = v.rt->event_query(event);

	if (code == GPU_NOT_READY)
		return 0;
	rc = answer(v.rt, code, ret_code);
	return rc ? rc : 1;
}

int ugds_gpu_event_free(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event, int *ret_code)
{
	const struct gpu_place p = { vendor, device, ctx };
	visiting v;
	int rc = visit(&v, &p, ret_code);

	return rc ? rc : answer(v.rt, v.rt->event_free(event), ret_code);
}

int ugds_gpu_stream_wait_event(uint32_t vendor, int32_t device, uint64_t ctx, uint64_t stream, uint64_t event,
			       int *ret_code)
{
	const struct gpu_place p = { vendor, device, ctx };
	visiting v;
	int rc = visit(&v, &p, ret_code);

	return rc ? rc : answer(v.rt, v.rt->stream_wait_event(stream, event), ret_code);
}

int ugds_gpu_host_alloc(uint32_t vendor, int32_t device, uint64_t nbytes, void **ret, uint64_t *ret_dev,
			int *ret_code)
{
	const struct gpu_place p = { vendor, device, 0 };
	visiting v;
	int rc = visit(&v, &p, ret_code);

	if (!rc)
		rc = answer(v.rt, v.rt->host_alloc(nbytes, ret, ret_dev), ret_code);
	if (!rc)
		memset(*ret, 0, nbytes);
	return rc;
}

int ugds_gpu_host_free(uint32_t vendor, int32_t device, void *host, int *ret_code)
{
	const struct gpu_place p = { vendor, device, 0 };
	visiting v;
	int rc = visit(&v, &p, ret_code);

	return rc ? rc : answer(v.rt, v.rt->host_free(host), ret_code);
}
