/* SPDX-License-Identifier: MIT */
#ifndef SOFT_EXEC_H
#define SOFT_EXEC_H

#include "soft.h"

/* Runs an operation to its end; the lock is let go of meanwhile. */
void soft_execute(struct soft_op *op);
/* On the one thread that all of them have. */
void soft_host_func_run(void (*fn)(void *arg), void *arg);

#endif
