/* SPDX-License-Identifier: MIT */
/* Deadlines, cancels, the quarantine and what ends it. */
#include <errno.h>
#include <time.h>

#include "stopwatch.h"
#include "ugds_fixture.h"

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static int hold(struct fixture *f, uint32_t opcode)
{
	struct ugds_fault h = {
		.action = UGDS_FAULT_HOLD, .qid = UGDS_FAULT_ANY, .opcode = opcode, .nsid = UGDS_FAULT_ANY
	};

	return ugds_fault_add(f->c, &h);
}

static uint32_t quarantined(struct fixture *f) { return (uint32_t)ugds_ctrl_quarantine(f->c, NULL, 0); }

/* The quarantine ends a moment after the device lets go: housekeeping or the next reap sees it. */
static bool becomes_free(struct fixture *f)
{
	struct ugds_completion done[4];

	for (int i = 0; i < 100 && quarantined(f); i++)
		ugds_wait(f->ch, done, 4, 20 * MS);
	ugds_wait(f->ch, done, 4, 20 * MS); /* collect what came back last */
	return !quarantined(f);
}

static void deadline(struct fixture *f, const char *what)
{
	int id = hold(f, UGDS_OP_READ);
	struct stopwatch w = stopwatch_start();
	int64_t r = ugds_rw(f->ch, f->ns, f->map, 0, 4096, 0, UGDS_OP_READ);
	struct ugds_completion done;
	struct ugds_stuck s;
	uint64_t t;
	int n;

	ok(r >= UGDS_PENDING, "%s: in flight", what);
	ugds_op_deadline(f->ch, (uint64_t)(r - UGDS_PENDING), 50 * MS);
	n = ugds_wait(f->ch, &done, 1, 5 * SEC);
	t = stopwatch_elapsed(&w);
	ok(n == 1 && done.result == -ETIMEDOUT && (done.status >> 24 & 0xff) == UGDS_UNKNOWN, "%s: timed out",
	   what);
	ok(t >= 50 * MS && stopwatch_ours(&w) < 400 * MS, "%s: after %.1f ms", what, (double)t / (double)MS);
	ok(ugds_ctrl_quarantine(f->c, &s, 1) == 1 && s.map == f->map && s.nbytes == 4096 && s.qid,
	   "%s: in quarantine", what);
	ok(ugds_unmap(f->c, f->map) == -EBUSY, "%s: its memory stays", what);
	ok(fixture_run(f, UGDS_OP_WRITE, 0, 4096, 0) == -EBUSY, "%s: its range is refused", what);
	ok(fixture_run(f, UGDS_OP_WRITE, 4096, 4096, 0) == 4096, "%s: the controller is healthy", what);
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "%s: the late completion frees it", what);
	ok(fixture_run(f, UGDS_OP_READ, 0, 4096, 0) == 4096, "%s: the range is usable again", what);
}

static void cancel(struct fixture *f, const char *what)
{
	int id = hold(f, UGDS_OP_READ);
	int64_t r = ugds_rw(f->ch, f->ns, f->map, 0, 1 << 20, 0, UGDS_OP_READ);
	struct ugds_completion done = { 0 };

	ok(r >= UGDS_PENDING && ugds_cancel(f->ch, (uint64_t)(r - UGDS_PENDING), 60 * MS) == 1,
	   "%s: cancelled", what);
	ok(ugds_wait(f->ch, &done, 1, 5 * SEC) == 1 && done.result == -ECANCELED, "%s: ends after the grace",
	   what);
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "%s: and is freed by its completions", what);
	ok(ugds_cancel(f->ch, (uint64_t)(r - UGDS_PENDING), 0) == 0, "%s: a stale token is nothing", what);
}

