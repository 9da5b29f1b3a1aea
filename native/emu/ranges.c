/* SPDX-License-Identifier: MIT */
/* I/O commands on ranges of blocks that move no data: write zeroes, deallocate, verify. */
#include "emu/power.h"

static uint64_t slba_of(const struct nvme_sqe *s)
{
	return le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32;
}

static uint64_t nlb_of(const struct nvme_sqe *s) { return (le32_get(s->cdw12) & 0xffff) + 1ull; }

static int zero(struct emu_ctrl *e, struct emu_ns *ns, uint64_t slba, uint64_t nlb, bool punch, bool fua)
{
	if (unlikely(e->power))
		return emu_power_zero(e, ns, slba, nlb, punch, fua);
	return emu_backing_zero(ns, slba << ns->shift, nlb << ns->shift, punch);
}

uint16_t emu_io_write_zeroes(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s)
{
	uint32_t cdw12 = le32_get(s->cdw12);
	uint16_t st = emu_io_range(ns, slba_of(s), nlb_of(s), true);

	if (st || a->e->nodata)
		return st;
	st = emu_io_errno(zero(a->e, ns, slba_of(s), nlb_of(s), cdw12 & NVME_WZ_DEAC, cdw12 & NVME_RW_FUA),
			  true);
	if (!st && (cdw12 & NVME_RW_FUA || !atomic_load_explicit(&a->e->write_cache, memory_order_relaxed)))
		st = emu_io_errno(emu_backing_sync(ns), true);
	return st;
}

uint16_t emu_io_dsm(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s)
{
	uint32_t nr = (le32_get(s->cdw10) & 0xff) + 1;
	const struct nvme_dsm_range *range = (const void *)a->scratch;
	bool deallocate = le32_get(s->cdw11) & NVME_DSM_AD;
	uint16_t st;

	st = emu_copy_from_host(a, s, a->scratch, nr * (uint32_t)sizeof(*range));
	/* all are checked before any is acted upon */
	for (uint32_t i = 0; !st && i < nr; i++) {
		st = emu_io_range(ns, le64_get(range[i].slba), le32_get(range[i].nlb), false);
		if (!st && deallocate && ns->readonly)
			st = NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_NS_WRITE_PROTECTED) | EMU_DNR;
	}
	if (st || !deallocate || a->e->nodata)
		return st;
	for (uint32_t i = 0; !st && i < nr; i++) {
		uint64_t slba = le64_get(range[i].slba), nlb = le32_get(range[i].nlb);

		/* advice: a partial last block keeps what it has */
		if (atomic_load_explicit(&ns->tail_bytes, memory_order_relaxed) && nlb &&
		    slba + nlb == atomic_load_explicit(&ns->nr_blocks, memory_order_relaxed))
			nlb--;
		if (nlb)
			st = emu_io_errno(zero(a->e, ns, slba, nlb, true, false), true);
	}
	return st;
}

uint16_t emu_io_verify(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s)
{
	uint64_t off = slba_of(s) << ns->shift, left = nlb_of(s) << ns->shift;
	uint16_t st = emu_io_range(ns, slba_of(s), nlb_of(s), false);

	while (!st && left && ns->fd >= 0 && !a->e->nodata) {
		uint64_t n = min_u64(left, EMU_SCRATCH_BYTES);
		struct iovec one = { a->scratch, n };

		st = emu_io_errno(emu_backing_read(ns, off, &one, 1, n, false), false);
		off += n;
		left -= n;
	}
	return st;
}
