// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * BAR0 in user space, page by page as it is touched.
 *
 * Pages are inserted under bar_lock (read). A removal sets bar_gone under it (write) and zaps: from
 * then on a fault gives private memory, so neither SIGBUS nor hardware is to be met there.
 */
#include "ugds_drv.h"

/* The register page and the others have memory of their own: a doorbell must not change CSTS. */
static unsigned long dummy_pfn(struct ugds_file *f, pgoff_t index)
{
	return page_to_pfn(f->dummy[index ? 1 : 0]);
}

static vm_fault_t bar_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct ugds_file *f = vma->vm_private_data;
	struct ugds_dev *dev = f->dev;
	vm_fault_t ret;

	down_read(&dev->bar_lock);
	if (f->bar_gone)
		ret = vmf_insert_pfn_prot(vma, vmf->address, dummy_pfn(f, vmf->pgoff),
					  vm_get_page_prot(vma->vm_flags));
	else
		ret = vmf_insert_pfn(vma, vmf->address, PHYS_PFN(dev->bar_start) + vmf->pgoff);
	up_read(&dev->bar_lock);
	return ret;
}

static const struct vm_operations_struct bar_ops = {
	.fault = bar_fault,
};

static bool is_hidden(struct ugds_dev *dev, u64 first, u64 last)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(dev->hidden); i++) {
		if (first <= dev->hidden[i].last && last >= dev->hidden[i].first)
			return true;
	}
	return false;
}

int ugds_bar_mmap(struct ugds_file *f, struct vm_area_struct *vma)
{
	u64 first = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 nbytes = vma->vm_end - vma->vm_start;
	struct ugds_dev *dev = f->dev;

	if (first >= dev->bar_bytes || nbytes > dev->bar_bytes - first)
		return -EINVAL;
	if (is_hidden(dev, first, first + nbytes - 1))
		return -EACCES;
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_private_data = f;
	vma->vm_ops = &bar_ops;
	return 0;
}

/* bar_lock is held for writing, so nothing comes back before it is released. */
void ugds_bar_zap(struct ugds_file *f)
{
	unmap_mapping_range(f->mapping, UGDS_DRV_MMAP_BAR0, f->dev->bar_bytes, 1);
}

/* ---- the device's part ---- */

/* Whole pages of BAR0 that hold a structure named by a BIR and offset register. */
static void hide(struct ugds_dev *dev, int which, u32 where, u64 nbytes)
{
	u64 offset = where & PCI_MSIX_TABLE_OFFSET;

	dev->hidden[which].first = U64_MAX;
	dev->hidden[which].last = 0;
	if ((where & PCI_MSIX_TABLE_BIR) != UGDS_BAR || !nbytes)
		return;
	dev->hidden[which].first = round_down(offset, PAGE_SIZE);
	dev->hidden[which].last = round_up(offset + nbytes, PAGE_SIZE) - 1;
	dev->map_bytes = min(dev->map_bytes, dev->hidden[which].first);
}

static void hide_msix(struct ugds_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;
	u32 table = 0, pba = 0;
	u64 nr = 0;
	u16 control;

	if (pdev->msix_cap) {
		pci_read_config_word(pdev, pdev->msix_cap + PCI_MSIX_FLAGS, &control);
		pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_TABLE, &table);
		pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_PBA, &pba);
		nr = (control & PCI_MSIX_FLAGS_QSIZE) + 1;
	}
	hide(dev, 0, table, nr * PCI_MSIX_ENTRY_SIZE);
	hide(dev, 1, pba, DIV_ROUND_UP(nr, 64) * 8);
}

int ugds_bar_init(struct ugds_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;

	init_rwsem(&dev->bar_lock);
	if (!(pci_resource_flags(pdev, UGDS_BAR) & IORESOURCE_MEM))
		return -ENODEV;
	dev->bar_start = pci_resource_start(pdev, UGDS_BAR);
	dev->bar_bytes = round_down(pci_resource_len(pdev, UGDS_BAR), PAGE_SIZE);
	if (!dev->bar_bytes || !PAGE_ALIGNED(dev->bar_start)) {
		dev_err(&pdev->dev, "BAR0 is no whole number of pages: it cannot be mapped\n");
		return -EINVAL;
	}
	dev->map_bytes = dev->bar_bytes;
	hide_msix(dev);
	dev->regs = pci_iomap(pdev, UGDS_BAR, PAGE_SIZE);
	return dev->regs ? 0 : -ENOMEM;
}

void ugds_bar_done(struct ugds_dev *dev)
{
	pci_iounmap(dev->pdev, dev->regs);
}
