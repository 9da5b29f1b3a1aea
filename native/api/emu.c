/* SPDX-License-Identifier: MIT */
/* ugds.h: opening the embedded controller, and its test interface. */
#include "api/api.h"
#include "emu/emu.h"
#include "pcie/pcie_ops.h"
#include "transport/emu.h"

static_assert(UGDS_EMU_MAX_NS == EMU_MAX_NS, "one limit");
static_assert(UGDS_FAULT_STATUS == EMU_FAULT_STATUS && UGDS_FAULT_POWER_OFF == EMU_FAULT_POWER_OFF,
	      "one order");
static_assert(UGDS_GARBLE_SHORT == EMU_GARBLE_SHORT &&
		      ARRAY_SIZE(((struct ugds_emu_params *)0)->garble) == EMU_PAGES,
	      "one order");
static_assert(sizeof(struct ugds_emu_counters) == sizeof(struct emu_counters), "one layout");

int ugds_open_emu(const struct ugds_emu_params *u, const struct ugds_open_params *p, struct ugds_ctrl **ret,
		  struct ugds_error *err)
{
	struct emu_params e = {
		.path = u->path,
		.readonly = u->flags & UGDS_EMU_READONLY,
		.create = u->flags & UGDS_EMU_CREATE,
		.nodata = u->flags & UGDS_EMU_NODATA,
		.direct = u->flags & UGDS_EMU_DIRECT,
		.vwc = u->flags & UGDS_EMU_VWC,
		.wrr = u->flags & UGDS_EMU_WRR,
		.dbbuf = u->flags & UGDS_EMU_DBBUF,
		.no_coalesce = u->flags & UGDS_EMU_NO_COALESCE,
		.step = u->flags & UGDS_EMU_STEP,
		.awake = u->flags & UGDS_EMU_AWAKE,
		.mdts = (uint8_t)u->mdts,
		.dstrd = (uint8_t)u->dstrd,
		.mpsmin = (uint8_t)u->mpsmin,
		.mpsmax = (uint8_t)u->mpsmax,
		.to = (uint8_t)u->to,
		.aerl = (uint8_t)u->aerl,
		.acl = (uint8_t)u->acl,
		.mqes = (uint16_t)u->mqes,
		.awupf = (uint16_t)u->awupf,
		.queues = (uint16_t)u->queues,
		.vectors = (uint16_t)u->vectors,
		.threads = (uint16_t)u->threads,
		.nr_ns = min_u32(u->nr_ns, EMU_MAX_NS),
		.latency_ns = u->latency_ns,
		.latency_per_kib_ns = u->latency_per_kib_ns,
		.jitter_ns = u->jitter_ns,
		.channels = u->channels,
		.window = u->window,
		.seed = u->seed,
		.volatile_bytes = u->volatile_bytes,
		.crdt = { (uint16_t)u->crdt[0], (uint16_t)u->crdt[1], (uint16_t)u->crdt[2] },
		.cap = u->cap,
		.fake_vs = u->flags & UGDS_EMU_FAKE_VS,
		.vs = u->vs,
		.csts = u->csts,
		.hostile = u->hostile,
		.hostile_seed = u->hostile_seed,
	};
	struct emu_ctrl *emu;
	struct emu_state st;
	struct pcie_dev *dev;
	char text[sizeof(err->text)] = "";
	int rc;

	memcpy(e.serial, u->serial, sizeof(e.serial) - 1);
	memcpy(e.model, u->model, sizeof(e.model) - 1);
	for (uint32_t i = 0; i < EMU_PAGES; i++)
		e.garble[i] = (struct emu_garble){ u->garble[i].how, u->garble[i].arg };
	for (uint32_t i = 0; i < e.nr_ns; i++)
		e.ns[i] = (struct emu_ns_params){
			.nsid = u->ns[i].nsid,
			.lba_bytes = u->ns[i].lba_bytes,
			.metadata_bytes = u->ns[i].metadata_bytes,
			.nbytes = u->ns[i].nbytes,
		};
	rc = emu_transport_new(&e, &dev, &emu, text, sizeof(text));
	if (rc) {
		api_error(err, rc, 0, text);
		return rc;
	}
	emu_get_state(emu, &st);
	rc = api_open("emu", &pcie_ctrl_ops, dev, p, ret, err);
	if (rc)
		return rc;
	(*ret)->emu = emu;
	if (st.inline_reads && (*ret)->c->tr_flags & NVME_TR_STEP)
		(*ret)->c->step_most = NVME_STEP_MOST;
	return 0;
}

int ugds_fault_add(struct ugds_ctrl *c, const struct ugds_fault *f)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	struct emu_fault e = {
		.action = f->action,
		.qid = f->qid,
		.opcode = f->opcode,
		.nsid = f->nsid,
		.slba = f->slba,
		.nlb = f->nlb,
		.skip = f->skip,
		.count = f->count,
		.status = (uint16_t)f->status,
		.delay_ns = f->delay_ns,
	};

	return c->emu ? emu_fault_add(c->emu, &e) : -EOPNOTSUPP;
}

int64_t ugds_fault_clear(struct ugds_ctrl *c, int id)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->emu ? emu_fault_clear(c->emu, id) : -EOPNOTSUPP;
}

int64_t ugds_fault_hits(struct ugds_ctrl *c, int id)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->emu ? emu_fault_hits(c->emu, id) : -EOPNOTSUPP;
}

int ugds_emu_event(struct ugds_ctrl *c, uint32_t dw0)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->emu ? emu_event(c->emu, dw0) : -EOPNOTSUPP;
}

int ugds_emu_resize(struct ugds_ctrl *c, uint32_t nsid, uint64_t nbytes)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->emu ? emu_ns_resize(c->emu, nsid, nbytes) : -EOPNOTSUPP;
}

int ugds_emu_attach(struct ugds_ctrl *c, uint32_t nsid, uint64_t nbytes, int on)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	return c->emu ? emu_ns_attach(c->emu, nsid, nbytes, on) : -EOPNOTSUPP;
}

static int nothing(struct nvme_ctrl *c, void *unused)
{
	(void)c;
	(void)unused;
	return 0;
}

int ugds_emu_power_cut(struct ugds_ctrl *c, const uint64_t *seed, int stays_off)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;

	int rc = c->emu ? emu_power_cut(c->emu, seed, stays_off) : -EOPNOTSUPP;

	if (rc)
		return rc;
	/* Housekeeping looks at the registers in the pass that takes the request to look, or in the next. */
	nvme_hk_at(c->c, now_ns());
	for (int i = 0; i < 2; i++)
		nvme_hk_call(c->c, nothing, NULL);
	return 0;
}

int ugds_emu_as_hardware(struct ugds_ctrl *c)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	if (!c->emu)
		return -EOPNOTSUPP;
	c->c->tr_flags = (c->c->tr_flags & ~NVME_TR_STAGED) | NVME_TR_DIRECT;
	return 0;
}

int ugds_emu_counters(struct ugds_ctrl *c, struct ugds_emu_counters *ret)
{
	api_visitor *in = api_enter(c);

	if (!in)
		return -ESHUTDOWN;
	if (!c->emu)
		return -EOPNOTSUPP;
	emu_get_counters(c->emu, (struct emu_counters *)ret);
	return 0;
}
