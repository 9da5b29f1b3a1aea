/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "nvme/chan.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define LOOK_NS 5000 /* what one look at the clock takes */
#define NAP_FACTOR 400 /* sleeps are this much longer than asked for: time-outs come soon */
#define BLOCKS 64
#define GUARD 4096u

enum who { NOBODY, HK, EXEC };

struct thread {
	void *(*fn)(void *);
	void *arg;
};

struct block {
	void *p;
	size_t len;
	size_t nbytes; /* as asked for */
	bool used;
};

static struct {
	bool on;
	int64_t now;
	struct nvme_ctrl *c;
	struct thread thread[8];
	uint32_t nr_threads;
	enum who running;
	uint32_t nr_used;
} world;

/* Kept from one input to the next: taking and zeroing pages costs more than all else. */
static struct block pool[BLOCKS];

int __real_clock_gettime(clockid_t clk, struct timespec *ts);
int __real_nanosleep(const struct timespec *req, struct timespec *rem);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __real_pthread_join(pthread_t t, void **ret);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask);
int __real_sched_yield(void);
int __real_pthread_setname_np(pthread_t t, const char *name);
int __wrap_clock_gettime(clockid_t clk, struct timespec *ts);
int __wrap_nanosleep(const struct timespec *req, struct timespec *rem);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **ret);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask);
int __wrap_sched_yield(void);
int __wrap_pthread_setname_np(pthread_t t, const char *name);
int __wrap_mem_queue_alloc(size_t nbytes, bool huge, void **ret_vaddr, size_t *ret_nbytes, bool *ret_huge);
void __wrap_mem_queue_free(void *vaddr, size_t nbytes);

void world_begin(void)
{
	memset(&world, 0, sizeof(world));
	world.now = 1000 * NSEC_PER_SEC;
	world.on = true;
}

void world_end(void)
{
	MUST(!world.nr_used);
	world.on = false;
}

void world_ctrl(struct nvme_ctrl *c) { world.c = c; }
void world_pass(int64_t ns) { world.now += ns; }

static void run(uint32_t i, enum who who, _Atomic bool *stop)
{
	if (i >= world.nr_threads || world.running != NOBODY)
		return;
	world.running = who;
	world.thread[i].fn(world.thread[i].arg);
	atomic_store(stop, false);
	world.running = NOBODY;
}

void world_run_hk(void)
{
	/* made by bring-up, so the first; an executor may be made later */
	if (world.c && world.c->hk_running && !atomic_load(&world.c->hk_stop))
		run(0, HK, &world.c->hk_stop);
}

void world_run_exec(void)
{
	for (uint32_t i = 1; world.c && world.c->exec && i < world.nr_threads; i++)
		if (world.thread[i].arg == world.c->exec->poller)
			run(i, EXEC, &world.c->exec->poller->stop);
}

/* Whoever runs would sleep now: it is to leave its loop. */
static void would_sleep(void)
{
	if (world.running == HK)
		atomic_store(&world.c->hk_stop, true);
	else if (world.running == EXEC)
		atomic_store(&world.c->exec->poller->stop, true);
}

int __wrap_clock_gettime(clockid_t clk, struct timespec *ts)
{
	if (!world.on || clk != CLOCK_MONOTONIC)
		return __real_clock_gettime(clk, ts);
	world.now += LOOK_NS;
	ts->tv_sec = world.now / NSEC_PER_SEC;
	ts->tv_nsec = world.now % NSEC_PER_SEC;
	return 0;
}

int __wrap_nanosleep(const struct timespec *req, struct timespec *rem)
{
	if (!world.on)
		return __real_nanosleep(req, rem);
	world.now += (req->tv_sec * NSEC_PER_SEC + req->tv_nsec) * NAP_FACTOR;
	return 0;
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	if (!world.on)
		return __real_pthread_create(t, attr, fn, arg);
	MUST(world.nr_threads < ARRAY_SIZE(world.thread));
	world.thread[world.nr_threads++] = (struct thread){ fn, arg };
	*t = (pthread_t)world.nr_threads; /* nobody's: only compared */
	return 0;
}

int __wrap_pthread_join(pthread_t t, void **ret) { return world.on ? 0 : __real_pthread_join(t, ret); }

int __wrap_pthread_setname_np(pthread_t t, const char *name)
{
	return world.on ? 0 : __real_pthread_setname_np(t, name);
}

/* Only a call to housekeeping is waited for so. */
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	if (!world.on)
		return __real_pthread_cond_wait(cond, lock);
	pthread_mutex_unlock(lock);
	MUST(world.running == NOBODY);
	world_run_hk();
	pthread_mutex_lock(lock);
	return 0;
}

static int sleep_for(int64_t ns)
{
	would_sleep();
	if (world.running == NOBODY)
		world.now += ns;
	return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	return world.on ? sleep_for(timeout * NSEC_PER_MSEC) : __real_poll(fds, n, timeout);
}

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	return world.on ? sleep_for(ts->tv_sec * NSEC_PER_SEC + ts->tv_nsec) : __real_ppoll(fds, n, ts, mask);
}

int __wrap_sched_yield(void)
{
	if (!world.on)
		return __real_sched_yield();
	would_sleep();
	return 0;
}

static size_t block_len(size_t nbytes) { return (nbytes + 4095) & ~(size_t)4095; }

int __wrap_mem_queue_alloc(size_t nbytes, bool huge, void **ret_vaddr, size_t *ret_nbytes, bool *ret_huge)
{
	size_t len = block_len(nbytes);
	struct block *b = NULL;

	(void)huge;
	for (uint32_t i = 0; i < BLOCKS && !b; i++)
		if (!pool[i].used && pool[i].len == len)
			b = &pool[i];
	for (uint32_t i = 0; i < BLOCKS && !b; i++) {
		if (pool[i].used)
			continue;
		b = &pool[i];
		if (b->p) {
			UNPOISON(b->p, b->len + GUARD);
			free(b->p);
		}
		b->len = len;
		b->p = aligned_alloc(4096, len + GUARD);
		MUST(b->p);
		POISON((char *)b->p + len, GUARD);
	}
	MUST(b);
	b->used = true;
	b->nbytes = len;
	UNPOISON(b->p, len);
	memset(b->p, 0, len);
	world.nr_used++;
	*ret_vaddr = b->p;
	*ret_nbytes = len;
	*ret_huge = false;
	return 0;
}

void __wrap_mem_queue_free(void *vaddr, size_t nbytes)
{
	if (!vaddr)
		return;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		if (pool[i].p != vaddr)
			continue;
		MUST(pool[i].used && block_len(nbytes) == pool[i].nbytes);
		pool[i].used = false;
		POISON(vaddr, pool[i].len);
		world.nr_used--;
		return;
	}
	fprintf(stderr, "queue memory that was never taken\n");
	abort();
}
