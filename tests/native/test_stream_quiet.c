/* SPDX-License-Identifier: MIT */
/*
 * Reads that were over before their stream was told of them: no word is written behind their copies, so somebody has to
 * find out. Streams that hold all of the GPU's connections keep the copies from being made.
 */
#include "stream_rig.h"

struct hold {
	struct fake_stream *fs[FAKE_CONNECTIONS];
	_Atomic bool go;
};

static _Atomic uint32_t nr_holding;

static void hold_until(void *arg)
{
	atomic_fetch_add(&nr_holding, 1);
	fake_gate(arg);
}

static void hold(struct hold *h)
{
	atomic_store(&nr_holding, 0);
	atomic_store(&h->go, false);
	for (int i = 0; i < FAKE_CONNECTIONS; i++) {
		h->fs[i] = fake_stream_new();
		fake_kernel(h->fs[i], hold_until, (void *)&h->go);
	}
	while (atomic_load(&nr_holding) < FAKE_CONNECTIONS)
		fake_rest(MS);
}

static void let_go(struct hold *h)
{
	atomic_store(&h->go, true);
	for (int i = 0; i < FAKE_CONNECTIONS; i++)
		fake_stream_free(h->fs[i]);
}

/* As the namespace is. */
static bool blank(const uint8_t *p, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static uint64_t early(struct rig *r, struct gated g, uint64_t at)
{
	return put(r, g, item(r, UGDS_OP_READ, at, 4 * KIB, at));
}

static bool told(struct rig *r, uint64_t token)
{
	struct ugds_stream_result res;
	struct pollfd pfd = { .fd = ugds_sink_fd(r->sink), .events = POLLIN };

	for (int i = 0; i < 20 && poll(&pfd, 1, 1000) >= 0; i++)
		if (ugds_sink_reap(r->sink, &res, 1) == 1)
			return res.token == token && res.result == 4 * (int64_t)KIB && res.over;
	return false;
}

static bool silent(struct rig *r)
{
	struct pollfd pfd = { .fd = ugds_sink_fd(r->sink), .events = POLLIN };

	return !poll(&pfd, 1, 50);
}

/* What it used stays in use until its copy was made, whoever asks. */
static void until_it_is_copied(struct rig *r)
{
	struct gated g = gated_open(r);
	struct ugds_stream_info a, b;
	struct hold h;
	uint64_t token;

	over(g, early(r, g, 0)); /* makes what a first one makes */
	ugds_stream_info(g.s, &a);
	hold(&h);
	memset(r->gpu, 0xee, 4 * KIB);
	token = early(r, g, 0);
	ugds_stream_info(g.s, &b);
	ok(b.gpu_calls - a.gpu_calls == 4, "four calls: captured? idle? the copy, the event");
	ok(b.waiting == 1 && state(g, token) == UGDS_SOP_RUNNING && !is_over(g, token) && r->gpu[0] == 0xee,
	   "read, but not copied: it is not over");
	ok(ugds_stream_close(g.s, 0) == -EBUSY && ugds_stream_close(g.s, 1) == -EBUSY &&
		   ugds_unmap(r->f.c, r->f.map) == -EBUSY,
	   "nor is its stream closed, or its memory given back");
	let_go(&h);
	ok(over(g, token).state == UGDS_SOP_DONE && blank(r->gpu, 4 * KIB), "then it is");
	ok(gated_close(g), "closed");
}

/* Nobody asks: it is found out all the same, with the first that is watched. */
static void some_time(struct rig *r)
{
	struct gated g = gated_open(r);
	struct hold h;
	uint64_t a, b;

	hold(&h);
	a = early(r, g, 0);
	ok(ugds_stream_watch(g.s, a, r->sink, 1) == 0 && silent(r), "watched, while it is not copied");
	let_go(&h);
	ok(told(r, a), "its end is told");
	hold(&h);
	a = early(r, g, 0);
	ugds_stream_watch(g.s, a, r->sink, 1);
	/* the stream is not idle: one that is let wait in it */
	b = early(r, g, 4 * KIB);
	let_go(&h);
	ok(told(r, a), "also when the next one is behind it");
	ok(over(g, b).state == UGDS_SOP_DONE && is_over(g, a), "which is over too");
	ok(gated_close(g), "closed");
}

/* What whoever enqueues is told, and that nothing is left behind of those that nobody looks at. */
static void one_after_another(struct rig *r)
{
	struct ugds_stream_info info = { .waiting = 1 };
	struct gated g = gated_open(r);
	uint64_t gpu = (uint64_t)(uintptr_t)r->gpu, end = rig_now() + 20 * SEC;
	struct ugds_stream_started st;
	uint32_t quiet = 0;

	for (int i = 0; i < 200; i++) {
		quiet += ugds_stream_rw(g.s, r->f.ns, r->f.map, 0, 4 * KIB, 0, gpu, UGDS_OP_READ, &st) == 1;
		while (fake_query((uint64_t)(uintptr_t)g.fs) == GPU_NOT_READY)
			sched_yield();
		ugds_stream_release(g.s, st.token);
	}
	ok(quiet > 100, "%u of 200 reads were over before the stream was told", quiet);
	for (; info.waiting && rig_now() < end; fake_rest(MS))
		ugds_stream_info(g.s, &info);
	ok(!info.waiting && !info.held, "nothing is left of them");
	ok(gated_close(g), "closed");
}

/* Somebody waits: as soon as it was copied. */
static void at_once(struct rig *r)
{
	struct gated g = gated_open(r);
	struct hold h;
	uint64_t token;

	hold(&h);
	token = early(r, g, 0);
	ok(!ugds_sink_spin(r->sink, g.s, token), "who waits looks for a while");
	ok(ugds_stream_watch(g.s, token, r->sink, 0) == 0 && silent(r), "and is told later");
	let_go(&h);
	ok(told(r, token), "when it is over");
	token = early(r, g, 0);
	while (fake_query((uint64_t)(uintptr_t)g.fs) == GPU_NOT_READY)
		fake_rest(MS);
	ugds_stream_watch(g.s, token, r->sink, 0);
	{
		struct pollfd pfd = { .fd = ugds_sink_fd(r->sink), .events = POLLIN };

		ok(poll(&pfd, 1, 0) == 1 && told(r, token),
		   "what is copied by then is told of inside the call");
	}
	ok(gated_close(g), "closed");
}

/* The next ones, in the stream's order. */
static void in_order(struct rig *r)
{
	struct gated g = gated_open(r);
	uint64_t token[3];
	_Atomic bool go = false;
	struct hold h;
	bool good = true;

	for (int round = 0; round < 200; round++) {
		bool held = round % 8 == 0;

		if (held)
			hold(&h);
		memset(r->gpu, 0xee, 12 * KIB);
		token[0] = early(r, g, 0);
		if (round % 3 == 0) {
			atomic_store(&go, false);
			fake_kernel(g.fs, fake_gate, (void *)&go);
		}
		token[1] = early(r, g, 4 * KIB);
		token[2] = early(r, g, 8 * KIB);
		if (held)
			let_go(&h);
		atomic_store(&go, true);
		good &= over(g, token[2]).state == UGDS_SOP_DONE && is_over(g, token[1]) &&
			is_over(g, token[0]) && blank(r->gpu, 12 * KIB);
		for (int i = 0; i < 3; i++)
			ugds_stream_release(g.s, token[i]);
	}
	ok(good, "each is there when the last one is");
	ok(gated_close(g), "closed");
}

/* The stream comes to the next one: that needs no answer of the runtime. */
static void behind_it(struct rig *r)
{
	struct gated g = gated_open(r);
	_Atomic bool go = false;
	uint64_t token;

	early(r, g, 0);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	token = put(r, g, item(r, UGDS_OP_READ | UGDS_F_NOSPIN, 4 * KIB, 4 * KIB, 0));
	atomic_store(&fake.stuck, true);
	atomic_store(&go, true);
	ok(ended(r, g, token).result == 4 * (int64_t)KIB, "the next one begins without anybody asking");
	atomic_store(&fake.stuck, false);
	ok(gated_close(g), "closed");
}

/* The context is lost before the copy is made. */
static void lost(bool ids)
{
	struct ugds_stream_result res;
	struct gated g;
	struct rig r;
	struct hold h;
	uint64_t token;

	rig_begin(&r, false, "lost");
	atomic_store(&fake.ids, ids);
	g = gated_open(&r);
	hold(&h);
	token = early(&r, g, 0);
	ugds_stream_watch(g.s, token, r.sink, 1);
	atomic_store(&fake.lost, true);
	res = over(g, token);
	ok(res.state == UGDS_SOP_FAILED && res.result == -EIO && res.gpu_code == FAKE_LOST,
	   "it fails as the GPU did");
	let_go(&h);
	ok(gated_close(g), "closed");
	ok(rig_close(&r), "given back");
}

/* With ids of streams one that is idle is taken at its word, without only events are. */
static void all(bool ids)
{
	struct rig r;

	if (!rig_begin(&r, false, ids ? "streams have ids" : "streams have none"))
		return;
	atomic_store(&fake.ids, ids);
	until_it_is_copied(&r);
	some_time(&r);
	one_after_another(&r);
	at_once(&r);
	in_order(&r);
	behind_it(&r);
	ok(rig_close(&r), "given back");
	lost(ids);
}

int main(void)
{
	all(true);
	all(false);
	return done_testing();
}
