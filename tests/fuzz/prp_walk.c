/* SPDX-License-Identifier: MIT */
/* PRP entries as a controller reads them (Base 4.1.1), chained lists included. */
#include "model.h"

/* Bytes at @iova are the host's at @vaddr; an IO page at a time, as the puppet's bus has it. */
static const char *same(struct puppet *p, uint64_t iova, const uint8_t *vaddr, uint64_t n, uint32_t perm)
{
	while (n) {
		uint64_t k = min_u64(n, 4096 - (iova & 4095));

		if (puppet_at(p, iova, k, perm) != vaddr)
			return "an entry points elsewhere";
		iova += k;
		vaddr += k;
		n -= k;
	}
	return NULL;
}

const char *prp_walk(struct puppet *p, uint64_t prp1, uint64_t prp2, uint32_t page, const uint8_t *vaddr,
		     uint32_t nbytes, uint32_t perm)
{
	uint64_t n = min_u64(nbytes, page - (prp1 & (page - 1)));
	const char *bad;
	uint64_t at;

	if (prp1 & 3)
		return "PRP1 is not dword aligned";
	bad = same(p, prp1, vaddr, n, perm);
	nbytes -= (uint32_t)n;
	vaddr += n;
	if (bad || !nbytes)
		return bad;
	if (nbytes <= page)
		return prp2 & (page - 1) ? "PRP2 has an offset" : same(p, prp2, vaddr, nbytes, perm);
	if (prp2 & 7)
		return "the list is not qword aligned";
	for (at = prp2; nbytes; at += sizeof(le64_t)) {
		bool last = (at & (page - 1)) == page - sizeof(le64_t);
		const le64_t *e = puppet_at(p, at, sizeof(*e), DMA_READ);
		uint64_t entry;

		if (!e)
			return "the list leaves its mapping";
		memcpy(&entry, e, sizeof(entry));
		entry = le64_get(entry);
		if (last && nbytes > page) { /* the last entry of a page: the next page of the list */
			if (entry & 7)
				return "the chain is not qword aligned";
			at = entry - sizeof(le64_t);
			continue;
		}
		n = min_u64(nbytes, page);
		if (entry & (page - 1))
			return "a list entry has an offset";
		bad = same(p, entry, vaddr, n, perm);
		if (bad)
			return bad;
		nbytes -= (uint32_t)n;
		vaddr += n;
	}
	return NULL;
}
