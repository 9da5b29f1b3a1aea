/* SPDX-License-Identifier: MIT */
/*
 * The engine's second seam: a queue pair as the engine sees it. One owner at a time: whoever holds the lane
 * (nvme/lane.h). No call here allocates, locks or enters the kernel, but for kick() of a transport that has to
 * wake a sleeping software device.
 */
#ifndef NVME_QPAIR_OPS_H
#define NVME_QPAIR_OPS_H

#include "mem/registration.h"
#include "spec/nvme.h"
#include "support/util.h"

struct nvme_ctrl;
struct nvme_qpair;

/* One command to be sent. The data pointer is built behind the seam from @map, @buf_off and @nbytes. */
struct nvme_io {
	void *owner; /* comes back in nvme_done */
	struct mem_map *map; /* NULL: no data */
	uint64_t buf_off;
	uint64_t cdw10_11; /* SLBA of what has one */
	uint32_t nbytes;
	uint32_t nsid;
	uint32_t cdw12;
	uint8_t opcode;
	uint8_t inl_len; /* DSM ranges: bytes of @inl copied into queue memory and pointed to */
	uint16_t cid; /* out: the command identifier it was sent with */
	const void *inl;
};

/* Commands that differ only in where: what they have in common, */
struct nvme_run {
	struct mem_map *map;
	uint32_t nbytes;
	uint32_t nsid;
	uint32_t cdw12;
	uint8_t opcode;
};

/* and where. */
struct nvme_item {
	void *owner;
	uint64_t buf_off;
	uint64_t cdw10_11;
};

struct nvme_done {
	void *owner;
	uint32_t nbytes; /* of the command */
	uint32_t dw0;
	uint16_t status; /* NVME_CQE_STATUS; 0 is success */
	uint16_t cid;
	int64_t sent_ns; /* as submit was told, less what nobody saw since */
};

struct nvme_stuck {
	void *owner;
	uint16_t cid;
	int64_t sent_ns;
};

enum nvme_qpair_kind {
	NVME_QPAIR_ADMIN,
	NVME_QPAIR_GENERAL,
	NVME_QPAIR_BATCH,
	/* where the controller arbitrates between classes */
	NVME_QPAIR_URGENT,
	NVME_QPAIR_LOW
};

struct nvme_qpair_conf {
	uint16_t qid;
	uint16_t vector;
	uint32_t depth; /* entries in each ring; depth - 1 commands in flight */
	uint32_t list_pages; /* pool of PRP-list (or SGL segment) pages */
	uint8_t kind;
	uint8_t qprio;
	bool irq;
};

struct nvme_qpair_ops {
	/* Make the controller know the pair. I/O pairs use nvme_admin_sync(): the admin queue's owner calls it. */
	int (*connect)(struct nvme_qpair *qp);
	/* Put up to @n commands into the queue, in order; returns how many fitted. The device is not told. */
	uint32_t (*submit)(struct nvme_qpair *qp, struct nvme_io *ios, uint32_t n, int64_t now);
	/* The same for a single one with data. There is space. */
	bool (*submit_one)(struct nvme_qpair *qp, const struct nvme_io *io, int64_t now);
	/* The same for commands alike. NULL: they are described one by one. */
	uint32_t (*submit_run)(struct nvme_qpair *qp, const struct nvme_run *run,
			       const struct nvme_item *items, uint32_t n, int64_t now);
	/* One ready-made command whose data pointer is filled in; the cid is set here. -EAGAIN: full. */
	int (*submit_raw)(struct nvme_qpair *qp, const struct nvme_sqe *sqe, void *owner, int64_t now);
	/* Tell the device. @hold: a software device that sleeps is left asleep (the caller steps it, and calls
	 * again with hold = false before it stops looking). */
	void (*kick)(struct nvme_qpair *qp, bool hold);
	/* After kick(hold): wake the device if it sleeps. @fenced: the caller has put a full fence in between and is done;
	 * else it keeps calling while it waits. NULL: hardware, nothing to do. */
	void (*tell)(struct nvme_qpair *qp, bool fenced);
	/* Consume completions. The device may learn of it late, in time for more. */
	uint32_t (*reap)(struct nvme_qpair *qp, struct nvme_done *out, uint32_t max);
	/* Let the device know of all that was consumed: before an owner sleeps, since a device may interrupt only when
	 * its queue was empty. NULL: it always knows. */
	void (*ack)(struct nvme_qpair *qp);
	/* A completion is there to reap. Safe from any thread. */
	bool (*peek)(struct nvme_qpair *qp);
	/* Let a software device make progress on the caller's thread; commands completed. NULL: there is none. */
	uint32_t (*step)(struct nvme_qpair *qp, uint32_t max);
	/* The longest-sent command, if one was sent at or before @before. */
	bool (*oldest)(struct nvme_qpair *qp, int64_t before, struct nvme_stuck *ret);
	/* Nobody looked for @gap before @now: what is outstanding counts as sent so much later. */
	void (*excuse)(struct nvme_qpair *qp, int64_t gap, int64_t now);
	/* The first block of the command last sent with @cid; false: its entry is not there any more. NULL: it never is. */
	bool (*sent_slba)(struct nvme_qpair *qp, uint16_t cid, uint64_t *ret);
	/* Look at every outstanding command. */
	void (*each)(struct nvme_qpair *qp, void (*fn)(void *ctx, void *owner, uint16_t cid), void *ctx);
	/* The next outstanding command of @owner from *@pos on, which moves behind it; 0 is the beginning. */
	bool (*next)(struct nvme_qpair *qp, const void *owner, uint32_t *pos, uint16_t *ret_cid);
	/* Completions of @owner's commands that are there to reap. */
	uint32_t (*landed)(struct nvme_qpair *qp, const void *owner);
	/* Forget every outstanding command: @done is called for each. Only when DMA has provably stopped. */
	void (*fail_all)(struct nvme_qpair *qp, void (*done)(void *ctx, const struct nvme_done *), void *ctx);
	/* connected: Delete SQ and CQ. Not connected (after a controller reset): nothing is sent, then or until connect(),
	 * and nothing is reaped. Everything was failed before. */
	int (*disconnect)(struct nvme_qpair *qp, bool connected);
	void (*free)(struct nvme_qpair *qp);
};

/* The part of a queue pair that every implementation begins with. */
struct nvme_qpair {
	const struct nvme_qpair_ops *ops;
	struct nvme_ctrl *ctrl;
	struct nvme_qpair_conf conf;
	uint32_t inflight; /* commands sent and not reaped; written by the owner */
	uint32_t space; /* commands that certainly fit now (list pages aside); kept by submit and reap */
	bool huge; /* rings in a hugepage */
	struct nvme_tally *tally; /* NULL: none is kept */
	uint64_t nr_doorbells; /* statistics, written by the owner */
	uint64_t nr_unknown_cid; /* completions that match no command: counted, never delivered */
};

#endif
