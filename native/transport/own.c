/* SPDX-License-Identifier: MIT */
/* A transport of the user's own behind pcie_ops.h: its interface stays as it is when ours changes. */
#include "transport/own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE 4096u

static_assert(UGDS_MAP_READ == DMA_READ && UGDS_MAP_WRITE == DMA_WRITE && UGDS_MAP_CONTIG == DMA_CONTIG,
	      "mapping flags are passed through");
static_assert(sizeof(struct ugds_extent) == sizeof(struct dma_extent) &&
		      offsetof(struct ugds_extent, iova) == offsetof(struct dma_extent, iova),
	      "extents are passed through");

struct own {
	struct pcie_dev dev;
	struct ugds_transport u;
	struct pcie_ops ops; /* what the user left out is left out here */
};

static uint32_t op_read32(void *t, uint32_t off)
{
	return ((struct own *)t)->u.read32(((struct own *)t)->u.t, off);
}

static uint64_t op_read64(void *t, uint32_t off)
{
	return ((struct own *)t)->u.read64(((struct own *)t)->u.t, off);
}

static void op_write32(void *t, uint32_t off, uint32_t val)
{
	((struct own *)t)->u.write32(((struct own *)t)->u.t, off, val);
}

static void op_write64(void *t, uint32_t off, uint64_t val)
{
	((struct own *)t)->u.write64(((struct own *)t)->u.t, off, val);
}

static int op_unmap(void *t, uint64_t handle)
{
	return ((struct own *)t)->u.unmap(((struct own *)t)->u.t, handle);
}

/* What is answered is checked: the engine builds commands from it, and looks no further. */
static int op_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct own *o = t;
	uint64_t first_off = (uintptr_t)vaddr & (PAGE - 1),
		 whole = (first_off + nbytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	size_t max = flags & DMA_CONTIG ? 1 : (size_t)(whole / PAGE);
	struct dma_extent *ext = calloc(max, sizeof(*ext));
	uint64_t handle, sum = 0;
	int64_t nr;
	bool good;

	if (!ext)
		return -ENOMEM;
	nr = o->u.map(o->u.t, vaddr, nbytes, flags, (struct ugds_extent *)(void *)ext, max, &handle);
	if (nr < 0) {
		free(ext);
		return (int)nr;
	}
	good = nr > 0 && (uint64_t)nr <= max;
	for (int64_t i = 0; good && i < nr; i++) {
		good = !(ext[i].iova & (PAGE - 1)) && !(ext[i].nbytes & (PAGE - 1)) && ext[i].nbytes &&
		       ext[i].nbytes <= whole - sum;
		sum += ext[i].nbytes;
	}
	if (!good || sum != whole) {
		o->u.unmap(o->u.t, handle);
		free(ext);
		return -EPROTO;
	}
	*ret = (struct dma_mapping){
		.extents = ext, .nr = (size_t)nr, .handle = handle, .first_off = first_off
	};
	return 0;
}

/* It knows no wake-up words, and is opened without NVME_TR_ARM: owners are signalled always. */
static int op_irq_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding)
{
	struct own *o = t;

	(void)word;
	return o->u.bind(o->u.t, vector, fd, ret_binding);
}

static int op_irq_unbind(void *t, uint64_t binding)
{
	return ((struct own *)t)->u.unbind(((struct own *)t)->u.t, binding);
}

static void op_kick(void *t, uint32_t qid) { ((struct own *)t)->u.kick(((struct own *)t)->u.t, qid); }

static int op_stop_dma(void *t) { return ((struct own *)t)->u.stop_dma(((struct own *)t)->u.t); }

static int op_start_dma(void *t) { return ((struct own *)t)->u.start_dma(((struct own *)t)->u.t); }

static int op_reset(void *t) { return ((struct own *)t)->u.reset(((struct own *)t)->u.t); }

static void op_fork_child(void *t)
{
	struct own *o = t;

	if (o->u.fork_child)
		o->u.fork_child(o->u.t);
}

static void op_close(void *t)
{
	struct own *o = t;

	o->u.close(o->u.t);
	free(o);
}

static const char *lacks(const struct ugds_transport *u)
{
	return !u->read32 || !u->read64 || !u->write32 || !u->write64 ? "a function for registers"
	       : !u->map || !u->unmap				      ? "map() or unmap()"
	       : !u->bind || !u->unbind				      ? "bind() or unbind()"
	       : !u->stop_dma || !u->start_dma			      ? "stop_dma() or start_dma()"
	       : !u->doorbells || u->doorbell_bytes < 16     ? "doorbells: of two queue pairs at least"
	       : !u->vectors				     ? "an interrupt vector"
	       : memchr(u->name, 0, sizeof(u->name)) == NULL ? "an end of its name"
							     : NULL;
}

int own_transport_new(const struct ugds_transport *from, struct pcie_dev **ret, char *err, size_t err_len)
{
	const char *missing;
	struct own *o;

	if (from->abi != UGDS_TRANSPORT_ABI) {
		/* where its close() would be is not known */
		snprintf(err, err_len,
			 "the transport was compiled for version %u of ugds_transport.h, and this is version "
			 "%d; compile it anew",
			 from->abi, UGDS_TRANSPORT_ABI);
		return -EPROTO;
	}
	missing = lacks(from);
	o = missing || !from->close ? NULL : calloc(1, sizeof(*o));
	if (!o) {
		snprintf(err, err_len,
			 missing ? "the transport lacks %s" : "the transport lacks %s, or there is no memory",
			 missing ? missing : "close()");
		if (from->close)
			from->close(from->t);
		return missing || !from->close ? -EINVAL : -ENOMEM;
	}
	o->u = *from;
	o->ops = (struct pcie_ops){
		.name = o->u.name,
		.reg_read32 = op_read32,
		.reg_read64 = op_read64,
		.reg_write32 = op_write32,
		.reg_write64 = op_write64,
		.dma_map = op_map,
		.dma_unmap = op_unmap,
		.irq_bind = op_irq_bind,
		.irq_unbind = op_irq_unbind,
		.kick = o->u.kick ? op_kick : NULL,
		.kick_fenced = o->u.kick ? op_kick : NULL,
		.stop_dma = op_stop_dma,
		.start_dma = op_start_dma,
		.reset = o->u.reset ? op_reset : NULL,
		.fork_child = op_fork_child,
		.close = op_close,
	};
	o->dev = (struct pcie_dev){
		.ops = &o->ops,
		.t = o,
		.doorbells = o->u.doorbells,
		.doorbell_bytes = o->u.doorbell_bytes,
		.nr_vectors = o->u.vectors,
		.flags = (o->u.flags & UGDS_TRANSPORT_DIRECT ? NVME_TR_DIRECT : 0) |
			 (o->u.flags & UGDS_TRANSPORT_MAP_FAST ? NVME_TR_MAP_INLINE : 0),
	};
	*ret = &o->dev;
	return 0;
}
