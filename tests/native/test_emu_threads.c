/* SPDX-License-Identifier: MIT */
/* Device threads, steppers and hosts at once: wake-ups, full queues, shadow doorbells, weights, resets. */
#define _GNU_SOURCE
#include <pthread.h>

#include "emu_host.h"
#include "lacks.h"

/* A command, a pause in which the threads fall asleep (or nearly), a command: no wake-up is missed. */
static void wake_ups(void)
{
	struct emu_params p = host_params();
	struct nvme_sqe s = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };
	struct emu_counters c;
	struct host h;
	struct hq q;
	uint32_t late = 0;

	host_open(&h, &p);
	host_queue(&h, &q, 1, 4);
	for (uint32_t i = 0; i < 3000; i++) {
		struct nvme_cqe cqe = { 0 };
		int64_t until = now_ns() + (i % 60) * 1000;

		while (now_ns() < until)
			;
		s.cid = le16_put((uint16_t)i);
		hq_put(&q, &s);
		hq_ring(&h, &q);
		late += !hq_wait_for(&h, &q, &cqe, 5 * NSEC_PER_SEC);
	}
	is(late, 0, "3000 commands after pauses of 0 to 59 us: none was slept through");
	emu_get_counters(h.e, &c);
	ok(c.kicks > 0, "threads slept, and were woken %llu times", (unsigned long long)c.kicks);
	hq_done(&h, &q);
	host_close(&h);
}

/* Four SQs on one small CQ that the host reads late: nothing is overwritten, nothing is lost. */
static void full_queue(void)
{
	struct emu_params p = host_params();
	struct nvme_sqe s = { .opcode = NVME_ADM_CREATE_CQ },
			io = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };
	struct hq q[4], *cq = &q[0];
	uint32_t seen[4] = { 0 }, wrong = 0;
	struct host h;

	host_open(&h, &p);
	for (uint16_t i = 0; i < 4; i++)
		hq_init(&h, &q[i], (uint16_t)(i + 1), 16);
	s.prp1 = le64_put(dma_at(&cq->cq, 0));
	s.cdw10 = le32_put(3 << 16 | 1);
	s.cdw11 = le32_put(1 << 16 | NVME_CQ_IEN | NVME_QUEUE_PC);
	is(host_admin(&h, s, NULL), 0, "a CQ of 4 entries");
	cq->size = 4;
	s.opcode = NVME_ADM_CREATE_SQ;
	for (uint32_t i = 0; i < 4; i++) {
		s.prp1 = le64_put(dma_at(&q[i].sq, 0));
		s.cdw10 = le32_put(15 << 16 | (i + 1));
		s.cdw11 = le32_put(1 << 16 | NVME_QUEUE_PC);
		if (host_admin(&h, s, NULL))
			must(false, "create SQ %u", i + 1);
	}
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < 4; i++) {
			struct hq *sq = &q[i];

			for (uint32_t k = 0; k < 15; k++) {
				io.cid = le16_put((uint16_t)k);
				memcpy(sq->sq.p + sq->sq_tail * 64ul, &io, 64);
				sq->sq_tail = (sq->sq_tail + 1) % 16;
			}
			host_doorbell(&h, (uint16_t)(i + 1), false, sq->sq_tail);
		}
		usleep(round % 2 ? 0 : 2000);
		for (uint32_t n = 0; n < 60; n++) {
			struct nvme_cqe c = { 0 };

			if (!hq_wait_for(&h, cq, &c, WAIT_NS))
				must(false, "completion %u of round %u", n, round);
			wrong += le16_get(c.sqid) < 1 || le16_get(c.sqid) > 4 ||
				 NVME_CQE_STATUS(le32_get(c.dw3));
			seen[(le16_get(c.sqid) - 1) & 3]++;
		}
	}
	is(wrong, 0, "every completion makes sense");
	for (uint32_t i = 0; i < 4; i++)
		is(seen[i], 300, "queue %u got all of its own", i + 1);
	for (uint32_t i = 0; i < 4; i++)
		hq_done(&h, &q[i]);
	host_close(&h);
}

