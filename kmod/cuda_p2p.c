// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * CUDA device memory, through nvidia_p2p_* of NVIDIA's driver.
 *
 * Its functions are looked up when they are needed and held until the mapping is gone, so that one
 * build serves machines with and without the driver. Persistent pages outlive the owner's free, so
 * nothing is revoked. Where there are none (MIG, older drivers) the driver calls back when the
 * memory goes, and:
 *
 * - It may hold locks of its own meanwhile, so the callback must not wait for a thread that is in
 *   a call of the driver. It does wait between the return of get_pages and the end of the DMA
 *   mapping; therefore that part calls the driver for nothing, and maps the pages itself.
 * - When the callback returns the driver frees the page table: nobody looks at it after that.
 *   put_pages is not called then either, for the table's address may name another one by now.
 * - It may come at any time until put_pages has returned, so it gets a number and no pointer.
 */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/xarray.h>

#include "cuda_api.h"
#include "peer.h"

/* Neighbouring pages of a revocable mapping, mapped by us. */
struct cuda_run {
	phys_addr_t phys;
	size_t nbytes;
	dma_addr_t addr;
};

struct ugds_cuda {
	struct ugds_mapping m;
	struct ugds_cuda_api api;
	u64 va; /* whole pages of the GPU; m.nbytes of them */
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_dma_mapping *mapping; /* persistent pages only */
	bool persistent;
	/* Revocable pages only. */
	u32 id; /* in cuda_ids */
	struct cuda_run *runs; /* as many as there are pages */
	u32 nr_runs;
	enum dma_data_direction dir;
	spinlock_t lock; /* live, gone, leaving */
	bool live; /* map has succeeded: what goes now is revoked */
	bool gone; /* the callback began: it undoes the DMA mapping */
	bool leaving; /* we do */
	struct completion mapped; /* runs are complete: awaited by the callback */
	struct completion let_go; /* the DMA mapping is undone: awaited by the other side */
};

static DEFINE_XARRAY_ALLOC1(cuda_ids);

static struct ugds_cuda *to_cuda(struct ugds_mapping *m)
{
	return container_of(m, struct ugds_cuda, m);
}

/* What the driver gets is aligned: if it calls it invalid it is no memory of a GPU. */
static int cuda_error(int err)
{
	err = ugds_foreign_error(err);
	return err == -EINVAL ? -EFAULT : err;
}

/* Nobody is there to be told. The pages stay with the driver. */
static void cuda_check(struct ugds_cuda *x, int err, const char *what)
{
	if (err)
		dev_err(ugds_file_device(x->m.file), "nvidia_p2p_%s of 0x%llx: error %d\n", what,
			x->va, err);
}

static void cuda_unmap_runs(struct ugds_cuda *x, struct device *dev)
{
	u32 i;

	for (i = 0; i < x->nr_runs; i++)
		dma_unmap_resource(dev, x->runs[i].addr, x->runs[i].nbytes, x->dir, 0);
	ugds_iommu_flush(dev);
}

/* The driver frees the pages when this returns. Its locks may be held. */
static void cuda_freed(void *data)
{
	struct ugds_cuda *x;
	bool live, leaving;

	xa_lock(&cuda_ids);
	x = xa_load(&cuda_ids, (uintptr_t)data);
	if (x && !kref_get_unless_zero(&x->m.ref))
		x = NULL;
	xa_unlock(&cuda_ids);
	if (!x)
		return;
	wait_for_completion(&x->mapped);
	spin_lock(&x->lock);
	live = x->live;
	leaving = x->leaving;
	x->gone = true;
	spin_unlock(&x->lock);
	if (leaving) {
		wait_for_completion(&x->let_go);
	} else {
		if (live)
			ugds_file_revoke(&x->m);
		cuda_unmap_runs(x, ugds_file_device(x->m.file));
		/* What drivers of this interface ask of a callback; it does nothing today. */
		x->api.free_page_table(x->table);
		complete_all(&x->let_go);
	}
	ugds_mapping_put(&x->m);
}

