// SPDX-License-Identifier: GPL-2.0 OR MIT
/* For tests: an exporter of dma-bufs that does what it is told, wrong things too. */
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "peerbar.h"
#include "peerbar_sg.h"

#define SYSTEM_MAX SZ_16M
#define PIECES_MAX 65536u
#define HOW_ALL (PEERBAR_EMPTY | (PEERBAR_EMPTY - 1))

struct peer_fence {
	struct dma_fence base;
	spinlock_t lock;
};

struct peer_export {
	struct list_head link; /* in bar->exports, under bar->lock */
	struct peer_bar *bar;
	struct dma_buf *dmabuf;
	struct peer_layout layout;
	struct dma_fence *fence; /* or NULL */
	bool gone; /* under the reservation lock */
};

static const char *peer_fence_name(struct dma_fence *fence)
{
	return "peerbar";
}

static const struct dma_fence_ops peer_fence_ops = {
	.get_driver_name = peer_fence_name,
	.get_timeline_name = peer_fence_name,
};

static void peer_layout_done(struct peer_layout *layout)
{
	u64 i;

	if (!layout->pages)
		return;
	for (i = 0; i < layout->nbytes >> PAGE_SHIFT; i++)
		if (layout->pages[i])
			__free_page(layout->pages[i]);
	kvfree(layout->pages);
}

static int peer_layout_init(struct peer_layout *layout, struct peer_bar *bar,
			    const struct peerbar_export *req)
{
	u64 piece = req->piece ? req->piece : SZ_1G, i, n = req->nbytes >> PAGE_SHIFT;

	if (!req->nbytes || req->how & ~HOW_ALL ||
	    !PAGE_ALIGNED(req->offset | req->nbytes | piece) || piece > SZ_2G)
		return -EINVAL;
	if (DIV_ROUND_UP_ULL(req->nbytes, piece) > PIECES_MAX)
		return -E2BIG;
	if (req->how & PEERBAR_REVERSED && req->nbytes % piece)
		return -EINVAL;
	*layout = (struct peer_layout){
		.how = req->how,
		.phys = bar->phys,
		.offset = req->offset,
		.nbytes = req->nbytes,
		.piece = piece,
		.pieces = DIV_ROUND_UP_ULL(req->nbytes, piece),
	};
	if (!(req->how & PEERBAR_SYSTEM))
		return req->offset > bar->nbytes || req->nbytes > bar->nbytes - req->offset
			       ? -EINVAL
			       : 0;
	if (req->nbytes > SYSTEM_MAX)
		return -E2BIG;
	layout->pages = kvcalloc(n, sizeof(*layout->pages), GFP_KERNEL);
	if (!layout->pages)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		layout->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!layout->pages[i]) {
			peer_layout_done(layout);
			return -ENOMEM;
		}
	}
	return 0;
}

static int peer_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct peer_export *exp = dmabuf->priv;

	/* Without it the importer may look at pages, which a BAR does not have. */
	if (!attach->peer2peer && !exp->layout.pages)
		return -EOPNOTSUPP;
	atomic_inc(&exp->bar->attachments);
	return 0;
}

static void peer_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct peer_export *exp = dmabuf->priv;

	atomic_dec(&exp->bar->attachments);
}

static int peer_pin(struct dma_buf_attachment *attach)
{
	struct peer_export *exp = attach->dmabuf->priv;

	if (exp->layout.how & PEERBAR_PIN_FAILS)
		return -EBUSY;
	atomic_inc(&exp->bar->pins);
	atomic_inc(&exp->bar->pins_ever);
	return 0;
}

static void peer_unpin(struct dma_buf_attachment *attach)
{
	struct peer_export *exp = attach->dmabuf->priv;

	atomic_dec(&exp->bar->pins);
}

static struct sg_table *peer_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct peer_export *exp = attach->dmabuf->priv;
	struct sg_table *table;

	if (exp->gone)
		return ERR_PTR(-ENODEV);
	if (exp->layout.how & PEERBAR_MAP_FAILS)
		return ERR_PTR(-ENOSPC);
	table = exp->layout.pages ? peer_sg_map_pages(attach->dev, &exp->layout, dir)
				  : peer_sg_map_bar(attach->dev, &exp->layout, dir);
	if (!IS_ERR(table))
		atomic_inc(&exp->bar->maps);
	return table;
}

static void peer_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
		       enum dma_data_direction dir)
{
	struct peer_export *exp = attach->dmabuf->priv;

	peer_sg_unmap(attach->dev, &exp->layout, table, dir);
	atomic_dec(&exp->bar->maps);
}

static int peer_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct peer_export *exp = dmabuf->priv;

	return peer_sg_mmap(&exp->layout, vma);
}

static void peer_export_free(struct peer_export *exp)
{
	if (exp->fence) {
		dma_fence_signal(exp->fence);
		dma_fence_put(exp->fence);
	}
	peer_layout_done(&exp->layout);
	peer_bar_put(exp->bar);
	kfree(exp);
}

