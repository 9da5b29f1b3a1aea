/* SPDX-License-Identifier: MIT */
/* The ways a controller stops: CC.EN = 0, fatal status, bus mastering off, removal. */
#include "emu/internal.h"

/* Returns with every device thread and stepper out, every queue and command forgotten. Under reg_lock. */
void emu_disable(struct emu_ctrl *e)
{
	struct emu_actor a = { .e = e, .stats = &e->stopped };

	atomic_store_explicit(&e->halted, true, memory_order_seq_cst);
	/* the admin queue first: afterwards nobody makes or deletes queues */
	if (atomic_load(&e->sq[0].live))
		emu_sq_delete(&a, &e->sq[0], 0);
	for (uint32_t qid = 1; qid <= EMU_MAX_QID; qid++)
		if (atomic_load(&e->sq[qid].live))
			emu_sq_delete(&a, &e->sq[qid], 0);
	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++)
		if (atomic_load(&e->cq[qid].live))
			emu_cq_delete(e, &e->cq[qid]);
	emu_aer_reset(e);
	emu_shadow_stop(e);
	emu_irq_unmask(&e->irq, 0xffffffff);
	emu_rings_fence(e);
	atomic_fetch_and(&e->csts, ~(NVME_CSTS_RDY | NVME_CSTS_CFS));
}

void emu_set_cfs(struct emu_ctrl *e)
{
	atomic_store_explicit(&e->halted, true, memory_order_seq_cst);
	atomic_fetch_or(&e->csts, NVME_CSTS_CFS);
}

/* No waiting: the device thread that meets the fault calls it. */
void emu_remove(struct emu_ctrl *e)
{
	atomic_store_explicit(&e->removed, true, memory_order_seq_cst);
	atomic_store_explicit(&e->halted, true, memory_order_seq_cst);
	atomic_store_explicit(&e->io.off, true, memory_order_seq_cst);
}

void emu_stop_dma(struct emu_ctrl *e)
{
	atomic_store_explicit(&e->io.off, true, memory_order_seq_cst);
	emu_rings_fence(e);
	emu_iommu_stop(&e->io);
}

void emu_start_dma(struct emu_ctrl *e)
{
	if (!atomic_load_explicit(&e->removed, memory_order_seq_cst))
		atomic_store_explicit(&e->io.off, false, memory_order_seq_cst);
}
