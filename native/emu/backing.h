/* SPDX-License-Identifier: MIT */
/* What a namespace's blocks are kept in: a file, or memory that is taken as it is written. */
#ifndef EMU_BACKING_H
#define EMU_BACKING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "emu/lock.h"

#define EMU_MEMORY_CHUNK (2ull << 20)
#define EMU_AHEAD_LEAST (32ull << 10) /* a write that is worth it */
#define EMU_TURN_LEAST (64ull << 10) /* a read that is worth the question */
#define EMU_AHEAD_BYTES (2ull << 20) /* of these, before the disk is told to begin */

struct emu_params;

#define EMU_MEMORY_MOST \
	(64ull << 30) /* what a namespace in memory can grow to, if it is not larger already */
#define EMU_NSID_DETACHED 0xfffffffeu /* reserved (Base 3.2.1): no host sends it */

struct emu_ns {
	_Atomic uint32_t nsid; /* EMU_NSID_DETACHED: out of sight */
	uint32_t id; /* what it is when it is attached */
	uint8_t shift; /* log2 of a block */
	bool readonly;
	bool nowait; /* RWF_NOWAIT works */
	bool memory_like; /* tmpfs: never waits for a device */
	bool made; /* the file is new */
	int fd; /* -1: memory */
	int direct_fd; /* the same file with O_DIRECT; -1: through the page cache only */
	uint32_t direct_align; /* of memory, offsets and lengths that it takes */
	bool ahead; /* the disk is told to begin with what was written before it is flushed */
	struct emu_lock ahead_lock;
	uint64_t ahead_first, ahead_end, ahead_bytes; /* written since it was told last */
	pthread_mutex_t turn; /* of who reads from the disk, where reads go on from one another */
	_Atomic uint64_t read_end; /* of the last read */
	_Atomic bool cold_run; /* it, or one that it went on from, was not cached */
	uint32_t metadata_bytes;
	_Atomic uint32_t tail_bytes; /* of a last, partial block: reads as zeros beyond, is not written */
	_Atomic uint64_t nr_blocks;
	uint64_t nbytes; /* of the file or memory; written under admin_lock */
	uint64_t max_bytes; /* that the chunk table has room for */
	_Atomic uint64_t nr_used; /* memory chunks taken */
	void *_Atomic *chunks;
};

/* 0, or -errno with a sentence in @err. */
int emu_backing_open(const struct emu_params *p, uint32_t index, struct emu_ns *ns, char *err,
		     size_t err_len);
void emu_backing_close(struct emu_ns *ns);
/* Remove its file, if opening it made it and nobody has used it yet. */
void emu_backing_unmake(const struct emu_params *p, uint32_t index, struct emu_ns *ns);
/* Move @nbytes; the vector is used up. -EAGAIN only with @nowait. */
int emu_backing_read(struct emu_ns *ns, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		     bool nowait);
int emu_backing_write(struct emu_ns *ns, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		      bool dsync);
/* Wait until it is the turn of a read through the page cache. True: give it back behind the read. */
bool emu_turn_take(struct emu_ns *ns, uint64_t off, uint64_t nbytes);
void emu_turn_give(struct emu_ns *ns);
int emu_backing_zero(struct emu_ns *ns, uint64_t off, uint64_t nbytes, bool punch);
int emu_backing_sync(struct emu_ns *ns);
uint64_t emu_backing_used(struct emu_ns *ns);
/* Who holds a lock on the file behind @fd, in words. */
void emu_lock_holder(int fd, char *buf, size_t len);
/* Open and lock; the name that errors use is @path. */
int emu_file_open(const struct emu_params *p, const char *path, uint64_t want_bytes, uint32_t lba_bytes,
		  struct emu_ns *ns, char *err, size_t err_len);
void emu_file_unmake(const char *path, struct emu_ns *ns);

int emu_memory_new(struct emu_ns *ns);
void emu_memory_free(struct emu_ns *ns);
void emu_memory_read(struct emu_ns *ns, uint64_t off, void *dst, uint64_t nbytes);
int emu_memory_write(struct emu_ns *ns, uint64_t off, const void *src, uint64_t nbytes);
void emu_memory_zero(struct emu_ns *ns, uint64_t off, uint64_t nbytes);

#endif
