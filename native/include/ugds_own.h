/* SPDX-License-Identifier: MIT */
/* Transports of the user's own, which ugds_transport.h describes. Part of what Python sees. */
#ifndef UGDS_OWN_H
#define UGDS_OWN_H

#include "include/ugds.h"

/* Copy a struct ugds_transport, whose close() ends it from now on, also when this fails (but for another version's, -EPROTO).
 * Blocks as long as its functions do. */
int ugds_open_transport(const void *transport, const struct ugds_open_params *p, struct ugds_ctrl **ret,
			struct ugds_error *err);

#endif
