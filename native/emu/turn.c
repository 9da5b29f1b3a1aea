/* SPDX-License-Identifier: MIT */
/*
 * Reads that go on where the last one ended, of what is not in the page cache. The kernel reads ahead of a reader who goes
 * forward, ever more and in ever larger folios; what a second thread asks for a piece further on it reads in single pages,
 * each an entry of what the disk is given. So such reads go one at a time, in order, from the first that is not cached until
 * one is of somewhere else; short ones as soon as what they want is on its way. Reads of anywhere never wait, nor do those that find all of it in the cache from the start.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#include "emu/backing.h"
#include "support/util.h"

#define SYS_CACHESTAT 451 /* Linux 6.5; of x86, ARM and most others */
#define TURN_GAP (8u << 10) /* left out: a header */
#define TURN_LONG (256u << 10) /* of less, handing over takes as long as the copy */

struct range {
	uint64_t off, nbytes;
};

struct cached {
	uint64_t pages, dirty, writeback, evicted, recently;
};

/* Whether some of it would have to be asked for. What is being read counts as cached. Where the kernel does not tell: no. */
static bool is_cold(const struct emu_ns *ns, uint64_t off, uint64_t nbytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct range range = { off, nbytes };
	struct cached has;

	if (syscall(SYS_CACHESTAT, ns->fd, &range, &has, 0))
		return false;
	return has.pages < (off + nbytes + page - 1) / page - off / page;
}

bool emu_turn_take(struct emu_ns *ns, uint64_t off, uint64_t nbytes)
{
	bool follows, cold;
	uint64_t last;

	if (!ns->ahead || nbytes < EMU_TURN_LEAST)
		return false;
	last = atomic_exchange_explicit(&ns->read_end, off + nbytes, memory_order_relaxed);
	follows = off >= last && off - last <= TURN_GAP;
	cold = is_cold(ns, off, nbytes);
	if (cold || !follows)
		atomic_store_explicit(&ns->cold_run, cold, memory_order_relaxed);
	/* behind a cold one, what counts as cached may be on its way only */
	if (!cold && (nbytes < TURN_LONG || !atomic_load_explicit(&ns->cold_run, memory_order_relaxed)))
		return false;
	if (!pthread_mutex_trylock(&ns->turn))
		return true;
	if (!follows)
		return false;
	pthread_mutex_lock(&ns->turn);
	if (nbytes >= TURN_LONG || is_cold(ns, off, nbytes))
		return true;
	pthread_mutex_unlock(&ns->turn);
	return false;
}

void emu_turn_give(struct emu_ns *ns) { pthread_mutex_unlock(&ns->turn); }
