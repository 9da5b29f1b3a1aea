/* SPDX-License-Identifier: MIT */
/*
 * The embedded controller under a host that does anything: any entry, doorbell, register and mapping, faults and events
 * in between. It answers each command once at most, writes nowhere but where it may, and can be freed at any time.
 */
#include "emu/internal.h"
#include "input.h"
#include "world.h"

#define PAGE 4096u
#define PAGES 48u
#define ENTRIES 16u
#define QUEUES 3u
#define CANARY 0xa5

enum area { RINGS = 0, DATA = 8, READ_ONLY = 24, FORBIDDEN = 32, LISTS = 40 };

struct room {
	struct iovec iov[EMU_IOV_MAX];
	struct emu_hold hold[2 * EMU_IOV_MAX];
	struct emu_cmd batch[EMU_BATCH];
	uint8_t scratch[EMU_SCRATCH_BYTES];
};

struct host {
	struct input in;
	struct emu_ctrl *e;
	struct emu_actor a;
	struct emu_stats stats;
	uint8_t *mem;
	uint64_t iova[PAGES]; /* 0: not mapped */
	uint64_t handle[4];
	uint32_t tail[QUEUES], head[QUEUES], phase[QUEUES];
	bool out[65536]; /* identifiers that were sent and not answered */
	uint32_t nr_out;
	uint16_t next_cid;
	bool faulty; /* the fault script may answer what nobody asked */
	int fault;
};

static struct host h;
static struct room room;
static uint8_t *memory;

static struct nvme_sqe *sq(uint32_t q) { return (void *)(h.mem + (size_t)(RINGS + 2 * q) * PAGE); }
static struct nvme_cqe *cq(uint32_t q) { return (void *)(h.mem + (size_t)(RINGS + 2 * q + 1) * PAGE); }

static void map(uint32_t slot, uint32_t first, uint32_t n, uint32_t flags)
{
	struct emu_extent *ext;
	size_t nr;
	uint32_t page = first;

	if (h.handle[slot] || emu_dma_map(h.e, h.mem + (size_t)first * PAGE, (size_t)n * PAGE, flags, &ext,
					  &nr, &h.handle[slot]))
		return;
	for (size_t i = 0; i < nr; i++)
		for (uint64_t at = 0; at < ext[i].nbytes && page < first + n; at += PAGE)
			h.iova[page++] = ext[i].iova + at;
	MUST(page == first + n);
	free(ext);
}

static void unmap(uint32_t slot, uint32_t first, uint32_t n)
{
	if (!h.handle[slot])
		return;
	MUST(!emu_dma_unmap(h.e, h.handle[slot]));
	h.handle[slot] = 0;
	for (uint32_t i = first; i < first + n; i++)
		h.iova[i] = 0;
}

static void ring(uint32_t q, bool is_cq, uint32_t val)
{
	emu_reg_write32(h.e, NVME_REG_DBS + (2 * q + is_cq) * 4, val);
}

static void passes(uint32_t n)
{
	while (n-- && emu_pass(&h.a))
		;
}

static uint16_t send(uint32_t q, struct nvme_sqe s)
{
	uint16_t cid = h.next_cid++;

	s.cid = le16_put(cid);
	if (!h.out[cid])
		h.nr_out++;
	h.out[cid] = true;
	sq(q)[h.tail[q]] = s;
	h.tail[q] = (h.tail[q] + 1) % ENTRIES;
	return cid;
}

/* Take what has come. */
static void reap(uint32_t q)
{
	for (uint32_t i = 0; i < ENTRIES; i++) {
		const struct nvme_cqe *c = &cq(q)[h.head[q]];
		uint32_t dw3 = le32_get(c->dw3);

		if ((dw3 >> 16 & 1) != h.phase[q])
			break;
		if (!h.faulty) {
			/* an identifier that was sent and not answered, on its own queue */
			MUST(h.out[dw3 & 0xffff] && le16_get(c->sqid) == q && le16_get(c->sqhd) < ENTRIES);
		}
		h.out[dw3 & 0xffff] = false;
		h.head[q] = (h.head[q] + 1) % ENTRIES;
		h.phase[q] ^= !h.head[q];
	}
	ring(q, true, h.head[q]);
}

