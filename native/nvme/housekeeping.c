/* SPDX-License-Identifier: MIT */
/*
 * One thread per controller, asleep on a timer and an eventfd: the owner of the admin queue, and the one
 * that looks after deadlines, hangs, lost interrupts, orphans and the controller's health while every loop
 * may be blocked.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "nvme/admin.h"
#include "nvme/chan.h"
#include "nvme/hk.h"
#include "nvme/recovery.h"
#include "nvme/tally.h"
#include "nvme/wait.h"
#include "support/thread.h"

#define TICK_BUSY (40 * NSEC_PER_MSEC)
#define TICK_IDLE NSEC_PER_SEC
#define GAP_MAX NSEC_PER_SEC
#define WAKE_ROUNDS 5
#define WAKE_DEFAULT_NS (20 * NSEC_PER_USEC)

void nvme_hk_poke(struct nvme_ctrl *c) { nvme_signal(c->hk_fd); }

void nvme_hk_at(struct nvme_ctrl *c, int64_t when)
{
	int64_t cur = atomic_load_explicit(&c->hk_next, memory_order_relaxed);

	while (when < cur)
		if (atomic_compare_exchange_weak_explicit(&c->hk_next, &cur, when, memory_order_acq_rel,
							  memory_order_relaxed)) {
			nvme_hk_poke(c);
			return;
		}
}

static void tick_lane(struct nvme_ctrl *c, struct nvme_lane *l, int64_t now, int64_t gap)
{
	struct nvme_hk *hk = c->hk;
	int64_t again = nvme_lane_tick(l, now, gap);
	bool active = atomic_load_explicit(&l->inflight, memory_order_relaxed) ||
		      atomic_load_explicit(&l->queued, memory_order_relaxed);

	if (active)
		hk->active_at = now;
	/* an idle lane has nothing that the idle tick would be too late for */
	if ((active || again < now + TICK_BUSY) && again < hk->lanes_next)
		hk->lanes_next = again;
}

/* @due: deadlines and hangs are looked at; orphans always are. */
static void visit_lanes(struct nvme_ctrl *c, int64_t now, int64_t gap, bool due)
{
	uint32_t state = atomic_load_explicit(&c->state, memory_order_relaxed);
	bool wake = state != c->hk->seen_state;
	struct nvme_chan *ch, *next;

	if (due)
		c->hk->lanes_next = INT64_MAX;
	pthread_mutex_lock(&c->lock);
	for (ch = c->chans; ch; ch = next) {
		next = ch->next;
		if (atomic_load_explicit(&ch->orphan, memory_order_acquire)) {
			c->hk->active_at = now;
			if (nvme_chan_adopt(ch, now))
				continue;
		} else if (wake) {
			nvme_signal(ch->fd);
		}
		if (due && ch->owns)
			tick_lane(c, &ch->own, now, gap);
		else if (due)
			nvme_lane_note(&ch->own);
	}
	if (c->exec) {
		if (due)
			tick_lane(c, &c->exec->lane, now, gap);
		if (wake)
			nvme_signal(c->exec->fd);
	}
	if (due)
		nvme_tallies_tell(c, now);
	pthread_mutex_unlock(&c->lock);
	c->hk->seen_state = state;
}

/* What only the transport can tell: whether its DMA was cut. Then nothing of ours can be touched any more, and what was
 * outstanding is over. */
static void look_at_path(struct nvme_ctrl *c)
{
	int err = c->ops->path ? c->ops->path(c->t) : 0;

	if (err == -ENODEV)
		nvme_ctrl_fail(c, NVME_REMOVED,
			       "the device was removed or unbound; it reaches no memory any more");
	else if (err)
		nvme_ctrl_revoked(c);
	/* an owner that still saw LIVE may have sent something afterwards */
	if (err && (!c->cut || atomic_load_explicit(&c->nr_quarantined, memory_order_relaxed))) {
		c->cut = true;
		nvme_recovery_cut(c, err);
	}
}

/* Registers of all ones: removed. CFS or RDY gone: it does nothing for us any more. */
static void look_at_health(struct nvme_ctrl *c)
{
	uint64_t csts;
	int err = c->ops->prop_get(c->t, NVME_REG_CSTS, 4, &csts);

	if (err)
		nvme_ctrl_fail(c, NVME_REMOVED, "the controller is gone: its registers read all ones");
	else if (csts & NVME_CSTS_CFS)
		nvme_ctrl_fail(c, NVME_WEDGED, "the controller reports a fatal status (CSTS 0x%x)",
			       (uint32_t)csts);
	else if (!(csts & NVME_CSTS_RDY))
		nvme_ctrl_fail(c, NVME_WEDGED,
			       "the controller was reset by somebody else, or lost power (CSTS 0x%x)",
			       (uint32_t)csts);
}

