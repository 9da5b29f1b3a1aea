/* SPDX-License-Identifier: MIT */
/* The engine's controller seam over a PCI function's registers, and its Doorbell Buffer Config. */
#include <stdlib.h>

#include "mem/hugepage.h"
#include "nvme/ctrl.h"
#include "pcie/pcie_qpair.h"

/* The pages of the shadow doorbells, kept from the first set-up to close: a reset sets them up again. */
struct pcie_shadow {
	void *mem;
	size_t nbytes;
	uint64_t handle;
	uint64_t db_iova, ei_iova;
	void *db, *ei;
};

static int pcie_prop_get(void *t, uint32_t off, uint32_t nbytes, uint64_t *ret)
{
	struct pcie_dev *dev = t;
	uint64_t v = nbytes == 8 ? dev->ops->reg_read64(dev->t, off) : dev->ops->reg_read32(dev->t, off);

	/* A read that nobody answers is all ones; no register that is read here can hold that value, in either half: a device
	 * may vanish, or come back, between the two reads that a bus makes of 64 bits. */
	if ((uint32_t)v == UINT32_MAX || (nbytes == 8 && v >> 32 == UINT32_MAX))
		return -ENODEV;
	*ret = v;
	return 0;
}

static int pcie_prop_set(void *t, uint32_t off, uint32_t nbytes, uint64_t val)
{
	struct pcie_dev *dev = t;

	if (nbytes == 8)
		dev->ops->reg_write64(dev->t, off, val);
	else
		dev->ops->reg_write32(dev->t, off, (uint32_t)val);
	return 0;
}

static int pcie_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct pcie_dev *dev = t;

	return dev->ops->dma_map(dev->t, vaddr, nbytes, flags, ret);
}

static int pcie_unmap(void *t, uint64_t handle)
{
	struct pcie_dev *dev = t;

	return dev->ops->dma_unmap(dev->t, handle);
}

static int pcie_map_foreign(void *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			    struct dma_mapping *ret)
{
	struct pcie_dev *dev = t;

	return dev->ops->dma_map_foreign ? dev->ops->dma_map_foreign(dev->t, from, nbytes, flags, ret)
					 : -EOPNOTSUPP;
}

static bool pcie_map_revoked(void *t, uint64_t handle)
{
	struct pcie_dev *dev = t;

	return dev->ops->dma_revoked && dev->ops->dma_revoked(dev->t, handle);
}

static int pcie_stop_dma(void *t)
{
	struct pcie_dev *dev = t;

	return dev->ops->stop_dma(dev->t);
}

static int pcie_start_dma(void *t)
{
	struct pcie_dev *dev = t;

	return dev->ops->start_dma(dev->t);
}

static int pcie_reset(void *t)
{
	struct pcie_dev *dev = t;

	return dev->ops->reset ? dev->ops->reset(dev->t) : -EOPNOTSUPP;
}

static int pcie_path(void *t)
{
	struct pcie_dev *dev = t;

	return dev->ops->path ? dev->ops->path(dev->t) : 0;
}

static int pcie_watch(void *t, int fd)
{
	struct pcie_dev *dev = t;

	return dev->ops->watch ? dev->ops->watch(dev->t, fd) : 0;
}

static void pcie_place(void *t, struct nvme_place *ret)
{
	struct pcie_dev *dev = t;

	if (dev->ops->place)
		dev->ops->place(dev->t, ret);
}

static _Atomic uint32_t *pcie_word_get(void *t)
{
	struct pcie_dev *dev = t;

	return dev->ops->word_get ? dev->ops->word_get(dev->t) : NULL;
}

static void pcie_word_put(void *t, _Atomic uint32_t *word)
{
	struct pcie_dev *dev = t;

	dev->ops->word_put(dev->t, word);
}

static int pcie_wake_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding)
{
	struct pcie_dev *dev = t;

	return dev->ops->irq_bind(dev->t, vector, fd, word, ret_binding);
}

static int pcie_wake_unbind(void *t, uint64_t binding)
{
	struct pcie_dev *dev = t;

	return dev->ops->irq_unbind(dev->t, binding);
}

/* A command has one PRP list page: its entries, and the first page's rest may be next to nothing. */
static uint32_t pcie_max_transfer(void *t, uint32_t page_shift)
{
	uint64_t page = 1ull << page_shift;

	(void)t;
	return (uint32_t)min_u64(page / sizeof(le64_t) * page, 1u << 31);
}

static uint32_t pcie_nr_vectors(void *t)
{
	struct pcie_dev *dev = t;

	return dev->nr_vectors;
}

static uint32_t pcie_flags(void *t)
{
	struct pcie_dev *dev = t;

	return dev->step_on ? dev->flags : dev->flags & ~NVME_TR_STEP;
}

