/* SPDX-License-Identifier: MIT */
/* A command on far memory, from its beginning to its completion. */
#include "emu/far.h"

#include <errno.h>
#include <string.h>

#include "emu/power.h"

#define INTERNAL NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INTERNAL)
#define NAP_NS (20 * NSEC_PER_USEC)

bool emu_far_light(struct emu_ctrl *e, const struct nvme_sqe *s)
{
	const struct emu_ns *ns;

	if (s->opcode != NVME_IO_READ || !emu_far_here(e, s) || emu_io_bytes(e, s) > EMU_FAR_LIGHT)
		return false;
	ns = emu_ns_find(e, le32_get(s->nsid));
	return ns && (ns->nowait || ns->memory_like);
}

/* Off the list of jobs, and its slot; the mapping may go. The command is on this thread (sq->busy). */
static void leave(struct emu_job *job, struct emu_cmd *ret)
{
	struct emu_map *m = job->map;

	emu_job_put(job->e, job->slot, ret);
	emu_count_put(&m->users, 1);
}

static void left(struct emu_ctrl *e, struct emu_sq *sq)
{
	emu_count_put(&sq->busy, 1);
	atomic_fetch_sub_explicit(&e->nr_far, 1, memory_order_relaxed);
	emu_count_put(&sq->far, 1);
}

static void finish(struct emu_actor *a, struct emu_job *job)
{
	struct emu_ctrl *e = job->e;
	uint64_t nbytes = job->nbytes;
	uint16_t status = job->status;
	uint32_t why = job->why;
	struct emu_cmd c;

	leave(job, &c); /* somebody else's from here on */
	c.dw0 = why;
	if (!status && c.sqe.opcode == NVME_IO_WRITE) {
		emu_stat_own(&a->stats->writes, 1);
		emu_stat_own(&a->stats->written_bytes, nbytes);
	} else if (!status) {
		emu_stat_own(&a->stats->reads, 1);
		emu_stat_own(&a->stats->read_bytes, nbytes);
	}
	emu_finish(a, &c, status);
	left(e, c.sq);
}

/* It has not begun, and is for somebody else to begin. */
static uint16_t give_up(struct emu_job *job)
{
	struct emu_ctrl *e = job->e;
	struct emu_cmd c;

	leave(job, &c);
	left(e, c.sq);
	return EMU_STATUS_AGAIN;
}

/* Let go of it: a piece that is over, or whoever began some. */
static void put(struct emu_actor *a, struct emu_stage *r, struct emu_job *job)
{
	bool over;

	pthread_mutex_lock(&r->lock);
	over = !--job->nr_holds && job->begun;
	pthread_mutex_unlock(&r->lock);
	if (over)
		finish(a, job);
}

/* Begin pieces as long as there are some, and room. It is held. */
static uint16_t advance(struct emu_actor *a, struct emu_job *job, bool again)
{
	struct emu_stage *r = job->map->stage;
	struct emu_chunk *c;
	uint16_t st = 0;
	enum emu_took how;

	do {
		how = emu_piece_next(a, job, again, &c);
		if (how == TOOK && !a->nowait)
			emu_kick_others(a->e);
		if (how == TOOK_AGAIN)
			st = EMU_STATUS_AGAIN;
		else if (how != TOOK_NONE)
			st = emu_piece_begin(a, job, c);
		emu_actor_release(a);
	} while (how == TOOK && !st);
	if (st == EMU_STATUS_AGAIN)
		return give_up(job);
	put(a, r, job);
	return EMU_STATUS_BEGUN;
}

