/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events (Base 5.2). A type that was reported stays quiet until the host reads its log page;
 * events without a request outstanding wait for one.
 */
#include <errno.h>
#include <string.h>

#include "emu/internal.h"

#define AER_LIMIT (NVME_STATUS(NVME_SCT_CMD, NVME_SC_AER_LIMIT) | EMU_DNR)

/* Under aer_lock. */
static void deliver(struct emu_actor *a)
{
	struct emu_ctrl *e = a->e;
	uint32_t i = 0;

	while (i < e->nr_events && e->nr_aer) {
		uint32_t dw0 = e->events[i], bit = 1u << NVME_AER_TYPE(dw0);
		struct emu_cmd c = { .sq = &e->sq[0], .dw0 = dw0 };

		if (e->masked_types & bit) {
			i++;
			continue;
		}
		e->masked_types |= bit;
		c.sqe.opcode = NVME_ADM_ASYNC_EVENT;
		c.sqe.cid = le16_put(e->aer_cid[--e->nr_aer]);
		e->nr_events--;
		memmove(&e->events[i], &e->events[i + 1], (e->nr_events - i) * sizeof(e->events[0]));
		emu_complete(a, &c);
	}
}

uint16_t emu_aer(struct emu_actor *a, uint16_t cid, bool *ret_silent)
{
	struct emu_ctrl *e = a->e;

	pthread_mutex_lock(&e->aer_lock);
	if (e->nr_aer > e->p.aerl) {
		pthread_mutex_unlock(&e->aer_lock);
		return AER_LIMIT;
	}
	e->aer_cid[e->nr_aer++] = cid;
	*ret_silent = true;
	deliver(a);
	pthread_mutex_unlock(&e->aer_lock);
	return 0;
}

bool emu_aer_abort(struct emu_ctrl *e, uint16_t cid)
{
	bool found = false;

	pthread_mutex_lock(&e->aer_lock);
	for (uint32_t i = 0; i < e->nr_aer && !found; i++) {
		found = e->aer_cid[i] == cid;
		if (found)
			e->aer_cid[i] = e->aer_cid[--e->nr_aer];
	}
	pthread_mutex_unlock(&e->aer_lock);
	return found;
}

void emu_aer_unmask(struct emu_actor *a, uint32_t type)
{
	struct emu_ctrl *e = a->e;

	pthread_mutex_lock(&e->aer_lock);
	e->masked_types &= ~(1u << type);
	deliver(a);
	pthread_mutex_unlock(&e->aer_lock);
}

void emu_aer_reset(struct emu_ctrl *e)
{
	pthread_mutex_lock(&e->aer_lock);
	e->nr_aer = 0;
	e->nr_events = 0;
	e->masked_types = 0;
	pthread_mutex_unlock(&e->aer_lock);
	atomic_store(&e->event_bits, 0);
}

int emu_event_from(struct emu_actor *a, uint32_t dw0, uint32_t namespaces)
{
	struct emu_ctrl *e = a->e;
	int rc = -ENOSPC;

	pthread_mutex_lock(&e->aer_lock);
	if (NVME_AER_TYPE(dw0) == NVME_AER_NOTICE && NVME_AER_INFO(dw0) == NVME_AER_NOTICE_NS)
		e->ns_changed |= namespaces;
	/* a full queue drops the newest: the host has older ones to look at first */
	if (e->nr_events < EMU_EVENTS) {
		e->events[e->nr_events++] = dw0;
		rc = 0;
	}
	deliver(a);
	pthread_mutex_unlock(&e->aer_lock);
	emu_signal(a);
	return rc;
}

void emu_raise_event_bits(struct emu_actor *a)
{
	uint32_t bits = atomic_exchange_explicit(&a->e->event_bits, 0, memory_order_acquire);

	for (uint32_t info = 0; bits >> info; info++)
		if (bits >> info & 1)
			emu_event_from(a, NVME_AER_ERROR | info << 8 | (uint32_t)NVME_LOG_ERROR << 16, 0);
}

int emu_event(struct emu_ctrl *e, uint32_t dw0)
{
	/* posting to the admin queue needs no host memory but its ring, so this actor holds nothing */
	struct emu_actor a = { .e = e };

	return emu_event_from(&a, dw0, UINT32_MAX);
}
