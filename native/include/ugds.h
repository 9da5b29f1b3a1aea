/* SPDX-License-Identifier: MIT */
/*
 * The C interface of aiougds: what Python sees, and its cffi cdef (with ugds_emu.h). Calls answer 0 or a count on
 * success and a negative errno on failure. Lengths and offsets are bytes; times are nanoseconds on
 * CLOCK_MONOTONIC, 0 meaning none unless said otherwise.
 */
#ifndef UGDS_H
#define UGDS_H

#include <stdint.h>

#define UGDS_ABI_VERSION 1

struct ugds_ctrl;
struct ugds_ns;
struct ugds_chan;
struct ugds_batch;
struct ugds_exec; /* ugds_exec.h */
struct ugds_admin;

/* ---- errors that need words ---- */

struct ugds_error {
	int32_t err; /* the negative errno that was returned */
	uint32_t status; /* NVMe status field (SCT 10:8, SC 7:0), 0 if none */
	char text[368]; /* one sentence: what, the value, the limit, the remedy */
};

/* ---- opening a controller ---- */

#define UGDS_OPEN_READONLY 0x1 /* nothing that changes media is ever submitted */
#define UGDS_OPEN_NO_SHADOW 0x2 /* leave Doorbell Buffer Config off though advertised */
#define UGDS_OPEN_NO_HUGEPAGE 0x4
#define UGDS_OPEN_SEGMENT 0x80 /* the statistics of queue pairs lie in segment_fd, if that can be */
#define UGDS_OPEN_NO_TALLIES 0x10 /* keep counters only, no statistics of queue pairs */
#define UGDS_OPEN_FIFO 0x40 /* first in, first out: neither classes nor chunks */
#define UGDS_OPEN_WRR_AUTO 0x20 /* the same, but round robin where it is not offered */
#define UGDS_OPEN_WRR 0x8 /* weighted round robin arbitration (refused where CAP.AMS lacks it) */

struct ugds_open_params {
	struct ugds_exec *executor; /* NULL: a thread of its own, when it is needed */
	uint32_t flags;
	uint32_t io_queues; /* I/O queue pairs asked for; granted ones may be fewer */
	uint32_t batch_queues; /* of these, deep ones for batches */
	uint32_t depth; /* entries of a general queue */
	uint32_t batch_depth;
	uint32_t max_transfer; /* bytes a command, where the controller sets no lower limit */
	uint32_t vectors; /* interrupt vectors to use; 0: one for each queue pair, as far as they go */
	uint32_t qprio; /* 0 urgent .. 3 low, for all I/O queues of the plain kind */
	uint32_t arb_burst; /* 2^n commands, 7: no limit */
	uint32_t wrr_weights; /* low 7:0, medium 15:8, high 23:16, zero based */
	/* Of a command that failed without Do Not Retry, nor is to wait for longer than hang_io_ns; 0: none. */
	uint32_t retries;
	uint32_t chunk; /* bytes of a background command, and of a large one beside small; 0: 256 KiB */
	uint64_t bulk_bytes; /* of large operations at the device, for each channel; 0: 32 MiB */
	uint64_t background_bytes; /* of the background class; 0: 4 MiB */
	int32_t segment_fd; /* an empty file in memory (tmpfs); mapped, not kept */
	uint32_t
		coalesce; /* of deep pairs' interrupts: commands, zero based, 7:0, and 100 us 15:8; 0: none */
	uint64_t spin_ns; /* inline budget */
	uint64_t hang_io_ns;
	uint64_t hang_admin_ns;
	uint64_t cancel_grace_ns;
};

