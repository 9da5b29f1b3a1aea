/* SPDX-License-Identifier: MIT */
/* From an enabled controller to connected queue pairs; a reset takes the same steps. */
#include "nvme/ctrl.h"
#include "nvme/status.h"
#include "nvme/tally.h"

#define GENERAL_LISTS 32
#define CLASS_PAIRS_FROM 8 /* so many pairs before some are set aside for classes */
#define BATCH_LISTS 128

int nvme_ctrl_set_feature(struct nvme_ctrl *c, uint32_t fid, uint32_t dw11, uint32_t *ret_dw0,
			  uint16_t *ret_status)
{
	struct nvme_sqe sqe = {
		.opcode = NVME_ADM_SET_FEATURES,
		.cdw10 = le32_put(fid),
		.cdw11 = le32_put(dw11),
	};

	return nvme_admin_sync(c, &sqe, NULL, 0, false, ret_dw0, ret_status);
}

/* Ask for the events that the controller has to offer: SMART warnings, namespace and firmware notices. */
static int ask_for_events(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint16_t status;
	uint32_t dw0;
	int rc = nvme_ctrl_set_feature(c, NVME_FEAT_ASYNC_EVENT, 0x1f | (c->oaes & 0x300), &dw0, &status);

	if (rc && !status)
		return nvme_err_set(err, rc, 0, "Set Features (asynchronous events) got no answer (errno %d)",
				    -rc);
	return 0; /* refused: then there are the events it sends anyhow */
}

/* Retry delays are told only to hosts that say so (Host Behavior Support, ACRE; Base 5.27.1.18). */
static int ask_for_delays(struct nvme_ctrl *c, bool again, struct nvme_err *err)
{
	struct nvme_sqe sqe = {
		.opcode = NVME_ADM_SET_FEATURES,
		.cdw10 = le32_put(NVME_FEAT_HOST_BEHAVIOR),
	};
	uint8_t data[512] = { 1 };
	uint16_t status;
	uint32_t dw0;
	int rc;

	if (!c->crdt[0] && !c->crdt[1] && !c->crdt[2])
		return 0;
	rc = nvme_admin_sync(c, &sqe, data, sizeof(data), true, &dw0, &status);
	if (rc && !status)
		return nvme_err_set(err, rc, 0, "Set Features (host behavior) got no answer (errno %d)", -rc);
	if (rc && !again)
		memset(c->crdt, 0, sizeof(c->crdt)); /* refused: then retries have delays of our own */
	return 0;
}

static int set_arbitration(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint16_t status;
	uint32_t dw0;
	int rc;

	if (!c->wrr && !c->p.arb_burst)
		return 0;
	rc = nvme_ctrl_set_feature(c, NVME_FEAT_ARBITRATION, (c->p.arb_burst & 7) | c->p.wrr_weights << 8,
				   &dw0, &status);
	if (rc && status && !c->wrr)
		return 0; /* the burst is a wish, and there are controllers that have one of their own */
	if (rc)
		nvme_err_set(err, rc, status,
			     "the controller refused arbitration burst %u, weights 0x%06x: %s (status 0x%x)",
			     c->p.arb_burst, c->p.wrr_weights,
			     status ? nvme_status_name(status) : "no answer", status);
	return rc;
}

static int negotiate_queues(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint32_t want = c->nr_qpairs ? c->nr_qpairs : c->p.io_queues, dw0, granted;
	uint16_t status;
	int rc = nvme_ctrl_set_feature(c, NVME_FEAT_NUM_QUEUES, (want - 1) | (want - 1) << 16, &dw0, &status);

	if (rc)
		return nvme_err_set(err, rc, status,
				    "the controller granted no I/O queues (%u asked for): %s (status 0x%x)",
				    want, status ? nvme_status_name(status) : "no answer", status);
	granted = min_u32(dw0 & 0xffff, dw0 >> 16) + 1; /* as many pairs as the scarcer kind allows */
	if (c->nr_qpairs && granted < c->nr_qpairs)
		return nvme_err_set(
			err, -ENODEV, 0,
			"after the reset the controller grants %u queue pairs, before it were %u; close and "
			"open it again",
			granted, c->nr_qpairs);
	if (!c->nr_qpairs)
		c->nr_qpairs = min_u32(want, granted);
	return 0;
}

static int limit_transfer(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint32_t cap = c->ops->max_transfer ? c->ops->max_transfer(c->t, c->page_shift) : UINT32_MAX;
	uint32_t n = min_u32(c->p.max_transfer, cap);

	if (c->mdts_bytes)
		n = min_u32(n, c->mdts_bytes);
	n = (uint32_t)align_down(n, 1u << c->page_shift);
	if (!n)
		return nvme_err_set(err, -EINVAL, 0,
				    "max_transfer %u is less than the controller's page of %u bytes",
				    c->p.max_transfer, 1u << c->page_shift);
	c->max_transfer = n;
	return 0;
}

