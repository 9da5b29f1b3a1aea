/* SPDX-License-Identifier: MIT */
/* A power cut as the host sees it: what ends, what the registers say, what is there afterwards. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include "emu_host.h"
#include "lost_power.h"

#define BLOCK 512u
#define FUA NVME_RW_FUA

struct rig {
	struct host h;
	struct hq q;
	struct dma d;
};

static void queue_up(struct rig *r)
{
	host_queue(&r->h, &r->q, 1, 64);
	r->d = dma_new(&r->h, 64 * PAGE, DMA_RW);
}

static void rig_new(struct rig *r, const struct emu_params *p)
{
	host_open(&r->h, p);
	queue_up(r);
}

static void rig_free(struct rig *r)
{
	hq_done(&r->h, &r->q);
	dma_free(&r->h, &r->d);
	host_close(&r->h);
}

/* After a cut: the host takes back its memory and starts anew. */
static void again(struct rig *r)
{
	hq_done(&r->h, &r->q);
	hq_done(&r->h, &r->h.admin);
	dma_free(&r->h, &r->d);
	host_enable(&r->h, 32);
	queue_up(r);
}

static struct emu_params params(void)
{
	struct emu_params p = host_params();

	p.volatile_bytes = 8 << 20;
	return p;
}

static void send(struct rig *r, struct nvme_sqe s, uint32_t at, uint32_t nlb)
{
	s.cid = le16_put(++r->h.cid & 0x7fff);
	host_prp(&s, &r->d, at, nlb * BLOCK, NULL);
	hq_put(&r->q, &s);
	hq_ring(&r->h, &r->q);
}

/* At most 8 blocks from the first page. */
static void put_values(struct rig *r, uint32_t slba, uint32_t nlb, const uint32_t *value, uint32_t flags)
{
	struct nvme_sqe s = host_rw(NVME_IO_WRITE, slba, nlb);
	uint32_t *w = (uint32_t *)(void *)r->d.p;

	for (uint32_t i = 0; i < nlb * BLOCK / 4; i++)
		w[i] = value[i / (BLOCK / 4)];
	s.cdw12 = le32_put(le32_get(s.cdw12) | flags);
	send(r, s, 0, nlb);
}

static bool put_blocks(struct rig *r, uint32_t slba, uint32_t nlb, const uint32_t *value, uint32_t flags)
{
	put_values(r, slba, nlb, value, flags);
	return !hq_wait(&r->h, &r->q, NULL);
}

static bool put_same(struct rig *r, uint32_t slba, uint32_t nlb, uint32_t value, uint32_t flags)
{
	uint32_t all[8];

	for (int i = 0; i < 8; i++)
		all[i] = value;
	return put_blocks(r, slba, nlb, all, flags);
}

static bool get_blocks(struct rig *r, uint32_t slba, uint32_t nlb, uint32_t *ret)
{
	const uint32_t *w = (const uint32_t *)(const void *)(r->d.p + PAGE);
	bool whole;

	send(r, host_rw(NVME_IO_READ, slba, nlb), PAGE, nlb);
	whole = !hq_wait(&r->h, &r->q, NULL);
	for (uint32_t i = 0; i < nlb * BLOCK / 4; i++)
		whole &= w[i] == w[i - i % (BLOCK / 4)];
	for (uint32_t b = 0; b < nlb; b++)
		ret[b] = w[b * (BLOCK / 4)];
	return whole;
}

static bool flush(struct rig *r)
{
	struct nvme_sqe s = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };

	return !host_cmd(&r->h, &r->q, s, NULL);
}

static void cut(struct rig *r, uint64_t seed)
{
	int rc = emu_power_cut(r->h.e, &seed, false);

	if (rc)
		must(false, "power cut: %d", rc);
	again(r);
}