static void enable(void)
{
	emu_reg_write32(h.e, NVME_REG_CC, 0);
	memset(h.tail, 0, sizeof(h.tail));
	memset(h.head, 0, sizeof(h.head));
	memset(h.out, 0, sizeof(h.out));
	memset(h.mem, 0, (size_t)DATA * PAGE);
	for (uint32_t q = 0; q < QUEUES; q++)
		h.phase[q] = 1;
	emu_reg_write32(h.e, NVME_REG_AQA, (ENTRIES - 1) << 16 | (ENTRIES - 1));
	emu_reg_write64(h.e, NVME_REG_ASQ, h.iova[RINGS]);
	emu_reg_write64(h.e, NVME_REG_ACQ, h.iova[RINGS + 1]);
	emu_reg_write32(h.e, NVME_REG_CC, NVME_CC_EN | NVME_CC_IOSQES(NVME_SQES) | NVME_CC_IOCQES(NVME_CQES));
}

static void make_queues(void)
{
	for (uint32_t q = 1; q < QUEUES; q++) {
		send(0, (struct nvme_sqe){ .opcode = NVME_ADM_CREATE_CQ,
					   .prp1 = le64_put(h.iova[RINGS + 2 * q + 1]),
					   .cdw10 = le32_put((ENTRIES - 1) << 16 | q),
					   .cdw11 = le32_put(NVME_QUEUE_PC | NVME_CQ_IEN) });
		send(0, (struct nvme_sqe){ .opcode = NVME_ADM_CREATE_SQ,
					   .prp1 = le64_put(h.iova[RINGS + 2 * q]),
					   .cdw10 = le32_put((ENTRIES - 1) << 16 | q),
					   .cdw11 = le32_put(q << 16 | NVME_QUEUE_PC) });
	}
	ring(0, false, h.tail[0]);
	passes(8);
	reap(0);
}

static uint64_t address(void)
{
	uint8_t how = input_u8(&h.in);
	uint32_t page = how >> 3;

	switch (how & 7) {
	case 0:
	case 1:
		return h.iova[DATA + page % 16];
	case 2:
		return h.iova[DATA + page % 16] + (input_u16(&h.in) & 0xffc);
	case 3:
		return h.iova[READ_ONLY + page % 8];
	case 4:
	case 5:
		return h.iova[LISTS + page % 8];
	case 6:
		return h.iova[LISTS + page % 8] + (input_u16(&h.in) & 0xff8);
	default:
		return input_u64(&h.in);
	}
}

static struct nvme_sqe entry(bool admin)
{
	static const uint8_t adm[] = { 0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09,
				       0x0a, 0x0c, 0x0d, 0x15, 0x18, 0x7c, 0x80, 0x84 };
	static const uint8_t io[] = { 0x00, 0x01, 0x02, 0x02, 0x05, 0x08, 0x09, 0x0c };
	uint8_t how = input_u8(&h.in), n = input_u8(&h.in);
	struct nvme_sqe s = { .opcode = admin ? adm[how & 15] : io[how & 7] };

	if (how & 0x80) { /* anything */
		input_take(&h.in, &s, sizeof(s));
		return s;
	}
	s.nsid = le32_put(n & 3);
	s.prp1 = le64_put(address());
	s.prp2 = le64_put(how & 0x40 ? address() : 0);
	s.cdw10 = le32_put(how & 0x20 ? input_u32(&h.in) : n >> 2);
	s.cdw11 = le32_put(how & 0x10 ? input_u32(&h.in) : admin ? 1u : 0u);
	s.cdw12 = le32_put(input_u16(&h.in) & (how & 0x20 ? 0xffff : 0x1f));
	if (n & 0x80)
		s.cdw13 = le32_put(input_u32(&h.in));
	return s;
}

static void fault(void)
{
	uint8_t a = input_u8(&h.in), b = input_u8(&h.in);
	struct emu_fault f = { .action = 1u + a % 20u,
			       .qid = b & 4 ? EMU_ANY : b & 3,
			       .opcode = EMU_ANY,
			       .nsid = EMU_ANY,
			       .skip = a >> 6,
			       .count = b >> 6,
			       .status = input_u16(&h.in) & 0x7fff,
			       .delay_ns = (uint64_t)(b >> 3 & 7) * 100000 };

	if (h.fault > 0)
		emu_fault_clear(h.e, h.fault);
	h.fault = b & 0x20 ? emu_fault_add(h.e, &f) : 0;
	h.faulty |= h.fault > 0;
}

static void lists(void)
{
	uint32_t page = LISTS + (input_u8(&h.in) & 7);
	le64_t *list = (void *)(h.mem + (size_t)page * PAGE);
	uint32_t at = input_u16(&h.in) & 511, n = input_u8(&h.in) & 31;

	for (uint32_t i = 0; i < n && at + i < 512; i++)
		list[at + i] = le64_put(address());
}