/* Nothing here calls the driver: see above. */
static int cuda_map_runs(struct ugds_cuda *x, struct device *dev)
{
	u64 npages = x->m.nbytes >> NV_P2P_PAGE_SHIFT, i;
	struct cuda_run *run = NULL;
	u32 n = 0;

	if (!ugds_cuda_table_ok(x->table, npages))
		return -EOPNOTSUPP;
	for (i = 0; i < npages; i++) {
		phys_addr_t phys = x->table->pages[i]->physical_address;

		if (!IS_ALIGNED(phys, NV_P2P_PAGE_SIZE))
			return -EFAULT;
		/* No BAR but a coherent GPU's memory, which only the driver can map. */
		if (ugds_phys_is_ram(phys))
			return -EOPNOTSUPP;
		if (run && run->phys + run->nbytes == phys) {
			run->nbytes += NV_P2P_PAGE_SIZE;
			continue;
		}
		run = &x->runs[n++];
		run->phys = phys;
		run->nbytes = NV_P2P_PAGE_SIZE;
	}
	for (i = 0; i < n; i++) {
		run = &x->runs[i];
		run->addr = dma_map_resource(dev, run->phys, run->nbytes, x->dir, 0);
		if (dma_mapping_error(dev, run->addr)) {
			cuda_unmap_runs(x, dev);
			x->nr_runs = 0;
			return -EFAULT;
		}
		x->nr_runs++;
	}
	return 0;
}

/* The callback may have begun: who comes first undoes the DMA mapping, the other one waits. */
static void cuda_put_revocable(struct ugds_cuda *x)
{
	bool gone;

	spin_lock(&x->lock);
	gone = x->gone;
	x->leaving = !gone;
	spin_unlock(&x->lock);
	if (gone) {
		wait_for_completion(&x->let_go);
	} else {
		cuda_unmap_runs(x, ugds_file_device(x->m.file));
		complete_all(&x->let_go);
		cuda_check(x, x->api.put_pages(0, 0, x->va, x->table), "put_pages");
	}
	/* A callback that comes now finds nothing. */
	xa_erase(&cuda_ids, x->id);
}

static int cuda_get_revocable(struct ugds_cuda *x, struct device *dev)
{
	u64 npages = x->m.nbytes >> NV_P2P_PAGE_SHIFT;
	int err;

	x->runs = kvcalloc(npages, sizeof(*x->runs), GFP_KERNEL_ACCOUNT);
	if (!x->runs)
		return -ENOMEM;
	err = xa_alloc(&cuda_ids, &x->id, x, xa_limit_31b, GFP_KERNEL_ACCOUNT);
	if (err)
		return err == -EBUSY ? -ENOSPC : err;
	err = x->api.get_pages(0, 0, x->va, x->m.nbytes, &x->table, cuda_freed,
			       (void *)(uintptr_t)x->id);
	if (err) {
		xa_erase(&cuda_ids, x->id);
		return cuda_error(err);
	}
	err = cuda_map_runs(x, dev);
	complete_all(&x->mapped);
	if (err)
		cuda_put_revocable(x);
	return err;
}

static int cuda_publish_revocable(struct ugds_cuda *x)
{
	struct ugds_mapping *m = &x->m;
	int err = 0;
	u32 i;

	/* A callback undoes what is in the runs, but leaves them as they are. */
	for (i = 0; i < x->nr_runs && !err; i++)
		err = ugds_extents_add(&m->extents, x->runs[i].addr, x->runs[i].nbytes);
	spin_lock(&x->lock);
	if (x->gone)
		err = -EFAULT;
	x->live = !err;
	spin_unlock(&x->lock);
	m->ret_flags |= UGDS_DRV_MAPPED_REVOCABLE;
	return err;
}

static void cuda_put_persistent(struct ugds_cuda *x, struct pci_dev *pdev)
{
	if (x->mapping)
		cuda_check(x, x->api.dma_unmap_pages(pdev, x->table, x->mapping),
			   "dma_unmap_pages");
	ugds_iommu_flush(&pdev->dev);
	cuda_check(x, x->api.put_pages_persistent(x->va, x->table, 0), "put_pages_persistent");
}

static int cuda_publish_persistent(struct ugds_cuda *x)
{
	u64 npages = x->m.nbytes >> NV_P2P_PAGE_SHIFT, i;
	int err;

	if (!ugds_cuda_mapping_ok(x->mapping, npages))
		return -EOPNOTSUPP;
	for (i = 0; i < npages; i++) {
		if (!IS_ALIGNED(x->mapping->dma_addresses[i], NV_P2P_PAGE_SIZE))
			return -EFAULT;
		err = ugds_extents_add(&x->m.extents, x->mapping->dma_addresses[i],
				       NV_P2P_PAGE_SIZE);
		if (err)
			return err;
	}
	x->m.ret_flags |= UGDS_DRV_MAPPED_PERSISTENT;
	return 0;
}

