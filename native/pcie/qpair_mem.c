/* SPDX-License-Identifier: MIT */
/* A queue pair's memory: rings, list pages, trackers. All of it is taken at creation. */
#include <stdlib.h>

#include "mem/hugepage.h"
#include "nvme/ctrl.h"
#include "pcie/ring.h"

#define MAX_LIST_PAGES 1024

static int alloc_rings(struct pcie_qpair *q, size_t page)
{
	struct nvme_ctrl *c = q->base.ctrl;
	size_t sq_bytes = align_up((size_t)q->depth * sizeof(struct nvme_sqe), page);
	size_t cq_bytes = align_up((size_t)q->depth * sizeof(struct nvme_cqe), page);
	bool huge = q->base.conf.kind == NVME_QPAIR_BATCH && !c->p.no_hugepage;
	/* the rings start on a controller page, which may be larger than the host's */
	size_t nbytes = sq_bytes + cq_bytes + (page > QUEUE_PAGE ? page : 0);
	struct dma_mapping dma = { 0 };
	uint64_t iova, skip;
	int err;

	if (q->dev->ops->queue_alloc) {
		err = q->dev->ops->queue_alloc(q->dev->t, nbytes, huge, &q->ring_mem, &iova, &q->base.huge);
		if (err)
			return err;
		q->ring_bytes = nbytes;
		q->ring_from_dev = true;
	} else {
		err = mem_queue_alloc(nbytes, huge, &q->ring_mem, &q->ring_bytes, &q->base.huge);
		if (err)
			return err;
		err = c->ops->map(c->t, q->ring_mem, nbytes, DMA_READ | DMA_WRITE | DMA_CONTIG, &dma);
		if (err)
			return err;
		q->ring_handle = dma.handle;
		iova = dma.extents[0].iova + dma.first_off;
		free(dma.extents);
	}
	skip = align_up(iova, page) - iova;
	q->sq = (void *)((char *)q->ring_mem + skip);
	q->sq_iova = iova + skip;
	q->cq = (void *)((char *)q->ring_mem + skip + sq_bytes);
	q->cq_iova = q->sq_iova + sq_bytes;
	return 0;
}

/* Bytes of a list: what the largest command needs. Lists never cross a page, so none of them is chained. */
static size_t list_bytes(const struct nvme_ctrl *c, size_t page)
{
	size_t need = (c->max_transfer / page) * sizeof(uint64_t), n = CACHELINE;

	while (n < need && n < page)
		n *= 2;
	return n;
}

static int alloc_lists(struct pcie_qpair *q, size_t page)
{
	struct nvme_ctrl *c = q->base.ctrl;
	uint32_t nr = min_u32(q->base.conf.list_pages, MAX_LIST_PAGES);
	size_t slot = list_bytes(c, page), n = 0;
	struct dma_mapping dma = { 0 };
	bool huge;
	int err;

	q->list_entries = (uint32_t)(slot / sizeof(uint64_t));
	if (!nr)
		return 0;
	q->list_iova = calloc(nr, sizeof(*q->list_iova));
	q->free_lists = calloc(nr, sizeof(*q->free_lists));
	if (!q->list_iova || !q->free_lists)
		return -ENOMEM;
	err = mem_queue_alloc(align_up(nr * slot, page) + (page > QUEUE_PAGE ? page : 0), page > QUEUE_PAGE,
			      &q->list_mem, &q->list_bytes, &huge);
	if (err)
		return err;
	/* pages larger than the host's have to be one piece each */
	err = c->ops->map(c->t, q->list_mem, q->list_bytes, DMA_READ | (page > QUEUE_PAGE ? DMA_CONTIG : 0),
			  &dma);
	if (err)
		return err;
	q->list_handle = dma.handle;
	/* step through the extents page by page, from the first aligned one on */
	q->lists =
		(void *)((char *)q->list_mem + (align_up(dma.extents[0].iova, page) - dma.extents[0].iova));
	for (size_t i = 0; i < dma.nr && n < nr; i++)
		for (uint64_t a = align_up(dma.extents[i].iova, page);
		     a + page <= dma.extents[i].iova + dma.extents[i].nbytes && n < nr; a += page)
			for (uint64_t in = 0; in < page && n < nr; in += slot)
				q->list_iova[n++] = a + in;
	free(dma.extents);
	if (n < nr)
		return -ENOTSUP;
	for (uint32_t i = 0; i < nr; i++)
		q->free_lists[i] = (uint16_t)(nr - 1 - i);
	q->nr_free_lists = nr;
	return 0;
}

/* State as after creation: nothing outstanding, heads at zero. */
void pcie_qpair_rewind(struct pcie_qpair *q)
{
	uint32_t nr = q->depth - 1;

	/* no stale phase tags; atomic, because a sleeping owner or housekeeping may peek just now */
	for (uint32_t i = 0; i < q->depth; i++)
		atomic_store_explicit((_Atomic uint32_t *)&q->cq[i].dw3, 0, memory_order_relaxed);
	q->sq_tail = q->sq_rung = 0;
	q->cq_rung = 0;
	q->held = false;
	atomic_store_explicit(&q->cq_pos, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < nr; i++) {
		q->tr[i].owner = NULL;
		q->tr[i].list = NO_LIST;
		q->free_slots[i] = (uint16_t)i;
	}
	q->free_head = 0;
	q->free_tail = nr;
	q->base.inflight = 0;
	q->base.space = nr;
	if (q->list_iova) {
		q->nr_free_lists = min_u32(q->base.conf.list_pages, MAX_LIST_PAGES);
		for (uint32_t i = 0; i < q->nr_free_lists; i++)
			q->free_lists[i] = (uint16_t)(q->nr_free_lists - 1 - i);
	}
}

int pcie_qpair_alloc(struct pcie_qpair *q)
{
	size_t page = (size_t)1 << q->base.ctrl->page_shift;
	int err;

	q->cid_step = 1;
	while (q->cid_step < q->depth)
		q->cid_step <<= 1;
	q->slot_mask = q->cid_step - 1;
	q->tr = calloc(q->cid_step, sizeof(*q->tr));
	q->free_slots = calloc(q->cid_step, sizeof(*q->free_slots));
	if (!q->tr || !q->free_slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < q->depth; i++)
		q->tr[i].cid = (uint16_t)i;
	err = alloc_rings(q, page);
	if (!err)
		err = alloc_lists(q, page);
	if (err)
		return err;
	pcie_qpair_rewind(q);
	return 0;
}

void pcie_qpair_release(struct pcie_qpair *q)
{
	struct nvme_ctrl *c = q->base.ctrl;

	if (q->list_handle)
		c->ops->unmap(c->t, q->list_handle);
	mem_queue_free(q->list_mem, q->list_bytes);
	if (q->ring_handle)
		c->ops->unmap(c->t, q->ring_handle);
	if (q->ring_from_dev)
		q->dev->ops->queue_free(q->dev->t, q->ring_mem, q->ring_bytes);
	else
		mem_queue_free(q->ring_mem, q->ring_bytes);
	free(q->free_lists);
	free(q->list_iova);
	free(q->free_slots);
	free(q->tr);
}
