/* SPDX-License-Identifier: MIT */
/* Statistics of queue pairs: the arithmetic of buckets, and that every command is in exactly one. */
#include <errno.h>
#include <pthread.h>

#include "include/ugds_stats.h"
#include "nvme/qpair_ops.h"
#include "nvme/tally.h"
#include "ugds_fixture.h"

static uint64_t bucket_low(uint32_t i)
{
	uint32_t shift = i < 32 ? 0 : i / 16 - 1;
	uint64_t v = i < 32 ? i : (uint64_t)(16 + i % 16) << shift;

	return v << TALLY_UNIT_SHIFT;
}

static void buckets(void)
{
	bool good = true, close = true;

	for (uint32_t i = 0; i < TALLY_BUCKETS && good; i++)
		good = tally_bucket((int64_t)bucket_low(i)) == i &&
		       tally_bucket((int64_t)bucket_low(i + 1) - 1) == i;
	ok(good, "each bucket begins where the one before it ends");
	for (int64_t ns = 1000; ns < 100 * 1000000000ll && close; ns = ns * 9 / 8 + 1) {
		uint32_t i = tally_bucket(ns);

		close = (bucket_low(i + 1) - bucket_low(i)) * 16 <= bucket_low(i) + 256;
	}
	ok(close, "from 1 us on none is wider than a sixteenth of what it holds");
	ok(tally_bucket(-5) == 0 && tally_bucket(INT64_MAX) == TALLY_BUCKETS - 1,
	   "what is outside is at the ends");
	ok(tally_size(0) == 0 && tally_size(1) == 0 && tally_size(4096) == 0 && tally_size(4097) == 1 &&
		   tally_size(8192) == 1 && tally_size(1 << 20) == 8 && tally_size(4u << 20) == 10 &&
		   tally_size((4u << 20) + 1) == 11 && tally_size(UINT32_MAX) == 11,
	   "sizes");
}

static void rows_run_out(void)
{
	const struct nvme_qpair_conf conf = { .qid = 7, .depth = 64 };
	struct nvme_tallies *all;
	struct nvme_tally *t;
	uint64_t sum = 0, any = 0;

	ok(!nvme_tallies_new(2, -1, &all), "made");
	nvme_tally_of(all, 0, &conf);
	t = nvme_tally_of(all, 1, &conf);
	for (uint32_t cls = 0; cls < TALLY_CLASSES; cls++)
		for (uint32_t op = 0; op < TALLY_OPCODES; op++)
			for (uint32_t size = 0; size < TALLY_SIZES; size++)
				nvme_tally_add(t, cls, op, 4096u << size, 3, false, 1000);
	for (uint32_t i = 0; i < all->max_rows; i++) {
		uint64_t n = atomic_load(&all->rows[i].commands);

		sum += n;
		any += all->rows[i].opcode == TALLY_ANY ? n : 0;
	}
	ok(atomic_load(&all->head->nr_rows) == all->max_rows &&
		   sum == 3 * TALLY_CLASSES * TALLY_OPCODES * TALLY_SIZES &&
		   any == sum - 3 * (all->max_rows - 2),
	   "what finds no row is in that of its pair");
	nvme_tallies_free(all);
}

struct seen {
	uint64_t commands, bytes, failed, in_buckets, sum_ns, max_ns, sent, forgotten;
};

/* Of rows of one opcode, or all. */
static struct seen look(struct ugds_ctrl *c, int opcode)
{
	static _Alignas(64) char copy[4 << 20];
	const struct tally_head *h = (const void *)copy;
	struct seen s = { 0 };
	int64_t n = ugds_ctrl_tallies(c, copy, sizeof(copy));

	if (n <= 0 || memcmp(h->magic, TALLY_MAGIC, 8) || h->version != TALLY_VERSION)
		return s;
	for (uint32_t i = 0; i < h->nr_pairs; i++) {
		struct tally_pair *p = (void *)(copy + h->pair_off + i * h->pair_bytes);

		s.sent += p->sent;
		s.forgotten += p->forgotten;
	}
	for (uint32_t i = 0; i < h->nr_rows; i++) {
		struct tally_row *r = (void *)(copy + h->row_off + i * h->row_bytes);

		if (!r->used || (opcode >= 0 && r->opcode != opcode))
			continue;
		s.commands += r->commands;
		s.bytes += r->bytes;
		s.failed += r->failed;
		s.sum_ns += r->sum_ns;
		s.max_ns = r->max_ns > s.max_ns ? r->max_ns : s.max_ns;
		for (uint32_t k = 0; k < TALLY_BUCKETS; k++)
			s.in_buckets += r->bucket[k];
	}
	return s;
}

