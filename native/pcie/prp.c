/* SPDX-License-Identifier: MIT */
/*
 * Data pointers (Base 4.1.1). The mapping's page table holds one bus address for each controller page, so a PRP list
 * is a copy of a piece of it. Commands are capped at what one list page holds; lists are never chained.
 */
#include "pcie/ring.h"

int pcie_prp_build(struct pcie_qpair *q, const struct mem_map *map, uint64_t off, uint32_t nbytes,
		   uint64_t *ret_prp1, uint64_t *ret_prp2, uint16_t *ret_list)
{
	uint64_t unit = 1ull << map->shift;
	uint64_t pos = map->first_off + off;
	uint64_t in = pos & (unit - 1);
	const uint64_t *page = &map->iova[pos >> map->shift];
	uint64_t first = unit - in;
	uint64_t rest, *list;
	uint32_t n;

	*ret_prp1 = page[0] + in;
	*ret_prp2 = 0;
	*ret_list = NO_LIST;
	if (nbytes <= first)
		return 0;
	rest = nbytes - first;
	if (rest <= unit) {
		*ret_prp2 = page[1];
		return 0;
	}
	if (unlikely(!q->nr_free_lists))
		return -EAGAIN;
	n = (uint32_t)((rest + unit - 1) >> map->shift);
	*ret_list = q->free_lists[--q->nr_free_lists];
	list = q->lists + (size_t)*ret_list * q->list_entries;
	for (uint32_t i = 0; i < n; i++)
		list[i] = le64_put(page[1 + i]);
	*ret_prp2 = q->list_iova[*ret_list];
	return 0;
}
