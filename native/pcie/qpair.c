/* SPDX-License-Identifier: MIT */
/*
 * Submission and completion over rings. The hot path: per command, one tracker, one 64-byte entry, one 16-byte
 * completion; doorbells once a call.
 */
#include <stdlib.h>

#include "nvme/ctrl.h"
#include "pcie/pcie_qpair.h"
#include "pcie/ring.h"

static inline struct pcie_tracker *take_tracker(struct pcie_qpair *q)
{
	struct pcie_tracker *tr = &q->tr[q->free_slots[q->free_head++ & q->slot_mask]];

	/* The next use of this slot has another identifier. 0xffff is never one: slots end at depth - 2. */
	tr->cid = (uint16_t)(tr->cid + q->cid_step);
	return tr;
}

static inline void give_tracker(struct pcie_qpair *q, struct pcie_tracker *tr, uint32_t slot)
{
	tr->owner = NULL;
	if (unlikely(tr->list != NO_LIST)) {
		q->free_lists[q->nr_free_lists++] = tr->list;
		tr->list = NO_LIST;
	}
	q->free_slots[q->free_tail++ & q->slot_mask] = (uint16_t)slot;
}

static inline void set_space(struct pcie_qpair *q)
{
	/* Entries that were not read yet belong to commands that are out, so a free identifier comes with a free entry,
	 * whatever SQHD says. */
	q->base.space = q->free_tail - q->free_head;
}

static inline void put_entry(struct pcie_qpair *q, struct pcie_tracker *tr, void *owner, uint32_t nbytes,
			     int64_t now)
{
	tr->owner = owner;
	tr->nbytes = nbytes;
	tr->sent_ns = now;
	if (++q->sq_tail == q->depth)
		q->sq_tail = 0;
}

static inline uint64_t sqe_head(uint8_t opcode, uint32_t nsid) { return opcode | (uint64_t)nsid << 32; }

/* Eight stores, all of the entry. */
static inline void put_sqe(struct nvme_sqe *sqe, uint64_t head, uint16_t cid, uint64_t prp1, uint64_t prp2,
			   uint64_t cdw10_11, uint32_t cdw12)
{
	le64_t *w = (le64_t *)(void *)sqe;

	w[0] = le64_put(head | (uint64_t)cid << 16);
	w[1] = 0;
	w[2] = 0;
	w[3] = le64_put(prp1);
	w[4] = le64_put(prp2);
	w[5] = le64_put(cdw10_11);
	w[6] = le64_put(cdw12);
	w[7] = 0;
}

static uint32_t qpair_submit(struct nvme_qpair *qp, struct nvme_io *ios, uint32_t n, int64_t now)
{
	struct pcie_qpair *q = pcie_qp(qp);
	uint32_t i, space = min_u32(n, qp->space);

	for (i = 0; i < space; i++) {
		struct nvme_io *io = &ios[i];
		struct nvme_sqe *sqe = &q->sq[q->sq_tail];
		uint64_t prp1 = 0, prp2 = 0;
		uint16_t list = NO_LIST;
		struct pcie_tracker *tr;

		if (likely(io->map)) {
			if (!pcie_prp_one(io->map, io->buf_off, io->nbytes, &prp1) &&
			    unlikely(
				    pcie_prp_build(q, io->map, io->buf_off, io->nbytes, &prp1, &prp2, &list)))
				break;
		} else if (io->inl_len) {
			if (!q->nr_free_lists)
				break;
			list = q->free_lists[--q->nr_free_lists];
			memcpy(q->lists + (size_t)list * q->list_entries, io->inl, io->inl_len);
			prp1 = q->list_iova[list];
		}
		tr = take_tracker(q);
		tr->list = list;
		io->cid = tr->cid;
		put_sqe(sqe, sqe_head(io->opcode, io->nsid), tr->cid, prp1, prp2, io->cdw10_11, io->cdw12);
		put_entry(q, tr, io->owner, io->nbytes, now);
	}
	qp->inflight += i;
	qp->space -= i;
	return i;
}

