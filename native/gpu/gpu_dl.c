/* SPDX-License-Identifier: MIT */
/* Which runtimes are loaded. */
#include <errno.h>

#include "gpu/gpu.h"

const struct gpu_rt *gpu_find(uint32_t vendor)
{
	(void)vendor;
	return NULL;
}

int gpu_errno(const struct gpu_rt *rt, int code)
{
	(void)rt;
	return code ? -EIO : 0;
}

const struct gpu_symbol *gpu_symbol(uint32_t vendor, uint32_t i)
{
	(void)vendor;
	(void)i;
	return NULL;
}

int gpu_load(uint32_t vendor, const uint64_t *addrs, uint32_t n, const char **ret_missing)
{
	(void)vendor;
	(void)addrs;
	(void)n;
	*ret_missing = "";
	return -ENOSYS;
}
