/* SPDX-License-Identifier: MIT */
/* Host functions: all on one thread, so one that blocks holds up those of every stream. */
#include "exec.h"

struct job {
	struct job *next;
	void (*fn)(void *arg);
	void *arg;
	bool done;
};

static struct job *first, **end = &first;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static void *serve(void *unused)
{
	pthread_mutex_lock(&soft_lock);
	for (;;) {
		struct job *j;

		while (!first)
			pthread_cond_wait(&work, &soft_lock);
		j = first;
		first = j->next;
		if (!first)
			end = &first;
		soft_thread()->in_host_func = true;
		pthread_mutex_unlock(&soft_lock);
		j->fn(j->arg);
		pthread_mutex_lock(&soft_lock);
		j->done = true;
		pthread_cond_broadcast(&soft_progress);
	}
	return unused;
}

void soft_host_func_run(void (*fn)(void *arg), void *arg)
{
	static bool started;
	struct job j = { .fn = fn, .arg = arg };

	if (!started) {
		pthread_t t;

		started = true;
		pthread_create(&t, NULL, serve, NULL);
		pthread_detach(t);
	}
	*end = &j;
	end = &j.next;
	pthread_cond_signal(&work);
	while (!j.done)
		pthread_cond_wait(&soft_progress, &soft_lock);
	soft_counters.host_funcs++;
}