#define UGDS_EMU_READONLY 0x1
#define UGDS_EMU_CREATE 0x2
#define UGDS_EMU_NODATA 0x4
#define UGDS_EMU_VWC 0x8
#define UGDS_EMU_WRR 0x10
#define UGDS_EMU_DBBUF 0x20
#define UGDS_EMU_STEP 0x40
#define UGDS_EMU_FAKE_VS 0x80
#define UGDS_EMU_NO_COALESCE 0x100 /* Interrupt Coalescing is refused */
#define UGDS_EMU_AWAKE 0x200 /* a device thread never sleeps */
#define UGDS_EMU_DIRECT 0x400 /* O_DIRECT */
#define UGDS_EMU_MAX_NS 32

#define UGDS_GARBLE_ZEROS 1
#define UGDS_GARBLE_ONES 2
#define UGDS_GARBLE_RANDOM 3 /* arg: the seed */
#define UGDS_GARBLE_SHORT 4 /* arg: the bytes that arrive */

struct ugds_emu_garble {
	uint32_t how; /* 0: not at all */
	uint32_t reserved;
	uint64_t arg;
};

struct ugds_emu_ns {
	uint32_t nsid;
	uint32_t lba_bytes;
	uint32_t metadata_bytes;
	uint32_t reserved;
	uint64_t nbytes; /* 0: the length of the file */
};

struct ugds_emu_params {
	const char *path; /* NULL: memory */
	uint32_t flags;
	uint32_t mdts;
	uint32_t dstrd;
	uint32_t mpsmin;
	uint32_t mpsmax;
	uint32_t to; /* CAP.TO, 500 ms each */
	uint32_t aerl;
	uint32_t acl;
	uint32_t mqes; /* zero based */
	uint32_t awupf; /* zero based, blocks */
	uint32_t queues;
	uint32_t vectors;
	uint32_t threads;
	uint32_t channels;
	uint32_t window; /* commands that it works on at a time; 0: any number */
	uint32_t reserved2;
	uint64_t latency_ns;
	uint64_t latency_per_kib_ns;
	uint64_t jitter_ns;
	uint64_t seed;
	uint64_t volatile_bytes; /* > 0: the power can be cut; so much is remembered of what a cut may lose */
	uint64_t cap; /* 0: its own; else what CAP reads as */
	uint32_t vs; /* with UGDS_EMU_FAKE_VS: what VS reads as */
	uint32_t csts; /* bits of CSTS that always read as one */
	uint32_t crdt[4]; /* command retry delays 1 to 3, units of 100 ms */
	struct ugds_emu_garble garble[5]; /* controller, namespace, list, descriptors, logs */
	uint64_t hostile_seed;
	uint32_t hostile; /* one in so many of what it says is fuzzed; 0: none */
	uint32_t reserved;
	char serial[24];
	char model[48];
	uint32_t nr_ns;
	struct ugds_emu_ns ns[32];
};

/* Blocks for milliseconds: call it off the event loop. */
int ugds_open_emu(const struct ugds_emu_params *emu, const struct ugds_open_params *p, struct ugds_ctrl **ret,
		  struct ugds_error *err);

/* A PCI function that the kernel helper holds: /dev/ugds_drvN. Blocks for milliseconds. */
int ugds_open_kmod(const char *path, const struct ugds_open_params *p, struct ugds_ctrl **ret,
		   struct ugds_error *err);

/* Stop and free. -EBUSY while operations are in flight or channels, namespaces or batches exist: nothing changes.
 * Blocks for the shutdown notification. @force: also with a quarantine (after an external reset).
 * Calls of other threads that take @c are over before anything is freed; later ones are answered -ESHUTDOWN. */
int ugds_ctrl_close(struct ugds_ctrl *c, int force);
/* When nobody can call with @c any more. Nothing, while it is open. */
void ugds_ctrl_free(struct ugds_ctrl *c);
/* After fork, in the child: close the descriptors and forget the device; nothing is sent. */
void ugds_ctrl_fork_child(struct ugds_ctrl *c);

/* ---- what a controller is ---- */

#define UGDS_STATE_LIVE 0
#define UGDS_STATE_RESETTING 1
#define UGDS_STATE_WEDGED 2
#define UGDS_STATE_REMOVED 3
#define UGDS_STATE_CLOSED 4

