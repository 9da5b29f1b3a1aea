/* SPDX-License-Identifier: MIT */
/* Reading Identify Namespace data: bring-up, reset and housekeeping's rescan. */
#ifndef NVME_IDENTIFY_H
#define NVME_IDENTIFY_H

#include "nvme/ctrl.h"

struct nvme_ns_facts {
	uint32_t lba_shift;
	uint32_t metadata;
	uint32_t nawupf;
	uint64_t nblocks;
	bool readonly;
	bool usable;
};

/* Inactive (all zero) comes out as unusable. */
void nvme_ns_parse(const struct nvme_ctrl *c, const struct nvme_id_ns *id, struct nvme_ns_facts *ret);
void nvme_ns_update(struct nvme_nsdata *ns, const struct nvme_ns_facts *f);

#endif
