// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of dma-bufs: a peer device's, or system memory.
 *
 * The buffer is pinned, for a command names bus addresses and runs without us: nothing could wait
 * for it. An exporter that takes the memory away all the same (its device goes) says so through
 * invalidate_mappings, where bus mastering ends before the mapping does.
 *
 * Locks: the reservation lock of the dma-buf guards sgt, live and gone. It is never held while a
 * lock of the core is taken but by the revocation, which takes spin locks only.
 */
#include <linux/dma-buf.h>
#include <linux/dma-direct.h>
#include <linux/dma-resv.h>
#include <linux/iommu.h>
#include <linux/jiffies.h>

#include "peer.h"

/* For the fences of a move. Removal of the function waits as long. */
#define FENCE_TIMEOUT_MS 5000

struct ugds_dmabuf {
	struct ugds_mapping m;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt; /* NULL: unmapped, or given back to the exporter */
	enum dma_data_direction dir;
	bool live; /* map has succeeded: what goes now is revoked */
	bool gone;
};

static struct ugds_dmabuf *to_dmabuf(struct ugds_mapping *m)
{
	return container_of(m, struct ugds_dmabuf, m);
}

static void dmabuf_unmap_locked(struct ugds_dmabuf *x)
{
	dma_resv_assert_held(x->dmabuf->resv);
	if (!x->sgt)
		return;
	dma_buf_unmap_attachment(x->attach, x->sgt, x->dir);
	x->sgt = NULL;
	ugds_iommu_flush(x->attach->dev);
}

/* The exporter holds the reservation lock, and lets the memory go when this returns. */
static void dmabuf_invalidate(struct dma_buf_attachment *attach)
{
	struct ugds_dmabuf *x = attach->importer_priv;

	if (x->live)
		ugds_file_revoke(&x->m);
	x->gone = true;
	dmabuf_unmap_locked(x);
}

static const struct dma_buf_attach_ops dmabuf_attach_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = dmabuf_invalidate,
};

static int dmabuf_attach(struct ugds_dmabuf *x, struct device *dev)
{
	struct dma_buf_attachment *attach;

	attach = dma_buf_dynamic_attach(x->dmabuf, dev, &dmabuf_attach_ops, x);
	if (IS_ERR(attach))
		return ugds_foreign_error(PTR_ERR(attach));
	x->attach = attach;
	return 0;
}

static int dmabuf_pin_and_map(struct ugds_dmabuf *x)
{
	struct sg_table *sgt;
	int err;

	err = dma_resv_lock_interruptible(x->dmabuf->resv, NULL);
	if (err)
		return err;
	err = dma_buf_pin(x->attach);
	if (err)
		goto unlock;
	sgt = dma_buf_map_attachment(x->attach, x->dir);
	if (IS_ERR_OR_NULL(sgt)) {
		err = sgt ? PTR_ERR(sgt) : -EFAULT;
		dma_buf_unpin(x->attach);
		goto unlock;
	}
	x->sgt = sgt;
unlock:
	dma_resv_unlock(x->dmabuf->resv);
	return ugds_foreign_error(err);
}

static void dmabuf_unmap_and_unpin(struct ugds_dmabuf *x)
{
	dma_resv_lock(x->dmabuf->resv, NULL);
	x->live = false;
	dmabuf_unmap_locked(x);
	dma_buf_unpin(x->attach);
	dma_resv_unlock(x->dmabuf->resv);
}

/* Waits for an invalidation that runs; none is to come afterwards. */
static void dmabuf_detach(struct ugds_dmabuf *x)
{
	struct device *dev = x->attach->dev;

	/* Exporters that cannot move have their mapping undone only here. */
	dma_buf_detach(x->dmabuf, x->attach);
	ugds_iommu_flush(dev);
}

/*
 * The memory may still be on its way here, which fences of the kernel's own use tell. Those of
 * readers and writers are none of ours: a mapping accesses nothing, and who sends commands orders
 * them. Pinned it stays where it is, so the lock need not be held.
 */
static int dmabuf_wait(struct ugds_dmabuf *x)
{
	long left = dma_resv_wait_timeout(x->dmabuf->resv, DMA_RESV_USAGE_KERNEL, true,
					  msecs_to_jiffies(FENCE_TIMEOUT_MS));

	if (left < 0)
		return left;
	return left ? 0 : -ETIMEDOUT;
}

static bool is_system_ram(struct device *dev, u64 iova)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);
	phys_addr_t phys;

	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY)
		phys = iommu_iova_to_phys(domain, iova);
	else
		phys = dma_to_phys(dev, iova);
	return ugds_phys_is_ram(phys);
}

