/* SPDX-License-Identifier: MIT */
/* Waiting for a controller off the I/O path: finely at first, then politely. */
#ifndef NVME_WAIT_H
#define NVME_WAIT_H

#include "support/barrier.h"
#include "support/util.h"

#define NVME_GAP_NS (50 * NSEC_PER_MSEC) /* so late a loaded machine may be */

/* How long something has been waited for, less the time in which the process was stopped and nobody looked. */
struct nvme_waited {
	int64_t start, last;
};

static inline struct nvme_waited nvme_wait_from(int64_t now) { return (struct nvme_waited){ now, now }; }

static inline int64_t nvme_wait_so_far(struct nvme_waited *w, int64_t now)
{
	if (now - w->last > NVME_GAP_NS)
		w->start += now - w->last;
	w->last = now;
	return now - w->start;
}

/* Between two looks, after @waited: a spin for what takes microseconds, then sleeps of 10 to 100 us. */
static inline void nvme_pause(int64_t waited)
{
	struct timespec ts = { 0 };

	if (waited < 50 * NSEC_PER_USEC) {
		for (int i = 0; i < 8; i++)
			cpu_relax();
		return;
	}
	ts.tv_nsec = waited < 80 * NSEC_PER_USEC ? 10 * NSEC_PER_USEC : waited / 8;
	if (ts.tv_nsec > 100 * NSEC_PER_USEC)
		ts.tv_nsec = 100 * NSEC_PER_USEC;
	nanosleep(&ts, NULL);
}

#endif
