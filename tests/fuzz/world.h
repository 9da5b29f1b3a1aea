/* SPDX-License-Identifier: MIT */
/*
 * A world with one thread and a clock of its own, so that an input means the same every time: the engine's threads
 * are functions that run until they would sleep, sleeping moves the clock, queue memory comes from a pool. The
 * linker puts world.c in the place of the system's functions (--wrap, see WRAPPED in run.py and meson.build).
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include "nvme/ctrl.h"

/* Between them the engine lives in this world; outside, the functions are the system's. */
void world_begin(void);
/* Everything was given back. */
void world_end(void);
/* The controller whose threads are to be run; NULL before it is there. */
void world_ctrl(struct nvme_ctrl *c);
void world_pass(int64_t ns);
/* Housekeeping's thread, until it would sleep; the executor's, until it has nothing to do. */
void world_run_hk(void);
void world_run_exec(void);

#endif