static void batch(struct fixture *f, const char *what)
{
	int id = hold(f, UGDS_OP_READ);
	struct ugds_completion done[64];
	struct ugds_batch *b;
	int64_t off[1000];
	uint32_t bad, never = 0, unknown = 0, aborted = 0, n = 0;

	for (int i = 0; i < 1000; i++)
		off[i] = i * 4096;
	ugds_batch_new(f->ch, 1000, &b);
	ok(ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off, off, 4096, 1000, 0, &bad) == 0,
	   "%s: 1000 items, all held", what);
	ok(ugds_batch_free(b) == -EBUSY, "%s: a busy batch is not freed", what);
	ugds_batch_cancel(b, 60 * MS);
	while (!ugds_batch_notify(b, 1000))
		if (ugds_wait(f->ch, done, 8, 5 * SEC) <= 0)
			break;
	for (int k; (k = ugds_batch_harvest(b, done, 64)) > 0; n += (uint32_t)k)
		for (int i = 0; i < k; i++) {
			uint32_t how = done[i].status >> 24 & 0xff;

			never += how == UGDS_NEVER_SENT && done[i].result == -ECANCELED;
			unknown += how == UGDS_UNKNOWN && done[i].result == -ECANCELED;
			aborted += how == UGDS_ABORTED;
		}
	ok(n == 1000 && never + unknown + aborted == 1000 && never,
	   "%s: each has one outcome: %u never sent, %u unknown", what, never, unknown);
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "%s: the quarantine ends", what);
	ok(!ugds_batch_free(b), "%s: the batch is free", what);
}

static void reset(struct fixture *f, const char *what)
{
	int id = hold(f, UGDS_OP_READ);
	int64_t r = ugds_rw(f->ch, f->ns, f->map, 0, 65536, 0, UGDS_OP_READ);
	int64_t r2 = ugds_rw(f->ch, f->ns, f->map, 65536, 4096, 0, UGDS_OP_READ);
	struct ugds_completion done[4];
	struct ugds_error err = { 0 };
	int n = 0;

	ugds_op_deadline(f->ch, (uint64_t)(r - UGDS_PENDING), 30 * MS);
	ok(ugds_wait(f->ch, done, 1, 5 * SEC) == 1 && quarantined(f) == 1, "%s: one timed out, one in flight",
	   what);
	ok(!ugds_ctrl_reset(f->c, &err), "%s: reset %s", what, err.text);
	for (int k = 0; k < 20 && !n; k++)
		n = ugds_wait(f->ch, done, 4, 100 * MS);
	ok(n == 1 && done[0].result == -ECANCELED && done[0].token == (uint64_t)(r2 - UGDS_PENDING),
	   "%s: what was in flight ends once", what);
	ok(!quarantined(f), "%s: the quarantine is over", what);
	ugds_fault_clear(f->c, id);
	ok(fixture_run(f, UGDS_OP_READ, 0, 1 << 20, 0) == 1 << 20, "%s: it works again", what);
}

static void lost_interrupt(struct fixture *f, const char *what)
{
	struct ugds_fault lose = { .action = UGDS_FAULT_LOSE_INTERRUPT,
				   .qid = UGDS_FAULT_ANY,
				   .opcode = UGDS_OP_READ,
				   .nsid = UGDS_FAULT_ANY,
				   .count = 1 };
	struct ugds_ctrl_stats st;
	int id = ugds_fault_add(f->c, &lose);
	uint64_t t = now();

	ok(fixture_run(f, UGDS_OP_READ, 0, 1 << 17, 0) == 1 << 17 && now() - t < 3 * SEC,
	   "%s: a lost interrupt is noticed", what);
	ugds_ctrl_stats(f->c, &st);
	printf("# %llu stragglers, %.1f ms\n", (unsigned long long)st.stragglers,
	       (double)(now() - t) / (double)MS);
	ugds_fault_clear(f->c, id);
}

