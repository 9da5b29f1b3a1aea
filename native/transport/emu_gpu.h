/* SPDX-License-Identifier: MIT */
/* The embedded controller's way to GPU memory: copies by the GPU's own engines, through pinned memory. */
#ifndef TRANSPORT_EMU_GPU_H
#define TRANSPORT_EMU_GPU_H

#include "emu/emu.h"

extern const struct emu_dma_ops emu_gpu_ops;
/* What is passed with them; the operations end it (close). NULL: no memory. */
void *emu_gpu_new(void);

#endif
