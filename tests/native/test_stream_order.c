/* SPDX-License-Identifier: MIT */
/* Transfers in stream order that succeed: what moves, in which order, at which cost, and how many streams may wait. */
#include <sched.h>

#include "stopwatch.h"
#include "stream_rig.h"

static bool read_back(struct rig *r, uint64_t offset, uint64_t nbytes, uint64_t seed)
{
	uint8_t *host = r->f.buf + 20 * KIB * KIB;

	return fixture_run(&r->f, UGDS_OP_READ, 20 * KIB * KIB, nbytes, offset) == (int64_t)nbytes &&
	       filled(host, nbytes, seed);
}

static void write_read(struct rig *r, uint64_t nbytes)
{
	struct gated g = gated_open(r);
	struct ugds_stream_result w, d;
	uint64_t a, b;

	fill(r->gpu, nbytes, nbytes);
	a = put(r, g, item(r, UGDS_OP_WRITE, 0, nbytes, 8192));
	b = put(r, g, item(r, UGDS_OP_READ, 8 * KIB * KIB, nbytes, 8192));
	w = ended(r, g, a);
	d = ended(r, g, b);
	ok(w.result == (int64_t)nbytes && w.state == UGDS_SOP_DONE && d.result == (int64_t)nbytes && d.over,
	   "%llu bytes are written and read in the stream's order", (unsigned long long)nbytes);
	ok(filled(r->gpu + 8 * KIB * KIB, nbytes, nbytes) && read_back(r, 8192, nbytes, nbytes),
	   "the bytes are those");
	ok(gated_close(g), "the stream is closed");
}

struct bytes_kernel {
	uint8_t *p;
	uint64_t n, seed;
	bool good;
};

static void k_fill(void *arg)
{
	struct bytes_kernel *k = arg;

	fake_rest(2 * MS);
	fill(k->p, k->n, k->seed);
}

static void k_check(void *arg)
{
	struct bytes_kernel *k = arg;

	k->good = filled(k->p, k->n, k->seed);
	memset(k->p, 0xee, k->n);
}

/* A kernel makes the data, a write takes it; a read brings it, a kernel uses it and overwrites the target. */
static void between_kernels(struct rig *r)
{
	struct gated g = gated_open(r);
	struct bytes_kernel make = { r->gpu, 256 * KIB, 5, false };
	struct bytes_kernel use = { r->gpu + 4 * KIB * KIB, 256 * KIB, 5, false };
	uint64_t a, b;

	memset(r->gpu, 0, make.n);
	fake_kernel(g.fs, k_fill, &make);
	a = put(r, g, item(r, UGDS_OP_WRITE, 0, make.n, 0));
	b = put(r, g, item(r, UGDS_OP_READ, 4 * KIB * KIB, make.n, 0));
	fake_kernel(g.fs, k_check, &use);
	ended(r, g, a);
	ended(r, g, b);
	fake_sync(g.fs, 10 * SEC);
	ok(use.good, "the kernel behind a read sees what the kernel before the write made");
	ok(gated_close(g), "closed");
}

