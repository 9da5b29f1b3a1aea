/* SPDX-License-Identifier: MIT */
/* Windows of namespaces: their bounds follow what the device says, while operations run. */
#include "nvme/identify.h"

/* Under ns_lock. An operation checked against the old size just now meets the device's own check. */
static void fit(struct nvme_ns *w)
{
	const struct nvme_nsdata *d = w->data;
	bool usable = atomic_load_explicit(&d->usable, memory_order_relaxed);
	uint64_t size = atomic_load_explicit(&d->nblocks, memory_order_relaxed) << d->lba_shift;
	uint64_t n = usable && size > w->base ? size - w->base : 0;

	if (w->want)
		n = min_u64(n, w->want);
	atomic_store_explicit(&w->gone, !usable, memory_order_relaxed);
	atomic_store_explicit(&w->nbytes, n, memory_order_relaxed);
}

void nvme_window_add(struct nvme_ctrl *c, struct nvme_ns *w)
{
	pthread_mutex_lock(&c->ns_lock);
	fit(w);
	w->next = c->windows;
	c->windows = w;
	pthread_mutex_unlock(&c->ns_lock);
	atomic_fetch_add_explicit(&c->nr_ns_open, 1, memory_order_relaxed);
}

void nvme_window_del(struct nvme_ctrl *c, struct nvme_ns *w)
{
	pthread_mutex_lock(&c->ns_lock);
	for (struct nvme_ns **p = &c->windows; *p; p = &(*p)->next) {
		if (*p == w) {
			*p = w->next;
			break;
		}
	}
	pthread_mutex_unlock(&c->ns_lock);
	/* release: whoever sees the count at zero may free the controller */
	atomic_fetch_sub_explicit(&c->nr_ns_open, 1, memory_order_release);
}

void nvme_ns_update(struct nvme_ctrl *c, struct nvme_nsdata *ns, const struct nvme_ns_facts *f)
{
	bool same = f->lba_shift == ns->lba_shift && f->metadata == ns->metadata;

	/* relaxed: a user that acts on an old size gets the device's own answer */
	atomic_store_explicit(&ns->readonly, f->readonly, memory_order_relaxed);
	atomic_store_explicit(&ns->active, f->active, memory_order_relaxed);
	atomic_store_explicit(&ns->usable, f->usable && same, memory_order_relaxed);
	atomic_store_explicit(&ns->nblocks, same ? f->nblocks : 0, memory_order_relaxed);
	pthread_mutex_lock(&c->ns_lock);
	for (struct nvme_ns *w = c->windows; w; w = w->next)
		if (w->data == ns)
			fit(w);
	pthread_mutex_unlock(&c->ns_lock);
}

/* The only writer of the list is bring-up, then housekeeping. */
bool nvme_ns_append(struct nvme_ctrl *c, uint32_t nsid, const struct nvme_ns_facts *f)
{
	uint32_t nr = atomic_load_explicit(&c->nr_ns, memory_order_relaxed);
	struct nvme_nsdata *ns = &c->ns[nr];

	if (nr >= c->max_ns)
		return false;
	memset(ns, 0, sizeof(*ns));
	ns->nsid = nsid;
	ns->lba_shift = f->lba_shift;
	ns->metadata = f->metadata;
	ns->nawupf = f->nawupf;
	nvme_ns_update(c, ns, f);
	/* release: whoever sees the count sees the entry */
	atomic_store_explicit(&c->nr_ns, nr + 1, memory_order_release);
	return true;
}
