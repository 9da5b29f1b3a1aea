/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "emu/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emu/emu.h"
#include "support/util.h"

int emu_backing_open(const struct emu_params *p, uint32_t index, struct emu_ns *ns, char *err, size_t err_len)
{
	const struct emu_ns_params *n = &p->ns[index];
	char path[EMU_PATH_MAX + 16];
	int rc;

	memset(ns, 0, sizeof(*ns));
	ns->fd = -1;
	atomic_init(&ns->nsid, n->nsid);
	ns->id = n->nsid;
	ns->shift = (uint8_t)__builtin_ctz(n->lba_bytes);
	ns->metadata_bytes = n->metadata_bytes;
	ns->readonly = p->readonly;
	if (n->nbytes & (n->lba_bytes - 1)) {
		snprintf(err, err_len,
			 "namespace %u: size %llu is not a multiple of the block size %u; round it to blocks",
			 n->nsid, (unsigned long long)n->nbytes, n->lba_bytes);
		return -EINVAL;
	}
	if (p->path) {
		snprintf(path, sizeof(path), index ? "%s.ns%u" : "%s", p->path, n->nsid);
		rc = emu_file_open(p, path, n->nbytes, n->lba_bytes, ns, err, err_len);
		if (rc)
			return rc;
	} else {
		if (!n->nbytes) {
			snprintf(err, err_len, "namespace %u in memory needs a size, as in size=1GiB",
				 n->nsid);
			return -EINVAL;
		}
		ns->nbytes = n->nbytes;
		rc = emu_memory_new(ns);
		if (rc) {
			snprintf(err, err_len, "no memory for the chunk table of a namespace of %llu bytes",
				 (unsigned long long)n->nbytes);
			return rc;
		}
	}
	atomic_init(&ns->nr_blocks, (ns->nbytes + n->lba_bytes - 1) >> ns->shift);
	atomic_init(&ns->tail_bytes, (uint32_t)(ns->nbytes & (n->lba_bytes - 1)));
	return 0;
}

void emu_backing_close(struct emu_ns *ns)
{
	if (ns->fd >= 0) {
		/* a forked child may have the file open still, and with it would have the lock */
		flock(ns->fd, LOCK_UN);
		close(ns->fd);
	}
	ns->fd = -1;
	emu_memory_free(ns);
}

void emu_fork_child(struct emu_ctrl *e)
{
	for (uint32_t i = 0; i < e->nr_ns; i++) {
		if (e->ns[i].fd >= 0)
			close(e->ns[i].fd);
		e->ns[i].fd = -1;
	}
}

static void advance(struct iovec **iov, uint32_t *nr, size_t n)
{
	while (n && *nr) {
		size_t step = min_u64(n, (*iov)->iov_len);

		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + step;
		(*iov)->iov_len -= step;
		n -= step;
		if (!(*iov)->iov_len) {
			(*iov)++;
			(*nr)--;
		}
	}
}

int emu_backing_read(struct emu_ns *ns, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		     bool nowait)
{
	int flags = nowait && !ns->memory_like ? RWF_NOWAIT : 0;

	if (ns->fd < 0) {
		for (uint32_t i = 0; i < nr; off += iov[i++].iov_len)
			emu_memory_read(ns, off, iov[i].iov_base, iov[i].iov_len);
		return 0;
	}
	while (nbytes) {
		ssize_t n = preadv2(ns->fd, iov, (int)nr, (off_t)off, flags);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return errno == EOPNOTSUPP ? -EAGAIN : -errno;
		}
		if (!n) {
			/* past the end of the file: the rest of a partial block */
			for (uint32_t i = 0; i < nr; i++)
				memset(iov[i].iov_base, 0, iov[i].iov_len);
			return 0;
		}
		off += (uint64_t)n;
		nbytes -= (uint64_t)n;
		advance(&iov, &nr, (size_t)n);
	}
	return 0;
}

int emu_backing_write(struct emu_ns *ns, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		      bool dsync)
{
	int rc = 0;

	if (ns->fd < 0) {
		for (uint32_t i = 0; i < nr && !rc; off += iov[i++].iov_len)
			rc = emu_memory_write(ns, off, iov[i].iov_base, iov[i].iov_len);
		return rc;
	}
	while (nbytes) {
		ssize_t n = pwritev2(ns->fd, iov, (int)nr, (off_t)off, dsync ? RWF_DSYNC : 0);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		off += (uint64_t)n;
		nbytes -= (uint64_t)n;
		advance(&iov, &nr, (size_t)n);
	}
	return 0;
}

static int write_zeros(struct emu_ns *ns, uint64_t off, uint64_t nbytes)
{
	static const uint8_t zeros[65536];

	while (nbytes) {
		ssize_t n = pwrite(ns->fd, zeros, min_u64(nbytes, sizeof(zeros)), (off_t)off);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		off += (uint64_t)n;
		nbytes -= (uint64_t)n;
	}
	return 0;
}

int emu_backing_zero(struct emu_ns *ns, uint64_t off, uint64_t nbytes, bool punch)
{
	int mode = (punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE;

	if (ns->fd < 0) {
		emu_memory_zero(ns, off, nbytes);
		return 0;
	}
	while (fallocate(ns->fd, mode, (off_t)off, (off_t)nbytes)) {
		if (errno == EINTR)
			continue;
		/* a file system without holes or unwritten extents */
		return errno == EOPNOTSUPP || errno == ENOSYS ? write_zeros(ns, off, nbytes) : -errno;
	}
	return 0;
}

int emu_backing_sync(struct emu_ns *ns)
{
	while (ns->fd >= 0 && fdatasync(ns->fd))
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Bytes that are stored, for NUSE. */
uint64_t emu_backing_used(struct emu_ns *ns)
{
	struct stat st;

	if (ns->fd < 0)
		return atomic_load_explicit(&ns->nr_used, memory_order_relaxed) * EMU_MEMORY_CHUNK;
	return fstat(ns->fd, &st) ? ns->nbytes : (uint64_t)st.st_blocks * 512;
}
