/* SPDX-License-Identifier: MIT */
/*
 * The bare C that the benchmark holds the engine against: a hand-off to a thread and back, preadv loops, rings between
 * two cores, and loops around the library's own calls. Built and loaded when the benchmark runs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int64_t read_at(int fd, void *buf, size_t nbytes, int64_t offset)
{
	struct iovec v = { buf, nbytes };

	return preadv(fd, &v, 1, offset);
}

/* ---- a hand-off: one system call wakes a thread, which reads and signals an eventfd that epoll watches ---- */

struct handoff {
	_Atomic uint32_t kick; /* 1: work, 2: over */
	const int64_t *offsets;
	uint32_t n;
	int fd, done;
	char buf[PAGE];
};

static void *handoff_thread(void *arg)
{
	struct handoff *h = arg;
	uint64_t one = 1;

	for (uint32_t i = 0;; i++) {
		uint32_t k;

		while (!(k = atomic_exchange(&h->kick, 0)))
			syscall(SYS_futex, &h->kick, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
		if (k == 2)
			return NULL;
		if (read_at(h->fd, h->buf, PAGE, h->offsets[i % h->n]) != PAGE ||
		    write(h->done, &one, 8) != 8)
			abort();
	}
}

static void handoff_kick(struct handoff *h, uint32_t what)
{
	atomic_store(&h->kick, what);
	syscall(SYS_futex, &h->kick, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Nanoseconds for @n of them. */
int64_t floor_handoff(int fd, const int64_t *offsets, uint32_t n)
{
	struct handoff h = {
		.offsets = offsets, .n = n, .fd = fd, .done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
	};
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	int64_t t0 = 0;
	pthread_t th;

	epoll_ctl(ep, EPOLL_CTL_ADD, h.done, &ev);
	if (pthread_create(&th, NULL, handoff_thread, &h))
		return -EAGAIN;
	for (uint32_t i = 0; i < n + n / 8; i++) {
		uint64_t count;

		if (i == n / 8) /* warm */
			t0 = now_ns();
		handoff_kick(&h, 1);
		while (epoll_wait(ep, &ev, 1, -1) != 1 || read(h.done, &count, 8) != 8)
			;
	}
	t0 = now_ns() - t0;
	handoff_kick(&h, 2);
	pthread_join(th, NULL);
	close(ep);
	close(h.done);
	return t0;
}

/* ---- bandwidth: @threads threads that read @nbytes at a time until @total were read ---- */

struct stream {
	_Atomic int64_t *next;
	char *buf;
	size_t nbytes, bufs;
	int64_t total;
	int fd;
};

static void *stream_thread(void *arg)
{
	struct stream *s = arg;
	int64_t at;

	for (size_t k = 0; (at = atomic_fetch_add(s->next, (int64_t)s->nbytes)) < s->total; k++)
		if (read_at(s->fd, s->buf + k % s->bufs * s->nbytes, s->nbytes, at) != (int64_t)s->nbytes)
			abort();
	return NULL;
}

/* @memory has room for @depth buffers, shared out among the threads. */
int64_t floor_preadv(int fd, int64_t total, uint32_t nbytes, uint32_t depth, uint32_t threads, char *memory)
{
	struct stream s[64];
	_Atomic int64_t next = 0;
	uint32_t each = depth / threads;
	pthread_t th[64];
	int64_t t0 = now_ns();

	for (uint32_t i = 0; i < threads; i++) {
		s[i] = (struct stream){ &next, memory + (size_t)i * each * nbytes, nbytes, each, total, fd };
		if (pthread_create(&th[i], NULL, stream_thread, &s[i]))
			return -EAGAIN;
	}
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(th[i], NULL);
	return now_ns() - t0;
}

/* ---- bare rings between two cores: a 64-byte entry there, 16 bytes back, one doorbell word a call ---- */

#if defined(__x86_64__)
static inline uint64_t ticks(void) { return __builtin_ia32_rdtsc(); }
static inline void relax(void) { __builtin_ia32_pause(); }
#else
static inline uint64_t ticks(void)
{
	uint64_t v;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
}
static inline void relax(void) { __asm__ volatile("yield"); }
#endif

#define RING 256u

struct rings {
	_Alignas(64) uint64_t sq[RING][8];
	_Alignas(64) struct {
		uint64_t a;
		_Atomic uint64_t b;
	} cq[RING];
	_Alignas(64) _Atomic uint32_t tail;
	_Alignas(64) _Atomic bool stop;
};

static void *rings_thread(void *arg)
{
	struct rings *r = arg;
	uint32_t head = 0;

	while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

		if (head == tail)
			relax();
		for (; head != tail; head++) {
			r->cq[head % RING].a = r->sq[head % RING][0] ^ r->sq[head % RING][7];
			/* the phase is the lap: it differs from what the last lap left there */
			atomic_store_explicit(&r->cq[head % RING].b, head / RING + 1, memory_order_release);
		}
	}
	return NULL;
}

/* Ticks inside submit and non-empty reap, for @commands at @depth. @cpu: where the other thread goes. */
int64_t floor_rings(uint64_t commands, uint32_t depth, int cpu)
{
	struct rings *r = aligned_alloc(64, sizeof(*r));
	uint64_t sent = 0, back = 0, spent = 0, sum = 0;
	pthread_attr_t attr;
	cpu_set_t set;
	pthread_t th;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	memset(r, 0, sizeof(*r));
	if (pthread_create(&th, &attr, rings_thread, r))
		return -EAGAIN;
	while (back < commands) {
		uint64_t t0 = ticks(), t1, was = back;

		if (back + depth > sent) {
			for (; sent < back + depth; sent++)
				for (int w = 0; w < 8; w++)
					r->sq[sent % RING][w] = sent + (uint64_t)w;
			atomic_store_explicit(&r->tail, (uint32_t)sent, memory_order_release);
		}
		t1 = ticks();
		spent += t1 - t0;
		while (back < sent &&
		       atomic_load_explicit(&r->cq[back % RING].b, memory_order_acquire) == back / RING + 1)
			sum += r->cq[back++ % RING].a;
		if (back != was)
			spent += ticks() - t1;
		else
			relax();
	}
	atomic_store(&r->stop, true);
	pthread_join(th, NULL);
	free(r);
	return sum ? (int64_t)spent : -EIO;
}

/* ---- loops around calls of the library, so that nothing but they is timed ---- */

typedef int64_t rw_call(void *ch, void *ns, uint64_t map, uint64_t buf_off, uint64_t nbytes, uint64_t offset,
			uint32_t op);
typedef int reap_call(void *ch, void *out, uint32_t max);

#define PENDING (1ll << 62)

/* Nanoseconds for one call for each offset; the few that do not complete inside the call are waited for. */
int64_t loop_rw(rw_call *rw, reap_call *reap, void *ch, void *ns, uint64_t map, uint64_t nbytes,
		const int64_t *offsets, uint32_t n, uint32_t op)
{
	_Alignas(8) char out[32];
	int64_t t0 = now_ns();

	for (uint32_t i = 0; i < n; i++) {
		int64_t rc = rw(ch, ns, map, 0, nbytes, (uint64_t)offsets[i], op);

		if (rc < PENDING && rc != (int64_t)nbytes)
			return -EIO;
		while (rc >= PENDING && !reap(ch, out, 1))
			relax();
	}
	return now_ns() - t0;
}

typedef int64_t submit_call(void *b, void *ns, uint32_t op, uint64_t map, const int64_t *offsets,
			    const int64_t *buf_offsets, uint64_t nbytes, uint32_t n, uint64_t cookie0,
			    uint32_t *ret_bad);
typedef int64_t harvest_call(void *b);
typedef uint32_t ready_call(void *b);

struct calls {
	submit_call *submit;
	harvest_call *harvest;
	ready_call *ready;
	reap_call *reap;
};

/* @count batches of @n reads at @offsets, n for each. ret_ns: what was spent inside the calls of each; waiting between reaps is not. @rest_ns:
 * sleep so long before the first look, so that it finds all. The access() calls mark the stretch for who traces system
 * calls. */
int64_t loop_batches(const struct calls *c, void *ch, void *b, void *ns, uint64_t map, uint64_t nbytes,
		     const int64_t *offsets, uint32_t n, uint32_t count, uint32_t rest_ns, int64_t *ret_ns)
{
	const struct timespec rest = { .tv_nsec = rest_ns };
	_Alignas(8) char out[32 * 8];
	uint32_t bad;

	access("/bench-begin", F_OK);
	for (uint32_t i = 0; i < count; i++) {
		int64_t t0 = now_ns(), spent, rc;

		rc = c->submit(b, ns, 2 /* read */, map, offsets + (size_t)i * n, NULL, nbytes, n, 0, &bad);
		spent = now_ns() - t0;
		if (rc < 0)
			return rc;
		if (rest_ns)
			nanosleep(&rest, NULL);
		while (c->ready(b) < n) {
			t0 = now_ns();
			rc = c->reap(ch, out, 8);
			if (c->ready(b) == n)
				spent += now_ns() - t0;
			if (rc < 0)
				return rc;
			relax();
		}
		t0 = now_ns();
		rc = c->harvest(b);
		ret_ns[i] = spent + now_ns() - t0;
		if (rc != (int64_t)(nbytes * n))
			return -EIO;
	}
	access("/bench-end", F_OK);
	return 0;
}
