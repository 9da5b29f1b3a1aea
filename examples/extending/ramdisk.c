/* SPDX-License-Identifier: MIT */
/*
 * An NVMe controller over memory, behind a transport of its own: about the least that a controller can be. Registers,
 * an admin queue, up to 15 I/O queue pairs, PRP lists, one interrupt vector; a thread that serves all of it when a
 * doorbell was written. Bus addresses are addresses: it is in the process whose memory it reads. What it lacks is
 * answered as a controller does that lacks it, and the engine goes on without.
 *
 * NVMe Base 2.0: registers 3.1.3, queues 3.3, commands 3.3.3, PRPs 4.1.1, admin commands 5, I/O commands in the NVM set.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ugds_transport.h"

#define PAGE 4096u
#define LBA 4096u
#define QUEUES 16u /* pairs, with the admin queue */
#define BINDS 64u

enum { CAP = 0x00, VS = 0x08, CC = 0x14, CSTS = 0x1c, AQA = 0x24, ASQ = 0x28, ACQ = 0x30 };
enum {
	OK = 0x000,
	INVALID_OPCODE = 0x001,
	INVALID_FIELD = 0x002,
	LBA_RANGE = 0x080,
	INVALID_QID = 0x101,
	WRITE_FAULT = 0x280
};
#define FUA (1u << 30)
#define DNR 0x4000u

struct sqe {
	uint8_t opcode, flags;
	uint16_t cid;
	uint32_t nsid, cdw2[2];
	uint64_t mptr, prp1, prp2;
	uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};

struct cqe {
	uint32_t dw0, dw1;
	uint16_t sq_head, sq_id, cid;
	_Atomic uint16_t status; /* and the phase tag: written last */
};

struct queue {
	struct sqe *sq;
	struct cqe *cq;
	uint32_t sq_size, cq_size, head, tail;
	bool phase, irq;
};

struct ramdisk {
	struct ugds_transport face;
	_Atomic uint32_t *doorbells; /* a page: submission tail and completion head of each pair */
	uint64_t cap, asq, acq;
	uint32_t cc, csts, aqa;
	struct queue q[QUEUES];
	uint8_t *media;
	uint64_t blocks;
	pthread_mutex_t lock; /* of all above but the doorbells, held while commands are served */
	pthread_mutex_t bind_lock;
	int bound[BINDS]; /* eventfds, plus one; 0: free */
	int wake;
	_Atomic bool end;
	pthread_t thread;
};

static void interrupt(struct ramdisk *r)
{
	uint64_t one = 1;

	pthread_mutex_lock(&r->bind_lock);
	for (uint32_t i = 0; i < BINDS; i++)
		if (r->bound[i] && write(r->bound[i] - 1, &one, sizeof(one)) < 0)
			continue; /* its counter is full: it will wake up all the same */
	pthread_mutex_unlock(&r->bind_lock);
}

/* Copy between media and the pages that PRP entries name. A list is one page: larger commands are more than MDTS. */
static void move(const struct sqe *c, uint8_t *at, uint32_t nbytes, bool to_host)
{
	const uint64_t *list = (const uint64_t *)c->prp2;
	uint32_t first = PAGE - (uint32_t)(c->prp1 & (PAGE - 1)), i = 0;
	bool listed = nbytes > first && nbytes - first > PAGE;

	for (uint32_t done = 0, part = first; done < nbytes; done += part, part = PAGE) {
		uint8_t *host = (uint8_t *)(!done ? c->prp1 : listed ? list[i++] : c->prp2);

		if (part > nbytes - done)
			part = nbytes - done;
		memcpy(to_host ? host : at + done, to_host ? at + done : host, part);
	}
}

static void text(uint8_t *to, const char *from, size_t room)
{
	memset(to, ' ', room);
	memcpy(to, from, strlen(from));
}

