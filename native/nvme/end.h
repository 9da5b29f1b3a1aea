/* SPDX-License-Identifier: MIT */
/* How operations end. Lane's lock held. */
#ifndef NVME_END_H
#define NVME_END_H

#include "nvme/lane.h"

/* @d failed: remember the first failure, stop splitting. */
void nvme_op_failed(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d);
/* Nothing of @op is at the device and nothing will be sent: give its references back and hand it over. */
void nvme_op_end(struct nvme_lane *l, struct nvme_op *op);
/* End @op for the user; its commands, references and memory stay until they are back. */
void nvme_op_stray(struct nvme_lane *l, struct nvme_op *op);
/* Some command's memory on @map overlaps [off, off + nbytes). */
bool nvme_range_is_stray(struct nvme_ctrl *c, const struct mem_map *map, uint64_t off, uint64_t nbytes);
/* Out of the pending list. */
void nvme_lane_unqueue(struct nvme_lane *l, struct nvme_op *op);

static inline void nvme_puts_flush(struct nvme_puts *p)
{
	if (p->nr_map)
		mem_put(p->map, p->nr_map);
	if (p->nr_ns)
		/* release: the operations' last look at the namespace */
		atomic_fetch_sub_explicit(&p->ns->ref, p->nr_ns, memory_order_release);
	p->nr_map = p->nr_ns = 0;
}

int nvme_status_errno(uint16_t status); /* status.c */

#endif
