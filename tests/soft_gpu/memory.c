/* SPDX-License-Identifier: MIT */
/*
 * Device memory is memfds. Its addresses are reserved and never accessible to the CPU, as those of a real GPU: code of
 * the host that touches them dies. The "GPU" reaches the bytes through a second mapping, the shadow.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft.h"

#define MIB (1ull << 20)
#define REGION (64ull << 30) /* addresses of a device */
#define BLOCK (2 * MIB) /* small allocations share one */
#define SMALL MIB

pthread_rwlock_t soft_memory = PTHREAD_RWLOCK_INITIALIZER;
uint64_t soft_memory_total[SOFT_DEVICES];
uint64_t soft_next_id = 1; /* not reset: an id never comes again */

static char *regions[SOFT_DEVICES];
static struct soft_block *blocks; /* by address */
static struct soft_alloc *allocs;
static uint64_t used[SOFT_DEVICES], pinned;

static uint64_t round_up(uint64_t v, uint64_t a) { return (v + a - 1) / a * a; }

/* ---- addresses ---- */

static char *region(int device)
{
	if (!regions[device]) {
		char *p = mmap(NULL, REGION + BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			       -1, 0);

		regions[device] = p == MAP_FAILED ? NULL : (char *)round_up((uint64_t)(uintptr_t)p, BLOCK);
	}
	return regions[device];
}

/* The lowest hole: what was freed last of a size is handed out again, as the real ones do. */
uint64_t soft_va_take(int device, size_t nbytes)
{
	uint64_t at = (uint64_t)(uintptr_t)region(device), end = at + REGION, over;

	if (at)
		for (struct soft_block *b = blocks; b; b = b->next) {
			if (b->device != device)
				continue;
			while (soft_vmm_reserved(device, at, nbytes, &over))
				at = round_up(over, BLOCK);
			if (b->base >= at + nbytes)
				break;
			at = round_up(b->base + b->nbytes, BLOCK) > at ? round_up(b->base + b->nbytes, BLOCK)
								       : at;
		}
	while (at && soft_vmm_reserved(device, at, nbytes, &over))
		at = round_up(over, BLOCK);
	return at && at + nbytes <= end ? at : 0;
}

/* ---- blocks ---- */

struct soft_block *soft_block_map(int device, uint64_t base, size_t nbytes, int fd, char *shadow)
{
	struct soft_block *b = calloc(1, sizeof(*b)), **at = &blocks;
	int flags = shadow ? MAP_SHARED | MAP_FIXED : MAP_SHARED;

	*b = (struct soft_block){
		.device = device, .fd = fd, .base = base, .nbytes = nbytes, .fixed = shadow
	};
	b->shadow = mmap(shadow, nbytes, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (b->shadow == MAP_FAILED) {
		close(fd);
		free(b);
		return NULL;
	}
	while (*at && (*at)->base < base)
		at = &(*at)->next;
	b->next = *at;
	*at = b;
	return b;
}

struct soft_block *soft_block_new(int device, uint64_t base, size_t nbytes, bool managed)
{
	int fd = memfd_create("soft-gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)nbytes)) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	/* So that whoever maps it need not fear that it becomes shorter. */
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	return soft_block_map(device, base, nbytes, fd, managed ? (char *)(uintptr_t)base : NULL);
}

void soft_block_free(struct soft_block *b)
{
	struct soft_block **at = &blocks;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	if (!b->fixed)
		munmap(b->shadow, b->nbytes);
	else
		mmap(b->shadow, b->nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		     -1, 0);
	close(b->fd);
	free(b);
}

static struct soft_block *own_block(int device, size_t nbytes, bool managed)
{
	size_t whole = round_up(nbytes, 4096);
	uint64_t base = soft_va_take(device, whole);

	return base ? soft_block_new(device, base, whole, managed) : NULL;
}

/* The first gap of a shared block; -1: it has none. */
static int64_t gap(const struct soft_block *b, size_t nbytes)
{
	size_t at = 0;
	bool moved;

	do {
		moved = false;
		for (struct soft_alloc *a = allocs; a; a = a->next)
			if (a->block == b && a->addr < b->base + at + nbytes &&
			    b->base + at < a->addr + a->nbytes) {
				at = round_up(a->addr + a->nbytes - b->base, soft_vendor.alignment);
				moved = true;
			}
	} while (moved);
	return at + nbytes <= b->nbytes ? (int64_t)at : -1;
}

static struct soft_block *shared_block(int device, size_t nbytes, uint64_t *ret_addr)
{
	struct soft_block *b;
	int64_t at = -1;

	for (b = blocks; b; b = b->next)
		if (b->device == device && b->shared && (at = gap(b, nbytes)) >= 0)
			break;
	if (!b) {
		b = own_block(device, BLOCK, false);
		if (!b)
			return NULL;
		b->shared = true;
		at = 0;
	}
	*ret_addr = b->base + (uint64_t)at;
	return b;
}

/* ---- allocations ---- */

struct soft_alloc *soft_alloc_add(struct soft_alloc a)
{
	struct soft_alloc *copy = malloc(sizeof(a));

