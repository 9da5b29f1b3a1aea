/* SPDX-License-Identifier: MIT */
/*
 * 4 KiB direct reads through the kernel's own driver: "preadv" one after another, or "uring" at a depth of 32. Prints
 * nanoseconds for one read, in the best of seven rounds. Usage: kernel_reads preadv|uring DEVICE READS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BYTES 4096u
#define AREA (16u << 20) /* as large as the memory that ours is measured with */
#define DEPTH 32u
#define ROUNDS 7

static int fd;
static uint8_t *mem;

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static off_t place(unsigned i) { return (off_t)(i % (AREA / BYTES)) * BYTES; }

static void by_preadv(unsigned reads)
{
	for (unsigned i = 0; i < reads; i++) {
		struct iovec iov = { .iov_base = mem, .iov_len = BYTES };

		if (preadv(fd, &iov, 1, place(i)) != BYTES)
			die("preadv");
	}
}

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static void *mapped(size_t nbytes, off_t at)
{
	void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, at);

	if (p == MAP_FAILED)
		die("mmap of the ring");
	return p;
}

static void make_ring(void)
{
	struct io_uring_params p = { 0 };
	uint8_t *sq, *cq;

	ring.fd = (int)syscall(SYS_io_uring_setup, DEPTH, &p);
	if (ring.fd < 0)
		die("io_uring_setup");
	sq = mapped(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
	cq = mapped(p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
	ring.sqes = mapped(p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	ring.sq_tail = (void *)(sq + p.sq_off.tail);
	ring.sq_mask = (void *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (void *)(sq + p.sq_off.array);
	ring.cq_head = (void *)(cq + p.cq_off.head);
	ring.cq_tail = (void *)(cq + p.cq_off.tail);
	ring.cq_mask = (void *)(cq + p.cq_off.ring_mask);
	ring.cqes = (void *)(cq + p.cq_off.cqes);
}

static void put(unsigned i, unsigned slot)
{
	unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;

	ring.sqes[at] = (struct io_uring_sqe){
		.opcode = IORING_OP_READ,
		.fd = fd,
		.off = (uint64_t)place(i),
		.addr = (uint64_t)(uintptr_t)(mem + slot * BYTES),
		.len = BYTES,
		.user_data = slot,
	};
	ring.sq_array[at] = at;
	/* the kernel sees the entry before the tail */
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void by_uring(unsigned reads)
{
	unsigned sent = 0, done = 0, fresh = 0;

	for (; sent < DEPTH && sent < reads; sent++, fresh++)
		put(sent, sent);
	while (done < reads) {
		unsigned head = *ring.cq_head;

		if (syscall(SYS_io_uring_enter, ring.fd, fresh, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			die("io_uring_enter");
		fresh = 0;
		for (; head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE); head++, done++) {
			struct io_uring_cqe *c = &ring.cqes[head & *ring.cq_mask];

			if (c->res != BYTES) {
				fprintf(stderr, "read: %s\n", strerror(-c->res));
				exit(1);
			}
			if (sent < reads) {
				put(sent++, (unsigned)c->user_data);
				fresh++;
			}
		}
		__atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	unsigned reads = argc == 4 ? (unsigned)atoi(argv[3]) : 0;
	bool uring = argc == 4 && !strcmp(argv[1], "uring");
	double best = 0;

	if (!reads)
		return 2;
	fd = open(argv[2], O_RDONLY | O_DIRECT);
	if (fd < 0)
		die(argv[2]);
	mem = aligned_alloc(BYTES, DEPTH * BYTES);
	memset(mem, 0, DEPTH * BYTES);
	if (uring)
		make_ring();
	for (int r = 0; r < ROUNDS; r++) {
		int64_t start = now();
		double took;

		uring ? by_uring(reads) : by_preadv(reads);
		took = (double)(now() - start) / reads;
		best = r && best < took ? best : took;
	}
	printf("%.1f\n", best);
	return 0;
}
