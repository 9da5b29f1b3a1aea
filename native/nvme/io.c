/* SPDX-License-Identifier: MIT */
/* Starting single operations and collecting ended ones: the calls that a loop makes. */
#include <poll.h>
#include <unistd.h>

#include "nvme/check.h"
#include "nvme/spin.h"

#define OP_NOSPIN 0x200u
#define OP_SPIN 0x400u
#define OP_POLL 0x800u
#define OP_FUA 0x100u
#define OP_LATENCY 0x1000u
#define OP_BACKGROUND 0x2000u
#define OP_ADAPTIVE 0x4000u
#define OP_MODES (OP_NOSPIN | OP_SPIN | OP_POLL | OP_ADAPTIVE)

/* Size class of the latency estimates. */
static inline uint32_t size_class(uint64_t nbytes)
{
	uint32_t k = 64 - (uint32_t)__builtin_clzll(nbytes >> 12 | 1);

	return k > 15 ? 15 : k;
}

static inline void learn(struct nvme_chan *ch, const struct nvme_op *op, int64_t now, bool looked)
{
	const uint32_t size = size_class(op->nbytes);
	struct nvme_learnt *e = &ch->learner.of[size];
	const int64_t took = now - op->start;

	if (unlikely(nvme_sched_heavy(ch->ctrl)) && op->flow <= NVME_FLOW_LATENCY)
		nvme_sched_feel(ch->ctrl, &ch->sched, size, looked, looked ? e->quick_ns : e->slept_ns, took);
	if (looked)
		nvme_learn_quick(e, took);
	else
		nvme_learn_slept(e, took);
}

enum nvme_mode nvme_chan_mode(struct nvme_chan *ch, uint32_t flags)
{
	if (likely(!(flags & OP_MODES)))
		return ch->mode;
	if (flags & OP_ADAPTIVE) {
		ch->learns = true;
		return NVME_MODE_ADAPTIVE;
	}
	return flags & OP_POLL ? NVME_MODE_POLL : flags & OP_SPIN ? NVME_MODE_INLINE : NVME_MODE_INTERRUPT;
}

/* What a caller may spend on looking: ns, 0: do not look at all. */
static int64_t budget(struct nvme_chan *ch, enum nvme_mode mode, uint64_t nbytes, uint32_t flags)
{
	const struct nvme_ctrl *c = ch->ctrl;
	int64_t most = nvme_spin_of(c, flags);

	if (mode == NVME_MODE_INLINE)
		return most;
	if (mode != NVME_MODE_ADAPTIVE || unlikely(!most && flags & NVME_SPIN_SAID))
		return 0;
	if (c->wake_ns > most && likely(!(flags & NVME_SPIN_SAID)))
		most = c->wake_ns;
	return nvme_learn_budget(&ch->learner, size_class(nbytes), most, ch->inflight == 1);
}

/* A longer read, too, may be served here while its waiter would look for it anyway. *most: 0 where it is to be slept for, so that
 * others can start theirs. */
static bool step_long(struct nvme_chan *ch, enum nvme_mode mode, const struct nvme_op *op, int64_t *most)
{
	if (!ch->ctrl->step_most || mode != NVME_MODE_ADAPTIVE || op->opcode != NVME_IO_READ || !*most ||
	    op->nbytes > NVME_STEP_LONG || op->nbytes > op->ns->max_bytes || op->map->traits & MEM_STAGED)
		return false;
	if (nvme_learn_lone(&ch->learner))
		return true;
	*most = 0;
	return false;
}

/* Statistics are read under the lane's lock, by anybody. */
static void count_one(struct nvme_chan *ch, uint64_t *counter)
{
	owner_lock(&ch->own.lock);
	(*counter)++;
	owner_unlock(&ch->own.lock);
}

/* Field by field: of one that was given up, whoever reaps its commands still counts them. */
static void note_last(struct nvme_op *to, const struct nvme_op *op)
{
	to->gen = op->gen;
	to->slot = op->slot;
	to->done = op->done;
	to->err = op->err;
	to->dw0 = op->dw0;
	to->status = op->status;
	to->opcode = op->opcode;
	to->outcome = op->outcome;
}

static int64_t ended_inline(struct nvme_chan *ch, struct nvme_op *op, bool learn_it, int64_t now)
{
	int64_t res = nvme_op_result(op);

	if (learn_it)
		learn(ch, op, now ? now : now_ns(), true);
	if (unlikely(op->err))
		note_last(&ch->last, op);
	if (unlikely(op->outcome == NVME_UNKNOWN))
		nvme_chan_collected(ch, op);
	else
		nvme_chan_op_put(ch, op);
	return res;
}

