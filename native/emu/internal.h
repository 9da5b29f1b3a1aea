/* SPDX-License-Identifier: MIT */
/*
 * The controller's insides. Lock order: admin_lock, sq->lock, aer_lock, cq->lock, wait_lock; the others are
 * leaves. Queues live in arrays and are never freed, so a late look at a deleted one is harmless.
 */
#ifndef EMU_INTERNAL_H
#define EMU_INTERNAL_H

#include <sys/uio.h>

#include "emu/backing.h"
#include "emu/iommu.h"
#include "emu/irq.h"
#include "spec/nvme.h"

#define EMU_BATCH 32 /* commands that a thread takes at once */
#define EMU_IOV_MAX 1024
#define EMU_SCRATCH_BYTES 65536
#define EMU_AER_MAX 256
#define EMU_EVENTS 16
#define EMU_ERRLOG 64
#define EMU_PENDING_ABORTS 8
#define EMU_SPARE_SLOTS 8 /* for completions that the fault script adds */
#define EMU_DNR NVME_STATUS_DNR

/* Not statuses of the wire: only a device thread can serve it; its memory is far (far.h); that was begun. */
#define EMU_STATUS_AGAIN 0xffffu
#define EMU_STATUS_FAR 0xfffeu
#define EMU_STATUS_BEGUN 0xfffdu

enum emu_cmd_state { EMU_CMD_FREE, EMU_CMD_TIMED, EMU_CMD_HELD, EMU_CMD_DONE, EMU_CMD_FAR };
#define EMU_CMD_FAULTED 0x1u /* the fault script has seen it */
#define EMU_CMD_DELAYED 0x2u /* the latency model has seen it */
#define EMU_CMD_QUIET 0x4u /* its completion signals nobody */
#define EMU_CMD_ABORTED 0x8u /* the host asked before it was fetched */
#define EMU_CMD_TWICE 0x10u /* its completion is posted twice */
#define EMU_CMD_EXTRA 0x20u /* a completion that the fault script adds */
#define EMU_CMD_STUCK 0x40u /* its phase tag is the round's before */
#define EMU_CMD_SQHD 0x80u /* its SQHD is insane */

/* A command between fetch and completion. One that waits sits in a slot of its queue. */
struct emu_cmd {
	struct nvme_sqe sqe;
	struct emu_sq *sq;
	struct emu_cmd *next;
	struct emu_cmd *prev;
	int64_t due;
	uint32_t heap_pos;
	uint32_t state;
	uint32_t flags;
	int fault_id;
	uint32_t dw0;
	uint16_t status;
};

/* Each has one writer, or one lock: no read-modify-write. Kept before the completion is there: who saw it finds it
 * counted. */
struct emu_stats {
	_Atomic uint64_t commands;
	_Atomic uint64_t reads;
	_Atomic uint64_t writes;
	_Atomic uint64_t read_bytes;
	_Atomic uint64_t written_bytes;
};

struct emu_cq {
	struct emu_lock lock;
	_Atomic bool live;
	bool ien;
	uint16_t qid;
	uint16_t vector;
	uint32_t size;
	uint32_t tail;
	uint32_t head; /* the host's, as last seen */
	uint32_t phase;
	uint32_t bad_head;
	struct nvme_cqe *ring; /* NULL once the host unmapped it */
	struct emu_map *map;
	_Atomic uint32_t *db;
	struct emu_cmd *done_first; /* completions that found the queue full */
	struct emu_cmd *done_last;
	_Atomic uint32_t nr_done;
	uint32_t nr_sqs; /* admin_lock */
	_Atomic uint64_t db_seen;
} __attribute__((aligned(CACHELINE)));

