/* SPDX-License-Identifier: MIT */
/* Far memory, and what ends while copies run: mappings, queues, the controller. Back-pressure; many commands at once. */
#include "emu/internal.h"
#include "far_rig.h"

#define MIB (1u << 20)
#define DISK (48u * MIB)
#define FAR_BYTES (48u * MIB)
#define SLOW_NS (100 * NSEC_PER_USEC)

static struct emu_params params(void)
{
	struct emu_params p = host_params();

	p.mdts = 11;
	p.ns[0].nbytes = DISK;
	return p;
}

struct rig {
	struct emu_params p;
	struct host h;
	struct far f;
	struct hq q;
	struct dma d, list[16];
};

/* Sixteen lists, and all of far memory mapped. */
static void rig_new(struct rig *r, const struct emu_params *p)
{
	r->p = *p;
	far_new(&r->f, FAR_BYTES);
	far_host(&r->h, &r->f, p);
	host_queue(&r->h, &r->q, 1, 64);
	r->d = far_map(&r->h, &r->f, 0, FAR_BYTES, DMA_RW);
	for (uint32_t i = 0; i < 16; i++)
		r->list[i] = dma_new(&r->h, 8 * PAGE, EMU_DMA_READ);
}

static void rig_end(struct rig *r)
{
	for (uint32_t i = 0; i < 16; i++)
		dma_free(&r->h, &r->list[i]);
	dma_unmap(&r->h, &r->d);
	hq_done(&r->h, &r->q);
	host_close(&r->h);
	far_done(&r->f);
}

static void send(struct rig *r, uint8_t op, uint16_t cid, size_t at, size_t off, size_t n)
{
	struct nvme_sqe s = host_rw(op, at / 512, (uint32_t)(n / 512));

	host_prp(&s, &r->d, off, n, &r->list[cid % 16]);
	s.cid = le16_put(cid);
	hq_put(&r->q, &s);
	hq_ring(&r->h, &r->q);
}

static void hold(struct rig *r, bool on) { far_set(&r->f, &r->f.hold, on); }

static bool pattern_is(const uint8_t *p, size_t n, uint32_t seed)
{
	uint8_t *want = malloc(n);
	bool same;

	fill_pattern(want, n, seed);
	same = !memcmp(p, want, n);
	free(want);
	return same;
}

/* Far memory is full; commands on near memory go on, and all of it comes back in the end. */
static void back_pressure(void)
{
	struct emu_params p = params();
	struct nvme_cqe c;
	struct nvme_sqe s;
	struct dma near;
	struct rig r;
	uint32_t good = 0, nears = 0, right = 0;

	rig_new(&r, &p);
	near = dma_new(&r.h, PAGE, DMA_RW);
	for (uint16_t i = 0; i < 5; i++) {
		fill_pattern(r.f.mem + i * 8 * MIB, 8 * MIB, i);
		send(&r, NVME_IO_WRITE, i, i * 8 * MIB, i * 8 * MIB, 8 * MIB);
		hq_wait(&r.h, &r.q, NULL);
		/* those that are read come back; what those that are written hold now has to go there */
		fill_pattern(r.f.mem + i * 8 * MIB, 8 * MIB, i & 1 ? 10 + i : 99);
	}
	hold(&r, true);
	for (uint16_t i = 0; i < 5; i++) /* 40 MiB, more than is staged */
		send(&r, i & 1 ? NVME_IO_WRITE : NVME_IO_READ, i, i * 8 * MIB, i * 8 * MIB, 8 * MIB);
	for (uint16_t i = 5; i < 15; i++)
		send(&r, NVME_IO_READ, i, 0, 41 * MIB + i * PAGE, PAGE);
	for (uint16_t i = 0; i < 200; i++) {
		s = host_rw(i & 1 ? NVME_IO_READ : NVME_IO_WRITE, 90000, 8);
		host_prp(&s, &near, 0, PAGE, NULL);
		s.cid = le16_put(100);
		hq_put(&r.q, &s);
		hq_ring(&r.h, &r.q);
		hq_wait(&r.h, &r.q, &c);
		nears += NVME_CQE_CID(le32_get(c.dw3)) == 100 && !NVME_CQE_STATUS(le32_get(c.dw3));
	}
	is(nears, 200, "near memory is served while far memory waits for room");
	ok(far_busy(&r.f) > 0, "copies are under way");
	hold(&r, false);
	for (uint32_t i = 0; i < 15; i++)
		good += hq_wait(&r.h, &r.q, &c) == 0 && NVME_CQE_CID(le32_get(c.dw3)) < 15;
	is(good, 15, "and all of it ends");
	for (uint16_t i = 1; i < 5; i += 2) {
		memset(r.f.mem + i * 8 * MIB, 0, 8 * MIB);
		send(&r, NVME_IO_READ, i, i * 8 * MIB, i * 8 * MIB, 8 * MIB);
		hq_wait(&r.h, &r.q, NULL);
	}
	for (uint16_t i = 0; i < 5; i++)
		right += pattern_is(r.f.mem + i * 8 * MIB, 8 * MIB, i & 1 ? 10 + i : i);
	is(right, 5, "with its own bytes");
	dma_free(&r.h, &near);
	rig_end(&r);
}