/* Own queue pair: send, look for as long as it may pay, else arm. */
static int64_t run_direct(struct nvme_chan *ch, struct nvme_op *op, enum nvme_mode mode, uint32_t flags)
{
	struct nvme_lane *l = &ch->own;
	int64_t most = budget(ch, mode, op->nbytes, flags);
	/* a small read that memory or the page cache can serve costs less to serve here than to hand over */
	bool step = nvme_can_step(ch, mode, op->opcode, op->nbytes, op->map), over;
	bool armed;
	int64_t reaped_at;

	if (unlikely(!step))
		step = step_long(ch, mode, op, &most);
	armed = (most || step) && nvme_chan_disarm(ch);

	owner_lock(&l->lock);
	l->gather = true;
	l->want = op;
	if (unlikely(!nvme_lane_send(l, op, true))) {
		nvme_lane_queue(l, op);
		nvme_lane_pump(l, op->start, true);
	}
	/* a device that is waited for here is told at once, unless it is run here; else arming tells it */
	if (most && !step)
		nvme_lane_kick(l);
	if (most || step) {
		if (step)
			l->qp[op->qp]->ops->step(l->qp[op->qp], 1);
		nvme_lane_reap(l, true);
		if (!nvme_op_over(op) && most)
			nvme_spin(l, op->start + most, step, op);
	}
	if (armed || !nvme_op_over(op))
		nvme_chan_arm_lane(ch);
	over = nvme_op_over(op);
	/* What is still out may have been sent while we looked, with the device left asleep. */
	if (atomic_load_explicit(&l->inflight, memory_order_relaxed))
		nvme_lane_kick(l);
	l->st.inline_done += over;
	l->want = NULL;
	l->gather = false;
	reaped_at = l->reaped_at;
	owner_unlock(&l->lock);
	nvme_chan_tell(ch);
	if (over)
		return ended_inline(ch, op, mode == NVME_MODE_ADAPTIVE, reaped_at);
	if (most && mode == NVME_MODE_ADAPTIVE)
		nvme_learn_miss(&ch->learner.of[size_class(op->nbytes)]);
	return INT64_MIN;
}

static int64_t run_exec(struct nvme_chan *ch, struct nvme_op *op, enum nvme_mode mode, uint32_t flags)
{
	int64_t most = budget(ch, mode, op->nbytes, flags);

	op->exec = true;
	ch->away++;
	nvme_exec_post(ch->exec, op, op);
	/* the operation is the executor's until it comes back on our list */
	if (most && nvme_spin_ended(ch, op->start + most, op)) {
		nvme_chan_tell(ch); /* of what was taken off the list beside it */
		count_one(ch, &ch->own.st.inline_done);
		return ended_inline(ch, op, mode == NVME_MODE_ADAPTIVE, 0);
	}
	if (most && mode == NVME_MODE_ADAPTIVE)
		nvme_learn_miss(&ch->learner.of[size_class(op->nbytes)]);
	nvme_chan_arm(ch);
	return INT64_MIN;
}

static void classify(struct nvme_chan *ch, struct nvme_op *op, uint32_t flags)
{
	if (ch->ctrl->p.fifo)
		return;
	op->flow = flags & OP_LATENCY ? NVME_FLOW_LATENCY : NVME_FLOW_BACKGROUND;
	nvme_lane_class(&ch->own, op->flow);
	if (op->flow == NVME_FLOW_LATENCY && op->start - ch->own.sched.urgent > NSEC_PER_MSEC)
		nvme_sched_urgent(&ch->own, op->start);
}

static void hurry(struct nvme_chan *ch, const struct nvme_op *op)
{
	if (op->flow == NVME_FLOW_NORMAL && op->nbytes <= NVME_HEAVY_BYTES)
		nvme_sched_hurry(&ch->own, op->start);
}

