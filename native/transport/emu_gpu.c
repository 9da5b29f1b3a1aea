/* SPDX-License-Identifier: MIT */
/*
 * Each place (a CUDA context, a HIP device) has streams of our own, a few in each direction: the first is for all, the
 * others take over while somebody begins copies there, since a GPU goes from copy to copy of one stream slowly. They are
 * non-blocking, so none waits for the user's. A batch of copies is enqueued with one write of a number behind it, to a word that is
 * polled without a call: where the device has no stream memory operations, an event. Nobody waits for a stream.
 *
 * A completion is posted once the number is seen. The stream wrote it after its copies were performed, with a barrier
 * before it; so a kernel that is launched later, on any stream, reads what was copied, and host memory holds what came.
 *
 * The runtime is called with a way's lock held. No callback of a runtime is used here, so none can want the lock.
 * A context that is lost writes no numbers, so now and then the stream itself is asked.
 */
#include "transport/emu_gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "gpu/gpu.h"
#include "mem/registration.h"

#define EVENTS 64u
#define LANES 3u
#define ASK_NS NSEC_PER_MSEC

struct way {
	pthread_mutex_t lock;
	uint64_t stream;
	struct gpu_word word;
	uint64_t event[EVENTS]; /* without stream memory operations: of the last so many batches */
	_Atomic uint32_t begun; /* batches, cyclic */
	_Atomic uint32_t over; /* of these, as far as that is known by other means than the word */
	_Atomic int64_t ask_ns;
};

struct place {
	struct place *next;
	const struct gpu_rt *rt;
	struct gpu_place at;
	bool memops;
	struct way way[2][LANES]; /* in, out */
	void *staging;
	_Atomic int lost; /* the runtime's code: nothing goes on here any more */
};

struct emu_gpu {
	pthread_mutex_t lock;
	struct place *first;
};

void *emu_gpu_new(void)
{
	struct emu_gpu *g = calloc(1, sizeof(*g));

	if (g)
		pthread_mutex_init(&g->lock, NULL);
	return g;
}

static uint32_t why(const struct place *p, int code)
{
	return p->rt->vendor << 24 | ((uint32_t)code & 0xffffff);
}

static void lose(struct place *p, int code)
{
	int none = 0;

	/* the first reason is the reason */
	atomic_compare_exchange_strong_explicit(&p->lost, &none, code, memory_order_relaxed,
						memory_order_relaxed);
}

static int way_new(const struct place *p, struct way *w)
{
	int code = p->rt->stream_new(&w->stream);

	if (!code && p->memops)
		code = p->rt->words_alloc(1, &w->word);
	for (uint32_t i = 0; !code && !p->memops && i < EVENTS; i++)
		code = p->rt->event_new(&w->event[i]);
	return code;
}

static void way_free(const struct place *p, struct way *w)
{
	if (w->word.host)
		p->rt->words_free(1, &w->word);
	for (uint32_t i = 0; i < EVENTS && w->event[i]; i++)
		p->rt->event_free(w->event[i]);
	if (w->stream)
		p->rt->stream_free(w->stream);
}

static void place_free(struct place *p)
{
	struct gpu_before before;
	/* What a lost context had goes with it, and its names may be others' by now. */
	int code = atomic_load(&p->lost) ? -1 : p->rt->enter(&p->at, &before);

	if (!code) {
		for (uint32_t i = 0; i < 2 * LANES; i++)
			way_free(p, &p->way[i / LANES][i % LANES]);
		if (p->staging)
			p->rt->host_free(p->staging);
		p->rt->leave(&p->at, &before);
	}
	for (uint32_t i = 0; i < 2 * LANES; i++)
		pthread_mutex_destroy(&p->way[i / LANES][i % LANES].lock);
	free(p);
}

