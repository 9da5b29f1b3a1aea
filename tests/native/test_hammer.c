/* SPDX-License-Identifier: MIT */
/*
 * Two loops, two blocking threads and the executor on one controller, while a fifth thread injects faults and resets
 * it: every operation is told of once, and what was read is what was written. The sanitizers look for the rest.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "ugds_fixture.h"

#define THREADS 4
#define SLOTS 32 /* of a thread: a range of blocks and of memory each */
#define SINGLES 20 /* the rest are a batch's */
#define SLOT_BYTES (64u << 10)
#define OPERATIONS 2500
#define RESETS 4
#define MOST_SECONDS 8

struct slot {
	uint64_t token;
	uint32_t nbytes;
	uint8_t op;
	bool busy;
	bool known; /* what is on the media is pattern @version */
	bool stuck; /* a command that was given up may still move its bytes: its memory is not touched */
	uint32_t version;
	uint32_t told; /* times, of this operation */
};

struct hand {
	struct fixture *f;
	struct ugds_chan *ch;
	struct ugds_batch *b;
	uint8_t *buf;
	uint64_t map;
	pthread_t thread;
	uint32_t index, mode, seed;
	bool loop;
	int epoll;
	struct slot slot[SLOTS];
	uint64_t issued, ended, failed, refused, unexpected, wrong, maps;
};

static _Atomic bool over, broken, was_reset;

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static uint32_t roll(struct hand *h, uint32_t n)
{
	h->seed = h->seed * 1664525u + 1013904223u;
	return (h->seed >> 8) % n;
}

static uint64_t media_of(const struct hand *h, uint32_t i)
{
	return ((uint64_t)h->index * SLOTS + i) * SLOT_BYTES;
}
static uint8_t *memory_of(const struct hand *h, uint32_t i) { return h->buf + (size_t)i * SLOT_BYTES; }
static uint64_t pattern_of(const struct hand *h, uint32_t i, uint32_t version)
{
	return media_of(h, i) + version * 7919ull;
}

/* The slot's operation was told of. */
static void ended(struct hand *h, uint32_t i, int64_t result, bool unknown)
{
	struct slot *s = &h->slot[i];

	h->ended++;
	if (!s->busy || s->told++) {
		h->unexpected++;
		return;
	}
	s->busy = false;
	s->stuck = unknown;
	if (result < 0) {
		h->failed++;
		if (s->op == UGDS_OP_WRITE)
			s->known = false;
		return;
	}
	if (result != (int64_t)s->nbytes)
		h->wrong++;
	if (s->op == UGDS_OP_READ && s->known &&
	    !filled(memory_of(h, i), s->nbytes, pattern_of(h, i, s->version)))
		h->wrong++;
	if (s->op == UGDS_OP_WRITE)
		s->known = true;
}

/* What is written next, or read. A stuck slot is read: that is accepted once its memory is nobody else's. */
static void begin(struct hand *h, uint32_t i)
{
	struct slot *s = &h->slot[i];

	s->op = !s->stuck && (!s->known || roll(h, 2)) ? UGDS_OP_WRITE : UGDS_OP_READ;
	s->nbytes = s->op == UGDS_OP_WRITE || !roll(h, 4) ? SLOT_BYTES : SLOT_BYTES >> 4;
	s->told = 0;
	s->busy = true;
	if (s->op == UGDS_OP_WRITE)
		fill(memory_of(h, i), s->nbytes, pattern_of(h, i, ++s->version));
}

/* Refused: the range is still a timed-out command's, or the controller is in a reset. */
static void refused(struct hand *h, uint32_t i, int64_t r)
{
	struct slot *s = &h->slot[i];

	s->busy = false;
	s->known &= s->op != UGDS_OP_WRITE;
	h->refused++;
	/* a reset may have found it with the executor already */
	h->unexpected += r == -EBUSY ? !s->stuck : r != -EHOSTDOWN;
	s->stuck |= r == -EHOSTDOWN;
}

static void submit_one(struct hand *h, uint32_t i)
{
	struct slot *s = &h->slot[i];
	int64_t r;

	if (s->busy)
		return;
	begin(h, i);
	r = ugds_rw(h->ch, h->f->ns, h->map, (uint64_t)i * SLOT_BYTES, s->nbytes, media_of(h, i),
		    s->op | (roll(h, 8) ? 0 : UGDS_F_POLL));
	if (r == -EBUSY || r == -EHOSTDOWN) {
		refused(h, i, r);
		return;
	}
	s->stuck = false;
	h->issued++;
	if (r < UGDS_PENDING) {
		s->token = UINT64_MAX;
		ended(h, i, r, false);
		return;
	}
	s->token = (uint64_t)r - UGDS_PENDING;
	if (!roll(h, 6))
		ugds_op_deadline(h->ch, s->token, roll(h, 8) * MS);
	if (!roll(h, 6))
		ugds_cancel(h->ch, s->token, roll(h, 8) * MS);
}

