/* SPDX-License-Identifier: MIT */
/* Transfers in stream order under contention, GPU events that are waited for, and what waiting costs. */
#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include "stream_rig.h"

#define THREADS 4

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PER_CORE 20 /* the checks cost what they cost */
#else
#define PER_CORE 50
#endif

/* One thread enqueues, another withdraws: each ends once, and never otherwise than it was told. */
struct race {
	struct rig *r;
	struct gated g;
	_Atomic uint64_t token;
	_Atomic uint32_t won;
	_Atomic bool stop;
};

static void *withdraw(void *arg)
{
	struct race *a = arg;
	uint64_t last = 0;

	while (!atomic_load(&a->stop)) {
		uint64_t token = atomic_load(&a->token);

		if (token == last) {
			sched_yield();
			continue;
		}
		last = token;
		for (uint32_t i = (uint32_t)token & 63; i--;)
			sched_yield();
		if (ugds_stream_cancel(a->g.s, token))
			atomic_fetch_add(&a->won, 1);
	}
	return NULL;
}

static void withdraw_races(struct rig *r, uint32_t rounds)
{
	struct race a = { .r = r, .g = gated_open(r) };
	uint32_t cancelled = 0, done = 0, other = 0;
	pthread_t t;

	pthread_create(&t, NULL, withdraw, &a);
	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t token = put(r, a.g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0));
		struct ugds_stream_result res;

		atomic_store(&a.token, token);
		res = ended(r, a.g, token);
		if (res.state == UGDS_SOP_CANCELLED && res.result == -ECANCELED)
			cancelled++;
		else if (res.state == UGDS_SOP_DONE && res.result == 4 * (int64_t)KIB)
			done++;
		else
			other++;
		ugds_stream_release(a.g.s, token);
	}
	atomic_store(&a.stop, true);
	pthread_join(t, NULL);
	printf("# %u withdrawn, %u done\n", cancelled, done);
	ok(!other && cancelled + done == rounds && cancelled == atomic_load(&a.won),
	   "%u races to withdraw: each ends once, as it was told", rounds);
	ok(gated_close(a.g), "closed");
}

struct crowd {
	struct rig *r;
	struct gated g[3];
	_Atomic uint32_t bad;
	uint32_t rounds;
};

struct member {
	struct crowd *c;
	uint32_t me;
};

static void *take_part(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->c;
	uint32_t seed = m->me * 77 + 1;

	for (uint32_t i = 0; i < c->rounds; i++) {
		uint32_t which = (seed = seed * 1664525 + 1013904223) >> 16 & 1;
		struct gated g = c->g[which];
		uint64_t n = (1 + (seed >> 20 & 31)) * 4 * KIB, off = (m->me * 2 + which) * 256 * KIB;
		struct ugds_stream_how none = { 0 };
		struct ugds_stream_item it = item(c->r, UGDS_OP_READ, off, n, off);
		struct ugds_stream_result res = { 0 };
		struct ugds_stream_started st;
		struct ugds_error err;
		int rc;

		it.op = seed >> 25 & 1 ? UGDS_OP_WRITE : UGDS_OP_READ;
		while ((rc = ugds_stream_enqueue(g.s, c->r->f.ns, &it, 1, &none, &st, &err)) == -EAGAIN)
			sched_yield();
		if (rc) {
			atomic_fetch_add(&c->bad, 1);
			continue;
		}
		if (!(seed >> 26 & 7))
			ugds_stream_cancel(g.s, st.token);
		if (seed >> 29 & 1) { /* not waited for */
			ugds_stream_release(g.s, st.token);
			continue;
		}
		res = over(g, st.token);
		if (res.result != (int64_t)n && res.result != -ECANCELED)
			atomic_fetch_add(&c->bad, 1);
		ugds_stream_release(g.s, st.token);
	}
	return NULL;
}

/* Several threads on two streams, whose operations are waited for or let go. */
static void crowd(struct rig *r, uint32_t rounds)
{
	struct crowd c = { .r = r, .rounds = rounds };
	struct member m[THREADS];
	struct ugds_stream_info info;
	pthread_t t[THREADS];
	bool good;

	c.g[0] = gated_open(r);
	c.g[1] = gated_open(r);
	for (uint32_t i = 0; i < THREADS; i++) {
		m[i] = (struct member){ &c, i };
		pthread_create(&t[i], NULL, take_part, &m[i]);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 5000; i++) {
		ugds_stream_info(c.g[0].s, &info);
		good = !info.waiting && !info.held;
		ugds_stream_info(c.g[1].s, &info);
		good &= !info.waiting && !info.held;
		if (good)
			break;
		fake_rest(MS);
	}
	ok(!atomic_load(&c.bad) && good, "%u threads on two streams: all ends well, nothing is left",
	   THREADS);
	ok(gated_close(c.g[0]) && gated_close(c.g[1]), "closed");
	ok(!ugds_map_inflight(r->f.c, r->f.map), "the memory is free");
}

