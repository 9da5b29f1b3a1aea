/* SPDX-License-Identifier: MIT */
/* The face of the CUDA driver API: virtual memory management. */
#include "face.h"
#include "vmm.h"

struct prop { /* CUmemAllocationProp: what of it is looked at */
	int type, handle_types, location_type, location_id;
};

SOFT_EXPORT int cuMemGetAllocationGranularity(size_t *nbytes, const struct prop *p, int option)
{
	(void)p;
	(void)option;
	*nbytes = SOFT_GRANULE;
	return SOFT_OK;
}

SOFT_EXPORT int cuMemAddressReserve(uint64_t *addr, size_t nbytes, size_t alignment, uint64_t hint,
				    unsigned long long flags)
{
	CALL();

	(void)alignment;
	(void)hint;
	(void)flags;
	return soft_vmm_reserve(0, nbytes, addr);
}

SOFT_EXPORT int cuMemAddressFree(uint64_t addr, size_t nbytes)
{
	CALL();

	return soft_vmm_unreserve(addr, nbytes);
}

SOFT_EXPORT int cuMemCreate(uint64_t *handle, size_t nbytes, const struct prop *p, unsigned long long flags)
{
	CALL();

	(void)flags;
	if (!soft_device_exists(p->location_id))
		return SOFT_INVALID_DEVICE;
	return soft_vmm_create(p->location_id, nbytes, handle);
}

SOFT_EXPORT int cuMemRelease(uint64_t handle)
{
	CALL();

	return soft_vmm_release(handle);
}

SOFT_EXPORT int cuMemMap(uint64_t addr, size_t nbytes, size_t offset, uint64_t handle,
			 unsigned long long flags)
{
	CALL();

	return offset || flags ? SOFT_INVALID_VALUE : soft_vmm_map(addr, nbytes, handle);
}

SOFT_EXPORT int cuMemSetAccess(uint64_t addr, size_t nbytes, const void *desc, size_t n)
{
	CALL();

	(void)desc;
	(void)n;
	return soft_reach(addr, nbytes) ? SOFT_OK : SOFT_INVALID_VALUE;
}

SOFT_EXPORT int cuMemUnmap(uint64_t addr, size_t nbytes)
{
	SOFT_CALL();
	int code;

	pthread_rwlock_wrlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	code = soft_vmm_unmap(addr, nbytes);
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_unlock(&soft_memory);
	return code;
}