static void registers(void)
{
	struct emu_params p = params();
	uint32_t one[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct nvme_cqe c;
	struct rig r;

	rig_new(&r, &p);
	ok(put_blocks(&r, 0, 8, one, 0) && flush(&r), "a durable write");
	is(emu_power_cut(r.h.e, NULL, false), 0, "power is cut, and comes back");
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), 0, "CSTS is as after power on");
	is(emu_reg_read32(r.h.e, NVME_REG_CC), 0, "so is CC");
	is(emu_reg_read32(r.h.e, NVME_REG_AQA), 0, "so are the admin queues");
	put_values(&r, 0, 8, one, 0);
	ok(!hq_wait_for(&r.h, &r.q, &c, 20 * NSEC_PER_MSEC), "doorbells lead nowhere");
	again(&r);
	memset(one, 0, sizeof(one));
	ok(get_blocks(&r, 0, 8, one) && one[0] == 1 && one[7] == 1, "brought up anew, it has its data");
	is(emu_power_cut(r.h.e, NULL, true), 0, "power is cut for good");
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), 0xffffffff, "registers read all ones");
	is(emu_power_cut(r.h.e, NULL, false), -ENODEV, "there is no power to be cut");
	rig_free(&r);
	p.volatile_bytes = 0;
	rig_new(&r, &p);
	is(emu_power_cut(r.h.e, NULL, false), -ENXIO, "not without volatile_bytes");
	is(emu_fault_add(r.h.e, &(struct emu_fault){ .action = EMU_FAULT_POWER_CUT,
						     .qid = EMU_ANY,
						     .opcode = EMU_ANY }),
	   -ENXIO, "nor by a fault");
	rig_free(&r);
	p.volatile_bytes = 1 << 20;
	p.nodata = true;
	is(emu_new(&p, &r.h.e, r.h.err, sizeof(r.h.err)), -EINVAL, "nor without data: %s", r.h.err);
}

/* What SMART counts. */
static void counted(void)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_GET_LOG, .nsid = le32_put(NVME_NSID_ALL) };
	struct emu_params p = params();
	struct nvme_smart_log *log;
	struct rig r;

	rig_new(&r, &p);
	cut(&r, 1);
	cut(&r, 2);
	log = (struct nvme_smart_log *)(void *)r.d.p;
	s.cdw10 = le32_put(127u << 16 | NVME_LOG_SMART);
	host_prp(&s, &r.d, 0, 512, NULL);
	is(host_admin(&r.h, s, NULL), 0, "SMART");
	is(log->power_cycles[0], 3, "power cycles");
	is(log->unsafe_shutdowns[0], 2, "unsafe shutdowns");
	rig_free(&r);
}

/* Over seeds each kind of loss happens, and none of those that must not. */
static void kinds(void)
{
	uint32_t dropped = 0, kept = 0, torn = 0, reordered = 0, seen[8];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	p.awupf = 3;
	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 64 && fine; seed++) {
		fine &= put_same(&r, 0, 8, 1, 0) && flush(&r);
		fine &= put_same(&r, 0, 8, 2, 0) && put_same(&r, 2, 4, 3, 0);
		fine &= get_blocks(&r, 0, 8, seen) && seen[0] == 2 && seen[3] == 3 && seen[7] == 2;
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen);
		/* the second write has two units of four blocks; the third is one, although it lies across */
		for (int i = 0; i < 8; i += 2)
			fine &= seen[i] == seen[i + 1];
		fine &= (seen[2] == 3 || seen[2] == seen[0]) && (seen[4] == 3 || seen[4] == seen[6]);
		if ((seen[2] == 3) != (seen[4] == 3))
			fine &= seen[2] == 2 || seen[4] == 2;
		dropped += seen[0] == 1 && seen[2] == 1 && seen[4] == 1 && seen[6] == 1;
		kept += seen[0] == 2 && seen[2] == 3 && seen[4] == 3 && seen[6] == 2;
		torn += (seen[0] == 2) != (seen[6] == 2);
		reordered += seen[0] == 2 && seen[2] == 2 && seen[4] == 3;
	}
	ok(fine, "nothing is torn within a unit");
	diag("of 64 cuts: dropped %u, kept %u, torn %u, reordered %u", dropped, kept, torn, reordered);
	ok(dropped && kept && torn && reordered, "writes are dropped, kept, torn beyond a unit, reordered");
	rig_free(&r);
}

static void protected(const char *how, struct emu_params p, uint32_t flags, bool flushed)
{
	bool fine = true;
	uint32_t seen[8];
	struct rig r;

	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 32 && fine; seed++) {
		fine &= put_same(&r, 0, 8, 5, 0) && put_same(&r, 0, 8, 6, flags) && (!flushed || flush(&r));
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen);
		for (int i = 0; i < 8; i++)
			fine &= seen[i] == 6;
	}
	ok(fine, "%s: what was completed is there, and nothing older", how);
	rig_free(&r);
}

