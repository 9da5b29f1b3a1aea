/* SPDX-License-Identifier: MIT */
/*
 * Batches: many operations checked together, sent with one doorbell, reported by one completion. The items' operations
 * are the batch's own, so nothing is allocated however many there are. Ended items go through a ring of
 * indices with one producer (the lane) and one consumer (the channel's thread).
 */
#include <stdlib.h>

#include "nvme/batch.h"
#include "nvme/check.h"
#include "nvme/spin.h"
#include "nvme/turns.h"

#define BATCH_SPIN_ITEM_NS 60 /* what looking longer may cost for each item sent */
#define BATCH_SPIN_MOST_NS (50 * NSEC_PER_USEC)

int nvme_batch_new(struct nvme_chan *ch, uint32_t cap, struct nvme_batch **ret)
{
	struct nvme_batch *b;
	uint32_t ring = 1;

	if (!cap || cap > 1u << 24)
		return -EINVAL;
	while (ring < cap)
		ring <<= 1;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->ops = aligned_alloc(CACHELINE, sizeof(*b->ops) * cap);
	b->free_idx = malloc(sizeof(*b->free_idx) * cap);
	b->ring = calloc(ring, sizeof(*b->ring));
	b->handle = nvme_chan_op_get(ch);
	if (!b->ops || !b->free_idx || !b->ring || !b->handle)
		goto no_memory;
	/* touched here, not by the first submission */
	memset(b->ops, 0, sizeof(*b->ops) * cap);
	for (uint32_t i = 0; i < cap; i++) {
		b->ops[i].slot = i;
		b->ops[i].chan = ch;
		b->ops[i].batch = b;
		b->free_idx[i] = cap - 1 - i;
	}
	ch->inflight--; /* the handle waits for nothing by itself */
	b->handle->flags = NVME_OPF_HANDLE;
	b->handle->batch = b;
	b->handle->err = 0;
	b->handle->done = 0;
	b->handle->outcome = NVME_DONE;
	b->cap = b->free_n = cap;
	b->ring_mask = ring - 1;
	b->chan = ch;
	b->mode = ch->mode;
	b->exec = !ch->owns;
	b->handle->opcode = UINT8_MAX; /* a notice is told from an operation's end by it */
	b->timer.is_batch = b->grace.is_batch = b->grace.is_grace = true;
	b->next = ch->batches;
	ch->batches = b;
	if (ch->owns && !ch->own.pair[NVME_FLOW_BATCH])
		nvme_lane_lease(&ch->own, NVME_QPAIR_BATCH);
	*ret = b;
	return 0;
no_memory:
	if (b->handle)
		nvme_chan_op_put(ch, b->handle);
	free(b->ring);
	free(b->free_idx);
	free(b->ops);
	free(b);
	return -ENOMEM;
}

static struct nvme_lane *lane_of(struct nvme_batch *b)
{
	struct nvme_chan *ch = b->chan;

	return b->exec ? &ch->exec->lane : &ch->own;
}

static void stop_clocks(struct nvme_batch *b)
{
	struct nvme_lane *l = lane_of(b);

	owner_lock(&l->lock);
	nvme_lane_no_timer(&b->timer);
	nvme_lane_no_timer(&b->grace);
	owner_unlock(&l->lock);
}

int nvme_batch_mode(struct nvme_batch *b, enum nvme_mode mode)
{
	struct nvme_chan *ch = b->chan;
	bool exec = mode == NVME_MODE_POLL || !ch->owns;
	int err = 0;

	if (mode == b->mode || b->free_n != b->cap)
		return 0;
	if (exec && !ch->exec)
		err = nvme_exec_get(ch->ctrl, &ch->exec);
	if (err)
		return err;
	if (exec != b->exec) /* they are on a list of the lane that ran it */
		stop_clocks(b);
	b->mode = mode;
	b->exec = exec;
	return 0;
}

