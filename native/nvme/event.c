/* SPDX-License-Identifier: MIT */
/*
 * Admin commands that housekeeping sends by itself: asynchronous event requests, the log pages that clear
 * their events, rescans of changed namespaces, aborts. Each has a slot of its own; completions only set
 * flags, and nvme_hk_events_run() sends.
 */
#include <stdlib.h>

#include "nvme/admin.h"
#include "nvme/hk.h"
#include "nvme/identify.h"
#include "nvme/status.h"

#define ABORT_ROUND (40 * NSEC_PER_MSEC)
#define ABORT_REST NSEC_PER_SEC

static bool send(struct nvme_ctrl *c, struct nvme_hk_req *r, int64_t now)
{
	r->req.ended = false;
	r->req.status = 0;
	if (nvme_admin_send(c, &r->req, now))
		return false; /* full: once more after something completed */
	/* never reaches 0: the slot is housekeeping's, the command's share of it comes and goes */
	atomic_fetch_add_explicit(&r->req.refs, 1, memory_order_relaxed);
	r->busy = true;
	return true;
}

static void want_log(struct nvme_hk *hk, uint32_t lid) { hk->logs[lid / 32] |= 1u << (lid % 32); }

static void aer_done(struct nvme_admin_req *req)
{
	struct nvme_hk_req *r = req->arg;
	struct nvme_hk *hk = r->c->hk;
	uint32_t dw0 = req->dw0;

	r->busy = false;
	if (req->err) {
		r->off = req->status; /* refused: asking again would be refused again */
		return;
	}
	nvme_ctrl_event(r->c, dw0);
	if (NVME_AER_LOG(dw0))
		want_log(hk, NVME_AER_LOG(dw0));
	if (NVME_AER_TYPE(dw0) == NVME_AER_NOTICE && NVME_AER_INFO(dw0) == NVME_AER_NOTICE_NS)
		hk->scan_again = true;
}

static void plain_done(struct nvme_admin_req *req)
{
	struct nvme_hk_req *r = req->arg;

	r->busy = false;
}

static void abort_done(struct nvme_admin_req *req)
{
	struct nvme_hk_req *r = req->arg;

	r->busy = false;
	if (!req->err && req->dw0 & 1) /* not aborted: a controller that cannot do it now is not pestered */
		r->c->hk->abort_next = now_ns() + ABORT_REST;
}

static void scan_done(struct nvme_admin_req *req)
{
	struct nvme_hk_req *r = req->arg;
	struct nvme_ns_facts f = { 0 };
	struct nvme_hk *hk = r->c->hk;

	r->busy = false;
	if (req->err && !req->status)
		return; /* never answered: it says nothing about the namespace */
	if (req->err && !nvme_status_no_ns(req->status)) {
		hk->scan_at++; /* nor does this */
		return;
	}
	if (!req->err)
		nvme_ns_parse(r->c, req->data, &f);
	if (hk->scan_at < hk->scan_nr)
		nvme_ns_update(r->c, &r->c->ns[hk->scan_at], &f);
	else if (f.active)
		nvme_ns_append(r->c, hk->fresh[hk->scan_at - hk->scan_nr], &f);
	hk->scan_at++;
}

/* The first 1024 identifiers, ascending; what is not known yet is looked at after what is. */
static void list_done(struct nvme_admin_req *req)
{
	struct nvme_hk_req *r = req->arg;
	struct nvme_hk *hk = r->c->hk;
	const le32_t *ids = req->data;
	uint32_t last = 0;

	r->busy = false;
	hk->scan_at = 0;
	hk->scan_nr = r->c->nr_ns;
	hk->nr_fresh = 0;
	for (uint32_t i = 0; !req->err && i < NVME_HK_DATA / sizeof(*ids) && le32_get(ids[i]) > last; i++) {
		last = le32_get(ids[i]);
		if (!nvme_ctrl_ns(r->c, last) && hk->nr_fresh < NVME_HK_FRESH)
			hk->fresh[hk->nr_fresh++] = last;
	}
}

static int init_req(struct nvme_ctrl *c, struct nvme_hk_req *r, uint8_t opcode, bool data,
		    void (*done)(struct nvme_admin_req *req))
{
	r->c = c;
	r->req.sqe.opcode = opcode;
	r->req.slot = -1;
	r->req.arg = r;
	r->req.done = done;
	atomic_init(&r->req.refs, 1);
	if (!data)
		return 0;
	r->req.nbytes = NVME_HK_DATA;
	r->req.data = calloc(1, NVME_HK_DATA);
	return r->req.data ? 0 : -ENOMEM;
}

int nvme_hk_events_init(struct nvme_ctrl *c)
{
	struct nvme_hk *hk = c->hk;
	/* at most half of the queue is for ever occupied by event requests; a queue of two entries has
	 * none */
	uint32_t room = (c->admin->conf.depth - 1) / 2;
	int err;

	hk->nr_aer = min_u32(min_u32(c->aerl + 1, NVME_HK_AERS), room);
	hk->nr_abort = min_u32(c->acl + 1, NVME_HK_ABORTS);
	for (uint32_t i = 0; i < hk->nr_aer; i++)
		init_req(c, &hk->aer[i], NVME_ADM_ASYNC_EVENT, false, aer_done);
	for (uint32_t i = 0; i < hk->nr_abort; i++)
		init_req(c, &hk->abort[i], NVME_ADM_ABORT, false, abort_done);
	err = init_req(c, &hk->log, NVME_ADM_GET_LOG, true, plain_done);
	if (!err)
		err = init_req(c, &hk->scan, NVME_ADM_IDENTIFY, true, scan_done);
	if (!err)
		err = init_req(c, &hk->list, NVME_ADM_IDENTIFY, true, list_done);
	return err;
}

