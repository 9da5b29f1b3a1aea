/* SPDX-License-Identifier: MIT */
/* What orders host memory against a device, what fetches lines in time, and what a spin loop does between two looks. */
#ifndef SUPPORT_BARRIER_H
#define SUPPORT_BARRIER_H

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

#endif
