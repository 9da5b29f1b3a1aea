/* SPDX-License-Identifier: MIT */
/* Interrupts to eventfds, and the words that say whether their owners want to be woken. */
#include <errno.h>
#include <stdlib.h>

#include "transport/kmod_dev.h"

struct kmod_binding {
	struct kmod_binding *next;
	uint64_t id;
	uint32_t vector;
	uint32_t word;
	int fd;
	uint32_t users; /* queue pairs of the same owner on the same vector */
};

static uint32_t nr_words(const struct kmod *k)
{
	return k->armed ? min_u32(k->info.armed_words, KMOD_WORDS_MOST) : 0;
}

_Atomic uint32_t *kmod_word_get(void *t)
{
	struct kmod *k = t;

	for (uint32_t i = 0; i < nr_words(k); i++) {
		uint64_t bit = 1ull << (i % 64);

		/* who takes it writes nothing that its last owner has to see */
		if (!(atomic_fetch_or_explicit(&k->words[i / 64], bit, memory_order_relaxed) & bit))
			return (_Atomic uint32_t *)(void *)(k->armed + (size_t)i * k->info.armed_stride);
	}
	return NULL;
}

static uint32_t index_of(const struct kmod *k, const _Atomic uint32_t *word)
{
	uintptr_t at = (uintptr_t)word - (uintptr_t)k->armed;

	if (!k->armed || at >= (size_t)nr_words(k) * k->info.armed_stride)
		return UGDS_DRV_NO_WORD; /* its owner's: interrupts cannot look at it, so they signal always */
	return (uint32_t)(at / k->info.armed_stride);
}

void kmod_word_put(void *t, _Atomic uint32_t *word)
{
	struct kmod *k = t;
	uint32_t i = index_of(k, word);

	if (i != UGDS_DRV_NO_WORD)
		atomic_fetch_and_explicit(&k->words[i / 64], ~(1ull << (i % 64)), memory_order_relaxed);
}

int kmod_irq_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret_binding)
{
	struct kmod *k = t;
	struct ugds_drv_irq_bind u = {
		.argsz = sizeof(u), .vector = vector, .fd = fd, .word = index_of(k, word)
	};
	struct kmod_binding *b;
	int err = 0;

	pthread_mutex_lock(&k->lock);
	for (b = k->bindings; b; b = b->next)
		if (b->vector == vector && b->fd == fd && b->word == u.word)
			break;
	if (b) {
		b->users++;
		goto done;
	}
	b = malloc(sizeof(*b));
	err = b ? kmod_call(k, UGDS_DRV_IRQ_BIND, &u) : -ENOMEM;
	if (err) {
		free(b);
		goto unlock;
	}
	*b = (struct kmod_binding){ .next = k->bindings,
				    .id = u.ret_binding,
				    .vector = vector,
				    .word = u.word,
				    .fd = fd,
				    .users = 1 };
	k->bindings = b;
done:
	*ret_binding = b->id;
unlock:
	pthread_mutex_unlock(&k->lock);
	return err;
}

int kmod_irq_unbind(void *t, uint64_t binding)
{
	struct ugds_drv_irq_unbind u = { .argsz = sizeof(u), .binding = binding };
	struct kmod *k = t;
	int err = -ENOENT;

	pthread_mutex_lock(&k->lock);
	for (struct kmod_binding **p = &k->bindings; *p; p = &(*p)->next) {
		struct kmod_binding *b = *p;

		if (b->id != binding)
			continue;
		err = 0;
		if (--b->users)
			break;
		*p = b->next;
		free(b);
		/* under the lock: the same eventfd may be bound anew at once */
		err = kmod_call(k, UGDS_DRV_IRQ_UNBIND, &u);
		break;
	}
	pthread_mutex_unlock(&k->lock);
	return err == -ENODEV ? 0 : err; /* no interrupt comes any more */
}

void kmod_irq_done(struct kmod *k)
{
	while (k->bindings) {
		struct kmod_binding *b = k->bindings;

		k->bindings = b->next;
		free(b);
	}
}
