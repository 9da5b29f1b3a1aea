/* SPDX-License-Identifier: MIT */
#include "nvme/turns.h"

#include <stdlib.h>

static struct nvme_turns *make(void)
{
	struct nvme_turns *t = calloc(1, sizeof(*t));

	for (uint32_t flow = 0; t && flow < NVME_FLOWS; flow++)
		for (uint32_t i = 0; i < NVME_TURNS; i++)
			t->aside[flow][i].tail = &t->aside[flow][i].head;
	return t;
}

static uint32_t shared(const struct nvme_chan *ch, const struct nvme_ns *ns)
{
	return (uint32_t)(((uintptr_t)ch >> 6) + ns->nsid) % NVME_TURNS;
}

uint8_t nvme_turns_find(struct nvme_lane *l, uint32_t flow, const struct nvme_chan *ch,
			const struct nvme_ns *ns)
{
	uint32_t free_one = NVME_TURNS;

	if (l->ctrl->p.fifo)
		return 0;
	if (!l->turns)
		l->turns = make();
	if (!l->turns) /* first in, first out, then */
		return 0;
	for (uint32_t i = 0; i < NVME_TURNS; i++) {
		const struct nvme_op *head = l->turns->aside[flow][i].head;

		if (head && nvme_turns_same(head, ch, ns))
			return (uint8_t)(i + 1);
		if (!head && free_one == NVME_TURNS)
			free_one = i;
	}
	if (!l->pending[flow].head)
		return 0;
	return (uint8_t)(1 + (free_one < NVME_TURNS ? free_one : shared(ch, ns)));
}
