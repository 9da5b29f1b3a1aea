/* SPDX-License-Identifier: MIT */
/* Streams whose controller or GPU is lost, or that are closed, while operations are outstanding. */
#include <sys/wait.h>
#include <unistd.h>

#include "stream_rig.h"

static void wedged(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .flags = UGDS_SOP_STALL, .cell = &cell };
	struct ugds_error err = { 0 };
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	struct gated g;
	uint64_t a, b, c;
	int id[2], rc;

	rig_begin_for(&r, direct, "wedged", 200 * MS);
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 300 * KIB, 0);
	id[0] = fault(&r, UGDS_FAULT_HOLD, UINT32_MAX);
	struct ugds_fault refuse = { .action = UGDS_FAULT_ABORT_REFUSED,
				     .qid = 0,
				     .opcode = UGDS_FAULT_ANY,
				     .nsid = UGDS_FAULT_ANY,
				     .count = UINT32_MAX };

	id[1] = ugds_fault_add(r.f.c, &refuse);
	a = put_with(&r, g, &it, 1, &how, &rc);
	b = put(&r, g, it);
	res = ended(&r, g, a);
	ok(res.result == -EHOSTDOWN && res.state == UGDS_SOP_FAILED && cell.error == -EHOSTDOWN &&
		   res.status >> 24 == UGDS_UNKNOWN << 0,
	   "it fails with the controller, and does not stall: %lld, %llx", (long long)res.result,
	   (unsigned long long)res.status);
	ok(over(g, a).over && ended(&r, g, b).result == -EHOSTDOWN && over(g, b).over,
	   "the stream passes it and the one behind it");
	put_with(&r, g, &it, 1, NULL, &rc);
	ok(rc == -EHOSTDOWN, "another one is refused");
	ok(ugds_ctrl_quarantine(r.f.c, NULL, 0) > 0 && idle(&r) == !direct,
	   "what the device may touch is in quarantine");
	if (!direct)
		ok(ugds_stream_close(g.s, 0) == -EBUSY, "which is the stream's ring");
	ugds_fault_clear(r.f.c, id[0]);
	ugds_fault_clear(r.f.c, id[1]);
	ok(!ugds_ctrl_reset(r.f.c, &err), "reset %s", err.text);
	c = put(&r, g, it);
	ok(ended(&r, g, c).result == 300 * (int64_t)KIB, "then all works again");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void while_in_flight(bool direct, bool removed)
{
	struct rig r;
	struct ugds_error err = { 0 };
	struct ugds_stream_result res;
	struct ugds_ctrl_stats st = { 0 };
	struct gated g;
	uint64_t a;
	int id;

	rig_begin(&r, direct, removed ? "removed" : "reset");
	g = gated_open(&r);
	id = fault(&r, UGDS_FAULT_HOLD, UINT32_MAX);
	a = put(&r, g, item(&r, UGDS_OP_READ, FAR, 300 * KIB, 0));
	for (int i = 0; i < 5000 && (ugds_ctrl_stats(r.f.c, &st), !st.inflight); i++)
		fake_rest(MS);
	ok(state(g, a) == UGDS_SOP_RUNNING && st.inflight, "it runs");
	if (removed)
		nvme_ctrl_fail(r.f.c->c, NVME_REMOVED, "removed by the test");
	else
		ok(!ugds_ctrl_reset(r.f.c, &err), "reset");
	res = ended(&r, g, a);
	ok(res.result == (removed ? -ENODEV : -ECANCELED) && over(g, a).over,
	   "it ends, and the stream passes: %lld", (long long)res.result);
	ugds_fault_clear(r.f.c, id);
	if (removed) { /* what was at the device stays in quarantine, with its namespace, until the forced close */
		fake_sync(g.fs, SEC);
		ugds_sink_close(r.sink);
		ugds_chan_close(r.f.ch);
		for (int i = 0; i < 100 && (id = ugds_ctrl_close(r.f.c, 1)) == -EBUSY; i++)
			ugds_ns_close(r.f.ns);
		ok(!id, "a forced close ends it: %d", id);
		ugds_stream_free(g.s);
		fake_stream_free(g.fs);
		fake_stop();
		if (!direct)
			free(r.gpu);
		free(r.f.buf);
		ugds_ctrl_free(r.f.c);
		ugds_ns_free(r.f.ns);
		return;
	}
	ok(ended(&r, g, put(&r, g, item(&r, UGDS_OP_READ, FAR, 300 * KIB, 0))).result == 300 * (int64_t)KIB,
	   "works again");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void context_lost(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .cell = &cell, .flags = UGDS_SOP_STALL };
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	struct gated g;
	_Atomic bool go = false;
	uint64_t a[20], good = 0;
	int rc;

	rig_begin(&r, direct, "GPU context lost");
	g = gated_open(&r);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	for (uint32_t i = 0; i < 20; i++) {
		it = item(&r, UGDS_OP_READ, FAR + i * 64 * KIB, 64 * KIB, 0);
		a[i] = put_with(&r, g, &it, 1, i ? NULL : &how, &rc);
	}
	fake_rest(10 * MS);
	atomic_store(&fake.lost, true);
	res = ended(&r, g, a[0]);
	ok(res.result == -EIO && res.gpu_code == FAKE_LOST && res.state == UGDS_SOP_FAILED && res.over &&
		   cell.error == -EIO,
	   "what waits for go ends with the runtime's code");
	for (uint32_t i = 0; i < 20; i++)
		good += ended(&r, g, a[i]).result == -EIO;
	ok(good == 20 && idle(&r), "and so do all behind it: nothing is held");
	put_with(&r, g, &it, 1, NULL, &rc);
	ok(rc < 0, "another one is refused: %d", rc);
	ok(fixture_run(&r.f, UGDS_OP_READ, 0, 4096, 0) == 4096, "the controller still serves host memory");
	ok(!ugds_stream_close(g.s, 0), "the stream is closed");
	ugds_stream_free(g.s);
	atomic_store(&go, true);
	fake_stream_free(g.fs);
	ok(rig_close(&r), "given back");
}

