/* SPDX-License-Identifier: MIT */
/*
 * Memory that the controller cannot address, and a copy engine beside it that is slow, out of order, or fails. Addresses
 * there are no pointers: whoever uses one as such ends the test.
 */
#ifndef TESTS_FAR_RIG_H
#define TESTS_FAR_RIG_H

#include <pthread.h>

#include "emu_host.h"

#define FAR_AT (1ull << 55)
#define FAR_OPS 512u
#define FAR_KIND 77u
#define FAR_WHY 0x010002bcu
#define FAR_MOST 64u

struct far_op {
	struct emu_copy c[1100];
	uint32_t n;
	bool out, over, failed;
	uint64_t ticket;
	int64_t due;
};

struct far {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	struct far_op *ops[FAR_OPS]; /* under way, or over and not asked for */
	uint32_t nr;
	uint8_t *mem;
	size_t nbytes;
	uint8_t *staging;
	size_t staging_bytes;
	uint64_t next_ticket, rng;
	_Atomic int64_t delay_ns; /* at most */
	_Atomic bool hold, shuffle, quit, closed;
	_Atomic uint32_t refuse_in; /* so many copies later one is not begun; 0: never */
	_Atomic uint32_t fail_in; /* the same for calls, whose copies fail on their way */
	uint32_t bad; /* what the controller must not do */
	_Atomic uint64_t calls, copies, polls;
	_Atomic int64_t begin_ns; /* what it takes to begin a copy */
	pthread_t who[8]; /* threads that began some */
	uint32_t nr_who;
};

static inline uint64_t far_rand(struct far *f)
{
	f->rng ^= f->rng << 13;
	f->rng ^= f->rng >> 7;
	return f->rng ^= f->rng << 17;
}

static inline uint64_t far_addr(const struct far *f, size_t off)
{
	return ((uintptr_t)f->mem + off) ^ FAR_AT;
}

static inline uint8_t *far_ptr(uint64_t addr) { return (uint8_t *)(uintptr_t)(addr ^ FAR_AT); }

static int far_resolve(void *ctx, uint32_t kind, uint64_t addr, uint64_t nbytes, void **ret_place)
{
	struct far *f = ctx;

	if (kind != FAR_KIND)
		return -EOPNOTSUPP;
	if (addr < far_addr(f, 0) || addr + nbytes > far_addr(f, f->nbytes))
		return -EFAULT;
	*ret_place = f;
	return 0;
}

static int far_staging(void *place, size_t nbytes, void **ret)
{
	struct far *f = place;

	if (f->staging)
		f->bad++;
	f->staging = malloc(nbytes); /* a tool that watches memory sees its ends */
	f->staging_bytes = nbytes;
	*ret = f->staging;
	return 0;
}

static bool far_wrong(struct far *f, const struct emu_copy *c)
{
	const uint8_t *near = c->near;

	if (c->far < far_addr(f, 0) || c->far + c->nbytes > far_addr(f, f->nbytes) || near < f->staging ||
	    near + c->nbytes > f->staging + f->staging_bytes || !c->nbytes || f->closed)
		return true;
	for (uint32_t i = 0; i < f->nr; i++)
		for (uint32_t k = 0; !f->ops[i]->over && k < f->ops[i]->n; k++) {
			const struct emu_copy *o = &f->ops[i]->c[k];

			if ((uint8_t *)o->near < near + c->nbytes && near < (uint8_t *)o->near + o->nbytes)
				return true; /* in use */
		}
	return false;
}

/* Locked. */
static void far_note_thread(struct far *f)
{
	uint32_t i = 0;

	while (i < f->nr_who && !pthread_equal(f->who[i], pthread_self()))
		i++;
	if (i == f->nr_who && i < ARRAY_SIZE(f->who))
		f->who[f->nr_who++] = pthread_self();
}

static uint32_t far_copy(void *place, bool out, const struct emu_copy *c, uint32_t n, uint64_t *ret_ticket,
			 uint32_t *ret_why)
{
	struct far *f = place;
	struct far_op *op = malloc(sizeof(*op));
	const struct timespec rest = { 0, f->begin_ns };
	uint32_t k = 0;

	if (f->begin_ns)
		nanosleep(&rest, NULL);
	pthread_mutex_lock(&f->lock);
	far_note_thread(f);
	atomic_fetch_add(&f->calls, 1);
	for (; k < n; k++) {
		if (f->refuse_in && !--f->refuse_in)
			break;
		f->bad += far_wrong(f, &c[k]);
		op->c[k] = c[k];
	}
	atomic_fetch_add(&f->copies, k);
	*ret_why = FAR_WHY;
	if (k && f->nr < FAR_OPS) {
		op->n = k;
		op->out = out;
		op->over = op->failed = false;
		op->ticket = *ret_ticket = f->next_ticket++;
		op->due = now_ns() + (f->delay_ns ? (int64_t)(far_rand(f) % (uint64_t)f->delay_ns) : 0);
		if (f->fail_in && !--f->fail_in)
			op->failed = true;
		f->ops[f->nr++] = op;
		pthread_cond_signal(&f->cond);
	} else {
		f->bad += k > 0;
		free(op);
	}
	pthread_mutex_unlock(&f->lock);
	return k;
}

static int far_poll(void *place, uint64_t ticket, uint32_t *ret_why)
{
	struct far *f = place;
	int rc = -ENOENT;

	pthread_mutex_lock(&f->lock);
	atomic_fetch_add(&f->polls, 1);
	for (uint32_t i = 0; i < f->nr; i++) {
		struct far_op *op = f->ops[i];

		if (op->ticket != ticket)
			continue;
		rc = !op->over ? 0 : op->failed ? -EIO : 1;
		*ret_why = FAR_WHY + 1;
		break;
	}
	f->bad += rc == -ENOENT;
	pthread_mutex_unlock(&f->lock);
	return rc;
}