static bool qpair_submit_one(struct nvme_qpair *qp, const struct nvme_io *io, int64_t now)
{
	struct pcie_qpair *q = pcie_qp(qp);
	uint64_t prp1, prp2 = 0;
	uint16_t list = NO_LIST;
	struct pcie_tracker *tr;

	if (!pcie_prp_one(io->map, io->buf_off, io->nbytes, &prp1) &&
	    unlikely(pcie_prp_build(q, io->map, io->buf_off, io->nbytes, &prp1, &prp2, &list)))
		return false;
	tr = take_tracker(q);
	tr->list = list;
	put_sqe(&q->sq[q->sq_tail], sqe_head(io->opcode, io->nsid), tr->cid, prp1, prp2, io->cdw10_11,
		io->cdw12);
	put_entry(q, tr, io->owner, io->nbytes, now);
	qp->inflight++;
	qp->space--;
	return true;
}

/* One that needs a list, or does not fit on one page. */
static __attribute__((noinline)) bool put_long(struct pcie_qpair *q, const struct nvme_run *run,
					       const struct nvme_item *item, int64_t now)
{
	uint64_t prp1, prp2 = 0;
	uint16_t list = NO_LIST;
	struct pcie_tracker *tr;

	if (pcie_prp_build(q, run->map, item->buf_off, run->nbytes, &prp1, &prp2, &list))
		return false;
	tr = take_tracker(q);
	tr->list = list;
	put_sqe(&q->sq[q->sq_tail], sqe_head(run->opcode, run->nsid), tr->cid, prp1, prp2, item->cdw10_11,
		run->cdw12);
	put_entry(q, tr, item->owner, run->nbytes, now);
	return true;
}

/* All that are about to be written, at once: one after another, each entry's stores would wait for its line. */
static inline void prefetch_entries(const struct pcie_qpair *q, uint32_t n)
{
	uint32_t at = q->sq_tail;

	for (uint32_t i = 0; i < n; i++) {
		prefetch_write(&q->sq[at]);
		at = at + 1 == q->depth ? 0 : at + 1;
	}
}

/* Tail and free slot are in locals: the entries' stores could change them, for all the compiler knows. */
static uint32_t qpair_submit_run(struct nvme_qpair *qp, const struct nvme_run *run,
				 const struct nvme_item *items, uint32_t n, int64_t now)
{
	struct pcie_qpair *q = pcie_qp(qp);
	const struct mem_map *map = run->map;
	const uint64_t mask = (1ull << map->shift) - 1, most = mask + 1 - run->nbytes;
	const uint64_t head = sqe_head(run->opcode, run->nsid);
	const struct nvme_item *item = items, *end = items + min_u32(n, qp->space);
	uint32_t tail = q->sq_tail, slot = q->free_head, i;

	prefetch_entries(q, (uint32_t)(end - items));
	for (; item < end; item++) {
		uint64_t pos = map->first_off + item->buf_off, in = pos & mask;
		struct pcie_tracker *tr;
		uint16_t cid;

		if (unlikely((int64_t)(most - in) < 0)) {
			q->sq_tail = tail;
			q->free_head = slot;
			if (!put_long(q, run, item, now))
				break;
			tail = q->sq_tail;
			slot = q->free_head;
			continue;
		}
		tr = &q->tr[q->free_slots[slot++ & q->slot_mask]];
		cid = (uint16_t)(tr->cid + q->cid_step);
		*tr = (struct pcie_tracker){ item->owner, now, run->nbytes, cid, NO_LIST };
		put_sqe(&q->sq[tail], head, cid, map->iova[pos >> map->shift] + in, 0, item->cdw10_11,
			run->cdw12);
		if (++tail == q->depth)
			tail = 0;
	}
	q->sq_tail = tail;
	q->free_head = slot;
	i = (uint32_t)(item - items);
	qp->inflight += i;
	qp->space -= i;
	return i;
}

static int qpair_submit_raw(struct nvme_qpair *qp, const struct nvme_sqe *raw, void *owner, int64_t now)
{
	struct pcie_qpair *q = pcie_qp(qp);
	struct pcie_tracker *tr;

	if (!qp->space)
		return -EAGAIN;
	tr = take_tracker(q);
	tr->list = NO_LIST;
	q->sq[q->sq_tail] = *raw;
	q->sq[q->sq_tail].cid = le16_put(tr->cid);
	put_entry(q, tr, owner, 0, now);
	qp->inflight++;
	qp->space--;
	return tr->cid;
}

