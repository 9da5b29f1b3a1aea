/* SPDX-License-Identifier: MIT */
/* How much awake the executor is, as operations want it. */
#include "include/ugds_plan.h"
#include "stream_rig.h"

static bool asleep(struct rig *r) { return atomic_load(&sink_exec((struct stream_sink *)r->sink)->word); }

static bool falls_asleep(struct rig *r)
{
	for (int i = 0; i < 5000 && !asleep(r); i++)
		fake_rest(MS);
	return asleep(r);
}

static bool stays_awake(struct rig *r)
{
	for (int i = 0; i < 100; i++, fake_rest(MS / 2))
		if (asleep(r))
			return false;
	return true;
}

static void after_an_end(bool direct)
{
	struct rig r;
	struct gated g;

	rig_begin(&r, direct, "after an end");
	r.p.spin_ns = 100 * (int64_t)SEC;
	g = gated_open(&r);
	over(g, put(&r, g, item(&r, UGDS_OP_READ | UGDS_F_NOSPIN, 0, 4 * KIB, 0)));
	ok(falls_asleep(&r), "who waits asleep does not keep it awake");
	over(g, put(&r, g, item(&r, UGDS_OP_WRITE, 0, 4 * KIB, 0)));
	ok(stays_awake(&r), "others do, for as long as it is told");
	over(g, put(&r, g, item(&r, UGDS_OP_READ | UGDS_F_NOSPIN, 0, 4 * KIB, 0)));
	ok(falls_asleep(&r), "the last one counts");
	ok(gated_close(g) && rig_close(&r), "given back");
}

static void behind_a_kernel(bool direct)
{
	struct rig r;
	struct gated g, h;
	_Atomic bool go = false;
	uint64_t a, b;
	bool awake = false;

	rig_begin(&r, direct, "behind a kernel");
	r.p.spin_ns = 1000;
	g = gated_open(&r);
	h = gated_open(&r);
	fake_kernel(g.fs, fake_gate, &go);
	fake_kernel(h.fs, fake_gate, &go);
	a = put(&r, g, item(&r, UGDS_OP_READ, 0, 4 * KIB, 0));
	ok(falls_asleep(&r), "it naps while a kernel runs");
	b = put(&r, h, item(&r, UGDS_OP_READ | UGDS_F_POLL, 4 * KIB, 4 * KIB, 0));
	for (int i = 0; i < 100 && !awake; i++) /* it may be about to nap, and then it sees the new one */
		awake = stays_awake(&r);
	ok(awake, "not if one of them wants it to look all the time");
	atomic_store(&go, true);
	ok(over(g, a).result == 4 * (int64_t)KIB && over(h, b).result == 4 * (int64_t)KIB, "both are read");
	ok(falls_asleep(&r), "then it sleeps");
	ok(gated_close(g) && gated_close(h) && rig_close(&r), "given back");
}

/* What a plan says of one operation: how long it is looked for, and the size of its commands. */
static void as_planned(bool direct)
{
	const uint64_t never = 1ull << UGDS_SPIN_SHIFT, long_ = (UGDS_SPIN_MOST + 1ull) << UGDS_SPIN_SHIFT;
	struct stream_op *op;
	struct stream *s;
	struct rig r;
	struct gated g;
	uint64_t token;

	rig_begin(&r, direct, "as planned");
	r.p.spin_ns = 100 * (int64_t)SEC;
	g = gated_open(&r);
	s = (struct stream *)(void *)g.s;
	over(g, put(&r, g, item(&r, UGDS_OP_READ | never, 0, 4 * KIB, 0)));
	ok(stream_patience(s) == 0 && falls_asleep(&r), "nobody looks for what says so");
	token = put(&r, g, item(&r, UGDS_OP_READ | long_, 0, 4 * KIB, 0));
	op = stream_op_find(s, token);
	ok(op && op->spin_ns == (int64_t)UGDS_SPIN_MOST * 1000, "another says how long");
	over(g, token);
	ok(stream_patience(s) == (int64_t)UGDS_SPIN_MOST * 1000 && falls_asleep(&r),
	   "for that long it is looked for, and not for longer");
	ok(gated_close(g) && rig_close(&r), "given back");
}

int main(void)
{
	for (int direct = 0; direct < 2; direct++) {
		after_an_end(direct);
		behind_a_kernel(direct);
		as_planned(direct);
	}
	return done_testing();
}
