/* SPDX-License-Identifier: MIT */
/* Commands that become one transfer of a file. */
#ifndef EMU_MERGE_H
#define EMU_MERGE_H

#include <errno.h>

#include "emu/internal.h"

#define EMU_MERGE_BYTES (1ull << 20) /* with so many none more joins: threads share the copies */
#define EMU_MERGE_DIRECT (4ull << 20) /* with O_DIRECT: a disk's queue is to be full */
#define EMU_MERGE_GAP 4096u /* between reads: less work to read than to read around */

/* Whether commands may be merged now: nothing is modelled, injected or staged that is of each by itself. */
bool emu_merges(struct emu_ctrl *e);
/* Whether @next goes on in @ns where @s ends, or right behind it, in the same manner. */
bool emu_merge_follows(const struct emu_ns *ns, const struct nvme_sqe *s, const struct nvme_sqe *next);
/* Run commands as one, as many from the first on as can be; how many came to their end. 0: run the first by itself. */
uint32_t emu_run_merged(struct emu_actor *a, struct emu_cmd *c, uint32_t nr);

#endif
