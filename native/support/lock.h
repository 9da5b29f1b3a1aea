/* SPDX-License-Identifier: MIT */
/*
 * A lock that nearly always has one and the same owner. Taking it is one exchange; leaving it is a plain store with
 * release order. A mutex would end with a locked instruction, which waits until everything stored inside (entries
 * that another core has to give up first) has travelled.
 */
#ifndef SUPPORT_LOCK_H
#define SUPPORT_LOCK_H

#include <stdatomic.h>

#include "support/util.h"

struct owner_lock {
	_Atomic uint32_t held;
};

void owner_lock_wait(struct owner_lock *l);

static inline bool owner_trylock(struct owner_lock *l)
{
	return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

static inline void owner_lock(struct owner_lock *l)
{
	if (unlikely(!owner_trylock(l)))
		owner_lock_wait(l);
}

static inline void owner_unlock(struct owner_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

#endif
