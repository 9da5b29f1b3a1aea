/* SPDX-License-Identifier: MIT */
/*
 * The array form of a batch: one command, one length, one registration. All items are checked in one tight pass;
 * then each is filled and described to the queue pair in the same breath, without passing through the lane's list.
 */
#include "nvme/batch.h"
#include "nvme/check.h"
#include "nvme/turns.h"

#define SEND 32

struct array {
	const int64_t *offsets, *buf_offsets;
	uint64_t nbytes;
	uint32_t opcode;
	uint16_t flags;
};

static inline uint64_t buf_off(const struct array *a, uint32_t i)
{
	return a->buf_offsets ? (uint64_t)a->buf_offsets[i] : a->nbytes * i;
}

/* The slow way to the same answer: which item, and why. */
static int find_bad(struct nvme_ctrl *c, const struct nvme_ns *ns, struct mem_map *m, const struct array *a,
		    uint32_t n, uint32_t *ret_bad)
{
	for (uint32_t i = 0; i < n; i++) {
		int err = nvme_check_range(c, ns, m, buf_off(a, i), a->nbytes, (uint64_t)a->offsets[i],
					   a->opcode);

		if (err) {
			*ret_bad = i;
			return err;
		}
	}
	return 0;
}

static int check_all(struct nvme_ctrl *c, const struct nvme_ns *ns, struct mem_map *m, const struct array *a,
		     uint32_t n, uint32_t *ret_bad)
{
	const uint64_t lba_mask = (1ull << ns->lba_shift) - 1, first = m->first_off;
	const uint64_t size = atomic_load_explicit(&ns->nbytes, memory_order_relaxed);
	const uint64_t last_off = size - a->nbytes, last_buf = m->nbytes - a->nbytes;
	uint64_t blocks = 0, bytes = 0, over = last_off | last_buf;

	if (!a->nbytes)
		return -ENODATA;
	/* what concerns all items alike is judged by the first */
	if (a->opcode != NVME_IO_READ || !(m->flags & DMA_WRITE) || a->nbytes & lba_mask ||
	    a->nbytes > size || a->nbytes > m->nbytes || over >> 63 ||
	    atomic_load_explicit(&m->nr_stuck, memory_order_relaxed))
		return find_bad(c, ns, m, a, n, ret_bad);
	/* gathered: the low bits of all, and in the top bit whether one is negative or past its last place */
	for (uint32_t i = 0; i < n; i++) {
		uint64_t off = (uint64_t)a->offsets[i];

		blocks |= off;
		over |= off | (last_off - off);
	}
	if (a->buf_offsets) {
		for (uint32_t i = 0; i < n; i++) {
			uint64_t buf = (uint64_t)a->buf_offsets[i];

			bytes |= first + buf;
			over |= buf | (last_buf - buf);
		}
	} else {
		uint64_t last;

		bytes = first; /* whole blocks from there on */
		if (__builtin_mul_overflow((uint64_t)n - 1, a->nbytes, &last) || last > last_buf)
			over |= 1ull << 63;
	}
	return blocks & lba_mask || bytes & 3 || over >> 63 ? find_bad(c, ns, m, a, n, ret_bad) : 0;
}

/* What the items have in common: the operation that each begins as. */
struct common {
	struct nvme_op *ops;
	const uint32_t *free; /* item i is free[-i] */
	uint64_t base, cookie;
	uint32_t shift, round;
	struct nvme_op op;
};

static void common_init(struct common *c, struct nvme_batch *b, struct nvme_ns *ns, struct mem_map *m,
			const struct array *a, uint64_t cookie, uint8_t flow, uint8_t qp, bool sent)
{
	c->ops = b->ops;
	c->free = b->free_idx + b->free_n - 1;
	c->base = ns->base;
	c->shift = ns->lba_shift;
	c->cookie = cookie;
	c->round = b->round;
	c->op = (struct nvme_op){
		.ns = ns,
		.map = m,
		.left = sent ? 0 : a->nbytes,
		.nbytes = a->nbytes,
		.inflight = sent,
		.flags = a->flags,
		.opcode = (uint8_t)a->opcode,
		.outcome = NVME_DONE,
		.qp = qp,
		.flow = flow,
		.exec = !b->chan->owns,
		.more = !sent,
	};
}

static inline void part_copy(struct nvme_op *to, const struct nvme_op *from, size_t begin, size_t end)
{
	memcpy((char *)to + begin, (const char *)from + begin, end - begin);
}

/* Filled as nvme_check() fills one; its state is the caller's to set. */
static inline struct nvme_op *fill(const struct common *c, const struct array *a, uint32_t i)
{
	struct nvme_op *op = &c->ops[*(c->free - i)];
	uint64_t at = buf_off(a, i);

	part_copy(op, &c->op, offsetof(struct nvme_op, ns), offsetof(struct nvme_op, buf_off));
	part_copy(op, &c->op, offsetof(struct nvme_op, left), offsetof(struct nvme_op, state));
	op->buf_off = at;
	op->slba = (c->base + (uint64_t)a->offsets[i]) >> c->shift;
	op->buf_start = at;
	op->cookie = c->cookie + i;
	op->gen = c->round;
	return op;
}

