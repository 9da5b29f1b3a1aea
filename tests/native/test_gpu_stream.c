/* SPDX-License-Identifier: MIT */
/* From ugds.h down to a GPU that has few connections: the embedded controller, its staging, and transfers in stream order. */
#include <errno.h>
#include <poll.h>

#include "include/ugds_stream.h"
#include "soft_gpu.h"
#include "support/util.h"
#include "ugds_fixture.h"

#define KIB 1024ull
#define MEM_BYTES (16 * KIB * KIB)
#define STREAMS 64
#define PIECE (64 * KIB)

struct world {
	struct soft gpu;
	struct fixture f;
	struct ugds_sink *sink;
	struct gpu_place place;
	struct gpu_before before;
	uint64_t mem, map;
	struct ugds_stream *s[STREAMS];
	uint64_t stream[STREAMS];
};

static bool open_world(struct world *w, uint64_t latency_ns)
{
	struct ugds_foreign mem = { .nbytes = MEM_BYTES };

	w->gpu.rt->device_place(0, true, &w->place);
	w->gpu.rt->enter(&w->place, &w->before);
	fixture_defaults(&w->f);
	w->f.emu.latency_ns = latency_ns;
	if (!fixture_open(&w->f, UGDS_MODE_ADAPTIVE) || ugds_sink_open(w->f.c, &w->sink) ||
	    w->gpu.rt->alloc(MEM_BYTES, &w->mem))
		return false;
	mem.kind = w->gpu.vendor == GPU_CUDA ? UGDS_FOREIGN_CUDA : UGDS_FOREIGN_HIP;
	mem.addr = w->mem;
	return !ugds_map_foreign(w->f.c, &mem, &w->map);
}

static bool open_streams(struct world *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ugds_stream_params p = { .vendor = w->gpu.vendor, .ctx = w->place.ctx };
		struct ugds_error err = { 0 };

		w->gpu.rt->stream_new(&w->stream[i]);
		p.stream = w->stream[i];
		p.chunk_bytes = PIECE;
		if (ugds_stream_open(w->f.c, &p, &w->s[i], &err)) {
			printf("# stream: %s\n", err.text);
			return false;
		}
	}
	return true;
}

static bool close_streams(struct world *w, uint32_t n)
{
	bool good = true;

	for (uint32_t i = 0; i < n; i++) {
		int rc = -EBUSY;

		for (int tries = 0; rc == -EBUSY && tries < 10000; tries++) {
			rc = ugds_stream_close(w->s[i], 0);
			poll(NULL, 0, rc ? 1 : 0);
		}
		good &= !rc;
		ugds_stream_free(w->s[i]);
		w->gpu.rt->stream_free(w->stream[i]);
	}
	return good;
}

static bool close_world(struct world *w)
{
	bool good = !ugds_unmap(w->f.c, w->map);

	ugds_sink_close(w->sink);
	good &= fixture_close(&w->f);
	good &= !w->gpu.rt->free(w->mem);
	w->gpu.rt->leave(&w->place, &w->before);
	return good && !w->gpu.allocations(~0u);
}

static uint64_t put(struct world *w, uint32_t i, uint64_t op, uint64_t at, uint64_t nbytes, uint64_t offset)
{
	struct ugds_stream_item it = { .map = w->map, .buf_off = at, .nbytes = nbytes, .offset = offset };
	struct ugds_stream_started st = { 0 };
	struct ugds_stream_how how = { 0 };
	struct ugds_error err = { 0 };
	int rc;

	it.gpu_addr = w->mem + at;
	it.op = op;
	rc = ugds_stream_enqueue(w->s[i], w->f.ns, &it, 1, &how, &st, &err);
	if (rc)
		printf("# enqueue: %d, %s\n", rc, err.text);
	return st.token;
}

static struct ugds_stream_result ended(struct world *w, uint32_t i, uint64_t token)
{
	struct ugds_stream_result res = { .result = -ETIME };
	int64_t end = now_ns() + 30 * NSEC_PER_SEC;
	struct pollfd pfd = { .fd = ugds_sink_fd(w->sink), .events = POLLIN };

	if (ugds_stream_watch(w->s[i], token, w->sink, 0))
		return res;
	while (now_ns() < end) {
		if (ugds_sink_reap(w->sink, &res, 1) == 1 && res.token == token) {
			ugds_stream_release(w->s[i], token);
			return res;
		}
		poll(&pfd, 1, 1000);
	}
	res.result = -ETIME;
	return res;
}

static void poke(struct world *w, uint64_t at, uint64_t nbytes, uint64_t seed)
{
	uint8_t *host = malloc(nbytes);

	fill(host, nbytes, seed);
	w->gpu.peek(w->mem + at, host, nbytes, 1);
	free(host);
}

static bool has(struct world *w, uint64_t at, uint64_t nbytes, uint64_t seed)
{
	uint8_t *host = malloc(nbytes);
	bool good = !w->gpu.peek(w->mem + at, host, nbytes, 0) && filled(host, nbytes, seed);

	free(host);
	return good;
}

static int64_t run(struct world *w, uint32_t op, uint64_t at, uint64_t nbytes, uint64_t offset)
{
	int64_t r = ugds_rw(w->f.ch, w->f.ns, w->map, at, nbytes, offset, op);
	struct ugds_completion done;

	if (r < UGDS_PENDING)
		return r;
	return ugds_wait(w->f.ch, &done, 1, 30 * SEC) == 1 ? done.result : -ETIME;
}

