// SPDX-License-Identifier: GPL-2.0 OR MIT
/* For tests: a driver that has no persistent pages yet. */
#define NVP2P_OLD
#include "nvp2p.c"
