/* SPDX-License-Identifier: MIT */
/* ugds.h: what a command costs inside the engine's submit and reap calls, by the time-stamp counter. */
#include "api/api.h"
#include "support/barrier.h"
#include "support/ticks.h"

#define BENCH_IO 4096u
#define BENCH_DEPTH 256u
#define BENCH_PAUSES 16 /* between two looks: about as many completions arrive meanwhile */

/* Refill what came back, look, count; the channel is polled here: it never spins by itself and arms nothing. */
static int run(struct nvme_chan *ch, struct nvme_batch *b, struct nvme_ns *ns, uint64_t map,
	       uint64_t map_bytes, uint64_t commands, struct ugds_cycles *c)
{
	uint64_t sent = 0, back = 0, looks = 0, blocks = min_u64(ns->nbytes, map_bytes) / BENCH_IO, at = 0;
	int64_t offs[BENCH_DEPTH], give_up = now_ns() + 60 * NSEC_PER_SEC;
	const bool software = ch->ctrl->tr_flags & NVME_TR_STEP;
	struct nvme_op *none[8];
	uint32_t bad;

	while (back < commands) {
		/* half a queue a doorbell, as a loaded program would */
		uint32_t n = b->free_n >= b->cap / 2 ? (uint32_t)min_u64(b->free_n, commands - sent) : 0;
		uint64_t t0, t1, t2;
		uint32_t ready;
		int64_t rc;

		for (uint32_t i = 0; i < n; i++, at = at + 1 == blocks ? 0 : at + 1)
			offs[i] = (int64_t)(at * BENCH_IO);
		t0 = ticks_now();
		rc = n ? nvme_batch_submit_array(b, ns, NVME_IO_READ, false, NVME_FLOW_NORMAL, map, offs,
						 offs, BENCH_IO, n, 0, &bad)
		       : 0;
		t1 = ticks_now();
		if (rc < 0)
			return (int)rc;
		sent += n;
		if (n)
			c->submit_ticks += t1 - t0;
		t1 = ticks_now();
		nvme_chan_poll(ch, none, ARRAY_SIZE(none));
		ready = nvme_batch_ready(b);
		if (ready && nvme_batch_take_ok(b, ready) != (int64_t)ready * BENCH_IO)
			return -EIO;
		t2 = ticks_now();
		if (ready)
			c->reap_ticks += t2 - t1;
		else if (!(++looks & 1023) && now_ns() > give_up)
			return -ETIMEDOUT;
		/* hardware is looked at without a break, and a pause leaves a virtual machine */
		for (int i = 0; software && i < BENCH_PAUSES; i++)
			cpu_relax();
		back += ready;
	}
	c->commands += commands;
	return 0;
}

int ugds_bench_cycles(struct ugds_chan *uch, struct ugds_ns *uns, uint64_t map, uint64_t map_bytes,
		      uint32_t depth, uint64_t commands, struct ugds_cycles *ret)
{
	struct nvme_chan *ch = chan_of(uch);
	struct ugds_cycles c = { 0 };
	struct nvme_batch *b;
	uint64_t t0 = ticks_now();
	int64_t n0 = now_ns();
	int err;

	if (!depth || depth > BENCH_DEPTH || map_bytes < BENCH_IO || !ch->owns)
		return -EINVAL;
	err = nvme_batch_new(ch, depth, &b);
	if (err)
		return err;
	ch->polled = true;
	err = run(ch, b, ns_of(uns), map, map_bytes, commands, &c);
	ch->polled = false;
	if (!err) {
		c.ticks_per_s =
			(uint64_t)((double)(ticks_now() - t0) * NSEC_PER_SEC / (double)(now_ns() - n0));
		*ret = c;
		err = nvme_batch_free(b);
	}
	return err;
}
