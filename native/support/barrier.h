/* SPDX-License-Identifier: MIT */
/* What orders host memory against a device, what fetches lines in time, and what a spin loop does between two looks. */
#ifndef SUPPORT_BARRIER_H
#define SUPPORT_BARRIER_H

#include <stddef.h>

#if defined(__x86_64__)
/* Stores to write-back memory are seen in order, and before a later uncached store. */
#define dma_wmb() __asm__ volatile("" ::: "memory")
/* Loads are not reordered with loads. */
#define dma_rmb() __asm__ volatile("" ::: "memory")
#define cpu_relax() __asm__ volatile("pause" ::: "memory")
/* A line that another core or a device has read is asked for before it is written. (What the compiler makes of its own
 * prefetch for the x86-64 baseline asks for it to be read.) */
#define prefetch_write(p) __asm__ volatile("prefetchw %0" ::"m"(*(const char *)(p)))
#elif defined(__aarch64__)
#define dma_wmb() __asm__ volatile("dmb oshst" ::: "memory")
#define dma_rmb() __asm__ volatile("dmb oshld" ::: "memory")
#define cpu_relax() __asm__ volatile("yield" ::: "memory")
#define prefetch_write(p) __builtin_prefetch(p, 1)
#else
#error "aiougds knows the memory ordering of x86-64 and aarch64 only"
#endif

/*
 * What was just written goes on to a device: out of this processor's own cache, where the device's reads would have to
 * look for it line by line. A hint; processors that do not know it do nothing.
 */
static inline void cache_demote(const void *p, size_t nbytes)
{
#if defined(__x86_64__)
	for (size_t i = 0; i < nbytes; i += 64)
		/* cldemote, which older assemblers do not know */
		__asm__ volatile(".byte 0x0f, 0x1c, 0x00" : : "a"((const char *)p + i));
#else
	(void)p;
	(void)nbytes;
#endif
}

#endif
