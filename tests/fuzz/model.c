/* SPDX-License-Identifier: MIT */
#include "model.h"
#include "nvme/lane.h"

#include "input.h"

static struct model *the; /* the one that pairs are made for */

static struct model_pair *pair_of(struct nvme_qpair *qp)
{
	struct model_pair *m = &the->pair[qp->conf.qid];

	MUST(m->qp == qp);
	return m;
}

uint32_t model_live_of(const struct model *m, const void *owner)
{
	uint32_t n = 0;

	for (uint32_t q = 1; q < MODEL_PAIRS; q++)
		for (uint32_t i = 0; i < m->pair[q].nr_live; i++)
			n += m->pair[q].live[i].owner == owner;
	return n;
}

uint32_t model_live_all(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t q = 1; q < MODEL_PAIRS; q++)
		n += m->pair[q].nr_live;
	return n;
}

static struct model_live *find(struct model_pair *m, uint16_t cid)
{
	for (uint32_t i = 0; i < m->nr_live; i++)
		if (m->live[i].cid == cid)
			return &m->live[i];
	return NULL;
}

static void drop(struct model_pair *m, struct model_live *l)
{
	m->nr_lists += l->list;
	*l = m->live[--m->nr_live];
}

/* Commands that fit. Entries that were not read yet belong to commands that are out, whatever SQHD says. */
static uint32_t room(const struct model_pair *m) { return m->qp->conf.depth - 1 - m->nr_live; }

static bool wants_list(const struct nvme_io *io, uint32_t page)
{
	uint64_t in;

	if (!io->map)
		return io->inl_len;
	/* the bus keeps offsets within a page only where pages are the host's */
	in = (mem_iova(io->map, io->buf_off)) & (page - 1);
	return in + io->nbytes > 2ull * page;
}

static void look_at_entry(struct model_pair *m, const struct nvme_io *io)
{
	struct puppet_queue *q = &the->p->q[m->qp->conf.qid];
	const struct nvme_sqe *s = &q->sq[m->sq_tail];
	uint32_t page = 1u << m->qp->ctrl->page_shift;
	const char *bad = NULL;

	MUST(q->sq && q->sq_size == m->qp->conf.depth);
	MUST(s->opcode == io->opcode && !s->flags && le16_get(s->cid) == io->cid);
	MUST(le32_get(s->nsid) == io->nsid && le32_get(s->cdw10) == (uint32_t)io->cdw10_11 &&
	     le32_get(s->cdw11) == io->cdw10_11 >> 32 && le32_get(s->cdw12) == io->cdw12);
	if (io->map)
		bad = prp_walk(the->p, le64_get(s->prp1), le64_get(s->prp2), page,
			       (uint8_t *)io->map->vaddr + io->buf_off, io->nbytes,
			       io->opcode == NVME_IO_READ ? DMA_WRITE : DMA_READ);
	if (bad)
		fprintf(stderr, "%s (%u bytes at %llu)\n", bad, io->nbytes, (unsigned long long)io->buf_off);
	MUST(!bad);
}

/* What the device is told: in the register, or in the shadow page that the host set up. */
static uint32_t doorbell(const struct model_pair *m, bool cq)
{
	const struct pcie_dev *dev = &the->p->dev;
	uint32_t i = 2u * m->qp->conf.qid + cq;

	if (!dev->shadow_db)
		return puppet_doorbell(the->p, m->qp->conf.qid, cq);
	return le32_get(atomic_load(&dev->shadow_db[(size_t)i << NVME_CAP_DSTRD(the->p->cap)]));
}

/* How many of @n fit: identifiers, and list pages for those that need one. */
static uint32_t count_fitting(const struct model_pair *m, const struct nvme_io *ios, uint32_t n)
{
	uint32_t fits = min_u32(n, m->qp->space), lists = m->nr_lists, k;

	MUST(m->qp->space <= room(m));
	for (k = 0; k < fits; k++) {
		if (!wants_list(&ios[k], 1u << m->qp->ctrl->page_shift))
			continue;
		if (!lists)
			break;
		lists--;
	}
	return k;
}

