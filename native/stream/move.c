/* SPDX-License-Identifier: MIT */
/* What a chunk moves: its commands, and what is in the staging ring when they failed. */
#include "stream/stream.h"

#include "nvme/spin.h"

#define RW_NOSPIN 0x200u /* of nvme_chan_rw() */
#define PIECE (256u << 10) /* whole blocks, whatever the format */

static uint64_t cell_value(const uint64_t *cell)
{
	/* the stream wrote it before go, which we have seen with acquire order */
	return *(const volatile uint64_t *)cell;
}

static int late_bound(struct stream_op *op, struct stream_part *p)
{
	const uint64_t block = 1ull << op->ns->lba_shift;
	uint64_t size = atomic_load_explicit(&op->ns->nbytes, memory_order_relaxed);

	p->at = p->is.offset_cell ? cell_value(p->is.offset_cell) : p->is.offset;
	p->length = p->is.nbytes_cell ? cell_value(p->is.nbytes_cell) : p->is.nbytes;
	if ((p->at | p->length) & (block - 1))
		return -EINVAL;
	if (p->length > p->is.nbytes)
		return -EFAULT;
	if (p->at > size || p->length > size - p->at)
		return atomic_load_explicit(&op->ns->gone, memory_order_relaxed) ? -ENXIO : -ERANGE;
	return 0;
}

void stream_read_cells(struct stream_op *op)
{
	for (uint32_t i = 0; i < op->nr_parts && !op->err; i++) {
		struct stream_part *p = &op->parts[i];

		if (!p->is.offset_cell && !p->is.nbytes_cell)
			continue;
		op->err = late_bound(op, p);
		op->bad = i;
	}
}

static uint8_t *slot_of(const struct stream *s, const struct stream_run *run)
{
	return s->stage + (uint64_t)(run - s->run) * s->chunk;
}

/* A read into the staging ring that a copy brings to the GPU whatever becomes of it. */
static bool blanks(const struct stream_op *op, const struct stream_part *p)
{
	return stream_copied_in(p) && !stream_copied_out(p, op->flags);
}

static void blank(struct stream *s, struct stream_op *op, struct stream_run *run,
		  const struct stream_seg *seg)
{
	if (blanks(op, &op->parts[seg->part]))
		memset(slot_of(s, run) + seg->stage, 0, seg->nbytes);
}

static void failed(struct stream *s, struct stream_op *op, struct stream_run *run,
		   const struct stream_seg *seg, int err, uint64_t status, uint64_t good)
{
	run->failed = true;
	run->bytes += good;
	/* all of it: which of its commands moved the good bytes is not known here */
	blank(s, op, run, seg);
	if (op->err && op->err != -ETIMEDOUT)
		return;
	if (!op->err)
		op->err = err;
	op->bad = seg->part;
	op->status = status;
}

static uint64_t status_of(const struct nvme_op *op)
{
	return op->status | (uint64_t)op->opcode << 16 | (uint64_t)op->outcome << 24 |
	       (uint64_t)op->dw0 << 32;
}

/* A small cached read costs less to serve on this thread than to hand over; nothing else is waited for here, where other
 * streams would wait too. */
static uint32_t rw_flags(const struct nvme_chan *ch, const struct stream_item *is, uint64_t n)
{
	uint32_t flags = is->opcode | is->flags;

	return nvme_can_step(ch, NVME_MODE_ADAPTIVE, is->opcode, n, NULL) ? flags : flags | RW_NOSPIN;
}