struct emu_sq {
	struct emu_lock lock; /* fetching; a stepper holds it while it serves */
	_Atomic bool live;
	_Atomic bool handoff; /* the next command is for the device threads */
	_Atomic bool broken; /* the host unmapped the ring of a live queue */
	_Atomic uint8_t prio;
	uint16_t qid;
	uint32_t size;
	uint32_t last_db;
	uint32_t nr_aborts;
	uint16_t aborts[EMU_PENDING_ABORTS]; /* command identifiers to abort when they are fetched */
	struct nvme_sqe *ring;
	struct emu_map *map;
	struct emu_cq *cq;
	_Atomic uint32_t *db;
	_Atomic uint32_t head;
	_Atomic uint32_t bad_tail;
	_Atomic uint32_t nr_slots;
	struct emu_cmd *slots;
	struct emu_cmd *free_slot; /* wait_lock */
	uint32_t pool; /* slots in all */
	_Atomic uint32_t waiting; /* slots in use */
	struct emu_gather *gather; /* a stepper's, once there was need; under the lock */
	struct emu_job *jobs; /* one for each slot, once there was need; wait_lock */
	struct emu_count busy __attribute__((aligned(CACHELINE))); /* fetched, and on some thread now */
	_Atomic uint64_t db_seen;
	struct emu_stats stepped; /* under the lock; kept over deletion and re-creation */
	struct emu_count far
		__attribute__((aligned(CACHELINE))); /* jobs that are not over; each is in a slot */
} __attribute__((aligned(CACHELINE)));

struct emu_hold {
	struct emu_map *map;
	uint32_t slot;
};

/* Whoever runs commands: a device thread, or a host thread for the length of one call. */
struct emu_actor {
	struct emu_ctrl *e;
	struct iovec *iov;
	uint32_t nr_iov;
	uint32_t max_iov;
	struct emu_hold *hold; /* mappings this actor is counted in on */
	uint32_t nr_hold;
	uint32_t max_hold;
	bool nowait; /* a stepper */
	bool faulted; /* an access missed the IOMMU */
	uint32_t signal_vector; /* of the completions posted since the last signal */
	bool signal_now; /* some of them are not to wait for others */
	uint32_t nr_signal;
	uint32_t nr_posted;
	struct emu_cq *kept_cq; /* locked for a whole run of commands that move no data */
	struct emu_stats *stats; /* where it counts what it ends; NULL: it has no I/O commands */
	uint8_t *scratch; /* EMU_SCRATCH_BYTES; NULL for a stepper */
	struct emu_gather *gather; /* copies to begin together; NULL: this actor begins none */
	struct emu_cmd *batch;
	uint32_t cursor; /* round robin: the queue served last */
	int64_t warm_until; /* a device thread with nothing to do looks around until then */
};

struct emu_fault_entry {
	struct emu_fault f;
	int id;
	uint64_t seen;
	int64_t hits;
	struct emu_fault_entry *next;
};

struct emu_worker {
	struct emu_stats served;
	struct emu_ctrl *e __attribute__((aligned(CACHELINE)));
	pthread_t thread;
	void *room; /* its buffers */
	struct emu_gather *gather;
	uint32_t index;
	bool started;
} __attribute__((aligned(CACHELINE)));

struct emu_ctrl {
	struct emu_params p;
	pid_t pid;
	struct emu_iommu io;
	struct emu_ns ns[EMU_MAX_NS];
	_Atomic uint32_t nr_ns; /* grows under admin_lock */
	bool readonly;
	bool nodata;
	bool step; /* nothing that is fixed at open speaks against stepping */
	bool modelled; /* a latency model */
	struct emu_power *power; /* NULL: it cannot be cut */
	uint32_t fetch_bytes; /* what a thread takes from a queue before others may help */

	/* registers */
	pthread_mutex_t reg_lock;
	uint64_t cap;
	_Atomic uint32_t cc;
	_Atomic uint32_t csts;
	uint32_t aqa;
	uint64_t asq;
	uint64_t acq;
	_Atomic uint32_t page_bytes; /* CC.MPS */
	_Atomic bool halted; /* nothing is fetched or posted */
	_Atomic bool removed;
	_Atomic int64_t ones_until; /* registers read all ones */
	void *doorbells;
	size_t doorbell_bytes;

