/* SPDX-License-Identifier: MIT */
/* Interrupt vectors. Each signals any number of eventfds, and each only while its owner wants to be woken. */
#ifndef EMU_IRQ_H
#define EMU_IRQ_H

#include "emu/lock.h"

struct emu_binding {
	int fd;
	_Atomic uint32_t *word; /* NULL: always signal */
	uint32_t serial;
	struct emu_binding *next;
};

struct emu_vector {
	struct emu_lock lock; /* held while signalling, so that unbinding waits for it */
	_Atomic uint32_t nr;
	uint32_t serial;
	struct emu_binding *first;
	bool alone; /* not coalesced; this and the next under the lock */
	uint32_t held; /* completions that nobody was told of, */
	int64_t due; /* and until when; INT64_MAX: none */
	_Atomic uint64_t signals;
	_Atomic uint64_t masked;
} __attribute__((aligned(CACHELINE)));

struct emu_irq {
	struct emu_vector *vec;
	uint32_t nr;
	_Atomic uint32_t mask; /* INTMS, INTMC */
	_Atomic uint32_t pending; /* raised while masked */
	/* coalesce.c */
	_Atomic uint32_t together; /* completions that share an interrupt; 1: none do */
	_Atomic int64_t wait_ns; /* so long the first of them waits at most; written before .together */
	_Atomic int64_t due; /* when the earliest of the vectors' is; written under wait_lock */
};

int emu_irq_init(struct emu_irq *q, uint32_t nr);
void emu_irq_done(struct emu_irq *q);
/* @nr completions became visible on a queue of @vector: wake the owners that sleep. */
void emu_irq_raise(struct emu_irq *q, uint32_t vector, uint32_t nr);
void emu_irq_mask(struct emu_irq *q, uint32_t bits);
void emu_irq_unmask(struct emu_irq *q, uint32_t bits);

#endif