static void shadow_doorbells(void)
{
	struct emu_params p = host_params();
	struct nvme_sqe s = { .opcode = NVME_ADM_DBBUF };
	struct emu_counters c;
	struct dma db, d;
	struct host h;
	struct hq q;
	uint32_t done = 0, sent = 0;
	uint16_t spare[32], nr_spare = 32; /* pages that no command owns */

	p.dbbuf = true;
	host_open(&h, &p);
	db = dma_new(&h, 2 * PAGE, DMA_RW);
	s.prp1 = le64_put(dma_at(&db, 0));
	is(host_admin(&h, s, NULL), NVME_SC_INVALID_FIELD, "DBBUF without an EventIdx page");
	s.prp2 = le64_put(dma_at(&db, PAGE));
	is(host_admin(&h, s, NULL), 0, "DBBUF");
	h.shadow = (uint32_t *)(void *)db.p;
	h.eventidx = (uint32_t *)(void *)(db.p + PAGE);
	host_queue(&h, &q, 1, 64);
	d = dma_new(&h, 32 * PAGE, DMA_RW);
	atomic_store(&h.mmio_writes, 0);
	s = host_rw(NVME_IO_READ, 0, 8);
	for (uint16_t i = 0; i < 32; i++)
		spare[i] = i;
	while (done < 20000) {
		struct nvme_cqe cqe = { 0 };

		if (sent < 20000 && nr_spare) {
			s.cid = le16_put(spare[--nr_spare]);
			host_prp(&s, &d, spare[nr_spare] * (size_t)PAGE, PAGE, NULL);
			hq_put(&q, &s);
			hq_ring(&h, &q);
			sent++;
			if (sent % 1000 == 0)
				usleep(200);
			if (sent % 64)
				continue;
		}
		if (!hq_wait_for(&h, &q, &cqe, WAIT_NS))
			must(false, "completion %u", done);
		if (NVME_CQE_STATUS(le32_get(cqe.dw3)))
			must(false, "a status");
		spare[nr_spare++] = NVME_CQE_CID(le32_get(cqe.dw3));
		done++;
	}
	ok(h.mmio_writes < 20000, "20000 reads took %llu doorbell writes", (unsigned long long)h.mmio_writes);
	emu_get_counters(h.e, &c);
	is(c.commands, 20000, "all were served");
	host_set_en(&h, false);
	hq_done(&h, &q);
	hq_done(&h, &h.admin);
	h.shadow = NULL;
	memset(db.p, 0xff, 2 * PAGE);
	host_enable(&h, 16);
	host_queue(&h, &q, 1, 64);
	is(host_cmd(&h, &q, s, NULL), 0, "after a reset the shadow doorbells are forgotten");
	hq_done(&h, &q);
	dma_free(&h, &d);
	dma_free(&h, &db);
	host_close(&h);
}

struct lane {
	struct host *h;
	struct hq q;
	struct dma buf;
	uint32_t total;
	uint32_t seed;
	bool step;
};

/* Random reads and writes, stepped or kicked, checked byte by byte: one block range for each lane. */
static void *lane_main(void *arg)
{
	struct lane *l = arg;
	uint32_t done = 0, sent = 0, rng = l->seed, head = 0;
	uint8_t *want = l->buf.p + 32 * PAGE;

	for (uint32_t i = 0; i < 32; i++)
		fill_pattern(want + i * PAGE, PAGE, l->seed + i);
	/* even rounds write all 32 blocks, odd rounds read them back elsewhere */
	while (done < l->total) {
		while (sent < l->total && sent - done < 24 && sent / 32 == done / 32) {
			uint32_t i = sent % 32, round = sent / 32;
			struct nvme_sqe s = host_rw(round % 2 ? NVME_IO_READ : NVME_IO_WRITE,
						    l->seed * 1000ull + i * 8, 8);

			s.cid = le16_put((uint16_t)i);
			host_prp(&s, &l->buf, (round % 2 ? i : 32 + i) * PAGE, PAGE, NULL);
			hq_put(&l->q, &s);
			sent++;
			rng = rng * 1664525 + 1013904223;
			if (rng >> 30)
				break;
		}
		if (l->step && rng & 0x100) {
			__atomic_store_n(host_db(l->h, l->q.qid, false), l->q.sq_tail, __ATOMIC_RELEASE);
			emu_step(l->h->e, l->q.qid, 8);
			emu_kick(l->h->e, l->q.qid);
		} else {
			hq_ring(l->h, &l->q);
		}
		for (;;) {
			struct nvme_cqe c = { 0 };
			uint32_t i;

			if (!hq_look(&l->q, &c))
				break;
			i = NVME_CQE_CID(le32_get(c.dw3));
			if (NVME_CQE_STATUS(le32_get(c.dw3)))
				must(false, "status 0x%x", NVME_CQE_STATUS(le32_get(c.dw3)));
			if (done / 32 % 2) {
				if (memcmp(l->buf.p + i * PAGE, want + i * PAGE, PAGE))
					must(false, "lane %u block %u: wrong bytes", l->seed, i);
				memset(l->buf.p + i * PAGE, 0, PAGE);
			}
			done++;
			head = l->q.cq_head;
		}
		host_doorbell(l->h, l->q.qid, true, head);
	}
	return NULL;
}

