/* SPDX-License-Identifier: MIT */
/*
 * Bring-up, events and resets against a device that says anything: registers, identify pages, the namespace list, log
 * pages, features, statuses and silence come from the input. Either there is a clear error and everything is given
 * back, or what is believed makes sense and can be used.
 */
#include "api/api.h"
#include "input.h"
#include "model.h"
#include "nvme/recovery.h"
#include "world.h"

#define BUFFER (256u << 10)

struct device {
	struct puppet p;
	struct model m;
	struct input in;
	uint32_t reads; /* of registers */
	uint32_t gone_at, cfs_at; /* after so many; 0: never */
	bool honest;
	struct ugds_ctrl *c;
	struct ugds_ns *ns;
	struct ugds_chan *ch;
	uint64_t map;
};

static struct device d;
static uint8_t *buffer;

static void on_read(struct puppet *p, uint32_t off)
{
	(void)off;
	if (d.honest)
		return;
	d.reads++;
	p->gone |= d.gone_at && d.reads == d.gone_at;
	if (d.cfs_at && d.reads == d.cfs_at)
		p->csts |= NVME_CSTS_CFS;
}

/* Where an answer's data goes, if the command has any. */
static uint8_t *answer_page(struct puppet *p, const struct nvme_sqe *sqe)
{
	if (sqe->opcode != NVME_ADM_IDENTIFY)
		return NULL;
	return puppet_at(p, le64_get(sqe->prp1), 4096, DMA_WRITE);
}

static uint16_t scripted(struct puppet *p, const struct nvme_sqe *sqe, uint32_t *ret_dw0, bool *ret_answer)
{
	uint8_t *page = answer_page(p, sqe);
	uint16_t status;
	uint8_t how;

	if (d.honest || !d.in.left)
		return puppet_answer(p, sqe, ret_dw0, ret_answer);
	how = input_u8(&d.in);
	status = puppet_answer(p, sqe, ret_dw0, ret_answer);
	switch (how & 7) {
	case 2: /* nearly right */
		for (int i = how >> 3; page && i >= 0; i--) {
			uint16_t at = input_u16(&d.in) & 4095;

			page[at] = input_u8(&d.in);
		}
		break;
	case 3: /* anything, over a page of zeros or of ones */
		if (page) {
			memset(page, how & 8 ? 0xff : 0, 4096);
			input_take(&d.in, page, 16u * (how >> 4));
		}
		break;
	case 4:
		return input_u16(&d.in) & 0x7fff;
	case 5:
		*ret_answer = false;
		break;
	case 6: /* a completion of somebody else first */
		puppet_post(p, 0, input_u16(&d.in), how >> 3, 0);
		break;
	case 7:
		*ret_dw0 = input_u32(&d.in);
		break;
	default:
		break;
	}
	return status;
}

static void must_be_text(const char *s, size_t most)
{
	MUST(strnlen(s, most) < most);
	for (; *s; s++)
		MUST(*s >= ' ' && *s <= '~');
}

static void watch_sent(const struct nvme_io *io) { (void)io; }

static void watch_done(const struct nvme_done *done, bool forgotten)
{
	(void)done;
	(void)forgotten;
}

static const struct model_watch nobody = { watch_sent, watch_done };

