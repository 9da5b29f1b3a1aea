/* SPDX-License-Identifier: MIT */
/* What operations do when it is their turn. */
#include <string.h>
#include <time.h>

#include "exec.h"

#define MSEC 1000000ull

static bool cut_short(const struct soft_op *op) { return op->stream->ctx->sticky || soft_controls.stopping; }

static void nap(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	pthread_mutex_unlock(&soft_lock);
	nanosleep(&ts, NULL);
	pthread_mutex_lock(&soft_lock);
}

static void take_time(const struct soft_op *op, uint64_t ns)
{
	for (; ns && !cut_short(op); ns -= ns < MSEC ? ns : MSEC)
		nap(ns < MSEC ? ns : MSEC);
}

static void fault(const struct soft_op *op, int code) { soft_lose(op->stream->device, code); }

/* Nothing is freed, and nothing at an address changes, until memory_done(). */
static void memory_held(void)
{
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_rdlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
}

static void memory_done(void) { pthread_rwlock_unlock(&soft_memory); }

static void copy(struct soft_op *op)
{
	void *dst, *src;

	while (soft_controls.hold_copies && !soft_controls.ticks && !cut_short(op))
		pthread_cond_wait(&soft_progress, &soft_lock);
	if (soft_controls.hold_copies && soft_controls.ticks)
		soft_controls.ticks--;
	take_time(op, soft_controls.copy_ns + soft_controls.copy_ns_per_mib * op->nbytes / (1u << 20));
	if (cut_short(op))
		return;
	memory_held();
	dst = op->dst ? soft_reach(op->dst, op->nbytes) : op->host;
	src = op->src ? soft_reach(op->src, op->nbytes) : op->host;
	if (dst && src) {
		pthread_mutex_unlock(&soft_lock);
		memmove(dst, src, op->nbytes);
		pthread_mutex_lock(&soft_lock);
		soft_counters.copies++;
		soft_counters.copied_bytes += op->nbytes;
	} else { /* freed since it was enqueued */
		fault(op, SOFT_ILLEGAL_ADDRESS);
	}
	memory_done();
}

static bool passes(const struct soft_op *op, uint32_t word)
{
	word &= op->mask;
	switch (op->flags & 3) {
	case 0:
		return soft_vendor.cyclic_waits ? (int32_t)(word - op->value) >= 0 : word >= op->value;
	case 1:
		return word == op->value;
	case 2:
		return word & op->value;
	default:
		return ~(word | op->value);
	}
}

static void wait_value(struct soft_op *op)
{
	static uint64_t waiting;
	uint64_t pause = 5000;
	uint32_t *word = soft_reach(op->dst, sizeof(*word));

	if (!word) {
		fault(op, SOFT_ILLEGAL_ADDRESS);
		return;
	}
	if (++waiting > soft_counters.most_waiting)
		soft_counters.most_waiting = waiting;
	/* Acquire: what was written before the word is seen by the operations behind this one. */
	while (!passes(op, __atomic_load_n(word, __ATOMIC_ACQUIRE)) && !cut_short(op)) {
		nap(pause);
		pause = pause < 300000 ? pause * 2 : pause;
	}
	waiting--;
}

static void write_value(struct soft_op *op)
{
	uint32_t *word = soft_reach(op->dst, sizeof(*word));

	if (word)
		/* Release: what the operations before this one wrote is seen with it. */
		__atomic_store_n(word, op->value, __ATOMIC_RELEASE);
	else
		fault(op, SOFT_ILLEGAL_ADDRESS);
}

static void fill(struct soft_op *op)
{
	void *dst;

	memory_held();
	dst = soft_reach(op->dst, op->nbytes);
	if (dst)
		memset(dst, (int)op->value, op->nbytes);
	else
		fault(op, SOFT_ILLEGAL_ADDRESS);
	memory_done();
}

static void free_in_order(struct soft_op *op)
{
	pthread_mutex_unlock(&soft_lock);
	pthread_rwlock_wrlock(&soft_memory);
	pthread_mutex_lock(&soft_lock);
	soft_free(op->dst, 1u << SOFT_POOLED);
	pthread_rwlock_unlock(&soft_memory);
}

static void kernel(struct soft_op *op)
{
	if (op->nbytes) {
		take_time(op, op->nbytes);
		return;
	}
	while (!soft_controls.kernels && !cut_short(op))
		pthread_cond_wait(&soft_progress, &soft_lock);
	if (soft_controls.kernels)
		soft_controls.kernels--;
}

void soft_execute(struct soft_op *op)
{
	int code;

	for (unsigned i = 0; i < op->nr_after; i++)
		while (!op->after[i]->done && !cut_short(op))
			pthread_cond_wait(&soft_progress, &soft_lock);
	if (cut_short(op))
		return;
	code = soft_op_fault(op->kind);
	if (code) {
		fault(op, code);
		return;
	}
	switch (op->kind) {
	case SOFT_COPY:
		copy(op);
		break;
	case SOFT_WAIT:
		wait_value(op);
		break;
	case SOFT_WRITE:
		write_value(op);
		break;
	case SOFT_HOST_FUNC:
		soft_host_func_run(op->fn, op->arg);
		break;
	case SOFT_FREE:
		free_in_order(op);
		break;
	case SOFT_FILL:
		fill(op);
		break;
	case SOFT_KERNEL:
		kernel(op);
		break;
	default:
		break;
	}
}
