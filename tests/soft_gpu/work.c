/* SPDX-License-Identifier: MIT */
/* Copies and words, as both vendors enqueue them. */
#include <stdlib.h>
#include <string.h>

#include "soft.h"

/* Which of two addresses is host memory that the GPU does not know: it has to be copied, or waited for, now. */
static bool pageable(const void *host) { return host && !soft_is_pinned(host); }

/*
 * @dst or @src 0: @host in its place. From pageable memory the bytes are taken at once, into it they are there when the
 * call returns; with pinned memory the GPU looks at it when it is the copy's turn.
 */
int soft_copy(struct soft_stream *s, uint64_t dst, uint64_t src, void *host, size_t nbytes, bool now)
{
	struct soft_op op = { .kind = SOFT_COPY, .dst = dst, .src = src, .host = host, .nbytes = nbytes };
	struct soft_ctx *ctx = s->ctx;
	struct soft_ticket *t;
	bool wait = now || (!dst && pageable(host));
	int code;

	if (!nbytes)
		return SOFT_OK;
	if ((dst && !soft_reach(dst, nbytes)) || (src && !soft_reach(src, nbytes)) ||
	    (!(dst && src) && !host))
		return SOFT_INVALID_VALUE;
	if (s->capture && wait)
		return soft_capture_sync(s);
	if (!src && !now && pageable(host)) {
		op.host = malloc(nbytes);
		op.owns_host = true;
		memcpy(op.host, host, nbytes);
	}
	if (now)
		soft_counters.synchronises++;
	code = soft_enqueue(s, op, &t);
	if (!code && wait && t)
		code = soft_ticket_wait(t, ctx);
	soft_ticket_put(t);
	return code;
}

int soft_wait_value(struct soft_stream *s, uint64_t addr, uint32_t value, uint32_t flags, uint32_t mask)
{
	struct soft_alloc *a = soft_find(addr);

	if (soft_controls.missing & SOFT_NO_MEMOPS)
		return SOFT_NOT_SUPPORTED;
	if (addr % 4 || !a || (soft_vendor.signal_words && a->kind != SOFT_SIGNAL))
		return SOFT_INVALID_VALUE;
	soft_counters.waits++;
	return soft_enqueue(
		s,
		(struct soft_op){
			.kind = SOFT_WAIT, .dst = addr, .value = value, .flags = flags, .mask = mask },
		NULL);
}

int soft_write_value(struct soft_stream *s, uint64_t addr, uint32_t value)
{
	if (soft_controls.missing & SOFT_NO_MEMOPS)
		return SOFT_NOT_SUPPORTED;
	if (addr % 4 || !soft_find(addr))
		return SOFT_INVALID_VALUE;
	soft_counters.writes++;
	return soft_enqueue(s, (struct soft_op){ .kind = SOFT_WRITE, .dst = addr, .value = value }, NULL);
}