static int place_new(const struct gpu_rt *rt, const struct gpu_place *at, struct place **ret)
{
	struct place *p = calloc(1, sizeof(*p));
	struct gpu_before before;
	uint32_t caps = 0;
	int code;

	if (!p)
		return -ENOMEM;
	p->rt = rt;
	p->at = *at;
	for (uint32_t i = 0; i < 2 * LANES; i++)
		pthread_mutex_init(&p->way[i / LANES][i % LANES].lock, NULL);
	code = rt->enter(at, &before);
	if (code) {
		place_free(p);
		return gpu_errno(rt, code);
	}
	code = rt->caps(at->device, &caps);
	p->memops = caps & GPU_CAN_MEMOPS;
	for (uint32_t i = 0; !code && i < 2 * LANES; i++)
		code = way_new(p, &p->way[i / LANES][i % LANES]);
	rt->leave(at, &before);
	if (code) {
		place_free(p);
		return gpu_errno(rt, code);
	}
	*ret = p;
	return 0;
}

static bool same_place(const struct gpu_place *a, const struct gpu_place *b)
{
	return a->vendor == b->vendor && a->device == b->device && a->ctx == b->ctx;
}

/* A range may be in several pieces, of one place: memory that is mapped piece by piece (expandable segments). */
static int find(const struct gpu_rt *rt, uint64_t addr, uint64_t nbytes, struct gpu_place *ret)
{
	uint64_t at = addr, end = addr + nbytes;
	struct gpu_pointer g;
	int code;

	while (at < end) {
		code = rt->pointer(at, &g);
		if (code)
			return gpu_errno(rt, code);
		if ((g.kind != GPU_MEM_DEVICE && g.kind != GPU_MEM_MANAGED) || g.base + g.nbytes <= at ||
		    (at > addr && !same_place(ret, &g.place)))
			return -EFAULT;
		*ret = g.place;
		at = g.base + g.nbytes;
	}
	return 0;
}

static int op_resolve(void *ctx, uint32_t kind, uint64_t addr, uint64_t nbytes, void **ret_place)
{
	const struct gpu_rt *rt = NULL;
	struct emu_gpu *g = ctx;
	struct gpu_place at;
	struct place *p;
	int rc;

	if (kind == MEM_FOREIGN_CUDA || kind == MEM_FOREIGN_HIP)
		rt = gpu_find(kind == MEM_FOREIGN_CUDA ? GPU_CUDA : GPU_HIP);
	if (!rt)
		return -EOPNOTSUPP;
	if (!nbytes || addr + nbytes < addr)
		return -EINVAL;
	rc = find(rt, addr, nbytes, &at);
	if (rc)
		return rc;
	pthread_mutex_lock(&g->lock);
	/* one that was lost may have been made anew under the same name */
	for (p = g->first; p && (!same_place(&p->at, &at) || atomic_load(&p->lost)); p = p->next)
		;
	if (!p) {
		rc = place_new(rt, &at, &p);
		if (!rc) {
			p->next = g->first;
			g->first = p;
		}
	}
	pthread_mutex_unlock(&g->lock);
	if (!rc)
		*ret_place = p;
	return rc;
}

static int op_staging(void *place, size_t nbytes, void **ret)
{
	struct place *p = place;
	struct gpu_before before;
	uint64_t dev;
	int code = p->rt->enter(&p->at, &before);

	if (code)
		return gpu_errno(p->rt, code);
	code = p->rt->host_alloc(nbytes, &p->staging, &dev);
	p->rt->leave(&p->at, &before);
	if (code)
		p->staging = NULL;
	*ret = p->staging;
	return code ? gpu_errno(p->rt, code) : 0;
}

/* Behind the copies that were just enqueued. */
static void mark(struct place *p, struct way *w, uint32_t nr)
{
	const struct gpu_memop op = { .addr = w->word.dev, .val = nr };
	int code = p->memops ? p->rt->memops(w->stream, &op, 1)
			     : p->rt->event_record(w->event[nr % EVENTS], w->stream);

	/* nothing would tell of their end */
	if (code) {
		code = p->rt->stream_sync(w->stream);
		if (code)
			lose(p, code);
		else
			atomic_store_explicit(&w->over, nr, memory_order_release);
	}
	atomic_store_explicit(&w->begun, nr, memory_order_release);
	atomic_store_explicit(&w->ask_ns, now_ns() + ASK_NS, memory_order_relaxed);
}

/* Is it the copy that was wrong, or is there no context any more? Entered. */
static bool gone(struct place *p, struct way *w, int code)
{
	int now;

	if (p->rt->sticky(code))
		return true;
	now = p->rt->stream_query(w->stream);
	return now && now != GPU_NOT_READY;
}

