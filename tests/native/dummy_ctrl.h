/* SPDX-License-Identifier: MIT */
/*
 * A transport without registers, rings or bus addresses: properties are a struct, commands run when they
 * are kicked, completions wait in a list. What nvme/ does over it, it does without PCIe. Its answers can
 * be bent, for tests of a device that lies.
 */
#ifndef TESTS_DUMMY_CTRL_H
#define TESTS_DUMMY_CTRL_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/chan.h"

#define DUMMY_DEPTH_MAX 256
#define DUMMY_BYTES (4u << 20)
#define DUMMY_LBA 512u
#define DUMMY_BINDS 16

struct dummy;

struct dummy_qpair {
	struct nvme_qpair base;
	struct dummy *d;
	struct nvme_io io[DUMMY_DEPTH_MAX]; /* submitted, not kicked */
	struct nvme_sqe raw[DUMMY_DEPTH_MAX];
	void *raw_owner[DUMMY_DEPTH_MAX];
	uint32_t nr_io, nr_raw;
	int64_t sent_ns; /* it is served in the call that sends it */
	struct nvme_done done[DUMMY_DEPTH_MAX]; /* ring of completions */
	struct nvme_done held[8]; /* event requests */
	uint32_t nr_held;
	_Atomic uint32_t head, tail;
	uint16_t next_cid;
	bool connected;
};

struct dummy {
	uint64_t cap;
	uint32_t vs, cc, csts;
	pthread_mutex_t lock; /* properties, bindings */
	struct {
		int fd;
		_Atomic uint32_t *word;
		bool used;
	} bind[DUMMY_BINDS];
	uint8_t *media;
	struct nvme_id_ctrl id;
	struct nvme_id_ns ns[4]; /* namespaces 1 .. 4 */
	le32_t active[1024];
	bool no_active_list;
	bool gone;
	bool deaf; /* no vector takes another owner */
	uint32_t grant; /* Set Features, number of queues: dw0 */
	uint32_t mapped;
	uint32_t max_nbytes; /* largest I/O command seen */
	uint32_t admin_seen[256];
	bool *closed;
};