static int open_device(void)
{
	uint8_t how = input_u8(&d.in), a = input_u8(&d.in), b = input_u8(&d.in);
	const struct ugds_open_params op = {
		.flags = (how & 8 ? UGDS_OPEN_READONLY : 0) | (how & 16 ? UGDS_OPEN_NO_SHADOW : 0) |
			 (how & 32 ? UGDS_OPEN_WRR : 0),
		.io_queues = 1 + (a & 7),
		.batch_queues = a >> 3 & 3,
		.depth = 2 + (b & 15),
		.batch_depth = 2 + (b >> 4),
		.max_transfer = 4096u << (a >> 5),
		.vectors = how >> 6,
		.arb_burst = b & 7,
		.qprio = a & 3,
		.spin_ns = 1,
		.hang_io_ns = 300 * NSEC_PER_MSEC,
		.hang_admin_ns = 300 * NSEC_PER_MSEC,
	};
	struct ugds_error err = { 0 };
	int rc;

	puppet_init(&d.p);
	d.p.admin = scripted;
	d.p.on_read = on_read;
	if (how & 1)
		d.p.cap ^= input_u64(&d.in);
	if (how & 2)
		d.p.vs = input_u32(&d.in);
	if (how & 4) {
		uint8_t at = input_u8(&d.in);

		d.gone_at = at & 0x80 ? at & 0x7fu : 0;
		d.cfs_at = at & 0x80 ? 0 : at;
		d.p.csts = input_u8(&d.in);
		d.p.cc = d.p.csts >> 4 & 1; /* somebody left it enabled */
		d.p.stuck = d.p.csts >> 5 & 1;
		d.p.dev.nr_vectors = d.p.csts >> 6;
	}
	model_begin(&d.m, &d.p, &nobody);
	rc = api_open("model", &model_ctrl_ops, &d.p.dev, &op, &d.c, &err);
	MUST(!rc == !err.text[0]);
	if (rc) {
		MUST(rc == err.err && rc < 0);
		return rc;
	}
	MUST(d.c->c->max_transfer && d.c->c->max_transfer <= op.max_transfer);
	MUST(d.c->c->nr_qpairs && d.c->c->nr_qpairs <= op.io_queues);
	world_ctrl(d.c->c);
	return 0;
}

static void look_at_controller(void)
{
	struct ugds_ctrl_info info;
	struct ugds_ctrl_stats st;
	uint32_t ids[64], last = 0;
	int n = ugds_ctrl_nsids(d.c, ids, ARRAY_SIZE(ids));

	MUST(!ugds_ctrl_info(d.c, &info) && !ugds_ctrl_stats(d.c, &st));
	must_be_text(info.serial, sizeof(info.serial));
	must_be_text(info.model, sizeof(info.model));
	must_be_text(info.firmware, sizeof(info.firmware));
	MUST(info.max_transfer % info.page_bytes == 0 && is_pow2(info.page_bytes));
	MUST(!info.mdts_bytes || info.max_transfer <= info.mdts_bytes);
	for (int i = 0; i < n && i < (int)ARRAY_SIZE(ids); i++) {
		struct ugds_ns_info ni;

		MUST(ids[i] && !ugds_ns_info(d.c, ids[i], &ni) && ni.nsid == ids[i]);
		MUST(i >= 64 ||
		     ids[i] != last); /* what comes later may have a lower number, never the same */
		last = ids[i];
		MUST(!ni.usable || (ni.nbytes && ni.nbytes <= INT64_MAX && ni.nbytes % ni.lba_bytes == 0 &&
				    ni.lba_bytes >= 512 && ni.lba_bytes <= 65536 && !ni.metadata_bytes));
	}
}

static void use_namespace(uint8_t which)
{
	struct ugds_error err = { 0 };
	uint32_t ids[64];
	int n = ugds_ctrl_nsids(d.c, ids, ARRAY_SIZE(ids)), rc;

	if (!d.ch && ugds_chan_open(d.c, UGDS_MODE_INTERRUPT, &d.ch))
		return;
	if (!d.map && ugds_map(d.c, buffer, BUFFER, 0, &d.map))
		return;
	if (!d.ns && n > 0) {
		struct nvme_ns *ns;

		rc = ugds_ns_open(d.c, ids[which % min_u32((uint32_t)n, 64)], 0, 0, 0, &d.ns, &err);
		MUST(!rc == !err.text[0]);
		if (rc)
			return;
		ns = ns_of(d.ns);
		MUST(ns->lba_shift >= 9 && ns->lba_shift <= 16 && ns->nbytes <= INT64_MAX);
		MUST(ns->max_bytes && ns->max_bytes % (1u << ns->lba_shift) == 0);
		MUST(ns->max_bytes <= d.c->c->max_transfer);
	}
	if (d.ns) /* the model walks what is sent */
		ugds_rw(d.ch, d.ns, d.map, 512u * (which & 7), (64u << 10) << (which >> 7), 0,
			(which & 64 ? UGDS_OP_WRITE : UGDS_OP_READ) | UGDS_F_NOSPIN);
}

