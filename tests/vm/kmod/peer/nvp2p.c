// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * For tests: nvidia_p2p_* over the memory of ivshmem devices. As in NVIDIA's driver a lock is held
 * in every call and, which is the harder case, while callbacks run: a callback that calls back, or
 * waits for a thread that is in a call, never ends. After a callback the table and its mappings are
 * freed here, whoever still looks at them.
 *
 * nvp2p_old.c builds it without the persistent calls, nvp2p_nogpl.c with exports that are not for
 * GPL modules only.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nv_p2p_abi.h"
#include "peerbar.h"

#ifdef NVP2P_NOGPL
#define NVP2P_EXPORT(name) EXPORT_SYMBOL(name)
#else
#define NVP2P_EXPORT(name) EXPORT_SYMBOL_GPL(name)
#endif

static bool persistent = true;
module_param(persistent, bool, 0644);
MODULE_PARM_DESC(persistent, "give persistent pages (off: as with MIG, -ENOTSUPP)");

static bool swizzle;
module_param(swizzle, bool, 0644);
MODULE_PARM_DESC(swizzle, "page i lies at page i ^ 1 of the BAR");

static uint table_version = NV_P2P_PAGE_TABLE_2;
module_param(table_version, uint, 0644);

static uint mapping_version = NV_P2P_DMA_MAPPING_2;
module_param(mapping_version, uint, 0644);

static uint linger_ms;
module_param(linger_ms, uint, 0644);
MODULE_PARM_DESC(linger_ms, "how long get_pages takes after the pages can be freed already");

struct mapping {
	struct nvidia_p2p_dma_mapping m;
	struct list_head link;
};

struct table {
	struct nvidia_p2p_page_table t;
	struct list_head link;
	struct list_head mappings;
	u64 va;
	u64 nbytes;
	void (*callback)(void *data); /* NULL: persistent */
	void *data;
	u8 uuid[16];
};

static DEFINE_MUTEX(driver_lock); /* of all below */
static LIST_HEAD(tables);
static u32 nr_mappings, callbacks_ever;

static void mapping_free(struct mapping *map)
{
	u32 i;

	for (i = 0; i < map->m.entries; i++)
		dma_unmap_resource(&map->m.pci_dev->dev, map->m.dma_addresses[i], NV_P2P_PAGE_SIZE,
				   DMA_BIDIRECTIONAL, 0);
	list_del(&map->link);
	kvfree(map->m.dma_addresses);
	kfree(map);
	nr_mappings--;
}

static void table_free(struct table *table)
{
	struct mapping *map, *next;
	u32 i;

	list_for_each_entry_safe(map, next, &table->mappings, link)
		mapping_free(map);
	for (i = 0; table->t.pages && i < table->t.entries; i++)
		kfree(table->t.pages[i]);
	kvfree(table->t.pages);
	kfree(table);
}

static struct table *table_new(u64 va, u64 nbytes)
{
	u32 n = nbytes >> NV_P2P_PAGE_SHIFT, i;
	struct table *table;
	u64 phys;
	int err;

	if (!nbytes || !IS_ALIGNED(va | nbytes, NV_P2P_PAGE_SIZE) ||
	    nbytes >> NV_P2P_PAGE_SHIFT > U32_MAX)
		return ERR_PTR(-EINVAL);
	err = peerbar_lookup(va, nbytes, &phys);
	if (err)
		return ERR_PTR(-EINVAL);
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&table->mappings);
	table->va = va;
	table->nbytes = nbytes;
	table->t.version = table_version;
	table->t.page_size = NV_P2P_SIZE_64K;
	table->t.gpu_uuid = table->uuid;
	table->t.pages = kvcalloc(n, sizeof(*table->t.pages), GFP_KERNEL);
	if (!table->t.pages)
		goto free;
	for (i = 0; i < n; i++) {
		u64 page = swizzle ? i ^ 1 : i;

		table->t.pages[i] = kzalloc(sizeof(**table->t.pages), GFP_KERNEL);
		if (!table->t.pages[i])
			goto free;
		table->t.pages[i]->physical_address = phys + (page << NV_P2P_PAGE_SHIFT);
		table->t.entries++;
	}
	return table;

free:
	table_free(table);
	return ERR_PTR(-ENOMEM);
}

static int get_pages(u64 va, u64 nbytes, struct nvidia_p2p_page_table **ret_table,
		     void (*callback)(void *data), void *data)
{
	struct table *table;

	table = table_new(va, nbytes);
	if (IS_ERR(table))
		return PTR_ERR(table);
	table->callback = callback;
	table->data = data;
	*ret_table = &table->t;
	mutex_lock(&driver_lock);
	list_add(&table->link, &tables);
	mutex_unlock(&driver_lock);
	if (linger_ms)
		msleep(linger_ms);
	return 0;
}

static struct table *table_find(struct nvidia_p2p_page_table *page_table)
{
	struct table *table;

