/* SPDX-License-Identifier: MIT */
/* The table of mappings: handles, generations, counts, and a race between look-ups and releases. */
#include <pthread.h>
#include <stdlib.h>

#include "mem/registration.h"
#include "tap.h"

static int nr_mapped;
static bool split_badly, revocable;

static int fake_map(void *ctx, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	uint64_t in = (uintptr_t)vaddr & 4095, len = align_up(in + nbytes, 4096);

	(void)ctx;
	(void)flags;
	ret->nr = split_badly ? 2 : 1;
	ret->extents = calloc(ret->nr, sizeof(*ret->extents));
	ret->extents[0] = (struct dma_extent){ .iova = 0x40000000, .nbytes = split_badly ? 512 : len };
	if (split_badly)
		ret->extents[1] = (struct dma_extent){ .iova = 0x50000200, .nbytes = len };
	ret->first_off = in;
	ret->handle = 77;
	ret->traits = revocable ? MEM_REVOCABLE : 0;
	nr_mapped++;
	return 0;
}

static int fake_unmap(void *ctx, uint64_t handle)
{
	(void)ctx;
	if (handle == 77)
		nr_mapped--;
	return 0;
}

static const struct mem_ops fake_ops = { .map = fake_map, .unmap = fake_unmap };
static struct mem_table table;
static char memory[64 * 1024];

static void handles(void)
{
	uint64_t h, h2;
	struct mem_map *m;

	ok(!mem_register(&table, memory + 100, 5000, DMA_READ | DMA_WRITE, &h) && h, "a handle, never zero");
	m = mem_get(&table, h, 1);
	ok(m && m->nbytes == 5000, "the length is the user's, not the pages'");
	ok(m && mem_iova(m, 0) % 4096 == ((uintptr_t)memory + 100) % 4096, "the byte offset is kept");
	ok(mem_unregister(&table, h) == -EBUSY && mem_inflight(m) == 1, "busy: refused, nothing changes");
	mem_put(m, 1);
	ok(!mem_unregister(&table, h), "released");
	ok(mem_unregister(&table, h) == -ESTALE && !mem_get(&table, h, 1), "a stale handle is an error");
	ok(!mem_register(&table, memory, 100, DMA_READ, &h2) && (uint32_t)h2 == (uint32_t)h && h2 != h,
	   "the slot is used again under another generation");
	ok(!mem_get(&table, h, 1) && mem_unregister(&table, h) == -ESTALE,
	   "the old handle never reaches the new mapping");
	ok(!mem_unregister(&table, h2), "the new one is intact");
	ok(!mem_get(&table, 0, 1) && !mem_get(&table, UINT64_MAX, 1), "made-up handles are errors");
	ok(mem_register(&table, memory, 0, DMA_READ, &h) == -EINVAL, "no bytes");
	ok(mem_register(&table, (void *)(UINTPTR_MAX - 10), 100, DMA_READ, &h) == -EINVAL,
	   "a range that wraps");
	split_badly = true;
	ok(mem_register(&table, memory, 9000, DMA_READ, &h) == -ENOTSUP && nr_mapped == 0,
	   "extents that break inside a page are refused and undone");
	split_badly = false;
}

static void many(void)
{
	static uint64_t hs[2000];
	bool good = true;

	for (int i = 0; i < 2000; i++)
		good = good && !mem_register(&table, memory + i * 16, 16, DMA_READ, &hs[i]);
	for (int i = 0; i < 2000; i++)
		good = good && !mem_unregister(&table, hs[(i * 777) % 2000]);
	ok(good && nr_mapped == 0 && atomic_load(&table.nr_live) == 0,
	   "2000 neighbours in shared pages, any order");
}