static void peer_release(struct dma_buf *dmabuf)
{
	struct peer_export *exp = dmabuf->priv;

	mutex_lock(&exp->bar->lock);
	list_del(&exp->link);
	mutex_unlock(&exp->bar->lock);
	peer_export_free(exp);
}

static const struct dma_buf_ops peer_dynamic_ops = {
	.attach = peer_attach,
	.detach = peer_detach,
	.pin = peer_pin,
	.unpin = peer_unpin,
	.map_dma_buf = peer_map,
	.unmap_dma_buf = peer_unmap,
	.mmap = peer_mmap,
	.release = peer_release,
};

static const struct dma_buf_ops peer_static_ops = {
	.attach = peer_attach,
	.detach = peer_detach,
	.map_dma_buf = peer_map,
	.unmap_dma_buf = peer_unmap,
	.mmap = peer_mmap,
	.release = peer_release,
};

static int peer_fence_add(struct peer_export *exp)
{
	struct peer_fence *fence;
	int err;

	fence = kzalloc(sizeof(*fence), GFP_KERNEL);
	if (!fence)
		return -ENOMEM;
	spin_lock_init(&fence->lock);
	dma_fence_init(&fence->base, &peer_fence_ops, &fence->lock, dma_fence_context_alloc(1), 1);
	exp->fence = &fence->base;
	dma_resv_lock(exp->dmabuf->resv, NULL);
	err = dma_resv_reserve_fences(exp->dmabuf->resv, 1);
	if (!err)
		dma_resv_add_fence(exp->dmabuf->resv, exp->fence, DMA_RESV_USAGE_KERNEL);
	dma_resv_unlock(exp->dmabuf->resv);
	return err;
}

/* Returns a file descriptor. */
int peer_export_new(struct peer_bar *bar, struct peerbar_export *req)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct peer_export *exp;
	int err;

	exp = kzalloc(sizeof(*exp), GFP_KERNEL);
	if (!exp)
		return -ENOMEM;
	kref_get(&bar->kref);
	exp->bar = bar;
	err = peer_layout_init(&exp->layout, bar, req);
	if (err) {
		exp->layout.pages = NULL;
		peer_export_free(exp);
		return err;
	}
	info.ops = req->how & PEERBAR_STATIC ? &peer_static_ops : &peer_dynamic_ops;
	info.size = req->nbytes;
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = exp;
	exp->dmabuf = dma_buf_export(&info);
	if (IS_ERR(exp->dmabuf)) {
		err = PTR_ERR(exp->dmabuf);
		peer_export_free(exp);
		return err;
	}
	mutex_lock(&bar->lock);
	exp->gone = bar->dead;
	list_add(&exp->link, &bar->exports);
	mutex_unlock(&bar->lock);
	/* From here on dropping the dma-buf frees the export. */
	if (req->how & PEERBAR_FENCE)
		err = peer_fence_add(exp);
	if (!err)
		err = dma_buf_fd(exp->dmabuf, O_CLOEXEC);
	if (err < 0)
		dma_buf_put(exp->dmabuf);
	return err;
}

static void export_revoke(struct peer_export *exp, bool gone)
{
	struct dma_buf_attachment *attach;

	dma_resv_lock(exp->dmabuf->resv, NULL);
	exp->gone |= gone;
	list_for_each_entry(attach, &exp->dmabuf->attachments, node)
		if (attach->importer_ops)
			atomic_inc(&exp->bar->revoked_ever);
	dma_buf_invalidate_mappings(exp->dmabuf);
	dma_resv_unlock(exp->dmabuf->resv);
}

static struct peer_export *export_of(struct peer_bar *bar, int fd, struct dma_buf **ret_dmabuf)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct peer_export *exp;

	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	exp = dmabuf->priv;
	if ((dmabuf->ops != &peer_dynamic_ops && dmabuf->ops != &peer_static_ops) ||
	    exp->bar != bar) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-EINVAL);
	}
	*ret_dmabuf = dmabuf;
	return exp;
}

int peer_export_revoke(struct peer_bar *bar, const struct peerbar_fd *req)
{
	struct dma_buf *dmabuf;
	struct peer_export *exp = export_of(bar, req->fd, &dmabuf);

	if (IS_ERR(exp))
		return PTR_ERR(exp);
	export_revoke(exp, req->gone);
	dma_buf_put(dmabuf);
	return 0;
}

int peer_export_signal(struct peer_bar *bar, const struct peerbar_fd *req)
{
	struct dma_buf *dmabuf;
	struct peer_export *exp = export_of(bar, req->fd, &dmabuf);

	if (IS_ERR(exp))
		return PTR_ERR(exp);
	if (exp->fence)
		dma_fence_signal(exp->fence);
	dma_buf_put(dmabuf);
	return 0;
}

void peer_export_gone(struct peer_bar *bar)
{
	struct peer_export *exp;

	/* An export that is being released waits for this lock, so its dma-buf is there still. */
	mutex_lock(&bar->lock);
	list_for_each_entry(exp, &bar->exports, link)
		export_revoke(exp, true);
	mutex_unlock(&bar->lock);
}

/* As MODULE_IMPORT_NS(), whose argument changed its form. */
MODULE_INFO(import_ns, "DMA_BUF");
