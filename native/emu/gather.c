/* SPDX-License-Identifier: MIT */
/* Beginning copies, as few as will do: each costs calls of a runtime, and so does being told of its end. */
#include <stdlib.h>

#include "emu/far.h"

struct emu_gather *emu_gather_new(uint32_t max)
{
	struct emu_gather *g = calloc(1, sizeof(*g) + max * sizeof(g->copy[0]));

	if (g)
		g->max = max;
	return g;
}

static void add_copy(struct emu_gather *g, const struct iovec *far, uint8_t *near)
{
	struct emu_copy *last = g->n ? &g->copy[g->n - 1] : NULL;
	uint64_t addr = (uintptr_t)far->iov_base;

	if (last && last->far + last->nbytes == addr && (uint8_t *)last->near + last->nbytes == near)
		last->nbytes += far->iov_len;
	else
		g->copy[g->n++] = (struct emu_copy){ addr, near, far->iov_len };
}

/* Between @c and what a->iov says of far memory. */
void emu_gather_add(struct emu_actor *a, struct emu_chunk *c, bool out)
{
	struct emu_gather *g = a->gather;
	struct emu_stage *r = c->job->map->stage;
	uint8_t *near = c->near;

	if (g->first && (g->stage != r || g->out != out || g->n + a->nr_iov > g->max))
		emu_gather_begin(a);
	g->stage = r;
	g->out = out;
	for (uint32_t i = 0; i < a->nr_iov; i++) {
		add_copy(g, &a->iov[i], near);
		near += a->iov[i].iov_len;
	}
	c->last_copy = g->n - 1;
	c->next = NULL;
	if (g->first)
		g->last->next = c;
	else
		g->first = c;
	g->last = c;
	g->nbytes += c->nbytes;
	if (g->nbytes >= EMU_FAR_GATHER_BYTES)
		emu_gather_begin(a);
}

void emu_gather_begin(struct emu_actor *a)
{
	struct emu_gather *g = a->gather;
	struct emu_stage *r;
	uint64_t ticket = 0;
	uint32_t why = 0, n;

	if (!g || !g->first)
		return;
	r = g->stage;
	n = a->e->dma->copy(r->place, g->out, g->copy, g->n, &ticket, &why);
	for (struct emu_chunk *c = g->first; c; c = c->next) {
		c->begun = n > 0;
		c->ticket = ticket;
		c->failed = c->last_copy >= n;
		c->why = c->failed ? why : 0;
	}
	pthread_mutex_lock(&r->lock);
	if (r->under_way)
		r->under_way_last->next = g->first;
	else
		r->under_way = g->first;
	r->under_way_last = g->last;
	pthread_mutex_unlock(&r->lock);
	g->first = g->last = NULL;
	g->n = 0;
	g->nbytes = 0;
	atomic_store_explicit(&a->e->far_naps, 0, memory_order_relaxed);
}