static uint32_t identify(struct ramdisk *r, const struct sqe *c)
{
	uint8_t page[PAGE] = { 0 };

	switch (c->cdw10 & 0xff) {
	case 0: /* namespace 1 */
		if (c->nsid != 1)
			return INVALID_FIELD | DNR;
		memcpy(page, &r->blocks, 8); /* NSZE, NCAP, NUSE */
		memcpy(page + 8, &r->blocks, 8);
		memcpy(page + 16, &r->blocks, 8);
		page[128 + 2] = 12; /* LBAF0: blocks of 4096 bytes */
		break;
	case 1: /* controller */
		text(page + 4, "RAMDISK1", 20);
		text(page + 24, "aiougds example ramdisk", 40);
		text(page + 64, "1", 8);
		page[77] = 8; /* MDTS: 1 MiB */
		memcpy(page + 80, &(uint32_t){ 0x20000 }, 4); /* VER */
		page[512] = 0x66; /* SQES, CQES: 64 and 16 bytes */
		page[513] = 0x44;
		page[516] = 1; /* NN */
		page[525] = 1; /* VWC: what was written is in the page cache until a Flush */
		break;
	case 2: /* active namespaces */
		page[0] = c->nsid < 1;
		break;
	default:
		return INVALID_FIELD | DNR;
	}
	move(c, page, PAGE, true);
	return OK;
}

static uint32_t admin(struct ramdisk *r, const struct sqe *c, uint32_t *dw0)
{
	uint32_t qid = c->cdw10 & 0xffff, size = (c->cdw10 >> 16) + 1;
	struct queue *q = &r->q[qid % QUEUES];

	switch (c->opcode) {
	case 0x06:
		return identify(r, c);
	case 0x09: /* Set and Get Features: Number of Queues, and no others */
	case 0x0a:
		if ((c->cdw10 & 0xff) == 7)
			*dw0 = (QUEUES - 2) | (QUEUES - 2) << 16;
		return (c->cdw10 & 0xff) == 7 ? OK : INVALID_FIELD | DNR;
	case 0x05: /* Create I/O Completion Queue */
		if (!qid || qid >= QUEUES)
			return INVALID_QID | DNR;
		q->cq = (struct cqe *)c->prp1;
		q->cq_size = size;
		q->tail = 0;
		q->phase = true;
		q->irq = c->cdw11 & 2;
		return OK;
	case 0x01: /* Create I/O Submission Queue: each has the completion queue of its number */
		if (!qid || qid >= QUEUES || !q->cq || c->cdw11 >> 16 != qid)
			return INVALID_QID | DNR;
		q->sq = (struct sqe *)c->prp1;
		q->sq_size = size;
		q->head = 0;
		return OK;
	case 0x00: /* Delete I/O Submission Queue, Completion Queue */
		q->sq = NULL;
		return OK;
	case 0x04:
		q->cq = NULL;
		return OK;
	case 0x08: /* Abort: what was begun here is over when the next is looked at */
		*dw0 = 1;
		return OK;
	default:
		return INVALID_OPCODE | DNR;
	}
}

static uint32_t io(struct ramdisk *r, const struct sqe *c)
{
	uint64_t slba = c->cdw10 | (uint64_t)c->cdw11 << 32, nlb = (c->cdw12 & 0xffff) + 1;

	switch (c->opcode) {
	case 0x00: /* Flush */
		return msync(r->media, r->blocks * LBA, MS_SYNC) ? WRITE_FAULT : OK;
	case 0x01:
	case 0x02:
		if (slba >= r->blocks || nlb > r->blocks - slba)
			return LBA_RANGE | DNR;
		move(c, r->media + slba * LBA, (uint32_t)nlb * LBA, c->opcode == 0x02);
		if (c->opcode == 0x01 && c->cdw12 & FUA && msync(r->media + slba * LBA, nlb * LBA, MS_SYNC))
			return WRITE_FAULT;
		return OK;
	default:
		return INVALID_OPCODE | DNR;
	}
}

