/* SPDX-License-Identifier: MIT */
/* Virtual memory management: reserved addresses, physical handles, mappings. Allocators grow segments with it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm.h"

struct reservation {
	struct reservation *next;
	int device;
	uint64_t base;
	size_t nbytes;
	char *shadow; /* of all of it: pieces that are mapped side by side lie side by side there too */
};

struct handle {
	struct handle *next;
	uint64_t id;
	int device, fd;
	size_t nbytes;
};

static struct reservation *reservations;
static struct handle *handles;

/* Whether a range meets a reservation, and where that ends. */
bool soft_vmm_reserved(int device, uint64_t base, size_t nbytes, uint64_t *ret_end)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (r->device == device && r->base < base + nbytes && base < r->base + r->nbytes) {
			*ret_end = r->base + r->nbytes;
			return true;
		}
	return false;
}

int soft_vmm_reserve(int device, size_t nbytes, uint64_t *ret)
{
	struct reservation *r;
	uint64_t base;

	if (!nbytes || nbytes % SOFT_GRANULE)
		return SOFT_INVALID_VALUE;
	base = soft_va_take(device, nbytes);
	if (!base)
		return SOFT_OUT_OF_MEMORY;
	r = malloc(sizeof(*r));
	*r = (struct reservation){ reservations, device, base, nbytes, NULL };
	r->shadow = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	reservations = r;
	*ret = base;
	return SOFT_OK;
}

int soft_vmm_unreserve(uint64_t base, size_t nbytes)
{
	for (struct reservation **at = &reservations; *at; at = &(*at)->next)
		if ((*at)->base == base && (*at)->nbytes == nbytes) {
			struct reservation *r = *at;

			*at = r->next;
			munmap(r->shadow, r->nbytes);
			free(r);
			return SOFT_OK;
		}
	return SOFT_INVALID_VALUE;
}

static struct reservation *reservation_of(uint64_t addr)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (addr >= r->base && addr < r->base + r->nbytes)
			return r;
	return NULL;
}

/* The whole reservation that an address lies in. */
bool soft_vmm_range(uint64_t addr, uint64_t *ret_base, size_t *ret_nbytes)
{
	struct reservation *r = reservation_of(addr);

	if (r) {
		*ret_base = r->base;
		*ret_nbytes = r->nbytes;
	}
	return r;
}

int soft_vmm_create(int device, size_t nbytes, uint64_t *ret)
{
	uint64_t scratch;
	struct soft_block *b;
	struct handle *h;

	if (!nbytes || nbytes % SOFT_GRANULE)
		return SOFT_INVALID_VALUE;
	if (soft_memory_used(device) + nbytes > soft_memory_total[device])
		return SOFT_OUT_OF_MEMORY;
	/* A block for the moment of making its memfd. */
	scratch = soft_va_take(device, nbytes);
	b = scratch ? soft_block_new(device, scratch, nbytes, false) : NULL;
	if (!b)
		return SOFT_OUT_OF_MEMORY;
	h = malloc(sizeof(*h));
	*h = (struct handle){ handles, soft_next_id++, device, dup(b->fd), nbytes };
	handles = h;
	soft_block_free(b);
	*ret = h->id;
	return SOFT_OK;
}

static struct handle **find(uint64_t id)
{
	struct handle **at = &handles;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

int soft_vmm_release(uint64_t id)
{
	struct handle **at = find(id), *h = *at;

	if (!h)
		return SOFT_INVALID_VALUE;
	*at = h->next;
	close(h->fd);
	free(h);
	return SOFT_OK;
}

int soft_vmm_map(uint64_t addr, size_t nbytes, uint64_t id)
{
	struct handle *h = *find(id);
	struct soft_alloc a = { .kind = SOFT_MAPPED, .addr = addr, .nbytes = nbytes, .block_id = id };
	struct reservation *r = reservation_of(addr);

	if (!h || h->nbytes != nbytes || !r || addr + nbytes > r->base + r->nbytes)
		return SOFT_INVALID_VALUE;
	for (uint64_t p = addr; p < addr + nbytes; p += SOFT_GRANULE)
		if (soft_find(p))
			return SOFT_INVALID_VALUE;
	a.device = h->device;
	a.block = soft_block_map(h->device, addr, nbytes, dup(h->fd), r->shadow + (addr - r->base));
	if (!a.block)
		return SOFT_OUT_OF_MEMORY;
	soft_alloc_add(a);
	return SOFT_OK;
}

int soft_vmm_unmap(uint64_t addr, size_t nbytes)
{
	uint64_t end = addr + nbytes;

	while (addr < end) {
		struct soft_alloc *a = soft_find(addr);

		if (!a || a->kind != SOFT_MAPPED || a->addr != addr || addr + a->nbytes > end)
			return SOFT_INVALID_VALUE;
		addr += a->nbytes;
		soft_free(a->addr, 1u << SOFT_MAPPED);
	}
	return SOFT_OK;
}

SOFT_EXPORT uint64_t soft_gpu_handles(void)
{
	SOFT_LOCK();
	uint64_t n = 0;

	for (struct handle *h = handles; h; h = h->next)
		n++;
	for (struct reservation *r = reservations; r; r = r->next)
		n++;
	return n;
}

void soft_vmm_reset(void)
{
	while (handles)
		soft_vmm_release(handles->id);
	while (reservations)
		soft_vmm_unreserve(reservations->base, reservations->nbytes);
}
