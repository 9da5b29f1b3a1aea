/* SPDX-License-Identifier: MIT */
/*
 * The executor's turn at a stream: which operation is on, how far it is, and when the stream may pass. Its cell is
 * always written before done; done is written when nothing of the chunk is at the device any more, or when the
 * controller or the GPU is lost.
 */
#include "stream/stream.h"

#include "support/barrier.h"

static struct stream_op *head_of(const struct stream *s)
{
	uint32_t head = atomic_load_explicit(&s->fifo_head, memory_order_relaxed);

	/* acquire: the operation is filled */
	return head == atomic_load_explicit(&s->fifo_tail, memory_order_acquire)
		       ? NULL
		       : s->fifo[head & s->fifo_mask];
}

static bool is_well(struct stream *s, struct stream_op *op)
{
	int code = atomic_load_explicit(&s->sick, memory_order_relaxed);

	if (unlikely(code)) {
		op->gpu_code = code;
		op->lost = true;
	}
	return !code;
}

static void tell(struct stream_op *op, uint32_t state, int64_t result)
{
	op->res.state = state;
	op->res.result = result;
	op->res.status = op->status;
	op->res.done = op->done;
	op->res.item = op->bad;
	op->res.offset = op->parts[op->bad].at;
	op->res.nbytes = op->parts[op->bad].length;
	op->res.gpu_code = op->gpu_code;
	op->told = true;
	sink_tell(op);
}

/* @op ends for its user before the stream passes. */
static void tell_early(struct stream *s, struct stream_op *op, uint32_t state, int err)
{
	pthread_mutex_lock(&s->x->lock);
	atomic_store_explicit(&op->state, state, memory_order_relaxed);
	if (!op->told)
		tell(op, state, err);
	pthread_mutex_unlock(&s->x->lock);
}

static int why_not(struct stream *s, struct stream_op *op)
{
	uint32_t waiting = STREAM_WAITING;

	if (!atomic_compare_exchange_strong_explicit(&op->state, &waiting, STREAM_RUNNING,
						     memory_order_acq_rel, memory_order_relaxed))
		return -ECANCELED;
	if (op->lost)
		return -EIO;
	return atomic_load_explicit(&s->abandoned, memory_order_acquire) ? -ESHUTDOWN : 0;
}

/* What was enqueued without go will never be gone for: it may be passed at any time. */
static bool is_void(const struct stream_op *op)
{
	return atomic_load_explicit(&op->broken, memory_order_acquire) && !op->gone;
}

static void set_clock(struct stream_op *op, int64_t now)
{
	op->deadline = op->timeout_ns ? now + op->timeout_ns : INT64_MAX;
}

static bool begin_next(struct stream *s, int64_t now)
{
	struct stream_op *op = head_of(s);

	if (!op)
		return false;
	op->lost = false;
	op->gpu_code = 0;
	if (!stream_reached(stream_word(&s->go), op->first) && !is_void(op) && is_well(s, op))
		return false;
	op->bad = 0;
	op->status = op->done = 0;
	op->passing = op->blanking = false;
	s->cur = op;
	s->cursor = (struct stream_cursor){ 0 };
	s->next = op->first;
	s->good = op->first - 1;
	op->err = why_not(s, op);
	set_clock(op, now);
	if (!op->err)
		stream_read_cells(op);
	return true;
}

static bool may_start(const struct stream *s, const struct stream_op *op)
{
	uint32_t ahead = op->heads || s->by_callback ? 0 : s->slots - 1;

	if ((op->err && !op->blanking) || !stream_reached(op->last, s->next))
		return false;
	/* read ahead as far as the ring goes: the stream has taken what lay there before */
	return stream_reached(stream_word(&s->go) + ahead, s->next);
}

/* Chunks that are complete, in order. */
static bool advance(struct stream *s, struct stream_op *op)
{
	bool some = false;

	while (stream_reached(s->next - 1, s->good + 1)) {
		const struct stream_run *run = &s->run[(s->good + 1) % s->slots];

		if (run->inflight || (run->failed && !op->blanking))
			break;
		op->done += run->bytes;
		s->good++;
		some = true;
	}
	return some;
}

/* What the GPU could not be made to see was not read. */
static void make_visible(struct stream *s, struct stream_op *op)
{
	struct gpu_before before;
	/* a host function has no wait that would do it */
	bool call = s->must_flush || (s->wait_flushes && op->flags & STREAM_CALLBACK);
	int code;

	if (!call || op->err)
		return;
	code = s->rt->enter(&s->place, &before);
	if (!code) {
		code = s->rt->flush_remote_writes();
		s->rt->leave(&s->place, &before);
	}
	if (code) {
		op->err = -EIO;
		op->gpu_code = code;
	}
}

static void let_pass(struct stream *s, const struct stream_op *op, uint32_t seq)
{
	dma_wmb(); /* what devices and we wrote is in memory before the word is */
	stream_word_set(&s->done, seq);
	if (s->by_callback || op->flags & STREAM_CALLBACK)
		sem_post(&s->called);
}

