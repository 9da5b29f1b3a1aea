/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the two ways to a peer's memory share. */
#ifndef UGDS_PEER_H
#define UGDS_PEER_H

#include <linux/dma-direction.h>
#include <linux/errno.h>
#include <linux/ioport.h>
#include <linux/mm.h>

#include "nv_p2p_abi.h"
#include "ugds_drv.h"

/*
 * What another driver answered, in words that mean nothing else in this interface: its -ENODEV is
 * not that our function went away, its -EIO not that something was revoked.
 */
static inline int ugds_foreign_error(long err)
{
	switch (err) {
	case 0:
	case -ENOMEM:
	case -EINTR:
	case -ERESTARTSYS:
	case -EBUSY:
	case -EINVAL:
	case -EBADF:
	case -ETIMEDOUT:
	case -EOPNOTSUPP:
		return err;
	case -NV_P2P_ENOTSUPP:
		return -EOPNOTSUPP;
	}
	return -EFAULT;
}

static inline enum dma_data_direction ugds_direction(u32 flags)
{
	switch (flags & (UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE)) {
	case UGDS_DRV_MAP_READ:
		return DMA_TO_DEVICE;
	case UGDS_DRV_MAP_WRITE:
		return DMA_FROM_DEVICE;
	}
	return DMA_BIDIRECTIONAL;
}

/* A GPU's memory that the kernel uses as its own counts as such. */
static inline bool ugds_phys_is_ram(phys_addr_t phys)
{
	return region_intersects(phys, 1, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	       REGION_DISJOINT;
}

extern const struct ugds_map_ops ugds_dmabuf_ops;
extern const struct ugds_map_ops ugds_cuda_ops;

#endif
