/* SPDX-License-Identifier: MIT */
/*
 * Scheduling between large and small, urgent and patient. Small operations of the normal class, and those of the latency
 * class, are sent as soon as there is room. Large ones and those of the background class ("heavy") are sent a chunk of
 * each in turn, and only so much of them is at the device at a time: in bytes while nobody is in a hurry; else in commands, as
 * many as the small ones do not feel (nvme/level.h).
 *
 * All that a lane needs is its own and under its lock. What lanes share is read by heavy work only, but for one load a
 * call, and written when it changes: when heavy work begins or ends on a lane, when somebody is in a hurry (once a
 * millisecond), and by what is measured while heavy work goes on.
 */
#ifndef NVME_SCHED_H
#define NVME_SCHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/level.h"
#include "support/util.h"

struct nvme_lane;
struct nvme_ctrl;
struct nvme_op;

#define NVME_HEAVY_BYTES (128u << 10) /* an operation of more than this is heavy */
#define NVME_CHUNK_LEAST (64u << 10) /* whole blocks, whatever the format */

/* A controller's. */
struct nvme_sched {
	_Atomic uint32_t lanes; /* with heavy work */
	_Atomic uint32_t bulk_lanes; /* with such of the normal class */
	struct nvme_level level; /* heavy commands at the device while somebody is in a hurry */
	_Atomic int64_t hurry; /* when somebody last was, */
	_Atomic int64_t urgent; /* and when that was of the latency class */
	_Atomic uint32_t epoch; /* of heavy work: it begins when there was none */
};

/* A lane's, under its lock. */
struct nvme_lane_sched {
	int64_t hurry, urgent; /* when it last said so; the channel's own thread only */
	uint64_t heavy_above; /* bytes; UINT64_MAX: first in, first out */
	uint32_t out[2]; /* commands at the device: bulk, background */
	uint64_t out_bytes[2];
	uint32_t keep; /* entries of the general pair that only the latency class takes */
	bool asked[2]; /* for a pair of the background class, of the latency class; its owner only */
	bool counted[2]; /* in nvme_sched.lanes, and in .bulk_lanes */
};

/* A channel's: what latencies were before heavy work began. */
struct nvme_chan_sched {
	uint32_t epoch;
	struct nvme_usual usual;
};

void nvme_sched_init(struct nvme_ctrl *c);
/* Is there heavy work on any lane? */
#define nvme_sched_heavy(c) atomic_load_explicit(&(c)->sched.lanes, memory_order_relaxed)
/* Heavy work is waiting: send of it what may go now; returns commands sent. Lane locked. */
uint32_t nvme_sched_pump(struct nvme_lane *l, int64_t now, bool hold);
/* The same, but no more than keeps a heavy flow from starving. */
uint32_t nvme_sched_floor(struct nvme_lane *l, int64_t now, bool hold);
/* A command of a heavy operation went to the device again, or came back. Lane locked. */
void nvme_sched_out(struct nvme_lane *l, const struct nvme_op *op, uint32_t nbytes);
void nvme_sched_back(struct nvme_lane *l, const struct nvme_op *op, uint32_t nbytes);
/* Heavy work began or ended on the lane, perhaps. Lane locked. */
void nvme_sched_count(struct nvme_lane *l);
/* Every command is forgotten. Lane locked. */
void nvme_sched_forget(struct nvme_lane *l);
/* Small or urgent work is under way, and was not a millisecond ago. */
void nvme_sched_hurry(struct nvme_lane *l, int64_t now);
/* The same of the latency class. */
void nvme_sched_urgent(struct nvme_lane *l, int64_t now);
/* nvme_level_feel() for the channel. */
void nvme_sched_feel(struct nvme_ctrl *c, struct nvme_chan_sched *cs, uint32_t size_class, bool looked,
		     int64_t before, int64_t took);

#endif