static void sets(struct rig *r)
{
	struct gated g = gated_open(r);
	struct ugds_stream_item it[40];
	struct ugds_stream_result res;
	struct ugds_stream_info a, b;
	bool good = true;
	uint32_t memops;
	uint64_t token;
	int rc;

	for (uint32_t i = 0; i < 40; i++) {
		fill(r->gpu + i * 8 * KIB, 8 * KIB, i);
		it[i] = item(r, UGDS_OP_WRITE, i * 8 * KIB, 8 * KIB, (39 - i) * 8 * KIB);
	}
	token = put_with(r, g, it, 40, NULL, &rc);
	res = ended(r, g, token);
	ok(res.result == 320 * (int64_t)KIB, "a set of 40 writes ends as one: %lld", (long long)res.result);
	for (uint32_t i = 0; i < 40; i++)
		it[i] = item(r, UGDS_OP_READ, 4 * KIB * KIB + i * 16 * KIB, 8 * KIB, i * 8 * KIB);
	ugds_stream_info(g.s, &a);
	memops = atomic_load(&fake.nr_memops);
	token = put_with(r, g, it, 40, NULL, &rc);
	ugds_stream_info(g.s, &b);
	res = ended(r, g, token);
	for (uint32_t i = 0; i < 40; i++)
		good &= filled(r->gpu + 4 * KIB * KIB + i * 16 * KIB, 8 * KIB, 39 - i);
	ok(res.result == 320 * (int64_t)KIB && good, "and so does a set of 40 reads, to 40 places");
	memops = atomic_load(&fake.nr_memops) - memops;
	/* a wait for the first, one for the three behind it, or two where the ring ends there, one for the last, and passed */
	ok(b.chunks - a.chunks == (r->direct ? 1 : 5) &&
		   (r->direct ? memops == 1 : memops == 4 || memops == 5),
	   "%llu word pairs, %u calls for words", (unsigned long long)(b.chunks - a.chunks), memops);
	ok(gated_close(g), "closed");
}

struct cells_kernel {
	uint64_t *offset, *nbytes;
	uint64_t o, n;
};

static void k_cells(void *arg)
{
	struct cells_kernel *k = arg;

	fake_rest(MS);
	*k->offset = k->o;
	*k->nbytes = k->n;
}

static void late_bound(struct rig *r)
{
	struct gated g = gated_open(r);
	uint64_t cells[2] = { 1, 1 };
	struct cells_kernel k = { &cells[0], &cells[1], 64 * KIB, 100 * KIB };
	struct ugds_stream_item it = item(r, UGDS_OP_WRITE, 0, 200 * KIB, 0);
	struct ugds_stream_result res;
	uint64_t token;

	it.offset_cell = &cells[0];
	it.nbytes_cell = &cells[1];
	fill(r->gpu, 200 * KIB, 77);
	fake_kernel(g.fs, k_cells, &k);
	token = put(r, g, it);
	res = ended(r, g, token);
	ok(res.result == 100 * (int64_t)KIB && read_back(r, 64 * KIB, 100 * KIB, 77) &&
		   !read_back(r, 164 * KIB, 4 * KIB, 77 + 100 * KIB),
	   "a write whose place and size a kernel decided");

	it = item(r, UGDS_OP_READ, 4 * KIB * KIB, 200 * KIB, 0);
	it.offset_cell = &cells[0];
	it.nbytes_cell = &cells[1];
	fill(r->gpu + 4 * KIB * KIB, 200 * KIB, 9);
	k.n = 72 * KIB;
	fake_kernel(g.fs, k_cells, &k);
	res = ended(r, g, put(r, g, it));
	ok(res.result == 72 * (int64_t)KIB && filled(r->gpu + 4 * KIB * KIB, 72 * KIB, 77) &&
		   filled(r->gpu + 4 * KIB * KIB + 72 * KIB, 128 * KIB, 9 + 72 * KIB),
	   "a read of less than its slice leaves the rest of it as it was");

	cells[1] = 204 * KIB;
	ok(ended(r, g, put(r, g, it)).result == -EFAULT, "more than the slice is refused");
	cells[1] = 1000;
	ok(ended(r, g, put(r, g, it)).result == -EINVAL, "half a block is refused");
	cells[1] = 4 * KIB;
	cells[0] = NS_BYTES;
	ok(ended(r, g, put(r, g, it)).result == -ERANGE, "and what reaches past the namespace");
	ok(filled(r->gpu + 4 * KIB * KIB + 72 * KIB, 128 * KIB, 9 + 72 * KIB), "those leave all as it was");
	ok(gated_close(g), "closed");
}

static void keeps(struct rig *r)
{
	struct gated g = gated_open(r);
	struct ugds_stream_how how = { .flags = UGDS_SOP_KEEP };
	struct ugds_stream_item it = item(r, UGDS_OP_READ, 0, 300 * KIB, 0);
	_Atomic bool go = false;
	uint64_t token;
	int rc;

	fill(r->gpu, 300 * KIB, 4);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	token = put_with(r, g, &it, 1, &how, &rc);
	ok(ugds_stream_cancel(g.s, token) == 1, "withdrawn");
	atomic_store(&go, true);
	over(g, token);
	ok(filled(r->gpu, 300 * KIB, 4), "a withdrawn read that keeps leaves its target as it was");
	ok(gated_close(g), "closed");
}

