/* SPDX-License-Identifier: MIT */
/*
 * What may be there after a power cut, written down the plain way: a list of pieces in the order of writing. Blocks
 * are told apart by one number each; every piece writes a number of its own.
 */
#ifndef TESTS_LOST_POWER_H
#define TESTS_LOST_POWER_H

#include <stdbool.h>
#include <stdint.h>

#define LP_BLOCKS 16
#define LP_PIECES 256

struct lp_piece {
	uint32_t write;
	uint32_t mask; /* blocks that it wrote, but for those that were made durable over it */
	uint32_t value;
};

struct lost_power {
	uint32_t base[LP_BLOCKS]; /* durable */
	struct lp_piece piece[LP_PIECES]; /* oldest first */
	uint32_t nr;
	uint32_t writes;
	uint32_t values;
};

/* Returns the write's name; ret_value[i] is what block slba + i gets. */
static inline uint32_t lp_write(struct lost_power *m, uint32_t slba, uint32_t nlb, uint32_t unit,
				uint32_t *ret_value)
{
	uint32_t name = ++m->writes, last = UINT32_MAX;

	for (uint32_t i = 0; i < nlb; i++) {
		uint32_t part = nlb <= unit ? 0 : (slba + i) / unit;

		if (part != last)
			m->piece[m->nr++] = (struct lp_piece){ .write = name, .value = ++m->values };
		last = part;
		m->piece[m->nr - 1].mask |= 1u << (slba + i);
		ret_value[i] = m->values;
	}
	return name;
}

static inline void lp_settle(struct lost_power *m, uint32_t mask, uint32_t value)
{
	for (uint32_t b = 0; b < LP_BLOCKS; b++)
		if (mask >> b & 1)
			m->base[b] = value;
}

/* That write is durable, and so is nothing else. */
static inline void lp_harden(struct lost_power *m, uint32_t name)
{
	for (uint32_t i = 0; i < m->nr; i++) {
		uint32_t mask = m->piece[i].mask;

		if (m->piece[i].write != name)
			continue;
		lp_settle(m, mask, m->piece[i].value);
		for (uint32_t k = 0; k <= i; k++)
			m->piece[k].mask &= ~mask;
	}
}

static inline void lp_flush(struct lost_power *m)
{
	for (uint32_t i = 0; i < m->nr; i++)
		lp_settle(m, m->piece[i].mask, m->piece[i].value);
	m->nr = 0;
}

/*
 * Can some of the pieces, in some order, have left this? Take off the pieces that show wherever nothing lies over
 * them, from the top down. It does no harm to take one too many, and what is beneath all of them is durable.
 */
static inline bool lp_permits(const struct lost_power *m, const uint32_t *seen, uint32_t nr_blocks)
{
	uint32_t open = (1u << nr_blocks) - 1, before;

	do {
		before = open;
		for (uint32_t i = 0; i < m->nr; i++) {
			uint32_t mask = m->piece[i].mask & open;
			bool shows = true;

			for (uint32_t b = 0; b < nr_blocks; b++)
				shows &= !(mask >> b & 1) || seen[b] == m->piece[i].value;
			if (shows)
				open &= ~mask;
		}
	} while (open != before);
	for (uint32_t b = 0; b < nr_blocks; b++)
		if (open >> b & 1 && seen[b] != m->base[b])
			return false;
	return true;
}

#endif
