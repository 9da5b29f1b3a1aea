/* SPDX-License-Identifier: MIT */
/* The embedded controller's test interface, for aiougds.testing: the second half of what Python sees. */
#ifndef UGDS_EMU_H
#define UGDS_EMU_H

#include "include/ugds.h"

#define UGDS_FAULT_STATUS 1
#define UGDS_FAULT_DELAY 2
#define UGDS_FAULT_HOLD 3
#define UGDS_FAULT_LOSE_INTERRUPT 4
#define UGDS_FAULT_SPURIOUS_INTERRUPT 5
#define UGDS_FAULT_EARLY_INTERRUPT 6
#define UGDS_FAULT_DUP_CQE 7
#define UGDS_FAULT_BAD_CID 8
#define UGDS_FAULT_BAD_SQID 9
#define UGDS_FAULT_DROP 10
#define UGDS_FAULT_CFS 11
#define UGDS_FAULT_REMOVED 12
#define UGDS_FAULT_ABORT_REFUSED 13
#define UGDS_FAULT_ENABLE_STUCK 14
#define UGDS_FAULT_STUCK_PHASE 15
#define UGDS_FAULT_FREE_CID 16
#define UGDS_FAULT_BAD_SQHD 17
#define UGDS_FAULT_RESET_REFUSED 18
#define UGDS_FAULT_NEVER_READY 19
#define UGDS_FAULT_ALL_ONES 20
#define UGDS_FAULT_POWER_CUT 21
#define UGDS_FAULT_POWER_OFF 22
#define UGDS_FAULT_ANY 0xffffffff
#define UGDS_FAULT_ANY_IO 0xfffffffe /* .qid: any but the admin queue */

struct ugds_fault {
	uint32_t action;
	uint32_t qid;
	uint32_t opcode;
	uint32_t nsid;
	uint64_t slba;
	uint64_t nlb;
	uint32_t skip;
	uint32_t count;
	uint32_t status;
	uint32_t reserved;
	uint64_t delay_ns;
};
/* -EOPNOTSUPP on anything but the embedded controller. */
int ugds_fault_add(struct ugds_ctrl *c, const struct ugds_fault *f);
/* How often it struck. */
int64_t ugds_fault_clear(struct ugds_ctrl *c, int id);
int64_t ugds_fault_hits(struct ugds_ctrl *c, int id);
int ugds_emu_event(struct ugds_ctrl *c, uint32_t dw0);
/* Cut the power, which comes back at once or @stays_off; returns when the controller's state says so. What is lost is
 * chosen by *@seed, or by the generator that ugds_emu_params.seed started. -ENXIO: opened without volatile_bytes. */
int ugds_emu_power_cut(struct ugds_ctrl *c, const uint64_t *seed, int stays_off);
/* Another size for a namespace, with the event that tells. -ENOENT, -EINVAL (whole blocks), -EFBIG, -EROFS. */
int ugds_emu_resize(struct ugds_ctrl *c, uint32_t nsid, uint64_t nbytes);
/* Take a namespace away (@on 0), bring it back, or make a new one of @nbytes in memory. -ENOENT, -EEXIST, -EINVAL. */
int ugds_emu_attach(struct ugds_ctrl *c, uint32_t nsid, uint64_t nbytes, int on);

/* For tests of what hardware does, before anything is on a stream: streams are ordered as if the device reached the GPU itself. */
int ugds_emu_as_hardware(struct ugds_ctrl *c);

struct ugds_emu_counters {
	uint64_t iommu_faults;
	uint64_t protocol_errors;
	uint64_t commands;
	uint64_t stepped;
	uint64_t admin_commands;
	uint64_t interrupts;
	uint64_t interrupts_masked;
	uint64_t kicks;
	uint64_t aborts;
	uint64_t doorbell_writes_seen;
	uint64_t flushes;
};
int ugds_emu_counters(struct ugds_ctrl *c, struct ugds_emu_counters *ret);

#endif
