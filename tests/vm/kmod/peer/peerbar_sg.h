/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* For tests: how the bytes of an export lie, and its scatter lists. */
#ifndef PEERBAR_SG_H
#define PEERBAR_SG_H

#include <linux/dma-direction.h>
#include <linux/types.h>

struct device;
struct page;
struct sg_table;
struct vm_area_struct;

struct peer_layout {
	u32 how; /* PEERBAR_* */
	u64 phys; /* of the BAR */
	u64 offset; /* in the BAR */
	u64 nbytes;
	u64 piece; /* bytes of an entry: fits its 32-bit length */
	u32 pieces;
	struct page **pages; /* PEERBAR_SYSTEM; else NULL */
};

struct sg_table *peer_sg_map_bar(struct device *dev, const struct peer_layout *layout,
				 enum dma_data_direction dir);
struct sg_table *peer_sg_map_pages(struct device *dev, const struct peer_layout *layout,
				   enum dma_data_direction dir);
void peer_sg_unmap(struct device *dev, const struct peer_layout *layout, struct sg_table *table,
		   enum dma_data_direction dir);
int peer_sg_mmap(const struct peer_layout *layout, struct vm_area_struct *vma);

#endif
