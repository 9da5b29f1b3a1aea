/* SPDX-License-Identifier: MIT */
/* Every call of /dev/ugds_drvN with good and bad arguments. Usage: kmod_calls NODE [copied] */

#include "kmod.h"
#include <sys/resource.h>

static void info_tells(int fd)
{
	struct {
		struct ugds_drv_info info;
		uint64_t more;
	} longer = { .info.argsz = sizeof(longer) };
	struct ugds_drv_info info = info_of(fd);

	EXPECT(info.api_major, UGDS_DRV_API_MAJOR);
	EXPECT(info.page_size, PAGE);
	EXPECT(info.bar_bytes % PAGE, 0);
	EXPECT(info.bar_map_bytes >= 2 * PAGE, 1);
	EXPECT(info.bar_map_bytes <= info.bar_bytes, 1);
	EXPECT(info.nr_vectors > 0, 1);
	EXPECT(info.dma_bits, 64);
	EXPECT(info.caps & (UGDS_DRV_CAP_HOST | UGDS_DRV_CAP_ARM), UGDS_DRV_CAP_HOST | UGDS_DRV_CAP_ARM);

	EXPECT(call(fd, UGDS_DRV_INFO, &longer), 0);
	longer.more = 1;
	EXPECT(call(fd, UGDS_DRV_INFO, &longer), -E2BIG);
	info.argsz--;
	EXPECT(call(fd, UGDS_DRV_INFO, &info), -EINVAL);
	info.argsz = 1u << 20;
	EXPECT(call(fd, UGDS_DRV_INFO, &info), -E2BIG);
	info = (struct ugds_drv_info){ .argsz = sizeof(info), .flags = 1 };
	EXPECT(call(fd, UGDS_DRV_INFO, &info), -EINVAL);
	EXPECT(call(fd, UGDS_DRV_INFO, NULL), -EFAULT);
	EXPECT(call(fd, _IO(UGDS_DRV_IOC, 0x0a), &info), -ENOTTY);
	EXPECT(call(fd, _IO(UGDS_DRV_IOC, 0xff), &info), -ENOTTY);
	EXPECT(call(fd, _IO(0xAE, 0), &info), -ENOTTY);
	EXPECT(call(fd, _IOR(UGDS_DRV_IOC, 0, int), &info), -ENOTTY);
}

static void bar_is_mapped_in_bounds(int fd)
{
	struct ugds_drv_info info = info_of(fd);
	volatile uint32_t *bar = map_at(fd, 0, info.bar_map_bytes);
	void *at;

	REQUIRE(bar != MAP_FAILED);
	EXPECT(bar[2] >> 16 >= 1, 1); /* VS */
	EXPECT(bar[5] & 1, 0); /* CC.EN: open found it stopped */
	EXPECT(munmap((void *)(uintptr_t)bar, info.bar_map_bytes), 0);

	if (info.bar_map_bytes < info.bar_bytes) {
		EXPECT(map_at(fd, info.bar_map_bytes, PAGE) == MAP_FAILED, 1);
		EXPECT(errno, EACCES);
		EXPECT(map_at(fd, 0, info.bar_bytes) == MAP_FAILED, 1);
		EXPECT(errno, EACCES);
	}
	EXPECT(map_at(fd, 0, info.bar_bytes + PAGE) == MAP_FAILED, 1);
	EXPECT(errno, EINVAL);
	EXPECT(map_at(fd, info.bar_bytes, PAGE) == MAP_FAILED, 1);
	EXPECT(errno, EINVAL);
	EXPECT(map_at(fd, 1ull << 62, PAGE) == MAP_FAILED, 1);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	EXPECT(at == MAP_FAILED, 1);
	EXPECT(errno, EINVAL);

	at = map_at(fd, 0, PAGE);
	REQUIRE(at != MAP_FAILED);
	EXPECT(mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED, 1);
	EXPECT(madvise(at, PAGE, MADV_DOFORK), -1);
	munmap(at, PAGE);
}

static void words_are_mapped(int fd)
{
	struct ugds_drv_info info = info_of(fd);
	size_t nbytes = (size_t)info.armed_words * info.armed_stride;
	volatile uint32_t *words = map_at(fd, UGDS_DRV_MMAP_ARMED, nbytes);

	REQUIRE(words != MAP_FAILED);
	words[0] = 1;
	words[nbytes / 4 - 1] = 0;
	words[0] = 0;
	EXPECT(map_at(fd, UGDS_DRV_MMAP_ARMED, nbytes + PAGE) == MAP_FAILED, 1);
	EXPECT(map_at(fd, UGDS_DRV_MMAP_ARMED + nbytes, PAGE) == MAP_FAILED, 1);
	munmap((void *)(uintptr_t)words, nbytes);
}