static void qpair_kick(struct nvme_qpair *qp, bool hold)
{
	struct pcie_qpair *q = pcie_qp(qp);

	if (q->sq_rung != q->sq_tail) {
		q->sq_rung = q->sq_tail;
		pcie_ring_doorbell(q->sq_db, q->sq_shadow, q->sq_event, q->sq_tail);
		qp->nr_doorbells++;
		q->held = true;
	}
	if (q->held && !hold) {
		q->held = false;
		if (q->dev->ops->kick)
			q->dev->ops->kick(q->dev->t, qp->conf.qid);
	}
}

static void qpair_tell(struct nvme_qpair *qp, bool fenced)
{
	struct pcie_qpair *q = pcie_qp(qp);

	if (!q->held)
		return;
	q->held = !fenced;
	if (q->dev->ops->kick_fenced)
		q->dev->ops->kick_fenced(q->dev->t, qp->conf.qid);
}

static bool qpair_peek(struct nvme_qpair *qp)
{
	struct pcie_qpair *q = pcie_qp(qp);
	uint32_t pos = atomic_load_explicit(&q->cq_pos, memory_order_relaxed);
	_Atomic uint32_t *dw3 = (_Atomic uint32_t *)&q->cq[pos >> 1].dw3;

	return NVME_CQE_PHASE(le32toh(atomic_load_explicit(dw3, memory_order_relaxed))) == (pos & 1);
}

static inline uint32_t ring_distance(const struct pcie_qpair *q, uint32_t from, uint32_t to)
{
	return to >= from ? to - from : to + q->depth - from;
}

/* The entries before @head are consumed: the controller may overwrite them. */
static inline void ring_completions(struct pcie_qpair *q, uint32_t head)
{
	q->cq_rung = head;
	pcie_ring_doorbell(q->cq_db, q->cq_shadow, q->cq_event, head);
}

#define CQES_AHEAD 16
#define CQ_LAG 64

/* Where one has come there may be more: their lines come over together. */
static inline void prefetch_completions(const struct pcie_qpair *q, uint32_t head)
{
	const uint32_t line = CACHELINE / sizeof(struct nvme_cqe),
		       most = min_u32(q->base.inflight, CQES_AHEAD);

	for (uint32_t i = line; i < most; i += line)
		__builtin_prefetch(&q->cq[head + i < q->depth ? head + i : head + i - q->depth]);
}

static uint32_t qpair_reap(struct nvme_qpair *qp, struct nvme_done *out, uint32_t max)
{
	struct pcie_qpair *q = pcie_qp(qp);
	uint32_t pos = atomic_load_explicit(&q->cq_pos, memory_order_relaxed);
	uint32_t head = pos >> 1, phase = pos & 1, seen = 0;
	const uint32_t mask = q->slot_mask, qid = qp->conf.qid;
	struct nvme_done *o = out, *end = out + max;

	if (qpair_peek(qp))
		prefetch_completions(q, head);
	while (o < end) {
		struct nvme_cqe *cqe = &q->cq[head];
		/* acquire: the rest of the entry and the data are read after the phase tag */
		uint32_t dw3 =
			le32toh(atomic_load_explicit((_Atomic uint32_t *)&cqe->dw3, memory_order_acquire));
		struct pcie_tracker *tr;

		if (NVME_CQE_PHASE(dw3) != phase)
			break;
		dma_rmb(); /* the same against a device's DMA, where acquire alone does not do */
		if (++head == q->depth) {
			head = 0;
			phase ^= 1;
		}
		seen++;
		tr = &q->tr[dw3 & mask];
		if (unlikely(tr->cid != NVME_CQE_CID(dw3) || le16_get(cqe->sqid) != qid || !tr->owner)) {
			qp->nr_unknown_cid++;
			continue;
		}
		*o++ = (struct nvme_done){
			.owner = tr->owner,
			.nbytes = tr->nbytes,
			.dw0 = le32_get(cqe->dw0),
			.status = NVME_CQE_STATUS(dw3),
			.cid = tr->cid,
			.sent_ns = tr->sent_ns,
		};
		give_tracker(q, tr, dw3 & mask);
	}
	if (!seen)
		return 0;
	qp->inflight -= (uint32_t)(o - out);
	set_space(q);
	atomic_store_explicit(&q->cq_pos, head << 1 | phase, memory_order_relaxed);
	/* Each write of the register costs the device as much as a command's: while there is plenty of room it waits. */
	if (ring_distance(q, q->cq_rung, head) >= q->cq_lag)
		ring_completions(q, head);
	return (uint32_t)(o - out);
}

