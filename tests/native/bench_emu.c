/* SPDX-License-Identifier: MIT */
/* What a command costs the embedded controller, stepped and by its own threads. Prints numbers. */
#define _GNU_SOURCE
#include "emu_host.h"

#include <time.h>

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

/* Wall time means little on a busy machine; processor time counts what the threads did. */
static int64_t cpu_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void stepped(const char *name, struct emu_params p, uint32_t batch, uint32_t rounds)
{
	struct bench b;
	int64_t cpu, rest = 0;
	uint64_t n = 0;

	setup(&b, p, 1);
	usleep(1000);
	for (int empty = 0; empty < 2; empty++) {
		cpu = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
		for (uint32_t r = 0; r < rounds; r++) {
			for (uint32_t i = 0; i < batch; i++)
				hq_put(&b.q, &b.s[(r * batch + i) % DEPTH]);
			if (empty)
				continue;
			__atomic_store_n(host_db(&b.h, 1, false), b.q.sq_tail, __ATOMIC_RELEASE);
			n += emu_step(b.h.e, 1, batch);
			for (uint32_t got = 0; got < batch;)
				got += reap(&b, batch - got);
		}
		cpu = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
		if (!empty)
			rest = cpu;
	}
	diag("%s: stepped, batch %u: %.1f ns a command with reaping, %.1f for filling SQEs, %.1f%% stepped",
	     name, batch, (double)(rest - cpu) / (rounds * batch), (double)cpu / (rounds * batch),
	     100.0 * (double)n / (rounds * batch));
	done(&b);
}

static void threaded(const char *name, struct emu_params p, uint32_t threads, uint32_t depth, uint32_t total)
{
	struct bench b;
	uint32_t sent = 0, got = 0, n;
	int64_t all, cpu;

	setup(&b, p, threads);
	usleep(1000);
	cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
	all = now_ns();
	while (got < total) {
		for (n = 0; sent < total && sent - got < depth && n < 32; n++)
			hq_put(&b.q, &b.s[sent++ % DEPTH]);
		if (n)
			hq_ring(&b.h, &b.q);
		got += reap(&b, 64);
	}
	all = now_ns() - all;
	cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	diag("%s: %u threads, depth %u: %.1f ns a command, %.1f ns of device thread time", name, threads,
	     depth, (double)all / total, (double)cpu / total);
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
	char path[256];

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
	host_temp(path, sizeof(path), "bench");
	close(mkstemp(path));
	p.path = path;
	p.create = true;
	stepped("file", p, 1, 100000);
	threaded("file", p, 1, 64, 1000000);
	threaded("file", p, 2, 64, 1000000);
	unlink(p.path);
	mapping();
	return done_testing();
}