struct call {
	struct rig *r;
	pthread_t thread;
	_Atomic bool begun, over;
	uint32_t what;
};

enum { UNMAP, DISABLE, DELETE, STOP };

static void *call_main(void *arg)
{
	struct call *c = arg;

	atomic_store(&c->begun, true);
	if (c->what == UNMAP)
		dma_unmap(&c->r->h, &c->r->d);
	else if (c->what == DISABLE)
		host_set_en(&c->r->h, false);
	else if (c->what == DELETE)
		host_delete(&c->r->h, &c->r->q);
	else
		emu_stop_dma(c->r->h.e);
	atomic_store(&c->over, true);
	return NULL;
}

/* What it is to stop has to have met it before the copies go on. */
static bool has_begun(struct call *c)
{
	struct emu_ctrl *e = c->r->h.e;

	if (c->what == DISABLE)
		return atomic_load(&e->halted);
	if (c->what == STOP)
		return atomic_load(&e->io.off);
	return atomic_load(&c->begun);
}

static const char *const names[] = { "unmapping", "disabling", "deleting the queue", "stopping DMA" };

/* Neither returns while a copy runs, and each does when it is over. @op and @n: what is under way. */
static void ends(uint32_t what, uint8_t op, size_t n, uint32_t nr, uint16_t threads)
{
	struct emu_params p = params();
	uint32_t good = 0, posted = 0;
	struct nvme_cqe c;
	struct rig r;
	bool early;
	struct call call = { .r = &r, .what = what };

	p.threads = threads;
	rig_new(&r, &p);
	hold(&r, true);
	for (uint16_t i = 0; i < nr; i++)
		send(&r, op, i, i * n, i * n, n);
	while (!far_busy(&r.f))
		sched_yield();
	pthread_create(&call.thread, NULL, call_main, &call);
	while (!has_begun(&call))
		sched_yield();
	usleep(20000);
	ok(!atomic_load(&call.over), "%s waits for copies (opcode %u, %zu bytes)", names[what], op, n);
	/* what had not begun meets no mapping, or no queue */
	early = hq_look(&r.q, &c);
	ok(!early || ((what == UNMAP || what == DELETE) && NVME_CQE_STATUS(le32_get(c.dw3))),
	   "nothing has completed that was under way");
	posted += early;
	hold(&r, false);
	pthread_join(call.thread, NULL);
	is(far_busy(&r.f), 0, "no copy runs when it returns");
	if (what == UNMAP || what == DELETE) {
		while (posted < nr && hq_wait_for(&r.h, &r.q, &c, WAIT_NS)) {
			posted++;
			good += NVME_CQE_STATUS(le32_get(c.dw3)) == 0;
		}
		is(posted, nr, "each command has ended");
		ok(good > 0 || (what == UNMAP && n > PAGE), "%u of them well", good);
	}
	usleep(2000);
	is(hq_look(&r.q, &c), false, "no completion is left over");
	if (what == STOP) {
		host_set_en(&r.h, false);
		emu_start_dma(r.h.e);
	}
	if (what == STOP || what == DISABLE) {
		must(host_set_en(&r.h, true) == NVME_CSTS_RDY, "enabled again");
		r.h.admin.sq_tail = r.h.admin.cq_head = 0;
		r.h.admin.phase = 1;
		memset(r.h.admin.cq.p, 0, r.h.admin.cq.nbytes);
		hq_done(&r.h, &r.q);
		host_queue(&r.h, &r.q, 1, 64);
	} else if (what == DELETE) {
		hq_done(&r.h, &r.q);
		host_queue(&r.h, &r.q, 1, 64);
	} else {
		r.d = far_map(&r.h, &r.f, 0, FAR_BYTES, DMA_RW);
	}
	send(&r, NVME_IO_READ, 1, 0, 0, MIB);
	is(hq_wait(&r.h, &r.q, NULL), 0, "what comes after it is served");
	if (what == UNMAP) { /* commands that had not begun may have met an empty mapping */
		dma_unmap(&r.h, &r.d);
		for (uint32_t i = 0; i < 16; i++)
			dma_free(&r.h, &r.list[i]);
		hq_done(&r.h, &r.q);
		host_set_en(&r.h, false);
		hq_done(&r.h, &r.h.admin);
		emu_free(r.h.e);
		far_done(&r.f);
	} else {
		rig_end(&r);
	}
}