int nvme_batch_free(struct nvme_batch *b)
{
	struct nvme_chan *ch = b->chan;

	if (b->free_n != b->cap)
		return -EBUSY;
	stop_clocks(b);
	/* a notice that was posted and not collected still refers to the handle */
	nvme_chan_take(ch, b->handle);
	for (struct nvme_batch **p = &ch->batches; *p; p = &(*p)->next)
		if (*p == b) {
			*p = b->next;
			break;
		}
	b->handle->flags = 0;
	b->handle->batch = NULL;
	ch->inflight++;
	nvme_chan_op_put(ch, b->handle);
	free(b->ring);
	free(b->free_idx);
	free(b->ops);
	free(b);
	return 0;
}

struct nvme_op *nvme_batch_next(struct nvme_batch *b)
{
	/* acquire: the item's fields as they were when it ended */
	if (atomic_load_explicit(&b->ring_tail, memory_order_acquire) == b->ring_head)
		return NULL;
	return &b->ops[b->ring[b->ring_head++ & b->ring_mask]];
}

void nvme_batch_release(struct nvme_batch *b, struct nvme_op *op)
{
	if (unlikely(op->err))
		atomic_fetch_sub_explicit(&b->nr_failed, 1, memory_order_relaxed);
	b->chan->away -= op->exec;
	nvme_op_set(op, NVME_OP_FREE);
	b->free_idx[b->free_n++] = op->slot;
	b->chan->inflight--;
}

int64_t nvme_batch_take_ok(struct nvme_batch *b, uint32_t n)
{
	uint32_t away = 0, free_n = b->free_n, head = b->ring_head;
	uint64_t nbytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = b->ring[head++ & b->ring_mask];
		struct nvme_op *op = &b->ops[k];

		nbytes += op->done;
		away += op->exec;
		nvme_op_set(op, NVME_OP_FREE);
		b->free_idx[free_n++] = k;
	}
	b->free_n = free_n;
	b->ring_head = head;
	b->chan->away -= away;
	b->chan->inflight -= n;
	return (int64_t)nbytes;
}

/* May @n items be looked for here, and how long? *ret_step: by running the device on this thread. */
static int64_t look_for(const struct nvme_batch *b, uint32_t n, bool small, bool *ret_step)
{
	const struct nvme_chan *ch = b->chan;
	int64_t most;

	*ret_step = small && nvme_can_step(ch, b->mode, NVME_IO_READ, 0, NULL);
	if (ch->polled || (b->mode != NVME_MODE_ADAPTIVE && b->mode != NVME_MODE_INLINE))
		return 0;
	most = nvme_spin_of(ch->ctrl, b->said);
	if (unlikely(!most && b->said & NVME_SPIN_SAID))
		return 0;
	most = (int64_t)min_u64((uint64_t)most + (uint64_t)n * BATCH_SPIN_ITEM_NS, BATCH_SPIN_MOST_NS);
	/* without stepping only what is expected to be quick is looked for */
	return *ret_step || b->est_ns <= most ? most : 0;
}

/* What was queued or sent already: send the rest and look for it as long as it may pay. Lane locked; the lock is
 * left. */
void nvme_batch_start(struct nvme_batch *b, uint32_t n, int64_t now, bool small)
{
	struct nvme_chan *ch = b->chan;
	struct nvme_lane *l = &ch->own;
	uint32_t target = b->ring_head + nvme_batch_pending(b) + n;
	bool step, armed, done = false;
	int64_t most = look_for(b, n, small, &step);

	armed = most && nvme_chan_disarm(ch);
	l->gather = true;
	nvme_lane_pump(l, now, true);
	/* a device that is waited for here is told at once, unless it is run here; else arming tells it */
	if (most && !step)
		nvme_lane_kick(l);
	for (uint32_t i = 1; most && !done; i++) {
		if (step)
			nvme_lane_step(l, 32);
		nvme_lane_reap(l, true);
		done = atomic_load_explicit(&b->ring_tail, memory_order_relaxed) == target;
		if (!done && !(i & 3) && now_ns() - now >= most)
			break;
		if (!step)
			cpu_relax();
	}
	if (armed || !done)
		nvme_chan_arm_lane(ch);
	/* what is still out may have been sent while we looked, with the device left asleep */
	if (atomic_load_explicit(&l->inflight, memory_order_relaxed) && !ch->polled)
		nvme_lane_kick(l);
	if (done)
		l->st.inline_done += n;
	l->gather = false;
	owner_unlock(&l->lock);
	nvme_chan_tell(ch);
	if (done)
		nvme_median(&b->est_ns, now_ns() - now);
}

