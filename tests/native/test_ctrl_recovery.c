/* SPDX-License-Identifier: MIT */
/* Events, aborts, hangs, wedges, resets, forced closes, over the embedded controller's faults. */
#include "emu_rig.h"

#define FAULT(act, q, opc, ...) \
	(&(struct emu_fault){ .action = (act), .qid = (q), .opcode = (opc), .nsid = EMU_ANY, __VA_ARGS__ })

static struct nvme_chan *up(struct rig *r, const char *name)
{
	struct nvme_chan *ch = NULL;
	int rc = rig_open(r);

	if (!okf(!rc && !nvme_chan_open(r->c, NVME_MODE_INTERRUPT, &ch), "%s: opens (%s)", name, r->err.text))
		return NULL;
	return ch;
}

static void test_events(void)
{
	struct nvme_chan *ch;
	uint32_t ev, n = 0;
	struct rig r;

	rig_init(&r);
	ch = up(&r, "events");
	for (uint32_t i = 0; i < 6;
	     i++) { /* more than are outstanding at once: reading the log re-arms each */
		uint32_t dw0 = NVME_AER_SMART | i << 8 | NVME_LOG_SMART << 16;

		emu_event(r.e, dw0);
		RIG_UNTIL(nvme_ctrl_events(r.c, &ev, 1) == 1, 3);
		n += ev == dw0;
	}
	okf(n == 6, "six events, one after another (%u)", n);
	emu_event(r.e, NVME_AER_NOTICE | NVME_AER_NOTICE_NS << 8 | NVME_LOG_CHANGED_NS << 16);
	RIG_UNTIL(nvme_ctrl_events(r.c, &ev, 1) == 1, 3);
	ok(nvme_ctrl_ns(r.c, 1)->usable, "a namespace notice makes it look again");
	nvme_chan_close(ch);
	rig_close(&r, "events");
}

static void test_reset(bool dbbuf)
{
	const char *name = dbbuf ? "reset, doorbell buffer" : "reset";
	struct nvme_chan *ch, *other;
	struct rig r;
	int bad = 0;

	rig_init(&r);
	r.ep.dbbuf = dbbuf;
	ch = up(&r, name);
	ok(!nvme_chan_open(r.c, NVME_MODE_POLL, &other), "a channel of the executor");
	for (int i = 0; i < 5; i++) {
		bad += nvme_ctrl_reset(r.c, &r.err) != 0;
		bad += rig_copy(&r, ch, 64 << 10, 0) != 64 << 10;
		bad += rig_copy(&r, other, 64 << 10, 1 << 20) != 64 << 10;
	}
	okf(!bad && atomic_load(&r.c->nr_resets) == 5, "%s: five times, data moves each time (%s)", name,
	    r.err.text);
	ok(r.c->shadow == dbbuf, "shadow doorbells as before");
	nvme_chan_close(ch);
	nvme_chan_close(other);
	rig_close(&r, name);
}

struct hammer {
	struct rig *r;
	_Atomic bool stop;
	uint64_t good, cancelled, down, bad;
};

static void *hammer(void *arg)
{
	struct hammer *h = arg;
	struct nvme_chan *ch;
	int err;

	while ((err = nvme_chan_open(h->r->c, NVME_MODE_ADAPTIVE, &ch)) == -EHOSTDOWN)
		sched_yield(); /* started late: a reset is on */
	if (err) {
		h->bad = 1;
		return NULL;
	}
	while (!atomic_load(&h->stop)) {
		int64_t rc = rig_copy(h->r, ch, 32 << 10, 0);

		if (rc == 32 << 10 || rc == -EILSEQ) /* others write there too */
			h->good++;
		else if (rc == -ECANCELED)
			h->cancelled++;
		else if (rc == -EHOSTDOWN)
			h->down++;
		else
			h->bad++;
	}
	if (nvme_chan_close(ch))
		h->bad++;
	return NULL;
}

