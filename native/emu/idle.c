/* SPDX-License-Identifier: MIT */
/*
 * Device threads with nothing to do. One spins for a while, the others sleep at once. A sleeper announces
 * itself, looks once more, then sleeps; a kick looks for announced sleepers after the doorbell was written.
 * So a kick costs no system call unless a thread sleeps, and no doorbell is missed.
 */
#include <sched.h>

#include "emu/far.h"
#include "support/barrier.h"

#define SPIN_NS (100 * NSEC_PER_USEC) /* an idle processor wakes in 50, and the woken host submits 20 later */
#define WARM_NS (100 * NSEC_PER_USEC)
#define SOON_NS (100 * NSEC_PER_USEC) /* a time-out that near is spun for: sleeping would overshoot */
#define LOOKS_PER_CLOCK 4 /* a look goes over all live queues */
#define FAR_NAP_NS (20 * NSEC_PER_USEC)
#define FAR_NAP_DOUBLINGS 6u
#define FULL_CQ_POLL_NS NSEC_PER_MSEC /* a host need not tell when it reads entries of a full queue */

void emu_wake_one(struct emu_ctrl *e)
{
	uint32_t n = atomic_load_explicit(&e->sleepers, memory_order_seq_cst);

	while (n) {
		if (!atomic_compare_exchange_weak_explicit(&e->sleepers, &n, n - 1, memory_order_seq_cst,
							   memory_order_seq_cst))
			continue;
		atomic_fetch_add_explicit(&e->permits, 1, memory_order_seq_cst);
		emu_stat_add(&e->kicks, 1);
		emu_futex_wake(&e->permits, 1);
		return;
	}
}

void emu_kick_fenced(struct emu_ctrl *e, uint32_t qid)
{
	int cpu = sched_getcpu();

	(void)qid;
	/* written only when it changes: device threads read it all the time */
	if (atomic_load_explicit(&e->host_cpu, memory_order_relaxed) != cpu)
		atomic_store_explicit(&e->host_cpu, cpu, memory_order_relaxed);
	/* a thread that spins looks at every doorbell at least once more before it sleeps */
	if (atomic_load_explicit(&e->sleepers, memory_order_relaxed) &&
	    !atomic_load_explicit(&e->spinner, memory_order_relaxed))
		emu_wake_one(e);
}

void emu_kick(struct emu_ctrl *e, uint32_t qid)
{
	/* the doorbell before the look at the sleepers; pairs with emu_idle() */
	emu_full_fence();
	emu_kick_fenced(e, qid);
}

void emu_kick_others(struct emu_ctrl *e)
{
	emu_full_fence();
	if (atomic_load_explicit(&e->sleepers, memory_order_relaxed) &&
	    !atomic_load_explicit(&e->spinner, memory_order_relaxed))
		emu_wake_one(e);
}

static bool take_permit(struct emu_ctrl *e)
{
	uint32_t n = atomic_load_explicit(&e->permits, memory_order_seq_cst);

	while (n)
		if (atomic_compare_exchange_weak_explicit(&e->permits, &n, n - 1, memory_order_seq_cst,
							  memory_order_seq_cst))
			return true;
	return false;
}

/* Not asleep any more, or somebody has just woken us: then the permit is ours to take. */
static void withdraw(struct emu_ctrl *e)
{
	uint32_t n = atomic_load_explicit(&e->sleepers, memory_order_seq_cst);

	for (;;) {
		if (take_permit(e))
			return;
		if (n && atomic_compare_exchange_weak_explicit(&e->sleepers, &n, n - 1, memory_order_seq_cst,
							       memory_order_seq_cst))
			return;
		n = atomic_load_explicit(&e->sleepers, memory_order_seq_cst);
	}
}

/* On the core of whoever submits, spinning only keeps it from submitting. */
static bool in_the_way(struct emu_ctrl *e)
{
	return sched_getcpu() == atomic_load_explicit(&e->host_cpu, memory_order_relaxed);
}

static bool spin(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	int64_t miss = atomic_load_explicit(&e->spin_miss, memory_order_relaxed);
	/* spinning that has not paid is tried ever less, but now and then */
	int64_t now = now_ns(), end = now + (miss & 63 ? SPIN_NS >> (miss > 8 ? 8 : miss) : SPIN_NS), due;
	bool found = false;

	if (unlikely(e->p.awake))
		end = INT64_MAX;
	while (!found && now < end && (end == INT64_MAX || !in_the_way(e)) &&
	       !atomic_load_explicit(&e->quit, memory_order_relaxed)) {
		for (uint32_t i = 0; i < LOOKS_PER_CLOCK && !found; i++) {
			found = emu_work_pending(a) || (emu_far_any(e) && emu_far_poll(a, NULL));
			if (!found)
				cpu_relax();
		}
		emu_actor_release(a);
		/* whoever was just told of a completion may be waiting for this very processor */
		if (!found)
			sched_yield();
		now = now_ns();
		due = atomic_load_explicit(&e->next_due, memory_order_relaxed);
		if (due - now < SOON_NS && due > end)
			end = due;
		/* completions that wait for room are polled in emu_pass() */
		if (atomic_load_explicit(&e->nr_done, memory_order_relaxed))
			break;
	}
	atomic_store_explicit(&e->spin_miss, found ? 0 : miss + 1, memory_order_relaxed);
	return found;
}