static void plain(struct soft gpu)
{
	struct world w = { .gpu = gpu };
	const uint64_t sizes[] = { 4 * KIB, 64 * KIB, 1024 * KIB, 7 * 1024 * KIB };

	ok(open_world(&w, 0), "%s: GPU memory is mapped", gpu.rt->name);
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t n = sizes[i];

		poke(&w, 512, n, n);
		ok(run(&w, UGDS_OP_WRITE, 512, n, 4096) == (int64_t)n &&
			   run(&w, UGDS_OP_READ, 8 << 20, n, 4096) == (int64_t)n && has(&w, 8 << 20, n, n),
		   "%s: %llu bytes from the GPU and back", gpu.rt->name, (unsigned long long)n);
	}
	ok(close_world(&w), "%s: all is given back", gpu.rt->name);
}

/* More streams than connections, all at a transfer at once. */
static void many(struct soft gpu, uint64_t latency_ns)
{
	struct world w = { .gpu = gpu };
	uint64_t a[STREAMS], b[STREAMS];
	uint32_t good = 0, same = 0;

	ok(open_world(&w, latency_ns) && open_streams(&w, STREAMS), "%s: %d streams", gpu.rt->name, STREAMS);
	for (uint32_t i = 0; i < STREAMS; i++) {
		poke(&w, i * PIECE, PIECE, i);
		gpu.kernel(w.stream[i], 0);
		a[i] = put(&w, i, UGDS_OP_WRITE, i * PIECE, PIECE, i * PIECE);
		b[i] = put(&w, i, UGDS_OP_READ, MEM_BYTES / 2 + i * PIECE, PIECE, i * PIECE);
	}
	gpu.end_kernels(STREAMS);
	for (uint32_t i = 0; i < STREAMS; i++) {
		good += ended(&w, i, a[i]).result == PIECE;
		good += ended(&w, i, b[i]).result == PIECE;
	}
	for (uint32_t i = 0; i < STREAMS; i++) {
		w.gpu.rt->stream_sync(w.stream[i]);
		same += has(&w, MEM_BYTES / 2 + i * PIECE, PIECE, i);
	}
	ok(good == 2 * STREAMS && same == STREAMS,
	   "%s: %u transfers end, %u of %d are the bytes (%llu ns each)", gpu.rt->name, good, same, STREAMS,
	   (unsigned long long)latency_ns);
	ok(close_streams(&w, STREAMS) && close_world(&w), "%s: all is given back", gpu.rt->name);
}

/* A plain transfer has a copy of its own, which a GPU of waiting streams does not start: it comes after, not never. */
static void plain_among_waiting(struct soft gpu)
{
	struct world w = { .gpu = gpu };
	uint64_t t[8];
	uint32_t good = 0;

	ok(open_world(&w, 20 * MS) && open_streams(&w, 8), "%s: as many streams as connections",
	   gpu.rt->name);
	poke(&w, 0, PIECE, 5);
	ok(run(&w, UGDS_OP_WRITE, 0, PIECE, 0) == PIECE, "%s: what is read", gpu.rt->name);
	for (uint32_t i = 0; i < 8; i++)
		t[i] = put(&w, i, UGDS_OP_READ, (i + 1) * PIECE, PIECE, 0);
	ok(run(&w, UGDS_OP_READ, 10 * PIECE, PIECE, 0) == PIECE && has(&w, 10 * PIECE, PIECE, 5),
	   "%s: a plain read among them ends", gpu.rt->name);
	for (uint32_t i = 0; i < 8; i++)
		good += ended(&w, i, t[i]).result == PIECE;
	ok(good == 8, "%s: so do they", gpu.rt->name);
	ok(close_streams(&w, 8) && close_world(&w), "%s: all is given back", gpu.rt->name);
}

static void lost(struct soft gpu)
{
	struct world w = { .gpu = gpu };
	struct ugds_stream_result res;
	uint64_t waiting, moving;

	ok(open_world(&w, 20 * MS) && open_streams(&w, 2), "%s: two streams", gpu.rt->name);
	gpu.kernel(w.stream[0], 0);
	waiting = put(&w, 0, UGDS_OP_READ, 0, PIECE, 0);
	moving = put(&w, 1, UGDS_OP_READ, PIECE, PIECE, 0);
	gpu.lose(0, 700);
	res = ended(&w, 0, waiting);
	ok(res.result < 0 && res.result != -ETIME, "%s: a transfer before its turn ends: %lld, code %d",
	   gpu.rt->name, (long long)res.result, res.gpu_code);
	res = ended(&w, 1, moving);
	ok(res.result < 0 && res.result != -ETIME, "%s: one that was under way ends: %lld, code %d",
	   gpu.rt->name, (long long)res.result, res.gpu_code);
	ok(run(&w, UGDS_OP_READ, 0, PIECE, 0) < 0, "%s: GPU memory fails", gpu.rt->name);
	fill(w.f.buf, PIECE, 9);
	ok(fixture_run(&w.f, UGDS_OP_WRITE, 0, PIECE, 0) == PIECE &&
		   fixture_run(&w.f, UGDS_OP_READ, PIECE, PIECE, 0) == PIECE &&
		   filled(w.f.buf + PIECE, PIECE, 9),
	   "%s: host memory does not", gpu.rt->name);
	ok(close_streams(&w, 2), "%s: the streams are closed", gpu.rt->name);
	close_world(&w);
	gpu.reset();
}

int main(void)
{
	for (uint32_t vendor = GPU_CUDA; vendor < GPU_VENDORS; vendor++) {
		struct soft gpu = soft_open(vendor);

		plain(gpu);
		many(gpu, 0);
		many(gpu, 2 * MS);
		gpu.connections(1);
		many(gpu, 0);
		gpu.connections(8);
		plain_among_waiting(gpu);
		lost(gpu);
	}
	return done_testing();
}
