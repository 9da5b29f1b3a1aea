// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Scatter lists flattened into extents. Also built in user space, for its tests. */
#include "extents.h"

static int grow(struct ugds_extents *e)
{
	u32 room = e->room ? e->room * 2 : 1;
	struct ugds_drv_extent *v;

	if (e->room >= UGDS_MAX_EXTENTS)
		return -E2BIG;
	v = kvmalloc_array(room, sizeof(*v), GFP_KERNEL_ACCOUNT);
	if (!v)
		return -ENOMEM;
	if (e->nr)
		memcpy(v, e->v, e->nr * sizeof(*v));
	kvfree(e->v);
	e->v = v;
	e->room = room;
	return 0;
}

int ugds_extents_add(struct ugds_extents *e, u64 iova, u64 nbytes)
{
	struct ugds_drv_extent *last = e->nr ? &e->v[e->nr - 1] : NULL;
	u64 end;
	int err;

	/* The last byte may be the last of all: what must not wrap is its address. */
	if (!nbytes || check_add_overflow(iova, nbytes - 1, &end))
		return -EINVAL;
	if (last && last->iova + last->nbytes == iova && iova) {
		last->nbytes += nbytes;
		return 0;
	}
	if (e->nr == e->room) {
		err = grow(e);
		if (err)
			return err;
	}
	e->v[e->nr].iova = iova;
	e->v[e->nr].nbytes = nbytes;
	e->nr++;
	return 0;
}

int ugds_extents_add_sgt(struct ugds_extents *e, struct sg_table *sgt, u64 skip, u64 nbytes,
			 u32 page_size)
{
	struct scatterlist *sg;
	unsigned int i;
	int err;

	if (!nbytes || (skip | nbytes) & (page_size - 1))
		return -EINVAL;
	for_each_sgtable_dma_sg(sgt, sg, i) {
		u64 iova = sg_dma_address(sg);
		u64 have = sg_dma_len(sg);
		u64 end;

		if (!have)
			continue;
		if ((iova | have) & (page_size - 1) || check_add_overflow(iova, have - 1, &end))
			return -EINVAL;
		if (skip >= have) {
			skip -= have;
			continue;
		}
		iova += skip;
		have = min_t(u64, have - skip, nbytes);
		skip = 0;
		err = ugds_extents_add(e, iova, have);
		if (err)
			return err;
		nbytes -= have;
		if (!nbytes)
			return 0;
	}
	return -ERANGE;
}

void ugds_extents_free(struct ugds_extents *e)
{
	kvfree(e->v);
	memset(e, 0, sizeof(*e));
}