static void queue_memory(int fd)
{
	struct ugds_drv_queue_alloc alloc = { .argsz = sizeof(alloc), .nbytes = 5000 };
	uint32_t before = state_of(fd).ret_nr_mappings;
	uint8_t *at;
	size_t i;

	EXPECT(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc), 0);
	EXPECT(alloc.nbytes, 2 * PAGE);
	EXPECT(alloc.ret_iova % PAGE, 0);
	EXPECT(state_of(fd).ret_nr_mappings, before + 1);
	EXPECT(map_at(fd, alloc.ret_offset, 3 * PAGE) == MAP_FAILED, 1);
	EXPECT(map_at(fd, alloc.ret_offset + 2 * PAGE, PAGE) == MAP_FAILED, 1);
	at = map_at(fd, alloc.ret_offset, 2 * PAGE);
	REQUIRE(at != MAP_FAILED);
	for (i = 0; i < 2 * PAGE; i++)
		failures += at[i] != 0;
	memset(at, 0x5a, 2 * PAGE);
	EXPECT(unmap(fd, alloc.ret_token), -EBUSY);
	munmap(at, PAGE);
	EXPECT(unmap(fd, alloc.ret_token), -EBUSY);
	munmap(at + PAGE, PAGE);
	EXPECT(unmap(fd, alloc.ret_token), 0);
	EXPECT(unmap(fd, alloc.ret_token), -ENOENT);
	EXPECT(map_at(fd, alloc.ret_offset, PAGE) == MAP_FAILED, 1);

	alloc = (struct ugds_drv_queue_alloc){ .argsz = sizeof(alloc), .nbytes = 4u << 20 };
	EXPECT(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc), 0);
	EXPECT(unmap(fd, alloc.ret_token), 0);
	alloc = (struct ugds_drv_queue_alloc){ .argsz = sizeof(alloc), .nbytes = (4u << 20) + 1 };
	EXPECT(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc), -E2BIG);
	alloc.nbytes = 0;
	EXPECT(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc), -EINVAL);
	alloc.nbytes = ~0ull;
	EXPECT(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc), -E2BIG);
	EXPECT(state_of(fd).ret_nr_mappings, before);
}

static void host_memory(int fd)
{
	uint8_t *at = memory(16 * PAGE);
	struct ugds_drv_extent extents[16];
	struct ugds_drv_map map = host(at + 100, 8 * PAGE);
	struct ugds_drv_extents more = { .argsz = sizeof(more) };
	struct ugds_drv_state before = state_of(fd);
	uint64_t total = 0;
	uint32_t i;

	map.extents = (uintptr_t)extents;
	map.nr_extents = 16;
	EXPECT(call(fd, UGDS_DRV_MAP, &map), 0);
	EXPECT(map.ret_first_off, 100);
	EXPECT(map.ret_page_size, PAGE);
	EXPECT(map.ret_flags, 0);
	for (i = 0; i < map.nr_extents; i++)
		total += extents[i].nbytes;
	EXPECT(total, 9 * PAGE);
	EXPECT(state_of(fd).ret_pinned_bytes, before.ret_pinned_bytes + 9 * PAGE);

	more.token = map.ret_token;
	more.extents = (uintptr_t)extents;
	more.nr_extents = 100;
	EXPECT(call(fd, UGDS_DRV_EXTENTS, &more), 0);
	EXPECT(more.nr_extents, map.nr_extents);
	more.first = more.nr_extents;
	EXPECT(call(fd, UGDS_DRV_EXTENTS, &more), 0);
	EXPECT(more.nr_extents, 0);
	more.first = map.nr_extents + 1;
	EXPECT(call(fd, UGDS_DRV_EXTENTS, &more), -EINVAL);
	more.token++;
	EXPECT(call(fd, UGDS_DRV_EXTENTS, &more), -ENOENT);
	more.token = 0;
	EXPECT(call(fd, UGDS_DRV_EXTENTS, &more), -ENOENT);

	EXPECT(unmap(fd, 0), -ENOENT);
	EXPECT(unmap(fd, ~0ull), -ENOENT);
	EXPECT(unmap(fd, map.ret_token), 0);
	EXPECT(unmap(fd, map.ret_token), -ENOENT);
	EXPECT(state_of(fd).ret_pinned_bytes, before.ret_pinned_bytes);
	EXPECT(state_of(fd).ret_nr_mappings, before.ret_nr_mappings);
	munmap(at, 16 * PAGE);
}

