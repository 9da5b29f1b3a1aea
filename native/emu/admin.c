/* SPDX-License-Identifier: MIT */
/* Admin commands: queue management, Abort, Doorbell Buffer Config; the rest have files of their own. */
#include "emu/internal.h"

#define GENERIC(sc) (NVME_STATUS(NVME_SCT_GENERIC, sc) | EMU_DNR)
#define SPECIFIC(sc) (NVME_STATUS(NVME_SCT_CMD, sc) | EMU_DNR)

static bool live_cq(struct emu_ctrl *e, uint32_t qid)
{
	return qid <= EMU_MAX_QID && atomic_load_explicit(&e->cq[qid].live, memory_order_relaxed);
}

static bool live_sq(struct emu_ctrl *e, uint32_t qid)
{
	return qid <= EMU_MAX_QID && atomic_load_explicit(&e->sq[qid].live, memory_order_relaxed);
}

static uint16_t create_cq(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint32_t cdw10 = le32_get(s->cdw10), cdw11 = le32_get(s->cdw11);
	uint32_t qid = cdw10 & 0xffff, size = (cdw10 >> 16) + 1, vector = cdw11 >> 16;
	bool ien = cdw11 & NVME_CQ_IEN;

	if (!qid || qid > e->granted_cqs || live_cq(e, qid))
		return SPECIFIC(NVME_SC_INVALID_QID);
	if (size < 2 || size - 1 > e->p.mqes)
		return SPECIFIC(NVME_SC_INVALID_QSIZE);
	if (ien && vector >= e->irq.nr)
		return SPECIFIC(NVME_SC_INVALID_VECTOR);
	/* CAP.CQR: rings have to be contiguous */
	if (!(cdw11 & NVME_QUEUE_PC))
		return GENERIC(NVME_SC_INVALID_FIELD);
	return emu_cq_create(a, (uint16_t)qid, le64_get(s->prp1), size, ien, ien ? (uint16_t)vector : 0);
}

static uint16_t create_sq(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint32_t cdw10 = le32_get(s->cdw10), cdw11 = le32_get(s->cdw11);
	uint32_t qid = cdw10 & 0xffff, size = (cdw10 >> 16) + 1, cqid = cdw11 >> 16;

	if (!cqid || cqid > e->granted_cqs)
		return SPECIFIC(NVME_SC_INVALID_QID);
	if (!live_cq(e, cqid))
		return SPECIFIC(NVME_SC_CQ_INVALID);
	if (!qid || qid > e->granted_sqs || live_sq(e, qid))
		return SPECIFIC(NVME_SC_INVALID_QID);
	if (size < 2 || size - 1 > e->p.mqes)
		return SPECIFIC(NVME_SC_INVALID_QSIZE);
	if (!(cdw11 & NVME_QUEUE_PC))
		return GENERIC(NVME_SC_INVALID_FIELD);
	return emu_sq_create(a, (uint16_t)qid, le64_get(s->prp1), size, cdw11 >> 1 & 3, &e->cq[cqid]);
}

static uint16_t delete_sq(struct emu_actor *a, const struct nvme_sqe *s)
{
	uint32_t qid = le32_get(s->cdw10) & 0xffff;

	if (!qid || !live_sq(a->e, qid))
		return SPECIFIC(NVME_SC_INVALID_QID);
	emu_sq_delete(a, &a->e->sq[qid], NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_SQ_DELETED));
	return 0;
}

static uint16_t delete_cq(struct emu_actor *a, const struct nvme_sqe *s)
{
	uint32_t qid = le32_get(s->cdw10) & 0xffff;

	if (!qid || !live_cq(a->e, qid))
		return SPECIFIC(NVME_SC_INVALID_QID);
	if (a->e->cq[qid].nr_sqs)
		return SPECIFIC(NVME_SC_INVALID_QUEUE_DELETION);
	emu_cq_delete(a->e, &a->e->cq[qid]);
	return 0;
}