/* Every stream waits in the middle of its list; no copy they wait for is on another one. */
static void many_streams(struct rig *r, uint32_t n)
{
	struct gated g[80];
	uint64_t token[80];
	uint64_t good = 0, start;

	fixture_run(&r->f, UGDS_OP_WRITE, 0, 4 * KIB, 0);
	for (uint32_t i = 0; i < n; i++)
		g[i] = gated_open(r);
	start = rig_now();
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < n; i++)
			token[i] =
				put(r, g[i], item(r, UGDS_OP_READ, i * 128 * KIB, 128 * KIB, i * 128 * KIB));
		for (uint32_t i = 0; i < n; i++)
			good += ended(r, g[i], token[i]).result == 128 * (int64_t)KIB;
	}
	printf("# %u streams, 3 rounds: %.1f ms\n", n, (double)(rig_now() - start) / MS);
	ok(good == 3 * n, "%u streams that wait, on %u connections: no hang", n, FAKE_CONNECTIONS);
	for (uint32_t i = 0; i < n; i++)
		good += gated_close(g[i]);
	ok(good == 4 * n, "all are closed");
}

static void overlap(struct rig *r)
{
	struct ugds_fault slow = { .action = UGDS_FAULT_DELAY,
				   .qid = UGDS_FAULT_ANY_IO,
				   .opcode = UGDS_OP_READ,
				   .nsid = UGDS_FAULT_ANY,
				   .count = UINT32_MAX,
				   .delay_ns = 30 * MS };
	int id = ugds_fault_add(r->f.c, &slow);
	struct gated g[8];
	uint64_t token[8];
	struct stopwatch w;
	bool good = true;

	for (uint32_t i = 0; i < 8; i++)
		g[i] = gated_open(r);
	w = stopwatch_start();
	for (uint32_t i = 0; i < 8; i++)
		token[i] = put(r, g[i], item(r, UGDS_OP_READ, i * 64 * KIB, 64 * KIB, 0));
	for (uint32_t i = 0; i < 8; i++)
		good &= ended(r, g[i], token[i]).result == 64 * (int64_t)KIB;
	ok(good && stopwatch_ours(&w) < 160 * MS, "8 streams of 30 ms of I/O each overlap: %.1f ms",
	   (double)stopwatch_elapsed(&w) / MS);
	for (uint32_t i = 0; i < 8; i++)
		gated_close(g[i]);
	ugds_fault_clear(r->f.c, id);
}

/* With all connections held the stream can do nothing: what it came to is read all the same, no more than that. */
static void at_once(struct rig *r)
{
	struct gated busy[FAKE_CONNECTIONS], g = gated_open(r), by_default;
	struct ugds_stream_result now = { 0 };
	_Atomic bool go = false;
	uint64_t first, second, ordered;

	fake.ordered = true;
	by_default = gated_open(r);
	fake.ordered = false;
	ended(r, g, put(r, g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0)));
	ended(r, by_default, put(r, by_default, item(r, UGDS_OP_READ, 64 * KIB, 4 * KIB, 0)));
	fake_sync(g.fs, 5 * SEC);
	fake_sync(by_default.fs, 5 * SEC);
	for (int i = 0; i < FAKE_CONNECTIONS; i++) {
		busy[i] = (struct gated){ .fs = fake_stream_new() };
		fake_kernel(busy[i].fs, fake_gate, &go);
	}
	first = put(r, g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0));
	second = put(r, g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0));
	ordered = put(r, by_default, item(r, UGDS_OP_READ, 64 * KIB, 4 * KIB, 0));
	for (int i = 0; i < 5000 && now.state == STREAM_WAITING; i++) {
		ugds_stream_state(g.s, first, &now);
		fake_rest(MS);
	}
	ok(now.state != STREAM_WAITING, "an operation on an idle stream begins at once");
	fake_rest(20 * MS);
	ugds_stream_state(g.s, second, &now);
	ok(now.state == STREAM_WAITING, "the one behind it does not");
	ugds_stream_state(by_default.s, ordered, &now);
	ok(now.state == STREAM_WAITING, "nor one on a stream that default ones order");
	atomic_store(&go, true);
	ok(ended(r, g, first).result == 4 * KIB && ended(r, g, second).result == 4 * KIB &&
		   ended(r, by_default, ordered).result == 4 * KIB,
	   "and all of them end");
	for (int i = 0; i < FAKE_CONNECTIONS; i++)
		fake_stream_free(busy[i].fs);
	gated_close(g);
	gated_close(by_default);
}

