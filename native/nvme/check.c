/* SPDX-License-Identifier: MIT */
/* What a request has to satisfy before anything is sent. Each answer has one cause, so that it can be put in words. */
#include "nvme/chan.h"
#include "nvme/end.h"

static int check_offered(const struct nvme_ctrl *c, uint32_t opcode)
{
	switch (opcode) {
	case NVME_IO_FLUSH:
	case NVME_IO_READ:
	case NVME_IO_WRITE:
		return 0;
	case NVME_IO_COMPARE:
		return c->oncs & NVME_ONCS_COMPARE ? 0 : -EOPNOTSUPP;
	case NVME_IO_WRITE_ZEROES:
		return c->oncs & NVME_ONCS_WRITE_ZEROES ? 0 : -EOPNOTSUPP;
	case NVME_IO_DSM:
		return c->oncs & NVME_ONCS_DSM ? 0 : -EOPNOTSUPP;
	case NVME_IO_VERIFY:
		return c->oncs & NVME_ONCS_VERIFY ? 0 : -EOPNOTSUPP;
	default:
		return -EOPNOTSUPP;
	}
}

int nvme_check(struct nvme_ctrl *c, struct nvme_ns *ns, struct mem_map *m, uint64_t buf_off, uint64_t nbytes,
	       uint64_t offset, uint32_t opcode, bool fua, struct nvme_op *op)
{
	if (unlikely(opcode != NVME_IO_READ)) {
		int err = check_offered(c, opcode);

		if (err)
			return err;
		if (ns->readonly && (opcode == NVME_IO_WRITE || opcode == NVME_IO_WRITE_ZEROES || opcode == NVME_IO_DSM))
			return -EROFS;
	}
	if (unlikely((offset | nbytes) & ((1ull << ns->lba_shift) - 1)))
		return -EINVAL;
	if (unlikely(offset > ns->nbytes || nbytes > ns->nbytes - offset))
		return -ERANGE;
	if (likely(m)) {
		if (unlikely(buf_off > m->nbytes || nbytes > m->nbytes - buf_off))
			return -EFAULT;
		if (unlikely((m->first_off + buf_off) & 3)) /* PRP entries are dword aligned (Base 4.1.1) */
			return -EDOM;
		if (unlikely(opcode == NVME_IO_READ && !(m->flags & DMA_WRITE)))
			return -EACCES;
		if (unlikely(atomic_load_explicit(&m->nr_stuck, memory_order_relaxed)) &&
		    nvme_range_is_stray(c, m, buf_off, nbytes))
			return -EBUSY;
	}
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
	op->opcode = (uint8_t)opcode;
	nvme_op_set(op, NVME_OP_POSTED);
	op->flags = fua ? NVME_OPF_FUA : 0;
	op->outcome = NVME_DONE;
	op->more = true;
	op->silent = false;
	return 0;
}
