/* SPDX-License-Identifier: MIT */
/*
 * Ends of an open /dev/ugds_drvN that the opener did not choose. Usage: kmod_life NODE SUBJECT
 *
 * killed: 20 openers die of SIGKILL under load, each leaving a child with the file open.
 * shared: a process that got the file by fork, while the opener lives.
 * exec: the opener runs another program.
 * removed: prints READY, and expects the function to go away within 30 s.
 * interrupted: prints READY, and expects that the function is reset within 30 s.
 * hold: binds vector 1, prints READY, holds the file until its input ends.
 */
#include "kmod.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static const char *node;
static const char *self;

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static int info_error(int fd)
{
	struct ugds_drv_info info = { .argsz = sizeof(info) };

	return call(fd, UGDS_DRV_INFO, &info);
}

/* The file of an opener that has ended is of no use to whoever else has it. */
static void is_dead(int fd, int error)
{
	struct ugds_drv_state state = { .argsz = sizeof(state), .event_fd = -1 };

	EXPECT(info_error(fd), error);
	EXPECT(call(fd, UGDS_DRV_STATE, &state), error);
	EXPECT(reset(fd, UGDS_DRV_RESET_START_DMA), error);
	EXPECT(map_at(fd, 0, PAGE) == MAP_FAILED, 1);
	EXPECT(-errno, error);
}

/* ---- killed ---- */

#define SHARED_PAGES 64

struct scene {
	uint8_t *shared; /* what the opener maps for the device; everyone sees it */
	int ready[2]; /* the opener is at work */
	int dead[2]; /* closed: the opener has ended; its child may look */
	int verdict[2]; /* of that child */
};

/* Inherits the file and sleeps while the opener dies. */
static void leftover(const struct scene *s, int fd)
{
	char c;

	close(s->dead[1]);
	if (read(s->dead[0], &c, 1) < 0)
		_exit(1);
	is_dead(fd, -EOWNERDEAD);
	c = (char)failures;
	_exit(write(s->verdict[1], &c, 1) != 1);
}

static void opener(const struct scene *s)
{
	int fd = open_node(node);
	struct ugds_drv_extent extents[SHARED_PAGES];
	struct ugds_drv_map map = host(s->shared, SHARED_PAGES * PAGE);
	uint64_t sq, cq;
	struct nvme n = nvme_start(fd, &sq, &cq);

	map.extents = (uintptr_t)extents;
	map.nr_extents = SHARED_PAGES;
	REQUIRE(call(fd, UGDS_DRV_MAP, &map) == 0);
	if (fork() == 0)
		leftover(s, fd);
	REQUIRE(identify(&n, extents[0].iova) == 0);
	REQUIRE(write(s->ready[1], "", 1) == 1);
	for (;;) {
		submit(&n, 0x06, extents[0].iova, 1);
		submit(&n, 0x06, extents[0].iova, 1);
		REQUIRE(reap(&n) == 0);
		REQUIRE(reap(&n) == 0);
	}
}

/* What the device wrote to is written by nobody after the opener was seen to end. */
static void kill_one(unsigned int delay_us)
{
	struct scene s;
	int memory = memfd_create("scene", MFD_CLOEXEC), fd, status;
	size_t i;
	pid_t pid;
	char c;

	REQUIRE(memory >= 0 && ftruncate(memory, SHARED_PAGES * PAGE) == 0);
	s.shared = map_at(memory, 0, SHARED_PAGES * PAGE);
	REQUIRE(s.shared != MAP_FAILED);
	REQUIRE(!pipe(s.ready) && !pipe(s.dead) && !pipe(s.verdict));
	fflush(stdout);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0)
		opener(&s);
	REQUIRE(read(s.ready[0], &c, 1) == 1);
	usleep(delay_us);
	EXPECT(kill(pid, SIGKILL), 0);
	EXPECT(waitpid(pid, &status, 0), pid);
	EXPECT(WIFSIGNALED(status), 1);

	memset(s.shared, 0x5c, SHARED_PAGES * PAGE);
	fd = open_node(node);
	EXPECT(state_of(fd).ret_state, 0);
	EXPECT(state_of(fd).ret_nr_mappings, 0);
	close(s.dead[1]);
	REQUIRE(read(s.verdict[0], &c, 1) == 1);
	EXPECT(c, 0);
	EXPECT(info_error(fd), 0);
	usleep(5000);
	for (i = 0; i < SHARED_PAGES * PAGE && s.shared[i] == 0x5c; i++)
		;
	EXPECT(i, SHARED_PAGES * PAGE);
	close(fd);
	munmap(s.shared, SHARED_PAGES * PAGE);
	close(memory);
	for (i = 0; i < 2; i++) {
		close(s.ready[i]);
		close(s.verdict[i]);
	}
	close(s.dead[0]);
}