/* Parts of a mapping: own bounds, own requests, no mapping of their own. */
static void parts(void)
{
	uint64_t whole, part, tail, small, h;
	struct mem_map *m, *w;

	ok(!mem_register(&table, memory + 100, 20000, DMA_READ | DMA_WRITE, &whole), "a whole");
	ok(!mem_register_within(&table, whole, 5000, 9000, DMA_READ | DMA_WRITE, &part) && part != whole,
	   "a part of it");
	w = mem_get(&table, whole, 1);
	m = mem_get(&table, part, 1);
	ok(nr_mapped == 1 && atomic_load(&table.nr_live) == 1, "which maps nothing");
	ok(m && m->nbytes == 9000 && m->vaddr == memory + 5100, "with bounds of its own");
	ok(m && w && mem_iova(m, 0) == mem_iova(w, 5000) && mem_iova(m, 8999) == mem_iova(w, 13999),
	   "at the same addresses");
	ok(mem_inflight(m) == 1 && mem_inflight(w) == 1, "and requests of its own");
	mem_put(w, 1);
	ok(mem_register_within(&table, whole, 20000, 1, DMA_READ, &h) == -EFAULT &&
		   mem_register_within(&table, whole, 1, 20000, DMA_READ, &h) == -EFAULT &&
		   mem_register_within(&table, whole, UINT64_MAX, 2, DMA_READ, &h) == -EFAULT &&
		   mem_register_within(&table, whole, 0, 0, DMA_READ, &h) == -EINVAL,
	   "no part reaches past the end");
	ok(!mem_unregister(&table, whole) && nr_mapped == 1, "the whole is released: the mapping stays");
	ok(mem_register_within(&table, whole, 0, 1, DMA_READ, &h) == -ESTALE, "no part of what is released");
	ok(mem_iova(m, 8999), "the page table too");
	ok(mem_unregister(&table, part) == -EBUSY, "a part is busy by itself");
	mem_put(m, 1);
	ok(!mem_register_within(&table, part, 8000, 1000, DMA_READ, &tail), "a part of a part");
	ok(mem_register_within(&table, tail, 0, 8, DMA_READ | DMA_WRITE, &h) == -EACCES,
	   "which may no more than its whole");
	ok(!mem_unregister(&table, part) && nr_mapped == 1 && !mem_unregister(&table, tail) &&
		   nr_mapped == 0 && !atomic_load(&table.nr_live),
	   "the last one unmaps");
	ok(!mem_register(&table, memory + 8, 100, DMA_READ, &whole) &&
		   !mem_register_within(&table, whole, 10, 50, DMA_READ, &small),
	   "of one page");
	m = mem_get(&table, small, 1);
	ok(m && mem_iova(m, 0) == 0x40000000 + ((uintptr_t)memory + 18) % 4096, "at its offset");
	mem_put(m, 1);
	mem_unregister(&table, whole);
	ok(nr_mapped == 1, "stays mapped until the table ends");
}

static bool all_lost(void *ctx, uint64_t handle)
{
	(void)ctx;
	return handle == 77;
}

static void revoked(void)
{
	uint64_t whole, part, h;

	revocable = true;
	mem_register(&table, memory, 9000, DMA_READ, &whole);
	mem_register_within(&table, whole, 10, 50, DMA_READ, &part);
	revocable = false;
	mem_table_revoke(&table, all_lost, NULL);
	ok(!mem_get(&table, part, 1) && mem_refusal(&table, part) == -EKEYREVOKED,
	   "parts are lost with the whole");
	ok(mem_register_within(&table, whole, 0, 1, DMA_READ, &h) == -EKEYREVOKED, "no part of what is lost");
	ok(!mem_unregister(&table, part) && !mem_unregister(&table, whole), "both can be released");
}

static _Atomic uint64_t shared;
static _Atomic bool stop;
static _Atomic uint64_t hits;

static void *reader(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct mem_map *m = mem_get(&table, atomic_load(&shared), 1);

		if (!m)
			continue;
		if (mem_iova(m, m->nbytes - 1))
			atomic_fetch_add(&hits, 1);
		mem_put(m, 1);
	}
	return NULL;
}

static void race(void)
{
	pthread_t t[2];
	int busy = 0, done = 0;

	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, reader, NULL);
	while (done < 20000 || !atomic_load(&hits)) {
		uint64_t h;
		int err;

		if (mem_register(&table, memory, 12000, DMA_READ, &h))
			break;
		atomic_store(&shared, h);
		while ((err = mem_unregister(&table, h)) == -EBUSY)
			busy++;
		if (err)
			break;
		done++;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ok(done >= 20000 && nr_mapped == 0, "look-ups race releases");
	printf("# %d releases, %d were busy first, %llu look-ups\n", done, busy,
	       (unsigned long long)atomic_load(&hits));
}

int main(void)
{
	ok(!mem_table_init(&table, &fake_ops, NULL, 12), "a table");
	handles();
	many();
	revoked();
	race();
	parts();
	mem_table_done(&table);
	ok(nr_mapped == 0, "the end of the table unmaps what is left, once");
	return done_testing();
}
