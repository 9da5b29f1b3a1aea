/* SPDX-License-Identifier: MIT */
/* A read of the disk waits for the one that it goes on from, and for no other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emu/backing.h"
#include "emu_host.h"

#define MIB (1ull << 20)
#define NR 8u

struct reader {
	struct emu_ns *ns;
	uint64_t off;
	_Atomic bool there; /* it is about to ask */
	_Atomic bool given; /* whoever was before it has said so */
	bool waited;
	bool turn;
};

static char path[256];

static void *reader_main(void *arg)
{
	struct reader *r = arg;

	atomic_store(&r->there, true);
	r->turn = emu_turn_take(r->ns, r->off, MIB);
	r->waited = atomic_load(&r->given);
	if (r->turn)
		emu_turn_give(r->ns);
	return NULL;
}

/* Who asks for @off while the turn is another's: a while later that one gives it back, with @cached in the cache. */
static struct reader behind(struct emu_ns *ns, uint64_t off, bool cached)
{
	const struct timespec while_ = { .tv_nsec = 50000000 };
	struct reader r = { .ns = ns, .off = off };
	uint8_t *bytes = malloc(MIB);
	pthread_t t;

	must(!pthread_create(&t, NULL, reader_main, &r), "a thread");
	while (!atomic_load(&r.there))
		sched_yield();
	nanosleep(&while_, NULL); /* one that does not wait is through by now */
	if (cached)
		must(pread(ns->fd, bytes, MIB, (off_t)off) == MIB, "it comes into the cache");
	atomic_store(&r.given, true);
	emu_turn_give(ns);
	pthread_join(t, NULL);
	free(bytes);
	return r;
}

static void make_cold(const struct emu_ns *ns)
{
	must(!fdatasync(ns->fd), "on the disk");
	must(!posix_fadvise(ns->fd, 0, 0, POSIX_FADV_DONTNEED), "out of the cache");
	must(!posix_fadvise(ns->fd, 0, 0, POSIX_FADV_RANDOM), "no reading ahead"); /* here only */
}

/* Whether the kernel tells what is cached, and this file system has a disk behind it. */
static bool is_told(const struct emu_ns *ns)
{
	uint64_t range[2] = { 0, MIB }, has[5] = { 1 };

	return ns->ahead && !syscall(451, ns->fd, range, has, 0) && !has[0];
}

static void turns(struct emu_ns *ns)
{
	uint8_t *bytes = malloc(MIB);
	struct reader r;

	ok(emu_turn_take(ns, 0, MIB), "nobody reads: it takes the turn");
	ok(!emu_turn_take(ns, 4 * MIB, MIB), "who reads elsewhere does not wait for it");
	ok(!emu_turn_take(ns, 0, EMU_TURN_LEAST / 2), "nor a small read");
	r = behind(ns, 5 * MIB + 4096, false);
	ok(r.waited && r.turn,
	   "who goes on from the last one, but for a header, waits, and has the turn then");

	ok(emu_turn_take(ns, 6 * MIB, MIB), "a long read");
	must(pread(ns->fd, bytes, EMU_TURN_LEAST, 7 * MIB) == (ssize_t)EMU_TURN_LEAST, "in the cache");
	ok(!emu_turn_take(ns, 7 * MIB, EMU_TURN_LEAST),
	   "a short one that goes on there, in the cache, does not wait");
	emu_turn_give(ns);

	ok(emu_turn_take(ns, 0, MIB), "again");
	r = behind(ns, 1 * MIB, true);
	ok(r.waited && r.turn, "what came into the cache meanwhile keeps its place, too");
	ok(emu_turn_take(ns, 2 * MIB, MIB), "and the turn is free");
	ok(!emu_turn_take(ns, 1 * MIB, MIB), "what is cached waits for nobody");
	must(pread(ns->fd, bytes, MIB, 2 * MIB) == MIB, "in the cache");
	ok(!emu_turn_take(ns, 2 * MIB, MIB), "nor does what goes on from there");
	emu_turn_give(ns);
	free(bytes);
}

int main(void)
{
	struct emu_params p = host_params();
	struct emu_ns ns;
	uint8_t *bytes = malloc(NR * MIB);
	char err[512] = "";
	int fd;

	host_temp(path, sizeof(path), "turn");
	fd = mkstemp(path);
	fill_pattern(bytes, NR * MIB, 3);
	must(fd >= 0 && write(fd, bytes, NR * MIB) == NR * MIB, "a file");
	close(fd);
	p.path = path;
	p.ns[0].nbytes = 0;
	is(emu_backing_open(&p, 0, &ns, err, sizeof(err)), 0, "opened %s", err);
	make_cold(&ns);
	if (is_told(&ns))
		turns(&ns);
	else
		ok(!emu_turn_take(&ns, 0, MIB), "where the kernel does not tell, nobody waits");
	emu_backing_close(&ns);
	unlink(path);
	free(bytes);
	return done_testing();
}
