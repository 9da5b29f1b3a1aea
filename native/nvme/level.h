/* SPDX-License-Identifier: MIT */
/*
 * How many commands of heavy work may be at the device while somebody is in a hurry. It is learnt from what small
 * operations take beside it: an eighth more at a time, or one, while no more of them take longer than usual than do so in
 * any case, an eighth fewer when more do. What is usual is known from before, and from when next to no heavy work was there.
 */
#ifndef NVME_LEVEL_H
#define NVME_LEVEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NVME_SIZE_CLASSES 16
#define NVME_LEVEL_FIRST 2 /* so little is not felt: what takes longer beside it does so for other reasons */

/* A controller's. Several lanes may write; one count more or less does not matter. */
struct nvme_level {
	_Atomic uint32_t level;
	_Atomic uint32_t seen, felt, calm, patience, ceiling;
	_Atomic uint32_t noise; /* of a window, felt although next to nothing was there; in quarters */
	_Atomic bool met; /* heavy work was kept back by the level since it was last looked at */
	_Atomic bool tried; /* no window of it is over yet */
};

/* A channel's: what operations of a size take, those that are slept for and those that are looked for. */
struct nvme_usual {
	struct {
		int64_t base_ns; /* where there is no heavy work, */
		int64_t now_ns; /* and beside what there is */
	} of[2][NVME_SIZE_CLASSES];
};

void nvme_level_init(struct nvme_level *v);
static inline uint32_t nvme_level_get(const struct nvme_level *v)
{
	return atomic_load_explicit(&v->level, memory_order_relaxed);
}
/* Heavy work is kept back by it. */
static inline void nvme_level_met(struct nvme_level *v)
{
	if (!atomic_load_explicit(&v->met, memory_order_relaxed))
		atomic_store_explicit(&v->met, true, memory_order_relaxed);
}
/* Beside heavy work, something of that size took so long; it took @before when there was none, 0: that is not known. */
void nvme_level_feel(struct nvme_level *v, struct nvme_usual *u, uint32_t size_class, bool looked,
		     int64_t before, int64_t took);

#endif