static void act(void)
{
	uint8_t op = input_u8(&h.in), q = op >> 4 & 3;

	q = q == 3 ? 1 : q;
	switch (op & 15) {
	case 0:
	case 1:
		send(0, entry(true));
		ring(0, false, h.tail[0]);
		break;
	case 2:
	case 3:
	case 4:
		q = q ? q : 1;
		send(q, entry(false));
		ring(q, false, h.tail[q]);
		break;
	case 5:
		passes(1u + q * 4u);
		break;
	case 6:
		emu_step(h.e, q, 1 + (op >> 6));
		break;
	case 7:
		reap(q);
		break;
	case 8:
		lists();
		break;
	case 9:
		ring(input_u8(&h.in) % (EMU_MAX_QID + 1), op & 0x80, input_u16(&h.in));
		h.faulty = true; /* entries of any age may be fetched now */
		break;
	case 10:
		emu_reg_write32(h.e, (input_u8(&h.in) & 15u) * 4u, input_u32(&h.in));
		h.faulty = true;
		break;
	case 11:
		fault();
		break;
	case 12:
		emu_event(h.e, input_u32(&h.in));
		break;
	case 13:
		world_pass((int64_t)input_u8(&h.in) * 50000);
		break;
	case 14:
		if (op & 0x80) {
			enable();
			make_queues();
		} else {
			(void)emu_reg_read32(h.e, input_u8(&h.in) & ~3u);
		}
		break;
	default: /* memory comes and goes under commands that use it */
		if (op & 0x10) {
			unmap(1, DATA, 16);
			map(1, DATA, 16, EMU_DMA_READ | EMU_DMA_WRITE);
		} else {
			unmap(1, DATA, 16);
		}
		break;
	}
}

static struct emu_ctrl *new_device(uint8_t how)
{
	static struct emu_params p;
	struct emu_ctrl *e = NULL;
	char err[256];

	p = (struct emu_params){ .nodata = how & 1,
				 .vwc = how & 2,
				 .wrr = how & 4,
				 .dbbuf = how & 8,
				 .step = true,
				 .mdts = 1 + (how >> 4 & 3),
				 .to = 2,
				 .aerl = 3,
				 .acl = 1,
				 .mqes = 63,
				 .queues = 8,
				 .vectors = 2,
				 .threads = 1,
				 .nr_ns = 2,
				 .latency_ns = how & 0x40 ? 20000 : 0,
				 .seed = 9,
				 .serial = "FUZZ",
				 .model = "fuzz",
				 .ns = { { .nsid = 1, .lba_bytes = 512, .nbytes = 1u << 16 },
					 { .nsid = 2, .lba_bytes = 4096, .nbytes = 1u << 16 } } };
	MUST(!emu_new(&p, &e, err, sizeof(err)));
	return e;
}

static void untouched(enum area from, uint32_t n)
{
	const uint8_t *p = h.mem + (size_t)from * PAGE;

	/* each byte as the one before it */
	MUST(*p == CANARY && !memcmp(p, p + 1, (size_t)n * PAGE - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	world_begin();
	memset(&h, 0, sizeof(h));
	h.in = (struct input){ data, size };
	if (!memory)
		memory = aligned_alloc(PAGE, PAGES * PAGE);
	h.mem = memory;
	memset(h.mem, 0, PAGES * PAGE);
	memset(h.mem + (size_t)READ_ONLY * PAGE, CANARY, 16 * PAGE);
	h.e = new_device(input_u8(&h.in));
	h.a = (struct emu_actor){ .e = h.e,
				  .stats = &h.stats,
				  .iov = room.iov,
				  .max_iov = EMU_IOV_MAX,
				  .hold = room.hold,
				  .max_hold = ARRAY_SIZE(room.hold),
				  .scratch = room.scratch,
				  .batch = room.batch };
	map(0, RINGS, DATA, EMU_DMA_READ | EMU_DMA_WRITE | EMU_DMA_CONTIG);
	map(1, DATA, 16, EMU_DMA_READ | EMU_DMA_WRITE);
	map(2, READ_ONLY, 8, EMU_DMA_READ);
	map(3, LISTS, 8, EMU_DMA_READ | EMU_DMA_WRITE);
	enable();
	make_queues();
	for (uint32_t i = 0; i < 200 && h.in.left; i++)
		act();
	passes(64);
	emu_free(h.e);
	untouched(READ_ONLY, 16);
	world_end();
	return 0;
}
