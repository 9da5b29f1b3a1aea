/* SPDX-License-Identifier: MIT */
/* A raw NVMe host for tests of the embedded controller: registers, rings and PRPs by hand. */
#ifndef TESTS_EMU_HOST_H
#define TESTS_EMU_HOST_H

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu/emu.h"
#include "spec/nvme.h"
#include "support/util.h"
#include "tap.h"

#define PAGE 4096u
#define WAIT_NS (20 * NSEC_PER_SEC)
#define UNUSED __attribute__((unused))

#define diag(fmt, ...) (printf("# " fmt "\n", ##__VA_ARGS__), fflush(stdout))

/* Equal integers; a failure prints both. */
#define is(got, want, ...)                                                                       \
	do {                                                                                     \
		long long is_got = (long long)(got), is_want = (long long)(want);                \
		if (!ok(is_got == is_want, __VA_ARGS__))                                         \
			diag("line %d: got %lld (0x%llx), want %lld (0x%llx)", __LINE__, is_got, \
			     (unsigned long long)is_got, is_want, (unsigned long long)is_want);  \
	} while (0)

/* What the rest of the test stands on. */
#define must(cond, ...)                                                  \
	do {                                                             \
		if (!ok((cond), __VA_ARGS__)) {                          \
			printf("Bail out! %s:%d\n", __FILE__, __LINE__); \
			exit(1);                                         \
		}                                                        \
	} while (0)

/* Memory that the device may reach, page by page. */
struct dma {
	uint8_t *p;
	size_t nbytes;
	uint64_t *iova; /* of each page */
	uint64_t handle;
};

struct hq {
	uint16_t qid;
	uint32_t size;
	uint32_t sq_tail;
	uint32_t cq_head;
	uint32_t phase;
	uint32_t sqhd; /* as last reported */
	struct dma sq, cq;
};

struct host {
	struct emu_ctrl *e;
	struct emu_params p;
	uint8_t *db;
	uint32_t stride; /* bytes */
	uint32_t mps; /* CC.MPS */
	uint32_t ams;
	uint32_t *shadow, *eventidx; /* shadow doorbells, once configured */
	_Atomic uint64_t mmio_writes;
	struct hq admin;
	uint16_t cid;
	char err[512];
};

UNUSED static struct emu_params host_params(void)
{
	struct emu_params p = {
		.vwc = true,
		.step = true,
		.mdts = 5,
		.mpsmax = 4,
		.to = 20,
		.aerl = 3,
		.acl = 3,
		.mqes = 1023,
		.queues = 8,
		.vectors = 9,
		.threads = 2,
		.nr_ns = 1,
		.seed = 1,
		.ns = { { .nsid = 1, .lba_bytes = 512, .nbytes = 64 << 20 } },
		.serial = "TEST0001",
		.model = "aiougds embedded controller",
	};

	return p;
}

UNUSED static struct dma dma_map(struct host *h, void *p, size_t nbytes, uint32_t flags)
{
	struct emu_extent *ext;
	struct dma d = { .p = p, .nbytes = nbytes };
	size_t nr, page = 0, pages;
	int rc = emu_dma_map(h->e, p, nbytes, flags, &ext, &nr, &d.handle);

	if (rc)
		must(false, "map %zu bytes: %d", nbytes, rc);
	pages = (((uintptr_t)p & (PAGE - 1)) + nbytes + PAGE - 1) / PAGE;
	d.iova = calloc(pages, sizeof(uint64_t));
	for (size_t i = 0; i < nr; i++)
		for (uint64_t off = 0; off < ext[i].nbytes; off += PAGE)
			d.iova[page++] = ext[i].iova + off;
	if (page != pages)
		must(false, "extents cover %zu pages of %zu", page, pages);
	free(ext);
	return d;
}

UNUSED static struct dma dma_new(struct host *h, size_t nbytes, uint32_t flags)
{
	void *p = aligned_alloc(65536, align_up(nbytes, 65536));

	memset(p, 0, nbytes);
	return dma_map(h, p, nbytes, flags);
}

UNUSED static void dma_unmap(struct host *h, struct dma *d)
{
	if (d->handle)
		emu_dma_unmap(h->e, d->handle);
	d->handle = 0;
	free(d->iova);
	d->iova = NULL;
}

UNUSED static void dma_free(struct host *h, struct dma *d)
{
	dma_unmap(h, d);
	free(d->p);
	d->p = NULL;
}

UNUSED static uint64_t dma_at(const struct dma *d, size_t off)
{
	off += (uintptr_t)d->p & (PAGE - 1);
	return d->iova[off / PAGE] + off % PAGE;
}

/* A template for mkstemp() and mkdtemp(). */
UNUSED static void host_temp(char *buf, size_t len, const char *name)
{
	const char *dir = getenv("TMPDIR");

	snprintf(buf, len, "%s/ugds-%s-XXXXXX", dir && *dir ? dir : P_tmpdir, name);
}

#define DMA_RW (EMU_DMA_READ | EMU_DMA_WRITE)

static inline uint32_t *host_db(struct host *h, uint16_t qid, bool cq)
{
	return (uint32_t *)(void *)(h->db + (2u * qid + cq) * h->stride);
}

