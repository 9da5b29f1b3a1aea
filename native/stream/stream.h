/* SPDX-License-Identifier: MIT */
/*
 * Transfers in the order of a GPU stream. What is enqueued into the stream for a chunk of an operation:
 *
 *   [copies out] write go  |  wait for done  [copies in]  write passed
 *
 * where go is left out of chunks that the executor reads ahead anyway.
 * The chunks of a stream are numbered; each word holds the number of the last chunk that got so far, so one word of a
 * kind serves all of them and a later number lets earlier ones pass. Copies are there where the transport stages: they
 * are the stream's own, because a copy on another stream may never start while waiting streams hold the hardware's
 * connections. An operation at a time is between go and its end, so little has to be remembered of each stream.
 */
#ifndef STREAM_STREAM_H
#define STREAM_STREAM_H

#include <semaphore.h>

#include "gpu/gpu.h"
#include "nvme/chan.h"

#define STREAM_SLOTS 16 /* most chunks of a staging ring */
#define STREAM_SOON (32u << 10) /* bytes of a transfer that is over sooner than it is waited for */
#define STREAM_LAZY_NEWS 10 /* looks in vain at quiet operations before the asker sleeps */
#define STREAM_OP_SEG 64
#define STREAM_OP_SEGS 1024

enum stream_state {
	STREAM_WAITING,
	STREAM_RUNNING,
	STREAM_DONE,
	STREAM_CANCELLED,
	STREAM_FAILED,
	STREAM_STALLED
};
enum stream_flag { STREAM_STALL = 0x1, STREAM_CALLBACK = 0x2, STREAM_KEEP = 0x4 };
/* How an operation is waited for: as long as it seems worth it, not at all, or all the time. */
enum stream_eager { STREAM_ADAPTIVE, STREAM_SLEEPS, STREAM_SPINS };
enum stream_verdict { STREAM_UNDECIDED, STREAM_RESUME, STREAM_FAIL };

struct stream;
struct stream_exec;
struct stream_ring;
struct stream_sink;

struct stream_params {
	struct gpu_place place;
	uint64_t stream;
	uint64_t chunk;
	uint32_t slots;
	uint32_t connections;
	uint32_t max_waiting;
	uint32_t max_chunks;
	int64_t spin_ns;
};

struct stream_item {
	uint64_t map, buf_off, nbytes, offset, gpu_addr;
	uint32_t opcode;
	uint32_t flags; /* of its class and chunk, and FUA, as of nvme_chan_rw() */
	const uint64_t *offset_cell, *nbytes_cell;
};
typedef void stream_get(const void *ctx, uint32_t i, struct stream_item *ret);

/* What the next kernel may read: ugds_stream_cell. */
struct stream_cell {
	uint32_t state;
	int32_t error;
	uint64_t nbytes;
};

struct stream_how {
	uint32_t flags;
	enum stream_eager eager;
	int64_t spin_ns; /* where it is adaptive: how long it is looked for; 0: as usual */
	const uint64_t *after;
	uint32_t nr_after;
	int64_t timeout_ns;
	struct stream_cell *cell;
};

struct stream_started {
	uint64_t token, event;
	uint32_t item;
	int gpu_code;
	bool quiet; /* all but its copy is over, and nobody is told when that is */
};

struct stream_result {
	uint64_t token;
	int64_t result;
	uint64_t status;
	uint64_t done;
	uint64_t offset, nbytes;
	uint32_t state;
	uint32_t item;
	int32_t gpu_code;
	uint32_t over;
};

/* An item as the operation keeps it. */
struct stream_part {
	struct mem_map *map;
	struct stream_item is;
	bool staged;
	uint64_t at, length; /* offset and bytes in force, known after go */
};

/* What is in the slot before go: a write's bytes, or the target's own, where a read may not fill it. */
static inline bool stream_copied_out(const struct stream_part *p, uint32_t flags)
{
	return p->staged && (p->is.opcode == NVME_IO_WRITE || p->is.offset_cell || p->is.nbytes_cell ||
			     flags & STREAM_KEEP);
}

