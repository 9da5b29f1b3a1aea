/* SPDX-License-Identifier: MIT */
#include "nvme/sched.h"

#include "nvme/lane.h"
#include "nvme/spin.h"
#include "nvme/turns.h"

#define HURRY_NS (50 * NSEC_PER_MSEC) /* so long after it was said somebody still is in one */
#define BULK_LEAST 8 /* commands of bulk work, beside small work of its own class, */
#define BULK_BEHIND 2 /* and beside the latency class */
#define BEHIND_BULK 2 /* background commands at the device beside bulk work */

enum { BULK, BACKGROUND };

static inline uint32_t heavy_index(const struct nvme_op *op)
{
	return op->flow == NVME_FLOW_BULK ? BULK : BACKGROUND;
}

static inline uint32_t load(const _Atomic uint32_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

void nvme_sched_init(struct nvme_ctrl *c)
{
	memset(&c->sched, 0, sizeof(c->sched));
	nvme_level_init(&c->sched.level);
}

static bool is_recent(const _Atomic int64_t *p, int64_t now)
{
	int64_t when = atomic_load_explicit(p, memory_order_relaxed);

	return when && now - when < HURRY_NS;
}

static void note(_Atomic int64_t *p, int64_t now)
{
	if (now - atomic_load_explicit(p, memory_order_relaxed) > NSEC_PER_MSEC)
		atomic_store_explicit(p, now, memory_order_relaxed);
}

void nvme_sched_hurry(struct nvme_lane *l, int64_t now)
{
	l->sched.hurry = now;
	note(&l->ctrl->sched.hurry, now);
}

void nvme_sched_urgent(struct nvme_lane *l, int64_t now)
{
	l->sched.urgent = now;
	note(&l->ctrl->sched.urgent, now);
	nvme_sched_hurry(l, now);
}

/* Commands that lane may have at the device while somebody is in a hurry. */
static uint32_t share(const struct nvme_sched *s, uint32_t which, int64_t now)
{
	uint32_t least;

	uint32_t lanes = load(&s->lanes), n = nvme_level_get(&s->level) / (lanes ? lanes : 1);

	if (which == BULK) {
		least = is_recent(&s->urgent, now) ? BULK_BEHIND : BULK_LEAST;
		return n > least ? n : least;
	}
	if (load(&s->bulk_lanes))
		n = min_u32(n / 8, BEHIND_BULK);
	return n ? n : 1;
}

static uint32_t by_bytes(const struct nvme_lane *l, uint32_t which, uint32_t chunk)
{
	const struct nvme_open_params *p = &l->ctrl->p;
	uint64_t most = which == BULK ? p->bulk_bytes : p->background_bytes;

	if (which == BACKGROUND && load(&l->ctrl->sched.bulk_lanes))
		most = min_u64(most, (uint64_t)BEHIND_BULK * chunk);
	return most > l->sched.out_bytes[which]
		       ? (uint32_t)min_u64((most - l->sched.out_bytes[which] + chunk - 1) / chunk, UINT32_MAX)
		       : 0;
}

/* Small operations find list pages, too. */
static uint32_t by_lists(const struct nvme_lane *l, enum nvme_flow flow)
{
	const struct nvme_qpair *qp = l->qp[nvme_turns_first(l, flow)->qp];
	uint32_t most = qp->conf.list_pages - qp->conf.list_pages / 4;
	uint32_t out = l->sched.out[BULK] + l->sched.out[BACKGROUND];

	return most > out ? most - out : 0;
}

/* Bytes of a command: what nobody waits behind need not come back piece by piece. */
static uint32_t chunk_of(const struct nvme_lane *l, uint32_t which, bool hurry)
{
	return hurry || which == BACKGROUND ? l->ctrl->p.chunk : l->ctrl->max_transfer;
}

static uint32_t pump(struct nvme_lane *l, enum nvme_flow flow, int64_t now, bool hold)
{
	const uint32_t which = flow == NVME_FLOW_BULK ? BULK : BACKGROUND;
	struct nvme_sched *s = &l->ctrl->sched;
	const bool hurry = is_recent(&s->hurry, now);
	const uint32_t chunk = chunk_of(l, which, hurry);
	uint32_t most = by_bytes(l, which, chunk);

	if (!nvme_turns_first(l, flow))
		return 0;
	if (hurry) {
		uint32_t mine = share(s, which, now), out = l->sched.out[which];
		uint32_t n = mine > out ? mine - out : 0;

		if (n < most)
			nvme_level_met(&s->level);
		most = min_u32(most, n);
	}
	most = min_u32(most, by_lists(l, flow));
	return most ? nvme_lane_pump_turns(l, flow, most, chunk, now, hold) : 0;
}

uint32_t nvme_sched_pump(struct nvme_lane *l, int64_t now, bool hold)
{
	return pump(l, NVME_FLOW_BULK, now, hold) + pump(l, NVME_FLOW_BACKGROUND, now, hold);
}

uint32_t nvme_sched_floor(struct nvme_lane *l, int64_t now, bool hold)
{
	const bool hurry = is_recent(&l->ctrl->sched.hurry, now);
	uint32_t total = 0;

	if (nvme_turns_first(l, NVME_FLOW_BULK) && !l->sched.out[BULK])
		total += nvme_lane_pump_turns(l, NVME_FLOW_BULK, 1, chunk_of(l, BULK, hurry), now, hold);
	if (nvme_turns_first(l, NVME_FLOW_BACKGROUND) && !l->sched.out[BACKGROUND])
		total += nvme_lane_pump_turns(l, NVME_FLOW_BACKGROUND, 1, chunk_of(l, BACKGROUND, hurry), now,
					      hold);
	return total;
}

void nvme_sched_out(struct nvme_lane *l, const struct nvme_op *op, uint32_t nbytes)
{
	uint32_t which = heavy_index(op);

	l->sched.out[which]++;
	l->sched.out_bytes[which] += nbytes;
}

void nvme_sched_back(struct nvme_lane *l, const struct nvme_op *op, uint32_t nbytes)
{
	uint32_t which = heavy_index(op);

	l->sched.out[which]--;
	l->sched.out_bytes[which] -= nbytes;
}

static void count(_Atomic uint32_t *lanes, bool *counted, bool some)
{
	if (*counted == some)
		return;
	*counted = some;
	atomic_fetch_add_explicit(lanes, some ? 1 : (uint32_t)-1, memory_order_relaxed);
}

void nvme_sched_count(struct nvme_lane *l)
{
	struct nvme_sched *s = &l->ctrl->sched;
	bool bulk = nvme_turns_first(l, NVME_FLOW_BULK) || l->sched.out[BULK];
	bool some = bulk || nvme_turns_first(l, NVME_FLOW_BACKGROUND) || l->sched.out[BACKGROUND];

	if (some && !l->sched.counted[0] && !load(&s->lanes))
		atomic_fetch_add_explicit(&s->epoch, 1, memory_order_relaxed);
	count(&s->lanes, &l->sched.counted[0], some);
	count(&s->bulk_lanes, &l->sched.counted[1], bulk);
}

void nvme_sched_forget(struct nvme_lane *l)
{
	memset(l->sched.out, 0, sizeof(l->sched.out));
	memset(l->sched.out_bytes, 0, sizeof(l->sched.out_bytes));
	nvme_sched_count(l);
}

void nvme_sched_feel(struct nvme_ctrl *c, struct nvme_chan_sched *cs, uint32_t size_class, bool looked,
		     int64_t before, int64_t took)
{
	struct nvme_sched *s = &c->sched;

	if (cs->epoch != load(&s->epoch)) {
		cs->epoch = load(&s->epoch);
		memset(&cs->usual, 0, sizeof(cs->usual));
	}
	nvme_level_feel(&s->level, &cs->usual, size_class, looked, before, took);
}
