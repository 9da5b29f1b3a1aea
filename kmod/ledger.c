// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Mappings of one open file. Also built in user space, for its tests. */
#include "ledger.h"

/* Queue memory has its token in its mmap() offset: see queue_mem.c. */
#define LAST_TOKEN BIT_ULL(40)

static atomic_long_t nr_mappings = ATOMIC_LONG_INIT(0);

long ugds_nr_mappings(void)
{
	return atomic_long_read(&nr_mappings);
}

void ugds_mapping_init(struct ugds_mapping *m, const struct ugds_map_ops *ops, struct ugds_file *f,
		       u32 flags)
{
	memset(m, 0, sizeof(*m));
	kref_init(&m->ref);
	INIT_LIST_HEAD(&m->node);
	m->ops = ops;
	m->file = f;
	m->flags = flags;
	atomic_long_inc(&nr_mappings);
}

static void last_put(struct kref *ref)
{
	struct ugds_mapping *m = container_of(ref, struct ugds_mapping, ref);

	ugds_extents_free(&m->extents);
	m->ops->free(m);
	atomic_long_dec(&nr_mappings);
}

void ugds_mapping_put(struct ugds_mapping *m)
{
	kref_put(&m->ref, last_put);
}

void ugds_ledger_init(struct ugds_ledger *l, const struct ugds_limits *limits,
		      ugds_charge_fn charge)
{
	memset(l, 0, sizeof(*l));
	mutex_init(&l->lock);
	xa_init(&l->by_token);
	INIT_LIST_HEAD(&l->order);
	ugds_cover_init(&l->cover);
	l->limits = *limits;
	l->charge = charge;
}

void ugds_ledger_done(struct ugds_ledger *l)
{
	WARN_ON(l->nr || l->cover.pages || !list_empty(&l->order));
	xa_destroy(&l->by_token);
	mutex_destroy(&l->lock);
}

/* Cover and charge, or neither. */
static int cover(struct ugds_ledger *l, struct ugds_mapping *m)
{
	u64 fresh;
	int err;

	err = ugds_cover_add(&l->cover, &m->range, &fresh);
	if (err)
		return err;
	if (l->cover.pages > l->limits.max_pages)
		err = -E2BIG;
	else if (fresh)
		err = l->charge(l, m, (s64)fresh);
	if (err)
		ugds_cover_remove(&l->cover, &m->range);
	return err;
}

static int reserve_locked(struct ugds_ledger *l, struct ugds_mapping *m, u64 npages)
{
	u64 token = l->last_token + 1;
	int err;

	if (l->nr >= l->limits.max_mappings || token > LAST_TOKEN)
		return -ENOSPC;
	err = xa_reserve(&l->by_token, token, GFP_KERNEL_ACCOUNT);
	if (err)
		return err;
	if (npages)
		err = cover(l, m);
	if (err) {
		xa_release(&l->by_token, token);
		return err;
	}
	l->nr++;
	l->last_token = token;
	m->token = token;
	m->covered = npages != 0;
	return 0;
}

int ugds_ledger_reserve(struct ugds_ledger *l, struct ugds_mapping *m, u64 space, u64 first,
			u64 npages)
{
	u64 last = 0;
	int err;

	/* The page after the last one has a number too: cover.c relies on it. */
	if (npages && (check_add_overflow(first, npages - 1, &last) || last == U64_MAX))
		return -EINVAL;
	m->range = (struct ugds_range){
		.space = space,
		.first = first,
		.last = last,
		.owner = m->ops,
		.flags = m->flags,
	};
	mutex_lock(&l->lock);
	err = reserve_locked(l, m, npages);
	mutex_unlock(&l->lock);
	return err;
}

void ugds_ledger_unreserve(struct ugds_ledger *l, struct ugds_mapping *m)
{
	u64 freed;

	if (!m->token)
		return;
	mutex_lock(&l->lock);
	xa_release(&l->by_token, m->token);
	if (m->covered) {
		freed = ugds_cover_remove(&l->cover, &m->range);
		if (freed)
			l->charge(l, m, -(s64)freed);
	}
	l->nr--;
	m->token = 0;
	mutex_unlock(&l->lock);
}

void ugds_ledger_publish(struct ugds_ledger *l, struct ugds_mapping *m)
{
	xa_lock(&l->by_token);
	/* The slot is reserved: this allocates nothing. */
	__xa_store(&l->by_token, m->token, m, 0);
	list_add_tail(&m->node, &l->order);
	xa_unlock(&l->by_token);
}

struct ugds_mapping *ugds_ledger_get(struct ugds_ledger *l, u64 token)
{
	struct ugds_mapping *m;

	xa_lock(&l->by_token);
	m = xa_load(&l->by_token, token);
	if (m)
		kref_get(&m->ref);
	xa_unlock(&l->by_token);
	return m;
}

struct ugds_mapping *ugds_ledger_take(struct ugds_ledger *l, u64 token)
{
	struct ugds_mapping *m;

	xa_lock(&l->by_token);
	if (token)
		m = xa_load(&l->by_token, token);
	else if (list_empty(&l->order))
		m = NULL;
	else
		m = list_last_entry(&l->order, struct ugds_mapping, node);
	if (m) {
		__xa_erase(&l->by_token, m->token);
		list_del_init(&m->node);
	}
	xa_unlock(&l->by_token);
	return m;
}
