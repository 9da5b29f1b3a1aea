/* SPDX-License-Identifier: MIT */
/* How operations in stream order end otherwise than well, and when their stream may pass. */
#include "stream_rig.h"

#include "support/barrier.h"

struct next_kernel {
	struct ugds_stream_cell *cell;
	uint32_t saw;
};

static void k_next(void *arg)
{
	struct next_kernel *k = arg;

	k->saw = __atomic_load_n(&k->cell->state, __ATOMIC_ACQUIRE);
}

/* The kernel behind an operation finds its cell written, whether it was done, withdrawn or failed. */
static void cells(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell[300] = { 0 };
	struct next_kernel k[300];
	struct gated g;
	uint64_t token[300];
	uint32_t bad = 0;
	int rc, id = 0;

	rig_begin(&r, direct, "cells");
	g = gated_open(&r);
	for (uint32_t i = 0; i < 300; i++) {
		struct ugds_stream_how how = { .cell = &cell[i] };
		struct ugds_stream_item it = item(&r, UGDS_OP_READ, FAR, 4 * KIB, i % 5 * 4 * KIB);

		token[i] = put_with(&r, g, &it, 1, &how, &rc);
		k[i] = (struct next_kernel){ &cell[i], 0 };
		fake_kernel(g.fs, k_next, &k[i]);
		if (i % 3 == 1)
			ugds_stream_cancel(g.s, token[i]);
		if (i == 150)
			id = fault(&r, UGDS_FAULT_STATUS, UINT32_MAX);
	}
	fake_sync(g.fs, 10 * SEC);
	for (uint32_t i = 0; i < 300; i++) {
		struct ugds_stream_result res = over(g, token[i]);

		bad += k[i].saw != res.state ||
		       (res.state == UGDS_SOP_DONE ? cell[i].nbytes != 4 * KIB : cell[i].error != res.result);
	}
	ok(!bad, "300 kernels read what became of the operation before them");
	ugds_fault_clear(r.f.c, id);
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

/* What the GPU could not be made to see was not read; the stream passes it all the same. */
static void flushes(void)
{
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .cell = &cell };
	struct ugds_stream_result res;
	struct ugds_stream_item it;
	struct gated g;
	struct rig r;
	int rc;

	rig_begin(&r, true, "flushes");
	fake.caps |= GPU_NEEDS_FLUSH | GPU_HAS_FLUSH;
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 4 * KIB, 0);
	atomic_store(&fake.nr_flushes, 0);
	res = ended(&r, g, put(&r, g, it));
	ok(res.result == 4096 && atomic_load(&fake.nr_flushes) == 1,
	   "a read is flushed before the stream goes on");
	atomic_store(&fake.flush_code, FAKE_REFUSED);
	res = ended(&r, g, put_with(&r, g, &it, 1, &how, &rc));
	ok(res.state == UGDS_SOP_FAILED && res.result == -EIO && res.gpu_code == FAKE_REFUSED,
	   "one that could not be has failed: %lld, %d", (long long)res.result, res.gpu_code);
	ok(fake_sync(g.fs, 5 * SEC) && cell.state == UGDS_SOP_FAILED && cell.error == -EIO,
	   "the stream passes it, and its cell says so");
	atomic_store(&fake.flush_code, 0);
	ok(ended(&r, g, put(&r, g, it)).result == 4096, "the next one is done");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void withdrawn(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .cell = &cell };
	_Atomic bool go = false;
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	struct gated g;
	uint64_t a, b;
	int rc;

	rig_begin(&r, direct, "withdrawn");
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 200 * KIB, 0);
	fill(r.gpu, 200 * KIB, 3);
	memset(r.gpu + FAR, 0x55, 200 * KIB);
	over(g, put(&r, g, item(&r, UGDS_OP_WRITE, 0, 200 * KIB, 0)));
	fake_kernel(g.fs, fake_gate, (void *)&go);
	a = put_with(&r, g, &it, 1, &how, &rc);
	it = item(&r, UGDS_OP_READ, 2 * FAR, 200 * KIB, 0);
	b = put_with(&r, g, &it, 1, NULL, &rc);
	ok(state(g, a) == UGDS_SOP_WAITING && !idle(&r) && ugds_unmap(r.f.c, r.f.map) == -EBUSY &&
		   ugds_ns_close(r.f.ns) == -EBUSY && ugds_stream_close(g.s, 0) == -EBUSY,
	   "what waits holds its memory, namespace and stream");
	ok(ugds_ctrl_close(r.f.c, 0) == -EBUSY, "and its controller");
	ok(ugds_stream_cancel(g.s, a) == 1 && ugds_stream_cancel(g.s, a) == 0, "withdrawn, once");
	res = ended(&r, g, a);
	ok(res.result == -ECANCELED && res.state == UGDS_SOP_CANCELLED && !res.over && !is_over(g, a),
	   "it ends for its user at once, before the stream came to it");
	ok(!__atomic_load_n(&cell.state, __ATOMIC_ACQUIRE), "and its cell waits");
	atomic_store(&go, true);
	ok(over(g, a).over && cell.state == UGDS_SOP_CANCELLED && cell.error == -ECANCELED && !cell.nbytes,
	   "the stream passes it, with its cell written");
	ok(r.gpu[FAR] == (direct ? 0x55 : 0) && r.gpu[FAR + 200 * KIB - 1] == (direct ? 0x55 : 0),
	   "nothing of an earlier transfer is in its target");
	ok(ended(&r, g, b).result == 200 * (int64_t)KIB && filled(r.gpu + 2 * FAR, 200 * KIB, 3),
	   "the one behind it is done");
	ok(ugds_stream_cancel(g.s, b) == 0, "too late to withdraw that");
	ok(gated_close(g) && idle(&r), "closed, and nothing is held");
	ok(rig_close(&r), "given back");
}

