/* SPDX-License-Identifier: MIT */
/* Bring-up, identify, queues, data, stepping: what everything else stands on. */
#define _GNU_SOURCE
#include "emu_host.h"

static void registers(struct host *h)
{
	uint64_t cap = emu_reg_read64(h->e, NVME_REG_CAP);

	is(NVME_CAP_MQES(cap), 1023, "CAP.MQES");
	is(NVME_CAP_TO(cap), 20, "CAP.TO");
	is(NVME_CAP_CQR(cap), 1, "CAP.CQR");
	is(emu_reg_read32(h->e, NVME_REG_CAP + 4), cap >> 32, "CAP by halves");
	is(emu_reg_read32(h->e, NVME_REG_VS), 0x20000, "VS");
	is(emu_reg_read32(h->e, NVME_REG_CSTS), NVME_CSTS_RDY, "CSTS");
}

static void identify(struct host *h)
{
	struct dma d = dma_new(h, 2 * PAGE, DMA_RW);
	struct nvme_sqe s = { .opcode = NVME_ADM_IDENTIFY, .cdw10 = le32_put(NVME_CNS_CTRL) };
	struct nvme_id_ctrl *ctrl = (void *)d.p;
	struct nvme_id_ns *ns = (void *)d.p;
	le32_t *list = (void *)d.p;

	host_prp(&s, &d, 0, PAGE, NULL);
	is(host_admin(h, s, NULL), 0, "identify controller");
	ok(!memcmp(ctrl->sn, "TEST0001   ", 11), "serial number is padded with spaces");
	is(ctrl->mdts, 5, "MDTS");
	is(ctrl->sqes, 0x66, "SQES");
	is(le32_get(ctrl->nn), 1, "NN");
	s.cdw10 = le32_put(NVME_CNS_NS);
	s.nsid = le32_put(1);
	is(host_admin(h, s, NULL), 0, "identify namespace");
	is(le64_get(ns->nsze), (64 << 20) / 512, "NSZE");
	is(ns->lbaf[0].lbads, 9, "LBADS");
	s.nsid = le32_put(2);
	is(host_admin(h, s, NULL), NVME_SC_INVALID_NS, "a namespace beyond NN");
	s.cdw10 = le32_put(NVME_CNS_ACTIVE_NS);
	s.nsid = 0;
	/* across a page boundary: PRP2 is a second page */
	host_prp(&s, &d, 16, PAGE, NULL);
	is(host_admin(h, s, NULL), 0, "active namespace list");
	is(le32_get(list[4]), 1, "namespace 1 is active");
	is(le32_get(list[5]), 0, "and no other");
	s.cdw10 = le32_put(NVME_CNS_NS_DESC);
	s.nsid = le32_put(1);
	host_prp(&s, &d, 0, PAGE, NULL);
	is(host_admin(h, s, NULL), 0, "namespace descriptors");
	ok(d.p[0] == 3 && d.p[1] == 16, "a UUID descriptor");
	s.cdw10 = le32_put(0x77);
	is(host_admin(h, s, NULL), NVME_SC_INVALID_FIELD, "unknown CNS");
	s.opcode = 0x7f;
	is(host_admin(h, s, NULL), NVME_SC_INVALID_OPCODE, "unknown admin opcode");
	dma_free(h, &d);
}

static void data(struct host *h, struct hq *q)
{
	static const struct {
		uint32_t nlb;
		size_t off;
	} shapes[] = {
		{ 1, 0 },     { 1, 4 },	 { 8, 0 },  { 8, 512 }, { 16, 0 },
		{ 16, 2048 }, { 17, 0 }, { 64, 8 }, { 256, 0 }, { 255, 3584 },
	};
	struct dma w = dma_new(h, 40 * PAGE, EMU_DMA_READ), r = dma_new(h, 40 * PAGE, EMU_DMA_WRITE);
	struct dma list = dma_new(h, PAGE, EMU_DMA_READ);

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		size_t n = shapes[i].nlb * 512ul, off = shapes[i].off;
		uint64_t slba = 1000 * i + 7;
		struct nvme_sqe s = host_rw(NVME_IO_WRITE, slba, shapes[i].nlb);
		uint16_t st;

		fill_pattern(w.p, w.nbytes, (uint32_t)i);
		memset(r.p, 0xee, r.nbytes);
		host_prp(&s, &w, off, n, &list);
		st = host_cmd(h, q, s, NULL);
		s = host_rw(NVME_IO_READ, slba, shapes[i].nlb);
		host_prp(&s, &r, off, n, &list);
		st |= host_cmd(h, q, s, NULL);
		is(st, 0, "write and read %u blocks at buffer offset %zu", shapes[i].nlb, off);
		ok(!memcmp(w.p + off, r.p + off, n), "the bytes are the same");
		ok((!off || r.p[off - 1] == 0xee) && r.p[off + n] == 0xee, "and no others were touched");
	}
	dma_free(h, &w);
	dma_free(h, &r);
	dma_free(h, &list);
}

