/* SPDX-License-Identifier: MIT */
/* Admin commands of the embedded controller: queues, features, log pages, events, Abort, bring-up errors. */
#define _GNU_SOURCE
#include "emu_host.h"

#define CMD(sc) NVME_STATUS(NVME_SCT_CMD, sc)

static uint16_t create(struct host *h, uint8_t opcode, uint64_t prp1, uint32_t cdw10, uint32_t cdw11)
{
	struct nvme_sqe s = { .opcode = opcode };

	s.prp1 = le64_put(prp1);
	s.cdw10 = le32_put(cdw10);
	s.cdw11 = le32_put(cdw11);
	return host_admin(h, s, NULL);
}

static uint16_t feature(struct host *h, uint8_t opcode, uint32_t fid, uint32_t val, uint32_t *ret)
{
	struct nvme_sqe s = { .opcode = opcode, .cdw10 = le32_put(fid), .cdw11 = le32_put(val) };

	return host_admin(h, s, ret);
}

static void features(struct host *h)
{
	uint32_t v = 0;

	is(feature(h, NVME_ADM_SET_FEATURES, NVME_FEAT_NUM_QUEUES, 99 << 16 | 3, &v), 0,
	   "ask for 4 SQs and 100 CQs");
	is(v, 7 << 16 | 3, "4 and 8 are granted");
	is(feature(h, NVME_ADM_SET_FEATURES, NVME_FEAT_NUM_QUEUES, 0xffff, &v), NVME_SC_INVALID_FIELD,
	   "65536 is invalid");
	is(feature(h, NVME_ADM_SET_FEATURES, NVME_FEAT_NUM_QUEUES, 7 << 16 | 7, &v), 0, "ask again");
	is(feature(h, NVME_ADM_GET_FEATURES, NVME_FEAT_NUM_QUEUES, 0, &v), 0, "get it");
	is(v, 7 << 16 | 7, "8 and 8");
	is(feature(h, NVME_ADM_SET_FEATURES, NVME_FEAT_ARBITRATION, 0x01020303, &v), 0, "set arbitration");
	is(feature(h, NVME_ADM_GET_FEATURES, NVME_FEAT_ARBITRATION, 0, &v), 0, "get arbitration");
	is(v, 0x01020303, "it is kept");
	is(feature(h, NVME_ADM_SET_FEATURES, NVME_FEAT_IRQ_COALESCE, 0x0101, &v), 0,
	   "interrupt coalescing is accepted");
	is(feature(h, NVME_ADM_SET_FEATURES, 0x7e, 0, &v), NVME_SC_INVALID_FIELD, "an unknown feature");
	is(feature(h, NVME_ADM_GET_FEATURES, 0x7e, 0, &v), NVME_SC_INVALID_FIELD, "an unknown feature");
}

