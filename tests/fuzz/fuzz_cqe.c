/* SPDX-License-Identifier: MIT */
/*
 * The completion path under a hostile device. The input is a script: requests, anything at all written into completion
 * rings, reaps, cancels, deadlines, time, housekeeping, resets. The pairs answer as the model does, each operation ends
 * once and as the device said, and what the device may still touch is never let go.
 */
#include "input.h"
#include "ledger.h"
#include "world.h"

struct scene {
	struct puppet p;
	struct model m;
	struct ledger l;
	struct nvme_ns ns;
	uint8_t *buf;
	struct nvme_chan *ch[2];
};

static struct scene s;
static uint8_t *buffer; /* nothing is ever written to it: the puppet moves no data */

static bool open_scene(struct input *in)
{
	uint8_t how = input_u8(in);
	const struct nvme_open_params op = {
		.io_queues = 3,
		.batch_queues = how & 1,
		.depth = 2u + (how >> 1 & 7),
		.batch_depth = 4u + (how >> 4 & 7),
		.max_transfer = 64u << 10,
		.retries = how & 0x40 ? 2 : 0,
		.spin_ns = how & 0x80 ? 2000 : 1,
		.hang_io_ns = 300 * NSEC_PER_MSEC,
		.hang_admin_ns = 500 * NSEC_PER_MSEC,
	};
	struct nvme_err err = { 0 };

	puppet_init(&s.p);
	s.p.granted = how & 1 ? 4 : 2;
	model_begin(&s.m, &s.p, &ledger_watch);
	ledger_begin(&s.l, &s.m);
	MUST(!nvme_ctrl_open(&model_ctrl_ops, &s.p.dev, &op, &s.l.c, &err));
	world_ctrl(s.l.c);
	if (!buffer)
		buffer = aligned_alloc(4096, LEDGER_REGIONS * LEDGER_REGION);
	s.ns = (struct nvme_ns){ .ctrl = s.l.c,
				 .nsid = 1,
				 .lba_shift = 12,
				 .max_bytes = s.l.c->max_transfer,
				 .nbytes = 1ull << 40 };
	s.l.ns = &s.ns;
	MUST(!mem_register(&s.l.c->mem, buffer, LEDGER_REGIONS * LEDGER_REGION, DMA_READ | DMA_WRITE,
			   &s.l.map));
	MUST(!nvme_chan_open(s.l.c, how & 0x80 ? NVME_MODE_ADAPTIVE : NVME_MODE_INTERRUPT, &s.ch[0]));
	s.ch[1] = NULL;
	MUST(!nvme_batch_new(s.ch[0], 16, &s.l.b));
	return true;
}

/* A completion for a command that is out, or nearly so. */
static void post(struct input *in)
{
	uint8_t how = input_u8(in), which = input_u8(in);
	struct model_pair *m = &s.m.pair[1 + (how & 3) % 3];
	struct puppet_queue *q;
	uint16_t status = 0, cid = 0, sqid, sqhd;
	uint32_t at, phase;
	struct nvme_cqe *e;

	if (!m->qp || !s.p.q[m->qp->conf.qid].cq)
		return;
	q = &s.p.q[m->qp->conf.qid];
	if (m->nr_live)
		cid = m->live[which % m->nr_live].cid;
	sqid = m->qp->conf.qid;
	sqhd = (uint16_t)m->sq_tail;
	phase = q->phase;
	at = q->cq_tail;
	if (how & 4)
		status = input_u16(in) & 0x7fff;
	if (how & 8)
		cid = (uint16_t)(cid + input_u16(in)); /* an older or later use, or nobody's */
	if (how & 16)
		sqid = input_u16(in);
	if (how & 32)
		sqhd = input_u16(in);
	if (how & 64) { /* anywhere in the ring, with any phase */
		at = input_u8(in) % q->cq_size;
		phase ^= input_u8(in) & 1;
	}
	e = &q->cq[at];
	e->dw0 = le32_put(which * 0x01010101u);
	e->sqhd = le16_put(sqhd);
	e->sqid = le16_put(sqid);
	e->dw3 = le32_put(cid | phase << 16 | (uint32_t)status << 17);
	if (how & 64)
		return;
	if (++q->cq_tail == q->cq_size) {
		q->cq_tail = 0;
		q->phase ^= 1;
	}
}

