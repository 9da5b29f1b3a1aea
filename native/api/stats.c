/* SPDX-License-Identifier: MIT */
/* ugds.h: what the queue pairs have done. */
#include "api/api.h"
#include "nvme/tally.h"

int64_t ugds_ctrl_tallies(struct ugds_ctrl *c, void *buf, uint64_t max)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->c->tallies ? (int64_t)nvme_tallies_copy(c->c->tallies, buf, max) : 0;
}