static void queues(struct host *h)
{
	struct hq q;
	uint64_t sq, cq;

	hq_init(h, &q, 1, 1024);
	sq = dma_at(&q.sq, 0);
	cq = dma_at(&q.cq, 0);
	is(create(h, NVME_ADM_CREATE_CQ, cq, 63 << 16 | 0, 3), CMD(NVME_SC_INVALID_QID), "CQ 0");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 63 << 16 | 9, 3), CMD(NVME_SC_INVALID_QID),
	   "CQ beyond what was granted");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 0 << 16 | 1, 3), CMD(NVME_SC_INVALID_QSIZE), "CQ of one entry");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 1024 << 16 | 1, 3), CMD(NVME_SC_INVALID_QSIZE),
	   "CQ of MQES + 2");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 63 << 16 | 1, 9 << 16 | 3), CMD(NVME_SC_INVALID_VECTOR),
	   "no such vector");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 63 << 16 | 1, 2), NVME_SC_INVALID_FIELD, "CQ not contiguous");
	is(create(h, NVME_ADM_CREATE_CQ, cq + 64, 63 << 16 | 1, 3), NVME_SC_INVALID_PRP_OFFSET,
	   "CQ not on a page");
	is(create(h, NVME_ADM_CREATE_SQ, sq, 63 << 16 | 1, 1 << 16 | 1), CMD(NVME_SC_CQ_INVALID),
	   "SQ without its CQ");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 1023 << 16 | 1, 3), 0, "CQ of MQES + 1");
	is(create(h, NVME_ADM_CREATE_CQ, cq, 63 << 16 | 1, 3), CMD(NVME_SC_INVALID_QID), "CQ 1 again");
	is(create(h, NVME_ADM_CREATE_SQ, sq, 63 << 16 | 0, 1 << 16 | 1), CMD(NVME_SC_INVALID_QID), "SQ 0");
	is(create(h, NVME_ADM_CREATE_SQ, sq, 0 << 16 | 1, 1 << 16 | 1), CMD(NVME_SC_INVALID_QSIZE),
	   "SQ of one entry");
	is(create(h, NVME_ADM_CREATE_SQ, sq, 63 << 16 | 1, 1 << 16), NVME_SC_INVALID_FIELD,
	   "SQ not contiguous");
	is(create(h, NVME_ADM_CREATE_SQ, sq, 63 << 16 | 1, 1 << 16 | 1), 0, "SQ 1");
	is(create(h, NVME_ADM_CREATE_SQ, sq, 63 << 16 | 1, 1 << 16 | 1), CMD(NVME_SC_INVALID_QID),
	   "SQ 1 again");
	is(create(h, NVME_ADM_DELETE_CQ, 0, 1, 0), CMD(NVME_SC_INVALID_QUEUE_DELETION), "CQ with an SQ");
	is(create(h, NVME_ADM_DELETE_SQ, 0, 2, 0), CMD(NVME_SC_INVALID_QID), "SQ that is not there");
	is(create(h, NVME_ADM_DELETE_SQ, 0, 0, 0), CMD(NVME_SC_INVALID_QID), "the admin SQ");
	is(create(h, NVME_ADM_DELETE_SQ, 0, 1, 0), 0, "SQ 1 goes");
	is(create(h, NVME_ADM_DELETE_CQ, 0, 1, 0), 0, "CQ 1 goes");
	is(create(h, NVME_ADM_DELETE_CQ, 0, 1, 0), CMD(NVME_SC_INVALID_QID), "and is gone");
	hq_done(h, &q);
}

static uint16_t get_log(struct host *h, struct dma *d, uint8_t lid, uint32_t nbytes, uint64_t off)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_GET_LOG, .nsid = le32_put(NVME_NSID_ALL) };
	uint32_t numd = nbytes / 4 - 1;

	s.cdw10 = le32_put(lid | numd << 16);
	s.cdw11 = le32_put(numd >> 16);
	s.cdw12 = le32_put((uint32_t)off);
	s.cdw13 = le32_put((uint32_t)(off >> 32));
	host_prp(&s, d, 0, nbytes, NULL);
	return host_admin(h, s, NULL);
}

static void logs(struct host *h)
{
	struct dma d = dma_new(h, 2 * PAGE, DMA_RW);
	struct nvme_error_log *err = (void *)d.p;
	struct nvme_smart_log *smart = (void *)d.p;
	struct nvme_sqe s;
	struct hq q;
	uint64_t count;

	host_queue(h, &q, 2, 16);
	s = host_rw(NVME_IO_READ, 1ull << 40, 1);
	is(host_cmd(h, &q, s, NULL), NVME_SC_LBA_RANGE, "an error");
	is(get_log(h, &d, NVME_LOG_ERROR, 64, 0), 0, "error log, newest entry");
	is(le16_get(err->sqid), 2, "its SQ");
	is(le16_get(err->cid), h->cid - 1, "its command");
	is(le64_get(err->lba), 1ull << 40, "its block");
	is((le16_get(err->status) >> 1) & 0x7ff, NVME_SC_LBA_RANGE, "its status");
	count = le64_get(err->error_count);
	is(get_log(h, &d, NVME_LOG_ERROR, 64, 64), 0, "the entry before");
	is(le64_get(err->error_count), count - 1, "is older");
	for (uint32_t i = 0; i < 3; i++) {
		s = host_rw(i ? NVME_IO_READ : NVME_IO_WRITE, 0, 8);
		host_prp(&s, &d, 0, PAGE, NULL);
		is(host_cmd(h, &q, s, NULL), 0, "some data");
	}
	is(get_log(h, &d, NVME_LOG_SMART, 512, 0), 0, "SMART log");
	is(smart->host_reads[0], 2, "host reads");
	is(smart->host_writes[0], 1, "host writes");
	is(smart->data_units_read[0], 1, "data units are rounded up");
	is(get_log(h, &d, NVME_LOG_FW_SLOT, 512, 0), 0, "firmware slot log");
	is(get_log(h, &d, NVME_LOG_CHANGED_NS, 4096, 0), 0, "changed namespaces");
	is(get_log(h, &d, 0x70, 512, 0), CMD(NVME_SC_INVALID_LOG_PAGE), "an unknown log page");
	is(get_log(h, &d, NVME_LOG_SMART, 512, 4096), NVME_SC_INVALID_FIELD, "an offset past the page");
	host_delete(h, &q);
	hq_done(h, &q);
	dma_free(h, &d);
}

