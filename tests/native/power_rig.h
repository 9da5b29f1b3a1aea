/* SPDX-License-Identifier: MIT */
/* A host whose controller can lose power: one queue, and blocks that hold one number each. */
#ifndef TESTS_POWER_RIG_H
#define TESTS_POWER_RIG_H

#include "emu_host.h"

#define BLOCK 512u
#define FUA NVME_RW_FUA

struct rig {
	struct host h;
	struct hq q;
	struct dma d;
};

UNUSED static void queue_up(struct rig *r)
{
	host_queue(&r->h, &r->q, 1, 64);
	r->d = dma_new(&r->h, 64 * PAGE, DMA_RW);
}

UNUSED static void rig_new(struct rig *r, const struct emu_params *p)
{
	host_open(&r->h, p);
	queue_up(r);
}

UNUSED static void rig_free(struct rig *r)
{
	hq_done(&r->h, &r->q);
	dma_free(&r->h, &r->d);
	host_close(&r->h);
}

/* After a cut: the host takes back its memory and starts anew. */
UNUSED static void again(struct rig *r)
{
	hq_done(&r->h, &r->q);
	hq_done(&r->h, &r->h.admin);
	dma_free(&r->h, &r->d);
	host_enable(&r->h, 32);
	queue_up(r);
}

UNUSED static struct emu_params params(void)
{
	struct emu_params p = host_params();

	p.volatile_bytes = 8 << 20;
	return p;
}

UNUSED static void send(struct rig *r, struct nvme_sqe s, uint32_t at, uint32_t nlb)
{
	s.cid = le16_put(++r->h.cid & 0x7fff);
	host_prp(&s, &r->d, at, nlb * BLOCK, NULL);
	hq_put(&r->q, &s);
	hq_ring(&r->h, &r->q);
}

/* At most 8 blocks from the first page. */
UNUSED static void put_values(struct rig *r, uint32_t slba, uint32_t nlb, const uint32_t *value,
			      uint32_t flags)
{
	struct nvme_sqe s = host_rw(NVME_IO_WRITE, slba, nlb);
	uint32_t *w = (uint32_t *)(void *)r->d.p;

	for (uint32_t i = 0; i < nlb * BLOCK / 4; i++)
		w[i] = value[i / (BLOCK / 4)];
	s.cdw12 = le32_put(le32_get(s.cdw12) | flags);
	send(r, s, 0, nlb);
}

UNUSED static bool put_blocks(struct rig *r, uint32_t slba, uint32_t nlb, const uint32_t *value,
			      uint32_t flags)
{
	put_values(r, slba, nlb, value, flags);
	return !hq_wait(&r->h, &r->q, NULL);
}

UNUSED static bool put_same(struct rig *r, uint32_t slba, uint32_t nlb, uint32_t value, uint32_t flags)
{
	uint32_t all[8];

	for (int i = 0; i < 8; i++)
		all[i] = value;
	return put_blocks(r, slba, nlb, all, flags);
}

UNUSED static bool get_blocks(struct rig *r, uint32_t slba, uint32_t nlb, uint32_t *ret)
{
	const uint32_t *w = (const uint32_t *)(const void *)(r->d.p + PAGE);
	bool whole;

	send(r, host_rw(NVME_IO_READ, slba, nlb), PAGE, nlb);
	whole = !hq_wait(&r->h, &r->q, NULL);
	for (uint32_t i = 0; i < nlb * BLOCK / 4; i++)
		whole &= w[i] == w[i - i % (BLOCK / 4)];
	for (uint32_t b = 0; b < nlb; b++)
		ret[b] = w[b * (BLOCK / 4)];
	return whole;
}

UNUSED static bool flush(struct rig *r)
{
	struct nvme_sqe s = { .opcode = NVME_IO_FLUSH, .nsid = le32_put(1) };

	return !host_cmd(&r->h, &r->q, s, NULL);
}

UNUSED static void cut(struct rig *r, uint64_t seed)
{
	int rc = emu_power_cut(r->h.e, &seed, false);

	if (rc)
		must(false, "power cut: %d", rc);
	again(r);
}

#endif
