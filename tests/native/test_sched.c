/* SPDX-License-Identifier: MIT */
/* Scheduling: what is at the device while commands are held there, and in which order operations end. */
#include <time.h>

#include "support/util.h"
#include "ugds_fixture.h"

#define CHUNK (128u << 10) /* MDTS of the fixture, and the chunk asked for */
#define LARGE (16ull << 20)
#define LISTS 32 /* commands of the general pair that need a list */
#define HURRY_NS \
	(40 * NSEC_PER_MSEC) /* less than somebody is in a hurry for; a busy machine may take longer */
#define SMALL_AT (LARGE + 4096)
#define WRITE_AT (BUF_BYTES - LARGE) /* beside a large read, which fills what is before it */

static bool start(struct fixture *f, void (*change)(struct fixture *f))
{
	fixture_defaults(f);
	f->open.chunk = CHUNK;
	f->open.spin_ns = 0;
	f->open.bulk_bytes = 2 << 20;
	f->open.background_bytes = 1 << 20;
	if (change)
		change(f);
	return fixture_open(f, UGDS_MODE_INTERRUPT);
}

static int hold(struct fixture *f, uint32_t opcode, uint64_t offset, uint64_t nbytes)
{
	struct ugds_fault h = { .action = UGDS_FAULT_HOLD,
				.qid = UGDS_FAULT_ANY_IO,
				.opcode = opcode,
				.nsid = UGDS_FAULT_ANY,
				.slba = offset / 4096,
				.nlb = nbytes / 4096 };

	return ugds_fault_add(f->c, &h);
}

/* Commands that the hold has; a moment is given to those on their way. */
static int64_t held(struct fixture *f, int id)
{
	int64_t n = -1;

	for (int quiet = 0; quiet < 50; quiet++) {
		struct timespec ms = { .tv_nsec = 2000000 };
		int64_t now = ugds_fault_hits(f->c, id);

		quiet = now == n ? quiet : 0;
		n = now;
		nanosleep(&ms, NULL);
	}
	return n;
}

static uint64_t begin(struct fixture *f, uint32_t op, uint64_t buf_off, uint64_t nbytes, uint64_t offset)
{
	int64_t r = ugds_rw(f->ch, f->ns, f->map, buf_off, nbytes, offset, op);

	if (r < UGDS_PENDING)
		printf("# answered %lld\n", (long long)r);
	return r < UGDS_PENDING ? 0 : (uint64_t)(r - UGDS_PENDING);
}

/* Collect until @n have ended; their tokens in order. False: an error, or it took too long. */
static bool ends(struct fixture *f, uint64_t *tokens, int n)
{
	struct ugds_completion done[8];
	bool well = true;

	for (int got = 0; got < n;) {
		int k = ugds_wait(f->ch, done, 1, 10 * SEC);

		if (k <= 0)
			return false;
		tokens[got++] = done[0].token;
		well &= done[0].result > 0;
	}
	return well;
}

static void whole_fifo(struct fixture *f) { f->open.flags |= UGDS_OPEN_FIFO; }

/* A large read is held; what is asked for behind it goes on, in class order and first in, first out. */
static void small_behind_large(bool fifo)
{
	struct fixture f;
	uint64_t large, small, first[2];
	int id;

	ok(start(&f, fifo ? whole_fifo : NULL), "open (%s)", fifo ? "fifo" : "classes");
	id = hold(&f, UGDS_OP_READ, 0, LARGE);
	large = begin(&f, UGDS_OP_READ, 0, LARGE, 0);
	ok(held(&f, id) == (fifo ? LISTS : 16), "%s of it is at the device",
	   fifo ? "as much as fits" : "2 MiB");
	small = begin(&f, UGDS_OP_READ, SMALL_AT, 4096, LARGE);
	if (fifo) {
		struct ugds_completion done;

		ok(!ugds_wait(f.ch, &done, 1, 20 * MS), "what comes behind it waits for room");
		ugds_fault_clear(f.c, id);
		ok(ends(&f, first, 2), "both end");
	} else {
		ok(ends(&f, first, 1) && first[0] == small, "what comes behind it does not wait");
		ugds_fault_clear(f.c, id);
		ok(ends(&f, first, 1) && first[0] == large, "it ends, too");
	}
	ok(fixture_close(&f), "close");
}