	a.id = soft_next_id++;
	a.next = allocs;
	*copy = a;
	allocs = copy;
	if (a.block)
		a.block->users++;
	if (a.block)
		used[a.device] += a.nbytes;
	else if (a.kind == SOFT_HOST || a.kind == SOFT_REGISTERED)
		pinned += a.nbytes;
	return copy;
}

static int alloc_device(struct soft_alloc *a)
{
	if (used[a->device] + a->nbytes > soft_memory_total[a->device])
		return SOFT_OUT_OF_MEMORY;
	if (a->kind == SOFT_DEVICE && a->nbytes <= SMALL) {
		a->block = shared_block(a->device, a->nbytes, &a->addr);
	} else {
		a->block = own_block(a->device, a->nbytes, a->kind == SOFT_MANAGED);
		a->addr = a->block ? a->block->base : 0;
	}
	return a->block ? SOFT_OK : SOFT_OUT_OF_MEMORY;
}

static int alloc_host(struct soft_alloc *a)
{
	size_t whole = round_up(a->nbytes, 4096);
	void *p;

	if (pinned + a->nbytes > soft_controls.pinned_limit)
		return SOFT_OUT_OF_MEMORY;
	p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return SOFT_OUT_OF_MEMORY;
	a->addr = (uint64_t)(uintptr_t)p;
	return SOFT_OK;
}

int soft_alloc(struct soft_ctx *ctx, int device, enum soft_kind kind, size_t nbytes, uint64_t *ret)
{
	struct soft_alloc a = { .kind = kind, .device = device, .ctx = ctx, .nbytes = nbytes };
	int code;

	if (!nbytes)
		return SOFT_INVALID_VALUE;
	code = kind == SOFT_HOST || kind == SOFT_SIGNAL ? alloc_host(&a) : alloc_device(&a);
	if (code)
		return code;
	soft_alloc_add(a);
	*ret = a.addr;
	return SOFT_OK;
}

int soft_register(struct soft_ctx *ctx, void *host, size_t nbytes, unsigned flags)
{
	struct soft_alloc a = { .kind = SOFT_REGISTERED, .ctx = ctx, .device = ctx->device, .flags = flags };

	a.addr = (uint64_t)(uintptr_t)host;
	a.nbytes = nbytes;
	if (!nbytes || !host)
		return SOFT_INVALID_VALUE;
	for (struct soft_alloc *o = allocs; o; o = o->next)
		if (o->addr < a.addr + nbytes && a.addr < o->addr + o->nbytes)
			return SOFT_ALREADY_REGISTERED;
	if (pinned + nbytes > soft_controls.pinned_limit)
		return SOFT_OUT_OF_MEMORY;
	soft_alloc_add(a);
	return SOFT_OK;
}

static void release(struct soft_alloc *a)
{
	if (a->block) {
		used[a->device] -= a->nbytes;
		if (!--a->block->users)
			soft_block_free(a->block);
	} else if (a->kind == SOFT_REGISTERED) {
		pinned -= a->nbytes;
	} else {
		if (a->kind == SOFT_HOST)
			pinned -= a->nbytes;
		munmap((void *)(uintptr_t)a->addr, round_up(a->nbytes, 4096));
	}
	free(a);
}

/* With soft_memory held for writing. */
int soft_free(uint64_t addr, unsigned kinds)
{
	for (struct soft_alloc **at = &allocs; *at; at = &(*at)->next) {
		struct soft_alloc *a = *at;

		if (a->addr == addr && kinds >> a->kind & 1) {
			*at = a->next;
			release(a);
			return SOFT_OK;
		}
	}
	return SOFT_INVALID_VALUE;
}

void soft_memory_of(struct soft_ctx *ctx)
{
	for (struct soft_alloc **at = &allocs; *at;) {
		struct soft_alloc *a = *at;

		if (a->ctx != ctx) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		release(a);
	}
}

struct soft_alloc *soft_find(uint64_t addr)
{
	for (struct soft_alloc *a = allocs; a; a = a->next)
		if (addr >= a->addr && addr < a->addr + a->nbytes)
			return a;
	return NULL;
}

void *soft_reach(uint64_t addr, size_t nbytes)
{
	struct soft_alloc *a = soft_find(addr);

	if (!a)
		return NULL;
	/* Mapped pieces that lie one behind the other are one range. */
	for (struct soft_alloc *n = a; addr + nbytes > n->addr + n->nbytes;) {
		n = a->kind == SOFT_MAPPED ? soft_find(n->addr + n->nbytes) : NULL;
		if (!n || n->kind != SOFT_MAPPED)
			return NULL;
	}
	return a->block ? a->block->shadow + (addr - a->block->base) : (void *)(uintptr_t)addr;
}

bool soft_is_pinned(const void *host)
{
	struct soft_alloc *a = soft_find((uint64_t)(uintptr_t)host);

	return a && !(a->block && a->kind != SOFT_MANAGED);
}

uint64_t soft_memory_used(int device) { return used[device]; }

/* How many allocations are there of these kinds (bits). */
SOFT_EXPORT uint64_t soft_gpu_allocations(unsigned kinds)
{
	SOFT_LOCK();
	uint64_t n = 0;

	for (struct soft_alloc *a = allocs; a; a = a->next)
		n += kinds >> a->kind & 1;
	return n;
}

void soft_memory_reset(void)
{
	while (allocs) {
		struct soft_alloc *a = allocs;

		allocs = a->next;
		release(a);
	}
	soft_vmm_reset();
	pinned = 0;
	for (int d = 0; d < SOFT_DEVICES; d++) {
		used[d] = 0;
		soft_memory_total[d] = 1ull << 30;
	}
}
