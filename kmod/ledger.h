/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The ledger of one open file: every mapping that it made, by token, in order, with the pages each
 * covers.
 *
 * Life of a mapping: ugds_mapping_init, ugds_ledger_reserve (pages covered, limits and conflicts
 * checked, a token drawn; not found by anyone yet), DMA set up, ugds_ledger_publish. Back:
 * ugds_ledger_take (not found any more), ops->unmap, ugds_ledger_unreserve, ugds_mapping_put.
 */
#ifndef UGDS_LEDGER_H
#define UGDS_LEDGER_H

#include "cover.h"
#include "extents.h"

struct ugds_file;
struct ugds_ledger;
struct ugds_mapping;

/* What a kind of memory (UGDS_DRV_MAP_HOST...) brings. */
struct ugds_map_ops {
	/* UGDS_DRV_CAP_* that it adds to INFO now. May be NULL. */
	u64 (*caps)(struct ugds_file *f);
	/*
	 * Make memory reachable. The caller has checked: flags known, READ or WRITE set, nbytes not
	 * 0 and at most max_map_bytes, vaddr + nbytes and offset + nbytes do not wrap. On success
	 * *ret_m has been initialised and reserved, and extents, first_off, page_size and ret_flags
	 * are set; on failure all is undone. Sleeps; the file's live lock is held for reading, no
	 * other lock of the core is.
	 */
	int (*map)(struct ugds_file *f, const struct ugds_drv_map *arg,
		   struct ugds_mapping **ret_m);
	/*
	 * The device reaches the memory no more and it is let go. Called once, in process context;
	 * sleeps. live is held for reading, or the tenure has ended; no lock of the core that a
	 * revocation callback takes is held. One may run at the same time until this returns, never
	 * after. Called also when the mapping was revoked.
	 */
	void (*unmap)(struct ugds_mapping *m);
	/* The last reference is gone: free the object of m. After unmap; f may be gone. */
	void (*free)(struct ugds_mapping *m);
};

struct ugds_mapping {
	struct kref ref;
	const struct ugds_map_ops *ops;
	struct ugds_file *file; /* until ops->unmap has returned */
	u64 token; /* 0 until reserved */
	struct list_head node; /* of ledger->order while published */
	struct ugds_range range; /* pages it covers, while reserved */
	bool covered; /* false: it covers none */
	u32 flags; /* UGDS_DRV_MAP_READ | WRITE */
	u32 ret_flags; /* UGDS_DRV_MAPPED_* */
	u32 first_off;
	u32 page_size;
	u64 nbytes; /* whole pages */
	struct ugds_extents extents;
	atomic_t revoked; /* set by ugds_file_revoke */
};

/*
 * Charge or uncharge (nr_pages < 0, never fails) pages that became covered or free by m. Called
 * under the ledger's lock.
 */
typedef int (*ugds_charge_fn)(struct ugds_ledger *l, struct ugds_mapping *m, s64 nr_pages);

struct ugds_limits {
	u32 max_mappings;
	u64 max_pages; /* covered, of all */
};

struct ugds_ledger {
	/* Cover and counts. mmap_lock is taken inside (charge); no revocation callback takes it. */
	struct mutex lock;
	struct xarray by_token; /* its own lock serves look-ups, also under mmap_lock */
	struct list_head order; /* by_token's lock; oldest first */
	struct ugds_cover cover;
	struct ugds_limits limits;
	ugds_charge_fn charge;
	u64 last_token;
	u32 nr; /* reserved ones */
};

void ugds_mapping_init(struct ugds_mapping *m, const struct ugds_map_ops *ops, struct ugds_file *f,
		       u32 flags);
/* Extents are freed and ops->free called with the last reference. m must not be reserved then. */
void ugds_mapping_put(struct ugds_mapping *m);

/* That were initialised and are not freed, of all files: none is left when none is open. */
long ugds_nr_mappings(void);

void ugds_ledger_init(struct ugds_ledger *l, const struct ugds_limits *limits,
		      ugds_charge_fn charge);
/* Empty it must be. */
void ugds_ledger_done(struct ugds_ledger *l);

/*
 * Draw a token and cover pages first .. first + npages - 1 of a space: UGDS_SPACE_VADDR or the
 * address of an object (a dma-buf). -EEXIST a page is covered by a mapping of other ops or
 * READ/WRITE flags, -ENOSPC max_mappings, -E2BIG max_pages, -ENOMEM (the charge too).
 */
int ugds_ledger_reserve(struct ugds_ledger *l, struct ugds_mapping *m, u64 space, u64 first,
			u64 npages);
/* Undo reserve. Nothing when it is not reserved. */
void ugds_ledger_unreserve(struct ugds_ledger *l, struct ugds_mapping *m);

/* Found by its token from now on. The ledger takes over the caller's reference. Cannot fail. */
void ugds_ledger_publish(struct ugds_ledger *l, struct ugds_mapping *m);
/* The mapping with this token and a reference to it, or NULL. */
struct ugds_mapping *ugds_ledger_get(struct ugds_ledger *l, u64 token);
/*
 * Take it out; the ledger's reference goes to the caller. One caller wins, others get NULL.
 * token 0: the newest.
 */
struct ugds_mapping *ugds_ledger_take(struct ugds_ledger *l, u64 token);

#endif