/* Two operations share what may be at the device, a command of either in turn. */
static void takes_turns(void)
{
	struct ugds_completion done[2];
	struct fixture f;
	int first, id;

	ok(start(&f, NULL), "open");
	first = hold(&f, UGDS_OP_WRITE, 0, LARGE);
	id = hold(&f, UGDS_OP_WRITE, LARGE, 4ull << 20);
	begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, LARGE, 0);
	ok(held(&f, first) == 8, "of a background write 1 MiB is at the device");
	begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, LARGE, 4ull << 20, LARGE);
	ok(held(&f, id) == 0, "another one waits until one of its commands is back");
	ugds_fault_clear(f.c, first);
	first = hold(&f, UGDS_OP_WRITE, 0, LARGE);
	for (int i = 0; i < 500 && ugds_fault_hits(f.c, first) + ugds_fault_hits(f.c, id) < 8; i++)
		ok(!ugds_wait(f.ch, done, 2, 20 * MS), "neither is over");
	ok(held(&f, first) == 4 && ugds_fault_hits(f.c, id) == 4, "four each are there now (%d, %d)",
	   (int)ugds_fault_hits(f.c, first), (int)ugds_fault_hits(f.c, id));
	ugds_fault_clear(f.c, id);
	ugds_fault_clear(f.c, first);
	ok(ends(&f, (uint64_t[2]){ 0 }, 2), "both end");
	ok(fixture_close(&f), "close");
}

/* What is in a hurry leaves the others a command or two at the device, and never nothing. */
static void hurry_beside_background(uint32_t class_flag)
{
	uint64_t got[1];
	struct fixture f;
	int64_t n, since;
	int id;

	ok(start(&f, NULL), "open");
	id = hold(&f, UGDS_OP_WRITE, 0, LARGE);
	since = now_ns();
	ok(fixture_run(&f, UGDS_OP_READ | class_flag, SMALL_AT, 4096, LARGE) == 4096, "a small read");
	begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, LARGE, 0);
	since = now_ns() - since;
	n = held(&f, id);
	ok(n >= 1 && (n <= 2 || since > HURRY_NS),
	   "of a background write beside it %d commands are at the device", (int)n);
	ugds_fault_clear(f.c, id);
	for (int i = 0; i < 200; i++)
		fixture_run(&f, UGDS_OP_READ | class_flag, SMALL_AT, 4096, LARGE);
	ok(ugds_chan_inflight(f.ch) == 0 || ends(&f, got, 1), "it ends");
	ok(fixture_close(&f), "close");
}

/* Beside small work of its own class a large read keeps more. */
static void hurry_beside_bulk(uint32_t class_flag)
{
	uint64_t got[1];
	struct fixture f;
	int64_t since;
	int id;

	ok(start(&f, NULL), "open");
	id = hold(&f, UGDS_OP_READ, 0, LARGE);
	since = now_ns();
	fixture_run(&f, UGDS_OP_READ | class_flag, SMALL_AT, 4096, LARGE);
	begin(&f, UGDS_OP_READ, 0, LARGE, 0);
	since = now_ns() - since;
	ok(held(&f, id) == (class_flag ? 2 : 8) || since > HURRY_NS,
	   "of a large read %d commands are at the device", (int)ugds_fault_hits(f.c, id));
	ugds_fault_clear(f.c, id);
	ok(ends(&f, got, 1), "it ends");
	ok(fixture_close(&f), "close");
}

static void much_bulk(struct fixture *f) { f->open.bulk_bytes = LARGE; }