int64_t nvme_chan_rw(struct nvme_chan *ch, struct nvme_ns *ns, uint64_t map, uint64_t buf_off,
		     uint64_t nbytes, uint64_t offset, uint32_t flags)
{
	uint32_t opcode = flags & 0xff;
	enum nvme_mode mode = nvme_chan_mode(ch, flags);
	struct mem_map *m = NULL;
	struct nvme_op *op;
	int64_t res;
	int err;

	err = nvme_ctrl_may(ch->ctrl);
	if (unlikely(err))
		return err;
	if (nvme_opcode_has_data(opcode)) {
		m = mem_get(&ch->ctrl->mem, map, 1);
		if (unlikely(!m))
			return mem_refusal(&ch->ctrl->mem, map);
	}
	op = nvme_chan_op_get(ch);
	if (unlikely(!op)) {
		err = -ENOMEM;
		goto put_map;
	}
	err = nvme_check(ch->ctrl, ns, m, buf_off, nbytes, offset, opcode, flags & OP_FUA, op);
	if (unlikely(err))
		goto put_op;
	if (unlikely(!nbytes && opcode != NVME_IO_FLUSH)) {
		res = 0;
		goto nothing;
	}
	op->exec = false;
	op->flags |= nvme_chunk_flags(flags);
	op->start = now_ns();
	if (unlikely(flags & (OP_LATENCY | OP_BACKGROUND)))
		classify(ch, op, flags);
	if (unlikely(op->start - ch->own.sched.hurry > NSEC_PER_MSEC))
		hurry(ch, op);
	atomic_fetch_add_explicit(&ns->ref, 1, memory_order_relaxed);
	if (likely(ch->owns && mode != NVME_MODE_POLL)) {
		res = run_direct(ch, op, mode, flags);
	} else {
		err = ch->exec ? 0 : nvme_exec_get(ch->ctrl, &ch->exec);
		if (unlikely(err)) {
			atomic_fetch_sub_explicit(&ns->ref, 1, memory_order_relaxed);
			goto put_op;
		}
		res = run_exec(ch, op, mode, flags);
	}
	if (likely(res != INT64_MIN))
		return res;
	return (int64_t)(NVME_PENDING | nvme_op_token(op));
put_op:
	res = err;
nothing:
	nvme_chan_op_put(ch, op);
	if (m)
		mem_put(m, 1);
	return res;
put_map:
	if (m)
		mem_put(m, 1);
	return err;
}

/* Move what others handed over to the ready list, in the order it came. */
static void take_ended(struct nvme_chan *ch)
{
	struct nvme_op *op, *rev = NULL, **tail = &ch->ready;

	if (!atomic_load_explicit(&ch->ended, memory_order_relaxed))
		return;
	/* acquire: the operations' fields as they were when they were pushed */
	op = atomic_exchange_explicit(&ch->ended, NULL, memory_order_acquire);
	while (op) {
		struct nvme_op *next = op->next;

		op->next = rev;
		rev = op;
		op = next;
	}
	while (*tail)
		tail = &(*tail)->next;
	*tail = rev;
}

bool nvme_chan_take(struct nvme_chan *ch, const struct nvme_op *op)
{
	take_ended(ch);
	for (struct nvme_op **p = &ch->ready; *p; p = &(*p)->next) {
		if (*p != op)
			continue;
		*p = op->next;
		return true;
	}
	return false;
}

static uint32_t take_ready(struct nvme_chan *ch, struct nvme_op **out, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && ch->ready) {
		struct nvme_op *op = ch->ready;

		ch->ready = op->next;
		out[n++] = op;
	}
	return n;
}

static void reap_own(struct nvme_chan *ch, struct nvme_sink *sink)
{
	struct nvme_lane *l = &ch->own;

	if (!atomic_load_explicit(&l->inflight, memory_order_relaxed) &&
	    !atomic_load_explicit(&l->queued, memory_order_relaxed))
		return;
	owner_lock(&l->lock);
	l->sink = sink;
	l->gather = true;
	nvme_lane_reap(l, false);
	if (ch->polled) /* under the lock: a reset rewinds the pairs */
		nvme_lane_tell(l, false);
	if (l->next_timer != INT64_MAX)
		nvme_lane_expire(l, now_ns());
	if (unlikely(atomic_load_explicit(&ch->ctrl->state, memory_order_acquire) >= NVME_WEDGED))
		nvme_lane_fail(l);
	l->sink = NULL;
	l->gather = false;
	owner_unlock(&l->lock);
}

uint32_t nvme_chan_poll(struct nvme_chan *ch, struct nvme_op **out, uint32_t max)
{
	struct nvme_sink sink = { .out = out, .max = max };
	int64_t now = 0;

	take_ended(ch);
	sink.n = take_ready(ch, out, max);
	if (ch->owns && sink.n < max)
		reap_own(ch, &sink);
	if (sink.n < max) {
		take_ended(ch);
		sink.n += take_ready(ch, out + sink.n, max - sink.n);
	}
	if (ch->learns || unlikely(nvme_sched_heavy(ch->ctrl)))
		for (uint32_t i = 0; i < sink.n; i++) {
			if (out[i]->flags & NVME_OPF_ADMIN || out[i]->silent)
				continue;
			now = now ? now : now_ns();
			if (out[i]->flags & NVME_OPF_HANDLE)
				nvme_median(&out[i]->batch->est_ns, now - out[i]->batch->start);
			else
				learn(ch, out[i], now, false);
		}
	return sink.n;
}