static void send_aer(struct host *h, uint16_t cid)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_ASYNC_EVENT, .cid = le16_put(cid) };

	hq_put(&h->admin, &s);
	hq_ring(h, &h->admin);
}

static void events(struct host *h)
{
	uint32_t smart = NVME_AER_SMART | 1 << 8 | NVME_LOG_SMART << 16;
	uint32_t notice = NVME_AER_NOTICE | NVME_AER_NOTICE_NS << 8 | NVME_LOG_CHANGED_NS << 16;
	struct dma d = dma_new(h, 2 * PAGE, DMA_RW);
	struct nvme_cqe c = { 0 };

	for (uint16_t i = 0; i < 4; i++)
		send_aer(h, (uint16_t)(0x7000 + i));
	send_aer(h, 0x7004);
	is(hq_wait(h, &h->admin, &c) & 0x7ff, CMD(NVME_SC_AER_LIMIT), "AERL + 2 is one too many");
	is(NVME_CQE_CID(le32_get(c.dw3)), 0x7004, "the last");
	emu_event(h->e, smart);
	is(hq_wait(h, &h->admin, &c), 0, "an event completes a request");
	is(le32_get(c.dw0), smart, "with its dword 0");
	emu_event(h->e, smart);
	ok(!hq_wait_for(h, &h->admin, &c, 20 * NSEC_PER_MSEC), "its type is masked until the log is read");
	emu_event(h->e, notice);
	is(hq_wait(h, &h->admin, &c), 0, "another type is not");
	is(le32_get(c.dw0), notice, "the notice");
	is(get_log(h, &d, NVME_LOG_CHANGED_NS, 4096, 0), 0, "changed namespaces");
	is(*(le32_t *)(void *)d.p, 1, "namespace 1");
	/* reading SMART unmasks: the event that waited comes, before or after the log's own completion */
	{
		struct nvme_sqe s = { .opcode = NVME_ADM_GET_LOG, .cid = le16_put(0x6000) };
		bool event = false, log = false;

		s.cdw10 = le32_put(NVME_LOG_SMART | 127 << 16);
		host_prp(&s, &d, 0, 512, NULL);
		hq_put(&h->admin, &s);
		hq_ring(h, &h->admin);
		for (int i = 0; i < 2; i++) {
			is(hq_wait(h, &h->admin, &c), 0, "a completion");
			log |= NVME_CQE_CID(le32_get(c.dw3)) == 0x6000;
			event |= le32_get(c.dw0) == smart;
		}
		ok(event && log, "the event that waited, and the log");
	}
	{
		struct nvme_sqe s = { .opcode = NVME_ADM_ABORT, .cid = le16_put(0x6001) };

		s.cdw10 = le32_put(0x7000u << 16);
		hq_put(&h->admin, &s);
		hq_ring(h, &h->admin);
		is(hq_wait(h, &h->admin, &c), NVME_SC_ABORT_REQUESTED, "an aborted request ends");
		is(NVME_CQE_CID(le32_get(c.dw3)), 0x7000, "it is that one");
		is(hq_wait(h, &h->admin, &c), 0, "then the Abort does");
		is(le32_get(c.dw0), 0, "it says that it did it");
	}
	dma_free(h, &d);
}

static void bad_doorbells(struct host *h)
{
	struct emu_counters before, after;
	struct nvme_cqe c = { 0 };
	struct hq q;

	host_queue(h, &q, 1, 16);
	emu_get_counters(h->e, &before);
	send_aer(h, 0x5000);
	host_doorbell(h, 1, false, 16);
	is(hq_wait(h, &h->admin, &c), 0, "a doorbell value beyond the queue raises an event");
	is(NVME_AER_TYPE(le32_get(c.dw0)), NVME_AER_ERROR, "an error event");
	is(NVME_AER_INFO(le32_get(c.dw0)), 1, "invalid doorbell write value");
	emu_get_counters(h->e, &after);
	is(after.protocol_errors - before.protocol_errors, 1, "and is counted once");
	host_delete(h, &q);
	hq_done(h, &q);
}

