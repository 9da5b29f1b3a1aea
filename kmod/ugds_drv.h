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
#define UGDS_QUEUE_MAX BIT_ULL(22)
#define UGDS_QUEUE_TOTAL BIT_ULL(30)
#define UGDS_MAX_MAPPINGS BIT(20)
#define UGDS_MAX_MAP_BYTES BIT_ULL(40)

/* One vector and whom it wakes. */
struct ugds_vector {
	spinlock_t lock; /* owners; the interrupt handler takes it */
	struct list_head owners;
	u32 nr_owners; /* irq_lock */
	u32 index;
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
	bool resetting; /* somebody else resets the function now */
	wait_queue_head_t freed; /* owner became NULL, removed, or not resetting any more */
	void __iomem *regs;
	resource_size_t bar_start;
	u64 bar_bytes;
	u64 map_bytes; /* UGDS_DRV info.bar_map_bytes */
	struct {
		u64 first;
		u64 last;
	} hidden[2]; /* bytes of BAR0 with the MSI-X table and PBA, whole pages; first > last: none
		      */
	struct rw_semaphore bar_lock; /* read: a fault inserts a page. write: zap, reset */
	struct ugds_vector *vectors;
	u32 nr_vectors;
	spinlock_t dma_lock; /* bus mastering, cut, and the owner's state */
	bool dma_on;
	bool cut; /* bus mastering was taken away from a controller that may have been enabled */
	u32 nr_revocations; /* dma_lock */
	struct task_struct *resetter; /* our own reset runs: reset_prepare keeps quiet */
};

/* One armed word. */
struct ugds_word {
	struct eventfd_ctx *event; /* of the bindings, which hold it */
	u32 bindings;
};

/* One open of the device. */
struct ugds_file {
	struct ugds_dev *dev; /* referenced */
	struct mm_struct *mm; /* of the opener; compared, and charged */
	struct mmu_notifier notifier;
	struct pid *pid; /* thread group of the opener */
	struct address_space *mapping;
	struct rw_semaphore live; /* read: a call. write: the end of the tenure */
	int ended; /* live: 0, or what calls answer */
	bool bar_gone; /* dev->bar_lock */
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
	struct ugds_word *words; /* irq_lock */
	void *armed;
	struct page *dummy[2]; /* all ones: for the register page, and for all others of BAR0 */
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

/*
 * After an IOMMU unmapping, before the pages are let go: an IOMMU that defers its flushes would let
 * the device reach them. Does not sleep.
 */
void ugds_iommu_flush(struct device *dev);

extern const struct ugds_map_ops ugds_host_ops;

/* main.c */
struct ugds_dev *ugds_dev_get(unsigned int minor); /* NULL: none is bound there */
void ugds_dev_put(struct ugds_dev *dev);

/* cdev.c */
int ugds_cdev_init(dev_t first, unsigned int nr);
void ugds_cdev_done(void);

/* file.c */
struct ugds_file *ugds_file_open(struct ugds_dev *dev, struct address_space *mapping);
void ugds_file_close(struct ugds_file *f);
/* The function is removed: dev->lock and the device lock are held. */
void ugds_dev_end_tenure(struct ugds_dev *dev);

/* control.c */
bool ugds_can_reset(struct ugds_dev *dev);
void ugds_dev_cut(struct ugds_dev *dev, u32 why);
/* CC.EN = 0 awaited, else a reset of the function; bus mastering is off in any case. */
void ugds_dev_stop(struct ugds_dev *dev, bool device_locked);
int ugds_file_reset(struct ugds_file *f, u32 how);
void ugds_file_set_state(struct ugds_file *f, u32 state);
/* Set the eventfd of state changes (a reference is taken over; NULL: leave it). The state. */
u32 ugds_file_watch(struct ugds_file *f, struct eventfd_ctx *event);
bool ugds_file_is_revoked(struct ugds_file *f);

/* bar.c */
int ugds_bar_init(struct ugds_dev *dev);
void ugds_bar_done(struct ugds_dev *dev);
int ugds_bar_mmap(struct ugds_file *f, struct vm_area_struct *vma);
void ugds_bar_zap(struct ugds_file *f);

/* irq.c */
int ugds_irq_init(struct ugds_dev *dev);
void ugds_irq_done(struct ugds_dev *dev);
int ugds_irq_bind(struct ugds_file *f, struct ugds_drv_irq_bind *arg);
int ugds_irq_unbind(struct ugds_file *f, u64 id);
void ugds_irq_unbind_all(struct ugds_file *f);
void ugds_irq_signal_all(struct ugds_dev *dev);

/* map.c */
u64 ugds_map_caps(struct ugds_file *f);
int ugds_map(struct ugds_file *f, struct ugds_drv_map *arg, void __user *user);
int ugds_queue(struct ugds_file *f, struct ugds_drv_queue_alloc *arg, void __user *user);
int ugds_extents(struct ugds_file *f, struct ugds_drv_extents *arg, void __user *user);
int ugds_unmap(struct ugds_file *f, const struct ugds_drv_unmap *arg);
void ugds_unmap_all(struct ugds_file *f);

/* queue_mem.c */
int ugds_queue_alloc(struct ugds_file *f, struct ugds_drv_queue_alloc *arg,
		     struct ugds_mapping **ret_m);
int ugds_queue_mmap(struct ugds_file *f, struct vm_area_struct *vma);
bool ugds_queue_is_mapped(struct ugds_mapping *m);

/* host_mem.c */
int ugds_charge(struct ugds_ledger *l, struct ugds_mapping *m, s64 nr_pages);

/* topology.c */
u32 ugds_iommu_of(struct device *dev); /* UGDS_DRV_IOMMU_* */
/* The DMA layer may copy through memory of its own instead of mapping. */
bool ugds_dma_may_bounce(struct device *dev);
int ugds_topology(struct ugds_file *f, struct ugds_drv_topology *arg);

#endif
