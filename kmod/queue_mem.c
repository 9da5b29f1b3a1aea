// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory for rings: in one piece, zeroed, mapped by user space.
 *
 * Ordinary pages with a streaming mapping: the module binds only devices that are coherent, where
 * that is the same as coherent memory, and the pages may outlive the device while somebody maps
 * them.
 */
#include <linux/dma-mapping.h>

#include "ugds_drv.h"

#define SLOT_SHIFT 22 /* of mmap() offsets, so that a token is found in one */

struct queue_mem {
	struct ugds_mapping m;
	struct page *pages;
	unsigned int order;
	dma_addr_t iova;
	atomic_t vmas;
};

static struct queue_mem *of(struct ugds_mapping *m)
{
	return container_of(m, struct queue_mem, m);
}

static void queue_unmap(struct ugds_mapping *m)
{
	struct device *dma = ugds_file_device(m->file);

	dma_unmap_page(dma, of(m)->iova, m->nbytes, DMA_BIDIRECTIONAL);
	ugds_iommu_flush(dma);
	mutex_lock(&m->file->ledger.lock);
	m->file->queue_bytes -= m->nbytes;
	mutex_unlock(&m->file->ledger.lock);
}

static void queue_free(struct ugds_mapping *m)
{
	__free_pages(of(m)->pages, of(m)->order);
	kfree(of(m));
}

static const struct ugds_map_ops queue_ops = {
	.unmap = queue_unmap,
	.free = queue_free,
};

static int account(struct ugds_file *f, u64 nbytes)
{
	int err = 0;

	mutex_lock(&f->ledger.lock);
	if (f->queue_bytes + nbytes > UGDS_QUEUE_TOTAL)
		err = -ENOSPC;
	else
		f->queue_bytes += nbytes;
	mutex_unlock(&f->ledger.lock);
	return err;
}

static void unaccount(struct ugds_file *f, u64 nbytes)
{
	mutex_lock(&f->ledger.lock);
	f->queue_bytes -= nbytes;
	mutex_unlock(&f->ledger.lock);
}

static struct queue_mem *queue_new(struct ugds_file *f, u64 nbytes)
{
	struct device *dma = ugds_file_device(f);
	struct queue_mem *q = kzalloc(sizeof(*q), GFP_KERNEL_ACCOUNT);

	if (!q)
		return NULL;
	q->order = get_order(nbytes);
	q->pages = alloc_pages_node(dev_to_node(dma),
				    GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_COMP | __GFP_NOWARN,
				    q->order);
	if (!q->pages) {
		kfree(q);
		return NULL;
	}
	ugds_mapping_init(&q->m, &queue_ops, f, UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE);
	q->m.nbytes = nbytes;
	q->m.page_size = PAGE_SIZE;
	return q;
}

static int queue_map(struct ugds_file *f, struct queue_mem *q)
{
	struct device *dma = ugds_file_device(f);
	int err;

	q->iova = dma_map_page(dma, q->pages, 0, q->m.nbytes, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dma, q->iova))
		return -ENOMEM;
	err = ugds_extents_add(&q->m.extents, q->iova, q->m.nbytes);
	if (err)
		dma_unmap_page(dma, q->iova, q->m.nbytes, DMA_BIDIRECTIONAL);
	return err;
}

int ugds_queue_alloc(struct ugds_file *f, struct ugds_drv_queue_alloc *arg,
		     struct ugds_mapping **ret_m)
{
	struct queue_mem *q;
	u64 nbytes;
	int err;

	if (!arg->nbytes)
		return -EINVAL;
	if (arg->nbytes > UGDS_QUEUE_MAX)
		return -E2BIG;
	if (ugds_dma_may_bounce(ugds_file_device(f)))
		return -EOPNOTSUPP;
	nbytes = PAGE_ALIGN(arg->nbytes);
	err = account(f, nbytes);
	if (err)
		return err;
	q = queue_new(f, nbytes);
	if (!q) {
		err = -ENOMEM;
		goto unaccount;
	}
	err = ugds_ledger_reserve(&f->ledger, &q->m, 0, 0, 0);
	if (err)
		goto put;
	err = queue_map(f, q);
	if (err)
		goto unreserve;
	arg->nbytes = nbytes;
	arg->ret_token = q->m.token;
	arg->ret_iova = q->iova;
	arg->ret_offset = UGDS_DRV_MMAP_QUEUE + (q->m.token << SLOT_SHIFT);
	*ret_m = &q->m;
	return 0;

unreserve:
	ugds_ledger_unreserve(&f->ledger, &q->m);
put:
	ugds_mapping_put(&q->m);
unaccount:
	unaccount(f, nbytes);
	return err;
}

/* ---- mmap ---- */

/* Parts of a split area count, so the last close is that of the last page. */
static void vma_open(struct vm_area_struct *vma)
{
	struct queue_mem *q = vma->vm_private_data;

	atomic_inc(&q->vmas);
	kref_get(&q->m.ref);
}

static void vma_close(struct vm_area_struct *vma)
{
	struct queue_mem *q = vma->vm_private_data;

	atomic_dec(&q->vmas);
	ugds_mapping_put(&q->m);
}

static const struct vm_operations_struct vma_ops = {
	.open = vma_open,
	.close = vma_close,
};

static int map_pages(struct queue_mem *q, struct vm_area_struct *vma, u64 offset)
{
	u64 nbytes = vma->vm_end - vma->vm_start;
	int err;

	if (offset >= q->m.nbytes || nbytes > q->m.nbytes - offset)
		return -EINVAL;
	err = remap_pfn_range(vma, vma->vm_start,
			      page_to_pfn(q->pages) + (unsigned long)(offset >> PAGE_SHIFT), nbytes,
			      vma->vm_page_prot);
	if (err)
		return err;
	vma->vm_private_data = q;
	vma->vm_ops = &vma_ops;
	return 0;
}

int ugds_queue_mmap(struct ugds_file *f, struct vm_area_struct *vma)
{
	u64 at = ((u64)vma->vm_pgoff << PAGE_SHIFT) - UGDS_DRV_MMAP_QUEUE;
	struct ugds_mapping *m = ugds_ledger_get(&f->ledger, at >> SLOT_SHIFT);
	struct queue_mem *q;
	int err;

	if (!m)
		return -EINVAL;
	if (m->ops != &queue_ops) {
		ugds_mapping_put(m);
		return -EINVAL;
	}
	q = of(m);
	/* Before the pages are: an unmap that runs now sees it. The reference goes to the area. */
	atomic_inc(&q->vmas);
	err = map_pages(q, vma, at & ((1ull << SLOT_SHIFT) - 1));
	if (err) {
		atomic_dec(&q->vmas);
		ugds_mapping_put(m);
	}
	return err;
}

bool ugds_queue_is_mapped(struct ugds_mapping *m)
{
	return m->ops == &queue_ops && atomic_read(&of(m)->vmas);
}