/* One piece of a job that somebody else is at. */
static bool help(struct emu_actor *a, struct emu_stage *r)
{
	struct emu_chunk *c;
	struct emu_job *job;
	enum emu_took how;

	if (!atomic_load_explicit(&r->open, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&r->lock);
	job = atomic_load_explicit(&r->open, memory_order_relaxed);
	while (job && job->walking)
		job = job->next_open;
	if (job)
		job->nr_holds++;
	pthread_mutex_unlock(&r->lock);
	if (!job)
		return false;
	how = emu_piece_next(a, job, false, &c);
	if (how == TOOK)
		emu_kick_others(a->e);
	if (how != TOOK_NONE) {
		emu_piece_begin(a, job, c);
		emu_stay_warm(a);
	}
	emu_actor_release(a);
	put(a, r, job);
	return how != TOOK_NONE;
}

static void job_init(struct emu_job *job, struct emu_ctrl *e, struct emu_ns *ns, struct emu_map *m,
		     const struct nvme_sqe *s)
{
	uint64_t slba = le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32;
	uint64_t nlb = (le32_get(s->cdw12) & 0xffff) + 1ull;

	job->e = e;
	job->map = m;
	job->ns = ns;
	job->off = slba << ns->shift;
	job->nbytes = nlb << ns->shift;
	job->opcode = s->opcode;
	job->begun = job->walking = job->open = job->parked = false;
	job->status = 0;
	job->why = 0;
	job->nr_holds = 1; /* whoever begins its pieces */
	emu_prp_init(&job->walk, s, job->nbytes, atomic_load_explicit(&e->page_bytes, memory_order_relaxed));
}

uint16_t emu_far_start(struct emu_actor *a, const struct emu_cmd *c)
{
	struct emu_ctrl *e = a->e;
	const struct nvme_sqe *s = &c->sqe;
	struct emu_ns *ns = emu_ns_find(e, le32_get(s->nsid));
	uint32_t perm = s->opcode == NVME_IO_READ ? EMU_DMA_WRITE : EMU_DMA_READ;
	struct emu_job *job;
	struct emu_map *m;
	uint16_t st = ns ? emu_io_check(e, ns, s) : INTERNAL;

	if (st)
		return st;
	emu_actor_release(a);
	if (!emu_translate(a, le64_get(s->prp1), EMU_FAR(perm)))
		return FAR_TRANSFER_ERROR;
	m = a->hold[0].map;
	job = emu_job_get(e, c);
	if (!job) {
		emu_actor_release(a);
		return INTERNAL;
	}
	/* while this actor holds it */
	emu_count_get(&m->users, 1);
	atomic_fetch_add_explicit(&e->nr_far, 1, memory_order_seq_cst);
	job_init(job, e, ns, m, s);
	return advance(a, job, false);
}

static uint16_t compare(struct emu_actor *a, struct emu_job *job, const struct emu_chunk *c)
{
	for (uint32_t at = 0; at < c->nbytes;) {
		uint32_t n = min_u32(c->nbytes - at, EMU_SCRATCH_BYTES);
		struct iovec one = { a->scratch, n };
		int rc = emu_backing_read(job->ns, c->off + at, &one, 1, n, false);

		if (rc)
			return emu_io_errno(rc, false);
		if (memcmp(c->near + at, a->scratch, n))
			return NVME_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILURE) | EMU_DNR;
		at += n;
	}
	return 0;
}

/* It was copied out of far memory: now it is as if it had come from memory here. */
static uint16_t land(struct emu_actor *a, struct emu_job *job, const struct emu_chunk *c)
{
	struct iovec one = { c->near, c->nbytes };
	struct emu_ns *ns = job->ns;
	bool fua = le32_get(job->slot->sqe.cdw12) & NVME_RW_FUA;

	if (job->opcode == NVME_IO_COMPARE)
		return compare(a, job, c);
	if (unlikely(job->e->power))
		return emu_power_write_from(job->e, ns, c->off, &one, fua);
	fua |= !atomic_load_explicit(&job->e->write_cache, memory_order_relaxed);
	return emu_io_errno(emu_backing_write(ns, c->off, &one, 1, c->nbytes, fua), true);
}

static void piece_over(struct emu_actor *a, struct emu_stage *r, struct emu_chunk *c)
{
	struct emu_job *job = c->job;
	uint16_t st = 0;
	bool over, kick;

	if (c->failed)
		st = FAR_TRANSFER_ERROR;
	else if (job->opcode != NVME_IO_READ && !c->spoiled)
		st = emu_far_stopped(job->e) ? FAR_ABORTED : land(a, job, c);
	pthread_mutex_lock(&r->lock);
	if (st && !job->status) {
		job->status = st;
		job->why = c->why;
	}
	emu_chunk_give(r, c);
	over = !--job->nr_holds && job->begun;
	kick = a->nowait && r->waiting;
	pthread_mutex_unlock(&r->lock);
	if (over)
		finish(a, job);
	if (kick)
		emu_kick(a->e, 0);
}

