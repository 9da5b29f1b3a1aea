/* SPDX-License-Identifier: MIT */
/* What an NVMe status means to a caller. */
#ifndef NVME_STATUS_H
#define NVME_STATUS_H

#include <stdbool.h>
#include <stdint.h>

/* Negative errno for a status field, 0 for success. Unknown ones are -EIO. */
int nvme_status_errno(uint16_t status);
/* Sent again, the same command may succeed. */
bool nvme_status_may_retry(uint16_t status);
/* The namespace is not there, or not active. */
bool nvme_status_no_ns(uint16_t status);
/* A few words for a message. */
const char *nvme_status_name(uint16_t status);

#endif
