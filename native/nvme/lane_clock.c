/* SPDX-License-Identifier: MIT */
/* A lane's clocks: deadlines, cancel graces, the hang clock, and what happens when a controller fails. */
#include "nvme/chan.h"
#include "nvme/end.h"
#include "nvme/retry.h"
#include "nvme/turns.h"
#include "nvme/tally.h"

#define TICK_NS (40 * NSEC_PER_MSEC)
#define GRAIN_NS (2 * NSEC_PER_MSEC) /* deadlines closer together than this are looked at together */
#define ABORT_WAIT_NS NSEC_PER_SEC

void nvme_lane_timer(struct nvme_lane *l, struct nvme_timer *t, int64_t deadline)
{
	t->deadline = deadline;
	if (!t->link.next)
		nvme_link_add(&l->timers, &t->link);
	if (deadline < l->next_timer)
		l->next_timer = deadline;
	nvme_hk_at(l->ctrl, deadline);
}

void nvme_lane_no_timer(struct nvme_timer *t)
{
	if (t->link.next)
		nvme_link_del(&t->link);
}

/* All that @op still waits for is in the completion queue: it is done, not collected. Its owner is woken and
 * takes it. */
static bool landed(struct nvme_lane *l, const struct nvme_op *op)
{
	struct nvme_qpair *qp = l->qp[op->qp];

	return !op->more && op->inflight && qp->ops->landed(qp, op) >= op->inflight;
}

/* The clock ran out for @op. False: it has to be looked at again. */
static bool give_up(struct nvme_lane *l, struct nvme_op *op, bool is_grace)
{
	struct nvme_ctrl *c = l->ctrl;

	if (!nvme_op_live(op))
		return true;
	if (landed(l, op))
		return false;
	atomic_fetch_add_explicit(is_grace ? &c->nr_cancels : &c->nr_timeouts, 1, memory_order_relaxed);
	nvme_lane_abandon(l, op, is_grace ? -ECANCELED : -ETIMEDOUT);
	if (is_grace && nvme_op_state(op) == NVME_OP_STRAY) {
		op->abort_pos = 0;
		nvme_link_add(&l->to_abort, &op->timer.link);
	}
	return true;
}

/* Whatever was submitted since it was set is none of its business. */
static bool concerns(const struct nvme_timer *t, const struct nvme_op *op)
{
	return t->is_grace ? op->flags & NVME_OPF_CANCELLED : (int32_t)(op->gen - t->upto) <= 0;
}

static bool give_up_batch(struct nvme_lane *l, const struct nvme_timer *t, struct nvme_batch *b)
{
	bool over = true;

	for (uint32_t i = 0; i < b->cap; i++) {
		struct nvme_op *op = &b->ops[i];

		/* the state first: items that are on no lane are being filled by their owner */
		if (nvme_op_live(op) && concerns(t, op))
			over &= give_up(l, op, t->is_grace);
	}
	return over;
}

/* False: what it is for is done, and not collected. */
static bool time_over(struct nvme_lane *l, struct nvme_timer *t, int64_t now)
{
	if (t->is_retry) {
		nvme_retry_due(l, container_of(t, struct nvme_retry, timer), now);
		return true;
	}
	if (!t->is_batch)
		return give_up(l, container_of(t, struct nvme_op, timer), t->is_grace);
	if (t->is_grace)
		return give_up_batch(l, t, container_of(t, struct nvme_batch, grace));
	return give_up_batch(l, t, container_of(t, struct nvme_batch, timer));
}

/* Its interrupt was lost, or its owner is blocked: time goes on for it only as long as it stays uncollected. */
static void put_off(struct nvme_lane *l, struct nvme_timer *t, int64_t now)
{
	t->deadline = now + TICK_NS;
	nvme_link_add(&l->timers, &t->link);
	if (nvme_wake(l->word, l->fd))
		atomic_fetch_add_explicit(&l->ctrl->nr_stragglers, 1, memory_order_relaxed);
}

