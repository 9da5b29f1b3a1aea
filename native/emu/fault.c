/* SPDX-License-Identifier: MIT */
/* The fault script: which command meets which fault. */
#include <errno.h>
#include <stdlib.h>

#include "emu/internal.h"

/* These concern no single command. */
static bool is_flag(uint32_t action)
{
	return action == EMU_FAULT_ABORT_REFUSED || action == EMU_FAULT_ENABLE_STUCK ||
	       action == EMU_FAULT_RESET_REFUSED || action == EMU_FAULT_NEVER_READY;
}

static bool touches(const struct emu_fault *f, uint32_t qid, const struct nvme_sqe *s)
{
	uint64_t slba = le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32;
	uint64_t nlb = (le32_get(s->cdw12) & 0xffff) + 1ull;

	if (!f->nlb)
		return true;
	if (!qid || s->opcode == NVME_IO_FLUSH || s->opcode == NVME_IO_DSM)
		return false;
	return slba < f->slba + f->nlb && f->slba < slba + nlb;
}

static bool matches(const struct emu_fault *f, uint32_t qid, const struct nvme_sqe *s)
{
	bool here = f->qid == EMU_ANY || f->qid == qid || (f->qid == EMU_ANY_IO && qid);

	return !is_flag(f->action) && here && (f->opcode == EMU_ANY || f->opcode == s->opcode) &&
	       (f->nsid == EMU_ANY || f->nsid == le32_get(s->nsid)) && touches(f, qid, s);
}

static bool spent(const struct emu_fault_entry *t) { return t->f.count && t->hits >= (int64_t)t->f.count; }

/* Count a match; true if the fault acts on it. Under fault_lock. */
static bool strike(struct emu_fault_entry *t)
{
	if (spent(t) || t->seen++ < t->f.skip)
		return false;
	t->hits++;
	return true;
}

bool emu_fault_match(struct emu_ctrl *e, const struct emu_cmd *c, struct emu_fault *ret, int *ret_id)
{
	struct emu_fault_entry *t;

	pthread_mutex_lock(&e->fault_lock);
	for (t = e->faults; t; t = t->next)
		if (matches(&t->f, c->sq->qid, &c->sqe) && strike(t))
			break;
	if (t) {
		*ret = t->f;
		*ret_id = t->id;
	}
	pthread_mutex_unlock(&e->fault_lock);
	return t;
}

bool emu_fault_flag(struct emu_ctrl *e, uint32_t action, uint32_t qid)
{
	struct emu_fault_entry *t = NULL;

	if (!atomic_load_explicit(&e->nr_faults, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&e->fault_lock);
	for (t = e->faults; t; t = t->next) {
		bool here = qid == EMU_ANY || t->f.qid == EMU_ANY || !t->f.qid || t->f.qid == qid;

		if (t->f.action == action && here && strike(t))
			break;
	}
	pthread_mutex_unlock(&e->fault_lock);
	return t;
}

/* Could a fault act on it? Then it is no command for a stepper. */
bool emu_fault_concerns(struct emu_ctrl *e, uint32_t qid, const struct nvme_sqe *s)
{
	struct emu_fault_entry *t;

	pthread_mutex_lock(&e->fault_lock);
	for (t = e->faults; t; t = t->next)
		if (matches(&t->f, qid, s) && !spent(t))
			break;
	pthread_mutex_unlock(&e->fault_lock);
	return t;
}

int emu_fault_add(struct emu_ctrl *e, const struct emu_fault *f)
{
	struct emu_fault_entry *t, **last;
	int id;

	if (f->action < EMU_FAULT_STATUS || f->action > EMU_FAULT_POWER_OFF)
		return -EINVAL;
	if ((f->action == EMU_FAULT_POWER_CUT || f->action == EMU_FAULT_POWER_OFF) && !e->power)
		return -ENXIO;
	if (f->action == EMU_FAULT_STATUS && !(f->status & 0x7ff))
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->f = *f;
	pthread_mutex_lock(&e->fault_lock);
	id = t->id = ++e->next_fault_id;
	for (last = &e->faults; *last; last = &(*last)->next)
		;
	*last = t;
	atomic_fetch_add_explicit(&e->nr_faults, 1, memory_order_seq_cst);
	pthread_mutex_unlock(&e->fault_lock);
	return id;
}

int64_t emu_fault_clear(struct emu_ctrl *e, int id)
{
	struct emu_fault_entry *t, **p;
	int64_t hits;

	pthread_mutex_lock(&e->fault_lock);
	for (p = &e->faults; *p && (*p)->id != id; p = &(*p)->next)
		;
	t = *p;
	if (t) {
		*p = t->next;
		atomic_fetch_sub_explicit(&e->nr_faults, 1, memory_order_seq_cst);
	}
	pthread_mutex_unlock(&e->fault_lock);
	if (!t)
		return -ENOENT;
	emu_wait_release(e, id);
	hits = t->hits;
	free(t);
	return hits;
}

int64_t emu_fault_hits(struct emu_ctrl *e, int id)
{
	struct emu_fault_entry *t;
	int64_t hits = -ENOENT;

	pthread_mutex_lock(&e->fault_lock);
	for (t = e->faults; t; t = t->next)
		if (t->id == id)
			hits = t->hits;
	pthread_mutex_unlock(&e->fault_lock);
	return hits;
}

void emu_faults_done(struct emu_ctrl *e)
{
	while (e->faults) {
		struct emu_fault_entry *t = e->faults;

		e->faults = t->next;
		free(t);
	}
}
