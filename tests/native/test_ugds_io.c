/* SPDX-License-Identifier: MIT */
/* Operations and batches through ugds.h on the embedded controller, in every mode, stepping on and off. */
#include <errno.h>

#include "ugds_fixture.h"

static const char *const mode_name[] = { "adaptive", "inline", "interrupt", "poll" };

static void ranges(struct fixture *f, const char *what)
{
	bool good = true;

	/* lengths around the command limit (128 KiB), offsets in the buffer that are not page aligned */
	for (uint64_t n = 4096; n <= (1 << 20) && good; n = n * 3 / 4096 * 4096 + 4096)
		for (uint64_t at = 0; at < 3 && good; at++) {
			uint64_t off = at * 4096 * 7, pos = at * 516;

			fill(f->buf + pos, n, n + at);
			good = fixture_run(f, UGDS_OP_WRITE | (at == 1 ? UGDS_F_FUA : 0), pos, n, off) ==
			       (int64_t)n;
			memset(f->buf, 0xaa, 2 << 20);
			good = good && fixture_run(f, UGDS_OP_READ, pos + 1024, n, off) == (int64_t)n &&
			       filled(f->buf + pos + 1024, n, n + at) && f->buf[pos + 1023] == 0xaa &&
			       f->buf[pos + 1024 + n] == 0xaa;
		}
	ok(good, "%s: written and read back, byte exact", what);
	ok(fixture_run(f, UGDS_OP_READ, 0, BUF_BYTES, 0) == (int64_t)BUF_BYTES, "%s: 24 MiB in one operation",
	   what);
}

static void refusals(struct fixture *f)
{
	uint64_t ro, before;
	struct ugds_ctrl_stats st;

	ugds_ctrl_stats(f->c, &st);
	before = st.commands;
	ok(fixture_run(f, UGDS_OP_READ, 0, 100, 0) == -EINVAL, "a length that is not whole blocks");
	ok(fixture_run(f, UGDS_OP_READ, 0, 4096, 512) == -EINVAL, "an offset between blocks");
	ok(fixture_run(f, UGDS_OP_READ, 0, 4096, NS_BYTES) == -ERANGE, "past the end");
	ok(fixture_run(f, UGDS_OP_READ, 0, 8192, UINT64_MAX - 4095) == -ERANGE,
	   "past the end, the sum overflows");
	ok(fixture_run(f, UGDS_OP_READ, BUF_BYTES - 4096, 8192, 0) == -EFAULT, "past the buffer");
	ok(fixture_run(f, UGDS_OP_READ, UINT64_MAX - 4095, 8192, 0) == -EFAULT,
	   "past the buffer, the sum overflows");
	ok(fixture_run(f, UGDS_OP_READ, 2, 4096, 0) == -EDOM, "a buffer that is not 4-byte aligned");
	ok(ugds_rw(f->ch, f->ns, f->map + 1, 0, 4096, 0, UGDS_OP_READ) == -ESTALE, "a handle nobody has");
	ok(fixture_run(f, 0x7f, 0, 4096, 0) == -EOPNOTSUPP, "an opcode that is none");
	ok(!ugds_map(f->c, f->buf, 4096, UGDS_MEM_READONLY, &ro) &&
		   ugds_rw(f->ch, f->ns, ro, 0, 4096, 0, UGDS_OP_READ) == -EACCES && !ugds_unmap(f->c, ro),
	   "a read into memory the device may only read");
	ok(fixture_run(f, UGDS_OP_READ, 0, 0, 0) == 0, "no bytes: done, nothing sent");
	ugds_ctrl_stats(f->c, &st);
	ok(st.commands == before, "none of these sent a command");
}

static void others(struct fixture *f, const char *what)
{
	fill(f->buf, 65536, 9);
	ok(fixture_run(f, UGDS_OP_WRITE, 0, 65536, 0) == 65536 && fixture_run(f, UGDS_OP_FLUSH, 0, 0, 0) == 0,
	   "%s: flush", what);
	ok(fixture_run(f, UGDS_OP_COMPARE, 0, 65536, 0) == 65536, "%s: compare equal", what);
	ok(fixture_run(f, UGDS_OP_VERIFY, 0, 65536, 0) == 65536, "%s: verify", what);
	f->buf[5000] ^= 1;
	ok(fixture_run(f, UGDS_OP_COMPARE, 0, 65536, 0) < 0, "%s: compare differs", what);
	ok(fixture_run(f, UGDS_OP_WRITE_ZEROES, 0, 8192, 0) == 8192 &&
		   fixture_run(f, UGDS_OP_READ, 0, 65536, 0) == 65536 && !f->buf[0] && !f->buf[8191] &&
		   f->buf[8192 + 7],
	   "%s: write zeroes", what);
	ok(fixture_run(f, UGDS_OP_DEALLOCATE, 0, 16384, 16384) == 16384 &&
		   fixture_run(f, UGDS_OP_READ, 0, 16384, 16384) == 16384 && !f->buf[0] && !f->buf[16383],
	   "%s: deallocate", what);
}

