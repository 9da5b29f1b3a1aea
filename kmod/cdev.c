// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The character device: who may open it, and which call goes where. */
#include <linux/cdev.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "args.h"
#include "ugds_drv.h"

static bool allow_no_iommu;
module_param(allow_no_iommu, bool, 0644);
/* clang-format off */
MODULE_PARM_DESC(allow_no_iommu,
		 "let openers without CAP_SYS_RAWIO use devices that no IOMMU translates for. RISK: such an opener can make the device read and write all memory of this machine (default: off)");
/* clang-format on */

static int may_open(struct ugds_dev *dev)
{
	/* What the device is told is physical then: the opener reaches all memory through it. */
	if (ugds_iommu_of(&dev->pdev->dev) == UGDS_DRV_IOMMU_TRANSLATED || allow_no_iommu ||
	    capable(CAP_SYS_RAWIO))
		return 0;
	return -EPERM;
}

static int ugds_open(struct inode *inode, struct file *file)
{
	struct ugds_dev *dev = ugds_dev_get(iminor(inode));
	struct ugds_file *f;
	int err;

	if (!dev)
		return -ENODEV;
	/* The tenure is bound to an address space. */
	err = current->mm ? may_open(dev) : -EPERM;
	if (err) {
		ugds_dev_put(dev);
		return err;
	}
	f = ugds_file_open(dev, file->f_mapping);
	if (IS_ERR(f))
		return PTR_ERR(f);
	file->private_data = f;
	return nonseekable_open(inode, file);
}

static int ugds_release(struct inode *inode, struct file *file)
{
	ugds_file_close(file->private_data);
	return 0;
}

/* live is held for reading. */
static int may_call(struct ugds_file *f)
{
	if (f->ended)
		return f->ended;
	/* Another process has the file too: what it maps and binds would not end with it. */
	return current->mm == f->mm ? 0 : -EPERM;
}

/* ---- calls ---- */

static int call_info(struct ugds_file *f, void *arg, void __user *user)
{
	struct pci_dev *pdev = f->dev->pdev;
	struct ugds_drv_info *info = arg;
	u32 argsz = info->argsz;

	if (info->flags)
		return -EINVAL;
	*info = (struct ugds_drv_info){
		.argsz = argsz,
		.api_major = UGDS_DRV_API_MAJOR,
		.api_minor = UGDS_DRV_API_MINOR,
		.page_size = PAGE_SIZE,
		.caps = UGDS_DRV_CAP_ARM | ugds_map_caps(f),
		.bar_bytes = f->dev->bar_bytes,
		.bar_map_bytes = f->dev->map_bytes,
		.nr_vectors = f->dev->nr_vectors,
		.vector_owners = UGDS_VECTOR_OWNERS,
		.max_mappings = UGDS_MAX_MAPPINGS,
		.armed_words = UGDS_ARMED_WORDS,
		.armed_stride = UGDS_ARMED_STRIDE,
		.numa_node = dev_to_node(&pdev->dev),
		.domain = pci_domain_nr(pdev->bus),
		.bus = pdev->bus->number,
		.devfn = pdev->devfn,
		.vendor = pdev->vendor,
		.device = pdev->device,
		.dma_bits = 64,
		.max_map_bytes = UGDS_MAX_MAP_BYTES,
	};
	if (ugds_can_reset(f->dev))
		info->caps |= UGDS_DRV_CAP_FLR;
	if (ugds_iommu_of(&pdev->dev) == UGDS_DRV_IOMMU_TRANSLATED)
		info->caps |= UGDS_DRV_CAP_IOMMU;
	return copy_to_user(user, info, sizeof(*info)) ? -EFAULT : 0;
}

static int call_map(struct ugds_file *f, void *arg, void __user *user)
{
	return ugds_map(f, arg, user);
}

static int call_extents(struct ugds_file *f, void *arg, void __user *user)
{
	return ugds_extents(f, arg, user);
}

static int call_unmap(struct ugds_file *f, void *arg, void __user *user)
{
	return ugds_unmap(f, arg);
}

