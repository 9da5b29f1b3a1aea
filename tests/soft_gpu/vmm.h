/* SPDX-License-Identifier: MIT */
#ifndef SOFT_VMM_H
#define SOFT_VMM_H

#include "soft.h"

#define SOFT_GRANULE (2u << 20)

int soft_vmm_reserve(int device, size_t nbytes, uint64_t *ret);
int soft_vmm_unreserve(uint64_t base, size_t nbytes);
bool soft_vmm_range(uint64_t addr, uint64_t *ret_base, size_t *ret_nbytes);
int soft_vmm_create(int device, size_t nbytes, uint64_t *ret);
int soft_vmm_release(uint64_t id);
int soft_vmm_map(uint64_t addr, size_t nbytes, uint64_t id);
int soft_vmm_unmap(uint64_t addr, size_t nbytes);

#endif
