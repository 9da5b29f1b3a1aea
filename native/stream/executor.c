/* SPDX-License-Identifier: MIT */
/* The executor: one thread per controller that looks for go, submits, and lets streams pass. */
#include "stream/stream.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "support/barrier.h"
#include "support/thread.h"

#define SPIN_NS (100 * NSEC_PER_USEC)
#define NAP_LEAST_NS (10 * NSEC_PER_USEC)
#define NAP_MOST_NS (2 * NSEC_PER_MSEC)
#define NAP_SHARE 16 /* of what was waited already: so much later at most */
#define HEALTH_NS (10 * NSEC_PER_MSEC) /* who does not sleep has it looked at so often */
#define COLLECT 64

int stream_exec_new(struct nvme_ctrl *c, struct stream_exec **ret)
{
	struct stream_exec *x = calloc(1, sizeof(*x));
	pthread_condattr_t clock;
	int err;

	if (!x)
		return -ENOMEM;
	x->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (x->fd < 0) {
		err = -errno;
		free(x);
		return err;
	}
	x->c = c;
	x->refs = 1;
	x->forks = forks();
	x->spin_ns = x->patience_ns = SPIN_NS;
	nvme_link_init(&x->events);
	pthread_mutex_init(&x->lock, NULL);
	pthread_mutex_init(&x->life, NULL);
	pthread_mutex_init(&x->closing, NULL);
	pthread_cond_init(&x->asked, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&x->ask, &clock);
	pthread_condattr_destroy(&clock);
	*ret = x;
	return 0;
}

