/* SPDX-License-Identifier: MIT */
/* Failures in words. */
#include <stdarg.h>
#include <stdio.h>

#include "nvme/ctrl.h"

int nvme_err_set(struct nvme_err *e, int err, uint16_t status, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return err;
	e->err = err;
	e->status = status;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return err;
}