#define UGDS_CAP_ARM 0x1 /* wake-ups are armed */
#define UGDS_CAP_STEP 0x2 /* the device runs on spinning host threads too */
#define UGDS_CAP_MAP_INLINE 0x4 /* pinning needs no system call */
#define UGDS_CAP_DIRECT 0x8 /* hardware DMA */
#define UGDS_CAP_SHADOW 0x10 /* shadow doorbells in force */
#define UGDS_CAP_HUGEPAGE 0x20 /* batch rings in hugepages */
#define UGDS_CAP_WRR 0x40 /* weighted round robin in force */
#define UGDS_CAP_VWC 0x80 /* volatile write cache: flush and FUA matter */
#define UGDS_CAP_COMPARE 0x100
#define UGDS_CAP_DEALLOCATE 0x200
#define UGDS_CAP_WRITE_ZEROES 0x400
#define UGDS_CAP_VERIFY 0x800
#define UGDS_CAP_READONLY 0x1000
#define UGDS_CAP_INLINE_READS 0x2000 /* small cached reads can complete inside the submitting call */
#define UGDS_CAP_COHERENT 0x4000 /* rings in memory that the transport supplies */

#define UGDS_IOMMU_NONE 0 /* bus addresses are physical ones */
#define UGDS_IOMMU_IDENTITY 1 /* passed through */
#define UGDS_IOMMU_TRANSLATED 2
#define UGDS_IOMMU_OWN 3 /* the embedded controller's own */

struct ugds_ctrl_info {
	uint64_t cap;
	uint32_t vs;
	uint32_t state;
	uint32_t caps; /* UGDS_CAP_* */
	uint32_t page_bytes; /* CC.MPS */
	uint32_t mdts_bytes; /* 0: no limit */
	uint32_t max_transfer; /* bytes a command in force */
	uint32_t io_queues; /* granted and in use */
	uint32_t batch_queues;
	uint32_t class_queues; /* for each of the latency and the background class */
	uint32_t depth;
	uint32_t batch_depth;
	uint32_t vectors;
	uint32_t free_queues; /* not leased now */
	uint32_t vid;
	uint32_t acl; /* zero based */
	uint32_t aerl; /* zero based */
	uint32_t awupf_blocks;
	uint32_t crdt[3]; /* command retry delays in force, units of 100 ms */
	uint32_t revoked; /* wedged because registered memory was taken away */
	uint32_t iommu; /* UGDS_IOMMU_* */
	int32_t numa_node; /* -1: none is known */
	int32_t segment_err; /* 0: statistics are in the file; else why not, -EMEDIUMTYPE: it is not in memory */
	uint32_t reserved;
	uint64_t spin_ns;
	uint64_t wake_ns; /* cost of a wake-up, calibrated at open */
	uint64_t open_ns; /* bring-up time */
	uint64_t state_since_ns; /* monotonic */
	char transport[16];
	char bus[24]; /* PCI address, "" if it has none */
	char serial[24];
	char model[48];
	char firmware[16];
	char reason[128]; /* why it is wedged or removed */
};
int ugds_ctrl_info(struct ugds_ctrl *c, struct ugds_ctrl_info *ret);

struct ugds_ctrl_stats {
	uint64_t reads;
	uint64_t writes;
	uint64_t others;
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t errors;
	uint64_t retries; /* commands sent again */
	uint64_t commands;
	uint64_t doorbells;
	uint64_t inline_completions; /* operations that ended inside the submitting call */
	uint64_t wakeups; /* eventfd wake-ups of owners */
	uint64_t stragglers; /* CQEs the housekeeping tick found after their owner slept through them */
	uint64_t timeouts;
	uint64_t cancels;
	uint64_t aborts;
	uint64_t resets;
	uint64_t unknown_cids;
	uint64_t dropped; /* completions of channels that are gone */
	uint64_t adopted; /* queue pairs that housekeeping drained for a closed loop or a dead thread */
	uint32_t inflight; /* commands */
	uint32_t mappings;
	uint32_t channels;
	uint32_t quarantined; /* operations whose memory the device may still touch */
};
int ugds_ctrl_stats(struct ugds_ctrl *c, struct ugds_ctrl_stats *ret);
/* Disable, forget all that was outstanding, enable and rebuild. Blocks: call it off the event loop. Operations in
 * flight end with -ECANCELED; the quarantine is released. */
