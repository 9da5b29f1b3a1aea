/* SPDX-License-Identifier: MIT */
/* Memory that the device may reach: the caller's pages, dma-bufs, GPU memory. */
#include <errno.h>
#include <stdlib.h>

#include "transport/kmod_dev.h"

static_assert(sizeof(struct dma_extent) == sizeof(struct ugds_drv_extent) &&
		      offsetof(struct dma_extent, iova) == offsetof(struct ugds_drv_extent, iova) &&
		      offsetof(struct dma_extent, nbytes) == offsetof(struct ugds_drv_extent, nbytes),
	      "extents are passed through");
static_assert(DMA_READ == UGDS_DRV_MAP_READ && DMA_WRITE == UGDS_DRV_MAP_WRITE &&
		      DMA_CONTIG == UGDS_DRV_MAP_CONTIG && DMA_PEER == UGDS_DRV_MAP_REQUIRE_PEER,
	      "mapping flags are passed through");
static_assert(MEM_SYSTEM == UGDS_DRV_MAPPED_SYSTEM && MEM_PERSISTENT == UGDS_DRV_MAPPED_PERSISTENT &&
		      MEM_REVOCABLE == UGDS_DRV_MAPPED_REVOCABLE,
	      "and what became of it");
static_assert(MEM_FOREIGN_DMABUF == UGDS_DRV_MAP_DMABUF && MEM_FOREIGN_CUDA == UGDS_DRV_MAP_CUDA,
	      "one numbering of kinds");

#define EXTENTS_AT_ONCE 512u

static uint64_t addr_of(const void *p) { return (uint64_t)(uintptr_t)p; }

/* What did not fit into the array that MAP was given. */
static int fetch_rest(struct kmod *k, const struct ugds_drv_map *m, uint32_t have, struct dma_extent **ext)
{
	struct dma_extent *all = realloc(*ext, m->nr_extents * sizeof(*all));

	if (!all)
		return -ENOMEM;
	*ext = all;
	while (have < m->nr_extents) {
		struct ugds_drv_extents e = {
			.argsz = sizeof(e),
			.token = m->ret_token,
			.first = have,
			.nr_extents = m->nr_extents - have,
			.extents = addr_of(&all[have]),
		};
		int err = kmod_call(k, UGDS_DRV_EXTENTS, &e);

		if (err)
			return err;
		if (!e.nr_extents)
			return -EPROTO; /* fewer than there were said to be */
		have += e.nr_extents;
	}
	return 0;
}

/* @most: pieces that it can be in at most. */
static int map(struct kmod *k, struct ugds_drv_map *m, uint64_t most, struct dma_mapping *ret)
{
	uint32_t room = (uint32_t)min_u64(most, EXTENTS_AT_ONCE);
	struct dma_extent *ext = malloc(room * sizeof(*ext));
	int err;

	if (!ext)
		return -ENOMEM;
	m->argsz = sizeof(*m);
	m->extents = addr_of(ext);
	m->nr_extents = room;
	err = kmod_call(k, UGDS_DRV_MAP, m);
	if (err)
		goto free_extents;
	if (m->nr_extents > room)
		err = fetch_rest(k, m, room, &ext);
	else if (!m->nr_extents)
		err = -EPROTO;
	if (err)
		goto unmap;
	*ret = (struct dma_mapping){ .extents = ext,
				     .nr = m->nr_extents,
				     .handle = m->ret_token,
				     .first_off = m->ret_first_off,
				     .traits = m->ret_flags };
	return 0;
unmap:
	kmod_dma_unmap(k, m->ret_token);
free_extents:
	free(ext);
	return err;
}

static uint64_t pages_of(const struct kmod *k, uint64_t nbytes)
{
	uint64_t page = k->info.page_size ? k->info.page_size : 4096;

	return nbytes / page + 2;
}

int kmod_dma_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct ugds_drv_map m = {
		.kind = UGDS_DRV_MAP_HOST, .fd = -1, .vaddr = addr_of(vaddr), .nbytes = nbytes
	};
	struct kmod *k = t;
	int err;

	/* Small objects share pages, and a page can be mapped in one manner only. So all that can be written to is mapped
	 * for writing; what the device may do with it is looked at in each request. */
	m.flags = flags | DMA_READ | DMA_WRITE;
	err = map(k, &m, pages_of(k, nbytes), ret);
	if (err == -EFAULT && !(flags & DMA_WRITE)) {
		m.flags = flags;
		err = map(k, &m, pages_of(k, nbytes), ret);
	}
	return err;
}

int kmod_dma_map_foreign(void *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			 struct dma_mapping *ret)
{
	bool is_dmabuf = from->kind == MEM_FOREIGN_DMABUF;
	struct ugds_drv_map m = {
		/* a page can be mapped in one manner only: as of host memory */
		.flags = flags | DMA_READ | DMA_WRITE,	.kind = from->kind,
		.fd = is_dmabuf ? from->fd : -1,	.vaddr = is_dmabuf ? 0 : from->addr,
		.offset = is_dmabuf ? from->offset : 0, .nbytes = nbytes,
	};
	struct kmod *k = t;

	if (!is_dmabuf && from->kind != MEM_FOREIGN_CUDA)
		return -EOPNOTSUPP;
	return map(k, &m, pages_of(k, nbytes), ret);
}

int kmod_dma_unmap(void *t, uint64_t handle)
{
	struct ugds_drv_unmap u = { .argsz = sizeof(u), .token = handle };
	int err = kmod_call(t, UGDS_DRV_UNMAP, &u);

	return err == -ENODEV ? 0 : err; /* the kernel has let go of everything */
}

bool kmod_dma_revoked(void *t, uint64_t handle)
{
	struct ugds_drv_extents e = { .argsz = sizeof(e), .token = handle };

	return kmod_call(t, UGDS_DRV_EXTENTS, &e) != 0; /* in doubt it is not used */
}
