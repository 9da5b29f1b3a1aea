/* SPDX-License-Identifier: MIT */
/* ugds.h, continued: what the queue pairs have done, and the life of single commands. */
#ifndef UGDS_STATS_H
#define UGDS_STATS_H

#include "include/ugds.h"

/* What the queue pairs have done, in the layout of docs/how-to/observability.md; @buf is 8-byte aligned. Returns the bytes there are
 * (of which at most @max are copied), 0 where none are kept. */
int64_t ugds_ctrl_tallies(struct ugds_ctrl *c, void *buf, uint64_t max);

/* Interrupt coalescing: what is in force, as ugds_open_params.coalesce; for how many pairs; with which NVMe status the controller
 * refused it, or 0. */
struct ugds_coalescing {
	uint32_t coalesce, pairs;
	uint32_t status;
};
int ugds_ctrl_coalescing(struct ugds_ctrl *c, struct ugds_coalescing *ret);

/* Keep the life of each command in a ring until @until_ns (an hour at most; 0: no more); another process may ask for it, too. */
int ugds_trace(struct ugds_ctrl *c, uint64_t until_ns);
#define UGDS_TRACE_EVENTS 4096 /* of 64 bytes: the ring */
/* Copy the ring to @words, UGDS_TRACE_EVENTS * 8 of them. */
int ugds_trace_copy(struct ugds_ctrl *c, uint64_t *words);

/* Added to the answer while commands are traced: the caller may say what became of each. */
#define UGDS_TRACED 0x10000
#define UGDS_MARK_FUTURE 3 /* its waiter was told */
#define UGDS_MARK_RESUMED 4 /* its waiter goes on */
void ugds_trace_mark(struct ugds_chan *ch, uint64_t token, uint32_t kind);

#define UGDS_LOOK_ADMIN 0x100
#define UGDS_LOOK_BATCH 0x200 /* nbytes: items that have not ended or were not harvested */
struct ugds_op_look {
	uint64_t offset, nbytes;
	uint32_t nsid;
	uint32_t what; /* UGDS_OP_*, or UGDS_LOOK_* */
};
/* What is waited for by that token, for whoever looks for defects. By the channel's owner. -ENOENT: nothing. */
int ugds_op_look(struct ugds_chan *ch, uint64_t token, struct ugds_op_look *ret);

#endif
