/* SPDX-License-Identifier: MIT */
/* Far memory: every shape of a command, what is refused, and what fails. */
#include "far_rig.h"

#define MIB (1u << 20)
#define DISK (32u * MIB)
#define FAR_BYTES (24u * MIB)

static uint8_t *disk_image;

static struct emu_params params(void)
{
	struct emu_params p = host_params();

	p.mdts = 11; /* 8 MiB */
	p.ns[0].nbytes = DISK;
	return p;
}

/* Put @n bytes of a pattern on the disk by way of host memory, a MiB at a time. */
static void disk_fill(struct host *h, struct hq *q, size_t at, size_t n, uint32_t seed)
{
	struct dma d = dma_new(h, MIB, DMA_RW), list = dma_new(h, 4 * PAGE, EMU_DMA_READ);
	uint16_t st = 0;

	for (size_t off = 0; off < n && !st; off += MIB) {
		size_t k = min_u64(n - off, MIB);
		struct nvme_sqe s = host_rw(NVME_IO_WRITE, (at + off) / 512, (uint32_t)(k / 512));

		fill_pattern(d.p, k, seed + (uint32_t)(off / MIB));
		memcpy(disk_image + at + off, d.p, k);
		host_prp(&s, &d, 0, k, &list);
		st = host_cmd(h, q, s, NULL);
	}
	if (st)
		must(false, "filling the disk: 0x%x", st);
	dma_free(h, &d);
	dma_free(h, &list);
}

static uint16_t far_rw(struct host *h, struct hq *q, uint8_t op, size_t at, const struct dma *d, size_t off,
		       size_t n, struct dma *list, uint32_t *ret_dw0)
{
	struct nvme_sqe s = host_rw(op, at / 512, (uint32_t)(n / 512));

	host_prp(&s, d, off, n, list);
	return host_cmd(h, q, s, ret_dw0);
}

static bool around(const uint8_t *p, size_t n, uint8_t want)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != want)
			return false;
	return true;
}

static const size_t sizes[] = { 512,   1024,   3584,	  4096, 4608,	   8192,    12288,  32768,
				65536, 131072, MIB - 512, MIB,	MIB + 512, 3 * MIB, 8 * MIB };
static const size_t offsets[] = { 0, 4, 512, 2048, 3584, 4092, 65536 - 512, 65536 + 1020 };

static void shapes(bool file, bool step)
{
	struct emu_params p = params();
	char path[128] = "";
	uint32_t wrong = 0, fringe = 0, back = 0, cmp = 0, n = 0;
	struct dma list;
	struct host h;
	struct far f;
	struct hq q;

	diag("shapes, %s, %s", file ? "file" : "memory", step ? "stepping" : "device threads");
	if (file) {
		host_temp(path, sizeof(path), "far");
		close(mkstemp(path));
		p.path = path;
		p.create = true;
	}
	p.step = step;
	far_new(&f, FAR_BYTES);
	far_host(&h, &f, &p);
	f.shuffle = true;
	host_queue(&h, &q, 1, 16);
	list = dma_new(&h, 8 * PAGE, EMU_DMA_READ);
	disk_fill(&h, &q, 0, 16 * MIB, 1);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (size_t k = 0; k < ARRAY_SIZE(offsets); k++, n++) {
			size_t bytes = sizes[i], at = 512 * (i * 37 + k), off = 65536 + offsets[k];
			uint8_t *there = f.mem + off;
			struct dma d = far_map(&h, &f, off, bytes, DMA_RW);

			memset(f.mem, 0xee, off + bytes + 65536);
			wrong += far_rw(&h, &q, NVME_IO_READ, at, &d, 0, bytes, &list, NULL) ||
				 memcmp(there, disk_image + at, bytes);
			fringe += !around(f.mem, off, 0xee) || !around(there + bytes, 65536, 0xee);
			cmp += far_rw(&h, &q, NVME_IO_COMPARE, at, &d, 0, bytes, &list, NULL) != 0;
			there[bytes - 1] ^= 1;
			cmp += far_rw(&h, &q, NVME_IO_COMPARE, at, &d, 0, bytes, &list, NULL) !=
			       NVME_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILURE);
			fill_pattern(there, bytes, 99 + n);
			back += far_rw(&h, &q, NVME_IO_WRITE, 16 * MIB + at, &d, 0, bytes, &list, NULL) != 0;
			/* and from there to other far memory, by another registration of the same pages */
			dma_unmap(&h, &d);
			d = far_map(&h, &f, off + 9 * MIB, bytes, EMU_DMA_WRITE);
			back += far_rw(&h, &q, NVME_IO_READ, 16 * MIB + at, &d, 0, bytes, &list, NULL) ||
				memcmp(there, there + 9 * MIB, bytes);
			dma_unmap(&h, &d);
		}
	is(wrong, 0, "%u shapes are read", n);
	is(fringe, 0, "and nothing around them");
	is(cmp, 0, "compared");
	is(back, 0, "and written");
	dma_free(&h, &list);
	hq_done(&h, &q);
	host_close(&h);
	far_done(&f);
	if (file)
		unlink(path);
}

