/* SPDX-License-Identifier: MIT */
/* ugds.h: channels, operations, batches. Thin: types and completions are translated, nothing else. */
#include "api/api.h"
#include "include/ugds_plan.h"
#include "include/ugds_stats.h"
#include "nvme/trace.h"

static_assert(UGDS_PENDING == NVME_PENDING, "one value");
static_assert(UGDS_MODE_POLL == NVME_MODE_POLL && UGDS_MODE_INTERRUPT == NVME_MODE_INTERRUPT, "one order");
static_assert(UGDS_UNKNOWN == NVME_UNKNOWN && UGDS_ABORTED == NVME_ABORTED, "one order");
static_assert(sizeof(struct ugds_completion) == 32, "four 64-bit words");

int ugds_chan_open(struct ugds_ctrl *c, uint32_t mode, struct ugds_chan **ret)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	struct nvme_chan *ch;
	int err;

	if (mode > UGDS_MODE_POLL)
		return -EINVAL;
	err = nvme_chan_open(c->c, (enum nvme_mode)mode, &ch);
	if (!err)
		*ret = (struct ugds_chan *)ch;
	return err;
}

int ugds_chan_fd(struct ugds_chan *ch) { return chan_of(ch)->fd; }

int ugds_chan_owns_queue(struct ugds_chan *ch) { return chan_of(ch)->owns; }

int ugds_chan_armed(struct ugds_chan *uch)
{
	const struct nvme_chan *ch = chan_of(uch);

	/* a transport with words of its own may have run out of them */
	return ch->ctrl->tr_flags & NVME_TR_ARM &&
	       (!(ch->ctrl->tr_flags & NVME_TR_OWN_WORDS) || ch->word != &ch->own_word);
}

int ugds_chan_close(struct ugds_chan *ch) { return nvme_chan_close(chan_of(ch)); }

void ugds_chan_orphan(struct ugds_chan *ch) { nvme_chan_orphan(chan_of(ch)); }

uint32_t ugds_chan_inflight(struct ugds_chan *ch) { return chan_of(ch)->inflight; }

int64_t ugds_rw(struct ugds_chan *ch, struct ugds_ns *ns, uint64_t map, uint64_t buf_off, uint64_t nbytes,
		uint64_t offset, uint32_t op)
{
	return nvme_chan_rw(chan_of(ch), ns_of(ns), map, buf_off, nbytes, offset, op);
}

void ugds_op_deadline(struct ugds_chan *ch, uint64_t token, uint64_t timeout_ns)
{
	nvme_chan_deadline(chan_of(ch), token, (int64_t)min_u64(timeout_ns, INT64_MAX / 2));
}

void ugds_chan_last(struct ugds_chan *ch, struct ugds_completion *ret)
{
	struct nvme_op *op = &chan_of(ch)->last;

	completion_fill(ret, op, nvme_op_token(op));
	op->gen = op->slot = 0; /* taken: a refusal that follows is not mistaken for it */
}

uint32_t ugds_chan_tokens(struct ugds_chan *ch, uint64_t *out, uint32_t max)
{
	return nvme_chan_tokens(chan_of(ch), out, max);
}

#define REAP_MOST 256

static int convert(struct nvme_chan *ch, struct nvme_op **ops, int n, struct ugds_completion *out)
{
	int k = 0;

	for (int i = 0; i < n; i++) {
		struct nvme_op *op = ops[i];

		if (!op->silent) /* else it was reported when it was given up */
			completion_fill(&out[k++], op, nvme_op_token(op));
		nvme_chan_collected(ch, op);
	}
	return k;
}

int ugds_reap(struct ugds_chan *ch, struct ugds_completion *out, uint32_t max)
{
	struct nvme_op *ops[REAP_MOST];
	int n = nvme_chan_reap(chan_of(ch), ops, min_u32(max, REAP_MOST));
	const struct nvme_tallies *all = chan_of(ch)->ctrl->tallies;

	if (n <= 0)
		return n;
	n = convert(chan_of(ch), ops, n, out);
	return n && all && nvme_traced(&all->tally[0], 0) ? n | UGDS_TRACED : n;
}

int ugds_wait(struct ugds_chan *ch, struct ugds_completion *out, uint32_t max, uint64_t timeout_ns)
{
	struct nvme_op *ops[REAP_MOST];
	int n, k;

	do {
		n = nvme_chan_wait(chan_of(ch), ops, min_u32(max, REAP_MOST),
				   (int64_t)min_u64(timeout_ns, INT64_MAX / 2));
		if (n <= 0)
			return n;
		k = convert(chan_of(ch), ops, n, out);
	} while (!k);
	return k;
}

int ugds_cancel(struct ugds_chan *ch, uint64_t token, uint64_t grace_ns)
{
	return nvme_chan_cancel(chan_of(ch), token, (int64_t)min_u64(grace_ns, INT64_MAX / 2));
}

