/* SPDX-License-Identifier: MIT */
/* Admin commands: data pages, sending, completing, waiting. */
#include "nvme/admin.h"

#include <stdlib.h>

#include "mem/hugepage.h"
#include "nvme/status.h"
#include "nvme/wait.h"

/* One bus address for each controller page of the area; extents may break between pages only. */
static int fill_iova(struct nvme_ctrl *c, const struct dma_mapping *dma, size_t page)
{
	struct nvme_admin *a = c->adm;
	uint32_t n = 0, want = a->slot_pages * NVME_ADMIN_SLOTS;

	a->base = (uint8_t *)a->area + (align_up(dma->extents[0].iova, page) - dma->extents[0].iova);
	for (size_t i = 0; i < dma->nr; i++) {
		const struct dma_extent *e = &dma->extents[i];

		for (uint64_t p = align_up(e->iova, page); p + page <= e->iova + e->nbytes && n < want;
		     p += page)
			a->iova[n++] = p;
	}
	return n == want ? 0 : -ENOTSUP;
}

int nvme_admin_init(struct nvme_ctrl *c)
{
	size_t page = (size_t)1 << c->page_shift;
	struct nvme_qpair_conf conf = {
		.depth = min_u32(NVME_ADMIN_DEPTH, NVME_CAP_MQES(c->cap) + 1),
		.kind = NVME_QPAIR_ADMIN,
		.irq = c->nr_vectors > 0,
	};
	struct nvme_admin *a = calloc(1, sizeof(*a));
	struct dma_mapping dma = { 0 };
	bool huge;
	int err;

	if (!a)
		return -ENOMEM;
	c->adm = a;
	a->slot_pages = 1 + (uint32_t)(align_up(NVME_ADMIN_MAX_DATA, page) / page);
	a->free_slots = (1u << NVME_ADMIN_SLOTS) - 1;
	atomic_init(&a->sync.refs, 1);
	err = mem_queue_alloc(a->slot_pages * NVME_ADMIN_SLOTS * page + (page > QUEUE_PAGE ? page : 0), false,
			      &a->area, &a->area_bytes, &huge);
	if (err)
		return err;
	/* pages larger than the host's have to be one piece each */
	err = c->ops->map(c->t, a->area, a->area_bytes,
			  DMA_READ | DMA_WRITE | (page > QUEUE_PAGE ? DMA_CONTIG : 0), &dma);
	if (err)
		return err;
	a->handle = dma.handle;
	err = fill_iova(c, &dma, page);
	free(dma.extents);
	return err ? err : c->ops->qpair_new(c, &conf, &c->admin);
}

void nvme_admin_done(struct nvme_ctrl *c)
{
	struct nvme_admin *a = c->adm;

	if (c->admin)
		c->admin->ops->free(c->admin);
	c->admin = NULL;
	if (!a)
		return;
	if (a->handle)
		c->ops->unmap(c->t, a->handle);
	mem_queue_free(a->area, a->area_bytes);
	free(a);
	c->adm = NULL;
}

static uint8_t *slot_data(struct nvme_ctrl *c, int slot)
{
	return c->adm->base + (((size_t)slot * c->adm->slot_pages + 1) << c->page_shift);
}

/* Point the command at its data pages (Base 4.1.1); the slot's first page is the PRP list. */
static void set_prps(struct nvme_ctrl *c, struct nvme_admin_req *req)
{
	struct nvme_admin *a = c->adm;
	uint64_t *list = (void *)(a->base + (((size_t)req->slot * a->slot_pages) << c->page_shift));
	const uint64_t *iova = &a->iova[(uint32_t)req->slot * a->slot_pages];
	uint32_t n = (uint32_t)((req->nbytes + (1ull << c->page_shift) - 1) >> c->page_shift);

	req->sqe.prp1 = le64_put(iova[1]);
	req->sqe.prp2 = le64_put(n == 2 ? iova[2] : n > 2 ? iova[0] : 0);
	for (uint32_t i = 2; i <= n; i++)
		list[i - 2] = le64_put(iova[i]);
}

int nvme_admin_send(struct nvme_ctrl *c, struct nvme_admin_req *req, int64_t now)
{
	struct nvme_admin *a = c->adm;
	int err;

	if (!c->admin->space)
		return -EAGAIN;
	req->slot = -1;
	if (req->nbytes) {
		if (!a->free_slots)
			return -EAGAIN;
		req->slot = __builtin_ctz(a->free_slots);
		a->free_slots &= ~(1u << req->slot);
		if (req->to_device)
			memcpy(slot_data(c, req->slot), req->data, req->nbytes);
		else
			memset(slot_data(c, req->slot), 0,
			       req->nbytes); /* what is not written reads as zero */
		set_prps(c, req);
	}
	req->sent_ns = now;
	err = c->admin->ops->submit_raw(c->admin, &req->sqe, req, now);
	if (err < 0) {
		if (req->slot >= 0)
			a->free_slots |= 1u << req->slot;
		return err;
	}
	req->next = a->sent;
	a->sent = req;
	return 0;
}