static void admin_clock(struct nvme_ctrl *c, int64_t now, int64_t gap)
{
	struct nvme_admin_req *old;

	if (gap)
		for (struct nvme_admin_req *req = c->adm->sent; req; req = req->next)
			req->sent_ns += gap; /* nobody looked in the meantime */
	old = nvme_admin_oldest(c);
	if (!old)
		return;
	if (now - old->sent_ns >= c->p.hang_admin_ns)
		nvme_ctrl_fail(c, NVME_WEDGED, "admin command 0x%02x has not completed for %.1f s",
			       old->sqe.opcode, (double)(now - old->sent_ns) / 1e9);
	else if (old->sent_ns + c->p.hang_admin_ns < c->hk->lanes_next)
		c->hk->lanes_next = old->sent_ns + c->p.hang_admin_ns;
}

static struct nvme_hk_call *run_calls(struct nvme_ctrl *c)
{
	struct nvme_hk_call *calls;

	pthread_mutex_lock(&c->admin_lock);
	calls = c->hk->calls;
	c->hk->calls = NULL;
	pthread_mutex_unlock(&c->admin_lock);
	for (struct nvme_hk_call *k = calls; k; k = k->next)
		k->ret = k->fn(c, k->arg);
	return calls;
}

static void finish_calls(struct nvme_ctrl *c, struct nvme_hk_call *calls)
{
	if (!calls)
		return;
	pthread_mutex_lock(&c->admin_lock);
	for (struct nvme_hk_call *k = calls, *next; k; k = next) {
		next = k->next; /* its frame may be gone once the lock is */
		k->done = true;
	}
	pthread_cond_broadcast(&c->hk->called);
	pthread_mutex_unlock(&c->admin_lock);
}

/*
 * For how long nobody looked, if that is worth mentioning: the process was stopped, or this thread did not run. Of
 * every hang limit half at least is then time in which somebody looked.
 */
static int64_t unwatched(const struct nvme_ctrl *c, int64_t since, int64_t now)
{
	int64_t limit = (c->p.hang_io_ns < c->p.hang_admin_ns ? c->p.hang_io_ns : c->p.hang_admin_ns) / 2;

	limit = limit < NVME_GAP_NS ? NVME_GAP_NS : limit > GAP_MAX ? GAP_MAX : limit;
	return since && now - since > limit ? now - since : 0;
}

/* Everything once; returns when to look again. */
static int64_t pass(struct nvme_ctrl *c)
{
	struct nvme_hk *hk = c->hk;
	const int64_t began = now_ns();
	int64_t gap = unwatched(c, hk->planned, began);
	int64_t now = began, when;
	/* acq_rel: what was set up before nvme_hk_at() is seen by the looks that follow */
	int64_t asked = atomic_exchange_explicit(&c->hk_next, INT64_MAX, memory_order_acq_rel);
	bool due = gap || now >= hk->next_tick || now >= asked || now >= hk->lanes_next;
	struct nvme_hk_call *calls;
	int err;

	nvme_admin_reap(c);
	look_at_path(c);
	calls = run_calls(c);
	if (calls) {
		now = now_ns();
		gap += unwatched(c, began, now); /* stopped in the middle, or a long reset */
		due |= gap > 0;
	}
	if (due && !nvme_ctrl_check(c))
		look_at_health(c);
	if (atomic_load_explicit(&c->state, memory_order_relaxed) != hk->seen_state)
		due = true; /* lanes are told to fail, or to live again */
	visit_lanes(c, now, gap, due);
	err = nvme_ctrl_check(c);
	if (!err) {
		nvme_hk_events_run(c, now);
		nvme_admin_send_queued(c, now);
		admin_clock(c, now, gap);
	} else {
		nvme_admin_fail(c, err);
	}
	finish_calls(c, calls);
	if (due)
		hk->next_tick =
			now + (hk->active_at && now - hk->active_at < NSEC_PER_SEC ? TICK_BUSY : TICK_IDLE);
	if (hk->lanes_next <= now)
		hk->lanes_next = now + NSEC_PER_MSEC; /* at once is not a time: others need the locks */
	when = hk->next_tick < hk->lanes_next ? hk->next_tick : hk->lanes_next;
	return asked > began && asked < when ? asked : when;
}

/* Publish @when; somebody may have asked for an earlier look meanwhile. */
static int64_t plan(struct nvme_ctrl *c, int64_t when)
{
	int64_t cur = atomic_load_explicit(&c->hk_next, memory_order_relaxed);

	while (when < cur)
		if (atomic_compare_exchange_weak_explicit(&c->hk_next, &cur, when, memory_order_acq_rel,
							  memory_order_relaxed))
			return when;
	return cur;
}

