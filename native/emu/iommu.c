/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "emu/iommu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_PAGES (1ull << 20)
#define MAX_PAGES ((uint64_t)EMU_LEAF_CHUNKS << EMU_LEAF_SHIFT)
#define NO_SLOT 0xffffffffu

/* splitmix64 */
uint64_t emu_rand(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void *table_new(size_t nbytes)
{
	void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);

	return p == MAP_FAILED ? NULL : p;
}

#define LEAVES_BYTES (EMU_LEAF_CHUNKS * sizeof(void *))
#define CHUNK_BYTES (sizeof(uint64_t) << EMU_LEAF_SHIFT)
#define MAPS_BYTES (EMU_MAP_CHUNKS * sizeof(void *))

int emu_iommu_init(struct emu_iommu *io, uint64_t seed, uint32_t unit)
{
	io->unit = unit;
	io->rng = seed;
	/* bit 60 is in no user address, the rest tells controllers apart, the largest page divides it */
	io->base = 1ull << 60 | (emu_rand(&io->rng) & 0x000f00fffff00000ull);
	io->leaves = table_new(LEAVES_BYTES);
	io->maps = table_new(MAPS_BYTES);
	if (!io->leaves || !io->maps)
		return -ENOMEM;
	pthread_mutex_init(&io->lock, NULL);
	atomic_store(&io->capacity, FIRST_PAGES);
	io->free_head = NO_SLOT;
	return 0;
}

void emu_iommu_done(struct emu_iommu *io)
{
	uint32_t nr = atomic_load(&io->nr_slots);

	for (uint32_t i = 0; io->maps && i < nr; i++) {
		struct emu_map *m = emu_iommu_slot(io, i);

		if (m->spans != &m->one)
			free(m->spans);
	}
	for (uint32_t i = 0; io->maps && i < EMU_MAP_CHUNKS && io->maps[i]; i++)
		free(io->maps[i]);
	for (uint32_t i = 0; io->leaves && i < EMU_LEAF_CHUNKS; i++)
		if (io->leaves[i])
			munmap((void *)io->leaves[i], CHUNK_BYTES);
	if (io->leaves && io->maps)
		pthread_mutex_destroy(&io->lock);
	if (io->leaves)
		munmap((void *)io->leaves, LEAVES_BYTES);
	if (io->maps)
		munmap((void *)io->maps, MAPS_BYTES);
}

static bool page_live(struct emu_iommu *io, uint64_t page)
{
	_Atomic uint64_t *chunk =
		atomic_load_explicit(&io->leaves[page >> EMU_LEAF_SHIFT], memory_order_relaxed);

	return chunk &&
	       atomic_load_explicit(&chunk[page & ((1u << EMU_LEAF_SHIFT) - 1)], memory_order_relaxed);
}

/* The next free run of at most @want pages (exactly @want if @exact), with a free page on either side, at a
 * page that is @phase modulo the unit. */
static bool take_run(struct emu_iommu *io, uint64_t want, bool exact, uint64_t phase, struct emu_span *ret)
{
	uint64_t capacity = atomic_load_explicit(&io->capacity, memory_order_relaxed);
	uint64_t scanned = 0;

	while (scanned < 2 * capacity) {
		uint64_t pos = io->cursor < capacity ? io->cursor : 0, n = 0;

		pos += (phase - pos) & (io->unit - 1);
		while (n <= want && pos + n < capacity && !page_live(io, pos + n))
			n++;
		scanned += n + 1;
		if (n > want || (n > 1 && !exact)) {
			*ret = (struct emu_span){ pos, n - 1 };
			io->cursor = pos + n + emu_rand(&io->rng) % 3;
			return true;
		}
		/* past the live page (or the end), and past the page that guards it */
		io->cursor = pos + n + 1;
		while (io->cursor < capacity && page_live(io, io->cursor)) {
			io->cursor++;
			scanned++;
		}
		io->cursor++;
	}
	return false;
}

/* How much of @left to lay out in one run: short and long ones, so that neighbours are sometimes contiguous,
 * mostly not. */
static uint64_t run_length(struct emu_iommu *io, uint64_t left, uint64_t phase)
{
	uint64_t units = 1 + (emu_rand(&io->rng) & ((1ull << emu_rand(&io->rng) % 7) - 1));

	return min_u64(left, units * io->unit - phase);
}