/* One of them was stuck, or items that were given up hold places of the batch; and so all were refused. */
static void refused_with(struct hand *h, uint32_t i, int64_t r)
{
	bool stuck = h->slot[i].stuck;

	h->slot[i].stuck = true;
	refused(h, i, r == -ENOSPC ? -EBUSY : r);
	h->slot[i].stuck = stuck;
}

static void submit_batch(struct hand *h)
{
	struct ugds_req req[SLOTS - SINGLES];
	uint32_t n = 0, bad = 0;
	int64_t r;

	for (uint32_t i = SINGLES; i < SLOTS; i++) {
		struct slot *s = &h->slot[i];

		if (s->busy || !roll(h, 3))
			continue;
		begin(h, i);
		req[n++] = (struct ugds_req){ .map = h->map,
					      .buf_off = (uint64_t)i * SLOT_BYTES,
					      .nbytes = s->nbytes,
					      .offset = media_of(h, i),
					      .cookie = i,
					      .op = s->op };
	}
	if (!n)
		return;
	r = ugds_batch_submit(h->b, h->f->ns, req, n, &bad);
	for (uint32_t k = 0; k < n; k++) {
		struct slot *s = &h->slot[req[k].cookie];

		if (r < 0)
			refused_with(h, (uint32_t)req[k].cookie, r);
		else
			s->stuck = false;
	}
	if (r < 0)
		return;
	h->issued += n;
	if (!roll(h, 4))
		ugds_batch_deadline(h->b, (1 + roll(h, 8)) * MS);
	if (!roll(h, 6))
		ugds_batch_cancel(h->b, roll(h, 8) * MS);
	ugds_batch_notify(h->b, 1 + roll(h, n));
}

static bool unknown(const struct ugds_completion *c) { return (c->status >> 24 & 0xff) == UGDS_UNKNOWN; }

static void told(struct hand *h, const struct ugds_completion *c)
{
	if (c->token == ugds_batch_token(h->b))
		return;
	for (uint32_t i = 0; i < SINGLES; i++)
		if (h->slot[i].busy && h->slot[i].token == c->token) {
			ended(h, i, c->result, unknown(c));
			return;
		}
	h->ended++;
	h->unexpected++;
}

static void collect(struct hand *h, uint32_t timeout_ms)
{
	struct ugds_completion out[16];
	struct epoll_event ev;
	int n;

	if (h->loop) {
		epoll_wait(h->epoll, &ev, 1, (int)timeout_ms);
		n = ugds_reap(h->ch, out, 16);
	} else {
		n = timeout_ms ? ugds_wait(h->ch, out, 16, timeout_ms * MS) : ugds_reap(h->ch, out, 16);
	}
	for (int i = 0; i < n; i++)
		told(h, &out[i]);
	while ((n = ugds_batch_harvest(h->b, out, 16)) > 0)
		for (int i = 0; i < n; i++)
			ended(h, (uint32_t)out[i].token, out[i].result, unknown(&out[i]));
}

/* A registration of its own, used by one operation and released under it. */
static void churn(struct hand *h)
{
	uint8_t *mem = aligned_alloc(4096, 8192);
	uint64_t map;
	int rc;

	memset(mem, 0, 8192);
	if (!ugds_map(h->f->c, mem, 8192, 0, &map)) {
		rc = ugds_unmap(h->f->c, map);
		h->wrong += rc != 0;
		h->wrong += ugds_unmap(h->f->c, map) != -ESTALE;
		h->wrong += ugds_rw(h->ch, h->f->ns, map, 0, 4096, 0, UGDS_OP_READ) != -ESTALE &&
			    !atomic_load(&broken);
		h->maps++;
	}
	free(mem);
}

static void *hand_main(void *arg)
{
	struct hand *h = arg;
	uint64_t end = now() + MOST_SECONDS * SEC, last = now();

	/* however fast it is, it goes through a reset */
	while ((h->issued < OPERATIONS || !atomic_load(&was_reset)) && now() < end) {
		for (uint32_t k = roll(h, 6); k; k--)
			submit_one(h, roll(h, SINGLES));
		if (!roll(h, 4))
			submit_batch(h);
		if (!roll(h, 64))
			churn(h);
		collect(h, roll(h, 4) ? 0 : 5);
	}
	for (last = now(); ugds_chan_inflight(h->ch) && now() - last < 20 * SEC;)
		collect(h, 20);
	return NULL;
}