/* A set of both kinds, withdrawn: the read's target gets no bytes of an earlier transfer, the write is not made. */
static void mixed(bool direct)
{
	struct rig r;
	_Atomic bool go = false;
	struct ugds_stream_item it[2];
	struct gated g;
	uint64_t a;
	int rc;

	rig_begin(&r, direct, "mixed");
	g = gated_open(&r);
	fill(r.gpu, 128 * KIB, 3);
	over(g, put(&r, g, item(&r, UGDS_OP_WRITE, 0, 128 * KIB, 0)));
	over(g, put(&r, g, item(&r, UGDS_OP_READ, FAR, 128 * KIB, 0)));
	it[0] = item(&r, UGDS_OP_READ, FAR, 32 * KIB, 0);
	it[1] = item(&r, UGDS_OP_WRITE, 2 * FAR, 32 * KIB, 0);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	a = put_with(&r, g, it, 2, NULL, &rc);
	ugds_stream_cancel(g.s, a);
	atomic_store(&go, true);
	ok(over(g, a).over && r.gpu[FAR + 1] == (direct ? r.gpu[1] : 0), "the target of the read");
	ok(ended(&r, g, put(&r, g, item(&r, UGDS_OP_READ, FAR, 128 * KIB, 0))).result == 128 * (int64_t)KIB &&
		   filled(r.gpu + FAR, 128 * KIB, 3),
	   "nothing was written");
	it[0].offset = 64 * KIB;
	fill(r.gpu + 2 * FAR, 32 * KIB, 9);
	a = put_with(&r, g, it, 2, NULL, &rc);
	ok(ended(&r, g, a).result == 64 * (int64_t)KIB && filled(r.gpu + FAR, 32 * KIB, 3 + 64 * KIB),
	   "a set of both kinds is done");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void timed_out(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .cell = &cell, .timeout_ns = 60 * MS };
	_Atomic bool go = false;
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	struct gated g;
	uint64_t a, b;
	int id, rc;

	rig_begin(&r, direct, "timed out");
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 300 * KIB, 0);
	id = fault(&r, UGDS_FAULT_HOLD, UINT32_MAX);
	fake_kernel(g.fs, fake_gate, (void *)&go);
	a = put_with(&r, g, &it, 1, &how, &rc);
	fake_rest(120 * MS);
	ok(state(g, a) == UGDS_SOP_WAITING, "the clock does not run before go");
	atomic_store(&go, true);
	res = ended(&r, g, a);
	ok(res.result == -ETIMEDOUT && res.state == UGDS_SOP_FAILED && !res.over, "it ends for its user");
	fake_rest(20 * MS);
	ok(!is_over(g, a) && !idle(&r) && !__atomic_load_n(&cell.state, __ATOMIC_ACQUIRE),
	   "the stream does not pass before the command is back");
	ugds_fault_clear(r.f.c, id);
	ok(over(g, a).over && cell.state == UGDS_SOP_FAILED && cell.error == -ETIMEDOUT, "then it does");
	it = item(&r, UGDS_OP_READ, 0, 64 * KIB, 0);
	b = put_with(&r, g, &it, 1, &how, &rc);
	ok(ended(&r, g, b).result == 64 * (int64_t)KIB, "the next one is done in time");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void device_error(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .cell = &cell };
	struct ugds_stream_item it[3];
	struct ugds_stream_result res;
	struct gated g;
	bool zeros = true;
	uint64_t a;
	int id, rc;

	rig_begin(&r, direct, "device error");
	g = gated_open(&r);
	fill(r.gpu, 192 * KIB, 8);
	over(g, put(&r, g, item(&r, UGDS_OP_WRITE, 0, 192 * KIB, 0)));
	for (uint32_t i = 0; i < 3; i++)
		it[i] = item(&r, UGDS_OP_READ, FAR + i * 64 * KIB, 64 * KIB, i * 64 * KIB);
	memset(r.gpu + FAR, 0x55, 192 * KIB);
	struct ugds_fault one = { .action = UGDS_FAULT_STATUS,
				  .qid = UGDS_FAULT_ANY_IO,
				  .opcode = UGDS_OP_READ,
				  .nsid = UGDS_FAULT_ANY,
				  .slba = 16,
				  .nlb = 16,
				  .count = 1,
				  .status = 0x281 };

	id = ugds_fault_add(r.f.c, &one);
	a = put_with(&r, g, it, 3, &how, &rc);
	res = ended(&r, g, a);
	ok(res.result < 0 && res.state == UGDS_SOP_FAILED && res.item == 1 &&
		   (res.status & 0xffff) == 0x281 && res.over,
	   "a set fails with its second command: %lld, item %u, status %llx", (long long)res.result, res.item,
	   (unsigned long long)res.status);
	ok(cell.state == UGDS_SOP_FAILED && cell.error == (int32_t)res.result && cell.nbytes == res.done,
	   "its cell says so, and that %llu bytes are done", (unsigned long long)res.done);
	for (uint64_t i = 64 * KIB; !direct && i < 128 * KIB; i++)
		zeros &= !r.gpu[FAR + i];
	ok(filled(r.gpu + FAR, 64 * KIB, 8) && zeros,
	   "what was read is there, the rest is zeros where staged");
	ok(ended(&r, g, put(&r, g, it[1])).result == 64 * (int64_t)KIB, "the next one is done");
	ugds_fault_clear(r.f.c, id);
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void stalled(bool direct)
{
	struct rig r;
	struct ugds_stream_cell cell = { 0 };
	struct ugds_stream_how how = { .flags = UGDS_SOP_STALL, .cell = &cell };
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	struct gated g;
	uint64_t a;
	int id, rc;

	rig_begin(&r, direct, "stalled");
	g = gated_open(&r);
	fill(r.gpu, 500 * KIB, 8);
	over(g, put(&r, g, item(&r, UGDS_OP_WRITE, 0, 500 * KIB, 0)));
	it = item(&r, UGDS_OP_READ, FAR, 500 * KIB, 0);
	for (uint32_t skip = 0; skip < 4; skip++) {
		struct ugds_fault one = { .action = UGDS_FAULT_STATUS,
					  .qid = UGDS_FAULT_ANY_IO,
					  .opcode = UGDS_OP_READ,
					  .nsid = UGDS_FAULT_ANY,
					  .skip = skip,
					  .count = 1,
					  .status = 0x281 };

		memset(r.gpu + FAR, 0x55, 500 * KIB);
		cell.state = 0;
		id = ugds_fault_add(r.f.c, &one);
		a = put_with(&r, g, &it, 1, &how, &rc);
		res = ended(&r, g, a);
		ok(res.state == UGDS_SOP_STALLED && res.result < 0 && !res.over &&
			   !__atomic_load_n(&cell.state, __ATOMIC_ACQUIRE),
		   "command %u fails: it stalls", skip);
		fake_rest(2 * MS);
		ok(state(g, a) == UGDS_SOP_STALLED && !is_over(g, a), "the stream waits");
		ok(ugds_stream_resume(g.s, a) == 1, "resumed");
		res = ended(&r, g, a);
		ok(res.state == UGDS_SOP_DONE && res.result == 500 * (int64_t)KIB &&
			   filled(r.gpu + FAR, 500 * KIB, 8) && cell.state == UGDS_SOP_DONE,
		   "it is done, and the bytes are all there: %lld", (long long)res.result);
		ugds_fault_clear(r.f.c, id);
	}
	id = fault(&r, UGDS_FAULT_STATUS, UINT32_MAX);
	a = put_with(&r, g, &it, 1, &how, &rc);
	ended(&r, g, a);
	ugds_stream_resume(g.s, a);
	res = ended(&r, g, a);
	ok(res.state == UGDS_SOP_STALLED, "what fails again stalls again");
	ok(ugds_stream_fail(g.s, a) == 1, "given up");
	res = ended(&r, g, a);
	ok(res.state == UGDS_SOP_FAILED && res.result < 0 && cell.state == UGDS_SOP_FAILED && over(g, a).over,
	   "it failed, and the stream passes");
	a = put_with(&r, g, &it, 1, &how, &rc);
	ended(&r, g, a);
	ok(gated_close(g) && idle(&r), "a stream that stalls is closed: it passes");
	ugds_fault_clear(r.f.c, id);
	ok(rig_close(&r), "given back");
}

