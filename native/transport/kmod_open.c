/* SPDX-License-Identifier: MIT */
/* Opening the device node: what is refused, in which words; and the mappings. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/kmod_dev.h"
#include "transport/kmod_holder.h"

#define MODULE "/sys/module/ugds_drv"
#define SAY(...) snprintf(err, err_len, __VA_ARGS__)

static int refused(const char *path, int error, char *err, size_t err_len)
{
	char holder[96];

	switch (error) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		if (access(MODULE, F_OK))
			SAY("%s is not there: the module ugds_drv is not loaded; modprobe ugds_drv, then "
			    "give it "
			    "a controller with `aiougds bind ADDRESS` (`aiougds list` shows what there is)",
			    path);
		else
			SAY("%s is not there: no controller is bound to ugds_drv under this name; `aiougds "
			    "list` "
			    "shows what there is, `aiougds bind ADDRESS` gives one to it",
			    path);
		return error == ENOENT ? -ENOENT : -ENODEV;
	case EBUSY:
		kmod_holder(path, holder, sizeof(holder));
		SAY("%s is in use by %s; a controller is opened by one process at a time: close it there "
		    "first",
		    path, holder);
		break;
	case EACCES:
		SAY("no permission to open %s: its udev rule gives it to group ugds; join the group (sudo "
		    "usermod -aG ugds $USER, then log in again) or run as root",
		    path);
		break;
	case EPERM:
		SAY("%s may be opened only with CAP_SYS_RAWIO: no IOMMU translates what its controller does, "
		    "so "
		    "whoever drives it can reach all memory; run as root, boot with intel_iommu=on (AMD: "
		    "without "
		    "iommu=pt), or load ugds_drv with allow_no_iommu=1 and take that risk",
		    path);
		break;
	default:
		SAY("cannot open %s: %s", path, strerror(error));
	}
	return -error;
}

static int look(struct kmod *k, const char *path, char *err, size_t err_len)
{
	int rc;

	k->info.argsz = sizeof(k->info);
	rc = kmod_call(k, UGDS_DRV_INFO, &k->info);
	if (rc == -ENOTTY || rc == -EINVAL)
		return SAY("%s is no device of ugds_drv", path), -EPROTO;
	if (rc)
		return SAY("%s does not say what it is: %s", path, strerror(-rc)), rc;
	if (k->info.api_major != UGDS_DRV_API_MAJOR)
		return SAY("the loaded module ugds_drv speaks version %u.%u of its interface, this aiougds "
			   "%u.%u: "
			   "load the module that belongs to it (modprobe -r ugds_drv, then build and install "
			   "it anew)",
			   k->info.api_major, k->info.api_minor, UGDS_DRV_API_MAJOR, UGDS_DRV_API_MINOR),
		       -EPROTO;
	if (k->info.bar_map_bytes <= NVME_REG_DBS)
		return SAY("of the registers of %s only %llu bytes can be mapped, without the doorbells: its "
			   "MSI-X table lies among them",
			   path, (unsigned long long)k->info.bar_map_bytes),
		       -EOPNOTSUPP;
	return 0;
}

static int map_all(struct kmod *k, const char *path, char *err, size_t err_len)
{
	const int prot = PROT_READ | PROT_WRITE;
	void *p = mmap(NULL, (size_t)k->info.bar_map_bytes, prot, MAP_SHARED, k->fd, UGDS_DRV_MMAP_BAR0);
	int rc;

	if (p == MAP_FAILED) {
		rc = -errno;
		SAY("the registers of %s cannot be mapped: %s", path, strerror(-rc));
		return rc;
	}
	k->bar = p;
	if (!(k->info.caps & UGDS_DRV_CAP_ARM) || k->info.armed_stride < sizeof(uint32_t) ||
	    !k->info.armed_words)
		return 0;
	k->armed_bytes =
		align_up((size_t)k->info.armed_words * k->info.armed_stride, (uint64_t)sysconf(_SC_PAGESIZE));
	p = mmap(NULL, k->armed_bytes, prot, MAP_SHARED, k->fd, (off_t)UGDS_DRV_MMAP_ARMED);
	if (p == MAP_FAILED) {
		rc = -errno;
		SAY("the wake-up words of %s cannot be mapped: %s", path, strerror(-rc));
		return rc;
	}
	k->armed = p;
	return 0;
}

void kmod_unmap_all(struct kmod *k)
{
	if (k->bar)
		munmap((void *)(uintptr_t)k->bar, (size_t)k->info.bar_map_bytes);
	if (k->armed)
		munmap(k->armed, k->armed_bytes);
	k->bar = NULL;
	k->armed = NULL;
}

static uint32_t iommu_of(struct kmod *k)
{
	struct ugds_drv_topology t = { .argsz = sizeof(t) };

	if (kmod_call(k, UGDS_DRV_TOPOLOGY, &t)) /* it cannot say which way it passes through */
		return k->info.caps & UGDS_DRV_CAP_IOMMU ? NVME_IOMMU_TRANSLATED : NVME_IOMMU_NONE;
	return t.ret_iommu;
}

static_assert(NVME_IOMMU_NONE == UGDS_DRV_IOMMU_NONE && NVME_IOMMU_IDENTITY == UGDS_DRV_IOMMU_IDENTITY &&
		      NVME_IOMMU_TRANSLATED == UGDS_DRV_IOMMU_TRANSLATED,
	      "one numbering");

int kmod_open(struct kmod *k, const char *path, char *err, size_t err_len)
{
	int rc;

	k->fd = open(path, O_RDWR | O_CLOEXEC);
	if (k->fd < 0)
		return refused(path, errno, err, err_len);
	rc = look(k, path, err, err_len);
	if (!rc)
		rc = map_all(k, path, err, err_len);
	if (rc) {
		kmod_unmap_all(k);
		close(k->fd);
		return rc;
	}
	k->iommu = iommu_of(k);
	return 0;
}