static void *release_main(void *arg)
{
	struct rig *r = arg;

	usleep(20000);
	hold(r, false);
	return NULL;
}

static void closed(void)
{
	struct emu_params p = params();
	pthread_t thread;
	struct rig r;

	rig_new(&r, &p);
	hold(&r, true);
	for (uint16_t i = 0; i < 12; i++)
		send(&r, i & 1 ? NVME_IO_WRITE : NVME_IO_READ, i, i * 4 * MIB, i * 4 * MIB, 4 * MIB);
	while (!far_busy(&r.f))
		sched_yield();
	pthread_create(&thread, NULL, release_main, &r);
	emu_free(r.h.e);
	ok(!r.f.hold, "closing waits for copies");
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < 16; i++) {
		free(r.list[i].iova);
		free(r.list[i].p);
	}
	free(r.d.iova);
	free(r.q.sq.iova);
	free(r.q.sq.p);
	free(r.q.cq.iova);
	free(r.q.cq.p);
	free(r.h.admin.sq.iova);
	free(r.h.admin.sq.p);
	free(r.h.admin.cq.iova);
	free(r.h.admin.cq.p);
	far_done(&r.f);
}

/* The fault script does to them what it does to others. */
static void faults(void)
{
	const struct emu_fault script[] = {
		{ .action = EMU_FAULT_STATUS, .status = NVME_SC_DATA_TRANSFER },
		{ .action = EMU_FAULT_DELAY, .delay_ns = 2 * NSEC_PER_MSEC },
		{ .action = EMU_FAULT_HOLD },
		{ .action = EMU_FAULT_DROP },
		{ .action = EMU_FAULT_DUP_CQE },
		{ .action = EMU_FAULT_BAD_CID },
		{ .action = EMU_FAULT_EARLY_INTERRUPT, .delay_ns = NSEC_PER_MSEC },
	};
	struct emu_params p = params();
	struct nvme_cqe c;
	struct rig r;

	rig_new(&r, &p);
	r.f.delay_ns = SLOW_NS;
	for (uint32_t i = 0; i < ARRAY_SIZE(script); i++) {
		struct emu_fault f = script[i];
		int64_t begin = now_ns();
		bool got;
		int id;

		f.qid = 1;
		f.opcode = f.nsid = EMU_ANY;
		f.count = 1;
		id = emu_fault_add(r.h.e, &f);
		send(&r, NVME_IO_READ, 7, 0, i * PAGE, PAGE);
		got = hq_wait_for(&r.h, &r.q, &c,
				  f.action == EMU_FAULT_HOLD || f.action == EMU_FAULT_DROP
					  ? 20 * NSEC_PER_MSEC
					  : WAIT_NS);
		is(got, f.action != EMU_FAULT_HOLD && f.action != EMU_FAULT_DROP, "fault %u", f.action);
		if (f.action == EMU_FAULT_STATUS)
			is(NVME_CQE_STATUS(le32_get(c.dw3)), NVME_SC_DATA_TRANSFER, "its status");
		if (f.action == EMU_FAULT_DELAY)
			ok(now_ns() - begin >= 2 * NSEC_PER_MSEC, "late");
		if (f.action == EMU_FAULT_DUP_CQE || f.action == EMU_FAULT_BAD_CID)
			is(hq_wait(&r.h, &r.q, NULL), 0, "two completions");
		is(emu_fault_clear(r.h.e, id), 1, "it struck once");
		if (f.action == EMU_FAULT_HOLD)
			is(hq_wait(&r.h, &r.q, NULL), 0, "let go of, it is served");
	}
	send(&r, NVME_IO_READ, 9, 0, 0, 8 * MIB);
	is(hq_wait(&r.h, &r.q, NULL), 0, "none is left");
	rig_end(&r);
}

