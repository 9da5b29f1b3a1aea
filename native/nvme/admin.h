/* SPDX-License-Identifier: MIT */
/* The admin queue's private side: bring-up, housekeeping and recovery, one at a time. */
#ifndef NVME_ADMIN_H
#define NVME_ADMIN_H

#include "nvme/ctrl.h"

#define NVME_ADMIN_MAX_DATA 65536u
#define NVME_ADMIN_SLOTS 4 /* commands with data in flight */
#define NVME_ADMIN_SLOT_PAGES 17 /* at most: a PRP list and 64 KiB in the smallest pages */
#define NVME_ADMIN_DEPTH 64

struct nvme_admin {
	void *area; /* data pages: the device's for ever, whatever becomes of the request they served */
	size_t area_bytes;
	uint64_t handle;
	uint8_t *base; /* first controller page of it */
	uint64_t iova[NVME_ADMIN_SLOTS * NVME_ADMIN_SLOT_PAGES];
	uint32_t slot_pages;
	uint32_t free_slots; /* bit mask */
	struct nvme_admin_req *sent; /* at the device, newest first */
	struct nvme_admin_req sync; /* nvme_admin_sync()'s; outlives a time-out */
	bool stuck; /* the synchronous request never came back */
};

/* Put @req into the queue; -EAGAIN: no room. The caller kicks. Holds the caller's reference until it comes
 * back. */
int nvme_admin_send(struct nvme_ctrl *c, struct nvme_admin_req *req, int64_t now);
/* Consume completions; how many. */
uint32_t nvme_admin_reap(struct nvme_ctrl *c);
/* Call done() once, with @err unless the device answered. */
void nvme_admin_end(struct nvme_admin_req *req, int err);
/* The controller is disabled (or its DMA stopped): nothing comes back any more. */
void nvme_admin_forget(struct nvme_ctrl *c, int err);
/* End what users wait for; what is at the device stays there. */
void nvme_admin_fail(struct nvme_ctrl *c, int err);
/* The request that was sent first, of those that are meant to be answered in time. NULL: none. */
struct nvme_admin_req *nvme_admin_oldest(struct nvme_ctrl *c);
/* Send what users queued, as far as it fits. */
void nvme_admin_send_queued(struct nvme_ctrl *c, int64_t now);

#endif