static void bring_up_errors(void)
{
	struct emu_params p = host_params();
	struct host h;
	uint32_t good = NVME_CC_IOSQES(6) | NVME_CC_IOCQES(4) | NVME_CC_EN;
	const struct {
		uint32_t cc;
		const char *what;
	} bad[] = {
		{ NVME_CC_EN, "no entry sizes" },
		{ good | NVME_CC_MPS(5), "MPS above MPSMAX" },
		{ good | NVME_CC_AMS(1), "WRR where there is none" },
		{ good | 6u << 4, "another command set" },
	};

	host_new(&h, &p);
	hq_init(&h, &h.admin, 0, 16);
	emu_reg_write64(h.e, NVME_REG_ASQ, dma_at(&h.admin.sq, 0));
	emu_reg_write64(h.e, NVME_REG_ACQ, dma_at(&h.admin.cq, 0));
	emu_reg_write32(h.e, NVME_REG_AQA, 15 << 16 | 15);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		emu_reg_write32(h.e, NVME_REG_CC, bad[i].cc);
		is(emu_reg_read32(h.e, NVME_REG_CSTS), NVME_CSTS_CFS, "CFS: %s", bad[i].what);
		emu_reg_write32(h.e, NVME_REG_CC, 0);
		is(emu_reg_read32(h.e, NVME_REG_CSTS), 0, "CC.EN = 0 clears it");
	}
	emu_reg_write32(h.e, NVME_REG_AQA, 0);
	emu_reg_write32(h.e, NVME_REG_CC, good);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), NVME_CSTS_CFS, "CFS: admin queues of one entry");
	emu_reg_write32(h.e, NVME_REG_CC, 0);
	emu_reg_write32(h.e, NVME_REG_AQA, 15 << 16 | 15);
	emu_reg_write64(h.e, NVME_REG_ASQ, 4096);
	emu_reg_write32(h.e, NVME_REG_CC, good);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), NVME_CSTS_CFS, "CFS: ASQ is not mapped");
	emu_reg_write32(h.e, NVME_REG_CC, 0);
	emu_reg_write64(h.e, NVME_REG_ASQ, dma_at(&h.admin.sq, 0));
	emu_reg_write32(h.e, NVME_REG_CC, good);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), NVME_CSTS_RDY, "ready");
	emu_reg_write32(h.e, NVME_REG_CC, good | NVME_CC_SHN_NORMAL);
	is(NVME_CSTS_SHST(emu_reg_read32(h.e, NVME_REG_CSTS)), 2, "shutdown completes");
	emu_reg_write32(h.e, NVME_REG_CC, 0);
	emu_reg_write32(h.e, NVME_REG_CC, good);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), NVME_CSTS_RDY, "ready again, and SHST cleared");
	emu_reg_write32(h.e, NVME_REG_NSSR, 0x4e564d65);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), NVME_CSTS_NSSRO, "subsystem reset");
	is(emu_reg_read32(h.e, NVME_REG_CC), 0, "CC is zero after it");
	emu_reg_write32(h.e, NVME_REG_CSTS, NVME_CSTS_NSSRO);
	is(emu_reg_read32(h.e, NVME_REG_CSTS), 0, "NSSRO is cleared by writing it");
	hq_done(&h, &h.admin);
	emu_free(h.e);
}

int main(void)
{
	struct emu_params p = host_params();
	struct host h;

	host_open(&h, &p);
	features(&h);
	queues(&h);
	logs(&h);
	events(&h);
	is(host_admin(&h, (struct nvme_sqe){ .opcode = NVME_ADM_KEEP_ALIVE }, NULL), 0, "keep alive");
	is(host_admin(&h, (struct nvme_sqe){ .opcode = NVME_ADM_DBBUF }, NULL), NVME_SC_INVALID_OPCODE,
	   "no DBBUF here");
	host_close(&h);
	host_open(&h, &p);
	bad_doorbells(&h);
	host_close(&h);
	bring_up_errors();
	return done_testing();
}
