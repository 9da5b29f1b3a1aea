/* SPDX-License-Identifier: MIT */
#include "support/thread.h"

#include <signal.h>

#include "support/util.h"

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
