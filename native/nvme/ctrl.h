/* SPDX-License-Identifier: MIT */
/* The controller object: what bring-up learnt, the queue pairs, and who owns what. */
#ifndef NVME_CTRL_H
#define NVME_CTRL_H

#include <pthread.h>
#include <stdatomic.h>

#include "mem/registration.h"
#include "nvme/ctrl_ops.h"
#include "nvme/qpair_ops.h"
#include "nvme/sched.h"

struct nvme_lane;
struct nvme_chan;
struct nvme_exec;
struct nvme_pollers;
struct nvme_tallies;

/* A link of a circular list; next == NULL: on no list. */
struct nvme_link {
	struct nvme_link *next, *prev;
};

#define NVME_MAX_QPAIRS 128
#define NVME_EVENTS 64

enum nvme_state { NVME_LIVE, NVME_RESETTING, NVME_WEDGED, NVME_REMOVED, NVME_CLOSED };

struct nvme_open_params {
	bool readonly;
	bool no_shadow;
	bool no_hugepage;
	bool wrr;
	bool no_tallies;
	bool wrr_auto; /* where it is offered */
	bool segment; /* the tallies are kept in segment_fd */
	int segment_fd;
	uint32_t io_queues;
	uint32_t batch_queues;
	uint32_t depth;
	uint32_t batch_depth;
	uint32_t max_transfer;
	uint32_t vectors;
	uint32_t qprio;
	uint32_t arb_burst;
	uint32_t wrr_weights;
	uint32_t retries;
	uint32_t coalesce; /* dword 11 of Interrupt Coalescing; 0: none */
	struct nvme_pollers *pollers; /* NULL: one of its own, when it is needed */
	bool fifo; /* neither classes nor chunks */
	uint32_t chunk; /* of heavy work beside work in a hurry, and of the background class always */
	uint64_t bulk_bytes; /* at the device, of the normal class */
	uint64_t background_bytes;
	int64_t spin_ns;
	int64_t hang_io_ns;
	int64_t hang_admin_ns;
	int64_t cancel_grace_ns;
};

/* A failure in words; filled by bring-up. */
struct nvme_err {
	int err;
	uint16_t status;
	char text[368];
};
__attribute__((format(printf, 4, 5))) int nvme_err_set(struct nvme_err *e, int err, uint16_t status,
						       const char *fmt, ...);

/* A namespace as identified. Size and state follow the device (housekeeping looks again when it reports a
 * change); the format does not: another format makes it unusable. */
struct nvme_nsdata {
	uint32_t nsid;
	uint32_t lba_shift;
	uint32_t metadata;
	uint32_t nawupf;
	_Atomic uint64_t nblocks;
	_Atomic bool readonly;
	_Atomic bool usable;
	_Atomic bool active; /* attached, in whatever format */
};

/* A window of a namespace: what an operation is checked against. Counted by operations in flight. */
struct nvme_ns {
	struct nvme_ctrl *ctrl;
	uint32_t nsid;
	uint32_t lba_shift;
	uint32_t max_bytes; /* a command's data, whole blocks */
	bool readonly;
	_Atomic bool gone; /* detached, or formatted otherwise */
	uint64_t base; /* bytes */
	_Atomic uint64_t nbytes; /* follows the namespace's size */
	_Atomic uint32_t ref; /* operations and batches in flight */
	uint64_t want; /* bytes asked for, 0: to the end */
	const struct nvme_nsdata *data;
	struct nvme_ns *next; /* ctrl->windows */
};

/* An admin command on its way through the housekeeping thread. The submitter fills it with refs = 1 (its
 * own; put when it is done with it); nvme_admin_queue() takes another one for the time until the device is
 * done with it. */
struct nvme_admin_req {
	struct nvme_admin_req *next;
	struct nvme_sqe sqe;
	void *data; /* own copy, malloc()ed */
	uint32_t nbytes;
	bool to_device;
	uint16_t status;
	uint32_t dw0;
	int err;
	/* Called once, by the admin queue's owner. */
	void (*done)(struct nvme_admin_req *req);
	void *arg;
	uint64_t token;
	int slot; /* data page run in use, -1: none */
	int64_t sent_ns;
	bool ended; /* done() was called; the command itself may still be at the device */
	_Atomic int refs;
};

/* A lease of a queue pair. */
struct nvme_qslot {
	struct nvme_qpair *qp;
	struct nvme_lane *_Atomic lane; /* who leases it, NULL: free; taken by compare-and-swap */
};

struct nvme_ctrl {
	const struct nvme_ctrl_ops *ops;
	void *t;
	struct nvme_open_params p;
	_Atomic uint32_t state; /* enum nvme_state; the hot path loads it once a call */
	_Atomic int64_t state_since;
	char reason[128]; /* under admin_lock; nvme_ctrl_reason() copies it */

