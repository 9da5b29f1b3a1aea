/* SPDX-License-Identifier: MIT */
/* Sinks: where an event loop hears of ended operations and of GPU events, which the runtime is asked about. */
#include "stream/stream.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "support/barrier.h"

#define ASK 64 /* events asked about with one look at the list */

/* A wish to be told. On @next of its operation, or on the executor's list of events, then on its sink's list. */
struct stream_watch {
	struct stream_watch *next;
	struct nvme_link at; /* of x->events; next NULL: not there */
	struct nvme_link mine; /* of sink->pending */
	struct stream_sink *k; /* NULL: it was closed */
	const struct gpu_rt *rt;
	struct gpu_place place;
	uint64_t event;
	struct stream_result res;
};

struct stream_sink {
	struct stream_exec *x;
	int fd;
	bool armed; /* its owner found nothing the last time, and is to be signalled */
	struct nvme_link pending;
	struct stream_watch *ready, **tail;
};

static struct stream_watch *watch_get(struct stream_exec *x)
{
	struct stream_watch *w = x->free_watches;

	if (w)
		x->free_watches = w->next;
	else
		w = malloc(sizeof(*w));
	if (w)
		memset(w, 0, sizeof(*w));
	return w;
}

static void watch_put(struct stream_exec *x, struct stream_watch *w)
{
	w->next = x->free_watches;
	x->free_watches = w;
}

void sink_free_watches(struct stream_exec *x)
{
	while (x->free_watches) {
		struct stream_watch *w = x->free_watches;

		x->free_watches = w->next;
		free(w);
	}
}

static void ready(struct stream_exec *x, struct stream_watch *w)
{
	struct stream_sink *k = w->k;

	if (!k) {
		watch_put(x, w);
		return;
	}
	nvme_link_del(&w->mine);
	w->next = NULL;
	*k->tail = w;
	k->tail = &w->next;
	if (k->armed) {
		k->armed = false;
		nvme_signal(k->fd);
	}
}

void sink_tell(struct stream_op *op)
{
	struct stream_watch *w = op->watches;

	op->watches = NULL;
	while (w) {
		struct stream_watch *next = w->next;

		w->res = op->res;
		ready(op->s->x, w);
		w = next;
	}
}

int sink_open(struct stream_exec *x, struct stream_sink **ret)
{
	struct stream_sink *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->fd < 0) {
		int err = -errno;

		free(k);
		return err;
	}
	k->x = x;
	k->armed = true;
	k->tail = &k->ready;
	nvme_link_init(&k->pending);
	pthread_mutex_lock(&x->lock);
	x->refs++;
	pthread_mutex_unlock(&x->lock);
	*ret = k;
	return 0;
}

int sink_fd(const struct stream_sink *k) { return k->fd; }

struct stream_exec *sink_exec(struct stream_sink *k) { return k->x; }

