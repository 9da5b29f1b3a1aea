/* SPDX-License-Identifier: MIT */
#include "emu/versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emu/backing.h"
#include "emu/iommu.h"
#include "support/util.h"

#define BUCKET_BITS 14
#define BUCKETS (1u << BUCKET_BITS)
#define BUF_BYTES 65536u /* the largest block */
#define GOLDEN 0x9e3779b97f4a7c15ull

/* What a block held, and which piece had put it there. */
struct version {
	struct version *older; /* NULL: this is durable */
	uint64_t piece;
	bool zeros; /* without its data */
	uint8_t data[];
};

/* A block whose newest content, which the backing has, may be lost. */
struct emu_dirty {
	struct emu_dirty *next; /* in its bucket */
	struct emu_dirty *after; /* of all */
	struct emu_dirty **before; /* what points at this one there */
	struct emu_ns *ns;
	uint64_t lba;
	uint64_t piece; /* that wrote the newest */
	struct version *top; /* what the newest overwrote; never NULL between calls */
};

static uint64_t version_bytes(const struct emu_ns *ns, const struct version *o)
{
	return sizeof(*o) + (o->zeros ? 0 : 1ull << ns->shift);
}

int emu_versions_init(struct emu_versions *v, uint64_t limit)
{
	*v = (struct emu_versions){ .limit = limit, .next_piece = 1 };
	v->bucket = calloc(BUCKETS, sizeof(struct emu_dirty *));
	v->buf = malloc(BUF_BYTES);
	if (v->bucket && v->buf)
		return 0;
	emu_versions_done(v);
	return -ENOMEM;
}

void emu_versions_done(struct emu_versions *v)
{
	if (v->bucket)
		emu_versions_forget(v, NULL);
	free(v->bucket);
	free(v->buf);
	v->bucket = NULL;
	v->buf = NULL;
}

static struct emu_dirty **place(struct emu_versions *v, const struct emu_ns *ns, uint64_t lba)
{
	struct emu_dirty **p = &v->bucket[((lba ^ (uintptr_t)ns) * GOLDEN) >> (64 - BUCKET_BITS)];

	while (*p && ((*p)->lba != lba || (*p)->ns != ns))
		p = &(*p)->next;
	return p;
}

static void drop_from(struct emu_versions *v, const struct emu_ns *ns, struct version **p)
{
	while (*p) {
		struct version *o = *p;

		*p = o->older;
		v->used -= version_bytes(ns, o);
		free(o);
	}
}

/* The newest is durable. */
static void drop_dirty(struct emu_versions *v, struct emu_dirty **p)
{
	struct emu_dirty *d = *p;

	*p = d->next;
	*d->before = d->after;
	if (d->after)
		d->after->before = d->before;
	drop_from(v, d->ns, &d->top);
	v->used -= sizeof(*d);
	v->nr--;
	free(d);
}

static bool all_zeros(const uint8_t *p, size_t n) { return !*p && !memcmp(p, p + 1, n - 1); }

static int remember(struct emu_versions *v, struct emu_ns *ns, uint64_t lba, const uint8_t *data,
		    uint64_t piece)
{
	size_t n = (size_t)1 << ns->shift;
	struct emu_dirty **p = place(v, ns, lba), *d = *p;
	bool zeros = all_zeros(data, n);
	struct version *o = malloc(sizeof(*o) + (zeros ? 0 : n));

	if (!o)
		return -ENOMEM;
	if (!d) {
		d = malloc(sizeof(*d));
		if (!d) {
			free(o);
			return -ENOMEM;
		}
		*d = (struct emu_dirty){ .after = v->all, .before = &v->all, .ns = ns, .lba = lba };
		if (v->all)
			v->all->before = &d->after;
		v->all = d;
		*p = d;
		v->used += sizeof(*d);
		v->nr++;
	}
	o->older = d->top;
	o->piece = d->piece;
	o->zeros = zeros;
	if (!zeros)
		memcpy(o->data, data, n);
	v->used += version_bytes(ns, o);
	d->top = o;
	d->piece = piece;
	return 0;
}

