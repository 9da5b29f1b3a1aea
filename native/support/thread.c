/* SPDX-License-Identifier: MIT */
#include "support/thread.h"

#include <signal.h>
#include <stdatomic.h>

#include "support/util.h"

static _Atomic uint32_t nr_forks;
static pthread_once_t counting = PTHREAD_ONCE_INIT;

static void count_fork(void) { atomic_fetch_add_explicit(&nr_forks, 1, memory_order_relaxed); }

static void count_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

uint32_t forks(void)
{
	pthread_once(&counting, count_forks);
	return atomic_load_explicit(&nr_forks, memory_order_relaxed);
}

static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS };

int thread_start(pthread_t *ret, const char *name, void *(*run)(void *arg), void *arg)
{
	sigset_t blocked, old;
	int err;

	sigfillset(&blocked);
	for (unsigned int i = 0; i < ARRAY_SIZE(crashes); i++)
		sigdelset(&blocked, crashes[i]);
	/* inherited: there is no moment in which the thread runs without it */
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	err = -pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_setname_np(*ret, name);
	return err;
}
