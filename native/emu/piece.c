/* SPDX-License-Identifier: MIT */
/* The pieces of a command on far memory: each goes through the ring by itself, begun by whichever thread has time. */
#include "emu/far.h"

#include <errno.h>

#include "support/barrier.h"

uint64_t emu_piece_bytes(const struct emu_job *job)
{
	const struct emu_ctrl *e = job->e;
	uint64_t most = e->power ? (e->p.awupf + 1ull) << job->ns->shift : 0;
	/* a lone command is for several threads; of many, one each is less work */
	bool lone = atomic_load_explicit(&e->nr_far, memory_order_relaxed) < EMU_FAR_LONE;

	return min_u64(max_u64(lone ? EMU_FAR_PIECE_LONE : EMU_FAR_PIECE, most), job->map->stage->nbytes / 2);
}

/* The far addresses of the next piece, in a->iov. */
static uint16_t walk(struct emu_actor *a, struct emu_job *job, uint64_t *ret_bytes)
{
	uint32_t perm = job->opcode == NVME_IO_READ ? EMU_DMA_WRITE : EMU_DMA_READ;
	const struct emu_map *m = job->map;
	uint64_t most = emu_piece_bytes(job), lo;
	uint16_t st;

	most = min_u64(most, job->walk.left);
	job->walk.most = most;
	st = emu_prp_next(a, &job->walk, EMU_FAR(perm), ret_bytes);
	if (st)
		return st;
	/* one registration for a command; what shares its first and last IO page is not reached */
	for (uint32_t i = 0; i < a->nr_hold; i++)
		if (a->hold[i].map->stage && a->hold[i].map != m)
			return FAR_TRANSFER_ERROR;
	for (uint32_t i = 0; i < a->nr_iov; i++) {
		lo = (uintptr_t)a->iov[i].iov_base;
		if (lo < m->far_lo || lo + a->iov[i].iov_len > m->far_hi) {
			emu_fault_note(a);
			return FAR_TRANSFER_ERROR;
		}
	}
	/* pieces are whole blocks: a raw host's scattered pages may be more than one walk takes */
	return *ret_bytes == most ? 0 : FAR_TRANSFER_ERROR;
}

static void wait_for_room(struct emu_stage *r, struct emu_job *job, bool first)
{
	if (!r->waiting) {
		job->next = NULL;
		r->waiting = r->waiting_last = job;
	} else if (first) {
		job->next = r->waiting;
		r->waiting = job;
	} else {
		job->next = NULL;
		r->waiting_last->next = job;
		r->waiting_last = job;
	}
}

/* Under stage->lock: others may begin pieces of it, or may not any more. */
static void set_open(struct emu_stage *r, struct emu_job *job, bool open)
{
	struct emu_job *before = NULL, *j = atomic_load_explicit(&r->open, memory_order_relaxed);

	if (job->open == open)
		return;
	job->open = open;
	if (open) {
		job->next_open = j;
		atomic_store_explicit(&r->open, job, memory_order_relaxed);
		return;
	}
	for (; j != job; j = j->next_open)
		before = j;
	if (before)
		before->next_open = job->next_open;
	else
		atomic_store_explicit(&r->open, job->next_open, memory_order_relaxed);
}

/* Under stage->lock: no piece of it will be begun any more. */
static void all_begun(struct emu_stage *r, struct emu_job *job, uint16_t status)
{
	if (status && !job->status)
		job->status = status;
	job->begun = true;
	set_open(r, job, false);
}

/* Under stage->lock: the next piece of the ring for @job, whose walk went on from @before. Without room it waits, and
 * goes on with whoever finds some. @again: it has waited already. */
static enum emu_took take(struct emu_actor *a, struct emu_job *job, const struct emu_prp *before,
			  uint64_t nbytes, bool again, struct emu_chunk **ret)
{
	struct emu_stage *r = job->map->stage;

	if (!emu_stage_fits(r, (uint32_t)nbytes) || (r->waiting && !again)) {
		if (a->nowait)
			return TOOK_AGAIN;
		job->walk = *before;
		job->parked = true;
		set_open(r, job, false);
		wait_for_room(r, job, again);
		return TOOK_NONE;
	}
	*ret = emu_chunk_take(r, job, (uint32_t)nbytes);
	(*ret)->off = job->off;
	job->off += nbytes;
	job->nr_holds++;
	if (!job->walk.left) {
		all_begun(r, job, 0);
		return TOOK_LAST;
	}
	/* worth another thread's while: it reads the next one meanwhile */
	set_open(r, job, job->opcode == NVME_IO_READ && !a->nowait);
	return TOOK;
}

/* The next piece, with what it is of far memory in a->iov. One thread at a time walks a list. */
enum emu_took emu_piece_next(struct emu_actor *a, struct emu_job *job, bool again, struct emu_chunk **ret)
{
	struct emu_stage *r = job->map->stage;
	enum emu_took how = TOOK_NONE;
	struct emu_prp before;
	uint64_t got;
	uint16_t st;

	pthread_mutex_lock(&r->lock);
	if (job->begun || job->walking || job->parked) {
		pthread_mutex_unlock(&r->lock);
		return TOOK_NONE;
	}
	job->walking = true;
	st = job->status;
	pthread_mutex_unlock(&r->lock);
	if (!st && emu_far_stopped(job->e))
		st = FAR_ABORTED;
	before = job->walk;
	if (!st)
		st = walk(a, job, &got);
	pthread_mutex_lock(&r->lock);
	job->walking = false;
	if (st)
		all_begun(r, job, st);
	else
		how = take(a, job, &before, got, again, ret);
	pthread_mutex_unlock(&r->lock);
	return how;
}

/* From the backing; what was gathered does not wait for it, where it has to wait. */
static uint16_t fill(struct emu_actor *a, struct emu_job *job, struct emu_chunk *c)
{
	struct iovec one = { c->near, c->nbytes };
	int rc = -EAGAIN;

	if (a->nowait || a->gather->first)
		rc = emu_backing_read(job->ns, c->off, &one, 1, c->nbytes, true);
	if (rc == -EAGAIN && !a->nowait) {
		one = (struct iovec){ c->near, c->nbytes };
		emu_gather_begin(a);
		rc = emu_backing_read(job->ns, c->off, &one, 1, c->nbytes, false);
	}
	return emu_io_errno(rc, false);
}

/* Its copy, once it has its bytes. A stepper's that has not is nobody's yet: EMU_STATUS_AGAIN. */
uint16_t emu_piece_begin(struct emu_actor *a, struct emu_job *job, struct emu_chunk *c)
{
	struct emu_stage *r = job->map->stage;
	uint16_t st = job->opcode == NVME_IO_READ ? fill(a, job, c) : 0;
	uint32_t nbytes = c->nbytes;

	if (!st) {
		/* of a small one it costs more than it saves */
		if (job->opcode == NVME_IO_READ && nbytes >= EMU_FAR_PIECE_LONE)
			cache_demote(c->near, nbytes);
		/* the job may be over from here on, for whoever does not hold it */
		emu_gather_add(a, c, job->opcode != NVME_IO_READ);
		return 0;
	}
	pthread_mutex_lock(&r->lock);
	emu_chunk_give(r, c);
	job->nr_holds--;
	if (st != EMU_STATUS_AGAIN && (job->walking || job->parked))
		job->status = job->status ? job->status : st; /* for whoever goes on with it */
	else if (st != EMU_STATUS_AGAIN)
		all_begun(r, job, st);
	pthread_mutex_unlock(&r->lock);
	return st;
}
