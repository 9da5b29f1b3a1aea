/* SPDX-License-Identifier: MIT */
/* Turning a controller off and on: CC, CSTS, and how long each may take (Base 3.5, 3.6). */
#include "nvme/ctrl.h"
#include "nvme/wait.h"

#define TO_FLOOR_NS (2 * NSEC_PER_SEC) /* controllers exist whose CAP.TO is 0 or optimistic */
#define SHUTDOWN_FLOOR_NS (2 * NSEC_PER_SEC)
#define SHUTDOWN_CAP_NS (30 * NSEC_PER_SEC)

static int64_t ready_timeout(const struct nvme_ctrl *c)
{
	return (int64_t)max_u64(NVME_CAP_TO(c->cap) * 500ull * NSEC_PER_MSEC, TO_FLOOR_NS);
}

/* Wait until (CSTS & mask) == want. @fatal: give up on CSTS.CFS. */
static int wait_csts(struct nvme_ctrl *c, uint32_t mask, uint32_t want, int64_t limit, bool fatal,
		     uint32_t *ret_csts)
{
	struct nvme_waited w = nvme_wait_from(now_ns());

	for (;;) {
		/* before the look: a thread that was stopped in between looks once more */
		int64_t waited = nvme_wait_so_far(&w, now_ns());
		uint64_t csts;
		int err;

		err = c->ops->prop_get(c->t, NVME_REG_CSTS, 4, &csts);
		if (err)
			return err;
		*ret_csts = (uint32_t)csts;
		/* first: a controller that is broken may be ready as well */
		if (fatal && (csts & NVME_CSTS_CFS))
			return -EIO;
		if ((csts & mask) == want)
			return 0;
		if (waited >= limit)
			return -ETIMEDOUT;
		nvme_pause(waited);
	}
}

static int gone(struct nvme_err *err, int rc)
{
	return nvme_err_set(
		err, rc, 0,
		"the controller is gone: its registers read all ones (removed, or its slot lost power)");
}

int nvme_ctrl_disable(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint32_t csts = 0;
	uint64_t cc;
	int rc;

	rc = c->ops->prop_get(c->t, NVME_REG_CC, 4, &cc);
	if (!rc && cc & (NVME_CC_EN | NVME_CC_SHN_MASK))
		rc = c->ops->prop_set(c->t, NVME_REG_CC, 4, cc & ~(uint64_t)(NVME_CC_EN | NVME_CC_SHN_MASK));
	if (!rc)
		rc = wait_csts(c, NVME_CSTS_RDY, 0, ready_timeout(c), false, &csts);
	if (rc == -ETIMEDOUT)
		return nvme_err_set(err, rc, 0,
				    "the controller did not stop within %.1f s of CC.EN = 0 (CSTS 0x%x, "
				    "CAP.TO %u x 500 ms); "
				    "power cycle it",
				    (double)ready_timeout(c) / 1e9, csts, NVME_CAP_TO(c->cap));
	if (rc)
		return gone(err, rc);
	c->enabled = false;
	return 0;
}

int nvme_ctrl_halt(struct nvme_ctrl *c, struct nvme_err *err)
{
	int rc = nvme_ctrl_disable(c, err);

	if (rc == -ETIMEDOUT && c->ops->reset && !c->ops->reset(c->t))
		rc = nvme_ctrl_disable(c, err);
	return rc;
}

int nvme_ctrl_start_dma(struct nvme_ctrl *c, struct nvme_err *err)
{
	int rc = c->ops->start_dma ? c->ops->start_dma(c->t) : 0;

	if (rc == -ENODEV)
		return gone(err, rc);
	if (rc)
		return nvme_err_set(err, rc, 0, "the controller cannot be allowed to reach memory (errno %d)",
				    -rc);
	return 0;
}

int nvme_ctrl_enable(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint32_t cc = NVME_CC_CSS_NVM | NVME_CC_MPS(c->page_shift - 12) |
		      NVME_CC_AMS(c->wrr ? NVME_AMS_WRR : NVME_AMS_RR) | NVME_CC_IOSQES(NVME_SQES) |
		      NVME_CC_IOCQES(NVME_CQES);
	uint32_t csts = 0;
	int rc;

	/* the settings first, then EN: some controllers latch them on the earlier write */
	rc = c->ops->prop_set(c->t, NVME_REG_CC, 4, cc);
	if (!rc)
		rc = c->ops->prop_set(c->t, NVME_REG_CC, 4, cc | NVME_CC_EN);
	if (!rc)
		rc = wait_csts(c, NVME_CSTS_RDY, NVME_CSTS_RDY, ready_timeout(c), true, &csts);
	if (rc == -ETIMEDOUT)
		return nvme_err_set(err, rc, 0,
				    "the controller did not become ready within %.1f s of CC.EN = 1 (CSTS "
				    "0x%x, CAP.TO %u x "
				    "500 ms); reset or power cycle it",
				    (double)ready_timeout(c) / 1e9, csts, NVME_CAP_TO(c->cap));
	if (rc == -EIO)
		return nvme_err_set(
			err, rc, 0,
			"the controller reports a fatal status (CSTS.CFS) instead of becoming ready: CC 0x%x "
			"was refused or the device is broken",
			cc | NVME_CC_EN);
	if (rc)
		return gone(err, rc);
	c->enabled = true;
	return 0;
}

int nvme_ctrl_shutdown(struct nvme_ctrl *c)
{
	int64_t limit = (int64_t)min_u64(max_u64(c->rtd3e_us * 1000ull, SHUTDOWN_FLOOR_NS), SHUTDOWN_CAP_NS);
	uint32_t csts;
	uint64_t cc;
	int rc;

	rc = c->ops->prop_get(c->t, NVME_REG_CC, 4, &cc);
	if (rc)
		return rc;
	cc = (cc & ~(uint64_t)NVME_CC_SHN_MASK) | NVME_CC_SHN_NORMAL;
	rc = c->ops->prop_set(c->t, NVME_REG_CC, 4, cc);
	if (rc)
		return rc;
	return wait_csts(c, NVME_CSTS_SHST_COMPLETE | NVME_CSTS_SHST_OCCURRING, NVME_CSTS_SHST_COMPLETE,
			 limit, true, &csts);
}
