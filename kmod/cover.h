/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which pages live mappings cover, and how often: disjoint segments in a tree, each with a count.
 * Any number of mappings of one page cost one segment; adding and removing a range costs the
 * segments inside it and a look-up.
 */
#ifndef UGDS_COVER_H
#define UGDS_COVER_H

#include "base.h"

#define UGDS_SPACE_VADDR \
	0 /* virtual addresses of the opener, of the CPU or a GPU, in units of PAGE_SIZE */

struct ugds_range {
	u64 space;
	u64 first;
	u64 last; /* included */
	const void *owner; /* of the attributes: mappings with another owner or flags conflict */
	u32 flags;
};

struct ugds_cover {
	struct rb_root root;
	u64 pages; /* covered */
	u64 segments;
};

void ugds_cover_init(struct ugds_cover *c);

/*
 * Count every page of r once more. ret_new: pages that were not covered. -EEXIST: a page is covered
 * with another owner or other flags. -ENOMEM. Nothing has changed on failure.
 */
int ugds_cover_add(struct ugds_cover *c, const struct ugds_range *r, u64 *ret_new);

/* Undo an add of the same range. Pages that are not covered any more. Cannot fail. */
u64 ugds_cover_remove(struct ugds_cover *c, const struct ugds_range *r);

#endif
