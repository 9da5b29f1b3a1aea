/* SPDX-License-Identifier: MIT */
/* Namespaces that change under the host: another size, gone, back, or new (NVMe base, clause 8.11). */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emu/internal.h"

/* Attached or not. Under admin_lock. */
static struct emu_ns *find_any(struct emu_ctrl *e, uint32_t nsid, uint32_t *ret_index)
{
	for (uint32_t i = 0; i < e->nr_ns; i++) {
		if (e->ns[i].id == nsid) {
			*ret_index = i;
			return &e->ns[i];
		}
	}
	return NULL;
}

static void tell(struct emu_ctrl *e, uint32_t index)
{
	/* posting to the admin queue needs no host memory but its ring, so this actor holds nothing */
	struct emu_actor a = { .e = e };

	emu_event_from(&a, NVME_AER_NOTICE | NVME_AER_NOTICE_NS << 8 | (uint32_t)NVME_LOG_CHANGED_NS << 16,
		       1u << index);
}

/* What is cut off is not seen again: a namespace that grows back begins with zeros. */
static void cut(struct emu_ns *ns, uint64_t from, uint64_t to)
{
	if (ns->fd < 0 && from < to)
		emu_memory_zero(ns, from, to - from);
}

static int set_size(struct emu_ns *ns, uint64_t nbytes)
{
	struct stat st;

	if (ns->fd < 0)
		return nbytes > ns->max_bytes ? -EFBIG : 0;
	/* nothing is cut off a file: it is somebody's */
	if (fstat(ns->fd, &st) || ((uint64_t)st.st_size < nbytes && ftruncate(ns->fd, (off_t)nbytes)))
		return -errno;
	return 0;
}

int emu_ns_resize(struct emu_ctrl *e, uint32_t nsid, uint64_t nbytes)
{
	struct emu_ns *ns;
	uint32_t index;
	uint64_t old;
	int err;

	pthread_mutex_lock(&e->admin_lock);
	ns = find_any(e, nsid, &index);
	if (!ns)
		err = -ENOENT;
	else if (!nbytes || nbytes & ((1ull << ns->shift) - 1))
		err = -EINVAL;
	else if (ns->readonly)
		err = -EROFS;
	else
		err = set_size(ns, nbytes);
	if (!err) {
		old = ns->nbytes;
		ns->nbytes = nbytes;
		atomic_store_explicit(&ns->tail_bytes, 0, memory_order_relaxed);
		atomic_store_explicit(&ns->nr_blocks, nbytes >> ns->shift, memory_order_relaxed);
		cut(ns, nbytes, old);
	}
	pthread_mutex_unlock(&e->admin_lock);
	if (!err)
		tell(e, index);
	return err;
}

/* Under admin_lock. */
static int add(struct emu_ctrl *e, uint32_t nsid, uint64_t nbytes)
{
	struct emu_params p = {
		.nr_ns = 1,
		.ns = { { .nsid = nsid, .lba_bytes = 1u << e->ns[0].shift, .nbytes = nbytes } },
	};
	uint32_t nr = e->nr_ns;
	char err[128];
	int rc;

	if (nr == EMU_MAX_NS)
		return -ENOSPC;
	if (!nsid || nsid >= EMU_NSID_DETACHED - 1 || !nbytes || nbytes & (p.ns[0].lba_bytes - 1))
		return -EINVAL;
	rc = emu_backing_open(&p, 0, &e->ns[nr], err, sizeof(err));
	if (!rc)
		atomic_store_explicit(&e->nr_ns, nr + 1, memory_order_release);
	return rc;
}

int emu_ns_attach(struct emu_ctrl *e, uint32_t nsid, uint64_t nbytes, bool on)
{
	struct emu_ns *ns;
	uint32_t index = 0;
	int err = 0;

	pthread_mutex_lock(&e->admin_lock);
	ns = find_any(e, nsid, &index);
	if (!ns && on) {
		index = e->nr_ns;
		err = add(e, nsid, nbytes);
	} else if (!ns || (on && nbytes)) {
		err = ns ? -EEXIST : -ENOENT;
	} else {
		atomic_store_explicit(&ns->nsid, on ? ns->id : EMU_NSID_DETACHED, memory_order_relaxed);
	}
	pthread_mutex_unlock(&e->admin_lock);
	if (!err)
		tell(e, index);
	return err;
}
