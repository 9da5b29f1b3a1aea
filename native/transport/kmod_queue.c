/* SPDX-License-Identifier: MIT */
/* Memory for rings: a hugepage of ours where one is wanted and had, else coherent memory of the kernel's. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "mem/hugepage.h"
#include "transport/kmod_dev.h"

struct kmod_queue {
	struct kmod_queue *next;
	void *vaddr;
	size_t nbytes;
	uint64_t token;
	bool huge;
};

static int from_hugepage(struct kmod *k, size_t nbytes, struct kmod_queue *q, uint64_t *ret_iova)
{
	struct dma_mapping dma;
	int err = mem_queue_alloc(nbytes, true, &q->vaddr, &q->nbytes, &q->huge);

	if (err)
		return err;
	if (!q->huge)
		err = -ENOMEM; /* ordinary pages are in pieces */
	if (!err)
		err = kmod_dma_map(k, q->vaddr, nbytes, DMA_READ | DMA_WRITE | DMA_CONTIG, &dma);
	if (err) {
		mem_queue_free(q->vaddr, q->nbytes);
		return err;
	}
	q->token = dma.handle;
	*ret_iova = dma.extents[0].iova + dma.first_off;
	free(dma.extents);
	return 0;
}

static int from_kernel(struct kmod *k, size_t nbytes, struct kmod_queue *q, uint64_t *ret_iova)
{
	struct ugds_drv_queue_alloc a = { .argsz = sizeof(a), .nbytes = nbytes };
	int err = kmod_call(k, UGDS_DRV_QUEUE_ALLOC, &a);

	if (err)
		return err;
	q->huge = false;
	q->token = a.ret_token;
	q->nbytes = (size_t)a.nbytes;
	q->vaddr = mmap(NULL, q->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd, (off_t)a.ret_offset);
	if (q->vaddr == MAP_FAILED) {
		err = -errno;
		kmod_dma_unmap(k, q->token);
		return err;
	}
	*ret_iova = a.ret_iova;
	return 0;
}

int kmod_queue_alloc(void *t, size_t nbytes, bool huge, void **ret_vaddr, uint64_t *ret_iova, bool *ret_huge)
{
	struct kmod_queue *q = calloc(1, sizeof(*q));
	struct kmod *k = t;
	int err;

	if (!q)
		return -ENOMEM;
	err = huge ? from_hugepage(k, nbytes, q, ret_iova) : -ENOMEM;
	if (err)
		err = from_kernel(k, nbytes, q, ret_iova);
	if (err) {
		free(q);
		return err;
	}
	pthread_mutex_lock(&k->lock);
	q->next = k->queues;
	k->queues = q;
	pthread_mutex_unlock(&k->lock);
	*ret_vaddr = q->vaddr;
	*ret_huge = q->huge;
	return 0;
}

void kmod_queue_free(void *t, void *vaddr, size_t nbytes)
{
	struct kmod_queue *q = NULL;
	struct kmod *k = t;

	(void)nbytes;
	pthread_mutex_lock(&k->lock);
	for (struct kmod_queue **p = &k->queues; *p; p = &(*p)->next)
		if ((*p)->vaddr == vaddr) {
			q = *p;
			*p = q->next;
			break;
		}
	pthread_mutex_unlock(&k->lock);
	if (!q)
		return;
	/* a hugepage is unpinned before it goes; the kernel's memory is let go of before it is freed */
	if (q->huge)
		kmod_dma_unmap(k, q->token);
	munmap(q->vaddr, q->nbytes);
	if (!q->huge)
		kmod_dma_unmap(k, q->token);
	free(q);
}
