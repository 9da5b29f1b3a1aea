/* SPDX-License-Identifier: MIT */
/*
 * A channel: what one event loop or thread holds of a controller. It allocates and frees operations, and owns a lane
 * with leased queue pairs; or, where no pair is free or the mode is poll, posts to the executor's lane.
 */
#ifndef NVME_CHAN_H
#define NVME_CHAN_H

#include "nvme/lane.h"
#include "nvme/learn.h"
#include "nvme/poller.h"

enum nvme_mode { NVME_MODE_ADAPTIVE, NVME_MODE_INLINE, NVME_MODE_INTERRUPT, NVME_MODE_POLL };

#define NVME_PENDING 0x4000000000000000ull /* UGDS_PENDING */
#define NVME_STEP_MOST \
	(32u << 10) /* bytes of a read that a software device may serve on the caller's thread */
#define NVME_STEP_STAGED (64u << 10) /* and with copies to a GPU, which take their time whoever begins them */
#define NVME_STEP_LONG (256u << 10) /* and one alone, where that ends soon enough for looking */
#define NVME_OP_SEG 256
#define NVME_OP_SEGS 4096

struct nvme_exec {
	struct nvme_lane lane;
	struct nvme_poller *poller; /* whose thread runs it */
	struct nvme_exec *poll_next; /* of its list */
	struct nvme_pollers *own; /* NULL: the user's */
	struct nvme_op *_Atomic posted; /* stack of operations handed over; taken whole */
	_Atomic uint32_t *word; /* for interrupts; own_word, or the transport's */
	_Atomic uint32_t own_word;
	_Atomic uint32_t post_word; /* for what is handed over */
	_Atomic bool drained; /* somebody else moved posted operations onto the lane: they are to be sent */
	int fd;
};

struct nvme_chan {
	struct nvme_chan *next; /* ctrl->chans, under ctrl->lock */
	struct nvme_ctrl *ctrl;
	struct nvme_lane own; /* used when it has queue pairs */
	bool owns;
	struct nvme_exec *exec; /* the controller's, once this channel needed it */
	bool polled; /* its owner looks by itself, all the time: nothing spins or is armed for it */
	enum nvme_mode mode;
	bool learns; /* something is awaited in the adaptive mode */
	int fd;
	_Atomic uint32_t *word; /* armed: wake me; own_word, or the transport's */
	_Atomic uint32_t own_word;
	_Atomic uint32_t posters; /* threads that hand an operation over just now */
	struct nvme_op *_Atomic ended; /* stack: ended operations nobody collected yet */
	struct nvme_op *ready; /* the same, taken and in order */
	struct nvme_op *seg[NVME_OP_SEGS];
	uint32_t nr_ops;
	struct nvme_op *free_ops;
	uint32_t inflight; /* operations not collected (batches: their items) */
	uint32_t away; /* of these, what others run: the executor, housekeeping */
	struct nvme_chan_sched sched;
	struct nvme_learner learner; /* what the adaptive mode decides by */
	struct nvme_batch *batches;
	struct nvme_op last; /* the last operation that failed inside a call: how it ended, and its token */
	_Atomic bool orphan;
};

struct nvme_batch {
	struct nvme_batch *next;
	struct nvme_chan *chan;
	enum nvme_mode mode; /* how what is in flight is waited for, */
	bool exec; /* and whether by the executor */
	uint32_t said; /* flags of the last submission */
	struct nvme_op *handle; /* an operation slot of the channel: the token it is reported by */
	struct nvme_op *ops;
	uint32_t cap;
	uint32_t free_n; /* stack of free item indices */
	uint32_t *free_idx;
	/* ended items: single producer (the lane), single consumer (the channel's thread) */
	uint32_t ring_mask;
	uint32_t *ring;
	_Atomic uint32_t ring_tail;
	uint32_t ring_head;
	_Atomic uint32_t notify_at; /* ring_tail that was asked for */
	_Atomic bool notify;
	_Atomic bool told; /* the handle was posted and not collected: it is on one list at a time */
	_Atomic uint32_t nr_failed; /* among the ended, not harvested */
	uint32_t round; /* of submissions; one ends when a deadline is set */
	struct nvme_timer timer, grace;
	uint32_t nr_held; /* given up and harvested, but still at the device: they keep their places */
	int64_t start; /* of the last submission */
	int64_t est_ns; /* running median from a submission to its last item, as seen by the owner */
};

