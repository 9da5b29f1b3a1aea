/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * The interface of ugds_drv: /dev/ugds_drvN is one NVMe PCI function, opened by one process at a time.
 *
 * The kernel knows no command, PRP or queue. It maps BAR0, makes memory reachable for the device, hands interrupts
 * to eventfds, and stops the controller before it releases memory that the device could still touch.
 *
 * Every structure begins with argsz (the caller's sizeof) and flags. Larger structures of later versions are
 * accepted when what this version does not know is zero (-E2BIG otherwise); unknown flags and non-zero reserved
 * fields are -EINVAL; an unknown command is -ENOTTY (the numbers carry no size: argsz does). All fields have a fixed width and natural alignment, so 32-bit
 * callers use the same layout. Pointers travel as __u64.
 *
 * Errors that every command may give: -ENODEV the function was removed or unbound, -EIO memory was revoked
 * (UGDS_DRV_STATE_REVOKED) and nothing but STATE, UNMAP, IRQ_UNBIND and RESET works, -EOWNERDEAD the process that opened the file has
 * ended (a forked child uses it), -EINTR a fatal signal came.
 */
#ifndef UGDS_IOCTL_H
#define UGDS_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define UGDS_DRV_API_MAJOR 1 /* changes when a caller of the old one would break */
#define UGDS_DRV_API_MINOR 0 /* grows with every addition */

#define UGDS_DRV_IOC 0xAF

/* ---- INFO: what there is. Nothing changes. ---- */

#define UGDS_DRV_CAP_HOST (1ull << 0) /* MAP_HOST */
#define UGDS_DRV_CAP_DMABUF (1ull << 1) /* MAP_DMABUF: built in */
#define UGDS_DRV_CAP_DMABUF_P2P \
	(1ull << 2) /* importers that reach device memory are accepted by exporters */
#define UGDS_DRV_CAP_CUDA (1ull << 3) /* nvidia_p2p_* was found just now */
#define UGDS_DRV_CAP_CUDA_PERSISTENT \
	(1ull << 4) /* pages that are not revoked when they are freed */
#define UGDS_DRV_CAP_FLR (1ull << 5) /* RESET can reset the function */
#define UGDS_DRV_CAP_IOMMU (1ull << 6) /* bus addresses are translated for this function */
#define UGDS_DRV_CAP_ARM (1ull << 7) /* armed words */

struct ugds_drv_info {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u16 api_major;
	__u16 api_minor;
	__u32 page_size; /* of mappings of host memory */
	__u64 caps; /* UGDS_DRV_CAP_* */
	__u64 bar_bytes; /* of BAR0 */
	__u64 bar_map_bytes; /* of BAR0 that can be mapped from offset 0: up to the MSI-X table or PBA where they lie behind */
	__u32 nr_vectors; /* MSI-X vectors that were granted */
	__u32 vector_owners; /* bindings that one vector can have */
	__u32 max_mappings; /* of one open file */
	__u32 armed_words; /* in the pages at UGDS_DRV_MMAP_ARMED, one in each armed_stride bytes */
	__u32 armed_stride;
	__s32 numa_node; /* -1: none is known */
	__u32 domain; /* of the PCI address */
	__u16 bus;
	__u16 devfn;
	__u16 vendor;
	__u16 device;
	__u32 dma_bits; /* of addresses that the function is given */
	__u64 max_map_bytes; /* of one mapping */
};

/* ---- mmap() offsets ---- */

#define UGDS_DRV_MMAP_BAR0 \
	0x0ull /* uncached; pages with the MSI-X table or PBA are refused (-EACCES) */
#define UGDS_DRV_MMAP_ARMED (1ull << 40) /* the pages of armed words */
#define UGDS_DRV_MMAP_QUEUE (2ull << 40) /* and above: what QUEUE_ALLOC returned */
/*
 * All are MAP_SHARED only, are not inherited by fork (VM_DONTCOPY) and cannot grow (VM_DONTEXPAND). When the function goes away,
 * BAR0 mappings are replaced by private memory of all ones that takes writes: no SIGBUS, and nothing reaches a device.
 */

/* ---- memory ---- */

/* One piece of bus addresses, whole pages. In the order of the memory. */
struct ugds_drv_extent {
	__u64 iova;
	__u64 nbytes;
};

#define UGDS_DRV_MAP_READ (1u << 0) /* the device may read it */
#define UGDS_DRV_MAP_WRITE (1u << 1) /* the device may write it */
#define UGDS_DRV_MAP_CONTIG (1u << 2) /* one extent, or -ENOTUNIQ */
#define UGDS_DRV_MAP_REQUIRE_PEER \
	(1u << 3) /* device memory only: -EXDEV when it turns out to be system memory */

/* ret_flags */
#define UGDS_DRV_MAPPED_SYSTEM (1u << 0) /* DMABUF: it lies in system memory, not in a device */
#define UGDS_DRV_MAPPED_PERSISTENT (1u << 1) /* CUDA: it stays although the owner frees it */
#define UGDS_DRV_MAPPED_REVOCABLE \
	(1u << 2) /* the exporter may take it away: see UGDS_DRV_STATE_REVOKED */

#define UGDS_DRV_MAP_HOST \
	0 /* vaddr: pages of the caller, pinned for long, charged to RLIMIT_MEMLOCK */
#define UGDS_DRV_MAP_DMABUF 1 /* fd, offset, nbytes: a dma-buf, attached and pinned */
#define UGDS_DRV_MAP_CUDA 2 /* vaddr: CUDA device memory through nvidia_p2p_* */

/*
 * Make memory reachable for the device. Any byte range: the pages that hold it are mapped, first_off says where in the first extent
 * it begins. Pages may be in several mappings of the same kind and flags (they are counted); -EEXIST when a live mapping of
 * another kind or other READ/WRITE flags has one of them. -EFAULT not such memory, -ENOMEM a limit of memory locking,
 * -ENOSPC max_mappings, -E2BIG max_map_bytes, -EOPNOTSUPP a kind that is not to be had (with CUDA: the driver is absent, or
 * exports nvidia_p2p_* to nobody under the GPL), -ETIMEDOUT a fence of the dma-buf did not signal.
 *
 * extents points to nr_extents structures (may be 0): as many as fit are written and nr_extents becomes how many there are. The rest is had with EXTENTS.
 */
struct ugds_drv_map {
	__u32 argsz;
	__u32 flags; /* UGDS_DRV_MAP_READ... */
	__u32 kind;
	__s32 fd; /* DMABUF; else -1 */
	__u64 vaddr; /* HOST, CUDA; else 0 */
	__u64 offset; /* DMABUF; else 0 */
	__u64 nbytes;
	__u64 extents;
	__u32 nr_extents;
	__u32 ret_flags;
	__u64 ret_token; /* never 0, never used again by this file */
	__u32 ret_first_off;
	__u32 ret_page_size; /* that extents are multiples of */
};

/*
 * Extents first .. first + nr_extents - 1; nr_extents becomes how many were written. -ENOENT: no such mapping.
 * -ESTALE: its memory was taken away; it is to be unmapped, and stays so after a reset has ended STATE_REVOKED.
 */
struct ugds_drv_extents {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u64 token;
	__u32 first;
	__u32 nr_extents;
	__u64 extents;
};

/* Undo MAP or QUEUE_ALLOC. -ENOENT: no such token. -EBUSY: queue memory that is mapped by mmap() still. */
struct ugds_drv_unmap {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u64 token;
};

/* Coherent, zeroed memory in one piece for rings, mapped at ret_offset by mmap(). -E2BIG: more than 4 MiB. */
struct ugds_drv_queue_alloc {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u64 nbytes; /* rounded up to whole pages and returned */
	__u64 ret_token;
	__u64 ret_iova;
	__u64 ret_offset;
};

/* ---- interrupts ---- */

#define UGDS_DRV_NO_WORD 0xffffffffu

/*
 * Signal an eventfd when the vector fires; several owners may share a vector. With a word, only if the word
 * (a __u32 at word * armed_stride in the armed page) is not zero, which it becomes: exchanged by the handler with full ordering. An owner with
 * queues on two vectors binds the same word and eventfd to both: whichever fires first takes the word. -EINVAL no such
 * vector or word, -EBADF not an eventfd, -EEXIST the word is bound with another eventfd, -ENOSPC vector_owners.
 */
struct ugds_drv_irq_bind {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u32 vector;
	__s32 fd;
	__u32 word; /* or UGDS_DRV_NO_WORD */
	__u32 reserved;
	__u64 ret_binding;
};

/* When it returns nothing touches the eventfd or the word any more. -ENOENT: no such binding. */
struct ugds_drv_irq_unbind {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u64 binding;
};

/* ---- state ---- */

#define UGDS_DRV_STATE_DMA (1u << 0) /* bus mastering is on */
#define UGDS_DRV_STATE_REVOKED \
	(1u << 1) /* memory was taken away while mapped: bus mastering was cut before it went */
#define UGDS_DRV_STATE_REMOVED (1u << 2) /* the function is gone, or was unbound */

/* Works in every state, removed too. event_fd: an eventfd that is signalled at every change of state; -1: leave the one that is set. */
struct ugds_drv_state {
	__u32 argsz;
	__u32 flags; /* 0 */
	__s32 event_fd;
	__u32 ret_state;
	__u32 ret_nr_mappings; /* live: host, dma-buf, CUDA and queue memory */
	__u32 ret_nr_revoked; /* of these, mappings whose memory was taken away */
	__u64 ret_pinned_bytes;
};

#define UGDS_DRV_RESET_STOP_DMA \
	0 /* bus mastering off: the device reaches no memory until START_DMA */
#define UGDS_DRV_RESET_START_DMA \
	1 /* on; -EPERM while CC.EN is set after STOP_DMA or a revoke: it would go on where it was cut */
#define UGDS_DRV_RESET_DISABLE 2 /* CC.EN = 0, CSTS.RDY = 0 awaited as CAP.TO says (-ETIMEDOUT) */
#define UGDS_DRV_RESET_FUNCTION \
	3 /* stop DMA, then FLR or what the function offers; config space restored, DMA off; ends STATE_REVOKED as DISABLE does */

struct ugds_drv_reset {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u32 how; /* UGDS_DRV_RESET_* */
	__u32 reserved;
};

/* ---- topology ---- */

#define UGDS_DRV_IOMMU_NONE 0
#define UGDS_DRV_IOMMU_IDENTITY 1 /* passed through: bus addresses are physical ones */
#define UGDS_DRV_IOMMU_TRANSLATED 2

#define UGDS_DRV_PATH_UNKNOWN 0
#define UGDS_DRV_PATH_SWITCH 1 /* below one switch, and ACS lets them talk directly */
#define UGDS_DRV_PATH_REDIRECTED 2 /* below one switch, but ACS sends it through the root complex */
#define UGDS_DRV_PATH_ROOT \
	3 /* below one root complex: whether it forwards is the platform's affair */
#define UGDS_DRV_PATH_APART 4 /* different root complexes */

/* About this function, and with peer_valid about the way to another one, named by its PCI address. -ENXIO: no such function. */
struct ugds_drv_topology {
	__u32 argsz;
	__u32 flags; /* 0 */
	__u32 peer_valid;
	__u32 peer_domain;
	__u16 peer_bus;
	__u16 peer_devfn;
	__s32 ret_numa_node;
	__u32 ret_iommu; /* UGDS_DRV_IOMMU_* */
	__s32 ret_peer_numa_node;
	__u32 ret_path; /* UGDS_DRV_PATH_* */
	__u32 ret_hops; /* bridges passed, 0 where there is no common one */
};

#define UGDS_DRV_INFO _IO(UGDS_DRV_IOC, 0x00) /* struct ugds_drv_info */
#define UGDS_DRV_MAP _IO(UGDS_DRV_IOC, 0x01) /* struct ugds_drv_map */
#define UGDS_DRV_EXTENTS _IO(UGDS_DRV_IOC, 0x02) /* struct ugds_drv_extents */
#define UGDS_DRV_UNMAP _IO(UGDS_DRV_IOC, 0x03) /* struct ugds_drv_unmap */
#define UGDS_DRV_QUEUE_ALLOC _IO(UGDS_DRV_IOC, 0x04) /* struct ugds_drv_queue_alloc */
#define UGDS_DRV_IRQ_BIND _IO(UGDS_DRV_IOC, 0x05) /* struct ugds_drv_irq_bind */
#define UGDS_DRV_IRQ_UNBIND _IO(UGDS_DRV_IOC, 0x06) /* struct ugds_drv_irq_unbind */
#define UGDS_DRV_STATE _IO(UGDS_DRV_IOC, 0x07) /* struct ugds_drv_state */
#define UGDS_DRV_RESET _IO(UGDS_DRV_IOC, 0x08) /* struct ugds_drv_reset */
#define UGDS_DRV_TOPOLOGY _IO(UGDS_DRV_IOC, 0x09) /* struct ugds_drv_topology */

#endif
