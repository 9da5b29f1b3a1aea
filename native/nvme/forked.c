/* SPDX-License-Identifier: MIT */
/*
 * In a forked child: the device, its threads and its rings are the parent's; what is here are copies of what the
 * parent's threads had half done. Calls that are on their way (a signal's handler may fork) find nothing to act on.
 */
#include "nvme/chan.h"

static void forget_batch(struct nvme_batch *b)
{
	/* The handle lies in memory that a child does not get. */
	static struct nvme_op none = { .flags = NVME_OPF_HANDLE };

	b->handle = &none;
	b->free_n = 0;
	b->nr_held = b->cap; /* nothing pends, nothing is free */
	b->ring_head = atomic_load_explicit(&b->ring_tail, memory_order_relaxed);
	b->timer.link.next = b->grace.link.next = NULL;
}

static void forget_exec(struct nvme_exec *x)
{
	x->word = &x->own_word; /* the transport's are not here */
	nvme_lane_init(&x->lane, x->lane.ctrl, -1, x->word);
	atomic_store_explicit(&x->posted, NULL, memory_order_relaxed);
	x->fd = -1;
}

void nvme_ctrl_fork_child(struct nvme_ctrl *c)
{
	atomic_store_explicit(&c->state, NVME_REMOVED, memory_order_relaxed);
	c->tallies = NULL; /* not here */
	if (c->exec)
		forget_exec(c->exec);
	for (struct nvme_chan *ch = c->chans; ch; ch = ch->next) {
		/* whoever held its lock is not here */
		ch->word = &ch->own_word;
		nvme_lane_init(&ch->own, c, -1, ch->word);
		ch->nr_ops = 0; /* no token is found: the operations are not here either */
		ch->free_ops = NULL;
		ch->ready = NULL;
		atomic_store_explicit(&ch->ended, NULL, memory_order_relaxed);
		ch->inflight = ch->away = 0;
		ch->fd = -1; /* the parent's wake-ups stay there to be read */
		for (struct nvme_batch *b = ch->batches; b; b = b->next)
			forget_batch(b);
	}
	if (c->ops->fork_child)
		c->ops->fork_child(c->t);
}
