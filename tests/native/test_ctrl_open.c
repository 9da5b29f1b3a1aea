/* SPDX-License-Identifier: MIT */
/* Bring-up over the embedded controller in all its shapes; each is proved by moving data. */
#include "emu_rig.h"

/* Opens, moves 256 KiB through a channel, closes. */
static void works(struct rig *r, const char *name, void (*look)(struct rig *r))
{
	struct nvme_chan *ch;
	int64_t rc;
	int err = rig_open(r);

	if (!okf(!err, "%s: opens (%d %s)", name, err, r->err.text))
		return;
	if (look)
		look(r);
	if (okf(!nvme_chan_open(r->c, NVME_MODE_INTERRUPT, &ch), "%s: channel", name)) {
		rc = rig_copy(r, ch, 256 << 10, 64 << 10);
		okf(rc == 256 << 10, "%s: 256 KiB there and back (%lld)", name, (long long)rc);
		nvme_chan_close(ch);
	}
	rig_close(r, name);
}

static void refused(struct rig *r, const struct emu_fault *f, const char *name, int want, const char *words)
{
	int rc = rig_open_fault(r, f);

	okf(rc == want && strstr(r->err.text, words), "%s: %d %s", name, rc, r->err.text);
	if (!rc)
		nvme_ctrl_close(r->c, true);
}

static void look_plain(struct rig *r)
{
	struct nvme_ctrl *c = r->c;

	okf(c->nr_qpairs == 4 && c->nr_batch == 1, "four pairs, one of them for batches (%u, %u)",
	    c->nr_qpairs, c->nr_batch);
	ok(c->q[2].qp->conf.kind == NVME_QPAIR_BATCH && c->q[2].qp->conf.depth == 64,
	   "the batch pair is next to last");
	ok(c->q[3].qp->conf.kind == NVME_QPAIR_BATCH, "the last one is the executor's");
	ok(c->mdts_bytes == 128 << 10 && c->max_transfer == 128 << 10, "MDTS");
	ok(c->q[0].qp->conf.vector == 1 && c->q[3].qp->conf.vector == 4, "vector 0 is the admin queue's");
}

static void look_tiny(struct rig *r)
{
	ok(r->c->p.depth == 2 && r->c->p.batch_depth == 2 && r->c->admin->conf.depth == 2,
	   "all clamped to MQES + 1");
}

static void look_one(struct rig *r)
{
	ok(r->c->nr_qpairs == 1 && !r->c->nr_batch, "one pair: the executor's");
}
static void look_vectors(struct rig *r)
{
	ok(r->c->nr_vectors == 2 && r->c->q[0].qp->conf.vector == 1 && r->c->q[3].qp->conf.vector == 1,
	   "shared vector");
}
static void look_page(struct rig *r) { ok(r->c->page_shift == 13, "8 KiB controller pages"); }
static void look_unlimited(struct rig *r)
{
	ok(!r->c->mdts_bytes && r->c->max_transfer == 1 << 20, "MDTS 0: our limit");
}
static void look_wrr(struct rig *r)
{
	ok(r->c->wrr && r->c->q[0].qp->conf.qprio == 1, "weighted round robin in force");
}
static void look_shadow(struct rig *r) { ok(r->c->shadow, "shadow doorbells in force"); }
static void look_no_shadow(struct rig *r) { ok(!r->c->shadow, "shadow doorbells off"); }

static void test_shapes(void)
{
	struct rig r;

	rig_init(&r);
	works(&r, "plain", look_plain);
	rig_init(&r);
	r.ep.step = false;
	works(&r, "no stepping", NULL);
	rig_init(&r);
	r.ep.mqes = 1;
	works(&r, "MQES 1", look_tiny);
	rig_init(&r);
	r.ep.mqes = 65535;
	r.op.depth = 65536;
	works(&r, "depth 65536", NULL);
	rig_init(&r);
	r.ep.mqes = 126;
	r.op.depth = 127;
	works(&r, "depth 127", NULL);
	rig_init(&r);
	r.ep.queues = 1;
	works(&r, "one queue granted", look_one);
	rig_init(&r);
	r.ep.vectors = 1;
	works(&r, "one vector", NULL);
	rig_init(&r);
	r.op.vectors = 2;
	works(&r, "two vectors", look_vectors);
	rig_init(&r);
	r.ep.dstrd = 3;
	works(&r, "doorbell stride", NULL);
	rig_init(&r);
	r.ep.mpsmin = r.ep.mpsmax = 1;
	works(&r, "MPSMIN 1", look_page);
	rig_init(&r);
	r.ep.mpsmax = 4;
	works(&r, "MPSMAX 4", NULL);
	rig_init(&r);
	r.ep.mdts = 0;
	works(&r, "no MDTS", look_unlimited);
	rig_init(&r);
	r.ep.wrr = r.op.wrr = true;
	r.op.qprio = 1;
	r.op.wrr_weights = 0x070301;
	works(&r, "WRR", look_wrr);
	rig_init(&r);
	r.op.arb_burst = 3;
	works(&r, "arbitration burst", NULL);
	rig_init(&r);
	r.ep.dbbuf = true;
	works(&r, "doorbell buffer", look_shadow);
	rig_init(&r);
	r.ep.dbbuf = r.op.no_shadow = true;
	works(&r, "doorbell buffer refused", look_no_shadow);
	rig_init(&r);
	r.ep.dbbuf = true;
	r.ep.dstrd = 2;
	works(&r, "doorbell buffer with a stride", look_shadow);
}

