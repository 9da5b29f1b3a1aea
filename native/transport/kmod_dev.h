/* SPDX-License-Identifier: MIT */
/* The kernel helper's transport: its private parts. */
#ifndef TRANSPORT_KMOD_DEV_H
#define TRANSPORT_KMOD_DEV_H

#include <pthread.h>
#include <stdatomic.h>

#include "kmod/uapi/ugds_ioctl.h"
#include "pcie/pcie_ops.h"

#define KMOD_WORDS_MOST 1024u

struct kmod_queue;
struct kmod_binding;

struct kmod {
	struct pcie_dev dev;
	int fd;
	struct ugds_drv_info info;
	uint32_t iommu; /* NVME_IOMMU_* */
	volatile uint8_t *bar;
	uint8_t *armed; /* the pages of wake-up words, NULL: there are none */
	size_t armed_bytes;
	_Atomic uint64_t words[KMOD_WORDS_MOST / 64]; /* taken ones */
	pthread_mutex_t lock; /* the lists; never on the I/O path */
	struct kmod_queue *queues;
	struct kmod_binding *bindings;
};

/* One ioctl; negative errno. */
int kmod_call(const struct kmod *k, unsigned long cmd, void *arg);

/* kmod_open.c: everything up to the first register access. */
int kmod_open(struct kmod *k, const char *path, char *err, size_t err_len);
void kmod_unmap_all(struct kmod *k);

/* kmod_mem.c; see pcie_ops */
int kmod_dma_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret);
int kmod_dma_map_foreign(void *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			 struct dma_mapping *ret);
int kmod_dma_unmap(void *t, uint64_t handle);
bool kmod_dma_revoked(void *t, uint64_t handle);

/* kmod_queue.c */
int kmod_queue_alloc(void *t, size_t nbytes, bool huge, void **ret_vaddr, uint64_t *ret_iova, bool *ret_huge);
void kmod_queue_free(void *t, void *vaddr, size_t nbytes);

/* kmod_irq.c */
_Atomic uint32_t *kmod_word_get(void *t);
void kmod_word_put(void *t, _Atomic uint32_t *word);
int kmod_irq_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding);
int kmod_irq_unbind(void *t, uint64_t binding);
void kmod_irq_done(struct kmod *k);

#endif
