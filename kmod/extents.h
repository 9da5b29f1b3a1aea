/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Bus addresses of one mapping, flattened: in the order of the memory, neighbours merged. */
#ifndef UGDS_EXTENTS_H
#define UGDS_EXTENTS_H

#include "base.h"
#include "uapi/ugds_ioctl.h"

/* 64 GiB of memory that lies scattered in 4 KiB pages; what is in larger pieces takes fewer. */
#define UGDS_MAX_EXTENTS BIT(24)

struct sg_table;

struct ugds_extents {
	struct ugds_drv_extent *v;
	u32 nr;
	u32 room;
};

/*
 * Append [iova, iova + nbytes), merged with the last one where it continues it. -EINVAL empty or
 * wraps, -E2BIG too many.
 */
int ugds_extents_add(struct ugds_extents *e, u64 iova, u64 nbytes);

/*
 * Append bytes skip .. skip + nbytes - 1 of what the DMA side of sgt holds; only sg_dma_address and
 * sg_dma_len are read, so entries without pages will do. skip and nbytes are multiples of page_size
 * (a power of two), and so must every piece be: -EINVAL. -ERANGE: sgt ends before.
 */
int ugds_extents_add_sgt(struct ugds_extents *e, struct sg_table *sgt, u64 skip, u64 nbytes,
			 u32 page_size);

void ugds_extents_free(struct ugds_extents *e);

#endif