/* References taken for a run of requests on the same mapping: one atomic addition for many items. */
struct run {
	struct mem_map *m;
	uint64_t handle;
	uint32_t spare;
};

static struct mem_map *run_get(struct mem_table *t, struct run *r, uint64_t handle, uint32_t more)
{
	if (likely(r->spare && r->handle == handle)) {
		r->spare--;
		return r->m;
	}
	if (r->spare)
		mem_put(r->m, r->spare);
	r->m = mem_get(t, handle, more);
	r->handle = handle;
	r->spare = r->m ? more - 1 : 0;
	return r->m;
}

static void undo(struct nvme_batch *b, uint32_t filled, struct run *r)
{
	for (uint32_t i = 0; i < filled; i++) {
		struct nvme_op *op = &b->ops[b->free_idx[b->free_n - 1 - i]];

		if (op->map)
			mem_put(op->map, 1);
		nvme_op_set(op, NVME_OP_FREE);
	}
	if (r->spare)
		mem_put(r->m, r->spare);
}

/* Items to be queued together. */
struct chain {
	struct nvme_op *first, *last, **tail;
	uint32_t n;
	uint8_t flow, qp, turn;
};

static void chain_begin(struct chain *c, struct nvme_lane *l, uint8_t flow, const struct nvme_chan *ch,
			const struct nvme_ns *ns)
{
	c->flow = flow == NVME_FLOW_NORMAL && l->pair[NVME_FLOW_BATCH] ? NVME_FLOW_BATCH : flow;
	c->qp = l->pair[c->flow];
	c->turn = nvme_turn_of(l, c->flow, ch, ns);
	c->tail = nvme_turn_list(l, c->flow, c->turn)->tail;
}

static inline void chain_add(struct chain *c, struct nvme_op *op)
{
	op->flow = c->flow;
	op->qp = c->qp;
	nvme_op_set_turn(op, c->turn);
	op->next = NULL;
	op->pprev = c->tail;
	nvme_op_set(op, NVME_OP_QUEUED);
	if (c->last)
		c->last->next = op;
	else
		c->first = op;
	c->tail = &op->next;
	c->last = op;
	c->n++;
}

static inline void chain_push(struct chain *c, struct nvme_op *op)
{
	op->next = c->first;
	c->first = op;
	c->last = c->last ? c->last : op;
}

static void chain_splice(const struct chain *c, struct nvme_lane *l)
{
	if (c->n)
		nvme_lane_splice(l, c->flow, c->first, c->last, c->n);
}

