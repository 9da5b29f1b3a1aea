/* SPDX-License-Identifier: MIT */
/* Test results as TAP lines; meson counts them. */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int tap_run, tap_failed;

__attribute__((unused, format(printf, 2, 3))) static bool ok(bool cond, const char *name, ...)
{
	va_list ap;

	printf("%sok %d - ", cond ? "" : "not ", ++tap_run);
	va_start(ap, name);
	vprintf(name, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	tap_failed += !cond;
	return cond;
}

/* A check that this kernel, or what stands for one, cannot show. */
__attribute__((unused)) static void skip(const char *why)
{
	printf("ok %d # SKIP %s\n", ++tap_run, why);
	fflush(stdout);
}

/* The plan, and main()'s result. */
__attribute__((unused)) static int done_testing(void)
{
	printf("1..%d\n", tap_run);
	return tap_failed ? 1 : 0;
}

#endif
