/* SPDX-License-Identifier: MIT */
/*
 * Pollers: native threads that look at the lanes of executors, of one controller or of several. A thread that finds nothing
 * for a while sleeps, on one eventfd that all its executors' words lead to.
 */
#ifndef NVME_POLLER_H
#define NVME_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NVME_POLLERS_MOST 64

struct nvme_exec;

struct nvme_poller {
	pthread_t thread;
	pthread_mutex_t lock; /* the list; the thread holds it except while it sleeps */
	_Atomic uint32_t waiting; /* who wants the lock: the thread makes way */
	struct nvme_exec *list;
	_Atomic uint32_t nr;
	_Atomic bool stop;
	int fd;
	int cpu; /* -1: any */
	int64_t since; /* when it began */
	bool woke; /* the last pass woke somebody */
	_Atomic int tid;
	_Atomic uint64_t passes, found, sleeps;
};

struct nvme_pollers {
	_Atomic uint32_t users; /* controllers */
	pid_t pid; /* a forked child has none of the threads */
	uint32_t nr;
	struct nvme_poller p[];
};

/* @cpus NULL: any; else the threads are put on them by turns. -EINVAL: one that is not there. */
int nvme_pollers_new(uint32_t threads, const int32_t *cpus, uint32_t nr_cpus, struct nvme_pollers **ret);
/* Nobody uses them any more. NULL is fine. */
void nvme_pollers_free(struct nvme_pollers *ps);
/* Have @x looked at by the one with the least to do; its fd is set before. */
struct nvme_poller *nvme_poller_pick(struct nvme_pollers *ps);
void nvme_poller_add(struct nvme_poller *p, struct nvme_exec *x);
/* When it returns @x is not looked at any more. */
void nvme_poller_remove(struct nvme_poller *p, struct nvme_exec *x);

#endif
