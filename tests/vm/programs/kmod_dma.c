/* SPDX-License-Identifier: MIT */
/* A controller driven through /dev/ugds_drvN: DMA, interrupts, armed words, resets. Usage: kmod_dma NODE */
#include "kmod.h"

static volatile uint32_t *words;

static uint64_t bind(int fd, uint32_t vector, int event, uint32_t word)
{
	struct ugds_drv_irq_bind bind = {
		.argsz = sizeof(bind), .vector = vector, .fd = event, .word = word
	};

	REQUIRE(call(fd, UGDS_DRV_IRQ_BIND, &bind) == 0);
	return bind.ret_binding;
}

static void unbind(int fd, uint64_t binding)
{
	struct ugds_drv_irq_unbind unbind = { .argsz = sizeof(unbind), .binding = binding };

	EXPECT(call(fd, UGDS_DRV_IRQ_UNBIND, &unbind), 0);
}

static void identified(struct nvme *n, uint8_t *at, uint64_t iova)
{
	memset(at, 0xee, PAGE);
	EXPECT(identify(n, iova), 0);
	EXPECT(at[0] | at[1] << 8, info_of(n->fd).vendor);
}

static void words_gate_wakeups(struct nvme *n, uint64_t iova, uint32_t stride)
{
	int always = eventfd(0, EFD_CLOEXEC), armed = eventfd(0, EFD_CLOEXEC);
	uint64_t a = bind(n->fd, 0, always, UGDS_DRV_NO_WORD), b = bind(n->fd, 0, armed, 5);
	volatile uint32_t *word = words + 5 * stride / 4;
	int i;

	for (i = 0; i < 20; i++) {
		*word = (uint32_t)i % 2;
		__sync_synchronize(); /* armed before the command */
		EXPECT(identify(n, iova), 0);
		EXPECT(woken(always), 1);
		EXPECT(i % 2 ? woken(armed) : quiet(armed), 1);
		EXPECT(*word, 0);
	}
	unbind(n->fd, b);
	*word = 1;
	EXPECT(identify(n, iova), 0);
	EXPECT(woken(always), 1);
	EXPECT(*word, 1);
	unbind(n->fd, a);
	close(always);
	close(armed);
}

static void dma_is_gated(struct nvme *n, uint8_t *at, uint64_t iova, uint64_t sq, uint64_t cq)
{
	int event = eventfd(0, EFD_CLOEXEC);
	struct ugds_drv_state watch = { .argsz = sizeof(watch), .event_fd = event };

	EXPECT(call(n->fd, UGDS_DRV_STATE, &watch), 0);
	EXPECT(watch.ret_state, UGDS_DRV_STATE_DMA);
	EXPECT(reset(n->fd, UGDS_DRV_RESET_STOP_DMA), 0);
	EXPECT(woken(event), 1);
	EXPECT(state_of(n->fd).ret_state, 0);
	EXPECT(reset(n->fd, UGDS_DRV_RESET_START_DMA), -EPERM);
	EXPECT(reset(n->fd, UGDS_DRV_RESET_DISABLE), 0);
	EXPECT(get32(n, 0x1c) & 1, 0);
	EXPECT(reset(n->fd, UGDS_DRV_RESET_START_DMA), 0);
	EXPECT(woken(event), 1);
	nvme_enable(n, sq, cq);
	identified(n, at, iova);
	close(event);
}

static void function_is_reset(struct nvme *n, uint8_t *at, uint64_t iova, uint64_t sq, uint64_t cq)
{
	if (!(info_of(n->fd).caps & UGDS_DRV_CAP_FLR)) {
		EXPECT(reset(n->fd, UGDS_DRV_RESET_FUNCTION), -EOPNOTSUPP);
		return;
	}
	EXPECT(reset(n->fd, UGDS_DRV_RESET_FUNCTION), 0);
	EXPECT(get32(n, 0x14) & 1, 0);
	EXPECT(state_of(n->fd).ret_state, 0);
	nvme_enable(n, sq, cq);
	identified(n, at, iova);
}

static void resets_refuse(int fd)
{
	struct ugds_drv_reset bad = { .argsz = sizeof(bad), .how = 4 };

	EXPECT(call(fd, UGDS_DRV_RESET, &bad), -EINVAL);
	bad = (struct ugds_drv_reset){ .argsz = sizeof(bad), .flags = 1 };
	EXPECT(call(fd, UGDS_DRV_RESET, &bad), -EINVAL);
	bad = (struct ugds_drv_reset){ .argsz = sizeof(bad), .reserved = 1 };
	EXPECT(call(fd, UGDS_DRV_RESET, &bad), -EINVAL);
}

int main(int argc, char **argv)
{
	struct ugds_drv_extent extent;
	struct ugds_drv_info info;
	struct ugds_drv_map map;
	uint64_t sq, cq;
	uint8_t *at;
	struct nvme n;
	int fd;

	REQUIRE(argc == 2);
	fd = open_node(argv[1]);
	info = info_of(fd);
	EXPECT(state_of(fd).ret_state, 0);
	words = map_at(fd, UGDS_DRV_MMAP_ARMED, (size_t)info.armed_words * info.armed_stride);
	REQUIRE(words != MAP_FAILED);
	n = nvme_start(fd, &sq, &cq);
	at = memory(PAGE);
	map = host(at, PAGE);
	map.extents = (uintptr_t)&extent;
	map.nr_extents = 1;
	REQUIRE(call(fd, UGDS_DRV_MAP, &map) == 0);

	identified(&n, at, extent.iova);
	words_gate_wakeups(&n, extent.iova, info.armed_stride);
	dma_is_gated(&n, at, extent.iova, sq, cq);
	function_is_reset(&n, at, extent.iova, sq, cq);
	resets_refuse(fd);
	close(fd); /* its memory is mapped still, so this is not the end of it */
	return finish("dma");
}
