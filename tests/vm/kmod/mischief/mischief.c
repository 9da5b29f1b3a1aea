/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Misbehaves on request, so that the test bed can show that it notices:
 * "echo KIND > /sys/kernel/debug/mischief/do". Of no other use.
 */
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/uaccess.h>

static struct dentry *dir;

static void mischief_oops(void)
{
	/* The compiler must not see that it is NULL, or it makes a trap of it. */
	int *volatile nowhere = NULL;

	*nowhere = 1;
}

static ssize_t mischief_write(struct file *file, const char __user *buf, size_t n, loff_t *pos)
{
	char kind[16];

	if (n >= sizeof(kind))
		return -EINVAL;
	if (copy_from_user(kind, buf, n))
		return -EFAULT;
	kind[n] = '\0';
	if (sysfs_streq(kind, "info"))
		pr_info("ugds_drv 0000:00:00.0: all is well\n");
	else if (sysfs_streq(kind, "other"))
		pr_warn("mischief: a warning of another module\n");
	else if (sysfs_streq(kind, "warn"))
		pr_warn("ugds_drv 0000:00:00.0: a warning on request\n");
	else if (sysfs_streq(kind, "dmar"))
		pr_err("DMAR: [DMA Write NO_PASID] Request device [00:10.0] fault addr 0x1000\n");
	else if (sysfs_streq(kind, "splat"))
		WARN(1, "mischief: a splat on request\n");
	else if (sysfs_streq(kind, "oops"))
		mischief_oops();
	else
		return -EINVAL;
	return (ssize_t)n;
}

static const struct file_operations mischief_fops = {
	.owner = THIS_MODULE,
	.write = mischief_write,
};

static int __init mischief_init(void)
{
	dir = debugfs_create_dir("mischief", NULL);
	debugfs_create_file("do", 0200, dir, NULL, &mischief_fops);
	return 0;
}

static void __exit mischief_exit(void)
{
	debugfs_remove(dir);
}

module_init(mischief_init);
module_exit(mischief_exit);
MODULE_DESCRIPTION("Misbehaves on request, for the test bed");
MODULE_LICENSE("Dual MIT/GPL");
