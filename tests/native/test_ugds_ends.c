/* SPDX-License-Identifier: MIT */
/* What ends when: Aborts and their limit, clocks of batches, done but not collected, handles that are stale. */
#include <errno.h>
#include <time.h>

#include "stopwatch.h"
#include "ugds_fixture.h"

#define ACL 1u /* zero based: two Aborts */
#define ABORT 0x08u

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static void rest(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC) };

	nanosleep(&ts, NULL);
}

static int fault(struct fixture *f, uint32_t action, uint32_t qid, uint32_t opcode, uint32_t skip)
{
	struct ugds_fault h = {
		.action = action, .qid = qid, .opcode = opcode, .nsid = UGDS_FAULT_ANY, .skip = skip
	};

	return ugds_fault_add(f->c, &h);
}

static int hold(struct fixture *f, uint32_t skip)
{
	return fault(f, UGDS_FAULT_HOLD, UGDS_FAULT_ANY, UGDS_OP_READ, skip);
}

static struct ugds_ctrl_stats stats(struct fixture *f)
{
	struct ugds_ctrl_stats st;

	ugds_ctrl_stats(f->c, &st);
	return st;
}

static uint64_t aborts_seen(struct fixture *f)
{
	struct ugds_emu_counters n;

	ugds_emu_counters(f->c, &n);
	return n.aborts;
}

static bool becomes_free(struct fixture *f)
{
	struct ugds_completion done[64];
	uint64_t end = now() + 10 * SEC;

	while (ugds_ctrl_quarantine(f->c, NULL, 0) && now() < end)
		ugds_wait(f->ch, done, 64, 20 * MS);
	ugds_wait(f->ch, done, 64, 20 * MS);
	return !ugds_ctrl_quarantine(f->c, NULL, 0);
}

static uint32_t submit(struct fixture *f, struct ugds_batch *b, uint32_t first, uint32_t n)
{
	int64_t off[1000];
	uint32_t bad;

	for (uint32_t i = 0; i < n; i++)
		off[i] = (first + i) * 4096;
	return (uint32_t)ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off, off, 4096, n, first,
						 &bad);
}

/* The executor sends what was posted a moment later. */
static void sent(struct fixture *f)
{
	while (!stats(f).inflight)
		rest(100000);
	rest(2 * MS);
}

struct outcomes {
	uint32_t of[4];
	uint32_t canceled, timed_out;
};

static uint32_t harvest(struct fixture *f, struct ugds_batch *b, uint32_t n, struct outcomes *sum)
{
	struct ugds_completion done[64];
	uint32_t total = 0;

	while (!ugds_batch_notify(b, n))
		if (ugds_wait(f->ch, done, 8, 5 * SEC) <= 0)
			break;
	for (int k; (k = ugds_batch_harvest(b, done, 64)) > 0; total += (uint32_t)k)
		for (int i = 0; i < k; i++) {
			sum->of[done[i].status >> 24 & 3]++;
			sum->canceled += done[i].result == -ECANCELED;
			sum->timed_out += done[i].result == -ETIMEDOUT;
		}
	return total;
}

/* A client goes away with a thousand reads: none is aborted as long as the device answers in time. */
static void patience(struct fixture *f)
{
	struct ugds_batch *b;
	struct outcomes o = { 0 };
	int id = hold(f, 0);
	uint32_t n;

	ugds_batch_new(f->ch, 1000, &b);
	submit(f, b, 0, 1000);
	sent(f);
	ugds_batch_cancel(b, SEC);
	rest(100 * MS);
	ugds_fault_clear(f->c, id);
	n = harvest(f, b, 1000, &o);
	ok(n == 1000 && o.of[UGDS_DONE] && o.of[UGDS_NEVER_SENT] &&
		   o.of[UGDS_DONE] + o.of[UGDS_NEVER_SENT] == 1000,
	   "patience: %u done, %u never sent", o.of[UGDS_DONE], o.of[UGDS_NEVER_SENT]);
	ok(!stats(f).aborts && !aborts_seen(f), "patience: no Abort");
	ok(!ugds_batch_free(b), "patience: the batch is free");
}

