/* SPDX-License-Identifier: MIT */
/*
 * Calls of /dev/ugds_drvN at random, most of them nearly right, from two threads. What may be wrong shows in
 * the kernel's log, in a hang, or in what is left when the file is closed.
 * Usage: fuzz_ioctl NODE SECONDS SEED [compat]
 *
 * compat: by the entry of 32-bit callers, int 0x80, which a 64-bit process may use too. All that is
 * pointed to lies below 4 GiB for it.
 */
#include "kmod.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#define THREADS 2
#define KEPT 64
#define ARENA_PAGES 256u

static const char *node;
static bool compat;
static volatile int device = -1;
static uint8_t *arena; /* memory to map, and to point into; its last page is not there */
static int events[4], not_event;
static uint64_t tokens[KEPT], bindings[KEPT], offsets[KEPT];
static unsigned long calls, successes;

struct dice {
	uint64_t state;
};

static uint32_t roll(struct dice *d, uint32_t sides)
{
	d->state = d->state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(d->state >> 33) % sides;
}

static uint64_t any(struct dice *d)
{
	static const uint64_t edges[] = {
		0,	    1,		2,
		3,	    7,		8,
		511,	    512,	4095,
		4096,	    4097,	65535,
		65536,	    1u << 22,	(1u << 22) + 1,
		0x7fffffff, 0x80000000, 0xffffffff,
		1ull << 32, 1ull << 40, (1ull << 40) + 1,
		1ull << 47, 1ull << 62, ~0ull - 4095,
		~0ull - 1,  ~0ull,
	};

	if (roll(d, 3))
		return edges[roll(d, sizeof(edges) / sizeof(edges[0]))];
	return (uint64_t)roll(d, ~0u) << 33 ^ roll(d, ~0u);
}

/* Mostly what is asked for, at times anything. */
static uint64_t mostly(struct dice *d, uint64_t wanted) { return roll(d, 12) ? wanted : any(d); }

static uint64_t place(struct dice *d)
{
	return (uintptr_t)arena + roll(d, ARENA_PAGES + 8) * PAGE + (roll(d, 2) ? roll(d, PAGE) : 0);
}

static int32_t some_fd(struct dice *d)
{
	switch (roll(d, 8)) {
	case 0:
		return -1;
	case 1:
		return device;
	case 2:
		return not_event;
	case 3:
		return (int32_t)any(d);
	default:
		return events[roll(d, 4)];
	}
}

