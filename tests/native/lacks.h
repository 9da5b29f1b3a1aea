/* SPDX-License-Identifier: MIT */
/* What a kernel has and an emulator of one program may not: qemu-aarch64 answers ENOSYS. */
#ifndef TESTS_LACKS_H
#define TESTS_LACKS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* preadv2 and pwritev2: RWF_NOWAIT, RWF_DSYNC. The C library would hide it. */
static inline bool lacks_rwf(void)
{
	return syscall(SYS_pwritev2, -1, NULL, 0, 0, 0, 0) < 0 && errno == ENOSYS;
}

/* A driver's own ioctls reach the driver. */
static inline bool lacks_ioctl(unsigned long request)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	bool lacks = syscall(SYS_ioctl, fd, request, NULL) < 0 && errno == ENOSYS;

	close(fd);
	return lacks;
}

#endif
