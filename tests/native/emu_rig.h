/* SPDX-License-Identifier: MIT */
/* The engine over the embedded controller, for tests. */
#ifndef TESTS_EMU_RIG_H
#define TESTS_EMU_RIG_H

#include <stdlib.h>
#include <string.h>

#include "nvme/chan.h"
#include "tapf.h"
#include "transport/emu.h"

struct rig {
	struct emu_params ep;
	struct nvme_open_params op;
	struct emu_ctrl *e;
	struct nvme_ctrl *c;
	struct nvme_err err;
	struct nvme_ns ns; /* outlives what is sent through it, also what never comes back */
	void *lost; /* the same for a buffer */
};

/* 8 MiB of memory behind one namespace, and parameters that a test may change before rig_open(). */
static inline void rig_init(struct rig *r)
{
	*r = (struct rig){
		.ep = { .step = true,
			.mdts = 5,
			.to = 4,
			.aerl = 3,
			.acl = 3,
			.mqes = 1023,
			.queues = 16,
			.vectors = 8,
			.threads = 1,
			.nr_ns = 1,
			.seed = 7,
			.serial = "RIG",
			.model = "rig",
			.ns = { { .nsid = 1, .lba_bytes = 512, .nbytes = 8u << 20 } } },
		.op = { .io_queues = 4,
			.depth = 32,
			.batch_depth = 64,
			.batch_queues = 1,
			.spin_ns = 10000,
			.hang_io_ns = 30 * NSEC_PER_SEC,
			.hang_admin_ns = 5 * NSEC_PER_SEC },
	};
}

/* Makes the device, adds @f if there is one, opens. */
static inline int rig_open_fault(struct rig *r, const struct emu_fault *f)
{
	struct pcie_dev *dev;
	int rc = emu_transport_new(&r->ep, &dev, &r->e, r->err.text, sizeof(r->err.text));

	if (rc)
		return rc;
	if (f && emu_fault_add(r->e, f) < 0)
		return -EINVAL;
	return nvme_ctrl_open(&pcie_ctrl_ops, dev, &r->op, &r->c, &r->err);
}

static inline int rig_open(struct rig *r) { return rig_open_fault(r, NULL); }

static inline struct nvme_ns *rig_ns(struct rig *r)
{
	const struct nvme_nsdata *d = nvme_ctrl_ns(r->c, r->ep.ns[0].nsid);

	if (!r->ns.ctrl)
		r->ns = (struct nvme_ns){ .ctrl = r->c,
					  .nsid = d->nsid,
					  .lba_shift = d->lba_shift,
					  .max_bytes = r->c->max_transfer,
					  .nbytes = d->nblocks << d->lba_shift };
	return &r->ns;
}

static inline uint64_t rig_faults(struct rig *r)
{
	struct emu_counters k;

	emu_get_counters(r->e, &k);
	return k.iommu_faults;
}

/* The end of what nvme_chan_rw() answered, at most 5 s away. */
static inline int64_t rig_finish(struct nvme_chan *ch, int64_t rc)
{
	struct nvme_op *op;
	int64_t res;
	bool stale;

	if (rc < 0 || !((uint64_t)rc & NVME_PENDING))
		return rc;
	do {
		if (nvme_chan_wait(ch, &op, 1, 5 * NSEC_PER_SEC) != 1)
			return -ETIME;
		res = nvme_op_result(op);
		stale = op->silent; /* an earlier one, reported long ago: its last command came back */
		nvme_chan_collected(ch, op);
	} while (stale);
	return res;
}

/* Write a pattern, read it back: the bytes that came back right, or an errno. */
static inline int64_t rig_copy(struct rig *r, struct nvme_chan *ch, size_t nbytes, uint64_t offset)
{
	struct nvme_ns *ns = rig_ns(r);
	uint8_t *buf = aligned_alloc(4096, 2 * nbytes);
	uint64_t map;
	int64_t rc;
	int err = mem_register(&r->c->mem, buf, 2 * nbytes, DMA_READ | DMA_WRITE, &map);

	if (err) {
		free(buf);
		return err;
	}
	for (size_t i = 0; i < nbytes; i++)
		buf[i] = (uint8_t)(i * 13 + (i >> 9));
	memset(buf + nbytes, 0, nbytes);
	rc = rig_finish(ch, nvme_chan_rw(ch, ns, map, 0, nbytes, offset, NVME_IO_WRITE));
	if (rc >= 0)
		rc = rig_finish(ch, nvme_chan_rw(ch, ns, map, nbytes, nbytes, offset, NVME_IO_READ));
	if (rc >= 0 && memcmp(buf, buf + nbytes, nbytes))
		rc = -EILSEQ;
	if (mem_unregister(&r->c->mem, map))
		r->lost = buf; /* busy: the device may still write there */
	else
		free(buf);
	return rc;
}

/* After the controller is closed, which unmaps what was left. */
static inline void rig_done(struct rig *r)
{
	free(r->lost);
	r->lost = NULL;
}

/* Wait for @cond, at most @seconds. */
#define RIG_UNTIL(cond, seconds)                                                                      \
	for (int64_t rig_end = now_ns() + (int64_t)((seconds) * 1e9); !(cond) && now_ns() < rig_end;) \
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL)

static inline void rig_close(struct rig *r, const char *name)
{
	uint64_t faults = rig_faults(r);

	okf(!faults, "%s: no access outside a mapping", name);
	okf(!nvme_ctrl_close(r->c, false), "%s: closes", name);
	r->c = NULL;
	rig_done(r);
}

#endif
