/* SPDX-License-Identifier: MIT */
/*
 * Asking GPU runtimes: have events fired, is the GPU of a stream that lets wait still well? A thread of its own, made when
 * there is something to ask: a call of a runtime may wait for another thread's call, which may wait for all the work of
 * the GPU, and so for the executor. The executor therefore makes no such call while streams wait for it.
 */
#include "stream/stream.h"

#include <sys/prctl.h>

#include "support/thread.h"

#define ASK 64 /* with one look at the streams */
#define HEALTH_NS (20 * NSEC_PER_MSEC)
#define NAP_LEAST_NS (10 * NSEC_PER_USEC)
#define NAP_MOST_NS (2 * NSEC_PER_MSEC)
#define NAP_SHARE 16 /* of what was waited already */
#define LAZY_NS (10 * NSEC_PER_MSEC)

void stream_until_asked(struct stream_exec *x)
{
	while (x->asking)
		pthread_cond_wait(&x->asked, &x->lock);
}

void stream_asking(struct stream_exec *x, bool on)
{
	x->asking = on;
	if (!on)
		pthread_cond_broadcast(&x->asked);
}

int stream_ask_event(const struct gpu_rt *rt, const struct gpu_place *p, uint64_t event)
{
	struct gpu_before before;
	int code = rt->enter(p, &before);

	if (code)
		return code;
	code = rt->event_query(event);
	rt->leave(p, &before);
	return code;
}

static bool may_be_sick(struct stream *s)
{
	return s->nr_waiting && atomic_load_explicit(&s->newest, memory_order_acquire) &&
	       !atomic_load_explicit(&s->sick, memory_order_relaxed);
}

/* Each stream with operations outstanding, by the event of its newest one. */
static void look_at_gpus(struct stream_exec *x)
{
	struct stream *s, *who[ASK];
	uint32_t n = 0;
	bool any = false;

	pthread_mutex_lock(&x->lock);
	for (s = x->all; s && n < ASK; s = s->next_all) {
		any |= s->nr_waiting != 0;
		if (may_be_sick(s) && s->health_round != x->health_round) {
			s->health_round = x->health_round;
			who[n++] = s;
		}
	}
	if (n < ASK)
		x->health_round++; /* all had their turn */
	x->want_health = any || n;
	stream_asking(x, true); /* none of them is freed */
	pthread_mutex_unlock(&x->lock);
	for (uint32_t i = 0; i < n; i++) {
		const struct stream_op *op = atomic_load_explicit(&who[i]->newest, memory_order_acquire);
		int code = stream_ask_event(who[i]->rt, &who[i]->place, op->event);

		if (!code || code == GPU_NOT_READY)
			continue;
		atomic_store_explicit(&who[i]->sick, code, memory_order_release);
		stream_exec_poke(x);
	}
	pthread_mutex_lock(&x->lock);
	stream_asking(x, false);
	pthread_mutex_unlock(&x->lock);
}

static void nap(struct stream_exec *x, int64_t ns)
{
	int64_t end = now_ns() + ns;
	struct timespec ts = { .tv_sec = end / NSEC_PER_SEC, .tv_nsec = end % NSEC_PER_SEC };

	pthread_cond_timedwait(&x->ask, &x->lock, &ts);
}

static int64_t nap_ns(int64_t waited)
{
	int64_t ns = waited / NAP_SHARE;

	return ns < NAP_LEAST_NS ? NAP_LEAST_NS : ns > NAP_MOST_NS ? NAP_MOST_NS : ns;
}

static void *asker_main(void *arg)
{
	struct stream_exec *x = arg;
	int64_t since = now_ns(), health_at = 0, lazy_at = 0;

	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&x->lock);
	while (!x->ask_stop) {
		bool events = atomic_load_explicit(&x->nr_events, memory_order_relaxed), fired = false;
		bool urgent = x->urgent, lazy = x->lazy;
		int64_t now = now_ns();

		if (!events && !urgent && !lazy && !x->want_health) {
			pthread_cond_wait(&x->ask, &x->lock);
			since = now_ns();
			continue;
		}
		pthread_mutex_unlock(&x->lock);
		if (events)
			fired = sink_poll_events(x);
		if (urgent || (lazy && now >= lazy_at)) {
			fired |= stream_learn_all(x, lazy && now >= lazy_at);
			lazy_at = now >= lazy_at ? now + LAZY_NS : lazy_at;
		}
		if (now >= health_at) {
			health_at = now + HEALTH_NS;
			look_at_gpus(x);
		}
		pthread_mutex_lock(&x->lock);
		if (fired)
			since = now_ns();
		else if (!x->ask_stop)
			nap(x, events || urgent ? nap_ns(now - since) : lazy ? LAZY_NS : HEALTH_NS);
	}
	pthread_mutex_unlock(&x->lock);
	return NULL;
}

int stream_ask_start(struct stream_exec *x)
{
	int err = 0;

	if (atomic_load_explicit(&x->asker_runs, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&x->life);
	if (!atomic_load_explicit(&x->asker_runs, memory_order_relaxed)) {
		err = thread_start(&x->asker, "ugds-gpu", asker_main, x);
		atomic_store_explicit(&x->asker_runs, !err, memory_order_release);
	}
	pthread_mutex_unlock(&x->life);
	return err;
}

void stream_ask_stop(struct stream_exec *x)
{
	if (stream_forked(x) || !atomic_load_explicit(&x->asker_runs, memory_order_acquire))
		return;
	pthread_mutex_lock(&x->lock);
	x->ask_stop = true;
	pthread_cond_broadcast(&x->ask);
	pthread_mutex_unlock(&x->lock);
	pthread_join(x->asker, NULL);
	atomic_store_explicit(&x->asker_runs, false, memory_order_relaxed);
}

void stream_ask_health(struct stream_exec *x)
{
	bool news;

	pthread_mutex_lock(&x->lock);
	news = !x->want_health;
	x->want_health = true;
	if (news)
		pthread_cond_signal(&x->ask);
	pthread_mutex_unlock(&x->lock);
}
