/* SPDX-License-Identifier: MIT */
/* The IOMMU: addresses nobody can guess, permissions, and unmapping against a busy device. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "emu_host.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FLAT_PAGES 100000 /* the sanitizer's own shadow and quarantine */
#else
#define FLAT_PAGES 1024
#endif

static long rss_pages(void)
{
	long size = 0, rss = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = -1;
	if (f)
		fclose(f);
	return rss;
}

static void addresses(void)
{
	struct emu_params p = host_params();
	struct host a, b;
	struct dma da, db;
	struct emu_extent *ext;
	uint64_t handle, gone;
	uint32_t breaks = 0, equal = 0, same = 0;
	size_t nr;

	host_open(&a, &p);
	host_open(&b, &p);
	da = dma_new(&a, 64 * PAGE, DMA_RW);
	db = dma_map(&b, da.p, 64 * PAGE, DMA_RW);
	for (size_t i = 0; i < 64; i++) {
		equal += da.iova[i] == (uintptr_t)da.p + i * PAGE;
		same += da.iova[i] == db.iova[i];
		breaks += i && da.iova[i] != da.iova[i - 1] + PAGE;
	}
	is(equal, 0, "no bus address is an address");
	is(same, 0, "nor the same on two controllers with one seed");
	ok(breaks > 0, "64 pages are not contiguous (%u breaks)", breaks);
	is(emu_dma_map(a.e, da.p + 100, 10, DMA_RW, &ext, &nr, &handle), 0, "map ten bytes");
	ok(nr == 1 && ext[0].nbytes == PAGE, "one page");
	free(ext);
	gone = handle;
	is(emu_dma_unmap(a.e, handle), 0, "unmap");
	is(emu_dma_unmap(a.e, gone), -ENOENT, "a stale handle");
	is(emu_dma_map(a.e, da.p + 4000, 200, DMA_RW, &ext, &nr, &handle), 0, "map across a page boundary");
	ok(ext[0].nbytes + (nr > 1 ? ext[1].nbytes : 0) == 2 * PAGE, "two pages");
	free(ext);
	is(emu_dma_unmap(a.e, gone), -ENOENT, "the stale handle does not unmap the newer mapping");
	emu_dma_unmap(a.e, handle);
	is(emu_dma_map(a.e, da.p, 64 * PAGE, DMA_RW | EMU_DMA_CONTIG, &ext, &nr, &handle), 0, "contiguous");
	is(nr, 1, "one extent");
	free(ext);
	emu_dma_unmap(a.e, handle);
	is(emu_dma_map(a.e, NULL, 64, DMA_RW, &ext, &nr, &handle), -EFAULT, "no address");
	is(emu_dma_map(a.e, da.p, 0, DMA_RW, &ext, &nr, &handle), -EINVAL, "no length");
	is(emu_dma_map(a.e, (void *)(UINTPTR_MAX - 4095), PAGE, DMA_RW, &ext, &nr, &handle), -EFAULT,
	   "wraps");
	dma_unmap(&b, &db);
	dma_free(&a, &da);
	host_close(&a);
	host_close(&b);
}