int nvme_ctrl_start(struct nvme_ctrl *c, struct nvme_err *err)
{
	bool again = c->identified;
	int rc = c->admin->ops->connect(c->admin);

	if (rc)
		return nvme_err_set(err, rc, 0, "the admin queue cannot be set up (errno %d)", -rc);
	rc = nvme_ctrl_enable(c, err);
	if (!rc)
		rc = nvme_ctrl_identify(c, err);
	if (!rc && !again)
		rc = limit_transfer(c, err);
	if (!rc)
		rc = ask_for_events(c, err);
	if (!rc)
		rc = ask_for_delays(c, again, err);
	if (!rc)
		rc = set_arbitration(c, err);
	if (!rc)
		rc = negotiate_queues(c, err);
	if (rc)
		return rc;
	rc = c->ops->shadow_setup ? c->ops->shadow_setup(c) : -EOPNOTSUPP;
	if (!again)
		c->shadow = !rc;
	if (rc && (rc != -EOPNOTSUPP || c->shadow))
		return nvme_err_set(
			err, rc, 0,
			"shadow doorbells cannot be set up (errno %d); open with them switched off", -rc);
	return 0;
}

/* The last pair is the executor's; deep ones for batches come before it while two general ones are left. */
static bool is_batch(const struct nvme_ctrl *c, uint32_t i) { return i >= c->nr_qpairs - 1 - c->nr_batch; }

/* Those for the classes come before the deep ones. */
static enum nvme_qpair_kind kind_of(const struct nvme_ctrl *c, uint32_t i)
{
	uint32_t end = c->nr_qpairs - 1 - c->nr_batch;

	if (i >= end)
		return NVME_QPAIR_BATCH;
	return i >= end - c->nr_class	    ? NVME_QPAIR_LOW
	       : i >= end - 2 * c->nr_class ? NVME_QPAIR_URGENT
					    : NVME_QPAIR_GENERAL;
}

static uint8_t prio_of(const struct nvme_ctrl *c, enum nvme_qpair_kind kind)
{
	return kind == NVME_QPAIR_URGENT ? NVME_PRIO_URGENT
	       : kind == NVME_QPAIR_LOW	 ? NVME_PRIO_LOW
					 : (uint8_t)c->p.qprio;
}

/* Where there are too few for all pairs, the executor's shares the one of the general pair that is leased last: whoever is on
 * a vector is woken by each other's completions, and those of the executor come all the time while somebody polls. */
static uint16_t vector_of(const struct nvme_ctrl *c, uint32_t i)
{
	const uint32_t n = c->nr_vectors - 1, last = c->nr_qpairs - 1;
	const uint32_t general = last - c->nr_batch - 2 * c->nr_class;

	if (c->nr_vectors < 2)
		return 0;
	if (i == last && n < c->nr_qpairs && general)
		i = general - 1;
	return (uint16_t)(1 + i % n);
}

int nvme_ctrl_make_pairs(struct nvme_ctrl *c, struct nvme_err *err)
{
	uint32_t n = c->nr_qpairs;

	c->nr_batch = n > 3 ? min_u32(c->p.batch_queues, n - 3) : 0;
	c->nr_class = c->wrr && n >= CLASS_PAIRS_FROM ? n / 8 : 0;
	while (c->nr_class && c->nr_batch + 2 * c->nr_class + 3 > n)
		c->nr_class--;
	c->huge = c->nr_batch > 0;
	if (!c->p.no_tallies && nvme_tallies_new(n, c->p.segment ? c->p.segment_fd : -1, &c->tallies))
		return nvme_err_set(err, -ENOMEM, 0, "no memory for the statistics of %u queue pairs", n);
	for (uint32_t i = 0; i < n; i++) {
		bool batch = is_batch(c, i);
		struct nvme_qpair_conf conf = {
			.qid = (uint16_t)(i + 1),
			.vector = vector_of(c, i),
			.depth = batch ? c->p.batch_depth : c->p.depth,
			.list_pages = batch ? BATCH_LISTS : min_u32(c->p.depth, GENERAL_LISTS),
			.kind = (uint8_t)kind_of(c, i),
			.qprio = prio_of(c, kind_of(c, i)),
			.irq = c->nr_vectors > 0,
		};
		int rc = c->ops->qpair_new(c, &conf, &c->q[i].qp);

		if (!rc && c->tallies)
			c->q[i].qp->tally = nvme_tally_of(c->tallies, i, &conf);
		if (rc)
			return nvme_err_set(err, rc, 0,
					    "queue pair %u of %u (depth %u) cannot be made (errno %d)", i + 1,
					    n, conf.depth, -rc);
		c->huge &= !batch || c->q[i].qp->huge;
	}
	return 0;
}

int nvme_ctrl_connect_pair(struct nvme_ctrl *c, uint32_t i, struct nvme_err *err)
{
	struct nvme_qpair *qp = c->q[i].qp;
	int rc = qp->ops->connect(qp);

	if (rc)
		nvme_err_set(err, rc, 0,
			     "the controller refused I/O queue pair %u (depth %u, vector %u; errno %d)",
			     qp->conf.qid, qp->conf.depth, qp->conf.vector, -rc);
	return rc;
}