	/* queues */
	struct emu_sq sq[EMU_MAX_QID + 1];
	struct emu_cq cq[EMU_MAX_QID + 1];
	_Atomic uint64_t live_sqs[EMU_MAX_QID / 64 + 1]; /* hints for scans */
	_Atomic uint32_t nr_done; /* completions that wait for room in their queue */
	_Atomic bool shadow;
	_Atomic uint64_t shadow_db; /* bus addresses */
	_Atomic uint64_t shadow_ev;

	/* admin */
	pthread_mutex_t admin_lock;
	uint32_t features[16];
	_Atomic bool write_cache; /* on: a write may complete before it is durable */
	uint32_t granted_sqs;
	uint32_t granted_cqs;
	uint32_t ns_changed; /* a bit for each, under aer_lock */
	bool acre; /* the host wants retry delays (Host Behavior Support) */
	pthread_mutex_t aer_lock;
	uint16_t aer_cid[EMU_AER_MAX];
	uint32_t nr_aer;
	uint32_t events[EMU_EVENTS];
	uint32_t nr_events;
	uint32_t masked_types; /* until their log page is read */
	_Atomic uint32_t event_bits; /* error events noticed under a lock, for a device thread to raise */
	struct emu_lock errlog_lock;
	struct nvme_error_log errlog[EMU_ERRLOG];
	uint64_t nr_errors;

	/* arbitration */
	_Atomic uint32_t arbitration; /* the feature, for the threads */
	struct emu_lock arb_lock;
	uint32_t credit[3];
	uint32_t arb_cursor;

	/* commands that wait: a heap by time, and a list of held ones */
	pthread_mutex_t wait_lock;
	struct emu_cmd **heap;
	uint32_t nr_heap;
	_Atomic uint32_t nr_timed; /* the same, for whoever holds no lock */
	uint32_t max_heap;
	struct emu_cmd *held;
	_Atomic int64_t next_due;
	int64_t *channel_free; /* when each channel of the latency model is next idle */
	uint64_t rng;

	/* faults */
	pthread_mutex_t fault_lock;
	struct emu_fault_entry *faults;
	int next_fault_id;
	_Atomic uint32_t nr_faults;
	_Atomic uint64_t hostile_rng;

	struct emu_irq irq;

	/* far memory: far.h */
	const struct emu_dma_ops *dma;
	void *dma_ctx;
	pthread_mutex_t far_lock; /* making a stage */
	struct emu_stage *_Atomic stages; /* one for each place; grows only */

	/* device threads */
	struct emu_worker *workers;
	uint32_t nr_workers;
	bool warm; /* there are processors for threads that look around */
	_Atomic bool quit;
	_Atomic uint32_t sleepers __attribute__((aligned(CACHELINE)));
	_Atomic uint32_t permits; /* wake-ups given to sleepers and not yet taken */
	_Atomic uint32_t spinner; /* one idle thread looks before it sleeps, never several */
	_Atomic int host_cpu; /* where the last kick came from */
	_Atomic int64_t spin_miss; /* fruitless spins in a row */
	_Atomic int64_t keeper_due; /* when a sleeper wakes by itself */
	_Atomic uint32_t far_keeper; /* one sleeper wakes now and then to look after copies */
	_Atomic uint32_t far_naps; /* it did, in a row, for nothing */
	_Atomic uint32_t nr_far; /* jobs in all */

	struct emu_stats stopped; /* of whoever stops it, and ends what was at a queue; reg_lock */
	_Atomic uint64_t iommu_faults __attribute__((aligned(CACHELINE)));
	_Atomic uint64_t protocol_errors;
	_Atomic uint64_t admin_commands;
	_Atomic uint64_t kicks;
	_Atomic uint64_t aborts;
	_Atomic uint64_t flushes;
};

/* actor.c */
void emu_actor_release(struct emu_actor *a);
struct emu_map *emu_actor_hold(struct emu_actor *a, uint64_t iova, uint64_t leaf);
void emu_fault_note(struct emu_actor *a);

