/* SPDX-License-Identifier: MIT */
/*
 * A controller that lies: registers, identify pages, log pages and completions are fuzzed by a seed, data is moved
 * honestly. Whatever it says, each operation ends once, what claims success has the right bytes, memory that the device
 * may touch is not given back, and everything can be closed. Many seeds: the first argument or UGDS_HOSTILE_SEEDS says
 * how many, the second or UGDS_HOSTILE_FIRST where to begin.
 */
#include <unistd.h>

#include "ugds_fixture.h"

#include "tapf.h"

#define BLOCKS 64u
#define BLOCK 4096u
#define OPS 200u
#define AT_ONCE 8u
#define SLOTS ((uint32_t)(BUF_BYTES / BLOCK))
#define STUCK_MOST 64u
#define PATIENCE (20 * SEC)

struct rng {
	uint64_t s;
};

static uint32_t pick(struct rng *r, uint32_t n)
{
	r->s = r->s * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(r->s >> 33) % n;
}

/* What a block may hold: the stamp of the last write that succeeded, and of those after it whose end is not known. */
struct block {
	uint32_t stamp[256];
	uint32_t n;
};

struct trial {
	struct fixture f;
	struct rng r;
	struct block model[BLOCKS];
	uint32_t next_stamp;
	struct {
		uint64_t token;
		uint32_t op, block, slot, stamp;
		bool live;
	} ops[AT_ONCE];
	uint32_t block_of[SLOTS]; /* of the last operation with that memory */
	uint32_t wrong, lost, twice, done, failed;
};

static uint8_t *slot_mem(struct trial *t, uint32_t slot) { return t->f.buf + (size_t)slot * BLOCK; }

static void stamp_block(uint8_t *p, uint32_t block, uint32_t stamp)
{
	uint32_t *w = (uint32_t *)(void *)p;

	for (uint32_t i = 0; i < BLOCK / 4; i += 2) {
		w[i] = stamp;
		w[i + 1] = stamp ? block : 0;
	}
}

static bool may_hold(const struct block *m, uint32_t block, const uint8_t *p)
{
	const uint32_t *w = (const uint32_t *)(const void *)p;
	bool known = false;

	for (uint32_t i = 0; i < m->n; i++)
		known |= m->stamp[i] == w[0];
	for (uint32_t i = 0; i < BLOCK / 4; i += 2)
		if (w[i] != w[0] || w[i + 1] != (w[0] ? block : 0))
			return false;
	return known;
}

static void ended(struct trial *t, uint32_t k, int64_t res, uint32_t outcome)
{
	struct block *m = &t->model[t->ops[k].block];

	t->ops[k].live = false;
	t->done++;
	t->failed += res < 0;
	if (t->ops[k].op == UGDS_OP_READ) {
		if (res >= 0 && (res != BLOCK || !may_hold(m, t->ops[k].block, slot_mem(t, t->ops[k].slot))))
			t->wrong++;
		return;
	}
	if (res == BLOCK) {
		m->n = 0; /* one operation at a time on a block: nothing is older */
		m->stamp[m->n++] = t->ops[k].stamp;
	} else if (outcome != UGDS_NEVER_SENT && m->n < 256) {
		m->stamp[m->n++] = t->ops[k].stamp;
	}
}

static bool collect(struct trial *t, uint64_t timeout)
{
	struct ugds_completion c[AT_ONCE];
	int n = ugds_wait(t->f.ch, c, AT_ONCE, timeout);

	for (int i = 0; i < n; i++) {
		uint32_t k = 0;

		while (k < AT_ONCE && !(t->ops[k].live && t->ops[k].token == c[i].token))
			k++;
		if (k == AT_ONCE)
			t->twice++;
		else
			ended(t, k, c[i].result, (uint32_t)(c[i].status >> 24) & 0xff);
	}
	return n > 0;
}

static bool any_live(const struct trial *t)
{
	for (uint32_t k = 0; k < AT_ONCE; k++)
		if (t->ops[k].live)
			return true;
	return false;
}

static bool block_is_idle(const struct trial *t, uint32_t block)
{
	for (uint32_t k = 0; k < AT_ONCE; k++)
		if (t->ops[k].live && t->ops[k].block == block)
			return false;
	return true;
}

/* What was given up may still be at the device, where a thread reads or writes block and memory late. The one that it
 * meets there would have half of each. */
static bool is_stuck(const struct trial *t, uint32_t block, uint32_t slot)
{
	struct ugds_stuck s[STUCK_MOST];
	int n = ugds_ctrl_quarantine(t->f.c, s, STUCK_MOST);

	for (int i = 0; i < n && i < (int)STUCK_MOST; i++) {
		uint32_t its = (uint32_t)(s[i].buf_off / BLOCK);

		if (its == slot || t->block_of[its] == block)
			return true;
	}
	return n > (int)STUCK_MOST;
}

