/* SPDX-License-Identifier: MIT */
/*
 * Losing power. First the controller halts, so that nothing completes any more; then the lock is taken and the power
 * is off: from there on nothing becomes durable. Commands on their way may still write, which is as good as having
 * written a little before. When every thread is out, the backing gets what the cut leaves of it.
 *
 * A completion says that something is durable only after that was noted under the lock with the power on. So whoever
 * finds the power off there finds the controller halted when it comes to post.
 */
#include "emu/power.h"

#include <errno.h>
#include <stdlib.h>

#include "emu/versions.h"

struct emu_power {
	pthread_mutex_t lock;
	struct emu_versions versions;
	uint64_t rng; /* seeds of cuts that have none */
	uint64_t seed; /* of the last cut */
	bool off;
	bool stays_off;
	_Atomic bool pending; /* off, and the backing does not show it yet; cleared under reg_lock */
	_Atomic uint64_t cuts;
};

enum keeping {
	KEEP_VERSIONS, /* it can be lost until it is made durable */
	KEEP_NEWEST, /* more than can be remembered: durable at once */
	KEEP_OLDEST, /* the same without power: it comes too late */
};

int emu_power_new(struct emu_ctrl *e)
{
	struct emu_power *p;
	int rc;

	if (!e->p.volatile_bytes)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	rc = emu_versions_init(&p->versions, e->p.volatile_bytes);
	if (rc) {
		free(p);
		return rc;
	}
	pthread_mutex_init(&p->lock, NULL);
	p->rng = e->rng;
	e->power = p;
	return 0;
}

/* Under the lock. As a full cache does, one that would become too full makes durable what it has. */
static enum keeping remember(struct emu_ctrl *e, struct emu_ns *ns, uint64_t slba, uint64_t nlb,
			     struct emu_write *w)
{
	struct emu_power *p = e->power;
	uint32_t unit = e->p.awupf + 1u;
	int rc = emu_versions_record(&p->versions, ns, slba, nlb, unit, w);

	if (rc && p->off)
		return KEEP_OLDEST;
	if (rc) {
		emu_versions_forget(&p->versions, NULL);
		rc = emu_versions_record(&p->versions, ns, slba, nlb, unit, w);
	}
	if (!rc)
		return KEEP_VERSIONS;
	emu_versions_forget(&p->versions, NULL);
	return KEEP_NEWEST;
}

/* Under the lock: between a look at the cache's switch and the write no flush is over. */
static bool write_through(struct emu_ctrl *e, bool fua)
{
	return fua || !atomic_load_explicit(&e->write_cache, memory_order_relaxed);
}

/* Apart from the write itself: a cut may come in between, and have a part of it lost. */
static void harden(struct emu_power *p, const struct emu_write *w)
{
	pthread_mutex_lock(&p->lock);
	if (!p->off)
		emu_versions_harden(&p->versions, w);
	pthread_mutex_unlock(&p->lock);
}

/* From @from, or as @s says. */
static uint16_t write_any(struct emu_ctrl *e, struct emu_ns *ns, uint64_t slba, uint64_t nlb, bool fua,
			  struct iovec *from, struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_power *p = e->power;
	enum keeping keep;
	struct emu_write w;
	uint16_t st = 0;
	bool through;

	/* all of it: two writes to a block have one order, and an atomic one has no other in its middle */
	pthread_mutex_lock(&p->lock);
	keep = remember(e, ns, slba, nlb, &w);
	through = write_through(e, fua);
	if (keep != KEEP_OLDEST && from)
		st = emu_io_errno(emu_backing_write(ns, slba << ns->shift, from, 1, from->iov_len, through),
				  true);
	else if (keep != KEEP_OLDEST)
		st = emu_io_read_write(a, ns, s);
	pthread_mutex_unlock(&p->lock);
	if (!st && through && keep == KEEP_VERSIONS)
		harden(p, &w);
	return st;
}

uint16_t emu_power_write(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s)
{
	uint64_t slba = le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32;
	uint64_t nlb = (le32_get(s->cdw12) & 0xffff) + 1ull;
	uint16_t st = emu_io_range(ns, slba, nlb, true);

	return st ? st : write_any(a->e, ns, slba, nlb, le32_get(s->cdw12) & NVME_RW_FUA, NULL, a, s);
}