/* The second Set Features of a bring-up is about arbitration. */
static void test_arbitration_refused(void)
{
	const struct emu_fault fault = {
		.action = EMU_FAULT_STATUS,
		.qid = 0,
		.opcode = NVME_ADM_SET_FEATURES,
		.nsid = EMU_ANY,
		.skip = 1,
		.count = 1,
		.status = NVME_STATUS(NVME_SCT_CMD, 0x0e), /* not changeable */
	};
	struct rig r;

	rig_init(&r);
	r.op.arb_burst = 7;
	if (okf(!rig_open_fault(&r, &fault), "a burst that cannot be chosen: opens (%s)", r.err.text))
		rig_close(&r, "a burst that cannot be chosen");
	rig_init(&r);
	r.ep.wrr = r.op.wrr = true;
	refused(&r, &fault, "weights that cannot be chosen", -EIO, "refused arbitration burst 0");
}

static void test_namespaces(void)
{
	struct rig r;

	rig_init(&r);
	r.ep.nr_ns = 3;
	r.ep.ns[0] = (struct emu_ns_params){ .nsid = 3, .lba_bytes = 4096, .nbytes = 4 << 20 };
	r.ep.ns[1] =
		(struct emu_ns_params){ .nsid = 7, .lba_bytes = 512, .metadata_bytes = 8, .nbytes = 1 << 20 };
	r.ep.ns[2] = (struct emu_ns_params){ .nsid = 4000000, .lba_bytes = 65536, .nbytes = 1 << 20 };
	if (!okf(!rig_open(&r), "sparse namespaces: opens (%s)", r.err.text))
		return;
	okf(r.c->nr_ns == 3, "three of them (%u)", r.c->nr_ns);
	ok(nvme_ctrl_ns(r.c, 3) && nvme_ctrl_ns(r.c, 3)->lba_shift == 12 &&
		   nvme_ctrl_ns(r.c, 3)->nblocks == 1024,
	   "4 KiB blocks");
	ok(nvme_ctrl_ns(r.c, 7) && !nvme_ctrl_ns(r.c, 7)->usable && nvme_ctrl_ns(r.c, 7)->metadata == 8,
	   "metadata: not usable");
	ok(nvme_ctrl_ns(r.c, 4000000) && nvme_ctrl_ns(r.c, 4000000)->lba_shift == 16, "64 KiB blocks");
	ok(!nvme_ctrl_ns(r.c, 1), "no namespace 1");
	rig_close(&r, "sparse namespaces");
}

static void test_refusals(void)
{
	struct rig r;

	rig_init(&r);
	r.op.wrr = true;
	refused(&r, NULL, "WRR not offered", -EOPNOTSUPP, "CAP.AMS");
	rig_init(&r);
	refused(&r,
		&(struct emu_fault){ .action = EMU_FAULT_STATUS,
				     .qid = 0,
				     .opcode = NVME_ADM_IDENTIFY,
				     .nsid = EMU_ANY,
				     .status = NVME_SC_INTERNAL },
		"Identify fails", -EIO, "internal error");
	rig_init(&r);
	refused(&r,
		&(struct emu_fault){ .action = EMU_FAULT_STATUS,
				     .qid = 0,
				     .opcode = NVME_ADM_CREATE_SQ,
				     .nsid = EMU_ANY,
				     .skip = 2,
				     .status = NVME_STATUS(NVME_SCT_CMD, NVME_SC_INVALID_QID) },
		"third queue refused", -EIO, "queue pair 3");
	rig_init(&r);
	r.op.hang_admin_ns = 200 * NSEC_PER_MSEC;
	refused(&r,
		&(struct emu_fault){ .action = EMU_FAULT_DROP,
				     .qid = 0,
				     .opcode = NVME_ADM_SET_FEATURES,
				     .nsid = EMU_ANY },
		"Set Features is never answered", -ETIMEDOUT, "no answer");
	rig_init(&r);
	r.ep.to = 1;
	refused(&r,
		&(struct emu_fault){ .action = EMU_FAULT_ENABLE_STUCK,
				     .qid = EMU_ANY,
				     .opcode = EMU_ANY,
				     .nsid = EMU_ANY },
		"never ready", -ETIMEDOUT, "did not become ready within 2.0 s");
	rig_init(&r);
	refused(&r,
		&(struct emu_fault){
			.action = EMU_FAULT_CFS, .qid = 0, .opcode = NVME_ADM_IDENTIFY, .nsid = EMU_ANY },
		"fatal status during Identify", -EHOSTDOWN, "no answer");
	rig_init(&r);
	refused(&r,
		&(struct emu_fault){
			.action = EMU_FAULT_REMOVED, .qid = 0, .opcode = NVME_ADM_IDENTIFY, .nsid = EMU_ANY },
		"removed during Identify", -ENODEV, "no answer");
}

static void test_speed(void)
{
	/* the bar is 5 ms; sanitizers get ten times that here, the benchmark holds the bar */
	const int64_t bar = 50 * NSEC_PER_MSEC;
	int64_t best = INT64_MAX;
	struct rig r;

	/* a machine that has other work is at it for a while: one of many tries */
	for (int i = 0; i < 50 && best >= bar; i++) {
		rig_init(&r);
		r.op = (struct nvme_open_params){
			.io_queues = 16, .depth = 128, .batch_depth = 512, .batch_queues = 4
		};
		if (rig_open(&r)) {
			okf(false, "16 pairs: %s", r.err.text);
			return;
		}
		if (r.c->open_ns < best)
			best = r.c->open_ns;
		if (nvme_ctrl_close(r.c, false))
			ok(false, "16 pairs: close");
	}
	okf(best < bar, "16 queue pairs open in %.2f ms", (double)best / 1e6);
}

int main(void)
{
	test_shapes();
	test_arbitration_refused();
	test_namespaces();
	test_refusals();
	test_speed();
	return done_testing();
}
