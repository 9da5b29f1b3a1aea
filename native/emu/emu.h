/* SPDX-License-Identifier: MIT */
/*
 * The embedded controller: an NVMe controller in software, over a file or memory. It sees what a device sees:
 * registers, doorbells, and bus addresses that its own IOMMU resolves. It shares no code with the host side.
 */
#ifndef EMU_EMU_H
#define EMU_EMU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EMU_MAX_NS 32
#define EMU_MAX_QID 128
#define EMU_PATH_MAX 1024

struct emu_ns_params {
	uint32_t nsid;
	uint32_t lba_bytes; /* 512 .. 65536, a power of two */
	uint32_t metadata_bytes; /* > 0: a format that the host has to refuse */
	uint64_t nbytes; /* 0: the file's own length, whatever it is */
};

/* What a device may say about itself and garble. */
enum emu_page { EMU_PAGE_CTRL, EMU_PAGE_NS, EMU_PAGE_LIST, EMU_PAGE_DESC, EMU_PAGE_LOG, EMU_PAGES };
enum emu_garble_how {
	EMU_GARBLE_NOT,
	EMU_GARBLE_ZEROS,
	EMU_GARBLE_ONES,
	EMU_GARBLE_RANDOM, /* .arg: the seed */
	EMU_GARBLE_SHORT, /* .arg: the bytes that arrive */
};
struct emu_garble {
	uint32_t how;
	uint64_t arg;
};

struct emu_params {
	const char *path; /* NULL: memory. Namespace 2 and on: PATH.ns<ID> */
	bool readonly;
	bool create; /* make a file that is missing (nbytes long, sparse) */
	bool direct; /* files are opened with O_DIRECT */
	bool nodata; /* data=none: PRPs are walked, no bytes move */
	bool vwc; /* volatile write cache present */
	bool wrr; /* CAP.AMS offers weighted round robin */
	bool dbbuf; /* Doorbell Buffer Config advertised */
	bool no_coalesce; /* Interrupt Coalescing is refused */
	bool step; /* host threads may step */
	bool awake; /* a device thread never sleeps, so that the latency model is kept to a microsecond */
	uint8_t mdts;
	uint8_t dstrd;
	uint8_t mpsmin;
	uint8_t mpsmax;
	uint8_t to; /* CAP.TO, units of 500 ms */
	uint8_t aerl;
	uint8_t acl;
	uint16_t mqes; /* CAP.MQES: zero based */
	uint16_t awupf; /* zero based, blocks */
	uint16_t queues; /* I/O queue pairs granted at most */
	uint16_t vectors;
	uint16_t threads;
	uint32_t nr_ns;
	struct emu_ns_params ns[EMU_MAX_NS];
	/* Latency model: fixed + per KiB (+ uniform jitter), on that many channels (0: unlimited). */
	uint64_t latency_ns;
	uint64_t latency_per_kib_ns;
	uint64_t jitter_ns;
	uint32_t channels;
	uint32_t
		window; /* commands that it works on at a time, about; the rest stay in their queues. 0: any number */
	uint64_t seed;
	/* > 0: the power can be cut, and what is not durable is lost; so many bytes are remembered for that */
	uint64_t volatile_bytes;
	uint16_t crdt[3]; /* command retry delays, units of 100 ms */
	uint64_t cap; /* 0: what it is; else what the host reads */
	bool fake_vs; /* the host reads .vs */
	uint32_t vs;
	uint32_t csts; /* bits that always read as one */
	struct emu_garble garble[EMU_PAGES];
	uint32_t hostile; /* one in so many registers, pages and completions is fuzzed; 0: none */
	uint64_t hostile_seed;
	char serial[21];
	char model[41];
};

struct emu_extent {
	uint64_t iova;
	uint64_t nbytes;
};

struct emu_ctrl;

/* One contiguous piece between staging memory and memory that the controller's threads cannot address ("far"). */
struct emu_copy {
	uint64_t far;
	void *near;
	uint64_t nbytes;
};

/*
 * The way to far memory. A place is whatever bytes have to be taken to by the same means (one device, say); there are few,
 * and each is there until close. Any thread calls, several at once; none of the calls waits for a copy.
 */
