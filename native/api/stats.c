/* SPDX-License-Identifier: MIT */
/* ugds.h: what the queue pairs have done. */
#include "api/api.h"
#include "include/ugds_stats.h"
#include "nvme/chan.h"
#include "nvme/trace.h"

int64_t ugds_ctrl_tallies(struct ugds_ctrl *c, void *buf, uint64_t max)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->c->tallies ? (int64_t)nvme_tallies_copy(c->c->tallies, buf, max) : 0;
}

int ugds_ctrl_coalescing(struct ugds_ctrl *uc, struct ugds_coalescing *ret)
{
	api_visitor *in = api_enter(uc);

	if (!in)
		return -ESHUTDOWN;
	*ret = (struct ugds_coalescing){ uc->c->coalesced, uc->c->nr_coalesced, uc->c->coalesce_status };
	return 0;
}

int ugds_trace(struct ugds_ctrl *c, uint64_t until_ns)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	if (!c->c->tallies)
		return -EOPNOTSUPP;
	nvme_trace_until(c->c->tallies, (int64_t)min_u64(until_ns, INT64_MAX));
	return 0;
}

static_assert(UGDS_TRACE_EVENTS == TRACE_EVENTS && UGDS_MARK_FUTURE == TRACE_FUTURE &&
		      UGDS_MARK_RESUMED == TRACE_RESUMED,
	      "one numbering");

int ugds_trace_copy(struct ugds_ctrl *c, uint64_t *words)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	if (!c->c->tallies)
		return -EOPNOTSUPP;
	nvme_tallies_events(c->c->tallies, words);
	return 0;
}

void ugds_trace_mark(struct ugds_chan *ch, uint64_t token, uint32_t kind)
{
	if (kind == TRACE_FUTURE || kind == TRACE_RESUMED)
		nvme_trace_mark(chan_of(ch), token, kind);
}

int ugds_op_look(struct ugds_chan *ch, uint64_t token, struct ugds_op_look *ret)
{
	const struct nvme_op *op = nvme_chan_op_find(chan_of(ch), token);

	if (!op)
		return -ENOENT;
	*ret = (struct ugds_op_look){ 0 };
	if (op->flags & NVME_OPF_HANDLE) {
		ret->what = UGDS_LOOK_BATCH;
		ret->nbytes = nvme_batch_pending(op->batch);
	} else if (op->flags & NVME_OPF_ADMIN) {
		ret->what = UGDS_LOOK_ADMIN;
	} else {
		ret->what = op->opcode;
		ret->nbytes = op->nbytes;
		ret->nsid = op->ns->nsid;
		/* what is sent piece by piece is somewhere on its way */
		ret->offset = (op->slba << op->ns->lba_shift) - (op->buf_off - op->buf_start);
	}
	return 0;
}
