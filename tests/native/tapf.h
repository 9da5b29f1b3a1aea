/* SPDX-License-Identifier: MIT */
/* tap.h with formatted names. */
#ifndef TESTS_TAPF_H
#define TESTS_TAPF_H

#include <stdarg.h>

#include "tap.h"

__attribute__((format(printf, 2, 3), unused)) static bool okf(bool cond, const char *fmt, ...)
{
	char name[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	return ok(cond, name);
}

#endif