static long enter(unsigned long cmd, void *arg)
{
	long ret;

	if (!compat)
		return ioctl(device, cmd, arg) ? -errno : 0;
	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(54L), "b"((long)device), "c"((long)(uint32_t)cmd), "d"(arg)
			 : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

/* A structure with a size that is right, wrong, or longer with or without zeros behind it. */
static long send(struct dice *d, unsigned long cmd, void *arg, size_t size)
{
	uint8_t *at = arena + roll(d, ARENA_PAGES / 2) * PAGE + PAGE - 256 + (roll(d, 8) ? 0 : roll(d, 256));
	uint32_t argsz = (uint32_t)size;
	long ret;

	if (!roll(d, 16))
		argsz = (uint32_t)any(d);
	else if (!roll(d, 8))
		argsz += 8 * roll(d, 4);
	memcpy(arg, &argsz, sizeof(argsz));
	memcpy(at, arg, size);
	if (!roll(d, 40))
		at = (uint8_t *)(uintptr_t)(compat ? (uint32_t)any(d) : any(d));
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	ret = enter(cmd, at);
	if (ret == 0) {
		__atomic_fetch_add(&successes, 1, __ATOMIC_RELAXED);
		memcpy(arg, at, size);
	}
	return ret;
}

#define SEND(d, cmd, arg) send(d, cmd, &(arg), sizeof(arg))

static void try_map(struct dice *d)
{
	struct ugds_drv_map map = {
		.flags = (uint32_t)mostly(d, 1 + roll(d, 3)),
		.kind = (uint32_t)mostly(d, roll(d, 8) ? UGDS_DRV_MAP_HOST : roll(d, 4)),
		.fd = roll(d, 12) ? -1 : some_fd(d),
		.vaddr = mostly(d, place(d)),
		.offset = roll(d, 12) ? 0 : any(d),
		.nbytes = mostly(d, 1 + roll(d, 16 * PAGE)),
		.extents = mostly(d, roll(d, 2) ? place(d) : 0),
		.nr_extents = (uint32_t)mostly(d, roll(d, 20)),
	};

	if (SEND(d, UGDS_DRV_MAP, map) == 0)
		tokens[roll(d, KEPT)] = map.ret_token;
}

static void try_extents(struct dice *d)
{
	struct ugds_drv_extents extents = {
		.flags = roll(d, 12) == 0,
		.token = mostly(d, tokens[roll(d, KEPT)]),
		.first = (uint32_t)mostly(d, roll(d, 4)),
		.nr_extents = (uint32_t)mostly(d, roll(d, 20)),
		.extents = mostly(d, place(d)),
	};

	SEND(d, UGDS_DRV_EXTENTS, extents);
}

static void try_unmap(struct dice *d)
{
	struct ugds_drv_unmap unmap = { .flags = roll(d, 12) == 0,
					.token = mostly(d, tokens[roll(d, KEPT)]) };

	SEND(d, UGDS_DRV_UNMAP, unmap);
}

static void try_queue(struct dice *d)
{
	struct ugds_drv_queue_alloc alloc = { .flags = roll(d, 12) == 0,
					      .nbytes = mostly(d, 1 + roll(d, 64 * PAGE)) };
	uint32_t slot = roll(d, KEPT);

	if (SEND(d, UGDS_DRV_QUEUE_ALLOC, alloc) == 0) {
		tokens[slot] = alloc.ret_token;
		offsets[slot] = alloc.ret_offset;
	}
}

static void try_bind(struct dice *d)
{
	struct ugds_drv_irq_bind bind = {
		.flags = roll(d, 12) == 0,
		.vector = (uint32_t)mostly(d, roll(d, 8)),
		.fd = some_fd(d),
		.word = (uint32_t)mostly(d, roll(d, 2) ? UGDS_DRV_NO_WORD : roll(d, 8)),
		.reserved = roll(d, 12) == 0,
	};

	if (SEND(d, UGDS_DRV_IRQ_BIND, bind) == 0)
		bindings[roll(d, KEPT)] = bind.ret_binding;
}

static void try_unbind(struct dice *d)
{
	struct ugds_drv_irq_unbind unbind = { .flags = roll(d, 12) == 0,
					      .binding = mostly(d, bindings[roll(d, KEPT)]) };

	SEND(d, UGDS_DRV_IRQ_UNBIND, unbind);
}

static void try_state(struct dice *d)
{
	struct ugds_drv_state state = { .flags = roll(d, 12) == 0, .event_fd = some_fd(d) };

	SEND(d, UGDS_DRV_STATE, state);
}

static void try_reset(struct dice *d)
{
	struct ugds_drv_reset reset = { .flags = roll(d, 12) == 0,
					.how = (uint32_t)mostly(d, roll(d, 200) ? roll(d, 3) : 3),
					.reserved = roll(d, 12) == 0 };

	SEND(d, UGDS_DRV_RESET, reset);
}

static void try_topology(struct dice *d)
{
	struct ugds_drv_topology topology = {
		.peer_valid = roll(d, 2),
		.peer_domain = (uint32_t)mostly(d, 0),
		.peer_bus = (uint16_t)mostly(d, 0),
		.peer_devfn = (uint16_t)mostly(d, roll(d, 256)),
	};

	SEND(d, UGDS_DRV_TOPOLOGY, topology);
}

static void try_noise(struct dice *d)
{
	uint64_t noise[16];
	size_t i;

	for (i = 0; i < 16; i++)
		noise[i] = any(d);
	if (roll(d, 2))
		SEND(d, _IO(UGDS_DRV_IOC, roll(d, 16)), noise);
	else
		SEND(d, (uint32_t)any(d), noise);
}

static void try_mmap(struct dice *d)
{
	uint64_t offset = mostly(d, roll(d, 2) ? offsets[roll(d, KEPT)]
					       : (roll(d, 2) ? UGDS_DRV_MMAP_ARMED : roll(d, 8) * PAGE));
	size_t nbytes = (1 + roll(d, 8)) * PAGE;
	volatile uint8_t *at = map_at(device, offset & ~(uint64_t)(PAGE - 1), nbytes);

	if (at == MAP_FAILED)
		return;
	__atomic_fetch_add(&successes, 1, __ATOMIC_RELAXED);
	(void)at[roll(d, (uint32_t)nbytes)];
	if (roll(d, 2) && nbytes > PAGE) {
		/* In parts, each once: the other thread may have what has become free. */
		munmap((void *)(uintptr_t)(at + PAGE), nbytes - PAGE);
		nbytes = PAGE;
		(void)at[0];
	}
	munmap((void *)(uintptr_t)at, nbytes);
}

/* The arena comes and goes below the mappings. */
static void stir(struct dice *d)
{
	uint8_t *at = arena + roll(d, ARENA_PAGES / 4) * 4 * PAGE;
	pid_t child;

	switch (roll(d, 3)) {
	case 0:
		madvise(at, 4 * PAGE, MADV_DONTNEED);
		break;
	case 1:
		if (roll(d, 50))
			break;
		child = fork();
		if (child == 0) {
			try_map(d);
			try_state(d);
			_exit(0);
		}
		if (child > 0)
			waitpid(child, NULL, 0);
		break;
	default:
		memset(at, (int)roll(d, 256), PAGE);
	}
}

static void *fuzz(void *arg)
{
	static void (*const tries[])(struct dice *d) = {
		try_map,    try_map,   try_map,	  try_unmap,	try_unmap, try_extents, try_queue, try_bind,
		try_unbind, try_state, try_reset, try_topology, try_noise, try_mmap,	stir,
	};
	struct dice *d = arg;
	int i;

	for (i = 0; i < 2000; i++)
		tries[roll(d, sizeof(tries) / sizeof(tries[0]))](d);
	return NULL;
}

static void make_arena(void)
{
	arena = mmap(NULL, (ARENA_PAGES + 1) * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	REQUIRE(arena != MAP_FAILED);
	munmap(arena + ARENA_PAGES * PAGE, PAGE);
}

int main(int argc, char **argv)
{
	struct dice dice[THREADS];
	pthread_t threads[THREADS];
	time_t until;
	int i, rounds = 0;

	REQUIRE(argc >= 4);
	node = argv[1];
	compat = argc > 4 && !strcmp(argv[4], "compat");
	until = time(NULL) + atoi(argv[2]);
	for (i = 0; i < THREADS; i++)
		dice[i].state = strtoull(argv[3], NULL, 0) * 7919 + (unsigned int)i;
	make_arena();
	not_event = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (i = 0; i < 4; i++)
		events[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	do {
		device = open_node(node);
		for (i = 0; i < THREADS; i++)
			REQUIRE(!pthread_create(&threads[i], NULL, fuzz, &dice[i]));
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		close(device);
		rounds++;
	} while (time(NULL) < until);
	device = open_node(node);
	EXPECT(state_of(device).ret_nr_mappings, 0);
	EXPECT(state_of(device).ret_pinned_bytes, 0);
	EXPECT(successes * 10 > calls, 1); /* it gets behind the first checks */
	printf("seed %s, %d rounds, %lu calls, %lu did something\n", argv[3], rounds, calls, successes);
	return finish(compat ? "fuzz compat" : "fuzz");
}