static void pages_are_counted(int fd)
{
	uint8_t *at = memory(4 * PAGE);
	struct ugds_drv_map a = host(at, 2 * PAGE), b = host(at + PAGE + 8, 16),
			    c = host(at + 3 * PAGE, PAGE);
	uint64_t before = state_of(fd).ret_pinned_bytes;

	EXPECT(call(fd, UGDS_DRV_MAP, &a), 0);
	EXPECT(call(fd, UGDS_DRV_MAP, &b), 0);
	EXPECT(state_of(fd).ret_pinned_bytes, before + 2 * PAGE);
	EXPECT(b.ret_token > a.ret_token, 1);
	b.flags = UGDS_DRV_MAP_READ;
	EXPECT(call(fd, UGDS_DRV_MAP, &b), -EEXIST);
	c.flags = UGDS_DRV_MAP_READ;
	EXPECT(call(fd, UGDS_DRV_MAP, &c), 0);
	EXPECT(unmap(fd, a.ret_token), 0);
	EXPECT(state_of(fd).ret_pinned_bytes, before + 2 * PAGE);
	EXPECT(unmap(fd, b.ret_token), 0);
	EXPECT(unmap(fd, c.ret_token), 0);
	EXPECT(state_of(fd).ret_pinned_bytes, before);
	munmap(at, 4 * PAGE);
}

static void bad_maps_are_refused(int fd)
{
	uint8_t *at = memory(4 * PAGE);
	struct ugds_drv_map good = host(at, PAGE), map;
	struct ugds_drv_state before = state_of(fd);

#define REFUSED(change, error)                               \
	do {                                                 \
		map = good;                                  \
		change;                                      \
		EXPECT(call(fd, UGDS_DRV_MAP, &map), error); \
	} while (0)
	REFUSED(map.flags = 0, -EINVAL);
	REFUSED(map.flags |= 1u << 4, -EINVAL);
	REFUSED(map.flags |= UGDS_DRV_MAP_REQUIRE_PEER, -EXDEV);
	REFUSED(map.kind = 3, -EINVAL);
	REFUSED(map.kind = ~0u, -EINVAL);
	REFUSED(map.fd = 0, -EINVAL);
	REFUSED(map.offset = PAGE, -EINVAL);
	REFUSED(map.nbytes = 0, -EINVAL);
	REFUSED(map.nbytes = ~0ull, -E2BIG);
	REFUSED(map.nbytes = (1ull << 40) + 1, -E2BIG);
	REFUSED(map.vaddr = ~0ull - PAGE / 2, -EINVAL);
	REFUSED(map.vaddr = 1ull << 62, -EFAULT);
	REFUSED(map.vaddr = 0, -EFAULT);
	REFUSED((map.nr_extents = 1, map.extents = 16), -EFAULT);
	REFUSED(map.kind = UGDS_DRV_MAP_DMABUF, -EINVAL);
	munmap(at + 2 * PAGE, PAGE);
	REFUSED(map.nbytes = 4 * PAGE, -EFAULT);
	mprotect(at, PAGE, PROT_READ);
	REFUSED((void)0, -EFAULT);
	EXPECT(state_of(fd).ret_nr_mappings, before.ret_nr_mappings);
	EXPECT(state_of(fd).ret_pinned_bytes, before.ret_pinned_bytes);
	munmap(at, 4 * PAGE);
}

static void locked_memory_is_limited(int fd)
{
	struct rlimit old, few = { 8 * PAGE, 8 * PAGE };
	uint8_t *at = memory(16 * PAGE);
	struct ugds_drv_map map = host(at, 16 * PAGE), one = host(at, 8 * PAGE);

	/* The check runs as root: the limit counts for those without CAP_IPC_LOCK, here nobody. */
	getrlimit(RLIMIT_MEMLOCK, &old);
	EXPECT(setrlimit(RLIMIT_MEMLOCK, &few), 0);
	if (getuid() == 0) {
		EXPECT(seteuid(65534), 0);
		EXPECT(call(fd, UGDS_DRV_MAP, &map), -ENOMEM);
		EXPECT(call(fd, UGDS_DRV_MAP, &one), 0);
		EXPECT(unmap(fd, one.ret_token), 0);
		EXPECT(call(fd, UGDS_DRV_MAP, &one), 0);
		EXPECT(unmap(fd, one.ret_token), 0);
		EXPECT(seteuid(0), 0);
	}
	setrlimit(RLIMIT_MEMLOCK, &old);
	munmap(at, 16 * PAGE);
}

static void interrupts_are_bound(int fd)
{
	struct ugds_drv_info info = info_of(fd);
	int event = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC);
	struct ugds_drv_irq_bind good = { .argsz = sizeof(good), .fd = event, .word = UGDS_DRV_NO_WORD },
				 bind;
	struct ugds_drv_irq_unbind gone = { .argsz = sizeof(gone) };
	uint64_t ids[65];
	uint32_t i;

