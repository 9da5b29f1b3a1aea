/* SPDX-License-Identifier: MIT */
/*
 * A transport of your own: a PCI function with an NVMe controller, reached through your functions. It is compiled
 * against this file alone; aiougds.lowlevel.add_transport() tells the package of it, and examples/extending/ has one.
 *
 * Functions that return int return 0, or a negative errno; they are called from any thread, several at a time.
 * One that may be NULL says so.
 */
#ifndef UGDS_TRANSPORT_H
#define UGDS_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#define UGDS_TRANSPORT_ABI 1

/* of map() */
#define UGDS_MAP_READ 0x1 /* the device may read it */
#define UGDS_MAP_WRITE 0x2 /* the device may write it */
#define UGDS_MAP_CONTIG 0x4 /* one extent, or -E2BIG: queues */

#define UGDS_TRANSPORT_DIRECT 0x1 /* the device itself moves the bytes */
#define UGDS_TRANSPORT_MAP_FAST 0x2 /* map() is not worth a thread: no system call that takes long */

struct ugds_extent {
	uint64_t iova; /* as commands shall name it */
	uint64_t nbytes;
};

struct ugds_transport {
	uint32_t abi; /* UGDS_TRANSPORT_ABI */
	uint32_t flags; /* UGDS_TRANSPORT_* */
	char name[16]; /* capabilities.transport; ends with a NUL */
	void *t; /* is handed to every function */
	volatile void *doorbells; /* BAR0 + 0x1000; written directly */
	size_t doorbell_bytes;
	uint32_t vectors; /* of interrupts; 1 or more */
	uint32_t reserved;

	/* Registers below the doorbells. All ones: the device is gone. */
	uint32_t (*read32)(void *t, uint32_t off);
	uint64_t (*read64)(void *t, uint32_t off);
	void (*write32)(void *t, uint32_t off, uint32_t val);
	void (*write64)(void *t, uint32_t off, uint64_t val);
	/*
	 * Pin memory, and make it reachable until unmap(): whole pages of 4 KiB, from that of the first byte on, in the
	 * order of addresses. Returns how many @out has, at most @max (one for each page); @ret_handle names it.
	 */
	int64_t (*map)(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct ugds_extent *out,
		       size_t max, uint64_t *ret_handle);
	/* Returns when the device cannot reach it any more. */
	int (*unmap)(void *t, uint64_t handle);
	/* Write 1 to the eventfd on each interrupt of the vector. Several may be bound to one. */
	int (*bind)(void *t, uint32_t vector, int eventfd, uint64_t *ret_binding);
	/* Returns when nothing writes to it any more. */
	int (*unbind)(void *t, uint64_t binding);
	/* A doorbell of that queue pair was written. NULL: the device sees it by itself. */
	void (*kick)(void *t, uint32_t qid);
	/* Have the device reach no memory, though it does not obey CC.EN = 0; and again any, before CC.EN = 1. */
	int (*stop_dma)(void *t);
	int (*start_dma)(void *t);
	/* Reset the function by other means than CC.EN. NULL: there are none. */
	int (*reset)(void *t);
	/* In a forked child: close descriptors of the device, and touch nothing else. NULL: there are none. */
	void (*fork_child)(void *t);
	/* The last call: nothing is mapped or bound any more. Also after an opening that failed. */
	void (*close)(void *t);
};

#endif
