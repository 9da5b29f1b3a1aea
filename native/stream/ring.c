/* SPDX-License-Identifier: MIT */
/* Words and staging rings: pinned memory of a GPU's runtime, registered with the controller as host memory is. */
#include "stream/stream.h"

#include <stdlib.h>

#define WORDS 3

struct stream_ring {
	struct stream_ring *next;
	const struct gpu_rt *rt;
	struct gpu_place place;
	uint64_t nbytes; /* 0: words only */
	struct gpu_word words[WORDS];
	void *stage;
	struct mem_map *map; /* of @stage; its handle below */
	uint64_t handle;
};

static uint64_t ring_bytes(const struct stream *s) { return s->staged ? s->slots * s->chunk : 0; }

static bool fits(const struct stream_ring *g, const struct stream *s)
{
	return g->rt == s->rt && g->place.device == s->place.device && g->place.ctx == s->place.ctx &&
	       g->nbytes == ring_bytes(s);
}

static struct stream_ring *take_spare(struct stream *s)
{
	struct stream_ring *g;

	pthread_mutex_lock(&s->x->lock);
	for (struct stream_ring **p = &s->x->spare; (g = *p); p = &g->next)
		if (fits(g, s)) {
			*p = g->next;
			break;
		}
	pthread_mutex_unlock(&s->x->lock);
	return g;
}

static struct stream_ring *ring_new(struct stream *s, int *ret_code, int *ret_err)
{
	struct stream_ring *g = calloc(1, sizeof(*g));
	uint64_t dev;

	*ret_code = 0;
	*ret_err = -ENOMEM;
	if (!g)
		return NULL;
	g->rt = s->rt;
	g->place = s->place;
	g->nbytes = ring_bytes(s);
	*ret_code = s->rt->words_alloc(WORDS, g->words);
	if (*ret_code)
		goto free_ring;
	if (!g->nbytes)
		return g;
	*ret_code = s->rt->host_alloc(g->nbytes, &g->stage, &dev);
	if (*ret_code)
		goto free_words;
	memset(g->stage, 0, g->nbytes);
	*ret_err = mem_register(&s->x->c->mem, g->stage, g->nbytes, DMA_READ | DMA_WRITE | DMA_ONWARD,
				&g->handle);
	if (*ret_err)
		goto free_stage;
	g->map = mem_slot(&s->x->c->mem, (uint32_t)g->handle);
	return g;
free_stage:
	s->rt->host_free(g->stage);
free_words:
	s->rt->words_free(WORDS, g->words);
free_ring:
	free(g);
	return NULL;
}

int stream_ring_get(struct stream *s, struct nvme_err *err)
{
	struct stream_ring *g = take_spare(s);
	int code, rc;

	if (!g)
		g = ring_new(s, &code, &rc);
	if (!g)
		return nvme_err_set(err, code ? gpu_errno(s->rt, code) : rc, 0,
				    "%s gave no pinned memory for the stream's words and its staging ring of "
				    "%llu bytes (%s)",
				    s->rt->name, (unsigned long long)ring_bytes(s),
				    code ? s->rt->error_name(code) : "it cannot be registered");
	for (uint32_t i = 0; i < WORDS; i++)
		stream_word_set(&g->words[i], 0);
	s->ring = g;
	s->go = g->words[0];
	s->done = g->words[1];
	s->passed = g->words[2];
	s->stage = g->stage;
	s->stage_map = g->handle;
	return 0;
}

bool stream_ring_busy(const struct stream *s) { return s->ring->map && mem_inflight(s->ring->map); }

void stream_ring_put(struct stream_exec *x, struct stream_ring *g)
{
	pthread_mutex_lock(&x->lock);
	g->next = x->spare;
	x->spare = g;
	pthread_mutex_unlock(&x->lock);
}

uint32_t stream_rings_spare(const struct stream_exec *x)
{
	uint32_t n = 0;

	for (const struct stream_ring *g = x->spare; g; g = g->next)
		n += g->map != NULL;
	return n;
}

static void ring_free(struct stream_exec *x, struct stream_ring *g)
{
	struct gpu_before before;

	/* with its context gone, its memory is too; what the device may touch stays: a leak, but not a corruption */
	if ((!g->map || !mem_unregister(&x->c->mem, g->handle)) && !g->rt->enter(&g->place, &before)) {
		g->rt->words_free(WORDS, g->words);
		if (g->stage)
			g->rt->host_free(g->stage);
		g->rt->leave(&g->place, &before);
	}
	free(g);
}

void stream_rings_free(struct stream_exec *x)
{
	struct stream_ring *g;

	pthread_mutex_lock(&x->lock);
	g = x->spare;
	x->spare = NULL;
	pthread_mutex_unlock(&x->lock);
	while (g) {
		struct stream_ring *next = g->next;

		ring_free(x, g);
		g = next;
	}
}
