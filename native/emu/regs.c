/* SPDX-License-Identifier: MIT */
/* Controller properties (Base 3.1.3), bring-up and shutdown. */
#include <string.h>

#include "emu/power.h"

#define VERSION_2_0 0x00020000u
#define NSSR_MAGIC 0x4e564d65u
#define CAP_NSSRS (1ull << 36)
#define CAP_CSS_NVM (1ull << 37)
#define CAP_CQR (1ull << 16)
#define CAP_AMS_WRR (1ull << 17)
#define PAGE_MASK 0xfffull

uint64_t emu_cap_value(const struct emu_params *p)
{
	return p->mqes | CAP_CQR | (p->wrr ? CAP_AMS_WRR : 0) | (uint64_t)p->to << 24 |
	       (uint64_t)p->dstrd << 32 | CAP_NSSRS | CAP_CSS_NVM | (uint64_t)p->mpsmin << 48 |
	       (uint64_t)p->mpsmax << 52;
}

static uint64_t read_any(struct emu_ctrl *e, uint32_t off)
{
	switch (off) {
	case NVME_REG_CAP:
		return e->cap;
	case NVME_REG_CAP + 4:
		return e->cap >> 32;
	case NVME_REG_VS:
		return e->p.fake_vs ? e->p.vs : VERSION_2_0;
	case NVME_REG_INTMS:
	case NVME_REG_INTMC:
		return atomic_load(&e->irq.mask);
	case NVME_REG_CC:
		return atomic_load(&e->cc);
	case NVME_REG_CSTS:
		return atomic_load(&e->csts) | e->p.csts;
	case NVME_REG_AQA:
		return e->aqa;
	case NVME_REG_ASQ:
		return e->asq;
	case NVME_REG_ASQ + 4:
		return e->asq >> 32;
	case NVME_REG_ACQ:
		return e->acq;
	case NVME_REG_ACQ + 4:
		return e->acq >> 32;
	default:
		return 0; /* NSSR and what is reserved */
	}
}

/* Nobody answers on the bus. */
static bool silent(struct emu_ctrl *e)
{
	int64_t until = atomic_load(&e->ones_until);

	if (unlikely(e->power))
		emu_power_look(e);
	return atomic_load(&e->removed) || (until && now_ns() < until);
}

static uint64_t reg_read(struct emu_ctrl *e, uint32_t off)
{
	uint64_t v;

	if (silent(e))
		return UINT64_MAX;
	pthread_mutex_lock(&e->reg_lock);
	v = read_any(e, off);
	pthread_mutex_unlock(&e->reg_lock);
	return unlikely(e->p.hostile) ? emu_hostile_reg(e, off, v) : v;
}

uint32_t emu_reg_read32(struct emu_ctrl *e, uint32_t off) { return (uint32_t)reg_read(e, off); }

uint64_t emu_reg_read64(struct emu_ctrl *e, uint32_t off)
{
	uint64_t low = reg_read(e, off);

	return (uint32_t)low | reg_read(e, off + 4) << 32;
}

static bool cc_valid(struct emu_ctrl *e, uint32_t cc)
{
	uint32_t asqs = (e->aqa & 0xfff) + 1, acqs = (e->aqa >> 16 & 0xfff) + 1;
	uint32_t mps = NVME_CC_GET_MPS(cc), ams = NVME_CC_GET_AMS(cc);

	return mps >= e->p.mpsmin && mps <= e->p.mpsmax && !(cc >> 4 & 7) &&
	       (ams == NVME_AMS_RR || (ams == NVME_AMS_WRR && e->p.wrr)) &&
	       NVME_CC_GET_IOSQES(cc) == NVME_SQES && NVME_CC_GET_IOCQES(cc) == NVME_CQES && asqs >= 2 &&
	       acqs >= 2 && asqs - 1 <= e->p.mqes && acqs - 1 <= e->p.mqes;
}

/* Under reg_lock. CC is stored already. */
static void enable(struct emu_ctrl *e, uint32_t cc)
{
	struct emu_hold hold[4];
	struct emu_actor a = { .e = e, .hold = hold, .max_hold = ARRAY_SIZE(hold) };
	uint32_t asqs = (e->aqa & 0xfff) + 1, acqs = (e->aqa >> 16 & 0xfff) + 1;

	atomic_fetch_and(&e->csts, ~(3u << 2));
	if (!cc_valid(e, cc)) {
		emu_stat_add(&e->protocol_errors, 1);
		emu_set_cfs(e);
		return;
	}
	atomic_store(&e->page_bytes, 1u << (12 + NVME_CC_GET_MPS(cc)));
	emu_features_reset(e);
	memset(e->credit, 0, sizeof(e->credit));
	if (emu_cq_create(&a, 0, e->acq, acqs, true, 0) || emu_sq_create(&a, 0, e->asq, asqs, 0, &e->cq[0])) {
		emu_set_cfs(e);
		return;
	}
	atomic_store_explicit(&e->halted, false, memory_order_seq_cst);
	atomic_fetch_or(&e->csts, NVME_CSTS_RDY);
}