/* chan.c */
int nvme_chan_open(struct nvme_ctrl *c, enum nvme_mode mode, struct nvme_chan **ret);
int nvme_chan_close(struct nvme_chan *ch);
void nvme_chan_orphan(struct nvme_chan *ch);
/* Housekeeping's turn at an orphan: drain, free when empty. ctrl->lock held. True: it was freed. */
bool nvme_chan_adopt(struct nvme_chan *ch, int64_t now);
/* Make room for more operations. False: there is none. */
bool nvme_chan_op_more(struct nvme_chan *ch);
static inline struct nvme_op *nvme_chan_op_get(struct nvme_chan *ch)
{
	struct nvme_op *op;

	if (unlikely(!ch->free_ops) && !nvme_chan_op_more(ch))
		return NULL;
	op = ch->free_ops;
	ch->free_ops = op->next;
	op->gen = (op->gen + 1) & NVME_GEN_MASK; /* even: in use */
	ch->inflight++;
	return op;
}
static inline void nvme_chan_op_put(struct nvme_chan *ch, struct nvme_op *op)
{
	op->gen = (op->gen + 1) & NVME_GEN_MASK; /* odd: the token is stale */
	ch->away -= nvme_op_away(op);
	op->exec = false;
	op->flags = 0;
	nvme_op_set(op, NVME_OP_FREE);
	op->silent =
		false; /* a batch's handle or an admin command that takes the slot next is to be reported */
	op->next = ch->free_ops;
	ch->free_ops = op;
	ch->inflight--;
}
struct nvme_op *nvme_chan_op_find(struct nvme_chan *ch, uint64_t token);
/* Tokens of operations and admin commands that were started and whose end was not reported; how many there are. */
uint32_t nvme_chan_tokens(const struct nvme_chan *ch, uint64_t *out, uint32_t max);
/* Hand an ended operation to its channel and wake it. Any thread. True: it slept. */
bool nvme_chan_post_ended(struct nvme_chan *ch, struct nvme_op *op);
/* The lane that runs @op. */
static inline struct nvme_lane *nvme_op_lane(struct nvme_op *op)
{
	return op->exec ? &op->chan->exec->lane : &op->chan->own;
}
/* Something may still end that nobody has collected. */
static inline bool nvme_chan_busy(const struct nvme_chan *ch)
{
	return ch->away || atomic_load_explicit(&ch->own.inflight, memory_order_relaxed) ||
	       atomic_load_explicit(&ch->own.queued, memory_order_relaxed);
}
/* An awake owner need not be signalled. True: it was armed. */
static inline bool nvme_chan_disarm(struct nvme_chan *ch)
{
	if (!atomic_load_explicit(ch->word, memory_order_relaxed))
		return false;
	atomic_store_explicit(ch->word, 0, memory_order_relaxed);
	return true;
}
/* What others handed over while the word was not set is there to collect, and nobody was told. */
static inline void nvme_chan_tell(struct nvme_chan *ch)
{
	if (unlikely(ch->ready || atomic_load_explicit(&ch->ended, memory_order_relaxed)))
		nvme_signal(ch->fd);
}
/* Ask to be woken, then reap what is there already. Own lane locked. */
void nvme_chan_arm_lane(struct nvme_chan *ch);
/* The same without the lock; if something ended meanwhile, the eventfd is signalled. */
void nvme_chan_arm(struct nvme_chan *ch);

/* What ugds_plan.h puts into the flags of an operation. */
#define NVME_SPIN_SAID (0xfffu << 16)
static inline int64_t nvme_spin_of(const struct nvme_ctrl *c, uint32_t flags)
{
	const uint32_t said = (flags & NVME_SPIN_SAID) >> 16;

	return likely(!said) ? c->p.spin_ns : (int64_t)min_u32(said - 1, 1000) * NSEC_PER_USEC;
}
static inline uint16_t nvme_chunk_flags(uint32_t flags)
{
	return (uint16_t)(flags >> 28 << NVME_OPF_CHUNK_SHIFT);
}

/* io.c: the calls of the hot path; see ugds.h */
enum nvme_mode nvme_chan_mode(struct nvme_chan *ch, uint32_t flags);
int64_t nvme_chan_rw(struct nvme_chan *ch, struct nvme_ns *ns, uint64_t map, uint64_t buf_off,
		     uint64_t nbytes, uint64_t offset, uint32_t op);
