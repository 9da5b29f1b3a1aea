// SPDX-License-Identifier: GPL-2.0 OR MIT
/* For tests: claims ivshmem devices, whose BAR2 stands for the memory of a GPU. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "peerbar.h"

#define PEER_BAR_NR 2

struct peer_node {
	struct miscdevice misc;
	char name[16];
	struct peer_bar *bar;
};

static DEFINE_MUTEX(nodes_lock);
static struct peer_node nodes[PEERBAR_MAX];

static void peer_bar_free(struct kref *kref)
{
	kfree(container_of(kref, struct peer_bar, kref));
}

void peer_bar_put(struct peer_bar *bar)
{
	kref_put(&bar->kref, peer_bar_free);
}

int peer_bar_mmap(struct peer_bar *bar, struct vm_area_struct *vma, u64 offset)
{
	u64 nbytes = vma->vm_end - vma->vm_start;

	if (offset > bar->nbytes || nbytes > bar->nbytes - offset)
		return -EINVAL;
	vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	return io_remap_pfn_range(vma, vma->vm_start, PHYS_PFN(bar->phys + offset), nbytes,
				  vma->vm_page_prot);
}

int peerbar_lookup(u64 va, u64 nbytes, u64 *ret_phys)
{
	struct peer_bar *bar;
	u64 index, offset;
	int err = -EFAULT;

	if (va < PEER_VA_BASE)
		return -EFAULT;
	index = (va - PEER_VA_BASE) / PEER_VA_STRIDE;
	offset = (va - PEER_VA_BASE) % PEER_VA_STRIDE;
	if (index >= PEERBAR_MAX)
		return -EFAULT;
	mutex_lock(&nodes_lock);
	bar = nodes[index].bar;
	if (bar && offset <= bar->nbytes && nbytes <= bar->nbytes - offset) {
		*ret_phys = bar->phys + offset;
		err = 0;
	}
	mutex_unlock(&nodes_lock);
	return err;
}
EXPORT_SYMBOL_GPL(peerbar_lookup);

static int peerbar_open(struct inode *inode, struct file *file)
{
	struct peer_node *node = container_of(file->private_data, struct peer_node, misc);
	struct peer_bar *bar;

	mutex_lock(&nodes_lock);
	bar = node->bar;
	if (bar)
		kref_get(&bar->kref);
	mutex_unlock(&nodes_lock);
	file->private_data = bar;
	return bar ? 0 : -ENODEV;
}

static int peerbar_release(struct inode *inode, struct file *file)
{
	peer_bar_put(file->private_data);
	return 0;
}

static int peerbar_mmap(struct file *file, struct vm_area_struct *vma)
{
	return peer_bar_mmap(file->private_data, vma, (u64)vma->vm_pgoff << PAGE_SHIFT);
}

static void peerbar_info(struct peer_bar *bar, struct peerbar_info *ret_info)
{
	mutex_lock(&bar->lock);
	*ret_info = (struct peerbar_info){
		.bar_bytes = bar->nbytes,
		.device_va = PEER_VA(bar->index),
		.exports = list_count_nodes(&bar->exports),
		.attachments = atomic_read(&bar->attachments),
		.maps = atomic_read(&bar->maps),
		.pins = atomic_read(&bar->pins),
		.pins_ever = atomic_read(&bar->pins_ever),
		.revoked_ever = atomic_read(&bar->revoked_ever),
	};
	mutex_unlock(&bar->lock);
}

static long peerbar_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct peer_bar *bar = file->private_data;
	void __user *user = (void __user *)arg;
	union {
		struct peerbar_info info;
		struct peerbar_export export;
		struct peerbar_fd fd;
	} x;

	switch (cmd) {
	case PEERBAR_INFO:
		peerbar_info(bar, &x.info);
		return copy_to_user(user, &x.info, sizeof(x.info)) ? -EFAULT : 0;
	case PEERBAR_EXPORT:
		if (copy_from_user(&x.export, user, sizeof(x.export)))
			return -EFAULT;
		x.export.ret_fd = peer_export_new(bar, &x.export);
		if (x.export.ret_fd < 0)
			return x.export.ret_fd;
		/* A number that nobody learns stays until the process ends: it is a test's. */
		return copy_to_user(user, &x.export, sizeof(x.export)) ? -EFAULT : 0;
	case PEERBAR_REVOKE:
		if (copy_from_user(&x.fd, user, sizeof(x.fd)))
			return -EFAULT;
		return peer_export_revoke(bar, &x.fd);
	case PEERBAR_SIGNAL:
		if (copy_from_user(&x.fd, user, sizeof(x.fd)))
			return -EFAULT;
		return peer_export_signal(bar, &x.fd);
	case PEERBAR_GONE:
		peer_export_gone(bar);
		return 0;
	}
	return -ENOTTY;
}

