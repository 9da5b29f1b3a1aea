/* SPDX-License-Identifier: MIT */
/* What the public names stand for inside. */
#ifndef API_API_H
#define API_API_H

#include "include/ugds_emu.h"
#include "nvme/chan.h"

struct emu_ctrl;
struct stream_exec;

struct ugds_ctrl {
	struct nvme_ctrl *c;
	struct emu_ctrl *emu; /* NULL: not the embedded controller; owned by the transport */
	const char *transport;
	_Atomic uint32_t visitors; /* calls that are inside, and API_CLOSED */
	_Atomic bool closing;
	struct stream_exec *_Atomic streams; /* NULL: none was asked for */
};

#define API_CLOSED 0x80000000u

/*
 * Any thread may look at a controller while another closes it. A visitor is let in until it is closed, and what it
 * looks at is freed only after it has left: at the end of the scope of what holds the answer. NULL: closed.
 */
struct ugds_ctrl *api_enter(struct ugds_ctrl *uc);
void api_leave(struct ugds_ctrl **in);

#define api_visitor __attribute__((cleanup(api_leave))) struct ugds_ctrl

static inline struct nvme_chan *chan_of(struct ugds_chan *ch) { return (struct nvme_chan *)ch; }
static inline struct nvme_ns *ns_of(struct ugds_ns *ns) { return (struct nvme_ns *)ns; }
static inline struct nvme_batch *batch_of(struct ugds_batch *b) { return (struct nvme_batch *)b; }
static inline struct nvme_admin_req *admin_of(struct ugds_admin *a) { return (struct nvme_admin_req *)a; }

static inline void completion_fill(struct ugds_completion *to, const struct nvme_op *op, uint64_t token)
{
	to->token = token;
	to->result = nvme_op_result(op);
	to->status = op->status | (uint64_t)op->opcode << 16 | (uint64_t)op->outcome << 24 |
		     (uint64_t)op->dw0 << 32;
	to->done = op->done;
}

/* Take a transport's function, owned from here on, and bring the controller up. */
int api_open(const char *transport, const struct nvme_ctrl_ops *ops, void *t,
	     const struct ugds_open_params *p, struct ugds_ctrl **ret, struct ugds_error *err);
void api_error(struct ugds_error *to, int err, uint32_t status, const char *text);

#endif