#define REGION (64u << 10)
#define REGIONS 48u

/* What each region of the disk and of far memory holds, by the seed that it was filled with. */
static uint32_t disk_seed[REGIONS], far_seed[REGIONS];

static bool region_is(const uint8_t *p, size_t n, uint32_t seed)
{
	static uint8_t want[REGION];

	fill_pattern(want, n, seed);
	return !memcmp(p, want, n);
}

/* Random reads, writes and compares on 48 regions, all under way at once; copies slow and out of order, some failing. */
static void mixed(uint32_t rounds, const struct emu_params *p, bool failing)
{
	static uint8_t whole[REGION];
	uint32_t size[REGIONS], wrong = 0, failed = 0, seed = 1000, in = failing ? 61 : 0;
	uint8_t op[REGIONS];
	struct nvme_cqe c;
	struct rig r;

	rig_new(&r, p);
	for (uint32_t i = 0; i < REGIONS; i++) {
		disk_seed[i] = ++seed;
		fill_pattern(whole, REGION, seed);
		memcpy(r.f.mem + i * (size_t)REGION, whole, REGION);
		send(&r, NVME_IO_WRITE, (uint16_t)i, i * (size_t)REGION, i * (size_t)REGION, REGION);
		hq_wait(&r.h, &r.q, &c);
		far_seed[i] = seed;
	}
	r.f.delay_ns = SLOW_NS;
	r.f.shuffle = true;
	for (uint32_t round = 0; round < rounds; round++) {
		pthread_mutex_lock(&r.f.lock);
		r.f.fail_in = in ? 1 + (uint32_t)(far_rand(&r.f) % in) : 0;
		for (uint32_t i = 0; i < REGIONS; i++) {
			uint64_t dice = far_rand(&r.f);

			size[i] = 512 * (1 + (uint32_t)((dice >> 8) % (dice & 128 ? 8 : 128)));
			op[i] = (const uint8_t[]){ NVME_IO_READ, NVME_IO_READ, NVME_IO_WRITE,
						   NVME_IO_COMPARE }[dice & 3];
		}
		pthread_mutex_unlock(&r.f.lock);
		for (uint32_t i = 0; i < REGIONS; i++) {
			uint8_t *there = r.f.mem + i * (size_t)REGION;

			if (op[i] == NVME_IO_READ)
				memset(there, 0, REGION);
			else
				fill_pattern(there, REGION, op[i] == NVME_IO_WRITE ? ++seed : disk_seed[i]);
			far_seed[i] = op[i] == NVME_IO_WRITE ? seed : disk_seed[i];
		}
		/* one list serves what is in flight at a time: sixteen of them, sixty-four kilobytes at most */
		for (uint32_t base = 0; base < REGIONS; base += 16) {
			for (uint32_t i = base; i < base + 16; i++)
				send(&r, op[i], (uint16_t)i, i * (size_t)REGION, i * (size_t)REGION, size[i]);
			for (uint32_t k = 0; k < 16; k++) {
				uint16_t st = hq_wait(&r.h, &r.q, &c);
				uint32_t i = NVME_CQE_CID(le32_get(c.dw3));
				uint8_t *there = r.f.mem + i * (size_t)REGION;

				if (i < base || i >= base + 16)
					must(false, "a completion for command %u", i);
				if (st) {
					failed++;
					wrong += !failing || (st & 0x7ff) != NVME_SC_DATA_TRANSFER;
				} else {
					wrong += !region_is(there, size[i], far_seed[i]);
				}
				if (op[i] != NVME_IO_WRITE)
					continue;
				/* what was written in part is written anew by way of near memory's rules: all of it */
				fill_pattern(there, REGION, far_seed[i]);
				op[i] = 0;
			}
			for (uint32_t i = base; i < base + 16; i++) {
				if (op[i])
					continue;
				send(&r, NVME_IO_WRITE, (uint16_t)i, i * (size_t)REGION, i * (size_t)REGION,
				     REGION);
				while (hq_wait(&r.h, &r.q, &c))
					send(&r, NVME_IO_WRITE, (uint16_t)i, i * (size_t)REGION,
					     i * (size_t)REGION, REGION);
				disk_seed[i] = far_seed[i];
			}
		}
	}
	is(wrong, 0, "%u commands, each with its own bytes", rounds * REGIONS);
	ok(!failing || failed, "%u failed", failed);
	diag("%llu copies in %llu calls", (unsigned long long)atomic_load(&r.f.copies),
	     (unsigned long long)atomic_load(&r.f.calls));
	rig_end(&r);
}