struct emu_dma_ops {
	/* Which place [addr, addr + nbytes) lies in, all of it, as @kind names memory. -errno: in none. */
	int (*resolve)(void *ctx, uint32_t kind, uint64_t addr, uint64_t nbytes, void **ret_place);
	/* Memory that its copies go through. Once for each place. */
	int (*staging)(void *place, size_t nbytes, void **ret);
	/* Begin @n copies, out of far memory or into it; returns how many were begun. *@ret_ticket is for these, if there are
	 * any. If fewer: *@ret_why is what the completions of those concerned say in dword 0. */
	uint32_t (*copy)(void *place, bool out, const struct emu_copy *c, uint32_t n, uint64_t *ret_ticket,
			 uint32_t *ret_why);
	/* 1: what the ticket is for is over, and whoever is told now finds the bytes in place; 0: it is not; a negative errno: it
	 * is over and failed, see *@ret_why. */
	int (*poll)(void *place, uint64_t ticket, uint32_t *ret_why);
	/* Nothing is under way, and nothing begins again. */
	void (*close)(void *ctx);
};

/* 0, or -errno with a sentence in @err (what, which value, the remedy; a lock names its holder). */
int emu_new(const struct emu_params *p, struct emu_ctrl **ret, char *err, size_t err_len);
void emu_free(struct emu_ctrl *e);
/* In a forked child, where none of the threads is: close the files, so that the child holds no lock. */
void emu_fork_child(struct emu_ctrl *e);

uint32_t emu_reg_read32(struct emu_ctrl *e, uint32_t off);
uint64_t emu_reg_read64(struct emu_ctrl *e, uint32_t off);
void emu_reg_write32(struct emu_ctrl *e, uint32_t off, uint32_t val);
void emu_reg_write64(struct emu_ctrl *e, uint32_t off, uint64_t val);
/* The doorbell page(s): plain memory. The host stores with release order, then kicks. */
volatile void *emu_doorbells(struct emu_ctrl *e, size_t *ret_nbytes);

#define EMU_DMA_READ 0x1u
#define EMU_DMA_WRITE 0x2u
#define EMU_DMA_CONTIG 0x4u
#define EMU_DMA_ONWARD 0x10u /* what is written there goes on to another device */
/* Map the whole 4 KiB pages around [vaddr, vaddr + nbytes). *ret_ext is malloc()ed. */
int emu_dma_map(struct emu_ctrl *e, void *vaddr, size_t nbytes, uint32_t flags, struct emu_extent **ret_ext,
		size_t *ret_nr, uint64_t *ret_handle);
/* Before the first emu_dma_map_far(). The controller ends it (close) in emu_free(), but not in a forked child. */
void emu_set_dma(struct emu_ctrl *e, const struct emu_dma_ops *ops, void *ctx);
/* The same for far memory. The very bytes are what can be reached of its first and last page. */
int emu_dma_map_far(struct emu_ctrl *e, uint32_t kind, uint64_t addr, size_t nbytes, uint32_t flags,
		    struct emu_extent **ret_ext, size_t *ret_nr, uint64_t *ret_handle);
/* Returns when no device thread, no stepper and no copy touches the range any more. */
int emu_dma_unmap(struct emu_ctrl *e, uint64_t handle);

int emu_irq_bind(struct emu_ctrl *e, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding);
int emu_irq_unbind(struct emu_ctrl *e, uint64_t binding);

/* A doorbell of queue @qid was written: wake device threads if they sleep. */
void emu_kick(struct emu_ctrl *e, uint32_t qid);
/* The same for a caller that has put a full fence after the doorbell, or keeps calling until the queue moves: a fence
 * of its own would wait for every entry just written to travel to the device's core. */
void emu_kick_fenced(struct emu_ctrl *e, uint32_t qid);
/* Serve at most @max commands of submission queue @qid on the calling thread; how many were completed. */
uint32_t emu_step(struct emu_ctrl *e, uint32_t qid, uint32_t max);
/* As clearing bus mastering: no access to host memory begins after this returns. */
void emu_stop_dma(struct emu_ctrl *e);
/* As setting it again; of a controller that is disabled. A device that was removed stays off. */
void emu_start_dma(struct emu_ctrl *e);

/* What is so at run time. */
struct emu_state {
	bool inline_reads; /* stepping can serve small reads at once (RWF_NOWAIT works, or memory) */
	bool step;
	uint32_t threads;
	uint64_t backing_bytes; /* of the first namespace */
	uint32_t backing_tail; /* bytes of its last, partial block */
};
void emu_get_state(struct emu_ctrl *e, struct emu_state *ret);

/* ---- the scripted fault interface ---- */

