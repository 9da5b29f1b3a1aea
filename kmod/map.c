// SPDX-License-Identifier: GPL-2.0 OR MIT
/* MAP, EXTENTS, UNMAP and QUEUE_ALLOC: kinds of memory, and what all of them have in common. */
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "args.h"
#include "peer.h"

static const struct ugds_map_ops *const kinds[] = {
	[UGDS_DRV_MAP_HOST] = &ugds_host_ops,
	[UGDS_DRV_MAP_DMABUF] = &ugds_dmabuf_ops,
	[UGDS_DRV_MAP_CUDA] = &ugds_cuda_ops,
};

u64 ugds_map_caps(struct ugds_file *f)
{
	u64 caps = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (kinds[i] && kinds[i]->caps)
			caps |= kinds[i]->caps(f);
	}
	return caps;
}

static const struct ugds_map_ops *kind_of(u32 kind)
{
	if (kind >= ARRAY_SIZE(kinds))
		return NULL;
	return kinds[array_index_nospec(kind, ARRAY_SIZE(kinds))];
}

/* Undo what a kind's map did, and the reservation. The caller's reference is gone with it. */
static void unmap(struct ugds_file *f, struct ugds_mapping *m)
{
	m->ops->unmap(m);
	if (atomic_read(&m->revoked))
		atomic_dec(&f->nr_revoked);
	ugds_ledger_unreserve(&f->ledger, m);
	ugds_mapping_put(m);
}

void ugds_unmap_all(struct ugds_file *f)
{
	struct ugds_mapping *m;

	while ((m = ugds_ledger_take(&f->ledger, 0))) {
		unmap(f, m);
		cond_resched();
	}
}

static int copy_extents(const struct ugds_mapping *m, u32 first, u32 nr, u64 to)
{
	if (copy_to_user(u64_to_user_ptr(to), m->extents.v + first,
			 array_size(nr, sizeof(*m->extents.v))))
		return -EFAULT;
	return 0;
}

static int accept(const struct ugds_drv_map *arg, const struct ugds_mapping *m)
{
	if (arg->flags & UGDS_DRV_MAP_CONTIG && m->extents.nr != 1)
		return -ENOTUNIQ;
	if (arg->flags & UGDS_DRV_MAP_REQUIRE_PEER && m->ret_flags & UGDS_DRV_MAPPED_SYSTEM)
		return -EXDEV;
	if (!arg->extents)
		return 0;
	return copy_extents(m, 0, min(arg->nr_extents, m->extents.nr), arg->extents);
}

int ugds_map(struct ugds_file *f, struct ugds_drv_map *arg, void __user *user)
{
	const struct ugds_map_ops *ops;
	struct ugds_mapping *m;
	int err;

	err = ugds_check_map(arg, UGDS_MAX_MAP_BYTES);
	if (err)
		return err;
	ops = kind_of(arg->kind);
	if (!ops)
		return -EOPNOTSUPP;
	err = ops->map(f, arg, &m);
	if (err)
		return err;
	err = accept(arg, m);
	if (err)
		goto unmap;
	arg->nr_extents = m->extents.nr;
	arg->ret_flags = m->ret_flags;
	arg->ret_token = m->token;
	arg->ret_first_off = m->first_off;
	arg->ret_page_size = m->page_size;
	err = -EFAULT;
	if (copy_to_user(user, arg, sizeof(*arg)))
		goto unmap;
	/* Nobody could find it before: a failed copy leaves nothing behind. */
	ugds_ledger_publish(&f->ledger, m);
	return 0;

unmap:
	unmap(f, m);
	return err;
}

int ugds_queue(struct ugds_file *f, struct ugds_drv_queue_alloc *arg, void __user *user)
{
	struct ugds_mapping *m;
	int err;

	if (arg->flags)
		return -EINVAL;
	err = ugds_queue_alloc(f, arg, &m);
	if (err)
		return err;
	if (copy_to_user(user, arg, sizeof(*arg))) {
		unmap(f, m);
		return -EFAULT;
	}
	ugds_ledger_publish(&f->ledger, m);
	return 0;
}

static int extents_of(const struct ugds_mapping *m, struct ugds_drv_extents *arg)
{
	u32 nr;

	if (atomic_read(&m->revoked))
		return -ESTALE;
	if (arg->first > m->extents.nr)
		return -EINVAL;
	nr = min(arg->nr_extents, m->extents.nr - arg->first);
	arg->nr_extents = nr;
	return copy_extents(m, arg->first, nr, arg->extents);
}

int ugds_extents(struct ugds_file *f, struct ugds_drv_extents *arg, void __user *user)
{
	struct ugds_mapping *m;
	int err;

	if (arg->flags)
		return -EINVAL;
	m = ugds_ledger_get(&f->ledger, arg->token);
	if (!m)
		return -ENOENT;
	err = extents_of(m, arg);
	ugds_mapping_put(m);
	if (err)
		return err;
	return copy_to_user(user, arg, sizeof(*arg)) ? -EFAULT : 0;
}

int ugds_unmap(struct ugds_file *f, const struct ugds_drv_unmap *arg)
{
	struct ugds_mapping *m;
	bool busy;

	if (arg->flags)
		return -EINVAL;
	m = ugds_ledger_get(&f->ledger, arg->token);
	if (!m)
		return -ENOENT;
	busy = ugds_queue_is_mapped(m);
	ugds_mapping_put(m);
	if (busy)
		return -EBUSY;
	/* Token 0 would take the newest; no mapping has it, so it did not come here. */
	m = ugds_ledger_take(&f->ledger, arg->token);
	if (!m)
		return -ENOENT;
	unmap(f, m);
	return 0;
}
