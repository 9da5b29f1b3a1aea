/* SPDX-License-Identifier: MIT */
/* Tokens, limits, charges, order, and what a failure leaves: nothing. */
#include "../native/tap.h"

#include "kernel_in_user.h"

#include "cover.c"
#include "extents.c"
#include "ledger.c"

static s64 charged, charge_limit;
static int freed;

static int charge(struct ugds_ledger *l, struct ugds_mapping *m, s64 nr_pages)
{
	(void)m;
	WARN_ON(!l->lock.held);
	if (nr_pages > 0 && charged + nr_pages > charge_limit)
		return -ENOMEM;
	charged += nr_pages;
	return 0;
}

static void count_free(struct ugds_mapping *m)
{
	(void)m;
	freed++;
}

static const struct ugds_map_ops ops = { .free = count_free }, other_ops = { .free = count_free };
static const struct ugds_limits limits = { .max_mappings = 8, .max_pages = 100 };

static void fresh(struct ugds_ledger *l)
{
	charged = 0;
	charge_limit = 1000;
	freed = 0;
	ugds_ledger_init(l, &limits, charge);
}

static int reserve(struct ugds_ledger *l, struct ugds_mapping *m, u64 first, u64 npages)
{
	int err;

	ugds_mapping_init(m, &ops, NULL, 3);
	err = ugds_ledger_reserve(l, m, UGDS_SPACE_VADDR, first, npages);
	if (err)
		ugds_mapping_put(m);
	return err;
}

/* What a failure after reserve does. */
static void give_back(struct ugds_ledger *l, struct ugds_mapping *m)
{
	ugds_ledger_unreserve(l, m);
	ugds_mapping_put(m);
}

static int add(struct ugds_ledger *l, struct ugds_mapping *m, u64 first, u64 npages)
{
	int err = reserve(l, m, first, npages);

	if (!err)
		ugds_ledger_publish(l, m);
	return err;
}

/* What an UNMAP does around ops->unmap. */
static bool drop_one(struct ugds_ledger *l, u64 token)
{
	struct ugds_mapping *m = ugds_ledger_take(l, token);

	if (!m)
		return false;
	ugds_ledger_unreserve(l, m);
	ugds_mapping_put(m);
	return true;
}

static void look_ups_fail_closed(void)
{
	struct ugds_mapping a, b;
	struct ugds_ledger l;
	u64 first;

	fresh(&l);
	ok(!ugds_ledger_get(&l, 0) && !ugds_ledger_get(&l, 1) && !ugds_ledger_get(&l, U64_MAX),
	   "an empty ledger finds nothing");
	ok(!ugds_ledger_take(&l, 0) && !ugds_ledger_take(&l, 1), "and has nothing to take");
	ok(!reserve(&l, &a, 1, 1) && a.token, "a token is drawn");
	ok(!ugds_ledger_get(&l, a.token) && !ugds_ledger_take(&l, a.token) && !ugds_ledger_take(&l, 0),
	   "what is only reserved is found by nobody");
	ugds_ledger_publish(&l, &a);
	first = a.token;
	ok(ugds_ledger_get(&l, first) == &a, "published, it is");
	ugds_mapping_put(&a);
	ok(!ugds_ledger_get(&l, first + 1) && !ugds_ledger_get(&l, first - 1), "its neighbours are not");
	ok(drop_one(&l, first) && !drop_one(&l, first) && freed == 1, "it goes once");
	ok(!add(&l, &b, 1, 1) && b.token != first, "its token is not drawn again");
	drop_one(&l, 0);
	ugds_ledger_done(&l);
}

static void newest_first(void)
{
	struct ugds_mapping m[5];
	struct ugds_ledger l;
	int i, right = 0;

	fresh(&l);
	for (i = 0; i < 5; i++)
		add(&l, &m[i], (u64)i, 1);
	drop_one(&l, m[2].token);
	for (i = 4; i >= 0; i--) {
		if (i == 2)
			continue;
		right += ugds_ledger_take(&l, 0) == &m[i];
		ugds_ledger_unreserve(&l, &m[i]);
		ugds_mapping_put(&m[i]);
	}
	ok(right == 4 && freed == 5 && !charged, "released in reverse");
	ugds_ledger_done(&l);
}