static void admin_command(uint8_t how)
{
	static const uint8_t opcodes[] = { NVME_ADM_IDENTIFY, NVME_ADM_GET_LOG, NVME_ADM_GET_FEATURES };
	struct ugds_admin_cmd cmd = { .opcode = opcodes[how % 3],
				      .cdw10 = how % 3 == 1 ? 0x3ff0001u : how,
				      .nbytes = how % 3 == 2 ? 0 : 4096 };
	struct ugds_completion done[8];
	uint8_t data[4096];
	struct ugds_admin *a;

	if (!d.ch || ugds_admin_submit(d.ch, &cmd, NULL, &a) < 0)
		return;
	for (int i = 0; i < 64; i++) {
		int n;

		world_run_hk();
		n = ugds_reap(d.ch, done, 8);
		for (int k = 0; k < n; k++)
			if ((done[k].status >> 16 & 0xff) == cmd.opcode && cmd.opcode != UGDS_OP_READ)
				i = 64;
		world_pass(20 * NSEC_PER_MSEC);
	}
	(void)ugds_admin_data(a, data, sizeof(data));
	ugds_admin_free(a);
}

static void act(void)
{
	uint8_t how = input_u8(&d.in);
	struct ugds_error err = { 0 };
	uint32_t events[8];

	switch (how & 7) {
	case 0:
	case 1:
		if (d.p.nr_aer)
			puppet_post(&d.p, 0, d.p.aer[--d.p.nr_aer], how & 8 ? input_u16(&d.in) & 0x7fff : 0,
				    input_u32(&d.in));
		world_run_hk();
		world_run_hk();
		ugds_ctrl_events(d.c, events, 8);
		break;
	case 2:
		use_namespace(how >> 3 | (how & 0x80));
		break;
	case 3:
		world_pass((int64_t)(how >> 3) * 16 * NSEC_PER_MSEC);
		world_run_hk();
		break;
	case 4:
		MUST(!ugds_ctrl_reset(d.c, &err) == !err.text[0]);
		break;
	case 5:
		admin_command(how >> 3);
		break;
	default:
		look_at_controller();
		break;
	}
}

/* From now on the device behaves, and everything can be given back. */
static void close_device(void)
{
	struct ugds_completion done[8];
	struct ugds_error err = { 0 };
	int rc;

	d.honest = true;
	d.p.stuck = d.p.gone = false;
	world_run_exec();
	world_run_hk();
	if (d.c->c->state != NVME_REMOVED && d.c->c->state != NVME_LIVE)
		ugds_ctrl_reset(d.c, &err);
	if (d.c->c->state == NVME_LIVE)
		rc = ugds_ctrl_reset(d.c, &err); /* what is still at the device is over */
	world_run_hk();
	/* an empty answer may be one that was told before */
	for (int i = 0; d.ch && ugds_chan_inflight(d.ch) && i < 64; i++) {
		world_run_exec();
		ugds_reap(d.ch, done, 8);
	}
	if (d.c->c->state == NVME_REMOVED) {
		if (d.ch)
			ugds_chan_orphan(d.ch);
		world_run_hk();
		rc = d.ns ? ugds_ns_close(d.ns) : 0;
		if (rc) { /* the quarantine holds it: only a forced stop lets go */
			MUST(rc == -EBUSY && d.c->c->nr_quarantined);
			nvme_hk_call(d.c->c, nvme_recovery_quiesce, NULL);
			MUST(!ugds_ns_close(d.ns));
		}
		MUST(!ugds_ctrl_close(d.c, 1));
		return;
	}
	MUST(!d.c->c->nr_quarantined);
	MUST(!d.ch || !ugds_chan_close(d.ch));
	MUST(!d.ns || !ugds_ns_close(d.ns));
	MUST(!d.map || !ugds_unmap(d.c, d.map));
	MUST(!ugds_ctrl_close(d.c, 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	world_begin();
	memset(&d, 0, sizeof(d));
	d.in = (struct input){ data, size };
	if (!buffer)
		buffer = aligned_alloc(4096, BUFFER);
	if (!open_device()) {
		look_at_controller();
		for (int i = 0; i < 64 && d.in.left; i++)
			act();
		close_device();
		if (d.ns)
			ugds_ns_free(d.ns);
		ugds_ctrl_free(d.c);
	}
	world_ctrl(NULL);
	puppet_done(&d.p);
	world_end();
	return 0;
}
