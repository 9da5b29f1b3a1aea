/* SPDX-License-Identifier: MIT */
/* PRP walking as hardware does it (Base 4.1.1): offsets, lists, chained list pages, all translated. */
#include <string.h>

#include "emu/internal.h"

#define BAD_OFFSET (NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_PRP_OFFSET) | EMU_DNR)
#define TRANSFER_ERROR NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_DATA_TRANSFER)

enum { PRP_FIRST, PRP_SECOND, PRP_LIST };

void emu_prp_init(struct emu_prp *w, const struct nvme_sqe *s, uint64_t nbytes, uint32_t page_bytes)
{
	w->next = le64_get(s->prp1);
	w->prp2 = le64_get(s->prp2);
	w->left = nbytes;
	w->most = UINT64_MAX;
	w->page_bytes = page_bytes;
	w->state = PRP_FIRST;
	w->entry = NULL;
}

static uint16_t list_load(struct emu_actor *a, struct emu_prp *w, uint64_t *ret)
{
	le64_t raw;

	if (!w->entry) {
		w->entry = emu_translate(a, w->list, EMU_DMA_READ);
		if (!w->entry)
			return TRANSFER_ERROR;
	}
	memcpy(&raw, w->entry, sizeof(raw));
	*ret = le64_get(raw);
	w->entry += sizeof(raw);
	w->list += sizeof(raw);
	if (!(w->list & (EMU_IO_PAGE - 1)))
		w->entry = NULL;
	return 0;
}

/* The next page's address; the last entry of a list page chains to another if more than one page is left. */
static uint16_t list_next(struct emu_actor *a, struct emu_prp *w)
{
	uint64_t mask = w->page_bytes - 1, addr;
	uint16_t st;

	if ((w->list & mask) == w->page_bytes - sizeof(le64_t) && w->left > w->page_bytes) {
		st = list_load(a, w, &addr);
		if (st)
			return st;
		if (addr & mask)
			return BAD_OFFSET;
		w->list = addr;
		w->entry = NULL;
	}
	st = list_load(a, w, &addr);
	if (st)
		return st;
	if (addr & mask)
		return BAD_OFFSET;
	w->next = addr;
	return 0;
}

static uint16_t page_after(struct emu_actor *a, struct emu_prp *w)
{
	if (w->state == PRP_LIST)
		return list_next(a, w);
	if (w->left <= w->page_bytes) {
		w->state = PRP_SECOND;
		w->next = w->prp2;
		return w->prp2 & (w->page_bytes - 1) ? BAD_OFFSET : 0;
	}
	if (w->prp2 & 7)
		return BAD_OFFSET;
	w->state = PRP_LIST;
	w->list = w->prp2;
	return list_next(a, w);
}

static void iov_add(struct emu_actor *a, uint8_t *p, size_t n)
{
	struct iovec *last = a->nr_iov ? &a->iov[a->nr_iov - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += n;
	else
		a->iov[a->nr_iov++] = (struct iovec){ p, n };
}

/* The middle of a long list, as far as it lies in one mapping that is held and nothing is wrong with it: the rest is
 * for the walk, which also says what is wrong. */
static uint64_t list_run(struct emu_actor *a, struct emu_prp *w, uint32_t perm, uint64_t most)
{
	const struct emu_hold *held = NULL;
	uint64_t total = 0;

	if (w->state != PRP_LIST || w->page_bytes != EMU_IO_PAGE)
		return 0;
	for (uint32_t i = 0; i < a->nr_hold && !held; i++)
		if (a->hold[i].slot == EMU_LEAF_SLOT(emu_iommu_leaf(&a->e->io, w->next)))
			held = &a->hold[i];
	if (!held)
		return 0;
	/* the last entry of a list page is not looked at: it may lead to another */
	while (w->entry && (w->list & (EMU_IO_PAGE - 1)) < EMU_IO_PAGE - sizeof(le64_t) &&
	       w->left > 2 * EMU_IO_PAGE && a->nr_iov < a->max_iov && total + EMU_IO_PAGE <= most) {
		uint64_t leaf = emu_iommu_leaf(&a->e->io, w->next);
		le64_t raw;

		memcpy(&raw, w->entry, sizeof(raw));
		if (unlikely(!(leaf & perm) || EMU_LEAF_SLOT(leaf) != held->slot ||
			     le64_get(raw) & (EMU_IO_PAGE - 1)))
			break;
		iov_add(a, held->map->vaddr + (EMU_LEAF_PAGE(leaf) << EMU_IO_SHIFT), EMU_IO_PAGE);
		w->next = le64_get(raw);
		w->entry += sizeof(raw);
		w->list += sizeof(raw);
		w->left -= EMU_IO_PAGE;
		total += EMU_IO_PAGE;
	}
	return total;
}

uint16_t emu_prp_next(struct emu_actor *a, struct emu_prp *w, uint32_t perm, uint64_t *ret_bytes)
{
	uint64_t total = 0;
	uint16_t st;

	a->nr_iov = 0;
	w->entry = NULL; /* what it pointed to was held for the last call */
	if (w->state == PRP_FIRST && w->next & 3)
		return BAD_OFFSET;
	while (w->left && total < w->most && a->nr_iov < a->max_iov && a->nr_hold + 4 < a->max_hold) {
		uint64_t in_page = min_u64(w->left, w->page_bytes - (w->next & (w->page_bytes - 1)));
		uint64_t n = min_u64(in_page, EMU_IO_PAGE - (w->next & (EMU_IO_PAGE - 1)));
		uint8_t *p = emu_translate(a, w->next, perm);

		n = min_u64(n, w->most - total);
		if (unlikely(!p))
			return TRANSFER_ERROR;
		iov_add(a, p, n);
		total += n;
		w->left -= n;
		w->next += n;
		/* a memory page of more than 4 KiB is several IO pages */
		if (w->left && n == in_page) {
			st = page_after(a, w);
			if (unlikely(st))
				return st;
			total += list_run(a, w, perm, w->most - total);
		}
	}
	*ret_bytes = total;
	return 0;
}

static uint16_t copy(struct emu_actor *a, const struct nvme_sqe *s, uint8_t *buf, uint32_t nbytes,
		     uint32_t perm)
{
	uint32_t page_bytes = atomic_load_explicit(&a->e->page_bytes, memory_order_relaxed);
	struct emu_prp w;
	uint64_t got;
	uint16_t st = 0;

	emu_prp_init(&w, s, nbytes, page_bytes);
	while (w.left && !st) {
		st = emu_prp_next(a, &w, perm, &got);
		for (uint32_t i = 0; !st && i < a->nr_iov; i++) {
			if (perm == EMU_DMA_WRITE)
				memcpy(a->iov[i].iov_base, buf, a->iov[i].iov_len);
			else
				memcpy(buf, a->iov[i].iov_base, a->iov[i].iov_len);
			buf += a->iov[i].iov_len;
		}
		emu_actor_release(a);
	}
	return st;
}

uint16_t emu_copy_to_host(struct emu_actor *a, const struct nvme_sqe *s, const void *src, uint32_t nbytes)
{
	/* only read from, in this direction */
	return copy(a, s, (uint8_t *)(uintptr_t)src, nbytes, EMU_DMA_WRITE);
}

uint16_t emu_copy_from_host(struct emu_actor *a, const struct nvme_sqe *s, void *dst, uint32_t nbytes)
{
	return copy(a, s, dst, nbytes, EMU_DMA_READ);
}
