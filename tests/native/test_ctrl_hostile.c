/* SPDX-License-Identifier: MIT */
/* Devices that lie, refuse or vanish at bring-up: a clear error or a namespace that is not used, never a
 * crash. */
#include "dummy_ctrl.h"
#include "tapf.h"

static const struct nvme_open_params params = { .io_queues = 4, .depth = 8, .hang_admin_ns = NSEC_PER_SEC };

/* Opens @d; what it then says is looked at by @check, or the open has to fail with @want and @words in its
 * text. */
static void refused(struct dummy *d, bool *closed, const struct nvme_open_params *p, int want,
		    const char *words)
{
	struct nvme_err err = { 0 };
	struct nvme_ctrl *c = NULL;
	int rc = nvme_ctrl_open(&dummy_ctrl_ops, d, p, &c, &err);

	okf(rc == want && strstr(err.text, words), "refused (%d): %s", rc, err.text);
	okf(*closed && !c, "and the transport was given back");
}

static struct nvme_ctrl *accepted(struct dummy *d)
{
	struct nvme_err err = { 0 };
	struct nvme_ctrl *c = NULL;
	int rc = nvme_ctrl_open(&dummy_ctrl_ops, d, &params, &c, &err);

	okf(!rc, "opens (%d %s)", rc, err.text);
	return c;
}

static void test_refusals(void)
{
	struct nvme_open_params p = params;
	bool closed;
	struct dummy *d;

	d = dummy_new(&closed);
	d->gone = true;
	refused(d, &closed, &p, -ENODEV, "all ones");

	d = dummy_new(&closed);
	d->cap &= ~0xffffull;
	refused(d, &closed, &p, -EOPNOTSUPP, "MQES");

	d = dummy_new(&closed);
	d->cap |= 5ull << 48;
	refused(d, &closed, &p, -EOPNOTSUPP, "2^17");

	d = dummy_new(&closed);
	d->cap &= ~(1ull << 37);
	refused(d, &closed, &p, -EOPNOTSUPP, "NVM command set");

	d = dummy_new(&closed);
	d->id.sqes = 0x77;
	refused(d, &closed, &p, -EOPNOTSUPP, "0x77");

	d = dummy_new(&closed);
	p.wrr = true;
	refused(d, &closed, &p, -EOPNOTSUPP, "weighted round robin");
	p = params;

	d = dummy_new(&closed);
	p.io_queues = 129;
	refused(d, &closed, &p, -EINVAL, "129");
	p = params;

	d = dummy_new(&closed);
	p.max_transfer = 512;
	refused(d, &closed, &p, -EINVAL, "512");
}

static void test_namespaces(void)
{
	bool closed;
	struct dummy *d = dummy_new(&closed);
	const struct nvme_nsdata *ns;
	struct nvme_ctrl *c;

	memset(d->active, 0xff, sizeof(d->active)); /* ends at once: 0xffffffff is not followed by more */
	for (uint32_t i = 0; i < 4; i++)
		d->active[i] = le32_put(i + 1);
	d->ns[1].nsze = le64_put(UINT64_MAX); /* times 512 overflows */
	d->ns[1].lbaf[0].lbads = 9;
	d->ns[2].nsze = le64_put(1000);
	d->ns[2].flbas = 0x61 | 0x0e; /* format 63: bits 6:5 and 3:0 */
	d->ns[2].lbaf[63].lbads = 12;
	d->ns[2].lbaf[63].ms = le16_put(8);
	d->ns[3].nsze = le64_put(77);
	d->ns[3].flbas = 0x20; /* format 16 */
	d->ns[3].lbaf[16].lbads = 12;
	d->ns[3].nsattr = 1;
	c = accepted(d);
	if (!c)
		return;
	okf(c->nr_ns == 4, "four namespaces (%u)", c->nr_ns);
	ns = nvme_ctrl_ns(c, 2);
	okf(ns && !ns->usable, "a capacity beyond 63 bits is not used");
	ns = nvme_ctrl_ns(c, 3);
	okf(ns && !ns->usable && ns->metadata == 8 && ns->lba_shift == 12,
	    "metadata format: remembered, not used");
	ns = nvme_ctrl_ns(c, 4);
	okf(ns && ns->usable && ns->lba_shift == 12 && ns->nblocks == 77 && ns->readonly,
	    "format 16, write protected");
	okf(!nvme_ctrl_close(c, false) && closed, "closes");

	d = dummy_new(&closed);
	d->ns[0].lbaf[0].lbads = 8;
	c = accepted(d);
	okf(!nvme_ctrl_ns(c, 1)->usable, "256-byte blocks do not exist");
	nvme_ctrl_close(c, false);

	d = dummy_new(&closed);
	d->ns[0].lbaf[0].lbads = 255;
	c = accepted(d);
	okf(!nvme_ctrl_ns(c, 1)->usable, "nor do blocks of 2^255 bytes");
	nvme_ctrl_close(c, false);
}