static void test_reset_under_load(void)
{
	struct hammer h[3];
	pthread_t t[3];
	struct rig r;
	uint64_t bad = 0, good = 0;
	int failed = 0;

	rig_init(&r);
	r.ep.dbbuf = true;
	ok(!rig_open(&r) && rig_ns(&r), "under load: opens");
	for (int i = 0; i < 3; i++) {
		h[i] = (struct hammer){ .r = &r };
		pthread_create(&t[i], NULL, hammer, &h[i]);
	}
	for (int i = 0; i < 20; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		failed += nvme_ctrl_reset(r.c, &r.err) != 0;
	}
	for (int i = 0; i < 3; i++) {
		atomic_store(&h[i].stop, true);
		pthread_join(t[i], NULL);
		bad += h[i].bad;
		good += h[i].good;
	}
	okf(!failed, "under load: 20 resets (%s)", r.err.text);
	okf(!bad && good, "under load: every operation ended as it may (%llu good, %llu bad)",
	    (unsigned long long)good, (unsigned long long)bad);
	rig_close(&r, "under load");
}

static void test_abort(void)
{
	struct nvme_chan *ch;
	struct rig r;
	int64_t rc;

	rig_init(&r);
	r.op.hang_io_ns = 200 * NSEC_PER_MSEC;
	ch = up(&r, "abort");
	emu_fault_add(r.e, FAULT(EMU_FAULT_HOLD, EMU_ANY, NVME_IO_WRITE, .count = 1));
	rc = rig_copy(&r, ch, 4096, 0);
	okf(rc == -ECANCELED, "a command that hangs is aborted (%lld)", (long long)rc);
	ok(atomic_load(&r.c->nr_aborts) == 1 && !nvme_ctrl_check(r.c), "one Abort, and the controller lives");
	ok(rig_copy(&r, ch, 4096, 0) == 4096, "the next one works");
	nvme_chan_close(ch);
	rig_close(&r, "abort");
}

/* A command that never comes back, not even on Abort. */
static void wedge(struct rig *r, struct nvme_chan *ch, const char *name)
{
	char why[128];
	int64_t rc;

	emu_fault_add(r->e, FAULT(EMU_FAULT_DROP, EMU_ANY, NVME_IO_WRITE, .count = 1));
	rc = rig_copy(r, ch, 4096, 0);
	nvme_ctrl_reason(r->c, why, sizeof(why));
	okf(rc == -EHOSTDOWN && nvme_ctrl_check(r->c) == -EHOSTDOWN, "%s: wedged (%lld): %s", name,
	    (long long)rc, why);
	ok(atomic_load(&r->c->nr_quarantined) == 1, "its memory is in quarantine");
	ok(nvme_ctrl_close(r->c, false) == -EBUSY, "close is refused");
}

static void test_wedge(bool force)
{
	const char *name = force ? "wedge, forced close" : "wedge, reset";
	struct nvme_chan *ch;
	struct rig r;

	rig_init(&r);
	r.op.hang_io_ns = 200 * NSEC_PER_MSEC;
	ch = up(&r, name);
	wedge(&r, ch, name);
	if (!force) {
		okf(!nvme_ctrl_reset(r.c, &r.err), "%s: works (%s)", name, r.err.text);
		ok(!atomic_load(&r.c->nr_quarantined), "the quarantine is over");
		ok(rig_copy(&r, ch, 64 << 10, 0) == 64 << 10, "data moves again");
		nvme_chan_orphan(ch);
		ok(!nvme_ctrl_close(r.c, false), "closes with an orphan: housekeeping frees it");
		rig_done(&r);
		return;
	}
	nvme_chan_orphan(ch);
	ok(nvme_ctrl_close(r.c, false) == -EBUSY, "still refused");
	ok(!nvme_ctrl_close(r.c, true), "forced: the device is stopped first");
	rig_done(&r);
}

struct starved {
	struct nvme_lane *lane;
	int64_t start;
	uint32_t passes, aborted_at, wedged_at;
};

