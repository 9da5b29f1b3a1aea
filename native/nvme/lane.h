/* SPDX-License-Identifier: MIT */
/*
 * A lane: a few queue pairs and the operations on them, run by one thread at a time under the lane's lock. The
 * lock is the owner's own (a channel's, or the executor's): uncontended but for housekeeping, which takes it with
 * trylock to end what is overdue while the owner sleeps. So whoever holds the lock decides who ends an operation,
 * and no queue pair shares a lock with another.
 */
#ifndef NVME_LANE_H
#define NVME_LANE_H

#include "nvme/op.h"
#include "nvme/sched.h"
#include "support/lock.h"

struct nvme_lane_stats {
	uint64_t reads, writes, others, read_bytes, write_bytes, errors, retries, commands, inline_done,
		wakeups, doorbells, unknown_cids;
};

/* Where a running owner wants ended single operations to go, instead of the channel's list. */
struct nvme_sink {
	struct nvme_op **out;
	uint32_t n, max;
};

struct nvme_fifo {
	struct nvme_op *head, **tail;
};

#define NVME_LANE_PAIRS 4 /* general, batch, and one for either class that the controller arbitrates */

/* References to give back, gathered over a run of completions of the same mapping and namespace. */
struct nvme_puts {
	struct mem_map *map;
	struct nvme_ns *ns;
	uint32_t nr_map, nr_ns;
};

struct nvme_turns;

struct nvme_lane {
	struct owner_lock lock;
	struct nvme_ctrl *ctrl;
	struct nvme_qpair *qp[NVME_LANE_PAIRS]; /* the first is a general one */
	uint32_t nr_qp;
	uint8_t pair[NVME_FLOWS]; /* where what is queued now is to be sent */
	struct nvme_fifo pending[NVME_FLOWS];
	struct nvme_turns *turns; /* lists beside these; NULL: there was no need yet */
	struct nvme_sink *sink;
	struct nvme_op *want; /* the owner spins for this one: it is not handed over */
	bool gather; /* the owner is the only one to see ends before the call is over: puts may wait */
	struct nvme_puts puts;
	int64_t reaped_at; /* when the last completions were seen; kept with tallies only */
	struct nvme_link timers;
	struct nvme_link to_abort; /* operations that a cancel gave up: their commands are asked to end */
	int64_t next_timer; /* earliest deadline, INT64_MAX: none */
	struct nvme_link *expiring; /* where the walk over the timers goes on */
	struct nvme_retries *retries; /* NULL until the first */
	_Atomic uint32_t inflight; /* commands; written under the lock, read by anybody */
	_Atomic uint32_t queued; /* operations pending */
	_Atomic uint32_t *word; /* the owner's wake-up word */
	int fd; /* the owner's eventfd */
	int64_t unwatched; /* housekeeping did not run for so long, and the hang clock does not know yet; its own */
	int64_t abort_at; /* when the oldest overdue command was asked to be aborted, 0: none */
	uint16_t abort_cid, abort_qid;
	bool failed; /* everything was ended after the controller failed */
	int fail_err;
	bool late_seen; /* a CQE was waiting at the last tick */
	bool woke; /* somebody who slept was told of an end; the executor's poller clears it */
	bool deaf; /* a pair's vector had no place left: its interrupts do not wake the owner */
	uint64_t bind[NVME_LANE_PAIRS]; /* wake-up bindings of the pairs' vectors, */
	bool bound[NVME_LANE_PAIRS]; /* where there is one */
	struct nvme_lane_sched sched;
	struct nvme_lane_stats st;
	struct nvme_lane_stats told; /* housekeeping's copy, of its last look */
	uint64_t base_doorbells, base_unknown; /* of the pairs when they were leased */
};

void nvme_lane_init(struct nvme_lane *l, struct nvme_ctrl *c, int fd, _Atomic uint32_t *word);
/* Give the queue pairs back. Nothing may be in flight. */
void nvme_lane_done(struct nvme_lane *l);
/* Take a pair of @kind; the batch kind only while two or more pairs are free. False: none is free. */
bool nvme_lane_lease(struct nvme_lane *l, enum nvme_qpair_kind kind);
/* The class of @flow comes into use: lease a pair for it, where the controller arbitrates; else a part of the general pair is
 * kept for the latency class. By its owner, who does not hold the lock. */
void nvme_lane_class(struct nvme_lane *l, enum nvme_flow flow);
/* @deaf_too: also where the pair's vector takes no more owners; see nvme_lane.deaf. */
bool nvme_lane_take(struct nvme_lane *l, struct nvme_qslot *s, bool deaf_too);
void nvme_lane_stats_add(struct nvme_lane_stats *sum, const struct nvme_lane_stats *st);
void nvme_lane_stats_get(struct nvme_lane *l, struct nvme_lane_stats *ret); /* locked */

/* All below: with the lock held. */
void nvme_lane_queue(struct nvme_lane *l, struct nvme_op *op);
/* Most operations are one command, and nothing waits before them: such a one goes straight to its pair. False: nothing
 * was done, it has to be queued. */