static uint64_t piece_of(const struct emu_write *w, uint64_t lba)
{
	return w->nr == 1 ? w->first : w->first + lba / w->unit - w->slba / w->unit;
}

int emu_versions_record(struct emu_versions *v, struct emu_ns *ns, uint64_t slba, uint64_t nlb, uint32_t unit,
			struct emu_write *ret)
{
	uint64_t block = 1ull << ns->shift, most = sizeof(struct emu_dirty) + sizeof(struct version) + block;
	struct emu_write w = { .ns = ns, .slba = slba, .nlb = nlb, .first = v->next_piece, .unit = unit };
	int rc = 0;

	if (nlb > (v->limit - v->used) / most)
		return -ENOSPC;
	w.nr = nlb <= unit ? 1 : (slba + nlb - 1) / unit - slba / unit + 1;
	v->next_piece += w.nr;
	for (uint64_t done = 0, n; !rc && done < nlb; done += n) {
		struct iovec one = { v->buf, 0 };

		n = min_u64(nlb - done, BUF_BYTES / block);
		one.iov_len = n * block;
		rc = emu_backing_read(ns, (slba + done) * block, &one, 1, n * block, false);
		for (uint64_t i = 0; !rc && i < n; i++)
			rc = remember(v, ns, slba + done + i, v->buf + i * block,
				      piece_of(&w, slba + done + i));
	}
	*ret = w;
	return rc;
}

static bool part_of(const struct emu_write *w, uint64_t piece) { return piece - w->first < w->nr; }

void emu_versions_harden(struct emu_versions *v, const struct emu_write *w)
{
	for (uint64_t lba = w->slba; v->nr && lba < w->slba + w->nlb; lba++) {
		struct emu_dirty **p = place(v, w->ns, lba);
		struct version *o;

		if (!*p)
			continue;
		if (part_of(w, (*p)->piece)) {
			drop_dirty(v, p);
			continue;
		}
		/* written over meanwhile; not found: a flush has come first, and made durable as much or more */
		for (o = (*p)->top; o && !part_of(w, o->piece);)
			o = o->older;
		if (o)
			drop_from(v, w->ns, &o->older);
	}
}

void emu_versions_forget(struct emu_versions *v, const struct emu_ns *ns)
{
	for (struct emu_dirty *d = v->all, *after; d; d = after) {
		after = d->after;
		if (!ns || d->ns == ns)
			drop_dirty(v, place(v, d->ns, d->lba));
	}
}

/*
 * All the choices of one cut: a rank for each piece, and one for what is durable. Of what a block held the highest
 * rank stays. So the pieces below the durable rank are lost and the others seem written in the order of their ranks,
 * alike for every block; and each of the n things that a block held stays with the probability 1/n.
 */
static uint64_t rank(uint64_t seed, uint64_t piece)
{
	uint64_t state = seed ^ piece * GOLDEN;

	return emu_rand(&state);
}

static int put_back(struct emu_ns *ns, uint64_t lba, struct version *o)
{
	struct iovec one = { o->data, (size_t)1 << ns->shift };

	if (o->zeros)
		return emu_backing_zero(ns, lba << ns->shift, 1ull << ns->shift, false);
	return emu_backing_write(ns, lba << ns->shift, &one, 1, 1ull << ns->shift, false);
}

static int lose_one(const struct emu_dirty *d, uint64_t seed)
{
	uint64_t best = rank(seed, d->piece);
	struct version *chosen = NULL;

	for (struct version *o = d->top; o; o = o->older) {
		uint64_t r = rank(seed, o->older ? o->piece : 0);

		if (r > best) {
			best = r;
			chosen = o;
		}
	}
	return chosen ? put_back(d->ns, d->lba, chosen) : 0;
}

int emu_versions_lose(struct emu_versions *v, uint64_t seed)
{
	int rc, first = 0;

	for (const struct emu_dirty *d = v->all; d; d = d->after) {
		rc = lose_one(d, seed);
		first = first ? first : rc;
	}
	emu_versions_forget(v, NULL);
	return first;
}
