/* SPDX-License-Identifier: MIT */
#include "nvme/check.h"

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

int nvme_check_opcode(const struct nvme_ctrl *c, const struct nvme_ns *ns, uint32_t opcode)
{
	int err = check_offered(c, opcode);

	if (err)
		return err;
	if (atomic_load_explicit(&ns->gone, memory_order_relaxed))
		return -ENXIO;
	if (ns->readonly &&
	    (opcode == NVME_IO_WRITE || opcode == NVME_IO_WRITE_ZEROES || opcode == NVME_IO_DSM))
		return -EROFS;
	return 0;
}
