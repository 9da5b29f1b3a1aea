/* SPDX-License-Identifier: MIT */
/* ugds.h: namespaces and windows of them. */
#include <stdlib.h>

#include "api/api.h"
#include "nvme/identify.h"

int ugds_ctrl_nsids(struct ugds_ctrl *c, uint32_t *ret_ids, uint32_t max)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	/* acquire: entries are complete before they are counted */
	uint32_t nr = atomic_load_explicit(&c->c->nr_ns, memory_order_acquire), n = 0;

	for (uint32_t i = 0; i < nr; i++) {
		const struct nvme_nsdata *d = &c->c->ns[i];

		if (!atomic_load_explicit(&d->active, memory_order_relaxed))
			continue;
		if (n < max)
			ret_ids[n] = d->nsid;
		n++;
	}
	/* what was attached later comes last */
	for (uint32_t i = 1; i < n && i < max; i++)
		for (uint32_t k = i; k && ret_ids[k] < ret_ids[k - 1]; k--) {
			uint32_t id = ret_ids[k];

			ret_ids[k] = ret_ids[k - 1];
			ret_ids[k - 1] = id;
		}
	return (int)n;
}

int ugds_ns_info(struct ugds_ctrl *c, uint32_t nsid, struct ugds_ns_info *ret)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	const struct nvme_nsdata *d = nvme_ctrl_ns(c->c, nsid);

	if (!d)
		return -ENOENT;
	*ret = (struct ugds_ns_info){
		.nsid = nsid,
		.lba_bytes = 1u << d->lba_shift,
		.metadata_bytes = d->metadata,
		.readonly = d->readonly || c->c->p.readonly,
		.nblocks = d->nblocks,
		.nbytes = d->usable ? d->nblocks << d->lba_shift : 0,
		.usable = d->usable,
		.nawupf_blocks = d->nawupf + 1, /* zero based in the identify data */
	};
	return 0;
}

int ugds_ns_open(struct ugds_ctrl *uc, uint32_t nsid, uint64_t base, uint64_t nbytes, int readonly,
		 struct ugds_ns **ret, struct ugds_error *err)
{
	api_visitor *in = api_enter(uc);

	if (!in)
		return -ESHUTDOWN;

	struct nvme_ctrl *c = uc->c;
	const struct nvme_nsdata *d = nvme_ctrl_ns(c, nsid);
	struct nvme_err ne;
	struct nvme_ns *ns;
	uint64_t size, lba;
	uint32_t most;
	int rc;

	if (!d || !d->active) {
		rc = nvme_err_set(&ne, -ENOENT, 0, "namespace %u is not active on this controller", nsid);
		goto fail;
	}
	if (!d->usable) {
		rc = nvme_err_set(
			&ne, -ENOTSUP, 0,
			"namespace %u has a format of %u-byte blocks with %u bytes of metadata, which is not "
			"supported: format it without metadata, with blocks of 512 to 65536 bytes",
			nsid, 1u << d->lba_shift, d->metadata);
		goto fail;
	}
	lba = 1ull << d->lba_shift;
	if (lba > c->max_transfer) {
		rc = nvme_err_set(
			&ne, -ENOTSUP, 0,
			"namespace %u has blocks of %llu bytes, but a command can carry only %u (the lower "
			"of "
			"MDTS and max_transfer): open with a larger max_transfer, or format it with smaller "
			"blocks",
			nsid, (unsigned long long)lba, c->max_transfer);
		goto fail;
	}
	size = d->nblocks << d->lba_shift;
	if ((base | nbytes) & (lba - 1)) {
		rc = nvme_err_set(&ne, -EINVAL, 0,
				  "a region of %llu bytes at %llu is not made of whole blocks: both must be "
				  "multiples of %llu",
				  (unsigned long long)nbytes, (unsigned long long)base,
				  (unsigned long long)lba);
		goto fail;
	}
	if (base > size || nbytes > size - base) {
		rc = nvme_err_set(&ne, -ERANGE, 0,
				  "a region of %llu bytes at %llu reaches past the end of namespace %u, %llu",
				  (unsigned long long)nbytes, (unsigned long long)base, nsid,
				  (unsigned long long)size);
		goto fail;
	}
	ns = calloc(1, sizeof(*ns));
	if (!ns) {
		rc = nvme_err_set(&ne, -ENOMEM, 0, "no memory for the namespace object");
		goto fail;
	}
	most = (uint32_t)min_u64(c->max_transfer, 65536 * lba); /* NLB has 16 bits */
	ns->ctrl = c;
	ns->nsid = nsid;
	ns->lba_shift = d->lba_shift;
	ns->max_bytes = (uint32_t)align_down(most, lba);
	ns->readonly = readonly || d->readonly || c->p.readonly;
	ns->base = base;
	ns->want = nbytes;
	ns->data = d;
	/* under the lock: closing looks at the count and changes the state under it */
	pthread_mutex_lock(&c->lock);
	rc = nvme_ctrl_check(c) == -ESHUTDOWN ? -ESHUTDOWN : 0;
	if (!rc)
		nvme_window_add(c, ns);
	pthread_mutex_unlock(&c->lock);
	if (rc) {
		free(ns);
		nvme_err_set(&ne, rc, 0, "the controller is closed");
		goto fail;
	}
	*ret = (struct ugds_ns *)ns;
	return 0;
fail:
	api_error(err, rc, 0, ne.text);
	return rc;
}

uint64_t ugds_ns_size(struct ugds_ns *ns)
{
	return atomic_load_explicit(&ns_of(ns)->nbytes, memory_order_relaxed);
}

int ugds_ns_gone(struct ugds_ns *ns) { return atomic_load_explicit(&ns_of(ns)->gone, memory_order_relaxed); }

int ugds_ns_close(struct ugds_ns *uns)
{
	struct nvme_ns *ns = ns_of(uns);

	/* acquire: pairs with the release of the last operation's reference */
	if (atomic_load_explicit(&ns->ref, memory_order_acquire))
		return -EBUSY;
	nvme_window_del(ns->ctrl, ns);
	return 0;
}

void ugds_ns_free(struct ugds_ns *uns)
{
	/* an operation that another thread began while it was closed has it still: a leak, but not a corruption */
	if (!atomic_load_explicit(&ns_of(uns)->ref, memory_order_acquire))
		free(uns);
}
