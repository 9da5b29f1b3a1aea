/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * For tests: /dev/peerbarN is the memory of the N-th ivshmem device (its BAR2, which stands for a
 * GPU's memory), /dev/nvp2p frees "device memory" under whoever pinned it. mmap() of /dev/peerbarN
 * is the far side of the BAR.
 */
#ifndef PEER_IOCTL_H
#define PEER_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The "device pointer" of byte x of the N-th BAR is PEER_VA(N) + x. */
#define PEER_VA_BASE 0x100000000000ull
#define PEER_VA_STRIDE 0x010000000000ull
#define PEER_VA(n) (PEER_VA_BASE + (n) * PEER_VA_STRIDE)

struct peerbar_info {
	__u64 bar_bytes;
	__u64 device_va; /* of its first byte */
	__u32 exports; /* dma-bufs that live */
	__u32 attachments; /* of these, all together */
	__u32 maps;
	__u32 pins;
	__u32 pins_ever;
	__u32 revoked_ever; /* importers that were told */
};

#define PEERBAR_SYSTEM (1u << 0) /* lies in system memory, and not in the BAR */
#define PEERBAR_STATIC (1u << 1) /* no pin, no move: as older exporters */
#define PEERBAR_REVERSED (1u << 2) /* the last piece of the buffer comes first in the BAR */
#define PEERBAR_MISALIGNED (1u << 3) /* bus addresses lie 512 bytes behind a page's begin */
/* Pieces are no whole pages. With REVERSED, so that they are no neighbours. */
#define PEERBAR_RESIDUE (1u << 4)
#define PEERBAR_SHORT (1u << 5) /* the list ends before the buffer does */
#define PEERBAR_FENCE (1u << 6) /* a fence that does not signal before PEERBAR_SIGNAL */
#define PEERBAR_PIN_FAILS (1u << 7) /* -EBUSY */
#define PEERBAR_MAP_FAILS (1u << 8) /* -ENOSPC */
#define PEERBAR_EMPTY (1u << 9) /* a piece of length 0 in the list */

struct peerbar_export {
	__u64 offset;
	__u64 nbytes;
	__u32 how; /* PEERBAR_* */
	__s32 ret_fd;
	__u64 piece; /* bytes of an entry of the scatter list; 0: 1 GiB */
};

struct peerbar_fd {
	__s32 fd;
	__u32 gone; /* REVOKE: mapping it again fails with -ENODEV */
};

#define PEERBAR_IOC 0xAE
#define PEERBAR_INFO _IOR(PEERBAR_IOC, 0, struct peerbar_info)
#define PEERBAR_EXPORT _IOWR(PEERBAR_IOC, 1, struct peerbar_export)
#define PEERBAR_REVOKE       \
	_IOW(PEERBAR_IOC, 2, \
	     struct peerbar_fd) /* tell every importer; when it returns they have stopped */
#define PEERBAR_SIGNAL _IOW(PEERBAR_IOC, 3, struct peerbar_fd)
#define PEERBAR_GONE _IO(PEERBAR_IOC, 4) /* what removing the device does to all its exports */

struct nvp2p_free {
	__u64 va;
	__u64 nbytes;
	__u32 ret_callbacks; /* how many were run */
	__u32 reserved;
};

struct nvp2p_info {
	__u32 tables; /* live, both sorts */
	__u32 persistent; /* of these */
	__u32 mappings;
	__u32 callbacks_ever;
};

#define NVP2P_IOC 0xAD
#define NVP2P_INFO _IOR(NVP2P_IOC, 0, struct nvp2p_info)
#define NVP2P_FREE _IOWR(NVP2P_IOC, 1, struct nvp2p_free) /* as cudaFree; persistent pages stay */

#endif
