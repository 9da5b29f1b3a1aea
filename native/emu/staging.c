/* SPDX-License-Identifier: MIT */
/* The ring of staging memory that each place has. */
#include <errno.h>
#include <stdlib.h>

#include "emu/far.h"

#define PIECE_ALIGN 512u
#define ATOMIC_MOST (64ull << 20)

void emu_set_dma(struct emu_ctrl *e, const struct emu_dma_ops *ops, void *ctx)
{
	e->dma = ops;
	e->dma_ctx = ctx;
}

/* What a power cut must not tear apart is one piece, as far as a command is that long, and there is some sense in it. */
static uint64_t atomic_bytes(const struct emu_ctrl *e)
{
	uint64_t most = e->p.mdts ? 1ull << (e->p.mdts + 12 + e->p.mpsmin) : ATOMIC_MOST;

	return e->power ? min_u64((e->p.awupf + 1ull) << e->ns[0].shift, min_u64(most, ATOMIC_MOST)) : 0;
}

static int stage_new(struct emu_ctrl *e, void *place, struct emu_stage **ret)
{
	struct emu_stage *r = calloc(1, sizeof(*r));
	void *mem;
	int rc;

	if (!r)
		return -ENOMEM;
	r->place = place;
	r->nbytes = (uint32_t)max_u64(EMU_STAGE_BYTES, 2 * atomic_bytes(e));
	rc = e->dma->staging(place, r->nbytes, &mem);
	if (rc) {
		free(r);
		return rc;
	}
	r->mem = mem;
	pthread_mutex_init(&r->lock, NULL);
	r->next = atomic_load_explicit(&e->stages, memory_order_relaxed);
	/* release: whoever finds it finds it whole */
	atomic_store_explicit(&e->stages, r, memory_order_release);
	*ret = r;
	return 0;
}

int emu_stage_for(struct emu_ctrl *e, void *place, struct emu_stage **ret)
{
	struct emu_stage *r;
	int rc = 0;

	pthread_mutex_lock(&e->far_lock);
	for (r = atomic_load_explicit(&e->stages, memory_order_relaxed); r && r->place != place; r = r->next)
		;
	if (r)
		*ret = r;
	else
		rc = stage_new(e, place, ret);
	pthread_mutex_unlock(&e->far_lock);
	return rc;
}

void emu_stages_done(struct emu_ctrl *e)
{
	struct emu_stage *r = atomic_load(&e->stages), *next;

	if (e->dma)
		e->dma->close(e->dma_ctx);
	for (; r; r = next) {
		next = r->next;
		pthread_mutex_destroy(&r->lock);
		free(r);
	}
}

/* Where the next piece begins: one is never in two parts. */
static uint64_t skip(const struct emu_stage *r, uint32_t size)
{
	uint64_t at = r->head % r->nbytes;

	return at + size > r->nbytes ? r->nbytes - at : 0;
}

bool emu_stage_fits(const struct emu_stage *r, uint32_t nbytes)
{
	uint32_t size = (uint32_t)align_up(nbytes, PIECE_ALIGN);

	return r->nr < EMU_STAGE_CHUNKS && r->head + skip(r, size) + size - r->tail <= r->nbytes;
}

struct emu_chunk *emu_chunk_take(struct emu_stage *r, struct emu_job *job, uint32_t nbytes)
{
	uint32_t size = (uint32_t)align_up(nbytes, PIECE_ALIGN);
	uint64_t left_over = skip(r, size);
	struct emu_chunk *c = &r->chunk[(r->first + r->nr) % EMU_STAGE_CHUNKS];

	r->nr++;
	r->head += left_over;
	*c = (struct emu_chunk){ .job = job,
				 .near = r->mem + r->head % r->nbytes,
				 .nbytes = nbytes,
				 .room = (uint32_t)left_over + size,
				 .taken = true };
	r->head += size;
	return c;
}

void emu_chunk_give(struct emu_stage *r, struct emu_chunk *c)
{
	c->taken = false;
	while (r->nr && !r->chunk[r->first].taken) {
		r->tail += r->chunk[r->first].room;
		r->first = (r->first + 1) % EMU_STAGE_CHUNKS;
		r->nr--;
	}
	/* an empty ring begins anew, where the last one's bytes are in the processor's cache */
	if (!r->nr)
		r->head = r->tail = 0;
}
