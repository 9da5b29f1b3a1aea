/* SPDX-License-Identifier: MIT */
/*
 * The learner of the adaptive mode against devices whose times are known: a read takes what the device takes where it is
 * looked for, and that and a wake-up where it is slept for.
 */
#include "nvme/learn.h"
#include "tap.h"

#define USUAL 10000
#define SIZE 1

struct model {
	struct nvme_learner l;
	int64_t device_ns, wake_ns;
	int64_t waited, looked; /* sums: what waiters waited, and what was spent on looking */
	uint32_t n, quick, misses;
};

static void one(struct model *m, bool alone)
{
	int64_t budget = nvme_learn_budget(&m->l, SIZE, USUAL, alone);

	m->n++;
	if (budget >= m->device_ns) {
		nvme_learn_quick(&m->l.of[SIZE], m->device_ns);
		m->waited += m->device_ns;
		m->looked += m->device_ns;
		m->quick++;
		return;
	}
	m->looked += budget;
	if (budget) {
		nvme_learn_miss(&m->l.of[SIZE]);
		m->misses++;
	}
	nvme_learn_slept(&m->l.of[SIZE], m->device_ns + m->wake_ns);
	m->waited += m->device_ns + m->wake_ns;
}

static void many(struct model *m, uint32_t n, bool alone)
{
	m->waited = m->looked = m->n = m->quick = m->misses = 0;
	while (n--)
		one(m, alone);
}

static struct model fresh(int64_t device_ns, int64_t wake_ns)
{
	return (struct model){ .device_ns = device_ns, .wake_ns = wake_ns };
}

/* A wake-up costs more than looking for as long as the device takes, or not. */
static void settles(void)
{
	struct model m = fresh(8000, 5000);

	many(&m, 100, true);
	ok(m.quick == 100, "what ends within the usual budget is always looked for");
	m = fresh(13000, 60000);
	many(&m, 100, true);
	ok(m.quick >= 97, "so is what takes longer, where sleeping costs more: %u of 100", m.quick);
	many(&m, 100, false);
	ok(m.quick == 100, "and beside others, as it is short");
	m = fresh(80000, 5000);
	many(&m, 1000, true);
	ok(m.quick < 20, "a wake-up that costs little is slept for: %u of 1000 looked for", m.quick);
	ok(m.looked < m.n * 80000 / 50, "and looking costs less than 2 %% of the wait");
	m = fresh(80000, 100000);
	many(&m, 1000, true);
	ok(m.quick > 900, "a wake-up that takes longer than the device is not: %u of 1000", m.quick);
	m = fresh(80000, 17000);
	many(&m, 1000, true);
	ok(m.quick > 800, "nor is one of a fifth of it: %u of 1000", m.quick);
	m = fresh(2000000, 60000);
	many(&m, 4096, true);
	ok(!m.quick && m.misses < 40, "what takes 2 ms is looked for in vain %u times in 4096", m.misses);
	ok(m.looked <= m.misses * LEARN_MOST_NS, "and never for more than the most");
}

static void company(void)
{
	struct model m = fresh(80000, 100000);

	many(&m, 200, true);
	many(&m, 200, false);
	ok(!m.quick, "a long look is not taken beside others");
	many(&m, 200, true);
	ok(m.quick > 100 && m.quick < 200 - LEARN_CROWD, "nor soon after them: %u of 200", m.quick);
	many(&m, 160, true);
	ok(m.quick == 150, "one of %d sleeps, so that others can start: %u of 160", LEARN_ROW, m.quick);
}

/* Who is alone may be served at once, but for one of a row; who was not alone lately may not. */
static void lone(void)
{
	struct model m = fresh(8000, 60000);
	uint32_t n = 0;

	for (uint32_t i = 0; i < LEARN_ROW * 10; i++)
		n += nvme_learn_lone(&m.l);
	ok(n == (LEARN_ROW - 1) * 10, "all but one of %d: %u", LEARN_ROW, n);
	many(&m, 1, false);
	ok(!nvme_learn_lone(&m.l), "nobody beside others");
	many(&m, LEARN_CROWD, true);
	ok(nvme_learn_lone(&m.l), "until they are gone");
}

static void stalls(void)
{
	struct model m = fresh(13000, 60000);

	many(&m, 1000, true);
	m.device_ns = 2000000;
	many(&m, 1000, true);
	ok(m.misses <= 12, "a device that stalls is looked for in vain %u times in 1000", m.misses);
	m.device_ns = 13000;
	many(&m, 200, true);
	ok(m.quick > 180, "and when it is quick again that is seen at once: %u of 200", m.quick);
	m = fresh(80000, 5000);
	many(&m, 1000, true);
	m.device_ns = 9000;
	many(&m, 600, true);
	ok(m.quick > 300, "a device that becomes quick is found out: %u of 600", m.quick);
	m = fresh(9000, 5000);
	many(&m, 1000, true);
	m.device_ns = 100000; /* and a wake-up is little beside it */
	many(&m, 1000, true);
	ok(m.looked < m.n * 100000 / 20, "one that becomes slow is not looked for: %lld ns a read",
	   (long long)m.looked / m.n);
}

/* Two kinds of reads of one size: cached ones, and others. */
static void mixed(void)
{
	struct model m = fresh(1000, 20000);
	uint32_t quick;

	for (uint32_t i = 0; i < 1000; i++) {
		m.device_ns = i % 10 ? 1000 : 90000;
		one(&m, true);
	}
	quick = m.quick;
	ok(quick > 600, "most of the quick ones among slow ones are found by looking: %u of 900", quick);
}

int main(void)
{
	settles();
	company();
	lone();
	stalls();
	mixed();
	return done_testing();
}