void nvme_hk_events_done(struct nvme_hk *hk)
{
	free(hk->log.req.data);
	free(hk->scan.req.data);
	free(hk->list.req.data);
}

void nvme_hk_events_rearm(struct nvme_ctrl *c)
{
	for (uint32_t i = 0; i < c->hk->nr_aer; i++)
		c->hk->aer[i].off = false;
	memset(c->hk->logs, 0, sizeof(c->hk->logs));
	c->hk->scan_again = true; /* a change that was told while it was down is not told again */
	/* whatever they were for is over, and its identifiers may be somebody else's */
	c->hk->aborts_head = c->hk->aborts_tail;
	c->hk->abort_next = 0;
}

static uint32_t log_bytes(uint32_t lid)
{
	switch (lid) {
	case NVME_LOG_ERROR:
		return sizeof(struct nvme_error_log);
	case NVME_LOG_CHANGED_NS:
		return 4096;
	default:
		return 512;
	}
}

static bool send_log(struct nvme_ctrl *c, int64_t now)
{
	struct nvme_hk *hk = c->hk;

	for (uint32_t w = 0; w < ARRAY_SIZE(hk->logs); w++) {
		uint32_t lid, bytes;

		if (!hk->logs[w])
			continue;
		lid = w * 32 + (uint32_t)__builtin_ctz(hk->logs[w]);
		bytes = log_bytes(lid);
		hk->log.req.nbytes = bytes;
		hk->log.req.sqe.nsid = le32_put(NVME_NSID_ALL);
		hk->log.req.sqe.cdw10 =
			le32_put(lid | (bytes / 4 - 1) << 16); /* RAE 0: reading clears the event */
		if (!send(c, &hk->log, now))
			return false;
		hk->logs[w] &= hk->logs[w] - 1;
		return true;
	}
	return false;
}

static bool send_scan(struct nvme_ctrl *c, int64_t now)
{
	struct nvme_hk *hk = c->hk;

	if (hk->scan_at >= hk->scan_nr + hk->nr_fresh) {
		hk->list.req.sqe.cdw10 = le32_put(NVME_CNS_ACTIVE_NS);
		if (!hk->scan_again || !send(c, &hk->list, now))
			return false;
		hk->scan_again = false;
		return true;
	}
	hk->scan.req.sqe.nsid = le32_put(hk->scan_at < hk->scan_nr ? c->ns[hk->scan_at].nsid
								   : hk->fresh[hk->scan_at - hk->scan_nr]);
	hk->scan.req.sqe.cdw10 = le32_put(NVME_CNS_NS);
	return send(c, &hk->scan, now);
}

void nvme_hk_abort(struct nvme_ctrl *c, uint16_t qid, uint16_t cid)
{
	struct nvme_hk *hk = c->hk;

	if (hk->aborts_tail - hk->aborts_head < NVME_HK_ABORT_QUEUE) /* beyond it nobody would wait */
		hk->aborts[hk->aborts_tail++ % NVME_HK_ABORT_QUEUE] = (uint32_t)cid << 16 | qid;
}

uint32_t nvme_hk_abort_room(struct nvme_ctrl *c, int64_t now)
{
	const struct nvme_hk *hk = c->hk;
	uint32_t nr_free = 0, queued = hk->aborts_tail - hk->aborts_head;

	if (now < hk->abort_next)
		return 0;
	for (uint32_t i = 0; i < hk->nr_abort; i++)
		nr_free += !hk->abort[i].busy;
	return nr_free > queued ? nr_free - queued : 0;
}

static bool send_aborts(struct nvme_ctrl *c, int64_t now)
{
	struct nvme_hk *hk = c->hk;
	bool sent = false;

	for (uint32_t i = 0; i < hk->nr_abort && hk->aborts_head != hk->aborts_tail; i++) {
		struct nvme_hk_req *r = &hk->abort[i];

		if (r->busy)
			continue;
		r->req.sqe.cdw10 = le32_put(hk->aborts[hk->aborts_head % NVME_HK_ABORT_QUEUE]);
		if (!send(c, r, now))
			break;
		hk->aborts_head++;
		atomic_fetch_add_explicit(&c->nr_aborts, 1, memory_order_relaxed);
		sent = true;
	}
	if (sent && hk->abort_next < now + ABORT_ROUND)
		hk->abort_next = now + ABORT_ROUND;
	return sent;
}

void nvme_hk_events_run(struct nvme_ctrl *c, int64_t now)
{
	struct nvme_hk *hk = c->hk;
	bool sent = send_aborts(c, now);

	for (uint32_t i = 0; i < hk->nr_aer; i++)
		if (!hk->aer[i].busy && !hk->aer[i].off)
			sent |= send(c, &hk->aer[i], now);
	if (!hk->log.busy)
		sent |= send_log(c, now);
	if (!hk->scan.busy && !hk->list.busy)
		sent |= send_scan(c, now);
	if (sent)
		c->admin->ops->kick(c->admin, false);
}
