/* SPDX-License-Identifier: MIT */
/* nvme/ over a transport that has nothing of PCIe: bring-up, mapping, transfers, admin, reset, close. */
#include <poll.h>

#include "dummy_ctrl.h"
#include "tapf.h"

static const struct nvme_open_params params = { .io_queues = 4, .depth = 8, .spin_ns = 10000 };

static int64_t finish(struct nvme_chan *ch, int64_t rc)
{
	struct nvme_op *op;
	int64_t res = rc;

	if (rc < 0 || !((uint64_t)rc & NVME_PENDING))
		return rc;
	if (nvme_chan_wait(ch, &op, 1, 5 * NSEC_PER_SEC) != 1)
		return -ETIME;
	res = nvme_op_result(op);
	nvme_chan_collected(ch, op);
	return res;
}

static struct nvme_ns window(struct nvme_ctrl *c)
{
	return (struct nvme_ns){
		.ctrl = c, .nsid = 1, .lba_shift = 9, .max_bytes = c->max_transfer, .nbytes = DUMMY_BYTES
	};
}

static void test_transfers(struct nvme_ctrl *c, struct dummy *d, enum nvme_mode mode, const char *name)
{
	const size_t nbytes = 1u << 20;
	struct nvme_ns ns = window(c);
	uint8_t *buf = aligned_alloc(4096, nbytes), *back = aligned_alloc(4096, nbytes);
	uint64_t mbuf, mback;
	struct nvme_chan *ch;
	int64_t rc;

	for (size_t i = 0; i < nbytes; i++)
		buf[i] = (uint8_t)(i * 31 + mode);
	memset(back, 0, nbytes);
	okf(!mem_register(&c->mem, buf, nbytes, DMA_READ | DMA_WRITE, &mbuf) &&
		    !mem_register(&c->mem, back, nbytes, DMA_READ | DMA_WRITE, &mback),
	    "%s: memory maps", name);
	okf(!nvme_chan_open(c, mode, &ch), "%s: channel opens", name);
	rc = finish(ch, nvme_chan_rw(ch, &ns, mbuf, 0, nbytes, 8192, NVME_IO_WRITE));
	okf(rc == (int64_t)nbytes, "%s: a write of 16 commands at depth 8 (%lld)", name, (long long)rc);
	okf(d->max_nbytes == 65536, "%s: commands are cut at MDTS (%u)", name, d->max_nbytes);
	okf(!memcmp(d->media + 8192, buf, nbytes), "%s: it is on the media", name);
	rc = finish(ch, nvme_chan_rw(ch, &ns, mback, 512, nbytes - 512, 8192 + 512, NVME_IO_READ));
	okf(rc == (int64_t)nbytes - 512 && !memcmp(back + 512, buf + 512, nbytes - 512), "%s: and comes back",
	    name);
	okf(!finish(ch, nvme_chan_rw(ch, &ns, 0, 0, 0, 0, NVME_IO_FLUSH)), "%s: flush", name);
	okf(nvme_ctrl_close(c, false) == -EBUSY, "%s: close is refused while a channel exists", name);
	okf(!nvme_chan_close(ch), "%s: channel closes", name);
	okf(!mem_unregister(&c->mem, mbuf) && !mem_unregister(&c->mem, mback), "%s: memory is released",
	    name);
	free(buf);
	free(back);
}

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
};

static void admin_over(struct nvme_admin_req *req)
{
	struct waiter *w = req->arg;

	pthread_mutex_lock(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void test_admin(struct nvme_ctrl *c)
{
	struct waiter w = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	struct nvme_admin_req *req = calloc(1, sizeof(*req));

	req->sqe.opcode = NVME_ADM_IDENTIFY;
	req->sqe.cdw10 = le32_put(NVME_CNS_CTRL);
	req->nbytes = 4096;
	req->data = calloc(1, 4096);
	req->done = admin_over;
	req->arg = &w;
	atomic_init(&req->refs, 1);
	okf(!nvme_admin_queue(c, req), "an admin command is queued");
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	okf(!req->err && !memcmp(((struct nvme_id_ctrl *)req->data)->sn, "DUMMY SERIAL", 12),
	    "it brings its data");
	req->sqe.opcode = NVME_ADM_DELETE_SQ;
	okf(nvme_admin_queue(c, req) == -EPERM, "the engine's own commands are refused");
	nvme_admin_req_put(req);
}

int main(void)
{
	struct nvme_err err = { 0 };
	struct nvme_ctrl *c = NULL;
	bool closed;
	struct dummy *d = dummy_new(&closed);
	int rc = nvme_ctrl_open(&dummy_ctrl_ops, d, &params, &c, &err);

	okf(!rc, "a controller without PCIe comes up (%s)", err.text);
	if (rc)
		return done_testing();
	okf(c->nr_qpairs == 2, "granted fewer pairs than asked for: two");
	okf(c->mdts_bytes == 65536 && c->max_transfer == 65536, "MDTS is understood");
	okf(!strcmp(c->serial, "DUMMY SERIAL") && !strcmp(c->model, "dummy"), "texts are trimmed");
	okf(c->nr_ns == 1 && nvme_ctrl_ns(c, 1) && nvme_ctrl_ns(c, 1)->usable && !nvme_ctrl_ns(c, 2),
	    "one namespace");
	okf(!c->shadow, "no shadow doorbells: there are no doorbells");
	okf(c->wake_ns > 0, "a wake-up was measured: %lld ns", (long long)c->wake_ns);
	test_transfers(c, d, NVME_MODE_INLINE, "inline");
	test_transfers(c, d, NVME_MODE_INTERRUPT, "interrupt");
	test_transfers(c, d, NVME_MODE_ADAPTIVE, "adaptive");
	/* the executor starts now: it serves those who find no pair that could wake them */
	d->deaf = true;
	test_transfers(c, d, NVME_MODE_INTERRUPT, "no place at a vector");
	test_transfers(c, d, NVME_MODE_POLL, "poll");
	d->deaf = false;
	test_admin(c);
	okf(!nvme_ctrl_reset(c, &err), "a reset works (%s)", err.text);
	test_transfers(c, d, NVME_MODE_INTERRUPT, "after the reset");
	okf(!nvme_ctrl_close(c, false) && closed, "it closes");
	return done_testing();
}
