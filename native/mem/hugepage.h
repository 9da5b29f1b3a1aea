/* SPDX-License-Identifier: MIT */
/* Memory for rings and list pages: present from the start, never shared with a forked child. */
#ifndef MEM_HUGEPAGE_H
#define MEM_HUGEPAGE_H

#include "support/util.h"

#define QUEUE_PAGE 4096u

/* Zeroed, prefaulted, whole pages. @huge: try a hugepage first; *ret_huge says whether it is one. */
int mem_queue_alloc(size_t nbytes, bool huge, void **ret_vaddr, size_t *ret_nbytes, bool *ret_huge);
void mem_queue_free(void *vaddr, size_t nbytes);

#endif