/* It went into the queue. */
static void add(struct model_pair *m, const struct nvme_io *io)
{
	struct model_live *l = &m->live[m->nr_live];

	MUST(m->nr_live < MODEL_DEPTH && !find(m, io->cid) && io->cid != 0xffff);
	*l = (struct model_live){ io->owner, io->nbytes, io->cid,
				  wants_list(io, 1u << m->qp->ctrl->page_shift) };
	m->nr_live++;
	m->nr_lists -= l->list;
	look_at_entry(m, io);
	m->sq_tail = (m->sq_tail + 1) % m->qp->conf.depth;
	the->watch->sent(io);
}

static uint32_t shim_submit(struct nvme_qpair *qp, struct nvme_io *ios, uint32_t n, int64_t now)
{
	struct model_pair *m = pair_of(qp);
	uint32_t fit = count_fitting(m, ios, n);

	MUST(m->real->submit(qp, ios, n, now) == fit);
	for (uint32_t i = 0; i < fit; i++)
		add(m, &ios[i]);
	MUST(qp->inflight == m->nr_live);
	return fit;
}

static bool shim_submit_one(struct nvme_qpair *qp, const struct nvme_io *io, int64_t now)
{
	struct model_pair *m = pair_of(qp);
	struct nvme_io one = *io;

	MUST(io->map && qp->space);
	if (!count_fitting(m, &one, 1)) {
		MUST(!m->real->submit_one(qp, io, now));
		return false;
	}
	MUST(m->real->submit_one(qp, io, now));
	/* the identifier is not told: as the entry has it */
	one.cid = le16_get(the->p->q[qp->conf.qid].sq[m->sq_tail].cid);
	add(m, &one);
	MUST(qp->inflight == m->nr_live);
	return true;
}

static uint32_t shim_submit_run(struct nvme_qpair *qp, const struct nvme_run *run,
				const struct nvme_item *items, uint32_t n, int64_t now)
{
	struct model_pair *m = pair_of(qp);
	struct nvme_io ios[MODEL_DEPTH];
	uint32_t fit;

	for (uint32_t i = 0; i < min_u32(n, MODEL_DEPTH); i++)
		ios[i] = (struct nvme_io){ .owner = items[i].owner,
					   .map = run->map,
					   .buf_off = items[i].buf_off,
					   .cdw10_11 = items[i].cdw10_11,
					   .nbytes = run->nbytes,
					   .nsid = run->nsid,
					   .cdw12 = run->cdw12,
					   .opcode = run->opcode };
	fit = count_fitting(m, ios, n);
	MUST(m->real->submit_run(qp, run, items, n, now) == fit);
	for (uint32_t i = 0; i < fit; i++) {
		/* identifiers are not told: as the entry has it */
		ios[i].cid = le16_get(the->p->q[qp->conf.qid].sq[m->sq_tail].cid);
		add(m, &ios[i]);
	}
	MUST(qp->inflight == m->nr_live);
	return fit;
}

static uint32_t shim_reap(struct nvme_qpair *qp, struct nvme_done *out, uint32_t max)
{
	struct model_pair *m = pair_of(qp);
	struct puppet_queue *q = &the->p->q[qp->conf.qid];
	struct nvme_done want[MODEL_DEPTH];
	uint32_t n = 0, got;
	bool seen = false;

	while (n < max && q->cq) {
		const struct nvme_cqe *e = &q->cq[m->cq_head];
		uint32_t dw3 = le32_get(e->dw3);
		struct model_live *l;

		if ((dw3 >> 16 & 1) != m->phase)
			break;
		seen = true;
		if (++m->cq_head == qp->conf.depth) {
			m->cq_head = 0;
			m->phase ^= 1;
		}
		l = find(m, (uint16_t)dw3);
		if (!l || le16_get(e->sqid) != qp->conf.qid) {
			m->unknown++;
			continue;
		}
		want[n++] = (struct nvme_done){ .owner = l->owner,
						.nbytes = l->nbytes,
						.dw0 = le32_get(e->dw0),
						.status = (uint16_t)(dw3 >> 17),
						.cid = l->cid };
		drop(m, l);
	}
	got = m->real->reap(qp, out, max);
	MUST(got == n);
	for (uint32_t i = 0; i < n; i++) {
		MUST(out[i].owner == want[i].owner && out[i].cid == want[i].cid &&
		     out[i].status == want[i].status && out[i].nbytes == want[i].nbytes &&
		     out[i].dw0 == want[i].dw0);
		the->watch->done(&out[i], false);
	}
	MUST(qp->inflight == m->nr_live && qp->nr_unknown_cid == m->unknown);
	if (seen) {
		MUST(qp->space == room(m));
		/* told of in time: with a quarter of the ring, the admin queue's at once */
		uint32_t depth = qp->conf.depth, lag = qp->conf.qid ? min_u32(depth / 4, 64) : 0;

		if ((m->cq_head + depth - m->cq_rung) % depth >= lag)
			m->cq_rung = m->cq_head;
		MUST(doorbell(m, true) == m->cq_rung);
	}
	return got;
}

