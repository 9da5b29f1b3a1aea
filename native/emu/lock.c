/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "emu/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/barrier.h"

#define SPINS 64
#define YIELDS 256
#define NAP_NS 20000

void emu_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns)
{
	struct timespec ts = { timeout_ns / NSEC_PER_SEC, timeout_ns % NSEC_PER_SEC };

	/* the result is of no interest: every caller looks at the word again */
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns < 0 ? NULL : &ts, NULL, 0);
}

void emu_futex_wake(_Atomic uint32_t *word, int nr)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, nr, NULL, NULL, 0);
}

void emu_lock_slow(struct emu_lock *l)
{
	struct timespec nap = { 0, NAP_NS };
	unsigned int n = 0;

	while (!emu_trylock(l)) {
		n++;
		if (n < SPINS)
			cpu_relax();
		else if (n < SPINS + YIELDS)
			sched_yield();
		else
			nanosleep(&nap, NULL); /* the holder may have a lower real-time priority */
	}
}

void emu_count_wake(struct emu_count *c) { emu_futex_wake(&c->v, INT_MAX); }

void emu_count_wait_zero(struct emu_count *c)
{
	if (likely(!atomic_fetch_add_explicit(&c->v, 0, memory_order_acq_rel)))
		return;
	for (;;) {
		uint32_t v = atomic_fetch_or_explicit(&c->v, EMU_COUNT_WAITER, memory_order_acq_rel);

		v |= EMU_COUNT_WAITER;
		if (v == EMU_COUNT_WAITER)
			break;
		emu_futex_wait(&c->v, v, -1);
	}
	/* another waiter was woken by the put that brought the count to zero, so the bit is nobody's now */
	atomic_fetch_and_explicit(&c->v, ~EMU_COUNT_WAITER, memory_order_acq_rel);
}