static bool send_piece(struct stream *s, struct stream_op *op, struct stream_run *run,
		       const struct stream_seg *seg)
{
	struct stream_part *p = &op->parts[seg->part];
	struct nvme_chan *ch = s->x->ch;
	uint64_t n = seg->off < p->length ? min_u64(seg->nbytes, p->length - seg->off) : 0, map, at;
	int64_t r;

	if (!n) /* late bound: less than the slice */
		return true;
	map = p->staged ? s->stage_map : p->is.map;
	at = p->staged ? (uint64_t)(slot_of(s, run) - s->stage) + seg->stage : p->is.buf_off + seg->off;
	ch->last.gen = ch->last.slot = 0;
	r = nvme_chan_rw(ch, op->ns, map, at, n, p->at + seg->off, rw_flags(ch, &p->is, n));
	if (r >= (int64_t)NVME_PENDING) {
		nvme_chan_op_find(ch, (uint64_t)r - NVME_PENDING)->cookie = (uint64_t)(uintptr_t)run;
		run->inflight++;
		s->inflight++;
		return true;
	}
	if (r >= 0) {
		run->bytes += (uint64_t)r;
		return true;
	}
	if (ch->last.gen)
		failed(s, op, run, seg, (int)r, status_of(&ch->last), ch->last.done);
	else
		failed(s, op, run, seg, (int)r, (uint64_t)NVME_NEVER_SENT << 24, 0);
	return false;
}

/* Move @at by a stretch of a chunk. What is staged goes in pieces: a device of software has a thread for each, and the
 * chunk that the stream waits for is there sooner. */
static bool next_piece(struct stream *s, struct stream_op *op, struct stream_seg *rest, uint64_t *used,
		       struct stream_cursor *at, struct stream_seg *ret)
{
	uint64_t n;

	if (!rest->nbytes && !stream_walk(s, op, at, used, rest))
		return false;
	n = op->parts[rest->part].staged ? min_u64(rest->nbytes, PIECE) : rest->nbytes;
	*ret = *rest;
	ret->nbytes = n;
	rest->off += n;
	rest->stage += n;
	rest->nbytes -= n;
	return true;
}

void stream_start_chunk(struct stream *s, struct stream_op *op)
{
	struct stream_run *run = &s->run[s->next % s->slots];
	struct stream_seg seg, rest = { 0 };
	uint64_t used = 0;

	*run = (struct stream_run){ .s = s, .from = s->cursor };
	while (next_piece(s, op, &rest, &used, &s->cursor, &seg))
		if (!send_piece(s, op, run, &seg))
			break;
	/* what of it was not sent is not read either */
	while (next_piece(s, op, &rest, &used, &s->cursor, &seg))
		blank(s, op, run, &seg);
	s->next++;
}

/* Which stretch of its chunk a command was for. */
static struct stream_seg seg_of(struct stream *s, struct stream_op *op, const struct stream_run *run,
				const struct nvme_op *nop)
{
	struct stream_cursor at = run->from;
	struct stream_seg seg = { 0 }, rest = { 0 };
	uint64_t used = 0;

	while (next_piece(s, op, &rest, &used, &at, &seg)) {
		const struct stream_part *p = &op->parts[seg.part];
		uint64_t begin = p->staged ? (uint64_t)(slot_of(s, run) - s->stage) + seg.stage
					   : p->is.buf_off + seg.off;

		if (nop->buf_start == begin && (p->staged || nop->map == p->map))
			break;
	}
	return seg;
}

void stream_collect(struct stream_exec *x, struct nvme_op *nop)
{
	if (!nop->silent) { /* else it was given up, and comes to be freed only */
		struct stream_run *run = (struct stream_run *)(uintptr_t)nop->cookie;
		struct stream *s = run->s;

		run->inflight--;
		s->inflight--;
		if (nop->err) {
			struct stream_seg seg = seg_of(s, s->cur, run, nop);

			failed(s, s->cur, run, &seg, nop->err, status_of(nop),
			       min_u64(nop->done, seg.nbytes));
		} else {
			run->bytes += nop->done;
		}
	}
	nvme_chan_collected(x->ch, nop);
}

void stream_blank_chunk(struct stream *s, struct stream_op *op)
{
	struct stream_run *run = &s->run[s->next % s->slots];
	struct stream_seg seg;
	uint64_t used = 0;

	*run = (struct stream_run){ .s = s, .from = s->cursor };
	while (stream_walk(s, op, &s->cursor, &used, &seg))
		blank(s, op, run, &seg);
	s->next++;
}
