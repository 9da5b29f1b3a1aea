/* SPDX-License-Identifier: MIT */
#ifndef SOFT_NAMES_H
#define SOFT_NAMES_H

#include <stdbool.h>
#include <stddef.h>

const char *soft_error_name(int code, bool hip); /* NULL: not known */
/* The address of an exported function of the library that the caller is in; with the newest of @suffixes that it has. */
void *soft_symbol(const char *name, const char *const *suffixes);

#endif