/* Pages of one mapping in any order, each of them elsewhere: many copies for one command. */
static void scattered(void)
{
	struct emu_params p = params();
	struct nvme_sqe s = host_rw(NVME_IO_READ, 0, 4096);
	uint32_t order[512];
	struct dma d, list;
	struct host h;
	struct far f;
	struct hq q;
	bool same = true;

	far_new(&f, FAR_BYTES);
	far_host(&h, &f, &p);
	host_queue(&h, &q, 1, 16);
	list = dma_new(&h, 2 * PAGE, EMU_DMA_READ);
	disk_fill(&h, &q, 0, 2 * MIB, 5);
	d = far_map(&h, &f, 0, 4 * MIB, DMA_RW);
	for (uint32_t i = 0; i < 512; i++)
		order[i] = (i * 389 + 17) % 1024; /* half of the pages */
	s.prp1 = le64_put(dma_at(&d, order[0] * (size_t)PAGE));
	s.prp2 = le64_put(dma_at(&list, 0));
	for (uint32_t i = 1; i < 512; i++)
		((le64_t *)(void *)list.p)[i - 1] = le64_put(dma_at(&d, order[i] * (size_t)PAGE));
	is(host_cmd(&h, &q, s, NULL), 0, "2 MiB into scattered pages");
	for (uint32_t i = 0; i < 512; i++)
		same &= !memcmp(f.mem + order[i] * (size_t)PAGE, disk_image + i * (size_t)PAGE, PAGE);
	ok(same, "each has its own");
	s.opcode = NVME_IO_WRITE;
	s.cdw10 = le32_put(8 * MIB / 512);
	is(host_cmd(&h, &q, s, NULL), 0, "and back");
	is(far_rw(&h, &q, NVME_IO_READ, 8 * MIB, &d, 0, 2 * MIB, &list, NULL), 0, "read in order");
	ok(!memcmp(f.mem, disk_image, 2 * MIB), "it is the same");
	dma_unmap(&h, &d);
	dma_free(&h, &list);
	hq_done(&h, &q);
	host_close(&h);
	far_done(&f);
}

static uint64_t faults(struct host *h)
{
	struct emu_counters c;

	emu_get_counters(h->e, &c);
	return c.iommu_faults;
}

