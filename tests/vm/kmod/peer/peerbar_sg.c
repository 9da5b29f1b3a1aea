// SPDX-License-Identifier: GPL-2.0 OR MIT
/* For tests: scatter lists of an export, right ones and wrong ones. */
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "peerbar.h"
#include "peerbar_sg.h"

/* Where piece i of the buffer lies in the BAR. */
static u64 piece_offset(const struct peer_layout *layout, u64 i)
{
	u64 place = layout->how & PEERBAR_REVERSED ? layout->pieces - 1 - i : i;

	return layout->offset + place * layout->piece;
}

static u64 piece_bytes(const struct peer_layout *layout, u64 i)
{
	return min(layout->piece, layout->nbytes - i * layout->piece);
}

static void unmap_pieces(struct device *dev, struct sg_table *table, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;

	/* An entry has what importers are told; what was mapped is its length. */
	for_each_sgtable_sg(table, sg, i)
		if (sg->length)
			dma_unmap_resource(dev, sg_dma_address(sg) & PAGE_MASK, sg->length, dir, 0);
}

struct sg_table *peer_sg_map_bar(struct device *dev, const struct peer_layout *layout,
				 enum dma_data_direction dir)
{
	unsigned int nents = layout->pieces, more = layout->how & PEERBAR_EMPTY ? 1 : 0;
	struct scatterlist *sg, *end = NULL;
	struct sg_table *table;
	unsigned int i;
	int err;

	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table(table, nents + more, GFP_KERNEL);
	if (err)
		goto free_table;
	for_each_sgtable_sg(table, sg, i) {
		u64 nbytes;
		dma_addr_t addr;

		if (i == nents)
			break; /* EMPTY: nothing but zeros */
		nbytes = piece_bytes(layout, i);
		addr = dma_map_resource(dev, layout->phys + piece_offset(layout, i), nbytes, dir,
					0);
		if (dma_mapping_error(dev, addr)) {
			err = -EIO;
			goto unmap;
		}
		sg_dma_address(sg) = addr;
		sg_dma_len(sg) = nbytes;
		sg->length = nbytes;
		end = sg;
		if (layout->how & PEERBAR_MISALIGNED)
			sg_dma_address(sg) += 512;
		if (layout->how & PEERBAR_RESIDUE)
			sg_dma_len(sg) += i & 1 ? 512 : -512;
	}
	if (layout->how & PEERBAR_SHORT && end)
		sg_dma_len(end) = end->length > PAGE_SIZE ? end->length - PAGE_SIZE : 0;
	return table;

unmap:
	unmap_pieces(dev, table, dir);
	sg_free_table(table);
free_table:
	kfree(table);
	return ERR_PTR(err);
}

struct sg_table *peer_sg_map_pages(struct device *dev, const struct peer_layout *layout,
				   enum dma_data_direction dir)
{
	struct sg_table *table;
	int err;

	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table_from_pages(table, layout->pages, layout->nbytes >> PAGE_SHIFT, 0,
					layout->nbytes, GFP_KERNEL);
	if (err)
		goto free_table;
	err = dma_map_sgtable(dev, table, dir, 0);
	if (err)
		goto free_entries;
	return table;

free_entries:
	sg_free_table(table);
free_table:
	kfree(table);
	return ERR_PTR(err);
}

void peer_sg_unmap(struct device *dev, const struct peer_layout *layout, struct sg_table *table,
		   enum dma_data_direction dir)
{
	if (layout->pages)
		dma_unmap_sgtable(dev, table, dir, 0);
	else
		unmap_pieces(dev, table, dir);
	sg_free_table(table);
	kfree(table);
}

/* What the device finds at byte x of the buffer, the far side finds at byte x of this. */
int peer_sg_mmap(const struct peer_layout *layout, struct vm_area_struct *vma)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT, nbytes = vma->vm_end - vma->vm_start, done;
	int err;

	if (start > layout->nbytes || nbytes > layout->nbytes - start)
		return -EINVAL;
	if (layout->pages)
		return vm_map_pages(vma, layout->pages, layout->nbytes >> PAGE_SHIFT);
	vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	for (done = 0; done < nbytes;) {
		u64 at = start + done, i = div64_u64(at, layout->piece);
		u64 in = at - i * layout->piece,
		    step = min(piece_bytes(layout, i) - in, nbytes - done);

		err = io_remap_pfn_range(vma, vma->vm_start + done,
					 PHYS_PFN(layout->phys + piece_offset(layout, i) + in),
					 step, vma->vm_page_prot);
		if (err)
			return err;
		done += step;
	}
	return 0;
}
