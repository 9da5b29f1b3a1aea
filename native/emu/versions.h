/* SPDX-License-Identifier: MIT */
/*
 * What a volatile write cache could still lose: for every block that was written since it was last made durable, all
 * that it held since then. The backing always has the newest; a power cut puts something older back.
 *
 * A write is cut into pieces that are there as a whole or not at all: one, if it has no more blocks than an atomic
 * unit, wherever it lies; else one for each unit that it touches. After a cut the blocks are as if some of the
 * pieces, whichever, had been written in some order, whichever, over what was durable.
 */
#ifndef EMU_VERSIONS_H
#define EMU_VERSIONS_H

#include <stdbool.h>
#include <stdint.h>

struct emu_ns;
struct emu_dirty;

/* One owner at a time: no locks inside. */
struct emu_versions {
	struct emu_dirty **bucket;
	struct emu_dirty *all;
	uint8_t *buf; /* of what is about to be overwritten */
	uint64_t limit; /* bytes */
	uint64_t used;
	uint64_t nr; /* blocks */
	uint64_t next_piece; /* 0 stands for what is durable */
};

/* A write, for the time until it is made durable. */
struct emu_write {
	struct emu_ns *ns;
	uint64_t slba;
	uint64_t nlb;
	uint64_t first; /* its pieces: first .. first + nr - 1 */
	uint64_t nr;
	uint32_t unit; /* blocks */
};

int emu_versions_init(struct emu_versions *v, uint64_t limit);
void emu_versions_done(struct emu_versions *v);
/*
 * Remember what [slba, slba + nlb) holds, before it is overwritten. -ENOSPC: with that there would be more than the
 * limit, -ENOMEM or an error of the backing: then whatever was remembered is, and the caller forgets it all.
 */
int emu_versions_record(struct emu_versions *v, struct emu_ns *ns, uint64_t slba, uint64_t nlb, uint32_t unit,
			struct emu_write *ret);
/* @w is durable: nothing older than it comes back. What was written over it since may be lost still. */
void emu_versions_harden(struct emu_versions *v, const struct emu_write *w);
/* All that was written to @ns (NULL: to any) is durable. */
void emu_versions_forget(struct emu_versions *v, const struct emu_ns *ns);
/* Lose power: the backing gets what is left of it, by @seed, and that is durable. 0 or the backing's first error. */
int emu_versions_lose(struct emu_versions *v, uint64_t seed);

#endif
