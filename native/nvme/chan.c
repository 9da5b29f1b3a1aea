/* SPDX-License-Identifier: MIT */
/* A channel's life, its operation slots, and how ended operations get back to it. */
#include "nvme/chan.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "mem/hugepage.h"
#include "nvme/end.h"

static int add_segment(struct nvme_chan *ch)
{
	uint32_t k = ch->nr_ops / NVME_OP_SEG;
	struct nvme_op *seg;
	size_t bytes;
	bool huge;
	int err;

	if (k >= NVME_OP_SEGS)
		return -ENOSPC;
	err = mem_queue_alloc(sizeof(*seg) * NVME_OP_SEG, false, (void **)&seg, &bytes, &huge);
	if (err)
		return err;
	for (uint32_t i = NVME_OP_SEG; i-- > 0;) {
		seg[i].slot = ch->nr_ops + i;
		seg[i].gen = 1;
		seg[i].chan = ch;
		seg[i].next = ch->free_ops;
		ch->free_ops = &seg[i];
	}
	ch->seg[k] = seg;
	ch->nr_ops += NVME_OP_SEG;
	return 0;
}

bool nvme_chan_op_more(struct nvme_chan *ch) { return !add_segment(ch); }

struct nvme_op *nvme_chan_op_find(struct nvme_chan *ch, uint64_t token)
{
	uint32_t slot = (uint32_t)token;
	struct nvme_op *op;

	if (slot >= ch->nr_ops)
		return NULL;
	op = &ch->seg[slot / NVME_OP_SEG][slot % NVME_OP_SEG];
	return op->gen == (uint32_t)(token >> 32) && !(op->gen & 1) ? op : NULL;
}

uint32_t nvme_chan_tokens(const struct nvme_chan *ch, uint64_t *out, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < ch->nr_ops; slot++) {
		const struct nvme_op *op = &ch->seg[slot / NVME_OP_SEG][slot % NVME_OP_SEG];

		if (op->gen & 1 || op->batch || op->silent) /* free, a batch's, reported already */
			continue;
		if (n < max)
			out[n] = nvme_op_token(op);
		n++;
	}
	return n;
}

_Atomic uint32_t *nvme_word_get(struct nvme_ctrl *c, _Atomic uint32_t *own)
{
	_Atomic uint32_t *word = c->ops->word_get ? c->ops->word_get(c->t) : NULL;

	atomic_store_explicit(word ? word : own, 0, memory_order_relaxed);
	return word ? word : own;
}

void nvme_word_put(struct nvme_ctrl *c, _Atomic uint32_t *word, const _Atomic uint32_t *own)
{
	if (word != own)
		c->ops->word_put(c->t, word);
}

void nvme_signal(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	(void)n; /* EAGAIN: the counter is full, so it is readable already */
}

bool nvme_wake(_Atomic uint32_t *word, int fd)
{
	/* what was stored for the owner is visible before we look whether it sleeps; it sets the word, then looks */
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(word, memory_order_relaxed) ||
	    !atomic_exchange_explicit(word, 0, memory_order_acq_rel))
		return false;
	nvme_signal(fd);
	return true;
}

bool nvme_chan_post_ended(struct nvme_chan *ch, struct nvme_op *op)
{
	struct nvme_op *head = atomic_load_explicit(&ch->ended, memory_order_relaxed);
	bool slept;

	/* The owner may collect @op at once and close: it waits until we have let go of the channel. */
	atomic_fetch_add_explicit(&ch->posters, 1, memory_order_relaxed);
	do
		op->next = head;
	while (!atomic_compare_exchange_weak_explicit(&ch->ended, &head, op, memory_order_release,
						      memory_order_relaxed));
	slept = nvme_wake(ch->word, ch->fd);
	atomic_fetch_sub_explicit(&ch->posters, 1, memory_order_release);
	return slept;
}

void nvme_chan_arm_lane(struct nvme_chan *ch)
{
	if (!nvme_chan_busy(ch) || ch->polled)
		return;
	if (atomic_load_explicit(ch->word, memory_order_relaxed)) {
		nvme_lane_ack(&ch->own);
		return;
	}
	atomic_store_explicit(ch->word, 1, memory_order_relaxed);
	/* The word is set before the last look; whoever completes stores first and looks at it then. So what this reap
	 * does not see is signalled, and nothing has to be signalled for what it sees. */
	atomic_thread_fence(memory_order_seq_cst);
	nvme_lane_tell(&ch->own, true); /* one fence for both */
	if (nvme_lane_peek(&ch->own))
		nvme_lane_reap(&ch->own, false);
	nvme_lane_ack(&ch->own);
}

void nvme_chan_arm(struct nvme_chan *ch)
{
	owner_lock(&ch->own.lock);
	ch->own.gather = true;
	nvme_chan_arm_lane(ch);
	ch->own.gather = false;
	owner_unlock(&ch->own.lock);
	nvme_chan_tell(ch);
}

/* One that was given up: may it be freed? */
static bool collected_unknown(struct nvme_op *op)
{
	struct nvme_lane *l = nvme_op_lane(op);
	bool over;

	if (op->silent) { /* the second time: its commands came back */
		if (op->batch)
			op->batch->nr_held--;
		return true;
	}
	owner_lock(&l->lock);
	over = nvme_op_state(op) == NVME_OP_ENDED;
	op->silent = !over; /* still at the device: it comes again, to be freed */
	owner_unlock(&l->lock);
	if (!over && op->batch)
		op->batch->nr_held++;
	return over;
}