/* Streams come and go while others work. */
static void *come_and_go(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->c;

	for (uint32_t i = 0; i < c->rounds; i++) {
		struct stream_exec *x = sink_exec((struct stream_sink *)c->r->sink);
		struct gated g = { .fs = fake_stream_new() };
		struct stream_params p = c->r->p;
		struct nvme_err err = { 0 };
		struct stream *s;
		uint64_t token;

		p.stream = (uint64_t)(uintptr_t)g.fs;
		if (stream_open(x, &fake_rt, &p, &s, &err)) {
			atomic_fetch_add(&c->bad, 1);
			continue;
		}
		g.s = (struct ugds_stream *)s;
		token = put(c->r, g, item(c->r, UGDS_OP_READ, m->me * 64 * KIB, 4 * KIB, 0));
		if (i & 1)
			over(g, token);
		if (!gated_close(g))
			atomic_fetch_add(&c->bad, 1);
	}
	return NULL;
}

static void lives(struct rig *r, uint32_t rounds)
{
	struct crowd c = { .r = r, .rounds = rounds };
	struct member m[THREADS];
	pthread_t t[THREADS];

	for (uint32_t i = 0; i < THREADS; i++) {
		m[i] = (struct member){ &c, i };
		pthread_create(&t[i], NULL, come_and_go, &m[i]);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ok(!atomic_load(&c.bad), "streams come and go");
}

/* @token 0: any. */
static bool reaped(struct ugds_sink *k, uint64_t token, struct ugds_stream_result *res)
{
	struct pollfd pfd = { .fd = ugds_sink_fd(k), .events = POLLIN };

	for (int i = 0; i < 5000; i++) {
		poll(&pfd, 1, 1);
		if (ugds_sink_reap(k, res, 1) == 1 && (!token || res->token == token))
			return true;
	}
	return false;
}

/* @k: of a controller, or of events only. */
static void events(struct rig *r, struct ugds_sink *k, const char *name)
{
	struct stream_sink *sk = (struct stream_sink *)k;
	struct fake_stream *fs = fake_stream_new();
	struct ugds_stream_result res;
	_Atomic bool go = false;
	uint64_t event[3], token[3];
	int code, rc = 0;

	fake_kernel(fs, fake_gate, (void *)&go);
	for (int i = 0; i < 3; i++) {
		fake_event_new(&event[i]);
		fake_event_record(event[i], (uint64_t)(uintptr_t)fs);
		rc |= sink_event(sk, &fake_rt, &r->p.place, event[i], &token[i], &code);
	}
	ok(!rc && ugds_sink_reap(k, &res, 1) == 0, "%s: events that have not fired", name);
	sink_event_drop(sk, token[1]);
	atomic_store(&((struct fake_event *)(uintptr_t)event[1])->dead,
		     true); /* nobody asks about it any more */
	fake_rest(5 * MS);
	ok(ugds_ctrl_close(r->f.c, 0) == -EBUSY, "%s: a close that is refused changes nothing", name);
	atomic_store(&go, true);
	for (int i = 0; i < 2; i++) {
		bool came = reaped(k, 0, &res);

		ok(came && !res.result && res.state == UGDS_SOP_DONE && res.token != token[1] &&
			   (res.token == token[0] || res.token == token[2]),
		   "%s: the first and the third are told, the second was dropped", name);
	}
	fake_sync(fs, SEC);
	ok(sink_event(sk, &fake_rt, &r->p.place, event[0], &token[0], &code) == 1, "%s: over at once", name);
	for (int i = 0; i < 3; i++)
		fake_event_free(event[i]);
	fake_stream_free(fs);
}

static void two_sinks(struct rig *r)
{
	struct gated g = gated_open(r);
	struct ugds_sink *other, *third;
	struct ugds_stream_result a, b;
	_Atomic bool go = false;
	uint64_t token;

	ugds_sink_open(r->f.c, &other);
	ugds_sink_open(r->f.c, &third);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	token = put(r, g, item(r, UGDS_OP_READ, 0, 4 * KIB, 0));
	ugds_stream_watch(g.s, token, r->sink, 0);
	ugds_stream_watch(g.s, token, other, 0);
	ugds_stream_watch(g.s, token, third, 0);
	ugds_sink_close(third);
	atomic_store(&go, true);
	ok(reaped(r->sink, token, &a) && reaped(other, token, &b) && a.result == 4 * (int64_t)KIB &&
		   b.result == a.result,
	   "two sinks are told of one operation; a third was closed before");
	ugds_stream_release(g.s, token);
	ok(ugds_stream_watch(g.s, token, other, 0) == -ENOENT, "a released one is unknown");
	ugds_sink_close(other);
	ok(gated_close(g), "closed");
}

/* A call of the runtime may wait for what somebody else does, and that for the GPU: no stream may wait for it in turn. */
static void stuck_runtime(struct rig *r)
{
	struct gated g = gated_open(r), h = gated_open(r);
	_Atomic bool go = false;
	uint64_t token, behind;
	bool asked = false;

	fake_kernel(h.fs, fake_gate, (void *)&go);
	behind = put(r, h, item(r, UGDS_OP_READ, 64 * KIB, 4 * KIB, 0));
	atomic_store(&fake.stuck, true);
	for (int i = 0; i < 5000 && !asked; i++, fake_rest(MS))
		asked = atomic_load(&fake.asking);
	ok(asked, "somebody asks whether the GPU is well, and gets no answer");
	/* nor does who waits for it, where a word is written behind the copy */
	token = put(r, g, item(r, UGDS_OP_READ | UGDS_F_NOSPIN, 0, 4 * KIB, 0));
	ok(ended(r, g, token).result == 4 * (int64_t)KIB, "a stream goes on");
	atomic_store(&go, true);
	ok(ended(r, h, behind).result == 4 * (int64_t)KIB, "and the one that was asked about");
	atomic_store(&fake.stuck, false);
	ok(gated_close(g) && gated_close(h), "closed");
}

/* Processor time of our thread of that name, in ns. */
static uint64_t thread_ns(const char *name)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	uint64_t ns = 0;

	while ((e = readdir(d))) {
		char path[300], comm[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%31s", comm) == 1 && !strcmp(comm, name)) {
			FILE *s;

			snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
			s = fopen(path, "r");
			if (s && fscanf(s, "%lu", &ns) != 1)
				ns = 0;
			if (s)
				fclose(s);
		}
		if (f)
			fclose(f);
	}
	closedir(d);
	return ns;
}

