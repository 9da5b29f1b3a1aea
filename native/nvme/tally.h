/* SPDX-License-Identifier: MIT */
/*
 * What each queue pair has done: commands, bytes, failures and a latency histogram for every combination of class,
 * opcode and size that it met. One writer at a time, whoever holds the pair's lane; anybody reads, word by word, also
 * from another process when the memory is a file (docs/how-to/observability.md has the layout). Nothing here stops I/O.
 *
 * The cost of a run of commands that are alike: two lines of this core's own, the row's head and one bucket.
 */
#ifndef NVME_TALLY_H
#define NVME_TALLY_H

#include <stdatomic.h>

#include "spec/nvme.h"
#include "support/util.h"

#define TALLY_MAGIC "UGDSTALY"
#define TALLY_VERSION 1
#define TALLY_CLASSES 4
#define TALLY_OPCODES 16
#define TALLY_SIZES 12 /* up to 4 KiB, 8 KiB and so on; the last one: any more */
#define TALLY_ANY 0xff /* a row for all that found no row of its own */

/* Buckets: steps of 16 ns up to 512 ns, then 16 to an octave (6 % wide) up to 2^37 ns; the last one: any more. */
#define TALLY_UNIT_SHIFT 4
#define TALLY_SUB_SHIFT 4
#define TALLY_BUCKETS 480

struct tally_row {
	_Atomic uint32_t used; /* set last, with release */
	uint16_t qid;
	uint8_t cls, opcode, size; /* TALLY_ANY */
	uint8_t pad[7];
	_Atomic uint64_t commands, bytes, failed, sum_ns, max_ns, reserved;
	_Atomic uint64_t bucket[TALLY_BUCKETS];
};

struct tally_pair {
	uint16_t qid, vector;
	uint8_t kind, qprio;
	_Atomic uint16_t together; /* completions that may share an interrupt; 0: none do */
	uint32_t depth;
	uint32_t pad2;
	uint64_t reserved[6];
	_Atomic uint64_t
		sent; /* commands; less the rows' commands and what was forgotten: those at the device */
	_Atomic uint64_t forgotten; /* by a reset or a removal */
	uint64_t reserved2[6];
};

/* The beginning of the memory. Where things lie is said here, so that a reader needs the version alone. */
struct tally_head {
	char magic[8];
	uint32_t version, head_bytes;
	uint32_t pid, nr_pairs;
	uint64_t started; /* the process, as /proc/PID/stat says (clock ticks since boot) */
	uint64_t opened_ns; /* CLOCK_MONOTONIC */
	uint64_t nbytes;
	uint32_t pair_off, pair_bytes;
	uint32_t row_off, row_bytes;
	uint32_t max_rows;
	_Atomic uint32_t nr_rows; /* handed out; each is there once it is used */
	uint32_t event_off, event_bytes, nr_events, pad;
	uint64_t reserved[21];
	/* lines for those who watch: until when commands are traced (ns), and how many events there were */
	_Atomic uint64_t watch[2][8];
	uint64_t reserved2[16];
	/* at 512 */
	_Atomic uint32_t told_seq; /* odd: being written */
	_Atomic uint32_t state; /* enum nvme_state */
	_Atomic uint64_t told[63]; /* struct tally_told */
	/* at 1024: a JSON object that says what it is, to the end of the page */
};

/* What is told of a whole controller. */
struct tally_told {
	uint64_t stamp_ns, reads, writes, others, read_bytes, write_bytes, errors, retries, commands,
		doorbells, inline_done, wakeups, unknown_cids, stragglers, timeouts, cancels, aborts, resets,
		dropped, adopted, inflight, queued, mappings, channels, quarantined, free_pairs, executor_ns,
		housekeeping_ns;
};

static_assert(sizeof(struct tally_row) == 64 + 8 * TALLY_BUCKETS, "a head of one line, then the buckets");
static_assert(sizeof(struct tally_pair) == 128, "what is written often has a line of its own");
static_assert(offsetof(struct tally_head, watch) == 256 && offsetof(struct tally_head, told_seq) == 512 &&
		      sizeof(struct tally_head) == 1024 && sizeof(struct tally_told) <= 63 * 8,
	      "part of the layout");

