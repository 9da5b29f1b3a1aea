/* SPDX-License-Identifier: MIT */
#include "puppet.h"

#include "input.h"

#define IO_PAGE 4096u

static uint32_t reg32(struct puppet *p, uint32_t off)
{
	switch (off) {
	case NVME_REG_VS:
		return p->vs;
	case NVME_REG_CC:
		return p->cc;
	case NVME_REG_CSTS:
		return p->csts;
	default:
		return 0;
	}
}

static uint32_t op_read32(void *t, uint32_t off)
{
	struct puppet *p = t;

	if (p->on_read)
		p->on_read(p, off);
	return p->gone ? UINT32_MAX : reg32(p, off);
}

static uint64_t op_read64(void *t, uint32_t off)
{
	struct puppet *p = t;

	if (p->on_read)
		p->on_read(p, off);
	return p->gone ? UINT64_MAX : off == NVME_REG_CAP ? p->cap : reg32(p, off);
}

static void enable(struct puppet *p)
{
	struct puppet_queue *q = &p->q[0];

	memset(p->q, 0, sizeof(p->q));
	p->nr_aer = 0;
	q->sq_size = (p->aqa & 0xfff) + 1;
	q->cq_size = (p->aqa >> 16 & 0xfff) + 1;
	q->sq = puppet_at(p, p->asq, q->sq_size * sizeof(*q->sq), DMA_READ);
	q->cq = puppet_at(p, p->acq, q->cq_size * sizeof(*q->cq), DMA_WRITE);
	q->phase = 1;
	MUST(q->sq && q->cq);
	memset(p->doorbells, 0, PUPPET_DOORBELLS);
}

static void op_write32(void *t, uint32_t off, uint32_t val)
{
	struct puppet *p = t;

	if (off == NVME_REG_AQA)
		p->aqa = val;
	if (off != NVME_REG_CC)
		return;
	if (val & NVME_CC_EN && !(p->cc & NVME_CC_EN))
		enable(p);
	p->cc = val;
	if (p->stuck)
		return;
	p->csts = (p->csts & NVME_CSTS_CFS) | (val & NVME_CC_EN ? NVME_CSTS_RDY : 0) |
		  (NVME_CC_GET_SHN(val) ? NVME_CSTS_SHST_COMPLETE : 0);
	if (!(val & NVME_CC_EN))
		p->csts &= ~NVME_CSTS_CFS;
}

static void op_write64(void *t, uint32_t off, uint64_t val)
{
	struct puppet *p = t;

	if (off == NVME_REG_ASQ)
		p->asq = val;
	if (off == NVME_REG_ACQ)
		p->acq = val;
}

static int op_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct puppet *p = t;
	uintptr_t first = (uintptr_t)vaddr & ~(uintptr_t)(IO_PAGE - 1);
	size_t pages = ((uintptr_t)vaddr + nbytes - first + IO_PAGE - 1) / IO_PAGE;
	size_t nr = flags & DMA_CONTIG ? 1 : pages;

	for (uint32_t i = 0; i < PUPPET_MAPS; i++) {
		struct puppet_map *m = &p->map[i];

		if (m->live)
			continue;
		*m = (struct puppet_map){ .iova = p->next_iova,
					  .vaddr = (uint8_t *)first,
					  .nbytes = pages * IO_PAGE,
					  .flags = flags,
					  .live = true,
					  .scattered = nr > 1 };
		p->next_iova += 2 * pages * IO_PAGE + (1ull << 20);
		ret->extents = malloc(nr * sizeof(*ret->extents));
		for (size_t k = 0; k < nr; k++)
			ret->extents[k] = (struct dma_extent){ m->iova + k * (nr > 1 ? 2 : 1) * IO_PAGE,
							       nr > 1 ? IO_PAGE : m->nbytes };
		ret->nr = nr;
		ret->first_off = (uintptr_t)vaddr - first;
		ret->handle = i + 1;
		return 0;
	}
	return -ENOSPC;
}

static int op_unmap(void *t, uint64_t handle)
{
	struct puppet *p = t;

	MUST(handle && handle <= PUPPET_MAPS && p->map[handle - 1].live);
	p->map[handle - 1].live = false;
	return 0;
}

static int op_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret)
{
	struct puppet *p = t;

	(void)fd;
	(void)word;
	MUST(vector < p->dev.nr_vectors);
	*ret = ++p->nr_bound;
	return 0;
}