/* Housekeeping comes round every 10 s, and each time 6 s too late: of every ten it was there for four. */
static int starved_passes(struct nvme_ctrl *c, void *arg)
{
	struct starved *s = arg;

	for (uint32_t i = 1; i <= s->passes && !s->wedged_at; i++) {
		int64_t now = s->start + (int64_t)i * 10 * NSEC_PER_SEC;

		nvme_lane_tick(s->lane, now, 6 * NSEC_PER_SEC);
		if (!s->aborted_at && s->lane->abort_at)
			s->aborted_at = i;
		if (nvme_ctrl_check(c))
			s->wedged_at = i;
	}
	return 0;
}

/* Time in which nobody looked is no hang; but a machine on which housekeeping is always late must not keep a command
 * that never comes back from its end for ever. */
static void test_hang_while_starved(void)
{
	struct starved s = { .passes = 200 };
	uint8_t *buf = aligned_alloc(4096, 4096);
	struct nvme_op *op = NULL;
	struct nvme_chan *ch;
	uint64_t map = 0;
	struct rig r;
	int64_t rc;

	rig_init(&r);
	r.ep.step = false;
	r.op.hang_io_ns = 100 * NSEC_PER_SEC;
	ch = up(&r, "starved");
	ok(!mem_register(&r.c->mem, buf, 4096, DMA_READ | DMA_WRITE, &map), "memory maps");
	emu_fault_add(r.e, FAULT(EMU_FAULT_DROP, EMU_ANY, NVME_IO_READ, .count = 1));
	rc = nvme_chan_rw(ch, rig_ns(&r), map, 0, 4096, 0, NVME_IO_READ);
	ok(rc > 0 && (uint64_t)rc & NVME_PENDING, "starved: a command that is forgotten");
	s.lane = &ch->own;
	s.start = now_ns();
	nvme_hk_call(r.c, starved_passes, &s);
	/* 4 s a pass: 100 s are over with the 25th, or with the one after it */
	okf(s.aborted_at >= 25 && s.aborted_at <= 26,
	    "starved: its Abort is due after 100 s of looking (pass %u)", s.aborted_at);
	okf(s.wedged_at == s.aborted_at + 1, "starved: given up with the next (pass %u)", s.wedged_at);
	ok(nvme_chan_wait(ch, &op, 1, 2 * NSEC_PER_SEC) == 1 && nvme_op_result(op) == -EHOSTDOWN,
	   "starved: the operation ends");
	if (op)
		nvme_chan_collected(ch, op);
	okf(!nvme_ctrl_reset(r.c, &r.err), "starved: a reset recovers (%s)", r.err.text);
	if (nvme_chan_wait(ch, &op, 1, NSEC_PER_SEC) == 1)
		nvme_chan_collected(ch, op);
	ok(!mem_unregister(&r.c->mem, map) && !nvme_chan_close(ch), "starved: all is given back");
	rig_close(&r, "starved");
	free(buf);
}

static void admin_over(struct nvme_admin_req *req) { atomic_store((_Atomic bool *)req->arg, true); }

static void test_admin_hang(void)
{
	struct nvme_admin_req *req = calloc(1, sizeof(*req));
	_Atomic bool over = false;
	struct nvme_chan *ch;
	struct rig r;

	rig_init(&r);
	r.op.hang_admin_ns = 200 * NSEC_PER_MSEC;
	ch = up(&r, "admin hang");
	emu_fault_add(r.e, FAULT(EMU_FAULT_DROP, 0, NVME_ADM_GET_FEATURES, .count = 1));
	req->sqe.opcode = NVME_ADM_GET_FEATURES;
	req->sqe.cdw10 = le32_put(NVME_FEAT_TEMP);
	req->done = admin_over;
	req->arg = &over;
	atomic_init(&req->refs, 1);
	ok(!nvme_admin_queue(r.c, req), "admin hang: queued");
	RIG_UNTIL(atomic_load(&over), 3);
	okf(atomic_load(&over) && req->err == -EHOSTDOWN, "it ends when the controller is given up (%d)",
	    req->err);
	nvme_admin_req_put(req);
	okf(!nvme_ctrl_reset(r.c, &r.err), "a reset recovers (%s)", r.err.text);
	ok(rig_copy(&r, ch, 4096, 0) == 4096, "data moves again");
	nvme_chan_close(ch);
	rig_close(&r, "admin hang");
}

