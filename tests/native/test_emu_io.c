/* SPDX-License-Identifier: MIT */
/* I/O commands other than plain reads and writes, long PRP lists, large memory pages, several namespaces. */
#define _GNU_SOURCE
#include "emu_host.h"

#define MEDIA(sc) NVME_STATUS(NVME_SCT_MEDIA, sc)

static void ranges(struct host *h, struct hq *q)
{
	struct dma d = dma_new(h, 16 * PAGE, DMA_RW), r = dma_new(h, 16 * PAGE, DMA_RW),
		   list = dma_new(h, PAGE, 1);
	struct nvme_dsm_range *range = (void *)r.p;
	struct nvme_sqe s = host_rw(NVME_IO_WRITE, 100, 128);

	fill_pattern(d.p, 65536, 1);
	host_prp(&s, &d, 0, 65536, &list);
	is(host_cmd(h, q, s, NULL), 0, "write");
	s.opcode = NVME_IO_COMPARE;
	is(host_cmd(h, q, s, NULL), 0, "compare equal");
	d.p[65535] ^= 1;
	is(host_cmd(h, q, s, NULL), MEDIA(NVME_SC_COMPARE_FAILURE), "compare different");
	s = host_rw(NVME_IO_VERIFY, 100, 128);
	is(host_cmd(h, q, s, NULL), 0, "verify");
	s = host_rw(NVME_IO_VERIFY, (64 << 20) / 512 - 1, 2);
	is(host_cmd(h, q, s, NULL), NVME_SC_LBA_RANGE, "verify over the end");
	s = host_rw(NVME_IO_WRITE_ZEROES, 101, 3);
	is(host_cmd(h, q, s, NULL), 0, "write zeroes");
	s = host_rw(NVME_IO_READ, 100, 5);
	host_prp(&s, &d, 0, 5 * 512, NULL);
	is(host_cmd(h, q, s, NULL), 0, "read back");
	fill_pattern(r.p, 65536, 1);
	ok(!memcmp(d.p, r.p, 512) && !memcmp(d.p + 2048, r.p + 2048, 512), "the blocks around are kept");
	memset(r.p, 0, 1536);
	ok(!memcmp(d.p + 512, r.p, 1536), "the blocks are zero");

	memset(range, 0, 2 * sizeof(*range));
	range[0].slba = le64_put(104);
	range[0].nlb = le32_put(1);
	range[1].slba = le64_put(110);
	range[1].nlb = le32_put(100);
	s = host_rw(NVME_IO_DSM, 0, 1);
	s.cdw10 = le32_put(1);
	s.cdw11 = le32_put(NVME_DSM_AD);
	s.cdw12 = 0;
	host_prp(&s, &r, 0, 32, NULL);
	is(host_cmd(h, q, s, NULL), 0, "deallocate two ranges");
	s = host_rw(NVME_IO_READ, 104, 16);
	host_prp(&s, &d, 0, 8192, NULL);
	is(host_cmd(h, q, s, NULL), 0, "read back");
	fill_pattern(r.p, 65536, 1);
	ok(!memcmp(d.p + 512, r.p + 5 * 512, 5 * 512), "the blocks between are kept");
	memset(r.p, 0, 8192);
	ok(!memcmp(d.p, r.p, 512) && !memcmp(d.p + 6 * 512, r.p, 10 * 512),
	   "deallocated blocks read as zeros");
	range[0].slba = le64_put(UINT64_MAX);
	range[0].nlb = le32_put(2);
	s = host_rw(NVME_IO_DSM, 0, 1);
	s.cdw11 = le32_put(NVME_DSM_AD);
	host_prp(&s, &r, 0, 16, NULL);
	is(host_cmd(h, q, s, NULL), NVME_SC_LBA_RANGE, "a range out of bounds");
	dma_free(h, &d);
	dma_free(h, &r);
	dma_free(h, &list);
}