/* Up to @max ended operations: single ones, admin ones, batch handles. Give each back with nvme_chan_collected(). */
int nvme_chan_reap(struct nvme_chan *ch, struct nvme_op **out, uint32_t max);
/* The same for an owner that looks all the time: the eventfd is left alone, nothing is armed. */
uint32_t nvme_chan_poll(struct nvme_chan *ch, struct nvme_op **out, uint32_t max);
int nvme_chan_wait(struct nvme_chan *ch, struct nvme_op **out, uint32_t max, int64_t timeout_ns);
void nvme_chan_collected(struct nvme_chan *ch, struct nvme_op *op);
/* Take @op off the list of ended operations, if it is there. */
bool nvme_chan_take(struct nvme_chan *ch, const struct nvme_op *op);
int nvme_chan_cancel(struct nvme_chan *ch, uint64_t token, int64_t grace_ns);
void nvme_chan_deadline(struct nvme_chan *ch, uint64_t token, int64_t timeout_ns); /* 0: none */
static inline int64_t nvme_op_result(const struct nvme_op *op)
{
	return op->err ? op->err : (int64_t)op->done;
}

static inline bool nvme_opcode_has_data(uint32_t opcode)
{
	return opcode == NVME_IO_READ || opcode == NVME_IO_WRITE || opcode == NVME_IO_COMPARE;
}

/* batch.c; see ugds.h */
struct nvme_batch_req {
	uint64_t map, buf_off, nbytes, offset, cookie;
	uint32_t opcode;
	uint16_t flags; /* NVME_OPF_FUA, and those of its chunk */
	uint8_t flow; /* that of its class; the first request's is taken */
};
int nvme_batch_new(struct nvme_chan *ch, uint32_t cap, struct nvme_batch **ret);
int nvme_batch_free(struct nvme_batch *b);
/* What is submitted next is waited for in that manner; while something is in flight, as that is. */
int nvme_batch_mode(struct nvme_batch *b, enum nvme_mode mode);
/* @get(ctx, i) describes request i. */
typedef void nvme_batch_get(const void *ctx, uint32_t i, struct nvme_batch_req *ret);
int64_t nvme_batch_submit(struct nvme_batch *b, struct nvme_ns *ns, nvme_batch_get *get, const void *ctx,
			  uint32_t n, uint32_t *ret_bad);
int64_t nvme_batch_submit_array(struct nvme_batch *b, struct nvme_ns *ns, uint32_t opcode, uint16_t flags,
				uint8_t flow, uint64_t map, const int64_t *offsets,
				const int64_t *buf_offsets, uint64_t nbytes, uint32_t n, uint64_t cookie0,
				uint32_t *ret_bad);
int nvme_batch_notify(struct nvme_batch *b, uint32_t n);
void nvme_batch_deadline(struct nvme_batch *b, int64_t timeout_ns); /* 0: none */
int nvme_batch_cancel(struct nvme_batch *b, int64_t grace_ns);
/* The next ended item, or NULL. Read it, then release it. */
struct nvme_op *nvme_batch_next(struct nvme_batch *b);
void nvme_batch_release(struct nvme_batch *b, struct nvme_op *op);
/* Take and release @n ended items, all of which succeeded; returns the bytes they moved. */
int64_t nvme_batch_take_ok(struct nvme_batch *b, uint32_t n);
/* Submitted and not harvested. */
static inline uint32_t nvme_batch_pending(const struct nvme_batch *b)
{
	return b->cap - b->free_n - b->nr_held;
}
static inline uint32_t nvme_batch_ready(struct nvme_batch *b)
{
	return atomic_load_explicit(&b->ring_tail, memory_order_acquire) - b->ring_head;
}

/* exec.c: the executor, made on first use. */
int nvme_exec_get(struct nvme_ctrl *c, struct nvme_exec **ret);
void nvme_exec_post(struct nvme_exec *x, struct nvme_op *first, struct nvme_op *last);
/* Put what was posted onto the lane. */
void nvme_exec_drain(struct nvme_exec *x);
void nvme_exec_free(struct nvme_exec *x);
/* Its poller's thread: a turn, true if there was something to do, *@woke: somebody slept who was told of it; is there something; shall it be woken? */
bool nvme_exec_turn(struct nvme_exec *x, bool *woke);
bool nvme_exec_peek(struct nvme_exec *x);
void nvme_exec_arm(struct nvme_exec *x, bool on);

#endif
