/* SPDX-License-Identifier: MIT */
/* Arguments that are refused before anything is done, and those that are not. */
#include "../native/tap.h"

#include "kernel_in_user.h"

#include "args.c"

#define LIMIT (1ull << 40)
#define MAP(...)                                                                                          \
	ugds_check_map(                                                                                   \
		&(struct ugds_drv_map){ .flags = 3, .fd = -1, .vaddr = 4096, .nbytes = 10, __VA_ARGS__ }, \
		LIMIT)
#define DMABUF(...) MAP(.kind = UGDS_DRV_MAP_DMABUF, .fd = 3, .vaddr = 0, __VA_ARGS__)

static void sizes(void)
{
	ok(ugds_check_argsz(40, 40) == 0 && ugds_check_argsz(4096, 40) == 0, "as long, or longer");
	ok(ugds_check_argsz(39, 40) == -EINVAL && ugds_check_argsz(0, 40) == -EINVAL, "shorter");
	ok(ugds_check_argsz(4097, 40) == -E2BIG && ugds_check_argsz(~0u, 40) == -E2BIG, "over a page");
}

static void maps(void)
{
	ok(MAP() == 0 && MAP(.flags = 1) == 0 && MAP(.flags = 7) == 0, "host memory");
	ok(MAP(.flags = 0) == -EINVAL && MAP(.flags = 4) == -EINVAL, "neither read nor written");
	ok(MAP(.flags = 19) == -EINVAL && MAP(.flags = 0x80000003) == -EINVAL, "unknown flags");
	ok(MAP(.flags = 11) == -EXDEV, "host memory is not that of a peer");
	ok(MAP(.kind = 3) == -EINVAL && MAP(.kind = ~0u) == -EINVAL, "unknown kinds");
	ok(MAP(.nbytes = 0) == -EINVAL, "nothing");
	ok(MAP(.nbytes = LIMIT) == 0 && MAP(.nbytes = LIMIT + 1) == -E2BIG &&
		   MAP(.nbytes = U64_MAX) == -E2BIG,
	   "the limit");
	ok(MAP(.vaddr = U64_MAX, .nbytes = 1) == 0 && MAP(.vaddr = U64_MAX, .nbytes = 2) == -EINVAL,
	   "the end of all addresses");
	ok(MAP(.fd = 0) == -EINVAL && MAP(.fd = -2) == -EINVAL && MAP(.offset = 1) == -EINVAL,
	   "what host memory does not have");
	ok(MAP(.kind = UGDS_DRV_MAP_CUDA) == 0 && MAP(.kind = UGDS_DRV_MAP_CUDA, .flags = 11) == 0 &&
		   MAP(.kind = UGDS_DRV_MAP_CUDA, .fd = 1) == -EINVAL,
	   "CUDA memory");
	ok(DMABUF() == 0 && DMABUF(.offset = 1ull << 50, .flags = 11) == 0, "a dma-buf");
	ok(DMABUF(.fd = -1) == -EINVAL && DMABUF(.vaddr = 1) == -EINVAL &&
		   DMABUF(.offset = U64_MAX, .nbytes = 2) == -EINVAL,
	   "what a dma-buf cannot be");
}

#define BIND(...) ugds_check_irq_bind(&(struct ugds_drv_irq_bind){ __VA_ARGS__ }, 4, 256)
#define TOPOLOGY(...) ugds_check_topology(&(struct ugds_drv_topology){ __VA_ARGS__ })
#define RESET(...) ugds_check_reset(&(struct ugds_drv_reset){ __VA_ARGS__ })

static void others(void)
{
	ok(BIND(.vector = 3, .word = 255) == 0 && BIND(.word = UGDS_DRV_NO_WORD) == 0, "bindings");
	ok(BIND(.vector = 4) == -EINVAL && BIND(.vector = ~0u) == -EINVAL && BIND(.word = 256) == -EINVAL &&
		   BIND(.word = ~1u) == -EINVAL && BIND(.flags = 1) == -EINVAL &&
		   BIND(.reserved = 1) == -EINVAL,
	   "bindings out of range");
	ok(ugds_check_irq_bind(&(struct ugds_drv_irq_bind){ 0 }, 0, 256) == -EINVAL, "no vectors at all");
	ok(RESET(.how = 3) == 0 && RESET(.how = 4) == -EINVAL && RESET(.flags = 1) == -EINVAL &&
		   RESET(.reserved = 1) == -EINVAL,
	   "resets");
	ok(TOPOLOGY() == 0 &&
		   TOPOLOGY(.peer_valid = 1, .peer_domain = 5, .peer_bus = 255, .peer_devfn = 255) == 0,
	   "topology");
	ok(TOPOLOGY(.peer_valid = 2) == -EINVAL && TOPOLOGY(.peer_bus = 1) == -EINVAL &&
		   TOPOLOGY(.peer_valid = 1, .peer_bus = 256) == -EINVAL &&
		   TOPOLOGY(.peer_valid = 1, .peer_devfn = 256) == -EINVAL && TOPOLOGY(.flags = 1) == -EINVAL,
	   "topology out of range");
}

int main(void)
{
	sizes();
	maps();
	others();
	return done_testing();
}
