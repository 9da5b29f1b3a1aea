/* SPDX-License-Identifier: MIT */
/*
 * Fairness between those who use a lane: each channel's operations on each namespace are a source. While a source has
 * operations waiting in a flow's list, those of other sources wait in lists of their own beside it, and the lists take turns.
 * So a backlog delays nobody else for longer than a turn of each. While nothing waits, or a single source does, there
 * is one list, as if there were no such thing. All with the lane's lock held.
 */
#ifndef NVME_TURNS_H
#define NVME_TURNS_H

#include "nvme/lane.h"

#define NVME_TURNS 15 /* lists beside the flow's own; more sources than that share them */
#define NVME_TURN_COMMANDS 8 /* of small operations, before it is the next list's turn */

struct nvme_turns {
	struct nvme_fifo aside[NVME_FLOWS][NVME_TURNS];
	uint32_t nr[NVME_FLOWS]; /* of these, with operations */
	uint32_t cursor[NVME_FLOWS]; /* whose turn it is; 0: the flow's own list */
};

static inline bool nvme_turns_any(const struct nvme_lane *l, uint32_t flow)
{
	return unlikely(l->turns) && l->turns->nr[flow];
}

static inline bool nvme_turns_same(const struct nvme_op *op, const struct nvme_chan *ch,
				   const struct nvme_ns *ns)
{
	return op->chan == ch && (op->ns == ns || op->ns->nsid == ns->nsid);
}

/* The list for what is not of the flow's own: 1 and on; 0 after all. */
uint8_t nvme_turns_find(struct nvme_lane *l, uint32_t flow, const struct nvme_chan *ch,
			const struct nvme_ns *ns);

/* Which list of @flow a source's operations are to wait in. */
static inline uint8_t nvme_turn_of(struct nvme_lane *l, uint32_t flow, const struct nvme_chan *ch,
				   const struct nvme_ns *ns)
{
	const struct nvme_op *head = l->pending[flow].head;

	if (likely(!head) ? likely(!nvme_turns_any(l, flow)) : nvme_turns_same(head, ch, ns))
		return 0;
	return nvme_turns_find(l, flow, ch, ns);
}

static inline struct nvme_fifo *nvme_turn_list(struct nvme_lane *l, uint32_t flow, uint32_t turn)
{
	return likely(!turn) ? &l->pending[flow] : &l->turns->aside[flow][turn - 1];
}

/* The list that @op waits in. */
static inline uint32_t nvme_op_turn(const struct nvme_op *op)
{
	return unlikely(op->flags & NVME_OPF_ASIDE) ? op->turn : 0;
}

static inline void nvme_op_set_turn(struct nvme_op *op, uint8_t turn)
{
	if (likely(!turn))
		return;
	op->flags |= NVME_OPF_ASIDE;
	op->turn = turn;
}

/* Something will be put into that list, or was taken out of it: how many have some? */
static inline void nvme_turn_begins(struct nvme_lane *l, uint32_t flow, uint32_t turn)
{
	if (unlikely(turn) && !l->turns->aside[flow][turn - 1].head)
		l->turns->nr[flow]++;
}
static inline void nvme_turn_ends(struct nvme_lane *l, uint32_t flow, uint32_t turn)
{
	if (unlikely(turn) && !l->turns->aside[flow][turn - 1].head)
		l->turns->nr[flow]--;
}

/* An operation that waits in @flow, NULL: none does. */
static inline struct nvme_op *nvme_turns_first(const struct nvme_lane *l, uint32_t flow)
{
	struct nvme_op *op = l->pending[flow].head;

	for (uint32_t i = 0; unlikely(!op && nvme_turns_any(l, flow)) && i < NVME_TURNS; i++)
		op = l->turns->aside[flow][i].head;
	return op;
}

#endif