/* Done for all of @op, with its cell before it. */
void stream_write_cell(const struct stream_op *op, uint32_t state, int err, uint64_t nbytes)
{
	if (!op->cell)
		return;
	op->cell->error = err;
	op->cell->nbytes = nbytes;
	/* release: with its state the rest of the cell is there */
	__atomic_store_n(&op->cell->state, state, __ATOMIC_RELEASE);
}

static void settle(struct stream *s, struct stream_op *op)
{
	bool withdrawn = atomic_load_explicit(&op->state, memory_order_relaxed) == STREAM_CANCELLED;

	make_visible(s, op);
	if (op->cell) {
		bool broken;

		pthread_mutex_lock(&s->x->lock);
		broken = atomic_load_explicit(&op->broken, memory_order_relaxed);
		stream_write_cell(op,
				  withdrawn	      ? STREAM_CANCELLED
				  : op->err || broken ? STREAM_FAILED
						      : STREAM_DONE,
				  op->err  ? op->err
				  : broken ? -EIO
					   : 0,
				  op->done);
		op->settled = true;
		pthread_mutex_unlock(&s->x->lock);
	}
	op->passing = true;
	op->deadline = INT64_MAX;
	let_pass(s, op, op->last);
}

/*
 * The copies behind done are in the stream, and take what is in the slots: what was not read is to be zeros there, not
 * bytes of an earlier transfer. A slot can be blanked when the stream has taken what lay there before, so the rest of
 * the operation's chunks go the way of all chunks. Not where the stream may not come by any more.
 */
static bool may_blank(const struct stream_op *op)
{
	return op->bare && !op->lost && !atomic_load_explicit(&op->broken, memory_order_relaxed);
}

/* It failed for good. */
static void give_up(struct stream *s, struct stream_op *op)
{
	if (may_blank(op)) {
		op->blanking = true;
		return;
	}
	for (uint32_t seq = s->good + 1; !stream_reached(seq, s->next); seq++)
		op->done += s->run[seq % s->slots].bytes;
	settle(s, op);
}

static bool stalls(struct stream *s, struct stream_op *op)
{
	uint32_t state = atomic_load_explicit(&s->x->c->state, memory_order_acquire);

	return op->flags & STREAM_STALL && !op->lost && is_well(s, op) && state < NVME_WEDGED &&
	       !atomic_load_explicit(&op->broken, memory_order_relaxed) &&
	       !atomic_load_explicit(&s->abandoned, memory_order_acquire) &&
	       atomic_load_explicit(&op->state, memory_order_relaxed) != STREAM_CANCELLED;
}

static void again(struct stream *s, struct stream_op *op, int64_t now)
{
	if (s->next != s->good + 1)
		s->cursor = s->run[(s->good + 1) % s->slots].from;
	s->next = s->good + 1;
	op->err = 0;
	op->status = 0;
	set_clock(op, now);
	if (s->good == op->first - 1)
		stream_read_cells(op);
}

/* It failed, and nothing of it is at the device. */
static bool ended_badly(struct stream *s, struct stream_op *op, int64_t now)
{
	uint32_t verdict;

	if (!stalls(s, op)) {
		give_up(s, op);
		return true;
	}
	pthread_mutex_lock(&s->x->lock);
	verdict = op->left && !op->verdict ? STREAM_FAIL : op->verdict;
	op->verdict = STREAM_UNDECIDED;
	if (verdict == STREAM_RESUME) {
		atomic_store_explicit(&op->state, STREAM_RUNNING, memory_order_relaxed);
	} else if (!verdict && atomic_load_explicit(&op->state, memory_order_relaxed) != STREAM_STALLED) {
		atomic_store_explicit(&op->state, STREAM_STALLED, memory_order_relaxed);
		tell(op, STREAM_STALLED, op->err);
	}
	pthread_mutex_unlock(&s->x->lock);
	if (verdict == STREAM_RESUME)
		again(s, op, now);
	else if (verdict == STREAM_FAIL)
		give_up(s, op);
	return verdict != STREAM_UNDECIDED;
}

static void watch(struct stream *s, struct stream_op *op, int64_t now)
{
	int broken = atomic_load_explicit(&op->broken, memory_order_acquire);

	if (broken && !op->err) {
		op->err = -EIO;
		op->gpu_code = broken;
	}
	if (now >= op->deadline) {
		op->deadline = INT64_MAX;
		if (!op->err) {
			op->err = -ETIMEDOUT;
			tell_early(s, op, STREAM_FAILED, op->err);
		}
	}
	if (!op->err && atomic_load_explicit(&s->abandoned, memory_order_acquire))
		op->err = -ESHUTDOWN;
	if ((!op->err || op->blanking) && !is_well(s, op) && !op->err)
		op->err = -EIO;
}

