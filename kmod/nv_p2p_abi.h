/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What of the binary interface of NVIDIA's kernel driver is used: written down here so that the
 * module builds without the driver's sources. Layouts hold for page tables of version 1.2 and 2.0
 * (which adds fields behind these) and DMA mappings of version 2.3; the versions are checked at run
 * time. A greater minor number only adds.
 */
#ifndef UGDS_NV_P2P_ABI_H
#define UGDS_NV_P2P_ABI_H

#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>

struct pci_dev;

#define NV_P2P_PAGE_SHIFT 16 /* what addresses and lengths given to the driver are multiples of */
#define NV_P2P_PAGE_SIZE (1ull << NV_P2P_PAGE_SHIFT)

#define NV_P2P_PAGE_TABLE_1 0x00010002u
#define NV_P2P_PAGE_TABLE_2 0x00020000u
#define NV_P2P_DMA_MAPPING_2 0x00020003u

#define NV_P2P_MAJOR(version) ((version) >> 16)
#define NV_P2P_MINOR(version) ((version) & 0xffffu)

/* The values of page_size and page_size_type. */
#define NV_P2P_SIZE_4K 0
#define NV_P2P_SIZE_64K 1
#define NV_P2P_SIZE_128K 2

#define NV_P2P_ENOTSUPP 524 /* what it answers where it cannot: the kernel's own ENOTSUPP */

struct nvidia_p2p_page {
	u64 physical_address;
	u32 registers[6];
};

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid;
};

struct nvidia_p2p_dma_mapping {
	u32 version;
	u32 page_size_type;
	u32 entries;
	u64 *dma_addresses;
	void *private;
	struct pci_dev *pci_dev;
};

#ifdef CONFIG_64BIT
static_assert(sizeof(struct nvidia_p2p_page) == 32);
static_assert(offsetof(struct nvidia_p2p_page_table, entries) == 16);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, dma_addresses) == 16);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, pci_dev) == 32);
#endif

/* The callback runs once when the memory goes; then the driver frees table and mappings itself. */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table);
/* Pages stay when their owner frees them, until they are put: there is no callback. */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags);
int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags);
int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping);
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping);
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif
