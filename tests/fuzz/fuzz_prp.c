/* SPDX-License-Identifier: MIT */
/*
 * Data pointers: any page size, any extents that a transport may answer, any range and any list size; the entries are
 * walked as a controller walks them. What the page table cannot describe has to be refused.
 */
#include "input.h"
#include "pcie/ring.h"

#define EXTENTS 48
#define LISTS 3

static struct dma_mapping answer;
static uint32_t nr_unmapped;

static int map_any(void *ctx, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	(void)ctx;
	(void)vaddr;
	(void)nbytes;
	(void)flags;
	*ret = answer;
	ret->extents = malloc(answer.nr * sizeof(*ret->extents));
	memcpy(ret->extents, answer.extents, answer.nr * sizeof(*ret->extents));
	return 0;
}

static int unmap_any(void *ctx, uint64_t handle)
{
	(void)ctx;
	MUST(handle == 77);
	nr_unmapped++;
	return 0;
}

static const struct mem_ops ops = { .map = map_any, .unmap = unmap_any };

/* The bus address of byte @off of the buffer, from the extents alone; UINT64_MAX: past them. */
static uint64_t bus(uint64_t off)
{
	off += answer.first_off;
	for (size_t i = 0; i < answer.nr; i++) {
		if (off < answer.extents[i].nbytes)
			return answer.extents[i].iova + off;
		off -= answer.extents[i].nbytes;
	}
	return UINT64_MAX;
}

/* Can pages of @page bytes describe the first @nbytes: does the bus break at page ends only? */
static bool describable(uint64_t nbytes, uint64_t page)
{
	uint64_t covered = 0;

	for (size_t i = 0; i + 1 < answer.nr; i++) {
		covered += answer.extents[i].nbytes;
		if (covered >= answer.first_off + nbytes)
			break;
		if ((answer.extents[i].iova + answer.extents[i].nbytes) % page ||
		    answer.extents[i + 1].iova % page)
			return false;
	}
	return true;
}

struct lists {
	struct pcie_qpair q;
	uint64_t iova[LISTS];
	uint16_t idle[LISTS];
	uint64_t *mem[LISTS];
};

static uint64_t entry_at(const struct lists *l, uint64_t iova)
{
	for (uint32_t i = 0; i < LISTS; i++)
		if (iova >= l->iova[i] && iova < l->iova[i] + l->q.list_entries * 8ull)
			return le64_get(l->q.lists[i * l->q.list_entries + (iova - l->iova[i]) / 8]);
	fprintf(stderr, "an entry outside the lists\n");
	abort();
}

/* Every page's first and last byte, which pins all of it: entries are linear inside. */
static void walk(const struct lists *l, uint64_t prp1, uint64_t prp2, uint64_t page, uint64_t off,
		 uint32_t nbytes)
{
	uint64_t n = min_u64(nbytes, page - prp1 % page), done = n, at = prp2;

	MUST(prp1 % 4 == 0);
	MUST(prp1 == bus(off) && prp1 + n - 1 == bus(off + n - 1));
	if (done == nbytes)
		return;
	if (nbytes - done <= page) {
		MUST(prp2 % page == 0);
		MUST(prp2 == bus(off + done) && prp2 + (nbytes - done) - 1 == bus(off + nbytes - 1));
		return;
	}
	MUST(prp2 % 8 == 0);
	for (; done < nbytes; done += n, at += 8) {
		uint64_t e;

		/* the last entry of a page would be a pointer to more of the list */
		MUST((at + 8) % page || nbytes - done <= page);
		e = entry_at(l, at);
		n = min_u64(nbytes - done, page);
		MUST(e % page == 0);
		MUST(e == bus(off + done) && e + n - 1 == bus(off + done + n - 1));
	}
}