static void sleep_until(struct nvme_ctrl *c, int64_t when)
{
	struct pollfd pfd = { .fd = c->hk_fd, .events = POLLIN };
	int64_t left = when - now_ns();
	struct timespec ts = { .tv_sec = left / NSEC_PER_SEC, .tv_nsec = left % NSEC_PER_SEC };
	uint64_t count;

	if (left <= 0)
		return;
	atomic_store_explicit(c->hk_word, 1, memory_order_relaxed);
	/* the word is set before the last look; the interrupt comes after the completion and looks at the
	 * word */
	atomic_thread_fence(memory_order_seq_cst);
	if (!c->admin->ops->peek(c->admin))
		ppoll(&pfd, 1, &ts, NULL);
	atomic_store_explicit(c->hk_word, 0, memory_order_relaxed);
	if (atomic_load_explicit(&c->hk->ping, memory_order_relaxed) < 0)
		atomic_store_explicit(&c->hk->ping, now_ns(), memory_order_release);
	if (read(c->hk_fd, &count, sizeof(count)) < 0)
		return; /* EAGAIN: it was the timer */
}

static void *hk_main(void *arg)
{
	struct nvme_ctrl *c = arg;

	while (!atomic_load_explicit(&c->hk_stop, memory_order_acquire)) {
		c->hk->planned = plan(c, pass(c));
		sleep_until(c, c->hk->planned);
	}
	return NULL;
}

/* What a sleeping owner pays between the signal and its first instruction. */
static int64_t measure_wake(struct nvme_ctrl *c)
{
	int64_t took[WAKE_ROUNDS];

	for (int i = 0; i < WAKE_ROUNDS; i++) {
		int64_t start, woke;

		for (int64_t t = now_ns(); now_ns() - t < 15 * NSEC_PER_USEC;)
			cpu_relax(); /* until it sleeps again */
		atomic_store_explicit(&c->hk->ping, -1, memory_order_relaxed);
		start = now_ns();
		nvme_hk_poke(c);
		while ((woke = atomic_load_explicit(&c->hk->ping, memory_order_acquire)) < 0) {
			if (now_ns() - start > NSEC_PER_MSEC)
				return WAKE_DEFAULT_NS; /* a crowded machine: measuring would only delay us */
			nvme_pause(now_ns() - start);
		}
		took[i] = woke - start;
		for (int k = i; k > 0 && took[k] < took[k - 1]; k--) {
			int64_t t = took[k];

			took[k] = took[k - 1];
			took[k - 1] = t;
		}
	}
	return took[WAKE_ROUNDS / 2];
}

int nvme_hk_start(struct nvme_ctrl *c)
{
	int err;

	c->hk = calloc(1, sizeof(*c->hk));
	if (!c->hk)
		return -ENOMEM;
	c->hk->lanes_next = INT64_MAX;
	c->hk->seen_state = NVME_LIVE;
	pthread_cond_init(&c->hk->called, NULL);
	err = nvme_hk_events_init(c);
	if (err)
		return err;
	c->hk_word = nvme_word_get(c, &c->hk_own_word);
	if (c->nr_vectors) {
		err = c->ops->wake_bind(c->t, 0, c->hk_fd, c->hk_word, &c->hk_binding);
		if (err)
			return err;
	}
	err = thread_start(&c->hk_thread, "ugds-hk", hk_main, c);
	if (err) {
		if (c->nr_vectors)
			c->ops->wake_unbind(c->t, c->hk_binding);
		return err;
	}
	c->hk_running = true;
	if (c->ops->watch)
		c->ops->watch(c->t, c->hk_fd);
	c->wake_ns = measure_wake(c);
	return 0;
}

void nvme_hk_stop(struct nvme_ctrl *c)
{
	if (!c->hk_running)
		return;
	atomic_store_explicit(&c->hk_stop, true, memory_order_release);
	nvme_hk_poke(c);
	pthread_join(c->hk_thread, NULL);
	c->hk_running = false;
	if (c->nr_vectors)
		c->ops->wake_unbind(c->t, c->hk_binding);
	nvme_word_put(c, c->hk_word, &c->hk_own_word);
}

void nvme_hk_free(struct nvme_ctrl *c)
{
	if (!c->hk)
		return;
	nvme_hk_events_done(c->hk);
	pthread_cond_destroy(&c->hk->called);
	free(c->hk);
}

int nvme_hk_call(struct nvme_ctrl *c, int (*fn)(struct nvme_ctrl *c, void *arg), void *arg)
{
	struct nvme_hk_call call = { .fn = fn, .arg = arg };

	if (!c->hk_running)
		return -ESHUTDOWN;
	if (pthread_equal(pthread_self(), c->hk_thread))
		return fn(c, arg);
	pthread_mutex_lock(&c->admin_lock);
	call.next = c->hk->calls;
	c->hk->calls = &call;
	pthread_mutex_unlock(&c->admin_lock);
	nvme_hk_poke(c);
	pthread_mutex_lock(&c->admin_lock);
	while (!call.done)
		pthread_cond_wait(&c->hk->called, &c->admin_lock);
	pthread_mutex_unlock(&c->admin_lock);
	return call.ret;
}