static int grow(struct emu_iommu *io, uint64_t need)
{
	uint64_t capacity = atomic_load_explicit(&io->capacity, memory_order_relaxed), old = capacity;

	while (capacity - old < need + 2 * io->unit + 2)
		capacity *= 2;
	if (capacity > MAX_PAGES)
		return -ENOSPC;
	io->cursor = old + 1;
	atomic_store_explicit(&io->capacity, capacity, memory_order_relaxed);
	return 0;
}

/* Permission 0 takes them away. */
static int write_leaves(struct emu_iommu *io, const struct emu_span *span, uint64_t idx, uint32_t slot,
			uint32_t perm)
{
	for (uint64_t p = span->page; p < span->page + span->nr; p++, idx++) {
		_Atomic uint64_t *chunk =
			atomic_load_explicit(&io->leaves[p >> EMU_LEAF_SHIFT], memory_order_relaxed);
		uint64_t leaf = perm ? (uint64_t)slot << 40 | idx << 4 | perm : 0;

		if (unlikely(!chunk)) {
			if (!perm)
				continue;
			chunk = table_new(CHUNK_BYTES);
			if (!chunk)
				return -ENOMEM;
			atomic_store_explicit(&io->leaves[p >> EMU_LEAF_SHIFT], chunk, memory_order_release);
		}
		/* release: whoever finds the leaf finds the mapping's fields */
		atomic_store_explicit(&chunk[p & ((1u << EMU_LEAF_SHIFT) - 1)], leaf, memory_order_release);
	}
	return 0;
}

static void clear_leaves(struct emu_iommu *io, struct emu_map *m)
{
	for (uint32_t i = 0; i < m->nr_spans; i++)
		write_leaves(io, &m->spans[i], 0, 0, 0);
}

static int more_spans(struct emu_map *m, uint32_t *cap)
{
	struct emu_span *more;

	if (m->nr_spans < *cap)
		return 0;
	more = malloc(2ul * *cap * sizeof(*more));
	if (!more)
		return -ENOMEM;
	memcpy(more, m->spans, m->nr_spans * sizeof(*more));
	if (m->spans != &m->one)
		free(m->spans);
	m->spans = more;
	*cap *= 2;
	return 0;
}

static int lay_out(struct emu_iommu *io, struct emu_map *m, uint32_t slot, uint32_t flags)
{
	uint32_t perm = flags & (EMU_DMA_READ | EMU_DMA_WRITE);
	uint64_t left = m->nr_pages, first = (uintptr_t)m->vaddr >> EMU_IO_SHIFT, want, phase;
	bool contig = flags & EMU_DMA_CONTIG;
	uint32_t cap = 1;
	int rc = 0;

	m->spans = &m->one;
	m->nr_spans = 0;
	if (io->live_pages + left > atomic_load_explicit(&io->capacity, memory_order_relaxed) / 2)
		rc = grow(io, io->live_pages + left);
	while (!rc && left) {
		phase = (first + m->nr_pages - left) & (io->unit - 1);
		want = contig || left == 1 ? left : run_length(io, left, phase);
		rc = more_spans(m, &cap);
		while (!rc && !take_run(io, want, contig || io->unit > 1, phase, &m->spans[m->nr_spans]))
			rc = grow(io, want);
		if (rc)
			break;
		/* at once: the next run must not be cut from the same pages */
		rc = write_leaves(io, &m->spans[m->nr_spans], m->nr_pages - left, slot,
				  m->stage ? EMU_FAR(perm) : perm);
		left -= m->spans[m->nr_spans++].nr;
	}
	return rc;
}

static struct emu_map *slot_get(struct emu_iommu *io, uint32_t *ret_slot)
{
	uint32_t slot = io->free_head, nr = atomic_load_explicit(&io->nr_slots, memory_order_relaxed);
	struct emu_map *m;

	if (slot != NO_SLOT) {
		m = emu_iommu_slot(io, slot);
		io->free_head = m->next_free;
		*ret_slot = slot;
		return m;
	}
	if (nr >> EMU_MAP_SHIFT >= EMU_MAP_CHUNKS)
		return NULL;
	if (!(nr & ((1u << EMU_MAP_SHIFT) - 1))) {
		m = aligned_alloc(CACHELINE, sizeof(*m) << EMU_MAP_SHIFT);
		if (!m)
			return NULL;
		memset(m, 0, sizeof(*m) << EMU_MAP_SHIFT);
		atomic_store_explicit(&io->maps[nr >> EMU_MAP_SHIFT], m, memory_order_release);
	}
	m = emu_iommu_slot(io, nr);
	m->spans = &m->one;
	m->gen = 1;
	atomic_store_explicit(&io->nr_slots, nr + 1, memory_order_release);
	*ret_slot = nr;
	return m;
}