static inline bool stream_copied_in(const struct stream_part *p)
{
	return p->staged && p->is.opcode == NVME_IO_READ;
}

/* A place in an operation's items, and a stretch of one of them. */
struct stream_cursor {
	uint32_t part;
	uint64_t off;
};

struct stream_seg {
	uint32_t part;
	uint64_t off; /* in the item */
	uint64_t nbytes;
	uint64_t stage; /* in the chunk's slot */
};

struct stream_op {
	struct stream *s;
	uint32_t slot;
	uint32_t gen; /* under x->lock; odd: in use */
	_Atomic uint32_t state; /* withdrawing and beginning it exclude each other here */
	/* filled by whoever enqueues, before it is published */
	struct nvme_ns *ns;
	struct stream_part one, *parts;
	uint32_t nr_parts, cap_parts;
	uint32_t first, last; /* its chunks */
	uint32_t flags;
	enum stream_eager eager;
	int64_t spin_ns;
	int64_t timeout_ns;
	struct stream_cell *cell;
	bool heads, tails; /* copies before go, after done */
	bool here; /* the stream had come to it when it was enqueued, */
	bool early; /* and it was over before the stream was told of it */
	_Atomic bool quiet; /* and no word is written behind its copies */
	bool bare; /* some of the latter without the former: what is not read must be blanked */
	uint64_t event;
	bool has_event;
	/* A call of the runtime failed halfway: its code. Passed was enqueued after all; a go was. */
	_Atomic int broken;
	bool ends, gone;
	/* the executor's */
	int err;
	uint32_t bad;
	uint64_t status, done;
	int gpu_code;
	int64_t deadline; /* INT64_MAX: none */
	bool blanking; /* it failed for good: the rest of it is zeros */
	bool lost; /* the GPU context is: nothing more will come of the stream */
	bool passing; /* done was written: the stream may pass all of it */
	/* under x->lock */
	uint32_t verdict;
	bool left; /* nobody is there who could decide: it does not stall */
	bool told; /* that it ended, for its user */
	bool settled; /* its cell was written */
	bool over, released;
	struct stream_result res;
	struct stream_watch *watches;
	struct stream_op *next_free;
};

/* A chunk that the device works on. */
struct stream_run {
	struct stream *s;
	struct stream_cursor from;
	uint32_t inflight;
	bool failed;
	uint64_t bytes;
};

struct stream_call { /* the argument of a host function */
	struct stream *s;
	uint32_t seq;
};

struct stream {
	struct stream_exec *x;
	const struct gpu_rt *rt;
	struct gpu_place place;
	uint64_t handle; /* the runtime's */
	uint64_t unique; /* its id there; 0: it has none */
	uint32_t id;
	bool staged, by_callback;
	bool alone; /* when it is idle, all that it comes behind is over */
	bool wait_flushes,
		must_flush; /* so that the GPU sees what the SSD wrote: in the wait, or before done */
	uint64_t chunk;
	uint32_t slots, max_chunks, connections;
	bool may_grow; /* its ring is the small one */
	struct gpu_word go, done, passed;
	uint8_t *stage;
	uint64_t stage_map;
	struct stream_ring *ring; /* where these come from */
	/* Serialises those who enqueue; held over calls of the runtime: no callback takes it. */
	pthread_mutex_t enq;
	uint32_t next_seq;
	bool closed;
	bool stuck; /* closed with its controller, while the GPU has not passed all of it */
	_Atomic uint32_t known; /* what it has passed at least, as others than itself found out */
	struct stream_op *_Atomic newest; /* the last one enqueued, for its event */
	_Atomic int sick; /* the runtime's code for it: its context is lost */
	struct stream_call *calls;
	sem_t called; /* host functions wait for done */
	uint64_t nr_ops, nr_chunks, gpu_calls;

	/* operations in order: those who enqueue add, the executor takes */
	struct stream_op **fifo;
	uint32_t fifo_mask, max_waiting;
	_Atomic uint32_t fifo_tail, fifo_head;
	_Atomic bool active; /* on the executor's list, or on its way there */
	_Atomic bool abandoned; /* forced close: all fails, and the stream passes it */

