/* SPDX-License-Identifier: MIT */
/*
 * The array form of a batch: one command, one length, one registration. All items are checked in one tight pass;
 * then each is filled and described to the queue pair in the same breath, without passing through the lane's list.
 */
#include "nvme/batch.h"
#include "nvme/check.h"

#define SEND 32

struct array {
	const int64_t *offsets, *buf_offsets;
	uint64_t nbytes;
	uint32_t opcode;
	bool fua;
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
	const uint64_t last_off = ns->nbytes - a->nbytes, last_buf = m->nbytes - a->nbytes;
	uint64_t bad = 0;

	if (!a->nbytes)
		return -ENODATA;
	/* what concerns all items alike is judged by the first; a negative offset is a huge one, and past every end */
	if (a->opcode != NVME_IO_READ || !(m->flags & DMA_WRITE) || a->nbytes & lba_mask ||
	    a->nbytes > ns->nbytes || a->nbytes > m->nbytes ||
	    atomic_load_explicit(&m->nr_stuck, memory_order_relaxed))
		return find_bad(c, ns, m, a, n, ret_bad);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t off = (uint64_t)a->offsets[i], buf = buf_off(a, i);

		bad |= (off & lba_mask) | ((first + buf) & 3) | (off > last_off) | (buf > last_buf);
	}
	return bad ? find_bad(c, ns, m, a, n, ret_bad) : 0;
}

static inline struct nvme_op *fill(struct nvme_batch *b, struct nvme_ns *ns, struct mem_map *m,
				   const struct array *a, uint32_t i, uint64_t cookie, bool exec, uint8_t qp)
{
	struct nvme_op *op = &b->ops[b->free_idx[b->free_n - 1 - i]];
	uint64_t at = buf_off(a, i);

	op->ns = ns;
	op->map = m;
	op->buf_off = at;
	op->slba = (ns->base + (uint64_t)a->offsets[i]) >> ns->lba_shift;
	op->left = op->nbytes = a->nbytes;
	op->done = 0;
	op->inflight = 0;
	op->dw0 = 0;
	op->err = 0;
	op->status = 0;
	op->flags = a->fua ? NVME_OPF_FUA : 0;
	op->opcode = (uint8_t)a->opcode;
	op->outcome = NVME_DONE;
	op->qp = qp;
	op->exec = exec;
	op->more = true;
	op->silent = false;
	op->buf_start = at;
	op->cookie = cookie + i;
	return op;
}

/* Items that are one command each go straight to the pair; returns how many it took. */
static uint32_t send_now(struct nvme_batch *b, struct nvme_ns *ns, struct mem_map *m, const struct array *a,
			 uint32_t n, uint64_t cookie, uint8_t idx, int64_t now, bool hold)
{
	struct nvme_lane *l = &b->chan->own;
	struct nvme_qpair *qp = l->qp[idx];
	struct nvme_io ios[SEND];
	uint32_t done = 0, fua = a->fua ? NVME_RW_FUA : 0;

	for (uint32_t k = 0; k < SEND; k++)
		ios[k] = (struct nvme_io){
			.map = m,
			.nbytes = (uint32_t)a->nbytes,
			.nsid = ns->nsid,
			.opcode = (uint8_t)a->opcode,
			.cdw12 = ((uint32_t)(a->nbytes >> ns->lba_shift) - 1) | fua,
		};
	while (done < n) {
		uint32_t k, sent, max = min_u32(min_u32(SEND, n - done), qp->space);

		for (k = 0; k < max; k++) {
			struct nvme_op *op = fill(b, ns, m, a, done + k, cookie, false, idx);

			op->left = 0;
			op->more = false;
			op->inflight = 1;
			nvme_op_set(op, NVME_OP_SENT);
			ios[k].owner = op;
			ios[k].buf_off = op->buf_off;
			ios[k].cdw10_11 = op->slba;
		}
		sent = max ? qp->ops->submit(qp, ios, max, now) : 0;
		for (k = sent; k < max; k++) /* list pages ran out: these are filled again, as queued ones */
			nvme_op_set(ios[k].owner, NVME_OP_FREE);
		done += sent;
		if (sent < SEND && done < n)
			break;
	}
	nvme_lane_sent(l, qp, done, hold);
	return done;
}

static void queue_rest(struct nvme_batch *b, struct nvme_ns *ns, struct mem_map *m, const struct array *a,
		       uint32_t from, uint32_t n, uint64_t cookie, uint8_t idx)
{
	struct nvme_lane *l = &b->chan->own;

	for (uint32_t i = from; i < n; i++) {
		struct nvme_op *op = fill(b, ns, m, a, i, cookie, false, idx);

		nvme_lane_queue(l, op);
	}
}

static void post_all(struct nvme_batch *b, struct nvme_ns *ns, struct mem_map *m, const struct array *a,
		     uint32_t n, uint64_t cookie)
{
	struct nvme_op *first = NULL, *last = NULL;

	for (uint32_t i = 0; i < n; i++) { /* the executor's stack is taken newest first */
		struct nvme_op *op = fill(b, ns, m, a, i, cookie, true, 0);

		nvme_op_set(op, NVME_OP_POSTED);
		op->next = first;
		first = op;
		last = last ? last : op;
	}
	b->chan->away += n;
	nvme_exec_post(b->chan->exec, first, last);
}

int64_t nvme_batch_submit_array(struct nvme_batch *b, struct nvme_ns *ns, uint32_t opcode, bool fua,
				uint64_t map, const int64_t *offsets, const int64_t *buf_offsets,
				uint64_t nbytes, uint32_t n, uint64_t cookie0, uint32_t *ret_bad)
{
	const struct array a = { offsets, buf_offsets, nbytes, opcode, fua };
	struct nvme_chan *ch = b->chan;
	struct nvme_ctrl *c = ch->ctrl;
	struct nvme_lane *l = &ch->own;
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
		return -ESTALE;
	err = check_all(c, ns, m, &a, n, ret_bad);
	if (unlikely(err)) {
		mem_put(m, n);
		return err;
	}
	atomic_fetch_add_explicit(&ns->ref, n, memory_order_relaxed);
	ch->inflight += n;
	b->start = now = now_ns();
	if (ch->owns) {
		const uint8_t idx = l->nr_qp > 1;
		uint32_t done = 0;

		owner_lock(&l->lock);
		if (nbytes <= ns->max_bytes && !l->pending[idx].head && !l->failed)
			done = send_now(b, ns, m, &a, n, cookie0, idx, now, true);
		queue_rest(b, ns, m, &a, done, n, cookie0, idx);
		nvme_batch_start(b, n, now, nbytes <= NVME_STEP_MOST && opcode == NVME_IO_READ);
	} else {
		post_all(b, ns, m, &a, n, cookie0);
	}
	b->free_n -= n;
	if (!ch->owns)
		nvme_chan_arm(ch);
	return nvme_batch_ready(b);
}
