/* SPDX-License-Identifier: MIT */
/*
 * The bare C that waiting for a modelled device is held against: a command is a time at which it ends, on a thread that
 * never sleeps; nothing of the library is in it. And a loop around the library's own calls, between the two.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
static inline void relax(void) { __builtin_ia32_pause(); }
#else
static inline void relax(void) { __asm__ volatile("yield"); }
#endif

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}
static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

enum how { LOOK, INTERRUPT, HAND_OFF };

struct model {
	_Alignas(64) _Atomic int64_t due; /* the command at the device, 0: none */
	_Alignas(64) _Atomic bool done; /* what it writes where somebody looks */
	_Alignas(64) _Atomic int64_t posted; /* handed to the executor, which sends it on */
	_Alignas(64) _Atomic bool stop;
	int fd;
	enum how how;
};

static void wake(const struct model *m)
{
	uint64_t one = 1;

	if (write(m->fd, &one, 8) != 8)
		abort();
}

static void *device_thread(void *arg)
{
	struct model *m = arg;

	while (!atomic_load_explicit(&m->stop, memory_order_relaxed)) {
		int64_t due = atomic_load_explicit(&m->due, memory_order_acquire);

		if (!due || now_ns() < due) {
			relax();
			continue;
		}
		atomic_store_explicit(&m->due, 0, memory_order_relaxed);
		if (m->how == INTERRUPT)
			wake(m);
		else
			atomic_store_explicit(&m->done, true, memory_order_release);
	}
	return NULL;
}

/* Hands over in both directions; gives way now and then, as it may be on its user's processor. */
static void *executor_thread(void *arg)
{
	struct model *m = arg;

	for (uint32_t looks = 1; !atomic_load_explicit(&m->stop, memory_order_relaxed); looks++) {
		int64_t due = atomic_exchange_explicit(&m->posted, 0, memory_order_acq_rel);

		if (due)
			atomic_store_explicit(&m->due, due, memory_order_release);
		if (atomic_exchange_explicit(&m->done, false, memory_order_acq_rel))
			wake(m);
		relax();
		if (!(looks & 15))
			sched_yield();
	}
	return NULL;
}

static void one(struct model *m, int ep, int64_t ns)
{
	_Atomic int64_t *to = m->how == HAND_OFF ? &m->posted : &m->due;
	struct epoll_event ev;
	uint64_t count;

	atomic_store_explicit(to, now_ns() + ns, memory_order_release);
	if (m->how == LOOK) {
		while (!atomic_exchange_explicit(&m->done, false, memory_order_acq_rel))
			relax();
		return;
	}
	while (epoll_wait(ep, &ev, 1, -1) != 1 || read(m->fd, &count, 8) != 8)
		;
}

static int start(pthread_t *th, void *(*run)(void *), struct model *m, int cpu)
{
	int err = pthread_create(th, NULL, run, m);
	cpu_set_t set;

	if (err || cpu < 0)
		return -err;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return -pthread_setaffinity_np(*th, sizeof(set), &set);
}

/* @n commands of @ns each, one after another, the device on @cpu. ret_ns: how long each took; returns processor time of the
 * calling thread. */
int64_t floor_wait(int how, int64_t ns, uint32_t n, int cpu, int64_t *ret_ns)
{
	struct model *m = aligned_alloc(64, sizeof(*m));
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	pthread_t device, executor;
	int64_t spent;
	int err;

	memset(m, 0, sizeof(*m));
	m->how = (enum how)how;
	m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, m->fd, &ev);
	err = start(&device, device_thread, m, cpu);
	if (!err && how == HAND_OFF)
		err = start(&executor, executor_thread, m, -1);
	if (err)
		return err;
	for (uint32_t i = 0; i < n / 8 + 1; i++) /* warm */
		one(m, ep, ns);
	spent = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t i = 0; i < n; i++) {
		int64_t t0 = now_ns();

		one(m, ep, ns);
		ret_ns[i] = now_ns() - t0;
	}
	spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - spent;
	atomic_store(&m->stop, true);
	pthread_join(device, NULL);
	if (how == HAND_OFF)
		pthread_join(executor, NULL);
	close(ep);
	close(m->fd);
	free(m);
	return spent;
}

/* The same with a device that a loop in Python waits for: what it asks for ends with a signal of the eventfd. */
static struct model *lent;
static pthread_t lent_thread;

int floor_lend(int cpu)
{
	lent = aligned_alloc(64, sizeof(*lent));
	memset(lent, 0, sizeof(*lent));
	lent->how = INTERRUPT;
	lent->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return start(&lent_thread, device_thread, lent, cpu) ?: lent->fd;
}

void floor_ask(int64_t ns) { atomic_store_explicit(&lent->due, now_ns() + ns, memory_order_release); }

void floor_give_back(void)
{
	atomic_store(&lent->stop, true);
	pthread_join(lent_thread, NULL);
	close(lent->fd);
	free(lent);
}

typedef int64_t rw_call(void *ch, void *ns, uint64_t map, uint64_t buf_off, uint64_t nbytes, uint64_t offset,
			uint32_t op);
typedef int reap_call(void *ch, void *out, uint32_t max);

#define PENDING (1ll << 62)

/* Reads of the library from C, waited for with epoll where they do not end inside the call. As above. */
int64_t loop_wait(rw_call *rw, reap_call *reap, int fd, void *ch, void *ns, uint64_t map, uint64_t nbytes,
		  uint32_t n, uint32_t op, int64_t *ret_ns)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	_Alignas(8) char out[32];
	int64_t spent;

	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	spent = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t i = 0; i < n; i++) {
		int64_t t0 = now_ns(), rc = rw(ch, ns, map, 0, nbytes, 0, op);

		if (rc < PENDING && rc != (int64_t)nbytes)
			return -EIO;
		while (rc >= PENDING && (epoll_wait(ep, &ev, 1, -1) != 1 || !reap(ch, out, 1)))
			;
		ret_ns[i] = now_ns() - t0;
	}
	close(ep);
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - spent;
}