static void refusals(struct host *h, struct hq *q)
{
	struct dma d = dma_new(h, 80 * PAGE, DMA_RW), ro = dma_new(h, PAGE, EMU_DMA_READ);
	struct dma list = dma_new(h, PAGE, EMU_DMA_READ);
	struct nvme_sqe s = host_rw(NVME_IO_READ, (64 << 20) / 512 - 1, 2);
	struct emu_counters before, after;

	host_prp(&s, &d, 0, 1024, NULL);
	is(host_cmd(h, q, s, NULL), NVME_SC_LBA_RANGE, "a read over the end");
	s = host_rw(NVME_IO_READ, UINT64_MAX, 2);
	is(host_cmd(h, q, s, NULL), NVME_SC_LBA_RANGE, "a read that wraps");
	s = host_rw(NVME_IO_READ, 0, 1);
	s.nsid = le32_put(9);
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_NS, "an unknown namespace");
	s = host_rw(0x55, 0, 1);
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_OPCODE, "an unknown opcode");
	s = host_rw(NVME_IO_READ, 0, 257);
	host_prp(&s, &d, 0, 257 * 512, &list);
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_FIELD, "more than MDTS");
	s = host_rw(NVME_IO_READ, 0, 1);
	s.prp1 = le64_put(dma_at(&d, 2));
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_PRP_OFFSET, "PRP1 not on a dword");
	s = host_rw(NVME_IO_READ, 0, 16);
	host_prp(&s, &d, 0, 8192, NULL);
	s.prp2 = le64_put(le64_get(s.prp2) + 512);
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_PRP_OFFSET, "PRP2 with an offset");
	s = host_rw(NVME_IO_READ, 0, 32);
	host_prp(&s, &d, 0, 16384, &list);
	((le64_t *)(void *)list.p)[1] += 8;
	is(host_cmd(h, q, s, NULL), NVME_SC_INVALID_PRP_OFFSET, "a list entry with an offset");

	emu_get_counters(h->e, &before);
	s = host_rw(NVME_IO_READ, 0, 1);
	s.prp1 = le64_put((uintptr_t)d.p);
	is(host_cmd(h, q, s, NULL), NVME_SC_DATA_TRANSFER, "an address is no bus address");
	s.prp1 = le64_put(dma_at(&ro, 0));
	is(host_cmd(h, q, s, NULL), NVME_SC_DATA_TRANSFER,
	   "a read into memory that is read-only for the device");
	dma_unmap(h, &ro);
	is(host_cmd(h, q, s, NULL), NVME_SC_DATA_TRANSFER, "a read into unmapped memory");
	emu_get_counters(h->e, &after);
	is(after.iommu_faults - before.iommu_faults, 3, "three IOMMU faults");
	free(ro.p);
	dma_free(h, &d);
	dma_free(h, &list);
}

/* Who has seen a completion finds the command counted, whatever the device thread still has to do of what it took. */
static void counting(void)
{
	struct emu_params p = host_params();
	struct emu_counters before, after;
	uint32_t late = 0, seen = 0;
	struct nvme_sqe s;
	struct host h;
	struct dma d;
	struct hq q;

	p.threads = 1;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 64);
	d = dma_new(&h, 32 * PAGE, DMA_RW);
	for (uint32_t round = 0; round < 200; round++) {
		emu_get_counters(h.e, &before);
		for (uint32_t i = 0; i < 32; i++) {
			s = host_rw(NVME_IO_WRITE, 8 * i, i ? 1 : 8);
			s.cid = le16_put((uint16_t)i);
			host_prp(&s, &d, i * PAGE, i ? 512 : PAGE, NULL);
			hq_put(&q, &s);
		}
		hq_ring(&h, &q);
		for (uint32_t i = 0; i < 32; i++) {
			seen += hq_wait(&h, &q, NULL) == 0;
			emu_get_counters(h.e, &after);
			late += after.commands - before.commands < i + 1;
		}
	}
	is(seen, 32 * 200, "writes complete");
	is(late, 0, "each was counted before its completion was there");
	dma_free(&h, &d);
	is(host_delete(&h, &q), 0, "delete the queues");
	hq_done(&h, &q);
	host_close(&h);
}