static bool serve(struct ramdisk *r, uint32_t qid)
{
	struct queue *q = &r->q[qid];
	bool interrupts = false;

	while (q->sq && q->cq) {
		/* acquire: the commands are there before their doorbell */
		uint32_t tail = atomic_load_explicit(&r->doorbells[2 * qid], memory_order_acquire);
		uint32_t cq_head = atomic_load_explicit(&r->doorbells[2 * qid + 1], memory_order_acquire);
		struct cqe *out = &q->cq[q->tail];
		struct sqe c;
		uint32_t status, dw0 = 0;

		if (q->head == tail || (q->tail + 1) % q->cq_size == cq_head)
			break;
		c = q->sq[q->head];
		q->head = (q->head + 1) % q->sq_size;
		if (!qid && c.opcode == 0x0c)
			continue; /* Asynchronous Event Request: answered when there is an event, and there is none */
		status = qid ? io(r, &c) : admin(r, &c, &dw0);
		out->dw0 = dw0;
		out->sq_head = (uint16_t)q->head;
		out->sq_id = (uint16_t)qid;
		out->cid = c.cid;
		/* release: data and completion are there before the phase tag */
		atomic_store_explicit(&out->status, (uint16_t)(status << 1 | q->phase), memory_order_release);
		q->tail = (q->tail + 1) % q->cq_size;
		if (!q->tail)
			q->phase = !q->phase;
		interrupts |= !qid || q->irq;
	}
	return interrupts;
}

static void *run(void *arg)
{
	struct ramdisk *r = arg;
	uint64_t count;

	while (!atomic_load(&r->end)) {
		bool interrupts = false;

		/* A doorbell without a kick, which the engine may leave out while it looks itself, is found soon. */
		poll(&(struct pollfd){ .fd = r->wake, .events = POLLIN }, 1, 5);
		if (read(r->wake, &count, sizeof(count)) < 0)
			count = 0;
		pthread_mutex_lock(&r->lock);
		if (r->csts & 1)
			for (uint32_t i = 0; i < QUEUES; i++)
				interrupts |= serve(r, i);
		pthread_mutex_unlock(&r->lock);
		if (interrupts)
			interrupt(r);
	}
	return NULL;
}

static uint64_t read64(void *t, uint32_t off)
{
	struct ramdisk *r = t;
	uint64_t value;

	pthread_mutex_lock(&r->lock);
	value = off == CAP    ? r->cap
		: off == VS   ? 0x20000
		: off == CC   ? r->cc
		: off == CSTS ? r->csts
		: off == AQA  ? r->aqa
		: off == ASQ  ? r->asq
		: off == ACQ  ? r->acq
			      : 0;
	pthread_mutex_unlock(&r->lock);
	return value;
}

static uint32_t read32(void *t, uint32_t off)
{
	return (uint32_t)(off == CAP + 4 ? read64(t, CAP) >> 32 : read64(t, off));
}

static void enable(struct ramdisk *r)
{
	r->q[0] = (struct queue){
		.sq = (struct sqe *)r->asq,
		.cq = (struct cqe *)r->acq,
		.sq_size = (r->aqa & 0xfff) + 1,
		.cq_size = (r->aqa >> 16 & 0xfff) + 1,
		.phase = true,
	};
	r->csts = 1;
}

static void disable(struct ramdisk *r)
{
	memset(r->q, 0, sizeof(r->q));
	for (uint32_t i = 0; i < 2 * QUEUES; i++)
		atomic_store(&r->doorbells[i], 0);
	r->csts = 0;
}

static void write64(void *t, uint32_t off, uint64_t val)
{
	struct ramdisk *r = t;

	pthread_mutex_lock(&r->lock);
	if (off == AQA)
		r->aqa = (uint32_t)val;
	else if (off == ASQ)
		r->asq = val;
	else if (off == ACQ)
		r->acq = val;
	else if (off == CC) {
		bool was = r->cc & 1;

		r->cc = (uint32_t)val;
		if (!was && val & 1)
			enable(r);
		else if (was && !(val & 1))
			disable(r);
		if (val >> 14 & 3) /* SHN: the shutdown is over at once */
			r->csts |= 2u << 2;
	}
	pthread_mutex_unlock(&r->lock);
}

static void write32(void *t, uint32_t off, uint32_t val) { write64(t, off, val); }

static int64_t map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct ugds_extent *out, size_t max,
		   uint64_t *ret_handle)
{
	uint64_t first = (uintptr_t)vaddr & ~(uint64_t)(PAGE - 1);
	uint64_t end = ((uintptr_t)vaddr + nbytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);

	(void)t, (void)flags, (void)max;
	*out = (struct ugds_extent){ .iova = first, .nbytes = end - first };
	*ret_handle = first;
	return 1;
}

