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
#define NVME_TR_OWN_WORDS \
	0x10u /* wake-up words are honoured in the transport's own memory only: word_get() */
#define NVME_TR_STAGED \
	0x20u /* it does not reach the memory of a GPU in a stream's order: staged there by copies of the stream */

#define NVME_IOMMU_NONE 0u /* bus addresses are physical ones */
#define NVME_IOMMU_IDENTITY 1u /* there is one, which passes them through */
#define NVME_IOMMU_TRANSLATED 2u
#define NVME_IOMMU_OWN 3u /* the software device's own */

/* Where a device is, for its user. */
struct nvme_place {
	uint32_t iommu; /* NVME_IOMMU_* */
	int32_t numa_node; /* -1: none is known */
	bool coherent; /* rings lie in memory that the transport supplies */
	char bus[24]; /* its PCI address, "" if it has none */
};

struct nvme_ctrl_ops {
	const char *name;
	/* Controller properties (Base 3.1.3). -ENODEV once the device is known to be gone. */
	int (*prop_get)(void *t, uint32_t off, uint32_t nbytes, uint64_t *ret);
	int (*prop_set)(void *t, uint32_t off, uint32_t nbytes, uint64_t val);
	/* Make memory reachable: extents of whole pages. */
	int (*map)(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret);
	int (*unmap)(void *t, uint64_t handle);
	/* The same for memory without an address of ours. NULL: there is no way to it. */
	int (*map_foreign)(void *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			   struct dma_mapping *ret);
	/* After DMA was cut: this mapping's memory was taken away and must not be used again. NULL: never. */
	bool (*map_revoked)(void *t, uint64_t handle);
	/* Stop the device's DMA (bus mastering off), for when CC.EN = 0 is not obeyed. */
	int (*stop_dma)(void *t);
	/* Allow it (again), once CC.EN = 0 was obeyed. NULL: it needs no leave. */
	int (*start_dma)(void *t);
	/* Reset the device by other means than CC.EN, which it does not obey. DMA is off after it. NULL: there are none. */
	int (*reset)(void *t);
	/* 0; or, once DMA was cut for good: -ENODEV the device is gone, else memory was taken away from under it. Any time. */
	int (*path)(void *t);
	/* Signal @fd when path() may have changed. */
	int (*watch)(void *t, int fd);
	void (*place)(void *t, struct nvme_place *ret);
	/* A wake-up word in memory that the transport's interrupts reach; NULL when none is left (then, and for words that
	 * are not its own, wake_bind() signals always). NULL op: any word will do. */
	_Atomic uint32_t *(*word_get)(void *t);
	void (*word_put)(void *t, _Atomic uint32_t *word);
	/* Signal @fd on the vector's interrupts, if *@word is set (and clear it). An owner may bind one word to several. */
	int (*wake_bind)(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding);
	/* Returns when nothing can write to the fd or the word any more. */
	int (*wake_unbind)(void *t, uint64_t binding);
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
