/* SPDX-License-Identifier: MIT */
/* Beside UGDS_F_*: what a policy may say of one operation. Of a submission the first request's is taken, but for chunks. */
#ifndef UGDS_PLAN_H
#define UGDS_PLAN_H

#include "include/ugds.h"

#define UGDS_F_ADAPTIVE 0x4000 /* this one: as the channel has learnt */
/* 12 bits: microseconds that it may be looked for, and one. 0: as the controller was opened. */
#define UGDS_SPIN_SHIFT 16
#define UGDS_SPIN_MOST 1000
/* 4 bits n: large or of the background class, its commands have 32 KiB << n at most. 0: as the controller was opened. */
#define UGDS_CHUNK_SHIFT 28

#endif
