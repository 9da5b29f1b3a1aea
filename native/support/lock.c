/* SPDX-License-Identifier: MIT */
#include "support/lock.h"

#include <sched.h>

#include "support/barrier.h"

#define SPINS 64u
#define YIELDS 256u
#define NAP_NS 20000

void owner_lock_wait(struct owner_lock *l)
{
	const struct timespec nap = { 0, NAP_NS };

	for (uint32_t n = 0; !owner_trylock(l); n++) {
		if (n < SPINS)
			cpu_relax();
		else if (n < SPINS + YIELDS)
			sched_yield();
		else
			nanosleep(&nap, NULL); /* the holder may have a lower real-time priority */
	}
}