int ugds_batch_new(struct ugds_chan *ch, uint32_t capacity, struct ugds_batch **ret)
{
	struct nvme_batch *b;
	int err = nvme_batch_new(chan_of(ch), capacity, &b);

	if (!err)
		*ret = (struct ugds_batch *)b;
	return err;
}

int ugds_batch_free(struct ugds_batch *b) { return nvme_batch_free(batch_of(b)); }

uint64_t ugds_batch_token(struct ugds_batch *b) { return nvme_op_token(batch_of(b)->handle); }

static uint8_t flow_of(uint64_t op)
{
	return op & UGDS_F_LATENCY	? NVME_FLOW_LATENCY
	       : op & UGDS_F_BACKGROUND ? NVME_FLOW_BACKGROUND
					: NVME_FLOW_NORMAL;
}

static uint16_t op_flags(uint64_t op)
{
	return (uint16_t)((op & UGDS_F_FUA ? NVME_OPF_FUA : 0) | nvme_chunk_flags((uint32_t)op));
}

static_assert(UGDS_SPIN_MOST << UGDS_SPIN_SHIFT < NVME_SPIN_SAID &&
		      NVME_SPIN_SAID >> UGDS_SPIN_SHIFT == 0xfff && 1u << UGDS_CHUNK_SHIFT > NVME_SPIN_SAID &&
		      UGDS_F_ADAPTIVE < 1 << UGDS_SPIN_SHIFT,
	      "one numbering");

/* How the submission whose first operation is @op is waited for. */
static int set_mode(struct nvme_batch *b, uint64_t op)
{
	enum nvme_mode mode = nvme_chan_mode(b->chan, (uint32_t)op);

	b->said = (uint32_t)op;
	return likely(mode == b->mode) ? 0 : nvme_batch_mode(b, mode);
}

static void get_req(const void *ctx, uint32_t i, struct nvme_batch_req *ret)
{
	const struct ugds_req *r = &((const struct ugds_req *)ctx)[i];

	*ret = (struct nvme_batch_req){
		.map = r->map,
		.buf_off = r->buf_off,
		.nbytes = r->nbytes,
		.offset = r->offset,
		.cookie = r->cookie,
		.opcode = r->op & 0xff,
		.flags = op_flags(r->op),
		.flow = flow_of(r->op),
	};
}

int64_t ugds_batch_submit(struct ugds_batch *b, struct ugds_ns *ns, const struct ugds_req *reqs, uint32_t n,
			  uint32_t *ret_bad)
{
	int err = n ? set_mode(batch_of(b), reqs[0].op) : 0;

	*ret_bad = 0;
	return err ? err : nvme_batch_submit(batch_of(b), ns_of(ns), get_req, reqs, n, ret_bad);
}

int64_t ugds_batch_submit_array(struct ugds_batch *b, struct ugds_ns *ns, uint32_t op, uint64_t map,
				const int64_t *offsets, const int64_t *buf_offsets, uint64_t nbytes,
				uint32_t n, uint64_t cookie0, uint32_t *ret_bad)
{
	int err = set_mode(batch_of(b), op);

	*ret_bad = 0;
	return err ? err
		   : nvme_batch_submit_array(batch_of(b), ns_of(ns), op & 0xff, op_flags(op), flow_of(op),
					     map, offsets, buf_offsets, nbytes, n, cookie0, ret_bad);
}

int ugds_batch_harvest(struct ugds_batch *b, struct ugds_completion *out, uint32_t max)
{
	struct nvme_batch *nb = batch_of(b);
	uint32_t n = 0;
	struct nvme_op *op;

	while (n < max && (op = nvme_batch_next(nb))) {
		completion_fill(&out[n++], op, op->cookie);
		nvme_chan_collected(nb->chan, op);
	}
	return (int)n;
}

int64_t ugds_batch_harvest_ok(struct ugds_batch *b)
{
	struct nvme_batch *nb = batch_of(b);
	uint32_t ready = nvme_batch_ready(nb);

	/* the items counted were ready before the failures are: none of them is missed */
	return atomic_load_explicit(&nb->nr_failed, memory_order_relaxed) ? -EIO
									  : nvme_batch_take_ok(nb, ready);
}

int ugds_batch_notify(struct ugds_batch *b, uint32_t n) { return nvme_batch_notify(batch_of(b), n); }

uint32_t ugds_batch_pending(struct ugds_batch *b) { return nvme_batch_pending(batch_of(b)); }

uint32_t ugds_batch_held(struct ugds_batch *b) { return batch_of(b)->nr_held; }

uint32_t ugds_batch_ready(struct ugds_batch *b) { return nvme_batch_ready(batch_of(b)); }

void ugds_batch_deadline(struct ugds_batch *b, uint64_t timeout_ns)
{
	nvme_batch_deadline(batch_of(b), (int64_t)min_u64(timeout_ns, INT64_MAX / 2));
}

int ugds_batch_cancel(struct ugds_batch *b, uint64_t grace_ns)
{
	return nvme_batch_cancel(batch_of(b), (int64_t)min_u64(grace_ns, INT64_MAX / 2));
}