static uint32_t slots_of(struct gated g)
{
	struct ugds_stream_info now;

	ugds_stream_info(g.s, &now);
	return now.slots;
}

/* The staging ring of a stream is small until a large operation finds it idle; its numbers begin again then. */
static void grows(struct rig *r)
{
	const uint64_t large = 1024 * KIB;
	struct gated g = gated_open(r);
	_Atomic bool go = false;
	uint64_t small, first;
	uint32_t before;

	fill(r->gpu, large, 7);
	ended(r, g, put(r, g, item(r, UGDS_OP_WRITE, 0, 4 * KIB, 0)));
	before = slots_of(g);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	small = put(r, g, item(r, UGDS_OP_READ, 4096 * KIB, 4 * KIB, 0));
	first = put(r, g, item(r, UGDS_OP_WRITE, 0, large, 0));
	ok(slots_of(g) == before, "behind another operation a large one has the small ring of %u", before);
	atomic_store(&go, true);
	ok(ended(r, g, small).result == 4 * (int64_t)KIB && ended(r, g, first).result == (int64_t)large &&
		   read_back(r, 0, large, 7),
	   "and is written through it");
	fake_sync(g.fs, 5 * SEC);
	ok(ended(r, g, put(r, g, item(r, UGDS_OP_READ, 2048 * KIB, large, 0))).result == (int64_t)large &&
		   slots_of(g) == 4 * before && filled(r->gpu + 2048 * KIB, large, 7),
	   "on an idle stream it gets a larger one");
	ended(r, g, put(r, g, item(r, UGDS_OP_READ, 4096 * KIB, 4 * KIB, 0)));
	ok(filled(r->gpu + 4096 * KIB, 4 * KIB, 7), "what comes next is in order");
	ok(gated_close(g), "closed");
}

static void cost(struct rig *r)
{
	const uint64_t most = r->direct ? 4 : 6, least = r->direct ? 3 : 4;
	struct gated g = gated_open(r);
	struct ugds_stream_info a, b;
	uint64_t start, calls;

	ended(r, g, put(r, g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0)));
	ugds_stream_info(g.s, &a);
	start = rig_now();
	for (uint32_t i = 0; i < 500; i++) {
		uint64_t token = put(r, g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0));

		while (!is_over(g, token))
			sched_yield();
		ugds_stream_release(g.s, token);
	}
	printf("# 4 KiB: %.1f us each on this machine\n", (double)(rig_now() - start) / 500e3);
	ugds_stream_info(g.s, &b);
	/* capturing?, idle?, staged the copy, the event; unless it is over by then also wait, and staged passed */
	calls = (b.gpu_calls - a.gpu_calls) / 500;
	ok(calls >= least && calls <= most, "%llu calls of the runtime for a 4 KiB read",
	   (unsigned long long)calls);
	ok(b.held == 1, "what was released holds nothing: %u", b.held);
	ok(gated_close(g), "closed");
}