	/* the executor's */
	struct stream *next_active;
	struct stream_op *cur;
	struct stream_cursor cursor;
	uint32_t next, good; /* the next chunk to start; all up to this one are done */
	uint32_t inflight;
	enum stream_eager was_eager;
	int64_t was_spin_ns;
	struct stream_run run[STREAM_SLOTS];

	/* under x->lock */
	struct stream *next_all;
	struct stream_op *seg[STREAM_OP_SEGS];
	uint32_t nr_op_segs;
	struct stream_op *free_ops;
	uint32_t nr_waiting, nr_held, nr_stall;
	/* the last operation whose copies nothing tells of: its token (0: there is none), last chunk and event */
	uint64_t quiet, quiet_event;
	uint32_t quiet_seq;
	bool urgent; /* somebody waits for it */
	uint32_t health_round; /* it was asked about in */
};

/* One thread per controller, which sleeps while nothing is outstanding. */
struct stream_exec {
	struct nvme_ctrl *c; /* NULL: GPU events only, or its controller is closed */
	struct nvme_chan *ch;
	pthread_mutex_t lock; /* a leaf: tables, watches, sinks; never over a call of a runtime */
	pthread_mutex_t life; /* starting and stopping the thread; before lock */
	pthread_mutex_t closing; /* closing streams, and keeping them from being freed; before all others */
	uint32_t refs; /* under lock: the owner, streams, sinks */
	bool ended; /* under life: its controller is closed */
	_Atomic bool running;
	pthread_t thread;
	uint32_t forks; /* when it was made */
	int fd;
	_Atomic uint32_t word; /* armed: the thread sleeps */
	_Atomic bool stop;
	_Atomic bool poked; /* there is something to look at since it last looked */
	_Atomic bool seat; /* taken by whoever turns streams: the thread, or for a moment one who enqueues */
	_Atomic uint32_t wanted; /* by those who enqueue: the thread lets them go first */
	struct stream *_Atomic incoming;
	struct stream *active;
	_Atomic int64_t spin_ns;
	int64_t patience_ns; /* of whoever waits most eagerly, 0: nobody does; its own, as the next */
	int64_t health_at;
	/* under lock */
	struct stream *all;
	struct stream_ring *spare;
	uint32_t next_id;
	struct stream_watch *free_watches;
	struct nvme_link events; /* struct stream_watch.at: GPU events that are waited for */
	_Atomic uint32_t nr_events;
	uint64_t next_event;
	/* asking runtimes, by another thread: under lock */
	pthread_t asker;
	_Atomic bool asker_runs;
	bool ask_stop;
	bool want_health;
	bool urgent; /* of some stream */
	uint32_t lazy; /* looks at quiet operations to come: 0: the asker may sleep */
	uint32_t health_round;
	bool asking; /* just now, without the lock: what it asks about stays */
	pthread_cond_t ask, asked;
};

static inline bool stream_reached(uint32_t word, uint32_t seq) { return (int32_t)(word - seq) >= 0; }

/* Words that a GPU writes or waits for: acquire and release order what travels with them. */
static inline uint32_t stream_word(const struct gpu_word *w)
{
	return atomic_load_explicit((_Atomic uint32_t *)w->host, memory_order_acquire);
}

static inline void stream_word_set(const struct gpu_word *w, uint32_t val)
{
	atomic_store_explicit((_Atomic uint32_t *)w->host, val, memory_order_release);
}

/* A small transfer that was begun when it was enqueued. */
static inline bool stream_is_soon(const struct stream_op *op)
{
	return op->here && op->first == op->last && op->nr_parts == 1 &&
	       op->parts[0].is.nbytes <= STREAM_SOON;
}

static inline uint64_t stream_token(const struct stream_op *op)
{
	return (uint64_t)op->s->id << 40 | (uint64_t)(op->gen & 0xfffff) << 20 | op->slot;
}

/* A forked child has neither the thread nor the GPU. */
bool stream_forked(const struct stream_exec *x);