/* Large reads have all that heavy work may have; some is left for the background and for small ones all the same. */
static void nobody_starves(void)
{
	struct fixture f;
	uint64_t got[2];
	int id[2];

	ok(start(&f, much_bulk), "open");
	id[0] = hold(&f, UGDS_OP_READ, 0, LARGE);
	id[1] = hold(&f, UGDS_OP_WRITE, 32ull << 20, LARGE);
	begin(&f, UGDS_OP_READ, 0, LARGE, 0);
	ok(held(&f, id[0]) == LISTS * 3 / 4, "three quarters of what needs a list is of large reads");
	begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, WRITE_AT, LARGE, 32ull << 20);
	ok(held(&f, id[1]) == 1, "a command of a background write is at the device");
	ok(fixture_run(&f, UGDS_OP_READ, SMALL_AT + 4096, 64 << 10, LARGE) == 64 << 10,
	   "a read that needs a list is done");
	ugds_fault_clear(f.c, id[0]);
	ugds_fault_clear(f.c, id[1]);
	ok(ends(&f, got, 2), "both end");
	ok(fixture_close(&f), "close");
}

static void bulk_goes_before_background(void)
{
	struct fixture f;
	uint64_t got[2];
	int id[2];

	ok(start(&f, NULL), "open");
	id[0] = hold(&f, UGDS_OP_READ, 0, LARGE);
	id[1] = hold(&f, UGDS_OP_WRITE, 32ull << 20, LARGE);
	begin(&f, UGDS_OP_READ, 0, LARGE, 0);
	begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, WRITE_AT, LARGE, 32ull << 20);
	ok(held(&f, id[1]) == 2,
	   "beside a large read, two commands of a background write are at the device (%d)",
	   (int)held(&f, id[1]));
	ok(held(&f, id[0]) == 16, "and 2 MiB of the read");
	ugds_fault_clear(f.c, id[0]);
	ok(ends(&f, got, 1), "the read ends");
	ugds_fault_clear(f.c, id[1]);
	ok(ends(&f, got, 1), "and the write");
	ok(fixture_close(&f), "close");
}

/* A batch is of the class of its first request; large items of the normal class are bulk work. */
static void batches(uint32_t class_flag)
{
	struct ugds_req reqs[24];
	struct ugds_completion out[24];
	struct fixture f;
	struct ugds_batch *b;
	uint32_t bad;
	int id, n = 0;

	ok(start(&f, NULL), "open");
	id = hold(&f, UGDS_OP_WRITE, 0, 32ull << 20);
	ok(!ugds_batch_new(f.ch, 24, &b), "a batch");
	for (uint32_t i = 0; i < 24; i++)
		reqs[i] = (struct ugds_req){ .map = f.map,
					     .nbytes = i % 2 ? 1 << 20 : 4096,
					     .offset = (uint64_t)i << 20,
					     .cookie = i,
					     .op = UGDS_OP_WRITE | class_flag };
	ok(ugds_batch_submit(b, f.ns, reqs, 24, &bad) == 0, "submitted");
	if (class_flag & UGDS_F_BACKGROUND)
		ok(held(&f, id) <= 16 + 8, "background: %d commands are at the device", (int)held(&f, id));
	else if (class_flag & UGDS_F_LATENCY)
		ok(held(&f, id) == 5 + LISTS, "latency: as many as fit, in their order (%d)",
		   (int)held(&f, id));
	else
		ok(held(&f, id) == 12 + 16, "normal: the small ones and 2 MiB (%d)", (int)held(&f, id));
	ugds_fault_clear(f.c, id);
	while (n < 24 && (ugds_batch_notify(b, 1) || ugds_wait(f.ch, out, 1, 10 * SEC) == 1))
		n += ugds_batch_harvest(b, out, 24);
	ok(n == 24, "all end");
	ok(!ugds_batch_free(b), "freed");
	ok(fixture_close(&f), "close");
}

/* Cancelled while some of it is at the device and the rest waits: what comes next is not kept back for ever. */
static void cancelled(void)
{
	struct ugds_completion done;
	struct fixture f;
	uint64_t token;
	int id;

	ok(start(&f, NULL), "open");
	id = hold(&f, UGDS_OP_WRITE, 0, LARGE);
	token = begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, LARGE, 0);
	held(&f, id);
	ok(ugds_cancel(f.ch, token, 10 * SEC) == 1, "cancelled");
	ugds_fault_clear(f.c, id);
	ok(ugds_wait(f.ch, &done, 1, 10 * SEC) == 1 && done.result < 0, "it ends");
	ok(fixture_run(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, LARGE, 0) == (int64_t)LARGE,
	   "the next background write is done");
	ok(fixture_close(&f), "close");
}

