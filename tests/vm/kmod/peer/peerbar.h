/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* For tests: an ivshmem device's memory, and dma-bufs over it. */
#ifndef PEERBAR_H
#define PEERBAR_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "peer_ioctl.h"

#define PEERBAR_MAX 8

struct pci_dev;
struct vm_area_struct;

struct peer_bar {
	struct kref kref; /* the PCI device, each open file, each export */
	unsigned int index;
	u64 phys;
	u64 nbytes;
	struct mutex lock; /* of exports and dead; taken before a reservation lock */
	struct list_head exports;
	bool dead; /* the PCI device is gone */
	atomic_t attachments;
	atomic_t maps;
	atomic_t pins;
	atomic_t pins_ever;
	atomic_t revoked_ever;
};

void peer_bar_put(struct peer_bar *bar);
int peer_bar_mmap(struct peer_bar *bar, struct vm_area_struct *vma, u64 offset);

int peer_export_new(struct peer_bar *bar, struct peerbar_export *req);
int peer_export_revoke(struct peer_bar *bar, const struct peerbar_fd *req);
int peer_export_signal(struct peer_bar *bar, const struct peerbar_fd *req);
void peer_export_gone(struct peer_bar *bar);

/* For the stand-in of nvidia_p2p_*: where device pointers lead to. -EFAULT: nowhere. */
int peerbar_lookup(u64 va, u64 nbytes, u64 *ret_phys);

#endif
