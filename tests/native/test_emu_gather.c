/* SPDX-License-Identifier: MIT */
/* Gathering copies of far memory: neighbours become one, on both sides, and others do not. */
#include <stdlib.h>
#include <string.h>

#include "emu/far.h"
#include "tapf.h"

#define PART 4096u

static struct emu_copy seen[8];
static uint32_t nr_seen;

static uint32_t copy(void *place, bool out, const struct emu_copy *c, uint32_t n, uint64_t *ret_ticket,
		     uint32_t *ret_why)
{
	(void)place;
	(void)out;
	(void)ret_why;
	memcpy(seen, c, n * sizeof(*c));
	nr_seen = n;
	*ret_ticket = 1;
	return n;
}

static const struct emu_dma_ops ops = { .copy = copy };

/* Two pieces of PART bytes, @near and @far bytes apart; how many copies they take. */
static uint32_t copies(uint32_t near, uint32_t far)
{
	static uint8_t ring[8 * PART];
	struct emu_ctrl *e = calloc(1, sizeof(*e));
	struct emu_stage *stage = calloc(1, sizeof(*stage));
	struct emu_map map = { .stage = stage };
	struct emu_job job = { .map = &map };
	struct emu_chunk c[2] = { { .job = &job, .near = ring, .nbytes = PART },
				  { .job = &job, .near = ring + near, .nbytes = PART } };
	struct iovec iov;
	struct emu_actor a = { .e = e, .iov = &iov, .nr_iov = 1, .gather = emu_gather_new(8) };

	e->dma = &ops;
	pthread_mutex_init(&stage->lock, NULL);
	nr_seen = 0;
	for (uint32_t i = 0; i < 2; i++) {
		iov = (struct iovec){ (void *)(uintptr_t)(0x100000 + i * far), PART };
		emu_gather_add(&a, &c[i], false);
	}
	emu_gather_begin(&a);
	free(a.gather);
	free(stage);
	free(e);
	return nr_seen;
}

int main(void)
{
	ok(copies(PART, PART) == 1 && seen[0].nbytes == 2 * PART, "neighbours on both sides are one copy");
	ok(copies(PART, 3 * PART) == 2, "apart in far memory: two");
	/* as where the ring begins again */
	ok(copies(3 * PART, PART) == 2 && seen[1].near - seen[0].near == 3 * PART,
	   "apart in the ring: two, each from its own place");
	ok(copies(3 * PART, 3 * PART) == 2, "apart on both sides: two");
	return done_testing();
}