void nvme_chan_collected(struct nvme_chan *ch, struct nvme_op *op)
{
	if (op->flags & NVME_OPF_HANDLE) {
		/* whoever collects looks at the batch after this */
		atomic_store_explicit(&op->batch->told, false, memory_order_seq_cst);
		return;
	}
	if (op->outcome == NVME_UNKNOWN && !(op->flags & NVME_OPF_ADMIN) && !collected_unknown(op))
		return;
	if (op->batch)
		nvme_batch_release(op->batch, op);
	else
		nvme_chan_op_put(ch, op);
}

int nvme_chan_open(struct nvme_ctrl *c, enum nvme_mode mode, struct nvme_chan **ret)
{
	struct nvme_chan *ch;
	int err = nvme_ctrl_check(c);

	if (err)
		return err;
	ch = aligned_alloc(CACHELINE, align_up(sizeof(*ch), CACHELINE));
	if (!ch)
		return -ENOMEM;
	memset(ch, 0, sizeof(*ch));
	ch->ctrl = c;
	ch->mode = mode;
	ch->learns = mode == NVME_MODE_ADAPTIVE;
	ch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ch->fd < 0) {
		err = -errno;
		goto free_chan;
	}
	err = add_segment(ch);
	if (err)
		goto close_fd;
	ch->word = nvme_word_get(c, &ch->own_word);
	nvme_lane_init(&ch->own, c, ch->fd, ch->word);
	ch->owns = mode != NVME_MODE_POLL && nvme_lane_lease(&ch->own, NVME_QPAIR_GENERAL);
	if (!ch->owns) {
		err = nvme_exec_get(c, &ch->exec);
		if (err)
			goto lane_done;
	}
	pthread_mutex_lock(&c->lock);
	err = nvme_ctrl_check(c); /* a close may have come first: it looks at the list under the lock */
	if (!err) {
		ch->next = c->chans;
		c->chans = ch;
		c->nr_chans++;
	}
	pthread_mutex_unlock(&c->lock);
	if (err)
		goto lane_done;
	*ret = ch;
	return 0;
lane_done:
	nvme_lane_done(&ch->own);
	nvme_word_put(c, ch->word, &ch->own_word);
	mem_queue_free(ch->seg[0], sizeof(struct nvme_op) * NVME_OP_SEG);
close_fd:
	close(ch->fd);
free_chan:
	free(ch);
	return err;
}

/* Off the list already, nothing in flight. */
static void chan_free(struct nvme_chan *ch)
{
	while (atomic_load_explicit(&ch->posters, memory_order_acquire))
		sched_yield(); /* a few instructions and a write to the eventfd */
	nvme_lane_done(&ch->own);
	nvme_word_put(ch->ctrl, ch->word, &ch->own_word);
	close(ch->fd);
	for (uint32_t i = 0; i < ch->nr_ops / NVME_OP_SEG; i++)
		mem_queue_free(ch->seg[i], sizeof(struct nvme_op) * NVME_OP_SEG);
	free(ch);
}

static void unlink_chan(struct nvme_chan *ch)
{
	for (struct nvme_chan **p = &ch->ctrl->chans; *p; p = &(*p)->next) {
		if (*p != ch)
			continue;
		*p = ch->next;
		ch->ctrl->nr_chans--;
		return;
	}
}

int nvme_chan_close(struct nvme_chan *ch)
{
	if (ch->inflight || ch->batches)
		return -EBUSY;
	pthread_mutex_lock(&ch->ctrl->lock);
	unlink_chan(ch);
	pthread_mutex_unlock(&ch->ctrl->lock);
	chan_free(ch);
	return 0;
}

void nvme_chan_orphan(struct nvme_chan *ch)
{
	atomic_store_explicit(&ch->orphan, true, memory_order_release);
	nvme_hk_at(ch->ctrl, now_ns()); /* not only once: from now on in its quicker rhythm */
}

bool nvme_chan_adopt(struct nvme_chan *ch, int64_t now)
{
	struct nvme_op *out[64];
	int n;

	(void)now;
	while ((n = nvme_chan_reap(ch, out, ARRAY_SIZE(out))) > 0)
		for (int i = 0; i < n; i++) {
			if (!(out[i]->flags & NVME_OPF_HANDLE) && !out[i]->silent)
				atomic_fetch_add_explicit(&ch->ctrl->nr_dropped, 1, memory_order_relaxed);
			nvme_chan_collected(ch, out[i]);
		}
	for (struct nvme_batch *b = ch->batches, *next; b; b = next) {
		struct nvme_op *op;

		next = b->next;
		while ((op = nvme_batch_next(b))) {
			atomic_fetch_add_explicit(&ch->ctrl->nr_dropped, 1, memory_order_relaxed);
			nvme_chan_collected(ch, op);
		}
		nvme_batch_free(b);
	}
	if (ch->inflight || ch->batches)
		return false;
	atomic_fetch_add_explicit(&ch->ctrl->nr_adopted, 1, memory_order_relaxed);
	unlink_chan(ch);
	chan_free(ch);
	return true;
}