/* Locked. */
static uint32_t free_lane(struct place *p, bool out)
{
	for (uint32_t lane = 0; lane < LANES; lane++)
		if (!pthread_mutex_trylock(&p->way[out][lane].lock))
			return lane;
	pthread_mutex_lock(&p->way[out][0].lock);
	return 0;
}

static uint32_t op_copy(void *place, bool out, const struct emu_copy *c, uint32_t n, uint64_t *ret_ticket,
			uint32_t *ret_why)
{
	struct place *p = place;
	uint32_t lane = free_lane(p, out), k = 0, nr;
	struct way *w = &p->way[out][lane];
	struct gpu_before before;
	int code = atomic_load_explicit(&p->lost, memory_order_relaxed);

	nr = atomic_load_explicit(&w->begun, memory_order_relaxed) + 1;
	if (!code) {
		code = p->rt->enter(&p->at, &before);
		if (code)
			lose(p, code);
	}
	if (!code) {
		while (k < n && !code) {
			code = out ? p->rt->copy_out(c[k].near, c[k].far, c[k].nbytes, w->stream)
				   : p->rt->copy_in(c[k].far, c[k].near, c[k].nbytes, w->stream);
			k += !code;
		}
		if (code && gone(p, w, code))
			lose(p, code);
		if (k)
			mark(p, w, nr);
		p->rt->leave(&p->at, &before);
	}
	pthread_mutex_unlock(&w->lock);
	*ret_ticket = (uint64_t)out << 40 | (uint64_t)lane << 32 | nr;
	*ret_why = why(p, code);
	return k;
}

static bool reached(uint32_t now, uint32_t nr) { return (int32_t)(now - nr) >= 0; }

/* By calls: whether batch @nr is over. 0, GPU_NOT_READY, or what went wrong. */
static int ask(struct place *p, struct way *w, uint32_t nr)
{
	uint32_t begun = atomic_load_explicit(&w->begun, memory_order_acquire);
	struct gpu_before before;
	int code = p->rt->enter(&p->at, &before);

	if (code)
		return code;
	/* an event that was recorded anew since is over later, never sooner */
	code = p->memops ? p->rt->stream_query(w->stream) : p->rt->event_query(w->event[nr % EVENTS]);
	p->rt->leave(&p->at, &before);
	if (!code)
		atomic_store_explicit(&w->over, p->memops ? begun : nr, memory_order_release);
	return code;
}

/* Now and then, and one thread at a time: the word tells of all but what is lost. */
static bool time_to_ask(struct place *p, struct way *w)
{
	int64_t due = atomic_load_explicit(&w->ask_ns, memory_order_relaxed), now;

	if (!p->memops)
		return true;
	now = now_ns();
	return now >= due &&
	       atomic_compare_exchange_strong_explicit(&w->ask_ns, &due, now + ASK_NS, memory_order_relaxed,
						       memory_order_relaxed);
}

static int op_poll(void *place, uint64_t ticket, uint32_t *ret_why)
{
	struct place *p = place;
	struct way *w = &p->way[ticket >> 40][ticket >> 32 & 0xff];
	uint32_t nr = (uint32_t)ticket;
	int code;

	/* acquire: the bytes that were copied out here are looked at after it */
	if (p->memops && reached(__atomic_load_n(w->word.host, __ATOMIC_ACQUIRE), nr))
		return 1;
	if (reached(atomic_load_explicit(&w->over, memory_order_acquire), nr))
		return 1;
	code = atomic_load_explicit(&p->lost, memory_order_relaxed);
	if (!code) {
		if (!time_to_ask(p, w))
			return 0;
		code = ask(p, w, nr);
		if (!code)
			return 1;
		if (code == GPU_NOT_READY)
			return 0;
		lose(p, code);
	}
	*ret_why = why(p, code);
	return -EIO;
}

static void op_close(void *ctx)
{
	struct emu_gpu *g = ctx;
	struct place *p, *next;

	for (p = g->first; p; p = next) {
		next = p->next;
		place_free(p);
	}
	pthread_mutex_destroy(&g->lock);
	free(g);
}

const struct emu_dma_ops emu_gpu_ops = {
	.resolve = op_resolve,
	.staging = op_staging,
	.copy = op_copy,
	.poll = op_poll,
	.close = op_close,
};
