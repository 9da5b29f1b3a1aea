/* SPDX-License-Identifier: MIT */
/* Housekeeping's own state: the thread's (housekeeping.c) and the admin commands it sends by itself
 * (event.c). */
#ifndef NVME_HK_H
#define NVME_HK_H

#include "nvme/ctrl.h"

#define NVME_HK_AERS 4
#define NVME_HK_ABORTS 4
#define NVME_HK_ABORT_QUEUE 64
#define NVME_HK_DATA 4096u
#define NVME_HK_FRESH 32

/* An admin command of housekeeping's own. */
struct nvme_hk_req {
	struct nvme_admin_req req;
	struct nvme_ctrl *c;
	bool busy; /* with the controller */
	bool off; /* the controller does not want it */
};

struct nvme_hk_call {
	struct nvme_hk_call *next;
	int (*fn)(struct nvme_ctrl *c, void *arg);
	void *arg;
	int ret;
	bool done;
};

struct nvme_hk {
	/* the thread */
	int64_t next_tick;
	int64_t lanes_next; /* what the lanes asked for */
	int64_t planned; /* when it meant to wake up last */
	int64_t active_at; /* something was in flight last */
	uint32_t seen_state; /* channels were woken for it */
	_Atomic int64_t ping; /* calibration: -1 asked for, else when it woke up */
	struct nvme_hk_call *calls; /* under admin_lock */
	pthread_cond_t called;
	/* its commands */
	struct nvme_hk_req aer[NVME_HK_AERS];
	uint32_t nr_aer;
	struct nvme_hk_req log; /* reading a page re-arms the event it belongs to */
	uint32_t logs[8]; /* bit mask of pages to be read */
	struct nvme_hk_req scan;
	struct nvme_hk_req list; /* the active namespaces */
	uint32_t scan_at; /* next namespace to look at, in c->ns and then in fresh */
	uint32_t scan_nr; /* so many of c->ns are looked at */
	uint32_t fresh[NVME_HK_FRESH]; /* identifiers that are not in c->ns */
	uint32_t nr_fresh;
	bool scan_again;
	struct nvme_hk_req abort[NVME_HK_ABORTS];
	uint32_t nr_abort;
	uint32_t aborts[NVME_HK_ABORT_QUEUE]; /* cid << 16 | qid */
	uint32_t aborts_head, aborts_tail;
	int64_t abort_next; /* no earlier for what was cancelled */
};

void nvme_hk_free(struct nvme_ctrl *c);

/* event.c */
int nvme_hk_events_init(struct nvme_ctrl *c);
void nvme_hk_events_done(struct nvme_hk *hk);
/* Send what is due: event requests, log pages, rescans, aborts. Never waits. */
void nvme_hk_events_run(struct nvme_ctrl *c, int64_t now);
/* After a reset: the controller has forgotten everything. */
void nvme_hk_events_rearm(struct nvme_ctrl *c);

#endif