static void refused(void)
{
	const uint16_t transfer = NVME_SC_DATA_TRANSFER;
	struct emu_params p = params();
	struct dma ro, wo, whole, near, list, none;
	struct nvme_sqe s;
	struct host h;
	struct far f;
	struct hq q;

	far_new(&f, FAR_BYTES);
	host_open(&h, &p);
	is(far_try(&h, &f, 0, PAGE, DMA_RW, &none), -EOPNOTSUPP, "without a way to it");
	emu_set_dma(h.e, &far_ops, &f);
	is(far_try(&h, &f, FAR_BYTES - PAGE, 2 * PAGE, DMA_RW, &none), -EFAULT, "more than there is");
	is(far_try(&h, &f, 0, 0, DMA_RW, &none), -EINVAL, "nothing");
	host_queue(&h, &q, 1, 16);
	list = dma_new(&h, 4 * PAGE, EMU_DMA_READ);
	near = dma_new(&h, 4 * PAGE, DMA_RW);
	ro = far_map(&h, &f, 0, 4 * PAGE, EMU_DMA_READ);
	wo = far_map(&h, &f, 8 * PAGE, 4 * PAGE, EMU_DMA_WRITE);
	whole = far_map(&h, &f, 16 * PAGE + 512, 2 * PAGE, DMA_RW);
	is(far_rw(&h, &q, NVME_IO_READ, 0, &ro, 0, PAGE, NULL, NULL), transfer, "into what is only read");
	is(far_rw(&h, &q, NVME_IO_WRITE, 0, &wo, 0, PAGE, NULL, NULL), transfer, "from what is only written");
	is(faults(&h), 2, "both are faults");
	is(far_rw(&h, &q, NVME_IO_WRITE, 0, &ro, 0, PAGE, NULL, NULL), 0, "what is only read can be");
	is(far_rw(&h, &q, NVME_IO_READ, 0, &wo, 0, PAGE, NULL, NULL), 0, "and what is only written");
	s = host_rw(NVME_IO_READ, 0, 16);
	s.prp1 = le64_put(dma_at(&wo, 0));
	s.prp2 = le64_put(dma_at(&near, 0));
	is(host_cmd(&h, &q, s, NULL), transfer, "far memory, then near");
	s.prp1 = le64_put(dma_at(&near, 0));
	s.prp2 = le64_put(dma_at(&wo, 0));
	is(host_cmd(&h, &q, s, NULL), transfer, "near, then far");
	s.prp1 = le64_put(dma_at(&wo, 0));
	s.prp2 = le64_put(dma_at(&whole, 0) & ~(PAGE - 1ull));
	is(host_cmd(&h, &q, s, NULL), transfer, "two registrations in one command");
	s = host_rw(NVME_IO_READ, 0, 8);
	s.prp1 = le64_put(dma_at(&whole, 0) - 512);
	is(host_cmd(&h, &q, s, NULL), transfer, "bytes before the first, in its page");
	s = host_rw(NVME_IO_READ, 0, 2);
	s.prp1 = le64_put(dma_at(&whole, 2 * PAGE - 512));
	is(host_cmd(&h, &q, s, NULL), transfer, "bytes after the last, in its page");
	s.prp1 = le64_put(dma_at(&whole, 1));
	is(host_cmd(&h, &q, s, NULL), NVME_SC_INVALID_PRP_OFFSET, "an odd address");
	s = host_rw(NVME_IO_READ, 0, 24);
	s.prp1 = le64_put(dma_at(&near, 0));
	s.prp2 = le64_put(dma_at(&wo, 0));
	is(host_cmd(&h, &q, s, NULL), transfer, "a list in far memory");
	s = (struct nvme_sqe){ .opcode = NVME_ADM_IDENTIFY, .cdw10 = le32_put(1) };
	s.prp1 = le64_put(dma_at(&wo, 0));
	is(host_admin(&h, s, NULL), transfer, "an admin command's page");
	s = (struct nvme_sqe){ .opcode = NVME_ADM_CREATE_CQ };
	s.prp1 = le64_put(dma_at(&wo, 0));
	s.cdw10 = le32_put(15u << 16 | 2);
	s.cdw11 = le32_put(NVME_QUEUE_PC);
	is(host_admin(&h, s, NULL), transfer, "a queue");
	s = (struct nvme_sqe){ .opcode = NVME_IO_DSM, .nsid = le32_put(1), .cdw11 = le32_put(NVME_DSM_AD) };
	s.prp1 = le64_put(dma_at(&ro, 0));
	is(host_cmd(&h, &q, s, NULL), transfer, "ranges to deallocate");
	is(far_rw(&h, &q, NVME_IO_READ, DISK, &wo, 0, 512, NULL, NULL), NVME_SC_LBA_RANGE, "past the end");
	is(far_rw(&h, &q, NVME_IO_READ, 0, &whole, 0, 2 * PAGE, &list, NULL), 0, "and all is well after it");
	ok(around(f.mem + 16 * PAGE, 512, 0xee) && around(f.mem + 18 * PAGE + 512, PAGE, 0xee),
	   "with nothing touched that is not registered");
	dma_unmap(&h, &ro);
	is(far_rw(&h, &q, NVME_IO_WRITE, 0, &wo, 0, PAGE, NULL, NULL), transfer, "still not readable");
	dma_unmap(&h, &wo);
	dma_unmap(&h, &whole);
	dma_free(&h, &near);
	dma_free(&h, &list);
	hq_done(&h, &q);
	host_set_en(&h, false);
	hq_done(&h, &h.admin);
	emu_free(h.e);
	far_done(&f);
}