/* A device that keeps all of them: Aborts come after the grace, two at a time, and never in a burst. */
static void no_storm(struct fixture *f)
{
	struct ugds_batch *b;
	struct outcomes o = { 0 };
	int id = hold(f, 0), slow;
	uint64_t began, before, most = 0;
	uint32_t n;

	slow = fault(f, UGDS_FAULT_HOLD, 0, ABORT, 0);
	ugds_batch_new(f->ch, 1000, &b);
	submit(f, b, 0, 1000);
	before = stats(f).aborts;
	sent(f);
	ugds_batch_cancel(b, 600 * MS);
	rest(100 * MS);
	ok(stats(f).aborts == before, "no storm: none within the grace");
	n = harvest(f, b, 1000, &o);
	ok(n == 1000 && o.of[UGDS_UNKNOWN] && o.of[UGDS_NEVER_SENT] &&
		   o.of[UGDS_UNKNOWN] + o.of[UGDS_NEVER_SENT] == 1000 && o.canceled == 1000,
	   "no storm: %u never sent, %u unknown", o.of[UGDS_NEVER_SENT], o.of[UGDS_UNKNOWN]);
	ok(stats(f).cancels >= o.of[UGDS_UNKNOWN], "no storm: each that was given up is counted");
	ok(!ugds_batch_pending(b) && ugds_batch_held(b) == o.of[UGDS_UNKNOWN],
	   "no storm: nothing is pending, %u places are held", ugds_batch_held(b));
	ok(ugds_batch_free(b) == -EBUSY, "no storm: the batch is busy");
	for (int i = 0; i < 1000 && stats(f).aborts - before < ACL + 1; i++)
		rest(10 * MS);
	rest(300 * MS);
	ok(stats(f).aborts - before == ACL + 1, "no storm: %llu Aborts at a time",
	   (unsigned long long)(stats(f).aborts - before));
	ugds_fault_clear(f->c, slow);
	began = now();
	before = stats(f).aborts;
	for (int i = 0; i < 50 || (i < 1000 && stats(f).aborts - before <= ACL + 1); i++) {
		uint64_t seen = stats(f).aborts, rounds = (now() - began) / (40 * MS) + 2;

		rest(10 * MS);
		if (seen - before > rounds * (ACL + 1))
			most = seen - before;
	}
	ok(!most && stats(f).aborts - before > ACL + 1, "no storm: %llu in half a second",
	   (unsigned long long)(stats(f).aborts - before));
	ok(stats(f).aborts - aborts_seen(f) <= ACL + 1, "no storm: the device has seen as many");
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "no storm: the quarantine ends");
	ok(!ugds_batch_held(b) && !ugds_batch_free(b), "no storm: the batch is free");
}

/* One that is not asked to end for good: other commands of the pair are untouched. */
static void all_of_a_split(struct fixture *f)
{
	int id = hold(f, 0);
	int64_t r = ugds_rw(f->ch, f->ns, f->map, 0, 8 << 17, 0, UGDS_OP_READ); /* eight commands */
	struct ugds_completion done;
	uint64_t before = stats(f).aborts;

	sent(f);
	ugds_cancel(f->ch, (uint64_t)(r - UGDS_PENDING), 10 * MS);
	ok(ugds_wait(f->ch, &done, 1, 5 * SEC) == 1 && done.result == -ECANCELED, "split: given up");
	ok(becomes_free(f) && stats(f).aborts - before == 8, "split: each command is aborted once");
	ugds_fault_clear(f->c, id);
}

static void refused(struct fixture *f)
{
	int id = hold(f, 0), no = fault(f, UGDS_FAULT_ABORT_REFUSED, 0, ABORT, 0);
	struct ugds_batch *b;
	struct outcomes o = { 0 };
	uint64_t before = stats(f).aborts;

	ugds_batch_new(f->ch, 64, &b);
	submit(f, b, 0, 64);
	sent(f);
	ugds_batch_cancel(b, 10 * MS);
	harvest(f, b, 64, &o);
	for (int i = 0; i < 1000 && stats(f).aborts - before < ACL + 1; i++)
		rest(10 * MS);
	rest(400 * MS);
	ok(stats(f).aborts - before == ACL + 1, "refused: a controller that cannot is not pestered");
	ugds_fault_clear(f->c, no);
	ok(ugds_fault_clear(f->c, id) >= 0 && becomes_free(f), "refused: the completions end it");
	ok(!ugds_batch_free(b), "refused: the batch is free");
}

