/* SPDX-License-Identifier: MIT */
/* The latency model: fixed + per KiB + jitter, on so many channels, each first come first served. */
#include "emu/internal.h"

int64_t emu_latency_due(struct emu_ctrl *e, const struct nvme_sqe *s)
{
	const struct emu_params *p = &e->p;
	uint64_t took = p->latency_ns + p->latency_per_kib_ns * ((emu_io_bytes(e, s) + 1023) / 1024);
	int64_t now = now_ns(), start = now, due;
	uint32_t best = 0;

	pthread_mutex_lock(&e->wait_lock);
	if (p->jitter_ns)
		took += emu_rand(&e->rng) % (p->jitter_ns + 1);
	for (uint32_t i = 1; i < p->channels; i++)
		if (e->channel_free[i] < e->channel_free[best])
			best = i;
	if (p->channels && e->channel_free[best] > start)
		start = e->channel_free[best];
	due = start + (int64_t)took;
	if (p->channels)
		e->channel_free[best] = due;
	pthread_mutex_unlock(&e->wait_lock);
	return due;
}
