/* SPDX-License-Identifier: MIT */
/*
 * Interrupt coalescing (Base 5.27.1.6, 5.27.1.7): completions of I/O queues wait for others of their vector, until there are
 * enough of them or the first has waited for long enough. Device threads keep that time along with the others.
 */
#include "emu/internal.h"

void emu_coalesce_reset(struct emu_irq *q)
{
	atomic_store_explicit(&q->together, 1, memory_order_relaxed);
	atomic_store_explicit(&q->due, INT64_MAX, memory_order_relaxed);
	for (uint32_t i = 0; i < q->nr; i++) {
		emu_lock(&q->vec[i].lock);
		q->vec[i].alone = false;
		q->vec[i].held = 0;
		q->vec[i].due = INT64_MAX;
		emu_unlock(&q->vec[i].lock);
	}
}

/* What @v holds back and is due by @now: how many, and in *@next when the rest is. */
static uint32_t take_due(struct emu_vector *v, int64_t now, int64_t *next)
{
	uint32_t n = 0;

	emu_lock(&v->lock);
	if (v->due <= now) {
		n = v->held;
		v->held = 0;
		v->due = INT64_MAX;
	} else if (v->due < *next) {
		*next = v->due;
	}
	emu_unlock(&v->lock);
	return n;
}

bool emu_coalesce_expire(struct emu_ctrl *e, int64_t now)
{
	struct emu_irq *q = &e->irq;
	int64_t next = INT64_MAX;
	bool some = false;

	if (atomic_load_explicit(&q->due, memory_order_relaxed) > now)
		return false;
	/* before the look: who begins to hold back meanwhile says so again */
	emu_wait_irq(e, INT64_MAX, true);
	for (uint32_t i = 0; i < q->nr; i++) {
		uint32_t n = take_due(&q->vec[i], now, &next);

		if (n)
			emu_irq_raise(q, i, n);
		some |= n;
	}
	emu_wait_irq(e, next, false);
	return some;
}

bool emu_coalesce(struct emu_ctrl *e, uint32_t vector, uint32_t nr)
{
	struct emu_irq *q = &e->irq;
	struct emu_vector *v = &q->vec[vector];
	uint32_t together = atomic_load_explicit(&q->together, memory_order_relaxed);
	int64_t due = INT64_MAX;
	bool hold;

	emu_lock(&v->lock);
	v->held += nr;
	hold = !v->alone && v->held < together;
	if (!hold) {
		v->held = 0;
		v->due = INT64_MAX;
	} else if (v->due == INT64_MAX) {
		due = v->due = now_ns() + atomic_load_explicit(&q->wait_ns, memory_order_relaxed);
	}
	emu_unlock(&v->lock);
	if (due != INT64_MAX && emu_wait_irq(e, due, false))
		emu_kick_others(e); /* a host thread does not keep the time */
	return hold;
}

void emu_coalesce_set(struct emu_ctrl *e, uint32_t together, int64_t wait_ns)
{
	atomic_store_explicit(&e->irq.wait_ns, wait_ns, memory_order_relaxed);
	/* release: with the number comes the time */
	atomic_store_explicit(&e->irq.together, wait_ns ? together : 1, memory_order_release);
	emu_coalesce_expire(e, INT64_MAX - 1);
}

void emu_coalesce_alone(struct emu_ctrl *e, uint32_t vector, bool alone)
{
	struct emu_vector *v = &e->irq.vec[vector];

	emu_lock(&v->lock);
	v->alone = alone;
	emu_unlock(&v->lock);
	emu_coalesce_expire(e, INT64_MAX - 1);
}

bool emu_is_alone(struct emu_ctrl *e, uint32_t vector)
{
	struct emu_vector *v = &e->irq.vec[vector];
	bool alone;

	emu_lock(&v->lock);
	alone = v->alone;
	emu_unlock(&v->lock);
	return alone;
}