static void behind_events(struct rig *r)
{
	struct gated a = gated_open(r), b = gated_open(r);
	struct bytes_kernel make = { r->gpu, 64 * KIB, 21, false };
	struct ugds_stream_item it = item(r, UGDS_OP_READ, KIB * KIB, 64 * KIB, 0);
	struct ugds_stream_started st;
	struct ugds_stream_how none = { 0 };
	struct ugds_stream_item w = item(r, UGDS_OP_WRITE, 0, 64 * KIB, 0);
	struct ugds_error err;
	uint64_t token, event_token;
	int rc, code;

	fake_kernel(a.fs, k_fill, &make);
	ugds_stream_enqueue(a.s, r->f.ns, &w, 1, &none, &st, &err);
	struct ugds_stream_how how = { .after = &st.event, .nr_after = 1 };

	token = put_with(r, b, &it, 1, &how, &rc);
	ok(ended(r, b, token).result == 64 * (int64_t)KIB && filled(r->gpu + KIB * KIB, 64 * KIB, 21),
	   "behind another stream's operation by its event");
	over(a, st.token);
	fake_sync(a.fs, SEC);
	ok(sink_event((struct stream_sink *)r->sink, &fake_rt, &r->p.place, st.event, &event_token, &code) ==
		   1,
	   "an event that fired is over at once");
	ok(gated_close(a) && gated_close(b), "closed");
}

/* Freeing pinned memory may wait for all the work of a GPU: it is kept for the next stream. */
static void rings_stay(struct rig *r)
{
	struct gated g = gated_open(r);
	uint32_t before = atomic_load(&fake.nr_pinned);
	bool good = true;

	for (int i = 0; i < 10; i++) {
		good &= gated_close(g);
		g = gated_open(r);
		good &= ended(r, g, put(r, g, item(r, UGDS_OP_READ, 0, 300 * KIB, 0))).result ==
			300 * (int64_t)KIB;
	}
	ok(good && atomic_load(&fake.nr_pinned) == before, "ten streams, one after another, use one ring");
	ok(gated_close(g), "closed");
}

static void by_callback(struct rig *r)
{
	struct gated g = gated_open(r);
	struct ugds_stream_how how = { .flags = UGDS_SOP_CALLBACK };
	struct ugds_stream_item it = item(r, UGDS_OP_READ, 0, 64 * KIB, 0);
	bool good = true;
	int rc = 0;

	for (int i = 0; i < 50 && !rc; i++) {
		uint64_t token = put_with(r, g, &it, 1, &how, &rc);

		if (!rc)
			good &= ended(r, g, token).result == 64 * (int64_t)KIB;
	}
	if (r->direct)
		ok(good && !rc, "order=\"callback\": 50 reads by host functions");
	else
		ok(rc == -EOPNOTSUPP, "order=\"callback\" is refused where copies are needed");
	ok(gated_close(g), "closed");
}

static void kind(bool direct)
{
	struct rig r;

	printf("# %s\n", direct ? "as hardware does it" : "staged");
	fixture_defaults(&r.f);
	if (!ok(rig_open(&r, direct), "open"))
		return;
	write_read(&r, 4 * KIB);
	write_read(&r, 64 * KIB);
	write_read(&r, 68 * KIB);
	write_read(&r, 1000 * KIB);
	write_read(&r, 4096 * KIB);
	between_kernels(&r);
	sets(&r);
	late_bound(&r);
	keeps(&r);
	if (!direct)
		grows(&r);
	behind_events(&r);
	by_callback(&r);
	rings_stay(&r);
	many_streams(&r, 64);
	overlap(&r);
	at_once(&r);
	cost(&r);
	ok(rig_close(&r), "everything is given back");
}

/* One queue pair, which is the engine's own executor's: the streams share it. */
static void shared_queue(void)
{
	struct rig r;

	fixture_defaults(&r.f);
	r.f.open.io_queues = 1;
	r.f.open.batch_queues = 0;
	if (!ok(rig_open(&r, false), "open with one queue pair"))
		return;
	write_read(&r, 4 * KIB);
	write_read(&r, 1000 * KIB);
	many_streams(&r, 16);
	ok(rig_close(&r), "everything is given back");
}

int main(void)
{
	kind(false);
	kind(true);
	shared_queue();
	return done_testing();
}
