/* SPDX-License-Identifier: MIT */
/* Many mappings, large ones, huge pages, one that is killed half way. Usage: kmod_many NODE */
#include "kmod.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define PAGES 4000u
#define EACH 5u
#define ALL (PAGES * EACH)
#define SAMPLE 1000u
#define HUGE (2u << 20)

static uint64_t tokens[ALL];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Five mappings of each page, in an order that jumps about. */
static void many(int fd)
{
	uint8_t *at = memory(PAGES * PAGE);
	double start = 0, first = 0, last, unmapped;
	uint32_t i, next;

	memset(at, 1, PAGES * PAGE);
	for (i = 0; i < ALL; i++) {
		struct ugds_drv_map map = host(at + (i * 7919u % PAGES) * (size_t)PAGE, PAGE);

		if (i == 0 || i == ALL - SAMPLE)
			start = now();
		REQUIRE(call(fd, UGDS_DRV_MAP, &map) == 0);
		tokens[i] = map.ret_token;
		if (i == SAMPLE - 1)
			first = now() - start;
	}
	last = now() - start;
	EXPECT(state_of(fd).ret_nr_mappings, ALL);
	EXPECT(state_of(fd).ret_pinned_bytes, (uint64_t)PAGES * PAGE);

	start = now();
	for (i = 0; i < ALL / 2; i++) {
		next = i * 2 * 7919u % ALL;
		EXPECT(unmap(fd, tokens[next]), 0);
		tokens[next] = 0;
	}
	unmapped = now() - start;
	EXPECT(state_of(fd).ret_nr_mappings, ALL / 2);
	printf("map: first %.1f us, last %.1f us; unmap %.1f us\n", first / SAMPLE * 1e6, last / SAMPLE * 1e6,
	       unmapped / (ALL / 2) * 1e6);
	/* A search through all of them would be twenty times slower by now. */
	EXPECT(last < first * 10, 1);
}

/* The rest of them goes with the file. */
static void closed_at_once(int fd)
{
	double start = now();

	close(fd);
	printf("closed with %u mappings in %.0f ms\n", ALL / 2, (now() - start) * 1e3);
}

static void large(const char *node, int iommu)
{
	int fd = open_node(node);
	size_t nbytes = 128u << 20;
	uint8_t *at = memory(nbytes);
	struct ugds_drv_map map = host(at + 1, nbytes - 2);
	struct ugds_drv_extents more = { .argsz = sizeof(more) };
	struct ugds_drv_extent *extents;
	uint64_t total = 0;
	uint32_t i;

	EXPECT(call(fd, UGDS_DRV_MAP, &map), 0);
	extents = calloc(map.nr_extents, sizeof(*extents));
	REQUIRE(extents);
	more.token = map.ret_token;
	more.extents = (uintptr_t)extents;
	more.nr_extents = map.nr_extents;
	EXPECT(call(fd, UGDS_DRV_EXTENTS, &more), 0);
	for (i = 0; i < map.nr_extents; i++)
		total += extents[i].nbytes;
	EXPECT(total, nbytes);
	printf("128 MiB: %u extents\n", map.nr_extents);
	if (iommu)
		EXPECT(map.nr_extents, 1);
	EXPECT(unmap(fd, map.ret_token), 0);
	free(extents);
	munmap(at, nbytes);

	at = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	REQUIRE(at != MAP_FAILED);
	map = host(at + 4096, HUGE - 8192);
	map.flags |= UGDS_DRV_MAP_CONTIG;
	EXPECT(call(fd, UGDS_DRV_MAP, &map), 0);
	EXPECT(map.nr_extents, 1);
	close(fd);
}

/* Killed while it pins: all of it is let go, and the device is free. */
static void killed_half_way(const char *node)
{
	int i, status, fd;
	pid_t pid;

	for (i = 0; i < 5; i++) {
		pid = fork();
		REQUIRE(pid >= 0);
		if (pid == 0) {
			size_t nbytes = 256u << 20;
			struct ugds_drv_map map = host(memory(nbytes), nbytes);

			fd = open_node(node);
			for (;;) {
				REQUIRE(call(fd, UGDS_DRV_MAP, &map) == 0);
				REQUIRE(unmap(fd, map.ret_token) == 0);
			}
		}
		usleep(100000 + 30000 * (useconds_t)i);
		kill(pid, SIGKILL);
		EXPECT(waitpid(pid, &status, 0), pid);
		EXPECT(WIFSIGNALED(status), 1);
		fd = open_node(node);
		EXPECT(state_of(fd).ret_nr_mappings, 0);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	int fd, iommu;

	REQUIRE(argc == 2);
	fd = open_node(argv[1]);
	iommu = !!(info_of(fd).caps & UGDS_DRV_CAP_IOMMU);
	many(fd);
	closed_at_once(fd);
	large(argv[1], iommu);
	killed_half_way(argv[1]);
	return finish("many");
}
