/* SPDX-License-Identifier: MIT */
/*
 * An operation: one byte range to be moved, sent as one or more commands. It is checked and filled by its channel,
 * sent and completed by the lane that runs it, and freed by its channel once its end was collected.
 *
 *   FREE -> POSTED (filled, on no lane yet) -> QUEUED (waiting for queue space) -> SENT (all commands out) -> ENDED -> FREE
 *                                                \-> STRAY (ended for the user by a clock or a wedge; commands
 *                                                    are still at the device) -> FREE with the last of them
 */
#ifndef NVME_OP_H
#define NVME_OP_H

#include "nvme/ctrl.h"

enum nvme_op_state {
	NVME_OP_FREE,
	NVME_OP_POSTED,
	NVME_OP_QUEUED,
	NVME_OP_SENT,
	NVME_OP_ENDED,
	NVME_OP_STRAY
};
enum nvme_outcome { NVME_DONE, NVME_NEVER_SENT, NVME_ABORTED, NVME_UNKNOWN };

#define NVME_OPF_FUA 0x1
#define NVME_OPF_CANCELLED 0x2 /* no further command is sent */
#define NVME_OPF_ADMIN 0x4 /* carried by housekeeping */
#define NVME_OPF_HANDLE 0x8 /* stands for a batch: its token */
#define NVME_OPF_TIMED 0x10 /* its timer is on the lane's list, or it was retried: its end is a rare one */
#define NVME_OPF_RETRIED 0x20 /* the lane has records of commands sent again */
#define NVME_OPF_CHUNK_SHIFT \
	12 /* 4 bits n: its commands have 32 KiB << n at most, where they take turns; 0: as usual */
#define NVME_OPF_ASIDE 0x80 /* it waits in a list beside its flow's own (turns.h) */
#define NVME_OPF_HEAVY 0x40 /* of a heavy flow: its commands at the device are counted (sched.h) */

enum nvme_class { NVME_CLASS_NORMAL, NVME_CLASS_LATENCY, NVME_CLASS_BACKGROUND };

/* What an operation waits in before it is sent: a lane has a list for each. */
enum nvme_flow {
	NVME_FLOW_NORMAL,
	NVME_FLOW_BATCH, /* the same, on the deep pair */
	NVME_FLOW_LATENCY,
	NVME_FLOW_BULK, /* of the normal class, but large */
	NVME_FLOW_BACKGROUND,
	NVME_FLOWS
};

/* Something with a deadline: an operation, or what was in flight of a batch when it was set. */
struct nvme_timer {
	struct nvme_link
		link; /* of lane->timers, under the lane's lock; of lane->to_abort once it was given up */
	int64_t deadline;
	uint32_t upto; /* batch: the last round of submissions that it is for */
	bool is_batch;
	bool is_grace; /* set by a cancel: ends in -ECANCELED, not -ETIMEDOUT */
	bool is_retry; /* of a command that waits to be sent again (retry.h) */
};

struct nvme_op {
	/* sent and completed with: two cache lines, in the order they are written */
	struct nvme_op *next; /* of the one list it is on: pending, posted, ended, free */
	struct nvme_op **pprev; /* pending only */
	struct nvme_ns *ns;
	struct mem_map *map;
	uint64_t buf_off; /* of the next byte to send */
	uint64_t slba; /* of the next block to send */
	uint64_t left; /* bytes not sent yet */
	uint64_t nbytes;

	uint64_t done; /* bytes that succeeded */
	uint32_t inflight; /* commands at the device */
	uint32_t dw0;
	int32_t err; /* what it ends with, negative errno; 0 so far */
	uint16_t status; /* NVMe status of the first failure */
	uint16_t flags;
	uint8_t opcode;
	uint8_t outcome;
	uint8_t qp; /* which pair of the lane */
	bool exec; /* run by the executor's lane */
	bool more; /* a command is still to be sent, also when left is 0 (flush) */
	bool silent; /* already reported: collect to free it only */
	uint8_t flow; /* enum nvme_flow; before it is queued: that of its class */
	_Atomic uint8_t state; /* written under the lane's lock, or by the channel while it is on no lane */
	uint64_t buf_start; /* where it began */
	uint64_t cookie;
	struct nvme_batch *batch; /* NULL: a single operation */
	uint32_t slot;
	uint32_t gen; /* of a batch's item: the round in which it was submitted */

	/* rarely touched */
	struct nvme_chan *chan;
	int64_t start; /* when it was submitted */
	struct nvme_timer timer;
	struct nvme_link stray; /* of ctrl->strays */
	int64_t stray_since;
	uint8_t turn; /* with NVME_OPF_ASIDE: which list it waits in */
	uint32_t abort_pos; /* how far its commands were asked to be aborted; nvme_qpair_ops.next */
	uint16_t last_qid;
	uint16_t last_cid;
	struct nvme_dsm_range dsm;
} __attribute__((aligned(CACHELINE)));

#define NVME_GEN_MASK 0x3fffffffu /* tokens stay below UGDS_PENDING */

/* Bytes of its next command at most, where @most are usual. */
static inline uint32_t nvme_op_chunk(const struct nvme_op *op, uint32_t most)
{
	const uint32_t n = op->flags >> NVME_OPF_CHUNK_SHIFT;

	return likely(!n) ? most : min_u32(most, 32768u << n);
}

static inline uint8_t nvme_op_state(const struct nvme_op *op)
{
	return atomic_load_explicit(&op->state, memory_order_relaxed);
}
static inline void nvme_op_set(struct nvme_op *op, enum nvme_op_state state)
{
	atomic_store_explicit(&op->state, (uint8_t)state, memory_order_relaxed);
}
/* Run by somebody else than its channel's owner. */
static inline bool nvme_op_away(const struct nvme_op *op) { return op->exec || op->flags & NVME_OPF_ADMIN; }
/* On a lane: at the device or waiting for space. */
static inline bool nvme_op_live(const struct nvme_op *op)
{
	uint8_t s = nvme_op_state(op);

	return s == NVME_OP_QUEUED || s == NVME_OP_SENT;
}
/* Its outcome is final. */
static inline bool nvme_op_over(const struct nvme_op *op)
{
	uint8_t s = nvme_op_state(op);

	return s == NVME_OP_ENDED || s == NVME_OP_STRAY;
}

/* What it is counted under. */
static inline uint8_t nvme_op_class(const struct nvme_op *op)
{
	return op->flow == NVME_FLOW_LATENCY	  ? NVME_CLASS_LATENCY
	       : op->flow == NVME_FLOW_BACKGROUND ? NVME_CLASS_BACKGROUND
						  : NVME_CLASS_NORMAL;
}

static inline uint64_t nvme_op_token(const struct nvme_op *op) { return (uint64_t)op->gen << 32 | op->slot; }

static inline void nvme_link_init(struct nvme_link *head) { head->next = head->prev = head; }

static inline void nvme_link_add(struct nvme_link *head, struct nvme_link *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

static inline void nvme_link_del(struct nvme_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	l->next = l->prev = NULL;
}

#endif