enum emu_fault_action {
	EMU_FAULT_STATUS = 1, /* complete with .status, no data moved */
	EMU_FAULT_DELAY, /* hold the command back by .delay_ns, then serve it */
	EMU_FAULT_HOLD, /* never complete until the fault is cleared (then it is served) */
	EMU_FAULT_LOSE_INTERRUPT, /* complete, but signal nobody */
	EMU_FAULT_SPURIOUS_INTERRUPT, /* signal although nothing completed, then serve */
	EMU_FAULT_EARLY_INTERRUPT, /* signal .delay_ns before the CQE is visible */
	EMU_FAULT_DUP_CQE, /* post the completion twice */
	EMU_FAULT_BAD_CID, /* an extra completion first, for a command identifier nobody sent */
	EMU_FAULT_BAD_SQID, /* an extra completion first, with a wrong SQ identifier */
	EMU_FAULT_DROP, /* the command is forgotten: no completion, not even on Abort */
	EMU_FAULT_CFS, /* CSTS.CFS is set and nothing completes any more */
	EMU_FAULT_REMOVED, /* registers read all ones, nothing completes, no DMA */
	EMU_FAULT_ABORT_REFUSED, /* Abort answers "not aborted" */
	EMU_FAULT_ENABLE_STUCK, /* CSTS.RDY never follows CC.EN */
	EMU_FAULT_STUCK_PHASE, /* the completion is written with the phase tag of the round before */
	EMU_FAULT_FREE_CID, /* an extra completion first, for an identifier in range that is not in use */
	EMU_FAULT_BAD_SQHD, /* the completion tells a head that the queue cannot have */
	EMU_FAULT_RESET_REFUSED, /* CSTS.RDY stays when CC.EN goes, and so does all else */
	EMU_FAULT_NEVER_READY, /* CC.EN = 1 has no effect */
	EMU_FAULT_ALL_ONES, /* for .delay_ns registers read all ones and take no writes; the rest works on */
	EMU_FAULT_POWER_CUT, /* power fails in the middle of the command, and comes back; see emu_power_cut() */
	EMU_FAULT_POWER_OFF, /* the same, and it stays off */
};

#define EMU_ANY 0xffffffffu
#define EMU_ANY_IO 0xfffffffeu /* .qid: any but the admin queue, whose opcodes mean other things */

struct emu_fault {
	uint32_t action;
	uint32_t qid; /* EMU_ANY, EMU_ANY_IO; 0 is the admin queue */
	uint32_t opcode; /* EMU_ANY */
	uint32_t nsid; /* EMU_ANY */
	uint64_t slba; /* with nlb > 0: commands that touch [slba, slba + nlb) */
	uint64_t nlb;
	uint32_t skip; /* let so many matches pass first */
	uint32_t count; /* then act on so many; 0: all */
	uint16_t status; /* SCT 10:8, SC 7:0, CRD 12:11, DNR 14 */
	uint64_t delay_ns;
};

/* A positive id, or -errno. */
int emu_fault_add(struct emu_ctrl *e, const struct emu_fault *f);
/* How often it struck, or -ENOENT. Commands held by it are served. */
int64_t emu_fault_clear(struct emu_ctrl *e, int id);
int64_t emu_fault_hits(struct emu_ctrl *e, int id);
/* Another size for a namespace (whole blocks), and the event that says so. A file grows with it and never shrinks. */
int emu_ns_resize(struct emu_ctrl *e, uint32_t nsid, uint64_t nbytes);
/* Take a namespace away, or bring it back. A new one with @nbytes is made in memory, with blocks as of the first. */
int emu_ns_attach(struct emu_ctrl *e, uint32_t nsid, uint64_t nbytes, bool on);
/*
 * Cut the power: nothing that was on its way completes, and of what was not durable some is lost (by @seed; NULL: by
 * the next of the generator that emu_params.seed started). Power comes back at once, and the registers are those of a
 * controller that was just switched on, or it @stays_off, and they read all ones. -ENXIO: its power cannot be cut
 * (emu_params.volatile_bytes is 0); -ENODEV: there is none; another error: the backing could not be changed.
 */
int emu_power_cut(struct emu_ctrl *e, const uint64_t *seed, bool stays_off);
/* Complete an outstanding asynchronous event request (or queue the event) with this dw0. */
int emu_event(struct emu_ctrl *e, uint32_t dw0);

struct emu_counters {
	uint64_t iommu_faults; /* accesses outside a live mapping: tests assert zero */
	uint64_t protocol_errors; /* bad doorbell values, malformed queue creation and the like */
	uint64_t commands; /* I/O commands completed */
	uint64_t stepped; /* of these, on a host thread */
	uint64_t admin_commands;
	uint64_t interrupts; /* eventfds signalled */
	uint64_t interrupts_masked; /* completions whose owners were awake */
	uint64_t kicks; /* system calls made to wake device threads */
	uint64_t aborts;
	uint64_t doorbell_writes_seen; /* distinct MMIO doorbell values taken (shadow doorbells avoid them) */
	uint64_t flushes; /* fdatasync calls */
};
void emu_get_counters(struct emu_ctrl *e, struct emu_counters *ret);

#endif