static void flushing(struct host *h, struct hq *q, uint64_t want)
{
	struct nvme_sqe s = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };
	struct emu_counters c;

	is(host_cmd(h, q, s, NULL), 0, "flush");
	s.nsid = le32_put(NVME_NSID_ALL);
	is(host_cmd(h, q, s, NULL), 0, "flush all");
	s.nsid = le32_put(5);
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_NS, "flush of an unknown namespace");
	emu_get_counters(h->e, &c);
	is(c.flushes, want, "fdatasync calls");
}

/* 4 MiB in one command: the PRP list fills three pages, chained. */
static void long_lists(void)
{
	struct emu_params p = host_params();
	struct host h;
	struct hq q;
	struct dma w, r, list;
	uint32_t nlb = (4 << 20) / 512;

	p.mdts = 0;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	w = dma_new(&h, (4 << 20) + PAGE, EMU_DMA_READ);
	r = dma_new(&h, (4 << 20) + PAGE, EMU_DMA_WRITE);
	list = dma_new(&h, 4 * PAGE, EMU_DMA_READ);
	for (size_t off = 0; off <= 8; off += 8) {
		struct nvme_sqe s = host_rw(NVME_IO_WRITE, 8, nlb);

		fill_pattern(w.p, w.nbytes, (uint32_t)off);
		memset(r.p, 0, r.nbytes);
		host_prp(&s, &w, off, 4 << 20, &list);
		is(host_cmd(&h, &q, s, NULL), 0, "write 4 MiB, buffer offset %zu", off);
		s = host_rw(NVME_IO_READ, 8, nlb);
		host_prp(&s, &r, off, 4 << 20, &list);
		is(host_cmd(&h, &q, s, NULL), 0, "read it");
		ok(!memcmp(w.p + off, r.p + off, 4 << 20), "the bytes are the same");
	}
	hq_done(&h, &q);
	dma_free(&h, &w);
	dma_free(&h, &r);
	dma_free(&h, &list);
	host_close(&h);
}

/* CAP.MPSMIN = 64 KiB: one PRP is 16 IO pages, and the IOMMU does not tear memory pages apart. */
static void large_pages(void)
{
	struct emu_params p = host_params();
	struct nvme_sqe s;
	struct host h;
	struct hq q;
	struct dma d;
	uint8_t *back = malloc(4 * 65536);

	p.mdts = 4;
	p.mpsmin = 4;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	d = dma_new(&h, 5 * 65536, DMA_RW);
	fill_pattern(d.p, 5 * 65536, 3);
	memcpy(back, d.p + 1024, 2 * 65536);
	s = host_rw(NVME_IO_WRITE, 0, 128);
	s.prp1 = le64_put(dma_at(&d, 0));
	is(host_cmd(&h, &q, s, NULL), 0, "one PRP of 64 KiB");
	s = host_rw(NVME_IO_WRITE, 500, 256);
	s.prp1 = le64_put(dma_at(&d, 1024));
	s.prp2 = le64_put(dma_at(&d, 4 * 65536));
	((le64_t *)(void *)(d.p + 4 * 65536))[0] = le64_put(dma_at(&d, 65536));
	((le64_t *)(void *)(d.p + 4 * 65536))[1] = le64_put(dma_at(&d, 2 * 65536));
	is(host_cmd(&h, &q, s, NULL), 0, "an offset into the first of three, and a list");
	memset(d.p, 0, 2 * 65536);
	s = host_rw(NVME_IO_READ, 500, 256);
	s.prp1 = le64_put(dma_at(&d, 0));
	s.prp2 = le64_put(dma_at(&d, 65536));
	is(host_cmd(&h, &q, s, NULL), 0, "read them into two");
	ok(!memcmp(d.p, back, 2 * 65536), "the bytes are the same");
	s.prp2 = le64_put(dma_at(&d, 65536 + PAGE));
	is(host_cmd(&h, &q, s, NULL), NVME_SC_INVALID_PRP_OFFSET, "an IO page is no memory page");
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_close(&h);
	free(back);
}

