/* SPDX-License-Identifier: MIT */
/* Registering and releasing memory. Slow path; the table's lock is held while memory is released. */
#include "mem/registration.h"

#include <stdlib.h>

#define NO_SLOT UINT32_MAX

int mem_table_init(struct mem_table *t, const struct mem_ops *ops, void *ctx, uint8_t shift)
{
	t->ops = ops;
	t->ctx = ctx;
	t->shift = shift;
	t->free_head = NO_SLOT;
	return -pthread_mutex_init(&t->lock, NULL);
}

static int add_chunk(struct mem_table *t)
{
	uint32_t nr = atomic_load_explicit(&t->nr_slots, memory_order_relaxed);
	struct mem_map *chunk;

	if (nr / MEM_CHUNK >= MEM_CHUNKS)
		return -ENOSPC;
	chunk = aligned_alloc(CACHELINE, sizeof(*chunk) * MEM_CHUNK);
	if (!chunk)
		return -ENOMEM;
	memset(chunk, 0, sizeof(*chunk) * MEM_CHUNK);
	for (uint32_t i = 0; i < MEM_CHUNK; i++) {
		struct mem_map *m = &chunk[MEM_CHUNK - 1 - i];

		m->slot = nr + MEM_CHUNK - 1 - i;
		atomic_init(&m->ref, MEM_REF_DEAD);
		m->next_free = t->free_head;
		t->free_head = m->slot;
	}
	atomic_store_explicit(&t->chunk[nr / MEM_CHUNK], chunk, memory_order_relaxed);
	/* release: a reader that sees the count sees the chunk */
	atomic_store_explicit(&t->nr_slots, nr + MEM_CHUNK, memory_order_release);
	return 0;
}

/* One table entry per unit of 1 << shift bytes; extents may break only between units. */
static int fill_pages(struct mem_map *m, const struct dma_mapping *dma, uint8_t shift)
{
	uint64_t unit = 1ull << shift;
	uint64_t head = dma->extents[0].iova & (unit - 1);
	uint64_t first = head + dma->first_off;
	size_t nr = (size_t)((first + m->nbytes + unit - 1) >> shift);
	size_t n = 0;

	if (nr > 1) {
		m->iova = malloc(nr * sizeof(*m->iova));
		if (!m->iova)
			return -ENOMEM;
	} else {
		m->iova = &m->iova1; /* small buffers, just-in-time pins: no allocation */
	}
	for (size_t i = 0; i < dma->nr && n < nr; i++) {
		uint64_t start = dma->extents[i].iova, end = start + dma->extents[i].nbytes;

		if ((i && (start & (unit - 1))) || (i + 1 < dma->nr && (end & (unit - 1))))
			goto broken;
		for (uint64_t p = start & ~(unit - 1); p < end && n < nr; p += unit)
			m->iova[n++] = p;
	}
	if (n != nr)
		goto broken;
	m->first_off = first;
	m->shift = shift;
	return 0;
broken:
	if (m->iova != &m->iova1)
		free(m->iova);
	m->iova = NULL;
	return -ENOTSUP;
}

/* An entry that nobody else sees. The lock is not held while a transport maps: that may take long. */
static int take_slot(struct mem_table *t, struct mem_map **ret)
{
	int err = 0;

	pthread_mutex_lock(&t->lock);
	if (t->free_head == NO_SLOT)
		err = add_chunk(t);
	if (!err) {
		*ret = mem_slot(t, t->free_head);
		t->free_head = (*ret)->next_free;
	}
	pthread_mutex_unlock(&t->lock);
	return err;
}

static void give_slot(struct mem_table *t, struct mem_map *m)
{
	pthread_mutex_lock(&t->lock);
	m->next_free = t->free_head;
	t->free_head = m->slot;
	pthread_mutex_unlock(&t->lock);
}