static void build(struct input *in, struct mem_map *m, uint64_t page, uint64_t most)
{
	struct lists l = { .iova = { 0x7000000000, 0x7800000000, 0x7900000000 }, .idle = { 0, 1, 2 } };
	uint32_t need = 8;

	/* as qpair_mem.c sizes them: for the largest command, a page at most */
	while (need < most / page && need < page / 8)
		need *= 2;
	l.q.list_entries = need;
	l.q.lists = malloc(LISTS * need * sizeof(uint64_t));
	l.q.list_iova = l.iova;
	l.q.free_lists = l.idle;
	l.q.nr_free_lists = LISTS;
	for (uint32_t i = 0; i < LISTS; i++)
		l.iova[i] += (uint64_t)(input_u8(in) % (page / (need * 8))) * need * 8;
	for (int i = 0; i < 8 && in->left; i++) {
		uint64_t off = (input_u32(in) % m->nbytes) & ~3ull, prp1, prp2;
		uint32_t nbytes = input_u32(in) % (uint32_t)min_u64(most, m->nbytes - off) + 1, was;
		uint16_t list;
		bool one;

		if ((m->first_off + off) & 3)
			off += 4 - ((m->first_off + off) & 3); /* as nvme_check() wants it */
		if (off + nbytes > m->nbytes)
			continue;
		was = l.q.nr_free_lists;
		one = pcie_prp_one(m, off, nbytes, &prp1);
		MUST(prp1 == bus(off));
		if (pcie_prp_build(&l.q, m, off, nbytes, &prp1, &prp2, &list)) {
			MUST(!was && !one);
			continue;
		}
		MUST(!one || (!prp2 && list == NO_LIST));
		MUST(was - l.q.nr_free_lists == (list != NO_LIST));
		walk(&l, prp1, prp2, page, off, nbytes);
		if (list != NO_LIST && !(input_u8(in) & 1))
			l.idle[l.q.nr_free_lists++] = list;
	}
	free(l.q.lists);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t shift = (uint8_t)(12 + input_u8(&in) % 5), how = input_u8(&in);
	uint64_t page = 1ull << shift, unit = how & 1 ? 4096 : page, next = 1ull << 30, total = 0;
	uint64_t nbytes, handle, most;
	struct dma_extent ext[EXTENTS];
	struct mem_table t = { 0 };
	int err;

	nr_unmapped = 0;
	answer = (struct dma_mapping){ .extents = ext, .nr = 1u + input_u8(&in) % EXTENTS, .handle = 77 };
	for (size_t i = 0; i < answer.nr; i++) {
		uint8_t gap = input_u8(&in), len = input_u8(&in);

		next += (uint64_t)(gap & 0x3f) * unit;
		if (gap & 0x40 && how & 2)
			next += 512; /* an extent that begins within a page */
		ext[i] = (struct dma_extent){ next, (1 + (len & 0x3f)) * unit };
		if (len & 0x40 && how & 4)
			ext[i].nbytes += 4096;
		next += ext[i].nbytes;
		total += ext[i].nbytes;
	}
	answer.first_off = input_u32(&in) % 4096;
	nbytes = 1 +
		 input_u32(&in) % (total - answer.first_off); /* a transport covers what it was asked for */
	most = (1 + input_u16(&in) % (min_u64(page / 8, 4096))) * page;
	if (mem_table_init(&t, &ops, NULL, shift))
		return 0;
	err = mem_register(&t, (void *)(uintptr_t)0x10000, nbytes, DMA_READ | DMA_WRITE, &handle);
	MUST(err || describable(nbytes, page));
	MUST(!err || !describable(total - answer.first_off, page));
	MUST(!err || (err == -ENOTSUP && nr_unmapped == 1));
	if (!err) {
		struct mem_map *m = mem_get(&t, handle, 1);

		MUST(m && mem_unregister(&t, handle) == -EBUSY);
		build(&in, m, page, most);
		mem_put(m, 1);
		MUST(!mem_unregister(&t, handle) && nr_unmapped == 1);
		MUST(mem_unregister(&t, handle) == -ESTALE && !mem_get(&t, handle, 1));
	}
	mem_table_done(&t);
	return 0;
}
