/* SPDX-License-Identifier: MIT */
/* The fault script: what each fault does to the command that met it. */
#include "emu/internal.h"

/* A completion that the host has not asked for. */
static void post_extra(struct emu_actor *a, const struct emu_cmd *c, uint16_t sqid, uint16_t cid)
{
	struct emu_cq *cq = c->sq->cq;
	struct emu_cmd extra = *c;

	extra.flags |= EMU_CMD_EXTRA;
	extra.status = 0;
	emu_cq_lock(a, cq);
	emu_cq_post(a, cq, &extra, sqid, cid);
	emu_cq_unlock(a, cq);
}

static void signal_now(struct emu_actor *a, const struct emu_cmd *c)
{
	struct emu_cq *cq = c->sq->cq;

	emu_signal(a);
	if (cq->ien)
		emu_irq_raise(&a->e->irq, cq->vector, 1);
}

static bool wait_or_end(struct emu_actor *a, struct emu_cmd *c, uint64_t delay_ns)
{
	if (!emu_wait_until(a, c, now_ns() + (int64_t)delay_ns))
		emu_finish(a, c, NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_SQ_DELETED));
	return true;
}

bool emu_fault_apply(struct emu_actor *a, struct emu_cmd *c, const struct emu_fault *f, int id)
{
	struct emu_ctrl *e = a->e;
	uint16_t cid = le16_get(c->sqe.cid), sqid = c->sq->qid;

	switch (f->action) {
	case EMU_FAULT_STATUS:
		emu_finish(a, c, f->status);
		return true;
	case EMU_FAULT_DELAY:
		return wait_or_end(a, c, f->delay_ns);
	case EMU_FAULT_HOLD:
		if (!emu_wait_held(a, c, id))
			emu_finish(a, c, NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_SQ_DELETED));
		else if (emu_fault_hits(e, id) < 0)
			emu_wait_release(e, id); /* cleared in between */
		return true;
	case EMU_FAULT_LOSE_INTERRUPT:
		c->flags |= EMU_CMD_QUIET;
		return false;
	case EMU_FAULT_SPURIOUS_INTERRUPT:
		signal_now(a, c);
		return false;
	case EMU_FAULT_EARLY_INTERRUPT:
		/* the one interrupt overtook the entry: there is none afterwards */
		signal_now(a, c);
		c->flags |= EMU_CMD_QUIET;
		return wait_or_end(a, c, f->delay_ns);
	case EMU_FAULT_DUP_CQE:
		c->flags |= EMU_CMD_TWICE;
		return false;
	case EMU_FAULT_BAD_CID:
		post_extra(a, c, sqid, cid ^ 0x8000);
		return false;
	case EMU_FAULT_BAD_SQID:
		post_extra(a, c, sqid ^ 0x4000, cid);
		return false;
	case EMU_FAULT_DROP:
		return true;
	case EMU_FAULT_CFS:
		emu_set_cfs(e);
		return true;
	case EMU_FAULT_REMOVED:
		emu_remove(e);
		return true;
	default:
		return false;
	}
}