/*
 * Does any of it lie in system memory, where a driver may have moved it for the pin? Told by where
 * bus addresses lead, for entries need not have pages. Neighbours in bus addresses may be none in
 * memory, so both ends of an extent are looked at.
 */
static bool dmabuf_in_system(struct ugds_dmabuf *x)
{
	const struct ugds_extents *e = &x->m.extents;
	u32 i;

	for (i = 0; i < e->nr; i++) {
		if (is_system_ram(x->attach->dev, e->v[i].iova) ||
		    is_system_ram(x->attach->dev, e->v[i].iova + e->v[i].nbytes - 1))
			return true;
		cond_resched();
	}
	return false;
}

/* Under the reservation lock: an invalidation takes the table away. */
static int dmabuf_publish(struct ugds_dmabuf *x, u64 skip)
{
	struct ugds_mapping *m = &x->m;
	int err;

	err = dma_resv_lock_interruptible(x->dmabuf->resv, NULL);
	if (err)
		return err;
	if (x->gone) {
		err = -EFAULT;
		goto unlock;
	}
	err = ugds_extents_add_sgt(&m->extents, x->sgt, skip, m->nbytes, PAGE_SIZE);
	if (err == -ERANGE)
		err = -EFAULT;
	if (err)
		goto unlock;
	if (dmabuf_in_system(x))
		m->ret_flags |= UGDS_DRV_MAPPED_SYSTEM;
	if (x->dmabuf->ops->pin)
		m->ret_flags |= UGDS_DRV_MAPPED_REVOCABLE;
	x->live = true;
unlock:
	dma_resv_unlock(x->dmabuf->resv);
	return err;
}

static int dmabuf_map(struct ugds_file *f, const struct ugds_drv_map *arg,
		      struct ugds_mapping **ret_m)
{
	u64 skip = round_down(arg->offset, PAGE_SIZE);
	struct ugds_dmabuf *x;
	int err;

	x = kzalloc(sizeof(*x), GFP_KERNEL_ACCOUNT);
	if (!x)
		return -ENOMEM;
	ugds_mapping_init(&x->m, &ugds_dmabuf_ops, f,
			  arg->flags & (UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE));
	x->dir = ugds_direction(arg->flags);
	x->dmabuf = dma_buf_get(arg->fd);
	if (IS_ERR(x->dmabuf)) {
		err = PTR_ERR(x->dmabuf);
		goto put_mapping;
	}
	/* The sum does not wrap (the caller saw to it), nor does a size that is rounded up. */
	err = -EFAULT;
	if (arg->offset + arg->nbytes > x->dmabuf->size)
		goto put_mapping;
	x->m.first_off = arg->offset - skip;
	x->m.page_size = PAGE_SIZE;
	x->m.nbytes = round_up(arg->offset + arg->nbytes, PAGE_SIZE) - skip;
	err = ugds_ledger_reserve(&f->ledger, &x->m, (uintptr_t)x->dmabuf, skip >> PAGE_SHIFT,
				  x->m.nbytes >> PAGE_SHIFT);
	if (err)
		goto put_mapping;
	err = dmabuf_attach(x, ugds_file_device(f));
	if (err)
		goto unreserve;
	err = dmabuf_pin_and_map(x);
	if (err)
		goto detach;
	err = dmabuf_wait(x);
	if (err)
		goto unmap;
	err = dmabuf_publish(x, skip);
	if (err)
		goto unmap;
	*ret_m = &x->m;
	return 0;

unmap:
	dmabuf_unmap_and_unpin(x);
detach:
	dmabuf_detach(x);
unreserve:
	ugds_ledger_unreserve(&f->ledger, &x->m);
put_mapping:
	ugds_mapping_put(&x->m);
	return err;
}

static void dmabuf_unmap(struct ugds_mapping *m)
{
	struct ugds_dmabuf *x = to_dmabuf(m);

	dmabuf_unmap_and_unpin(x);
	dmabuf_detach(x);
}

static void dmabuf_free(struct ugds_mapping *m)
{
	struct ugds_dmabuf *x = to_dmabuf(m);

	/* Its address was the name of the pages in the ledger until now. */
	if (!IS_ERR_OR_NULL(x->dmabuf))
		dma_buf_put(x->dmabuf);
	kfree(x);
}

/* Whether memory stays in the peer is its driver's choice, which each mapping tells. */
static u64 dmabuf_caps(struct ugds_file *f)
{
	return UGDS_DRV_CAP_DMABUF | UGDS_DRV_CAP_DMABUF_P2P;
}

const struct ugds_map_ops ugds_dmabuf_ops = {
	.caps = dmabuf_caps,
	.map = dmabuf_map,
	.unmap = dmabuf_unmap,
	.free = dmabuf_free,
};

UGDS_IMPORT_NS(DMA_BUF);