int ugds_ctrl_reset(struct ugds_ctrl *c, struct ugds_error *err);

/* Active namespaces, ascending; returns how many there are (may exceed @max). */
int ugds_ctrl_nsids(struct ugds_ctrl *c, uint32_t *ret_ids, uint32_t max);

struct ugds_ns_info {
	uint32_t nsid;
	uint32_t lba_bytes;
	uint32_t metadata_bytes;
	uint32_t readonly;
	uint64_t nblocks;
	uint64_t nbytes;
	uint32_t usable; /* 0: a format that is refused */
	uint32_t nawupf_blocks;
};
int ugds_ns_info(struct ugds_ctrl *c, uint32_t nsid, struct ugds_ns_info *ret);

/* A window [base, base + nbytes) of a namespace, whole blocks; nbytes 0: to the end. Offsets of operations are
 * relative to it. @readonly is enforced here. */
int ugds_ns_open(struct ugds_ctrl *c, uint32_t nsid, uint64_t base, uint64_t nbytes, int readonly,
		 struct ugds_ns **ret, struct ugds_error *err);
/* Bytes of it now: it follows the namespace. */
uint64_t ugds_ns_size(struct ugds_ns *ns);
/* 1: detached, or formatted anew. */
int ugds_ns_gone(struct ugds_ns *ns);
/* -EBUSY while operations use it. */
int ugds_ns_close(struct ugds_ns *ns);
/* After that, when nobody can call with @ns any more. */
void ugds_ns_free(struct ugds_ns *ns);

/* ---- memory ---- */

#define UGDS_MEM_READONLY 0x1 /* the device may only read it: refused as the target of a read */

/* Make memory reachable for the controller. *ret_handle carries a generation; it is never 0. */
int ugds_map(struct ugds_ctrl *c, void *ptr, uint64_t nbytes, uint32_t flags, uint64_t *ret_handle);

#define UGDS_FOREIGN_DMABUF 1
#define UGDS_FOREIGN_CUDA 2
#define UGDS_FOREIGN_HIP 3

#define UGDS_FOREIGN_PEER 0x1 /* flags: refused when it lies in system memory (-EXDEV) */
#define UGDS_FOREIGN_READONLY 0x2 /* the device may only read it: refused as the target of a read */

#define UGDS_TRAIT_SYSTEM 0x1 /* it lies in system memory */
#define UGDS_TRAIT_PERSISTENT 0x2 /* it stays although its owner frees it */
#define UGDS_TRAIT_REVOCABLE 0x4 /* its owner may take it away */
#define UGDS_TRAIT_STAGED 0x8 /* bytes go through pinned host memory */

struct ugds_foreign {
	uint32_t kind; /* UGDS_FOREIGN_* */
	int32_t fd; /* of a dma-buf; it may be closed afterwards */
	uint64_t addr; /* of device memory, as its runtime names it */
	uint64_t offset; /* of the first byte in the dma-buf */
	uint64_t nbytes;
	uint32_t flags;
	uint32_t ret_traits; /* UGDS_TRAIT_* */
	uint32_t
		gpu_vendor; /* UGDS_GPU_*, with device and context: whose it is. 0: not told, then nothing is flushed for it */
	int32_t gpu_device;
	uint64_t gpu_ctx;
};