void nvme_lane_expire(struct nvme_lane *l, int64_t now)
{
	int64_t next = INT64_MAX;

	if (now < l->next_timer)
		return;
	/* the end of an operation takes its retries off the list: they move the walk on */
	for (struct nvme_link *p = l->timers.next; p != &l->timers; p = l->expiring) {
		struct nvme_timer *t = container_of(p, struct nvme_timer, link);

		l->expiring = p->next;
		if (t->deadline > now)
			continue;
		nvme_link_del(p);
		if (!time_over(l, t, now))
			put_off(l, t, now);
	}
	l->expiring = NULL;
	for (struct nvme_link *p = l->timers.next; p != &l->timers; p = p->next) {
		int64_t deadline = container_of(p, struct nvme_timer, link)->deadline;

		next = deadline < next ? deadline : next;
	}
	l->next_timer =
		next == INT64_MAX ? next : (int64_t)max_u64((uint64_t)next, (uint64_t)(now + GRAIN_NS));
	if (next != INT64_MAX)
		nvme_hk_at(l->ctrl, l->next_timer);
	if (l->to_abort.next != &l->to_abort)
		nvme_hk_at(l->ctrl, now);
	nvme_puts_flush(&l->puts);
}

uint32_t nvme_lane_cancel_batch(struct nvme_lane *l, struct nvme_batch *b, int err, bool *ret_before)
{
	uint32_t n = 0;

	*ret_before = false;
	for (uint32_t i = 0; i < b->cap; i++) {
		struct nvme_op *op = &b->ops[i];

		if (!nvme_op_live(op))
			continue;
		if (op->flags & NVME_OPF_CANCELLED)
			*ret_before = true;
		else
			n++;
		nvme_lane_cancel(l, op, err);
	}
	nvme_puts_flush(&l->puts);
	return n;
}

/* Housekeeping only, which sends them right after this look: a command that was answered meanwhile is not asked for.
 * Each is asked for once. */
static void ask_aborts(struct nvme_lane *l, int64_t now)
{
	uint32_t room = nvme_hk_abort_room(l->ctrl, now);

	while (room && l->to_abort.next != &l->to_abort) {
		struct nvme_op *op = container_of(l->to_abort.next, struct nvme_op, timer.link);
		struct nvme_qpair *qp = l->qp[op->qp];
		uint16_t cid;

		for (; room && qp->ops->next(qp, op, &op->abort_pos, &cid); room--)
			nvme_hk_abort(l->ctrl, qp->conf.qid, cid);
		if (room)
			nvme_link_del(&op->timer.link);
	}
}

static void abandon_owner(void *ctx, void *owner, uint16_t cid)
{
	struct nvme_lane *l = ctx;

	(void)cid;
	nvme_lane_abandon(l, owner, l->fail_err);
}

void nvme_lane_fail(struct nvme_lane *l)
{
	bool first = !l->failed;
	struct nvme_op *op;

	l->failed = true;
	if (first)
		l->fail_err = nvme_ctrl_check(l->ctrl) ?: -EHOSTDOWN;
	for (uint32_t i = 0; i < NVME_FLOWS; i++)
		while ((op = nvme_turns_first(l, i)))
			nvme_lane_abandon(l, op, l->fail_err);
	while ((op = nvme_retry_first(l)))
		nvme_lane_abandon(l, op, l->fail_err);
	for (uint32_t i = 0; first && i < l->nr_qp; i++)
		l->qp[i]->ops->each(l->qp[i], abandon_owner, l);
	/* each time: an owner that looked at the state before it changed may have queued something since, and where it
	 * gathers, nobody else gives back what that held */
	nvme_puts_flush(&l->puts);
}

static void forgotten(void *ctx, const struct nvme_done *d)
{
	struct nvme_lane *l = ctx;
	struct nvme_op *op = d->owner;

	op->inflight--;
	if (l->qp[op->qp]->tally)
		tally_add(&l->qp[op->qp]->tally->pair->forgotten, 1);
	if (nvme_op_state(op) == NVME_OP_QUEUED) {
		nvme_lane_unqueue(l, op);
		nvme_op_set(op, NVME_OP_SENT);
	}
	if (nvme_op_state(op) != NVME_OP_STRAY) {
		op->more = false;
		if (!op->err)
			op->err = l->fail_err;
		op->outcome = NVME_UNKNOWN;
	}
	if (!op->inflight)
		nvme_op_end(l, op);
}

