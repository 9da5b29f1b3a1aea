/* SPDX-License-Identifier: MIT */
/* A power cut as the host sees it: what the registers say, what is there afterwards. */
#include "power_rig.h"

static void registers(void)
{
	struct emu_params p = params();
	uint32_t one[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct nvme_cqe c;
	struct rig r;

	rig_new(&r, &p);
	ok(put_blocks(&r, 0, 8, one, 0) && flush(&r), "a durable write");
	is(emu_power_cut(r.h.e, NULL, false), 0, "power is cut, and comes back");
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), 0, "CSTS is as after power on");
	is(emu_reg_read32(r.h.e, NVME_REG_CC), 0, "so is CC");
	is(emu_reg_read32(r.h.e, NVME_REG_AQA), 0, "so are the admin queues");
	put_values(&r, 0, 8, one, 0);
	ok(!hq_wait_for(&r.h, &r.q, &c, 20 * NSEC_PER_MSEC), "doorbells lead nowhere");
	again(&r);
	memset(one, 0, sizeof(one));
	ok(get_blocks(&r, 0, 8, one) && one[0] == 1 && one[7] == 1, "brought up anew, it has its data");
	is(emu_power_cut(r.h.e, NULL, true), 0, "power is cut for good");
	is(emu_reg_read32(r.h.e, NVME_REG_CSTS), 0xffffffff, "registers read all ones");
	is(emu_power_cut(r.h.e, NULL, false), -ENODEV, "there is no power to be cut");
	rig_free(&r);
	p.volatile_bytes = 0;
	rig_new(&r, &p);
	is(emu_power_cut(r.h.e, NULL, false), -ENXIO, "not without volatile_bytes");
	is(emu_fault_add(r.h.e, &(struct emu_fault){ .action = EMU_FAULT_POWER_CUT,
						     .qid = EMU_ANY,
						     .opcode = EMU_ANY }),
	   -ENXIO, "nor by a fault");
	rig_free(&r);
	p.volatile_bytes = 1 << 20;
	p.nodata = true;
	is(emu_new(&p, &r.h.e, r.h.err, sizeof(r.h.err)), -EINVAL, "nor without data: %s", r.h.err);
}

/* What SMART counts. */
static void counted(void)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_GET_LOG, .nsid = le32_put(NVME_NSID_ALL) };
	struct emu_params p = params();
	struct nvme_smart_log *log;
	struct rig r;

	rig_new(&r, &p);
	cut(&r, 1);
	cut(&r, 2);
	log = (struct nvme_smart_log *)(void *)r.d.p;
	s.cdw10 = le32_put(127u << 16 | NVME_LOG_SMART);
	host_prp(&s, &r.d, 0, 512, NULL);
	is(host_admin(&r.h, s, NULL), 0, "SMART");
	is(log->power_cycles[0], 3, "power cycles");
	is(log->unsafe_shutdowns[0], 2, "unsafe shutdowns");
	rig_free(&r);
}

/* Over seeds each kind of loss happens, and none of those that must not. */
static void kinds(void)
{
	uint32_t dropped = 0, kept = 0, torn = 0, reordered = 0, seen[8];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	p.awupf = 3;
	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 64 && fine; seed++) {
		fine &= put_same(&r, 0, 8, 1, 0) && flush(&r);
		fine &= put_same(&r, 0, 8, 2, 0) && put_same(&r, 2, 4, 3, 0);
		fine &= get_blocks(&r, 0, 8, seen) && seen[0] == 2 && seen[3] == 3 && seen[7] == 2;
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen);
		/* the second write has two units of four blocks; the third is one, although it lies across */
		for (int i = 0; i < 8; i += 2)
			fine &= seen[i] == seen[i + 1];
		fine &= (seen[2] == 3 || seen[2] == seen[0]) && (seen[4] == 3 || seen[4] == seen[6]);
		if ((seen[2] == 3) != (seen[4] == 3))
			fine &= seen[2] == 2 || seen[4] == 2;
		dropped += seen[0] == 1 && seen[2] == 1 && seen[4] == 1 && seen[6] == 1;
		kept += seen[0] == 2 && seen[2] == 3 && seen[4] == 3 && seen[6] == 2;
		torn += (seen[0] == 2) != (seen[6] == 2);
		reordered += seen[0] == 2 && seen[2] == 2 && seen[4] == 3;
	}
	ok(fine, "nothing is torn within a unit");
	diag("of 64 cuts: dropped %u, kept %u, torn %u, reordered %u", dropped, kept, torn, reordered);
	ok(dropped && kept && torn && reordered, "writes are dropped, kept, torn beyond a unit, reordered");
	rig_free(&r);
}

