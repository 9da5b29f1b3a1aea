/* SPDX-License-Identifier: MIT */
/* I/O commands that move data: read, write, compare; and flush. */
#include <errno.h>
#include <string.h>

#include "emu/far.h"
#include "emu/power.h"
#include "support/barrier.h"

#define GENERIC(sc) NVME_STATUS(NVME_SCT_GENERIC, sc)
#define ONWARD_LEAST (64u << 10) /* bytes */
#define PERMANENT(sc) (GENERIC(sc) | EMU_DNR)

struct emu_ns *emu_ns_find(struct emu_ctrl *e, uint32_t nsid)
{
	/* acquire: one that was attached just now is complete */
	uint32_t nr = atomic_load_explicit(&e->nr_ns, memory_order_acquire);

	for (uint32_t i = 0; i < nr; i++)
		if (atomic_load_explicit(&e->ns[i].nsid, memory_order_relaxed) == nsid)
			return &e->ns[i];
	return NULL;
}

/* Bytes that a command moves, for scheduling; nothing is checked. */
uint64_t emu_io_bytes(struct emu_ctrl *e, const struct nvme_sqe *s)
{
	struct emu_ns *ns = emu_ns_find(e, le32_get(s->nsid));

	if (!ns || (s->opcode != NVME_IO_READ && s->opcode != NVME_IO_WRITE && s->opcode != NVME_IO_COMPARE))
		return 0;
	return ((uint64_t)(le32_get(s->cdw12) & 0xffff) + 1) << ns->shift;
}

uint16_t emu_io_range(struct emu_ns *ns, uint64_t slba, uint64_t nlb, bool write)
{
	/* a shrinking namespace keeps its memory, so a command that passes just now harms nobody */
	uint64_t blocks = atomic_load_explicit(&ns->nr_blocks, memory_order_relaxed);

	if (slba > blocks || nlb > blocks - slba)
		return PERMANENT(NVME_SC_LBA_RANGE);
	if (!write)
		return 0;
	if (ns->readonly)
		return PERMANENT(NVME_SC_NS_WRITE_PROTECTED);
	/* the file ends inside its last block, and is not ours to lengthen */
	if (unlikely(atomic_load_explicit(&ns->tail_bytes, memory_order_relaxed)) && slba + nlb == blocks)
		return NVME_STATUS(NVME_SCT_MEDIA, NVME_SC_WRITE_FAULT) | EMU_DNR;
	return 0;
}

uint16_t emu_io_errno(int rc, bool write)
{
	switch (rc) {
	case 0:
		return 0;
	case -EAGAIN:
		return EMU_STATUS_AGAIN;
	case -EFAULT: /* mapped for the bus, but not memory */
		return GENERIC(NVME_SC_DATA_TRANSFER);
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return GENERIC(NVME_SC_CAP_EXCEEDED);
	default:
		return NVME_STATUS(NVME_SCT_MEDIA, write ? NVME_SC_WRITE_FAULT : NVME_SC_UNRECOVERED_READ);
	}
}

static uint16_t compare(struct emu_actor *a, struct emu_ns *ns, uint64_t off)
{
	for (uint32_t i = 0; i < a->nr_iov; i++) {
		const uint8_t *host = a->iov[i].iov_base;
		size_t left = a->iov[i].iov_len;

		while (left) {
			size_t n = min_u64(left, EMU_SCRATCH_BYTES);
			struct iovec one = { a->scratch, n };
			int rc = emu_backing_read(ns, off, &one, 1, n, false);

			if (rc)
				return emu_io_errno(rc, false);
			if (memcmp(host, a->scratch, n))
				return NVME_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILURE) | EMU_DNR;
			host += n;
			off += n;
			left -= n;
		}
	}
	return 0;
}

/* A device reads slowly what lies in the cache of a processor, line by line. Of a small one it is not worth the time. */
static void pass_on(const struct emu_actor *a, const uint8_t *from, uint64_t nbytes)
{
	if (nbytes < ONWARD_LEAST)
		return;
	for (uint32_t i = 0; i < a->nr_hold; i++) {
		const struct emu_map *m = a->hold[i].map;

		if (m->onward && (uint64_t)(from - m->vaddr) < m->nr_pages << EMU_IO_SHIFT) {
			cache_demote(from, nbytes);
			return;
		}
	}
}

static uint16_t move(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s, uint64_t off,
		     uint64_t nbytes)
{
	const uint8_t *first = a->iov[0].iov_base;
	bool one = a->nr_iov == 1, dsync;
	int rc;

	switch (s->opcode) {
	case NVME_IO_READ:
		rc = emu_backing_read(ns, off, a->iov, a->nr_iov, nbytes, a->nowait);
		if (!rc && one)
			pass_on(a, first, nbytes);
		return emu_io_errno(rc, false);
	case NVME_IO_WRITE:
		/* without a volatile cache every write is durable when it completes */
		dsync = le32_get(s->cdw12) & NVME_RW_FUA ||
			!atomic_load_explicit(&a->e->write_cache, memory_order_relaxed);
		return emu_io_errno(emu_backing_write(ns, off, a->iov, a->nr_iov, nbytes, dsync), true);
	default:
		return compare(a, ns, off);
	}
}

