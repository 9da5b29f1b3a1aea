/* SPDX-License-Identifier: MIT */
/*
 * The life of single commands, for as long as somebody asks for it: a ring of events behind the tallies, so that who
 * watches may be another process. Until then a call that sends or finds something looks at one word that nobody writes.
 */
#ifndef NVME_TRACE_H
#define NVME_TRACE_H

#include "nvme/lane.h"
#include "nvme/tally.h"

#define TRACE_EVENTS 4096u
#define TRACE_MOST_NS (3600 * NSEC_PER_SEC)

enum trace_kind { TRACE_COMMAND = 1, TRACE_DOORBELL, TRACE_FUTURE, TRACE_RESUMED };

/* Eight words. An event is there when its number is the position it was given, plus one. */
struct trace_event {
	_Atomic uint64_t number;
	_Atomic uint64_t ns; /* command: its completion was seen */
	_Atomic uint64_t token; /* of its operation or batch */
	_Atomic uint64_t start; /* command: the call that asked for it */
	_Atomic uint64_t sent; /* command: it was put into the queue */
	_Atomic uint64_t slba;
	_Atomic uint64_t where; /* bytes 31:0, queue pair 47:32, command identifier 63:48 */
	_Atomic uint64_t what; /* kind 7:0, opcode 15:8, class 23:16, channel 47:32, status 63:48 */
};

static_assert(sizeof(struct trace_event) == 64, "part of the layout");

/* Somebody wants to know, at @now (0: now). A word that was left behind is put out by housekeeping. */
static inline bool nvme_traced(const struct nvme_tally *t, int64_t now)
{
	uint64_t until = atomic_load_explicit(t->until, memory_order_relaxed);

	return unlikely(until) && (uint64_t)(now ? now : now_ns()) < until;
}

void nvme_trace_command(struct nvme_lane *l, struct nvme_qpair *qp, const struct nvme_done *d);
void nvme_trace_doorbell(struct nvme_qpair *qp, uint32_t n);
/* Of an operation whose end its loop or thread has been told; @kind as it says. */
void nvme_trace_mark(struct nvme_chan *ch, uint64_t token, enum trace_kind kind);
/* Until @ns on the monotonic clock, an hour at most; 0: no more. */
void nvme_trace_until(struct nvme_tallies *all, int64_t ns);
/* Housekeeping's look: what was asked for is over. */
void nvme_trace_expire(struct nvme_tallies *all, int64_t now);

#endif