/* The host address of @iova, good to the end of its IO page while the actor holds; NULL: a fault. */
static inline uint8_t *emu_translate(struct emu_actor *a, uint64_t iova, uint32_t perm)
{
	uint64_t leaf = emu_iommu_leaf(&a->e->io, iova);
	uint32_t slot = EMU_LEAF_SLOT(leaf), n = a->nr_hold;
	struct emu_map *m = NULL;

	if (unlikely(!(leaf & perm))) {
		emu_fault_note(a);
		return NULL;
	}
	/* A held slot cannot change hands, so a leaf that names it is good for as long as it is held. */
	for (uint32_t i = n > 4 ? n - 4 : 0; i < n; i++)
		if (a->hold[i].slot == slot)
			m = a->hold[i].map;
	if (unlikely(!m)) {
		m = emu_actor_hold(a, iova, leaf);
		if (!m)
			return NULL;
	}
	return m->vaddr + (EMU_LEAF_PAGE(leaf) << EMU_IO_SHIFT) + (iova & (EMU_IO_PAGE - 1));
}

/* ctrl.c, reset.c */
void emu_disable(struct emu_ctrl *e);
void emu_set_cfs(struct emu_ctrl *e);
void emu_remove(struct emu_ctrl *e);
uint64_t emu_cap_value(const struct emu_params *p);
void emu_registers_reset(struct emu_ctrl *e);
int emu_check_params(const struct emu_params *p, char *err, size_t err_len);

/* sq.c, cq.c: rings */
uint16_t emu_sq_create(struct emu_actor *a, uint16_t qid, uint64_t iova, uint32_t size, uint8_t prio,
		       struct emu_cq *cq);
/* The status with which what is outstanding ends, or 0: it is forgotten (a reset). */
void emu_sq_delete(struct emu_actor *a, struct emu_sq *sq, uint16_t status);
uint32_t emu_sq_avail(struct emu_actor *a, struct emu_sq *sq);
bool emu_sq_pending(struct emu_actor *a, struct emu_sq *sq);
uint32_t emu_sq_room(struct emu_sq *sq);
bool emu_sq_take_abort(struct emu_sq *sq, uint16_t cid);
uint16_t emu_cq_create(struct emu_actor *a, uint16_t qid, uint64_t iova, uint32_t size, bool ien,
		       uint16_t vector);
void emu_cq_delete(struct emu_ctrl *e, struct emu_cq *cq);
bool emu_cq_full(struct emu_actor *a, struct emu_cq *cq);
void emu_cq_lock(struct emu_actor *a, struct emu_cq *cq);
void emu_cq_unlock(struct emu_actor *a, struct emu_cq *cq);
/* Under cq->lock. Waits in a slot of @c's queue when there is no room. */
void emu_cq_post(struct emu_actor *a, struct emu_cq *cq, const struct emu_cmd *c, uint16_t sqid,
		 uint16_t cid);
void emu_cq_drain_done(struct emu_actor *a, struct emu_cq *cq);
void emu_cq_forget_sq(struct emu_ctrl *e, struct emu_cq *cq, struct emu_sq *sq);
/* Post @c's completion: c->status and c->dw0 are set. */
void emu_complete(struct emu_actor *a, const struct emu_cmd *c);
void emu_signal(struct emu_actor *a);
/* rings.c */
uint16_t emu_ring_find(struct emu_actor *a, uint64_t iova, uint64_t nbytes, uint32_t perm, void **ret,
		       struct emu_map **ret_map);
void emu_ring_drop(struct emu_map *m);
void emu_rings_forget(struct emu_ctrl *e, struct emu_map *m);
void emu_rings_fence(struct emu_ctrl *e);
_Atomic uint32_t *emu_shadow_slot(struct emu_actor *a, bool event, uint32_t qid, bool cq);
void emu_shadow_stop(struct emu_ctrl *e);
/* The host broke the queue protocol: count it, and raise an error event (Base 5.2.1) soon. */
void emu_protocol_error(struct emu_ctrl *e, uint32_t info);