static bool work(struct stream *s, struct stream_op *op, int64_t now)
{
	bool some = false;

	watch(s, op, now);
	while (may_start(s, op)) {
		if (op->blanking)
			stream_blank_chunk(s, op);
		else
			stream_start_chunk(s, op);
		some = true;
	}
	if (advance(s, op)) {
		some = true;
		if (s->good != op->last) {
			make_visible(s, op);
			let_pass(s, op, s->good);
		}
	}
	if (s->good == op->last && !s->inflight) {
		settle(s, op);
		return true;
	}
	if (op->err && !s->inflight && !op->blanking)
		some |= ended_badly(s, op, now);
	else if (op->blanking && !may_blank(op))
		settle(s, op);
	return some;
}

/* The stream wrote it, or somebody found out; or it has come to what is behind it. */
static bool is_known(const struct stream *s, const struct stream_op *op)
{
	/* not round zero: none of them need have moved for long, and numbers begin again before they would wrap */
	return stream_word(&s->passed) >= op->last ||
	       atomic_load_explicit(&s->known, memory_order_acquire) >= op->last ||
	       stream_word(&s->go) > op->last;
}

/* Done was written. Has the stream taken what it was to take? */
static bool passed(struct stream *s, struct stream_op *op)
{
	int broken = atomic_load_explicit(&op->broken, memory_order_acquire);

	if (op->lost)
		return true;
	if ((op->tails || broken) && is_known(s, op))
		return true;
	if (broken)
		return !op->ends;
	return !op->tails || !is_well(s, op);
}

static void finish(struct stream *s, struct stream_op *op)
{
	struct stream_exec *x = s->x;
	uint32_t state;

	if (op->lost && !op->err)
		op->err = -EIO;
	s->was_eager = op->eager;
	s->was_spin_ns = op->spin_ns;
	stream_op_drop_refs(op);
	pthread_mutex_lock(&x->lock);
	state = atomic_load_explicit(&op->state, memory_order_relaxed);
	if (state != STREAM_CANCELLED)
		state = op->err ? STREAM_FAILED : STREAM_DONE;
	atomic_store_explicit(&op->state, state, memory_order_relaxed);
	op->over = true;
	op->res.over = 1;
	if (!op->told)
		tell(op, state, op->err ? op->err : (int64_t)op->done);
	if (op->flags & STREAM_STALL)
		stream_no_stall(s);
	s->nr_waiting--;
	if (op->released)
		stream_op_put(s, op);
	pthread_mutex_unlock(&x->lock);
	s->cur = NULL;
	/* release: whoever enqueues may use the entry again */
	atomic_fetch_add_explicit(&s->fifo_head, 1, memory_order_release);
}

bool stream_turn(struct stream *s, int64_t now)
{
	bool some = false;

	for (;;) {
		if (!s->cur && !begin_next(s, now))
			return some;
		some |= !s->cur->passing && work(s, s->cur, now);
		if (!s->cur->passing || !passed(s, s->cur))
			return some;
		finish(s, s->cur);
		some = true;
	}
}

enum stream_eager stream_eagerness(const struct stream *s)
{
	const struct stream_op *op = s->cur ? s->cur : head_of(s);

	if (!op) /* as the last one, which may have been over before the thread saw it */
		return s->was_eager;
	if (atomic_load_explicit(&op->state, memory_order_relaxed) == STREAM_STALLED)
		return STREAM_SLEEPS; /* for somebody to decide */
	return op->eager;
}

static bool is_alone(const struct stream *s)
{
	return atomic_load_explicit(&s->fifo_tail, memory_order_acquire) -
		       atomic_load_explicit(&s->fifo_head, memory_order_relaxed) ==
	       1;
}

enum stream_want stream_wants(const struct stream *s)
{
	const struct stream_op *op = s->cur;

	if (!op)
		return head_of(s) ? STREAM_WANTS_WORD : STREAM_WANTS_NOTHING;
	/* who learns of it comes by itself; go of the next one is looked for */
	if (op->passing && is_alone(s) && atomic_load_explicit(&op->quiet, memory_order_relaxed))
		return STREAM_WANTS_NOTHING;
	if (op->passing)
		return STREAM_WANTS_WORD;
	if (!op->blanking && atomic_load_explicit(&op->state, memory_order_relaxed) == STREAM_STALLED)
		return STREAM_WANTS_CQE;
	/* all that it lets start is started, or one is at the device and the next has no go */
	return s->inflight && (op->err || !stream_reached(op->last, s->next)) ? STREAM_WANTS_CQE
									      : STREAM_WANTS_WORD;
}

int64_t stream_patience(const struct stream *s)
{
	const struct stream_op *op = s->cur ? s->cur : head_of(s);
	const int64_t said = op ? op->spin_ns : s->was_spin_ns;

	if (stream_eagerness(s) == STREAM_SLEEPS)
		return 0;
	return said ? said : atomic_load_explicit(&s->x->spin_ns, memory_order_relaxed);
}