static void waiting_costs(struct rig *r, uint32_t n)
{
	struct gated g[16];
	_Atomic bool go = false;
	uint64_t token[16], cpu, start, took;
	bool good = true;

	for (uint32_t i = 0; i < n; i++) {
		g[i] = gated_open(r);
		fake_kernel(g[i].fs, fake_gate, (void *)&go);
		/* a range for each: nothing orders one stream's copies before another's */
		token[i] = put(r, g[i], item(r, UGDS_OP_READ, i * 4 * KIB, 4 * KIB, 0));
	}
	cpu = thread_ns("ugds-stream");
	start = rig_now();
	fake_rest(2 * SEC);
	cpu = thread_ns("ugds-stream") - cpu;
	took = rig_now() - start;
	printf("# %u streams wait for go: %.2f %% of a core\n", n, 100.0 * (double)cpu / (double)took);
	ok(cpu * PER_CORE < took, "waiting for go costs %u %% of a core or less", 100 / PER_CORE);
	atomic_store(&go, true);
	for (uint32_t i = 0; i < n; i++)
		good &= over(g[i], token[i]).result == 4 * (int64_t)KIB;
	ok(good, "then all are done");
	for (uint32_t i = 0; i < n; i++)
		gated_close(g[i]);
	fake_rest(20 * MS);
	cpu = thread_ns("ugds-stream");
	fake_rest(500 * MS);
	cpu = thread_ns("ugds-stream") - cpu;
	ok(cpu < MS, "with nothing outstanding it sleeps: %llu us in half a second",
	   (unsigned long long)(cpu / 1000));
}

int main(void)
{
	struct ugds_sink *alone;
	struct rig r;

	fixture_defaults(&r.f);
	if (!ok(rig_open(&r, false), "open"))
		return done_testing();
	withdraw_races(&r, 2000);
	crowd(&r, 150);
	lives(&r, 15);
	events(&r, r.sink, "controller's");
	ok(!ugds_sink_open(NULL, &alone), "a sink without a controller");
	events(&r, alone, "alone");
	ugds_sink_close(alone);
	two_sinks(&r);
	stuck_runtime(&r);
	waiting_costs(&r, 1);
	waiting_costs(&r, 6);
	ok(rig_close(&r), "given back");
	return done_testing();
}