static void announce_shadows(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;

	for (uint32_t qid = 1; qid <= EMU_MAX_QID; qid++) {
		struct emu_cq *cq = &e->cq[qid];

		if (atomic_load_explicit(&e->sq[qid].live, memory_order_acquire))
			emu_sq_announce(a, &e->sq[qid]);
		if (atomic_load_explicit(&cq->nr_done, memory_order_relaxed)) {
			emu_lock(&cq->lock);
			emu_cq_announce(a, cq);
			emu_unlock(&cq->lock);
		}
		if (a->nr_hold > 8)
			emu_actor_release(a);
	}
}

/* Nobody tells of a copy's end. A fresh one is soon over; one that takes long is looked at ever less. */
static int64_t far_nap(struct emu_ctrl *e)
{
	uint32_t naps = atomic_fetch_add_explicit(&e->far_naps, 1, memory_order_relaxed);

	return FAR_NAP_NS << min_u32(naps / 4, FAR_NAP_DOUBLINGS);
}

static void sleep_until_woken(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	int64_t due = atomic_load_explicit(&e->next_due, memory_order_seq_cst), timeout = -1;
	int64_t keeper = atomic_load_explicit(&e->keeper_due, memory_order_seq_cst);
	bool looks = false; /* after copies */

	/* one sleeper keeps the time, unless a later one has an earlier time to keep */
	if (due < keeper && !atomic_compare_exchange_strong_explicit(
				    &e->keeper_due, &keeper, due, memory_order_seq_cst, memory_order_seq_cst))
		due = keeper <= due ? INT64_MAX : due;
	else if (due >= keeper)
		due = INT64_MAX;
	if (due != INT64_MAX) {
		timeout = due - now_ns();
		timeout = timeout < 0 ? 0 : timeout;
	}
	if (atomic_load_explicit(&e->nr_done, memory_order_acquire) &&
	    (timeout < 0 || timeout > FULL_CQ_POLL_NS))
		timeout = FULL_CQ_POLL_NS;
	if (emu_far_any(e) && !atomic_exchange_explicit(&e->far_keeper, 1, memory_order_seq_cst)) {
		int64_t nap = far_nap(e);

		looks = true;
		timeout = timeout < 0 || timeout > nap ? nap : timeout;
	}
	if (!atomic_load_explicit(&e->permits, memory_order_seq_cst))
		emu_futex_wait(&e->permits, 0, timeout);
	if (looks)
		atomic_store_explicit(&e->far_keeper, 0, memory_order_seq_cst);
	withdraw(e);
	if (due != INT64_MAX)
		atomic_compare_exchange_strong_explicit(&e->keeper_due, &due, INT64_MAX, memory_order_seq_cst,
							memory_order_seq_cst);
}

void emu_stay_warm(struct emu_actor *a)
{
	if (a->e->warm)
		a->warm_until = now_ns() + WARM_NS;
}

/*
 * Large transfers come in a row, and want all threads: one that sleeps is awake when half of the next one is over. Ends
 * when there is something to do, when its time is over, or when nobody spins any more, who would look after copies.
 */
static bool look_around(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	bool found = false;

	while (!found && a->warm_until && atomic_load_explicit(&e->spinner, memory_order_relaxed)) {
		for (uint32_t i = 0; i < LOOKS_PER_CLOCK && !found; i++) {
			found = emu_work_pending(a) || emu_far_open(e);
			cpu_relax();
		}
		emu_actor_release(a);
		if (now_ns() >= a->warm_until || in_the_way(e) ||
		    atomic_load_explicit(&e->quit, memory_order_relaxed))
			a->warm_until = 0;
	}
	return found;
}

void emu_idle(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	bool found;

	do {
		if (atomic_exchange_explicit(&e->spinner, 1, memory_order_seq_cst)) {
			found = look_around(a);
		} else {
			found = spin(a) || e->p.awake;
			a->warm_until = 0;
			/* seq_cst: a kick that still saw a spinner wrote its doorbell before the look below */
			atomic_store_explicit(&e->spinner, 0, memory_order_seq_cst);
		}
		if (found)
			return;
	} while (a->warm_until);
	atomic_fetch_add_explicit(&e->sleepers, 1, memory_order_seq_cst);
	if (unlikely(atomic_load_explicit(&e->shadow, memory_order_relaxed)))
		announce_shadows(a);
	emu_full_fence();
	found = emu_work_pending(a) || atomic_load_explicit(&e->quit, memory_order_seq_cst);
	emu_actor_release(a);
	if (found)
		withdraw(e);
	else
		sleep_until_woken(a);
}
