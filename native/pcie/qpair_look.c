/* SPDX-License-Identifier: MIT */
/* Looking at what is outstanding, for those that clean up. Nothing but its age is changed; the owner's lock is held. */
#include "nvme/ctrl.h"
#include "pcie/ring.h"

bool pcie_qpair_oldest(struct nvme_qpair *qp, int64_t before, struct nvme_stuck *ret)
{
	struct pcie_qpair *q = pcie_qp(qp);
	const struct pcie_tracker *old = NULL;

	if (!qp->inflight)
		return false;
	for (uint32_t i = 0; i < q->depth - 1; i++)
		if (q->tr[i].owner && q->tr[i].sent_ns <= before && (!old || q->tr[i].sent_ns < old->sent_ns))
			old = &q->tr[i];
	if (old)
		*ret = (struct nvme_stuck){ .owner = old->owner, .cid = old->cid, .sent_ns = old->sent_ns };
	return old;
}

void pcie_qpair_excuse(struct nvme_qpair *qp, int64_t gap, int64_t now)
{
	struct pcie_qpair *q = pcie_qp(qp);

	for (uint32_t i = 0; i < q->depth - 1; i++)
		if (q->tr[i].owner)
			q->tr[i].sent_ns =
				(int64_t)min_u64((uint64_t)(q->tr[i].sent_ns + gap), (uint64_t)now);
}

/* Entries stay until the queue has gone round. */
bool pcie_qpair_sent_slba(struct nvme_qpair *qp, uint16_t cid, uint64_t *ret)
{
	struct pcie_qpair *q = pcie_qp(qp);

	for (uint32_t i = 1; i <= q->depth; i++) {
		const struct nvme_sqe *sqe = &q->sq[(q->sq_tail + q->depth - i) % q->depth];

		if (le16_get(sqe->cid) != cid)
			continue;
		*ret = le32_get(sqe->cdw10) | (uint64_t)le32_get(sqe->cdw11) << 32;
		return sqe->opcode != NVME_IO_DSM; /* its blocks are elsewhere */
	}
	return false;
}

void pcie_qpair_each(struct nvme_qpair *qp, void (*fn)(void *ctx, void *owner, uint16_t cid), void *ctx)
{
	struct pcie_qpair *q = pcie_qp(qp);

	for (uint32_t i = 0; i < q->depth - 1; i++)
		if (q->tr[i].owner)
			fn(ctx, q->tr[i].owner, q->tr[i].cid);
}

bool pcie_qpair_next(struct nvme_qpair *qp, const void *owner, uint32_t *pos, uint16_t *ret_cid)
{
	struct pcie_qpair *q = pcie_qp(qp);

	while (*pos < q->depth - 1) {
		const struct pcie_tracker *tr = &q->tr[(*pos)++];

		if (tr->owner != owner)
			continue;
		*ret_cid = tr->cid;
		return true;
	}
	return false;
}

uint32_t pcie_qpair_landed(struct nvme_qpair *qp, const void *owner)
{
	struct pcie_qpair *q = pcie_qp(qp);
	uint32_t pos = atomic_load_explicit(&q->cq_pos, memory_order_relaxed);
	uint32_t head = pos >> 1, phase = pos & 1, n = 0;

	for (uint32_t i = 0; i < q->depth; i++) {
		/* relaxed: nothing else of the entry or its data is looked at */
		uint32_t dw3 = le32toh(
			atomic_load_explicit((_Atomic uint32_t *)&q->cq[head].dw3, memory_order_relaxed));
		const struct pcie_tracker *tr = &q->tr[NVME_CQE_CID(dw3) & q->slot_mask];

		if (NVME_CQE_PHASE(dw3) != phase)
			break;
		n += tr->owner == owner && tr->cid == NVME_CQE_CID(dw3);
		if (++head == q->depth) {
			head = 0;
			phase ^= 1;
		}
	}
	return n;
}
