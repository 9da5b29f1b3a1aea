/* SPDX-License-Identifier: MIT */
/* From a fetched command to its completion. */
#include "emu/far.h"

void emu_finish(struct emu_actor *a, struct emu_cmd *c, uint16_t status)
{
	c->status = status;
	if (likely(c->sq->qid))
		emu_stat_own(&a->stats->commands, 1);
	/* Without data a run of commands shares its holds. With data each lets go before the host may hear of
	 * it, so that no unmapping waits for the next command. */
	if (!a->e->nodata || a->nr_hold > 8)
		emu_actor_release(a);
	emu_complete(a, c);
}

void emu_run(struct emu_actor *a, struct emu_cmd *c)
{
	struct emu_ctrl *e = a->e;
	struct emu_fault f;
	bool silent = false;
	uint16_t status;
	int id;

	if (unlikely(c->flags & EMU_CMD_ABORTED)) {
		emu_finish(a, c, NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_REQUESTED));
		return;
	}
	if (unlikely(atomic_load_explicit(&e->nr_faults, memory_order_relaxed)) &&
	    !(c->flags & EMU_CMD_FAULTED) && emu_fault_match(e, c, &f, &id)) {
		c->flags |= EMU_CMD_FAULTED;
		if (emu_fault_apply(a, c, &f, id))
			return;
	}
	if (unlikely(e->p.hostile) && !(c->flags & EMU_CMD_FAULTED) && emu_hostile_fault(e, c, &f)) {
		c->flags |= EMU_CMD_FAULTED;
		if (emu_fault_apply(a, c, &f, -1))
			return;
	}
	if (unlikely(e->modelled) && c->sq->qid && !(c->flags & EMU_CMD_DELAYED)) {
		c->flags |= EMU_CMD_DELAYED;
		if (!emu_wait_until(a, c, emu_latency_due(e, &c->sqe)))
			emu_finish(a, c, NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_SQ_DELETED));
		return;
	}
	if (likely(c->sq->qid)) {
		status = emu_io_exec(a, &c->sqe);
		if (unlikely(status == EMU_STATUS_FAR)) {
			status = emu_far_start(a, c);
			silent = status == EMU_STATUS_BEGUN;
		}
	} else {
		emu_stat_add(&e->admin_commands, 1);
		status = emu_admin_exec(a, c, &c->dw0, &silent);
	}
	if (!silent)
		emu_finish(a, c, status);
}