void nvme_admin_req_put(struct nvme_admin_req *req)
{
	/* acq_rel: whoever frees it sees all that the other one did to it */
	if (atomic_fetch_sub_explicit(&req->refs, 1, memory_order_acq_rel) == 1) {
		free(req->data);
		free(req);
	}
}

void nvme_admin_end(struct nvme_admin_req *req, int err)
{
	if (req->ended)
		return;
	req->ended = true;
	req->err = err;
	if (req->done)
		req->done(req);
}

/* The device is done with @d's request, or will never be heard of again (@err). */
static void complete(struct nvme_ctrl *c, const struct nvme_done *d, int err)
{
	struct nvme_admin_req *req = d->owner;

	for (struct nvme_admin_req **p = &c->adm->sent; *p; p = &(*p)->next) {
		if (*p == req) {
			*p = req->next;
			break;
		}
	}
	/* A request that ended before belongs to its submitter: nothing of it is written any more. */
	if (!req->ended) {
		req->status = err ? 0 : d->status;
		req->dw0 = d->dw0;
		if (!err)
			err = nvme_status_errno(d->status);
		if (!err && req->nbytes && !req->to_device)
			memcpy(req->data, slot_data(c, req->slot), req->nbytes);
	}
	if (req->slot >= 0)
		c->adm->free_slots |= 1u << req->slot;
	nvme_admin_end(req, err);
	nvme_admin_req_put(req);
}

uint32_t nvme_admin_reap(struct nvme_ctrl *c)
{
	struct nvme_done done[8];
	uint32_t n, total = 0;

	do {
		n = c->admin->ops->reap(c->admin, done, ARRAY_SIZE(done));
		for (uint32_t i = 0; i < n; i++)
			complete(c, &done[i], 0);
		total += n;
	} while (n);
	return total;
}

struct forget_ctx {
	struct nvme_ctrl *c;
	int err;
};

static void forget_one(void *ctx, const struct nvme_done *d)
{
	struct forget_ctx *f = ctx;

	complete(f->c, d, f->err);
}

void nvme_admin_forget(struct nvme_ctrl *c, int err)
{
	struct forget_ctx f = { .c = c, .err = err };

	c->admin->ops->fail_all(c->admin, forget_one, &f);
	c->adm->stuck = false;
}

void nvme_admin_fail(struct nvme_ctrl *c, int err)
{
	struct nvme_admin_req *req, *next;

	for (req = c->adm->sent; req; req = req->next)
		nvme_admin_end(req, err);
	pthread_mutex_lock(&c->admin_lock);
	req = c->admin_head;
	c->admin_head = c->admin_tail = NULL;
	pthread_mutex_unlock(&c->admin_lock);
	for (; req; req = next) {
		next = req->next;
		nvme_admin_end(req, err);
		nvme_admin_req_put(req);
	}
}

struct nvme_admin_req *nvme_admin_oldest(struct nvme_ctrl *c)
{
	struct nvme_admin_req *old = NULL;

	for (struct nvme_admin_req *req = c->adm->sent; req; req = req->next)
		if (req->sqe.opcode != NVME_ADM_ASYNC_EVENT && (!old || req->sent_ns <= old->sent_ns))
			old = req;
	return old;
}

static struct nvme_admin_req *pop_queued(struct nvme_ctrl *c)
{
	struct nvme_admin_req *req;

	pthread_mutex_lock(&c->admin_lock);
	req = c->admin_head;
	if (req) {
		c->admin_head = req->next;
		if (!req->next)
			c->admin_tail = NULL;
	}
	pthread_mutex_unlock(&c->admin_lock);
	return req;
}

static void unpop_queued(struct nvme_ctrl *c, struct nvme_admin_req *req)
{
	pthread_mutex_lock(&c->admin_lock);
	req->next = c->admin_head;
	c->admin_head = req;
	if (!req->next)
		c->admin_tail = req;
	pthread_mutex_unlock(&c->admin_lock);
}

void nvme_admin_send_queued(struct nvme_ctrl *c, int64_t now)
{
	struct nvme_admin_req *req;
	bool sent = false;

	while ((req = pop_queued(c))) {
		if (nvme_admin_send(c, req, now)) {
			unpop_queued(c, req); /* its turn comes when something completes */
			break;
		}
		sent = true;
	}
	if (sent)
		c->admin->ops->kick(c->admin, false);
}

