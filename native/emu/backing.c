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

static void path_of(const struct emu_params *p, uint32_t index, char *buf, size_t len)
{
	snprintf(buf, len, index ? "%s.ns%u" : "%s", p->path, p->ns[index].nsid);
}

void emu_backing_unmake(const struct emu_params *p, uint32_t index, struct emu_ns *ns)
{
	char path[EMU_PATH_MAX + 16];

	if (p->path) {
		path_of(p, index, path, sizeof(path));
		emu_file_unmake(path, ns);
	}
}

int emu_backing_open(const struct emu_params *p, uint32_t index, struct emu_ns *ns, char *err, size_t err_len)
{
	const struct emu_ns_params *n = &p->ns[index];
	char path[EMU_PATH_MAX + 16];
	int rc;

	memset(ns, 0, sizeof(*ns));
	ns->fd = ns->direct_fd = -1;
	pthread_mutex_init(&ns->turn, NULL);
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
		path_of(p, index, path, sizeof(path));
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
	if (ns->direct_fd >= 0)
		close(ns->direct_fd);
	ns->fd = ns->direct_fd = -1;
	emu_memory_free(ns);
}

void emu_fork_child(struct emu_ctrl *e)
{
	for (uint32_t i = 0; i < e->nr_ns; i++) {
		if (e->ns[i].fd >= 0)
			close(e->ns[i].fd);
		if (e->ns[i].direct_fd >= 0)
			close(e->ns[i].direct_fd);
		e->ns[i].fd = e->ns[i].direct_fd = -1;
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

/* Which descriptor a transfer goes through: what O_DIRECT does not take goes through the page cache. */
static int which_fd(const struct emu_ns *ns, uint64_t off, const struct iovec *iov, uint32_t nr)
{
	uint64_t odd = off;

	if (likely(ns->direct_fd < 0))
		return ns->fd;
	for (uint32_t i = 0; i < nr; i++)
		odd |= (uintptr_t)iov[i].iov_base | iov[i].iov_len;
	return odd & (ns->direct_align - 1) ? ns->fd : ns->direct_fd;
}

/* A disk that begins when it is flushed has had nothing to do until then. So it is told to, every so often; that waits for
 * nothing that is written. Large writes only: what lies between them goes along. */
static void begin_writing(struct emu_ns *ns, uint64_t off, uint64_t nbytes)
{
	uint64_t first, end;
	bool now;

	if (!ns->ahead || nbytes < EMU_AHEAD_LEAST)
		return;
	emu_lock(&ns->ahead_lock);
	if (!ns->ahead_bytes) {
		ns->ahead_first = off;
		ns->ahead_end = off;
	}
	ns->ahead_first = first = min_u64(ns->ahead_first, off);
	ns->ahead_end = end = max_u64(ns->ahead_end, off + nbytes);
	ns->ahead_bytes += nbytes;
	now = ns->ahead_bytes >= EMU_AHEAD_BYTES;
	if (now)
		ns->ahead_bytes = 0;
	emu_unlock(&ns->ahead_lock);
	if (now)
		sync_file_range(ns->fd, (off_t)first, (off_t)(end - first), SYNC_FILE_RANGE_WRITE);
}

static int read_file(struct emu_ns *ns, int fd, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		     int flags)
{
	while (nbytes) {
		ssize_t n = preadv2(fd, iov, (int)nr, (off_t)off, flags);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EINVAL && fd != ns->fd) { /* behind a short read, at the file's end */
				fd = ns->fd;
				continue;
			}
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

int emu_backing_read(struct emu_ns *ns, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		     bool nowait)
{
	bool turn;
	int rc, fd;

	if (ns->fd < 0) {
		for (uint32_t i = 0; i < nr; off += iov[i++].iov_len)
			emu_memory_read(ns, off, iov[i].iov_base, iov[i].iov_len);
		return 0;
	}
	fd = which_fd(ns, off, iov, nr);
	turn = fd == ns->fd && !nowait && emu_turn_take(ns, off, nbytes);
	rc = read_file(ns, fd, off, iov, nr, nbytes, nowait && !ns->memory_like ? RWF_NOWAIT : 0);
	if (turn)
		emu_turn_give(ns);
	return rc;
}

int emu_backing_write(struct emu_ns *ns, uint64_t off, struct iovec *iov, uint32_t nr, uint64_t nbytes,
		      bool dsync)
{
	const uint64_t first = off, whole = nbytes;
	int rc = 0, fd;

	if (ns->fd < 0) {
		for (uint32_t i = 0; i < nr && !rc; off += iov[i++].iov_len)
			rc = emu_memory_write(ns, off, iov[i].iov_base, iov[i].iov_len);
		return rc;
	}
	fd = which_fd(ns, off, iov, nr);
	while (nbytes) {
		ssize_t n = pwritev2(fd, iov, (int)nr, (off_t)off, dsync ? RWF_DSYNC : 0);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EINVAL && fd != ns->fd) { /* behind a short write */
				fd = ns->fd;
				continue;
			}
			return -errno;
		}
		off += (uint64_t)n;
		nbytes -= (uint64_t)n;
		advance(&iov, &nr, (size_t)n);
	}
	if (!dsync && fd == ns->fd)
		begin_writing(ns, first, whole);
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