static inline void host_doorbell(struct host *h, uint16_t qid, bool cq, uint32_t val)
{
	uint32_t slot = (2u * qid + cq) * (h->stride / 4), old, ev;

	if (h->shadow && qid) {
		old = __atomic_exchange_n(&h->shadow[slot], val, __ATOMIC_SEQ_CST);
		__sync_synchronize();
		ev = __atomic_load_n(&h->eventidx[slot], __ATOMIC_SEQ_CST);
		if ((uint16_t)(val - ev - 1) >= (uint16_t)(val - old))
			return;
	}
	atomic_fetch_add_explicit(&h->mmio_writes, 1, memory_order_relaxed);
	__atomic_store_n(host_db(h, qid, cq), val, __ATOMIC_RELEASE);
	emu_kick(h->e, qid);
}

UNUSED static void hq_init(struct host *h, struct hq *q, uint16_t qid, uint32_t size)
{
	*q = (struct hq){ .qid = qid, .size = size, .phase = 1 };
	q->sq = dma_new(h, size * 64ul, EMU_DMA_READ | EMU_DMA_CONTIG);
	q->cq = dma_new(h, size * 16ul, EMU_DMA_WRITE | EMU_DMA_CONTIG);
}

UNUSED static void hq_done(struct host *h, struct hq *q)
{
	dma_free(h, &q->sq);
	dma_free(h, &q->cq);
}

/* Put into the ring; the doorbell is another call. */
static inline void hq_put(struct hq *q, const struct nvme_sqe *s)
{
	memcpy(q->sq.p + q->sq_tail * 64ul, s, 64);
	q->sq_tail = q->sq_tail + 1 == q->size ? 0 : q->sq_tail + 1;
}

static inline void hq_ring(struct host *h, struct hq *q) { host_doorbell(h, q->qid, false, q->sq_tail); }

static inline bool hq_look(struct hq *q, struct nvme_cqe *ret)
{
	struct nvme_cqe *c = (struct nvme_cqe *)(void *)(q->cq.p + q->cq_head * 16ul);
	uint32_t dw3 = __atomic_load_n(&c->dw3, __ATOMIC_ACQUIRE);

	if (NVME_CQE_PHASE(le32_get(dw3)) != q->phase)
		return false;
	ret->dw0 = c->dw0;
	ret->sqhd = c->sqhd;
	ret->sqid = c->sqid;
	ret->dw3 = dw3;
	q->sqhd = le16_get(c->sqhd);
	if (++q->cq_head == q->size) {
		q->cq_head = 0;
		q->phase ^= 1;
	}
	return true;
}

/* Take one completion; give the entry back. False: none within the time. */
UNUSED static bool hq_wait_for(struct host *h, struct hq *q, struct nvme_cqe *ret, int64_t ns)
{
	int64_t end = now_ns() + ns;

	while (!hq_look(q, ret)) {
		if (now_ns() > end)
			return false;
		sched_yield();
	}
	host_doorbell(h, q->qid, true, q->cq_head);
	return true;
}

UNUSED static uint16_t hq_wait(struct host *h, struct hq *q, struct nvme_cqe *ret)
{
	struct nvme_cqe c = { 0 };

	if (!hq_wait_for(h, q, &c, WAIT_NS))
		must(false, "queue %u: a completion in time", q->qid);
	if (ret)
		*ret = c;
	return NVME_CQE_STATUS(le32_get(c.dw3));
}

/* One command at a time; the status without More and Do Not Retry. */
UNUSED static uint16_t host_cmd(struct host *h, struct hq *q, struct nvme_sqe s, uint32_t *ret_dw0)
{
	struct nvme_cqe c = { 0 };
	uint16_t st;

	s.cid = le16_put(++h->cid & 0x7fff);
	hq_put(q, &s);
	hq_ring(h, q);
	st = hq_wait(h, q, &c);
	if (NVME_CQE_CID(le32_get(c.dw3)) != le16_get(s.cid))
		must(false, "completion is of command %u, not %u", NVME_CQE_CID(le32_get(c.dw3)),
		     le16_get(s.cid));
	if (ret_dw0)
		*ret_dw0 = le32_get(c.dw0);
	return st & 0x7ff;
}

UNUSED static uint16_t host_admin(struct host *h, struct nvme_sqe s, uint32_t *ret_dw0)
{
	return host_cmd(h, &h->admin, s, ret_dw0);
}

UNUSED static uint32_t host_set_en(struct host *h, bool en)
{
	uint32_t cc = NVME_CC_MPS(h->mps) | NVME_CC_AMS(h->ams) | NVME_CC_IOSQES(6) | NVME_CC_IOCQES(4);
	int64_t end = now_ns() + WAIT_NS;
	uint32_t csts;

	emu_reg_write32(h->e, NVME_REG_CC, cc | (en ? NVME_CC_EN : 0));
	do
		csts = emu_reg_read32(h->e, NVME_REG_CSTS);
	while (!(csts & NVME_CSTS_CFS) && (csts & NVME_CSTS_RDY) != en && now_ns() < end);
	return csts;
}