/* Commands that would pull queues and events away from under the engine. */
static bool is_engines_own(uint8_t opcode)
{
	switch (opcode) {
	case NVME_ADM_DELETE_SQ:
	case NVME_ADM_CREATE_SQ:
	case NVME_ADM_DELETE_CQ:
	case NVME_ADM_CREATE_CQ:
	case NVME_ADM_ABORT:
	case NVME_ADM_ASYNC_EVENT:
	case NVME_ADM_DBBUF:
		return true;
	default:
		return false;
	}
}

/* What a controller opened read-only still answers. Set Features is not among it: features outlive us. */
static bool is_harmless(uint8_t opcode)
{
	return opcode == NVME_ADM_IDENTIFY || opcode == NVME_ADM_GET_LOG || opcode == NVME_ADM_GET_FEATURES ||
	       opcode == NVME_ADM_KEEP_ALIVE;
}

int nvme_admin_queue(struct nvme_ctrl *c, struct nvme_admin_req *req)
{
	int err = 0;

	if (req->nbytes > NVME_ADMIN_MAX_DATA || (c->mdts_bytes && req->nbytes > c->mdts_bytes))
		return -EINVAL;
	if (is_engines_own(req->sqe.opcode) || (req->sqe.opcode == NVME_ADM_SET_FEATURES &&
						(le32_get(req->sqe.cdw10) & 0xff) == NVME_FEAT_NUM_QUEUES))
		return -EPERM;
	if (c->p.readonly && !is_harmless(req->sqe.opcode))
		return -EROFS;
	req->slot = -1;
	req->next = NULL;
	req->ended = false;
	pthread_mutex_lock(&c->admin_lock);
	/* under the lock: nvme_admin_fail() empties the list after the state changed, so nothing stays
	 * behind */
	err = nvme_ctrl_check(c);
	if (!err) {
		atomic_fetch_add_explicit(&req->refs, 1, memory_order_relaxed);
		if (c->admin_tail)
			c->admin_tail->next = req;
		else
			c->admin_head = req;
		c->admin_tail = req;
	}
	pthread_mutex_unlock(&c->admin_lock);
	if (!err)
		nvme_hk_poke(c);
	return err;
}

/* 0, or why waiting is in vain. */
static int look_at_csts(struct nvme_ctrl *c)
{
	uint64_t csts;
	int err = c->ops->prop_get(c->t, NVME_REG_CSTS, 4, &csts);

	if (err)
		return err;
	if (csts & NVME_CSTS_CFS)
		return -EHOSTDOWN;
	return c->ops->path ? c->ops->path(c->t) : 0; /* memory may be taken away during a reset */
}

int nvme_admin_sync(struct nvme_ctrl *c, struct nvme_sqe *sqe, void *data, uint32_t nbytes, bool to_device,
		    uint32_t *ret_dw0, uint16_t *ret_status)
{
	struct nvme_admin_req *req = &c->adm->sync;
	int64_t now = now_ns(), look = now + NSEC_PER_MSEC, waited;
	struct nvme_waited w = nvme_wait_from(now);
	bool sent = false;
	int err = 0;

	*ret_status = 0;
	if (nbytes > NVME_ADMIN_MAX_DATA)
		return -EINVAL;
	if (c->adm->stuck)
		return -ETIMEDOUT;
	req->sqe = *sqe;
	req->data = data;
	req->nbytes = nbytes;
	req->to_device = to_device;
	req->ended = false;
	while (!err) {
		if (!sent && !nvme_admin_send(c, req, now)) {
			atomic_fetch_add_explicit(&req->refs, 1, memory_order_relaxed);
			c->admin->ops->kick(c->admin, false);
			sent = true;
		}
		nvme_admin_reap(c);
		if (req->ended)
			break;
		now = now_ns();
		waited = nvme_wait_so_far(&w, now);
		if (waited >= c->p.hang_admin_ns) {
			err = -ETIMEDOUT;
		} else if (now >= look) {
			look = now + NSEC_PER_MSEC;
			err = look_at_csts(c);
		} else {
			nvme_pause(waited);
		}
	}
	if (err) {
		/* the command may still complete: into the data pages, never into @data */
		req->ended = true;
		c->adm->stuck = sent;
		return err;
	}
	if (req->status) {
		*ret_status = req->status;
		return -EIO;
	}
	if (req->err)
		return req->err;
	*ret_dw0 = req->dw0;
	return 0;
}