static void clocks_of_a_batch(struct fixture *f)
{
	struct ugds_batch *b;
	struct outcomes o = { 0 };
	uint64_t timeouts = stats(f).timeouts;
	struct stopwatch w;
	int id;

	ugds_batch_new(f->ch, 64, &b);
	submit(f, b, 0, 8);
	ugds_batch_deadline(b, 500 * MS);
	ok(harvest(f, b, 8, &o) == 8 && o.of[UGDS_DONE] == 8, "batch: in time");
	id = hold(f, 0);
	submit(f, b, 8, 8);
	rest(700 * MS);
	ok(ugds_batch_ready(b) == 0 && stats(f).timeouts == timeouts,
	   "batch: the deadline of what has ended is not that of the next");
	ugds_batch_deadline(b, 200 * MS);
	ugds_batch_deadline(b, 0);
	rest(400 * MS);
	ok(ugds_batch_ready(b) == 0, "batch: a deadline can be taken back");
	w = stopwatch_start();
	for (int i = 0; i < 15; i++) {
		ugds_batch_cancel(b, 600 * MS);
		rest(30 * MS);
	}
	submit(f, b, 16, 4);
	o = (struct outcomes){ 0 };
	ok(harvest(f, b, 8, &o) == 8 && o.canceled == 8 && stopwatch_elapsed(&w) >= 600 * MS &&
		   stopwatch_ours(&w) < 1000 * MS, /* from the last one on it would be 1020 */
	   "batch: cancelled again, it gets no more time: %.0f ms",
	   (double)stopwatch_elapsed(&w) / (double)MS);
	rest(300 * MS);
	ok(ugds_batch_pending(b) == 4 && ugds_batch_ready(b) == 0, "batch: what came later goes on");
	ugds_fault_clear(f->c, id);
	o = (struct outcomes){ 0 };
	ok(harvest(f, b, 4, &o) == 4 && o.of[UGDS_DONE] == 4, "batch: and ends well");
	ok(becomes_free(f) && !ugds_batch_free(b), "batch: all is given back");
}

/* The device has answered and nobody looked: that is done, however late it is collected. */
static void done_not_collected(struct fixture *f)
{
	struct ugds_fault slow = { .action = UGDS_FAULT_DELAY,
				   .qid = UGDS_FAULT_ANY,
				   .opcode = UGDS_OP_READ,
				   .nsid = UGDS_FAULT_ANY,
				   .delay_ns = 5 * MS };
	int id = ugds_fault_add(f->c, &slow);
	int64_t r = ugds_rw(f->ch, f->ns, f->map, 0, 1 << 17, 0, UGDS_OP_READ);
	struct ugds_ctrl_stats st = stats(f);
	struct ugds_completion done;

	ok(r >= UGDS_PENDING, "collected late: in flight");
	ugds_op_deadline(f->ch, (uint64_t)(r - UGDS_PENDING), 300 * MS);
	rest(500 * MS);
	ok(ugds_wait(f->ch, &done, 1, SEC) == 1 && done.result == 1 << 17, "collected late: done");
	ok(stats(f).timeouts == st.timeouts && !stats(f).quarantined, "collected late: no time-out");
	ugds_fault_clear(f->c, id);
}

/* After an idle second housekeeping looks once a second, but a deadline it does not miss. */
static void lost_after_idle(uint32_t mode)
{
	struct ugds_completion done = { 0 };
	struct stopwatch w = { 0 };
	bool found = false;
	struct fixture f;
	int64_t r;

	fixture_defaults(&f);
	f.emu.latency_ns = 20 * MS;
	if (!ok(fixture_open(&f, mode), "lost interrupt: open"))
		return;
	/* not if the owner slept only after the completion was there, or the device was later than the deadline */
	for (int i = 0; i < 5 && !found; i++) {
		struct ugds_ctrl_stats st;

		rest(1300 * MS);
		st = stats(&f);
		fault(&f, UGDS_FAULT_LOSE_INTERRUPT, UGDS_FAULT_ANY, UGDS_OP_READ, 0);
		w = stopwatch_start();
		r = ugds_rw(f.ch, f.ns, f.map, 0, 4096, 0, UGDS_OP_READ);
		if (!ok(r >= UGDS_PENDING, "lost interrupt: in flight"))
			break;
		/* well before the next look */
		ugds_op_deadline(f.ch, (uint64_t)(r - UGDS_PENDING), 300 * MS);
		found = ugds_wait(f.ch, &done, 1, 5 * SEC) == 1 && done.result == 4096 &&
			stats(&f).stragglers - st.stragglers == 1 && stats(&f).timeouts == st.timeouts;
	}
	ok(found && stopwatch_ours(&w) < 600 * MS, "lost interrupt: found at the deadline, %.1f ms",
	   (double)stopwatch_elapsed(&w) / (double)MS);
	ok(becomes_free(&f), "lost interrupt: nothing is left");
	ok(fixture_close(&f), "lost interrupt: all given back");
}