static void retries(struct fixture *f) { f->open.retries = 3; }

static void failed_and_retried(void)
{
	struct fixture f;
	struct ugds_fault e = { .action = UGDS_FAULT_STATUS,
				.qid = UGDS_FAULT_ANY_IO,
				.opcode = UGDS_OP_WRITE,
				.nsid = UGDS_FAULT_ANY,
				.skip = 5,
				.count = 3,
				.status = 0x281 /* unrecovered read error, may be retried */ };
	int id;

	ok(start(&f, retries), "open");
	id = ugds_fault_add(f.c, &e);
	for (int i = 0; i < 3; i++)
		ok(fixture_run(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, LARGE, 0) == (int64_t)LARGE,
		   "a background write with commands that fail is done");
	ok(ugds_fault_clear(f.c, id) == 3, "three failed");
	id = hold(&f, UGDS_OP_WRITE, 0, LARGE);
	begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, LARGE, 0);
	ok(held(&f, id) == 8, "what is at the device is counted as before");
	ugds_fault_clear(f.c, id);
	uint64_t got[1];
	ok(ends(&f, got, 1), "it ends");
	ok(fixture_close(&f), "close");
}

/* One command at a time is in the device; the rest waits in its queues, where it chooses. */
static void weighted(struct fixture *f)
{
	f->emu.flags |= UGDS_EMU_WRR;
	f->emu.queues = f->open.io_queues = 9;
	f->emu.vectors = 10;
	f->emu.threads = 1;
	f->emu.channels = f->emu.window = 1;
	f->emu.latency_ns = 10000000;
	f->open.wrr_weights = 7 | 15 << 8 | 31 << 16;
	f->open.flags |= UGDS_OPEN_WRR_AUTO;
	f->open.background_bytes = LARGE;
}

static void weighted_not_offered(struct fixture *f)
{
	weighted(f);
	f->emu.flags &= ~(uint32_t)UGDS_EMU_WRR;
}

static uint64_t commands(struct fixture *f)
{
	struct ugds_emu_counters n;

	ugds_emu_counters(f->c, &n);
	return n.commands;
}

static void arbitrated(bool offered)
{
	struct ugds_ctrl_info info;
	struct fixture f;
	uint64_t got[2], before;
	uint64_t large, small;

	ok(start(&f, offered ? weighted : weighted_not_offered), "open");
	ugds_ctrl_info(f.c, &info);
	ok(!!(info.caps & UGDS_CAP_WRR) == offered && info.class_queues == offered,
	   "weighted round robin is %s", offered ? "in force, with pairs for the classes" : "not offered");
	large = begin(&f, UGDS_OP_WRITE | UGDS_F_BACKGROUND, 0, 2 << 20, 0);
	before = commands(&f);
	small = begin(&f, UGDS_OP_READ | UGDS_F_LATENCY, SMALL_AT, 4096, LARGE);
	ok(large && small && ends(&f, got, offered ? 1 : 2), "what is urgent ends");
	before = commands(&f) - before;
	ok(offered ? before <= 6 : before >= 10, "after %d of 16 commands that had come before it",
	   (int)before - 1);
	ok(!offered || (got[0] == small && ends(&f, got, 1) && got[0] == large), "the rest follows");
	ok(fixture_close(&f), "close");
}

int main(void)
{
	arbitrated(true);
	arbitrated(false);
	small_behind_large(false);
	small_behind_large(true);
	takes_turns();
	hurry_beside_background(0);
	hurry_beside_background(UGDS_F_LATENCY);
	hurry_beside_bulk(0);
	hurry_beside_bulk(UGDS_F_LATENCY);
	nobody_starves();
	bulk_goes_before_background();
	batches(0);
	batches(UGDS_F_LATENCY);
	batches(UGDS_F_BACKGROUND);
	cancelled();
	failed_and_retried();
	return done_testing();
}
