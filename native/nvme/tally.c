/* SPDX-License-Identifier: MIT */
#include "nvme/tally.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "nvme/qpair_ops.h"
#include "nvme/trace.h"

#define PAGE 4096u
#define ROWS_SHARED 32 /* beside the one that each pair has for certain, */
#define ROWS_EACH 4 /* and these for each pair, whoever takes them */

static void lay_out(struct tally_head *h, uint32_t n)
{
	memcpy(h->magic, TALLY_MAGIC, sizeof(h->magic));
	h->version = TALLY_VERSION;
	h->head_bytes = sizeof(*h);
	h->pid = (uint32_t)getpid();
	h->nr_pairs = n;
	h->opened_ns = (uint64_t)now_ns();
	h->pair_off = PAGE;
	h->pair_bytes = sizeof(struct tally_pair);
	h->row_off = (uint32_t)align_up(h->pair_off + (uint64_t)n * h->pair_bytes, CACHELINE);
	h->row_bytes = sizeof(struct tally_row);
	h->max_rows = n + ROWS_SHARED + n * ROWS_EACH;
	h->event_off = (uint32_t)align_up(h->row_off + (uint64_t)h->max_rows * h->row_bytes, PAGE);
	h->event_bytes = sizeof(struct trace_event);
	h->nr_events = TRACE_EVENTS;
	h->nbytes = h->event_off + (uint64_t)TRACE_EVENTS * h->event_bytes;
	atomic_init(&h->nr_rows, n);
}

/* A file system that writes back would stop whoever stores just then. Room is taken now: what is not there when it is
 * written kills the process. */
static int take_room(int fd, uint64_t nbytes)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return -errno;
	if (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC)
		return -EMEDIUMTYPE;
	return -posix_fallocate(fd, 0, (off_t)nbytes);
}

static void *map(struct nvme_tallies *all, uint64_t nbytes, int fd)
{
	void *p = MAP_FAILED;

	all->file_err = fd < 0 ? -EBADF : take_room(fd, nbytes);
	if (!all->file_err) {
		p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		all->file_err = p == MAP_FAILED ? -errno : 0;
		all->in_file = !all->file_err;
	}
	if (p == MAP_FAILED) /* pages that no row needs are never there */
		p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p;
}

int nvme_tallies_new(uint32_t n, int fd, struct nvme_tallies **ret)
{
	struct nvme_tallies *all = calloc(1, sizeof(*all));
	struct tally_head plan = { 0 };
	void *p = MAP_FAILED;

	lay_out(&plan, n);
	if (all)
		all->tally = calloc(n, sizeof(*all->tally));
	if (all && all->tally)
		p = map(all, plan.nbytes, fd);
	if (p == MAP_FAILED) {
		if (all)
			free(all->tally);
		free(all);
		return -ENOMEM;
	}
	madvise(p, plan.nbytes, MADV_DONTFORK);
	all->nbytes = plan.nbytes;
	all->max_rows = plan.max_rows;
	all->head = p;
	memcpy(all->head, &plan, sizeof(plan));
	all->pairs = (void *)((char *)p + plan.pair_off);
	all->rows = (void *)((char *)p + plan.row_off);
	all->events = (void *)((char *)p + plan.event_off);
	*ret = all;
	return 0;
}

void nvme_tallies_free(struct nvme_tallies *all)
{
	if (!all)
		return;
	munmap(all->head, all->nbytes);
	free(all->tally);
	free(all);
}

static void name_row(struct tally_row *row, uint16_t qid, uint32_t cls, uint32_t opcode, uint32_t size)
{
	row->qid = qid;
	row->cls = (uint8_t)cls;
	row->opcode = (uint8_t)opcode;
	row->size = (uint8_t)size;
	/* release: a reader that finds it in use finds whose it is */
	atomic_store_explicit(&row->used, 1, memory_order_release);
}

struct nvme_tally *nvme_tally_of(struct nvme_tallies *all, uint32_t i, const struct nvme_qpair_conf *conf)
{
	struct nvme_tally *t = &all->tally[i];

	t->all = all;
	t->pair = &all->pairs[i];
	t->until = &all->head->watch[0][0];
	t->pair->qid = conf->qid;
	t->pair->vector = conf->vector;
	t->pair->kind = conf->kind;
	t->pair->qprio = conf->qprio;
	t->pair->depth = conf->depth;
	name_row(&all->rows[i], conf->qid, TALLY_ANY, TALLY_ANY, TALLY_ANY);
	return t;
}

/* Rows are never given back: a combination that came once comes again. */
static struct tally_row *take_row(struct nvme_tallies *all)
{
	uint32_t at = atomic_load_explicit(&all->head->nr_rows, memory_order_relaxed);

	while (at < all->max_rows)
		if (atomic_compare_exchange_weak_explicit(&all->head->nr_rows, &at, at + 1,
							  memory_order_relaxed, memory_order_relaxed))
			return &all->rows[at];
	return NULL;
}

struct tally_row *nvme_tally_row(struct nvme_tally *t, uint32_t cls, uint32_t opcode, uint32_t size)
{
	struct tally_row *row = take_row(t->all);

	if (row)
		name_row(row, t->pair->qid, cls, opcode, size);
	else
		row = &t->all->rows[t - t->all->tally];
	t->row[cls][opcode][size] = row;
	return row;
}

size_t nvme_tallies_copy(const struct nvme_tallies *all, void *to, size_t max)
{
	const _Atomic uint64_t *from = (const void *)all->head;
	uint32_t rows = atomic_load_explicit(&all->head->nr_rows, memory_order_acquire);
	size_t nbytes = (size_t)((char *)&all->rows[min_u32(rows, all->max_rows)] - (char *)all->head);
	uint64_t *out = to;

	for (size_t i = 0; i < min_u64(nbytes, max) / sizeof(*out); i++)
		out[i] = atomic_load_explicit(&from[i], memory_order_acquire);
	return nbytes;
}

void nvme_tallies_events(const struct nvme_tallies *all, uint64_t *out)
{
	const _Atomic uint64_t *from = (const void *)all->events;

	for (size_t i = 0; i < TRACE_EVENTS * sizeof(struct trace_event) / sizeof(*out); i++)
		out[i] = atomic_load_explicit(&from[i], memory_order_acquire);
}
