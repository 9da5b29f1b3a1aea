/* SPDX-License-Identifier: MIT */
/* Identify controller, active namespace list, namespaces. What a device says is checked before it is
 * believed. */
#include <stdlib.h>

#include "nvme/identify.h"
#include "nvme/status.h"

#define MAX_NS 4096 /* looked at; a list that is longer is cut */
#define LIST_IDS 1024
#define SPARE_NS 32 /* namespaces that can be attached while it is open */
#define SHIFT_MOST 31 /* of a block size that is remembered, for its words */

static int identify(struct nvme_ctrl *c, uint32_t cns, uint32_t nsid, void *data, uint16_t *ret_status)
{
	struct nvme_sqe sqe = {
		.opcode = NVME_ADM_IDENTIFY,
		.nsid = le32_put(nsid),
		.cdw10 = le32_put(cns),
	};
	uint32_t dw0;

	return nvme_admin_sync(c, &sqe, data, 4096, false, &dw0, ret_status);
}

/* Space padded, not terminated, and possibly not even printable. */
static void copy_text(char *dst, const char *src, size_t n)
{
	while (n && (src[n - 1] == ' ' || !src[n - 1]))
		n--;
	for (size_t i = 0; i < n; i++)
		dst[i] = src[i] >= ' ' && src[i] <= '~' ? src[i] : '?';
	dst[n] = '\0';
}

static uint32_t mdts_bytes(const struct nvme_ctrl *c, uint8_t mdts)
{
	uint32_t shift = 12u + NVME_CAP_MPSMIN(c->cap) + mdts;

	/* MDTS 0 is "no limit"; one beyond 2 GiB limits nothing that fits a command */
	return !mdts || shift > 30 ? 0 : 1u << shift;
}

static int identify_ctrl(struct nvme_ctrl *c, bool again, struct nvme_err *err)
{
	struct nvme_id_ctrl id;
	char serial[sizeof(c->serial)] = { 0 };
	uint16_t status;
	int rc = identify(c, NVME_CNS_CTRL, 0, &id, &status);

	if (rc)
		return nvme_err_set(err, rc, status, "Identify Controller failed: %s (status 0x%x, errno %d)",
				    status ? nvme_status_name(status) : "no answer", status, -rc);
	if ((id.sqes & 0xf) > NVME_SQES || id.sqes >> 4 < NVME_SQES || (id.cqes & 0xf) > NVME_CQES ||
	    id.cqes >> 4 < NVME_CQES)
		return nvme_err_set(
			err, -EOPNOTSUPP, 0,
			"the controller does not take 64-byte submission and 16-byte completion entries "
			"(SQES 0x%02x, CQES 0x%02x): it has no NVM command set",
			id.sqes, id.cqes);
	copy_text(serial, id.sn, sizeof(id.sn));
	if (again && strcmp(serial, c->serial))
		return nvme_err_set(
			err, -ENODEV, 0,
			"after the reset another controller answers (serial %s; it was %s); close and "
			"open it again",
			serial, c->serial);
	if (again)
		return 0; /* others read these without a lock */
	memcpy(c->serial, serial, sizeof(serial));
	copy_text(c->firmware, id.fr, sizeof(id.fr));
	copy_text(c->model, id.mn, sizeof(id.mn));
	c->vid = le16_get(id.vid);
	c->nn = le32_get(id.nn);
	c->mdts_bytes = mdts_bytes(c, id.mdts);
	c->oncs = le16_get(id.oncs);
	c->oacs = le16_get(id.oacs);
	c->oaes = le32_get(id.oaes);
	c->vwc = id.vwc;
	c->acl = id.acl;
	c->aerl = id.aerl;
	c->awupf = le16_get(id.awupf);
	c->rtd3e_us = le32_get(id.rtd3e);
	for (uint32_t i = 0; i < ARRAY_SIZE(c->crdt) && c->p.retries; i++)
		c->crdt[i] = le16_get(id.crdt[i]);
	return 0;
}

void nvme_ns_parse(const struct nvme_ctrl *c, const struct nvme_id_ns *id, struct nvme_ns_facts *ret)
{
	uint32_t fmt = (id->flbas & 0xf) | ((id->flbas >> 1) & 0x30); /* bits 3:0 and 6:5 */
	const struct nvme_lbaf *f = &id->lbaf[fmt];

	*ret = (struct nvme_ns_facts){
		.lba_shift = min_u32(f->lbads, SHIFT_MOST),
		.metadata = le16_get(f->ms),
		.nblocks = le64_get(id->nsze),
		/* NSFEAT.NSABP: the namespace has a value of its own */
		.nawupf = id->nsfeat & 2 ? le16_get(id->nawupf) : c->awupf,
		.readonly = id->nsattr & 1,
		.active = id->nsze,
	};
	/* byte offsets are signed 64-bit numbers above us */
	ret->usable = f->lbads >= 9 && f->lbads <= 16 && !ret->metadata && ret->nblocks &&
		      ret->nblocks <= (uint64_t)INT64_MAX >> f->lbads;
}