static void test_fatal(uint32_t action, int want, const char *words)
{
	struct nvme_chan *ch;
	char why[128];
	struct rig r;
	int64_t rc;

	rig_init(&r);
	ch = up(&r, words);
	emu_fault_add(r.e, FAULT(action, EMU_ANY, NVME_IO_WRITE, .count = 1));
	rc = rig_copy(&r, ch, 4096, 0);
	nvme_ctrl_reason(r.c, why, sizeof(why));
	okf(rc == want && strstr(why, words), "noticed (%lld): %s", (long long)rc, why);
	if (action == EMU_FAULT_CFS) {
		okf(!nvme_ctrl_reset(r.c, &r.err), "a reset recovers (%s)", r.err.text);
		ok(rig_copy(&r, ch, 4096, 0) == 4096, "data moves again");
	} else {
		ok(nvme_ctrl_reset(r.c, &r.err) == -ENODEV, "nothing to reset");
	}
	nvme_chan_orphan(ch);
	rc = nvme_ctrl_close(r.c, true);
	okf(!rc, "closes (%lld)", (long long)rc);
	rig_done(&r);
}

static void test_lost_interrupt(void)
{
	struct nvme_chan *ch;
	struct rig r;

	rig_init(&r);
	r.ep.step = false;
	r.ep.latency_ns = 3 * NSEC_PER_MSEC; /* so that the owner sleeps when it completes */
	ch = up(&r, "lost interrupt");
	emu_fault_add(r.e, FAULT(EMU_FAULT_LOSE_INTERRUPT, EMU_ANY, NVME_IO_WRITE, .count = 1));
	ok(rig_copy(&r, ch, 4096, 0) == 4096, "a completion whose interrupt was lost is found");
	okf(atomic_load(&r.c->nr_stragglers) == 1, "and counted (%llu)",
	    (unsigned long long)atomic_load(&r.c->nr_stragglers));
	nvme_chan_close(ch);
	rig_close(&r, "lost interrupt");
}

/* An owner that looked at the state right before it changed sends, and its lane has failed already: what it queued is
 * ended when it next comes round, and nothing of it may keep memory or namespace. Alone, or as a batch. */
static void test_queued_after_failure(uint32_t items)
{
	struct nvme_chan *ch;
	struct nvme_batch *b = NULL;
	struct nvme_op *op = NULL;
	int64_t offsets[4] = { 0, 4096, 8192, 12288 }, rc;
	uint32_t bad, ended = 0;
	uint8_t *buf = aligned_alloc(4096, 16384);
	uint64_t map = 0;
	struct nvme_ns *ns;
	struct rig r;

	rig_init(&r);
	ch = up(&r, "queued after the failure");
	ns = rig_ns(&r);
	ok(!mem_register(&r.c->mem, buf, 16384, DMA_READ | DMA_WRITE, &map), "memory maps");
	if (items)
		ok(!nvme_batch_new(ch, items, &b), "a batch");
	pthread_mutex_lock(&r.c->lock); /* housekeeping's next look at the lanes comes after all this */
	owner_lock(&ch->own.lock);
	nvme_lane_fail(&ch->own);
	owner_unlock(&ch->own.lock);
	rc = b ? nvme_batch_submit_array(b, ns, NVME_IO_READ, false, NVME_FLOW_NORMAL, map, offsets, NULL,
					 4096, items, 0, &bad)
	       : nvme_chan_rw(ch, ns, map, 0, 4096, 0, NVME_IO_READ);
	okf(b ? !rc : rc > 0 && (uint64_t)rc & NVME_PENDING, "accepted (%lld)", (long long)rc);
	nvme_ctrl_fail(r.c, NVME_WEDGED, "it fails now");
	rc = nvme_chan_reap(ch, &op, 1);
	pthread_mutex_unlock(&r.c->lock);
	if (b) {
		for (; (op = nvme_batch_next(b)); ended++)
			nvme_chan_collected(ch, op);
	} else if (rc == 1) {
		ended += nvme_op_result(op) == -EHOSTDOWN;
		nvme_chan_collected(ch, op);
	}
	okf(ended == (items ? items : 1), "it has ended (%u)", ended);
	okf(!atomic_load(&ns->ref), "the namespace is free (%u)", atomic_load(&ns->ref));
	okf(!mem_unregister(&r.c->mem, map), "so is the memory");
	if (b)
		ok(!nvme_batch_free(b), "and the batch");
	ok(!nvme_chan_close(ch), "and the channel");
	rig_close(&r, "queued after the failure");
	free(buf);
}

