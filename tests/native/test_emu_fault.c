/* SPDX-License-Identifier: MIT */
/* The fault script, Abort, the latency model. */
#define _GNU_SOURCE
#include <sys/eventfd.h>

#include "emu_host.h"

#define SHORT (20 * NSEC_PER_MSEC)
#define EARLY (300 * NSEC_PER_MSEC)

struct rig {
	struct host h;
	struct hq q;
	struct dma d;
	int fd;
	_Atomic uint32_t word;
	uint64_t binding;
};

static void rig_new(struct rig *r, const struct emu_params *p)
{
	host_open(&r->h, p);
	host_queue(&r->h, &r->q, 1, 32);
	r->d = dma_new(&r->h, 32 * PAGE, DMA_RW);
	r->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	atomic_init(&r->word, 0);
	must(!emu_irq_bind(r->h.e, 1, r->fd, &r->word, &r->binding), "bind");
}

static void rig_free(struct rig *r)
{
	is(emu_irq_unbind(r->h.e, r->binding), 0, "unbind");
	is(emu_irq_unbind(r->h.e, r->binding), -ENOENT, "once");
	close(r->fd);
	host_set_en(&r->h, false);
	hq_done(&r->h, &r->q);
	hq_done(&r->h, &r->h.admin);
	dma_free(&r->h, &r->d);
	emu_free(r->h.e);
}

static int add(struct rig *r, struct emu_fault f)
{
	int id = emu_fault_add(r->h.e, &f);

	if (id <= 0)
		must(false, "fault %u: %d", f.action, id);
	return id;
}

static struct emu_fault fault(uint32_t action)
{
	return (struct emu_fault){ .action = action, .qid = 1, .opcode = EMU_ANY, .nsid = EMU_ANY };
}

static void send_read(struct rig *r, uint16_t cid, uint64_t slba)
{
	struct nvme_sqe s = host_rw(NVME_IO_READ, slba, 8);

	s.cid = le16_put(cid);
	host_prp(&s, &r->d, (cid % 32u) * PAGE, PAGE, NULL);
	hq_put(&r->q, &s);
	hq_ring(&r->h, &r->q);
	emu_step(r->h.e, 1, 8);
}

/* The next completion's identifier, or -1. */
static int next_cid(struct rig *r, int64_t ns, uint16_t *ret_status)
{
	struct nvme_cqe c = { 0 };

	if (!hq_wait_for(&r->h, &r->q, &c, ns))
		return -1;
	if (ret_status)
		*ret_status = NVME_CQE_STATUS(le32_get(c.dw3)) & 0x7ff;
	return NVME_CQE_CID(le32_get(c.dw3));
}

static bool signalled(struct rig *r, int64_t ns)
{
	int64_t end = now_ns() + ns;
	uint64_t n;

	do
		if (read(r->fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
			return true;
	while (now_ns() < end && !sched_yield());
	return false;
}

static uint32_t do_abort(struct rig *r, uint16_t cid)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_ABORT, .cdw10 = le32_put((uint32_t)cid << 16 | 1) };
	uint32_t dw0 = 99;

	is(host_admin(&r->h, s, &dw0), 0, "abort command %u", cid);
	return dw0;
}

static void statuses(struct rig *r)
{
	struct emu_fault f = fault(EMU_FAULT_STATUS);
	uint16_t st = 0;
	int id;

	f.status = NVME_STATUS(NVME_SCT_MEDIA, NVME_SC_UNRECOVERED_READ);
	f.slba = 100;
	f.nlb = 10;
	f.skip = 1;
	f.count = 2;
	id = add(r, f);
	for (uint16_t i = 0; i < 5; i++) {
		send_read(r, i, i == 4 ? 110 : 93 + i);
		is(next_cid(r, WAIT_NS, &st), i, "read %u ends", i);
		/* skipped, acted, acted, spent, out of range */
		is(st, i == 1 || i == 2 ? f.status : 0, "its status");
	}
	is(emu_fault_hits(r->h.e, id), 2, "two hits");
	is(emu_fault_clear(r->h.e, id), 2, "clear");
	is(emu_fault_clear(r->h.e, id), -ENOENT, "once");
	is(emu_fault_hits(r->h.e, id), -ENOENT, "unknown");
	f.action = 99;
	is(emu_fault_add(r->h.e, &f), -EINVAL, "an unknown action");
}