static void request(struct input *in)
{
	static const uint32_t modes[] = { 0x200, 0, 0x400,
					  0x800 }; /* no spin, as the channel's, spin, poll */
	uint8_t a = input_u8(in), b = input_u8(in);
	struct nvme_chan *ch = s.ch[1] && a & 0x80 ? s.ch[1] : s.ch[0];
	uint64_t nbytes = ((uint64_t)(b & 0x1f) + 1) << 12;
	uint32_t op = a & 0x40 ? NVME_IO_WRITE : NVME_IO_READ;

	ledger_submit(&s.l, ch, (uint64_t)(a & 7) * LEDGER_REGION + (b & 0x40 ? 2048 : 0), nbytes,
		      op | modes[a >> 4 & 3]);
}

static void batch(struct input *in)
{
	uint8_t a = input_u8(in), b = input_u8(in);

	ledger_submit_batch(&s.l, 1 + (a & 0xf), (uint64_t)((b & 0x1f) % 2 + 1) << 12, a >> 4 & 7, b & 0x80);
}

static void second_channel(void)
{
	if (!s.ch[1] && !nvme_ctrl_check(s.l.c))
		MUST(!nvme_chan_open(s.l.c, NVME_MODE_POLL, &s.ch[1]));
	world_run_exec();
}

static void control(struct input *in)
{
	uint8_t a = input_u8(in), b = input_u8(in);
	struct record *r = s.l.nr ? ledger_pick(&s.l, b) : NULL;
	int64_t t = (int64_t)(input_u8(in) & 63) * NSEC_PER_MSEC;

	switch (a % 6) {
	case 0:
		if (r)
			nvme_chan_cancel(r->op->chan, r->token, t);
		break;
	case 1:
		if (r)
			nvme_chan_deadline(r->op->chan, r->token, t);
		break;
	case 2:
		nvme_batch_cancel(s.l.b, t);
		break;
	case 3:
		nvme_batch_deadline(s.l.b, t);
		break;
	case 4:
		nvme_batch_notify(s.l.b, b & 15);
		break;
	default:
		MUST(mem_inflight(mem_slot(&s.l.c->mem, (uint32_t)s.l.map))
			     ? mem_unregister(&s.l.c->mem, s.l.map) == -EBUSY
			     : true);
		break;
	}
}

static void device(struct input *in)
{
	uint8_t a = input_u8(in);

	switch (a & 7) {
	case 0:
		s.p.csts |= NVME_CSTS_CFS;
		break;
	case 1:
		s.p.gone = a & 0x80;
		break;
	case 2: { /* bytes of any kind over any entry */
		struct puppet_queue *q = &s.p.q[1 + (a >> 4 & 3) % 3];

		if (q->cq)
			input_take(in, &q->cq[input_u8(in) % q->cq_size], sizeof(struct nvme_cqe));
		break;
	}
	case 3: /* an admin completion that nobody waits for */
		puppet_post(&s.p, 0, input_u16(in), a >> 4, 0);
		break;
	case 4:
		if (s.p.nr_aer)
			puppet_post(&s.p, 0, s.p.aer[--s.p.nr_aer], 0, input_u32(in) & 0xffff07);
		break;
	case 5:
		s.p.stuck = a & 0x80;
		break;
	default:
		break;
	}
}

static void reset(void)
{
	struct nvme_err err = { 0 };
	int rc = nvme_ctrl_reset(s.l.c, &err);

	MUST(!rc || err.text[0]);
	/* disabled, or its DMA stopped: the quarantine is over. Removed: nobody said so */
	if (!rc)
		MUST(!s.l.c->nr_quarantined && !nvme_ctrl_check(s.l.c));
}