static void of_a_controller(uint32_t mode, bool step, const char *what)
{
	struct ugds_batch *b;
	struct ugds_ctrl_stats st;
	struct ugds_completion done[64];
	int64_t off[64];
	struct fixture f;
	struct seen s;
	uint32_t bad, n = 0;
	bool good;

	fixture_defaults(&f);
	if (!step)
		f.emu.flags &= ~(uint32_t)UGDS_EMU_STEP;
	f.emu.latency_ns = 200000;
	good = fixture_open(&f, mode);
	for (int i = 0; i < 10; i++)
		good = good && fixture_run(&f, UGDS_OP_READ, 0, 4096, 4096) == 4096;
	good = good && fixture_run(&f, UGDS_OP_WRITE, 0, 1 << 20, 0) == 1 << 20 &&
	       !fixture_run(&f, UGDS_OP_FLUSH, 0, 0, 0) && !ugds_batch_new(f.ch, 64, &b);
	for (uint32_t i = 0; i < 64; i++)
		off[i] = i * 4096;
	good = good &&
	       ugds_batch_submit_array(b, f.ns, UGDS_OP_READ, f.map, off, off, 4096, 64, 0, &bad) >= 0;
	while (good && !ugds_batch_notify(b, 64))
		good = ugds_wait(f.ch, done, 64, 10 * SEC) > 0;
	good = good && ugds_batch_harvest_ok(b) == 64 * 4096 && !ugds_batch_free(b);
	/* commands of a failing kind */
	f.buf[0] ^= 1;
	good = good && fixture_run(&f, UGDS_OP_COMPARE, 0, 4096, 0) < 0;
	ok(good, "%s: reads, writes, a flush, a batch, a compare that differs", what);
	ugds_ctrl_stats(f.c, &st);
	s = look(f.c, -1);
	ok(s.commands == st.commands && s.sent == st.commands && !s.forgotten && s.failed == 1 &&
		   s.in_buckets == s.commands && s.bytes == st.read_bytes + st.write_bytes,
	   "%s: every command is in one bucket", what);
	s = look(f.c, UGDS_OP_READ);
	ok(s.commands == 74 && s.bytes == 74 * 4096 && s.max_ns >= 200000 &&
		   s.sum_ns >= s.commands * 200000 && s.sum_ns <= s.commands * s.max_ns,
	   "%s: reads, none quicker than the device (%llu ns on average)", what,
	   (unsigned long long)(s.sum_ns / (s.commands ? s.commands : 1)));
	while (n < 8 && ugds_reap(f.ch, done, 64) > 0)
		n++;
	ok(fixture_close(&f), "%s: closed", what);
}

static void none_kept(void)
{
	struct fixture f;
	uint64_t word;

	fixture_defaults(&f);
	f.open.flags |= UGDS_OPEN_NO_TALLIES;
	ok(fixture_open(&f, UGDS_MODE_ADAPTIVE) && fixture_run(&f, UGDS_OP_READ, 0, 65536, 0) == 65536 &&
		   ugds_ctrl_tallies(f.c, &word, 8) == 0,
	   "switched off, none are kept");
	ok(fixture_close(&f), "closed");
}

static void after_a_reset(void)
{
	struct ugds_error err;
	struct fixture f;
	struct seen s;
	bool good;

	fixture_defaults(&f);
	good = fixture_open(&f, UGDS_MODE_INTERRUPT) && fixture_run(&f, UGDS_OP_READ, 0, 4096, 0) == 4096 &&
	       !ugds_ctrl_reset(f.c, &err) && fixture_run(&f, UGDS_OP_READ, 0, 4096, 0) == 4096;
	s = look(f.c, UGDS_OP_READ);
	ok(good && s.commands == 2, "they go on after a reset");
	ok(fixture_close(&f), "closed");
}

static _Atomic bool stop;

struct watch {
	struct fixture *f;
	bool good;
};

static void *watcher(void *arg)
{
	struct watch *w = arg;
	struct seen was = { 0 };

	while (!atomic_load(&stop)) {
		struct seen s = look(w->f->c, UGDS_OP_READ);

		w->good &= s.commands >= was.commands && s.in_buckets >= was.in_buckets &&
			   s.sum_ns >= was.sum_ns;
		was = s;
	}
	return NULL;
}

static void watched(void)
{
	struct fixture f;
	struct watch w = { &f, true };
	pthread_t thread;
	bool good;

	fixture_defaults(&f);
	good = fixture_open(&f, UGDS_MODE_ADAPTIVE);
	pthread_create(&thread, NULL, watcher, &w);
	for (int i = 0; i < 3000 && good; i++)
		good = fixture_run(&f, UGDS_OP_READ, 0, 4096, 0) == 4096;
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ok(good && w.good && look(f.c, UGDS_OP_READ).commands == 3000,
	   "read while they are written: no number falls");
	ok(fixture_close(&f), "closed");
}

int main(void)
{
	static const char *const mode[] = { "adaptive", "inline", "interrupt", "poll" };
	char what[64];

	buckets();
	rows_run_out();
	for (uint32_t m = 0; m < 4; m++)
		for (int step = 0; step < 2; step++) {
			snprintf(what, sizeof(what), "%s, step %d", mode[m], step);
			of_a_controller(m, step, what);
		}
	none_kept();
	after_a_reset();
	watched();
	return done_testing();
}
