/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The functions of NVIDIA's driver, looked up at run time. */
#ifndef UGDS_CUDA_API_H
#define UGDS_CUDA_API_H

#include "nv_p2p_abi.h"

struct device;

struct ugds_cuda_api {
	typeof(&nvidia_p2p_get_pages) get_pages; /* NULL: nothing is held */
	typeof(&nvidia_p2p_put_pages) put_pages;
	typeof(&nvidia_p2p_get_pages_persistent) get_pages_persistent; /* NULL: an older driver */
	typeof(&nvidia_p2p_put_pages_persistent) put_pages_persistent;
	typeof(&nvidia_p2p_dma_map_pages) dma_map_pages;
	typeof(&nvidia_p2p_dma_unmap_pages) dma_unmap_pages;
	typeof(&nvidia_p2p_free_page_table) free_page_table;
	typeof(&nvidia_p2p_free_dma_mapping) free_dma_mapping;
};

/*
 * The driver stays loaded until put. -EOPNOTSUPP: it is not there, or exports to other than GPL
 * modules, where symbol_get() finds nothing.
 */
int ugds_cuda_api_get(struct ugds_cuda_api *api);
void ugds_cuda_api_put(struct ugds_cuda_api *api); /* twice does no harm */

/* Of a version and shape that is known, with as many pages of 64 KiB as were asked for. */
bool ugds_cuda_table_ok(const struct nvidia_p2p_page_table *table, u64 npages);
bool ugds_cuda_mapping_ok(const struct nvidia_p2p_dma_mapping *mapping, u64 npages);

#endif
