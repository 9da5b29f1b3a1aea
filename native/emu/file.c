/* SPDX-License-Identifier: MIT */
/* Opening a namespace's file: what is refused, and in which words. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#include "emu/backing.h"
#include "emu/emu.h"
#include "support/util.h"

#define SAY(...) snprintf(err, err_len, __VA_ARGS__)

/* One line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF". */
static bool line_holds(const char *line, const struct stat *st, int *ret_pid)
{
	unsigned int major_nr, minor_nr;
	unsigned long long ino;
	char mode[16];
	int pid;

	if (strstr(line, "->") || !strstr(line, "FLOCK"))
		return false;
	if (sscanf(line, "%*d: FLOCK %*s %15s %d %x:%x:%llu", mode, &pid, &major_nr, &minor_nr, &ino) != 5)
		return false;
	if (ino != st->st_ino || major_nr != major(st->st_dev) || minor_nr != minor(st->st_dev))
		return false;
	*ret_pid = pid;
	return true;
}

static void name_of(int pid, char *buf, size_t len)
{
	char path[48], comm[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (f) {
		if (fgets(comm, sizeof(comm), f))
			comm[strcspn(comm, "\n")] = 0;
		fclose(f);
	}
	if (comm[0])
		snprintf(buf, len, "process %d (%s)", pid, comm);
	else
		snprintf(buf, len, "process %d", pid);
}

void emu_lock_holder(int fd, char *buf, size_t len)
{
	char line[256];
	struct stat st;
	FILE *f;
	int pid;

	snprintf(buf, len, "another process");
	if (fstat(fd, &st))
		return;
	f = fopen("/proc/locks", "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (!line_holds(line, &st, &pid) || pid <= 0)
			continue;
		if (pid == getpid())
			snprintf(buf, len, "this process (%d)", pid);
		else
			name_of(pid, buf, len);
		break;
	}
	fclose(f);
}

static int open_error(const struct emu_params *p, const char *path, int error, char *err, size_t err_len)
{
	switch (error) {
	case ENOENT:
		SAY("%s does not exist%s", path,
		    p->readonly ? "; a read-only namespace is not made"
		    : p->create ? ", nor does its directory; make the directory first"
				: "; give a size (size=1GiB) to make it");
		break;
	case EISDIR:
		SAY("%s is a directory; name a file", path);
		break;
	case EACCES:
	case EPERM:
	case EROFS:
		SAY("no permission to open %s for %s%s", path, p->readonly ? "reading" : "writing",
		    p->readonly ? "" : "; readonly=1 needs read permission only");
		break;
	default:
		SAY("cannot open %s: %s", path, strerror(error));
	}
	return -error;
}

static int lengthen(const struct emu_params *p, const char *path, uint64_t want, int fd, char *err,
		    size_t err_len)
{
	int error;

	if (ftruncate(fd, (off_t)want)) {
		error = errno;
		SAY("cannot make %s %llu bytes long: %s%s", path, (unsigned long long)want, strerror(error),
		    error == EFBIG ? "; give a smaller size, that its file system and this process's limit "
				     "(ulimit -f) allow"
				   : "");
		return -error;
	}
	/* Direct writes to holes go one at a time. Where there is no fallocate they just do. */
	if (p->direct && fallocate(fd, 0, 0, (off_t)want) && errno == ENOSPC) {
		SAY("%s cannot have %llu bytes: the file system is full; give a smaller size, or leave out "
		    "direct=1 for a sparse file",
		    path, (unsigned long long)want);
		return -ENOSPC;
	}
	return 0;
}

static int check_length(const struct emu_params *p, const char *path, uint64_t want, uint32_t lba_bytes,
			struct emu_ns *ns, char *err, size_t err_len)
{
	struct stat st;

	if (fstat(ns->fd, &st)) {
		int error = errno;

		SAY("cannot stat %s: %s", path, strerror(error));
		return -error;
	}
	if (S_ISDIR(st.st_mode))
		return open_error(p, path, EISDIR, err, err_len);
	if (!S_ISREG(st.st_mode)) {
		SAY("%s is not a regular file; the embedded controller serves regular files only", path);
		return -EINVAL;
	}
	ns->nbytes = want ? want : (uint64_t)st.st_size;
	if (!st.st_size && want && p->create && !p->readonly)
		return lengthen(p, path, want, ns->fd, err, err_len);
	if (!ns->nbytes) {
		SAY("%s is empty; give a size (size=1GiB) to make it that long", path);
		return -EINVAL;
	}
	/* a block beyond the file would have nowhere to go, and the file is not ours to lengthen */
	if (want > align_up((uint64_t)st.st_size, lba_bytes)) {
		SAY("%s has %llu bytes, fewer than size=%llu; leave out size to use the file as it is", path,
		    (unsigned long long)st.st_size, (unsigned long long)want);
		return -EINVAL;
	}
	ns->nbytes = min_u64(ns->nbytes, (uint64_t)st.st_size);
	return 0;
}

/* Whether a stepper may try this file: what holds is found by trying, file systems differ. */
static void probe_nowait(struct emu_ns *ns)
{
	struct statfs fs;
	char byte;
	struct iovec iov = { &byte, 1 };

	ns->memory_like = !fstatfs(ns->fd, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
	ns->nowait = preadv2(ns->fd, &iov, 1, 0, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

/* A descriptor of its own: what cannot be transferred directly still goes through the other. */
static int open_direct(const struct emu_params *p, const char *path, struct emu_ns *ns, char *err,
		       size_t err_len)
{
	struct statx st;
	int rc;

	ns->direct_fd = open(path, (p->readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_DIRECT);
	if (ns->direct_fd < 0) {
		rc = -errno;
		SAY("%s cannot be opened with O_DIRECT (%s); leave out direct=1, or use a file system that "
		    "has it",
		    path, strerror(-rc));
		return rc;
	}
	ns->direct_align = 4096;
	if (!statx(ns->direct_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) && st.stx_mask & STATX_DIOALIGN &&
	    st.stx_dio_offset_align)
		ns->direct_align = st.stx_dio_mem_align > st.stx_dio_offset_align ? st.stx_dio_mem_align
										  : st.stx_dio_offset_align;
	return 0;
}

/* As open(), but tells whether the file is new. */
static int open_or_make(const char *path, int flags, bool make, bool *ret_made)
{
	int fd = open(path, flags);

	*ret_made = false;
	if (fd >= 0 || errno != ENOENT || !make)
		return fd;
	fd = open(path, flags | O_CREAT | O_EXCL, 0644);
	*ret_made = fd >= 0;
	/* somebody else was quicker, or it is a link to what is not there yet */
	return fd < 0 && errno == EEXIST ? open(path, flags | O_CREAT, 0644) : fd;
}

static int lock(const struct emu_params *p, const char *path, int fd, char *err, size_t err_len)
{
	char holder[96];
	int error;

	if (!flock(fd, (p->readonly ? LOCK_SH : LOCK_EX) | LOCK_NB))
		return 0;
	error = errno;
	if (error != EWOULDBLOCK) {
		SAY("cannot lock %s: %s", path, strerror(error));
		return -error;
	}
	emu_lock_holder(fd, holder, sizeof(holder));
	SAY("%s is in use by %s; close it there first%s", path, holder,
	    p->readonly ? "" : ", or open it with readonly=1 in both");
	return -EBUSY;
}

void emu_file_unmake(const char *path, struct emu_ns *ns)
{
	if (ns->made)
		unlink(path);
	ns->made = false;
}

int emu_file_open(const struct emu_params *p, const char *path, uint64_t want_bytes, uint32_t lba_bytes,
		  struct emu_ns *ns, char *err, size_t err_len)
{
	const int flags = (p->readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;
	int rc;

	ns->fd = open_or_make(path, flags, p->create && !p->readonly && want_bytes, &ns->made);
	if (ns->fd < 0)
		return open_error(p, path, errno, err, err_len);
	rc = lock(p, path, ns->fd, err, err_len);
	if (rc)
		goto out_close; /* made or not, it is whose lock it is */
	rc = check_length(p, path, want_bytes, lba_bytes, ns, err, err_len);
	if (!rc && p->direct)
		rc = open_direct(p, path, ns, err, err_len);
	if (rc)
		goto out_undo;
	probe_nowait(ns);
	ns->ahead = !ns->memory_like;
	/* it would wait for the disk */
	ns->nowait &= ns->direct_fd < 0;
	return 0;

out_undo:
	emu_file_unmake(path, ns);
out_close:
	close(ns->fd);
	ns->fd = -1;
	return rc;
}