static void shadow_free(struct pcie_dev *dev)
{
	struct pcie_shadow *s = dev->shadow;

	if (!s)
		return;
	if (s->handle)
		dev->ops->dma_unmap(dev->t, s->handle);
	mem_queue_free(s->mem, s->nbytes);
	free(s);
	dev->shadow = NULL;
	dev->shadow_db = dev->shadow_ei = NULL;
}

/* Two controller pages: contiguous when they are larger than the host's, two extents will do else. */
static int shadow_alloc(struct pcie_dev *dev, size_t page)
{
	struct pcie_shadow *s = calloc(1, sizeof(*s));
	size_t n = 0, want = 2 * page + (page > QUEUE_PAGE ? page : 0);
	struct dma_mapping dma = { 0 };
	uint64_t iova[2];
	bool huge;
	int err;

	if (!s)
		return -ENOMEM;
	dev->shadow = s;
	/* pages larger than the host's are one piece in a hugepage only */
	err = mem_queue_alloc(want, page > QUEUE_PAGE, &s->mem, &s->nbytes, &huge);
	if (!err)
		err = dev->ops->dma_map(dev->t, s->mem, s->nbytes,
					DMA_READ | DMA_WRITE | (page > QUEUE_PAGE ? DMA_CONTIG : 0), &dma);
	if (err)
		goto undo;
	s->handle = dma.handle;
	s->db = (char *)s->mem + (align_up(dma.extents[0].iova, page) - dma.extents[0].iova);
	s->ei = (char *)s->db + page;
	for (size_t i = 0; i < dma.nr; i++)
		for (uint64_t p = align_up(dma.extents[i].iova, page);
		     p + page <= dma.extents[i].iova + dma.extents[i].nbytes && n < 2; p += page)
			iova[n++] = p;
	free(dma.extents);
	if (n < 2) {
		err = -ENOTSUP;
		goto undo;
	}
	s->db_iova = iova[0];
	s->ei_iova = iova[1];
	return 0;
undo:
	shadow_free(dev);
	return err;
}

static int pcie_shadow_setup(struct nvme_ctrl *c)
{
	struct pcie_dev *dev = c->t;
	size_t page = (size_t)1 << c->page_shift;
	/* doorbells of all queues, spaced as the registers are, have to fit one page */
	size_t need = ((size_t)2 * c->nr_qpairs + 2) * ((size_t)4 << NVME_CAP_DSTRD(c->cap));
	struct nvme_sqe sqe = { .opcode = NVME_ADM_DBBUF };
	uint16_t status;
	uint32_t dw0;
	int err;

	dev->shadow_db = dev->shadow_ei = NULL;
	if (c->p.no_shadow || !(c->oacs & NVME_OACS_DBBUF) || need > page)
		return -EOPNOTSUPP;
	if (!dev->shadow) {
		err = shadow_alloc(dev, page);
		if (err)
			return err;
	}
	/* queues begin at zero again, and so does what was last said about them */
	memset(dev->shadow->db, 0, page);
	memset(dev->shadow->ei, 0, page);
	sqe.prp1 = le64_put(dev->shadow->db_iova);
	sqe.prp2 = le64_put(dev->shadow->ei_iova);
	err = nvme_admin_sync(c, &sqe, NULL, 0, false, &dw0, &status);
	if (err)
		return status == NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_OPCODE) ? -EOPNOTSUPP : err;
	dev->shadow_db = dev->shadow->db;
	dev->shadow_ei = dev->shadow->ei;
	return 0;
}

static void pcie_fork_child(void *t)
{
	struct pcie_dev *dev = t;

	if (dev->ops->fork_child)
		dev->ops->fork_child(dev->t);
}

static void pcie_close(void *t)
{
	struct pcie_dev *dev = t;

	shadow_free(dev);
	dev->ops->close(dev->t);
}

const struct nvme_ctrl_ops pcie_ctrl_ops = {
	.name = "pcie",
	.prop_get = pcie_prop_get,
	.prop_set = pcie_prop_set,
	.map = pcie_map,
	.unmap = pcie_unmap,
	.map_foreign = pcie_map_foreign,
	.map_revoked = pcie_map_revoked,
	.stop_dma = pcie_stop_dma,
	.start_dma = pcie_start_dma,
	.reset = pcie_reset,
	.path = pcie_path,
	.watch = pcie_watch,
	.place = pcie_place,
	.word_get = pcie_word_get,
	.word_put = pcie_word_put,
	.wake_bind = pcie_wake_bind,
	.wake_unbind = pcie_wake_unbind,
	.qpair_new = pcie_qpair_new,
	.shadow_setup = pcie_shadow_setup,
	.max_transfer = pcie_max_transfer,
	.nr_vectors = pcie_nr_vectors,
	.flags = pcie_flags,
	.fork_child = pcie_fork_child,
	.close = pcie_close,
};
