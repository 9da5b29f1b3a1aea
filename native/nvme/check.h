/* SPDX-License-Identifier: MIT */
/* What a request has to satisfy before anything is sent. Each answer has one cause, so that it can be put in words. */
#ifndef NVME_CHECK_H
#define NVME_CHECK_H

#include "nvme/chan.h"
#include "nvme/end.h"

/* Anything but a read: is the command offered, may it change the namespace? */
int nvme_check_opcode(const struct nvme_ctrl *c, const struct nvme_ns *ns, uint32_t opcode);

static inline int nvme_check_range(struct nvme_ctrl *c, const struct nvme_ns *ns, struct mem_map *m,
				   uint64_t buf_off, uint64_t nbytes, uint64_t offset, uint32_t opcode)
{
	/* once: it may change meanwhile */
	uint64_t size = atomic_load_explicit(&ns->nbytes, memory_order_relaxed);

	if (unlikely(opcode != NVME_IO_READ)) {
		int err = nvme_check_opcode(c, ns, opcode);

		if (err)
			return err;
	}
	if (unlikely((offset | nbytes) & ((1ull << ns->lba_shift) - 1)))
		return -EINVAL;
	if (unlikely(offset > size || nbytes > size - offset))
		return atomic_load_explicit(&ns->gone, memory_order_relaxed) ? -ENXIO : -ERANGE;
	if (!m)
		return 0;
	if (unlikely(buf_off > m->nbytes || nbytes > m->nbytes - buf_off))
		return -EFAULT;
	if (unlikely((m->first_off + buf_off) & 3)) /* PRP entries are dword aligned (Base 4.1.1) */
		return -EDOM;
	if (unlikely(opcode == NVME_IO_READ && !(m->flags & DMA_WRITE)))
		return -EACCES;
	if (unlikely(atomic_load_explicit(&m->nr_stuck, memory_order_relaxed)) &&
	    nvme_range_is_stray(c, m, buf_off, nbytes))
		return -EBUSY;
	return 0;
}

/* 0 with @op filled, or what is wrong (a negative errno). @m NULL: no data. No references are taken: the caller
 * holds @m and @ns. */
static inline int nvme_check(struct nvme_ctrl *c, struct nvme_ns *ns, struct mem_map *m, uint64_t buf_off,
			     uint64_t nbytes, uint64_t offset, uint32_t opcode, bool fua, struct nvme_op *op)
{
	int err = nvme_check_range(c, ns, m, buf_off, nbytes, offset, opcode);

	if (unlikely(err))
		return err;
	op->ns = ns;
	op->map = m;
	op->buf_off = buf_off;
	op->buf_start = buf_off;
	op->slba = (ns->base + offset) >> ns->lba_shift;
	op->left = nbytes;
	op->nbytes = nbytes;
	op->done = 0;
	op->inflight = 0;
	op->dw0 = 0;
	op->err = 0;
	op->status = 0;
	op->flags = fua ? NVME_OPF_FUA : 0;
	op->opcode = (uint8_t)opcode;
	op->outcome = NVME_DONE;
	op->flow = NVME_FLOW_NORMAL;
	op->more = true;
	op->silent = false;
	nvme_op_set(op, NVME_OP_POSTED);
	return 0;
}

#endif