/* The same for memory of a device. -EOPNOTSUPP where the transport has no way to it. */
int ugds_map_foreign(struct ugds_ctrl *c, struct ugds_foreign *mem, uint64_t *ret_handle);
/* A part of what is mapped already, with a handle and bounds of its own; @flags: UGDS_MEM_*. Nothing is pinned: the mapping
 * stays until the last of those that look into it is unmapped. -ESTALE, -EKEYREVOKED, -EFAULT, -EACCES. */
int ugds_map_within(struct ugds_ctrl *c, uint64_t parent, uint64_t off, uint64_t nbytes, uint32_t flags,
		    uint64_t *ret_handle);
/* -EBUSY while operations are in flight on it (nothing changes), -ESTALE when it is not this mapping's any more. */
int ugds_unmap(struct ugds_ctrl *c, uint64_t handle);
int64_t ugds_map_inflight(struct ugds_ctrl *c, uint64_t handle); /* operations, or -ESTALE */

/* ---- channels: one per event loop or thread; not thread safe, but ugds_chan_orphan() ---- */

#define UGDS_MODE_ADAPTIVE 0
#define UGDS_MODE_INLINE 1
#define UGDS_MODE_INTERRUPT 2
#define UGDS_MODE_POLL 3 /* through the controller's polling executor */

/* Leases a queue pair if one is free (else the executor serves it). No system call but the eventfd's. */
int ugds_chan_open(struct ugds_ctrl *c, uint32_t mode, struct ugds_chan **ret);
int ugds_chan_fd(struct ugds_chan *ch); /* readable when ugds_reap(), which drains it, has something to do */
int ugds_chan_owns_queue(struct ugds_chan *ch); /* 0: it shares the executor's */
int ugds_chan_armed(struct ugds_chan *ch); /* 0: interrupts signal it also while it is awake */
/* Free it. -EBUSY while operations are in flight or batches exist. */
int ugds_chan_close(struct ugds_chan *ch);
/* Its loop or thread is gone: housekeeping drains and frees it, and its batches. Safe from any thread. */
void ugds_chan_orphan(struct ugds_chan *ch);
uint32_t ugds_chan_inflight(struct ugds_chan *ch);

/* ---- operations ---- */

#define UGDS_OP_FLUSH 0x00
#define UGDS_OP_WRITE 0x01
#define UGDS_OP_READ 0x02
#define UGDS_OP_COMPARE 0x05
#define UGDS_OP_WRITE_ZEROES 0x08
#define UGDS_OP_DEALLOCATE 0x09
#define UGDS_OP_VERIFY 0x0c

/* Flags beside the opcode in the low byte. */
#define UGDS_F_FUA 0x100
#define UGDS_F_NOSPIN 0x200 /* this one: never spin (interrupt mode) */
#define UGDS_F_SPIN 0x400 /* this one: spin up to the inline budget */
#define UGDS_F_POLL 0x800 /* this one: through the polling executor */
#define UGDS_F_LATENCY 0x1000 /* of the latency class */
#define UGDS_F_BACKGROUND 0x2000 /* of the background class */

/* Answers at or above this mean "in flight": the operation's token is the rest. */
#define UGDS_PENDING 0x4000000000000000

/* Outcomes, in ugds_completion.status bits 31:24. */
#define UGDS_DONE 0 /* the device answered */
#define UGDS_NEVER_SENT 1
#define UGDS_ABORTED 2 /* the device gave it up */
#define UGDS_UNKNOWN 3 /* timed out, quarantined, or the device is gone: data may or may not have moved */

/* Four 64-bit words, so that a whole array decodes as one memoryview of 'q'. */
struct ugds_completion {
	uint64_t token; /* of the operation, or the cookie of a batch's item */
	int64_t result; /* bytes moved, or a negative errno */
	uint64_t status; /* NVMe status 15:0, opcode 23:16, outcome 31:24, CQE dw0 63:32 */
	uint64_t done; /* bytes done before the failure */
};