static void stale(struct fixture *f)
{
	struct ugds_completion done, last = { .token = 1 };
	uint64_t map, other, tokens[2], bt;
	struct ugds_batch *b;
	int64_t r;
	int id;

	ugds_map(f->c, f->buf, 8192, 0, &map);
	ok(!ugds_unmap(f->c, map) && ugds_unmap(f->c, map) == -ESTALE, "stale mapping: unmapped once");
	ok(!ugds_map(f->c, f->buf, 8192, 0, &other) && (uint32_t)other == (uint32_t)map && other != map,
	   "stale mapping: its place is another's");
	ok(ugds_rw(f->ch, f->ns, map, 0, 4096, 0, UGDS_OP_READ) == -ESTALE, "stale mapping: no I/O");
	ok(ugds_map_inflight(f->c, map) == -ESTALE && ugds_unmap(f->c, map) == -ESTALE &&
		   ugds_map_inflight(f->c, other) == 0,
	   "stale mapping: the other is not touched");
	ok(ugds_unmap(f->c, 0) == -ESTALE && ugds_unmap(f->c, UINT64_MAX) == -ESTALE &&
		   ugds_rw(f->ch, f->ns, UINT64_MAX, 0, 4096, 0, UGDS_OP_READ) == -ESTALE,
	   "stale mapping: neither is nonsense");
	ok(!ugds_unmap(f->c, other), "stale mapping: the other is unmapped");

	id = hold(f, 0);
	r = ugds_rw(f->ch, f->ns, f->map, 0, 4096, 0, UGDS_OP_READ);
	ok(ugds_chan_tokens(f->ch, tokens, 2) == 1 && tokens[0] == (uint64_t)(r - UGDS_PENDING),
	   "tokens: what is in flight is known");
	ok(ugds_chan_close(f->ch) == -EBUSY && ugds_ns_close(f->ns) == -EBUSY &&
		   ugds_ctrl_close(f->c, 0) == -EBUSY && ugds_unmap(f->c, f->map) == -EBUSY,
	   "busy: nothing is let go");
	ugds_fault_clear(f->c, id);
	ok(ugds_wait(f->ch, &done, 1, SEC) == 1 && done.result == 4096, "busy: and nothing changed");
	ok(!ugds_chan_tokens(f->ch, tokens, 2), "tokens: none once it was reported");
	ugds_op_deadline(f->ch, done.token, 1);
	ok(!ugds_cancel(f->ch, done.token, 0) && !ugds_cancel(f->ch, UINT64_MAX, 0),
	   "stale operation: nothing");

	ugds_batch_new(f->ch, 4, &b);
	bt = ugds_batch_token(b);
	ok(!ugds_cancel(f->ch, bt, 0), "a batch's token is no operation's");
	ok(!ugds_batch_free(b) && !ugds_cancel(f->ch, bt, 0), "stale batch: nothing");

	id = fault(f, UGDS_FAULT_STATUS, UGDS_FAULT_ANY, UGDS_OP_READ, 0);
	ugds_fault_clear(f->c, id);
	ugds_chan_last(f->ch, &last);
	ugds_chan_last(f->ch, &last);
	ok(!last.token, "last: taken once");
	ok(ugds_rw(f->ch, f->ns, f->map, 0, 4096, 1, UGDS_OP_READ) == -EINVAL, "last: a refusal");
	ugds_chan_last(f->ch, &last);
	ok(!last.token, "last: is no operation that ended");
}

int main(void)
{
	static const uint32_t modes[] = { UGDS_MODE_ADAPTIVE, UGDS_MODE_INTERRUPT, UGDS_MODE_POLL };

	for (uint32_t i = 0; i < 3; i++) {
		struct fixture f;

		fixture_defaults(&f);
		f.emu.acl = ACL;
		printf("# mode %u\n", modes[i]);
		if (!ok(fixture_open(&f, modes[i]), "open"))
			return done_testing();
		patience(&f);
		no_storm(&f);
		all_of_a_split(&f);
		refused(&f);
		clocks_of_a_batch(&f);
		done_not_collected(&f);
		stale(&f);
		ok(fixture_close(&f), "all given back");
		lost_after_idle(modes[i]);
	}
	return done_testing();
}