uint16_t emu_power_write_from(struct emu_ctrl *e, struct emu_ns *ns, uint64_t off, struct iovec *from,
			      bool fua)
{
	return write_any(e, ns, off >> ns->shift, from->iov_len >> ns->shift, fua, from, NULL, NULL);
}

int emu_power_zero(struct emu_ctrl *e, struct emu_ns *ns, uint64_t slba, uint64_t nlb, bool punch, bool fua)
{
	struct emu_power *p = e->power;
	enum keeping keep;
	struct emu_write w;
	bool through;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	keep = remember(e, ns, slba, nlb, &w);
	through = write_through(e, fua);
	if (keep != KEEP_OLDEST)
		rc = emu_backing_zero(ns, slba << ns->shift, nlb << ns->shift, punch);
	pthread_mutex_unlock(&p->lock);
	if (!rc && through && keep == KEEP_VERSIONS)
		harden(p, &w);
	return rc;
}

void emu_power_flushed(struct emu_ctrl *e, struct emu_ns *ns)
{
	struct emu_power *p = e->power;

	pthread_mutex_lock(&p->lock);
	if (!p->off)
		emu_versions_forget(&p->versions, ns);
	pthread_mutex_unlock(&p->lock);
}

/* No waiting: a device thread may call it. One that comes while the power is off changes nothing. */
static void strike(struct emu_ctrl *e, const uint64_t *seed, bool stays_off)
{
	struct emu_power *p = e->power;

	atomic_store_explicit(&e->halted, true, memory_order_seq_cst);
	pthread_mutex_lock(&p->lock);
	if (!p->off) {
		p->off = true;
		p->stays_off = stays_off;
		p->seed = seed ? *seed : emu_rand(&p->rng);
		atomic_store_explicit(&e->removed, stays_off, memory_order_seq_cst);
		atomic_store_explicit(&p->pending, true, memory_order_release);
	}
	pthread_mutex_unlock(&p->lock);
}

void emu_power_fail_at(struct emu_actor *a, const struct emu_cmd *c, bool stays_off)
{
	strike(a->e, NULL, stays_off);
	/* with the power off, so that what of it is there is for the cut to choose, also with FUA */
	if (c->sq->qid)
		emu_io_exec(a, &c->sqe);
}

/* Under reg_lock, or with every thread gone. */
static int settle(struct emu_ctrl *e)
{
	struct emu_power *p = e->power;
	int rc;

	emu_disable(e);
	emu_registers_reset(e);
	pthread_mutex_lock(&p->lock);
	rc = emu_versions_lose(&p->versions, p->seed);
	p->off = p->stays_off;
	if (p->stays_off)
		atomic_store_explicit(&e->io.off, true, memory_order_seq_cst);
	pthread_mutex_unlock(&p->lock);
	emu_stat_add(&p->cuts, 1);
	atomic_store_explicit(&p->pending, false, memory_order_relaxed);
	return rc;
}

void emu_power_look(struct emu_ctrl *e)
{
	struct emu_power *p = e->power;

	if (likely(!atomic_load_explicit(&p->pending, memory_order_acquire)))
		return;
	pthread_mutex_lock(&e->reg_lock);
	if (atomic_load_explicit(&p->pending, memory_order_relaxed))
		settle(e);
	pthread_mutex_unlock(&e->reg_lock);
}

int emu_power_cut(struct emu_ctrl *e, const uint64_t *seed, bool stays_off)
{
	int rc = -ENODEV;

	if (!e->power)
		return -ENXIO;
	pthread_mutex_lock(&e->reg_lock);
	if (!atomic_load(&e->removed)) {
		strike(e, seed, stays_off);
		rc = settle(e);
	}
	pthread_mutex_unlock(&e->reg_lock);
	return rc;
}

uint64_t emu_power_cuts(struct emu_ctrl *e) { return e->power ? emu_stat_get(&e->power->cuts) : 0; }

void emu_power_free(struct emu_ctrl *e)
{
	struct emu_power *p = e->power;

	if (!p)
		return;
	if (atomic_load_explicit(&p->pending, memory_order_acquire))
		settle(e);
	emu_versions_done(&p->versions);
	pthread_mutex_destroy(&p->lock);
	free(p);
	e->power = NULL;
}
