/* SPDX-License-Identifier: MIT */
/* Commands that lie one behind the other in a file: one system call, and each ends as it would by itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>

#include "emu_host.h"
#include "lacks.h"

#define NR 16u
#define STRIDE (2 * PAGE) /* of what is read: a page lies between */

static char path[256];

/* Of the whole process: "syscr: 17". */
static uint64_t calls(const char *name)
{
	FILE *f = fopen("/proc/self/io", "re");
	char line[128];
	uint64_t n = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			n = strtoull(line + strlen(name) + 1, NULL, 10);
	if (f)
		fclose(f);
	return n;
}

static void begin(struct host *h, struct hq *q, struct dma *d, bool direct)
{
	struct emu_params p = host_params();

	p.path = path;
	p.create = true;
	p.direct = direct;
	p.threads = 1;
	host_open(h, &p);
	hq_init(h, q, 1, 64);
	is(host_create(h, q, 0, 0), 0, "a queue");
	*d = dma_new(h, NR * PAGE, DMA_RW);
	for (uint32_t i = 0; i < NR * PAGE; i++)
		d->p[i] = (uint8_t)(i * 7 + (i >> 12));
}

static void end(struct host *h, struct hq *q, struct dma *d)
{
	host_set_en(h, false);
	hq_done(h, q);
	dma_free(h, d);
	hq_done(h, &h->admin);
	emu_free(h->e);
}

/* All in one doorbell; a page each, @stride from one to the next. The statuses come in @ret. */
static void run(struct host *h, struct hq *q, const struct dma *d, uint8_t opcode, uint64_t first,
		uint32_t stride, int bad, uint16_t *ret)
{
	for (uint32_t i = 0; i < NR; i++) {
		struct nvme_sqe s = host_rw(opcode, first + i * (stride / 512), PAGE / 512);

		host_prp(&s, d, i * PAGE, PAGE, NULL);
		if ((int)i == bad)
			s.prp1 = le64_put(1ull << 45);
		s.cid = le16_put((uint16_t)i);
		hq_put(q, &s);
	}
	hq_ring(h, q);
	for (uint32_t i = 0; i < NR; i++) {
		struct nvme_cqe c;
		uint16_t st = hq_wait(h, q, &c) & 0x7ff;

		ret[NVME_CQE_CID(le32_get(c.dw3)) % NR] = st;
	}
}

static uint32_t failures(const uint16_t *st)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < NR; i++)
		n += st[i] != 0;
	return n;
}

static uint32_t differ(const struct dma *d, uint64_t first, uint32_t stride, int but)
{
	uint8_t page[PAGE];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint32_t n = 0;

	for (uint32_t i = 0; i < NR; i++) {
		off_t at = (off_t)(first * 512 + (uint64_t)i * stride);

		if ((int)i != but &&
		    (pread(fd, page, PAGE, at) != PAGE || memcmp(page, d->p + i * PAGE, PAGE)))
			n++;
	}
	close(fd);
	return n;
}

static void writes(bool direct)
{
	struct host h;
	struct hq q;
	struct dma d;
	struct emu_counters k;
	uint16_t st[NR];
	uint64_t before, blocks;

	begin(&h, &q, &d, direct);
	before = calls("syscw");
	run(&h, &q, &d, NVME_IO_WRITE, 64, PAGE, -1, st);
	/* one for the bytes, a few that signal completions; an emulator of programs makes calls of its own */
	ok(lacks_rwf() || calls("syscw") - before < NR / 2, "%u writes of a page are %llu system calls", NR,
	   (unsigned long long)(calls("syscw") - before));
	is(failures(st), 0, "all succeed");
	is(differ(&d, 64, PAGE, -1), 0, "and are there");
	emu_get_counters(h.e, &k);
	is(k.iommu_faults, 0, "no IOMMU faults");

	run(&h, &q, &d, NVME_IO_WRITE, 1024, PAGE, 5, st);
	is(failures(st), 1, "one whose memory is not there fails by itself");
	ok(st[5] != 0, "that one");
	is(differ(&d, 1024, PAGE, 5), 0, "the others are there");
	emu_get_counters(h.e, &k);
	is(k.iommu_faults, 1, "its fault is counted once");

	blocks = h.p.ns[0].nbytes / 512;
	run(&h, &q, &d, NVME_IO_WRITE, blocks - (NR - 1) * 8, PAGE, -1, st);
	is(failures(st), 1, "one behind the end fails by itself");
	is(st[NR - 1], NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_LBA_RANGE), "that one");
	is(differ(&d, blocks - (NR - 1) * 8, PAGE, NR - 1), 0, "the others are there");

	run(&h, &q, &d, NVME_IO_WRITE, 4096, STRIDE, -1, st);
	is(failures(st) + differ(&d, 4096, STRIDE, -1), 0,
	   "writes with something between them leave it alone");
	end(&h, &q, &d);
	unlink(path);
}

