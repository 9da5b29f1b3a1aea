/* SPDX-License-Identifier: MIT */
/*
 * Streams, and the channel, are turned by whoever has the seat. The executor leaves it between two looks and while it
 * sleeps, and lets those who enqueue go first: a small operation whose stream has come to it need not be handed over.
 */
#include "stream/stream.h"

#include <sched.h>

#include "support/barrier.h"

#define SEAT_NS (2 * NSEC_PER_USEC) /* it is waited for, which is more than most looks take */
#define LET_NS \
	(20 * NSEC_PER_USEC) /* and the thread lets it be wanted: whoever wants it may not run just now */
#define SOON_NS (3 * NSEC_PER_USEC)

static bool take_seat(struct stream_exec *x)
{
	/* acquire: all as it was left */
	return !atomic_load_explicit(&x->seat, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&x->seat, true, memory_order_acquire);
}

void stream_seat_leave(struct stream_exec *x)
{
	atomic_store_explicit(&x->seat, false, memory_order_release);
}

void stream_seat_wait(struct stream_exec *x)
{
	if (unlikely(atomic_load_explicit(&x->wanted, memory_order_relaxed))) {
		int64_t end = now_ns() + LET_NS;

		while (atomic_load_explicit(&x->wanted, memory_order_relaxed) && now_ns() < end)
			cpu_relax();
	}
	for (uint32_t i = 1; !take_seat(x); i++) {
		cpu_relax();
		if (!(i & 255))
			sched_yield(); /* whoever has it may need this processor */
	}
}

static void want(struct stream_exec *x) { atomic_fetch_add_explicit(&x->wanted, 1, memory_order_relaxed); }

/* Whoever took the seat, in the executor's place; and leaves it. */
static void turn_here(struct stream_exec *x, struct stream *s)
{
	if (x->ch) {
		bool awake = x->ch->polled;

		/* what is not over at once is the executor's to wait for */
		x->ch->polled = true;
		stream_turn(s, now_ns());
		x->ch->polled = awake;
	}
	stream_seat_leave(x);
}

void stream_turn_once(struct stream *s)
{
	stream_seat_wait(s->x);
	turn_here(s->x, s);
}

static bool drive(struct stream_exec *x, struct stream *s)
{
	int64_t end = now_ns() + SEAT_NS;
	bool mine;

	want(x);
	while (!(mine = take_seat(x)) && now_ns() < end)
		cpu_relax();
	atomic_fetch_sub_explicit(&x->wanted, 1, memory_order_relaxed);
	if (mine)
		turn_here(x, s);
	return mine;
}

bool stream_may_be_early(const struct stream *s, const struct stream_op *op)
{
	/* where waiting makes what the SSD wrote visible, it cannot be left out */
	return stream_is_soon(op) && op->eager != STREAM_SLEEPS && !s->wait_flushes;
}

bool stream_drive(struct stream *s, struct stream_op *op)
{
	bool mine = drive(s->x, s);
	int64_t end;

	if (mine && stream_reached(stream_word(&s->done), op->last))
		return true;
	/* the executor's then */
	stream_exec_add(s->x, s, true);
	if (mine)
		return false;
	end = now_ns() + SOON_NS;
	while (!stream_reached(stream_word(&s->done), op->last)) {
		if (now_ns() >= end)
			return false;
		cpu_relax();
	}
	return true;
}