	list_for_each_entry(table, &tables, link)
		if (&table->t == page_table)
			return table;
	return NULL;
}

static int put_pages(struct nvidia_p2p_page_table *page_table, bool is_persistent)
{
	struct table *table;
	int err = 0;

	mutex_lock(&driver_lock);
	table = table_find(page_table);
	if (table && !table->callback == is_persistent) {
		list_del(&table->link);
		table_free(table);
	} else if (table || is_persistent) {
		WARN(1, "nvp2p: pages put that were not got so\n");
		err = -EINVAL;
	}
	/* Else the callback was before. */
	mutex_unlock(&driver_lock);
	return err;
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	if (!free_callback || !data)
		return -EINVAL;
	return get_pages(virtual_address, length, page_table, free_callback, data);
}
NVP2P_EXPORT(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return put_pages(page_table, false);
}
NVP2P_EXPORT(nvidia_p2p_put_pages);

#ifndef NVP2P_OLD
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	if (!persistent)
		return -ENOTSUPP;
	return get_pages(virtual_address, length, page_table, NULL, NULL);
}
NVP2P_EXPORT(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	return flags ? -EINVAL : put_pages(page_table, true);
}
NVP2P_EXPORT(nvidia_p2p_put_pages_persistent);
#endif

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	struct table *table = container_of(page_table, struct table, t);
	struct mapping *map;
	int err = -ENOMEM;
	u32 i;

	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return -ENOMEM;
	map->m.version = mapping_version;
	map->m.page_size_type = NV_P2P_SIZE_64K;
	map->m.pci_dev = peer;
	map->m.dma_addresses = kvcalloc(page_table->entries, sizeof(u64), GFP_KERNEL);
	if (!map->m.dma_addresses)
		goto free;
	mutex_lock(&driver_lock);
	list_add(&map->link, &table->mappings);
	nr_mappings++;
	for (i = 0; i < page_table->entries; i++) {
		dma_addr_t addr =
			dma_map_resource(&peer->dev, page_table->pages[i]->physical_address,
					 NV_P2P_PAGE_SIZE, DMA_BIDIRECTIONAL, 0);

		if (dma_mapping_error(&peer->dev, addr)) {
			mapping_free(map);
			mutex_unlock(&driver_lock);
			return -EIO;
		}
		map->m.dma_addresses[i] = addr;
		map->m.entries++;
	}
	mutex_unlock(&driver_lock);
	*dma_mapping = &map->m;
	return 0;

free:
	kfree(map);
	return err;
}
NVP2P_EXPORT(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	struct mapping *map = container_of(dma_mapping, struct mapping, m);

	mutex_lock(&driver_lock);
	WARN_ON(map->m.pci_dev != peer);
	mapping_free(map);
	mutex_unlock(&driver_lock);
	return 0;
}
NVP2P_EXPORT(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return 0;
}
NVP2P_EXPORT(nvidia_p2p_free_page_table);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return 0;
}
NVP2P_EXPORT(nvidia_p2p_free_dma_mapping);

/* ---- what tests see ---- */

static u32 free_range(u64 va, u64 nbytes)
{
	struct table *table, *next;
	u32 n = 0;

	mutex_lock(&driver_lock);
	list_for_each_entry_safe(table, next, &tables, link) {
		if (!table->callback || table->va >= va + nbytes || va >= table->va + table->nbytes)
			continue;
		list_del(&table->link);
		table->callback(table->data);
		table_free(table);
		n++;
	}
	callbacks_ever += n;
	mutex_unlock(&driver_lock);
	return n;
}

static void count(struct nvp2p_info *ret_info)
{
	struct table *table;

	memset(ret_info, 0, sizeof(*ret_info));
	mutex_lock(&driver_lock);
	list_for_each_entry(table, &tables, link) {
		ret_info->tables++;
		ret_info->persistent += !table->callback;
	}
	ret_info->mappings = nr_mappings;
	ret_info->callbacks_ever = callbacks_ever;
	mutex_unlock(&driver_lock);
}

static long nvp2p_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	struct nvp2p_free free;
	struct nvp2p_info info;

	switch (cmd) {
	case NVP2P_INFO:
		count(&info);
		return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
	case NVP2P_FREE:
		if (copy_from_user(&free, user, sizeof(free)))
			return -EFAULT;
		free.ret_callbacks = free_range(free.va, free.nbytes);
		return copy_to_user(user, &free, sizeof(free)) ? -EFAULT : 0;
	}
	return -ENOTTY;
}

static const struct file_operations nvp2p_fops = { .owner = THIS_MODULE,
						   .unlocked_ioctl = nvp2p_ioctl };

static struct miscdevice nvp2p_misc = { .minor = MISC_DYNAMIC_MINOR,
					.name = "nvp2p",
					.fops = &nvp2p_fops };
module_misc_device(nvp2p_misc);

MODULE_DESCRIPTION("For tests: a stand-in of nvidia_p2p_* over ivshmem memory");
MODULE_LICENSE("Dual MIT/GPL");