static void shut_down(struct emu_ctrl *e)
{
	atomic_fetch_or(&e->csts, NVME_CSTS_SHST_OCCURRING);
	emu_io_flush(e, NVME_NSID_ALL);
	atomic_fetch_and(&e->csts, ~(3u << 2));
	atomic_fetch_or(&e->csts, NVME_CSTS_SHST_COMPLETE);
}

static void write_cc(struct emu_ctrl *e, uint32_t val)
{
	uint32_t old = atomic_load(&e->cc);

	bool on = val & NVME_CC_EN && !(old & NVME_CC_EN), off = !(val & NVME_CC_EN) && old & NVME_CC_EN;

	if ((on || off) && emu_fault_flag(e, EMU_FAULT_ENABLE_STUCK, EMU_ANY))
		return;
	if ((on && emu_fault_flag(e, EMU_FAULT_NEVER_READY, EMU_ANY)) ||
	    (off && emu_fault_flag(e, EMU_FAULT_RESET_REFUSED, EMU_ANY)))
		return;
	atomic_store(&e->cc, val);
	if (NVME_CC_GET_SHN(val) && !NVME_CC_GET_SHN(old))
		shut_down(e);
	if (on)
		enable(e, val);
	else if (off)
		emu_disable(e);
}

/* As they are at power on. Under reg_lock. */
void emu_registers_reset(struct emu_ctrl *e)
{
	atomic_store(&e->cc, 0);
	e->aqa = 0;
	e->asq = 0;
	e->acq = 0;
	atomic_store(&e->csts, 0);
}

/* NVM subsystem reset: as power on, but that CSTS tells. */
static void subsystem_reset(struct emu_ctrl *e)
{
	emu_disable(e);
	emu_registers_reset(e);
	atomic_store(&e->csts, NVME_CSTS_NSSRO);
}

static void write_any(struct emu_ctrl *e, uint32_t off, uint32_t val)
{
	bool enabled = atomic_load(&e->cc) & NVME_CC_EN;

	switch (off) {
	case NVME_REG_INTMS:
		emu_irq_mask(&e->irq, val);
		break;
	case NVME_REG_INTMC:
		emu_irq_unmask(&e->irq, val);
		break;
	case NVME_REG_CC:
		write_cc(e, val);
		break;
	case NVME_REG_CSTS:
		if (val & NVME_CSTS_NSSRO) /* write one to clear */
			atomic_fetch_and(&e->csts, ~NVME_CSTS_NSSRO);
		break;
	case NVME_REG_NSSR:
		if (val == NSSR_MAGIC)
			subsystem_reset(e);
		break;
	case NVME_REG_AQA:
		if (!enabled)
			e->aqa = val & 0x0fff0fff;
		break;
	case NVME_REG_ASQ:
		if (!enabled)
			e->asq = (e->asq & ~0xffffffffull) | (val & ~PAGE_MASK);
		break;
	case NVME_REG_ASQ + 4:
		if (!enabled)
			e->asq = (uint32_t)e->asq | (uint64_t)val << 32;
		break;
	case NVME_REG_ACQ:
		if (!enabled)
			e->acq = (e->acq & ~0xffffffffull) | (val & ~PAGE_MASK);
		break;
	case NVME_REG_ACQ + 4:
		if (!enabled)
			e->acq = (uint32_t)e->acq | (uint64_t)val << 32;
		break;
	default:
		break;
	}
}

void emu_reg_write32(struct emu_ctrl *e, uint32_t off, uint32_t val)
{
	if (silent(e))
		return;
	if (off >= NVME_REG_DBS) {
		if (off - NVME_REG_DBS > e->doorbell_bytes - sizeof(uint32_t) || off & 3)
			return;
		atomic_store_explicit((_Atomic uint32_t *)e->doorbells + (off - NVME_REG_DBS) / 4, val,
				      memory_order_release);
		emu_kick(e, (off - NVME_REG_DBS) >> (3 + e->p.dstrd));
		return;
	}
	pthread_mutex_lock(&e->reg_lock);
	write_any(e, off, val);
	pthread_mutex_unlock(&e->reg_lock);
}

void emu_reg_write64(struct emu_ctrl *e, uint32_t off, uint64_t val)
{
	emu_reg_write32(e, off, (uint32_t)val);
	emu_reg_write32(e, off + 4, (uint32_t)(val >> 32));
}
