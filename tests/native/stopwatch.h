/* SPDX-License-Identifier: MIT */
/* Upper bounds of time on a busy machine: without what our threads waited for a processor. */
#ifndef TESTS_STOPWATCH_H
#define TESTS_STOPWATCH_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* What goes wrong is later than this; a busy machine seldom is. */
#define STOPWATCH_FORGIVES 2000000000ull

struct stopwatch {
	uint64_t start, waited;
};

static inline uint64_t stopwatch_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Nanoseconds that the threads of this process were ready to run, and did not. */
static inline uint64_t stopwatch_waited(void)
{
	DIR *d = opendir("/proc/self/task");
	uint64_t sum = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[300];
		uint64_t ns;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%*u %lu", &ns) == 1)
			sum += ns;
		fclose(f);
	}
	if (d)
		closedir(d);
	return sum;
}

static inline struct stopwatch stopwatch_start(void)
{
	uint64_t waited = stopwatch_waited();

	return (struct stopwatch){ stopwatch_now(), waited };
}

static inline uint64_t stopwatch_elapsed(const struct stopwatch *w) { return stopwatch_now() - w->start; }

/* To hold against an upper bound. */
static inline uint64_t stopwatch_ours(const struct stopwatch *w)
{
	uint64_t elapsed = stopwatch_elapsed(w), after = stopwatch_waited();
	uint64_t waited = after > w->waited ? after - w->waited : 0;

	if (waited > STOPWATCH_FORGIVES)
		waited = STOPWATCH_FORGIVES;
	return waited < elapsed ? elapsed - waited : 0;
}

#endif
