/* SPDX-License-Identifier: MIT */
/* Covered pages against a plain array of counts; conflicts; failing memory; speed by size. */
#include "../native/tap.h"

#include "kernel_in_user.h"

#include "cover.c"

static const int owner_a, owner_b;

static struct ugds_range range(u64 first, u64 npages)
{
	return (struct ugds_range){
		.first = first, .last = first + npages - 1, .owner = &owner_a, .flags = 3
	};
}

static void conflicts(void)
{
	struct ugds_range r = range(10, 10), other;
	struct ugds_cover c;
	u64 fresh;

	ugds_cover_init(&c);
	ok(ugds_cover_add(&c, &r, &fresh) == 0 && fresh == 10 && c.pages == 10, "ten pages");
	other = range(19, 1);
	other.flags = 1;
	ok(ugds_cover_add(&c, &other, &fresh) == -EEXIST, "other flags on the last page");
	other.flags = 3;
	other.owner = &owner_b;
	ok(ugds_cover_add(&c, &other, &fresh) == -EEXIST, "another owner");
	other.first = other.last = 20;
	ok(ugds_cover_add(&c, &other, &fresh) == 0 && fresh == 1, "another owner beside it");
	other.space = 7;
	other.first = 0;
	other.last = 100;
	ok(ugds_cover_add(&c, &other, &fresh) == 0 && fresh == 101, "another owner in another space");
	ok(ugds_cover_remove(&c, &other) == 101, "and back");
	other.space = 0;
	other.first = other.last = 20;
	ok(ugds_cover_remove(&c, &other) == 1 && ugds_cover_remove(&c, &r) == 10 && !c.pages && !c.segments,
	   "all gone");
	ok(!allocated, "all was freed");
}

/* ---- random ranges against counts ---- */

#define PAGES 64
#define LIVE 40

static u32 dice(u32 sides)
{
	static u64 seed = 42;

	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (u32)(seed >> 33) % sides;
}

static u64 covered(const u32 *counts)
{
	u64 nr = 0;
	u32 i;

	for (i = 0; i < PAGES; i++)
		nr += counts[i] != 0;
	return nr;
}

static u64 change(u32 *counts, const struct ugds_range *r, int by)
{
	u64 before = covered(counts), after;
	u64 page;

	for (page = r->first; page <= r->last; page++)
		counts[page] += (u32)by;
	after = covered(counts);
	return after > before ? after - before : before - after;
}

/* The segments say the same as the counts, in order and without holes inside. */
static bool agrees(struct ugds_cover *c, const u32 *counts, u32 live)
{
	u32 seen[PAGES] = { 0 };
	struct segment *s;
	u64 page;

	for (s = at_or_after(c, 0, 0); s; s = rb_next(&s->node) ? of(rb_next(&s->node)) : NULL) {
		for (page = s->first; page <= s->last; page++)
			seen[page] = (u32)s->count;
	}
	return !memcmp(seen, counts, sizeof(seen)) && c->pages == covered(counts) && c->segments <= 2 * live;
}

static void against_counts(void)
{
	struct ugds_range live[LIVE];
	u32 counts[PAGES] = { 0 }, nr = 0, rounds, bad = 0, failed = 0;
	struct ugds_cover c;
	u64 fresh = 0;

	ugds_cover_init(&c);
	for (rounds = 0; rounds < 30000; rounds++) {
		if (nr < LIVE && (!nr || dice(2))) {
			u32 first = dice(PAGES);
			struct ugds_range r = range(first, 1 + dice(PAGES - first));

			fail_after = dice(8) ? -1 : (long)dice(3);
			if (ugds_cover_add(&c, &r, &fresh)) {
				failed++;
			} else {
				bad += fresh != change(counts, &r, 1);
				live[nr++] = r;
			}
			fail_after = -1;
		} else {
			u32 i = dice(nr);

			bad += ugds_cover_remove(&c, &live[i]) != change(counts, &live[i], -1);
			live[i] = live[--nr];
		}
		bad += !agrees(&c, counts, nr);
		bad += (u64)allocated != c.segments;
	}
	ok(!bad, "30000 changes agree with plain counts");
	ok(failed > 100, "%u of them failed for memory and changed nothing", failed);
	while (nr)
		ugds_cover_remove(&c, &live[--nr]);
	ok(!c.segments && !allocated, "all was freed");
}

static void many(void)
{
	struct ugds_cover c;
	struct ugds_range r;
	u64 fresh, i, pages = 0;
	int err = 0;

	ugds_cover_init(&c);
	for (i = 0; i < 100000; i++) {
		r = range(5, 1);
		err |= ugds_cover_add(&c, &r, &fresh);
		pages += fresh;
	}
	ok(!err && pages == 1 && c.segments == 1, "100000 mappings of one page are one segment");
	for (i = 0; i < 100000; i++)
		pages -= ugds_cover_remove(&c, &r);
	ok(!pages && !c.segments, "and none when they are gone");

	for (i = 0; i < 100000; i++) {
		r = range(i * 2654435761u % 100003 * 3, 2);
		err |= ugds_cover_add(&c, &r, &fresh);
	}
	ok(!err && c.pages == 200000, "100000 of two pages each");
	for (i = 0; i < 100000; i++) {
		r = range(i * 2654435761u % 100003 * 3, 2);
		ugds_cover_remove(&c, &r);
	}
	ok(!c.segments && !allocated, "all was freed");
}

int main(void)
{
	conflicts();
	against_counts();
	many();
	return done_testing();
}
