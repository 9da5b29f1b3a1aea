/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the parts of the module know of each other.
 *
 * Locks, outermost first: the PCI core's device lock (probe and remove only; elsewhere it is tried,
 * never awaited) > ugds_dev.lock > ugds_file.live > ugds_file.reset_lock > ledger.lock, irq_lock >
 * mmap_lock > ugds_dev.bar_lock > spin locks (dma_lock, vector locks). A revocation callback takes
 * spin locks only.
 */
#ifndef UGDS_DRV_H
#define UGDS_DRV_H

#include <linux/mmu_notifier.h>
#include <linux/pci.h>
#include <linux/rwsem.h>

#include "compat.h"
#include "ledger.h"

#define UGDS_NAME "ugds_drv"
#define UGDS_BAR 0
#define UGDS_VECTOR_OWNERS 64
#define UGDS_MAX_BINDINGS 4096
#define UGDS_ARMED_ORDER 2
#define UGDS_ARMED_STRIDE 64
#define UGDS_ARMED_WORDS ((PAGE_SIZE << UGDS_ARMED_ORDER) / UGDS_ARMED_STRIDE)
#define UGDS_QUEUE_MAX (4ull << 20)
#define UGDS_QUEUE_TOTAL (1ull << 30)
#define UGDS_MAX_MAPPINGS (1u << 20)
#define UGDS_MAX_MAP_BYTES (1ull << 40)

/* One vector and whom it wakes. */
struct ugds_vector {
	spinlock_t lock; /* owners; the interrupt handler takes it */
	struct list_head owners;
	u32 nr_owners;
	u32 index;
	int irq; /* 0: not requested. Under irq_lock */
	char name[32];
};

/* One PCI function that is bound. Counted: open files outlive remove. */
struct ugds_dev {
	struct kref ref;
	struct pci_dev *pdev; /* referenced; not to be touched once removed */
	struct device *node; /* of the class */
	int minor;
	struct mutex lock; /* owner, removed */
	struct ugds_file *owner; /* the open file that has the device; not a counted reference */
	bool removed; /* set before remove takes any lock, read without one */
	wait_queue_head_t freed; /* owner became NULL, or removed */
	void __iomem *regs;
	resource_size_t bar_start;
	u64 bar_bytes;
	u64 map_bytes; /* UGDS_DRV info.bar_map_bytes */
	struct {
		u64 first;
		u64 last;
	} hidden[2]; /* bytes of BAR0 with the MSI-X table and PBA, whole pages; first > last: none
		      */
	struct rw_semaphore bar_lock; /* read: a fault inserts a page. write: bar_gone or a reset */
	bool bar_gone;
	struct ugds_vector *vectors;
	u32 nr_vectors;
	spinlock_t dma_lock; /* bus mastering, cut, and the owner's state */
	bool dma_on;
	bool cut; /* bus mastering was taken away from a controller that may have been enabled */
	bool in_reset; /* our own: reset_prepare keeps quiet */
};

/* One open of the device. Counted by the file and by its memory mappings. */
struct ugds_file {
	struct kref ref;
	struct ugds_dev *dev; /* referenced */
	struct mm_struct *mm; /* of the opener; compared, and charged */
	struct mmu_notifier notifier;
	struct pid *pid; /* thread group of the opener */
	struct address_space *mapping;
	struct rw_semaphore live; /* read: a call. write: the end of the tenure */
	bool ended; /* live */
	struct mutex reset_lock;
	struct ugds_ledger ledger;
	atomic_t nr_revoked;
	u64 queue_bytes; /* ledger.lock */
	u32 state; /* UGDS_DRV_STATE_*, dev->dma_lock */
	struct eventfd_ctx *state_event; /* dev->dma_lock */
	struct mutex irq_lock;
	struct xarray bindings;
	u64 last_binding;
	u32 nr_bindings;
	unsigned long *words_used;
	void *armed;
	struct page *dummy[2]; /* of all ones: stand in for the register page, and for all others of
				  BAR0 */
};

static inline struct device *ugds_file_device(struct ugds_file *f)
{
	return &f->dev->pdev->dev;
}

/*
 * The memory of m is being taken away while commands may be live: bus mastering is off when this
 * returns, the file is UGDS_DRV_STATE_REVOKED, and the state eventfd and every bound one have been
 * signalled. Any context that may take spin locks, interrupts on or off; takes dev->dma_lock and
 * the vectors' locks only, so dma_resv or a vendor's lock may be held. m must not have returned
 * from ops->unmap.
 */
void ugds_file_revoke(struct ugds_mapping *m);

/* After an IOMMU unmapping, before the pages are let go: an IOMMU that defers its flushes would let
 * the device reach them. Sleeps not. */
void ugds_iommu_flush(struct device *dev);

extern const struct ugds_map_ops ugds_host_ops;

#endif
