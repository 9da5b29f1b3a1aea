/* SPDX-License-Identifier: MIT */
/* A target without a fuzzer: every file of the folders and files named is run once, as a test. */
#include <dirent.h>
#include <sys/stat.h>

#include "../native/tap.h"
#include "input.h"

#define MOST (1u << 20)

static void run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *buf = malloc(MOST), *exact;
	size_t n = f ? fread(buf, 1, MOST, f) : 0;

	if (f)
		fclose(f);
	exact = malloc(n ? n : 1); /* so that a read past its end is seen */
	memcpy(exact, buf, n);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
	free(buf);
	ok(f, "%s: %zu bytes", path, n);
}

static void run_folder(const char *path)
{
	struct dirent **list;
	int n = scandir(path, &list, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
		if (list[i]->d_name[0] != '.')
			run_file(name);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

int main(int argc, char **argv)
{
	static const uint8_t nothing[1];

	LLVMFuzzerTestOneInput(nothing, 0);
	ok(true, "no input at all");
	for (int i = 1; i < argc; i++) {
		struct stat st;

		if (!stat(argv[i], &st) && S_ISDIR(st.st_mode))
			run_folder(argv[i]);
		else
			run_file(argv[i]);
	}
	return done_testing();
}
