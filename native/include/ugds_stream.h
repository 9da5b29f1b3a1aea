/* SPDX-License-Identifier: MIT */
/*
 * Transfers in the order of a GPU stream. The stream writes a word when it comes to one ("go"), the controller's native
 * executor moves the data, and the stream waits for the word that it writes then ("done"). Also read by cffi.
 */
#ifndef UGDS_STREAM_H
#define UGDS_STREAM_H

#include "include/ugds_gpu.h"

struct ugds_stream; /* one per GPU stream and controller */
struct ugds_sink; /* one per event loop or waiting thread: where ends are told */

#define UGDS_SOP_WAITING 0 /* the stream has not come to it */
#define UGDS_SOP_RUNNING 1
#define UGDS_SOP_DONE 2
#define UGDS_SOP_CANCELLED 3 /* withdrawn before the stream came to it */
#define UGDS_SOP_FAILED 4
#define UGDS_SOP_STALLED 5 /* failed; the stream waits for ugds_stream_resume() or ugds_stream_fail() */

#define UGDS_SOP_STALL 0x1 /* on_error="stall" */
#define UGDS_SOP_CALLBACK 0x2 /* order="callback": a host function of the runtime instead of the words */
#define UGDS_SOP_KEEP 0x4 /* staged: what a read does not fill keeps what it held, for one more copy */

struct ugds_stream_params {
	uint32_t vendor;
	int32_t device;
	uint64_t ctx; /* 0: the device's primary one */
	uint64_t stream; /* raw handle; the default streams too */
	uint64_t chunk_bytes; /* of the staging ring; 0: 2 MiB */
	uint32_t slots; /* chunks that it holds; 0: 2, and 8 once a large operation found the stream idle */
	uint32_t connections; /* CUDA_DEVICE_MAX_CONNECTIONS; 0: 8 */
	uint32_t max_waiting; /* operations; 0: 4096 */
	uint32_t max_chunks; /* of one operation; 0: 4096 */
	uint64_t spin_ns; /* how long the executor looks for a word before it naps; 0: 100 us */
};

/* One transfer of an operation. */
struct ugds_stream_item {
	uint64_t map; /* the registration's mapping on this controller */
	uint64_t buf_off;
	uint64_t nbytes; /* with nbytes_cell: the most */
	uint64_t offset;
	uint64_t gpu_addr; /* of byte buf_off; 0: host memory */
	/* UGDS_OP_READ or _WRITE; UGDS_F_FUA, its class and what ugds_plan.h has. How the operation is waited for says the
	 * first item's: UGDS_F_POLL all the time, UGDS_F_NOSPIN asleep, neither: awake for a while, then asleep. */
	uint64_t op;
	const uint64_t
		*offset_cell; /* in pinned host memory, read when the stream has come to it; NULL: not */
	const uint64_t *nbytes_cell;
};

/* In pinned host memory: written before the stream may pass, so the next kernel can read it. */
struct ugds_stream_cell {
	uint32_t state; /* UGDS_SOP_DONE, _CANCELLED or _FAILED */
	int32_t error; /* negative errno */
	uint64_t nbytes; /* done */
};

struct ugds_stream_how {
	uint32_t flags; /* UGDS_SOP_* */
	uint32_t nr_after;
	const uint64_t *after; /* events that it comes behind */
	uint64_t timeout_ns; /* from go; 0: none */
	struct ugds_stream_cell *cell; /* NULL: none */
};

struct ugds_stream_started {
	uint64_t token;
	uint64_t event; /* recorded behind it; its own until ugds_stream_release() */
	uint32_t item; /* that was refused */
	int32_t gpu_code; /* the runtime's error, if that is why */
};

struct ugds_stream_result {
	uint64_t token;
	int64_t result; /* bytes, or a negative errno */
	uint64_t status; /* as struct ugds_completion.status, of the first command that failed */
	uint64_t done; /* bytes */
	uint64_t offset, nbytes; /* of that item, as its cells had them when they were read */
	uint32_t state; /* UGDS_SOP_*; of an event: UGDS_SOP_DONE or _FAILED */
	uint32_t item; /* the first that failed */
	int32_t gpu_code;
	uint32_t over; /* 0: the stream has not passed, or the device may still touch the memory */
};

struct ugds_stream_info {
	uint32_t staged; /* 1: through the staging ring and copies of the stream; 0: the device's own DMA */
	uint32_t slots;
	uint64_t chunk_bytes;
	uint32_t waiting; /* operations that are not over */
	uint32_t held; /* operations that were not released */
	uint32_t spare; /* staging rings that no stream of the controller uses now */
	uint64_t operations;
	uint64_t chunks;
	uint64_t gpu_calls; /* of the runtime, while enqueueing */
};

/*
 * -ENXIO: the runtime is not loaded; -EOPNOTSUPP with words: the device cannot order so. Made for the first time it starts
 * the controller's executor. Any thread.
 */
int ugds_stream_open(struct ugds_ctrl *c, const struct ugds_stream_params *p, struct ugds_stream **ret,
		     struct ugds_error *err);
/*
 * -EBUSY while operations are not over; those that stall are failed first. @force: what has not ended fails with -ESHUTDOWN,
 * the stream passes all of it, and -EBUSY comes only while it has not (ask again).
 */
int ugds_stream_close(struct ugds_stream *s, int force);
/* After that, when nobody can call with @s any more: its events go. */
void ugds_stream_free(struct ugds_stream *s);
int ugds_stream_info(struct ugds_stream *s, struct ugds_stream_info *ret);

/*
 * Enqueue one operation: all of @items, in no order among themselves. What is refused is refused before anything is enqueued,
 * except for errors of the runtime itself (ret->gpu_code): with ret->token the stream was given some of it already, which moves
 * nothing; its memory and cells stay in use until it is over. Never waits for the stream.
 *   errors of ugds_rw(); -EIDRM: the handle is that of another stream now, and some of the old one's is not over: open the new
 *   one beside it; -EPERM: the stream is capturing a graph; -EOPNOTSUPP: cannot be ordered that way; -ENOBUFS: with it, all
 *   connections but one could stall; -EAGAIN: too many operations wait; -E2BIG: more chunks than an operation may have;
 *   -ENOMEM, -EIO, -ENODEV, -EINVAL with ret->gpu_code.
 */
int ugds_stream_enqueue(struct ugds_stream *s, struct ugds_ns *ns, const struct ugds_stream_item *items,
			uint32_t n, const struct ugds_stream_how *how, struct ugds_stream_started *ret,
			struct ugds_error *err);
/* The same for one plain transfer. 1: all but its copy has ended well; nothing tells of that, who asks finds out. */
int ugds_stream_rw(struct ugds_stream *s, struct ugds_ns *ns, uint64_t map, uint64_t buf_off, uint64_t nbytes,
		   uint64_t offset, uint64_t gpu_addr, uint64_t op, struct ugds_stream_started *ret);
/* How it is. -ENOENT: released. */
int ugds_stream_state(struct ugds_stream *s, uint64_t token, struct ugds_stream_result *ret);
/* 1: withdrawn; 0: too late, or unknown. */
int ugds_stream_cancel(struct ugds_stream *s, uint64_t token);
/* A stalled one: try again what failed, or let the stream pass. 1, or 0: it does not stall. */
int ugds_stream_resume(struct ugds_stream *s, uint64_t token);
int ugds_stream_fail(struct ugds_stream *s, uint64_t token);
/* Nobody will decide any more: if it stalls, now or later, it fails. Any thread; waits for nothing. */
void ugds_stream_leave(struct ugds_stream *s, uint64_t token);
/* Its result and event are wanted no more. */
void ugds_stream_release(struct ugds_stream *s, uint64_t token);
/* Release the first of @tokens, as long as they are over and went well: how many. */
uint32_t ugds_stream_reap(struct ugds_stream *s, const uint64_t *tokens, uint32_t n);

/* @c NULL: for GPU events only, with a thread of its own. */
int ugds_sink_open(struct ugds_ctrl *c, struct ugds_sink **ret);
int ugds_sink_fd(struct ugds_sink *k); /* an eventfd */
/* Drains the eventfd; what is told later signals it again. */
int ugds_sink_reap(struct ugds_sink *k, struct ugds_stream_result *out, uint32_t max);
/*
 * Wait for what will be over in some microseconds, if @token is such: a small transfer that was begun at once. At most as
 * long as ugds_open_params.spin_ns. 1: there is something to reap. The sink's own thread.
 */
int ugds_sink_spin(struct ugds_sink *k, struct ugds_stream *s, uint64_t token);
/* What it was to be told is forgotten. Nothing writes to the fd any more. */
void ugds_sink_close(struct ugds_sink *k);
/*
 * Tell @k once: when the operation ends for its user (which is when it is over, or earlier when it was withdrawn or timed
 * out) or stalls; at once if it has. Any number of sinks, any number of times. @lazily: nobody waits; what
 * ugds_stream_rw() answered 1 for is found out within some 10 ms then, and else at once. -ENOENT: released.
 */
int ugds_stream_watch(struct ugds_stream *s, uint64_t token, struct ugds_sink *k, int lazily);
/* Tell @k once all the work before @event is over. 1: it is already, and nothing will be told. -EIO with *ret_code. */
int ugds_sink_event(struct ugds_sink *k, uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event,
		    uint64_t *ret_token, int *ret_code);
void ugds_sink_event_drop(struct ugds_sink *k, uint64_t token);

#endif