static void killed(void)
{
	unsigned int seed = (unsigned int)time(NULL), i;

	printf("seed %u\n", seed);
	srand(seed);
	for (i = 0; i < 20; i++)
		kill_one((unsigned int)rand() % 20000);
}

/* ---- shared, exec ---- */

static void shared(void)
{
	int fd = open_node(node), status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		is_dead(fd, -EPERM);
		EXPECT(open(node, O_RDWR), -1);
		EXPECT(errno, EBUSY);
		exit(failures != 0);
	}
	EXPECT(waitpid(pid, &status, 0), pid);
	EXPECT(status, 0);
	EXPECT(info_error(fd), 0);
	close(fd);
}

static void before_exec(void)
{
	int fd = open(node, O_RDWR);
	uint64_t sq, cq;
	char number[16];

	REQUIRE(fd >= 0);
	nvme_start(fd, &sq, &cq);
	snprintf(number, sizeof(number), "%d", fd);
	execl(self, self, node, "after-exec", number, NULL);
	REQUIRE(!"exec");
}

static void after_exec(int fd)
{
	is_dead(fd, -EOWNERDEAD);
	fd = open_node(node);
	EXPECT(info_error(fd), 0);
	close(fd);
}

/* ---- removed ---- */

static void removed(void)
{
	int fd = open_node(node), event = eventfd(0, EFD_CLOEXEC), irq = eventfd(0, EFD_CLOEXEC);
	struct ugds_drv_info info = info_of(fd);
	struct ugds_drv_state watch = { .argsz = sizeof(watch), .event_fd = event };
	struct ugds_drv_irq_bind bind = {
		.argsz = sizeof(bind), .vector = info.nr_vectors - 1, .fd = irq, .word = 7
	};
	volatile uint32_t *words = map_at(fd, UGDS_DRV_MMAP_ARMED, PAGE);
	struct ugds_drv_map map = host(memory(64 * PAGE), 64 * PAGE);
	struct pollfd wait = { .fd = event, .events = POLLIN };
	uint64_t sq, cq;
	struct nvme n = nvme_start(fd, &sq, &cq);
	volatile uint8_t *untouched = map_at(fd, 0, PAGE);

	REQUIRE(words != MAP_FAILED && untouched != MAP_FAILED);
	REQUIRE(call(fd, UGDS_DRV_MAP, &map) == 0);
	REQUIRE(call(fd, UGDS_DRV_IRQ_BIND, &bind) == 0);
	n.sq[100] = 0x77;
	EXPECT(call(fd, UGDS_DRV_STATE, &watch), 0);
	EXPECT(watch.ret_state, UGDS_DRV_STATE_DMA);
	say("READY");
	do
		REQUIRE(poll(&wait, 1, 30000) == 1 && woken(event));
	while (!(state_of(fd).ret_state & UGDS_DRV_STATE_REMOVED));

	EXPECT(state_of(fd).ret_state, UGDS_DRV_STATE_REMOVED);
	EXPECT(woken(irq), 1);
	EXPECT(get32(&n, 0x1c), 0xffffffff);
	set32(&n, 0x1000 + 0x1c, 5); /* a doorbell changes no register */
	set32(&n, 0x1000, 3);
	EXPECT(get32(&n, 0x1c), 0xffffffff);
	EXPECT(*(volatile uint32_t *)(untouched + 0x1c), 0xffffffff);
	EXPECT(n.sq[100], 0x77);
	n.sq[101] = 1;
	words[0] = 1;
	EXPECT(info_error(fd), -ENODEV);
	EXPECT(unmap(fd, map.ret_token), -ENODEV);
	EXPECT(reset(fd, UGDS_DRV_RESET_FUNCTION), -ENODEV);
	EXPECT(map_at(fd, 0, PAGE) == MAP_FAILED, 1);
	EXPECT(errno, ENODEV);
	EXPECT(state_of(fd).ret_nr_mappings, 0);
	close(fd);
	EXPECT(get32(&n, 0x1c), 0xffffffff);
	EXPECT(n.sq[100], 0x77);
}

