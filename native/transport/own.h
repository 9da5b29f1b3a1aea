/* SPDX-License-Identifier: MIT */
#ifndef TRANSPORT_OWN_H
#define TRANSPORT_OWN_H

#include "include/ugds_transport.h"
#include "pcie/pcie_ops.h"

/* Take a transport of the user's, as it is, with its close(); where it is refused, that was called. */
int own_transport_new(const struct ugds_transport *from, struct pcie_dev **ret, char *err, size_t err_len);

#endif