/* The entry is filled: from now on its handle is good. */
static uint64_t go_live(struct mem_map *m)
{
	atomic_store_explicit(&m->gen, atomic_load_explicit(&m->gen, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	/* and, not store: a stale handle's look-up may hold a count just now. release: the entry is filled */
	atomic_fetch_and_explicit(&m->ref, ~(MEM_REF_DEAD | MEM_REF_REVOKED), memory_order_release);
	return mem_handle(m);
}

static int enter(struct mem_table *t, struct mem_map *m, const struct dma_mapping *dma, size_t nbytes,
		 uint32_t flags, uint64_t *ret_handle)
{
	int err;

	m->nbytes = nbytes;
	m->shared = NULL;
	err = fill_pages(m, dma, t->shift);
	if (err) {
		if (m->peer.vendor)
			atomic_fetch_sub_explicit(&t->nr_peers, 1, memory_order_relaxed);
		t->ops->unmap(t->ctx, dma->handle);
		return err;
	}
	m->flags = flags;
	m->traits = dma->traits;
	m->handle = dma->handle;
	atomic_fetch_add_explicit(&t->nr_live, 1, memory_order_relaxed);
	*ret_handle = go_live(m);
	return 0;
}

/* One more entry looks into what @m maps. */
static int share(struct mem_map *m)
{
	if (!m->shared) {
		m->shared = malloc(sizeof(*m->shared));
		if (!m->shared)
			return -ENOMEM;
		m->shared->entries = 1;
		m->shared->iova = m->iova == &m->iova1 ? NULL : m->iova;
	}
	m->shared->entries++;
	return 0;
}

/* An entry looks no more into its mapping; the last one ends it. */
static int drop(struct mem_table *t, struct mem_map *m)
{
	struct mem_shared *shared = m->shared;
	uint64_t *iova = m->iova == &m->iova1 ? NULL : m->iova;
	int err;

	m->iova = NULL;
	m->shared = NULL;
	if (shared && --shared->entries)
		return 0;
	err = t->ops->unmap(t->ctx, m->handle);
	free(shared ? shared->iova : iova);
	free(shared);
	if (m->peer.vendor)
		atomic_fetch_sub_explicit(&t->nr_peers, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&t->nr_live, 1, memory_order_relaxed);
	return err;
}

int mem_register(struct mem_table *t, void *vaddr, size_t nbytes, uint32_t flags, uint64_t *ret_handle)
{
	struct dma_mapping dma = { 0 };
	struct mem_map *m;
	int err;

	if (!vaddr || !nbytes || (uintptr_t)vaddr + nbytes < (uintptr_t)vaddr)
		return -EINVAL;
	err = take_slot(t, &m);
	if (err)
		return err;
	m->vaddr = vaddr;
	m->peer.vendor = 0;
	err = t->ops->map(t->ctx, vaddr, nbytes, flags, &dma);
	if (!err)
		err = enter(t, m, &dma, nbytes, flags, ret_handle);
	free(dma.extents);
	if (err)
		give_slot(t, m);
	return err;
}

int mem_register_foreign(struct mem_table *t, const struct mem_foreign *from, size_t nbytes, uint32_t flags,
			 uint32_t *ret_traits, uint64_t *ret_handle)
{
	struct dma_mapping dma = { 0 };
	struct mem_map *m;
	int err;

	if (!nbytes || !t->ops->map_foreign)
		return nbytes ? -EOPNOTSUPP : -EINVAL;
	err = take_slot(t, &m);
	if (err)
		return err;
	m->vaddr = NULL;
	m->peer = from->peer;
	err = t->ops->map_foreign(t->ctx, from, nbytes, flags, &dma);
	if (!err && from->peer.vendor)
		atomic_fetch_add_explicit(&t->nr_peers, 1, memory_order_relaxed);
	if (!err)
		err = enter(t, m, &dma, nbytes, flags, ret_handle);
	free(dma.extents);
	if (err)
		give_slot(t, m);
	else
		*ret_traits = dma.traits;
	return err;
}

/* Under the lock: the parent cannot be released meanwhile. */
static int look_into(struct mem_table *t, struct mem_map *m, uint64_t parent, uint64_t off, size_t nbytes,
		     uint32_t flags)
{
	struct mem_map *p = mem_slot(t, (uint32_t)parent);
	uint64_t pos;
	int err;

	if (!p || atomic_load_explicit(&p->gen, memory_order_relaxed) != (uint32_t)(parent >> 32))
		return -ESTALE;
	/* acquire: the entry is filled */
	if (atomic_load_explicit(&p->ref, memory_order_acquire) & (MEM_REF_DEAD | MEM_REF_REVOKED))
		return mem_refusal(t, parent);
	if (off > p->nbytes || nbytes > p->nbytes - off)
		return -EFAULT;
	if (flags & ~p->flags)
		return -EACCES;
	err = share(p);
	if (err)
		return err;
	pos = p->first_off + off;
	m->shared = p->shared;
	m->iova1 = p->iova1;
	m->iova = p->iova == &p->iova1 ? &m->iova1 : p->iova + (pos >> p->shift);
	m->first_off = p->iova == &p->iova1 ? pos : pos & ((1ull << p->shift) - 1);
	m->shift = p->shift;
	m->nbytes = nbytes;
	m->flags = flags;
	m->traits = p->traits;
	m->handle = p->handle;
	m->vaddr = p->vaddr ? (char *)p->vaddr + off : NULL;
	m->peer = p->peer;
	return 0;
}

int mem_register_within(struct mem_table *t, uint64_t parent, uint64_t off, size_t nbytes, uint32_t flags,
			uint64_t *ret_handle)
{
	struct mem_map *m;
	int err;

	if (!nbytes)
		return -EINVAL;
	err = take_slot(t, &m);
	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	err = look_into(t, m, parent, off, nbytes, flags);
	if (!err)
		*ret_handle = go_live(m);
	pthread_mutex_unlock(&t->lock);
	if (err)
		give_slot(t, m);
	return err;
}

void mem_table_revoke(struct mem_table *t, bool (*revoked)(void *ctx, uint64_t handle), void *ctx)
{
	uint32_t nr = atomic_load_explicit(&t->nr_slots, memory_order_acquire);

	/* the lock keeps what is looked at from being released meanwhile */
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < nr; i++) {
		struct mem_map *m = mem_slot(t, i);

		/* acquire: the entry is filled */
		if (!(atomic_load_explicit(&m->ref, memory_order_acquire) & MEM_REF_DEAD) &&
		    m->traits & MEM_REVOCABLE && revoked(ctx, m->handle))
			atomic_fetch_or_explicit(&m->ref, MEM_REF_REVOKED, memory_order_relaxed);
	}
	pthread_mutex_unlock(&t->lock);
}

int mem_refusal(struct mem_table *t, uint64_t handle)
{
	struct mem_map *m = mem_slot(t, (uint32_t)handle);

	return m && atomic_load_explicit(&m->gen, memory_order_relaxed) == (uint32_t)(handle >> 32) &&
			       (atomic_load_explicit(&m->ref, memory_order_acquire) &
				(MEM_REF_DEAD | MEM_REF_REVOKED)) == MEM_REF_REVOKED
		       ? -EKEYREVOKED
		       : -ESTALE;
}

int mem_unregister(struct mem_table *t, uint64_t handle)
{
	struct mem_map *m = mem_slot(t, (uint32_t)handle);
	uint64_t idle;
	int err = 0;

	if (!m)
		return -ESTALE;
	pthread_mutex_lock(&t->lock);
	if (atomic_load_explicit(&m->gen, memory_order_relaxed) != (uint32_t)(handle >> 32)) {
		err = -ESTALE;
		goto unlock;
	}
	idle = atomic_load_explicit(&m->ref, memory_order_relaxed) & MEM_REF_REVOKED;
	/* acquire: pairs with mem_put(): all uses of the page table are over */
	if (!atomic_compare_exchange_strong_explicit(&m->ref, &idle, MEM_REF_DEAD, memory_order_acquire,
						     memory_order_relaxed)) {
		err = idle & MEM_REF_DEAD ? -ESTALE : -EBUSY;
		goto unlock;
	}
	err = drop(t, m);
	m->next_free = t->free_head;
	t->free_head = m->slot;
unlock:
	pthread_mutex_unlock(&t->lock);
	return err;
}

void mem_table_done(struct mem_table *t)
{
	uint32_t nr = atomic_load_explicit(&t->nr_slots, memory_order_relaxed);

	for (uint32_t i = 0; i < nr; i++) {
		struct mem_map *m = mem_slot(t, i);

		if (!(atomic_load_explicit(&m->ref, memory_order_acquire) & MEM_REF_DEAD))
			drop(t, m);
	}
	for (uint32_t i = 0; i < nr / MEM_CHUNK; i++)
		free(atomic_load_explicit(&t->chunk[i], memory_order_relaxed));
	if (t->ops)
		pthread_mutex_destroy(&t->lock);
}
