/* SPDX-License-Identifier: MIT */
#include "mem/hugepage.h"

#include <errno.h>
#include <sys/mman.h>

#define HUGE_BYTES (2u << 20)

int mem_queue_alloc(size_t nbytes, bool huge, void **ret_vaddr, size_t *ret_nbytes, bool *ret_huge)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	size_t len = align_up(nbytes, huge ? HUGE_BYTES : QUEUE_PAGE);
	void *p = MAP_FAILED;

	if (huge)
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
	*ret_huge = p != MAP_FAILED;
	if (p == MAP_FAILED) {
		len = align_up(nbytes, QUEUE_PAGE);
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (p == MAP_FAILED)
			return -errno;
	}
	/* A child must not see rings that the device and its parent write. Our own memory only. */
	madvise(p, len, MADV_DONTFORK);
	*ret_vaddr = p;
	*ret_nbytes = len;
	return 0;
}

void mem_queue_free(void *vaddr, size_t nbytes)
{
	if (vaddr)
		munmap(vaddr, nbytes);
}
