/* SPDX-License-Identifier: MIT */
/* How an operation's items are cut into chunks: those who enqueue and the executor walk the same way. */
#include "stream/stream.h"

bool stream_walk(const struct stream *s, const struct stream_op *op, struct stream_cursor *at, uint64_t *used,
		 struct stream_seg *ret)
{
	const uint64_t block = 1ull << op->ns->lba_shift;

	while (at->part < op->nr_parts) {
		const struct stream_part *p = &op->parts[at->part];
		uint64_t left = p->is.nbytes - at->off;
		uint64_t room = p->staged ? align_down(s->chunk - *used, block) : left;
		uint64_t n = min_u64(left, room);

		if (left && !n) /* the slot is full */
			return false;
		*ret = (struct stream_seg){ .part = at->part, .off = at->off, .nbytes = n, .stage = *used };
		at->off += n;
		if (n == left)
			*at = (struct stream_cursor){ .part = at->part + 1 };
		if (!n)
			continue;
		*used += p->staged ? n : 0;
		return true;
	}
	return false;
}

uint32_t stream_count_chunks(const struct stream *s, const struct stream_op *op, uint32_t most)
{
	struct stream_cursor at = { 0 };
	struct stream_seg seg;
	uint32_t n = 0;

	do {
		uint64_t used = 0;

		while (stream_walk(s, op, &at, &used, &seg))
			;
		n++;
	} while (at.part < op->nr_parts && n <= most);
	return n;
}