/* Under stage->lock: may this actor go on with it? */
static bool mine(const struct emu_actor *a, const struct emu_chunk *c, const struct emu_sq *sq)
{
	/* a stepper's time is bounded: it lands nothing, and sees to nobody else's */
	return !a->nowait || (c->job->slot->sq == sq && c->job->opcode == NVME_IO_READ);
}

static bool lands(const struct emu_chunk *c) { return c->job->opcode != NVME_IO_READ; }

/* Pieces whose copies are over, off the list. Of those that take their time now one: others see to the others. */
static struct emu_chunk *collect(struct emu_actor *a, struct emu_stage *r, const struct emu_sq *sq)
{
	const struct emu_dma_ops *ops = a->e->dma;
	struct emu_chunk *c, **p, *over = NULL, **end = &over, *last = NULL;
	uint64_t ticket = 0;
	bool asked = false, landing = false;
	uint32_t why = 0;
	int rc = 1;

	/* somebody else is at it */
	if (pthread_mutex_trylock(&r->lock))
		return NULL;
	for (p = &r->under_way; (c = *p);) {
		if (landing && lands(c)) {
			last = c;
			p = &c->next;
			continue;
		}
		if (c->begun && mine(a, c, sq) && !(asked && ticket == c->ticket)) {
			rc = ops->poll(r->place, c->ticket, &why);
			ticket = c->ticket;
			asked = true;
		}
		if (!mine(a, c, sq) || (c->begun && !rc)) {
			last = c;
			p = &c->next;
			continue;
		}
		if (c->begun && rc < 0 && !c->failed) {
			c->failed = true;
			c->why = why;
		}
		c->spoiled = c->job->status;
		landing |= lands(c);
		*p = c->next;
		c->next = NULL;
		*end = c;
		end = &c->next;
	}
	r->under_way_last = last;
	landing &= r->under_way != NULL;
	pthread_mutex_unlock(&r->lock);
	if (landing && atomic_load_explicit(&a->e->sleepers, memory_order_relaxed))
		emu_kick(a->e, 0);
	return over;
}

static struct emu_job *next_waiting(struct emu_ctrl *e, struct emu_stage *r)
{
	struct emu_job *job;

	pthread_mutex_lock(&r->lock);
	job = r->waiting;
	if (job && !emu_far_stopped(e) &&
	    !emu_stage_fits(r, (uint32_t)min_u64(job->walk.left, emu_piece_bytes(job))))
		job = NULL;
	if (job) {
		r->waiting = job->next;
		job->parked = false;
		job->nr_holds++;
	}
	pthread_mutex_unlock(&r->lock);
	return job;
}

bool emu_far_poll(struct emu_actor *a, struct emu_sq *sq)
{
	struct emu_ctrl *e = a->e;
	struct emu_stage *r = atomic_load_explicit(&e->stages, memory_order_acquire);
	struct emu_chunk *c, *next;
	struct emu_job *job;
	bool any = false;

	for (; r; r = r->next) {
		for (c = collect(a, r, sq); c; c = next) {
			next = c->next;
			piece_over(a, r, c);
			any = true;
		}
		while (!a->nowait && (job = next_waiting(e, r))) {
			advance(a, job, true);
			any = true;
		}
		any |= !a->nowait && help(a, r);
		if (a->gather)
			emu_gather_begin(a);
	}
	emu_signal(a);
	if (any)
		atomic_store_explicit(&e->far_naps, 0, memory_order_relaxed);
	return any;
}

void emu_far_drain(struct emu_actor *a, struct emu_sq *sq)
{
	const struct timespec nap = { 0, NAP_NS };

	while (emu_count_peek(&sq->far))
		if (!emu_far_poll(a, sq))
			nanosleep(&nap, NULL);
	/* whoever ended the last one has let go of the queue */
	emu_count_wait_zero(&sq->far);
}