struct nvme_tallies;
struct trace_event;

/* Of one queue pair: its own list of where its rows are. */
struct nvme_tally {
	struct nvme_tallies *all;
	struct tally_pair *pair;
	const _Atomic uint64_t *until; /* commands are traced */
	struct tally_row *row[TALLY_CLASSES][TALLY_OPCODES][16]; /* by size; NULL: none yet */
};

struct nvme_tallies {
	struct tally_head *head;
	struct tally_pair *pairs;
	struct tally_row *rows;
	struct trace_event *events;
	struct nvme_tally *tally; /* one a pair */
	size_t nbytes;
	uint32_t max_rows; /* our own copy: others may write the file */
	bool in_file;
	int file_err; /* why not: negative errno; -EMEDIUMTYPE: its file system is not in memory */
};

struct nvme_ctrl;
struct nvme_qpair_conf;
/* For @n pairs. @fd: an empty file to keep them in, -1: none. Where that cannot be they are kept all the same. */
int nvme_tallies_new(uint32_t n, int fd, struct nvme_tallies **ret);
/* told.c: housekeeping only, with ctrl->lock held. */
void nvme_tallies_tell(struct nvme_ctrl *c, int64_t now);
void nvme_tallies_free(struct nvme_tallies *all);
/* Tell whose tally @i is. */
struct nvme_tally *nvme_tally_of(struct nvme_tallies *all, uint32_t i, const struct nvme_qpair_conf *conf);
/* Bytes in use; of these at most @max are copied. */
size_t nvme_tallies_copy(const struct nvme_tallies *all, void *to, size_t max);
/* The whole ring of traced events, as trace.h has it. */
void nvme_tallies_events(const struct nvme_tallies *all, uint64_t *out);
/* The row for what has none yet. */
struct tally_row *nvme_tally_row(struct nvme_tally *t, uint32_t cls, uint32_t opcode, uint32_t size);

/* There is one writer: no locked instruction. Compilers make three instructions of the load and the store. */
static inline void tally_add(_Atomic uint64_t *word, uint64_t n)
{
#ifdef __x86_64__
	__asm__("addq %1, %0" : "+m"(*word) : "er"(n));
#else
	atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n,
			      memory_order_relaxed);
#endif
}

static inline uint32_t tally_size(uint32_t nbytes)
{
	uint32_t over = (nbytes - !!nbytes) >> 12;

	return min_u32(31 - (uint32_t)__builtin_clz(over << 1 | 1), TALLY_SIZES - 1);
}

static inline uint32_t tally_bucket(int64_t ns)
{
	uint64_t v = (uint64_t)(ns < 0 ? 0 : ns) >> TALLY_UNIT_SHIFT;
	uint32_t shift = 59 - (uint32_t)__builtin_clzll(v | 16);

	return min_u32((shift << TALLY_SUB_SHIFT) + (uint32_t)(v >> shift), TALLY_BUCKETS - 1);
}

/* @n commands of @each bytes were sent at one time and came back at one time, @ns later. */
static inline void nvme_tally_add(struct nvme_tally *t, uint32_t cls, uint32_t opcode, uint32_t each,
				  uint32_t n, bool failed, int64_t ns)
{
	uint32_t size = tally_size(each);
	struct tally_row *row = t->row[cls][opcode & (TALLY_OPCODES - 1)][size];

	if (unlikely(!row))
		row = nvme_tally_row(t, cls, opcode & (TALLY_OPCODES - 1), size);
	tally_add(&row->commands, n);
	if (likely(!failed))
		tally_add(&row->bytes, (uint64_t)each * n);
	else
		tally_add(&row->failed, n);
	ns = ns < 0 ? 0 : ns; /* what nobody saw was taken off the time that it was sent at */
	tally_add(&row->sum_ns, (uint64_t)ns * n);
	if (unlikely((uint64_t)ns > atomic_load_explicit(&row->max_ns, memory_order_relaxed)))
		atomic_store_explicit(&row->max_ns, (uint64_t)ns, memory_order_relaxed);
	tally_add(&row->bucket[tally_bucket(ns)], n);
}

#endif
