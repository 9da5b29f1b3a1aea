/* SPDX-License-Identifier: MIT */
/* What the controller's threads share state with: a short lock, a count that can be waited for, a futex. */
#ifndef EMU_LOCK_H
#define EMU_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "support/util.h"

/* Orders a store before a later load of another location. Not atomic_thread_fence(), which the thread
 * sanitizer refuses; everything that relies on it is atomic as well. */
#define emu_full_fence() __sync_synchronize()

void emu_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns);
void emu_futex_wake(_Atomic uint32_t *word, int nr);

/* Held for tens of nanoseconds, by a stepper for one call. Host threads step, so it may be contended by a
 * thread that was scheduled out: waiters yield. */
struct emu_lock {
	_Atomic uint32_t held;
};

void emu_lock_slow(struct emu_lock *l);

static inline bool emu_trylock(struct emu_lock *l)
{
	return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

static inline void emu_lock(struct emu_lock *l)
{
	if (unlikely(atomic_exchange_explicit(&l->held, 1, memory_order_acquire)))
		emu_lock_slow(l);
}

static inline void emu_unlock(struct emu_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

/* Users of something that is about to go. Whoever ends it first makes sure that no new user stays. */
struct emu_count {
	_Atomic uint32_t v;
};

#define EMU_COUNT_WAITER (1u << 31)

void emu_count_wake(struct emu_count *c);
void emu_count_wait_zero(struct emu_count *c);

static inline void emu_count_get(struct emu_count *c, uint32_t n)
{
	/* acq_rel: a read-modify-write on the same word orders the user's next look at the thing (is it still
	 * there?) against the ender, who removed it before its own read-modify-write of this word */
	atomic_fetch_add_explicit(&c->v, n, memory_order_acq_rel);
}

static inline void emu_count_put(struct emu_count *c, uint32_t n)
{
	if (unlikely(atomic_fetch_sub_explicit(&c->v, n, memory_order_acq_rel) == (EMU_COUNT_WAITER | n)))
		emu_count_wake(c);
}

static inline uint32_t emu_count_peek(struct emu_count *c)
{
	return atomic_load_explicit(&c->v, memory_order_acquire) & ~EMU_COUNT_WAITER;
}

static inline void emu_stat_add(_Atomic uint64_t *stat, uint64_t n)
{
	atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
}

/* Of one writer, or under a lock. */
static inline void emu_stat_own(_Atomic uint64_t *stat, uint64_t n)
{
	atomic_store_explicit(stat, atomic_load_explicit(stat, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline uint64_t emu_stat_get(_Atomic uint64_t *stat)
{
	return atomic_load_explicit(stat, memory_order_relaxed);
}

#endif