void nvme_lane_forget(struct nvme_lane *l, int err)
{
	struct nvme_op *op;

	l->fail_err = err;
	while ((op = nvme_retry_first(l)))
		nvme_lane_cancel(l, op, err);
	for (uint32_t i = 0; i < l->nr_qp; i++)
		l->qp[i]->ops->fail_all(l->qp[i], forgotten, l);
	for (uint32_t i = 0; i < NVME_FLOWS; i++)
		while ((op = nvme_turns_first(l, i)))
			nvme_lane_cancel(l, op, err);
	nvme_sched_forget(l);
	atomic_store_explicit(&l->inflight, 0, memory_order_relaxed);
	l->failed = false;
	l->abort_at = 0;
	nvme_puts_flush(&l->puts);
}

/* The hang clock: missed interrupt, then Abort, then wedge. */
static void watch(struct nvme_lane *l, int64_t now)
{
	int64_t hang = l->ctrl->p.hang_io_ns;
	struct nvme_stuck s;

	if (hang <= 0)
		return;
	for (uint32_t i = 0; i < l->nr_qp; i++) {
		struct nvme_qpair *qp = l->qp[i];

		if (!qp->inflight || !qp->ops->oldest(qp, now - hang, &s))
			continue;
		if (qp->ops->peek(qp)) /* done, not collected: its owner is asleep or blocked */
			continue;
		if (!l->abort_at || l->abort_qid != qp->conf.qid || l->abort_cid != s.cid) {
			l->abort_at = now;
			l->abort_qid = qp->conf.qid;
			l->abort_cid = s.cid;
			nvme_hk_abort(l->ctrl, qp->conf.qid, s.cid);
		} else if (now - l->abort_at > (int64_t)min_u64(ABORT_WAIT_NS, (uint64_t)hang)) {
			nvme_ctrl_fail(
				l->ctrl, NVME_WEDGED,
				"command %#x of queue %u did not complete in %.1f s, nor after an Abort",
				s.cid, qp->conf.qid, (double)(now - s.sent_ns) / NSEC_PER_SEC);
		}
		return;
	}
	l->abort_at = 0;
}

/* Time in which nobody looked is no hang. Only that time: a machine on which housekeeping is late again and again would
 * else keep what never comes back for ever. */
static void excuse(struct nvme_lane *l, int64_t now)
{
	for (uint32_t i = 0; i < l->nr_qp; i++)
		if (l->qp[i]->inflight)
			l->qp[i]->ops->excuse(l->qp[i], l->unwatched, now);
	if (l->abort_at)
		l->abort_at = (int64_t)min_u64((uint64_t)(l->abort_at + l->unwatched), (uint64_t)now);
	l->unwatched = 0;
}

int64_t nvme_lane_tick(struct nvme_lane *l, int64_t now, int64_t gap)
{
	int64_t next = now + TICK_NS;

	l->unwatched += gap;
	if (!owner_trylock(&l->lock))
		return now + GRAIN_NS;
	nvme_lane_stats_get(l, &l->told);
	if (l->unwatched)
		excuse(l, now);
	if (atomic_load_explicit(&l->ctrl->state, memory_order_acquire) >= NVME_WEDGED)
		nvme_lane_fail(l);
	nvme_lane_expire(l, now);
	if (l->next_timer < next)
		next = l->next_timer;
	if (atomic_load_explicit(&l->inflight, memory_order_relaxed)) {
		bool late = nvme_lane_peek(l) && atomic_load_explicit(l->word, memory_order_relaxed);

		/* twice in a row: the interrupt was lost, not on its way */
		if (late && l->late_seen && nvme_wake(l->word, l->fd))
			atomic_fetch_add_explicit(&l->ctrl->nr_stragglers, 1, memory_order_relaxed);
		l->late_seen = late;
		watch(l, now);
		ask_aborts(l, now);
	}
	owner_unlock(&l->lock);
	return next;
}

void nvme_lane_note(struct nvme_lane *l)
{
	if (!owner_trylock(&l->lock))
		return;
	nvme_lane_stats_get(l, &l->told);
	owner_unlock(&l->lock);
}