void stream_exec_put(struct stream_exec *x)
{
	uint32_t left;

	pthread_mutex_lock(&x->lock);
	left = --x->refs;
	pthread_mutex_unlock(&x->lock);
	if (left)
		return;
	stream_exec_park(x, true);
	stream_ask_stop(x);
	sink_free_watches(x);
	close(x->fd);
	pthread_cond_destroy(&x->asked);
	pthread_cond_destroy(&x->ask);
	pthread_mutex_destroy(&x->life);
	pthread_mutex_destroy(&x->closing);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

void stream_exec_wake(struct stream_exec *x) { nvme_wake(&x->word, x->fd); }

void stream_exec_poke(struct stream_exec *x)
{
	/* release: what is to be seen; whoever falls asleep looks at it after it armed */
	atomic_store_explicit(&x->poked, true, memory_order_release);
	stream_exec_wake(x);
}

void stream_exec_add(struct stream_exec *x, struct stream *s, bool now)
{
	/* seq_cst: whoever takes it off its list looks at its operations after it cleared this */
	if (!atomic_exchange_explicit(&s->active, true, memory_order_seq_cst)) {
		struct stream *head = atomic_load_explicit(&x->incoming, memory_order_relaxed);

		do
			s->next_active = head;
		while (!atomic_compare_exchange_weak_explicit(&x->incoming, &head, s, memory_order_release,
							      memory_order_relaxed));
		now = true;
	}
	if (now)
		stream_exec_poke(x);
}

static void take_incoming(struct stream_exec *x)
{
	struct stream *s;

	if (!atomic_load_explicit(&x->incoming, memory_order_relaxed))
		return;
	/* acquire: the streams as they were when they were pushed */
	s = atomic_exchange_explicit(&x->incoming, NULL, memory_order_acquire);
	while (s) {
		struct stream *next = s->next_active;

		s->next_active = x->active;
		x->active = s;
		s = next;
	}
}

static bool has_work(const struct stream *s) { return stream_wants(s) != STREAM_WANTS_NOTHING; }

/* What one look at everything found. */
struct look {
	bool some;
	bool words; /* somebody waits for a word of a GPU */
	int64_t patience_ns; /* the most of all streams; 0: nobody looks before it sleeps */
	bool spins; /* somebody does not sleep at all */
	uint32_t inflight;
	int64_t deadline;
};

static void look_at_streams(struct stream_exec *x, struct look *l, int64_t now)
{
	struct stream **p = &x->active;

	while (*p) {
		struct stream *s = *p;

		if (stream_patience(s) > l->patience_ns)
			l->patience_ns = stream_patience(s);
		x->patience_ns = l->patience_ns;
		l->some |= stream_turn(s, now);
		if (has_work(s)) {
			l->words |= stream_wants(s) == STREAM_WANTS_WORD;
			l->spins |= stream_eagerness(s) == STREAM_SPINS;
			l->inflight += s->inflight;
			if (s->cur && s->cur->deadline < l->deadline)
				l->deadline = s->cur->deadline;
			p = &s->next_active;
			continue;
		}
		*p = s->next_active;
		/* whoever closes it looks under the lock: then we have let go of it */
		pthread_mutex_lock(&x->lock);
		/* seq_cst: an operation that came meanwhile either sees this, or is seen below */
		atomic_store_explicit(&s->active, false, memory_order_seq_cst);
		if (has_work(s))
			stream_exec_add(x, s, true);
		pthread_mutex_unlock(&x->lock);
	}
}

static uint32_t collect(struct stream_exec *x, bool arm)
{
	struct nvme_op *ops[COLLECT];
	int n;

	if (!x->ch)
		return 0;
	n = arm ? nvme_chan_reap(x->ch, ops, COLLECT) : (int)nvme_chan_poll(x->ch, ops, COLLECT);
	for (int i = 0; i < n; i++)
		stream_collect(x, ops[i]);
	return n > 0 ? (uint32_t)n : 0;
}

static struct look look(struct stream_exec *x, int64_t now)
{
	struct look l = { .deadline = INT64_MAX };

	if (atomic_load_explicit(&x->poked, memory_order_relaxed))
		atomic_exchange_explicit(&x->poked, false, memory_order_acquire);
	take_incoming(x);
	l.some = x->ch && x->ch->inflight && collect(x, false);
	look_at_streams(x, &l, now);
	return l;
}

/* INT64_MAX: until somebody wakes us. */
static int64_t nap_ns(const struct look *l, int64_t now, int64_t since)
{
	int64_t nap = INT64_MAX;

	if (l->words) {
		nap = (now - since) / NAP_SHARE;
		nap = nap < NAP_LEAST_NS ? NAP_LEAST_NS : nap > NAP_MOST_NS ? NAP_MOST_NS : nap;
	}
	if (l->deadline != INT64_MAX)
		nap = l->deadline - now < nap ? l->deadline - now : nap;
	return nap < 0 ? 0 : nap;
}

static bool drain(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == sizeof(count);
}

/* Nothing may be missed between the last look and the sleep: arm, fence, look, sleep. True: somebody woke us. */
static bool sleep_armed(struct stream_exec *x, const struct look *l, int64_t now, int64_t since)
{
	struct pollfd pfd[2] = { { .fd = x->fd, .events = POLLIN },
				 { .fd = x->ch ? x->ch->fd : -1, .events = POLLIN } };
	int64_t nap = nap_ns(l, now, since);
	struct timespec ts = { .tv_sec = nap / NSEC_PER_SEC, .tv_nsec = nap % NSEC_PER_SEC };
	bool woken, poked;

	atomic_store_explicit(&x->word, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	poked = atomic_load_explicit(&x->poked, memory_order_relaxed);
	if (!poked && !atomic_load_explicit(&x->stop, memory_order_relaxed))
		ppoll(pfd, 2, nap == INT64_MAX ? NULL : &ts, NULL);
	woken = !atomic_exchange_explicit(&x->word, 0, memory_order_relaxed);
	if (pfd[1].revents) /* what it was signalled for is looked at when we are awake */
		drain(pfd[1].fd);
	/* a signal may come after its sender cleared the word: then it ends the next sleep, and is taken there */
	return drain(x->fd) || woken || poked;
}

/* Arms the channel; false: something was there, and is collected. */
static bool may_sleep(struct stream_exec *x)
{
	if (!x->ch || !x->ch->inflight)
		return true;
	x->ch->polled = false;
	return !collect(x, true);
}

static void stay_awake(struct stream_exec *x)
{
	if (!x->ch)
		return;
	x->ch->polled = true;
	nvme_chan_disarm(x->ch);
}

/*
 * Sleep, and nap while a word of a GPU is waited for, which wakes nobody. Ends when something went on, or when there is
 * something new, which is looked for eagerly.
 */
static void rest(struct stream_exec *x, struct look l, int64_t since)
{
	bool woken = false;

	if (x->active)
		stream_ask_health(x);
	while (!l.some && !woken && !atomic_load_explicit(&x->stop, memory_order_relaxed)) {
		stream_seat_wait(x);
		l.some = !may_sleep(x);
		stream_seat_leave(x);
		if (!l.some)
			woken = sleep_armed(x, &l, now_ns(), since);
		stream_seat_wait(x);
		stay_awake(x);
		if (!l.some)
			l = look(x, now_ns());
		stream_seat_leave(x);
	}
}

/* Nothing has gone on since @since. True: go on looking. */
static bool stays_awake(struct stream_exec *x, const struct look *l, int64_t since)
{
	int64_t now = now_ns();

	if (!l->spins)
		return now - since < x->patience_ns;
	if (now - since > HEALTH_NS && now > x->health_at) {
		x->health_at = now + HEALTH_NS;
		stream_ask_health(x);
	}
	return true;
}

static void *exec_main(void *arg)
{
	struct stream_exec *x = arg;
	int64_t since = now_ns();

	prctl(PR_SET_TIMERSLACK, 1); /* naps are short, and shall end when they should */
	for (uint32_t idle = 0; !atomic_load_explicit(&x->stop, memory_order_acquire);) {
		struct look l;

		stream_seat_wait(x);
		l = look(x, now_ns());
		stream_seat_leave(x);
		if (l.some) {
			since = now_ns();
			idle = 0;
			continue;
		}
		cpu_relax();
		if (++idle & 15)
			continue;
		sched_yield(); /* a software device, or whoever enqueues, may need this processor */
		if (stays_awake(x, &l, since))
			continue;
		rest(x, l, since);
		since = now_ns();
	}
	return NULL;
}

int stream_exec_start(struct stream_exec *x)
{
	int err = 0;

	if (likely(atomic_load_explicit(&x->running, memory_order_acquire)))
		return 0;
	pthread_mutex_lock(&x->life);
	if (atomic_load_explicit(&x->running, memory_order_relaxed))
		goto unlock;
	err = x->ended ? -ESHUTDOWN : 0;
	stream_seat_wait(x);
	if (!err && x->c)
		err = nvme_chan_open(x->c, NVME_MODE_ADAPTIVE, &x->ch);
	if (!err && x->ch)
		x->ch->polled = true;
	stream_seat_leave(x);
	if (err)
		goto unlock;
	atomic_store_explicit(&x->stop, false, memory_order_relaxed);
	err = thread_start(&x->thread, "ugds-stream", exec_main, x);
	if (!err) {
		atomic_store_explicit(&x->running, true, memory_order_release);
		goto unlock;
	}
	stream_seat_wait(x);
	if (x->ch)
		nvme_chan_close(x->ch);
	x->ch = NULL;
	stream_seat_leave(x);
unlock:
	pthread_mutex_unlock(&x->life);
	return err;
}

static bool outstanding(struct stream_exec *x)
{
	bool busy = false;

	pthread_mutex_lock(&x->lock);
	for (const struct stream *s = x->all; s; s = s->next_all)
		busy |= s->nr_waiting;
	pthread_mutex_unlock(&x->lock);
	return busy;
}

/* Nobody looks at them any more; whoever has something to do is added anew. */
static void forget_active(struct stream_exec *x)
{
	take_incoming(x);
	while (x->active) {
		struct stream *s = x->active;

		x->active = s->next_active;
		atomic_store_explicit(&s->active, false, memory_order_seq_cst);
	}
}

int stream_exec_park(struct stream_exec *x, bool force)
{
	int err = 0;

	if (stream_forked(x))
		return 0;
	pthread_mutex_lock(&x->life);
	if (!atomic_load_explicit(&x->running, memory_order_relaxed))
		goto unlock;
	/* who enqueues counts its operation, then looks whether we run: one of us sees the other, through x->lock */
	atomic_store_explicit(&x->running, false, memory_order_relaxed);
	if (!force && outstanding(x)) {
		atomic_store_explicit(&x->running, true, memory_order_release);
		err = -EBUSY;
		goto unlock;
	}
	atomic_store_explicit(&x->stop, true, memory_order_release);
	nvme_signal(x->fd);
	pthread_join(x->thread, NULL);
	stream_seat_wait(x);
	if (x->ch) {
		x->ch->polled = false;
		/* what was given up is at the device still: housekeeping waits for it */
		if (nvme_chan_close(x->ch))
			nvme_chan_orphan(x->ch);
		x->ch = NULL;
	}
	forget_active(x);
	stream_seat_leave(x);
unlock:
	pthread_mutex_unlock(&x->life);
	return err;
}

/* x->closing held: none of them is freed meanwhile. */
static int each_stream(struct stream_exec *x, int (*fn)(struct stream *s))
{
	int err = 0;

	for (struct stream *s = x->all; s; s = s->next_all) {
		int rc = fn(s);

		err = err ? err : rc;
	}
	return err;
}

static int abandon(struct stream *s)
{
	stream_abandon(s);
	return stream_idle(s);
}

static int close_last(struct stream *s)
{
	if (stream_close_locked(s, false))
		s->closed = s->stuck = true; /* a leak, but not a corruption */
	return 0;
}

int stream_exec_quiet(struct stream_exec *x, bool force)
{
	int err;

	if (stream_forked(x))
		return 0;
	pthread_mutex_lock(&x->closing);
	err = each_stream(x, force ? abandon : stream_idle);
	pthread_mutex_unlock(&x->closing);
	return err ? err : stream_exec_park(x, false);
}

void stream_exec_end(struct stream_exec *x)
{
	if (!stream_forked(x)) {
		pthread_mutex_lock(&x->life);
		x->ended = true;
		pthread_mutex_unlock(&x->life);
		stream_exec_park(x, true);
		pthread_mutex_lock(&x->closing);
		each_stream(x, close_last);
		pthread_mutex_unlock(&x->closing);
		stream_rings_free(x);
		sink_fail_events(x, -ESHUTDOWN);
	}
	x->c = NULL;
	stream_exec_put(x);
}
