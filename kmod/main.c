// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ugds_drv: NVMe functions for one process each, handed over by driver_override.
 *
 * The driver has no table of devices: it is bound only to a function whose driver_override names
 * it.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sizes.h>

#include "ugds_drv.h"

#define MAX_MINORS 4096

static struct class *node_class;
static dev_t first_devt;

/* Bound functions by minor, and which function a minor belongs to for as long as we are loaded. */
static DEFINE_MUTEX(devs_lock);
static struct ugds_dev *devs[MAX_MINORS];
static struct {
	int domain;
	u8 bus;
	u8 devfn;
} places[MAX_MINORS];
static int nr_places;

static void dev_free(struct kref *ref)
{
	struct ugds_dev *dev = container_of(ref, struct ugds_dev, ref);

	pci_dev_put(dev->pdev);
	kfree(dev->vectors);
	kfree(dev);
}

void ugds_dev_put(struct ugds_dev *dev)
{
	kref_put(&dev->ref, dev_free);
}

struct ugds_dev *ugds_dev_get(unsigned int minor)
{
	struct ugds_dev *dev;

	if (minor >= MAX_MINORS)
		return NULL;
	mutex_lock(&devs_lock);
	dev = devs[minor];
	if (dev)
		kref_get(&dev->ref);
	mutex_unlock(&devs_lock);
	return dev;
}

static int minor_of(struct pci_dev *pdev)
{
	int domain = pci_domain_nr(pdev->bus);
	int i;

	mutex_lock(&devs_lock);
	for (i = 0; i < nr_places; i++) {
		if (places[i].domain == domain && places[i].bus == pdev->bus->number &&
		    places[i].devfn == pdev->devfn)
			goto out;
	}
	if (i == MAX_MINORS) {
		i = -ENOSPC;
		goto out;
	}
	places[i].domain = domain;
	places[i].bus = pdev->bus->number;
	places[i].devfn = pdev->devfn;
	nr_places++;
out:
	mutex_unlock(&devs_lock);
	return i;
}

static void set_dev(int minor, struct ugds_dev *dev)
{
	mutex_lock(&devs_lock);
	devs[minor] = dev;
	mutex_unlock(&devs_lock);
}

/* ---- what sysfs says of a node ---- */

static ssize_t owner_show(struct device *node, struct device_attribute *attr, char *buf)
{
	struct ugds_dev *dev = dev_get_drvdata(node);
	unsigned long irq;
	pid_t pid = 0;

	spin_lock_irqsave(&dev->dma_lock, irq);
	if (dev->owner)
		pid = pid_vnr(dev->owner->pid);
	spin_unlock_irqrestore(&dev->dma_lock, irq);
	return sysfs_emit(buf, "%d\n", pid);
}
static DEVICE_ATTR_RO(owner);

static struct attribute *node_attrs[] = {
	&dev_attr_owner.attr,
	NULL,
};
ATTRIBUTE_GROUPS(node);

static int show_mappings(char *buf, const struct kernel_param *param)
{
	return sysfs_emit(buf, "%ld\n", ugds_nr_mappings());
}

static const struct kernel_param_ops mappings_ops = {
	.get = show_mappings,
};
module_param_cb(mappings, &mappings_ops, NULL, 0444);
MODULE_PARM_DESC(mappings, "mappings of memory that exist now, of all devices (read only)");

/* ---- binding ---- */

static int set_up_dma(struct pci_dev *pdev)
{
	int err;

	/* Memory of user space is written and read with no call in between. */
	if (!dev_is_dma_coherent(&pdev->dev)) {
		dev_err(&pdev->dev, "the device is not cache coherent\n");
		return -EOPNOTSUPP;
	}
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	dma_set_seg_boundary(&pdev->dev, ULONG_MAX);
	return 0;
}

static struct ugds_dev *dev_new(struct pci_dev *pdev, int minor)
{
	struct ugds_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	kref_init(&dev->ref);
	dev->pdev = pci_dev_get(pdev);
	dev->minor = minor;
	mutex_init(&dev->lock);
	init_waitqueue_head(&dev->freed);
	spin_lock_init(&dev->dma_lock);
	return dev;
}

static int add_node(struct ugds_dev *dev)
{
	dev->node = device_create_with_groups(node_class, &dev->pdev->dev,
					      MKDEV(MAJOR(first_devt), dev->minor), dev,
					      node_groups, UGDS_NAME "%d", dev->minor);
	if (IS_ERR(dev->node))
		return PTR_ERR(dev->node);
	return 0;
}

static int bring_up(struct ugds_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;
	int err;

	err = pci_enable_device_mem(pdev);
	if (err)
		return err;
	err = set_up_dma(pdev);
	if (err)
		goto disable;
	err = pci_request_mem_regions(pdev, UGDS_NAME);
	if (err)
		goto disable;
	err = ugds_bar_init(dev);
	if (err)
		goto release_regions;
	/* Whatever firmware or a driver left: it stands still until its opener starts it. */
	ugds_dev_stop(dev, true);
	err = ugds_irq_init(dev);
	if (err)
		goto bar_done;
	pci_set_drvdata(pdev, dev);
	/* For slot_reset: bus mastering is off in it. */
	pci_save_state(pdev);
	return 0;

bar_done:
	ugds_bar_done(dev);
release_regions:
	pci_release_mem_regions(pdev);
disable:
	pci_disable_device(pdev);
	return err;
}

