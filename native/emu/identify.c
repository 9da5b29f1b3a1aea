/* SPDX-License-Identifier: MIT */
/* Identify data (Base 5.17). */
#include <string.h>

#include "emu/internal.h"

#define VENDOR_ID 0xa10d
#define ID_BYTES 4096

static_assert(EMU_SCRATCH_BYTES >= ID_BYTES, "identify data is built in the scratch buffer");

static void pad(char *dst, size_t len, const char *src)
{
	size_t n = strnlen(src, len);

	memset(dst, ' ', len);
	memcpy(dst, src, n);
}

static uint32_t highest_id(struct emu_ctrl *e)
{
	uint32_t nn = 0;

	for (uint32_t i = 0; i < e->nr_ns; i++)
		nn = e->ns[i].id > nn ? e->ns[i].id : nn;
	return nn;
}

static void fill_ctrl(struct emu_ctrl *e, struct nvme_id_ctrl *id)
{
	const struct emu_params *p = &e->p;
	uint32_t nn = highest_id(e);

	id->vid = le16_put(VENDOR_ID);
	id->ssvid = le16_put(VENDOR_ID);
	pad(id->sn, sizeof(id->sn), p->serial);
	pad(id->mn, sizeof(id->mn), p->model);
	pad(id->fr, sizeof(id->fr), "1.0");
	id->rab = 3;
	id->mdts = p->mdts;
	id->cntlid = le16_put(1);
	id->ver = le32_put(0x00020000);
	for (uint32_t i = 0; i < ARRAY_SIZE(id->crdt); i++)
		id->crdt[i] = le16_put(p->crdt[i]);
	id->oaes = le32_put(1u << 8); /* namespace attribute notices */
	id->oacs = le16_put(p->dbbuf ? NVME_OACS_DBBUF : 0);
	id->acl = p->acl;
	id->aerl = p->aerl;
	id->frmw = 1u << 1 | 1; /* one slot, read-only */
	id->lpa = 1u << 2; /* extended data: length and offset of log pages */
	id->elpe = EMU_ERRLOG - 1;
	id->sqes = NVME_SQES << 4 | NVME_SQES;
	id->cqes = NVME_CQES << 4 | NVME_CQES;
	id->nn = le32_put(nn);
	id->mnan = le32_put(nn);
	id->oncs = le16_put(NVME_ONCS_COMPARE | NVME_ONCS_DSM | NVME_ONCS_WRITE_ZEROES | NVME_ONCS_VERIFY);
	id->vwc = p->vwc ? NVME_VWC_PRESENT | 3u << 1 : 0; /* Flush takes NSID FFFFFFFFh */
	id->awun = le16_put(p->awupf);
	id->awupf = le16_put(p->awupf);
}

static void fill_ns(struct emu_ctrl *e, struct emu_ns *ns, struct nvme_id_ns *id)
{
	uint64_t blocks = atomic_load_explicit(&ns->nr_blocks, memory_order_relaxed);
	uint64_t used = e->nodata ? blocks : emu_backing_used(ns) >> ns->shift;

	id->nsze = le64_put(blocks);
	id->ncap = le64_put(blocks);
	id->nuse = le64_put(min_u64(used, blocks));
	id->nsfeat = 1; /* thin: NUSE is what is stored */
	id->dlfeat = 1u << 3 | 1; /* deallocated blocks read as zeros; write zeroes may deallocate */
	id->nsattr = ns->readonly;
	id->lbaf[0] = (struct nvme_lbaf){ .ms = le16_put((uint16_t)ns->metadata_bytes), .lbads = ns->shift };
}

static void put_desc(uint8_t **p, uint8_t type, uint8_t len, const void *value)
{
	(*p)[0] = type;
	(*p)[1] = len;
	memcpy(*p + 4, value, len);
	*p += 4 + len;
}

/* Namespace identification descriptors: a UUID made from the serial number, and the command set (NVM). */
static void fill_desc(struct emu_ctrl *e, struct emu_ns *ns, uint8_t *p)
{
	uint64_t state = ns->id, half[2];
	uint8_t uuid[16], csi = 0;

	for (const char *c = e->p.serial; *c; c++)
		state = state * 131 + (uint8_t)*c;
	half[0] = emu_rand(&state);
	half[1] = emu_rand(&state);
	memcpy(uuid, half, sizeof(uuid));
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80); /* version 8: vendor's own */
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
	put_desc(&p, 3, sizeof(uuid), uuid);
	put_desc(&p, 4, sizeof(csi), &csi);
}

static void fill_active(struct emu_ctrl *e, uint32_t after, le32_t *list)
{
	uint32_t n = 0, last = after;

	/* ascending; the namespaces may be in any order */
	for (;;) {
		uint32_t best = NVME_NSID_ALL;

		for (uint32_t i = 0; i < e->nr_ns; i++) {
			uint32_t nsid = atomic_load_explicit(&e->ns[i].nsid, memory_order_relaxed);

			if (nsid > last && nsid < best && nsid != EMU_NSID_DETACHED)
				best = nsid;
		}
		if (best == NVME_NSID_ALL)
			return;
		list[n++] = le32_put(best);
		last = best;
	}
}

uint16_t emu_identify(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint32_t nsid = le32_get(s->nsid), nn = highest_id(e);
	struct emu_ns *ns = emu_ns_find(e, nsid);
	uint8_t cns = le32_get(s->cdw10) & 0xff;
	enum emu_page page;

	memset(a->scratch, 0, ID_BYTES);
	switch (cns) {
	case NVME_CNS_CTRL:
		page = EMU_PAGE_CTRL;
		fill_ctrl(e, (void *)a->scratch);
		break;
	case NVME_CNS_ACTIVE_NS:
		if (nsid >= NVME_NSID_ALL - 1)
			return NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_NS) | EMU_DNR;
		page = EMU_PAGE_LIST;
		fill_active(e, nsid, (void *)a->scratch);
		break;
	case NVME_CNS_NS:
	case NVME_CNS_NS_DESC:
		if (!nsid || nsid > nn || (cns == NVME_CNS_NS_DESC && !ns))
			return NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_NS) | EMU_DNR;
		page = cns == NVME_CNS_NS ? EMU_PAGE_NS : EMU_PAGE_DESC;
		/* an inactive namespace is all zeros */
		if (ns && cns == NVME_CNS_NS)
			fill_ns(e, ns, (void *)a->scratch);
		else if (ns)
			fill_desc(e, ns, a->scratch);
		break;
	default:
		return NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_FIELD) | EMU_DNR;
	}
	emu_garble(e, page, a->scratch, ID_BYTES);
	return emu_copy_to_host(a, s, a->scratch, ID_BYTES);
}
