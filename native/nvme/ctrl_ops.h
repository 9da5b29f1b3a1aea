/* SPDX-License-Identifier: MIT */
/*
 * The engine's first seam: a controller as the engine sees it. pcie/ implements it over registers and rings;
 * a fabrics transport would implement it over Property Get/Set capsules and connections.
 */
#ifndef NVME_CTRL_OPS_H
#define NVME_CTRL_OPS_H

#include "nvme/qpair_ops.h"

#define NVME_TR_ARM 0x1u /* wake-up words are honoured: an owner that is awake is not signalled */
#define NVME_TR_STEP 0x2u /* qpair step() exists */
#define NVME_TR_MAP_INLINE 0x4u /* map() needs no system call worth a thread */
#define NVME_TR_DIRECT 0x8u /* the device itself moves the bytes (hardware) */

struct nvme_ctrl_ops {
	const char *name;
	/* Controller properties (Base 3.1.3). -ENODEV once the device is known to be gone. */
	int (*prop_get)(void *t, uint32_t off, uint32_t nbytes, uint64_t *ret);
	int (*prop_set)(void *t, uint32_t off, uint32_t nbytes, uint64_t val);
	/* Make memory reachable: extents of whole pages. */
	int (*map)(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret);
	int (*unmap)(void *t, uint64_t handle);
	/* Stop the device's DMA (bus mastering off), for when CC.EN = 0 is not obeyed. */
	int (*stop_dma)(void *t);
	/* Allow it again, once CC.EN = 0 was obeyed. NULL: it needs no leave. */
	void (*start_dma)(void *t);
	/* Signal @fd on the vector's interrupts, if *@word is set (and clear it). */
	int (*wake_bind)(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding);
	/* Returns when nothing can write to the fd or the word any more. */
	int (*wake_unbind)(void *t, uint64_t binding);
	/* Stream-ordered copies for a software device (NULL: extents are the memory's own). */
	int (*stream_window)(void *t, struct mem_map *map, uint64_t off, uint64_t nbytes,
			     struct dma_mapping *ret);
	/* Queue memory and host state; the controller does not know the pair before connect(). */
	int (*qpair_new)(struct nvme_ctrl *ctrl, const struct nvme_qpair_conf *conf, struct nvme_qpair **ret);
	/* Doorbell Buffer Config: after each enable, before I/O pairs connect; -EOPNOTSUPP where there is none. */
	int (*shadow_setup)(struct nvme_ctrl *ctrl);
	/* Bytes that a command's data pointer can describe, given the controller's page. NULL: any number. */
	uint32_t (*max_transfer)(void *t, uint32_t page_shift);
	uint32_t (*nr_vectors)(void *t);
	uint32_t (*flags)(void *t);
	/* In a forked child: close the device's descriptors, touch nothing else. */
	void (*fork_child)(void *t);
	void (*close)(void *t);
};

#endif
