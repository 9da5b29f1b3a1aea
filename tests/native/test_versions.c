/* SPDX-License-Identifier: MIT */
/* What a power cut may lose: every short history, and random longer ones, against the plain model. */
#include <errno.h>
#include <string.h>

#include "emu/emu.h"
#include "emu/internal.h"
#include "emu/versions.h"
#include "lost_power.h"
#include "tap.h"

#define BLOCK 512u
#define SMALL 3u /* blocks */
#define MOVES (3 * 6 + 1)
#define LENGTH 3u

static struct emu_ns ns;
static struct emu_versions v;

static void put(uint32_t slba, uint32_t nlb, const uint32_t *value)
{
	uint32_t buf[LP_BLOCKS * BLOCK / sizeof(uint32_t)];
	struct iovec one = { buf, nlb * BLOCK };

	for (uint32_t i = 0; i < nlb * BLOCK / sizeof(uint32_t); i++)
		buf[i] = value[i / (BLOCK / sizeof(uint32_t))];
	emu_backing_write(&ns, slba * BLOCK, &one, 1, nlb * BLOCK, false);
}

static bool get(uint32_t nr_blocks, uint32_t *ret)
{
	uint32_t buf[LP_BLOCKS * BLOCK / sizeof(uint32_t)], per = BLOCK / sizeof(uint32_t);
	struct iovec one = { buf, nr_blocks * BLOCK };
	bool whole = true;

	emu_backing_read(&ns, 0, &one, 1, nr_blocks * BLOCK, false);
	for (uint32_t i = 0; i < nr_blocks * per; i++)
		whole &= buf[i] == buf[i - i % per];
	for (uint32_t b = 0; b < nr_blocks; b++)
		ret[b] = buf[b * per];
	return whole;
}

/* A history, both ways. A write that becomes durable later leaves its name behind. */
struct history {
	struct lost_power model;
	uint32_t unit;
	uint32_t late; /* 0: none */
	struct emu_write late_write;
	bool fine;
};

static void begin(struct history *h, uint32_t unit)
{
	uint32_t zeros[LP_BLOCKS] = { 0 };

	emu_versions_forget(&v, NULL);
	put(0, LP_BLOCKS, zeros);
	*h = (struct history){ .unit = unit, .fine = true };
}

static void end_late(struct history *h)
{
	if (!h->late)
		return;
	lp_harden(&h->model, h->late);
	emu_versions_harden(&v, &h->late_write);
	h->late = 0;
}

enum how { PLAIN, AT_ONCE, LATER };

static void do_write(struct history *h, uint32_t slba, uint32_t nlb, enum how how)
{
	uint32_t value[LP_BLOCKS], name = lp_write(&h->model, slba, nlb, h->unit, value);
	struct emu_write w;

	h->fine &= !emu_versions_record(&v, &ns, slba, nlb, h->unit, &w);
	put(slba, nlb, value);
	end_late(h); /* of the write before this one */
	if (how == AT_ONCE) {
		lp_harden(&h->model, name);
		emu_versions_harden(&v, &w);
	} else if (how == LATER) {
		h->late = name;
		h->late_write = w;
	}
}

static void do_flush(struct history *h)
{
	lp_flush(&h->model);
	emu_versions_forget(&v, &ns);
	end_late(h);
}

static uint32_t lose(struct history *h, uint32_t nr_blocks, uint64_t seed)
{
	uint32_t seen[LP_BLOCKS], code = 0;

	h->fine &= !emu_versions_lose(&v, seed) && !v.nr && !v.used;
	h->fine &= get(nr_blocks, seen) && lp_permits(&h->model, seen, nr_blocks);
	for (uint32_t b = 0; b < nr_blocks; b++)
		code = code << 4 | (seen[b] & 15);
	return code;
}

static void play(struct history *h, uint32_t unit, uint32_t moves)
{
	static const uint8_t where[6][2] = { { 0, 1 }, { 1, 1 }, { 2, 1 }, { 0, 2 }, { 1, 2 }, { 0, 3 } };

	begin(h, unit);
	for (uint32_t i = 0; i < LENGTH; i++, moves /= MOVES + 1) {
		uint32_t m = moves % (MOVES + 1);

		if (m == MOVES) /* a pause: shorter histories are among these */
			continue;
		if (m == MOVES - 1)
			do_flush(h);
		else
			do_write(h, where[m / 3][0], where[m / 3][1], m % 3);
	}
}

static uint32_t nr_histories(void)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < LENGTH; i++)
		n *= MOVES + 1;
	return n;
}

static void every_short_history(void)
{
	uint64_t seed = 1;
	struct history h;

	for (uint32_t unit = 1; unit <= SMALL; unit++) {
		bool fine = true;

		for (uint32_t moves = 0; moves < nr_histories(); moves++)
			for (int i = 0; i < 2; i++) {
				play(&h, unit, moves);
				lose(&h, SMALL, seed++);
				if (fine && !h.fine)
					printf("# history %u, unit %u, seed %llu\n", moves, unit,
					       (unsigned long long)seed - 1);
				fine &= h.fine;
			}
		ok(fine, "every history of %u moves, units of %u: nothing is there that may not be", LENGTH,
		   unit);
	}
}