static void held(struct rig *r)
{
	struct emu_fault f = fault(EMU_FAULT_HOLD);
	uint16_t st = 0;
	int id;

	f.count = 3;
	id = add(r, f);
	memset(r->d.p, 0xee, PAGE);
	for (uint16_t i = 0; i < 5; i++)
		send_read(r, i, 0);
	for (int i = 0; i < 2; i++)
		ok(next_cid(r, WAIT_NS, &st) >= 3 && !st, "those behind the held ones are served");
	is(next_cid(r, SHORT, &st), -1, "three are held");
	ok(r->d.p[0] == 0xee, "and moved nothing");
	is(do_abort(r, 1), 0, "one is aborted");
	is(next_cid(r, WAIT_NS, &st), 1, "it ends");
	is(st, NVME_SC_ABORT_REQUESTED, "as aborted");
	is(do_abort(r, 1), 1, "it cannot be aborted again");
	is(do_abort(r, 77), 1, "nor can one that nobody sent");
	is(emu_fault_clear(r->h.e, id), 3, "clear");
	is(next_cid(r, WAIT_NS, &st) + next_cid(r, WAIT_NS, NULL), 2, "the other two are served");
	is(st, 0, "well");
	ok(r->d.p[0] == 0, "with their data");
}

/* More than the queue has slots for: the fifth stays in the ring, and can be aborted there. */
static void unfetched(struct rig *r)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_ABORT, .cdw10 = le32_put(5u << 16 | 2) };
	struct nvme_sqe io = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };
	struct emu_fault f = fault(EMU_FAULT_HOLD);
	uint32_t dw0 = 9, good = 0;
	struct nvme_cqe c = { 0 };
	struct hq q;
	int id;

	host_queue(&r->h, &q, 2, 4);
	f.qid = 2;
	f.count = 4;
	id = add(r, f);
	for (uint16_t i = 1; i <= 5; i++) {
		io.cid = le16_put(i);
		hq_put(&q, &io);
		hq_ring(&r->h, &q);
		for (int64_t end = now_ns() + WAIT_NS;
		     emu_fault_hits(r->h.e, id) < min_u32(i, 4) && now_ns() < end;)
			sched_yield();
	}
	is(emu_fault_hits(r->h.e, id), 4, "four are held");
	is(host_admin(&r->h, s, &dw0), 0, "abort the fifth");
	is(dw0, 0, "it was done");
	emu_fault_clear(r->h.e, id);
	for (int i = 0; i < 5; i++) {
		uint16_t st = hq_wait(&r->h, &q, &c) & 0x7ff;
		bool fifth = NVME_CQE_CID(le32_get(c.dw3)) == 5;

		good += st == (fifth ? NVME_SC_ABORT_REQUESTED : 0);
	}
	is(good, 5, "it ends as aborted, the others well");
	is(host_delete(&r->h, &q), 0, "delete");
	hq_done(&r->h, &q);
}

static void delayed(struct rig *r)
{
	struct emu_fault f = fault(EMU_FAULT_DELAY);
	int64_t t = now_ns();
	uint16_t st = 0;
	int id;

	f.delay_ns = 30 * NSEC_PER_MSEC;
	id = add(r, f);
	for (uint16_t i = 0; i < 16; i++)
		send_read(r, i, 0);
	for (uint16_t i = 0; i < 16; i++)
		ok(next_cid(r, WAIT_NS, &st) >= 0 && !st, "a delayed read ends");
	t = now_ns() - t;
	ok(t >= 30 * NSEC_PER_MSEC, "after the delay (%lld us)", (long long)t / 1000);
	ok(t < 300 * NSEC_PER_MSEC, "all at once: none blocked a thread");
	emu_fault_clear(r->h.e, id);
	f.delay_ns = 100 * NSEC_PER_SEC;
	id = add(r, f);
	send_read(r, 5, 0);
	is(next_cid(r, SHORT, &st), -1, "a long delay");
	is(do_abort(r, 5), 0, "is aborted");
	is(next_cid(r, WAIT_NS, &st), 5, "and ends");
	is(st, NVME_SC_ABORT_REQUESTED, "as aborted");
	emu_fault_clear(r->h.e, id);
	f = fault(EMU_FAULT_ABORT_REFUSED);
	f.count = 1;
	add(r, f);
	f = fault(EMU_FAULT_DELAY);
	f.delay_ns = 50 * NSEC_PER_MSEC;
	id = add(r, f);
	send_read(r, 6, 0);
	is(do_abort(r, 6), 1, "a refused abort");
	is(next_cid(r, WAIT_NS, &st), 6, "the command ends by itself");
	is(st, 0, "well");
	emu_fault_clear(r->h.e, id);
}

