/* SPDX-License-Identifier: MIT */
/* dma-bufs for the embedded controller: memory of any exporter that lets the processor map it. */
#ifndef TRANSPORT_EMU_DMABUF_H
#define TRANSPORT_EMU_DMABUF_H

#include <pthread.h>

#include "emu/emu.h"
#include "pcie/pcie_ops.h"

struct emu_dmabuf;

struct emu_dmabufs {
	pthread_mutex_t lock;
	struct emu_dmabuf *_Atomic first;
};

int emu_dmabuf_map(struct emu_dmabufs *b, struct emu_ctrl *e, const struct mem_foreign *from, size_t nbytes,
		   uint32_t flags, struct dma_mapping *ret);
/* After emu_dma_unmap() of @handle, which may be something else's. */
void emu_dmabuf_unmap(struct emu_dmabufs *b, uint64_t handle);
/* After emu_free(). */
void emu_dmabufs_done(struct emu_dmabufs *b);
void emu_dmabufs_fork_child(struct emu_dmabufs *b);

#endif
