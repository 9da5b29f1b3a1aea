/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "transport/emu_dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

#define IO_PAGE 4096u

struct emu_dmabuf {
	struct emu_dmabuf *next;
	uint64_t handle;
	void *at;
	size_t nbytes;
	int fd; /* -1: nobody has to be told */
	uint64_t sync; /* DMA_BUF_SYNC_* */
};

/* A file that is cut short under a mapping would end the process, so memory files have to promise that they are not. */
static int check(int fd, bool *ret_dmabuf)
{
	struct statfs fs;
	int seals;

	if (fstatfs(fd, &fs))
		return -errno;
	*ret_dmabuf = fs.f_type == DMA_BUF_MAGIC;
	if (*ret_dmabuf)
		return 0;
	seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && seals & F_SEAL_SHRINK ? 0 : -EINVAL;
}

static int sync_cpu(int fd, uint64_t flags)
{
	struct dma_buf_sync s = { .flags = flags };
	int rc;

	do
		rc = ioctl(fd, DMA_BUF_IOCTL_SYNC, &s);
	while (rc && (errno == EINTR || errno == EAGAIN));
	return rc ? -errno : 0;
}

static void buf_free(struct emu_dmabuf *b)
{
	munmap(b->at, b->nbytes);
	if (b->fd >= 0) {
		sync_cpu(b->fd, DMA_BUF_SYNC_END | b->sync);
		close(b->fd);
	}
	free(b);
}

/* The processor's for as long as it is mapped. */
static int buf_new(const struct mem_foreign *from, size_t nbytes, uint32_t flags, struct emu_dmabuf **ret)
{
	uint64_t first = align_down(from->offset, IO_PAGE);
	struct emu_dmabuf *b;
	bool is_dmabuf = false;
	int rc = check(from->fd, &is_dmabuf);

	if (rc)
		return rc;
	if (!nbytes || from->offset + nbytes < nbytes)
		return -EINVAL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->fd = -1;
	b->nbytes = (size_t)(from->offset - first) + nbytes;
	b->sync = flags & DMA_WRITE ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ;
	b->at = mmap(NULL, b->nbytes, PROT_READ | (flags & DMA_WRITE ? PROT_WRITE : 0), MAP_SHARED, from->fd,
		     (off_t)first);
	if (b->at == MAP_FAILED) {
		/* exporters have many words for it */
		rc = errno == ENOMEM ? -ENOMEM : -EOPNOTSUPP;
		free(b);
		return rc;
	}
	if (is_dmabuf) {
		b->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
		rc = b->fd < 0 ? -errno : sync_cpu(b->fd, DMA_BUF_SYNC_START | b->sync);
	}
	if (rc) {
		buf_free(b);
		return rc;
	}
	*ret = b;
	return 0;
}

int emu_dmabuf_map(struct emu_dmabufs *bufs, struct emu_ctrl *e, const struct mem_foreign *from,
		   size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct emu_extent *ext;
	struct emu_dmabuf *b;
	uint64_t in_page = from->offset & (IO_PAGE - 1);
	size_t nr;
	int rc;

	/* what the processor can map is as good as system memory; nothing here goes from device to device */
	if (flags & DMA_PEER)
		return -EXDEV;
	rc = buf_new(from, nbytes, flags, &b);
	if (rc)
		return rc;
	rc = emu_dma_map(e, (uint8_t *)b->at + in_page, nbytes, flags, &ext, &nr, &b->handle);
	if (rc) {
		buf_free(b);
		return rc;
	}
	pthread_mutex_lock(&bufs->lock);
	b->next = bufs->first;
	bufs->first = b;
	pthread_mutex_unlock(&bufs->lock);
	*ret = (struct dma_mapping){ .extents = (struct dma_extent *)(void *)ext,
				     .nr = nr,
				     .handle = b->handle,
				     .first_off = in_page,
				     .traits = MEM_SYSTEM };
	return 0;
}

void emu_dmabuf_unmap(struct emu_dmabufs *bufs, uint64_t handle)
{
	struct emu_dmabuf *b, *before = NULL;

	if (!atomic_load_explicit(&bufs->first, memory_order_relaxed))
		return;
	pthread_mutex_lock(&bufs->lock);
	for (b = bufs->first; b && b->handle != handle; b = b->next)
		before = b;
	if (b && before)
		before->next = b->next;
	else if (b)
		bufs->first = b->next;
	pthread_mutex_unlock(&bufs->lock);
	if (b)
		buf_free(b);
}

void emu_dmabufs_done(struct emu_dmabufs *bufs)
{
	struct emu_dmabuf *b = bufs->first, *next;

	for (; b; b = next) {
		next = b->next;
		buf_free(b);
	}
	pthread_mutex_destroy(&bufs->lock);
}

void emu_dmabufs_fork_child(struct emu_dmabufs *bufs)
{
	for (struct emu_dmabuf *b = bufs->first; b; b = b->next) {
		if (b->fd >= 0)
			close(b->fd);
		b->fd = -1;
	}
}
