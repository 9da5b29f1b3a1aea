/* SPDX-License-Identifier: MIT */
#include "ledger.h"

#include "input.h"

static struct ledger *the;

void ledger_begin(struct ledger *l, struct model *m)
{
	memset(l, 0, sizeof(*l));
	l->m = m;
	the = l;
}

static struct record *record_of(const struct nvme_op *op)
{
	for (uint32_t i = 0; i < the->nr; i++)
		if (the->rec[i].op == op && !the->rec[i].over)
			return &the->rec[i];
	return NULL;
}

/* The record that a command belongs to; a batch's items carry theirs as the cookie. */
static struct record *owner_of(struct nvme_op *op)
{
	struct record *r = record_of(op);

	if (r)
		return r;
	r = op->batch ? &the->rec[op->cookie] : the->making;
	MUST(r && r->used && !r->op && !r->over);
	r->op = op;
	return r;
}

static void on_sent(const struct nvme_io *io)
{
	struct record *r = owner_of(io->owner);

	MUST(!r->reported); /* nothing is sent for what has ended */
	if (io->buf_off < r->buf_off + r->sent) { /* once more, what failed */
		MUST(the->c->p.retries && io->buf_off >= r->buf_off && r->bad >= io->nbytes);
		r->bad -= io->nbytes;
		return;
	}
	MUST(io->buf_off == r->buf_off + r->sent);
	r->sent += io->nbytes;
	MUST(r->sent <= r->nbytes);
}

static void on_done(const struct nvme_done *d, bool forgotten)
{
	struct record *r = record_of(d->owner);

	MUST(r && !r->over); /* its memory was still its own */
	r->forgotten |= forgotten;
	if (forgotten || d->status)
		r->bad += d->nbytes;
	else
		r->good += d->nbytes;
}

const struct model_watch ledger_watch = { .sent = on_sent, .done = on_done };

/* What the caller is told of @op, now. */
static void report(struct record *r, const struct nvme_op *op)
{
	uint32_t live = model_live_of(the->m, op);

	MUST(!r->reported && !r->over);
	r->reported = true;
	MUST(op->nbytes == r->nbytes && op->done <= r->good);
	if (nvme_op_state(op) == NVME_OP_STRAY) {
		MUST((live || r->bad) && op->err && op->outcome == NVME_UNKNOWN);
		return;
	}
	MUST(nvme_op_state(op) == NVME_OP_ENDED);
	MUST(!live);
	if (!op->err) {
		MUST(op->outcome == NVME_DONE && r->good == r->nbytes && op->done == r->nbytes && !r->bad);
		return;
	}
	if (op->outcome == NVME_NEVER_SENT)
		MUST(!r->sent);
	if (op->outcome == NVME_ABORTED || op->status)
		MUST(r->bad || op->outcome == NVME_UNKNOWN);
	/* it failed, was stopped, or was forgotten: a success is never turned into an error */
	MUST(r->bad || r->sent < r->nbytes || op->outcome == NVME_UNKNOWN);
}

static struct record *new_record(struct ledger *l, uint64_t buf_off, uint64_t nbytes)
{
	struct record *r = &l->rec[l->nr++];

	*r = (struct record){ .nbytes = nbytes, .buf_off = buf_off, .used = true };
	return r;
}

/* Some command that was given up may still write to the range. */
static bool overlaps_stray(const struct ledger *l, uint64_t buf_off, uint64_t nbytes)
{
	for (uint32_t i = 0; i < l->nr; i++) {
		const struct record *r = &l->rec[i];

		if (r->op && !r->over && nvme_op_state(r->op) == NVME_OP_STRAY &&
		    buf_off < r->buf_off + r->nbytes && r->buf_off < buf_off + nbytes)
			return true;
	}
	return false;
}

static void refused(struct ledger *l, int64_t rc, bool busy, bool live)
{
	(void)l;
	MUST(rc < 0);
	MUST(rc == -EBUSY ? busy : !live || rc == -ENOSPC || rc == -EOPNOTSUPP);
}

void ledger_submit(struct ledger *l, struct nvme_chan *ch, uint64_t buf_off, uint64_t nbytes, uint32_t flags)
{
	bool live = !nvme_ctrl_check(l->c), busy = overlaps_stray(l, buf_off, nbytes);
	struct record *r;
	int64_t rc;

	if (l->nr == LEDGER_MOST)
		return;
	r = l->making = new_record(l, buf_off, nbytes);
	rc = nvme_chan_rw(ch, l->ns, l->map, buf_off, nbytes, (uint64_t)l->nr << 24, flags);
	l->making = NULL;
	if (rc >= 0 && (uint64_t)rc & NVME_PENDING) {
		MUST(live && !busy);
		r->token = (uint64_t)rc & ~NVME_PENDING;
		r->op = nvme_chan_op_find(ch, r->token);
		MUST(r->op);
		return;
	}
	if (!r->sent) {
		refused(l, rc, busy, live);
		l->nr--;
		return;
	}
	/* a device that guesses identifiers may have ended it before the call was over */
	r->reported = true;
	r->over = !model_live_of(l->m, r->op);
	MUST(r->over);
	MUST(rc < 0 ? r->bad > 0 : r->good == nbytes && (uint64_t)rc == nbytes);
}

struct reqs {
	struct ledger *l;
	uint64_t nbytes, buf_off;
	uint32_t first;
};

