/* SPDX-License-Identifier: MIT */
/* What the tests of /dev/ugds_drvN share: calls, and just enough NVMe to see DMA and interrupts. */
#ifndef TESTS_VM_KMOD_H
#define TESTS_VM_KMOD_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ugds_ioctl.h"

#define UNUSED __attribute__((unused))
#define PAGE 4096u

static int failures UNUSED;

/* Every expectation is written down: what was wanted and what came. */
#define EXPECT(got, want)                                                                               \
	do {                                                                                            \
		long long got_ = (long long)(got), want_ = (long long)(want);                           \
		if (got_ != want_) {                                                                    \
			failures++;                                                                     \
			printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_, want_); \
			fflush(stdout);                                                                 \
		}                                                                                       \
	} while (0)

#define REQUIRE(cond)                                                                          \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			fflush(stdout);                                                        \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

/* 0 or -errno. */
UNUSED static int call(int fd, unsigned long cmd, void *arg) { return ioctl(fd, cmd, arg) ? -errno : 0; }

UNUSED static int open_node(const char *node)
{
	int fd = open(node, O_RDWR | O_CLOEXEC);

	REQUIRE(fd >= 0);
	return fd;
}

UNUSED static struct ugds_drv_info info_of(int fd)
{
	struct ugds_drv_info info = { .argsz = sizeof(info) };

	REQUIRE(call(fd, UGDS_DRV_INFO, &info) == 0);
	return info;
}

UNUSED static struct ugds_drv_state state_of(int fd)
{
	struct ugds_drv_state state = { .argsz = sizeof(state), .event_fd = -1 };

	REQUIRE(call(fd, UGDS_DRV_STATE, &state) == 0);
	return state;
}

UNUSED static int reset(int fd, uint32_t how)
{
	struct ugds_drv_reset reset = { .argsz = sizeof(reset), .how = how };

	return call(fd, UGDS_DRV_RESET, &reset);
}

UNUSED static int unmap(int fd, uint64_t token)
{
	struct ugds_drv_unmap unmap = { .argsz = sizeof(unmap), .token = token };

	return call(fd, UGDS_DRV_UNMAP, &unmap);
}

UNUSED static struct ugds_drv_map host(void *at, uint64_t nbytes)
{
	return (struct ugds_drv_map){
		.argsz = sizeof(struct ugds_drv_map),
		.flags = UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE,
		.kind = UGDS_DRV_MAP_HOST,
		.fd = -1,
		.vaddr = (uintptr_t)at,
		.nbytes = nbytes,
	};
}

UNUSED static void *memory(size_t nbytes)
{
	void *at = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(at != MAP_FAILED);
	return at;
}

UNUSED static void *map_at(int fd, uint64_t offset, size_t nbytes)
{
	return mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
}

/* Signalled within a second, and drained. */
UNUSED static bool woken(int event)
{
	struct pollfd wait = { .fd = event, .events = POLLIN };
	uint64_t count;

	if (poll(&wait, 1, 1000) != 1)
		return false;
	return read(event, &count, sizeof(count)) == sizeof(count);
}

UNUSED static bool quiet(int event)
{
	struct pollfd look = { .fd = event, .events = POLLIN };

	return poll(&look, 1, 50) == 0;
}

/* ---- a controller with its admin queue: 8 entries, interrupts on vector 0 ---- */

#define ADMIN_DEPTH 8u

struct nvme {
	int fd;
	volatile uint8_t *bar;
	uint32_t doorbell; /* bytes from one to the next */
	volatile uint8_t *sq;
	volatile uint32_t *cq;
	uint64_t sq_token;
	uint64_t cq_token;
	uint32_t tail;
	uint32_t head;
	uint32_t phase;
};

UNUSED static uint32_t get32(const struct nvme *n, uint32_t at)
{
	return *(volatile uint32_t *)(n->bar + at);
}

UNUSED static void set32(const struct nvme *n, uint32_t at, uint32_t value)
{
	*(volatile uint32_t *)(n->bar + at) = value;
}

