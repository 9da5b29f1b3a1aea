/* SPDX-License-Identifier: MIT */
/*
 * A PCI function on strings: registers are fields, the admin queue is served by a function that a target supplies, and
 * nothing happens on I/O queues but what a target does to them. It has bus addresses of its own; whatever address the
 * host hands it must lie in a live mapping.
 */
#ifndef FUZZ_PUPPET_H
#define FUZZ_PUPPET_H

#include "nvme/ctrl.h"
#include "pcie/pcie_ops.h"

#define PUPPET_MAPS 64
#define PUPPET_QUEUES 8
#define PUPPET_DOORBELLS 4096u

struct puppet_map {
	uint64_t iova;
	uint8_t *vaddr;
	uint64_t nbytes;
	uint32_t flags;
	bool live;
	bool scattered; /* neighbouring pages are not neighbours on the bus */
};

struct puppet_queue {
	struct nvme_sqe *sq;
	struct nvme_cqe *cq;
	uint32_t sq_size, cq_size;
	uint32_t sq_head, cq_tail, phase;
};

struct puppet;
/* Answer an admin command: a status; *ret_answer false: never. Data may be written with puppet_data(). */
typedef uint16_t puppet_admin(struct puppet *p, const struct nvme_sqe *sqe, uint32_t *ret_dw0,
			      bool *ret_answer);

struct puppet {
	struct pcie_dev dev;
	uint64_t cap;
	uint32_t vs, cc, csts, aqa;
	uint64_t asq, acq;
	bool gone; /* registers read all ones */
	bool stuck; /* CSTS.RDY does not follow CC.EN */
	bool dma_off;
	bool closed;
	uint8_t *doorbells;
	struct puppet_map map[PUPPET_MAPS];
	uint64_t next_iova;
	struct puppet_queue q[PUPPET_QUEUES];
	uint32_t nr_bound;
	puppet_admin *admin;
	void (*on_read)(struct puppet *p, uint32_t off); /* before a register is read; may be NULL */
	void *script;
	uint32_t granted; /* queue pairs */
	struct nvme_id_ctrl id;
	struct nvme_id_ns ns;
	uint16_t aer[16]; /* identifiers of event requests that wait */
	uint32_t nr_aer;
};

void puppet_init(struct puppet *p);
/* All is unmapped and unbound. */
void puppet_done(struct puppet *p);
/* The host's memory at @iova, or NULL where there is no mapping that allows @perm for all of it. */
void *puppet_at(struct puppet *p, uint64_t iova, uint64_t nbytes, uint32_t perm);
/* Write @n bytes of an answer where the command says. False: the host gave no such place. */
bool puppet_data(struct puppet *p, const struct nvme_sqe *sqe, const void *src, uint32_t n);
/* A well-behaved answer. */
uint16_t puppet_answer(struct puppet *p, const struct nvme_sqe *sqe, uint32_t *ret_dw0, bool *ret_answer);
/* Post to queue @qid as it should be done. */
void puppet_post(struct puppet *p, uint32_t qid, uint16_t cid, uint16_t status, uint32_t dw0);
/* Serve the admin queue. */
void puppet_serve(struct puppet *p);
uint32_t puppet_doorbell(struct puppet *p, uint32_t qid, bool cq);

#endif
