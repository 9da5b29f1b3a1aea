/* SPDX-License-Identifier: MIT */
/* The controller's state, why it is so, and the events its user is told of. */
#include <stdarg.h>
#include <stdio.h>

#include "nvme/chan.h"

int nvme_ctrl_check(struct nvme_ctrl *c)
{
	/* acquire: who sees LIVE again after a reset sees the queue pairs as the reset left them */
	switch (atomic_load_explicit(&c->state, memory_order_acquire)) {
	case NVME_LIVE:
		return 0;
	case NVME_REMOVED:
		return -ENODEV;
	case NVME_CLOSED:
		return -ESHUTDOWN;
	default:
		return -EHOSTDOWN;
	}
}

static void state_changed(struct nvme_ctrl *c)
{
	atomic_store_explicit(&c->state_since, now_ns(), memory_order_relaxed);
	nvme_signal(c->event_fd);
	nvme_hk_poke(c);
}

void nvme_ctrl_set_state(struct nvme_ctrl *c, enum nvme_state state, const char *reason)
{
	pthread_mutex_lock(&c->admin_lock);
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
	atomic_store_explicit(&c->state, state, memory_order_release);
	pthread_mutex_unlock(&c->admin_lock);
	state_changed(c);
}

void nvme_ctrl_fail(struct nvme_ctrl *c, enum nvme_state state, const char *fmt, ...)
{
	uint32_t was;
	va_list ap;

	pthread_mutex_lock(&c->admin_lock);
	was = atomic_load_explicit(&c->state, memory_order_relaxed);
	/* A wedged controller may turn out to be gone; nothing else changes a state that is not LIVE here. */
	if (was == NVME_LIVE || (was == NVME_WEDGED && state == NVME_REMOVED)) {
		va_start(ap, fmt);
		vsnprintf(c->reason, sizeof(c->reason), fmt, ap);
		va_end(ap);
		atomic_store_explicit(&c->state, state, memory_order_release);
	} else {
		state = was;
	}
	pthread_mutex_unlock(&c->admin_lock);
	if (state != was)
		state_changed(c);
}

void nvme_ctrl_revoked(struct nvme_ctrl *c)
{
	/* before the state: who sees that it failed is told why */
	atomic_store_explicit(&c->revoked, true, memory_order_release);
	nvme_ctrl_fail(c, NVME_WEDGED,
		       "registered memory was taken away by its owner, so DMA was cut off before it went");
}

void nvme_ctrl_reason(struct nvme_ctrl *c, char *buf, size_t nbytes)
{
	pthread_mutex_lock(&c->admin_lock);
	snprintf(buf, nbytes, "%s", c->reason);
	pthread_mutex_unlock(&c->admin_lock);
}

void nvme_ctrl_event(struct nvme_ctrl *c, uint32_t dw0)
{
	pthread_mutex_lock(&c->admin_lock);
	c->events[c->events_tail++ % NVME_EVENTS] = dw0;
	if (c->events_tail - c->events_head > NVME_EVENTS)
		c->events_head++; /* nobody collects them: the oldest goes */
	pthread_mutex_unlock(&c->admin_lock);
	nvme_signal(c->event_fd);
}

uint32_t nvme_ctrl_events(struct nvme_ctrl *c, uint32_t *out, uint32_t max)
{
	uint32_t n = 0;

	pthread_mutex_lock(&c->admin_lock);
	while (n < max && c->events_head != c->events_tail)
		out[n++] = c->events[c->events_head++ % NVME_EVENTS];
	pthread_mutex_unlock(&c->admin_lock);
	return n;
}