/* One that takes longer is served for who asks for one, and left to the device's threads by others. */
static void stepping_long(struct host *h, struct hq *q, uint32_t kib, uint32_t max, bool served)
{
	struct dma list = dma_new(h, PAGE, DMA_RW), d = dma_new(h, kib << 10, DMA_RW);
	struct nvme_sqe s = host_rw(NVME_IO_READ, 0, kib * 2);
	uint32_t n = 0, seen = 0;

	host_prp(&s, &d, 0, kib << 10, &list);
	for (int round = 0; round < 50; round++) {
		hq_put(q, &s);
		__atomic_store_n(host_db(h, q->qid, false), q->sq_tail, __ATOMIC_RELEASE);
		n += emu_step(h->e, q->qid, max); /* unless a thread of the device was there before */
		seen += hq_wait(h, q, NULL) == 0;
	}
	is(seen, 50, "all end");
	ok(served ? n > 0 : !n, "%u KiB, asked for %u at a time: %u of 50 were served", kib, max, n);
	dma_free(h, &list);
	dma_free(h, &d);
}

static void stepping_alone(void)
{
	struct emu_params p = host_params();
	struct host h;
	struct hq q;

	p.mdts = 8;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 64);
	stepping_long(&h, &q, 64, 1, true);
	stepping_long(&h, &q, 256, 1, true);
	stepping_long(&h, &q, 256, 2, false);
	stepping_long(&h, &q, 512, 1, false);
	is(host_delete(&h, &q), 0, "delete the queues");
	hq_done(&h, &q);
	host_close(&h);
}

static void stepping(struct host *h, struct hq *q)
{
	struct dma d = dma_new(h, 8 * PAGE, DMA_RW);
	struct nvme_sqe s = host_rw(NVME_IO_READ, 7, 8);
	struct emu_counters before, after;
	struct nvme_cqe c;
	uint32_t n = 0, seen = 0;

	emu_get_counters(h->e, &before);
	for (int round = 0; round < 50; round++) {
		for (uint32_t i = 0; i < 8; i++) {
			s.cid = le16_put((uint16_t)i);
			host_prp(&s, &d, i * PAGE, PAGE, NULL);
			hq_put(q, &s);
		}
		/* no kick: the caller steps */
		__atomic_store_n(host_db(h, q->qid, false), q->sq_tail, __ATOMIC_RELEASE);
		n += emu_step(h->e, q->qid, 3);
		n += emu_step(h->e, q->qid, 100);
		for (uint32_t i = 0; i < 8; i++)
			seen += hq_wait(h, q, &c) == 0;
	}
	is(seen, 400, "stepped reads complete");
	emu_get_counters(h->e, &after);
	is(after.stepped - before.stepped, n, "the counter agrees with what the steps returned");
	ok(n > 0, "some were stepped (%u)", n);
	is(after.commands - before.commands, 400, "every command is counted once");
	s = host_rw(NVME_IO_WRITE, 7, 8);
	host_prp(&s, &d, 0, PAGE, NULL);
	hq_put(q, &s);
	__atomic_store_n(host_db(h, q->qid, false), q->sq_tail, __ATOMIC_RELEASE);
	is(emu_step(h->e, q->qid, 8), 0, "a write is not for a stepper");
	is(hq_wait(h, q, NULL), 0, "and reaches a device thread without a kick");
	dma_free(h, &d);
}

int main(void)
{
	struct emu_params p = host_params();
	struct host h;
	struct hq q;

	counting();
	stepping_alone();
	host_open(&h, &p);
	registers(&h);
	identify(&h);
	host_queue(&h, &q, 1, 64);
	data(&h, &q);
	stepping(&h, &q);
	refusals(&h, &q);
	is(host_delete(&h, &q), 0, "delete the queues");
	hq_done(&h, &q);
	host_set_en(&h, false);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), 0, "CSTS after CC.EN = 0");
	hq_done(&h, &h.admin);
	host_enable(&h, 2);
	host_queue(&h, &q, 3, 2);
	data(&h, &q);
	hq_done(&h, &q);
	hq_done(&h, &h.admin);
	emu_free(h.e);
	return done_testing();
}
