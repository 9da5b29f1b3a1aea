/* SPDX-License-Identifier: MIT */
/*
 * Interrupt coalescing (Base 5.27.1.6): a wish, which the controller may refuse; what came of it is told. It is for deep pairs
 * (batches and large operations) and those of the background class. A vector that serves others, too, takes no part, and
 * neither does the first, which is the admin queue's.
 */
#include "nvme/ctrl.h"
#include "nvme/status.h"
#include "nvme/tally.h"

static bool may_wait(const struct nvme_qpair *qp)
{
	return qp->conf.irq && (qp->conf.kind == NVME_QPAIR_BATCH || qp->conf.kind == NVME_QPAIR_LOW);
}

/* Do all pairs of that vector put up with it? The last pair is the executor's, which serves whoever has none. */
static bool together(const struct nvme_ctrl *c, uint16_t vector)
{
	for (uint32_t i = 0; i < c->nr_qpairs; i++)
		if (c->q[i].qp->conf.vector == vector && (!may_wait(c->q[i].qp) || i == c->nr_qpairs - 1))
			return false;
	return vector;
}

static uint32_t count(const struct nvme_ctrl *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->nr_qpairs; i++)
		n += together(c, c->q[i].qp->conf.vector);
	return n;
}

static bool is_first_of_vector(const struct nvme_ctrl *c, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (c->q[k].qp->conf.vector == c->q[i].qp->conf.vector)
			return false;
	return true;
}

/* Every vector that takes no part is told so, before the rest begins. */
static int spare_others(struct nvme_ctrl *c, uint16_t *ret_status)
{
	uint32_t dw0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < c->nr_qpairs; i++) {
		const uint16_t vector = c->q[i].qp->conf.vector;

		if (c->q[i].qp->conf.irq && !together(c, vector) && is_first_of_vector(c, i))
			rc = nvme_ctrl_set_feature(c, NVME_FEAT_IRQ_CONFIG, vector | NVME_IRQ_ALONE, &dw0,
						   ret_status);
	}
	return rc;
}

static void tell(struct nvme_ctrl *c, uint32_t dw11, uint32_t pairs, uint16_t status)
{
	c->coalesced = dw11;
	c->nr_coalesced = pairs;
	c->coalesce_status = status;
	for (uint32_t i = 0; c->tallies && i < c->nr_qpairs; i++) {
		bool in = pairs && together(c, c->q[i].qp->conf.vector);

		atomic_store_explicit(&c->q[i].qp->tally->pair->together,
				      (uint16_t)(in ? (dw11 & 0xff) + 1 : 0), memory_order_relaxed);
	}
}

int nvme_ctrl_coalesce(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint32_t dw11 = c->p.coalesce, pairs = count(c), dw0;
	uint16_t status = 0;
	int rc = 0;

	if (dw11 && pairs) {
		rc = spare_others(c, &status);
		if (!rc)
			rc = nvme_ctrl_set_feature(c, NVME_FEAT_IRQ_COALESCE, dw11, &dw0, &status);
	}
	if (rc && !status)
		return nvme_err_set(err, rc, 0,
				    "Set Features (interrupt coalescing) got no answer (errno %d)", -rc);
	tell(c, rc || !pairs ? 0 : dw11, rc || !dw11 ? 0 : pairs, status);
	return 0;
}
