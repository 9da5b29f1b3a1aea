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
	bool active;
};

/* Inactive (all zero) comes out as unusable. */
void nvme_ns_parse(const struct nvme_ctrl *c, const struct nvme_id_ns *id, struct nvme_ns_facts *ret);

/* window.c */
void nvme_ns_update(struct nvme_ctrl *c, struct nvme_nsdata *ns, const struct nvme_ns_facts *f);
/* False: no room, it stays unknown until the controller is opened again. */
bool nvme_ns_append(struct nvme_ctrl *c, uint32_t nsid, const struct nvme_ns_facts *f);
void nvme_window_add(struct nvme_ctrl *c, struct nvme_ns *w);
void nvme_window_del(struct nvme_ctrl *c, struct nvme_ns *w);

#endif