/* Whoever could decide goes away, before it stalls, as it does so, or after: it fails, and says so once. */
static void left_alone(bool direct)
{
	struct rig r;
	struct ugds_stream_how how = { .flags = UGDS_SOP_STALL };
	struct ugds_stream_item it;
	struct ugds_stream_result res;
	struct gated g;
	uint64_t a, bad = 0;
	int id, rc;

	rig_begin(&r, direct, "left alone");
	g = gated_open(&r);
	it = item(&r, UGDS_OP_READ, FAR, 64 * KIB, 0);
	id = fault(&r, UGDS_FAULT_STATUS, UINT32_MAX);
	for (uint32_t i = 0; i < 300; i++) {
		a = put_with(&r, g, &it, 1, &how, &rc);
		if (i % 3 == 1)
			for (uint32_t k = 0; k < i; k++)
				cpu_relax();
		else if (i % 3 == 2)
			bad += ended(&r, g, a).state != UGDS_SOP_STALLED;
		ugds_stream_leave(g.s, a);
		ugds_stream_leave(g.s, a);
		bad += !over(g, a).over;
		res = ended(&r, g, a);
		bad += res.state != UGDS_SOP_FAILED || res.result >= 0;
		bad += ugds_stream_resume(g.s, a) || ugds_stream_fail(g.s, a);
		ugds_stream_release(g.s, a);
	}
	ok(!bad, "300 that nobody can decide on fail: %llu do not", (unsigned long long)bad);
	ugds_fault_clear(r.f.c, id);
	ok(ended(&r, g, put(&r, g, it)).result == 64 * (int64_t)KIB, "the stream goes on");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

static void stall_limit(void)
{
	struct rig r;
	struct ugds_stream_how how = { .flags = UGDS_SOP_STALL };
	struct ugds_stream_item it;
	struct gated g[8];
	uint64_t token[8], good = 0;
	_Atomic bool go = false;
	int rc, id;

	rig_begin(&r, false, "stall limit");
	id = fault(&r, UGDS_FAULT_STATUS, UINT32_MAX);
	for (uint32_t i = 0; i < 8; i++) {
		g[i] = gated_open(&r);
		it = item(&r, UGDS_OP_READ, i * 64 * KIB, 64 * KIB, 0);
		token[i] = put_with(&r, g[i], &it, 1, &how, &rc);
		good += i < 7 ? !rc : rc == -ENOBUFS;
	}
	ok(good == 8, "7 streams may stall on 8 connections; the 8th is refused");
	it = item(&r, UGDS_OP_READ, FAR, 64 * KIB, 0);
	ok(put_with(&r, g[3], &it, 1, &how, &rc), "one that may already may again");
	for (uint32_t i = 0; i < 7; i++)
		good += ended(&r, g[i], token[i]).state == UGDS_SOP_STALLED;
	ok(good == 15, "all 7 stall");
	ugds_fault_clear(r.f.c, id);
	it = item(&r, UGDS_OP_READ, 7 * 64 * KIB, 64 * KIB, 0);
	ok(ended(&r, g[7], put(&r, g[7], it)).result == 64 * (int64_t)KIB,
	   "and one stream goes on meanwhile");
	for (uint32_t i = 0; i < 7; i++)
		good += (uint64_t)ugds_stream_resume(g[i].s, token[i]);
	for (uint32_t i = 0; i < 7; i++)
		good += ended(&r, g[i], token[i]).state == UGDS_SOP_DONE;
	ok(good == 29, "all go on");
	fake_kernel(g[7].fs, fake_gate, (void *)&go);
	token[7] = put_with(&r, g[7], &it, 1, &how, &rc);
	ok(!rc && token[7], "then another one may");
	atomic_store(&go, true);
	over(g[7], token[7]);
	for (uint32_t i = 0; i < 8; i++)
		good += gated_close(g[i]);
	ok(good == 37, "closed");
	ok(rig_close(&r), "given back");
}

static void refusals(bool direct)
{
	struct rig r;
	struct ugds_stream_item it;
	struct ugds_stream_info a, b;
	_Atomic bool go = false;
	struct gated g;
	uint64_t token;
	int rc;

	rig_begin(&r, direct, "refusals");
	r.p.max_waiting = 2;
	r.p.max_chunks = 4;
	g = gated_open(&r);
	ugds_stream_info(g.s, &a);
	it = item(&r, UGDS_OP_READ, 0, 4096, 100);
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -EINVAL, "half a block");
	it = item(&r, UGDS_OP_READ, 0, 4096, NS_BYTES);
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -ERANGE, "past the namespace");
	it = item(&r, UGDS_OP_READ, BUF_BYTES, 4096, 0);
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -EFAULT, "past the registration");
	it = item(&r, UGDS_OP_READ, 0, 4096, 0);
	it.map = 0x1234500000001;
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -ESTALE, "a stale mapping");
	it = item(&r, UGDS_OP_FLUSH, 0, 4096, 0);
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -EOPNOTSUPP, "another command");
	ok(!put_with(&r, g, &it, 0, NULL, &rc) && rc == -EINVAL, "nothing at all");
	it = item(&r, UGDS_OP_READ, 0, 300 * KIB, 0);
	token = put_with(&r, g, &it, 1, NULL, &rc);
	ok(direct ? !rc : rc == -E2BIG, "more chunks than one may have");
	if (direct)
		over(g, token);
	it = item(&r, UGDS_OP_READ, 0, 4096, 0);
	atomic_store(&g.fs->capturing, true);
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -EPERM, "a stream that is captured");
	atomic_store(&g.fs->capturing, false);
	ugds_stream_info(g.s, &b);
	ok(b.operations == a.operations + direct && b.waiting == 0 && idle(&r), "nothing was enqueued");
	fake_kernel(g.fs, fake_gate, (void *)&go);
	put(&r, g, it);
	token = put(&r, g, it);
	ok(!put_with(&r, g, &it, 1, NULL, &rc) && rc == -EAGAIN, "more than may wait");
	atomic_store(&go, true);
	over(g, token);
	ok(put(&r, g, it), "there is room again");
	ok(gated_close(g) && idle(&r), "closed");
	ok(rig_close(&r), "given back");
}

int main(void)
{
	for (int direct = 0; direct < 2; direct++) {
		cells(direct);
		withdrawn(direct);
		mixed(direct);
		timed_out(direct);
		device_error(direct);
		stalled(direct);
		left_alone(direct);
		refusals(direct);
	}
	flushes();
	stall_limit();
	return done_testing();
}
