/* SPDX-License-Identifier: MIT */
/* How operations end. Lane's lock held. */
#ifndef NVME_END_H
#define NVME_END_H

#include "nvme/chan.h"

/* @d failed: remember the first failure, stop splitting. */
void nvme_op_failed(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d);
/* The end of one that has a timer or was given up before. */
void nvme_op_end_rare(struct nvme_lane *l, struct nvme_op *op);
/* To whoever waits for it. */
void nvme_op_hand_over(struct nvme_lane *l, struct nvme_op *op);
/* End @op for the user; its commands, references and memory stay until they are back. */
void nvme_op_stray(struct nvme_lane *l, struct nvme_op *op);
/* Some command's memory on @map overlaps [off, off + nbytes). */
bool nvme_range_is_stray(struct nvme_ctrl *c, const struct mem_map *map, uint64_t off, uint64_t nbytes);
/* Out of the pending list. */
void nvme_lane_unqueue(struct nvme_lane *l, struct nvme_op *op);

static inline void nvme_puts_flush(struct nvme_puts *p)
{
	if (p->nr_map)
		mem_put(p->map, p->nr_map);
	if (p->nr_ns)
		/* release: the operations' last look at the namespace */
		atomic_fetch_sub_explicit(&p->ns->ref, p->nr_ns, memory_order_release);
	p->nr_map = p->nr_ns = 0;
}

/* Those of one operation that ended. */
static inline void nvme_puts_now(struct mem_map *map, struct nvme_ns *ns)
{
	if (likely(map))
		mem_put(map, 1);
	/* release: its last look at the namespace */
	atomic_fetch_sub_explicit(&ns->ref, 1, memory_order_release);
}

/* @n references each, of operations that ended. */
static inline void nvme_puts_add(struct nvme_lane *l, struct mem_map *map, struct nvme_ns *ns, uint32_t n)
{
	struct nvme_puts *p = &l->puts;

	if (unlikely((map && p->map != map) || p->ns != ns)) {
		nvme_puts_flush(p);
		p->ns = ns;
		p->map = map;
	}
	p->nr_map += map ? n : 0;
	p->nr_ns += n;
	if (unlikely(!l->gather)) /* somebody else may see the end at once */
		nvme_puts_flush(p);
}

/* @b's ended items reach to @tail now; their references were given back. */
static inline void nvme_batch_publish(struct nvme_lane *l, struct nvme_batch *b, uint32_t tail)
{
	/* release: the items' fields */
	atomic_store_explicit(&b->ring_tail, tail, memory_order_release);
	if (unlikely(
		    !l->gather)) /* pairs with nvme_batch_notify(): the tail is moved, then the mark is looked at */
		atomic_thread_fence(memory_order_seq_cst);
	if (unlikely(atomic_load_explicit(&b->notify, memory_order_relaxed)) &&
	    (int32_t)(tail - atomic_load_explicit(&b->notify_at, memory_order_relaxed)) >= 0 &&
	    atomic_exchange_explicit(&b->notify, false, memory_order_acq_rel) &&
	    !atomic_exchange_explicit(&b->told, true, memory_order_acq_rel))
		l->woke |= nvme_chan_post_ended(b->chan, b->handle);
}

static inline void nvme_batch_item_ended(struct nvme_lane *l, struct nvme_op *op)
{
	struct nvme_batch *b = op->batch;
	uint32_t tail = atomic_load_explicit(&b->ring_tail, memory_order_relaxed);

	b->ring[tail & b->ring_mask] = op->slot;
	if (unlikely(op->err))
		atomic_fetch_add_explicit(&b->nr_failed, 1, memory_order_relaxed);
	nvme_batch_publish(l, b, tail + 1);
}

/* Nothing of @op is at the device and nothing will be sent: give its references back and hand it over. */
static inline void nvme_op_end(struct nvme_lane *l, struct nvme_op *op)
{
	if (unlikely(op->flags & NVME_OPF_TIMED || nvme_op_state(op) == NVME_OP_STRAY)) {
		nvme_op_end_rare(l, op);
		return;
	}
	nvme_puts_add(l, op->map, op->ns, 1);
	nvme_op_set(op, NVME_OP_ENDED);
	if (op->batch)
		nvme_batch_item_ended(l, op);
	else
		nvme_op_hand_over(l, op);
}

int nvme_status_errno(uint16_t status); /* status.c */

#endif