static void shim_ack(struct nvme_qpair *qp)
{
	struct model_pair *m = pair_of(qp);

	m->real->ack(qp);
	m->cq_rung = m->cq_head;
	MUST(doorbell(m, true) == m->cq_rung);
}

void model_all_told(const struct nvme_lane *l)
{
	for (uint32_t i = 0; i < l->nr_qp; i++) {
		const struct model_pair *m = pair_of(l->qp[i]);

		MUST(m->cq_rung == m->cq_head && doorbell(m, true) == m->cq_head);
	}
}

struct forget {
	struct model_pair *m;
	void (*fn)(void *ctx, const struct nvme_done *);
	void *ctx;
};

static void forgotten(void *ctx, const struct nvme_done *d)
{
	struct forget *f = ctx;
	struct model_live *l = find(f->m, d->cid);

	MUST(l && l->owner == d->owner);
	drop(f->m, l);
	the->watch->done(d, true);
	f->fn(f->ctx, d);
}

static void shim_fail_all(struct nvme_qpair *qp, void (*fn)(void *ctx, const struct nvme_done *), void *ctx)
{
	struct forget f = { pair_of(qp), fn, ctx };

	f.m->real->fail_all(qp, forgotten, &f);
	MUST(!f.m->nr_live && !qp->inflight);
}

static int shim_connect(struct nvme_qpair *qp)
{
	struct model_pair *m = pair_of(qp);
	int rc;

	MUST(!m->nr_live); /* a pair is never rewound under a command */
	rc = m->real->connect(qp);
	m->cq_head = m->cq_rung = m->sq_tail = 0;
	m->phase = 1;
	m->nr_lists = min_u32(qp->conf.list_pages, 1024);
	return rc;
}

static void shim_kick(struct nvme_qpair *qp, bool hold)
{
	struct model_pair *m = pair_of(qp);

	m->real->kick(qp, hold);
	MUST(doorbell(m, false) == m->sq_tail);
}

static bool shim_oldest(struct nvme_qpair *qp, int64_t before, struct nvme_stuck *ret)
{
	struct model_pair *m = pair_of(qp);
	bool some = m->real->oldest(qp, before, ret);

	if (some)
		MUST(find(m, ret->cid) && find(m, ret->cid)->owner == ret->owner && ret->sent_ns <= before);
	return some;
}

static void shim_free(struct nvme_qpair *qp)
{
	struct model_pair *m = pair_of(qp);

	m->qp = NULL;
	m->real->free(qp);
}

/* What is not watched is the real one's. */
static void watch(struct model_pair *m)
{
	m->ops = *m->real;
	m->ops.connect = shim_connect;
	m->ops.submit = shim_submit;
	m->ops.submit_one = shim_submit_one;
	m->ops.submit_run = shim_submit_run;
	m->ops.kick = shim_kick;
	m->ops.reap = shim_reap;
	m->ops.ack = shim_ack;
	m->ops.oldest = shim_oldest;
	m->ops.fail_all = shim_fail_all;
	m->ops.free = shim_free;
	m->qp->ops = &m->ops;
}

static int shim_new(struct nvme_ctrl *c, const struct nvme_qpair_conf *conf, struct nvme_qpair **ret)
{
	int rc = pcie_ctrl_ops.qpair_new(c, conf, ret);

	if (rc || !conf->qid || conf->qid >= MODEL_PAIRS)
		return rc;
	MUST(conf->depth <= MODEL_DEPTH);
	the->pair[conf->qid] = (struct model_pair){ .qp = *ret, .real = (*ret)->ops, .phase = 1 };
	watch(&the->pair[conf->qid]);
	return 0;
}

struct nvme_ctrl_ops model_ctrl_ops;

void model_begin(struct model *m, struct puppet *p, const struct model_watch *watch)
{
	*m = (struct model){ .p = p, .watch = watch };
	the = m;
	model_ctrl_ops = pcie_ctrl_ops;
	model_ctrl_ops.qpair_new = shim_new;
}