static void get_req(const void *ctx, uint32_t i, struct nvme_batch_req *ret)
{
	const struct reqs *q = ctx;

	*ret = (struct nvme_batch_req){ .map = q->l->map,
					.buf_off = q->buf_off + i * q->nbytes,
					.nbytes = q->nbytes,
					.offset = (uint64_t)(q->first + i) << 24,
					.cookie = q->first + i,
					.opcode = NVME_IO_READ };
}

void ledger_submit_batch(struct ledger *l, uint32_t n, uint64_t nbytes, uint32_t region, bool array)
{
	static const uint8_t flows[] = { NVME_FLOW_NORMAL, NVME_FLOW_LATENCY, NVME_FLOW_BACKGROUND };
	struct reqs q = { l, nbytes, (uint64_t)region * LEDGER_REGION, l->nr };
	uint32_t at = l->nr, bad = 0;
	bool live = !nvme_ctrl_check(l->c), busy = overlaps_stray(l, q.buf_off, n * nbytes);
	int64_t offsets[16], rc;

	if (l->nr + n > LEDGER_MOST || !l->b)
		return;
	for (uint32_t i = 0; i < n; i++) {
		new_record(l, q.buf_off + i * nbytes, nbytes);
		offsets[i] = (int64_t)(q.first + i) << 24;
	}
	if (array) {
		int64_t bufs[16];

		for (uint32_t i = 0; i < n; i++)
			bufs[i] = (int64_t)(q.buf_off + i * nbytes);
		rc = nvme_batch_submit_array(l->b, l->ns, NVME_IO_READ, false, flows[at % 3], l->map, offsets,
					     bufs, nbytes, n, at, &bad);
	} else {
		rc = nvme_batch_submit(l->b, l->ns, get_req, &q, n, &bad);
	}
	if (rc < 0) {
		refused(l, rc, busy, live);
		for (uint32_t i = at; i < l->nr; i++)
			MUST(!l->rec[i].sent);
		l->nr = at;
		return;
	}
	MUST(live && !busy);
}

static void collect(struct ledger *l, struct nvme_chan *ch, struct nvme_op *op)
{
	struct record *r;

	if (op->flags & (NVME_OPF_HANDLE | NVME_OPF_ADMIN)) {
		MUST(l->b && op == l->b->handle);
		nvme_chan_collected(ch, op);
		return;
	}
	r = record_of(op);
	if (!r && op->batch) { /* ended before anything of it was sent */
		r = &l->rec[op->cookie];
		MUST(!r->op && !r->sent);
		r->op = op;
	}
	MUST(r);
	if (op->silent)
		MUST(r->reported && !r->over && !model_live_of(l->m, op));
	else
		report(r, op);
	nvme_chan_collected(ch, op);
	r->over = nvme_op_state(op) == NVME_OP_FREE;
	if (!r->over)
		MUST(model_live_of(l->m, op) || l->c->p.retries);
}

uint32_t ledger_reap(struct ledger *l, struct nvme_chan *ch, uint32_t max)
{
	struct nvme_op *out[64];
	int n = nvme_chan_reap(ch, out, max);

	MUST(n >= 0 && (uint32_t)n <= max);
	if (atomic_load(ch->word) && nvme_chan_busy(ch))
		model_all_told(&ch->own);
	for (int i = 0; i < n; i++)
		collect(l, ch, out[i]);
	return (uint32_t)n;
}

uint32_t ledger_harvest(struct ledger *l, uint32_t max)
{
	struct nvme_op *op;
	uint32_t n = 0;

	while (l->b && n < max && (op = nvme_batch_next(l->b))) {
		collect(l, l->b->chan, op);
		n++;
	}
	return n;
}

struct record *ledger_pick(struct ledger *l, uint32_t k)
{
	for (uint32_t i = 0; i < l->nr; i++) {
		struct record *r = &l->rec[(i + k) % l->nr];

		if (r->op && !r->over && !r->op->batch)
			return r;
	}
	return NULL;
}

void ledger_check(struct ledger *l)
{
	uint32_t held = 0, strays = 0, unseen = 0;

	for (uint32_t i = 0; i < l->nr; i++) {
		const struct record *r = &l->rec[i];
		uint32_t live = r->op && !r->over ? model_live_of(l->m, r->op) : 0;
		uint8_t state;

		if (!r->op && !r->over)
			unseen++; /* an item of a batch of which nothing was sent */
		if (!r->op || r->over)
			continue;
		state = nvme_op_state(r->op);
		held += state != NVME_OP_ENDED;
		strays += state == NVME_OP_STRAY;
		/* the device may touch its memory: the operation and its references live */
		MUST(!live || state == NVME_OP_SENT || state == NVME_OP_QUEUED || state == NVME_OP_STRAY);
		MUST(state == NVME_OP_ENDED || state == NVME_OP_POSTED || live || r->op->more ||
		     state == NVME_OP_QUEUED || (l->c->p.retries && r->bad));
	}
	for (uint32_t i = 0; l->b && i < l->b->cap && unseen; i++) {
		struct nvme_op *op = &l->b->ops[i];
		uint8_t state = nvme_op_state(op);

		if (state != NVME_OP_FREE && !record_of(op))
			held += state != NVME_OP_ENDED;
	}
	MUST(mem_inflight(mem_slot(&l->c->mem, (uint32_t)l->map)) == held);
	MUST(l->ns->ref == held);
	MUST(l->c->nr_quarantined == strays);
	MUST(mem_slot(&l->c->mem, (uint32_t)l->map)->nr_stuck == strays);
}

bool ledger_idle(const struct ledger *l)
{
	for (uint32_t i = 0; i < l->nr; i++)
		if (!l->rec[i].over)
			return false;
	return true;
}