/* prp.c */
struct emu_prp {
	uint64_t next; /* the page to visit next: PRP1 first */
	uint64_t prp2;
	uint64_t left;
	uint64_t most; /* bytes of one call */
	uint64_t list; /* bus address of the next list entry, once there is a list */
	const uint8_t *entry; /* the same, translated; good to the end of its IO page, while held */
	uint32_t page_bytes;
	uint8_t state;
};
void emu_prp_init(struct emu_prp *w, const struct nvme_sqe *s, uint64_t nbytes, uint32_t page_bytes);
/* Fill a->iov from where it stopped; how many bytes are in *ret_bytes. A status. */
uint16_t emu_prp_next(struct emu_actor *a, struct emu_prp *w, uint32_t perm, uint64_t *ret_bytes);
uint16_t emu_copy_to_host(struct emu_actor *a, const struct nvme_sqe *s, const void *src, uint32_t nbytes);
uint16_t emu_copy_from_host(struct emu_actor *a, const struct nvme_sqe *s, void *dst, uint32_t nbytes);

/* io.c */
struct emu_ns *emu_ns_find(struct emu_ctrl *e, uint32_t nsid);
uint16_t emu_io_exec(struct emu_actor *a, const struct nvme_sqe *s);
uint16_t emu_io_read_write(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s);
uint16_t emu_io_check(struct emu_ctrl *e, struct emu_ns *ns, const struct nvme_sqe *s);
uint16_t emu_io_flush(struct emu_ctrl *e, uint32_t nsid);
uint64_t emu_io_bytes(struct emu_ctrl *e, const struct nvme_sqe *s);
/* ranges.c */
uint16_t emu_io_write_zeroes(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s);
uint16_t emu_io_dsm(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s);
uint16_t emu_io_verify(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s);
uint16_t emu_io_range(struct emu_ns *ns, uint64_t slba, uint64_t nlb, bool write);
uint16_t emu_io_errno(int rc, bool write);

/* admin.c and what it calls */
uint16_t emu_admin_exec(struct emu_actor *a, const struct emu_cmd *c, uint32_t *ret_dw0, bool *ret_silent);
uint16_t emu_identify(struct emu_actor *a, const struct nvme_sqe *s);
uint16_t emu_get_log(struct emu_actor *a, const struct nvme_sqe *s);
uint16_t emu_set_features(struct emu_actor *a, const struct nvme_sqe *s, uint32_t *ret_dw0);
uint16_t emu_get_features(struct emu_ctrl *e, const struct nvme_sqe *s, uint32_t *ret_dw0);
void emu_features_reset(struct emu_ctrl *e);
void emu_error_log(struct emu_ctrl *e, const struct emu_cmd *c, uint16_t status);
uint16_t emu_aer(struct emu_actor *a, uint16_t cid, bool *ret_silent);
bool emu_aer_abort(struct emu_ctrl *e, uint16_t cid);
void emu_aer_unmask(struct emu_actor *a, uint32_t type);
void emu_aer_reset(struct emu_ctrl *e);
void emu_raise_event_bits(struct emu_actor *a);
/* @namespaces: bits of those that changed. */
int emu_event_from(struct emu_actor *a, uint32_t dw0, uint32_t namespaces);

