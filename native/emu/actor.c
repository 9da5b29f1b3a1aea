/* SPDX-License-Identifier: MIT */
/* How a thread that runs commands reaches host memory: it counts itself in on a mapping, and out again. */
#include "emu/internal.h"

void emu_fault_note(struct emu_actor *a)
{
	a->faulted = true;
	/* with bus mastering off nothing gets as far as the IOMMU */
	if (!atomic_load_explicit(&a->e->io.off, memory_order_seq_cst))
		emu_stat_add(&a->e->iommu_faults, 1);
}

struct emu_map *emu_actor_hold(struct emu_actor *a, uint64_t iova, uint64_t leaf)
{
	struct emu_iommu *io = &a->e->io;
	uint32_t slot = EMU_LEAF_SLOT(leaf);
	struct emu_map *m = emu_iommu_slot(io, slot);

	emu_count_get(&m->users, 1);
	/* Looked at again after counting in: unmapping clears the leaf before it looks at the count. */
	if (unlikely(emu_iommu_leaf(io, iova) != leaf ||
		     atomic_load_explicit(&io->off, memory_order_seq_cst))) {
		emu_count_put(&m->users, 1);
		emu_fault_note(a);
		return NULL;
	}
	if (unlikely(a->nr_hold == a->max_hold)) {
		/* callers leave room (emu_prp_next); a missing access is the safe answer */
		emu_count_put(&m->users, 1);
		emu_fault_note(a);
		return NULL;
	}
	a->hold[a->nr_hold++] = (struct emu_hold){ m, slot };
	return m;
}

void emu_actor_release(struct emu_actor *a)
{
	for (uint32_t i = 0; i < a->nr_hold; i++)
		emu_count_put(&a->hold[i].map->users, 1);
	a->nr_hold = 0;
}