static void start(struct trial *t, uint32_t k)
{
	uint32_t op = pick(&t->r, 3) ? UGDS_OP_READ : UGDS_OP_WRITE, block = pick(&t->r, BLOCKS);
	uint32_t slot = pick(&t->r, SLOTS);
	struct ugds_completion last;
	int64_t res;

	if (!block_is_idle(t, block) || is_stuck(t, block, slot))
		return;
	for (uint32_t i = 0; i < AT_ONCE; i++)
		if (t->ops[i].live && t->ops[i].slot == slot)
			return;
	t->ops[k].op = op;
	t->ops[k].block = block;
	t->ops[k].slot = slot;
	t->ops[k].stamp = ++t->next_stamp;
	t->block_of[slot] = block;
	if (op == UGDS_OP_READ)
		memset(slot_mem(t, slot), 0xa5, BLOCK); /* what no read moves */
	else
		stamp_block(slot_mem(t, slot), block, t->ops[k].stamp);
	res = ugds_rw(t->f.ch, t->f.ns, t->f.map, (uint64_t)slot * BLOCK, BLOCK, (uint64_t)block * BLOCK, op);
	if (res >= UGDS_PENDING) {
		t->ops[k].live = true;
		t->ops[k].token = (uint64_t)(res - UGDS_PENDING);
		if (!pick(&t->r, 8))
			ugds_op_deadline(t->f.ch, t->ops[k].token, pick(&t->r, 5) * MS);
		else if (!pick(&t->r, 8))
			ugds_cancel(t->f.ch, t->ops[k].token, pick(&t->r, 5) * MS);
		return;
	}
	ugds_chan_last(t->f.ch, &last);
	ended(t, k, res, UGDS_DONE);
}

static uint32_t state_of(struct trial *t)
{
	struct ugds_ctrl_info info;

	ugds_ctrl_info(t->f.c, &info);
	return info.state;
}

/* A few times it may come back; a controller that is gone does not. */
static bool revive(struct trial *t)
{
	struct ugds_error err;

	for (int i = 0; i < 3 && state_of(t) == UGDS_STATE_WEDGED; i++)
		ugds_ctrl_reset(t->f.c, &err);
	return state_of(t) == UGDS_STATE_LIVE;
}

static void work(struct trial *t)
{
	for (uint32_t i = 0; i < OPS; i++) {
		uint32_t k = pick(&t->r, AT_ONCE);

		if (state_of(t) != UGDS_STATE_LIVE && !revive(t))
			break;
		if (!t->ops[k].live)
			start(t, k);
		else
			collect(t, pick(&t->r, 2) * MS + 1);
	}
	for (uint64_t waited = 0; any_live(t) && waited < PATIENCE; waited += 10 * MS)
		collect(t, 10 * MS);
	t->lost = any_live(t);
}

/* Everything can be given back, by force if need be. */
static bool finish(struct trial *t)
{
	struct fixture *f = &t->f;
	int rc = -1;

	if (f->ch && ugds_chan_close(f->ch))
		ugds_chan_orphan(f->ch);
	for (int i = 0; i < 2000 && rc; i++) {
		if (f->ns && !ugds_ns_close(f->ns)) {
			ugds_ns_free(f->ns);
			f->ns = NULL;
		}
		rc = ugds_ctrl_close(f->c, 1);
		if (rc)
			usleep(10000);
	}
	if (f->ns && !rc) /* let go with the controller */
		ugds_ns_free(f->ns);
	ugds_ctrl_free(f->c);
	return !rc;
}

static void reload(struct trial *t)
{
	for (uint32_t b = 0; b < BLOCKS; b++) {
		t->model[b].n = 1;
		t->model[b].stamp[0] = 0;
	}
}

static bool trial(uint64_t seed, uint32_t *ret_opened)
{
	static const uint32_t rates[] = { 12, 40, 150, 600 };
	struct trial *t = calloc(1, sizeof(*t));
	struct ugds_emu_counters n = { 0 };
	bool opened, closed = true, good;

	t->r.s = seed * 0x9e3779b97f4a7c15ull + 1;
	fixture_defaults(&t->f);
	t->f.emu.hostile_seed = seed;
	t->f.emu.hostile = rates[seed % 4];
	t->f.emu.to = 1;
	t->f.emu.crdt[0] = 0;
	t->f.emu.ns[0].nbytes = BLOCKS * BLOCK;
	t->f.emu.flags |= seed & 4 ? UGDS_EMU_DBBUF : 0;
	t->f.open.depth = seed & 8 ? 5 : 64;
	t->f.open.retries = (uint32_t)seed / 16 % 3;
	t->f.open.hang_io_ns = 30 * MS;
	t->f.open.hang_admin_ns = 60 * MS;
	t->f.open.cancel_grace_ns = 5 * MS;
	t->f.open.io_queues = 1 + (uint32_t)seed % 3;
	t->f.open.batch_queues = 0;
	reload(t);
	opened = fixture_open(&t->f, (uint32_t)seed % 4);
	if (opened) {
		++*ret_opened;
		work(t);
		ugds_emu_counters(t->f.c, &n);
	}
	if (t->f.c)
		closed = finish(t);
	free(t->f.buf);
	good = !t->wrong && !t->lost && !t->twice && closed && !n.iommu_faults;
	if (!good)
		printf("# seed %llu: %u wrong, %u lost, %u twice, %s, %llu faults (%u done, %u failed)\n",
		       (unsigned long long)seed, t->wrong, t->lost, t->twice,
		       closed ? "closed" : "not closed", (unsigned long long)n.iommu_faults, t->done,
		       t->failed);
	free(t);
	return good;
}

static uint64_t number(const char *arg, const char *env, uint64_t otherwise)
{
	const char *text = arg ? arg : getenv(env);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
	uint64_t count = number(argc > 1 ? argv[1] : NULL, "UGDS_HOSTILE_SEEDS", 120);
	uint64_t first = number(argc > 2 ? argv[2] : NULL, "UGDS_HOSTILE_FIRST", 0), bad = 0;
	uint32_t opened = 0;

	for (uint64_t seed = first; seed < first + count; seed++)
		bad += !trial(seed, &opened);
	okf(!bad, "%llu seeds, none of which broke a rule (%llu did)", (unsigned long long)count,
	    (unsigned long long)bad);
	okf(count < 20 || opened > count / 4, "%u of them opened", opened);
	return done_testing();
}
