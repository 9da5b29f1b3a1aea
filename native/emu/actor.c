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

static void add(struct emu_actor *a, _Atomic uint64_t *total, uint64_t n)
{
	if (!n)
		return;
	if (a->nowait)
		atomic_store_explicit(total, emu_stat_get(total) + n, memory_order_relaxed);
	else
		emu_stat_add(total, n);
}

/* A stepper calls it under sq->lock. */
void emu_actor_flush_stats(struct emu_actor *a, struct emu_sq *sq)
{
	struct emu_stats *s = a->nowait ? &sq->stepped : &sq->served;

	add(a, &s->commands, a->nr_commands);
	add(a, &s->reads, a->reads);
	add(a, &s->writes, a->writes);
	add(a, &s->read_bytes, a->read_bytes);
	add(a, &s->written_bytes, a->written_bytes);
	a->nr_commands = 0;
	a->reads = a->writes = a->read_bytes = a->written_bytes = 0;
}
