/* SPDX-License-Identifier: MIT */
/*
 * What scheduling costs and what it is good for. Prints numbers.
 *   bench_sched cost N: N 4 KiB reads one after another, served on this thread, then N in batches of 32 (for counting
 *   instructions: the controller moves no data, and its own threads sleep).
 *   bench_sched [MB]: latency of 4 KiB reads alone, beside that many MB of background writes, and beside the same
 *   writes first in, first out, on a device of 8 channels, 3 GB/s and 80 us.
 */
#include <stdio.h>

#include "support/util.h"
#include "ugds_fixture.h"

#define READS 100000u
#define BIG (16ull << 20)
#define WRITES 4u
#define BATCH 32u

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

struct load {
	uint32_t flags;
	uint64_t left; /* to be started */
	uint64_t token[WRITES];
	uint32_t nr;
};

static void more(struct fixture *f, struct load *w)
{
	for (uint32_t i = 0; i < WRITES && w->left; i++) {
		int64_t r;

		if (w->token[i])
			continue;
		r = ugds_rw(f->ch, f->ns, f->map, 0, BIG, i * BIG, UGDS_OP_WRITE | UGDS_F_NOSPIN | w->flags);
		if (r < UGDS_PENDING) {
			printf("# a write failed: %lld\n", (long long)r);
			exit(1);
		}
		w->token[i] = (uint64_t)(r - UGDS_PENDING);
		w->left -= BIG;
		w->nr++;
	}
}

/* Wait for @token; the writes that ended meanwhile are followed by others. */
static void await(struct fixture *f, struct load *w, uint64_t token)
{
	struct ugds_completion done[16];

	for (bool over = false; !over;) {
		int n = ugds_wait(f->ch, done, 16, 10 * SEC);

		if (n <= 0)
			exit(1);
		for (int k = 0; k < n; k++) {
			if (done[k].token == token)
				over = true;
			for (uint32_t i = 0; i < WRITES; i++)
				if (w->token[i] == done[k].token) {
					w->token[i] = 0;
					w->nr--;
					over |= !token;
				}
		}
		more(f, w);
	}
}

static void beside(struct fixture *f, const char *name, uint32_t flags, struct load *w, int64_t most_ns,
		   double *ret_p99)
{
	static int64_t took[READS];
	uint64_t nbytes = w->left;
	uint32_t n = 0;
	int64_t begin = now_ns(), end;

	more(f, w);
	for (; n < READS && (nbytes ? w->nr > 0 : now_ns() - begin < most_ns); n++) {
		int64_t start = now_ns();
		int64_t r = ugds_rw(f->ch, f->ns, f->map, BIG + 4096, 4096, (n & 1023) * 4096,
				    UGDS_OP_READ | flags);

		if (r >= UGDS_PENDING)
			await(f, w, (uint64_t)(r - UGDS_PENDING));
		took[n] = now_ns() - start;
	}
	while (w->nr)
		await(f, w, 0);
	end = now_ns();
	qsort(took, n, sizeof(*took), by_time);
	*ret_p99 = (double)took[n * 99 / 100];
	printf("# %-28s %6u reads, p50 %8.1f us, p90 %8.1f us, p99 %8.1f us; writes %.2f GB/s\n", name, n,
	       (double)took[n / 2] / 1e3, (double)took[n * 9 / 10] / 1e3, *ret_p99 / 1e3,
	       (double)nbytes / (double)(end - begin));
}

static void device(struct fixture *f, bool fifo)
{
	fixture_defaults(f);
	f->emu.channels = 8;
	f->emu.latency_ns = 80000;
	f->emu.latency_per_kib_ns = 2730; /* 375 MB/s a channel */
	f->emu.flags &= ~(uint32_t)UGDS_EMU_STEP;
	f->emu.mdts = 0;
	f->open.flags |= fifo ? UGDS_OPEN_FIFO : 0;
	f->open.spin_ns = 10000;
}

static void latency(uint64_t nbytes)
{
	double idle, fifo, classes;
	struct fixture f;
	struct load none = { 0 }, w = { .left = nbytes }, b = { .flags = UGDS_F_BACKGROUND, .left = nbytes };

	device(&f, true);
	fixture_open(&f, UGDS_MODE_ADAPTIVE);
	beside(&f, "first in, first out", 0, &w, 0, &fifo);
	fixture_close(&f);
	device(&f, false);
	fixture_open(&f, UGDS_MODE_ADAPTIVE);
	beside(&f, "alone", UGDS_F_LATENCY, &none, SEC, &idle);
	beside(&f, "classes", UGDS_F_LATENCY, &b, 0, &classes);
	fixture_close(&f);
	printf("# p99 beside background writes: %.1f of what it is alone, first in first out is %.1f of "
	       "that\n",
	       classes / idle, fifo / classes);
}

static void cost(uint32_t n)
{
	int64_t offsets[BATCH], result = 0;
	struct ugds_batch *b;
	struct fixture f;
	uint32_t bad;

	fixture_defaults(&f);
	f.emu.flags |= UGDS_EMU_NODATA;
	f.emu.threads = 1;
	fixture_open(&f, UGDS_MODE_INLINE);
	for (uint32_t i = 0; i < n; i++)
		result |= ugds_rw(f.ch, f.ns, f.map, 0, 4096, (i & 1023) * 4096, UGDS_OP_READ);
	ugds_batch_new(f.ch, BATCH, &b);
	for (uint32_t i = 0; i < BATCH; i++)
		offsets[i] = i * 4096;
	for (uint32_t i = 0; i < n / BATCH; i++) {
		ugds_batch_submit_array(b, f.ns, UGDS_OP_READ, f.map, offsets, NULL, 4096, BATCH, 0, &bad);
		if (ugds_batch_harvest_ok(b) != BATCH * 4096)
			printf("# not all ended inside the call\n");
	}
	ugds_batch_free(b);
	if (result != 4096)
		printf("# a read did not end inside the call\n");
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "cost"))
		cost((uint32_t)atoi(argv[2]));
	else
		latency(argc > 1 ? strtoull(argv[1], NULL, 10) << 20 : 1ull << 30);
	return 0;
}
