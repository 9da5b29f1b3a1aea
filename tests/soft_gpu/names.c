/* SPDX-License-Identifier: MIT */
/* Names of errors: the numbers are those of both vendors, the words are not. */
#include "names.h"

static const struct {
	int code;
	const char *cuda, *hip;
} names[] = {
	{ 0, "CUDA_SUCCESS", "hipSuccess" },
	{ 1, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue" },
	{ 2, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory" },
	{ 3, "CUDA_ERROR_NOT_INITIALIZED", "hipErrorNotInitialized" },
	{ 4, "CUDA_ERROR_DEINITIALIZED", "hipErrorDeinitialized" },
	{ 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", NULL },
	{ 100, "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice" },
	{ 101, "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice" },
	{ 201, "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext" },
	{ 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "hipErrorECCNotCorrectable" },
	{ 400, "CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle" },
	{ 500, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound" },
	{ 600, "CUDA_ERROR_NOT_READY", "hipErrorNotReady" },
	{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress" },
	{ 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "hipErrorLaunchTimeOut" },
	{ 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "hipErrorContextIsDestroyed" },
	{ 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "hipErrorHostMemoryAlreadyRegistered" },
	{ 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "hipErrorHostMemoryNotRegistered" },
	{ 719, "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure" },
	{ 800, "CUDA_ERROR_NOT_PERMITTED", NULL },
	{ 801, "CUDA_ERROR_NOT_SUPPORTED", "hipErrorNotSupported" },
	{ 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "hipErrorStreamCaptureUnsupported" },
	{ 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "hipErrorStreamCaptureInvalidated" },
	{ 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "hipErrorStreamCaptureUnmatched" },
	{ 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "hipErrorStreamCaptureImplicit" },
	{ 907, "CUDA_ERROR_CAPTURED_EVENT", "hipErrorCapturedEvent" },
	{ 999, "CUDA_ERROR_UNKNOWN", "hipErrorUnknown" },
	{ 0, NULL, NULL },
};

const char *soft_error_name(int code, bool hip)
{
	int i = 0;

	while (names[i].cuda && names[i].code != code)
		i++;
	return hip ? names[i].hip : names[i].cuda;
}