	/* learnt at bring-up, constant while LIVE */
	uint64_t cap;
	uint32_t vs;
	uint32_t page_shift; /* CC.MPS */
	uint32_t mdts_bytes; /* 0: none */
	uint32_t max_transfer;
	uint32_t oncs;
	uint32_t oacs;
	uint32_t vwc;
	uint32_t acl;
	uint32_t aerl;
	uint32_t awupf;
	uint32_t vid;
	uint32_t nn;
	uint32_t tr_flags; /* NVME_TR_* */
	uint32_t oaes;
	uint16_t crdt
		[3]; /* command retry delays, units of 100 ms; 0 unless the controller applies them for us */
	uint32_t rtd3e_us; /* shutdown latency the controller declares */
	bool enabled; /* CC.EN is set, by us */
	bool identified;
	bool shadow;
	bool wrr;
	bool huge;
	uint32_t coalesced; /* of that, in force */
	uint32_t nr_coalesced; /* pairs that it is in force for */
	uint16_t coalesce_status; /* with which it was refused */
	/* bytes of a read that the device can serve on the caller's thread, 0: none; set by the API layer */
	uint32_t step_most;
	uint32_t nr_vectors;
	char serial[21];
	char model[41];
	char firmware[9];
	struct nvme_nsdata
		*ns; /* never moves once there are windows; housekeeping adds what is attached later */
	_Atomic uint32_t nr_ns;
	uint32_t max_ns; /* entries that it has room for */
	pthread_mutex_t ns_lock; /* a leaf: the windows, and their fitting to a new size */
	struct nvme_ns *windows;
	int64_t open_ns;
	int64_t wake_ns;

	struct mem_table mem;
	struct nvme_sched sched;

	/* queue pairs: [0, nr_qpairs) I/O; the last one is the executor's. Leases under lock. */
	struct nvme_qpair *admin;
	struct nvme_admin *adm; /* private to admin.c */
	struct nvme_qslot q[NVME_MAX_QPAIRS];
	uint32_t nr_qpairs;
	uint32_t nr_batch;
	uint32_t nr_class; /* pairs for either class that the controller arbitrates */
	struct nvme_exec *exec; /* made when first needed, under lock */

	pthread_mutex_t lock; /* leases, channels, lists below; never on the I/O path */
	struct nvme_chan *chans; /* all channels, linked by ->next */
	uint32_t nr_chans;
	_Atomic uint32_t nr_ns_open;

	/* housekeeping */
	pthread_t hk_thread;
	bool hk_running;
	bool cut; /* the transport cut DMA, and what was outstanding is forgotten: until a reset */
	_Atomic bool revoked; /* it did so because memory was taken away */
	bool retired_live; /* it was live when it was closed: what it is to be told can be told */
	int hk_fd; /* eventfd: admin CQ interrupts, requests, deadlines moved closer */
	_Atomic uint32_t *hk_word; /* wake-up word of the admin vector: hk_own_word, or the transport's */
	_Atomic uint32_t hk_own_word;
	_Atomic bool hk_stop;
	uint64_t hk_binding;
	_Atomic int64_t hk_next; /* earliest deadline anybody asked for; INT64_MAX: none */
	pthread_mutex_t admin_lock; /* the request list only */
	struct nvme_admin_req *admin_head, *admin_tail;
	struct nvme_hk *hk; /* private to housekeeping */
	int event_fd;
	uint32_t events[NVME_EVENTS]; /* under lock: a ring of AER results */
	uint32_t events_head, events_tail;

	/* counters that are not a lane's */
	_Atomic uint64_t nr_stragglers, nr_timeouts, nr_cancels, nr_aborts, nr_resets, nr_dropped, nr_adopted;
	_Atomic uint32_t nr_quarantined;
	pthread_mutex_t stray_lock;
	struct nvme_link strays; /* struct nvme_link: operations whose memory the device may touch */
	struct nvme_tallies *tallies; /* of the queue pairs; NULL: none are kept */
	struct nvme_lane_stats *gone; /* sums of freed lanes, under lock */
};

/* ctrl.c: bring the controller up over @ops/@t (owned from here on, also on failure). */
int nvme_ctrl_open(const struct nvme_ctrl_ops *ops, void *t, const struct nvme_open_params *p,
		   struct nvme_ctrl **ret, struct nvme_err *err);
/* -EBUSY while channels, operations, namespaces or a quarantine exist (@force: quarantine is ignored). */
int nvme_ctrl_close(struct nvme_ctrl *c, bool force);
/* The two halves of it: refuse everything from now on; then, when nobody is inside a call any more, free it. */
int nvme_ctrl_retire(struct nvme_ctrl *c, bool force);
void nvme_ctrl_end(struct nvme_ctrl *c);
void nvme_ctrl_fork_child(struct nvme_ctrl *c); /* forked.c */
int nvme_ctrl_reset(struct nvme_ctrl *c, struct nvme_err *err); /* recovery.c */
/* state.c. Refuse new work from now on. First reason wins; the event fd is signalled at once, every
 * channel by the housekeeping thread. Takes admin_lock only: callable with any other lock held. */
