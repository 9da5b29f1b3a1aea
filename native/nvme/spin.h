/* SPDX-License-Identifier: MIT */
/* Looking for completions without sleeping, for a bounded time. */
#ifndef NVME_SPIN_H
#define NVME_SPIN_H

#include <sched.h>

#include "nvme/chan.h"
#include "support/barrier.h"

/* A software device may be run on the calling thread for this one. @m: its memory, or NULL. */
static inline bool nvme_can_step(const struct nvme_chan *ch, enum nvme_mode mode, uint32_t opcode,
				 uint64_t nbytes, const struct mem_map *m)
{
	uint64_t most = ch->ctrl->step_most;

	if (!most || opcode != NVME_IO_READ || (mode != NVME_MODE_ADAPTIVE && mode != NVME_MODE_INLINE))
		return false;
	return nbytes <= most ||
	       (m && m->traits & MEM_STAGED && nbytes <= most / NVME_STEP_MOST * NVME_STEP_STAGED);
}

/* Lane locked. True once @op is over; false when the time is. */
static inline bool nvme_spin(struct nvme_lane *l, int64_t end, bool step, const struct nvme_op *op)
{
	for (uint32_t i = 1;; i++) {
		if (step)
			nvme_lane_step(l, 4);
		if (nvme_lane_reap(l, true) && nvme_op_over(op))
			return true;
		if (!(i & 7) && now_ns() >= end)
			return false;
		cpu_relax();
	}
}

/* The same where the executor runs the lane: wait for @op on the channel's list. It is taken off it. */
static inline bool nvme_spin_ended(struct nvme_chan *ch, int64_t end, const struct nvme_op *op)
{
	for (uint32_t i = 1;; i++) {
		if (atomic_load_explicit(&ch->ended, memory_order_relaxed) && nvme_chan_take(ch, op))
			return true;
		if (!(i & 7) && now_ns() >= end)
			return false;
		if (!(i & 31)) /* whom we wait for may have been woken on this processor */
			sched_yield();
		cpu_relax();
	}
}

#endif
