/* SPDX-License-Identifier: MIT */
/*
 * What housekeeping writes beside the tallies for readers of the file: the counters that are not a queue pair's, at most
 * as old as its last look. A reader takes them whole (a sequence lock), or tries again.
 */
#include <time.h>

#include "nvme/chan.h"
#include "nvme/trace.h"

static uint64_t cpu_of(pthread_t thread)
{
	struct timespec ts;
	clockid_t clock;

	if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void add(struct nvme_lane_stats *sum, struct tally_told *t, struct nvme_lane *l)
{
	nvme_lane_stats_add(sum, &l->told);
	t->inflight += atomic_load_explicit(&l->inflight, memory_order_relaxed);
	t->queued += atomic_load_explicit(&l->queued, memory_order_relaxed);
}

/* One writer; the words are atomic, so that a torn look is only an old one. */
static void publish(struct tally_head *h, const struct tally_told *t, uint32_t state)
{
	const uint64_t *from = (const uint64_t *)t;
	uint32_t seq = atomic_load_explicit(&h->told_seq, memory_order_relaxed);

	atomic_store_explicit(&h->told_seq, seq + 1, memory_order_relaxed);
	/* release: the words are stored after the number became odd, */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&h->state, state, memory_order_relaxed);
	for (size_t i = 0; i < sizeof(*t) / sizeof(*from); i++)
		atomic_store_explicit(&h->told[i], from[i], memory_order_relaxed);
	/* and before it is even again */
	atomic_store_explicit(&h->told_seq, seq + 2, memory_order_release);
}

void nvme_tallies_tell(struct nvme_ctrl *c, int64_t now)
{
	struct nvme_lane_stats sum = { 0 };
	struct tally_told t = { .stamp_ns = (uint64_t)now };

	if (c->tallies)
		nvme_trace_expire(c->tallies, now);
	if (!c->tallies || !c->tallies->in_file)
		return;
	pthread_mutex_lock(&c->stray_lock);
	nvme_lane_stats_add(&sum, c->gone);
	pthread_mutex_unlock(&c->stray_lock);
	for (struct nvme_chan *ch = c->chans; ch; ch = ch->next)
		add(&sum, &t, &ch->own);
	if (c->exec) {
		add(&sum, &t, &c->exec->lane);
		t.executor_ns = cpu_of(c->exec->poller->thread);
	}
	for (uint32_t i = 0; i + 1 < c->nr_qpairs; i++)
		t.free_pairs += !atomic_load_explicit(&c->q[i].lane, memory_order_relaxed);
	t.reads = sum.reads;
	t.writes = sum.writes;
	t.others = sum.others;
	t.read_bytes = sum.read_bytes;
	t.write_bytes = sum.write_bytes;
	t.errors = sum.errors;
	t.retries = sum.retries;
	t.commands = sum.commands;
	t.doorbells = sum.doorbells;
	t.inline_done = sum.inline_done;
	t.wakeups = sum.wakeups;
	t.unknown_cids = sum.unknown_cids;
	t.stragglers = atomic_load_explicit(&c->nr_stragglers, memory_order_relaxed);
	t.timeouts = atomic_load_explicit(&c->nr_timeouts, memory_order_relaxed);
	t.cancels = atomic_load_explicit(&c->nr_cancels, memory_order_relaxed);
	t.aborts = atomic_load_explicit(&c->nr_aborts, memory_order_relaxed);
	t.resets = atomic_load_explicit(&c->nr_resets, memory_order_relaxed);
	t.dropped = atomic_load_explicit(&c->nr_dropped, memory_order_relaxed);
	t.adopted = atomic_load_explicit(&c->nr_adopted, memory_order_relaxed);
	t.mappings = atomic_load_explicit(&c->mem.nr_live, memory_order_relaxed);
	t.channels = c->nr_chans;
	t.quarantined = atomic_load_explicit(&c->nr_quarantined, memory_order_relaxed);
	t.housekeeping_ns = cpu_of(pthread_self());
	publish(c->tallies->head, &t, atomic_load_explicit(&c->state, memory_order_relaxed));
}