static void qpair_ack(struct nvme_qpair *qp)
{
	struct pcie_qpair *q = pcie_qp(qp);
	uint32_t head = atomic_load_explicit(&q->cq_pos, memory_order_relaxed) >> 1;

	if (q->cq_rung != head)
		ring_completions(q, head);
}

static uint32_t qpair_step(struct nvme_qpair *qp, uint32_t max)
{
	struct pcie_qpair *q = pcie_qp(qp);

	return q->dev->step_on ? q->dev->ops->step(q->dev->t, qp->conf.qid, max) : 0;
}

static void qpair_fail_all(struct nvme_qpair *qp, void (*done)(void *ctx, const struct nvme_done *),
			   void *ctx)
{
	struct pcie_qpair *q = pcie_qp(qp);

	for (uint32_t i = 0; i < q->depth - 1; i++) {
		struct pcie_tracker *tr = &q->tr[i];
		struct nvme_done d = { .owner = tr->owner, .nbytes = tr->nbytes, .cid = tr->cid };

		d.status = NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_SQ_DELETED);
		if (!tr->owner)
			continue;
		give_tracker(q, tr, i);
		done(ctx, &d);
	}
	qp->inflight = 0;
}

static void set_shadow(struct pcie_qpair *q, uint32_t qid)
{
	struct pcie_dev *dev = q->dev;
	size_t stride = (size_t)1 << NVME_CAP_DSTRD(q->base.ctrl->cap);

	q->sq_shadow = q->sq_event = q->cq_shadow = q->cq_event = NULL;
	if (!dev->shadow_db || !qid)
		return;
	q->sq_shadow = dev->shadow_db + 2 * qid * stride;
	q->cq_shadow = dev->shadow_db + (2 * qid + 1) * stride;
	q->sq_event = dev->shadow_ei + 2 * qid * stride;
	q->cq_event = dev->shadow_ei + (2 * qid + 1) * stride;
}

static int connect_admin(struct pcie_qpair *q)
{
	const struct nvme_ctrl_ops *ops = q->base.ctrl->ops;
	void *t = q->base.ctrl->t;
	int err = ops->prop_set(t, NVME_REG_AQA, 4, (q->depth - 1) << 16 | (q->depth - 1));

	if (!err)
		err = ops->prop_set(t, NVME_REG_ASQ, 8, q->sq_iova);
	if (!err)
		err = ops->prop_set(t, NVME_REG_ACQ, 8, q->cq_iova);
	return err;
}

static int qpair_connect(struct nvme_qpair *qp)
{
	struct pcie_qpair *q = pcie_qp(qp);
	const struct nvme_qpair_conf *cf = &qp->conf;
	struct nvme_sqe cq = { .opcode = NVME_ADM_CREATE_CQ }, sq = { .opcode = NVME_ADM_CREATE_SQ };
	struct nvme_sqe undo = { .opcode = NVME_ADM_DELETE_CQ, .cdw10 = le32_put(cf->qid) };
	uint32_t dw0;
	uint16_t status;
	int err;

	pcie_qpair_rewind(q);
	set_shadow(q, cf->qid);
	if (!cf->qid)
		return connect_admin(q);
	cq.prp1 = le64_put(q->cq_iova);
	cq.cdw10 = le32_put((q->depth - 1) << 16 | cf->qid);
	cq.cdw11 = le32_put((uint32_t)cf->vector << 16 | (cf->irq ? NVME_CQ_IEN : 0) | NVME_QUEUE_PC);
	err = nvme_admin_sync(qp->ctrl, &cq, NULL, 0, false, &dw0, &status);
	if (err)
		return err;
	sq.prp1 = le64_put(q->sq_iova);
	sq.cdw10 = le32_put((q->depth - 1) << 16 | cf->qid);
	sq.cdw11 = le32_put((uint32_t)cf->qid << 16 | NVME_SQ_QPRIO(cf->qprio) | NVME_QUEUE_PC);
	err = nvme_admin_sync(qp->ctrl, &sq, NULL, 0, false, &dw0, &status);
	if (err)
		nvme_admin_sync(qp->ctrl, &undo, NULL, 0, false, &dw0, &status);
	return err;
}

