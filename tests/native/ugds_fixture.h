/* SPDX-License-Identifier: MIT */
/* An opened embedded controller with one namespace, a channel and a registered buffer, through ugds.h. */
#ifndef TESTS_UGDS_FIXTURE_H
#define TESTS_UGDS_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "include/ugds_emu.h"
#include "tap.h"

#define MS 1000000ull
#define SEC 1000000000ull
#define NS_BYTES (64ull << 20)
#define BUF_BYTES (40ull << 20)

struct fixture {
	struct ugds_emu_params emu;
	struct ugds_open_params open;
	struct ugds_ctrl *c;
	struct ugds_ns *ns;
	struct ugds_chan *ch;
	uint8_t *buf;
	uint64_t map;
};

__attribute__((unused)) static void fixture_defaults(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->emu = (struct ugds_emu_params){
		.flags = UGDS_EMU_CREATE | UGDS_EMU_VWC | UGDS_EMU_STEP,
		.mdts = 5,
		.mpsmax = 4,
		.to = 20,
		.aerl = 3,
		.acl = 3,
		.mqes = 1023,
		.queues = 6,
		.vectors = 7,
		.threads = 2,
		.seed = 42,
		.serial = "TEST0001",
		.model = "embedded",
		.nr_ns = 1,
		.ns = { { .nsid = 1, .lba_bytes = 4096, .nbytes = NS_BYTES } },
	};
	f->open = (struct ugds_open_params){
		.io_queues = 6,
		.batch_queues = 2,
		.depth = 64,
		.batch_depth = 512,
		.max_transfer = 1 << 20,
		.qprio = 2,
		.arb_burst = 7,
		.spin_ns = 10000,
		.hang_io_ns = 30 * SEC,
		.hang_admin_ns = 60 * SEC,
		.cancel_grace_ns = SEC,
	};
}

__attribute__((unused)) static bool fixture_open(struct fixture *f, uint32_t mode)
{
	struct ugds_error err = { 0 };

	if (ugds_open_emu(&f->emu, &f->open, &f->c, &err)) {
		printf("# open: %s\n", err.text);
		return false;
	}
	f->buf = aligned_alloc(4096, BUF_BYTES);
	memset(f->buf, 0, BUF_BYTES);
	return !ugds_ns_open(f->c, 1, 0, 0, 0, &f->ns, &err) &&
	       !ugds_map(f->c, f->buf, BUF_BYTES, 0, &f->map) && !ugds_chan_open(f->c, mode, &f->ch);
}

/* True if everything could be given back and the device saw no access outside a mapping. */
__attribute__((unused)) static bool fixture_close(struct fixture *f)
{
	struct ugds_emu_counters n;
	int a, b, c, d;

	ugds_emu_counters(f->c, &n);
	a = ugds_unmap(f->c, f->map);
	b = f->ch ? ugds_chan_close(f->ch) : 0;
	c = ugds_ns_close(f->ns);
	if (!c)
		ugds_ns_free(f->ns);
	d = ugds_ctrl_close(f->c, 0);
	ugds_ctrl_free(f->c);
	if (a || b || c || d || n.iommu_faults || n.protocol_errors)
		printf("# unmap %d chan %d ns %d ctrl %d, %llu faults, %llu protocol errors\n", a, b, c, d,
		       (unsigned long long)n.iommu_faults, (unsigned long long)n.protocol_errors);
	free(f->buf);
	return !a && !b && !c && !d && !n.iommu_faults && !n.protocol_errors;
}

/* An operation to its end: its result, or -ETIME when it did not end. */
__attribute__((unused)) static int64_t fixture_run(struct fixture *f, uint32_t op, uint64_t buf_off,
						   uint64_t nbytes, uint64_t offset)
{
	int64_t r = ugds_rw(f->ch, f->ns, f->map, buf_off, nbytes, offset, op);
	struct ugds_completion done;

	if (r < UGDS_PENDING)
		return r;
	do /* what else ends meanwhile is of no interest; but its memory is in use until this one has */
		if (ugds_wait(f->ch, &done, 1, 10 * SEC) != 1)
			return -62;
	while (done.token != (uint64_t)(r - UGDS_PENDING));
	return done.result;
}

__attribute__((unused)) static void fill(uint8_t *p, uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++)
		p[i] = (uint8_t)((i + seed) * 2654435761u >> 13);
}

__attribute__((unused)) static bool filled(const uint8_t *p, uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i] != (uint8_t)((i + seed) * 2654435761u >> 13))
			return false;
	return true;
}

#endif