#define RING 8 /* chunks of a ring that grew */

/* As many chunks as it takes until the next operation lies in the ring as the one at @chunks did. */
static void align_ring(struct rig *r, struct gated g, uint64_t chunks)
{
	struct ugds_stream_info at;
	uint64_t token;

	for (ugds_stream_info(g.s, &at); at.chunks % RING != chunks % RING; ugds_stream_info(g.s, &at)) {
		token = put(r, g, item(r, UGDS_OP_READ, FAR, 64 * KIB, 0));
		ended(r, g, token);
		ugds_stream_release(g.s, token);
	}
}

/* Each call of the runtime refuses once, while a read of five chunks is enqueued. */
static void runtime_refuses(bool direct, bool ordered)
{
	struct rig r;
	struct ugds_stream_cell cell;
	struct ugds_stream_how how = { .cell = &cell };
	struct ugds_stream_started st;
	struct ugds_error err = { 0 };
	struct ugds_stream_item it;
	struct ugds_stream_info a, b;
	struct gated g;
	uint32_t calls, begun = 0, bad = 0;

	rig_begin(&r, direct, "runtime refuses");
	fake.ordered = ordered;
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 320 * KIB, 0);
	over(g, put(&r, g, it));
	fake_sync(g.fs, 5 * SEC);
	ugds_stream_info(g.s, &a);
	over(g, put(&r, g, it));
	ugds_stream_info(g.s, &b);
	/* whether the stream is idle may be refused too: then it is not; where the ring ends, a copy and a wait more */
	calls = (uint32_t)(b.gpu_calls - a.gpu_calls) - !ordered;
	for (uint32_t i = 1; i <= calls; i++) {
		int rc;

		align_ring(&r, g, a.chunks);
		atomic_store(&fake.fail_at, atomic_load(&fake.nr_calls) + i);
		cell = (struct ugds_stream_cell){ 0 };
		rc = ugds_stream_enqueue(g.s, r.f.ns, &it, 1, &how, &st, &err);
		atomic_store(&fake.fail_at, 0);
		if (rc >= 0 || st.gpu_code != FAKE_REFUSED)
			printf("# call %u of %u: %d, code %d\n", i, calls, rc, st.gpu_code), bad++;
		for (int k = 0; k < 5000 && !idle(&r); k++)
			fake_rest(MS);
		bad += !idle(&r);
		/* what the stream was given of it says so to whoever looks, and is known until it is over */
		if (st.token) {
			bad += !over(g, st.token).over || cell.state != UGDS_SOP_FAILED || cell.error != -EIO;
			ugds_stream_release(g.s, st.token);
			begun++;
		}
		if (!fake_sync(g.fs, 5 * SEC))
			printf("# call %u: the stream hangs\n", i), bad++;
		memset(r.gpu + FAR, 0x55, 320 * KIB);
		if (ended(&r, g, put(&r, g, it)).result != 320 * (int64_t)KIB)
			bad++;
	}
	ok(!bad, "%u calls refuse, one after another: nothing is held, nothing hangs, the next one is done",
	   calls);
	ok(begun == calls - 1, "all but the first leave something in the stream: %u of %u", begun, calls);
	ugds_stream_info(g.s, &b);
	ok(b.waiting == 0 && b.held == 2 + calls, "and nothing is left over: %u", b.held);
	ok(gated_close(g), "closed");
	ok(rig_close(&r), "given back");
}

