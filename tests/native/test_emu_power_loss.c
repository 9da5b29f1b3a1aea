/* SPDX-License-Identifier: MIT */
/* Power cuts in the middle of commands, of random histories, and of what several threads do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include "lacks.h"
#include "lost_power.h"
#include "power_rig.h"

/* Power fails in the middle of the third write. */
static void in_the_middle(uint32_t flags, bool stays_off)
{
	struct emu_fault f = { .action = stays_off ? EMU_FAULT_POWER_OFF : EMU_FAULT_POWER_CUT,
			       .qid = 1,
			       .opcode = NVME_IO_WRITE,
			       .nsid = EMU_ANY,
			       .skip = 2,
			       .count = 1 };
	uint32_t part = 0, none = 0, all = 0, seen[8];
	bool fine = true;
	struct emu_params p = params();
	char path[200];
	struct rig r;
	int fd;

	host_temp(path, sizeof(path), "power");
	fd = mkstemp(path);
	must(fd >= 0, "a file");
	p.path = path;
	p.create = true;
	p.ns[0].nbytes = 1 << 20;
	for (uint64_t seed = 1; seed <= 24 && fine; seed++) {
		struct nvme_cqe c;
		uint32_t n = 0;
		int id;

		p.seed = seed;
		rig_new(&r, &p);
		fine &= put_same(&r, 0, 8, 0, FUA);
		id = emu_fault_add(r.h.e, &f);
		must(id > 0, "the fault");
		fine &= put_same(&r, 8, 8, 8, FUA) && put_same(&r, 16, 8, 8, 0);
		put_values(&r, 0, 8, (uint32_t[8]){ 9, 9, 9, 9, 9, 9, 9, 9 }, flags);
		/* it struck, and the power is gone */
		while (!emu_fault_hits(r.h.e, id) ||
		       emu_reg_read32(r.h.e, NVME_REG_CSTS) != (stays_off ? 0xffffffff : 0))
			sched_yield();
		send(&r, host_rw(NVME_IO_READ, 24, 8), 2 * PAGE, 8);
		fine &= !hq_wait_for(&r.h, &r.q, &c, NSEC_PER_MSEC);
		fine &= emu_reg_read32(r.h.e, NVME_REG_CSTS) == (stays_off ? 0xffffffff : 0);
		rig_free(&r);
		rig_new(&r, &p);
		fine &= get_blocks(&r, 8, 8, seen) && seen[0] == 8 && seen[7] == 8;
		fine &= get_blocks(&r, 0, 8, seen);
		for (uint32_t i = 0; i < 8; i++) {
			fine &= !seen[i] || seen[i] == 9;
			n += seen[i] == 9;
		}
		none += !n;
		all += n == 8;
		part += n && n < 8;
		rig_free(&r);
	}
	ok(fine, "power fails in the middle of a write%s%s: nothing completes", flags ? " with FUA" : "",
	   stays_off ? ", for good" : "");
	diag("of 24 cuts: none of it %u, some %u, all %u", none, part, all);
	ok(part && none + all, "and is partly there, as it comes");
	close(fd);
	unlink(path);
}

/* A random history through the rings, in memory: every outcome is one that the plain model permits. */
static void against_model(void)
{
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	p.threads = 3;
	for (uint64_t seed = 1; seed <= 60 && fine; seed++) {
		struct lost_power m = { .nr = 0 };
		uint32_t seen[LP_BLOCKS], value[LP_BLOCKS];

		srand48((long)seed);
		p.awupf = (uint16_t)(lrand48() % 4);
		rig_new(&r, &p);
		for (int n = 0; n < 12; n++) {
			uint32_t nlb = 1 + (uint32_t)(lrand48() % 6);
			uint32_t slba = (uint32_t)lrand48() % (LP_BLOCKS - nlb + 1), name;
			bool fua = !(lrand48() % 4);

			if (!(lrand48() % 8)) {
				fine &= flush(&r);
				lp_flush(&m);
				continue;
			}
			name = lp_write(&m, slba, nlb, p.awupf + 1u, value);
			fine &= put_blocks(&r, slba, nlb, value, fua ? FUA : 0);
			if (fua)
				lp_harden(&m, name);
		}
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen) && get_blocks(&r, 8, 8, seen + 8);
		fine &= lp_permits(&m, seen, LP_BLOCKS);
		if (!fine)
			diag("seed %llu", (unsigned long long)seed);
		rig_free(&r);
	}
	ok(fine, "random histories");
}