static void failures(bool step)
{
	struct emu_params p = params();
	struct dma d, list;
	struct host h;
	struct far f;
	struct hq q;
	uint32_t dw0;

	p.step = step;
	far_new(&f, FAR_BYTES);
	far_host(&h, &f, &p);
	host_queue(&h, &q, 1, 16);
	list = dma_new(&h, 8 * PAGE, EMU_DMA_READ);
	d = far_map(&h, &f, 0, 8 * MIB, DMA_RW);
	for (uint32_t op = 0; op < 3; op++) {
		uint8_t opcode = (const uint8_t[]){ NVME_IO_READ, NVME_IO_WRITE, NVME_IO_COMPARE }[op];

		for (uint32_t in = 1; in <= 8; in += 3) {
			f.refuse_in = in;
			is(far_rw(&h, &q, opcode, 0, &d, 0, 8 * MIB, &list, &dw0), NVME_SC_DATA_TRANSFER,
			   "opcode %u: copy %u is refused", opcode, in);
			is(dw0, FAR_WHY, "and the completion says why");
			f.fail_in = in;
			is(far_rw(&h, &q, opcode, 0, &d, 0, 8 * MIB, &list, &dw0), NVME_SC_DATA_TRANSFER,
			   "opcode %u: call %u fails on its way", opcode, in);
			is(dw0, FAR_WHY + 1, "with its own reason");
		}
		f.refuse_in = 1;
		is(far_rw(&h, &q, opcode, 0, &d, 0, 512, NULL, &dw0), NVME_SC_DATA_TRANSFER, "a small one");
		is(far_rw(&h, &q, NVME_IO_WRITE, 0, &d, 0, 8 * MIB, &list, &dw0), 0, "then all is well");
		is(dw0, 0, "with nothing to say");
	}
	dma_unmap(&h, &d);
	dma_free(&h, &list);
	hq_done(&h, &q);
	host_close(&h);
	far_done(&f);
}

/* A host thread that steps is told within the call, or the device threads go on with it. */
static void stepping(void)
{
	struct emu_params p = params();
	struct emu_counters k;
	struct nvme_cqe c;
	struct nvme_sqe s;
	struct dma d;
	struct host h;
	struct far f;
	struct hq q;
	uint32_t n = 0, right = 0;

	far_new(&f, FAR_BYTES);
	far_host(&h, &f, &p);
	host_queue(&h, &q, 1, 64);
	disk_fill(&h, &q, 0, 4 * MIB, 9);
	d = far_map(&h, &f, 0, MIB, DMA_RW);
	for (uint32_t round = 0; round < 64; round++) {
		uint64_t calls = atomic_load(&f.calls);

		for (uint32_t i = 0; i < 16; i++) {
			s = host_rw(NVME_IO_READ, round * 64 + i * 8, 8);
			host_prp(&s, &d, i * (size_t)PAGE, PAGE, NULL);
			s.cid = le16_put((uint16_t)i);
			hq_put(&q, &s);
		}
		/* the doorbell alone: nobody else is told */
		__atomic_store_n(host_db(&h, 1, false), q.sq_tail, __ATOMIC_RELEASE);
		for (uint32_t got = 0; got < 16;) {
			emu_step(h.e, 1, 32);
			while (hq_look(&q, &c)) {
				got++;
				n += NVME_CQE_STATUS(le32_get(c.dw3)) == 0;
			}
			host_doorbell(&h, 1, true, q.cq_head);
		}
		right += !memcmp(f.mem, disk_image + round * 64 * 512, 16 * PAGE);
		if (!round)
			ok(atomic_load(&f.calls) - calls <= 4, "sixteen neighbours are copied by %u calls",
			   (uint32_t)(atomic_load(&f.calls) - calls));
	}
	is(n, 64 * 16, "all come back");
	is(right, 64, "with what they are for");
	emu_get_counters(h.e, &k);
	diag("%llu of %llu were stepped", (unsigned long long)k.stepped, (unsigned long long)k.commands);
	far_set(&f, &f.hold, true);
	s = host_rw(NVME_IO_READ, 0, 8);
	host_prp(&s, &d, 0, PAGE, NULL);
	hq_put(&q, &s);
	__atomic_store_n(host_db(&h, 1, false), q.sq_tail, __ATOMIC_RELEASE);
	while (!far_busy(&f))
		emu_step(h.e, 1, 1);
	far_set(&f, &f.hold, false);
	is(hq_wait(&h, &q, NULL), 0, "nobody steps any more, and it comes back");
	dma_unmap(&h, &d);
	hq_done(&h, &q);
	host_close(&h);
	far_done(&f);
}

