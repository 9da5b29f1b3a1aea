/* SPDX-License-Identifier: MIT */
/* What captures need to know of all streams. @thread 0: of any. */
#ifndef SOFT_CAPTURE_H
#define SOFT_CAPTURE_H

#include "soft.h"

bool soft_anything_captured(int mode, uint64_t thread);
void soft_captures_invalidate(int mode, uint64_t thread);
bool soft_blocking_captured(const struct soft_ctx *ctx);
void soft_stream_drained(struct soft_stream *s);

#endif
