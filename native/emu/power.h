/* SPDX-License-Identifier: MIT */
/*
 * Power, and losing it. There is nothing of this in a controller whose power cannot be cut: e->power is NULL.
 */
#ifndef EMU_POWER_H
#define EMU_POWER_H

#include "emu/internal.h"

int emu_power_new(struct emu_ctrl *e);
/* Every thread is out. A cut that nobody has looked at yet has its effect now. */
void emu_power_free(struct emu_ctrl *e);

/* What changes blocks, where e->power is. A status, or 0 or -errno. */
uint16_t emu_power_write(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s);
/* Whole blocks that were checked. */
uint16_t emu_power_write_from(struct emu_ctrl *e, struct emu_ns *ns, uint64_t off, struct iovec *from,
			      bool fua);
int emu_power_zero(struct emu_ctrl *e, struct emu_ns *ns, uint64_t slba, uint64_t nlb, bool punch, bool fua);
/* What was written to @ns before is durable. */
void emu_power_flushed(struct emu_ctrl *e, struct emu_ns *ns);

/* Power fails in the middle of @c. It takes effect when the host next looks at a register. */
void emu_power_fail_at(struct emu_actor *a, const struct emu_cmd *c, bool stays_off);
/* Before any register is read or written. Not under reg_lock. */
void emu_power_look(struct emu_ctrl *e);
/* How often power was lost. */
uint64_t emu_power_cuts(struct emu_ctrl *e);

#endif