/*
 * Start one operation. @map 0 and @nbytes as the command needs them (flush: 0, 0). @op: UGDS_OP_* | UGDS_F_*.
 * Returns bytes when it completed inside the call, UGDS_PENDING + token when it is in flight, or a negative
 * errno: nothing was sent, or it was and failed (ugds_chan_last() tells: token is 0 when nothing was sent).
 *   -EINVAL unaligned, -ERANGE past the end of the namespace window, -EFAULT past the mapping, -ESTALE mapping,
 *   -EKEYREVOKED its memory was taken away,
 *   -EROFS namespace or memory is read-only, -EBUSY the range is still in the hands of a timed-out command,
 *   -ENXIO the namespace was detached or formatted anew,
 *   -EHOSTDOWN wedged or resetting, -ENODEV removed, -ESHUTDOWN closed, -EOPNOTSUPP command not offered.
 */
int64_t ugds_rw(struct ugds_chan *ch, struct ugds_ns *ns, uint64_t map, uint64_t buf_off, uint64_t nbytes,
		uint64_t offset, uint32_t op);
/* Give an operation in flight a deadline from now (0: none any more). Ignored for stale tokens, and once cancelled. */
void ugds_op_deadline(struct ugds_chan *ch, uint64_t token, uint64_t timeout_ns);
/* Take how the last operation failed that ended inside a call of this channel; token 0: none has, since it was asked. */
void ugds_chan_last(struct ugds_chan *ch, struct ugds_completion *ret);
/* Tokens of what was started and whose end was not reported, for whom a signal kept from noting one; how many there are. */
uint32_t ugds_chan_tokens(struct ugds_chan *ch, uint64_t *out, uint32_t max);

/* Collect completions of single operations and batches (a batch's token, opcode 0xff: it has reached what was waited for).
 * Drains the eventfd, reaps until nothing is left or @max is reached, arms the next wake-up. While commands are traced
 * UGDS_TRACED is added to the answer. */
int ugds_reap(struct ugds_chan *ch, struct ugds_completion *out, uint32_t max);
/* As ugds_reap(), but blocks until something is there, the time is over (0), or a signal came (-EINTR). */
int ugds_wait(struct ugds_chan *ch, struct ugds_completion *out, uint32_t max, uint64_t timeout_ns);

/*
 * Stop splitting and submitting; what is at the device runs on. The operation still ends exactly once: with its
 * own outcome if that was final, with -ECANCELED when all it had sent came back, or, after @grace_ns, with
 * -ECANCELED and UGDS_UNKNOWN (an Abort is tried, its memory stays busy until the CQE). Asked again, nothing changes.
 * 1: in flight, will end; 0: it had ended already or is unknown.
 */
int ugds_cancel(struct ugds_chan *ch, uint64_t token, uint64_t grace_ns);

/* ---- batches: many operations, one submission, one completion ---- */

struct ugds_req {
	uint64_t map;
	uint64_t buf_off;
	uint64_t nbytes;
	uint64_t offset;
	uint64_t cookie;
	uint64_t op; /* UGDS_OP_* | UGDS_F_*: class and mode of the first request are the submission's */
};

/* A reusable context for at most @capacity operations submitted and not harvested. */
int ugds_batch_new(struct ugds_chan *ch, uint32_t capacity, struct ugds_batch **ret);
/* -EBUSY while operations are in flight. */
int ugds_batch_free(struct ugds_batch *b);
uint64_t ugds_batch_token(struct ugds_batch *b); /* that ugds_reap() reports it by */

/* Check all of @n requests, then start them with one doorbell. A bad one: its errno, *ret_bad its index, and nothing
 * of them is sent. -ENOSPC: over the capacity. Spins as its mode says. Returns the completions
 * that can be harvested now. */
int64_t ugds_batch_submit(struct ugds_batch *b, struct ugds_ns *ns, const struct ugds_req *reqs, uint32_t n,
			  uint32_t *ret_bad);
