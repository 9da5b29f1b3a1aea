/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdio.h>

#include "names.h"

void *soft_symbol(const char *name, const char *const *suffixes)
{
	static void *self;
	char versioned[128];
	void *found = NULL;
	Dl_info info;

	if (!self && dladdr((void *)(unsigned long)soft_symbol, &info))
		self = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	for (int i = 0; self && !found && suffixes[i]; i++) {
		snprintf(versioned, sizeof(versioned), "%s%s", name, suffixes[i]);
		found = dlsym(self, versioned);
	}
	return found;
}