/* Several queues write at once, each its own blocks, and flush; the cut comes from another thread. */
#define WRITERS 3

struct writer {
	struct host *h;
	struct hq q;
	struct dma d;
	uint32_t block;
	uint32_t written; /* the last that completed */
	uint32_t durable; /* the last that completed before a flush was sent that completed, or had FUA */
	pthread_t thread;
};

static bool one(struct writer *w, struct nvme_sqe s)
{
	struct nvme_cqe c;

	s.cid = le16_put((uint16_t)(w->written & 0x7fff));
	hq_put(&w->q, &s);
	hq_ring(w->h, &w->q);
	return hq_wait_for(w->h, &w->q, &c, 200 * NSEC_PER_MSEC);
}

static void *writing(void *arg)
{
	struct writer *w = arg;
	uint32_t *p = (uint32_t *)(void *)w->d.p;

	for (uint32_t n = 1;; n++) {
		struct nvme_sqe s = host_rw(NVME_IO_WRITE, w->block, 1);
		bool fua = n % 7 == 0;

		for (uint32_t i = 0; i < BLOCK / 4; i++)
			p[i] = n;
		if (fua)
			s.cdw12 = le32_put(FUA);
		host_prp(&s, &w->d, 0, BLOCK, NULL);
		if (!one(w, s))
			return NULL;
		w->written = n;
		if (fua)
			w->durable = n;
		if (n % 5)
			continue;
		s = (struct nvme_sqe){ .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };
		if (!one(w, s))
			return NULL;
		w->durable = n;
	}
}

static void many_threads(void)
{
	uint32_t lost = 0, seen[WRITERS];
	struct writer w[WRITERS];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	p.threads = 4;
	for (uint64_t seed = 1; seed <= 12 && fine; seed++) {
		rig_new(&r, &p);
		for (uint32_t i = 0; i < WRITERS; i++) {
			w[i] = (struct writer){ .h = &r.h, .block = i };
			host_queue(&r.h, &w[i].q, (uint16_t)(2 + i), 16);
			w[i].d = dma_new(&r.h, PAGE, DMA_RW);
		}
		for (uint32_t i = 0; i < WRITERS; i++)
			pthread_create(&w[i].thread, NULL, writing, &w[i]);
		usleep(1000 + 300 * (unsigned int)seed);
		fine &= !emu_power_cut(r.h.e, &seed, false);
		for (uint32_t i = 0; i < WRITERS; i++)
			pthread_join(w[i].thread, NULL);
		for (uint32_t i = 0; i < WRITERS; i++) {
			hq_done(&r.h, &w[i].q);
			dma_free(&r.h, &w[i].d);
		}
		again(&r);
		fine &= get_blocks(&r, 0, WRITERS, seen);
		for (uint32_t i = 0; i < WRITERS; i++) {
			/* one more than completed was on its way */
			fine &= seen[i] >= w[i].durable && seen[i] <= w[i].written + 1;
			lost += seen[i] < w[i].written;
			if (!fine)
				diag("seed %llu: durable %u, seen %u, written %u", (unsigned long long)seed,
				     w[i].durable, seen[i], w[i].written);
		}
		rig_free(&r);
	}
	ok(fine, "with four device threads, what a flush or FUA has promised is there");
	diag("lost something in %u of %d blocks", lost, 12 * WRITERS);
}

int main(void)
{
	if (lacks_rwf()) {
		skip("no pwritev2 here, and so no FUA on a file");
	} else {
		in_the_middle(0, false);
		in_the_middle(FUA, false);
		in_the_middle(FUA, true);
	}
	against_model();
	many_threads();
	return done_testing();
}