/* PRPs are walked, no bytes move. */
static void no_data(void)
{
	struct emu_params p = params();
	struct dma d, list;
	struct host h;
	struct far f;
	struct hq q;

	p.nodata = true;
	far_new(&f, FAR_BYTES);
	far_host(&h, &f, &p);
	host_queue(&h, &q, 1, 16);
	list = dma_new(&h, 8 * PAGE, EMU_DMA_READ);
	d = far_map(&h, &f, 512, 8 * MIB, DMA_RW);
	is(far_rw(&h, &q, NVME_IO_READ, 0, &d, 0, 8 * MIB, &list, NULL), 0, "no data: a read");
	is(far_rw(&h, &q, NVME_IO_WRITE, 0, &d, 0, 512, NULL, NULL), 0, "no data: a write");
	is(atomic_load(&f.calls), 0, "no copies");
	dma_unmap(&h, &d);
	dma_free(&h, &list);
	hq_done(&h, &q);
	host_close(&h);
	far_done(&f);
}

/* While one thread begins the copy of a piece, others read the pieces behind it: of a read, not of a write. */
static void shared(void)
{
	struct emu_params p = params();
	struct dma d, list;
	struct host h;
	struct far f;
	struct hq q;
	bool good;

	p.threads = 4;
	far_new(&f, FAR_BYTES);
	far_host(&h, &f, &p);
	host_queue(&h, &q, 1, 16);
	d = far_map(&h, &f, 0, FAR_BYTES, DMA_RW);
	list = dma_new(&h, 8 * PAGE, EMU_DMA_READ);
	disk_fill(&h, &q, 0, 4 * MIB, 900);
	f.begin_ns = NSEC_PER_MSEC;
	f.nr_who = 0;
	good = !far_rw(&h, &q, NVME_IO_READ, 0, &d, 0, 4 * MIB, &list, NULL);
	ok(good && !memcmp(f.mem, disk_image, 4 * MIB), "a read of 4 MiB, its copies begun slowly");
	ok(f.nr_who > 1, "%u threads began them", f.nr_who);
	f.nr_who = 0;
	good = !far_rw(&h, &q, NVME_IO_WRITE, 4 * MIB, &d, 0, 4 * MIB, &list, NULL);
	ok(good && f.nr_who == 1, "those of a write: %u", f.nr_who);
	dma_free(&h, &list);
	dma_unmap(&h, &d);
	hq_done(&h, &q);
	host_close(&h);
	far_done(&f);
}

int main(void)
{
	disk_image = calloc(1, DISK);
	shapes(false, true);
	shapes(false, false);
	shapes(true, true);
	scattered();
	refused();
	failures(true);
	failures(false);
	stepping();
	no_data();
	shared();
	free(disk_image);
	return done_testing();
}
