/* SPDX-License-Identifier: MIT */
#include "nvme/level.h"

#include <string.h>

#include "support/util.h"

#define LEVEL_MOST 256
#define WINDOW 32 /* samples that a level is judged by */
#define FELT_MOST 6 /* of these may take a quarter longer than usual, */
#define NOISE_TIMES 3 / 2 /* beside so many times what does so in any case; */
#define FELT_EVER 20 /* with more nothing can be told */
#define CLEAR 4 /* felt samples that are enough for a level that is tried, where they are most of them */
#define PATIENCE 4 /* windows until a level that was felt is tried again, */
#define PATIENCE_CLEAR 32 /* and one that was at once; */
#define PATIENCE_GROWS 4
#define PATIENCE_MOST 1024
#define DRIFT 32 /* of a sample, in what is usual */
#define QUICKER 16 /* of itself what is usual has to be less by, to be that from now on */

static inline uint32_t load(const _Atomic uint32_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}
static inline void store(_Atomic uint32_t *p, uint32_t v)
{
	atomic_store_explicit(p, v, memory_order_relaxed);
}

void nvme_level_init(struct nvme_level *v)
{
	memset(v, 0, sizeof(*v));
	store(&v->level, NVME_LEVEL_FIRST);
	store(&v->patience, 1);
}

static void set_level(struct nvme_level *v, uint32_t level, bool tried)
{
	store(&v->level, level);
	store(&v->calm, 0);
	store(&v->seen, 0);
	store(&v->felt, 0);
	atomic_store_explicit(&v->met, false, memory_order_relaxed);
	atomic_store_explicit(&v->tried, tried, memory_order_relaxed);
}

/* What was felt is not tried again for a while, and each time for longer. */
static void lower(struct nvme_level *v, uint32_t level, bool clear)
{
	bool again = level == load(&v->ceiling);
	uint32_t least = clear ? PATIENCE_CLEAR : PATIENCE, before = load(&v->patience);

	if (again && before * PATIENCE_GROWS > least)
		least = min_u32(before * PATIENCE_GROWS, PATIENCE_MOST);
	store(&v->patience, least);
	store(&v->ceiling, level);
	set_level(v, level - (level + 7) / 8, false);
}

static void raise(struct nvme_level *v, uint32_t level)
{
	if (level >= load(&v->ceiling))
		store(&v->ceiling, UINT32_MAX);
	set_level(v, min_u32(level + (level + 7) / 8, LEVEL_MOST), true);
}

static uint32_t felt_most(const struct nvme_level *v)
{
	return min_u32(FELT_MOST + load(&v->noise) * NOISE_TIMES / 4, FELT_EVER);
}

/* Of @seen samples so many were felt beside next to nothing: other things disturb, too. */
static void note_noise(struct nvme_level *v, uint32_t felt, uint32_t seen)
{
	store(&v->noise, load(&v->noise) / 2 + 2 * felt * WINDOW / seen);
}

static void judge(struct nvme_level *v, bool felt_it)
{
	uint32_t level = load(&v->level), seen = load(&v->seen) + 1, felt = load(&v->felt) + felt_it, calm;
	bool tried = atomic_load_explicit(&v->tried, memory_order_relaxed) && level > NVME_LEVEL_FIRST;
	bool clear = tried && felt >= CLEAR && felt * 2 > seen && load(&v->noise) < WINDOW;
	bool too_much = clear || felt > felt_most(v);

	store(&v->seen, seen);
	store(&v->felt, felt);
	if (!too_much && seen < WINDOW)
		return;
	if (level <= NVME_LEVEL_FIRST)
		note_noise(v, felt, seen);
	if (too_much && level > 1) {
		lower(v, level, clear);
		return;
	}
	store(&v->seen, 0);
	store(&v->felt, 0);
	atomic_store_explicit(&v->tried, false, memory_order_relaxed);
	if (too_much)
		return;
	calm = load(&v->calm) + 1;
	store(&v->calm, calm);
	if (atomic_load_explicit(&v->met, memory_order_relaxed) &&
	    (level + (level + 7) / 8 < load(&v->ceiling) || calm >= load(&v->patience)))
		raise(v, level);
}

/* A running mean; a stall counts as twice the usual. */
static void drift(int64_t *usual, int64_t took)
{
	*usual += ((took < 2 * *usual ? took : 2 * *usual) - *usual) / DRIFT;
}

void nvme_level_feel(struct nvme_level *v, struct nvme_usual *u, uint32_t size_class, bool looked,
		     int64_t before, int64_t took)
{
	int64_t *base = &u->of[looked][size_class].base_ns, *now = &u->of[looked][size_class].now_ns;

	if (!*base)
		*base = *now = before ? before : took;
	drift(now, took);
	if (load(&v->level) <= NVME_LEVEL_FIRST)
		drift(base, took);
	else if (*now < *base - *base / QUICKER) /* not by chance */
		*base = *now;
	judge(v, took > *base + *base / 4);
}
