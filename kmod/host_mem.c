// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Pages of the caller: pinned for long, charged to RLIMIT_MEMLOCK, and mapped for the device. */
#include <linux/dma-mapping.h>
#include <linux/sched/signal.h>

#include "ugds_drv.h"

#define CHUNK (PAGE_SIZE / sizeof(struct page *))

struct host_mem {
	struct ugds_mapping m;
	struct sg_append_table append;
	enum dma_data_direction direction;
};

static struct host_mem *of(struct ugds_mapping *m)
{
	return container_of(m, struct host_mem, m);
}

static void unpin(struct host_mem *h)
{
	bool dirty = h->m.flags & UGDS_DRV_MAP_WRITE;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&h->append.sgt, sg, i) {
		unpin_user_page_range_dirty_lock(sg_page(sg), sg->length >> PAGE_SHIFT, dirty);
		cond_resched();
	}
	sg_free_append_table(&h->append);
}

/* Up to a chunk. How many, or an error. */
static int pin_some(struct host_mem *h, unsigned long at, u64 npages, struct page **pages)
{
	unsigned int flags = FOLL_LONGTERM;
	int nr = min_t(u64, npages, CHUNK);
	int got;

	if (h->m.flags & UGDS_DRV_MAP_WRITE)
		return pin_user_pages_fast(at, nr, flags | FOLL_WRITE, pages);
	got = pin_user_pages_fast(at, nr, flags | UGDS_PIN_TO_READ, pages);
	/* Shared memory that may only be read has no copy-on-write to break. */
	if (got == -EFAULT && UGDS_PIN_TO_READ)
		got = pin_user_pages_fast(at, 1, flags, pages);
	return got;
}

static int pin_into(struct host_mem *h, unsigned long at, u64 npages, struct page **pages)
{
	unsigned int max_segment = dma_get_max_seg_size(ugds_file_device(h->m.file)) & PAGE_MASK;
	int got, err;

	while (npages) {
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
		got = pin_some(h, at, npages, pages);
		if (got <= 0)
			return got ?: -EFAULT;
		npages -= got;
		at += (unsigned long)got << PAGE_SHIFT;
		err = sg_alloc_append_table_from_pages(&h->append, pages, got, 0,
						       (unsigned long)got << PAGE_SHIFT,
						       max_segment, npages, GFP_KERNEL_ACCOUNT);
		if (err) {
			unpin_user_pages(pages, got);
			return err;
		}
	}
	return 0;
}

static int pin(struct host_mem *h, unsigned long at, u64 npages)
{
	struct page **pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	int err;

	if (!pages)
		return -ENOMEM;
	err = pin_into(h, at, npages, pages);
	if (err)
		unpin(h);
	free_page((unsigned long)pages);
	return err;
}

static enum dma_data_direction direction_of(u32 flags)
{
	if (!(flags & UGDS_DRV_MAP_WRITE))
		return DMA_TO_DEVICE;
	return flags & UGDS_DRV_MAP_READ ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE;
}

static void dma_unmap(struct host_mem *h)
{
	struct device *dma = ugds_file_device(h->m.file);

	dma_unmap_sgtable(dma, &h->append.sgt, h->direction, 0);
	ugds_iommu_flush(dma);
}

static int dma_map(struct host_mem *h)
{
	int err = dma_map_sgtable(ugds_file_device(h->m.file), &h->append.sgt, h->direction, 0);

	if (err)
		return err;
	err = ugds_extents_add_sgt(&h->m.extents, &h->append.sgt, 0, h->m.nbytes, PAGE_SIZE);
	if (err)
		dma_unmap(h);
	return err;
}

static int host_map(struct ugds_file *f, const struct ugds_drv_map *arg,
		    struct ugds_mapping **ret_m)
{
	unsigned long vaddr = untagged_addr((unsigned long)arg->vaddr);
	u64 first = vaddr >> PAGE_SHIFT;
	u64 npages = ((vaddr + arg->nbytes - 1) >> PAGE_SHIFT) - first + 1;
	struct host_mem *h;
	int err;

	/* A copy in between would go stale: user space talks to the device with no call to sync. */
	if (ugds_dma_may_bounce(ugds_file_device(f)))
		return -EOPNOTSUPP;
	h = kzalloc(sizeof(*h), GFP_KERNEL_ACCOUNT);
	if (!h)
		return -ENOMEM;
	ugds_mapping_init(&h->m, &ugds_host_ops, f,
			  arg->flags & (UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE));
	h->direction = direction_of(h->m.flags);
	h->m.nbytes = npages << PAGE_SHIFT;
	h->m.page_size = PAGE_SIZE;
	h->m.first_off = offset_in_page(vaddr);
	err = ugds_ledger_reserve(&f->ledger, &h->m, UGDS_SPACE_VADDR, first, npages);
	if (err)
		goto put;
	err = pin(h, vaddr & PAGE_MASK, npages);
	if (err)
		goto unreserve;
	err = dma_map(h);
	if (err)
		goto unpin;
	*ret_m = &h->m;
	return 0;

unpin:
	unpin(h);
unreserve:
	ugds_ledger_unreserve(&f->ledger, &h->m);
put:
	ugds_mapping_put(&h->m);
	return err;
}

static void host_unmap(struct ugds_mapping *m)
{
	dma_unmap(of(m));
	unpin(of(m));
}

static void host_free(struct ugds_mapping *m)
{
	kfree(of(m));
}

static u64 host_caps(struct ugds_file *f)
{
	return ugds_dma_may_bounce(ugds_file_device(f)) ? 0 : UGDS_DRV_CAP_HOST;
}

const struct ugds_map_ops ugds_host_ops = {
	.caps = host_caps,
	.map = host_map,
	.unmap = host_unmap,
	.free = host_free,
};

/* Locked memory of the opener. Only host memory is charged: the rest is not the system's. */
int ugds_charge(struct ugds_ledger *l, struct ugds_mapping *m, s64 nr_pages)
{
	if (m->ops != &ugds_host_ops)
		return 0;
	return account_locked_vm(m->file->mm, abs(nr_pages), nr_pages > 0);
}