int64_t nvme_batch_submit(struct nvme_batch *b, struct nvme_ns *ns, nvme_batch_get *get, const void *ctx,
			  uint32_t n, uint32_t *ret_bad)
{
	struct nvme_chan *ch = b->chan;
	struct nvme_ctrl *c = ch->ctrl;
	struct nvme_lane *l = &ch->own;
	const bool direct = !b->exec;
	struct chain light = { 0 }, heavy = { 0 };
	struct run r = { 0 };
	struct nvme_batch_req q;
	uint8_t flow;
	bool small = false;
	int64_t now;
	int err = 0;

	*ret_bad = 0;
	err = nvme_batch_may(b, n);
	if (unlikely(err))
		return err;
	if (!n)
		return nvme_batch_ready(b);
	get(ctx, 0, &q);
	flow = c->p.fifo ? NVME_FLOW_NORMAL : q.flow;
	if (unlikely(flow != NVME_FLOW_NORMAL))
		nvme_lane_class(l, flow);
	now = now_ns();
	if (direct) { /* items are filled and queued in one go: whoever looks at the batch does so under the lock */
		owner_lock(&l->lock);
		chain_begin(&light, l, flow, ch, ns);
		chain_begin(&heavy, l, NVME_FLOW_BULK, ch, ns);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct nvme_op *op = &b->ops[b->free_idx[b->free_n - 1 - i]];
		struct mem_map *m = NULL;

		get(ctx, i, &q);
		if (nvme_opcode_has_data(q.opcode)) {
			m = run_get(&c->mem, &r, q.map, n - i);
			err = m ? 0 : mem_refusal(&c->mem, q.map);
		}
		if (likely(!err))
			err = nvme_check(c, ns, m, q.buf_off, q.nbytes, q.offset, q.opcode,
					 q.flags & NVME_OPF_FUA, op);
		/* nothing to move is no command: refused in a batch, where it could not be told from an item sent */
		if (likely(!err) && unlikely(!q.nbytes && q.opcode != NVME_IO_FLUSH))
			err = -ENODATA;
		if (unlikely(err)) {
			if (m)
				mem_put(m, 1);
			undo(b, i, &r);
			if (direct)
				owner_unlock(&l->lock);
			*ret_bad = i;
			return err;
		}
		op->cookie = q.cookie;
		op->flags |= q.flags;
		op->gen = b->round;
		op->exec = !direct;
		op->flow = flow;
		small |= q.nbytes <= NVME_STEP_MOST && q.opcode == NVME_IO_READ;
		if (direct)
			chain_add(flow == NVME_FLOW_NORMAL && nvme_is_bulk(l, op) ? &heavy : &light, op);
		else /* the executor's stack is taken newest first */
			chain_push(&light, op);
	}
	if (r.spare)
		mem_put(r.m, r.spare);
	atomic_fetch_add_explicit(&ns->ref, n, memory_order_relaxed);
	ch->inflight += n;
	b->start = now;
	if (unlikely(flow == NVME_FLOW_LATENCY))
		nvme_sched_urgent(l, now);
	if (direct) {
		chain_splice(&light, l);
		chain_splice(&heavy, l);
		nvme_batch_start(b, n, now, small);
	} else {
		ch->away += n;
		nvme_exec_post(ch->exec, light.first, light.last);
	}
	b->free_n -= n;
	if (!direct)
		nvme_chan_arm(ch);
	return nvme_batch_ready(b);
}

int nvme_batch_notify(struct nvme_batch *b, uint32_t n)
{
	uint32_t at = b->ring_head + n;

	if ((int32_t)(atomic_load_explicit(&b->ring_tail, memory_order_acquire) - at) >= 0)
		return 1;
	atomic_store_explicit(&b->notify_at, at, memory_order_relaxed);
	/* seq_cst: the mark is set before we look at the tail; the lane moves the tail, then looks at the mark */
	atomic_store_explicit(&b->notify, true, memory_order_seq_cst);
	if ((int32_t)(atomic_load_explicit(&b->ring_tail, memory_order_seq_cst) - at) >= 0 &&
	    atomic_exchange_explicit(&b->notify, false, memory_order_acq_rel))
		return 1;
	nvme_chan_arm(b->chan);
	return 0;
}

void nvme_batch_deadline(struct nvme_batch *b, int64_t timeout_ns)
{
	struct nvme_lane *l = lane_of(b);

	if (b->exec)
		nvme_exec_drain(b->chan->exec);
	owner_lock(&l->lock);
	b->timer.upto = b->round++;
	if (timeout_ns && nvme_batch_pending(b))
		nvme_lane_timer(l, &b->timer, now_ns() + timeout_ns);
	else
		nvme_lane_no_timer(&b->timer);
	owner_unlock(&l->lock);
}

int nvme_batch_cancel(struct nvme_batch *b, int64_t grace_ns)
{
	struct nvme_lane *l = lane_of(b);
	bool before;

	if (!nvme_batch_pending(b))
		return 0;
	if (b->exec)
		nvme_exec_drain(b->chan->exec);
	owner_lock(&l->lock);
	/* asked again, what was cancelled before is not given more time */
	if (nvme_lane_cancel_batch(l, b, -ECANCELED, &before) && !(before && b->grace.link.next))
		nvme_lane_timer(l, &b->grace, now_ns() + grace_ns);
	owner_unlock(&l->lock);
	nvme_chan_arm(b->chan);
	return nvme_batch_pending(b) != 0;
}
