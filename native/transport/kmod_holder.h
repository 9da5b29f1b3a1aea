/* SPDX-License-Identifier: MIT */
#ifndef TRANSPORT_KMOD_HOLDER_H
#define TRANSPORT_KMOD_HOLDER_H

#include <stddef.h>

/* Which process has the device node open, in words; "another process" if that cannot be seen. */
void kmod_holder(const char *path, char *buf, size_t len);

#endif
