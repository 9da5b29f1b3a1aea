/* SPDX-License-Identifier: MIT */
/* The face of the HIP runtime API: devices and errors. Handles and enumerations as integers. */
#include <stdio.h>

#include "face.h"
#include "names.h"

const struct soft_vendor soft_vendor = {
	.name = "HIP",
	.connections_env = "SOFT_GPU_HIP_CONNECTIONS",
	.signal_words = true,
	.alignment = 256,
};

/* A register of the host data path, which a real one writes through to the device: here it is only looked at. */
static uint32_t hdp_flush[SOFT_DEVICES];

int soft_answer(int code)
{
	if (code)
		soft_thread()->last_error = code;
	return code;
}

SOFT_EXPORT int hipInit(unsigned flags)
{
	CALL();

	return soft_answer(flags ? SOFT_INVALID_VALUE : soft_init());
}

SOFT_EXPORT int hipRuntimeGetVersion(int *version)
{
	SOFT_CALL();
	*version = 70051831;
	return SOFT_OK;
}

SOFT_EXPORT int hipDriverGetVersion(int *version) { return hipRuntimeGetVersion(version); }

SOFT_EXPORT const char *hipGetErrorName(int code)
{
	const char *name = soft_error_name(code, true);

	return name ? name : "hipErrorUnknown";
}

SOFT_EXPORT const char *hipGetErrorString(int code) { return hipGetErrorName(code); }

SOFT_EXPORT int hipPeekAtLastError(void) { return soft_thread()->last_error; }

SOFT_EXPORT int hipGetLastError(void)
{
	int code = soft_thread()->last_error;

	soft_thread()->last_error = 0;
	return code;
}

SOFT_EXPORT int hipGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags, int *status)
{
	static const char *const plain[] = { "", NULL };

	(void)version;
	(void)flags;
	*fn = soft_symbol(symbol, plain);
	if (status)
		*status = !*fn;
	return *fn ? SOFT_OK : SOFT_INVALID_VALUE;
}

SOFT_EXPORT int hipGetDeviceCount(int *n)
{
	CALL();

	*n = soft_nr_devices;
	soft_initialized = true;
	return soft_answer(soft_nr_devices ? SOFT_OK : SOFT_NO_DEVICE);
}

SOFT_EXPORT int hipGetDevice(int *device)
{
	CALL();

	*device = soft_thread()->device;
	return SOFT_OK;
}

SOFT_EXPORT int hipSetDevice(int device)
{
	CALL();

	if (!soft_device_exists(device))
		return soft_answer(SOFT_INVALID_DEVICE);
	soft_thread()->device = device;
	return SOFT_OK;
}

SOFT_EXPORT int hipDeviceGetName(char *name, int len, int device)
{
	CALL();

	snprintf(name, (size_t)len, "software HIP device %d", device);
	return soft_answer(soft_device_exists(device) ? SOFT_OK : SOFT_INVALID_DEVICE);
}

SOFT_EXPORT int hipDeviceGetPCIBusId(char *id, int len, int device)
{
	CALL();

	snprintf(id, (size_t)len, "0000:%02x:00.0", 0xe0 + device);
	return soft_answer(soft_device_exists(device) ? SOFT_OK : SOFT_INVALID_DEVICE);
}

SOFT_EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device)
{
	CALL();
	uint32_t missing = soft_controls.missing;

	if (!soft_device_exists(device))
		return soft_answer(SOFT_INVALID_DEVICE);
	switch (attribute) {
	case 93: /* DmaBufSupported */
		*value = !(missing & SOFT_NO_DMABUF);
		break;
	case 10005: /* HdpMemFlushCntl: an address */
		*(uint64_t *)(void *)value =
			missing & SOFT_UNORDERED_WRITES ? (uint64_t)(uintptr_t)&hdp_flush[device] : 0;
		break;
	case 10013: /* CanUseStreamWaitValue */
		*value = !(missing & SOFT_NO_MEMOPS);
		break;
	default:
		*value = 0;
	}
	return SOFT_OK;
}

/* How often the register was written, at the least once: tests set it to 0 and look. */
SOFT_EXPORT uint32_t *soft_gpu_hdp_flush(int device) { return &hdp_flush[device]; }

SOFT_EXPORT int hipDeviceSynchronize(void)
{
	CALL_IN(ctx);

	soft_counters.synchronises++;
	return soft_answer(soft_sync_device(ctx->device, ctx));
}

SOFT_EXPORT int hipDeviceReset(void)
{
	SOFT_CALL();
	soft_ctx_end(soft_primary(soft_thread()->device));
	return SOFT_OK;
}
