/* SPDX-License-Identifier: MIT */
/*
 * Processes that die of SIGKILL while the device writes to their memory. Usage: kill_load NODE ROUNDS SEED
 *
 * Whoever outlives them takes over their pages: those of a pool that they register, and those that the kernel
 * hands out again. Filled with a canary as soon as a process is seen to have ended, they stay as they are.
 * The next process opens the device at once, also while a child of the killed one holds its file.
 * /proc/sys/vm/nr_hugepages: at least 4, for half of the pools.
 */
#include "kmod.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ugds.h"

#define REGION (2u << 20)
#define WATCHED 4u /* rounds that a region keeps its canary */
#define PRIVATE (1u << 20)
#define FREED (4u << 20) /* taken from the kernel after a process: its private pages are likely among them */
#define SINGLES 16u
#define SINGLE (64u << 10)
#define BATCH 64u
#define BLOCK 4096u
#define DISK (8u << 20) /* of the namespace is read */
#define BUSY_US 6000u /* a process is killed at random in that time of its load, */
#define EARLY_US 40000u /* or since its birth */

static const char *node;

/* ---- the process that is killed ---- */

struct load {
	struct ugds_ctrl *ctrl;
	struct ugds_ns *ns;
	uint64_t map; /* of region, and of private memory */
	uint64_t own_map;
	uint8_t *region;
	int ready;
	pid_t sleeper;
};

static void must(int64_t rc, const char *what)
{
	if (rc >= 0)
		return;
	printf("%s: %s\n", what, strerror((int)-rc));
	fflush(stdout);
	_exit(1);
}

static uint64_t somewhere(unsigned int *seed, uint32_t nbytes)
{
	return (uint64_t)rand_r(seed) % (DISK / nbytes) * nbytes;
}

/* What was read comes from where it was read. */
static void is_from(const uint8_t *data, uint64_t offset)
{
	uint64_t sector;

	memcpy(&sector, data, sizeof(sector));
	if (sector != offset / 512) {
		printf("sector %" PRIu64 " has the mark of %" PRIu64 "\n", offset / 512, sector);
		fflush(stdout);
		_exit(1);
	}
}

static void *batches(void *arg)
{
	const struct load *l = arg;
	unsigned int seed = (unsigned int)getpid();
	struct ugds_completion done[BATCH];
	struct ugds_batch *b;
	struct ugds_chan *ch;
	int64_t offsets[BATCH];
	uint32_t i, bad, turn = 0;

	must(ugds_chan_open(l->ctrl, UGDS_MODE_INTERRUPT, &ch), "channel");
	must(ugds_batch_new(ch, BATCH, &b), "batch");
	for (;; turn++) {
		for (i = 0; i < BATCH; i++)
			offsets[i] = (int64_t)somewhere(&seed, BLOCK);
		must(ugds_batch_submit_array(b, l->ns, UGDS_OP_READ, turn % 2 ? l->map : l->own_map, offsets,
					     NULL, BLOCK, BATCH, 0, &bad),
		     "submit");
		while (!ugds_batch_notify(b, BATCH))
			must(ugds_wait(ch, done, BATCH, 5000000000), "wait");
		must(ugds_batch_harvest(b, done, BATCH), "harvest");
		for (i = 0; i < BATCH; i++)
			must(done[i].result, "read of a batch");
	}
	return NULL;
}

static void singles(const struct load *l)
{
	unsigned int seed = (unsigned int)getpid() + 1;
	uint64_t offsets[SINGLES], tokens[SINGLES];
	struct ugds_completion done[SINGLES];
	bool idle[SINGLES], told = false;
	struct ugds_chan *ch;
	int i, k, n;

	must(ugds_chan_open(l->ctrl, UGDS_MODE_INTERRUPT, &ch), "channel");
	memset(idle, true, sizeof(idle));
	for (;;) {
		for (i = 0; i < (int)SINGLES; i++) {
			int64_t rc = idle[i] ? UGDS_PENDING : 0;

			if (!rc)
				continue;
			offsets[i] = somewhere(&seed, SINGLE);
			rc = ugds_rw(ch, l->ns, l->map, REGION / 2 + (uint64_t)i * SINGLE, SINGLE, offsets[i],
				     UGDS_OP_READ | UGDS_F_NOSPIN);
			must(rc, "read");
			idle[i] = rc < UGDS_PENDING;
			tokens[i] = (uint64_t)rc - UGDS_PENDING;
		}
		n = ugds_wait(ch, done, SINGLES, 5000000000);
		must(n, "wait");
		for (k = 0; k < n; k++)
			for (i = 0; i < (int)SINGLES; i++)
				if (!idle[i] && tokens[i] == done[k].token) {
					must(done[k].result, "read");
					is_from(l->region + REGION / 2 + (uint64_t)i * SINGLE, offsets[i]);
					idle[i] = true;
				}
		if (n && !told)
			must(write(l->ready, &l->sleeper, sizeof(l->sleeper)) - 1, "ready");
		told |= n > 0;
	}
}

/* Has the file, and its address space no share in the load. */
static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	must(pid, "fork");
	return pid;
}

static struct ugds_ctrl *opened(void)
{
	struct ugds_open_params p = {
		.io_queues = 4,
		.batch_queues = 1,
		.depth = 64,
		.batch_depth = 512,
		.max_transfer = 1u << 20,
		.qprio = 2,
		.arb_burst = 7,
		.hang_io_ns = 30000000000,
		.hang_admin_ns = 60000000000,
		.cancel_grace_ns = 1000000000,
	};
	struct ugds_error error;
	struct ugds_ctrl *ctrl;
	int err = ugds_open_kmod(node, &p, &ctrl, &error);

