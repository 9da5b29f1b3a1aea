/* SPDX-License-Identifier: MIT */
/*
 * A handle for a range: a memfd here, which maps to the same bytes. Of a part of an allocation the bytes move into a
 * memfd of their own, which takes their place in the shadow: whoever had the old one sees them no more, so a part that
 * meets another one that was exported is refused.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft.h"

struct part {
	struct part *next;
	uint64_t base, id;
	size_t nbytes;
	int fd;
};

static struct part *parts;

static bool lives(const struct part *p)
{
	struct soft_alloc *a = soft_find(p->base);

	return a && a->block && a->id == p->id;
}

/* Forget the parts of what was freed since. */
static void sweep(void)
{
	for (struct part **at = &parts; *at;) {
		struct part *p = *at;

		if (lives(p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		close(p->fd);
		free(p);
	}
}

static int remember(struct soft_alloc *a, uint64_t addr, size_t nbytes, int fd)
{
	struct part *p = malloc(sizeof(*p));

	*p = (struct part){ parts, addr, a->id, nbytes, fd };
	parts = p;
	return fd;
}

static int split(uint64_t addr, size_t nbytes)
{
	char *shadow = soft_reach(addr, nbytes), *copy;
	int fd = memfd_create("soft-gpu-part", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)nbytes))
		return -1;
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	copy = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memcpy(copy, shadow, nbytes);
	munmap(copy, nbytes);
	mmap(shadow, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	return fd;
}

/* With soft_memory held for writing. */
int soft_export(uint64_t addr, size_t nbytes, int *ret_fd)
{
	struct soft_alloc *a = soft_find(addr);
	int fd = -1;

	sweep();
	if (soft_controls.missing & SOFT_NO_DMABUF)
		return SOFT_NOT_SUPPORTED;
	/* Whole pages of one allocation of device memory. */
	if (!a || !a->block || a->kind == SOFT_MANAGED || !nbytes || (addr | nbytes) % 4096 ||
	    addr + nbytes > a->addr + a->nbytes)
		return SOFT_INVALID_VALUE;
	for (struct part *p = parts; p; p = p->next)
		if (p->base < addr + nbytes && addr < p->base + p->nbytes) {
			if (p->base != addr || p->nbytes != nbytes)
				return SOFT_NOT_SUPPORTED;
			fd = p->fd;
		}
	if (fd < 0)
		fd = remember(a, addr, nbytes,
			      addr == a->block->base && nbytes == a->block->nbytes ? dup(a->block->fd)
										   : split(addr, nbytes));
	*ret_fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	soft_counters.exports++;
	return *ret_fd < 0 ? SOFT_OUT_OF_MEMORY : SOFT_OK;
}
