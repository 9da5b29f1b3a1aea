/* SPDX-License-Identifier: MIT */
/* Set and Get Features (Base 5.27). All of a feature is dword 11, kept as the host gave it. */
#include <string.h>

#include "emu/internal.h"

#define INVALID_FIELD (NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_FIELD) | EMU_DNR)
#define SEQUENCE_ERROR (NVME_STATUS(NVME_SCT_GENERIC, 0x0c) | EMU_DNR)
#define NOT_SAVEABLE (NVME_STATUS(NVME_SCT_CMD, 0x0d) | EMU_DNR)
#define SAVE (1u << 31)
#define HOST_BEHAVIOR_BYTES 512u
#define NR_FEATURES 12
#define BURST_UNLIMITED 7u
#define TEMP_THRESHOLD 0x0157 /* 70 degrees Celsius */
#define AGGREGATION_UNIT_NS (100 * NSEC_PER_USEC)

static_assert(sizeof(((struct emu_ctrl *)0)->features) / sizeof(uint32_t) >= NR_FEATURES, "all features fit");

void emu_features_reset(struct emu_ctrl *e)
{
	memset(e->features, 0, sizeof(e->features));
	/* weights are zero based: 1 each */
	e->features[NVME_FEAT_ARBITRATION] = BURST_UNLIMITED;
	atomic_store_explicit(&e->arbitration, BURST_UNLIMITED, memory_order_relaxed);
	e->features[NVME_FEAT_TEMP] = TEMP_THRESHOLD;
	e->features[NVME_FEAT_VWC] = e->p.vwc;
	atomic_store_explicit(&e->write_cache, e->p.vwc, memory_order_relaxed);
	emu_coalesce_reset(&e->irq);
	e->acre = false;
	e->granted_sqs = e->p.queues;
	e->granted_cqs = e->p.queues;
}

static bool have_io_queues(struct emu_ctrl *e)
{
	for (uint32_t i = 1; i <= EMU_MAX_QID; i++)
		if (atomic_load_explicit(&e->cq[i].live, memory_order_relaxed))
			return true;
	return false;
}

static uint16_t set_num_queues(struct emu_ctrl *e, uint32_t asked, uint32_t *ret_dw0)
{
	uint32_t sqs = asked & 0xffff, cqs = asked >> 16;

	if (sqs == 0xffff || cqs == 0xffff)
		return INVALID_FIELD;
	if (have_io_queues(e))
		return SEQUENCE_ERROR;
	e->granted_sqs = min_u32(sqs + 1, e->p.queues);
	e->granted_cqs = min_u32(cqs + 1, e->p.queues);
	*ret_dw0 = (e->granted_cqs - 1) << 16 | (e->granted_sqs - 1);
	return 0;
}

/* Switched off, what is in the cache is made durable, and every write from then on. */
static uint16_t set_write_cache(struct emu_ctrl *e, bool on)
{
	atomic_store_explicit(&e->write_cache, on, memory_order_relaxed);
	return on ? 0 : emu_io_flush(e, NVME_NSID_ALL);
}

/* Base 5.27.1.18: the first byte asks for retry delays (ACRE). */
static uint16_t set_host_behavior(struct emu_actor *a, const struct nvme_sqe *s)
{
	uint16_t st = emu_copy_from_host(a, s, a->scratch, HOST_BEHAVIOR_BYTES);

	if (!st)
		a->e->acre = a->scratch[0] & 1;
	return st;
}

static bool used(struct emu_ctrl *e, uint32_t vector)
{
	for (uint32_t i = 1; i <= EMU_MAX_QID; i++)
		if (atomic_load_explicit(&e->cq[i].live, memory_order_relaxed) && e->cq[i].ien &&
		    e->cq[i].vector == vector)
			return true;
	return false;
}

/* The host makes the completion queues of a vector before it says how that is to be (Base 5.27.1.7). */
static uint16_t set_irq_config(struct emu_ctrl *e, uint32_t cdw11)
{
	uint32_t vector = cdw11 & 0xffff;

	if (vector >= e->irq.nr || !used(e, vector))
		return INVALID_FIELD;
	emu_coalesce_alone(e, vector, cdw11 & NVME_IRQ_ALONE);
	return 0;
}

uint16_t emu_set_features(struct emu_actor *a, const struct nvme_sqe *s, uint32_t *ret_dw0)
{
	struct emu_ctrl *e = a->e;
	uint32_t fid = le32_get(s->cdw10) & 0xff, cdw11 = le32_get(s->cdw11);

	if (le32_get(s->cdw10) & SAVE)
		return NOT_SAVEABLE;
	switch (fid) {
	case NVME_FEAT_NUM_QUEUES:
		return set_num_queues(e, cdw11, ret_dw0);
	case NVME_FEAT_HOST_BEHAVIOR:
		return set_host_behavior(a, s);
	case NVME_FEAT_VWC:
		if (!e->p.vwc)
			return INVALID_FIELD;
		break;
	case NVME_FEAT_POWER:
		if (cdw11 & 0x1f) /* NPSS is 0: there is one power state */
			return INVALID_FIELD;
		break;
	case NVME_FEAT_IRQ_CONFIG:
		return set_irq_config(e, cdw11);
	case NVME_FEAT_IRQ_COALESCE:
		if (e->p.no_coalesce)
			return INVALID_FIELD;
		emu_coalesce_set(e, (cdw11 & 0xff) + 1, (cdw11 >> 8 & 0xff) * AGGREGATION_UNIT_NS);
		break;
	case NVME_FEAT_ARBITRATION:
	case NVME_FEAT_TEMP:
	case NVME_FEAT_ERROR_RECOVERY:
	case NVME_FEAT_WRITE_ATOMICITY:
	case NVME_FEAT_ASYNC_EVENT:
		break;
	default:
		return INVALID_FIELD;
	}
	e->features[fid] = cdw11;
	if (fid == NVME_FEAT_VWC)
		return set_write_cache(e, cdw11 & 1);
	if (fid == NVME_FEAT_ARBITRATION)
		atomic_store_explicit(&e->arbitration, cdw11, memory_order_relaxed);
	return 0;
}

/* Bits 10:8 select: current, default, saved (none is), supported capabilities. */
uint16_t emu_get_features(struct emu_ctrl *e, const struct nvme_sqe *s, uint32_t *ret_dw0)
{
	uint32_t fid = le32_get(s->cdw10) & 0xff, select = le32_get(s->cdw10) >> 8 & 7;
	uint32_t vector = le32_get(s->cdw11) & 0xffff;

	if (fid < NVME_FEAT_ARBITRATION || fid == 0x03 || fid >= NR_FEATURES || select > 3)
		return INVALID_FIELD;
	if (fid == NVME_FEAT_VWC && !e->p.vwc)
		return INVALID_FIELD;
	if (fid == NVME_FEAT_IRQ_CONFIG && vector >= e->irq.nr)
		return INVALID_FIELD;
	if (select == 3)
		*ret_dw0 = 1u << 2; /* changeable */
	else if (fid == NVME_FEAT_IRQ_CONFIG)
		*ret_dw0 = vector | (emu_is_alone(e, vector) ? NVME_IRQ_ALONE : 0);
	else if (fid == NVME_FEAT_NUM_QUEUES)
		*ret_dw0 = (e->granted_cqs - 1) << 16 | (e->granted_sqs - 1);
	else
		*ret_dw0 = e->features[fid];
	return 0;
}