/* All that the model permits does happen, and no more. */
static bool all_happens(uint32_t unit, uint32_t moves)
{
	static bool seen[1u << (4 * SMALL)];
	uint32_t permitted = 0, happened = 0;
	struct history h;

	memset(seen, 0, sizeof(seen));
	for (uint64_t seed = 0; seed < 400; seed++) {
		uint32_t code;

		play(&h, unit, moves);
		code = lose(&h, SMALL, seed);
		happened += !seen[code];
		seen[code] = true;
	}
	for (uint32_t code = 0; code < ARRAY_SIZE(seen); code++) {
		uint32_t value[SMALL] = { code >> 8, code >> 4 & 15, code & 15 };

		permitted += lp_permits(&h.model, value, SMALL);
	}
	if (permitted != happened)
		printf("# history %u, unit %u: %u of %u\n", moves, unit, happened, permitted);
	return h.fine && permitted == happened;
}

static void every_outcome(void)
{
	uint64_t rng = 5;
	bool fine = true;

	for (uint32_t i = 0; i < 24; i++)
		fine &= all_happens(1 + i % SMALL, (uint32_t)(emu_rand(&rng) % nr_histories()));
	ok(fine, "whatever is permitted happens, over the seeds");
}

static uint32_t below(uint64_t *rng, uint32_t n) { return (uint32_t)(emu_rand(rng) % n); }

static void long_histories(void)
{
	bool fine = true;

	for (uint64_t seed = 1; seed <= 3000; seed++) {
		uint64_t rng = seed;
		struct history h;

		begin(&h, 1 + below(&rng, 5));
		for (uint32_t n = 1 + below(&rng, 14); n; n--) {
			uint32_t nlb = 1 + below(&rng, 8), slba = below(&rng, LP_BLOCKS - nlb + 1);

			if (below(&rng, 12))
				do_write(&h, slba, nlb, below(&rng, 4) ? PLAIN : 1 + below(&rng, 2));
			else
				do_flush(&h);
		}
		lose(&h, LP_BLOCKS, emu_rand(&rng));
		if (fine && !h.fine)
			printf("# seed %llu\n", (unsigned long long)seed);
		fine &= h.fine;
	}
	ok(fine, "random histories on %d blocks", LP_BLOCKS);
}

/* Of n contents each stays with the probability 1/n. */
static void evenly(void)
{
	enum { N = 5, ROUNDS = 4000 };
	uint32_t count[N + 1] = { 0 };
	bool fine = true;
	struct history h;

	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		begin(&h, 1);
		for (int i = 0; i < N; i++)
			do_write(&h, 0, 1, PLAIN);
		count[lose(&h, 1, seed)]++;
	}
	for (int i = 0; i <= N; i++)
		fine &= count[i] > ROUNDS / (N + 1) * 8 / 10 && count[i] < ROUNDS / (N + 1) * 12 / 10;
	ok(fine, "each content stays equally often");
}

static void limit(void)
{
	uint32_t value[LP_BLOCKS] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct emu_versions tiny;
	struct emu_write w;
	uint64_t before;

	ok(!emu_versions_init(&tiny, 4 * (BLOCK + 100)), "a limit of four blocks");
	put(0, 8, value);
	ok(!emu_versions_record(&tiny, &ns, 0, 3, 1, &w), "three");
	before = tiny.used;
	ok(before > 3 * BLOCK && before <= tiny.limit, "are counted with what they cost");
	ok(emu_versions_record(&tiny, &ns, 3, 3, 1, &w) == -ENOSPC && tiny.used == before && tiny.nr == 3,
	   "six are refused, and change nothing");
	ok(emu_versions_record(&tiny, &ns, 0, UINT64_MAX / 2, 1, &w) == -ENOSPC, "as is any number");
	emu_versions_forget(&tiny, NULL);
	ok(!tiny.used && !tiny.nr, "nothing is left when all is durable");
	memset(value, 0, sizeof(value));
	put(0, 8, value);
	ok(!emu_versions_record(&tiny, &ns, 0, 3, 1, &w) && tiny.used == before - 3 * BLOCK,
	   "zeros take no room but their place");
	emu_versions_done(&tiny);
}

int main(void)
{
	struct emu_params p = { .nr_ns = 1, .ns = { { .nsid = 1, .lba_bytes = BLOCK, .nbytes = 1 << 20 } } };
	char err[200];

	if (!ok(!emu_backing_open(&p, 0, &ns, err, sizeof(err)), "a namespace") ||
	    !ok(!emu_versions_init(&v, 1 << 20), "its versions"))
		return 1;
	every_short_history();
	every_outcome();
	long_histories();
	evenly();
	limit();
	emu_versions_done(&v);
	emu_backing_close(&ns);
	return done_testing();
}