static void collect_all(void)
{
	uint32_t n;

	do {
		world_run_exec();
		n = ledger_reap(&s.l, s.ch[0], 64) + ledger_harvest(&s.l, 64);
		if (s.ch[1])
			n += ledger_reap(&s.l, s.ch[1], 64);
	} while (n);
	ledger_check(&s.l);
}

/* The device answers all that is out, as it should: at the place where the host looks. What is to be sent again waits
 * for its time. */
static void honest_end(void)
{
	collect_all();
	for (uint32_t round = 0; round < 2048 && !ledger_idle(&s.l) && !nvme_ctrl_check(s.l.c); round++) {
		for (uint32_t qid = 1; qid < MODEL_PAIRS; qid++) {
			struct model_pair *m = &s.m.pair[qid];
			struct puppet_queue *q = &s.p.q[qid];

			if (!m->qp || !m->nr_live)
				continue;
			q->cq_tail = m->cq_head;
			q->phase = m->phase;
			q->sq_head = m->sq_tail;
			puppet_post(&s.p, qid, m->live[0].cid, 0, 0);
		}
		if (!model_live_all(&s.m))
			world_pass(10 * NSEC_PER_MSEC);
		world_run_hk();
		collect_all();
	}
}

static void close_scene(bool honest)
{
	s.p.stuck = false;
	if (honest && !nvme_ctrl_check(s.l.c)) {
		honest_end();
		/* housekeeping may have found it wanting meanwhile */
		if (!nvme_ctrl_check(s.l.c))
			MUST(ledger_idle(&s.l));
	}
	world_run_hk();
	collect_all();
	if (s.l.c->state != NVME_REMOVED && !ledger_idle(&s.l)) {
		s.p.gone = false;
		reset();
		collect_all();
	}
	if (s.l.c->state != NVME_REMOVED) {
		MUST(ledger_idle(&s.l));
		MUST(!nvme_batch_free(s.l.b));
		MUST(!nvme_chan_close(s.ch[0]));
		MUST(!s.ch[1] || !nvme_chan_close(s.ch[1]));
		MUST(!mem_unregister(&s.l.c->mem, s.l.map));
		MUST(!nvme_ctrl_close(s.l.c, false));
	} else {
		/* what the device may still hold keeps its channel; a forced close stops its DMA first */
		nvme_chan_orphan(s.ch[0]);
		if (s.ch[1])
			nvme_chan_orphan(s.ch[1]);
		MUST(!nvme_ctrl_close(s.l.c, true));
	}
	world_ctrl(NULL);
	puppet_done(&s.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	bool honest;

	world_begin();
	memset(&s, 0, sizeof(s));
	open_scene(&in);
	honest = input_u8(&in) & 1;
	for (uint32_t i = 0; i < 400 && in.left; i++) {
		switch (input_u8(&in) & 15) {
		case 0:
		case 1:
			request(&in);
			break;
		case 2:
			batch(&in);
			break;
		case 3:
		case 4:
		case 5:
			post(&in);
			break;
		case 6:
			ledger_reap(&s.l, s.ch[0], 1 + (input_u8(&in) & 31));
			break;
		case 7:
			ledger_harvest(&s.l, 1 + (input_u8(&in) & 15));
			break;
		case 8:
			if (s.ch[1])
				ledger_reap(&s.l, s.ch[1], 1 + (input_u8(&in) & 31));
			break;
		case 9:
			control(&in);
			break;
		case 10:
			world_pass((int64_t)input_u8(&in) * 2 * NSEC_PER_MSEC);
			break;
		case 11:
			world_run_hk();
			break;
		case 12:
			second_channel();
			break;
		case 13:
			device(&in);
			break;
		case 14:
			if (input_u8(&in) & 1)
				reset();
			break;
		default:
			world_run_exec();
			break;
		}
		ledger_check(&s.l);
	}
	close_scene(honest);
	world_end();
	return 0;
}
