/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the parts that are also built in user space (for their unit tests) use of the kernel. */
#ifndef UGDS_BASE_H
#define UGDS_BASE_H

#ifdef __KERNEL__
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/rbtree.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/xarray.h>
#else
#include "kernel_in_user.h"
#endif

#endif