static void take_down(struct ugds_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;

	pci_set_drvdata(pdev, NULL);
	/* What the PCI core gives a device; the next driver may count on it. */
	dma_set_max_seg_size(&pdev->dev, SZ_64K);
	dma_set_seg_boundary(&pdev->dev, U32_MAX);
	ugds_irq_done(dev);
	ugds_bar_done(dev);
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
}

static int ugds_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct ugds_dev *dev;
	int minor, err;

	/* new_id in sysfs matches without an override. */
	if (!ugds_named_by_override(pdev))
		return -ENODEV;
	if (pdev->class != PCI_CLASS_STORAGE_EXPRESS) {
		dev_err(&pdev->dev, "not an NVMe I/O controller (class %06x)\n", pdev->class);
		return -ENODEV;
	}
	minor = minor_of(pdev);
	if (minor < 0)
		return minor;
	dev = dev_new(pdev, minor);
	if (!dev)
		return -ENOMEM;
	err = bring_up(dev);
	if (err)
		goto put;
	set_dev(minor, dev);
	err = add_node(dev);
	if (err)
		goto take_down;
	return 0;

take_down:
	set_dev(minor, NULL);
	take_down(dev);
put:
	ugds_dev_put(dev);
	return err;
}

static void ugds_remove(struct pci_dev *pdev)
{
	struct ugds_dev *dev = pci_get_drvdata(pdev);

	/* Whoever waits for the device lock, or for the device, gives up. */
	WRITE_ONCE(dev->removed, true);
	wake_up_all(&dev->freed);
	device_destroy(node_class, MKDEV(MAJOR(first_devt), dev->minor));
	set_dev(dev->minor, NULL);
	mutex_lock(&dev->lock);
	ugds_dev_end_tenure(dev);
	take_down(dev);
	mutex_unlock(&dev->lock);
	ugds_dev_put(dev);
}

/* ---- what others do to the function while it is open: the opener recovers by RESET ---- */

static void interrupted(struct ugds_dev *dev)
{
	ugds_dev_cut(dev, UGDS_DRV_STATE_REVOKED);
	ugds_irq_signal_all(dev);
}

static void ugds_shutdown(struct pci_dev *pdev)
{
	ugds_dev_stop(pci_get_drvdata(pdev), true);
}

static int ugds_suspend(struct device *device)
{
	struct ugds_dev *dev = dev_get_drvdata(device);

	ugds_dev_stop(dev, true);
	interrupted(dev);
	return 0;
}

/* The core restores what it saved: bus mastering was off. */
static int ugds_resume(struct device *device)
{
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(pm_ops, ugds_suspend, ugds_resume);

static void reset_prepare(struct pci_dev *pdev)
{
	struct ugds_dev *dev = pci_get_drvdata(pdev);

	if (READ_ONCE(dev->resetter) == current)
		return;
	WRITE_ONCE(dev->resetting, true);
	interrupted(dev);
}

static void reset_done(struct pci_dev *pdev)
{
	struct ugds_dev *dev = pci_get_drvdata(pdev);

	WRITE_ONCE(dev->resetting, false);
	wake_up_all(&dev->freed);
}

static pci_ers_result_t error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	interrupted(pci_get_drvdata(pdev));
	return state == pci_channel_io_frozen ? PCI_ERS_RESULT_NEED_RESET
					      : PCI_ERS_RESULT_DISCONNECT;
}

static pci_ers_result_t slot_reset(struct pci_dev *pdev)
{
	struct ugds_dev *dev = pci_get_drvdata(pdev);

	pci_restore_state(pdev);
	pci_save_state(pdev);
	ugds_dev_cut(dev, 0);
	return PCI_ERS_RESULT_RECOVERED;
}

static const struct pci_error_handlers error_handlers = {
	.error_detected = error_detected,
	.slot_reset = slot_reset,
	.reset_prepare = reset_prepare,
	.reset_done = reset_done,
};

/* Empty: only an override matches. */
static const struct pci_device_id no_ids[] = { {} };

static struct pci_driver driver = {
	.name = UGDS_NAME,
	.id_table = no_ids,
	.probe = ugds_probe,
	.remove = ugds_remove,
	.shutdown = ugds_shutdown,
	.err_handler = &error_handlers,
	.driver.pm = pm_sleep_ptr(&pm_ops),
};

static int __init ugds_init(void)
{
	int err;

	err = alloc_chrdev_region(&first_devt, 0, MAX_MINORS, UGDS_NAME);
	if (err)
		return err;
	node_class = ugds_class_create(UGDS_NAME);
	if (IS_ERR(node_class)) {
		err = PTR_ERR(node_class);
		goto unregister_region;
	}
	err = ugds_cdev_init(first_devt, MAX_MINORS);
	if (err)
		goto destroy_class;
	err = pci_register_driver(&driver);
	if (err)
		goto cdev_done;
	return 0;

cdev_done:
	ugds_cdev_done();
destroy_class:
	class_destroy(node_class);
unregister_region:
	unregister_chrdev_region(first_devt, MAX_MINORS);
	return err;
}
module_init(ugds_init);

/* Not while a file is open: it holds the module. */
static void __exit ugds_exit(void)
{
	pci_unregister_driver(&driver);
	ugds_cdev_done();
	class_destroy(node_class);
	unregister_chrdev_region(first_devt, MAX_MINORS);
}
module_exit(ugds_exit);

MODULE_DESCRIPTION("NVMe functions in user space, for DMA into GPU memory");
MODULE_AUTHOR("The aiougds authors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("0.1.0");