/* What was submitted afterwards, and has ended, is not what a time limit or a cancel was for. */
static void batch_goes_on(struct fixture *f, const char *what, bool cancelled)
{
	struct ugds_fault h = { .action = UGDS_FAULT_HOLD,
				.qid = UGDS_FAULT_ANY,
				.opcode = UGDS_OP_READ,
				.nsid = UGDS_FAULT_ANY,
				.slba = 0,
				.nlb = 1 };
	struct ugds_completion done[4];
	struct ugds_batch *b;
	int64_t off[3] = { 0, 8192, 16384 };
	int64_t want = cancelled ? -ECANCELED : -ETIMEDOUT, got = 0;
	int id = ugds_fault_add(f->c, &h), n = 0;
	uint64_t t;
	uint32_t bad;

	ugds_batch_new(f->ch, 3, &b);
	ok(ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off, off, 4096, 1, 0, &bad) == 0,
	   "%s: one item, held", what);
	for (int i = 0; i < 2000 && !ugds_fault_hits(f->c, id); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	t = now();
	if (cancelled)
		ugds_batch_cancel(b, 100 * MS);
	else
		ugds_batch_deadline(b, 100 * MS);
	ok(ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off + 1, off + 1, 4096, 2, 1, &bad) >= 0,
	   "%s: two more", what);
	while (n < 3) {
		int k;

		if (!ugds_batch_notify(b, 1) && ugds_wait(f->ch, done, 4, 2 * SEC) <= 0)
			break;
		k = ugds_batch_harvest(b, done, 1);
		got = k && !done[0].token ? done[0].result : got;
		n += k;
	}
	t = now() - t;
	ok(n == 3 && got == want, "%s: the held one was %s (%d ended, %lld)", what,
	   cancelled ? "cancelled" : "timed out", n, (long long)got);
	ok(t >= 100 * MS && t < 2 * SEC, "%s: after %.1f ms", what, (double)t / (double)MS);
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "%s: the quarantine ends", what);
	while (ugds_batch_pending(b) && ugds_wait(f->ch, done, 4, SEC) > 0)
		ugds_batch_harvest(b, done, 4);
	ok(!ugds_batch_free(b), "%s: the batch is free", what);
}

/* A limit holds for what was in flight when it was set, not for what came after it. */
static void batch_limit_is_not_for_later(struct fixture *f, const char *what)
{
	struct ugds_completion done[4];
	struct ugds_batch *b;
	int64_t off[2] = { 0, 8192 };
	uint32_t bad;
	int id;

	ugds_batch_new(f->ch, 2, &b);
	id = hold(f, UGDS_OP_READ);
	ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off, off, 4096, 1, 0, &bad);
	ugds_batch_deadline(b, 50 * MS);
	ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off + 1, off + 1, 4096, 1, 1, &bad);
	while (!ugds_batch_notify(b, 1) && ugds_wait(f->ch, done, 4, 2 * SEC) > 0)
		;
	ok(ugds_batch_harvest(b, done, 2) == 1 && !done[0].token && done[0].result == -ETIMEDOUT,
	   "%s: the first timed out, the second did not", what);
	ugds_wait(f->ch, done, 4, 150 * MS);
	ok(!ugds_batch_ready(b), "%s: nor later", what);
	ugds_batch_deadline(b, 20 * MS);
	while (!ugds_batch_notify(b, 1) && ugds_wait(f->ch, done, 4, 2 * SEC) > 0)
		;
	ok(ugds_batch_harvest(b, done, 2) == 1 && done[0].token == 1 && done[0].result == -ETIMEDOUT,
	   "%s: until it has a limit of its own", what);
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "%s: the quarantine ends", what);
	ok(!ugds_batch_free(b), "%s: the batch is free", what);
}

