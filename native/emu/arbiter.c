/* SPDX-License-Identifier: MIT */
/*
 * Which submission queue is served next (Base 3.4.4): round robin, each thread with a cursor of its own, or
 * weighted round robin with an urgent class, over one shared set of credits. The admin queue comes first.
 */
#include "emu/internal.h"

enum { PRIO_URGENT, PRIO_HIGH, PRIO_MEDIUM, PRIO_LOW };

static int prio_of(struct emu_sq *sq) { return atomic_load_explicit(&sq->prio, memory_order_relaxed); }

/* Certainly nothing to fetch: what a scan finds nearly always. Shadow doorbells take the longer look. */
static inline bool at_rest(const struct emu_ctrl *e, const struct emu_sq *sq)
{
	return !atomic_load_explicit(&e->shadow, memory_order_relaxed) &&
	       atomic_load_explicit(sq->db, memory_order_relaxed) ==
		       atomic_load_explicit(&sq->head, memory_order_relaxed);
}

/* I/O commands that it may take in. They wait in the latency model while it works on them. */
static inline uint32_t room(const struct emu_ctrl *e)
{
	uint32_t inside;

	if (likely(!e->p.window))
		return UINT32_MAX;
	inside = atomic_load_explicit(&e->nr_timed, memory_order_relaxed);
	return e->p.window > inside ? e->p.window - inside : 0;
}

/* The first queue after @after that has something to fetch, round the ring once; 0: none. */
static uint32_t next_pending(struct emu_actor *a, uint32_t after, int prio)
{
	struct emu_ctrl *e = a->e;
	uint32_t words = (uint32_t)ARRAY_SIZE(e->live_sqs);

	for (uint32_t i = 0; i <= words; i++) {
		uint32_t w = (after / 64 + i) % words;
		uint64_t bits = atomic_load_explicit(&e->live_sqs[w], memory_order_acquire);

		if (!i)
			bits &= after % 64 == 63 ? 0 : ~0ull << (after % 64 + 1);
		for (; bits; bits &= bits - 1) {
			uint32_t qid = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (qid && !at_rest(e, &e->sq[qid]) && emu_sq_pending(a, &e->sq[qid]) &&
			    (prio < 0 || prio_of(&e->sq[qid]) == prio))
				return qid;
		}
	}
	return 0;
}

static uint32_t weight(struct emu_ctrl *e, int prio)
{
	/* HPW 31:24, MPW 23:16, LPW 15:8, zero based */
	uint32_t weights = atomic_load_explicit(&e->arbitration, memory_order_relaxed);

	return (weights >> (8 * (PRIO_LOW - prio + 1)) & 0xff) + 1;
}

static struct emu_sq *pick_weighted(struct emu_actor *a, uint32_t burst, uint32_t *ret_max)
{
	struct emu_ctrl *e = a->e;
	uint32_t qid, n = 0;

	emu_lock(&e->arb_lock);
	qid = next_pending(a, e->arb_cursor, PRIO_URGENT);
	if (qid)
		n = burst;
	for (int round = 0; round < 2 && !qid; round++) {
		bool starved = false;

		for (int prio = PRIO_HIGH; prio <= PRIO_LOW && !qid; prio++) {
			uint32_t *credit = &e->credit[prio - PRIO_HIGH];
			uint32_t candidate = next_pending(a, e->arb_cursor, prio);

			if (!candidate)
				continue;
			if (!*credit) {
				starved = true;
				continue;
			}
			qid = candidate;
			n = min_u32(burst, *credit);
			*credit -= n;
		}
		/* whoever has work has used up its share: a new round for all */
		for (int prio = PRIO_HIGH; starved && !qid && prio <= PRIO_LOW; prio++)
			e->credit[prio - PRIO_HIGH] = weight(e, prio);
	}
	if (qid)
		e->arb_cursor = qid;
	emu_unlock(&e->arb_lock);
	*ret_max = n;
	return qid ? &e->sq[qid] : NULL;
}

struct emu_sq *emu_arbitrate(struct emu_actor *a, uint32_t *ret_max)
{
	struct emu_ctrl *e = a->e;
	uint32_t qid, burst = EMU_BATCH, ab;

	if (unlikely(emu_sq_pending(a, &e->sq[0]))) {
		*ret_max = 1;
		return &e->sq[0];
	}
	ab = atomic_load_explicit(&e->arbitration, memory_order_relaxed) & 7;
	if (ab < 5)
		burst = 1u << ab;
	burst = min_u32(burst, room(e));
	if (!burst)
		return NULL;
	if (NVME_CC_GET_AMS(atomic_load_explicit(&e->cc, memory_order_relaxed)) == NVME_AMS_WRR)
		return pick_weighted(a, burst, ret_max);
	qid = next_pending(a, a->cursor, -1);
	if (!qid)
		return NULL;
	a->cursor = qid;
	*ret_max = burst;
	return &e->sq[qid];
}

/* Anything that a device thread could do now? */
bool emu_work_pending(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	int64_t due = atomic_load_explicit(&e->next_due, memory_order_seq_cst);

	return atomic_load_explicit(&e->event_bits, memory_order_relaxed) ||
	       (due != INT64_MAX && due <= now_ns()) || emu_sq_pending(a, &e->sq[0]) ||
	       (room(e) && next_pending(a, a->cursor, -1));
}

/* Worth waking another thread while this one runs what it took from @sq? */
bool emu_work_left(struct emu_actor *a, struct emu_sq *sq)
{
	uint32_t qid = room(a->e) ? next_pending(a, sq->qid, -1) : 0;

	/* without data the rest of the same queue takes less time than a wake-up */
	return qid && (qid != sq->qid || !a->e->nodata);
}