/* The same from arrays: cookies 0 .. n-1 (plus @cookie0), one length, one registration. @buf_offsets NULL: i * nbytes. */
int64_t ugds_batch_submit_array(struct ugds_batch *b, struct ugds_ns *ns, uint32_t op, uint64_t map,
				const int64_t *offsets, const int64_t *buf_offsets, uint64_t nbytes,
				uint32_t n, uint64_t cookie0, uint32_t *ret_bad);
/* Take up to @max completions, in the order they ended. */
int ugds_batch_harvest(struct ugds_batch *b, struct ugds_completion *out, uint32_t max);
/* Ask to be told (through ugds_reap) once @n can be harvested. 1: that is so already, nothing will be told. */
int ugds_batch_notify(struct ugds_batch *b, uint32_t n);
/* Submitted, not harvested: in flight or ready. Of these: ready. Beside these: given up, harvested, still at the device. */
uint32_t ugds_batch_pending(struct ugds_batch *b);
uint32_t ugds_batch_ready(struct ugds_batch *b);
uint32_t ugds_batch_held(struct ugds_batch *b);
/* Every operation of it that has not ended, from now; 0: none any more. */
void ugds_batch_deadline(struct ugds_batch *b, uint64_t timeout_ns);
/* As ugds_cancel(), for all of it; items never sent end at once. What is submitted afterwards is not concerned. */
int ugds_batch_cancel(struct ugds_batch *b, uint64_t grace_ns);
/* If every item that is ready succeeded: harvest them all and return the sum of bytes; else -EIO, nothing taken. */
int64_t ugds_batch_harvest_ok(struct ugds_batch *b);

/* ---- admin commands ---- */

struct ugds_admin_cmd {
	uint32_t opcode;
	uint32_t nsid;
	uint32_t cdw10;
	uint32_t cdw11;
	uint32_t cdw12;
	uint32_t cdw13;
	uint32_t cdw14;
	uint32_t cdw15;
	uint32_t nbytes; /* 0 .. 65536 */
	uint32_t to_device; /* data goes to the controller */
};

/* Queue it with the housekeeping thread; it ends like an operation of @ch (result: bytes or errno). @data is copied in
 * when it goes to the device. Keep *ret until it ended, then read and free it. */
int64_t ugds_admin_submit(struct ugds_chan *ch, const struct ugds_admin_cmd *cmd, const void *data,
			  struct ugds_admin **ret);
/* Copy out the data of an ended command; returns bytes. */
int ugds_admin_data(struct ugds_admin *a, void *buf, uint32_t nbytes);
void ugds_admin_free(struct ugds_admin *a);

/* Asynchronous events since the last call: CQE dw0 each. */
int ugds_ctrl_events(struct ugds_ctrl *c, uint32_t *out, uint32_t max);
/* An eventfd that is signalled with each asynchronous event and state change; owned by the controller. */
int ugds_ctrl_event_fd(struct ugds_ctrl *c);

/* What the device may still touch. */
struct ugds_stuck {
	uint64_t map;
	struct ugds_ns *ns; /* to be compared, never used */
	uint64_t buf_off;
	uint64_t nbytes;
	uint64_t since_ns;
	uint32_t qid;
	uint32_t cid;
};
int ugds_ctrl_quarantine(struct ugds_ctrl *c, struct ugds_stuck *out, uint32_t max);

/* ---- time stamp accounting for the benchmark ---- */

struct ugds_cycles {
	uint64_t submit_ticks;
	uint64_t reap_ticks;
	uint64_t commands;
	uint64_t ticks_per_s;
};
/* Run @commands 4 KiB reads at @depth on @ch with C calls only; counts ticks inside submit and non-empty reap. */
int ugds_bench_cycles(struct ugds_chan *ch, struct ugds_ns *ns, uint64_t map, uint64_t map_bytes,
		      uint32_t depth, uint64_t commands, struct ugds_cycles *ret);

#endif