static const struct file_operations peerbar_fops = {
	.owner = THIS_MODULE,
	.open = peerbar_open,
	.release = peerbar_release,
	.mmap = peerbar_mmap,
	.unlocked_ioctl = peerbar_ioctl,
};

/* The N-th device by PCI address is number N: they are probed in that order at load. */
static int peer_node_add(struct peer_bar *bar)
{
	unsigned int i;
	int err = -ENOSPC;

	mutex_lock(&nodes_lock);
	for (i = 0; i < PEERBAR_MAX; i++) {
		struct peer_node *node = &nodes[i];

		if (node->bar)
			continue;
		bar->index = i;
		snprintf(node->name, sizeof(node->name), "peerbar%u", i);
		node->misc = (struct miscdevice){ .minor = MISC_DYNAMIC_MINOR,
						  .name = node->name,
						  .fops = &peerbar_fops };
		node->bar = bar;
		err = 0;
		break;
	}
	mutex_unlock(&nodes_lock);
	if (err)
		return err;
	/* Not under nodes_lock: open() takes it below the lock that misc_register() takes. */
	err = misc_register(&nodes[i].misc);
	if (err) {
		mutex_lock(&nodes_lock);
		nodes[i].bar = NULL;
		mutex_unlock(&nodes_lock);
	}
	return err;
}

static int peerbar_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct peer_bar *bar;
	int err;

	bar = kzalloc(sizeof(*bar), GFP_KERNEL);
	if (!bar)
		return -ENOMEM;
	kref_init(&bar->kref);
	mutex_init(&bar->lock);
	INIT_LIST_HEAD(&bar->exports);
	bar->phys = pci_resource_start(pdev, PEER_BAR_NR);
	bar->nbytes = pci_resource_len(pdev, PEER_BAR_NR);
	err = bar->nbytes ? pci_enable_device_mem(pdev) : -ENODEV;
	if (err)
		goto put_bar;
	err = pci_request_region(pdev, PEER_BAR_NR, KBUILD_MODNAME);
	if (err)
		goto disable;
	err = peer_node_add(bar);
	if (err)
		goto release_region;
	pci_set_drvdata(pdev, bar);
	return 0;

release_region:
	pci_release_region(pdev, PEER_BAR_NR);
disable:
	pci_disable_device(pdev);
put_bar:
	peer_bar_put(bar);
	return err;
}

static void peerbar_remove(struct pci_dev *pdev)
{
	struct peer_bar *bar = pci_get_drvdata(pdev);

	misc_deregister(&nodes[bar->index].misc);
	mutex_lock(&nodes_lock);
	nodes[bar->index].bar = NULL;
	mutex_unlock(&nodes_lock);
	mutex_lock(&bar->lock);
	bar->dead = true;
	mutex_unlock(&bar->lock);
	peer_export_gone(bar);
	pci_release_region(pdev, PEER_BAR_NR);
	pci_disable_device(pdev);
	peer_bar_put(bar);
}

static const struct pci_device_id peerbar_ids[] = { { PCI_DEVICE(0x1af4, 0x1110) }, {} };
MODULE_DEVICE_TABLE(pci, peerbar_ids);

static struct pci_driver peerbar_driver = {
	.name = "peerbar",
	.id_table = peerbar_ids,
	.probe = peerbar_probe,
	.remove = peerbar_remove,
};
module_pci_driver(peerbar_driver);

MODULE_DESCRIPTION("For tests: memory of an ivshmem device as dma-bufs");
MODULE_LICENSE("Dual MIT/GPL");