static int qpair_disconnect(struct nvme_qpair *qp, bool connected)
{
	struct nvme_sqe sq = { .opcode = NVME_ADM_DELETE_SQ, .cdw10 = le32_put(qp->conf.qid) };
	struct nvme_sqe cq = { .opcode = NVME_ADM_DELETE_CQ, .cdw10 = le32_put(qp->conf.qid) };
	uint32_t dw0;
	uint16_t status;
	int err;

	if (!connected) {
		/* An owner that still saw the controller live finds nothing to take, and no room to send: a doorbell that
		 * it rang now would be one of a queue that is not there, or the first that a new one sees. */
		pcie_qpair_rewind(pcie_qp(qp));
		qp->space = 0;
		return 0;
	}
	if (!qp->conf.qid)
		return 0;
	err = nvme_admin_sync(qp->ctrl, &sq, NULL, 0, false, &dw0, &status);
	if (!err)
		err = nvme_admin_sync(qp->ctrl, &cq, NULL, 0, false, &dw0, &status);
	return err;
}

static void qpair_free(struct nvme_qpair *qp)
{
	if (!qp)
		return;
	pcie_qpair_release(pcie_qp(qp));
	free(pcie_qp(qp));
}

static const struct nvme_qpair_ops pcie_qpair_ops = {
	.connect = qpair_connect,
	.submit = qpair_submit,
	.submit_one = qpair_submit_one,
	.submit_run = qpair_submit_run,
	.submit_raw = qpair_submit_raw,
	.kick = qpair_kick,
	.tell = qpair_tell,
	.reap = qpair_reap,
	.ack = qpair_ack,
	.peek = qpair_peek,
	.step = qpair_step,
	.oldest = pcie_qpair_oldest,
	.excuse = pcie_qpair_excuse,
	.sent_slba = pcie_qpair_sent_slba,
	.each = pcie_qpair_each,
	.next = pcie_qpair_next,
	.landed = pcie_qpair_landed,
	.fail_all = qpair_fail_all,
	.disconnect = qpair_disconnect,
	.free = qpair_free,
};

int pcie_qpair_new(struct nvme_ctrl *c, const struct nvme_qpair_conf *conf, struct nvme_qpair **ret)
{
	struct pcie_dev *dev = c->t;
	size_t last = ((size_t)2 * conf->qid + 2) * ((size_t)4 << NVME_CAP_DSTRD(c->cap));
	struct pcie_qpair *q;
	int err;

	if (conf->depth < 2 || conf->depth > 65536 || last > dev->doorbell_bytes)
		return -EINVAL;
	q = aligned_alloc(CACHELINE, align_up(sizeof(*q), CACHELINE));
	if (!q)
		return -ENOMEM;
	memset(q, 0, sizeof(*q));
	q->base = (struct nvme_qpair){ .ops = &pcie_qpair_ops, .ctrl = c, .conf = *conf };
	q->dev = dev;
	q->depth = conf->depth;
	/* a quarter of the ring at most, so a full one never has to wait for it; the admin queue's owner polls seldom */
	q->cq_lag = conf->qid ? min_u32(conf->depth / 4, CQ_LAG) : 0;
	q->sq_db = pcie_doorbell(dev, c->cap, conf->qid, false);
	q->cq_db = pcie_doorbell(dev, c->cap, conf->qid, true);
	err = pcie_qpair_alloc(q);
	if (err) {
		qpair_free(&q->base);
		return err;
	}
	*ret = &q->base;
	return 0;
}