static void inject(struct fixture *f, uint32_t turn)
{
	static const uint32_t actions[] = { UGDS_FAULT_HOLD,	       UGDS_FAULT_DELAY,
					    UGDS_FAULT_LOSE_INTERRUPT, UGDS_FAULT_DUP_CQE,
					    UGDS_FAULT_BAD_CID,	       UGDS_FAULT_STATUS,
					    UGDS_FAULT_BAD_SQID,       UGDS_FAULT_SPURIOUS_INTERRUPT };
	struct ugds_fault h = { .action = actions[turn % 8],
				.qid = 1 + turn % 6,
				.opcode = UGDS_FAULT_ANY,
				.nsid = UGDS_FAULT_ANY,
				.count = 1 + turn % 3,
				.status = 0x281,
				.delay_ns = 2 * MS };
	int id = ugds_fault_add(f->c, &h);

	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	if (id > 0)
		ugds_fault_clear(f->c, id);
}

static void start(struct hand *h, struct fixture *f, uint32_t index)
{
	static const uint32_t modes[THREADS] = { UGDS_MODE_ADAPTIVE, UGDS_MODE_INTERRUPT, UGDS_MODE_INLINE,
						 UGDS_MODE_POLL };
	struct epoll_event ev = { .events = EPOLLIN };

	*h = (struct hand){
		.f = f, .index = index, .mode = modes[index], .seed = 77 + index, .loop = index < 2
	};
	h->buf = aligned_alloc(4096, SLOTS * SLOT_BYTES);
	memset(h->buf, 0, SLOTS * SLOT_BYTES);
	if (ugds_map(f->c, h->buf, SLOTS * SLOT_BYTES, 0, &h->map) || ugds_chan_open(f->c, h->mode, &h->ch) ||
	    ugds_batch_new(h->ch, SLOTS - SINGLES, &h->b))
		abort();
	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(h->epoll, EPOLL_CTL_ADD, ugds_chan_fd(h->ch), &ev);
}

static void *injector(void *arg)
{
	struct fixture *f = arg;

	for (uint32_t turn = 0; !atomic_load(&over); turn++) {
		inject(f, turn);
		if (turn % 12 == 11 && turn < 12 * RESETS) {
			struct ugds_error err = { 0 };

			atomic_store(&broken, true);
			if (ugds_ctrl_reset(f->c, &err))
				printf("# reset: %s\n", err.text);
			atomic_store(&broken, false);
			atomic_store(&was_reset, true);
		}
	}
	return NULL;
}

static void finish(struct hand *h, const char *what)
{
	uint32_t busy = 0;

	for (uint32_t i = 0; i < SLOTS; i++)
		busy += h->slot[i].busy;
	printf("# %s thread %u: %llu issued, %llu ended, %llu with an error, %llu refused\n", what, h->index,
	       (unsigned long long)h->issued, (unsigned long long)h->ended, (unsigned long long)h->failed,
	       (unsigned long long)h->refused);
	ok(!busy && h->issued == h->ended && !h->unexpected,
	   "%s thread %u: each of %llu ended once (%u, %llu)", what, h->index, (unsigned long long)h->issued,
	   busy, (unsigned long long)h->unexpected);
	ok(!h->wrong && h->ended > h->failed, "%s thread %u: and the data is right", what, h->index);
	ok(!ugds_chan_inflight(h->ch) && !ugds_batch_free(h->b) && !ugds_chan_close(h->ch) &&
		   !ugds_unmap(h->f->c, h->map),
	   "%s thread %u: nothing is held", what, h->index);
	close(h->epoll);
	free(h->buf);
}

static void hammer(bool step, const char *what)
{
	static struct hand hand[THREADS];
	struct ugds_ctrl_stats st;
	pthread_t faults;
	struct fixture f;

	fixture_defaults(&f);
	f.emu.flags = (f.emu.flags & ~(uint32_t)UGDS_EMU_STEP) | (step ? UGDS_EMU_STEP : 0) | UGDS_EMU_DBBUF;
	f.open.io_queues = 6;
	f.open.depth = 16;
	f.open.max_transfer = 32u << 10;
	if (!ok(fixture_open(&f, UGDS_MODE_INTERRUPT), "%s: open", what))
		return;
	atomic_store(&over, false);
	atomic_store(&was_reset, false);
	for (uint32_t i = 0; i < THREADS; i++)
		start(&hand[i], &f, i);
	pthread_create(&faults, NULL, injector, &f);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_create(&hand[i].thread, NULL, hand_main, &hand[i]);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(hand[i].thread, NULL);
	atomic_store(&over, true);
	pthread_join(faults, NULL);
	ugds_ctrl_stats(f.c, &st);
	printf("# %s: %llu timed out, %llu cancelled, %llu resets, %llu stragglers, %llu unknown\n", what,
	       (unsigned long long)st.timeouts, (unsigned long long)st.cancels, (unsigned long long)st.resets,
	       (unsigned long long)st.stragglers, (unsigned long long)st.unknown_cids);
	ok(!st.quarantined && st.resets, "%s: the quarantine is empty", what);
	for (uint32_t i = 0; i < THREADS; i++)
		finish(&hand[i], what);
	ok(fixture_close(&f), "%s: all given back", what);
}

int main(void)
{
	hammer(false, "no stepping");
	hammer(true, "stepping");
	return done_testing();
}