static int call_queue_alloc(struct ugds_file *f, void *arg, void __user *user)
{
	return ugds_queue(f, arg, user);
}

static int call_irq_bind(struct ugds_file *f, void *arg, void __user *user)
{
	struct ugds_drv_irq_bind *bind = arg;
	int err;

	err = ugds_check_irq_bind(bind, f->dev->nr_vectors, UGDS_ARMED_WORDS);
	if (err)
		return err;
	err = ugds_irq_bind(f, bind);
	if (err)
		return err;
	if (!copy_to_user(user, bind, sizeof(*bind)))
		return 0;
	ugds_irq_unbind(f, bind->ret_binding);
	return -EFAULT;
}

static int call_irq_unbind(struct ugds_file *f, void *arg, void __user *user)
{
	struct ugds_drv_irq_unbind *unbind = arg;

	return unbind->flags ? -EINVAL : ugds_irq_unbind(f, unbind->binding);
}

static int call_state(struct ugds_file *f, void *arg, void __user *user)
{
	struct ugds_drv_state *state = arg;
	struct eventfd_ctx *event = NULL;

	if (state->flags || state->event_fd < -1)
		return -EINVAL;
	if (state->event_fd >= 0) {
		event = eventfd_ctx_fdget(state->event_fd);
		if (IS_ERR(event))
			return -EBADF;
	}
	state->ret_state = ugds_file_watch(f, event);
	mutex_lock(&f->ledger.lock);
	state->ret_nr_mappings = f->ledger.nr;
	state->ret_pinned_bytes = (f->ledger.cover.pages << PAGE_SHIFT) + f->queue_bytes;
	mutex_unlock(&f->ledger.lock);
	state->ret_nr_revoked = atomic_read(&f->nr_revoked);
	return copy_to_user(user, state, sizeof(*state)) ? -EFAULT : 0;
}

static int call_reset(struct ugds_file *f, void *arg, void __user *user)
{
	struct ugds_drv_reset *reset = arg;

	return ugds_check_reset(reset) ?: ugds_file_reset(f, reset->how);
}

static int call_topology(struct ugds_file *f, void *arg, void __user *user)
{
	struct ugds_drv_topology *topology = arg;
	int err = ugds_topology(f, topology);

	if (err)
		return err;
	return copy_to_user(user, topology, sizeof(*topology)) ? -EFAULT : 0;
}

#define REVOKED_TOO BIT(0) /* works while memory was revoked */
#define REMOVED_TOO BIT(1) /* works when the function is gone */

static const struct call {
	int (*run)(struct ugds_file *f, void *arg, void __user *user);
	size_t size;
	u32 when;
} calls[] = {
	[_IOC_NR(UGDS_DRV_INFO)] = { call_info, sizeof(struct ugds_drv_info) },
	[_IOC_NR(UGDS_DRV_MAP)] = { call_map, sizeof(struct ugds_drv_map) },
	[_IOC_NR(UGDS_DRV_EXTENTS)] = { call_extents, sizeof(struct ugds_drv_extents) },
	[_IOC_NR(UGDS_DRV_UNMAP)] = { call_unmap, sizeof(struct ugds_drv_unmap), REVOKED_TOO },
	[_IOC_NR(UGDS_DRV_QUEUE_ALLOC)] = { call_queue_alloc, sizeof(struct ugds_drv_queue_alloc) },
	[_IOC_NR(UGDS_DRV_IRQ_BIND)] = { call_irq_bind, sizeof(struct ugds_drv_irq_bind) },
	[_IOC_NR(UGDS_DRV_IRQ_UNBIND)] = { call_irq_unbind, sizeof(struct ugds_drv_irq_unbind),
					   REVOKED_TOO },
	[_IOC_NR(UGDS_DRV_STATE)] = { call_state, sizeof(struct ugds_drv_state),
				      REVOKED_TOO | REMOVED_TOO },
	[_IOC_NR(UGDS_DRV_RESET)] = { call_reset, sizeof(struct ugds_drv_reset), REVOKED_TOO },
	[_IOC_NR(UGDS_DRV_TOPOLOGY)] = { call_topology, sizeof(struct ugds_drv_topology) },
};