static void cache_off(void)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_SET_FEATURES, .cdw10 = le32_put(NVME_FEAT_VWC) };
	struct emu_params p = params();
	uint32_t seen[8];
	bool fine;
	struct rig r;

	rig_new(&r, &p);
	fine = put_same(&r, 0, 8, 5, 0);
	is(host_admin(&r.h, s, NULL), 0, "the write cache is switched off");
	fine &= put_same(&r, 1, 1, 6, 0);
	cut(&r, 3);
	fine &= get_blocks(&r, 0, 8, seen) && seen[0] == 5 && seen[1] == 6 && seen[7] == 5;
	ok(fine, "what was in it is there, and what came after");
	rig_free(&r);
}

static bool zeroes(struct rig *r, uint32_t slba, uint32_t nlb, uint32_t flags)
{
	struct nvme_sqe s = host_rw(NVME_IO_WRITE_ZEROES, slba, nlb);

	s.cdw12 = le32_put(le32_get(s.cdw12) | flags);
	return !host_cmd(&r->h, &r->q, s, NULL);
}

static bool deallocate(struct rig *r, uint32_t slba, uint32_t nlb)
{
	struct nvme_sqe s = { .opcode = NVME_IO_DSM, .nsid = le32_put(1), .cdw11 = le32_put(NVME_DSM_AD) };
	struct nvme_dsm_range *range = (struct nvme_dsm_range *)(void *)r->d.p;

	*range = (struct nvme_dsm_range){ .slba = le64_put(slba), .nlb = le32_put(nlb) };
	host_prp(&s, &r->d, 0, sizeof(*range), NULL);
	return !host_cmd(&r->h, &r->q, s, NULL);
}

static void zeros(void)
{
	uint32_t kept[2] = { 0 }, seen[8];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 32 && fine; seed++) {
		fine &= put_same(&r, 0, 8, 7, 0) && flush(&r);
		fine &= zeroes(&r, 0, 1, 0) && deallocate(&r, 1, 1) && zeroes(&r, 2, 1, FUA);
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen) && !seen[2] && seen[3] == 7;
		kept[0] += seen[0] == 7;
		kept[1] += seen[1] == 7;
		fine &= (!seen[0] || seen[0] == 7) && (!seen[1] || seen[1] == 7);
	}
	ok(fine, "zeros with FUA are there");
	ok(kept[0] && kept[0] < 32, "others are lost or not");
	ok(kept[1] && kept[1] < 32, "and so is a deallocation");
	rig_free(&r);
}

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
		while (!emu_fault_hits(r.h.e, id))
			sched_yield();
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
	ok(fine, "power fails in the middle of a write%s%s: it never completes", flags ? " with FUA" : "",
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

/* More than can be remembered makes durable what came before, as a full cache does. */
static void bounded(void)
{
	uint32_t lost = 0, seen[8];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	p.volatile_bytes = 4096;
	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 32; seed++) {
		fine &= put_same(&r, 0, 8, 1, FUA) && put_same(&r, 0, 4, 2, 0) && put_same(&r, 4, 4, 3, 0);
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen);
		for (int i = 0; i < 4; i++) {
			fine &= seen[i] == 2 && (seen[i + 4] == 3 || seen[i + 4] == 1);
			lost += seen[i + 4] == 1;
		}
		/* one that alone is too much */
		fine &= put_same(&r, 0, 8, 4, 0);
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen) && seen[0] == 4 && seen[7] == 4;
	}
	ok(fine, "beyond the limit everything before is durable");
	ok(lost, "and what comes after is not");
	rig_free(&r);
}

int main(void)
{
	struct emu_params p = params();

	registers();
	counted();
	kinds();
	protected("FUA", p, FUA, false);
	protected("flush", p, 0, true);
	p.vwc = false;
	protected("no cache", p, 0, false);
	cache_off();
	zeros();
	in_the_middle(0, false);
	in_the_middle(FUA, false);
	in_the_middle(FUA, true);
	against_model();
	many_threads();
	bounded();
	return done_testing();
}