struct flicker {
	struct nvme_ctrl *c;
	struct nvme_chan *ch;
	struct nvme_batch *b;
	struct nvme_ns *ns;
	uint64_t map;
	uint32_t zero, read, refused, accepted;
	_Atomic bool stop;
};

static void *flicker_main(void *arg)
{
	struct flicker *f = arg;

	while (!atomic_load(&f->stop)) {
		atomic_store(&f->c->state, NVME_RESETTING);
		atomic_store(&f->c->state, NVME_LIVE);
	}
	return NULL;
}

/* On the housekeeping thread, as a reset is: it must not see states that no reset led to. */
static int flicker_use(struct nvme_ctrl *c, void *arg)
{
	int64_t offsets[2] = { 0, 4096 };
	struct flicker *f = arg;
	struct nvme_op *op;
	uint32_t bad;
	pthread_t t;

	f->c = c;
	pthread_create(&t, NULL, flicker_main, f);
	for (int64_t end = now_ns() + NSEC_PER_SEC / 2; now_ns() < end;) {
		int64_t rc = nvme_chan_rw(f->ch, f->ns, f->map, 0, 4096, 0, NVME_IO_READ);

		f->zero += !rc;
		f->read += rc > 0;
		f->refused += rc == -EHOSTDOWN;
		if (rc > 0 && (uint64_t)rc & NVME_PENDING) {
			while (nvme_chan_wait(f->ch, &op, 1, NSEC_PER_SEC) != 1)
				;
			f->zero += nvme_op_result(op) != 4096;
			nvme_chan_collected(f->ch, op);
		}
		f->accepted += nvme_batch_submit_array(f->b, f->ns, NVME_IO_READ, false, NVME_FLOW_NORMAL,
						       f->map, offsets, NULL, 4096, 2, 0, &bad) >= 0;
	}
	atomic_store(&f->stop, true);
	pthread_join(t, NULL);
	return 0;
}

/* A reset ends between two looks at the state: what was about to be refused goes on, and is not taken for done. */
static void test_live_again_at_the_second_look(void)
{
	uint8_t *buf = aligned_alloc(4096, 8192);
	struct flicker f = { 0 };
	struct rig r;

	rig_init(&r);
	f.ch = up(&r, "live again");
	f.ns = rig_ns(&r);
	ok(!mem_register(&r.c->mem, buf, 8192, DMA_READ | DMA_WRITE, &f.map), "memory maps");
	ok(!nvme_batch_new(f.ch, 1, &f.b), "a batch of one");
	nvme_hk_call(r.c, flicker_use, &f);
	okf(f.read && f.refused, "reads are done or refused (%u, %u)", f.read, f.refused);
	okf(!f.zero, "none ends without its bytes (%u)", f.zero);
	okf(!f.accepted, "two do not fit into a batch of one (%u)", f.accepted);
	ok(!nvme_batch_free(f.b) && !mem_unregister(&r.c->mem, f.map) && !nvme_chan_close(f.ch),
	   "all is given back");
	rig_close(&r, "live again");
	free(buf);
}

int main(void)
{
	test_live_again_at_the_second_look();
	test_events();
	test_reset(false);
	test_reset(true);
	test_reset_under_load();
	test_abort();
	test_wedge(false);
	test_wedge(true);
	test_hang_while_starved();
	test_admin_hang();
	test_fatal(EMU_FAULT_CFS, -EHOSTDOWN, "fatal status");
	test_fatal(EMU_FAULT_REMOVED, -ENODEV, "all ones");
	test_lost_interrupt();
	test_queued_after_failure(0);
	test_queued_after_failure(4);
	return done_testing();
}
