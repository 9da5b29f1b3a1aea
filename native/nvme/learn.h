/* SPDX-License-Identifier: MIT */
/*
 * What the adaptive mode learns of each size: how long an operation takes when it is looked for, and when it is slept
 * for, as its waiter sees it. It is looked for where that ends sooner than sleeping would add to it, which is the
 * wake-up as it really is: with the loop's turn, and with a virtual processor that has to be woken.
 */
#ifndef NVME_LEARN_H
#define NVME_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/sched.h"

#define LEARN_MOST_NS (125 * NSEC_PER_USEC) /* nobody is kept from other things for longer */
#define LEARN_MOST_USUALS 16 /* nor for more than so many times the usual budget */
#define LEARN_SKIPS_LOG2 8 /* operations from one look in vain to the next: 1, 2, 4 and so on, 256 at most */
#define LEARN_NEAR 32 /* and where it is a near thing */
#define LEARN_DOUBT 4 /* looks in vain, in a row, that are no accident: it takes longer by now */
#define LEARN_SAVES 11 /* looking has to save this part of what it takes: less is not worth a processor */
#define LEARN_CROWD 64 /* operations after one that was not alone */
#define LEARN_ROW 16 /* of long looks in a row; then one sleeps, which lets others start theirs */

struct nvme_learnt {
	int64_t quick_ns; /* running median of those that were looked for and ended; 0: none yet */
	int64_t slept_ns; /* and of those that were not */
	uint16_t skip; /* operations until it is tried again */
	uint8_t misses; /* looks in vain, in a row */
	bool again; /* it is tried again: what is known of it is old */
};

struct nvme_learner {
	struct nvme_learnt of[NVME_SIZE_CLASSES];
	uint16_t crowd; /* operations to go for which company is expected */
	uint16_t row;
};

/* A running median: it moves by a fixed share of itself towards each sample. */
static inline void nvme_median(int64_t *est, int64_t x)
{
	int64_t step = *est / 16 + 50;

	if (!*est)
		*est = x;
	else
		*est += x > *est ? step : -step;
}

static inline int64_t nvme_learn_most(int64_t usual)
{
	return usual < LEARN_MOST_NS / LEARN_MOST_USUALS ? usual * LEARN_MOST_USUALS : LEARN_MOST_NS;
}

/* For one that takes as long as most. */
static inline int64_t nvme_learn_enough(const struct nvme_learnt *e, int64_t usual)
{
	const int64_t enough = e->quick_ns + e->quick_ns / 2 + usual / 2;

	return enough < LEARN_MOST_NS ? enough : LEARN_MOST_NS;
}

/* How long to look for an operation of that size: ns, 0: not at all. @usual: what may be spent on looking in any case.
 * @alone: nothing else of the channel is under way. */
static inline int64_t nvme_learn_budget(struct nvme_learner *l, uint32_t size_class, int64_t usual,
					bool alone)
{
	struct nvme_learnt *e = &l->of[size_class];
	int64_t gain;

	if (unlikely(!alone))
		l->crowd = LEARN_CROWD;
	else if (l->crowd)
		l->crowd--;
	if (e->skip > 1) {
		e->skip--;
		return 0;
	}
	if (l->crowd && (!e->quick_ns || e->quick_ns > 2 * usual))
		return 0; /* a long look keeps others from starting */
	if (e->skip) {
		e->skip = 0;
		e->again = !e->misses || e->misses >= LEARN_DOUBT;
		return !e->again && e->quick_ns ? nvme_learn_enough(e, usual) : nvme_learn_most(usual);
	}
	if (unlikely(!e->quick_ns))
		return nvme_learn_most(usual);
	if (e->quick_ns >= usual) {
		if (!e->slept_ns)
			return 0; /* to know what that is like */
		gain = e->slept_ns - e->quick_ns;
		if (e->quick_ns >= nvme_learn_most(usual) || gain <= 0) {
			e->skip = 1 << LEARN_SKIPS_LOG2;
			return 0;
		}
		if (gain < e->quick_ns / LEARN_SAVES) { /* both are known to a sixteenth: it may be enough */
			e->skip = LEARN_NEAR;
			return 0;
		}
		/* while it looks nobody can tell whether others would start something */
		if (e->quick_ns > 2 * usual && ++l->row >= LEARN_ROW) {
			l->row = 0;
			return 0;
		}
	}
	return nvme_learn_enough(e, usual);
}

/* Nobody else is kept from starting something, as far as can be told: one of a row is no exception. */
static inline bool nvme_learn_lone(struct nvme_learner *l)
{
	if (l->crowd)
		return false;
	if (++l->row < LEARN_ROW)
		return true;
	l->row = 0;
	return false;
}

/* It ended after @took while it was looked for. */
static inline void nvme_learn_quick(struct nvme_learnt *e, int64_t took)
{
	if (unlikely(e->again))
		e->quick_ns = 0;
	nvme_median(&e->quick_ns, took);
	e->misses = 0;
	e->again = false;
}

/* It did not, and is slept for now. */
static inline void nvme_learn_miss(struct nvme_learnt *e)
{
	e->skip = (uint16_t)(1 << e->misses);
	if (e->misses < LEARN_SKIPS_LOG2)
		e->misses++;
	if (e->quick_ns && e->quick_ns < LEARN_MOST_NS)
		nvme_median(&e->quick_ns, INT64_MAX);
	e->again = false;
}

/* It was slept for, and found after @took. */
static inline void nvme_learn_slept(struct nvme_learnt *e, int64_t took)
{
	/* much sooner than it was: what kept it is over, perhaps */
	if (took < e->slept_ns / 2 || took < e->quick_ns - e->quick_ns / 4)
		e->skip = e->skip > 2 ? 2 : e->skip;
	if (took < e->quick_ns)
		nvme_median(&e->quick_ns, took);
	nvme_median(&e->slept_ns, took);
}

#endif