static int64_t batch_wait(struct fixture *f, struct ugds_batch *b, uint32_t n)
{
	struct ugds_completion done[8];

	while (!ugds_batch_notify(b, n))
		if (ugds_wait(f->ch, done, 8, 10 * SEC) <= 0)
			return -62;
	return ugds_batch_harvest_ok(b);
}

static void batches(struct fixture *f, const char *what, uint32_t n)
{
	int64_t *off = calloc(n, sizeof(*off)), *pos = calloc(n, sizeof(*pos));
	struct ugds_req bad[2] = { { .map = f->map, .nbytes = 4096, .op = UGDS_OP_READ },
				   { .map = f->map, .nbytes = 4096, .offset = 77, .op = UGDS_OP_READ } };
	struct ugds_batch *b;
	uint32_t at = 9;
	bool good;

	for (uint32_t i = 0; i < n; i++) {
		off[i] = (int64_t)(i * 7 % 1024) * 4096;
		pos[i] = (int64_t)i * 4096; /* no two items at one place: the device runs several at once */
	}
	fill(f->buf, 4 << 20, 3);
	good = fixture_run(f, UGDS_OP_WRITE, 0, 4 << 20, 0) == 4 << 20;
	memset(f->buf, 0, (size_t)n * 4096);
	good = good && !ugds_batch_new(f->ch, n, &b) &&
	       ugds_batch_submit_array(b, f->ns, UGDS_OP_READ, f->map, off, pos, 4096, n, 0, &at) >= 0 &&
	       batch_wait(f, b, n) == (int64_t)n * 4096;
	for (uint32_t i = 0; i < n && good; i++)
		good = filled(f->buf + pos[i], 4096, 3 + (uint64_t)off[i]);
	ok(good, "%s: a batch of %u", what, n);
	ok(ugds_batch_submit(b, f->ns, bad, 2, &at) == -EINVAL && at == 1 && !ugds_batch_pending(b) &&
		   !ugds_map_inflight(f->c, f->map),
	   "%s: one bad item, nothing sent", what);
	ok(!ugds_batch_free(b), "%s: batch freed", what);
	free(off);
	free(pos);
}

/* A long operation that waits for queue space goes on although small ones complete inside their calls. */
static void beside(void)
{
	struct ugds_completion done;
	struct fixture f;
	bool good = true;

	fixture_defaults(&f);
	f.open.depth = 4;
	ok(fixture_open(&f, UGDS_MODE_ADAPTIVE), "small beside large: open");
	for (int i = 0; i < 300 && good; i++) {
		int64_t big = ugds_rw(f.ch, f.ns, f.map, 0, 4 << 20, 0, UGDS_OP_READ);
		int64_t small[8];

		for (int k = 0; k < 8; k++)
			small[k] = ugds_rw(f.ch, f.ns, f.map, (8u << 20) + (uint32_t)k * 4096, 4096, 0,
					   UGDS_OP_READ);
		for (int k = 0; k < 9 && good; k++) {
			int64_t r = k ? small[k - 1] : big;

			if (r >= UGDS_PENDING)
				good = ugds_wait(f.ch, &done, 1, 10 * SEC) == 1 && done.result > 0;
			else
				good = r > 0;
		}
	}
	ok(good, "small beside large: all end");
	ok(fixture_close(&f), "small beside large: all given back");
}

static void deep(void)
{
	struct fixture f;

	fixture_defaults(&f);
	f.emu.mqes = 1;
	f.emu.mdts = 1;
	f.emu.queues = 1;
	ok(fixture_open(&f, UGDS_MODE_ADAPTIVE), "queue depth 2, one queue pair");
	ok(!ugds_chan_owns_queue(f.ch), "the one pair is the executor's");
	ranges(&f, "depth 2");
	batches(&f, "depth 2", 5000);
	ok(fixture_close(&f), "depth 2: all given back");
}

int main(void)
{
	for (uint32_t mode = 0; mode < 4; mode++)
		for (uint32_t step = 0; step < 2; step++) {
			struct fixture f;
			char what[32];

			fixture_defaults(&f);
			if (!step)
				f.emu.flags &= ~(uint32_t)UGDS_EMU_STEP;
			snprintf(what, sizeof(what), "%s, step %u", mode_name[mode], step);
			if (!ok(fixture_open(&f, mode), "%s: open", what))
				return done_testing();
			ranges(&f, what);
			others(&f, what);
			batches(&f, what, 128);
			batches(&f, what, 5000);
			if (!mode)
				refusals(&f);
			ok(fixture_close(&f), "%s: all given back", what);
		}
	beside();
	deep();
	return done_testing();
}