static void dropped(struct rig *r)
{
	struct emu_fault f = fault(EMU_FAULT_DROP);
	uint16_t st = 0;

	f.count = 1;
	add(r, f);
	send_read(r, 3, 0);
	is(next_cid(r, SHORT, &st), -1, "a dropped command");
	is(do_abort(r, 3), 1, "cannot be aborted");
	is(next_cid(r, SHORT, &st), -1, "and never ends");
}

static void extra_completions(struct rig *r)
{
	struct emu_fault f = fault(EMU_FAULT_DUP_CQE);
	struct nvme_cqe c = { 0 };

	f.count = 1;
	add(r, f);
	send_read(r, 4, 0);
	is(next_cid(r, WAIT_NS, NULL), 4, "once");
	is(next_cid(r, WAIT_NS, NULL), 4, "twice");
	f.action = EMU_FAULT_BAD_CID;
	add(r, f);
	send_read(r, 5, 0);
	ok(next_cid(r, WAIT_NS, NULL) != 5, "an unknown command");
	is(next_cid(r, WAIT_NS, NULL), 5, "then the real one");
	f.action = EMU_FAULT_BAD_SQID;
	add(r, f);
	send_read(r, 6, 0);
	ok(hq_wait_for(&r->h, &r->q, &c, WAIT_NS) && le16_get(c.sqid) != 1, "a wrong queue");
	ok(hq_wait_for(&r->h, &r->q, &c, WAIT_NS) && le16_get(c.sqid) == 1, "then the right one");
}

static void interrupts(struct rig *r)
{
	struct emu_fault f = fault(EMU_FAULT_LOSE_INTERRUPT);
	struct emu_counters before, after;
	int64_t t;

	signalled(r, 0);
	atomic_store(&r->word, 1);
	send_read(r, 1, 0);
	ok(signalled(r, WAIT_NS), "an armed owner is signalled");
	is(atomic_load(&r->word), 0, "and disarmed");
	is(next_cid(r, WAIT_NS, NULL), 1, "the completion is there");
	emu_get_counters(r->h.e, &before);
	send_read(r, 2, 0);
	is(next_cid(r, WAIT_NS, NULL), 2, "a completion");
	ok(!signalled(r, SHORT), "an owner that is awake is not signalled");
	emu_get_counters(r->h.e, &after);
	is(after.interrupts_masked - before.interrupts_masked, 1, "it is counted");
	is(after.interrupts, before.interrupts, "and no interrupt was");

	atomic_store(&r->word, 1);
	f.count = 1;
	add(r, f);
	send_read(r, 3, 0);
	is(next_cid(r, WAIT_NS, NULL), 3, "a completion");
	ok(!signalled(r, SHORT), "whose interrupt is lost");
	f.action = EMU_FAULT_SPURIOUS_INTERRUPT;
	add(r, f);
	send_read(r, 4, 0);
	ok(signalled(r, WAIT_NS), "an interrupt for nothing");
	is(next_cid(r, WAIT_NS, NULL), 4, "then the completion");
	atomic_store(&r->word, 1);
	f.action = EMU_FAULT_EARLY_INTERRUPT;
	f.delay_ns = EARLY;
	add(r, f);
	t = now_ns();
	send_read(r, 5, 0);
	ok(signalled(r, WAIT_NS), "an early interrupt");
	ok(now_ns() - t < EARLY, "is early");
	is(next_cid(r, WAIT_NS, NULL), 5, "then the completion");
	ok(now_ns() - t >= EARLY, "in its time");

	atomic_store(&r->word, 1);
	emu_reg_write32(r->h.e, NVME_REG_INTMS, 1 << 1);
	send_read(r, 6, 0);
	is(next_cid(r, WAIT_NS, NULL), 6, "a completion under INTMS");
	ok(!signalled(r, SHORT), "is not signalled");
	emu_reg_write32(r->h.e, NVME_REG_INTMC, 1 << 1);
	ok(signalled(r, WAIT_NS), "but is when INTMC lifts the mask");
}

/* Deleting a queue ends what is held in it. */
static void deletion(struct rig *r)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_DELETE_SQ, .cdw10 = le32_put(1) };
	uint32_t aborted = 0;
	uint16_t st = 0;
	int id = add(r, fault(EMU_FAULT_HOLD));

	for (uint16_t i = 0; i < 4; i++)
		send_read(r, i, 0);
	is(host_admin(&r->h, s, NULL), 0, "delete an SQ with held commands");
	while (next_cid(r, SHORT, &st) >= 0)
		aborted += st == NVME_SC_ABORT_SQ_DELETED;
	is(aborted, 4, "they end as aborted");
	s.opcode = NVME_ADM_DELETE_CQ;
	is(host_admin(&r->h, s, NULL), 0, "delete the CQ");
	emu_fault_clear(r->h.e, id);
	hq_done(&r->h, &r->q);
	host_queue(&r->h, &r->q, 1, 32);
	send_read(r, 1, 0);
	is(next_cid(r, WAIT_NS, NULL), 1, "the queue made again works");
}

