/* SPDX-License-Identifier: MIT */
/* The embedded controller as a PCI function. */
#ifndef TRANSPORT_EMU_H
#define TRANSPORT_EMU_H

#include "emu/emu.h"
#include "pcie/pcie_ops.h"

/* 0, or -errno with a sentence in @err. pcie_ops.close() frees the device and the controller. */
int emu_transport_new(const struct emu_params *p, struct pcie_dev **ret, struct emu_ctrl **ret_emu, char *err,
		      size_t err_len);

#endif
