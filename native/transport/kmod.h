/* SPDX-License-Identifier: MIT */
/* A PCI function that the kernel helper (kmod/) holds: /dev/ugds_drvN. */
#ifndef TRANSPORT_KMOD_H
#define TRANSPORT_KMOD_H

#include "pcie/pcie_ops.h"

/* 0, or -errno with a sentence in @err. pcie_ops.close() frees it; the kernel stops the controller then. */
int kmod_transport_new(const char *path, struct pcie_dev **ret, char *err, size_t err_len);

#endif
