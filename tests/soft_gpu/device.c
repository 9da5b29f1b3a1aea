/* SPDX-License-Identifier: MIT */
/* Devices, their contexts, and what is current in a thread. */
#include <stdlib.h>
#include <string.h>

#include "soft.h"

uint64_t soft_generation = 1;
int soft_nr_devices = 2;
bool soft_initialized;

static struct soft_ctx primaries[SOFT_DEVICES];
static struct soft_ctx *contexts; /* made by cuCtxCreate; kept when destroyed, until a reset */
static uint64_t made[SOFT_DEVICES];

struct soft_thread *soft_thread(void)
{
	static __thread struct soft_thread t;

	if (t.generation != soft_generation)
		t = (struct soft_thread){ .generation = soft_generation };
	return &t;
}

int soft_init(void)
{
	soft_initialized = true;
	return soft_nr_devices ? SOFT_OK : SOFT_NO_DEVICE;
}

bool soft_device_exists(int device) { return device >= 0 && device < soft_nr_devices; }

struct soft_ctx *soft_primary(int device)
{
	primaries[device].device = device;
	primaries[device].primary = true;
	return &primaries[device];
}

struct soft_ctx *soft_primary_activate(int device)
{
	struct soft_ctx *c = soft_primary(device);

	if (!c->active) {
		c->active = true;
		c->sticky = 0;
		made[device]++;
	}
	return c;
}

uint64_t soft_contexts_made(int device) { return made[device]; }

struct soft_ctx *soft_ctx_find(uintptr_t handle)
{
	for (int d = 0; d < soft_nr_devices; d++)
		if (handle == (uintptr_t)&primaries[d])
			return &primaries[d];
	for (struct soft_ctx *c = contexts; c; c = c->next)
		if (handle == (uintptr_t)c)
			return c->destroyed ? NULL : c;
	return NULL;
}

struct soft_ctx *soft_ctx_new(int device)
{
	struct soft_ctx *c = calloc(1, sizeof(*c));

	*c = (struct soft_ctx){ .next = contexts, .device = device, .active = true };
	contexts = c;
	made[device]++;
	return c;
}

void soft_ctx_end(struct soft_ctx *c)
{
	pthread_mutex_lock(&soft_lock);
	c->sticky = SOFT_CONTEXT_DESTROYED;
	c->destroyed = !c->primary;
	pthread_cond_broadcast(&soft_progress);
	soft_streams_of(c);
	soft_events_of(c);
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_wrlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	soft_memory_of(c);
	c->active = false;
	c->retains = 0;
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_unlock(&soft_memory);
}

static int usable(struct soft_ctx *c, struct soft_ctx **ret)
{
	*ret = c;
	return c->sticky ? c->sticky : c->active ? SOFT_OK : SOFT_CONTEXT_DESTROYED;
}

int soft_current(struct soft_ctx **ret)
{
	struct soft_thread *t = soft_thread();

	if (soft_vendor.signal_words) { /* HIP begins by itself, and has no stack of contexts */
		soft_initialized = true;
		if (!soft_device_exists(t->device))
			return SOFT_NO_DEVICE;
		return usable(soft_primary_activate(t->device), ret);
	}
	if (!soft_initialized)
		return SOFT_NOT_INITIALIZED;
	if (!t->depth || !t->stack[t->depth - 1])
		return SOFT_INVALID_CONTEXT;
	return usable(t->stack[t->depth - 1], ret);
}

void soft_lose(int device, int code)
{
	primaries[device].sticky = code;
	for (struct soft_ctx *c = contexts; c; c = c->next)
		if (c->device == device && !c->destroyed)
			c->sticky = code;
	pthread_cond_broadcast(&soft_progress);
}

void soft_devices_reset(void)
{
	while (contexts) {
		struct soft_ctx *c = contexts;

		contexts = c->next;
		free(c);
	}
	memset(primaries, 0, sizeof(primaries));
	memset(made, 0, sizeof(made));
	soft_nr_devices = 2;
	soft_generation++;
}
