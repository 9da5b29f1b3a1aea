/* SPDX-License-Identifier: MIT */
/* Scatter lists become extents, or are refused. */
#include "../native/tap.h"

#include "kernel_in_user.h"

#include "extents.c"

#define P 4096u

struct piece {
	u64 iova;
	unsigned int nbytes;
};

/* The error, or how many extents there are; they stay in *e. */
static int flatten(const struct piece *pieces, unsigned int nr, u64 skip, u64 nbytes, u32 page,
		   struct ugds_extents *e)
{
	struct scatterlist list[8];
	struct sg_table table = { list, nr };
	unsigned int i;
	int err;

	for (i = 0; i < nr; i++)
		list[i] = (struct scatterlist){ pieces[i].iova, pieces[i].nbytes };
	memset(e, 0, sizeof(*e));
	err = ugds_extents_add_sgt(e, &table, skip, nbytes, page);
	return err ? err : (int)e->nr;
}

static bool is(const struct ugds_extents *e, u32 i, u64 iova, u64 nbytes)
{
	return i < e->nr && e->v[i].iova == iova && e->v[i].nbytes == nbytes;
}

static void flattening(void)
{
	static const struct piece apart[] = { { 4 * P, P }, { 9 * P, 2 * P }, { 0, 0 }, { 20 * P, P } };
	static const struct piece joined[] = { { 4 * P, P }, { 5 * P, 2 * P }, { 7 * P, P } };
	struct ugds_extents e;

	ok(flatten(apart, 4, 0, 4 * P, P, &e) == 3 && is(&e, 0, 4 * P, P) && is(&e, 1, 9 * P, 2 * P) &&
		   is(&e, 2, 20 * P, P),
	   "pieces that lie apart stay so, empty ones are passed over");
	ugds_extents_free(&e);
	ok(flatten(joined, 3, 0, 4 * P, P, &e) == 1 && is(&e, 0, 4 * P, 4 * P), "neighbours are merged");
	ugds_extents_free(&e);
	ok(flatten(apart, 4, P, P, P, &e) == 1 && is(&e, 0, 9 * P, P), "a part begins and ends inside");
	ugds_extents_free(&e);
	ok(flatten(apart, 4, 2 * P, 2 * P, P, &e) == 2 && is(&e, 0, 10 * P, P) && is(&e, 1, 20 * P, P),
	   "a part spans pieces");
	ugds_extents_free(&e);
	ok(!allocated, "all was freed");
}

static void refusals(void)
{
	static const struct piece good[] = { { 4 * P, P }, { 9 * P, 2 * P } };
	static const struct piece crooked[] = { { 4 * P, P }, { 9 * P + 8, P } };
	static const struct piece part[] = { { 4 * P, P + 512 } };
	static const struct piece wrapping[] = { { U64_MAX - P + 1, 2 * P } };
	static const struct piece last[] = { { U64_MAX - P + 1, P }, { 0, P } };
	struct ugds_extents e;

	ok(flatten(good, 2, 0, 4 * P, P, &e) == -ERANGE, "a list that ends before");
	ugds_extents_free(&e);
	ok(flatten(good, 2, 3 * P, P, P, &e) == -ERANGE, "a part behind the end");
	ugds_extents_free(&e);
	ok(flatten(good, 2, 0, 0, P, &e) == -EINVAL, "nothing");
	ok(flatten(good, 2, 512, P, P, &e) == -EINVAL, "a part that begins in a page");
	ok(flatten(good, 2, 0, 512, P, &e) == -EINVAL, "a part that ends in a page");
	ok(flatten(crooked, 2, 0, 2 * P, P, &e) == -EINVAL, "a piece that begins in a page");
	ugds_extents_free(&e);
	ok(flatten(part, 1, 0, P, P, &e) == -EINVAL, "a piece that ends in a page");
	ok(flatten(good, 2, 0, P, 16 * P, &e) == -EINVAL, "pieces smaller than the unit");
	ok(flatten(wrapping, 1, 0, 2 * P, P, &e) == -EINVAL, "a piece over the end of all addresses");
	ok(flatten(last, 2, 0, 2 * P, P, &e) == 2 && is(&e, 0, U64_MAX - P + 1, P) && is(&e, 1, 0, P),
	   "the last page of all is not continued at zero");
	ugds_extents_free(&e);
	ok(flatten(good, 0, 0, P, P, &e) == -ERANGE, "an empty list");
	ok(!allocated, "all was freed");
}

static void large_ones(void)
{
	struct ugds_extents e = { 0 };
	u32 i;
	int err = 0;

	for (i = 0; i < 100000 && !err; i++)
		err = ugds_extents_add(&e, (u64)i * 2 * P, P);
	ok(!err && e.nr == 100000 && is(&e, 99999, 99999ull * 2 * P, P), "100000 extents");
	ok(ugds_extents_add(&e, 99999ull * 2 * P + P, 1ull << 40) == 0 &&
		   is(&e, 99999, 99999ull * 2 * P, P + (1ull << 40)),
	   "an extent may be longer than 32 bits count");
	ugds_extents_free(&e);

	e.v = kvmalloc_array(UGDS_MAX_EXTENTS, sizeof(*e.v), 0);
	e.nr = e.room = UGDS_MAX_EXTENTS;
	ok(ugds_extents_add(&e, P, P) == -E2BIG, "there is a limit");
	ugds_extents_free(&e);
	fail_after = 0;
	ok(ugds_extents_add(&e, P, P) == -ENOMEM, "no memory");
	fail_after = -1;
	ugds_extents_free(&e);
	ok(!allocated, "all was freed");
}

int main(void)
{
	flattening();
	refusals();
	large_ones();
	return done_testing();
}
