/* SPDX-License-Identifier: MIT */
/* The processor's constant-rate time-stamp counter, for benchmarks. */
#ifndef SUPPORT_TICKS_H
#define SUPPORT_TICKS_H

#include "support/util.h"

static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#endif
}

#endif
