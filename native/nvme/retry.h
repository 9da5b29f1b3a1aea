/* SPDX-License-Identifier: MIT */
/*
 * Commands that failed and are sent again (Base 4.2.3.1: Do Not Retry, Command Retry Delay). Only where the user asked
 * for it, and only from the failure on: a command that succeeds never comes here. While one waits its operation counts
 * it as in flight, and its lane as queued, so that the owner sleeps armed. All with the lane's lock held.
 */
#ifndef NVME_RETRY_H
#define NVME_RETRY_H

#include "nvme/lane.h"

#define NVME_RETRIES_MOST 256 /* commands of a lane that failed and whose operations have not ended */

/* One command of an operation: found again by its first block when it fails again. */
struct nvme_retry {
	struct nvme_retry *next; /* of the lane's: in use, or free */
	struct nvme_timer timer;
	struct nvme_op *op;
	uint64_t slba;
	uint64_t buf_off;
	uint32_t nbytes;
	uint32_t tries;
	bool waiting; /* not at the device */
};

/* True: @d will be, or was, sent again, and is to be counted as in flight still. */
bool nvme_retry_failed(struct nvme_lane *l, struct nvme_op *op, const struct nvme_done *d);
/* Its time has come. */
void nvme_retry_due(struct nvme_lane *l, struct nvme_retry *r, int64_t now);
/* Nothing of @op is sent again: it has failed with @err. */
void nvme_retry_drop(struct nvme_lane *l, struct nvme_op *op, int err);
/* @op is over. */
void nvme_retry_forget(struct nvme_lane *l, struct nvme_op *op);
/* An operation of which a command waits, or NULL. */
struct nvme_op *nvme_retry_first(struct nvme_lane *l);
void nvme_retry_free(struct nvme_lane *l);

#endif