/* More pages than the first ring of addresses has, then a million single ones: flat memory, no reuse soon. */
static void volume(void)
{
	struct emu_params p = host_params();
	uint8_t *big = mmap(NULL, 6ull << 30, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t handle, held, last[64] = { 0 };
	struct emu_extent *ext;
	uint32_t again = 0;
	struct host h;
	size_t nr;
	long before, after;
	uint64_t total = 0;

	host_open(&h, &p);
	is(emu_dma_map(h.e, big, 6ull << 30, DMA_RW, &ext, &nr, &held), 0, "map 6 GiB");
	for (size_t i = 0; i < nr; i++)
		total += ext[i].nbytes;
	is(total, 6ull << 30, "its extents cover it");
	free(ext);
	host_close(&h); /* with what is mapped */
	host_open(&h, &p);
	before = 0;
	for (uint32_t i = 0; i < 2400000; i++) {
		if (emu_dma_map(h.e, big + (i % 100) * PAGE, PAGE, DMA_RW, &ext, &nr, &handle))
			must(false, "map %u", i);
		for (uint32_t k = 0; k < 64; k++)
			again += last[k] == ext[0].iova;
		last[i % 64] = ext[0].iova;
		free(ext);
		emu_dma_unmap(h.e, handle);
		if (i == 1200000)
			before = rss_pages();
	}
	after = rss_pages();
	is(again, 0, "no address comes back soon");
	ok(after - before < FLAT_PAGES, "memory is flat: %ld pages more after a million more",
	   after - before);
	munmap(big, 6ull << 30);
	host_close(&h);
}

struct churn {
	struct host *h;
	struct hq *q;
	uint8_t *buf;
	atomic_bool stop;
	atomic_uint faults;
	atomic_uint good;
};

/* Map, read into it, unmap, then check that nothing is written any more. */
static void *churn_main(void *arg)
{
	struct churn *c = arg;
	uint32_t i = 0;

	while (!atomic_load(&c->stop)) {
		struct dma d = dma_map(c->h, c->buf, 4 * PAGE, DMA_RW);
		struct nvme_sqe s = host_rw(NVME_IO_READ, 64, 16);
		bool race = i++ % 2;
		struct nvme_cqe cqe = { 0 };
		uint16_t st;

		host_prp(&s, &d, 0, 2 * PAGE, NULL);
		hq_put(c->q, &s);
		hq_ring(c->h, c->q);
		if (race) {
			/* under the command's feet: it ends well or with a transfer error */
			dma_unmap(c->h, &d);
			memset(c->buf, 0x11, 4 * PAGE);
		}
		st = hq_wait(c->h, c->q, &cqe) & 0x7ff;
		if (race) {
			for (uint32_t k = 0; k < 4 * PAGE; k += 64)
				if (c->buf[k] != 0x11)
					must(false, "a write after unmap returned");
		}
		if (st == NVME_SC_DATA_TRANSFER && race)
			atomic_fetch_add(&c->faults, 1);
		else if (!st)
			atomic_fetch_add(&c->good, 1);
		else
			must(false, "status 0x%x", st);
		dma_unmap(c->h, &d);
	}
	return NULL;
}

static void races(void)
{
	struct emu_params p = host_params();
	struct churn c[2];
	pthread_t t[2];
	struct host h[1];
	struct hq q[2];
	struct emu_counters n;

	host_open(h, &p);
	for (uint16_t i = 0; i < 2; i++)
		host_queue(h, &q[i], (uint16_t)(i + 1), 16);
	for (uint32_t i = 0; i < 2; i++) {
		c[i] = (struct churn){ .h = h, .q = &q[i], .buf = aligned_alloc(PAGE, 4 * PAGE) };
		pthread_create(&t[i], NULL, churn_main, &c[i]);
	}
	usleep(1500000);
	for (uint32_t i = 0; i < 2; i++)
		atomic_store(&c[i].stop, true);
	for (uint32_t i = 0; i < 2; i++) {
		pthread_join(t[i], NULL);
		free(c[i].buf);
		hq_done(h, &q[i]);
	}
	emu_get_counters(h->e, &n);
	ok(c[0].good + c[1].good > 0, "reads: %u good, %u faulted", c[0].good + c[1].good,
	   c[0].faults + c[1].faults);
	ok(n.iommu_faults >= c[0].faults + c[1].faults, "each fault is counted");
	host_set_en(h, false);
	hq_done(h, &h->admin);
	emu_free(h->e);
}

/* After stop_dma nothing is written; rings may go without a reset. */
static void stop(void)
{
	struct emu_params p = host_params();
	struct nvme_cqe cqe = { 0 };
	struct nvme_sqe s;
	struct host h;
	struct hq q;
	struct dma d;

	host_open(&h, &p);
	host_queue(&h, &q, 1, 16);
	d = dma_new(&h, PAGE, DMA_RW);
	emu_stop_dma(h.e);
	s = host_rw(NVME_IO_READ, 0, 8);
	host_prp(&s, &d, 0, PAGE, NULL);
	memset(d.p, 9, PAGE);
	hq_put(&q, &s);
	hq_ring(&h, &q);
	is(emu_step(h.e, 1, 8), 0, "nothing is stepped");
	ok(!hq_wait_for(&h, &q, &cqe, 20 * NSEC_PER_MSEC), "nothing completes");
	ok(d.p[0] == 9, "nothing is written");
	hq_done(&h, &q);
	hq_done(&h, &h.admin);
	dma_free(&h, &d);
	host_set_en(&h, false);
	emu_free(h.e);
}

/* Ring memory unmapped under a live queue: a fault, never an access. */
static void lost_ring(void)
{
	struct emu_params p = host_params();
	struct emu_counters c;
	struct nvme_sqe s = host_rw(NVME_IO_FLUSH, 0, 1);
	struct host h;
	struct hq q;
	int64_t end = now_ns() + WAIT_NS;

	host_open(&h, &p);
	host_queue(&h, &q, 1, 16);
	hq_put(&q, &s);
	dma_unmap(&h, &q.sq);
	hq_ring(&h, &q);
	do
		emu_get_counters(h.e, &c);
	while (!c.iommu_faults && now_ns() < end);
	is(c.iommu_faults, 1, "a fetch from an unmapped ring is a fault");
	is(host_admin(&h, (struct nvme_sqe){ .opcode = NVME_ADM_KEEP_ALIVE }, NULL), 0, "the others work on");
	hq_done(&h, &q);
	host_set_en(&h, false);
	hq_done(&h, &h.admin);
	emu_free(h.e);
}

int main(void)
{
	addresses();
	volume();
	races();
	stop();
	lost_ring();
	return done_testing();
}
