/* SPDX-License-Identifier: MIT */
/* An opened embedded controller with streams of the fake GPU, staged or as hardware would do it. */
#ifndef TESTS_STREAM_RIG_H
#define TESTS_STREAM_RIG_H

#include <poll.h>

#include "api/api.h"
#include "fake_gpu.h"
#include "include/ugds_stream.h"
#include "stream/stream.h"
#include "ugds_fixture.h"

#define KIB 1024ull
#define FAR (8 * KIB * KIB)

struct rig {
	struct fixture f;
	struct ugds_sink *sink;
	struct stream_params p;
	uint8_t *gpu; /* BUF_BYTES of "device" memory; where nothing is staged, the registered buffer */
	bool direct;
};

struct gated {
	struct fake_stream *fs;
	struct ugds_stream *s;
};

__attribute__((unused)) static uint64_t rig_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

__attribute__((unused)) static bool rig_open(struct rig *r, bool direct)
{
	fake_start(FAKE_CONNECTIONS);
	if (!fixture_open(&r->f, UGDS_MODE_ADAPTIVE) || ugds_sink_open(r->f.c, &r->sink))
		return false;
	r->direct = direct;
	if (direct)
		r->f.c->c->tr_flags &= ~NVME_TR_STAGED;
	r->p = (struct stream_params){ .place = { GPU_CUDA, 0, 1 }, .chunk = 64 << 10 };
	r->gpu = direct ? r->f.buf : aligned_alloc(4096, BUF_BYTES);
	memset(r->gpu, 0, BUF_BYTES);
	return true;
}

__attribute__((unused)) static bool rig_close(struct rig *r)
{
	bool good;

	ugds_sink_close(r->sink);
	if (!r->direct)
		free(r->gpu);
	good = fixture_close(&r->f);
	fake_stop();
	return good;
}

__attribute__((unused)) static struct gated gated_open(struct rig *r)
{
	struct stream_exec *x = sink_exec((struct stream_sink *)r->sink);
	struct gated g = { .fs = fake_stream_new() };
	struct nvme_err err = { 0 };
	struct stream *s = NULL;

	r->p.stream = (uint64_t)(uintptr_t)g.fs;
	if (stream_open(x, &fake_rt, &r->p, &s, &err))
		printf("# stream: %s\n", err.text);
	g.s = (struct ugds_stream *)s;
	return g;
}

__attribute__((unused)) static bool gated_close(struct gated g)
{
	int rc = ugds_stream_close(g.s, 0);

	for (int i = 0; rc == -EBUSY && i < 10000; i++) {
		fake_rest(MS);
		rc = ugds_stream_close(g.s, 0);
	}
	ugds_stream_free(g.s);
	fake_stream_free(g.fs);
	return !rc;
}

__attribute__((unused)) static struct ugds_stream_item item(struct rig *r, uint64_t op, uint64_t buf_off,
							    uint64_t nbytes, uint64_t offset)
{
	return (struct ugds_stream_item){
		.map = r->f.map,
		.buf_off = buf_off,
		.nbytes = nbytes,
		.offset = offset,
		.gpu_addr = (uint64_t)(uintptr_t)(r->gpu + buf_off),
		.op = op,
	};
}

/* Its token, or 0 and *@ret_rc. */
__attribute__((unused)) static uint64_t put_with(struct rig *r, struct gated g,
						 const struct ugds_stream_item *it, uint32_t n,
						 const struct ugds_stream_how *how, int *ret_rc)
{
	struct ugds_stream_how none = { 0 };
	struct ugds_stream_started st;
	struct ugds_error err = { 0 };

	*ret_rc = ugds_stream_enqueue(g.s, r->f.ns, it, n, how ? how : &none, &st, &err);
	return *ret_rc ? 0 : st.token;
}

__attribute__((unused)) static uint64_t put(struct rig *r, struct gated g, struct ugds_stream_item it)
{
	int rc;
	uint64_t token = put_with(r, g, &it, 1, NULL, &rc);

	if (rc)
		printf("# enqueue: %d\n", rc);
	return token;
}

/* Until it ended for its user. */
__attribute__((unused)) static struct ugds_stream_result ended(struct rig *r, struct gated g, uint64_t token)
{
	struct ugds_stream_result res = { .result = -ETIME };
	uint64_t end = rig_now() + 20 * SEC;

	if (ugds_stream_watch(g.s, token, r->sink, 0))
		return res;
	while (rig_now() < end) {
		struct pollfd pfd = { .fd = ugds_sink_fd(r->sink), .events = POLLIN };

		if (ugds_sink_reap(r->sink, &res, 1) == 1 && res.token == token)
			return res;
		poll(&pfd, 1, 1000);
	}
	res.result = -ETIME;
	return res;
}

/* Until the stream passed it. */
__attribute__((unused)) static struct ugds_stream_result over(struct gated g, uint64_t token)
{
	struct ugds_stream_result res = { 0 };

	for (int i = 0; i < 20000; i++) {
		if (ugds_stream_state(g.s, token, &res) || res.over)
			return res;
		fake_rest(MS);
	}
	res.result = -ETIME;
	return res;
}

__attribute__((unused)) static uint32_t state(struct gated g, uint64_t token)
{
	struct ugds_stream_result res = { 0 };

	return ugds_stream_state(g.s, token, &res) ? UINT32_MAX : res.state;
}

__attribute__((unused)) static bool is_over(struct gated g, uint64_t token)
{
	struct ugds_stream_result res = { 0 };

	ugds_stream_state(g.s, token, &res);
	return res.over;
}

__attribute__((unused)) static int fault(struct rig *r, uint32_t action, uint32_t count)
{
	struct ugds_fault f = { .action = action,
				.qid = UGDS_FAULT_ANY_IO,
				.opcode = UGDS_OP_READ,
				.nsid = UGDS_FAULT_ANY,
				.count = count,
				.status = 0x281 };

	return ugds_fault_add(r->f.c, &f);
}

__attribute__((unused)) static bool rig_begin_for(struct rig *r, bool direct, const char *name,
						  uint64_t hang_ns)
{
	fixture_defaults(&r->f);
	r->f.open.hang_io_ns = hang_ns;
	return ok(rig_open(r, direct), "%s, %s: open", name, direct ? "direct" : "staged");
}

__attribute__((unused)) static bool rig_begin(struct rig *r, bool direct, const char *name)
{
	return rig_begin_for(r, direct, name, 30 * SEC);
}

/* Nothing holds the buffer. */
__attribute__((unused)) static bool idle(struct rig *r) { return ugds_map_inflight(r->f.c, r->f.map) == 0; }

#endif
