/* SPDX-License-Identifier: MIT */
/*
 * What a queue pair has to do, written a second time: a plain table of live commands and a plain consumer of the
 * completion ring. It sits between the engine and the real pair (qpair_ops), sees the same memory, and every answer
 * of the real one has to be its own. Data pointers are walked as a controller does.
 */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "puppet.h"

#define MODEL_DEPTH 64
#define MODEL_PAIRS PUPPET_QUEUES

struct model_live {
	void *owner;
	uint32_t nbytes;
	uint16_t cid;
	bool list; /* it has a list page */
};

struct model_pair {
	struct nvme_qpair *qp;
	const struct nvme_qpair_ops *real;
	struct nvme_qpair_ops ops; /* the engine's */
	struct model_live live[MODEL_DEPTH];
	uint32_t nr_live;
	uint32_t nr_lists; /* free */
	uint32_t cq_head, cq_rung, phase, sq_tail;
	uint64_t unknown;
};

/* What a target wants to know. */
struct model_watch {
	void (*sent)(const struct nvme_io *io);
	void (*done)(const struct nvme_done *done, bool forgotten);
};

struct model {
	struct puppet *p;
	struct model_pair pair[MODEL_PAIRS]; /* by queue identifier */
	const struct model_watch *watch;
};

/* One at a time: the pairs that are made from now on are watched. Open the controller over model_ctrl_ops. */
void model_begin(struct model *m, struct puppet *p, const struct model_watch *watch);
extern struct nvme_ctrl_ops model_ctrl_ops;
uint32_t model_live_of(const struct model *m, const void *owner);
uint32_t model_live_all(const struct model *m);
/* An owner that sleeps left no completion that the device does not know to be consumed. */
void model_all_told(const struct nvme_lane *l);

/* prp_walk.c: every byte of the command is where @vaddr is: a status as a controller would say, 0 is right. */
const char *prp_walk(struct puppet *p, uint64_t prp1, uint64_t prp2, uint32_t page, const uint8_t *vaddr,
		     uint32_t nbytes, uint32_t perm);

#endif
