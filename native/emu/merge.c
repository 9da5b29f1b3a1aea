/* SPDX-License-Identifier: MIT */
/*
 * Commands that lie one behind the other in a file, and came one behind the other: one system call for all of them. A
 * file system takes a lock, and a disk a command, for each transfer, however small.
 */
#include "emu/merge.h"

#define FLAGS(s) (le32_get((s)->cdw12) & ~0xffffu)

static uint64_t slba_of(const struct nvme_sqe *s)
{
	return le32_get(s->cdw10) | (uint64_t)le32_get(s->cdw11) << 32;
}

static uint64_t blocks_of(const struct nvme_sqe *s) { return (le32_get(s->cdw12) & 0xffff) + 1ull; }

/* Blocks between the two. */
static uint64_t gap(const struct nvme_sqe *s, const struct nvme_sqe *next)
{
	return slba_of(next) - (slba_of(s) + blocks_of(s));
}

bool emu_merge_follows(const struct emu_ns *ns, const struct nvme_sqe *s, const struct nvme_sqe *next)
{
	bool write = s->opcode == NVME_IO_WRITE;

	/* what reads of the page cache wait for is the disk, and it reads ahead; else it is a copy, which threads share */
	if (!write && (s->opcode != NVME_IO_READ || ns->direct_fd < 0))
		return false;
	return next->opcode == s->opcode && !s->flags && !next->flags &&
	       le32_get(next->nsid) == le32_get(s->nsid) && FLAGS(next) == FLAGS(s) &&
	       gap(s, next) <= (write ? 0 : EMU_MERGE_GAP >> ns->shift);
}

bool emu_merges(struct emu_ctrl *e)
{
	return !e->power && !e->modelled && !e->p.hostile && !e->nodata &&
	       !atomic_load_explicit(&e->nr_faults, memory_order_relaxed) &&
	       !atomic_load_explicit(&e->stages, memory_order_relaxed);
}

/* What O_DIRECT does not take must not take others along through the page cache. */
static bool all_direct(const struct emu_ns *ns, uint64_t off, const struct iovec *iov, uint32_t nr)
{
	uint64_t odd = off;

	for (uint32_t i = 0; i < nr; i++)
		odd |= (uintptr_t)iov[i].iov_base | iov[i].iov_len;
	return ns->direct_fd < 0 || !(odd & (ns->direct_align - 1));
}

/* Put memory and length of one behind what is in the vector. A status; false in @ret_fits: it is for later. */
static uint16_t add(struct emu_actor *a, const struct nvme_sqe *s, uint64_t nbytes, uint32_t perm,
		    bool *ret_fits)
{
	struct emu_prp w;
	uint64_t got;
	uint16_t st;

	emu_prp_init(&w, s, nbytes, atomic_load_explicit(&a->e->page_bytes, memory_order_relaxed));
	st = emu_prp_next(a, &w, perm, &got);
	*ret_fits = !w.left;
	return st;
}

static int move(struct emu_actor *a, struct emu_ns *ns, const struct nvme_sqe *s, struct iovec *iov,
		uint32_t nr, uint64_t nbytes)
{
	uint64_t off = slba_of(s) << ns->shift;
	bool dsync;

	if (!all_direct(ns, off, iov, nr))
		return -EINVAL;
	if (s->opcode == NVME_IO_READ)
		return emu_backing_read(ns, off, iov, nr, nbytes, false);
	dsync = FLAGS(s) & NVME_RW_FUA || !atomic_load_explicit(&a->e->write_cache, memory_order_relaxed);
	return emu_backing_write(ns, off, iov, nr, nbytes, dsync);
}

uint32_t emu_run_merged(struct emu_actor *a, struct emu_cmd *c, uint32_t nr)
{
	bool write = c->sqe.opcode == NVME_IO_WRITE, fits = true;
	struct emu_ns *ns = emu_ns_find(a->e, le32_get(c->sqe.nsid));
	struct iovec *iov = a->iov;
	uint32_t n = 0, used = 0, max_iov = a->max_iov;
	uint64_t total = 0;
	uint16_t st = 0;
	int rc;

	if (!ns || ns->fd < 0 || !emu_merges(a->e) || nr < 2 || !emu_merge_follows(ns, &c[0].sqe, &c[1].sqe))
		return 0;
	emu_actor_release(a);
	for (; n < nr && !st; n++) {
		uint64_t nbytes = blocks_of(&c[n].sqe) << ns->shift;

		if (c[n].flags || (n && !emu_merge_follows(ns, &c[n - 1].sqe, &c[n].sqe)) ||
		    emu_io_check(a->e, ns, &c[n].sqe) || used + 4 > max_iov || a->nr_hold + 8 > a->max_hold)
			break;
		if (n && gap(&c[n - 1].sqe, &c[n].sqe)) { /* nobody wants it */
			iov[used] = (struct iovec){ a->scratch, gap(&c[n - 1].sqe, &c[n].sqe) << ns->shift };
			total += iov[used++].iov_len;
		}
		a->iov = iov + used;
		a->max_iov = max_iov - used;
		st = add(a, &c[n].sqe, nbytes, write ? EMU_DMA_READ : EMU_DMA_WRITE, &fits);
		if (st || !fits)
			break;
		used += a->nr_iov;
		total += nbytes;
	}
	a->iov = iov;
	a->max_iov = max_iov;
	rc = n ? move(a, ns, &c->sqe, iov, used, total) : 0;
	emu_actor_release(a);
	if (rc) /* each by itself then: which of them fails, and how, it finds out */
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		emu_stat_own(write ? &a->stats->writes : &a->stats->reads, 1);
		emu_stat_own(write ? &a->stats->written_bytes : &a->stats->read_bytes, blocks_of(&c[i].sqe)
											       << ns->shift);
		emu_finish(a, &c[i], 0);
	}
	if (st) /* its memory has been looked at, and was counted as missing */
		emu_finish(a, &c[n++], st);
	return n;
}
