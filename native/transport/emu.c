/* SPDX-License-Identifier: MIT */
#include "transport/emu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "transport/emu_dmabuf.h"
#include "transport/emu_gpu.h"

static_assert(DMA_READ == EMU_DMA_READ && DMA_WRITE == EMU_DMA_WRITE && DMA_CONTIG == EMU_DMA_CONTIG &&
		      DMA_ONWARD == EMU_DMA_ONWARD,
	      "mapping flags are passed through");
static_assert(sizeof(struct dma_extent) == sizeof(struct emu_extent) &&
		      offsetof(struct dma_extent, iova) == offsetof(struct emu_extent, iova) &&
		      offsetof(struct dma_extent, nbytes) == offsetof(struct emu_extent, nbytes),
	      "extents are passed through");

#define IO_PAGE 4096u

/* The function and its controller; ops get the whole. */
struct emu_transport {
	struct pcie_dev dev;
	struct emu_ctrl *e;
	struct emu_dmabufs bufs;
	pid_t pid;
};

static uint32_t op_reg_read32(void *t, uint32_t off)
{
	return emu_reg_read32(((struct emu_transport *)t)->e, off);
}

static uint64_t op_reg_read64(void *t, uint32_t off)
{
	return emu_reg_read64(((struct emu_transport *)t)->e, off);
}

static void op_reg_write32(void *t, uint32_t off, uint32_t val)
{
	emu_reg_write32(((struct emu_transport *)t)->e, off, val);
}

static void op_reg_write64(void *t, uint32_t off, uint64_t val)
{
	emu_reg_write64(((struct emu_transport *)t)->e, off, val);
}

static int op_dma_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct emu_extent *ext;
	uint64_t handle;
	size_t nr;
	int rc = emu_dma_map(((struct emu_transport *)t)->e, vaddr, nbytes, flags, &ext, &nr, &handle);

	if (rc)
		return rc;
	*ret = (struct dma_mapping){ .extents = (struct dma_extent *)(void *)ext,
				     .nr = nr,
				     .handle = handle,
				     .first_off = (uintptr_t)vaddr & (IO_PAGE - 1) };
	return 0;
}

/* GPU memory is reached through pinned memory, by copies that the GPU's engines do; a dma-buf as host memory. */
static int op_dma_map_foreign(void *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			      struct dma_mapping *ret)
{
	struct emu_transport *et = t;
	struct emu_extent *ext;
	uint64_t handle;
	size_t nr;
	int rc;

	if (from->kind == MEM_FOREIGN_DMABUF)
		return emu_dmabuf_map(&et->bufs, et->e, from, nbytes, flags, ret);
	rc = emu_dma_map_far(et->e, from->kind, from->addr, nbytes, flags, &ext, &nr, &handle);
	if (rc)
		return rc;
	*ret = (struct dma_mapping){ .extents = (struct dma_extent *)(void *)ext,
				     .nr = nr,
				     .handle = handle,
				     .first_off = from->addr & (IO_PAGE - 1),
				     .traits = MEM_STAGED };
	return 0;
}

static int op_dma_unmap(void *t, uint64_t handle)
{
	struct emu_transport *et = t;
	int rc = emu_dma_unmap(et->e, handle);

	if (!rc)
		emu_dmabuf_unmap(&et->bufs, handle);
	return rc;
}

static int op_irq_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding)
{
	return emu_irq_bind(((struct emu_transport *)t)->e, vector, fd, word, ret_binding);
}

static int op_irq_unbind(void *t, uint64_t binding)
{
	return emu_irq_unbind(((struct emu_transport *)t)->e, binding);
}

static void op_kick(void *t, uint32_t qid) { emu_kick(((struct emu_transport *)t)->e, qid); }

static void op_kick_fenced(void *t, uint32_t qid) { emu_kick_fenced(((struct emu_transport *)t)->e, qid); }

static uint32_t op_step(void *t, uint32_t qid, uint32_t max)
{
	return emu_step(((struct emu_transport *)t)->e, qid, max);
}

static int op_stop_dma(void *t)
{
	emu_stop_dma(((struct emu_transport *)t)->e);
	return 0;
}

static int op_start_dma(void *t)
{
	emu_start_dma(((struct emu_transport *)t)->e);
	return 0;
}

static void op_place(void *t, struct nvme_place *ret)
{
	(void)t;
	ret->iommu = NVME_IOMMU_OWN;
}

static void op_fork_child(void *t)
{
	struct emu_transport *et = t;

	emu_fork_child(et->e);
	emu_dmabufs_fork_child(&et->bufs);
}

static void op_close(void *t)
{
	struct emu_transport *et = t;

	emu_free(et->e);
	/* the parent's, in a forked child */
	if (et->pid == getpid())
		emu_dmabufs_done(&et->bufs);
	free(et);
}

static const struct pcie_ops emu_ops = {
	.name = "emu",
	.reg_read32 = op_reg_read32,
	.reg_read64 = op_reg_read64,
	.reg_write32 = op_reg_write32,
	.reg_write64 = op_reg_write64,
	.dma_map = op_dma_map,
	.dma_map_foreign = op_dma_map_foreign,
	.dma_unmap = op_dma_unmap,
	.irq_bind = op_irq_bind,
	.irq_unbind = op_irq_unbind,
	.kick = op_kick,
	.kick_fenced = op_kick_fenced,
	.step = op_step,
	.stop_dma = op_stop_dma,
	.start_dma = op_start_dma,
	.place = op_place,
	.fork_child = op_fork_child,
	.close = op_close,
};

int emu_transport_new(const struct emu_params *p, struct pcie_dev **ret, struct emu_ctrl **ret_emu, char *err,
		      size_t err_len)
{
	struct emu_transport *et = calloc(1, sizeof(*et));
	struct emu_state state;
	void *gpu = emu_gpu_new();
	int rc = -ENOMEM;

	if (et && gpu)
		rc = emu_new(p, &et->e, err, err_len);
	else
		snprintf(err, err_len, "no memory for an embedded controller");
	if (rc) {
		if (gpu)
			emu_gpu_ops.close(gpu);
		free(et);
		return rc;
	}
	emu_set_dma(et->e, &emu_gpu_ops, gpu);
	pthread_mutex_init(&et->bufs.lock, NULL);
	et->pid = getpid();
	emu_get_state(et->e, &state);
	et->dev.ops = &emu_ops;
	et->dev.t = et;
	et->dev.doorbells = emu_doorbells(et->e, &et->dev.doorbell_bytes);
	et->dev.nr_vectors = p->vectors;
	et->dev.flags = NVME_TR_ARM | NVME_TR_MAP_INLINE | NVME_TR_STAGED | (state.step ? NVME_TR_STEP : 0);
	et->dev.step_on = state.step;
	*ret = &et->dev;
	*ret_emu = et->e;
	return 0;
}