/* Most commands: all within one page. False: the walk has to tell. */
static inline bool one_page(struct emu_actor *a, const struct nvme_sqe *s, uint64_t nbytes, uint32_t perm)
{
	uint64_t prp1 = le64_get(s->prp1);
	uint8_t *p;

	if ((prp1 & (EMU_IO_PAGE - 1)) + nbytes > EMU_IO_PAGE || prp1 & 3)
		return false;
	/* a miss is counted once, by the walk */
	if (!(emu_iommu_leaf(&a->e->io, prp1) & perm))
		return false;
	p = emu_translate(a, prp1, perm);
	if (!p)
		return false;
	a->iov[0] = (struct iovec){ p, nbytes };
	a->nr_iov = 1;
	return true;
}

static uint16_t walk(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s, uint64_t off,
		     uint64_t nbytes, uint32_t perm)
{
	struct emu_prp w;
	uint64_t got;
	uint16_t st = 0;

	if (unlikely(emu_far_here(a->e, s))) {
		if (!a->e->nodata)
			return EMU_STATUS_FAR;
		perm = EMU_FAR(perm);
	}
	emu_prp_init(&w, s, nbytes, atomic_load_explicit(&a->e->page_bytes, memory_order_relaxed));
	while (w.left && !st) {
		if (a->nr_hold + 8 > a->max_hold)
			emu_actor_release(a);
		st = emu_prp_next(a, &w, perm, &got);
		if (st || a->e->nodata)
			continue;
		st = move(a, ns, s, off, got);
		off += got;
		if (w.left)
			emu_actor_release(a);
	}
	return st;
}

static inline uint16_t check(struct emu_ctrl *e, struct emu_ns *ns, const struct nvme_sqe *s, uint64_t slba,
			     uint64_t nlb)
{
	if (unlikely(e->p.mdts && nlb << ns->shift > 1ull << (e->p.mdts + 12 + e->p.mpsmin)))
		return PERMANENT(NVME_SC_INVALID_FIELD);
	return emu_io_range(ns, slba, nlb, s->opcode == NVME_IO_WRITE);
}

/* What is wrong with a command that moves data, before any of it is moved. */
uint16_t emu_io_check(struct emu_ctrl *e, struct emu_ns *ns, const struct nvme_sqe *s)
{
	return check(e, ns, s, le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32,
		     (le32_get(s->cdw12) & 0xffff) + 1ull);
}

uint16_t emu_io_read_write(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint64_t slba = le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32;
	uint64_t nlb = (le32_get(s->cdw12) & 0xffff) + 1ull;
	uint64_t nbytes = nlb << ns->shift, off = slba << ns->shift;
	uint32_t perm = s->opcode == NVME_IO_READ ? EMU_DMA_WRITE : EMU_DMA_READ;
	uint16_t st = check(e, ns, s, slba, nlb);

	if (unlikely(st))
		return st;
	if (a->nr_hold + 8 > a->max_hold)
		emu_actor_release(a);
	if (likely(one_page(a, s, nbytes, perm)))
		st = e->nodata ? 0 : move(a, ns, s, off, nbytes);
	else
		st = walk(a, ns, s, off, nbytes, perm);
	if (unlikely(st))
		return st;
	if (s->opcode == NVME_IO_WRITE) {
		emu_stat_own(&a->stats->writes, 1);
		emu_stat_own(&a->stats->written_bytes, nbytes);
	} else {
		emu_stat_own(&a->stats->reads, 1);
		emu_stat_own(&a->stats->read_bytes, nbytes);
	}
	return 0;
}

uint16_t emu_io_flush(struct emu_ctrl *e, uint32_t nsid)
{
	uint16_t st = 0;

	for (uint32_t i = 0; i < e->nr_ns; i++) {
		if (nsid != NVME_NSID_ALL &&
		    atomic_load_explicit(&e->ns[i].nsid, memory_order_relaxed) != nsid)
			continue;
		if (e->ns[i].fd >= 0 && !e->nodata) {
			emu_stat_add(&e->flushes, 1);
			st = st ? st : emu_io_errno(emu_backing_sync(&e->ns[i]), true);
		}
		if (unlikely(e->power) && !st)
			emu_power_flushed(e, &e->ns[i]);
	}
	return st;
}

uint16_t emu_io_exec(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint32_t nsid = le32_get(s->nsid);
	struct emu_ns *ns = likely(atomic_load_explicit(&e->ns[0].nsid, memory_order_relaxed) == nsid)
				    ? &e->ns[0]
				    : emu_ns_find(e, nsid);

	/* no fused operations, no SGLs: neither was advertised */
	if (unlikely(s->flags))
		return PERMANENT(NVME_SC_INVALID_FIELD);
	switch (s->opcode) {
	case NVME_IO_READ:
	case NVME_IO_WRITE:
	case NVME_IO_COMPARE:
	case NVME_IO_WRITE_ZEROES:
	case NVME_IO_DSM:
	case NVME_IO_VERIFY:
		if (unlikely(!ns))
			return PERMANENT(NVME_SC_INVALID_NS);
		break;
	case NVME_IO_FLUSH:
		if (unlikely(!ns && nsid != NVME_NSID_ALL))
			return PERMANENT(NVME_SC_INVALID_NS);
		return emu_io_flush(e, nsid);
	default:
		return PERMANENT(NVME_SC_INVALID_OPCODE);
	}
	switch (s->opcode) {
	case NVME_IO_WRITE_ZEROES:
		return emu_io_write_zeroes(a, ns, s);
	case NVME_IO_DSM:
		return emu_io_dsm(a, ns, s);
	case NVME_IO_VERIFY:
		return emu_io_verify(a, ns, s);
	case NVME_IO_WRITE:
		if (unlikely(e->power) && !emu_far_here(e, s))
			return emu_power_write(a, ns, s);
		return emu_io_read_write(a, ns, s);
	default:
		return emu_io_read_write(a, ns, s);
	}
}