static void slot_put(struct emu_iommu *io, struct emu_map *m, uint32_t slot)
{
	if (m->spans != &m->one)
		free(m->spans);
	m->spans = &m->one;
	m->gen++;
	m->next_free = io->free_head;
	io->free_head = slot;
}

int emu_iommu_map(struct emu_iommu *io, void *vaddr, size_t nbytes, uint32_t flags, struct emu_stage *stage,
		  struct emu_extent **ret_ext, size_t *ret_nr, uint64_t *ret_handle)
{
	uint64_t first = align_down((uintptr_t)vaddr, EMU_IO_PAGE);
	struct emu_extent *ext = NULL;
	struct emu_map *m;
	uint32_t slot;
	uint64_t end;
	int rc;

	if (!nbytes || !(flags & (EMU_DMA_READ | EMU_DMA_WRITE)))
		return -EINVAL;
	if (!vaddr || __builtin_add_overflow((uintptr_t)vaddr, nbytes, &end) ||
	    end > UINT64_MAX - EMU_IO_PAGE)
		return -EFAULT;
	pthread_mutex_lock(&io->lock);
	m = slot_get(io, &slot);
	if (!m) {
		pthread_mutex_unlock(&io->lock);
		return -ENOSPC;
	}
	m->vaddr = (uint8_t *)(uintptr_t)first;
	m->nr_pages = (align_up(end, EMU_IO_PAGE) - first) >> EMU_IO_SHIFT;
	m->stage = stage;
	m->onward = flags & EMU_DMA_ONWARD;
	m->far_lo = (uintptr_t)vaddr;
	m->far_hi = end;
	rc = lay_out(io, m, slot, flags);
	if (!rc) {
		ext = malloc(m->nr_spans * sizeof(*ext));
		rc = ext ? 0 : -ENOMEM;
	}
	if (rc) {
		clear_leaves(io, m);
		slot_put(io, m, slot);
		pthread_mutex_unlock(&io->lock);
		free(ext);
		return rc;
	}
	m->live = true;
	io->live_pages += m->nr_pages;
	*ret_handle = (uint64_t)m->gen << 32 | slot;
	pthread_mutex_unlock(&io->lock);

	for (uint32_t i = 0; i < m->nr_spans; i++)
		ext[i] = (struct emu_extent){ io->base + (m->spans[i].page << EMU_IO_SHIFT),
					      m->spans[i].nr << EMU_IO_SHIFT };
	*ret_ext = ext;
	*ret_nr = m->nr_spans;
	return 0;
}

int emu_iommu_unmap_begin(struct emu_iommu *io, uint64_t handle, struct emu_map **ret)
{
	uint32_t slot = (uint32_t)handle;
	struct emu_map *m;

	pthread_mutex_lock(&io->lock);
	if (slot >= atomic_load_explicit(&io->nr_slots, memory_order_relaxed)) {
		pthread_mutex_unlock(&io->lock);
		return -ENOENT;
	}
	m = emu_iommu_slot(io, slot);
	if (!m->live || m->gen != (uint32_t)(handle >> 32)) {
		pthread_mutex_unlock(&io->lock);
		return -ENOENT;
	}
	m->live = false;
	clear_leaves(io, m);
	io->live_pages -= m->nr_pages;
	pthread_mutex_unlock(&io->lock);
	/* A device thread that counted itself in finds the leaf gone and leaves, or is waited for. */
	emu_count_wait_zero(&m->users);
	*ret = m;
	return 0;
}

void emu_iommu_unmap_finish(struct emu_iommu *io, uint64_t handle)
{
	uint32_t slot = (uint32_t)handle;

	pthread_mutex_lock(&io->lock);
	slot_put(io, emu_iommu_slot(io, slot), slot);
	pthread_mutex_unlock(&io->lock);
}

void emu_iommu_stop(struct emu_iommu *io)
{
	uint32_t nr;

	atomic_store_explicit(&io->off, true, memory_order_seq_cst);
	pthread_mutex_lock(&io->lock);
	nr = atomic_load_explicit(&io->nr_slots, memory_order_acquire);
	pthread_mutex_unlock(&io->lock);
	for (uint32_t i = 0; i < nr; i++)
		emu_count_wait_zero(&emu_iommu_slot(io, i)->users);
}
