/* SPDX-License-Identifier: MIT */
/* ugds.h: admin commands. They travel through housekeeping and end like operations of a channel. */
#include <stdlib.h>

#include "api/api.h"
#include "nvme/end.h"

#define ADMIN_MOST 65536u

/* On the housekeeping thread: the operation that stands for the command ends. */
static void admin_done(struct nvme_admin_req *req)
{
	struct nvme_op *op = req->arg;

	op->status = req->status;
	op->dw0 = req->dw0;
	op->err = req->err ? req->err : req->status ? nvme_status_errno(req->status) : 0;
	op->done = op->err ? 0 : req->nbytes;
	nvme_op_set(op, NVME_OP_ENDED);
	nvme_chan_post_ended(op->chan, op);
}

int64_t ugds_admin_submit(struct ugds_chan *uch, const struct ugds_admin_cmd *cmd, const void *data,
			  struct ugds_admin **ret)
{
	struct nvme_chan *ch = chan_of(uch);
	struct nvme_admin_req *req;
	struct nvme_op *op;
	uint64_t token;
	int err = -ENOMEM;

	if (cmd->nbytes > ADMIN_MOST || cmd->nbytes & 3 || cmd->opcode > 0xff)
		return -EINVAL;
	req = calloc(1, sizeof(*req));
	if (!req)
		return -ENOMEM;
	if (cmd->nbytes) {
		req->data = calloc(1, cmd->nbytes);
		if (!req->data)
			goto free_req;
		if (cmd->to_device)
			memcpy(req->data, data, cmd->nbytes);
	}
	op = nvme_chan_op_get(ch);
	if (!op)
		goto free_req;
	op->flags = NVME_OPF_ADMIN;
	op->batch = NULL;
	op->opcode = (uint8_t)cmd->opcode;
	op->outcome = NVME_DONE;
	op->silent = op->exec = false;
	op->err = 0;
	op->done = 0;
	token = nvme_op_token(op);
	req->sqe = (struct nvme_sqe){
		.opcode = (uint8_t)cmd->opcode,
		.nsid = le32_put(cmd->nsid),
		.cdw10 = le32_put(cmd->cdw10),
		.cdw11 = le32_put(cmd->cdw11),
		.cdw12 = le32_put(cmd->cdw12),
		.cdw13 = le32_put(cmd->cdw13),
		.cdw14 = le32_put(cmd->cdw14),
		.cdw15 = le32_put(cmd->cdw15),
	};
	req->nbytes = cmd->nbytes;
	req->to_device = cmd->to_device;
	req->done = admin_done;
	req->arg = op;
	req->slot = -1;
	atomic_init(&req->refs, 1);
	ch->away++;
	err = nvme_admin_queue(ch->ctrl, req);
	if (err)
		goto put_op;
	*ret = (struct ugds_admin *)req;
	nvme_chan_arm(ch);
	return (int64_t)(NVME_PENDING | token);
put_op:
	nvme_chan_op_put(ch, op);
free_req:
	free(req->data);
	free(req);
	return err;
}

int ugds_admin_data(struct ugds_admin *a, void *buf, uint32_t nbytes)
{
	struct nvme_admin_req *req = admin_of(a);
	uint32_t n = min_u32(nbytes, req->nbytes);

	if (n)
		memcpy(buf, req->data, n);
	return (int)n;
}

void ugds_admin_free(struct ugds_admin *a)
{
	if (a)
		nvme_admin_req_put(admin_of(a));
}
