/* SPDX-License-Identifier: MIT */
/* Polling executors: native threads that poll for one controller or several. Part of what Python sees. */
#ifndef UGDS_EXEC_H
#define UGDS_EXEC_H

#include "include/ugds.h"

struct ugds_exec_thread {
	uint32_t tid; /* of the kernel */
	int32_t cpu; /* it is kept on; -1: any */
	uint32_t controllers; /* that it polls */
	uint32_t reserved;
	uint64_t passes; /* looks at all of them, */
	uint64_t found; /* of these, with something to do */
	uint64_t sleeps;
	uint64_t alive_ns; /* since it began */
};

/* @cpus: the threads are put on these by turns; @nr_cpus 0: on any. -EINVAL: a processor that is not there. */
int ugds_exec_new(uint32_t threads, const int32_t *cpus, uint32_t nr_cpus, struct ugds_exec **ret);
/* -EBUSY while controllers use it. In a forked child it does nothing. */
int ugds_exec_free(struct ugds_exec *x);
/* Up to @max threads; how many there are. */
uint32_t ugds_exec_threads(struct ugds_exec *x, struct ugds_exec_thread *out, uint32_t max);
/* The thread that polls for a controller. Returns how many there are: 0 until something has to be polled, then 1. */
int ugds_ctrl_executor(struct ugds_ctrl *c, struct ugds_exec_thread *ret);

#endif
