/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What can be said about arguments without a device. */
#ifndef UGDS_ARGS_H
#define UGDS_ARGS_H

#include "base.h"
#include "uapi/ugds_ioctl.h"

/*
 * How much of a caller's structure is to be read: -EINVAL shorter than version 1.0 has it, -E2BIG
 * over a page. What is longer than known must be zero: the copy checks that.
 */
int ugds_check_argsz(u32 argsz, size_t known);

int ugds_check_map(const struct ugds_drv_map *arg, u64 max_bytes);
int ugds_check_irq_bind(const struct ugds_drv_irq_bind *arg, u32 nr_vectors, u32 nr_words);
int ugds_check_reset(const struct ugds_drv_reset *arg);
int ugds_check_topology(const struct ugds_drv_topology *arg);

#endif