/* walk.c: The next stretch of the chunk of which @*used bytes are taken. False: the chunk is complete. */
bool stream_walk(const struct stream *s, const struct stream_op *op, struct stream_cursor *at, uint64_t *used,
		 struct stream_seg *ret);
uint32_t stream_count_chunks(const struct stream *s, const struct stream_op *op, uint32_t most);

/* executor.c */
int stream_exec_new(struct nvme_ctrl *c, struct stream_exec **ret);
int stream_exec_start(struct stream_exec *x); /* if it does not run */
/* End the thread, unless something is outstanding (-EBUSY). It starts again when it is needed. */
int stream_exec_park(struct stream_exec *x, bool force);
/* ask.c: a thread that asks GPU runtimes, which the executor must not wait for. */
int stream_ask_start(struct stream_exec *x);
void stream_ask_stop(struct stream_exec *x);
void stream_ask_health(struct stream_exec *x); /* streams let wait: are their GPUs well? */
void stream_until_asked(struct stream_exec *x); /* locked: nobody asks about what is taken off its list now */
void stream_asking(struct stream_exec *x, bool on); /* locked */
/* 0, GPU_NOT_READY or a code. */
int stream_ask_event(const struct gpu_rt *rt, const struct gpu_place *p, uint64_t event);

/* Before its controller is closed: park it, if all streams are idle (-EBUSY), which @force makes them. */
int stream_exec_quiet(struct stream_exec *x, bool force);
/* Its controller is closed: streams too. The owner's reference goes. */
void stream_exec_end(struct stream_exec *x);
void stream_exec_put(struct stream_exec *x);
void stream_exec_wake(struct stream_exec *x); /* something will come soon */
void stream_exec_poke(struct stream_exec *x); /* there is something to look at */
/* @s has something to do: @now, or when it has done what it is at. */
void stream_exec_add(struct stream_exec *x, struct stream *s, bool now);

/* seat.c */
void stream_seat_wait(struct stream_exec *x);
void stream_seat_leave(struct stream_exec *x);
void stream_turn_once(struct stream *s); /* the executor's turn at it, here; waits for the seat */
/* Is it over sooner than the stream could be told of it? */
bool stream_may_be_early(const struct stream *s, const struct stream_op *op);
/* The stream has come to @op, which was published, to nobody yet but this thread, which may do it. True: it is over. */
bool stream_drive(struct stream *s, struct stream_op *op);

/* learn.c: what the stream has passed, where it does not tell itself */
void stream_known(struct stream *s, uint32_t seq);
void stream_forget(struct stream *s); /* numbers begin again */
void stream_be_quiet(struct stream *s,
		     struct stream_op *op); /* its event is recorded, and no word behind it */
/* Ask about what is not known. True: it was found out, and the operation is over. Calls the runtime; no lock but enq and
 * closing held. */
bool stream_learn(struct stream *s);
void stream_learn_soon(struct stream *s); /* locked: the asker finds out */
/* The asker's: what somebody waits for, or @all. */
bool stream_learn_all(struct stream_exec *x, bool all);

/* run.c: the executor's turn at a stream. True: something went on. */
bool stream_turn(struct stream *s, int64_t now);
/* The executor may sleep: what @s waits for. */
enum stream_want { STREAM_WANTS_NOTHING, STREAM_WANTS_CQE, STREAM_WANTS_WORD };
enum stream_want stream_wants(const struct stream *s);
/* How eagerly its operation is waited for that is on, or next. */
enum stream_eager stream_eagerness(const struct stream *s);
/* How long the executor looks for it before it sleeps. */
int64_t stream_patience(const struct stream *s);
void stream_collect(struct stream_exec *x, struct nvme_op *op);
/* Under x->lock: whoever enqueues may still find that the stream was not given all of it. */
void stream_write_cell(const struct stream_op *op, uint32_t state, int err, uint64_t nbytes);

/* move.c: what a chunk moves */
void stream_read_cells(struct stream_op *op);
void stream_start_chunk(struct stream *s, struct stream_op *op);
/* In the place of that, for one that failed: what copies bring to the GPU is zeros. */
void stream_blank_chunk(struct stream *s, struct stream_op *op);

