/* SPDX-License-Identifier: MIT */
/*
 * Operations that were over before the stream was told to wait for them end with a copy, behind which no word is
 * written: that takes the GPU as long as half of the copy. The next operation finds the stream idle, or its go comes
 * behind the copy; else the event behind it is asked, by whoever wants to know, and now and then by the asker. One of
 * them at a time has not passed, as far as anybody knows.
 */
#include "stream/stream.h"

#define ASK 64 /* with one look at the streams */

void stream_known(struct stream *s, uint32_t seq)
{
	uint32_t was = atomic_load_explicit(&s->known, memory_order_relaxed);

	/* release: whoever found out saw all that was before it */
	while (was < seq && !atomic_compare_exchange_weak_explicit(&s->known, &was, seq, memory_order_release,
								   memory_order_relaxed))
		;
}

void stream_forget(struct stream *s)
{
	pthread_mutex_lock(&s->x->lock);
	atomic_store_explicit(&s->known, 0, memory_order_relaxed);
	s->quiet = 0;
	pthread_mutex_unlock(&s->x->lock);
}

void stream_be_quiet(struct stream *s, struct stream_op *op)
{
	struct stream_exec *x = s->x;
	uint32_t lazy;

	pthread_mutex_lock(&x->lock);
	s->quiet = stream_token(op);
	s->quiet_seq = op->last;
	s->quiet_event = op->event;
	atomic_store_explicit(&op->quiet, true, memory_order_relaxed);
	lazy = x->lazy;
	x->lazy = STREAM_LAZY_NEWS;
	if (!lazy)
		pthread_cond_signal(&x->ask);
	pthread_mutex_unlock(&x->lock);
}

bool stream_learn(struct stream *s)
{
	struct stream_exec *x = s->x;
	uint64_t token, event;
	bool news;
	int code;

	pthread_mutex_lock(&x->lock);
	token = s->quiet;
	event = s->quiet_event;
	pthread_mutex_unlock(&x->lock);
	if (!token)
		return false;
	/* if it was recorded anew meanwhile, that is further on in the same stream */
	code = stream_ask_event(s->rt, &s->place, event);
	if (code == GPU_NOT_READY)
		return false;
	pthread_mutex_lock(&x->lock);
	news = s->quiet == token;
	if (news) {
		s->quiet = 0;
		s->urgent = false;
		if (code)
			atomic_store_explicit(&s->sick, code, memory_order_release);
		else
			stream_known(s, s->quiet_seq);
	}
	pthread_mutex_unlock(&x->lock);
	if (news) /* the executor would have to be woken for it */
		stream_turn_once(s);
	return news;
}

void stream_learn_soon(struct stream *s)
{
	if (!s->quiet || s->urgent)
		return;
	s->urgent = s->x->urgent = true;
	pthread_cond_signal(&s->x->ask);
}

bool stream_learn_all(struct stream_exec *x, bool all)
{
	struct stream *s, *who[ASK];
	bool some = false;
	uint32_t n = 0;

	pthread_mutex_lock(&x->lock);
	x->urgent = false;
	if (all)
		x->lazy -= x->lazy > 0;
	for (s = x->all; s; s = s->next_all) {
		if (s->quiet && n < ASK && (all || s->urgent))
			who[n++] = s;
		if (s->quiet) /* look again */
			x->lazy = STREAM_LAZY_NEWS;
		x->urgent |= s->quiet && s->urgent;
	}
	stream_asking(x, true); /* none of them is freed */
	pthread_mutex_unlock(&x->lock);
	for (uint32_t i = 0; i < n; i++)
		some |= stream_learn(who[i]);
	pthread_mutex_lock(&x->lock);
	stream_asking(x, false);
	pthread_mutex_unlock(&x->lock);
	return some;
}
