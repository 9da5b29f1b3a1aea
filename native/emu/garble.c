/* SPDX-License-Identifier: MIT */
/* What a device says about itself, made wrong: as the address asks, or at random in hostile mode. */
#include <string.h>

#include "emu/internal.h"

#define FLIPS 4
#define DELAY_MOST_NS (2 * NSEC_PER_MSEC)
#define RARE 64 /* of so many faults one stops the controller for good */

static void fill_random(uint8_t *p, uint32_t n, uint64_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)(emu_rand(&seed) >> 24);
}

static void apply(const struct emu_garble *g, uint8_t *p, uint32_t n)
{
	switch (g->how) {
	case EMU_GARBLE_ZEROS:
		memset(p, 0, n);
		break;
	case EMU_GARBLE_ONES:
		memset(p, 0xff, n);
		break;
	case EMU_GARBLE_RANDOM:
		fill_random(p, n, g->arg);
		break;
	case EMU_GARBLE_SHORT: /* the host's own pages were cleared before */
		if (g->arg < n)
			memset(p + g->arg, 0, n - g->arg);
		break;
	default:
		break;
	}
}

/* A number of its own for every call, the same in every run with one thread. */
static uint64_t draw(struct emu_ctrl *e)
{
	uint64_t state =
		atomic_fetch_add_explicit(&e->hostile_rng, 0x9e3779b97f4a7c15ull, memory_order_relaxed);

	return emu_rand(&state);
}

static bool strikes(struct emu_ctrl *e) { return e->p.hostile && !(draw(e) % e->p.hostile); }

static void flip(struct emu_ctrl *e, uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < FLIPS; i++) {
		uint64_t r = draw(e);

		p[(r >> 8) % n] ^= (uint8_t)(1u << (r & 7));
	}
}

void emu_garble(struct emu_ctrl *e, enum emu_page page, void *buf, uint32_t nbytes)
{
	struct emu_garble random = { .arg = 0 };

	if (unlikely(e->p.garble[page].how))
		apply(&e->p.garble[page], buf, nbytes);
	if (likely(!strikes(e)) || !nbytes)
		return;
	random.how = (uint32_t)(draw(e) % 5); /* the one that is none of them: a few bits */
	random.arg = random.how == EMU_GARBLE_SHORT ? draw(e) % nbytes : draw(e);
	if (random.how == EMU_GARBLE_NOT)
		flip(e, buf, nbytes);
	else
		apply(&random, buf, nbytes);
}

uint64_t emu_hostile_reg(struct emu_ctrl *e, uint32_t off, uint64_t val)
{
	uint64_t r;

	(void)off;
	if (likely(!strikes(e)))
		return val;
	r = draw(e);
	switch (r & 7) {
	case 0:
		return UINT64_MAX;
	case 1:
		return 0;
	case 2:
		return draw(e);
	default:
		return val ^ (1ull << (r >> 8) % 64);
	}
}

/* Lies that a host can see through. What it cannot, success without the data or for another command that is outstanding,
 * would only prove that the device lied. */
static const uint8_t tricks[] = {
	EMU_FAULT_STATUS,
	EMU_FAULT_STATUS,
	EMU_FAULT_DELAY,
	EMU_FAULT_DELAY,
	EMU_FAULT_LOSE_INTERRUPT,
	EMU_FAULT_SPURIOUS_INTERRUPT,
	EMU_FAULT_EARLY_INTERRUPT,
	EMU_FAULT_DUP_CQE,
	EMU_FAULT_BAD_CID,
	EMU_FAULT_BAD_SQID,
	EMU_FAULT_FREE_CID,
	EMU_FAULT_BAD_SQHD,
	EMU_FAULT_DROP,
	EMU_FAULT_STUCK_PHASE,
};

bool emu_hostile_fault(struct emu_ctrl *e, const struct emu_cmd *c, struct emu_fault *ret)
{
	uint64_t r;

	(void)c;
	if (likely(!strikes(e)))
		return false;
	r = draw(e);
	*ret = (struct emu_fault){
		.action = tricks[r % ARRAY_SIZE(tricks)],
		.status = (uint16_t)(r >> 16 & 0x7fff),
		.delay_ns = (r >> 32) % (uint64_t)DELAY_MOST_NS,
	};
	/* no status at all is success */
	if (!(ret->status & 0x7ff))
		ret->status |= NVME_SC_INTERNAL;
	if (!(draw(e) % RARE))
		ret->action = r >> 63 ? EMU_FAULT_CFS : EMU_FAULT_ALL_ONES;
	return true;
}
