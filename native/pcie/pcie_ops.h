/* SPDX-License-Identifier: MIT */
/* The PCIe seam: what a transport supplies so that pcie/ can drive registers and rings through it. */
#ifndef PCIE_PCIE_OPS_H
#define PCIE_PCIE_OPS_H

#include "nvme/ctrl_ops.h"

struct pcie_ops {
	const char *name;
	uint32_t (*reg_read32)(void *t, uint32_t off);
	uint64_t (*reg_read64)(void *t, uint32_t off);
	void (*reg_write32)(void *t, uint32_t off, uint32_t val);
	void (*reg_write64)(void *t, uint32_t off, uint64_t val);
	int (*dma_map)(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret);
	int (*dma_unmap)(void *t, uint64_t handle);
	/* Memory without an address of ours, and whether it was taken away. NULL: there is no way to it. */
	int (*dma_map_foreign)(void *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			       struct dma_mapping *ret);
	bool (*dma_revoked)(void *t, uint64_t handle);
	/* Contiguous memory for rings and list pages, zeroed and present. NULL: the engine takes host memory and maps
	 * it with DMA_CONTIG. */
	int (*queue_alloc)(void *t, size_t nbytes, bool huge, void **ret_vaddr, uint64_t *ret_iova,
			   bool *ret_huge);
	void (*queue_free)(void *t, void *vaddr, size_t nbytes);
	/* As of nvme_ctrl_ops. NULL: words of its user do. */
	_Atomic uint32_t *(*word_get)(void *t);
	void (*word_put)(void *t, _Atomic uint32_t *word);
	int (*irq_bind)(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding);
	int (*irq_unbind)(void *t, uint64_t binding);
	/* A doorbell of @qid was written; wake a sleeping software device. NULL: hardware notices by itself. */
	void (*kick)(void *t, uint32_t qid);
	/* The same after a full fence of the caller's, or from a caller that keeps calling. With kick. */
	void (*kick_fenced)(void *t, uint32_t qid);
	/* Run the device for @qid on this thread. NULL: hardware. */
	uint32_t (*step)(void *t, uint32_t qid, uint32_t max);
	int (*stop_dma)(void *t);
	int (*start_dma)(void *t);
	/* Function level reset, or what there is; DMA is off after it. NULL: nothing. */
	int (*reset)(void *t);
	/* As of nvme_ctrl_ops. NULL: it has nothing to tell. */
	int (*path)(void *t);
	int (*watch)(void *t, int fd);
	void (*place)(void *t, struct nvme_place *ret);
	/* In a forked child: close the device's descriptors, touch nothing else. */
	void (*fork_child)(void *t);
	void (*close)(void *t);
};

struct pcie_shadow;

/* An opened PCI function. The transport fills it; pcie/ reads it. */
struct pcie_dev {
	const struct pcie_ops *ops;
	void *t;
	volatile void *doorbells; /* BAR0 + 0x1000 */
	size_t doorbell_bytes;
	uint32_t nr_vectors;
	uint32_t flags; /* NVME_TR_* */
	bool step_on; /* stepping may be switched off */
	/* kept by pcie/; the transport leaves them zero */
	_Atomic uint32_t *shadow_db, *shadow_ei; /* Doorbell Buffer Config pages, NULL: off */
	struct pcie_shadow *shadow;
};

/* The engine seam over a PCI function; the ctrl's transport pointer is the pcie_dev. */
extern const struct nvme_ctrl_ops pcie_ctrl_ops;

#endif