static inline int dummy_prop_get(void *t, uint32_t off, uint32_t nbytes, uint64_t *ret)
{
	struct dummy *d = t;
	int rc;

	(void)nbytes;
	pthread_mutex_lock(&d->lock);
	rc = d->gone ? -ENODEV : 0;
	*ret = off == NVME_REG_CAP  ? d->cap
	       : off == NVME_REG_VS ? d->vs
	       : off == NVME_REG_CC ? d->cc
				    : d->csts;
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static inline int dummy_prop_set(void *t, uint32_t off, uint32_t nbytes, uint64_t val)
{
	struct dummy *d = t;

	(void)nbytes;
	pthread_mutex_lock(&d->lock);
	if (off == NVME_REG_CC) {
		d->cc = (uint32_t)val;
		d->csts = (d->cc & NVME_CC_EN ? NVME_CSTS_RDY : 0) |
			  (NVME_CC_GET_SHN(d->cc) ? NVME_CSTS_SHST_COMPLETE : 0);
	}
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static inline int dummy_map(void *t, void *vaddr, size_t nbytes, uint32_t flags, struct dma_mapping *ret)
{
	struct dummy *d = t;
	uint64_t first = (uintptr_t)vaddr & ~4095ull, end = ((uintptr_t)vaddr + nbytes + 4095) & ~4095ull;

	(void)flags;
	ret->extents = malloc(sizeof(*ret->extents));
	ret->extents[0] = (struct dma_extent){ .iova = first, .nbytes = end - first };
	ret->nr = 1;
	ret->first_off = (uintptr_t)vaddr - first;
	ret->handle = ++d->mapped;
	return 0;
}

static inline int dummy_unmap(void *t, uint64_t handle)
{
	(void)t;
	(void)handle;
	return 0;
}

static inline int dummy_stop_dma(void *t)
{
	(void)t;
	return 0;
}

static inline int dummy_wake_bind(void *t, uint32_t vector, int fd, _Atomic uint32_t *word, uint64_t *ret)
{
	struct dummy *d = t;
	int rc = -ENOSPC;

	(void)vector;
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < DUMMY_BINDS && rc && !d->deaf; i++) {
		if (d->bind[i].used)
			continue;
		d->bind[i].fd = fd;
		d->bind[i].word = word;
		d->bind[i].used = true;
		*ret = i;
		rc = 0;
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static inline int dummy_wake_unbind(void *t, uint64_t binding)
{
	struct dummy *d = t;

	pthread_mutex_lock(&d->lock);
	d->bind[binding].used = false;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static inline void dummy_interrupt(struct dummy *d)
{
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < DUMMY_BINDS; i++)
		if (d->bind[i].used)
			nvme_wake(d->bind[i].word, d->bind[i].fd);
	pthread_mutex_unlock(&d->lock);
}

static inline void dummy_post(struct dummy_qpair *q, struct nvme_done done)
{
	uint32_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);

	q->done[tail % DUMMY_DEPTH_MAX] = done;
	atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
}

/* Data goes to the first page of the command's data pointer: all of what is asked for here fits it. */
static inline uint16_t dummy_admin(struct dummy_qpair *q, const struct nvme_sqe *sqe, uint32_t *ret_dw0)
{
	struct dummy *d = q->d;
	void *data = (void *)(uintptr_t)le64_get(sqe->prp1);
	uint32_t cns = le32_get(sqe->cdw10) & 0xff, nsid = le32_get(sqe->nsid);

	d->admin_seen[sqe->opcode]++;
	switch (sqe->opcode) {
	case NVME_ADM_IDENTIFY:
		if (cns == NVME_CNS_CTRL)
			memcpy(data, &d->id, 4096);
		else if (cns == NVME_CNS_NS && nsid >= 1 && nsid <= 4)
			memcpy(data, &d->ns[nsid - 1], 4096);
		else if (cns == NVME_CNS_ACTIVE_NS && !d->no_active_list)
			memcpy(data, d->active, 4096);
		else
			return NVME_SC_INVALID_FIELD;
		return 0;
	case NVME_ADM_SET_FEATURES:
		if ((le32_get(sqe->cdw10) & 0xff) == NVME_FEAT_NUM_QUEUES)
			*ret_dw0 = d->grant;
		return 0;
	case NVME_ADM_GET_LOG:
		return 0;
	default:
		return NVME_SC_INVALID_OPCODE;
	}
}

static inline uint16_t dummy_io(struct dummy_qpair *q, const struct nvme_io *io)
{
	struct dummy *d = q->d;
	uint64_t off = io->cdw10_11 * DUMMY_LBA;
	uint8_t *mem = io->map ? (uint8_t *)io->map->vaddr + io->buf_off : NULL;

	if (io->nbytes > d->max_nbytes)
		d->max_nbytes = io->nbytes;
	if (io->opcode == NVME_IO_FLUSH)
		return 0;
	if (off + io->nbytes > DUMMY_BYTES)
		return NVME_SC_LBA_RANGE;
	if (io->opcode == NVME_IO_READ)
		memcpy(mem, d->media + off, io->nbytes);
	else if (io->opcode == NVME_IO_WRITE)
		memcpy(d->media + off, mem, io->nbytes);
	else
		return NVME_SC_INVALID_OPCODE;
	return 0;
}

static inline struct dummy_qpair *dummy_qp(struct nvme_qpair *qp)
{
	return container_of(qp, struct dummy_qpair, base);
}

static inline int dummy_connect(struct nvme_qpair *qp)
{
	struct dummy_qpair *q = dummy_qp(qp);

	q->nr_io = q->nr_raw = q->nr_held = 0;
	atomic_store(&q->head, 0);
	atomic_store(&q->tail, 0);
	qp->inflight = 0;
	qp->space = qp->conf.depth - 1;
	q->connected = true;
	return 0;
}

static inline uint32_t dummy_submit(struct nvme_qpair *qp, struct nvme_io *ios, uint32_t n, int64_t now)
{
	struct dummy_qpair *q = dummy_qp(qp);
	uint32_t i;

	q->sent_ns = now;
	for (i = 0; i < n && qp->space; i++, qp->space--, qp->inflight++) {
		ios[i].cid = q->next_cid++;
		q->io[q->nr_io++] = ios[i];
	}
	return i;
}

static inline int dummy_submit_raw(struct nvme_qpair *qp, const struct nvme_sqe *sqe, void *owner,
				   int64_t now)
{
	struct dummy_qpair *q = dummy_qp(qp);

	(void)now;
	if (!qp->space)
		return -EAGAIN;
	q->raw[q->nr_raw] = *sqe;
	q->raw_owner[q->nr_raw++] = owner;
	qp->space--;
	qp->inflight++;
	return q->next_cid++;
}

static inline void dummy_kick(struct nvme_qpair *qp, bool hold)
{
	struct dummy_qpair *q = dummy_qp(qp);
	bool some = q->nr_io || q->nr_raw;

	(void)hold;
	qp->nr_doorbells += some;
	for (uint32_t i = 0; i < q->nr_io; i++)
		dummy_post(q, (struct nvme_done){ .owner = q->io[i].owner,
						  .nbytes = q->io[i].nbytes,
						  .cid = q->io[i].cid,
						  .sent_ns = q->sent_ns,
						  .status = dummy_io(q, &q->io[i]) });
	for (uint32_t i = 0; i < q->nr_raw; i++) {
		struct nvme_done done = { .owner = q->raw_owner[i] };

		if (q->raw[i].opcode == NVME_ADM_ASYNC_EVENT && q->nr_held < ARRAY_SIZE(q->held)) {
			q->held[q->nr_held++] = done; /* until an event comes: never */
			continue;
		}
		done.status = dummy_admin(q, &q->raw[i], &done.dw0);
		dummy_post(q, done);
	}
	q->nr_io = q->nr_raw = 0;
	if (some)
		dummy_interrupt(q->d);
}

static inline uint32_t dummy_reap(struct nvme_qpair *qp, struct nvme_done *out, uint32_t max)
{
	struct dummy_qpair *q = dummy_qp(qp);
	uint32_t head = atomic_load_explicit(&q->head, memory_order_relaxed), n = 0;

	while (n < max && head != atomic_load_explicit(&q->tail, memory_order_acquire))
		out[n++] = q->done[head++ % DUMMY_DEPTH_MAX];
	atomic_store_explicit(&q->head, head, memory_order_release);
	qp->inflight -= n;
	qp->space += n;
	return n;
}

static inline bool dummy_peek(struct nvme_qpair *qp)
{
	struct dummy_qpair *q = dummy_qp(qp);

	return atomic_load_explicit(&q->head, memory_order_relaxed) !=
	       atomic_load_explicit(&q->tail, memory_order_relaxed);
}

static inline bool dummy_oldest(struct nvme_qpair *qp, int64_t before, struct nvme_stuck *ret)
{
	(void)qp;
	(void)before;
	(void)ret;
	return false;
}

static inline void dummy_excuse(struct nvme_qpair *qp, int64_t gap, int64_t now)
{
	(void)qp;
	(void)gap;
	(void)now;
}

static inline void dummy_each(struct nvme_qpair *qp, void (*fn)(void *ctx, void *owner, uint16_t cid),
			      void *ctx)
{
	(void)qp;
	(void)fn;
	(void)ctx;
}

/* A command completes when it is kicked: none is outstanding without its completion. */
static inline bool dummy_next(struct nvme_qpair *qp, const void *owner, uint32_t *pos, uint16_t *ret_cid)
{
	(void)qp;
	(void)owner;
	(void)pos;
	(void)ret_cid;
	return false;
}

static inline uint32_t dummy_landed(struct nvme_qpair *qp, const void *owner)
{
	struct dummy_qpair *q = dummy_qp(qp);
	uint32_t tail = atomic_load_explicit(&q->tail, memory_order_acquire), n = 0;

	for (uint32_t i = atomic_load_explicit(&q->head, memory_order_relaxed); i != tail; i++)
		n += q->done[i % DUMMY_DEPTH_MAX].owner == owner;
	return n;
}

static inline void dummy_fail_all(struct nvme_qpair *qp, void (*fn)(void *ctx, const struct nvme_done *),
				  void *ctx)
{
	struct dummy_qpair *q = dummy_qp(qp);
	struct nvme_done done;

	while (dummy_reap(qp, &done, 1))
		fn(ctx, &done);
	for (uint32_t i = 0; i < q->nr_held; i++)
		fn(ctx, &q->held[i]);
	q->nr_held = 0;
	qp->inflight = 0;
}

static inline int dummy_disconnect(struct nvme_qpair *qp, bool connected)
{
	(void)connected;
	dummy_qp(qp)->connected = false;
	return 0;
}

static inline void dummy_free(struct nvme_qpair *qp) { free(dummy_qp(qp)); }

static const struct nvme_qpair_ops dummy_qpair_ops = {
	.connect = dummy_connect,
	.submit = dummy_submit,
	.submit_raw = dummy_submit_raw,
	.kick = dummy_kick,
	.reap = dummy_reap,
	.peek = dummy_peek,
	.oldest = dummy_oldest,
	.excuse = dummy_excuse,
	.each = dummy_each,
	.next = dummy_next,
	.landed = dummy_landed,
	.fail_all = dummy_fail_all,
	.disconnect = dummy_disconnect,
	.free = dummy_free,
};

static inline int dummy_qpair_new(struct nvme_ctrl *c, const struct nvme_qpair_conf *conf,
				  struct nvme_qpair **ret)
{
	struct dummy_qpair *q = calloc(1, sizeof(*q));

	q->d = c->t;
	q->base = (struct nvme_qpair){ .ops = &dummy_qpair_ops, .ctrl = c, .conf = *conf };
	*ret = &q->base;
	return 0;
}

static inline uint32_t dummy_nr_vectors(void *t)
{
	(void)t;
	return 1;
}

static inline uint32_t dummy_flags(void *t)
{
	(void)t;
	return NVME_TR_ARM;
}

static inline void dummy_close(void *t)
{
	struct dummy *d = t;

	*d->closed = true;
	pthread_mutex_destroy(&d->lock);
	free(d->media);
	free(d);
}

static const struct nvme_ctrl_ops dummy_ctrl_ops = {
	.name = "dummy",
	.prop_get = dummy_prop_get,
	.prop_set = dummy_prop_set,
	.map = dummy_map,
	.unmap = dummy_unmap,
	.stop_dma = dummy_stop_dma,
	.wake_bind = dummy_wake_bind,
	.wake_unbind = dummy_wake_unbind,
	.qpair_new = dummy_qpair_new,
	.nr_vectors = dummy_nr_vectors,
	.flags = dummy_flags,
	.close = dummy_close,
};

/* A well-behaved one: namespace 1 of 4 MiB in 512-byte blocks, MDTS 64 KiB, two queue pairs. */
static inline struct dummy *dummy_new(bool *closed)
{
	struct dummy *d = calloc(1, sizeof(*d));

	*closed = false;
	d->closed = closed;
	pthread_mutex_init(&d->lock, NULL);
	d->media = calloc(1, DUMMY_BYTES);
	d->cap = 127 | 1ull << 37;
	d->vs = 0x20000;
	d->id = (struct nvme_id_ctrl){
		.mdts = 4, .sqes = 0x66, .cqes = 0x44, .nn = le32_put(4), .aerl = 3, .acl = 3
	};
	memcpy(d->id.sn, "DUMMY SERIAL        ", 20);
	memset(d->id.mn, ' ', sizeof(d->id.mn));
	memcpy(d->id.mn, "dummy", 5);
	d->ns[0].nsze = le64_put(DUMMY_BYTES / DUMMY_LBA);
	d->ns[0].lbaf[0].lbads = 9;
	d->active[0] = le32_put(1);
	d->grant = 1 | 1 << 16;
	return d;
}

#endif