/* -EOPNOTSUPP: this driver or this GPU has none. */
static int cuda_get_persistent(struct ugds_cuda *x, struct pci_dev *pdev)
{
	int err;

	if (!x->api.get_pages_persistent)
		return -EOPNOTSUPP;
	err = x->api.get_pages_persistent(x->va, x->m.nbytes, &x->table, 0);
	if (err)
		return cuda_error(err);
	x->persistent = true;
	if (!ugds_cuda_table_ok(x->table, x->m.nbytes >> NV_P2P_PAGE_SHIFT)) {
		err = -EOPNOTSUPP;
	} else {
		err = x->api.dma_map_pages(pdev, x->table, &x->mapping);
		if (err) {
			err = cuda_error(err);
			x->mapping = NULL;
		}
	}
	if (!err)
		err = cuda_publish_persistent(x);
	if (err) {
		cuda_put_persistent(x, pdev);
		x->persistent = false;
		x->mapping = NULL;
	}
	return err;
}

/* A GPU's pages are in the units of the ledger. */
static int cuda_reserve(struct ugds_cuda *x, struct ugds_file *f, const struct ugds_drv_map *arg)
{
	struct ugds_mapping *m = &x->m;
	u64 end;

	x->va = round_down(arg->vaddr, NV_P2P_PAGE_SIZE);
	if (check_add_overflow(arg->vaddr + arg->nbytes, NV_P2P_PAGE_SIZE - 1, &end))
		return -EFAULT;
	m->nbytes = round_down(end, NV_P2P_PAGE_SIZE) - x->va;
	m->first_off = arg->vaddr - x->va;
	m->page_size = NV_P2P_PAGE_SIZE;
	return ugds_ledger_reserve(&f->ledger, m, UGDS_SPACE_VADDR, x->va >> PAGE_SHIFT,
				   m->nbytes >> PAGE_SHIFT);
}

static int cuda_map(struct ugds_file *f, const struct ugds_drv_map *arg,
		    struct ugds_mapping **ret_m)
{
	struct pci_dev *pdev = f->dev->pdev;
	struct ugds_cuda *x;
	int err;

	x = kzalloc(sizeof(*x), GFP_KERNEL_ACCOUNT);
	if (!x)
		return -ENOMEM;
	ugds_mapping_init(&x->m, &ugds_cuda_ops, f,
			  arg->flags & (UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE));
	x->dir = ugds_direction(arg->flags);
	spin_lock_init(&x->lock);
	init_completion(&x->mapped);
	init_completion(&x->let_go);
	err = ugds_cuda_api_get(&x->api);
	if (err) {
		dev_info_once(&pdev->dev,
			      "no nvidia_p2p_* for GPL modules (open driver 550.40.07 or later)\n");
		goto put_mapping;
	}
	err = cuda_reserve(x, f, arg);
	if (err)
		goto put_mapping;
	err = cuda_get_persistent(x, pdev);
	if (err == -EOPNOTSUPP) {
		err = cuda_get_revocable(x, &pdev->dev);
		if (!err) {
			err = cuda_publish_revocable(x);
			if (err)
				cuda_put_revocable(x);
		}
	}
	if (err)
		goto unreserve;
	*ret_m = &x->m;
	return 0;

unreserve:
	ugds_ledger_unreserve(&f->ledger, &x->m);
put_mapping:
	ugds_mapping_put(&x->m);
	return err;
}

static void cuda_unmap(struct ugds_mapping *m)
{
	struct ugds_cuda *x = to_cuda(m);

	if (x->persistent)
		cuda_put_persistent(x, m->file->dev->pdev);
	else
		cuda_put_revocable(x);
	/* The callback may hold the last reference: it must not be what unloads the driver. */
	ugds_cuda_api_put(&x->api);
}

static void cuda_free(struct ugds_mapping *m)
{
	struct ugds_cuda *x = to_cuda(m);

	ugds_cuda_api_put(&x->api);
	kvfree(x->runs);
	kfree(x);
}

static u64 cuda_caps(struct ugds_file *f)
{
	struct ugds_cuda_api api;
	u64 caps = UGDS_DRV_CAP_CUDA;

	if (ugds_cuda_api_get(&api))
		return 0;
	if (api.get_pages_persistent)
		caps |= UGDS_DRV_CAP_CUDA_PERSISTENT;
	ugds_cuda_api_put(&api);
	return caps;
}

const struct ugds_map_ops ugds_cuda_ops = {
	.caps = cuda_caps,
	.map = cuda_map,
	.unmap = cuda_unmap,
	.free = cuda_free,
};
