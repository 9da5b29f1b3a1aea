/* SPDX-License-Identifier: MIT */
/* What a command costs the embedded controller, stepped and by its own threads. Prints numbers. */
#define _GNU_SOURCE
#include "emu_host.h"

#define DEPTH 256u

struct bench {
	struct host h;
	struct hq q;
	struct dma d;
	struct nvme_sqe s[DEPTH];
};

static void setup(struct bench *b, struct emu_params p, uint32_t threads)
{
	p.threads = (uint16_t)threads;
	host_open(&b->h, &p);
	host_queue(&b->h, &b->q, 1, DEPTH);
	b->d = dma_new(&b->h, DEPTH * PAGE, DMA_RW);
	for (uint32_t i = 0; i < DEPTH; i++) {
		b->s[i] = host_rw(NVME_IO_READ, i * 8, 8);
		host_prp(&b->s[i], &b->d, i * PAGE, PAGE, NULL);
	}
}

static void done(struct bench *b)
{
	struct emu_counters c;

	emu_get_counters(b->h.e, &c);
	diag("commands %lu stepped %lu kicks %lu", c.commands, c.stepped, c.kicks);
	hq_done(&b->h, &b->q);
	dma_free(&b->h, &b->d);
	host_close(&b->h);
}

static uint32_t reap(struct bench *b, uint32_t want)
{
	struct nvme_cqe c;
	uint32_t n = 0;

	while (n < want && hq_look(&b->q, &c))
		n++;
	if (n)
		__atomic_store_n(host_db(&b->h, 1, true), b->q.cq_head, __ATOMIC_RELEASE);
	return n;
}

static void stepped(const char *name, struct emu_params p, uint32_t batch, uint32_t rounds)
{
	struct bench b;
	int64_t step = 0, t0, t1, all;
	uint64_t n = 0;

	setup(&b, p, 1);
	usleep(1000);
	all = now_ns();
	for (uint32_t r = 0; r < rounds; r++) {
		for (uint32_t i = 0; i < batch; i++)
			hq_put(&b.q, &b.s[(r * batch + i) % DEPTH]);
		__atomic_store_n(host_db(&b.h, 1, false), b.q.sq_tail, __ATOMIC_RELEASE);
		t0 = now_ns();
		n += emu_step(b.h.e, 1, batch);
		t1 = now_ns();
		step += t1 - t0;
		for (uint32_t got = 0; got < batch;)
			got += reap(&b, batch - got);
	}
	all = now_ns() - all;
	diag("%s: stepped, batch %u: %.1f ns a command in emu_step (clock included), %.1f in all, %.1f%% "
	     "stepped",
	     name, batch, (double)step / (rounds * batch), (double)all / (rounds * batch),
	     100.0 * (double)n / (rounds * batch));
	done(&b);
}

static void threaded(const char *name, struct emu_params p, uint32_t threads, uint32_t depth, uint32_t total)
{
	struct bench b;
	uint32_t sent = 0, got = 0, n;
	int64_t all;

	setup(&b, p, threads);
	usleep(1000);
	all = now_ns();
	while (got < total) {
		for (n = 0; sent < total && sent - got < depth && n < 32; n++)
			hq_put(&b.q, &b.s[sent++ % DEPTH]);
		if (n)
			hq_ring(&b.h, &b.q);
		got += reap(&b, 64);
	}
	all = now_ns() - all;
	diag("%s: %u threads, depth %u: %.1f ns a command", name, threads, depth, (double)all / total);
	done(&b);
}

static void mapping(void)
{
	struct emu_params p = host_params();
	struct host h;
	uint8_t *buf = aligned_alloc(PAGE, 64 * PAGE);
	struct emu_extent *ext;
	uint64_t handle;
	size_t nr;
	int64_t t;

	host_open(&h, &p);
	t = now_ns();
	for (uint32_t i = 0; i < 3000000; i++) {
		emu_dma_map(h.e, buf + (i % 64) * PAGE, PAGE, DMA_RW, &ext, &nr, &handle);
		free(ext);
		emu_dma_unmap(h.e, handle);
	}
	diag("map and unmap of one page: %.1f ns", (double)(now_ns() - t) / 3000000);
	host_close(&h);
	free(buf);
}

int main(void)
{
	struct emu_params p = host_params();

	p.nodata = true;
	stepped("nodata", p, 1, 1000000);
	stepped("nodata", p, 8, 500000);
	stepped("nodata", p, 32, 100000);
	stepped("nodata", p, 128, 30000);
	threaded("nodata", p, 1, 128, 10000000);
	threaded("nodata", p, 2, 128, 10000000);
	p.nodata = false;
	stepped("memory", p, 1, 300000);
	stepped("memory", p, 32, 30000);
	threaded("memory", p, 1, 128, 3000000);
	threaded("memory", p, 2, 128, 3000000);
	p.path = "/var/tmp/ugds-bench.img";
	p.create = true;
	stepped("file", p, 1, 100000);
	threaded("file", p, 1, 64, 1000000);
	threaded("file", p, 2, 64, 1000000);
	unlink(p.path);
	mapping();
	return done_testing();
}