/* A command is sent again when the controller says, but not when that is later than anything may take. */
static void retry_delay(uint32_t mode, const char *what)
{
	struct ugds_fault again = { .action = UGDS_FAULT_STATUS,
				    .qid = UGDS_FAULT_ANY,
				    .opcode = UGDS_OP_READ,
				    .nsid = UGDS_FAULT_ANY,
				    .count = 1,
				    .status = 0x21 | 1u << 11 };
	struct ugds_completion done = { 0 };
	struct ugds_batch *b;
	struct fixture f;
	int64_t off = 0, r;
	struct stopwatch w;
	uint32_t bad;
	uint64_t t;
	int id;

	fixture_defaults(&f);
	f.emu.crdt[0] = 1;
	f.emu.crdt[2] = 2048; /* 204.8 s */
	f.open.retries = 2;
	f.open.hang_io_ns = SEC;
	if (!ok(fixture_open(&f, mode), "%s: open", what))
		return;
	t = now();
	id = ugds_fault_add(f.c, &again);
	ok(fixture_run(&f, UGDS_OP_READ, 0, 4096, 0) == 4096 && now() - t >= 100 * MS,
	   "%s: sent again after the delay", what);
	ugds_fault_clear(f.c, id);
	again.status = 0x21 | 3u << 11;
	id = ugds_fault_add(f.c, &again);
	w = stopwatch_start();
	r = fixture_run(&f, UGDS_OP_READ, 0, 4096, 0);
	ok(r == -EAGAIN && stopwatch_ours(&w) < SEC, "%s: not sent again after 204.8 s (%lld, %.1f ms)", what,
	   (long long)r, (double)stopwatch_elapsed(&w) / (double)MS);
	ugds_fault_clear(f.c, id);
	id = ugds_fault_add(f.c, &again);
	ugds_batch_new(f.ch, 1, &b);
	ugds_batch_submit_array(b, f.ns, UGDS_OP_READ, f.map, &off, &off, 4096, 1, 0, &bad);
	if (!ugds_batch_notify(b, 1))
		ugds_wait(f.ch, &done, 1, 2 * SEC);
	ok(ugds_batch_harvest(b, &done, 1) == 1 && done.result == -EAGAIN && (done.status >> 11 & 3) == 3,
	   "%s: nor an item of a batch; its status tells", what);
	ugds_fault_clear(f.c, id);
	ok(!ugds_batch_free(b) && fixture_close(&f), "%s: all given back", what);
}

static void wedge(void)
{
	struct fixture f;
	struct ugds_ctrl_info info;
	struct ugds_completion done;
	struct ugds_error err = { 0 };
	int id, refuse;
	struct ugds_fault no_abort = {
		.action = UGDS_FAULT_ABORT_REFUSED, .qid = 0, .opcode = 8, .nsid = UGDS_FAULT_ANY
	};

	fixture_defaults(&f);
	f.open.hang_io_ns = 300 * MS;
	ok(fixture_open(&f, UGDS_MODE_INTERRUPT), "wedge: open");
	id = hold(&f, UGDS_OP_READ);
	refuse = ugds_fault_add(f.c, &no_abort);
	ok(ugds_rw(f.ch, f.ns, f.map, 0, 4096, 0, UGDS_OP_READ) >= UGDS_PENDING &&
		   ugds_wait(f.ch, &done, 1, 10 * SEC) == 1 && done.result == -EHOSTDOWN,
	   "wedge: a command that hangs ends with the controller's state");
	ugds_ctrl_info(f.c, &info);
	ok(info.state == UGDS_STATE_WEDGED && info.reason[0], "wedge: %s", info.reason);
	ok(fixture_run(&f, UGDS_OP_READ, 8192, 4096, 0) == -EHOSTDOWN, "wedge: new work is refused");
	ok(ugds_unmap(f.c, f.map) == -EBUSY && ugds_ctrl_close(f.c, 0) == -EBUSY, "wedge: nothing is let go");
	ugds_fault_clear(f.c, refuse);
	ok(!ugds_ctrl_reset(f.c, &err), "wedge: reset %s", err.text);
	ugds_fault_clear(f.c, id);
	ok(fixture_run(&f, UGDS_OP_READ, 0, 4096, 0) == 4096, "wedge: works again");
	becomes_free(&f);
	ok(fixture_close(&f), "wedge: all given back");
}

int main(void)
{
	static const uint32_t modes[] = { UGDS_MODE_ADAPTIVE, UGDS_MODE_INTERRUPT, UGDS_MODE_POLL };
	static const char *const names[] = { "adaptive", "interrupt", "poll" };

	for (uint32_t i = 0; i < 3; i++) {
		struct fixture f;

		fixture_defaults(&f);
		if (!ok(fixture_open(&f, modes[i]), "%s: open", names[i]))
			return done_testing();
		deadline(&f, names[i]);
		cancel(&f, names[i]);
		batch(&f, names[i]);
		batch_goes_on(&f, names[i], false);
		batch_goes_on(&f, names[i], true);
		batch_limit_is_not_for_later(&f, names[i]);
		reset(&f, names[i]);
		lost_interrupt(&f, names[i]);
		ok(fixture_close(&f), "%s: all given back", names[i]);
		retry_delay(modes[i], names[i]);
	}
	wedge();
	return done_testing();
}