/* Room for one more, and for those that are attached later. Nobody else looks before bring-up is over. */
static bool make_room(struct nvme_ctrl *c)
{
	uint32_t want = c->nr_ns + SPARE_NS + 1;
	struct nvme_nsdata *ns;

	if (c->nr_ns + SPARE_NS < c->max_ns)
		return true;
	ns = realloc(c->ns, want * sizeof(*ns));
	if (!ns)
		return false;
	c->ns = ns;
	c->max_ns = want;
	return true;
}

static int add_ns(struct nvme_ctrl *c, uint32_t nsid, struct nvme_err *err)
{
	struct nvme_id_ns id;
	struct nvme_ns_facts f;
	uint16_t status;
	int rc = identify(c, NVME_CNS_NS, nsid, &id, &status);

	if (rc == -EIO && status)
		return 0; /* it went away, or was never there */
	if (rc)
		return nvme_err_set(err, rc, status, "Identify Namespace %u got no answer (errno %d)", nsid,
				    -rc);
	if (!id.nsze)
		return 0; /* inactive: all zero */
	nvme_ns_parse(c, &id, &f);
	if (!make_room(c))
		return nvme_err_set(err, -ENOMEM, 0, "no memory for %u namespaces", c->nr_ns);
	nvme_ns_append(c, nsid, &f);
	return 0;
}

/* Controllers without CNS 02h: ask for each. */
static int scan_all(struct nvme_ctrl *c, struct nvme_err *err)
{
	int rc = 0;

	for (uint32_t nsid = 1; !rc && nsid <= min_u32(c->nn, MAX_NS); nsid++)
		rc = add_ns(c, nsid, err);
	return rc;
}

static int scan_active(struct nvme_ctrl *c, struct nvme_err *err)
{
	le32_t *ids = malloc(LIST_IDS * sizeof(*ids));
	uint32_t last = 0, i;
	uint16_t status;
	int rc;

	if (!ids)
		return nvme_err_set(err, -ENOMEM, 0, "no memory for the namespace list");
	do {
		rc = identify(c, NVME_CNS_ACTIVE_NS, last, ids, &status);
		if (rc == -EIO && status && !last) {
			rc = scan_all(c, err);
			break;
		}
		if (rc) {
			nvme_err_set(err, rc, status,
				     "the active namespace list cannot be read: %s (status 0x%x)",
				     status ? nvme_status_name(status) : "no answer", status);
			break;
		}
		/* strictly ascending, or the walk might never end */
		for (i = 0; i < LIST_IDS && le32_get(ids[i]) > last && c->nr_ns < MAX_NS && !rc; i++) {
			last = le32_get(ids[i]);
			rc = add_ns(c, last, err);
		}
	} while (!rc && i == LIST_IDS && last < 0xfffffffdu);
	free(ids);
	return rc;
}

static int refresh(struct nvme_ctrl *c, struct nvme_err *err)
{
	for (uint32_t i = 0; i < c->nr_ns; i++) {
		struct nvme_id_ns id;
		struct nvme_ns_facts f = { 0 };
		uint16_t status;
		int rc = identify(c, NVME_CNS_NS, c->ns[i].nsid, &id, &status);

		if (rc && !status)
			return nvme_err_set(err, rc, 0, "Identify Namespace %u got no answer (errno %d)",
					    c->ns[i].nsid, -rc);
		if (rc && !nvme_status_no_ns(status))
			continue; /* it says nothing about the namespace */
		if (!rc)
			nvme_ns_parse(c, &id, &f);
		nvme_ns_update(c, &c->ns[i], &f);
	}
	return 0;
}

int nvme_ctrl_identify(struct nvme_ctrl *c, struct nvme_err *err)
{
	bool again = c->identified;
	int rc = identify_ctrl(c, again, err);

	if (rc)
		return rc;
	if (!again && !make_room(c))
		return nvme_err_set(err, -ENOMEM, 0, "no memory for a list of namespaces");
	rc = again ? refresh(c, err) : scan_active(c, err);
	c->identified |= !rc;
	return rc;
}

const struct nvme_nsdata *nvme_ctrl_ns(struct nvme_ctrl *c, uint32_t nsid)
{
	uint32_t nr = atomic_load_explicit(&c->nr_ns, memory_order_acquire);

	for (uint32_t i = 0; i < nr; i++)
		if (c->ns[i].nsid == nsid)
			return &c->ns[i];
	return NULL;
}
