// SPDX-License-Identifier: GPL-2.0 OR MIT
/* For tests: a driver that does not export to GPL modules only, which symbol_get() refuses. */
#define NVP2P_NOGPL
#include "nvp2p.c"