/* ---- reset by somebody else ---- */

static void interrupted(void)
{
	int fd = open_node(node), event = eventfd(0, EFD_CLOEXEC), irq = eventfd(0, EFD_CLOEXEC);
	struct ugds_drv_state watch = { .argsz = sizeof(watch), .event_fd = event };
	struct ugds_drv_irq_bind bind = { .argsz = sizeof(bind), .fd = irq, .word = 7 };
	struct ugds_drv_map map = host(memory(PAGE), PAGE), other = host(memory(PAGE), PAGE);
	struct pollfd wait = { .fd = event, .events = POLLIN };
	struct ugds_drv_extent extent;
	uint64_t sq, cq;
	struct nvme n = nvme_start(fd, &sq, &cq);

	map.extents = (uintptr_t)&extent;
	map.nr_extents = 1;
	REQUIRE(call(fd, UGDS_DRV_MAP, &map) == 0);
	REQUIRE(call(fd, UGDS_DRV_IRQ_BIND, &bind) == 0);
	REQUIRE(call(fd, UGDS_DRV_STATE, &watch) == 0);
	say("READY");
	REQUIRE(poll(&wait, 1, 30000) == 1 && woken(event));
	EXPECT(woken(irq), 1);
	EXPECT(state_of(fd).ret_state, UGDS_DRV_STATE_REVOKED);
	EXPECT(state_of(fd).ret_nr_revoked, 0);
	EXPECT(call(fd, UGDS_DRV_MAP, &other), -EIO);
	EXPECT(info_error(fd), -EIO);
	EXPECT(reset(fd, UGDS_DRV_RESET_START_DMA), -EIO);
	EXPECT(reset(fd, UGDS_DRV_RESET_DISABLE), 0);
	EXPECT(state_of(fd).ret_state, 0);
	nvme_enable(&n, sq, cq);
	EXPECT(identify(&n, extent.iova), 0);
	EXPECT(unmap(fd, map.ret_token), 0);
	close(fd);
}

static void hold(void)
{
	struct ugds_drv_irq_bind bind = { .argsz = sizeof(bind), .vector = 1, .word = UGDS_DRV_NO_WORD };
	int fd = open_node(node);
	char c;

	bind.fd = eventfd(0, EFD_CLOEXEC);
	REQUIRE(call(fd, UGDS_DRV_IRQ_BIND, &bind) == 0);
	say("READY");
	if (read(0, &c, 1) < 0)
		exit(1);
	close(fd);
}

int main(int argc, char **argv)
{
	const char *subject;

	REQUIRE(argc >= 3);
	self = argv[0];
	node = argv[1];
	subject = argv[2];
	if (!strcmp(subject, "killed"))
		killed();
	else if (!strcmp(subject, "shared"))
		shared();
	else if (!strcmp(subject, "exec"))
		before_exec();
	else if (!strcmp(subject, "after-exec") && argc == 4)
		after_exec(atoi(argv[3]));
	else if (!strcmp(subject, "removed"))
		removed();
	else if (!strcmp(subject, "interrupted"))
		interrupted();
	else if (!strcmp(subject, "hold"))
		hold();
	else
		return 2;
	return finish(subject);
}
