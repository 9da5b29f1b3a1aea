/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "nvme/poller.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nvme/chan.h"
#include "support/barrier.h"
#include "support/thread.h"

#define IDLE_SPIN_NS (50 * NSEC_PER_USEC) /* nothing to do: look for so long, then sleep */
#define BUSY_SPIN_NS NSEC_PER_MSEC /* commands at the device: look for so long without one coming back */

/* One writer. */
static inline void tick(_Atomic uint64_t *n)
{
	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void lock(struct nvme_poller *p)
{
	atomic_fetch_add_explicit(&p->waiting, 1, memory_order_relaxed);
	pthread_mutex_lock(&p->lock);
	atomic_fetch_sub_explicit(&p->waiting, 1, memory_order_relaxed);
}

static bool pass(struct nvme_poller *p)
{
	bool some = false;

	p->woke = false;
	for (struct nvme_exec *x = p->list; x; x = x->poll_next)
		some |= nvme_exec_turn(x, &p->woke);
	tick(&p->passes);
	if (some)
		tick(&p->found);
	return some;
}

static bool anything(const struct nvme_poller *p)
{
	for (struct nvme_exec *x = p->list; x; x = x->poll_next)
		if (nvme_exec_peek(x))
			return true;
	return atomic_load_explicit(&p->stop, memory_order_relaxed) ||
	       atomic_load_explicit(&p->waiting, memory_order_relaxed);
}

/* Nothing may be missed between the last look and the sleep: arm, fence, look, sleep. */
static void sleep_armed(struct nvme_poller *p)
{
	struct pollfd pfd = { .fd = p->fd, .events = POLLIN };
	int nap_ms = 1000;
	uint64_t count;

	for (struct nvme_exec *x = p->list; x; x = x->poll_next) {
		nvme_exec_arm(x, true);
		if (x->lane.deaf && atomic_load_explicit(&x->lane.inflight, memory_order_relaxed))
			nap_ms = 1; /* nothing may come that wakes it */
	}
	atomic_thread_fence(memory_order_seq_cst);
	if (!anything(p)) {
		tick(&p->sleeps);
		pthread_mutex_unlock(&p->lock);
		poll(&pfd, 1, nap_ms);
		pthread_mutex_lock(&p->lock);
	}
	for (struct nvme_exec *x = p->list; x; x = x->poll_next)
		nvme_exec_arm(x, false);
	if (read(p->fd, &count, sizeof(count)) < 0)
		return; /* EAGAIN: it was not signalled */
}

static int64_t patience(const struct nvme_poller *p)
{
	for (const struct nvme_exec *x = p->list; x; x = x->poll_next)
		if (atomic_load_explicit(&x->lane.inflight, memory_order_relaxed))
			return BUSY_SPIN_NS;
	return IDLE_SPIN_NS;
}

static void make_way(struct nvme_poller *p)
{
	pthread_mutex_unlock(&p->lock);
	/* it counts as waiting until it has the lock */
	while (atomic_load_explicit(&p->waiting, memory_order_relaxed))
		sched_yield();
	pthread_mutex_lock(&p->lock);
}

static void *poller_main(void *arg)
{
	struct nvme_poller *p = arg;
	int64_t since = now_ns();
	uint32_t idle = 0;

	atomic_store_explicit(&p->tid, gettid(), memory_order_relaxed);
	pthread_mutex_lock(&p->lock);
	while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
		if (unlikely(atomic_load_explicit(&p->waiting, memory_order_relaxed)))
			make_way(p);
		if (pass(p)) {
			idle = 0;
			if (p->woke)
				sched_yield(); /* on this processor, perhaps: then it need not wait for our turn to end */
			continue;
		}
		if (!idle++)
			since = now_ns();
		cpu_relax();
		if (idle & 15)
			continue;
		sched_yield(); /* a software device, or the loop that waits for us, may need this processor */
		if (now_ns() - since < patience(p))
			continue;
		sleep_armed(p);
		idle = 0;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int start(struct nvme_poller *p, int cpu)
{
	int err;

	p->cpu = cpu;
	p->since = now_ns();
	pthread_mutex_init(&p->lock, NULL);
	p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->fd < 0)
		return -errno;
	err = thread_start(&p->thread, "ugds-exec", poller_main, p);
	if (err) {
		close(p->fd);
		p->fd = -1;
		return err;
	}
	if (cpu >= 0) {
		cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
		size_t nbytes = CPU_ALLOC_SIZE((size_t)cpu + 1);

		if (!set)
			return -ENOMEM;
		CPU_ZERO_S(nbytes, set);
		CPU_SET_S((size_t)cpu, nbytes, set);
		err = -pthread_setaffinity_np(p->thread, nbytes, set);
		CPU_FREE(set);
	}
	return err;
}

int nvme_pollers_new(uint32_t threads, const int32_t *cpus, uint32_t nr_cpus, struct nvme_pollers **ret)
{
	struct nvme_pollers *ps;

	if (!threads || threads > NVME_POLLERS_MOST)
		return -EINVAL;
	for (uint32_t i = 0; i < nr_cpus; i++)
		if (cpus[i] < 0 || cpus[i] >= 1 << 16)
			return -EINVAL;
	ps = calloc(1, sizeof(*ps) + threads * sizeof(ps->p[0]));
	if (!ps)
		return -ENOMEM;
	ps->pid = getpid();
	for (uint32_t i = 0; i < threads; i++)
		ps->p[i].fd = -1;
	for (uint32_t i = 0; i < threads; i++) {
		int err = start(&ps->p[i], nr_cpus ? cpus[i % nr_cpus] : -1);

		ps->nr = i + (ps->p[i].fd >= 0);
		if (err) {
			nvme_pollers_free(ps);
			return err;
		}
	}
	*ret = ps;
	return 0;
}

void nvme_pollers_free(struct nvme_pollers *ps)
{
	if (!ps || ps->pid != getpid()) /* the parent's */
		return;
	for (uint32_t i = 0; i < ps->nr; i++) {
		struct nvme_poller *p = &ps->p[i];

		atomic_store_explicit(&p->stop, true, memory_order_release);
		nvme_signal(p->fd);
		pthread_join(p->thread, NULL);
		close(p->fd);
		pthread_mutex_destroy(&p->lock);
	}
	free(ps);
}

struct nvme_poller *nvme_poller_pick(struct nvme_pollers *ps)
{
	struct nvme_poller *best = &ps->p[0];

	for (uint32_t i = 1; i < ps->nr; i++)
		if (atomic_load_explicit(&ps->p[i].nr, memory_order_relaxed) <
		    atomic_load_explicit(&best->nr, memory_order_relaxed))
			best = &ps->p[i];
	return best;
}

void nvme_poller_add(struct nvme_poller *p, struct nvme_exec *x)
{
	lock(p);
	x->poll_next = p->list;
	p->list = x;
	atomic_fetch_add_explicit(&p->nr, 1, memory_order_relaxed);
	pthread_mutex_unlock(&p->lock);
	nvme_signal(p->fd); /* its word is not set: whoever sleeps now does not know it */
}

void nvme_poller_remove(struct nvme_poller *p, struct nvme_exec *x)
{
	lock(p);
	for (struct nvme_exec **at = &p->list; *at; at = &(*at)->poll_next)
		if (*at == x) {
			*at = x->poll_next;
			break;
		}
	atomic_fetch_sub_explicit(&p->nr, 1, memory_order_relaxed);
	pthread_mutex_unlock(&p->lock);
}