/* What is served is served under the lock: nothing is being copied when it was had. */
static int wait_for_it(struct ramdisk *r)
{
	pthread_mutex_lock(&r->lock);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static int unmap(void *t, uint64_t handle)
{
	(void)handle;
	return wait_for_it(t);
}

static int bind(void *t, uint32_t vector, int fd, uint64_t *ret_binding)
{
	struct ramdisk *r = t;
	int rc = -ENOSPC;

	(void)vector; /* there is one */
	pthread_mutex_lock(&r->bind_lock);
	for (uint32_t i = 0; i < BINDS && rc; i++)
		if (!r->bound[i]) {
			r->bound[i] = fd + 1;
			*ret_binding = i;
			rc = 0;
		}
	pthread_mutex_unlock(&r->bind_lock);
	return rc;
}

static int unbind(void *t, uint64_t binding)
{
	struct ramdisk *r = t;

	pthread_mutex_lock(&r->bind_lock);
	r->bound[binding] = 0;
	pthread_mutex_unlock(&r->bind_lock);
	return 0;
}

static void kick(void *t, uint32_t qid)
{
	uint64_t one = 1;

	(void)qid;
	if (write(((struct ramdisk *)t)->wake, &one, sizeof(one)) < 0)
		return; /* full: it is awake */
}

static int stop_dma(void *t)
{
	struct ramdisk *r = t;

	pthread_mutex_lock(&r->lock);
	memset(r->q, 0, sizeof(r->q));
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static int start_dma(void *t)
{
	(void)t;
	return 0;
}

static void fork_child(void *t) { close(((struct ramdisk *)t)->wake); }

static void end(void *t)
{
	struct ramdisk *r = t;

	atomic_store(&r->end, true);
	kick(r, 0);
	pthread_join(r->thread, NULL);
	close(r->wake);
	munmap(r->doorbells, PAGE);
	munmap(r->media, r->blocks * LBA);
	free(r);
}

/* Of fresh memory, or of what lies in the file of @fd. NULL: it could not be made. */
struct ugds_transport *ramdisk_new(uint64_t nbytes, int fd)
{
	struct ramdisk *r = calloc(1, sizeof(*r));
	const int prot = PROT_READ | PROT_WRITE, fresh = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	if (!r)
		return NULL;
	r->cap = 255 /* MQES */ | 1u << 16 /* CQR */ | 4u << 24 /* TO: 2 s */ | 1ull << 37 /* CSS: NVM */;
	r->blocks = nbytes / LBA;
	r->media = mmap(NULL, r->blocks * LBA, prot, fd < 0 ? fresh : MAP_SHARED, fd, 0);
	r->doorbells = mmap(NULL, PAGE, prot, fresh, -1, 0);
	r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->bind_lock, NULL);
	r->face = (struct ugds_transport){
		.abi = UGDS_TRANSPORT_ABI,
		.flags = UGDS_TRANSPORT_MAP_FAST,
		.name = "ramdisk",
		.t = r,
		.doorbells = r->doorbells,
		.doorbell_bytes = QUEUES * 8,
		.vectors = 1,
		.read32 = read32,
		.read64 = read64,
		.write32 = write32,
		.write64 = write64,
		.map = map,
		.unmap = unmap,
		.bind = bind,
		.unbind = unbind,
		.kick = kick,
		.stop_dma = stop_dma,
		.start_dma = start_dma,
		.fork_child = fork_child,
		.close = end,
	};
	if (r->media == MAP_FAILED || r->doorbells == MAP_FAILED || r->wake < 0 ||
	    pthread_create(&r->thread, NULL, run, r)) {
		if (r->media != MAP_FAILED)
			munmap(r->media, r->blocks * LBA);
		if ((void *)r->doorbells != MAP_FAILED)
			munmap(r->doorbells, PAGE);
		if (r->wake >= 0)
			close(r->wake);
		free(r);
		return NULL;
	}
	return &r->face;
}
