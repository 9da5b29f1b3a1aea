// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The functions of NVIDIA's driver, looked up at run time. */
#include <linux/errno.h>
#include <linux/module.h>

#include "cuda_api.h"

void ugds_cuda_api_put(struct ugds_cuda_api *api)
{
	/* symbol_put() goes by the name: one for each that was got. */
	if (api->free_dma_mapping)
		symbol_put(nvidia_p2p_free_dma_mapping);
	if (api->free_page_table)
		symbol_put(nvidia_p2p_free_page_table);
	if (api->dma_unmap_pages)
		symbol_put(nvidia_p2p_dma_unmap_pages);
	if (api->dma_map_pages)
		symbol_put(nvidia_p2p_dma_map_pages);
	if (api->put_pages_persistent)
		symbol_put(nvidia_p2p_put_pages_persistent);
	if (api->get_pages_persistent)
		symbol_put(nvidia_p2p_get_pages_persistent);
	if (api->put_pages)
		symbol_put(nvidia_p2p_put_pages);
	if (api->get_pages)
		symbol_put(nvidia_p2p_get_pages);
	*api = (struct ugds_cuda_api){};
}

int ugds_cuda_api_get(struct ugds_cuda_api *api)
{
	*api = (struct ugds_cuda_api){};
	/* The kernel logs each that it refuses, so one is asked for before the others. */
	api->get_pages = symbol_get(nvidia_p2p_get_pages);
	if (!api->get_pages)
		return -EOPNOTSUPP;
	api->put_pages = symbol_get(nvidia_p2p_put_pages);
	api->dma_map_pages = symbol_get(nvidia_p2p_dma_map_pages);
	api->dma_unmap_pages = symbol_get(nvidia_p2p_dma_unmap_pages);
	api->free_page_table = symbol_get(nvidia_p2p_free_page_table);
	api->free_dma_mapping = symbol_get(nvidia_p2p_free_dma_mapping);
	if (!api->put_pages || !api->dma_map_pages || !api->dma_unmap_pages ||
	    !api->free_page_table || !api->free_dma_mapping) {
		ugds_cuda_api_put(api);
		return -EOPNOTSUPP;
	}
	api->get_pages_persistent = symbol_get(nvidia_p2p_get_pages_persistent);
	api->put_pages_persistent = symbol_get(nvidia_p2p_put_pages_persistent);
	if (!api->get_pages_persistent != !api->put_pages_persistent) {
		ugds_cuda_api_put(api);
		return -EOPNOTSUPP;
	}
	return 0;
}

static bool version_ok(u32 version, u32 known)
{
	return NV_P2P_MAJOR(version) == NV_P2P_MAJOR(known) &&
	       NV_P2P_MINOR(version) >= NV_P2P_MINOR(known);
}

bool ugds_cuda_table_ok(const struct nvidia_p2p_page_table *table, u64 npages)
{
	return (version_ok(table->version, NV_P2P_PAGE_TABLE_1) ||
		version_ok(table->version, NV_P2P_PAGE_TABLE_2)) &&
	       table->page_size == NV_P2P_SIZE_64K && table->entries == npages && table->pages;
}

bool ugds_cuda_mapping_ok(const struct nvidia_p2p_dma_mapping *mapping, u64 npages)
{
	return version_ok(mapping->version, NV_P2P_DMA_MAPPING_2) &&
	       mapping->page_size_type == NV_P2P_SIZE_64K && mapping->entries == npages &&
	       mapping->dma_addresses;
}