void nvme_ctrl_fail(struct nvme_ctrl *c, enum nvme_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* -errno for the state, 0 while LIVE. */
int nvme_ctrl_check(struct nvme_ctrl *c);
/* The same for the hot path. A reset may end between the two looks: then 0, and the caller goes on. */
static inline int nvme_ctrl_may(struct nvme_ctrl *c)
{
	if (likely(atomic_load_explicit(&c->state, memory_order_acquire) == NVME_LIVE))
		return 0;
	return nvme_ctrl_check(c);
}
/* Memory was taken away from under the device. */
void nvme_ctrl_revoked(struct nvme_ctrl *c);
void nvme_ctrl_set_state(struct nvme_ctrl *c, enum nvme_state state, const char *reason);
/* Copies the reason for the state ("" while LIVE). */
void nvme_ctrl_reason(struct nvme_ctrl *c, char *buf, size_t nbytes);
/* Keep an asynchronous event for the user and signal the event fd. */
void nvme_ctrl_event(struct nvme_ctrl *c, uint32_t dw0);
/* Take up to @max of them. */
uint32_t nvme_ctrl_events(struct nvme_ctrl *c, uint32_t *out, uint32_t max);
const struct nvme_nsdata *nvme_ctrl_ns(struct nvme_ctrl *c, uint32_t nsid);

/* enable.c: CC and CSTS. */
int nvme_ctrl_disable(struct nvme_ctrl *c, struct nvme_err *err);
int nvme_ctrl_enable(struct nvme_ctrl *c, struct nvme_err *err);
/* Disable it, by a reset of the function if nothing else helps. */
int nvme_ctrl_halt(struct nvme_ctrl *c, struct nvme_err *err);
/* While it is disabled: let it reach memory. */
int nvme_ctrl_start_dma(struct nvme_ctrl *c, struct nvme_err *err);
int nvme_ctrl_shutdown(struct nvme_ctrl *c);

/* identify.c. The first time it fills the namespace list; after a reset it checks and refreshes it. */
int nvme_ctrl_identify(struct nvme_ctrl *c, struct nvme_err *err);

/* setup.c */
int nvme_ctrl_set_feature(struct nvme_ctrl *c, uint32_t fid, uint32_t dw11, uint32_t *ret_dw0,
			  uint16_t *ret_status);
/* From a disabled controller to one that is ready for I/O queue pairs: admin pair, enable, identify,
 * features. */
int nvme_ctrl_start(struct nvme_ctrl *c, struct nvme_err *err);
/* Make the I/O pairs (host memory only). */
int nvme_ctrl_make_pairs(struct nvme_ctrl *c, struct nvme_err *err);
/* coalesce.c. All pairs are connected: ask that interrupts of deep ones are coalesced, if that is wanted. */
int nvme_ctrl_coalesce(struct nvme_ctrl *c, struct nvme_err *err);
/* Make the controller know pair @i. */
int nvme_ctrl_connect_pair(struct nvme_ctrl *c, uint32_t i, struct nvme_err *err);

/* admin.c: send one admin command and wait for it, polling finely. Only the admin queue's owner (bring-up
 * before housekeeping runs, then the housekeeping thread). @sqe's PRPs are used as they are when @nbytes
 * is 0. -EIO with *ret_status set when the controller says no, -ETIMEDOUT, -ENODEV when it is gone. */
int nvme_admin_sync(struct nvme_ctrl *c, struct nvme_sqe *sqe, void *data, uint32_t nbytes, bool to_device,
		    uint32_t *ret_dw0, uint16_t *ret_status);
/* Hand a request to the housekeeping thread. -EPERM for commands that are the engine's own (queues,
 * events), -EROFS for those that change a controller opened read-only. */
int nvme_admin_queue(struct nvme_ctrl *c, struct nvme_admin_req *req);
void nvme_admin_req_put(struct nvme_admin_req *req);
int nvme_admin_init(struct nvme_ctrl *c); /* admin queue pair, data pages */
void nvme_admin_done(struct nvme_ctrl *c);

/* housekeeping.c */
int nvme_hk_start(struct nvme_ctrl *c);
void nvme_hk_stop(struct nvme_ctrl *c); /* joins */
/* Look no later than @when (monotonic). Cheap unless it is earlier than what is set. */
void nvme_hk_at(struct nvme_ctrl *c, int64_t when);
void nvme_hk_poke(struct nvme_ctrl *c);
/* Run @fn on the housekeeping thread and wait for it (reset). */
int nvme_hk_call(struct nvme_ctrl *c, int (*fn)(struct nvme_ctrl *c, void *arg), void *arg);
/* Housekeeping's thread only. Ask for an Abort of (qid, cid), best effort, at most ACL + 1 outstanding. */
void nvme_hk_abort(struct nvme_ctrl *c, uint16_t qid, uint16_t cid);
/* How many may be asked for now on behalf of what was cancelled: as many as can be sent at once, and one such round
 * in a while, so that a thousand operations given up together are no storm. */
uint32_t nvme_hk_abort_room(struct nvme_ctrl *c, int64_t now);

#endif
