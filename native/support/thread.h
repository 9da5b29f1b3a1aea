/* SPDX-License-Identifier: MIT */
/* Threads of our own inside somebody else's program. */
#ifndef SUPPORT_THREAD_H
#define SUPPORT_THREAD_H

#include <pthread.h>
#include <stdint.h>

/*
 * Start a thread that takes no signal: they are the program's, and its own threads are woken by them. Only what a
 * crash raises stays, so that the program's handler for it (faulthandler) speaks here too. @name: what debuggers show,
 * 15 characters. Negative errno.
 */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *arg), void *arg);

/*
 * How often this process, and those that it is a copy of, were forked: another number than before means that one is in a
 * child. Asking the kernel who one is takes longer than much of what is done in between. A child made by a bare clone() is
 * not counted. Counts from the first call on.
 */
uint32_t forks(void);

#endif