#define BIND(change, error)                                        \
	do {                                                       \
		bind = good;                                       \
		change;                                            \
		EXPECT(call(fd, UGDS_DRV_IRQ_BIND, &bind), error); \
	} while (0)
	BIND(bind.vector = info.nr_vectors, -EINVAL);
	BIND(bind.word = info.armed_words, -EINVAL);
	BIND(bind.reserved = 1, -EINVAL);
	BIND(bind.flags = 1, -EINVAL);
	BIND(bind.fd = -1, -EBADF);
	BIND(bind.fd = fd, -EBADF);
	EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &gone), -ENOENT);
	for (i = 0; i < info.vector_owners; i++) {
		BIND((void)0, 0);
		ids[i] = bind.ret_binding;
	}
	BIND((void)0, -ENOSPC);
	for (i = 0; i < info.vector_owners; i++) {
		gone.binding = ids[i];
		EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &gone), 0);
		EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &gone), -ENOENT);
	}
	BIND(bind.word = 3, 0);
	ids[0] = bind.ret_binding;
	BIND((bind.word = 3, bind.fd = other), -EEXIST);
	BIND((bind.word = 3, bind.vector = info.nr_vectors - 1), 0);
	ids[1] = bind.ret_binding;
	for (i = 0; i < 2; i++) {
		gone.binding = ids[i];
		EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &gone), 0);
	}
	BIND((bind.word = 3, bind.fd = other), 0);
	gone.binding = bind.ret_binding;
	gone.flags = 1;
	EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &gone), -EINVAL);
	gone.flags = 0;
	EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &gone), 0);
	close(event);
	close(other);
}

static void topology_is_told(int fd)
{
	struct ugds_drv_info info = info_of(fd);
	struct ugds_drv_topology good = { .argsz = sizeof(good) }, t = good;

	EXPECT(call(fd, UGDS_DRV_TOPOLOGY, &t), 0);
	EXPECT(t.ret_iommu == UGDS_DRV_IOMMU_TRANSLATED, !!(info.caps & UGDS_DRV_CAP_IOMMU));
	EXPECT(t.ret_path, UGDS_DRV_PATH_UNKNOWN);
	t = good;
	t.peer_valid = 1;
	t.peer_bus = 0xff;
	t.peer_devfn = 0xff;
	EXPECT(call(fd, UGDS_DRV_TOPOLOGY, &t), -ENXIO);
	t.peer_bus = 0x100;
	EXPECT(call(fd, UGDS_DRV_TOPOLOGY, &t), -EINVAL);
	t = good;
	t.peer_bus = 1;
	EXPECT(call(fd, UGDS_DRV_TOPOLOGY, &t), -EINVAL);
	t = good;
	t.peer_valid = 1; /* the host bridge of the guest: 00:00.0 */
	EXPECT(call(fd, UGDS_DRV_TOPOLOGY, &t), 0);
	EXPECT(t.ret_path, UGDS_DRV_PATH_ROOT);
}

/* Where the DMA layer would copy, nothing is mapped: copies would go stale. */
static void copies_are_refused(const char *node)
{
	int fd = open_node(node);
	struct ugds_drv_queue_alloc alloc = { .argsz = sizeof(alloc), .nbytes = PAGE };
	struct ugds_drv_map map = host(memory(PAGE), PAGE);

	EXPECT(info_of(fd).caps & UGDS_DRV_CAP_HOST, 0);
	EXPECT(call(fd, UGDS_DRV_MAP, &map), -EOPNOTSUPP);
	EXPECT(call(fd, UGDS_DRV_QUEUE_ALLOC, &alloc), -EOPNOTSUPP);
	EXPECT(state_of(fd).ret_nr_mappings, 0);
	close(fd);
}

int main(int argc, char **argv)
{
	int fd;

	if (argc == 3 && !strcmp(argv[2], "copied")) {
		copies_are_refused(argv[1]);
		return finish("copied");
	}
	REQUIRE(argc == 2);
	fd = open_node(argv[1]);
	EXPECT(open(argv[1], O_RDWR), -1);
	EXPECT(errno, EBUSY);
	info_tells(fd);
	bar_is_mapped_in_bounds(fd);
	words_are_mapped(fd);
	queue_memory(fd);
	host_memory(fd);
	pages_are_counted(fd);
	bad_maps_are_refused(fd);
	locked_memory_is_limited(fd);
	interrupts_are_bound(fd);
	topology_is_told(fd);
	EXPECT(state_of(fd).ret_nr_mappings, 0);
	close(fd);
	fd = open_node(argv[1]);
	close(fd);
	return finish("calls");
}
