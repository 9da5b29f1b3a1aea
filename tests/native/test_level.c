/* SPDX-License-Identifier: MIT */
/*
 * The level that heavy work is kept to, against a device whose times are known: 8 channels, so that what is small waits for
 * one beside 8 heavy commands, and does not beside 7.
 */
#include "nvme/level.h"
#include "support/util.h"
#include "tap.h"

#define SIZE 1
#define CHANNELS 8
#define USUAL_NS 120000

struct model {
	struct nvme_level v;
	struct nvme_usual u;
	uint64_t rng;
	int64_t usual_ns;
	uint32_t noise; /* of 100 that something else delays */
	uint32_t n, beyond; /* samples, and those beside a heavy command for each channel, or more */
	uint64_t sum; /* of the levels */
};

static uint32_t of(struct model *m, uint32_t below)
{
	m->rng = m->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(m->rng >> 33) % below;
}

static void one(struct model *m, bool looked, int64_t before)
{
	uint32_t level = nvme_level_get(&m->v);
	/* who is looked for does not pay for a wake-up */
	int64_t usual = looked ? m->usual_ns / 2 : m->usual_ns;
	int64_t took = usual - usual / 5 + of(m, (uint32_t)usual * 2 / 5);

	if (level >= CHANNELS)
		took += of(m, 300000);
	if (of(m, 100) < m->noise)
		took += m->usual_ns / 2 + of(m, 100000);
	nvme_level_met(&m->v);
	nvme_level_feel(&m->v, &m->u, SIZE, looked, before, took);
	m->n++;
	m->sum += level;
	m->beyond += level >= CHANNELS;
}

static void many(struct model *m, uint32_t n)
{
	m->n = m->beyond = 0;
	m->sum = 0;
	while (n--)
		one(m, false, m->usual_ns);
}

static struct model fresh(uint32_t noise)
{
	struct model m = { .rng = 1, .usual_ns = USUAL_NS, .noise = noise };

	nvme_level_init(&m.v);
	return m;
}

static void finds_the_most(void)
{
	struct model m = fresh(0);

	ok(nvme_level_get(&m.v) == NVME_LEVEL_FIRST, "it begins with little");
	many(&m, 32 * 6);
	ok(nvme_level_get(&m.v) >= CHANNELS - 1, "a window for each step: %u", nvme_level_get(&m.v));
	many(&m, 4000);
	ok(m.sum >= m.n * (CHANNELS - 1ull), "and it stays at the most that is not felt: %llu.%02llu",
	   (unsigned long long)(m.sum / m.n), (unsigned long long)(m.sum * 100 / m.n % 100));
	ok(m.beyond && m.beyond * 400 < m.n, "few are felt when more is tried: %u of %u", m.beyond, m.n);
}

/* What other things delay is no reason. */
static void in_company(uint32_t noise)
{
	struct model m = fresh(noise);

	many(&m, 4000);
	many(&m, 8000);
	ok(m.sum >= m.n * 5ull, "with %u%% delayed by others: %llu.%02llu", noise,
	   (unsigned long long)(m.sum / m.n), (unsigned long long)(m.sum * 100 / m.n % 100));
	ok(m.beyond * 50 < m.n, "and %u of %u beside too many", m.beyond, m.n);
}

/* Some are slept for and some looked for: either has a usual time of its own. */
static void of_two_kinds(void)
{
	struct model m = fresh(0);

	for (uint32_t i = 0; i < 4000; i++)
		one(&m, !(i / 512 % 2), i / 512 % 2 ? USUAL_NS : USUAL_NS / 2);
	ok(m.sum >= m.n * 6ull, "looked for and slept for by turns: %llu.%02llu",
	   (unsigned long long)(m.sum / m.n), (unsigned long long)(m.sum * 100 / m.n % 100));
}

/* Everything takes longer than it did, or less long: that is the usual time soon. */
static void when_it_changes(void)
{
	struct model m = fresh(0);

	many(&m, 2000);
	m.usual_ns = USUAL_NS * 2;
	many(&m, 4000);
	many(&m, 4000);
	ok(m.sum >= m.n * 6ull, "slower than before: %llu.%02llu", (unsigned long long)(m.sum / m.n),
	   (unsigned long long)(m.sum * 100 / m.n % 100));
	m.usual_ns = USUAL_NS / 2;
	many(&m, 4000);
	many(&m, 4000);
	ok(m.sum >= m.n * 6ull && m.beyond * 50 < m.n, "and faster: %llu.%02llu, %u of %u beside too many",
	   (unsigned long long)(m.sum / m.n), (unsigned long long)(m.sum * 100 / m.n % 100), m.beyond, m.n);
}

/* However bad it was, even with a single command there. */
static void comes_back(void)
{
	struct model m = fresh(100);

	for (uint32_t i = 0; i < 64; i++)
		nvme_level_feel(&m.v, &m.u, SIZE, false, USUAL_NS, 50 * USUAL_NS);
	ok(nvme_level_get(&m.v) == 1, "all are late: %u", nvme_level_get(&m.v));
	m = (struct model){ .v = m.v, .u = m.u, .rng = 1, .usual_ns = USUAL_NS };
	many(&m, 4000);
	many(&m, 4000);
	ok(m.sum >= m.n * 6ull, "and when they are not any more: %llu.%02llu",
	   (unsigned long long)(m.sum / m.n), (unsigned long long)(m.sum * 100 / m.n % 100));
}

int main(void)
{
	finds_the_most();
	in_company(5);
	in_company(25);
	of_two_kinds();
	when_it_changes();
	comes_back();
	return done_testing();
}