UNUSED static void host_enable(struct host *h, uint32_t admin_depth)
{
	hq_init(h, &h->admin, 0, admin_depth);
	emu_reg_write32(h->e, NVME_REG_AQA, (admin_depth - 1) << 16 | (admin_depth - 1));
	emu_reg_write64(h->e, NVME_REG_ASQ, dma_at(&h->admin.sq, 0));
	emu_reg_write64(h->e, NVME_REG_ACQ, dma_at(&h->admin.cq, 0));
	must(host_set_en(h, true) == NVME_CSTS_RDY, "controller gets ready");
}

UNUSED static void host_new(struct host *h, const struct emu_params *p)
{
	size_t nbytes;
	int rc;

	*h = (struct host){ .p = *p };
	rc = emu_new(p, &h->e, h->err, sizeof(h->err));
	must(!rc, "emu_new: %s", rc ? h->err : "made");
	h->db = (uint8_t *)(uintptr_t)emu_doorbells(h->e, &nbytes);
	h->stride = 4u << NVME_CAP_DSTRD(emu_reg_read64(h->e, NVME_REG_CAP));
	h->mps = p->mpsmin;
	h->ams = 0;
}

UNUSED static void host_open(struct host *h, const struct emu_params *p)
{
	host_new(h, p);
	host_enable(h, 32);
}

UNUSED static void host_close(struct host *h)
{
	struct emu_counters c;

	emu_get_counters(h->e, &c);
	is(c.iommu_faults, 0, "no IOMMU faults");
	host_set_en(h, false);
	hq_done(h, &h->admin);
	emu_free(h->e);
}

UNUSED static uint16_t host_create(struct host *h, struct hq *q, uint32_t vector, uint32_t sq_flags)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_CREATE_CQ };
	uint16_t st;

	s.prp1 = le64_put(dma_at(&q->cq, 0));
	s.cdw10 = le32_put((q->size - 1) << 16 | q->qid);
	s.cdw11 = le32_put(vector << 16 | NVME_CQ_IEN | NVME_QUEUE_PC);
	st = host_admin(h, s, NULL);
	if (st)
		return st;
	s.opcode = NVME_ADM_CREATE_SQ;
	s.prp1 = le64_put(dma_at(&q->sq, 0));
	s.cdw11 = le32_put((uint32_t)q->qid << 16 | sq_flags | NVME_QUEUE_PC);
	return host_admin(h, s, NULL);
}

UNUSED static void host_queue(struct host *h, struct hq *q, uint16_t qid, uint32_t size)
{
	uint16_t st;

	hq_init(h, q, qid, size);
	st = host_create(h, q, qid, 0);
	if (st)
		must(false, "create queue %u: status 0x%x", qid, st);
}

UNUSED static uint16_t host_delete(struct host *h, struct hq *q)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_DELETE_SQ, .cdw10 = le32_put(q->qid) };
	uint16_t st = host_admin(h, s, NULL);

	s.opcode = NVME_ADM_DELETE_CQ;
	return st ? st : host_admin(h, s, NULL);
}

/* PRP1 and PRP2 for [off, off + nbytes) of @d; @list takes what needs a list (4 KiB memory pages). */
UNUSED static void host_prp(struct nvme_sqe *s, const struct dma *d, size_t off, size_t nbytes,
			    struct dma *list)
{
	size_t first = PAGE - (((uintptr_t)d->p + off) & (PAGE - 1)), left, slot = 0;
	le64_t *entries = list ? (le64_t *)(void *)list->p : NULL;

	s->prp1 = le64_put(dma_at(d, off));
	s->prp2 = 0;
	if (nbytes <= first)
		return;
	left = nbytes - first;
	off += first;
	if (left <= PAGE) {
		s->prp2 = le64_put(dma_at(d, off));
		return;
	}
	s->prp2 = le64_put(dma_at(list, 0));
	for (; left; left -= min_u64(left, PAGE), off += PAGE) {
		if (slot % 512 == 511 && left > PAGE) {
			entries[slot] = le64_put(dma_at(list, (slot + 1) * 8));
			slot++;
		}
		entries[slot++] = le64_put(dma_at(d, off));
	}
}

UNUSED static struct nvme_sqe host_rw(uint8_t opcode, uint64_t slba, uint32_t nlb)
{
	struct nvme_sqe s = { .opcode = opcode, .nsid = le32_put(1) };

	s.cdw10 = le32_put((uint32_t)slba);
	s.cdw11 = le32_put((uint32_t)(slba >> 32));
	s.cdw12 = le32_put(nlb - 1);
	return s;
}

static inline uint8_t pattern_at(size_t i, uint32_t seed)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u + (i >> 8)) >> 3);
}

/* Eight bytes a store: the sanitizers look at each one. */
UNUSED static void fill_pattern(uint8_t *p, size_t n, uint32_t seed)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		uint64_t word = 0;

		for (uint32_t k = 0; k < 8; k++)
			word |= (uint64_t)pattern_at(i + k, seed) << 8 * k;
		memcpy(p + i, &word, 8);
	}
	for (; i < n; i++)
		p[i] = pattern_at(i, seed);
}

#endif