	if (err)
		printf("%s\n", error.text);
	must(err, "open");
	return ctrl;
}

static _Noreturn void under_load(uint8_t *region, int ready, bool with_sleeper)
{
	struct load l = { .region = region, .ready = ready };
	struct ugds_error error;
	pthread_t thread;

	l.ctrl = opened();
	must(ugds_ns_open(l.ctrl, 1, 0, 0, 0, &l.ns, &error), "namespace");
	must(ugds_map(l.ctrl, region, REGION, 0, &l.map), "map");
	must(ugds_map(l.ctrl, memory(PRIVATE), PRIVATE, 0, &l.own_map), "map");
	if (with_sleeper)
		l.sleeper = sleeper();
	must(-pthread_create(&thread, NULL, batches, &l), "thread");
	singles(&l);
	_exit(1);
}

/* ---- the one that outlives it ---- */

struct watched {
	uint8_t *at;
	size_t nbytes;
	uint64_t canary; /* 0: none is there */
	unsigned int round;
};

static uint8_t *pool(unsigned int flags)
{
	int fd = memfd_create("pool", MFD_CLOEXEC | flags);
	uint8_t *at;

	REQUIRE(fd >= 0 && ftruncate(fd, WATCHED / 2 * REGION) == 0);
	at = map_at(fd, 0, WATCHED / 2 * REGION);
	REQUIRE(at != MAP_FAILED);
	close(fd);
	return at;
}

static void guard(struct watched *w, unsigned int round)
{
	uint64_t *word = (uint64_t *)(void *)w->at;

	w->round = round;
	w->canary = 0xc0ffee00c0ffee00 + round;
	for (size_t i = 0; i < w->nbytes / 8; i++)
		word[i] = w->canary;
}

static void look(const struct watched *w, unsigned int round)
{
	const uint64_t *word = (const uint64_t *)(const void *)w->at;

	for (size_t i = 0; w->canary && i < w->nbytes / 8; i++)
		if (word[i] != w->canary) {
			printf("round %u: byte %zu of what a process had in round %u is %" PRIx64 "\n", round,
			       i * 8, w->round, word[i]);
			failures++;
			return;
		}
}

static long mappings(void)
{
	FILE *file = fopen("/sys/module/ugds_drv/parameters/mappings", "re");
	long n = -1;

	REQUIRE(file && fscanf(file, "%ld", &n) == 1);
	fclose(file);
	return n;
}

static void reap_sleeper(pid_t *pid)
{
	if (*pid > 0) {
		EXPECT(kill(*pid, SIGKILL), 0);
		EXPECT(waitpid(*pid, NULL, 0), *pid);
	}
	*pid = 0;
}

/* Returns the child that the process left behind, if it left one. */
static pid_t kill_one(uint8_t *region, unsigned int round)
{
	bool early = round % 4 == 3;
	pid_t pid, left = 0;
	int ready[2], status;

	REQUIRE(pipe(ready) == 0);
	fflush(stdout);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		close(ready[0]);
		under_load(region, ready[1], round % 2 == 0);
	}
	close(ready[1]);
	if (!early)
		EXPECT(read(ready[0], &left, sizeof(left)), sizeof(left));
	usleep((unsigned int)rand() % (early ? EARLY_US : BUSY_US));
	EXPECT(kill(pid, SIGKILL), 0);
	EXPECT(waitpid(pid, &status, 0), pid);
	EXPECT(WIFSIGNALED(status) ? WTERMSIG(status) : -status, SIGKILL);
	close(ready[0]);
	return left;
}

int main(int argc, char **argv)
{
	struct watched regions[WATCHED] = { 0 }, freed[2] = { 0 };
	unsigned int round, rounds, i;
	pid_t left = 0, next;
	uint8_t *pools[2];

	REQUIRE(argc == 4);
	node = argv[1];
	rounds = (unsigned int)strtoul(argv[2], NULL, 10);
	srand((unsigned int)strtoul(argv[3], NULL, 10));
	REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pools[0] = pool(0);
	pools[1] = pool(MFD_HUGETLB);
	for (i = 0; i < WATCHED; i++) {
		regions[i].at = pools[i % 2] + (size_t)(i / 2) * REGION;
		regions[i].nbytes = REGION;
	}
	for (round = 0; round < rounds && !failures; round++) {
		struct watched *region = &regions[round % WATCHED], *pages = &freed[round % 2];

		look(region, round);
		if (pages->at) {
			look(pages, round);
			munmap(pages->at, FREED);
		}
		next = kill_one(region->at, round);
		guard(region, round);
		*pages = (struct watched){ .at = memory(FREED), .nbytes = FREED };
		guard(pages, round);
		EXPECT(mappings(), 0);
		reap_sleeper(&left); /* it has outlived the opener after its own */
		left = next;
		for (i = 0; i < WATCHED; i++)
			look(&regions[i], round);
	}
	reap_sleeper(&left);
	usleep(20000);
	for (i = 0; i < WATCHED; i++)
		look(&regions[i], round);
	look(&freed[0], round);
	look(&freed[1], round);
	printf("%u rounds\n", round);
	return finish("killed under load");
}
