/* SPDX-License-Identifier: MIT */
/* Getting the device's hands off memory. */
#ifndef NVME_RECOVERY_H
#define NVME_RECOVERY_H

#include "nvme/ctrl.h"

/* CC.EN = 0, or else DMA off. 0: nothing of ours is reachable for the device any more. */
int nvme_recovery_stop(struct nvme_ctrl *c);
/* On the housekeeping thread: stop, then end everything that was outstanding, the quarantine too. The
 * controller stays down (WEDGED, or REMOVED if it was). */
int nvme_recovery_quiesce(struct nvme_ctrl *c, void *unused);
/* The same after the transport has cut DMA: everything outstanding ends with @err. */
void nvme_recovery_cut(struct nvme_ctrl *c, int err);

#endif
