/* SPDX-License-Identifier: MIT */
#include "emu/irq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu/internal.h"

int emu_irq_init(struct emu_irq *q, uint32_t nr)
{
	q->vec = aligned_alloc(CACHELINE, nr * sizeof(*q->vec));
	if (!q->vec)
		return -ENOMEM;
	memset(q->vec, 0, nr * sizeof(*q->vec));
	q->nr = nr;
	emu_coalesce_reset(q);
	return 0;
}

void emu_irq_done(struct emu_irq *q)
{
	for (uint32_t i = 0; i < q->nr; i++) {
		while (q->vec[i].first) {
			struct emu_binding *b = q->vec[i].first;

			q->vec[i].first = b->next;
			free(b);
		}
	}
	free(q->vec);
	q->vec = NULL;
	q->nr = 0;
}

static bool wants(struct emu_binding *b)
{
	/* looked at first: the word of an owner who is awake stays in its cache */
	return !b->word || (atomic_load_explicit(b->word, memory_order_relaxed) &&
			    atomic_exchange_explicit(b->word, 0, memory_order_acq_rel));
}

void emu_irq_raise(struct emu_irq *q, uint32_t vector, uint32_t nr)
{
	struct emu_vector *v = &q->vec[vector];
	const uint64_t one = 1;
	uint32_t signalled = 0;

	if (!atomic_load_explicit(&v->nr, memory_order_acquire))
		return;
	if (unlikely(vector < 32 && atomic_load_explicit(&q->mask, memory_order_relaxed) >> vector & 1)) {
		atomic_fetch_or_explicit(&q->pending, 1u << vector, memory_order_seq_cst);
		/* unmasked meanwhile: either this or the unmasking thread takes the bit */
		if (atomic_load_explicit(&q->mask, memory_order_seq_cst) >> vector & 1 ||
		    !(atomic_fetch_and_explicit(&q->pending, ~(1u << vector), memory_order_seq_cst) >>
			      vector &
		      1))
			return;
	}
	/* The CQE store comes before the look at the word: the owner sets the word, then looks at the CQE. */
	emu_full_fence();
	emu_lock(&v->lock);
	for (struct emu_binding *b = v->first; b; b = b->next) {
		if (!wants(b))
			continue;
		/* a full counter is as good as a signal, and a closed fd is the owner's fault */
		if (write(b->fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
			signalled++;
	}
	emu_unlock(&v->lock);
	emu_stat_add(signalled ? &v->signals : &v->masked, signalled ? signalled : nr);
}

void emu_irq_mask(struct emu_irq *q, uint32_t bits)
{
	atomic_fetch_or_explicit(&q->mask, bits, memory_order_seq_cst);
}

void emu_irq_unmask(struct emu_irq *q, uint32_t bits)
{
	uint32_t raise;

	atomic_fetch_and_explicit(&q->mask, ~bits, memory_order_seq_cst);
	raise = atomic_fetch_and_explicit(&q->pending, ~bits, memory_order_seq_cst) & bits;
	for (uint32_t i = 0; i < 32 && i < q->nr; i++)
		if (raise >> i & 1)
			emu_irq_raise(q, i, 1);
}

int emu_irq_bind(struct emu_ctrl *e, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding)
{
	struct emu_vector *v;
	struct emu_binding *b;

	if (vector >= e->irq.nr)
		return -EINVAL;
	b = malloc(sizeof(*b));
	if (!b)
		return -ENOMEM;
	v = &e->irq.vec[vector];
	emu_lock(&v->lock);
	*b = (struct emu_binding){ .fd = fd, .word = word, .serial = ++v->serial, .next = v->first };
	v->first = b;
	*ret_binding = (uint64_t)vector << 32 | b->serial;
	atomic_fetch_add_explicit(&v->nr, 1, memory_order_release);
	emu_unlock(&v->lock);
	return 0;
}

int emu_irq_unbind(struct emu_ctrl *e, uint64_t binding)
{
	uint32_t vector = (uint32_t)(binding >> 32);
	struct emu_binding **p, *b;
	struct emu_vector *v;

	if (vector >= e->irq.nr)
		return -EINVAL;
	v = &e->irq.vec[vector];
	emu_lock(&v->lock);
	for (p = &v->first; *p && (*p)->serial != (uint32_t)binding; p = &(*p)->next)
		;
	b = *p;
	if (b) {
		*p = b->next;
		atomic_fetch_sub_explicit(&v->nr, 1, memory_order_release);
	}
	emu_unlock(&v->lock);
	free(b);
	return b ? 0 : -ENOENT;
}