int sink_reap(struct stream_sink *k, struct stream_result *out, uint32_t max)
{
	uint64_t count;
	uint32_t n = 0;

	if (stream_forked(k->x))
		return -ENODEV;
	if (read(k->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return -errno;
	pthread_mutex_lock(&k->x->lock);
	while (k->ready && n < max) {
		struct stream_watch *w = k->ready;

		out[n++] = w->res;
		k->ready = w->next;
		watch_put(k->x, w);
	}
	if (!k->ready)
		k->tail = &k->ready;
	k->armed = !k->ready;
	if (k->ready) /* stay readable */
		nvme_signal(k->fd);
	pthread_mutex_unlock(&k->x->lock);
	return (int)n;
}

static bool is_quiet(struct stream *s, uint64_t token)
{
	bool is;

	pthread_mutex_lock(&s->x->lock);
	is = s->quiet == token;
	pthread_mutex_unlock(&s->x->lock);
	return is;
}

bool sink_spin(struct stream_sink *k, struct stream *s, uint64_t token)
{
	struct stream_exec *x = k->x;
	const struct stream_op *op;
	bool some, quiet;
	int64_t end;

	if (stream_forked(x) || s->x != x || !x->c)
		return false;
	end = 0;
	quiet = is_quiet(s, token);
	if (quiet) /* also when there is something to reap */
		stream_learn(s);
	pthread_mutex_lock(&x->lock);
	op = stream_op_find(s, token);
	if (op && !op->told && stream_is_soon(op) && op->eager != STREAM_SLEEPS) {
		k->armed = false; /* we look by ourselves meanwhile */
		end = now_ns() + (op->spin_ns ? op->spin_ns : x->c->p.spin_ns);
	}
	while (!k->ready && now_ns() < end) {
		pthread_mutex_unlock(&x->lock);
		if (quiet)
			stream_learn(s);
		for (uint32_t i = 0; i < 16; i++)
			cpu_relax();
		pthread_mutex_lock(&x->lock);
	}
	some = k->ready;
	if (!some)
		k->armed = true;
	if (s->quiet == token)
		stream_learn_soon(s);
	pthread_mutex_unlock(&x->lock);
	return some;
}

static void drop_event(struct stream_exec *x, struct stream_watch *w)
{
	nvme_link_del(&w->at);
	atomic_fetch_sub_explicit(&x->nr_events, 1, memory_order_relaxed);
}

void sink_close(struct stream_sink *k)
{
	struct stream_exec *x = k->x;

	if (stream_forked(x))
		return;
	pthread_mutex_lock(&x->lock);
	stream_until_asked(x); /* an event is its user's again when nobody asks about it */
	while (k->ready) {
		struct stream_watch *w = k->ready;

		k->ready = w->next;
		watch_put(x, w);
	}
	while (k->pending.next != &k->pending) {
		struct stream_watch *w = container_of(k->pending.next, struct stream_watch, mine);

		nvme_link_del(&w->mine);
		w->k = NULL;
		if (w->at.next) {
			drop_event(x, w);
			watch_put(x, w);
		}
	}
	pthread_mutex_unlock(&x->lock);
	close(k->fd);
	free(k);
	stream_exec_put(x);
}

int sink_watch(struct stream *s, uint64_t token, struct stream_sink *k, bool lazily)
{
	struct stream_exec *x = s->x;
	struct stream_watch *w;
	struct stream_op *op;
	int err = 0;

	if (stream_forked(x))
		return -ENODEV;
	if (k->x != x) /* its own executor's lock guards it */
		return -EINVAL;
	if (!lazily && is_quiet(s, token))
		stream_learn(s);
	pthread_mutex_lock(&x->lock);
	if (s->quiet == token && !lazily)
		stream_learn_soon(s);
	op = stream_op_find(s, token);
	w = op ? watch_get(x) : NULL;
	if (!w) {
		err = op ? -ENOMEM : -ENOENT;
		goto unlock;
	}
	w->k = k;
	nvme_link_add(&k->pending, &w->mine);
	if (op->told) {
		w->res = op->res;
		ready(x, w);
	} else {
		w->next = op->watches;
		op->watches = w;
	}
unlock:
	pthread_mutex_unlock(&x->lock);
	return err;
}

int sink_event(struct stream_sink *k, const struct gpu_rt *rt, const struct gpu_place *p, uint64_t event,
	       uint64_t *ret_token, int *ret_code)
{
	struct stream_exec *x = k->x;
	struct stream_watch *w;
	int err;

	*ret_code = 0;
	if (stream_forked(x))
		return -ENODEV;
	*ret_code = stream_ask_event(rt, p, event);
	if (!*ret_code)
		return 1;
	if (*ret_code != GPU_NOT_READY)
		return gpu_errno(rt, *ret_code);
	*ret_code = 0;
	err = stream_ask_start(x);
	if (err)
		return err;
	pthread_mutex_lock(&x->lock);
	w = watch_get(x);
	if (w) {
		w->k = k;
		w->rt = rt;
		w->place = *p;
		w->event = event;
		/* below what names an operation: streams are counted from one */
		w->res.token = x->next_event = (x->next_event + 1) & ((1ull << 40) - 1);
		*ret_token = w->res.token;
		nvme_link_add(&k->pending, &w->mine);
		nvme_link_add(&x->events, &w->at);
		atomic_fetch_add_explicit(&x->nr_events, 1, memory_order_relaxed);
		pthread_cond_signal(&x->ask);
	}
	pthread_mutex_unlock(&x->lock);
	return w ? 0 : -ENOMEM;
}

static struct stream_watch *find_event(struct stream_exec *x, uint64_t token)
{
	for (struct nvme_link *p = x->events.next; p != &x->events; p = p->next) {
		struct stream_watch *w = container_of(p, struct stream_watch, at);

		if (w->res.token == token)
			return w;
	}
	return NULL;
}

void sink_event_drop(struct stream_sink *k, uint64_t token)
{
	struct stream_exec *x = k->x;
	struct stream_watch *w;

	if (stream_forked(x))
		return;
	pthread_mutex_lock(&x->lock);
	stream_until_asked(x);
	w = find_event(x, token);
	if (w && w->k == k) {
		drop_event(x, w);
		nvme_link_del(&w->mine);
		watch_put(x, w);
	}
	pthread_mutex_unlock(&x->lock);
}

static void event_over(struct stream_exec *x, struct stream_watch *w, int err, int code)
{
	drop_event(x, w);
	w->res.result = err;
	w->res.gpu_code = code;
	w->res.state = err ? STREAM_FAILED : STREAM_DONE;
	w->res.over = 1;
	ready(x, w);
}

/* The list is turned round by what was asked about, so that all get their turn. */
bool sink_poll_events(struct stream_exec *x)
{
	struct stream_watch *w[ASK];
	int code[ASK];
	uint32_t n = 0;
	bool some = false;

	pthread_mutex_lock(&x->lock);
	for (struct nvme_link *p = x->events.next; p != &x->events && n < ASK; p = p->next)
		w[n++] = container_of(p, struct stream_watch, at);
	stream_asking(x, true); /* what is on the list stays there */
	pthread_mutex_unlock(&x->lock);
	for (uint32_t i = 0; i < n; i++)
		code[i] = stream_ask_event(w[i]->rt, &w[i]->place, w[i]->event);
	pthread_mutex_lock(&x->lock);
	for (uint32_t i = 0; i < n; i++) {
		if (code[i] == GPU_NOT_READY) {
			nvme_link_del(&w[i]->at);
			nvme_link_add(&x->events, &w[i]->at);
			continue;
		}
		event_over(x, w[i], code[i] ? gpu_errno(w[i]->rt, code[i]) : 0, code[i]);
		some = true;
	}
	stream_asking(x, false);
	pthread_mutex_unlock(&x->lock);
	return some;
}

void sink_fail_events(struct stream_exec *x, int err)
{
	pthread_mutex_lock(&x->lock);
	stream_until_asked(x);
	while (x->events.next != &x->events)
		event_over(x, container_of(x->events.next, struct stream_watch, at), err, 0);
	pthread_mutex_unlock(&x->lock);
}
