/* SPDX-License-Identifier: MIT */
/* A sparse memory namespace: chunks are taken at the first write and read as zeros before. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "emu/backing.h"
#include "support/util.h"

#define TRIM_BYTES (64ull << 10) /* shorter ranges are cheaper to clear than to give back */
#define PAGE_BYTES 4096ull

static size_t table_bytes(const struct emu_ns *ns)
{
	return (size_t)((ns->max_bytes + EMU_MEMORY_CHUNK - 1) / EMU_MEMORY_CHUNK) * sizeof(*ns->chunks);
}

static void *map_new(size_t nbytes)
{
	void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);

	if (p == MAP_FAILED)
		return NULL;
	/* a forked child has no use for it, and would make every write here copy a page */
	madvise(p, nbytes, MADV_DONTFORK);
	return p;
}

int emu_memory_new(struct emu_ns *ns)
{
	ns->max_bytes = max_u64(ns->nbytes, EMU_MEMORY_MOST);
	ns->chunks = map_new(table_bytes(ns));
	return ns->chunks ? 0 : -ENOMEM;
}

void emu_memory_free(struct emu_ns *ns)
{
	uint64_t nr = table_bytes(ns) / sizeof(*ns->chunks);

	if (!ns->chunks)
		return;
	for (uint64_t i = 0; i < nr && atomic_load(&ns->nr_used); i++) {
		if (!ns->chunks[i])
			continue;
		munmap(ns->chunks[i], EMU_MEMORY_CHUNK);
		atomic_fetch_sub(&ns->nr_used, 1);
	}
	munmap((void *)ns->chunks, table_bytes(ns));
	ns->chunks = NULL;
}

static uint8_t *chunk_look(struct emu_ns *ns, uint64_t off)
{
	uint8_t *c = atomic_load_explicit(&ns->chunks[off / EMU_MEMORY_CHUNK], memory_order_acquire);

	return c ? c + off % EMU_MEMORY_CHUNK : NULL;
}

static uint8_t *chunk_take(struct emu_ns *ns, uint64_t off)
{
	void *fresh, *none = NULL;
	uint8_t *c = chunk_look(ns, off);

	if (likely(c))
		return c;
	fresh = map_new(EMU_MEMORY_CHUNK);
	if (!fresh)
		return NULL;
	if (atomic_compare_exchange_strong_explicit(&ns->chunks[off / EMU_MEMORY_CHUNK], &none, fresh,
						    memory_order_acq_rel, memory_order_acquire))
		atomic_fetch_add_explicit(&ns->nr_used, 1, memory_order_relaxed);
	else
		munmap(fresh, EMU_MEMORY_CHUNK);
	return chunk_look(ns, off);
}

static uint64_t piece(uint64_t off, uint64_t nbytes)
{
	return min_u64(nbytes, EMU_MEMORY_CHUNK - off % EMU_MEMORY_CHUNK);
}

void emu_memory_read(struct emu_ns *ns, uint64_t off, void *dst, uint64_t nbytes)
{
	uint8_t *to = dst;

	while (nbytes) {
		uint64_t n = piece(off, nbytes);
		uint8_t *from = chunk_look(ns, off);

		if (from)
			memcpy(to, from, n);
		else
			memset(to, 0, n);
		to += n;
		off += n;
		nbytes -= n;
	}
}

int emu_memory_write(struct emu_ns *ns, uint64_t off, const void *src, uint64_t nbytes)
{
	const uint8_t *from = src;

	while (nbytes) {
		uint64_t n = piece(off, nbytes);
		uint8_t *to = chunk_take(ns, off);

		if (!to)
			return -ENOSPC;
		memcpy(to, from, n);
		from += n;
		off += n;
		nbytes -= n;
	}
	return 0;
}

void emu_memory_zero(struct emu_ns *ns, uint64_t off, uint64_t nbytes)
{
	while (nbytes) {
		uint64_t n = piece(off, nbytes);
		uint8_t *to = chunk_look(ns, off);

		/* whole pages go back to the system, and come back as zeros */
		if (to &&
		    (n < TRIM_BYTES || off % PAGE_BYTES || n % PAGE_BYTES || madvise(to, n, MADV_DONTNEED)))
			memset(to, 0, n);
		off += n;
		nbytes -= n;
	}
}