static void protected(const char *how, struct emu_params p, uint32_t flags, bool flushed)
{
	bool fine = true;
	uint32_t seen[8];
	struct rig r;

	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 32 && fine; seed++) {
		fine &= put_same(&r, 0, 8, 5, 0) && put_same(&r, 0, 8, 6, flags) && (!flushed || flush(&r));
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen);
		for (int i = 0; i < 8; i++)
			fine &= seen[i] == 6;
	}
	ok(fine, "%s: what was completed is there, and nothing older", how);
	rig_free(&r);
}

static void cache_off(void)
{
	struct nvme_sqe s = { .opcode = NVME_ADM_SET_FEATURES, .cdw10 = le32_put(NVME_FEAT_VWC) };
	struct emu_params p = params();
	uint32_t seen[8];
	bool fine;
	struct rig r;

	rig_new(&r, &p);
	fine = put_same(&r, 0, 8, 5, 0);
	is(host_admin(&r.h, s, NULL), 0, "the write cache is switched off");
	fine &= put_same(&r, 1, 1, 6, 0);
	cut(&r, 3);
	fine &= get_blocks(&r, 0, 8, seen) && seen[0] == 5 && seen[1] == 6 && seen[7] == 5;
	ok(fine, "what was in it is there, and what came after");
	rig_free(&r);
}

static bool zeroes(struct rig *r, uint32_t slba, uint32_t nlb, uint32_t flags)
{
	struct nvme_sqe s = host_rw(NVME_IO_WRITE_ZEROES, slba, nlb);

	s.cdw12 = le32_put(le32_get(s.cdw12) | flags);
	return !host_cmd(&r->h, &r->q, s, NULL);
}

static bool deallocate(struct rig *r, uint32_t slba, uint32_t nlb)
{
	struct nvme_sqe s = { .opcode = NVME_IO_DSM, .nsid = le32_put(1), .cdw11 = le32_put(NVME_DSM_AD) };
	struct nvme_dsm_range *range = (struct nvme_dsm_range *)(void *)r->d.p;

	*range = (struct nvme_dsm_range){ .slba = le64_put(slba), .nlb = le32_put(nlb) };
	host_prp(&s, &r->d, 0, sizeof(*range), NULL);
	return !host_cmd(&r->h, &r->q, s, NULL);
}

static void zeros(void)
{
	uint32_t kept[2] = { 0 }, seen[8];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 32 && fine; seed++) {
		fine &= put_same(&r, 0, 8, 7, 0) && flush(&r);
		fine &= zeroes(&r, 0, 1, 0) && deallocate(&r, 1, 1) && zeroes(&r, 2, 1, FUA);
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen) && !seen[2] && seen[3] == 7;
		kept[0] += seen[0] == 7;
		kept[1] += seen[1] == 7;
		fine &= (!seen[0] || seen[0] == 7) && (!seen[1] || seen[1] == 7);
	}
	ok(fine, "zeros with FUA are there");
	ok(kept[0] && kept[0] < 32, "others are lost or not");
	ok(kept[1] && kept[1] < 32, "and so is a deallocation");
	rig_free(&r);
}

/* More than can be remembered makes durable what came before, as a full cache does. */
static void bounded(void)
{
	uint32_t lost = 0, seen[8];
	struct emu_params p = params();
	bool fine = true;
	struct rig r;

	p.volatile_bytes = 4096;
	rig_new(&r, &p);
	for (uint64_t seed = 0; seed < 32; seed++) {
		fine &= put_same(&r, 0, 8, 1, FUA) && put_same(&r, 0, 4, 2, 0) && put_same(&r, 4, 4, 3, 0);
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen);
		for (int i = 0; i < 4; i++) {
			fine &= seen[i] == 2 && (seen[i + 4] == 3 || seen[i + 4] == 1);
			lost += seen[i + 4] == 1;
		}
		/* one that alone is too much */
		fine &= put_same(&r, 0, 8, 4, 0);
		cut(&r, seed);
		fine &= get_blocks(&r, 0, 8, seen) && seen[0] == 4 && seen[7] == 4;
	}
	ok(fine, "beyond the limit everything before is durable");
	ok(lost, "and what comes after is not");
	rig_free(&r);
}

int main(void)
{
	struct emu_params p = params();

	registers();
	counted();
	kinds();
	protected("FUA", p, FUA, false);
	protected("flush", p, 0, true);
	p.vwc = false;
	protected("no cache", p, 0, false);
	cache_off();
	zeros();
	bounded();
	return done_testing();
}
