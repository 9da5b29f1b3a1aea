/* SPDX-License-Identifier: MIT */
/*
 * Hardware connections. A stream takes a free one when it has work, else it queues behind the least loaded; what is in
 * one runs strictly in the order in which it was enqueued. So an operation that waits for a word keeps from running what
 * is behind it, also of other streams: with all connections waiting, a copy on any other stream does not start.
 */
#include <stdlib.h>

#include "capture.h"
#include "exec.h"

struct channel {
	pthread_t thread;
	pthread_cond_t work;
	bool started;
	struct soft_op *head, *last;
	unsigned load;
};

int soft_connections = 8;

static struct channel channels[SOFT_DEVICES][SOFT_CONNECTIONS];
static unsigned in_flight;

static void end(struct channel *c, struct soft_op *op)
{
	struct soft_stream *s = op->stream;

	c->head = op->next;
	if (!c->head)
		c->last = NULL;
	c->load--;
	in_flight--;
	s->pending--;
	op->ticket->done = true;
	soft_ticket_put(op->ticket);
	soft_op_drop(op);
	free(op);
	soft_stream_drained(s);
	pthread_cond_broadcast(&soft_progress);
}

static void *serve(void *arg)
{
	struct channel *c = arg;

	pthread_mutex_lock(&soft_lock);
	for (;;) {
		while (!c->head)
			pthread_cond_wait(&c->work, &soft_lock);
		soft_execute(c->head);
		end(c, c->head);
	}
	return NULL;
}

static int least_loaded(int device)
{
	int best = 0;

	for (int i = 0; i < soft_connections; i++)
		if (channels[device][i].load < channels[device][best].load)
			best = i;
	return best;
}

static void start(struct channel *c)
{
	pthread_cond_init(&c->work, NULL);
	pthread_create(&c->thread, NULL, serve, c);
	pthread_detach(c->thread);
	c->started = true;
}

void soft_channel_push(struct soft_op *op)
{
	struct soft_stream *s = op->stream;
	struct channel *c;

	if (!s->pending)
		s->channel = least_loaded(s->device);
	c = &channels[s->device][s->channel];
	if (!c->started)
		start(c);
	if (c->last)
		c->last->next = op;
	else
		c->head = op;
	c->last = op;
	c->load++;
	in_flight++;
	s->pending++;
	pthread_cond_signal(&c->work);
}

void soft_channels_stop(void)
{
	soft_controls.stopping = true;
	pthread_cond_broadcast(&soft_progress);
	while (in_flight)
		pthread_cond_wait(&soft_progress, &soft_lock);
	soft_controls.stopping = false;
}

SOFT_EXPORT uint64_t soft_gpu_in_flight(void)
{
	SOFT_LOCK();

	return in_flight;
}