/* gate.c */
int stream_enqueue(struct stream *s, struct nvme_ns *ns, stream_get *get, const void *ctx, uint32_t n,
		   const struct stream_how *how, struct stream_started *ret, struct nvme_err *err);
int stream_push(struct stream *s, struct stream_op *op, const struct stream_how *how);

/* push.c: codes of the runtime. Everything between go and the event; passed by itself. */
int stream_push_all(struct stream *s, struct stream_op *op);
int stream_push_passed(struct stream *s, const struct stream_op *op);

/* stream.c */
int stream_open(struct stream_exec *x, const struct gpu_rt *rt, const struct stream_params *p,
		struct stream **ret, struct nvme_err *err);
int stream_close(struct stream *s, bool force);
/* x->closing held. */
int stream_close_locked(struct stream *s, bool force);
/* Room for more numbers: they begin again when the stream is idle. s->enq held. */
bool stream_rewind(struct stream *s);
/* A larger ring for the operation that is being enqueued, if nothing else is outstanding. s->enq held. */
void stream_grow(struct stream *s);
/* All that is not over fails, and the stream passes it. */
void stream_abandon(struct stream *s);
/* 0, or -EBUSY: not all of it is over and passed. */
int stream_idle(struct stream *s);
void stream_free(struct stream *s);

/* ring.c: words, and where the transport stages a staging ring. Those of closed streams are kept: freeing pinned memory
 * may wait for all the work of a GPU. */
int stream_ring_get(struct stream *s, struct nvme_err *err);
/* Nothing of it is at the device, and the stream has passed all that names it. */
void stream_ring_put(struct stream_exec *x, struct stream_ring *g);
/* A command that was given up may still touch it. */
bool stream_ring_busy(const struct stream *s);
void stream_rings_free(struct stream_exec *x);
/* Staging rings among those that are kept. x->lock held. */
uint32_t stream_rings_spare(const struct stream_exec *x);

/* ops.c: x->lock held where it says so */
struct stream_op *stream_op_get(struct stream *s);
void stream_op_put(struct stream *s, struct stream_op *op); /* locked */
struct stream_op *stream_op_find(struct stream *s, uint64_t token); /* locked */
void stream_op_drop_refs(struct stream_op *op);
int stream_state(struct stream *s, uint64_t token, struct stream_result *ret);
int stream_cancel(struct stream *s, uint64_t token);
int stream_decide(struct stream *s, uint64_t token, enum stream_verdict v);
void stream_leave(struct stream *s, uint64_t token);
void stream_release(struct stream *s, uint64_t token);
/* Release the first of @tokens, as long as they are over and went well: how many. */
uint32_t stream_reap(struct stream *s, const uint64_t *tokens, uint32_t n);
/* Could @s stall beside the others? -ENOBUFS. Its end takes it back. */
int stream_may_stall(struct stream *s);
void stream_no_stall(struct stream *s); /* locked */

/* sink.c */
int sink_open(struct stream_exec *x, struct stream_sink **ret);
int sink_fd(const struct stream_sink *k);
int sink_reap(struct stream_sink *k, struct stream_result *out, uint32_t max);
bool sink_spin(struct stream_sink *k, struct stream *s, uint64_t token);
void sink_close(struct stream_sink *k);
struct stream_exec *sink_exec(struct stream_sink *k);
/* @lazily: nobody waits for it, so that it may be found out some time. */
int sink_watch(struct stream *s, uint64_t token, struct stream_sink *k, bool lazily);
int sink_event(struct stream_sink *k, const struct gpu_rt *rt, const struct gpu_place *p, uint64_t event,
	       uint64_t *ret_token, int *ret_code);
void sink_event_drop(struct stream_sink *k, uint64_t token);
void sink_tell(struct stream_op *op); /* locked: all who watch it, op->res */
bool sink_poll_events(struct stream_exec *x); /* the asker's. True: one fired */
void sink_fail_events(struct stream_exec *x, int err);
void sink_free_watches(struct stream_exec *x);

#endif
