/* SPDX-License-Identifier: MIT */
/* Registers, state and the table of operations. */
#include "transport/kmod.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "support/barrier.h"
#include "transport/kmod_dev.h"

int kmod_call(const struct kmod *k, unsigned long cmd, void *arg)
{
	/* interrupted waits begin anew: they are bounded, and a signal that kills does not come back here */
	while (ioctl(k->fd, cmd, arg) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static volatile uint32_t *reg(void *t, uint32_t off)
{
	return (volatile uint32_t *)(((struct kmod *)t)->bar + off);
}

static uint32_t op_reg_read32(void *t, uint32_t off)
{
	uint32_t v =
		le32toh(*reg(t, off)); /* volatile: a register is read when and as often as it is asked for */

	dma_rmb(); /* what the device wrote before it changed the register is read after it */
	return v;
}

/* In halves, the lower first: not every controller takes accesses of 64 bits (Base 3.1.2). */
static uint64_t op_reg_read64(void *t, uint32_t off)
{
	uint64_t low = op_reg_read32(t, off);

	return low | (uint64_t)op_reg_read32(t, off + 4) << 32;
}

static void op_reg_write32(void *t, uint32_t off, uint32_t val)
{
	dma_wmb(); /* memory that the device will look at is written first */
	*reg(t, off) = htole32(val); /* volatile: as above */
}

static void op_reg_write64(void *t, uint32_t off, uint64_t val)
{
	op_reg_write32(t, off, (uint32_t)val);
	op_reg_write32(t, off + 4, (uint32_t)(val >> 32));
}

static int reset(struct kmod *k, uint32_t how)
{
	struct ugds_drv_reset r = { .argsz = sizeof(r), .how = how };

	return kmod_call(k, UGDS_DRV_RESET, &r);
}

static int op_stop_dma(void *t)
{
	int err = reset(t, UGDS_DRV_RESET_STOP_DMA);

	return err == -ENODEV ? 0 : err; /* gone: the kernel cut it off before it said so */
}

static int op_start_dma(void *t)
{
	/* CC.EN is 0 already, but it is this call that ends what a revocation began */
	int err = reset(t, UGDS_DRV_RESET_DISABLE);

	return err ? err : reset(t, UGDS_DRV_RESET_START_DMA);
}

static int op_reset(void *t)
{
	struct kmod *k = t;

	return k->info.caps & UGDS_DRV_CAP_FLR ? reset(k, UGDS_DRV_RESET_FUNCTION) : -EOPNOTSUPP;
}

static int op_path(void *t)
{
	struct ugds_drv_state st = { .argsz = sizeof(st), .event_fd = -1 };
	int err = kmod_call(t, UGDS_DRV_STATE, &st);

	if (err)
		return err == -ENODEV ? err : 0;
	if (st.ret_state & UGDS_DRV_STATE_REMOVED)
		return -ENODEV;
	return st.ret_state & UGDS_DRV_STATE_REVOKED ? -EHOSTDOWN : 0;
}

static int op_watch(void *t, int fd)
{
	struct ugds_drv_state st = { .argsz = sizeof(st), .event_fd = fd };

	return kmod_call(t, UGDS_DRV_STATE, &st);
}

static void op_place(void *t, struct nvme_place *ret)
{
	const struct kmod *k = t;

	*ret = (struct nvme_place){ .iommu = k->iommu, .numa_node = k->info.numa_node, .coherent = true };
	snprintf(ret->bus, sizeof(ret->bus), "%04x:%02x:%02x.%x", k->info.domain & 0xffffffu,
		 k->info.bus & 0xffu, k->info.devfn >> 3 & 0x1fu, k->info.devfn & 7u);
}

static void op_fork_child(void *t)
{
	struct kmod *k = t;

	/* the mappings were not inherited; the controller is stopped when its owner ends, not at the last close */
	close(k->fd);
	k->fd = -1;
}

static void op_close(void *t)
{
	struct kmod *k = t;

	kmod_irq_done(k);
	kmod_unmap_all(k);
	close(k->fd);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

static const struct pcie_ops kmod_ops = {
	.name = "kmod",
	.reg_read32 = op_reg_read32,
	.reg_read64 = op_reg_read64,
	.reg_write32 = op_reg_write32,
	.reg_write64 = op_reg_write64,
	.dma_map = kmod_dma_map,
	.dma_unmap = kmod_dma_unmap,
	.dma_map_foreign = kmod_dma_map_foreign,
	.dma_revoked = kmod_dma_revoked,
	.queue_alloc = kmod_queue_alloc,
	.queue_free = kmod_queue_free,
	.word_get = kmod_word_get,
	.word_put = kmod_word_put,
	.irq_bind = kmod_irq_bind,
	.irq_unbind = kmod_irq_unbind,
	.stop_dma = op_stop_dma,
	.start_dma = op_start_dma,
	.reset = op_reset,
	.path = op_path,
	.watch = op_watch,
	.place = op_place,
	.fork_child = op_fork_child,
	.close = op_close,
};

int kmod_transport_new(const char *path, struct pcie_dev **ret, char *err, size_t err_len)
{
	struct kmod *k = calloc(1, sizeof(*k));
	int rc;

	if (!k) {
		snprintf(err, err_len, "no memory for the transport");
		return -ENOMEM;
	}
	pthread_mutex_init(&k->lock, NULL);
	rc = kmod_open(k, path, err, err_len);
	if (rc) {
		pthread_mutex_destroy(&k->lock);
		free(k);
		return rc;
	}
	k->dev.ops = &kmod_ops;
	k->dev.t = k;
	k->dev.doorbells = k->bar + NVME_REG_DBS;
	k->dev.doorbell_bytes = (size_t)k->info.bar_map_bytes - NVME_REG_DBS;
	k->dev.nr_vectors = k->info.nr_vectors;
	k->dev.flags = NVME_TR_DIRECT | (k->armed ? NVME_TR_ARM | NVME_TR_OWN_WORDS : 0);
	*ret = &k->dev;
	return 0;
}