static int op_unbind(void *t, uint64_t binding)
{
	struct puppet *p = t;

	MUST(binding && p->nr_bound);
	p->nr_bound--;
	return 0;
}

static void op_kick(void *t, uint32_t qid)
{
	if (!qid)
		puppet_serve(t);
}

static int op_stop_dma(void *t)
{
	((struct puppet *)t)->dma_off = true;
	return 0;
}

static int op_start_dma(void *t)
{
	((struct puppet *)t)->dma_off = false;
	return 0;
}
static void op_close(void *t) { ((struct puppet *)t)->closed = true; }

static const struct pcie_ops puppet_ops = {
	.name = "puppet",
	.reg_read32 = op_read32,
	.reg_read64 = op_read64,
	.reg_write32 = op_write32,
	.reg_write64 = op_write64,
	.dma_map = op_map,
	.dma_unmap = op_unmap,
	.irq_bind = op_bind,
	.irq_unbind = op_unbind,
	.kick = op_kick,
	.kick_fenced = op_kick,
	.stop_dma = op_stop_dma,
	.start_dma = op_start_dma,
	.close = op_close,
};

void puppet_init(struct puppet *p)
{
	memset(p, 0, sizeof(*p));
	p->dev.ops = &puppet_ops;
	p->dev.t = p;
	p->doorbells = aligned_alloc(64, PUPPET_DOORBELLS);
	memset(p->doorbells, 0, PUPPET_DOORBELLS);
	p->dev.doorbells = p->doorbells;
	p->dev.doorbell_bytes = PUPPET_DOORBELLS;
	p->dev.nr_vectors = 2;
	p->dev.flags = NVME_TR_ARM | NVME_TR_MAP_INLINE;
	p->next_iova = 1ull << 32;
	p->admin = puppet_answer;
	p->granted = 4;
	p->cap = 63 | 1ull << 37 | 1ull << 24;
	p->vs = 0x20000;
	p->id = (struct nvme_id_ctrl){ .mdts = 4,
				       .sqes = 0x66,
				       .cqes = 0x44,
				       .nn = le32_put(1),
				       .aerl = 1,
				       .acl = 1,
				       .oncs = le16_put(0xff) };
	memset(p->id.sn, ' ', sizeof(p->id.sn));
	memcpy(p->id.sn, "PUPPET", 6);
	p->ns.nsze = le64_put(1ull << 32);
	p->ns.lbaf[0].lbads = 12;
}

void puppet_done(struct puppet *p)
{
	MUST(p->closed && !p->nr_bound);
	for (uint32_t i = 0; i < PUPPET_MAPS; i++)
		MUST(!p->map[i].live);
	free(p->doorbells);
}

void *puppet_at(struct puppet *p, uint64_t iova, uint64_t nbytes, uint32_t perm)
{
	for (uint32_t i = 0; i < PUPPET_MAPS; i++) {
		struct puppet_map *m = &p->map[i];
		uint64_t span = m->scattered ? 2 * m->nbytes : m->nbytes, off = iova - m->iova, page;

		if (!m->live || iova < m->iova || off >= span)
			continue;
		if (!(m->flags & perm))
			return NULL;
		if (!m->scattered)
			return nbytes <= m->nbytes - off ? m->vaddr + off : NULL;
		page = off / IO_PAGE;
		if (page & 1 || nbytes > IO_PAGE - off % IO_PAGE)
			return NULL;
		return m->vaddr + page / 2 * IO_PAGE + off % IO_PAGE;
	}
	return NULL;
}

bool puppet_data(struct puppet *p, const struct nvme_sqe *sqe, const void *src, uint32_t n)
{
	uint64_t iova = le64_get(sqe->prp1);
	uint32_t first = min_u32(n, IO_PAGE - (uint32_t)(iova & (IO_PAGE - 1)));
	void *to = puppet_at(p, iova, first, DMA_WRITE);

	/* answers are a page at most, and at the start of one */
	if (!to || first != n)
		return false;
	memcpy(to, src, n);
	return true;
}