static void a_reference_outlives_the_entry(void)
{
	struct ugds_mapping m, *held;
	struct ugds_ledger l;

	fresh(&l);
	add(&l, &m, 0, 1);
	held = ugds_ledger_get(&l, m.token);
	drop_one(&l, 0);
	ok(!freed, "held, it is not freed");
	ugds_mapping_put(held);
	ok(freed == 1, "until it is let go");
	ugds_ledger_done(&l);
}

static void limits_hold(void)
{
	struct ugds_mapping m[9], big;
	struct ugds_ledger l;
	int i, err = 0;

	fresh(&l);
	for (i = 0; i < 8; i++)
		err |= add(&l, &m[i], (u64)i * 10, 10);
	ok(!err && charged == 80, "as many as there may be");
	ok(add(&l, &m[8], 0, 10) == -ENOSPC, "and no more");
	drop_one(&l, 0);
	ok(reserve(&l, &big, 200, 31) == -E2BIG && charged == 70 && l.cover.pages == 70, "too many pages");
	ok(!reserve(&l, &big, 200, 30) && charged == 100, "just as many");
	ugds_ledger_unreserve(&l, &big);
	ok(charged == 70 && !big.token, "given back");
	give_back(&l, &big);
	ok(charged == 70, "only once");
	ok(!reserve(&l, &big, 0, 0), "one without pages");
	ok(charged == 70, "costs none");
	give_back(&l, &big);
	ok(reserve(&l, &big, U64_MAX, 1) == -EINVAL && reserve(&l, &big, U64_MAX - 3, 8) == -EINVAL,
	   "the end of all pages");
	while (drop_one(&l, 0))
		;
	ok(!charged && !l.nr, "nothing is left");
	ugds_ledger_done(&l);
}

static void shared_pages_are_charged_once(void)
{
	struct ugds_mapping a, b, c;
	struct ugds_ledger l;

	fresh(&l);
	charge_limit = 12;
	ok(!add(&l, &a, 0, 10) && !add(&l, &b, 5, 7) && charged == 12, "twelve pages of seventeen");
	ok(reserve(&l, &c, 11, 2) == -ENOMEM && charged == 12 && l.nr == 2, "one more is over the limit");
	drop_one(&l, a.token);
	ok(charged == 7, "those of the other stay");
	ugds_mapping_init(&c, &other_ops, NULL, 3);
	ok(ugds_ledger_reserve(&l, &c, UGDS_SPACE_VADDR, 11, 1) == -EEXIST, "another kind is refused");
	ok(!ugds_ledger_reserve(&l, &c, UGDS_SPACE_VADDR, 0, 5) && charged == 12, "beside them it is not");
	give_back(&l, &c);
	ugds_mapping_init(&c, &ops, NULL, 1);
	ok(ugds_ledger_reserve(&l, &c, UGDS_SPACE_VADDR, 11, 1) == -EEXIST, "other flags are refused");
	ugds_mapping_put(&c);
	drop_one(&l, 0);
	ok(!charged, "nothing is left");
	ugds_ledger_done(&l);
}

static void without_memory(void)
{
	struct ugds_mapping a, b;
	struct ugds_ledger l;
	int i, err;

	fresh(&l);
	add(&l, &a, 10, 10);
	for (i = 0;; i++) {
		fail_after = i;
		err = reserve(&l, &b, 5, 20);
		fail_after = -1;
		if (!err)
			break;
		WARN_ON(err != -ENOMEM || charged != 10 || l.nr != 1 || l.cover.pages != 10);
	}
	ok(i >= 2 && charged == 20, "%d places where memory ran out left nothing", i);
	give_back(&l, &b);
	drop_one(&l, 0);
	ugds_ledger_done(&l);
	ok(!allocated && !ugds_nr_mappings(), "all was freed");
}

int main(void)
{
	look_ups_fail_closed();
	newest_first();
	a_reference_outlives_the_entry();
	limits_hold();
	shared_pages_are_charged_once();
	without_memory();
	return done_testing();
}