bool nvme_lane_send(struct nvme_lane *l, struct nvme_op *op, bool hold);
/* @first .. @last, linked with next and pprev as the tail of @flow's list, states, flows and pairs set. */
void nvme_lane_splice(struct nvme_lane *l, enum nvme_flow flow, struct nvme_op *first, struct nvme_op *last,
		      uint32_t n);
/* Large for the normal class. */
static inline bool nvme_is_bulk(const struct nvme_lane *l, const struct nvme_op *op)
{
	return unlikely(op->nbytes > l->sched.heavy_above) && op->map;
}
static inline void nvme_lane_add_inflight(struct nvme_lane *l, uint32_t n)
{
	/* one writer: whoever holds the lock */
	atomic_store_explicit(&l->inflight, atomic_load_explicit(&l->inflight, memory_order_relaxed) + n,
			      memory_order_relaxed);
}
static inline void nvme_lane_add_queued(struct nvme_lane *l, uint32_t n)
{
	/* one writer: whoever holds the lock */
	atomic_store_explicit(&l->queued, atomic_load_explicit(&l->queued, memory_order_relaxed) + n,
			      memory_order_relaxed);
}
/* Account for @n commands that were submitted to @qp, and ring. */
void nvme_lane_sent(struct nvme_lane *l, struct nvme_qpair *qp, uint32_t n, bool hold);
/* Send what fits; returns commands sent. @hold as in nvme_qpair_ops.kick. */
uint32_t nvme_lane_pump(struct nvme_lane *l, int64_t now, bool hold);
/* The same of a flow whose operations take turns, at most @most commands of at most @chunk bytes. */
uint32_t nvme_lane_pump_turns(struct nvme_lane *l, enum nvme_flow flow, uint32_t most, uint32_t chunk,
			      int64_t now, bool hold);
/* Commands of @flow that fit into @qp now. */
static inline uint32_t nvme_lane_space(const struct nvme_lane *l, const struct nvme_qpair *qp, uint32_t flow)
{
	uint32_t keep = flow == NVME_FLOW_LATENCY || qp != l->qp[0] ? 0 : l->sched.keep;

	return likely(qp->space > keep) ? qp->space - keep : 0;
}
/* Something waits to be sent. */
static inline bool nvme_lane_waiting(const struct nvme_lane *l)
{
	return atomic_load_explicit(&l->queued, memory_order_relaxed);
}
/* reap.c: reap all pairs, end operations, send what fits now; returns commands completed. */
uint32_t nvme_lane_reap(struct nvme_lane *l, bool hold);
void nvme_lane_kick(struct nvme_lane *l);
/* nvme_qpair_ops.tell and .ack for all pairs. */
void nvme_lane_tell(struct nvme_lane *l, bool fenced);
void nvme_lane_ack(struct nvme_lane *l);
uint32_t nvme_lane_step(struct nvme_lane *l, uint32_t max);
bool nvme_lane_peek(struct nvme_lane *l);
/* The next command of @op, as it would be sent now. */
void nvme_lane_describe(struct nvme_op *op, struct nvme_io *ret);
void nvme_lane_timer(struct nvme_lane *l, struct nvme_timer *t, int64_t deadline);
void nvme_lane_no_timer(struct nvme_timer *t);
/* End everything whose time is over. */
void nvme_lane_expire(struct nvme_lane *l, int64_t now);
/* Stop sending for @op; it ends now if nothing of it is at the device. */
void nvme_lane_cancel(struct nvme_lane *l, struct nvme_op *op, int err);
/* End @op for the user although commands are at the device. */
void nvme_lane_abandon(struct nvme_lane *l, struct nvme_op *op, int err);
/* After ctrl state left LIVE: end all pending operations, abandon all sent ones. Idempotent. */
void nvme_lane_fail(struct nvme_lane *l);
/* After DMA has stopped for certain: every command is forgotten, every operation ends. */
void nvme_lane_forget(struct nvme_lane *l, int err);

/* Stop sending for every item that has not ended; how many had not been asked to end before. Others had: *ret_before. */
struct nvme_batch;
uint32_t nvme_lane_cancel_batch(struct nvme_lane *l, struct nvme_batch *b, int err, bool *ret_before);

/* Housekeeping's look at a lane (takes the lock with trylock): deadlines, hang clock, stragglers.
 * Returns when to look again. @gap: housekeeping itself did not run for that long before now. */
int64_t nvme_lane_tick(struct nvme_lane *l, int64_t now, int64_t gap);
/* Of a lane without pairs nothing can be late, but its owner counts what it does: copy that, unless it is at it. */
void nvme_lane_note(struct nvme_lane *l);

/* Signal @fd if *@word is armed, and disarm it. What is to be seen was stored before. True: it was armed. */
bool nvme_wake(_Atomic uint32_t *word, int fd);
/* A word for an owner: the transport's where it has one left, else @own. It is given back after all unbinding. */
_Atomic uint32_t *nvme_word_get(struct nvme_ctrl *c, _Atomic uint32_t *own);
void nvme_word_put(struct nvme_ctrl *c, _Atomic uint32_t *word, const _Atomic uint32_t *own);
void nvme_signal(int fd);

#endif
