/* SPDX-License-Identifier: MIT */
#ifndef PCIE_PCIE_QPAIR_H
#define PCIE_PCIE_QPAIR_H

#include "pcie/pcie_ops.h"

/* nvme_ctrl_ops.qpair_new over rings: memory is taken and touched here, nothing after. */
int pcie_qpair_new(struct nvme_ctrl *c, const struct nvme_qpair_conf *conf, struct nvme_qpair **ret);

#endif