static void lanes(const char *path, bool step)
{
	struct emu_params p = host_params();
	struct emu_counters c;
	struct lane l[4];
	pthread_t t[4];
	struct host h;

	p.path = path;
	p.create = true;
	p.threads = 3;
	p.step = step;
	host_open(&h, &p);
	for (uint16_t i = 0; i < 4; i++) {
		l[i] = (struct lane){ .h = &h, .total = 6400, .seed = i + 1u, .step = step };
		host_queue(&h, &l[i].q, (uint16_t)(i + 1), 32);
		l[i].buf = dma_new(&h, 64 * PAGE, DMA_RW);
	}
	for (uint32_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, lane_main, &l[i]);
	for (uint32_t i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	emu_get_counters(h.e, &c);
	is(c.commands, 4 * 6400, "four lanes on %s, step=%d: all served once", path ? "a file" : "memory",
	   step);
	if (step && path && lacks_rwf())
		skip("no preadv2 here");
	else if (step)
		ok(c.stepped > 0, "%llu were stepped", (unsigned long long)c.stepped);
	else
		is(c.stepped, 0, "none was stepped");
	for (uint32_t i = 0; i < 4; i++) {
		hq_done(&h, &l[i].q);
		dma_free(&h, &l[i].buf);
	}
	host_close(&h);
}

struct stepper {
	struct emu_ctrl *e;
	atomic_bool stop;
};

static void *stepper_main(void *arg)
{
	struct stepper *s = arg;

	while (!atomic_load_explicit(&s->stop, memory_order_relaxed))
		for (uint32_t qid = 1; qid <= 2; qid++)
			emu_step(s->e, qid, 4);
	return NULL;
}

/* CC.EN = 0 with commands in flight and a stepper at work: after RDY = 0 not a byte is written. */
static void resets(void)
{
	struct emu_params p = host_params();
	struct stepper st;
	struct emu_fault f = { .action = EMU_FAULT_DELAY, .qid = 1, .opcode = EMU_ANY, .nsid = EMU_ANY };
	pthread_t t;
	struct host h;
	uint32_t touched = 0, stuck = 0;

	host_new(&h, &p);
	st = (struct stepper){ .e = h.e };
	pthread_create(&t, NULL, stepper_main, &st);
	f.delay_ns = 50 * NSEC_PER_USEC;
	for (uint32_t round = 0; round < 60; round++) {
		struct hq q[2];
		struct dma d;
		int id = round % 3 ? 0 : emu_fault_add(h.e, &f);

		hq_init(&h, &h.admin, 0, 16);
		emu_reg_write32(h.e, NVME_REG_AQA, 15 << 16 | 15);
		emu_reg_write64(h.e, NVME_REG_ASQ, dma_at(&h.admin.sq, 0));
		emu_reg_write64(h.e, NVME_REG_ACQ, dma_at(&h.admin.cq, 0));
		if (host_set_en(&h, true) != NVME_CSTS_RDY)
			must(false, "ready, round %u", round);
		d = dma_new(&h, 128 * PAGE, DMA_RW);
		for (uint16_t i = 0; i < 2; i++) {
			host_queue(&h, &q[i], (uint16_t)(i + 1), 64);
			for (uint32_t k = 0; k < 63; k++) {
				struct nvme_sqe s = host_rw(NVME_IO_READ, k, 8);

				host_prp(&s, &d, (i * 64 + k) * PAGE, PAGE, NULL);
				hq_put(&q[i], &s);
			}
			hq_ring(&h, &q[i]);
		}
		stuck += host_set_en(&h, false) != 0;
		memset(d.p, 0x77, 128 * PAGE);
		for (uint16_t i = 0; i < 2; i++)
			memset(q[i].cq.p, 0x77, 64 * 16);
		for (uint32_t spin = 0; spin < 20; spin++)
			sched_yield();
		for (uint32_t k = 0; k < 128 * PAGE; k += 256)
			touched += d.p[k] != 0x77;
		for (uint16_t i = 0; i < 2; i++) {
			for (uint32_t k = 0; k < 64 * 16; k += 4)
				touched += q[i].cq.p[k] != 0x77;
			hq_done(&h, &q[i]);
		}
		dma_free(&h, &d);
		hq_done(&h, &h.admin);
		if (id)
			emu_fault_clear(h.e, id);
	}
	is(stuck, 0, "60 resets under load");
	is(touched, 0, "nothing is written after CSTS.RDY = 0");
	atomic_store(&st.stop, true);
	pthread_join(t, NULL);
	emu_free(h.e);
}

/* Weighted round robin: work in all classes, one thread; completions come by weight, urgent ones first. */
static void weights(void)
{
	struct emu_params p = host_params();
	struct nvme_sqe s = { .opcode = NVME_ADM_SET_FEATURES, .cdw10 = le32_put(NVME_FEAT_ARBITRATION) };
	struct nvme_sqe io = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };
	uint32_t order[512], n = 0, early[5] = { 0 }, urgent_last = 0;
	struct hq q[4], *cq = &q[0];
	struct host h;

	p.wrr = true;
	p.threads = 1;
	host_new(&h, &p);
	h.ams = NVME_AMS_WRR;
	is(NVME_CAP_AMS(emu_reg_read64(h.e, NVME_REG_CAP)), 1, "CAP.AMS");
	host_enable(&h, 16);
	s.cdw11 = le32_put(15u << 24 | 7 << 16 | 3 << 8 | 2); /* high 16, medium 8, low 4; bursts of 4 */
	is(host_admin(&h, s, NULL), 0, "weights");
	for (uint16_t i = 0; i < 4; i++)
		hq_init(&h, &q[i], (uint16_t)(i + 1), 512);
	s = (struct nvme_sqe){ .opcode = NVME_ADM_CREATE_CQ, .cdw10 = le32_put(511 << 16 | 1) };
	s.prp1 = le64_put(dma_at(&cq->cq, 0));
	s.cdw11 = le32_put(NVME_QUEUE_PC);
	is(host_admin(&h, s, NULL), 0, "one CQ for all");
	s.opcode = NVME_ADM_CREATE_SQ;
	for (uint32_t i = 0; i < 4; i++) {
		s.prp1 = le64_put(dma_at(&q[i].sq, 0));
		s.cdw10 = le32_put(511 << 16 | (i + 1));
		s.cdw11 = le32_put(1 << 16 | NVME_SQ_QPRIO(i) | NVME_QUEUE_PC);
		is(host_admin(&h, s, NULL), 0, "SQ %u of class %u", i + 1, i);
	}
	/* all doorbells while the only thread sleeps; one kick for all */
	usleep(20000);
	for (uint32_t i = 0; i < 4; i++) {
		for (uint32_t k = 0; k < 100; k++)
			hq_put(&q[i], &io);
		__atomic_store_n(host_db(&h, (uint16_t)(i + 1), false), q[i].sq_tail, __ATOMIC_RELEASE);
	}
	emu_kick(h.e, 1);
	while (n < 400) {
		struct nvme_cqe c = { 0 };

		if (!hq_wait_for(&h, cq, &c, WAIT_NS))
			must(false, "completion %u", n);
		order[n++] = le16_get(c.sqid);
		urgent_last = le16_get(c.sqid) == 1 ? n : urgent_last;
	}
	for (uint32_t i = 100; i < 100 + 28 * 3; i++)
		early[order[i]]++;
	ok(urgent_last <= 132, "urgent commands come first (the last was %u)", urgent_last);
	ok(early[2] > early[3] && early[3] > early[4] && early[4], "then high, medium, low: %u %u %u",
	   early[2], early[3], early[4]);
	for (uint32_t i = 0; i < 4; i++)
		hq_done(&h, &q[i]);
	host_close(&h);
}

int main(void)
{
	char path[256];

	host_temp(path, sizeof(path), "threads");
	close(mkstemp(path));
	wake_ups();
	full_queue();
	shadow_doorbells();
	for (int step = 0; step < 2; step++) {
		lanes(NULL, step);
		lanes(path, step);
	}
	unlink(path);
	resets();
	weights();
	return done_testing();
}