static void closes(bool direct)
{
	struct rig r;
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	_Atomic bool go = false;
	struct gated g, h;
	uint64_t a, b;
	int rc;

	rig_begin(&r, direct, "forced close");
	g = gated_open(&r);
	h = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 100 * KIB, 0);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	a = put(&r, g, it);
	b = put(&r, g, it);
	ok(ugds_stream_close(g.s, 1) == -EBUSY, "the stream has not come by: not closed yet");
	res = ended(&r, g, a);
	ok(res.result == -ESHUTDOWN && ended(&r, g, b).result == -ESHUTDOWN, "what waits ends at once");
	atomic_store(&go, true);
	ok(over(g, a).over && over(g, b).over && fake_sync(g.fs, SEC), "the stream passes");
	for (int i = 0; i < 5000 && (rc = ugds_stream_close(g.s, 1)) == -EBUSY; i++)
		fake_rest(MS);
	ok(!rc && idle(&r), "then it is closed");
	put_with(&r, g, &it, 1, NULL, &rc);
	ok(rc == -ESHUTDOWN, "and takes nothing");
	ugds_stream_free(g.s);
	fake_stream_free(g.fs);

	ok(ended(&r, h, put(&r, h, it)).result == 100 * (int64_t)KIB, "another stream");
	fake_sync(h.fs, SEC);
	ok(ugds_ctrl_close(r.f.c, 0) == -EBUSY, "the controller is busy with a channel");
	ok(ended(&r, h, put(&r, h, it)).result == 100 * (int64_t)KIB, "so the stream still works");
	fake_sync(h.fs, SEC);
	ok(rig_close(&r), "an idle stream is closed with its controller");
	put_with(&r, h, &it, 1, NULL, &rc);
	ok(rc == -ESHUTDOWN && !ugds_stream_close(h.s, 0), "and answers so");
	ugds_stream_free(h.s);
	free(h.fs);
}

#if !defined(__SANITIZE_THREAD__)
/* In a forked child there is neither a thread nor a GPU: all is answered, nothing is touched. */
static void forked(bool direct)
{
	struct rig r;
	struct ugds_stream_result res;
	struct ugds_stream_item it;
	_Atomic bool go = false;
	struct gated g;
	uint64_t a;
	int rc, status = -1;
	pid_t pid;

	rig_begin(&r, direct, "forked");
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 100 * KIB, 0);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	a = put(&r, g, it);
	pid = fork();
	if (!pid) {
		bool good = !put_with(&r, g, &it, 1, NULL, &rc) && rc == -ENODEV;

		good &= ugds_stream_state(g.s, a, &res) == -ENODEV && !ugds_stream_cancel(g.s, a);
		good &= ugds_stream_watch(g.s, a, r.sink, 0) == -ENODEV &&
			ugds_sink_reap(r.sink, &res, 1) == -ENODEV;
		ugds_stream_release(g.s, a);
		good &= !ugds_stream_close(g.s, 0);
		ugds_stream_free(g.s);
		ugds_sink_close(r.sink);
		_exit(good ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	ok(pid > 0 && !status, "the child is answered");
	atomic_store(&go, true);
	ok(ended(&r, g, a).result == 100 * (int64_t)KIB, "the parent goes on");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}
#else
static void forked(bool direct) { (void)direct; }
#endif

int main(void)
{
	for (int direct = 0; direct < 2; direct++) {
		wedged(direct);
		while_in_flight(direct, false);
		while_in_flight(direct, true);
		context_lost(direct);
		runtime_refuses(direct, true);
		runtime_refuses(direct, false);
		closes(direct);
		forked(direct);
	}
	return done_testing();
}