union any_arg {
	struct ugds_drv_info info;
	struct ugds_drv_map map;
	struct ugds_drv_extents extents;
	struct ugds_drv_unmap unmap;
	struct ugds_drv_queue_alloc queue_alloc;
	struct ugds_drv_irq_bind irq_bind;
	struct ugds_drv_irq_unbind irq_unbind;
	struct ugds_drv_state state;
	struct ugds_drv_reset reset;
	struct ugds_drv_topology topology;
};

static int read_arg(union any_arg *arg, size_t known, const void __user *user)
{
	u32 argsz;
	int err;

	if (get_user(argsz, (const u32 __user *)user))
		return -EFAULT;
	err = ugds_check_argsz(argsz, known);
	if (err)
		return err;
	err = copy_struct_from_user(arg, known, user, argsz);
	if (err)
		return err;
	/* It was read twice: what was checked counts. */
	arg->info.argsz = argsz;
	return 0;
}

static int run_live(struct ugds_file *f, const struct call *call, void *arg, void __user *user)
{
	int err;

	if (down_read_killable(&f->live))
		return -EINTR;
	err = may_call(f);
	if (err == -ENODEV && call->when & REMOVED_TOO)
		err = 0;
	else if (!err && !(call->when & REVOKED_TOO) && ugds_file_is_revoked(f))
		err = -EIO;
	if (!err)
		err = call->run(f, arg, user);
	up_read(&f->live);
	return err;
}

static long ugds_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	void __user *to = (void __user *)user;
	const struct call *call;
	union any_arg arg = {};
	unsigned int nr = _IOC_NR(cmd);
	int err;

	if (cmd != _IO(UGDS_DRV_IOC, nr) || nr >= ARRAY_SIZE(calls))
		return -ENOTTY;
	call = &calls[array_index_nospec(nr, ARRAY_SIZE(calls))];
	err = read_arg(&arg, call->size, to);
	return err ?: run_live(file->private_data, call, &arg, to);
}

/* ---- memory ---- */

static int armed_mmap(struct ugds_file *f, struct vm_area_struct *vma)
{
	u64 at = ((u64)vma->vm_pgoff << PAGE_SHIFT) - UGDS_DRV_MMAP_ARMED;
	u64 nbytes = vma->vm_end - vma->vm_start;
	u64 all = PAGE_SIZE << UGDS_ARMED_ORDER;

	if (at >= all || nbytes > all - at)
		return -EINVAL;
	return remap_pfn_range(vma, vma->vm_start,
			       page_to_pfn(virt_to_page(f->armed)) + (at >> PAGE_SHIFT), nbytes,
			       vma->vm_page_prot);
}

static int mmap_live(struct ugds_file *f, struct vm_area_struct *vma)
{
	u64 at = (u64)vma->vm_pgoff << PAGE_SHIFT;

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_pgoff > U64_MAX >> PAGE_SHIFT)
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	if (at >= UGDS_DRV_MMAP_QUEUE)
		return ugds_queue_mmap(f, vma);
	if (at >= UGDS_DRV_MMAP_ARMED)
		return armed_mmap(f, vma);
	return ugds_bar_mmap(f, vma);
}

/*
 * mmap_lock is held, and calls take it inside live: so live is tried here. Only the end of the
 * tenure holds it for writing, and after that this fails in any case.
 */
static int ugds_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ugds_file *f = file->private_data;
	int err;

	if (!down_read_trylock(&f->live))
		return READ_ONCE(f->dev->removed) ? -ENODEV : -EAGAIN;
	err = may_call(f) ?: mmap_live(f, vma);
	up_read(&f->live);
	return err;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.open = ugds_open,
	.release = ugds_release,
	.unlocked_ioctl = ugds_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = ugds_mmap,
};

static struct cdev cdev;

int ugds_cdev_init(dev_t first, unsigned int nr)
{
	cdev_init(&cdev, &fops);
	cdev.owner = THIS_MODULE;
	return cdev_add(&cdev, first, nr);
}

void ugds_cdev_done(void)
{
	cdev_del(&cdev);
}
