/* SPDX-License-Identifier: MIT */
/* A controller's birth and death, and what can be asked about it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "emu/far.h"
#include "emu/power.h"

#define MEMORY_FETCH_BYTES (64u << 10)

static int doorbells_new(struct emu_ctrl *e)
{
	uint32_t stride = 1u << e->p.dstrd; /* in 32-bit words */
	_Atomic uint32_t *db;

	e->doorbell_bytes = align_up((size_t)(EMU_MAX_QID + 1) * 2 * stride * sizeof(uint32_t), 4096);
	e->doorbells =
		mmap(NULL, e->doorbell_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->doorbells == MAP_FAILED) {
		e->doorbells = NULL;
		return -ENOMEM;
	}
	madvise(e->doorbells, e->doorbell_bytes, MADV_DONTFORK);
	db = e->doorbells;
	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++) {
		e->sq[qid].qid = (uint16_t)qid;
		e->cq[qid].qid = (uint16_t)qid;
		e->sq[qid].db = db + 2 * qid * stride;
		e->cq[qid].db = db + (2 * qid + 1) * stride;
	}
	return 0;
}

static int namespaces_open(struct emu_ctrl *e, char *err, size_t err_len)
{
	for (uint32_t i = 0; i < e->p.nr_ns; i++) {
		int rc = emu_backing_open(&e->p, i, &e->ns[i], err, err_len);

		if (rc) {
			/* none of them is left behind by a controller that does not come to be */
			while (i--)
				emu_backing_unmake(&e->p, i, &e->ns[i]);
			return rc;
		}
		e->nr_ns++;
	}
	return 0;
}