static void test_lists(void)
{
	bool closed;
	struct dummy *d = dummy_new(&closed);
	struct nvme_ctrl *c;

	for (uint32_t i = 0; i < 1024; i++)
		d->active[i] = le32_put(1); /* never ascending, never ending */
	c = accepted(d);
	okf(c->nr_ns == 1, "a list that repeats itself ends");
	nvme_ctrl_close(c, false);

	d = dummy_new(&closed);
	d->no_active_list = true;
	d->id.nn = le32_put(0xffffffff);
	d->ns[2] = d->ns[0];
	c = accepted(d);
	okf(c->nr_ns == 2 && nvme_ctrl_ns(c, 1) && nvme_ctrl_ns(c, 3),
	    "no list: namespaces are asked for one by one");
	nvme_ctrl_close(c, false);

	d = dummy_new(&closed);
	d->active[0] = 0;
	c = accepted(d);
	okf(c->nr_ns == 0, "a controller without namespaces");
	nvme_ctrl_close(c, false);
}

static void test_limits(void)
{
	bool closed;
	struct dummy *d = dummy_new(&closed);
	struct nvme_err err = { 0 };
	struct nvme_ctrl *c;

	d->id.mdts = 0;
	c = accepted(d);
	okf(!c->mdts_bytes && c->max_transfer == 1u << 20, "MDTS 0 is no limit: our own holds");
	nvme_ctrl_close(c, false);

	d = dummy_new(&closed);
	d->id.mdts = 255;
	c = accepted(d);
	okf(!c->mdts_bytes && c->max_transfer == 1u << 20, "MDTS 255 does not overflow");
	nvme_ctrl_close(c, false);

	d = dummy_new(&closed);
	d->grant = 9; /* ten submission queues, one completion queue */
	d->cap = (d->cap & ~0xffffull) | 1;
	c = accepted(d);
	okf(c->nr_qpairs == 1 && c->p.depth == 2, "one pair of two entries: the scarcer kind and MQES rule");
	okf(!d->admin_seen[NVME_ADM_ASYNC_EVENT],
	    "an admin queue of two entries has no room for event requests");
	okf(!nvme_ctrl_reset(c, &err), "and can be reset (%s)", err.text);
	nvme_ctrl_close(c, false);
}

static void test_removal(void)
{
	bool closed;
	struct dummy *d = dummy_new(&closed);
	struct nvme_ctrl *c = accepted(d);
	char why[128];

	pthread_mutex_lock(&d->lock);
	d->gone = true;
	pthread_mutex_unlock(&d->lock);
	for (int i = 0; i < 300 && nvme_ctrl_check(c) != -ENODEV; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	nvme_ctrl_reason(c, why, sizeof(why));
	okf(nvme_ctrl_check(c) == -ENODEV && strstr(why, "all ones"), "housekeeping notices a removal: %s",
	    why);
	okf(nvme_ctrl_reset(c, NULL) == -ENODEV, "a reset of nothing is refused");
	okf(!nvme_ctrl_close(c, false) && closed, "closes");
}

int main(void)
{
	test_refusals();
	test_namespaces();
	test_lists();
	test_limits();
	test_removal();
	return done_testing();
}