/* Arm, and collect what came in between. */
static uint32_t arm_collect(struct nvme_chan *ch, struct nvme_op **out, uint32_t n, uint32_t max)
{
	struct nvme_sink sink = { .out = out, .n = n, .max = max };
	struct nvme_lane *l = &ch->own;
	uint32_t away = 0;

	for (uint32_t i = 0; i < n; i++) /* they are on their way to the caller */
		away += !(out[i]->flags & NVME_OPF_HANDLE) && !out[i]->batch && nvme_op_away(out[i]);
	ch->away -= away;
	owner_lock(&l->lock);
	l->sink = &sink;
	l->gather = true;
	nvme_chan_arm_lane(ch);
	l->sink = NULL;
	l->gather = false;
	owner_unlock(&l->lock);
	ch->away += away;
	nvme_chan_tell(ch);
	return sink.n;
}

int nvme_chan_reap(struct nvme_chan *ch, struct nvme_op **out, uint32_t max)
{
	uint64_t count;
	uint32_t n;

	if (read(ch->fd, &count, sizeof(count)) == sizeof(count))
		count_one(ch, &ch->own.st.wakeups);
	n = nvme_chan_poll(ch, out, max);
	if (n < max)
		n = arm_collect(ch, out, n, max);
	if (n == max) /* there may be more: stay readable */
		nvme_signal(ch->fd);
	return (int)n;
}

int nvme_chan_wait(struct nvme_chan *ch, struct nvme_op **out, uint32_t max, int64_t timeout_ns)
{
	int64_t end = timeout_ns > 0 ? now_ns() + timeout_ns : INT64_MAX;

	for (;;) {
		struct pollfd pfd = { .fd = ch->fd, .events = POLLIN };
		int64_t left;
		int n = nvme_chan_reap(ch, out, max);
		struct timespec ts;

		if (n)
			return n;
		if (ch->fd < 0) /* a forked child's: nothing will come */
			return -EBADF;
		left = end == INT64_MAX ? NSEC_PER_SEC : end - now_ns();
		if (left <= 0)
			return 0;
		ts = (struct timespec){ .tv_sec = left / NSEC_PER_SEC, .tv_nsec = left % NSEC_PER_SEC };
		if (ppoll(&pfd, 1, &ts, NULL) < 0)
			return -errno;
	}
}

void nvme_chan_deadline(struct nvme_chan *ch, uint64_t token, int64_t timeout_ns)
{
	struct nvme_op *op = nvme_chan_op_find(ch, token);
	struct nvme_lane *l;

	if (!op)
		return;
	l = nvme_op_lane(op);
	if (op->exec)
		nvme_exec_drain(ch->exec);
	owner_lock(&l->lock);
	/* cancelled: its grace runs */
	if (!(op->flags & (NVME_OPF_HANDLE | NVME_OPF_ADMIN | NVME_OPF_CANCELLED)) && nvme_op_live(op)) {
		op->timer.is_grace = op->timer.is_batch = false;
		op->flags |= NVME_OPF_TIMED;
		if (timeout_ns)
			nvme_lane_timer(l, &op->timer, now_ns() + timeout_ns);
		else
			nvme_lane_no_timer(&op->timer);
	}
	owner_unlock(&l->lock);
}

int nvme_chan_cancel(struct nvme_chan *ch, uint64_t token, int64_t grace_ns)
{
	struct nvme_op *op = nvme_chan_op_find(ch, token);
	struct nvme_lane *l;
	int res = 0;

	if (!op)
		return 0;
	l = nvme_op_lane(op);
	if (op->exec)
		nvme_exec_drain(ch->exec); /* what was posted is on the lane, where it can be found */
	owner_lock(&l->lock);
	if (!(op->flags & (NVME_OPF_HANDLE | NVME_OPF_ADMIN)) && nvme_op_live(op)) {
		bool again = op->flags & NVME_OPF_CANCELLED; /* it is not given more time */

		res = 1;
		nvme_lane_cancel(l, op, -ECANCELED);
		if (nvme_op_state(op) == NVME_OP_SENT && !again) {
			op->timer.is_grace = true;
			op->timer.is_batch = false;
			op->flags |= NVME_OPF_TIMED;
			nvme_lane_timer(l, &op->timer, now_ns() + grace_ns);
		}
	}
	owner_unlock(&l->lock);
	/* what ended just now is on our own list: have the loop come round for it */
	nvme_chan_arm(ch);
	return res;
}