/* Power fails while a write's bytes are on their way: afterwards each block is old or new, and the rest is served. */
static void power(void)
{
	struct emu_params p = params();
	uint32_t torn = 0, blocks = 2 * MIB / 512;
	uint64_t seed = 3;
	struct rig r;

	p.volatile_bytes = 64 * MIB;
	rig_new(&r, &p);
	memset(r.f.mem, 1, 2 * MIB);
	send(&r, NVME_IO_WRITE, 1, 0, 0, 2 * MIB);
	is(hq_wait(&r.h, &r.q, NULL), 0, "old bytes");
	is(host_cmd(&r.h, &r.q, (struct nvme_sqe){ .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) }, NULL), 0,
	   "flushed");
	memset(r.f.mem, 2, 2 * MIB);
	r.f.delay_ns = 10 * SLOW_NS;
	send(&r, NVME_IO_WRITE, 2, 0, 0, 2 * MIB);
	is(emu_power_cut(r.h.e, &seed, false), 0, "a cut");
	is(far_busy(&r.f), 0, "no copy outlives it");
	must(host_set_en(&r.h, false) == 0, "off");
	emu_reg_write32(r.h.e, NVME_REG_AQA, 31u << 16 | 31);
	emu_reg_write64(r.h.e, NVME_REG_ASQ, dma_at(&r.h.admin.sq, 0));
	emu_reg_write64(r.h.e, NVME_REG_ACQ, dma_at(&r.h.admin.cq, 0));
	memset(r.h.admin.cq.p, 0, r.h.admin.cq.nbytes);
	r.h.admin.sq_tail = r.h.admin.cq_head = 0;
	r.h.admin.phase = 1;
	must(host_set_en(&r.h, true) == NVME_CSTS_RDY, "and on");
	hq_done(&r.h, &r.q);
	host_queue(&r.h, &r.q, 1, 64);
	send(&r, NVME_IO_READ, 3, 0, 4 * MIB, 2 * MIB);
	is(hq_wait(&r.h, &r.q, NULL), 0, "read back");
	for (uint32_t i = 0; i < blocks; i++)
		for (uint32_t k = 0; k < 512; k++)
			torn += r.f.mem[4 * MIB + i * 512 + k] != r.f.mem[4 * MIB + i * 512] ||
				(uint8_t)(r.f.mem[4 * MIB + i * 512] - 1) > 1;
	is(torn, 0, "each block is old or new");
	rig_end(&r);
}

int main(void)
{
	struct emu_params p = params();

	back_pressure();
	for (uint32_t what = UNMAP; what <= STOP; what++) {
		ends(what, NVME_IO_READ, PAGE, 8, 2);
		ends(what, NVME_IO_WRITE, 4 * MIB, 8, 2);
		ends(what, NVME_IO_READ, 4 * MIB, 8, 1);
	}
	closed();
	faults();
	power();
	mixed(140, &p, false);
	p.threads = 4;
	mixed(140, &p, false);
	mixed(140, &p, true);
	return done_testing();
}