static uint16_t make_queue(struct puppet *p, const struct nvme_sqe *sqe)
{
	uint32_t dw10 = le32_get(sqe->cdw10), qid = dw10 & 0xffff, size = (dw10 >> 16) + 1;
	struct puppet_queue *q = &p->q[qid % PUPPET_QUEUES];

	if (!qid || qid >= PUPPET_QUEUES)
		return NVME_STATUS(NVME_SCT_CMD, NVME_SC_INVALID_QID);
	if (sqe->opcode == NVME_ADM_CREATE_CQ) {
		q->cq = puppet_at(p, le64_get(sqe->prp1), size * sizeof(*q->cq), DMA_WRITE);
		q->cq_size = size;
		q->cq_tail = 0;
		q->phase = 1;
		MUST(q->cq);
	} else {
		q->sq = puppet_at(p, le64_get(sqe->prp1), size * sizeof(*q->sq), DMA_READ);
		q->sq_size = size;
		q->sq_head = 0;
		MUST(q->sq && q->cq);
	}
	return 0;
}

uint16_t puppet_answer(struct puppet *p, const struct nvme_sqe *sqe, uint32_t *ret_dw0, bool *ret_answer)
{
	uint8_t page[4096] = { 0 };
	uint32_t cns = le32_get(sqe->cdw10) & 0xff;

	switch (sqe->opcode) {
	case NVME_ADM_IDENTIFY:
		if (cns == NVME_CNS_CTRL)
			MUST(puppet_data(p, sqe, &p->id, 4096));
		else if (cns == NVME_CNS_NS)
			MUST(puppet_data(p, sqe, &p->ns, 4096));
		else {
			if (!le32_get(sqe->nsid))
				page[0] = 1; /* the list: namespace 1 */
			MUST(puppet_data(p, sqe, page, 4096));
		}
		return 0;
	case NVME_ADM_SET_FEATURES:
		if (cns == NVME_FEAT_NUM_QUEUES)
			*ret_dw0 = (p->granted - 1) | (p->granted - 1) << 16;
		return 0;
	case NVME_ADM_GET_LOG: {
		uint32_t n = ((le32_get(sqe->cdw10) >> 16) + 1) * 4;

		MUST(puppet_data(p, sqe, page, min_u32(n, 4096)));
		return 0;
	}
	case NVME_ADM_CREATE_CQ:
	case NVME_ADM_CREATE_SQ:
		return make_queue(p, sqe);
	case NVME_ADM_ASYNC_EVENT:
		*ret_answer = false;
		if (p->nr_aer < ARRAY_SIZE(p->aer))
			p->aer[p->nr_aer++] = le16_get(sqe->cid);
		return 0;
	case NVME_ADM_DELETE_CQ:
	case NVME_ADM_DELETE_SQ:
	case NVME_ADM_ABORT:
	case NVME_ADM_DBBUF:
		return 0;
	default:
		return NVME_SC_INVALID_OPCODE;
	}
}

void puppet_post(struct puppet *p, uint32_t qid, uint16_t cid, uint16_t status, uint32_t dw0)
{
	struct puppet_queue *q = &p->q[qid];
	struct nvme_cqe *e;

	if (!q->cq || p->dma_off)
		return;
	e = &q->cq[q->cq_tail];
	e->dw0 = le32_put(dw0);
	e->sqhd = le16_put((uint16_t)q->sq_head);
	e->sqid = le16_put((uint16_t)qid);
	e->dw3 = le32_put(cid | q->phase << 16 | (uint32_t)status << 17);
	if (++q->cq_tail == q->cq_size) {
		q->cq_tail = 0;
		q->phase ^= 1;
	}
}

uint32_t puppet_doorbell(struct puppet *p, uint32_t qid, bool cq)
{
	uint32_t v;

	memcpy(&v, p->doorbells + (2 * qid + cq) * ((size_t)4 << NVME_CAP_DSTRD(p->cap)), sizeof(v));
	return le32_get(v);
}

void puppet_serve(struct puppet *p)
{
	struct puppet_queue *q = &p->q[0];

	if (!(p->csts & NVME_CSTS_RDY) || p->csts & NVME_CSTS_CFS || !q->sq)
		return;
	while (q->sq_head != puppet_doorbell(p, 0, false)) {
		struct nvme_sqe sqe = q->sq[q->sq_head];
		uint32_t dw0 = 0;
		bool answer = true;
		uint16_t status;

		if (++q->sq_head == q->sq_size)
			q->sq_head = 0;
		status = p->admin(p, &sqe, &dw0, &answer);
		if (answer)
			puppet_post(p, 0, le16_get(sqe.cid), status, dw0);
	}
}