/* Items that are one command each go straight to the pair; returns how many it took. */
static inline uint32_t send_now(struct nvme_lane *l, const struct common *c, const struct array *a,
				uint32_t n, int64_t now)
{
	struct nvme_qpair *qp = l->qp[c->op.qp];
	const struct nvme_run run = {
		.map = c->op.map,
		.nbytes = (uint32_t)a->nbytes,
		.nsid = c->op.ns->nsid,
		.cdw12 = ((uint32_t)(a->nbytes >> c->op.ns->lba_shift) - 1) |
			 (a->flags & NVME_OPF_FUA ? NVME_RW_FUA : 0),
		.opcode = c->op.opcode,
	};
	struct nvme_item items[SEND];
	uint32_t done = 0;

	while (done < n) {
		uint32_t k, sent, max = min_u32(min_u32(SEND, n - done), nvme_lane_space(l, qp, c->op.flow));

		for (k = 0; k < max; k++) {
			struct nvme_op *op = fill(c, a, done + k);

			nvme_op_set(op, NVME_OP_SENT);
			items[k] = (struct nvme_item){ op, op->buf_off, op->slba };
		}
		sent = max ? qp->ops->submit_run(qp, &run, items, max, now) : 0;
		for (k = sent; k < max; k++) /* list pages ran out: these are filled again, as queued ones */
			nvme_op_set(items[k].owner, NVME_OP_FREE);
		done += sent;
		if (sent < SEND && done < n)
			break;
	}
	nvme_lane_sent(l, qp, done, true);
	return done;
}

static void post_all(struct nvme_chan *ch, const struct common *c, const struct array *a, uint32_t n)
{
	struct nvme_op *first = NULL, *last = NULL;

	for (uint32_t i = 0; i < n; i++) { /* the executor's stack is taken newest first */
		struct nvme_op *op = fill(c, a, i);

		nvme_op_set(op, NVME_OP_POSTED);
		op->next = first;
		first = op;
		last = last ? last : op;
	}
	ch->away += n;
	nvme_exec_post(ch->exec, first, last);
}

int64_t nvme_batch_submit_array(struct nvme_batch *b, struct nvme_ns *ns, uint32_t opcode, uint16_t flags,
				uint8_t flow, uint64_t map, const int64_t *offsets,
				const int64_t *buf_offsets, uint64_t nbytes, uint32_t n, uint64_t cookie0,
				uint32_t *ret_bad)
{
	const struct array a = { offsets, buf_offsets, nbytes, opcode, flags };
	struct nvme_chan *ch = b->chan;
	struct nvme_ctrl *c = ch->ctrl;
	struct nvme_lane *l = &ch->own;
	struct common common;
	struct mem_map *m;
	int64_t now;
	int err;

	*ret_bad = 0;
	err = nvme_batch_may(b, n);
	if (unlikely(err))
		return err;
	if (!n)
		return nvme_batch_ready(b);
	if (!nvme_opcode_has_data(opcode))
		return -EOPNOTSUPP;
	m = mem_get(&c->mem, map, n);
	if (unlikely(!m))
		return mem_refusal(&c->mem, map);
	err = check_all(c, ns, m, &a, n, ret_bad);
	if (unlikely(err)) {
		mem_put(m, n);
		return err;
	}
	if (unlikely(c->p.fifo))
		flow = NVME_FLOW_NORMAL;
	if (unlikely(flow != NVME_FLOW_NORMAL))
		nvme_lane_class(l, flow);
	atomic_fetch_add_explicit(&ns->ref, n, memory_order_relaxed);
	ch->inflight += n;
	b->start = now = now_ns();
	if (unlikely(flow == NVME_FLOW_LATENCY))
		nvme_sched_urgent(l, now);
	if (!b->exec) {
		const bool quick = flow == NVME_FLOW_NORMAL && nbytes <= l->sched.heavy_above;
		const uint8_t kept = quick && l->pair[NVME_FLOW_BATCH] ? NVME_FLOW_BATCH : flow;
		const uint8_t idx = l->pair[kept];
		uint32_t done = 0;

		owner_lock(&l->lock);
		if (quick && nbytes <= ns->max_bytes && !nvme_turns_first(l, kept) && !l->failed &&
		    l->qp[idx]->ops->submit_run) {
			common_init(&common, b, ns, m, &a, cookie0, kept, idx, true);
			done = send_now(l, &common, &a, n, now);
		}
		if (done < n)
			common_init(&common, b, ns, m, &a, cookie0, flow, idx, false);
		for (; done < n; done++)
			nvme_lane_queue(l, fill(&common, &a, done));
		nvme_batch_start(b, n, now, nbytes <= NVME_STEP_MOST && opcode == NVME_IO_READ);
	} else {
		common_init(&common, b, ns, m, &a, cookie0, flow, 0, false);
		post_all(ch, &common, &a, n);
	}
	b->free_n -= n;
	if (b->exec)
		nvme_chan_arm(ch);
	return nvme_batch_ready(b);
}