static int parts_new(struct emu_ctrl *e, char *err, size_t err_len)
{
	uint64_t seed = e->p.seed;
	int rc;

	pthread_mutex_init(&e->reg_lock, NULL);
	pthread_mutex_init(&e->admin_lock, NULL);
	pthread_mutex_init(&e->aer_lock, NULL);
	pthread_mutex_init(&e->wait_lock, NULL);
	pthread_mutex_init(&e->fault_lock, NULL);
	pthread_mutex_init(&e->far_lock, NULL);
	if (!seed && getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
		seed = (uint64_t)now_ns();
	e->rng = seed;
	/* the address keeps two controllers with one seed apart */
	rc = emu_iommu_init(&e->io, seed ^ (uintptr_t)e, 1u << e->p.mpsmin);
	if (!rc)
		rc = emu_irq_init(&e->irq, e->p.vectors);
	if (!rc)
		rc = doorbells_new(e);
	e->channel_free = calloc(e->p.channels + 1, sizeof(*e->channel_free));
	if (!rc && !e->channel_free)
		rc = -ENOMEM;
	if (!rc)
		rc = emu_power_new(e);
	if (rc) {
		snprintf(err, err_len, "no memory for an embedded controller");
		return rc;
	}
	rc = namespaces_open(e, err, err_len);
	if (rc)
		return rc;
	rc = emu_workers_start(e);
	if (rc)
		snprintf(err, err_len, "cannot start %u device threads: %s", e->p.threads, strerror(-rc));
	return rc;
}

int emu_new(const struct emu_params *p, struct emu_ctrl **ret, char *err, size_t err_len)
{
	struct emu_ctrl *e;
	int rc = emu_check_params(p, err, err_len);

	if (rc)
		return rc;
	e = aligned_alloc(CACHELINE, sizeof(*e));
	if (!e) {
		snprintf(err, err_len, "no memory for an embedded controller");
		return -ENOMEM;
	}
	memset(e, 0, sizeof(*e));
	e->p = *p;
	e->pid = getpid();
	e->readonly = p->readonly;
	e->nodata = p->nodata;
	e->modelled = p->latency_ns || p->latency_per_kib_ns || p->jitter_ns;
	e->step = p->step && !e->modelled && !p->hostile;
	e->fetch_bytes = MEMORY_FETCH_BYTES;
	e->cap = p->cap ? p->cap : emu_cap_value(p);
	atomic_init(&e->hostile_rng, p->hostile_seed);
	atomic_store(&e->halted, true);
	atomic_store(&e->page_bytes, 4096u << p->mpsmin);
	atomic_store(&e->next_due, INT64_MAX);
	atomic_store(&e->keeper_due, INT64_MAX);
	emu_features_reset(e);
	rc = parts_new(e, err, err_len);
	e->p.path = NULL; /* the caller's */
	if (rc) {
		emu_free(e);
		return rc;
	}
	*ret = e;
	return 0;
}

void emu_free(struct emu_ctrl *e)
{
	if (!e)
		return;
	if (e->pid != getpid()) {
		/* In a forked child there are no device threads, and locks may be held for ever: let go
		 * of the files, whose lock the parent keeps, and of nothing else. */
		for (uint32_t i = 0; i < e->nr_ns; i++)
			if (e->ns[i].fd >= 0)
				close(e->ns[i].fd);
		return;
	}
	pthread_mutex_lock(&e->reg_lock);
	emu_disable(e);
	pthread_mutex_unlock(&e->reg_lock);
	emu_workers_stop(e);
	emu_stages_done(e);
	emu_power_free(e);
	for (uint32_t i = 0; i < e->nr_ns; i++)
		emu_backing_close(&e->ns[i]);
	emu_faults_done(e);
	emu_irq_done(&e->irq);
	emu_iommu_done(&e->io);
	if (e->doorbells)
		munmap(e->doorbells, e->doorbell_bytes);
	free(e->channel_free);
	free(e->heap);
	pthread_mutex_destroy(&e->reg_lock);
	pthread_mutex_destroy(&e->admin_lock);
	pthread_mutex_destroy(&e->aer_lock);
	pthread_mutex_destroy(&e->wait_lock);
	pthread_mutex_destroy(&e->fault_lock);
	pthread_mutex_destroy(&e->far_lock);
	free(e);
}

volatile void *emu_doorbells(struct emu_ctrl *e, size_t *ret_nbytes)
{
	*ret_nbytes = e->doorbell_bytes;
	return e->doorbells;
}

int emu_dma_map(struct emu_ctrl *e, void *vaddr, size_t nbytes, uint32_t flags, struct emu_extent **ret_ext,
		size_t *ret_nr, uint64_t *ret_handle)
{
	return emu_iommu_map(&e->io, vaddr, nbytes, flags, NULL, ret_ext, ret_nr, ret_handle);
}

int emu_dma_map_far(struct emu_ctrl *e, uint32_t kind, uint64_t addr, size_t nbytes, uint32_t flags,
		    struct emu_extent **ret_ext, size_t *ret_nr, uint64_t *ret_handle)
{
	struct emu_stage *stage;
	void *place;
	int rc;

	if (!e->dma)
		return -EOPNOTSUPP;
	rc = e->dma->resolve(e->dma_ctx, kind, addr, nbytes, &place);
	if (!rc)
		rc = emu_stage_for(e, place, &stage);
	if (rc)
		return rc;
	return emu_iommu_map(&e->io, (void *)(uintptr_t)addr, nbytes, flags, stage, ret_ext, ret_nr,
			     ret_handle);
}

int emu_dma_unmap(struct emu_ctrl *e, uint64_t handle)
{
	struct emu_map *m;
	int rc = emu_iommu_unmap_begin(&e->io, handle, &m);

	if (rc)
		return rc;
	emu_rings_forget(e, m);
	emu_iommu_unmap_finish(&e->io, handle);
	return 0;
}

void emu_get_state(struct emu_ctrl *e, struct emu_state *ret)
{
	bool at_once = true;

	for (uint32_t i = 0; i < e->nr_ns; i++)
		at_once &= e->nodata || e->ns[i].fd < 0 || e->ns[i].nowait || e->ns[i].memory_like;
	*ret = (struct emu_state){ .inline_reads = at_once && e->step,
				   .step = e->step,
				   .threads = e->nr_workers,
				   .backing_bytes = e->ns[0].nbytes,
				   .backing_tail = e->ns[0].tail_bytes };
}

void emu_get_counters(struct emu_ctrl *e, struct emu_counters *ret)
{
	struct emu_counters c = { .iommu_faults = emu_stat_get(&e->iommu_faults),
				  .protocol_errors = emu_stat_get(&e->protocol_errors),
				  .admin_commands = emu_stat_get(&e->admin_commands),
				  .kicks = emu_stat_get(&e->kicks),
				  .aborts = emu_stat_get(&e->aborts),
				  .flushes = emu_stat_get(&e->flushes),
				  .commands = emu_stat_get(&e->stopped.commands) };

	for (uint32_t qid = 0; qid <= EMU_MAX_QID; qid++) {
		uint64_t stepped = emu_stat_get(&e->sq[qid].stepped.commands);

		c.commands += stepped;
		c.stepped += stepped;
		c.doorbell_writes_seen +=
			emu_stat_get(&e->sq[qid].db_seen) + emu_stat_get(&e->cq[qid].db_seen);
	}
	for (uint32_t i = 0; i < e->nr_workers; i++)
		c.commands += emu_stat_get(&e->workers[i].served.commands);
	for (uint32_t i = 0; i < e->irq.nr; i++) {
		c.interrupts += emu_stat_get(&e->irq.vec[i].signals);
		c.interrupts_masked += emu_stat_get(&e->irq.vec[i].masked);
	}
	*ret = c;
}
