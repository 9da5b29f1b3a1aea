/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What differs between kernels 6.1 and later, under the names of the newest. The only file that
 * looks at versions.
 */
#ifndef UGDS_COMPAT_H
#define UGDS_COMPAT_H

#include <linux/device.h>
#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "ugds_drv needs Linux 6.1 or later"
#endif

static inline void ugds_eventfd_signal(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx, 1);
#else
	eventfd_signal(ctx);
#endif
}

static inline struct class *ugds_class_create(const char *name)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
	return class_create(THIS_MODULE, name);
#else
	return class_create(name);
#endif
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}
#endif

/*
 * Before 6.2 a long-term pin for reading of private memory that was never written pins the zero
 * page, and the owner's first write goes to another one. Breaking copy-on-write beforehand is what
 * drivers did then.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define UGDS_PIN_TO_READ (FOLL_WRITE | FOLL_FORCE)
#else
#define UGDS_PIN_TO_READ 0
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define UGDS_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#else
#define UGDS_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#endif

/* driver_override names the driver that probes. The device lock is held: the string stays. */
static inline bool ugds_named_by_override(struct pci_dev *pdev)
{
#ifdef UGDS_HAVE_DEVICE_OVERRIDE /* Kbuild looks */
#ifdef __CHECKER__ /* sparse does not follow the guard() in it */
	return pdev->dev.driver;
#else
	return device_match_driver_override(&pdev->dev, pdev->dev.driver) > 0;
#endif
#else
	return pdev->driver_override && !strcmp(pdev->driver_override, pdev->dev.driver->name);
#endif
}

/* The member of struct dma_buf_attach_ops. */
#ifndef UGDS_HAVE_INVALIDATE_MAPPINGS
#define invalidate_mappings move_notify
#endif

#endif