/* In the ring, not fetched yet: noted, and acted upon at the fetch. */
static bool abort_unfetched(struct emu_actor *a, struct emu_sq *sq, uint16_t cid)
{
	bool found = false;
	uint32_t n, pos;

	emu_lock(&sq->lock);
	n = atomic_load_explicit(&sq->live, memory_order_relaxed) ? emu_sq_avail(a, sq) : 0;
	pos = atomic_load_explicit(&sq->head, memory_order_relaxed);
	for (; n && !found; n--) {
		found = le16_get(sq->ring[pos].cid) == cid;
		pos = pos + 1 == sq->size ? 0 : pos + 1;
	}
	if (found && sq->nr_aborts < EMU_PENDING_ABORTS) {
		sq->aborts[sq->nr_aborts++] = cid;
		atomic_store_explicit(&sq->handoff, true, memory_order_relaxed);
	} else {
		found = false;
	}
	emu_unlock(&sq->lock);
	emu_actor_release(a);
	return found;
}

/* Dword 0, bit 0 of the answer: not aborted. */
static uint32_t do_abort(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint32_t cdw10 = le32_get(s->cdw10), sqid = cdw10 & 0xffff;
	uint16_t cid = (uint16_t)(cdw10 >> 16);
	struct emu_cmd c;

	emu_stat_add(&e->aborts, 1);
	if (emu_fault_flag(e, EMU_FAULT_ABORT_REFUSED, sqid) || !live_sq(e, sqid))
		return 1;
	if (!sqid && emu_aer_abort(e, cid)) {
		emu_fill_cmd(&c, &e->sq[0], s);
		c.sqe.cid = le16_put(cid);
	} else if (!emu_wait_take(e, &e->sq[sqid], cid, &c)) {
		/* on some thread already, or unknown: it completes by itself or never was */
		return abort_unfetched(a, &e->sq[sqid], cid) ? 0 : 1;
	}
	emu_finish(a, &c, NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_REQUESTED));
	return 0;
}

static uint16_t dbbuf_config(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint64_t db = le64_get(s->prp1), ev = le64_get(s->prp2);
	uint32_t mask = atomic_load_explicit(&e->page_bytes, memory_order_relaxed) - 1;

	if (!e->p.dbbuf)
		return GENERIC(NVME_SC_INVALID_OPCODE);
	if (!db || !ev || db & mask || ev & mask)
		return GENERIC(NVME_SC_INVALID_FIELD);
	if (!emu_translate(a, db, EMU_DMA_READ) || !emu_translate(a, ev, EMU_DMA_WRITE)) {
		emu_actor_release(a);
		return NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_DATA_TRANSFER);
	}
	emu_actor_release(a);
	atomic_store_explicit(&e->shadow_db, db, memory_order_relaxed);
	atomic_store_explicit(&e->shadow_ev, ev, memory_order_relaxed);
	atomic_store_explicit(&e->shadow, true, memory_order_seq_cst);
	return 0;
}

static uint16_t exec(struct emu_actor *a, const struct emu_cmd *c, uint32_t *ret_dw0, bool *ret_silent)
{
	const struct nvme_sqe *s = &c->sqe;

	if (s->flags)
		return GENERIC(NVME_SC_INVALID_FIELD);
	switch (s->opcode) {
	case NVME_ADM_DELETE_SQ:
		return delete_sq(a, s);
	case NVME_ADM_CREATE_SQ:
		return create_sq(a, s);
	case NVME_ADM_GET_LOG:
		return emu_get_log(a, s);
	case NVME_ADM_DELETE_CQ:
		return delete_cq(a, s);
	case NVME_ADM_CREATE_CQ:
		return create_cq(a, s);
	case NVME_ADM_IDENTIFY:
		return emu_identify(a, s);
	case NVME_ADM_ABORT:
		*ret_dw0 = do_abort(a, s);
		return 0;
	case NVME_ADM_SET_FEATURES:
		return emu_set_features(a, s, ret_dw0);
	case NVME_ADM_GET_FEATURES:
		return emu_get_features(a->e, s, ret_dw0);
	case NVME_ADM_ASYNC_EVENT:
		return emu_aer(a, le16_get(s->cid), ret_silent);
	case NVME_ADM_KEEP_ALIVE:
		return 0;
	case NVME_ADM_DBBUF:
		return dbbuf_config(a, s);
	default:
		return GENERIC(NVME_SC_INVALID_OPCODE);
	}
}

uint16_t emu_admin_exec(struct emu_actor *a, const struct emu_cmd *c, uint32_t *ret_dw0, bool *ret_silent)
{
	uint16_t status;

	pthread_mutex_lock(&a->e->admin_lock);
	status = exec(a, c, ret_dw0, ret_silent);
	pthread_mutex_unlock(&a->e->admin_lock);
	return status;
}