UNUSED static void set64(const struct nvme *n, uint32_t at, uint64_t value)
{
	set32(n, at, (uint32_t)value);
	set32(n, at + 4, (uint32_t)(value >> 32));
}

UNUSED static bool ready(const struct nvme *n, uint32_t want)
{
	int i;

	for (i = 0; i < 20000; i++) {
		if ((get32(n, 0x1c) & 1) == want)
			return true;
		usleep(100);
	}
	return false;
}

UNUSED static void *queue(int fd, uint64_t nbytes, uint64_t *ret_token, uint64_t *ret_iova)
{
	struct ugds_drv_queue_alloc alloc = { .argsz = sizeof(alloc), .nbytes = nbytes };
	void *at;

	REQUIRE(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc) == 0);
	at = map_at(fd, alloc.ret_offset, alloc.nbytes);
	REQUIRE(at != MAP_FAILED);
	*ret_token = alloc.ret_token;
	*ret_iova = alloc.ret_iova;
	return at;
}

/* The controller must be stopped: by open, or by a reset. */
UNUSED static void nvme_enable(struct nvme *n, uint64_t sq, uint64_t cq)
{
	memset((void *)(uintptr_t)n->cq, 0, PAGE);
	n->tail = n->head = 0;
	n->phase = 1;
	REQUIRE(reset(n->fd, UGDS_DRV_RESET_START_DMA) == 0);
	set32(n, 0x24, (ADMIN_DEPTH - 1) << 16 | (ADMIN_DEPTH - 1));
	set64(n, 0x28, sq);
	set64(n, 0x30, cq);
	set32(n, 0x14, 6u << 16 | 4u << 20 | 1);
	REQUIRE(ready(n, 1));
}

UNUSED static struct nvme nvme_start(int fd, uint64_t *ret_sq, uint64_t *ret_cq)
{
	struct ugds_drv_info info = info_of(fd);
	struct nvme n = { .fd = fd };

	n.bar = map_at(fd, UGDS_DRV_MMAP_BAR0, info.bar_map_bytes);
	REQUIRE(n.bar != MAP_FAILED);
	n.doorbell = 4u << (get32(&n, 4) & 0xf);
	n.sq = queue(fd, PAGE, &n.sq_token, ret_sq);
	n.cq = queue(fd, PAGE, &n.cq_token, ret_cq);
	nvme_enable(&n, *ret_sq, *ret_cq);
	return n;
}

UNUSED static void submit(struct nvme *n, uint8_t opcode, uint64_t prp1, uint32_t cdw10)
{
	uint32_t sqe[16] = { opcode };

	sqe[6] = (uint32_t)prp1;
	sqe[7] = (uint32_t)(prp1 >> 32);
	sqe[10] = cdw10;
	memcpy((void *)(uintptr_t)(n->sq + n->tail * 64), sqe, sizeof(sqe));
	n->tail = (n->tail + 1) % ADMIN_DEPTH;
	__sync_synchronize(); /* the entry before its doorbell */
	set32(n, 0x1000, n->tail);
}

UNUSED static bool has_completion(const struct nvme *n)
{
	return (n->cq[n->head * 4 + 3] >> 16 & 1) == n->phase;
}

/* Status of the next completion, or -1 when none comes. */
UNUSED static int reap(struct nvme *n)
{
	uint32_t status;
	int i;

	for (i = 0; i < 20000 && !has_completion(n); i++)
		usleep(100);
	if (!has_completion(n))
		return -1;
	status = n->cq[n->head * 4 + 3] >> 17;
	n->head = (n->head + 1) % ADMIN_DEPTH;
	n->phase ^= n->head == 0;
	set32(n, 0x1000 + n->doorbell, n->head);
	return (int)status;
}

/* Identify Controller into a bus address. */
UNUSED static int identify(struct nvme *n, uint64_t iova)
{
	submit(n, 0x06, iova, 1);
	return reap(n);
}

UNUSED static int finish(const char *what)
{
	printf("%s: %d failures\n", what, failures);
	return failures ? 1 : 0;
}

#endif
