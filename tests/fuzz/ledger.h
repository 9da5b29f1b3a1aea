/* SPDX-License-Identifier: MIT */
/* Every operation that was asked for, and what became of it: it ends once, with what the device said of it. */
#ifndef FUZZ_LEDGER_H
#define FUZZ_LEDGER_H

#include "model.h"
#include "nvme/chan.h"

#define LEDGER_MOST 512
#define LEDGER_REGIONS 8
#define LEDGER_REGION (136u << 10)

struct record {
	struct nvme_op *op; /* NULL: nothing of it was sent yet */
	uint64_t token;
	uint64_t nbytes;
	uint64_t buf_off;
	uint64_t sent, good, bad; /* bytes */
	bool used;
	bool reported; /* its outcome was told */
	bool over; /* the operation was given back */
	bool forgotten; /* a reset took a command of it */
};

struct ledger {
	struct model *m;
	struct nvme_ctrl *c;
	struct nvme_ns *ns;
	struct nvme_chan *ch[2];
	struct nvme_batch *b;
	uint64_t map;
	struct record rec[LEDGER_MOST];
	uint32_t nr;
	struct record *making; /* inside the call that submits it */
};

extern const struct model_watch ledger_watch;

void ledger_begin(struct ledger *l, struct model *m);
void ledger_submit(struct ledger *l, struct nvme_chan *ch, uint64_t buf_off, uint64_t nbytes, uint32_t flags);
void ledger_submit_batch(struct ledger *l, uint32_t n, uint64_t nbytes, uint32_t region, bool array);
/* Collect what has ended. */
uint32_t ledger_reap(struct ledger *l, struct nvme_chan *ch, uint32_t max);
uint32_t ledger_harvest(struct ledger *l, uint32_t max);
/* A record that is in flight, chosen by @k; NULL: there is none. */
struct record *ledger_pick(struct ledger *l, uint32_t k);
/* References, quarantine and states tell the same story. */
void ledger_check(struct ledger *l);
/* Nothing is owed to anybody. */
bool ledger_idle(const struct ledger *l);

#endif
