/* SPDX-License-Identifier: MIT */
/* A call of a GPU runtime for Python: the place's context is current meanwhile, and what was is afterwards. */
#ifndef API_GPU_VISIT_H
#define API_GPU_VISIT_H

#include <errno.h>

#include "gpu/gpu.h"
#include "include/ugds_gpu.h"

/* The runtime's table, with the place's context current until the end of the scope. */
struct visit {
	const struct gpu_rt *rt;
	struct gpu_place place;
	struct gpu_before before;
};

static inline int visit(struct visit *v, const struct gpu_place *p, int *ret_code)
{
	v->rt = NULL;
	*ret_code = 0;

	const struct gpu_rt *rt = gpu_find(p->vendor);

	if (!rt)
		return -ENXIO;
	*ret_code = rt->enter(p, &v->before);
	if (*ret_code)
		return gpu_errno(rt, *ret_code);
	v->rt = rt;
	v->place = *p;
	return 0;
}

static inline void leave(struct visit *v)
{
	if (v->rt)
		v->rt->leave(&v->place, &v->before);
}

#define visiting __attribute__((cleanup(leave))) struct visit

static inline int answer(const struct gpu_rt *rt, int code, int *ret_code)
{
	*ret_code = code;
	return gpu_errno(rt, code);
}

#endif
