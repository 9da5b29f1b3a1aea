// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Where the function stands: IOMMU, NUMA node, and the way to another one. */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>

#include "args.h"
#include "ugds_drv.h"

/* Requests or completions go up, or nowhere, instead of across. */
#define ACS_REDIRECTS (PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC)

u32 ugds_iommu_of(struct device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (!domain)
		return UGDS_DRV_IOMMU_NONE;
	return domain->type & __IOMMU_DOMAIN_PAGING ? UGDS_DRV_IOMMU_TRANSLATED
						    : UGDS_DRV_IOMMU_IDENTITY;
}

void ugds_iommu_flush(struct device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (domain && domain->type == IOMMU_DOMAIN_DMA_FQ)
		iommu_flush_iotlb_all(domain);
}

/* Whole pages are never copied behind an IOMMU that translates. */
bool ugds_dma_may_bounce(struct device *dev)
{
	return ugds_iommu_of(dev) != UGDS_DRV_IOMMU_TRANSLATED &&
	       dma_max_mapping_size(dev) != SIZE_MAX;
}

static bool redirects(struct pci_dev *bridge)
{
	u16 pos = pci_find_ext_capability(bridge, PCI_EXT_CAP_ID_ACS);
	u16 control = 0;

	if (!pos)
		return false;
	pci_read_config_word(bridge, pos + PCI_ACS_CTRL, &control);
	return control & ACS_REDIRECTS;
}

/* Bridges between a function and top (excluded; NULL: all). */
static u32 bridges_below(struct pci_dev *pdev, struct pci_dev *top, bool *ret_redirected)
{
	struct pci_dev *bridge;
	u32 nr = 0;

	for (bridge = pci_upstream_bridge(pdev); bridge && bridge != top;
	     bridge = pci_upstream_bridge(bridge)) {
		nr++;
		if (redirects(bridge))
			*ret_redirected = true;
	}
	return nr;
}

static bool is_above(struct pci_dev *bridge, struct pci_dev *pdev)
{
	while ((pdev = pci_upstream_bridge(pdev))) {
		if (pdev == bridge)
			return true;
	}
	return false;
}

static struct pci_dev *common_bridge(struct pci_dev *a, struct pci_dev *b)
{
	struct pci_dev *bridge = pci_upstream_bridge(a);

	while (bridge && !is_above(bridge, b))
		bridge = pci_upstream_bridge(bridge);
	return bridge;
}

static void describe_path(struct pci_dev *a, struct pci_dev *b, struct ugds_drv_topology *arg)
{
	struct pci_dev *common = common_bridge(a, b);
	bool redirected = false;

	arg->ret_hops = 0;
	if (!common) {
		arg->ret_path = pci_find_host_bridge(a->bus) == pci_find_host_bridge(b->bus)
					? UGDS_DRV_PATH_ROOT
					: UGDS_DRV_PATH_APART;
		return;
	}
	arg->ret_hops =
		bridges_below(a, common, &redirected) + bridges_below(b, common, &redirected) + 1;
	/* Functions below one root port meet in the root complex, or in their device: who knows. */
	if (pci_is_pcie(common) && pci_pcie_type(common) == PCI_EXP_TYPE_ROOT_PORT)
		arg->ret_path = UGDS_DRV_PATH_ROOT;
	else
		arg->ret_path = redirected ? UGDS_DRV_PATH_REDIRECTED : UGDS_DRV_PATH_SWITCH;
}

int ugds_topology(struct ugds_file *f, struct ugds_drv_topology *arg)
{
	struct pci_dev *pdev = f->dev->pdev;
	struct pci_dev *peer;
	int err;

	err = ugds_check_topology(arg);
	if (err)
		return err;
	arg->ret_numa_node = dev_to_node(&pdev->dev);
	arg->ret_iommu = ugds_iommu_of(&pdev->dev);
	arg->ret_peer_numa_node = NUMA_NO_NODE;
	arg->ret_path = UGDS_DRV_PATH_UNKNOWN;
	arg->ret_hops = 0;
	if (!arg->peer_valid)
		return 0;
	peer = pci_get_domain_bus_and_slot(arg->peer_domain, arg->peer_bus, arg->peer_devfn);
	if (!peer)
		return -ENXIO;
	arg->ret_peer_numa_node = dev_to_node(&peer->dev);
	if (peer != pdev)
		describe_path(pdev, peer, arg);
	pci_dev_put(peer);
	return 0;
}
