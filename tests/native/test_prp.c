/* SPDX-License-Identifier: MIT */
/* PRP building against a walker that reads the entries as a controller does (Base 4.1.1). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pcie/ring.h"
#include "tap.h"

#define PAGES 1100
#define LISTS 4
#define LIST_BASE 0x7770000000ull

struct fix {
	struct pcie_qpair q;
	struct mem_map map;
	uint64_t iova[PAGES];
	uint64_t list_iova[LISTS];
	uint16_t free_lists[LISTS];
	uint64_t *lists;
	uint64_t page;
};

static struct fix *setup(uint8_t shift, uint64_t first_off)
{
	struct fix *f = calloc(1, sizeof(*f));

	f->page = 1ull << shift;
	/* scattered pages: no two neighbours follow each other */
	for (uint64_t i = 0; i < PAGES; i++)
		f->iova[i] = (0x100000 + (i * 7919) % 65521 * 3) << shift;
	f->map = (struct mem_map){
		.iova = f->iova, .shift = shift, .first_off = first_off, .nbytes = PAGES * f->page - first_off
	};
	f->lists = aligned_alloc(f->page, LISTS * f->page);
	memset(f->lists, 0xee, LISTS * f->page);
	f->q.lists = f->lists;
	f->q.list_iova = f->list_iova;
	f->q.free_lists = f->free_lists;
	f->q.list_entries = (uint32_t)(f->page / 8);
	for (uint16_t i = 0; i < LISTS; i++) {
		f->list_iova[i] = LIST_BASE + i * f->page;
		f->free_lists[i] = i;
	}
	f->q.nr_free_lists = LISTS;
	return f;
}

static void teardown(struct fix *f)
{
	free(f->lists);
	free(f);
}

/* The bus address of byte @i of a transfer, found from the entries alone. */
static bool walk(const struct fix *f, uint64_t prp1, uint64_t prp2, uint32_t nbytes, uint32_t i,
		 uint64_t *ret)
{
	uint64_t in = prp1 & (f->page - 1), first = f->page - in, k;
	const uint64_t *list;

	if (i < first) {
		*ret = prp1 + i;
		return true;
	}
	if (nbytes - first <= f->page) {
		*ret = prp2 + (i - first);
		return !(prp2 & (f->page - 1));
	}
	if (prp2 & 7 || prp2 < LIST_BASE || prp2 >= LIST_BASE + LISTS * f->page)
		return false;
	list = f->lists + (prp2 - LIST_BASE) / 8;
	k = (i - first) / f->page;
	if ((prp2 - LIST_BASE) % f->page / 8 + k >= f->page / 8)
		return false; /* past the list page */
	*ret = list[k] + (i - first) % f->page;
	return !(list[k] & (f->page - 1));
}

static bool check(struct fix *f, uint64_t off, uint32_t nbytes)
{
	uint64_t prp1, prp2, at;
	uint16_t list;

	f->q.nr_free_lists = LISTS;
	if (pcie_prp_build(&f->q, &f->map, off, nbytes, &prp1, &prp2, &list))
		return false;
	for (uint32_t i = 0; i < nbytes; i += i % f->page == 0 ? 4 : (uint32_t)(f->page - i % f->page) - 4 ?: 4) {
		uint64_t pos = f->map.first_off + off + i;

		if (!walk(f, prp1, prp2, nbytes, i, &at) || at != f->iova[pos / f->page] + pos % f->page) {
			printf("# off %llu nbytes %u byte %u\n", (unsigned long long)off, nbytes, i);
			return false;
		}
	}
	return list == NO_LIST ? f->q.nr_free_lists == LISTS : f->q.nr_free_lists == LISTS - 1;
}

static void boundaries(uint8_t shift)
{
	static const int64_t around[] = { -8, -4, 0, 4, 8 };
	struct fix *f = setup(shift, 512);
	uint64_t most = f->page * (f->page / 8); /* what one list page holds, from any offset */
	bool good = true;
	char name[64];

	for (uint64_t base = 0; base <= 3 * f->page; base += f->page)
		for (size_t a = 0; a < ARRAY_SIZE(around); a++)
			for (uint64_t len = f->page; len <= 4 * f->page; len += f->page)
				for (size_t b = 0; b < ARRAY_SIZE(around); b++) {
					uint64_t off = base + f->page - 512 + (uint64_t)around[a];

					good = good && check(f, off, (uint32_t)(len + (uint64_t)around[b]));
				}
	snprintf(name, sizeof(name), "page %llu: every boundary", (unsigned long long)f->page);
	ok(good, "%s", name);
	snprintf(name, sizeof(name), "page %llu: a full list page", (unsigned long long)f->page);
	if (most <= (PAGES - 4) * f->page)
		ok(check(f, 0, (uint32_t)most) && check(f, 4, (uint32_t)most) &&
			   check(f, f->page - 512, (uint32_t)most),
		   "%s", name);
	teardown(f);
}

static void random_ranges(void)
{
	struct fix *f = setup(12, 1536);
	bool good = true;

	srand(20261129);
	for (int i = 0; i < 20000 && good; i++) {
		uint32_t nbytes = (uint32_t)(rand() % (512 * 4096) / 4 * 4 + 4);
		uint64_t off = (uint64_t)(rand() % (512 * 4096)) / 4 * 4;

		good = check(f, off, nbytes);
	}
	ok(good, "20000 random ranges");
	teardown(f);
}

static void pool_runs_dry(void)
{
	struct fix *f = setup(12, 0);
	uint64_t prp1, prp2;
	uint16_t list;
	int n = 0;

	while (!pcie_prp_build(&f->q, &f->map, 0, 65536, &prp1, &prp2, &list))
		n++;
	ok(n == LISTS, "a dry pool is back-pressure, after every page was used");
	ok(!pcie_prp_build(&f->q, &f->map, 0, 8192, &prp1, &prp2, &list) && list == NO_LIST,
	   "two pages need no list page");
	teardown(f);
}

int main(void)
{
	boundaries(12);
	boundaries(13);
	boundaries(16);
	random_ranges();
	pool_runs_dry();
	return done_testing();
}