static void namespaces(void)
{
	struct emu_params p = host_params();
	struct host h;
	struct hq q;
	struct dma d;
	struct nvme_sqe s;
	struct nvme_id_ns *ns;
	le32_t *list;

	p.nr_ns = 3;
	p.ns[0] = (struct emu_ns_params){ .nsid = 7, .lba_bytes = 4096, .nbytes = 1 << 20 };
	p.ns[1] =
		(struct emu_ns_params){ .nsid = 2, .lba_bytes = 512, .metadata_bytes = 8, .nbytes = 1 << 20 };
	p.ns[2] = (struct emu_ns_params){ .nsid = 4, .lba_bytes = 65536, .nbytes = 1 << 20 };
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	d = dma_new(&h, PAGE, DMA_RW);
	list = (void *)d.p;
	ns = (void *)d.p;
	s = (struct nvme_sqe){ .opcode = NVME_ADM_IDENTIFY, .cdw10 = le32_put(NVME_CNS_ACTIVE_NS) };
	host_prp(&s, &d, 0, PAGE, NULL);
	is(host_admin(&h, s, NULL), 0, "active namespaces");
	ok(list[0] == 2 && list[1] == 4 && list[2] == 7 && !list[3], "in ascending order");
	s.nsid = le32_put(4);
	is(host_admin(&h, s, NULL), 0, "those after 4");
	ok(list[0] == 7 && !list[1], "only 7");
	s.cdw10 = le32_put(NVME_CNS_NS);
	s.nsid = le32_put(2);
	is(host_admin(&h, s, NULL), 0, "identify 2");
	is(le16_get(ns->lbaf[0].ms), 8, "its metadata");
	s.nsid = le32_put(3);
	is(host_admin(&h, s, NULL), 0, "identify an inactive one");
	is(le64_get(ns->nsze), 0, "is all zeros");
	memset(d.p, 0x5a, PAGE);
	s = host_rw(NVME_IO_WRITE, 3, 1);
	s.nsid = le32_put(7);
	host_prp(&s, &d, 0, PAGE, NULL);
	is(host_cmd(&h, &q, s, NULL), 0, "write to 7");
	s = host_rw(NVME_IO_READ, 24, 8);
	s.nsid = le32_put(2);
	host_prp(&s, &d, 0, PAGE, NULL);
	is(host_cmd(&h, &q, s, NULL), 0, "read from 2");
	ok(d.p[0] == 0, "namespaces are apart");
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_close(&h);
}

static void nodata(void)
{
	struct emu_params p = host_params();
	struct host h;
	struct hq q;
	struct dma d;
	struct nvme_sqe s;

	p.nodata = true;
	p.ns[0].nbytes = 1ull << 42;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	d = dma_new(&h, PAGE, DMA_RW);
	memset(d.p, 7, PAGE);
	s = host_rw(NVME_IO_READ, 1ull << 32, 8);
	host_prp(&s, &d, 0, PAGE, NULL);
	hq_put(&q, &s);
	__atomic_store_n(host_db(&h, 1, false), q.sq_tail, __ATOMIC_RELEASE);
	emu_step(h.e, 1, 1);
	is(hq_wait(&h, &q, NULL), 0, "a read without data");
	ok(d.p[0] == 7 && d.p[4095] == 7, "moves no byte");
	s.prp1 = le64_put(12288);
	hq_put(&q, &s);
	__atomic_store_n(host_db(&h, 1, false), q.sq_tail, __ATOMIC_RELEASE);
	emu_step(h.e, 1, 1);
	is(hq_wait(&h, &q, NULL) & 0x7ff, NVME_SC_DATA_TRANSFER, "but PRPs are walked");
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_set_en(&h, false);
	hq_done(&h, &h.admin);
	emu_free(h.e);
}

int main(void)
{
	struct emu_params p = host_params();
	struct host h;
	struct hq q;
	char path[256];
	int fd;

	host_temp(path, sizeof(path), "io");
	fd = mkstemp(path);

	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	diag("memory");
	ranges(&h, &q);
	flushing(&h, &q, 0);
	hq_done(&h, &q);
	host_close(&h);

	diag("file");
	close(fd);
	p.path = path;
	p.create = true;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	ranges(&h, &q);
	flushing(&h, &q, 2);
	hq_done(&h, &q);
	host_close(&h);
	unlink(path);

	long_lists();
	large_pages();
	namespaces();
	nodata();
	return done_testing();
}