static void fatal(const struct emu_params *p)
{
	struct emu_fault f = fault(EMU_FAULT_CFS);
	struct rig r;
	int64_t end = now_ns() + WAIT_NS;
	uint16_t st = 0;
	int id;

	rig_new(&r, p);
	f.count = 1;
	add(&r, f);
	send_read(&r, 1, 0);
	while (!(emu_reg_read32(r.h.e, NVME_REG_CSTS) & NVME_CSTS_CFS) && now_ns() < end)
		;
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), NVME_CSTS_CFS | NVME_CSTS_RDY, "CSTS.CFS");
	send_read(&r, 2, 0);
	is(next_cid(&r, SHORT, &st), -1, "nothing completes");
	is(host_set_en(&r.h, false), 0, "a reset clears it");
	hq_done(&r.h, &r.q);
	hq_done(&r.h, &r.h.admin);
	f = fault(EMU_FAULT_ENABLE_STUCK);
	id = add(&r, f);
	hq_init(&r.h, &r.h.admin, 0, 16);
	emu_reg_write32(r.h.e, NVME_REG_CC, NVME_CC_EN | NVME_CC_IOSQES(6) | NVME_CC_IOCQES(4));
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), 0, "CSTS.RDY is stuck");
	emu_fault_clear(r.h.e, id);
	hq_done(&r.h, &r.h.admin);
	host_enable(&r.h, 16);
	id = add(&r, f);
	emu_reg_write32(r.h.e, NVME_REG_CC, NVME_CC_IOSQES(6) | NVME_CC_IOCQES(4));
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), NVME_CSTS_RDY, "and stuck at one");
	emu_fault_clear(r.h.e, id);
	host_queue(&r.h, &r.q, 1, 32);
	f = fault(EMU_FAULT_REMOVED);
	add(&r, f);
	send_read(&r, 3, 0);
	end = now_ns() + WAIT_NS;
	while (emu_reg_read32(r.h.e, NVME_REG_CSTS) != 0xffffffff && now_ns() < end)
		;
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), 0xffffffff, "removed: registers read all ones");
	ok(emu_reg_read64(r.h.e, NVME_REG_CAP) == UINT64_MAX, "all of them");
	is(next_cid(&r, SHORT, &st), -1, "nothing completes");
	hq_done(&r.h, &r.q);
	hq_done(&r.h, &r.h.admin);
	dma_free(&r.h, &r.d);
	emu_free(r.h.e);
	close(r.fd);
}

/* 16 reads of 2 ms on 4 channels take 8 ms; nothing is stepped, and no thread is blocked by a wait. */
static void latency(void)
{
	struct emu_params p = host_params();
	struct emu_counters c;
	struct rig r;
	int64_t t;

	p.latency_ns = 2 * NSEC_PER_MSEC;
	p.channels = 4;
	p.threads = 1;
	rig_new(&r, &p);
	t = now_ns();
	for (uint16_t i = 0; i < 16; i++)
		send_read(&r, i, 0);
	for (uint16_t i = 0; i < 16; i++)
		is(next_cid(&r, WAIT_NS, NULL), i, "in the order of arrival");
	t = now_ns() - t;
	ok(t >= 8 * NSEC_PER_MSEC && t < 400 * NSEC_PER_MSEC, "16 on 4 channels take 4 times one (%lld us)",
	   (long long)t / 1000);
	emu_get_counters(r.h.e, &c);
	is(c.stepped, 0, "nothing is stepped");
	rig_free(&r);
	p.channels = 0;
	p.latency_ns = 80 * NSEC_PER_USEC;
	rig_new(&r, &p);
	t = now_ns();
	for (uint16_t i = 0; i < 100; i++) {
		send_read(&r, i, 0);
		next_cid(&r, WAIT_NS, NULL);
	}
	t = (now_ns() - t) / 100;
	ok(t >= 80000, "80 us is kept");
	diag("a model of 80 us takes %lld ns", (long long)t);
	rig_free(&r);
}

int main(void)
{
	struct emu_params p = host_params();
	struct rig r;

	for (int step = 0; step < 2; step++) {
		p.step = step;
		rig_new(&r, &p);
		statuses(&r);
		held(&r);
		unfetched(&r);
		delayed(&r);
		dropped(&r);
		extra_completions(&r);
		interrupts(&r);
		deletion(&r);
		rig_free(&r);
		fatal(&p);
	}
	latency();
	return done_testing();
}
