/* SPDX-License-Identifier: MIT */
/* Who has a device node open: a walk over /proc, for a message. */
#include "transport/kmod_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_open(int proc, const char *pid, dev_t rdev)
{
	char path[64];
	struct dirent *e;
	bool found = false;
	DIR *fds;
	int dir;

	snprintf(path, sizeof(path), "%.16s/fd", pid);
	dir = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return false; /* gone, or not ours to look at */
	fds = fdopendir(dir);
	if (!fds) {
		close(dir);
		return false;
	}
	while (!found && (e = readdir(fds))) {
		struct stat st;

		found = isdigit((unsigned char)e->d_name[0]) && !fstatat(dir, e->d_name, &st, 0) &&
			S_ISCHR(st.st_mode) && st.st_rdev == rdev;
	}
	closedir(fds);
	return found;
}

static void describe(int proc, const char *pid, char *buf, size_t len)
{
	char path[64], name[32] = "";
	ssize_t n = -1;
	int fd;

	if (atoi(pid) == getpid()) {
		snprintf(buf, len, "this process (%.16s)", pid);
		return;
	}
	snprintf(path, sizeof(path), "%.16s/comm", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, name, sizeof(name) - 1);
		close(fd);
	}
	name[n > 0 ? n : 0] = '\0';
	name[strcspn(name, "\n")] = '\0';
	snprintf(buf, len, "process %.16s (%s)", pid, name[0] ? name : "unknown");
}

void kmod_holder(const char *path, char *buf, size_t len)
{
	struct dirent *e;
	struct stat st;
	DIR *proc;

	snprintf(buf, len, "another process");
	if (stat(path, &st) || !S_ISCHR(st.st_mode))
		return;
	proc = opendir("/proc");
	if (!proc)
		return;
	while ((e = readdir(proc)))
		if (isdigit((unsigned char)e->d_name[0]) && has_open(dirfd(proc), e->d_name, st.st_rdev)) {
			describe(dirfd(proc), e->d_name, buf, len);
			break;
		}
	closedir(proc);
}