/* wait.c */
bool emu_wait_until(struct emu_actor *a, struct emu_cmd *c, int64_t due);
bool emu_wait_held(struct emu_actor *a, struct emu_cmd *c, int fault_id);
/* The next command that is due, moved out of its slot and into sq->busy. */
bool emu_wait_pop(struct emu_ctrl *e, int64_t now, struct emu_cmd *ret);
void emu_wait_release(struct emu_ctrl *e, int fault_id);
/* Take one that waits and has not run: of @sq, with that identifier (-1: any). */
bool emu_wait_take(struct emu_ctrl *e, struct emu_sq *sq, int cid, struct emu_cmd *ret);
int emu_wait_reserve(struct emu_ctrl *e, uint32_t nr);
struct emu_cmd *emu_slot_get(struct emu_ctrl *e, const struct emu_cmd *c);
void emu_slot_put(struct emu_ctrl *e, struct emu_cmd *slot);
/* Keep a command whose memory is far in a slot, and the slot's job; NULL: no memory for it. */
struct emu_job *emu_job_get(struct emu_ctrl *e, const struct emu_cmd *c);
/* Back on this thread (sq->busy), and out of its slot. */
void emu_job_put(struct emu_ctrl *e, struct emu_cmd *slot, struct emu_cmd *ret);
/* When what interrupts hold back is due: @due, if that is earlier, which is the answer; or @reset to it. */
bool emu_wait_irq(struct emu_ctrl *e, int64_t due, bool reset);
/* coalesce.c */
void emu_coalesce_reset(struct emu_irq *q);
void emu_coalesce_set(struct emu_ctrl *e, uint32_t together, int64_t wait_ns);
void emu_coalesce_alone(struct emu_ctrl *e, uint32_t vector, bool alone);
bool emu_is_alone(struct emu_ctrl *e, uint32_t vector);
/* @nr completions of @vector wait for others: true. False: it is to be signalled now, for those that waited too. */
bool emu_coalesce(struct emu_ctrl *e, uint32_t vector, uint32_t nr);
/* Signal what has waited for long enough. True: there was some. */
bool emu_coalesce_expire(struct emu_ctrl *e, int64_t now);
/* latency.c */
int64_t emu_latency_due(struct emu_ctrl *e, const struct nvme_sqe *s);

/* fault.c */
bool emu_fault_match(struct emu_ctrl *e, const struct emu_cmd *c, struct emu_fault *ret, int *ret_id);
bool emu_fault_flag(struct emu_ctrl *e, uint32_t action, uint32_t qid);
bool emu_fault_concerns(struct emu_ctrl *e, uint32_t qid, const struct nvme_sqe *s);
void emu_faults_done(struct emu_ctrl *e);
/* Do what @f says; true if the command's fate is settled. */
bool emu_fault_apply(struct emu_actor *a, struct emu_cmd *c, const struct emu_fault *f, int id);

/* garble.c */
/* What the address asks to be done to a page before the host gets it; and in hostile mode at random. */
void emu_garble(struct emu_ctrl *e, enum emu_page page, void *buf, uint32_t nbytes);
/* Hostile mode: what a register reads as, and what happens to a command. */
uint64_t emu_hostile_reg(struct emu_ctrl *e, uint32_t off, uint64_t val);
bool emu_hostile_fault(struct emu_ctrl *e, const struct emu_cmd *c, struct emu_fault *ret);

/* run.c, worker.c, arbiter.c, idle.c */
static inline void emu_fill_cmd(struct emu_cmd *c, struct emu_sq *sq, const struct nvme_sqe *s)
{
	/* copied first, as hardware does: what the host does to the entry later changes nothing */
	c->sqe = *s;
	c->sq = sq;
	c->flags = 0;
	c->dw0 = 0;
	c->status = 0;
}

void emu_run(struct emu_actor *a, struct emu_cmd *c);
void emu_finish(struct emu_actor *a, struct emu_cmd *c, uint16_t status);
void emu_sq_announce(struct emu_actor *a, struct emu_sq *sq);
void emu_cq_announce(struct emu_actor *a, struct emu_cq *cq);
int emu_workers_start(struct emu_ctrl *e);
void emu_workers_stop(struct emu_ctrl *e);
bool emu_work_pending(struct emu_actor *a);
bool emu_work_left(struct emu_actor *a, struct emu_sq *sq);
struct emu_sq *emu_arbitrate(struct emu_actor *a, uint32_t *ret_max);
bool emu_pass(struct emu_actor *a);
void emu_idle(struct emu_actor *a);
void emu_stay_warm(struct emu_actor *a);
/* A device thread has found more than it can do: it is no host, out of whose way others keep. */
void emu_kick_others(struct emu_ctrl *e);
void emu_wake_one(struct emu_ctrl *e);

#endif