static void far_close(void *ctx)
{
	struct far *f = ctx;

	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < f->nr; i++)
		f->bad += !f->ops[i]->over;
	f->closed = true;
	free(f->staging);
	f->staging = NULL;
	pthread_mutex_unlock(&f->lock);
}

static const struct emu_dma_ops far_ops = {
	.resolve = far_resolve,
	.staging = far_staging,
	.copy = far_copy,
	.poll = far_poll,
	.close = far_close,
};

/* Old ones are forgotten: nobody asks twice for what he was told of. */
static void far_forget(struct far *f)
{
	uint32_t n = 0, over = 0;

	for (uint32_t i = 0; i < f->nr; i++)
		over += f->ops[i]->over;
	for (uint32_t i = 0; i < f->nr; i++) {
		if (f->ops[i]->over && over-- > FAR_OPS / 2)
			free(f->ops[i]);
		else
			f->ops[n++] = f->ops[i];
	}
	f->nr = n;
}

static struct far_op *far_next(struct far *f)
{
	int64_t now = now_ns();
	uint32_t at = f->shuffle && f->nr ? (uint32_t)(far_rand(f) % f->nr) : 0;

	for (uint32_t i = 0; !f->hold && i < f->nr; i++) {
		struct far_op *op = f->ops[(at + i) % f->nr];

		if (!op->over && op->due <= now)
			return op;
	}
	return NULL;
}

static void *far_main(void *arg)
{
	struct far *f = arg;
	struct far_op *op;
	struct timespec ts;

	pthread_mutex_lock(&f->lock);
	while (!f->quit) {
		op = far_next(f);
		if (!op) {
			clock_gettime(CLOCK_REALTIME, &ts);
			ts.tv_nsec += 20000;
			if (ts.tv_nsec >= NSEC_PER_SEC) {
				ts.tv_nsec -= NSEC_PER_SEC;
				ts.tv_sec++;
			}
			pthread_cond_timedwait(&f->cond, &f->lock, &ts);
			continue;
		}
		for (uint32_t i = 0; i < op->n && !op->failed; i++) {
			uint8_t *there = far_ptr(op->c[i].far);

			memcpy(op->out ? op->c[i].near : there, op->out ? there : op->c[i].near,
			       op->c[i].nbytes);
		}
		op->over = true;
		if (f->nr > FAR_OPS * 3 / 4)
			far_forget(f);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

UNUSED static void far_new(struct far *f, size_t nbytes)
{
	*f = (struct far){ .nbytes = nbytes, .rng = 88172645463325252ull };
	f->mem = aligned_alloc(65536, nbytes);
	memset(f->mem, 0xee, nbytes);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->cond, NULL);
	pthread_create(&f->thread, NULL, far_main, f);
}

/* After the controller is gone. */
UNUSED static void far_done(struct far *f)
{
	is(f->bad, 0, "the copy engine was used as it may be");
	ok(f->closed || !f->staging, "and let go of");
	pthread_mutex_lock(&f->lock);
	f->quit = true;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	for (uint32_t i = 0; i < f->nr; i++)
		free(f->ops[i]);
	free(f->mem);
}

UNUSED static void far_set(struct far *f, _Atomic bool *what, bool value)
{
	pthread_mutex_lock(&f->lock);
	*what = value;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

/* Copies that are not over. */
UNUSED static uint32_t far_busy(struct far *f)
{
	uint32_t n = 0;

	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < f->nr; i++)
		n += !f->ops[i]->over;
	pthread_mutex_unlock(&f->lock);
	return n;
}

UNUSED static int far_try(struct host *h, struct far *f, size_t off, size_t nbytes, uint32_t flags,
			  struct dma *ret)
{
	uint64_t addr = far_addr(f, off);
	size_t nr, page = 0, pages = ((addr & (PAGE - 1)) + nbytes + PAGE - 1) / PAGE;
	struct dma d = { .p = (uint8_t *)(uintptr_t)addr, .nbytes = nbytes };
	struct emu_extent *ext;
	int rc = emu_dma_map_far(h->e, FAR_KIND, addr, nbytes, flags, &ext, &nr, &d.handle);

	if (rc)
		return rc;
	d.iova = calloc(pages, sizeof(uint64_t));
	for (size_t i = 0; i < nr; i++)
		for (uint64_t o = 0; o < ext[i].nbytes; o += PAGE)
			d.iova[page++] = ext[i].iova + o;
	if (page != pages)
		must(false, "extents cover %zu pages of %zu", page, pages);
	free(ext);
	*ret = d;
	return 0;
}

UNUSED static struct dma far_map(struct host *h, struct far *f, size_t off, size_t nbytes, uint32_t flags)
{
	struct dma d;
	int rc = far_try(h, f, off, nbytes, flags, &d);

	if (rc)
		must(false, "map %zu far bytes: %d", nbytes, rc);
	return d;
}

UNUSED static void far_host(struct host *h, struct far *f, const struct emu_params *p)
{
	host_new(h, p);
	emu_set_dma(h->e, &far_ops, f);
	host_enable(h, 32);
}

UNUSED static void far_wait(struct far *f, uint32_t busy)
{
	int64_t end = now_ns() + WAIT_NS;

	while (far_busy(f) != busy && now_ns() < end)
		sched_yield();
	if (far_busy(f) != busy)
		must(false, "%u copies under way, not %u", far_busy(f), busy);
}

#endif
