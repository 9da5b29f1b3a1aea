/* SPDX-License-Identifier: MIT */
/* What the forms of submitting a batch share. */
#ifndef NVME_BATCH_H
#define NVME_BATCH_H

#include "nvme/chan.h"

/* May @n more items be submitted? 0 or a negative errno. */
static inline int nvme_batch_may(struct nvme_batch *b, uint32_t n)
{
	int err = nvme_ctrl_may(b->chan->ctrl);

	if (unlikely(err))
		return err;
	return n > b->free_n ? -ENOSPC : 0;
}

/* @n items were queued or sent: send the rest and look for them as long as it may pay. @small: some are reads that the
 * device may serve on this thread. Lane locked; the lock is left. */
void nvme_batch_start(struct nvme_batch *b, uint32_t n, int64_t now, bool small);

#endif
