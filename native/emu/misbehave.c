/* SPDX-License-Identifier: MIT */
/* The fault script: what each fault does to the command that met it. */
#include "emu/power.h"

#define CRD_MASK (3u << 11)

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

/* A queue of n entries holds n - 1 commands, so hosts that number slots from zero never use the last. */
static uint16_t free_cid(const struct emu_sq *sq, uint16_t cid)
{
	uint32_t mask = 1;

	while (mask < sq->size)
		mask <<= 1;
	mask--;
	return (uint16_t)((cid & ~mask) | (sq->size - 1));
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

/* The command itself is served after .delay_ns: who takes the extra completion for its own has no data. */
static bool extra_first(struct emu_actor *a, struct emu_cmd *c, const struct emu_fault *f, uint16_t sqid,
			uint32_t cid)
{
	post_extra(a, c, sqid, (uint16_t)cid);
	if (!f->delay_ns)
		return false;
	emu_signal(a);
	return wait_or_end(a, c, f->delay_ns);
}

bool emu_fault_apply(struct emu_actor *a, struct emu_cmd *c, const struct emu_fault *f, int id)
{
	struct emu_ctrl *e = a->e;
	uint16_t cid = le16_get(c->sqe.cid), sqid = c->sq->qid;

	switch (f->action) {
	case EMU_FAULT_STATUS:
		/* CRD means something only to a host that asked for it (Base 4.2.3) */
		emu_finish(a, c, e->acre ? f->status : f->status & (uint16_t)~CRD_MASK);
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
		return extra_first(a, c, f, sqid, cid ^ 0x8000);
	case EMU_FAULT_BAD_SQID:
		return extra_first(a, c, f, sqid ^ 0x4000, cid);
	case EMU_FAULT_FREE_CID:
		return extra_first(a, c, f, sqid, free_cid(c->sq, cid));
	case EMU_FAULT_STUCK_PHASE:
		c->flags |= EMU_CMD_STUCK;
		return false;
	case EMU_FAULT_BAD_SQHD:
		c->flags |= EMU_CMD_SQHD;
		return false;
	case EMU_FAULT_DROP:
		return true;
	case EMU_FAULT_CFS:
		emu_set_cfs(e);
		return true;
	case EMU_FAULT_REMOVED:
		emu_remove(e);
		return true;
	case EMU_FAULT_POWER_CUT:
	case EMU_FAULT_POWER_OFF:
		emu_power_fail_at(a, c, f->action == EMU_FAULT_POWER_OFF);
		return true;
	case EMU_FAULT_ALL_ONES:
		atomic_store(&e->ones_until, now_ns() + (int64_t)f->delay_ns);
		return false;
	default:
		return false;
	}
}