static void reads(bool direct)
{
	struct host h;
	struct hq q;
	struct dma d, to;
	uint16_t st[NR];
	uint64_t before;

	begin(&h, &q, &d, direct);
	run(&h, &q, &d, NVME_IO_WRITE, 4096, STRIDE, -1, st);
	to = dma_new(&h, NR * PAGE, DMA_RW);
	before = calls("syscr");
	run(&h, &q, &to, NVME_IO_READ, 4096, STRIDE, -1, st);
	if (direct)
		ok(lacks_rwf() || calls("syscr") - before < NR / 2, "%u reads are %llu system calls", NR,
		   (unsigned long long)(calls("syscr") - before));
	is(failures(st), 0, "all succeed");
	ok(!memcmp(d.p, to.p, NR * PAGE), "and what lies between them is in nobody's memory");
	dma_free(&h, &to);
	end(&h, &q, &d);
	unlink(path);
}

/* Long ones, piece by piece as MDTS has it: with O_DIRECT the disk is to have several MiB of them at once. */
static void long_reads(void)
{
	const size_t each = 256 * PAGE;
	struct emu_params p = host_params();
	struct host h;
	struct hq q;
	struct dma d, list[8];
	struct nvme_cqe c;
	uint64_t before, n;

	p.path = path;
	p.create = p.direct = true;
	p.mdts = 8; /* 1 MiB */
	p.threads = 1;
	p.ns[0].nbytes = 16 << 20;
	host_open(&h, &p);
	hq_init(&h, &q, 1, 64);
	is(host_create(&h, &q, 0, 0), 0, "a queue");
	d = dma_new(&h, 8 * each, DMA_RW);
	before = calls("syscr");
	for (uint32_t i = 0; i < 8; i++) {
		struct nvme_sqe s = host_rw(NVME_IO_READ, i * (each / 512), (uint32_t)(each / 512));

		list[i] = dma_new(&h, PAGE, DMA_RW);
		host_prp(&s, &d, i * each, each, &list[i]);
		s.cid = le16_put((uint16_t)i);
		hq_put(&q, &s);
	}
	hq_ring(&h, &q);
	for (uint32_t i = 0; i < 8; i++)
		is(hq_wait(&h, &q, &c) & 0x7ff, 0, "read");
	n = calls("syscr") - before; /* with some of its own */
	ok(lacks_rwf() || n < 8, "8 MiB are %llu system calls", (unsigned long long)n);
	for (uint32_t i = 0; i < 8; i++)
		dma_free(&h, &list[i]);
	end(&h, &q, &d);
	unlink(path);
}

int main(void)
{
	int fd;

	host_temp(path, sizeof(path), "merge");
	fd = mkstemp(path);
	must(fd >= 0, "a file");
	close(fd);
	unlink(path);
	writes(false);
	reads(false);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (fd >= 0) {
		close(fd);
		writes(true);
		reads(true);
		long_reads();
	} else {
		diag("no O_DIRECT in %s", path);
	}
	return done_testing();
}
