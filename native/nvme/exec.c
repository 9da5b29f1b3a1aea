/* SPDX-License-Identifier: MIT */
/*
 * The executor owns the controller's last queue pair from bring-up on, and is run by a poller's thread. It serves channels
 * that have no pair of their own, and everything that is to be polled. Channels hand operations over on a lock-free
 * stack that is taken whole; no memory is needed for it, so it cannot be full: what does not fit into the queue waits
 * in the lane.
 */
#include <stdlib.h>

#include "nvme/chan.h"
#include "nvme/end.h"

void nvme_exec_post(struct nvme_exec *x, struct nvme_op *first, struct nvme_op *last)
{
	struct nvme_op *head = atomic_load_explicit(&x->posted, memory_order_relaxed);

	do
		last->next = head;
	while (!atomic_compare_exchange_weak_explicit(&x->posted, &head, first, memory_order_release,
						      memory_order_relaxed));
	nvme_wake(&x->post_word, x->fd);
}

/* Onto the lane, oldest first. Locked. */
static bool take_posted(struct nvme_exec *x)
{
	struct nvme_op *op, *rev = NULL;

	if (!atomic_load_explicit(&x->posted, memory_order_relaxed))
		return false;
	op = atomic_exchange_explicit(&x->posted, NULL, memory_order_acquire);
	while (op) {
		struct nvme_op *next = op->next;

		op->next = rev;
		rev = op;
		op = next;
	}
	while (rev) {
		struct nvme_op *next = rev->next;

		nvme_lane_queue(&x->lane, rev);
		rev = next;
	}
	return true;
}

void nvme_exec_drain(struct nvme_exec *x)
{
	bool some;

	owner_lock(&x->lane.lock);
	some = take_posted(x);
	owner_unlock(&x->lane.lock);
	if (!some)
		return;
	/* The executor may be between its last look at what is posted and its sleep, and the wake-up of the post may
	 * have come before it armed: mark, then wake; it arms, then looks at the mark. */
	atomic_store_explicit(&x->drained, true, memory_order_relaxed);
	nvme_wake(&x->post_word, x->fd);
}

bool nvme_exec_turn(struct nvme_exec *x, bool *woke)
{
	struct nvme_lane *l = &x->lane;
	bool some;

	atomic_store_explicit(&x->drained, false, memory_order_relaxed);
	owner_lock(&l->lock);
	some = take_posted(x);
	if (nvme_lane_waiting(l))
		some |= nvme_lane_pump(l, now_ns(), false) > 0;
	some |= nvme_lane_reap(l, false) > 0;
	if (l->next_timer != INT64_MAX)
		nvme_lane_expire(l, now_ns());
	if (unlikely(atomic_load_explicit(&l->ctrl->state, memory_order_acquire) >= NVME_WEDGED))
		nvme_lane_fail(l);
	*woke |= l->woke;
	l->woke = false;
	owner_unlock(&l->lock);
	return some;
}

void nvme_exec_arm(struct nvme_exec *x, bool on)
{
	struct nvme_lane *l = &x->lane;
	bool expects = false;

	if (on) {
		owner_lock(&l->lock);
		nvme_lane_ack(l);
		/* Others' completions on its vector are none of its business while nothing of it is out, or may be sent by
		 * housekeeping when its time has come. */
		expects = atomic_load_explicit(&l->inflight, memory_order_relaxed) || nvme_lane_waiting(l) ||
			  l->next_timer != INT64_MAX;
		owner_unlock(&l->lock);
	}
	atomic_store_explicit(x->word, expects, memory_order_relaxed);
	atomic_store_explicit(&x->post_word, on, memory_order_relaxed);
}

bool nvme_exec_peek(struct nvme_exec *x)
{
	return atomic_load_explicit(&x->posted, memory_order_relaxed) ||
	       atomic_load_explicit(&x->drained, memory_order_relaxed) || nvme_lane_peek(&x->lane);
}

static int exec_new(struct nvme_ctrl *c, struct nvme_exec **ret)
{
	struct nvme_qslot *s = &c->q[c->nr_qpairs - 1];
	struct nvme_exec *x = calloc(1, sizeof(*x));
	int err = 0;

	if (!x)
		return -ENOMEM;
	if (!c->p.pollers)
		err = nvme_pollers_new(1, NULL, 0, &x->own);
	if (err)
		goto free_x;
	x->poller = nvme_poller_pick(c->p.pollers ? c->p.pollers : x->own);
	x->fd = x->poller->fd;
	x->word = nvme_word_get(c, &x->own_word);
	nvme_lane_init(&x->lane, c, x->fd, x->word);
	/* whoever finds no pair of their own depends on it, however many owners there are */
	if (!nvme_lane_take(&x->lane, s, true)) {
		err = -EBUSY;
		goto lane_done;
	}
	nvme_poller_add(x->poller, x);
	*ret = x;
	return 0;
lane_done:
	nvme_lane_done(&x->lane);
	nvme_word_put(c, x->word, &x->own_word);
	nvme_pollers_free(x->own);
free_x:
	free(x);
	return err;
}

int nvme_exec_get(struct nvme_ctrl *c, struct nvme_exec **ret)
{
	int err = 0;

	pthread_mutex_lock(&c->lock);
	if (!c->exec)
		err = exec_new(c, &c->exec);
	*ret = c->exec;
	pthread_mutex_unlock(&c->lock);
	return err;
}

void nvme_exec_free(struct nvme_exec *x)
{
	if (!x)
		return;
	nvme_poller_remove(x->poller, x);
	nvme_lane_done(&x->lane);
	nvme_word_put(x->lane.ctrl, x->word, &x->own_word);
	nvme_pollers_free(x->own);
	free(x);
}
