// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Arguments of calls. Also built in user space, for its tests. */
#include "args.h"

#define ACCESS (UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE)
#define MAP_FLAGS (ACCESS | UGDS_DRV_MAP_CONTIG | UGDS_DRV_MAP_REQUIRE_PEER)

int ugds_check_argsz(u32 argsz, size_t known)
{
	if (argsz < known)
		return -EINVAL;
	return argsz > PAGE_SIZE ? -E2BIG : 0;
}

/* The last byte of a range may be the last of all; one past it may not be needed. */
static bool wraps(u64 first, u64 nbytes)
{
	u64 last;

	return check_add_overflow(first, nbytes - 1, &last);
}

static int check_kind(const struct ugds_drv_map *arg)
{
	switch (arg->kind) {
	case UGDS_DRV_MAP_HOST:
		/* Never device memory. */
		if (arg->flags & UGDS_DRV_MAP_REQUIRE_PEER)
			return -EXDEV;
		fallthrough;
	case UGDS_DRV_MAP_CUDA:
		return arg->fd != -1 || arg->offset ? -EINVAL : 0;
	case UGDS_DRV_MAP_DMABUF:
		return arg->fd < 0 || arg->vaddr ? -EINVAL : 0;
	}
	return -EINVAL;
}

int ugds_check_map(const struct ugds_drv_map *arg, u64 max_bytes)
{
	if (arg->flags & ~MAP_FLAGS || !(arg->flags & ACCESS) || !arg->nbytes)
		return -EINVAL;
	if (arg->nbytes > max_bytes)
		return -E2BIG;
	if (wraps(arg->vaddr, arg->nbytes) || wraps(arg->offset, arg->nbytes))
		return -EINVAL;
	return check_kind(arg);
}

int ugds_check_irq_bind(const struct ugds_drv_irq_bind *arg, u32 nr_vectors, u32 nr_words)
{
	if (arg->flags || arg->reserved || arg->vector >= nr_vectors)
		return -EINVAL;
	return arg->word != UGDS_DRV_NO_WORD && arg->word >= nr_words ? -EINVAL : 0;
}

int ugds_check_reset(const struct ugds_drv_reset *arg)
{
	if (arg->flags || arg->reserved || arg->how > UGDS_DRV_RESET_FUNCTION)
		return -EINVAL;
	return 0;
}

int ugds_check_topology(const struct ugds_drv_topology *arg)
{
	bool named = arg->peer_domain || arg->peer_bus || arg->peer_devfn;

	if (arg->flags || arg->peer_valid > 1 || (!arg->peer_valid && named))
		return -EINVAL;
	return arg->peer_bus > 0xff || arg->peer_devfn > 0xff ? -EINVAL : 0;
}
