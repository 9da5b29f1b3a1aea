/* SPDX-License-Identifier: MIT */
/* The one map from NVMe status to errno and words (Base 3.3.3.2.1). */
#include "nvme/status.h"

#include <errno.h>

#include "spec/nvme.h"
#include "support/util.h"

struct entry {
	uint16_t status; /* SCT 10:8, SC 7:0 */
	int16_t err;
	const char *name;
};

#define G(sc) NVME_STATUS(NVME_SCT_GENERIC, sc)
#define C(sc) NVME_STATUS(NVME_SCT_CMD, sc)
#define M(sc) NVME_STATUS(NVME_SCT_MEDIA, sc)
#define P(sc) NVME_STATUS(NVME_SCT_PATH, sc)

static const struct entry entries[] = {
	{ G(NVME_SC_SUCCESS), 0, "success" },
	{ G(NVME_SC_INVALID_OPCODE), EOPNOTSUPP, "invalid command opcode" },
	{ G(NVME_SC_INVALID_FIELD), EINVAL, "invalid field in command" },
	{ G(NVME_SC_CID_CONFLICT), EIO, "command ID conflict" },
	{ G(NVME_SC_DATA_TRANSFER), EFAULT, "data transfer error" },
	{ G(NVME_SC_POWER_LOSS), ECANCELED, "aborted for power loss" },
	{ G(NVME_SC_INTERNAL), EIO, "internal error" },
	{ G(NVME_SC_ABORT_REQUESTED), ECANCELED, "abort requested" },
	{ G(NVME_SC_ABORT_SQ_DELETED), ECANCELED, "aborted: queue deleted" },
	{ G(0x09), ECANCELED, "aborted: failed fused command" },
	{ G(0x0a), EINVAL, "aborted: missing fused command" },
	{ G(NVME_SC_INVALID_NS), ENXIO, "invalid namespace or format" },
	{ G(0x0c), EINVAL, "command sequence error" },
	{ G(NVME_SC_INVALID_PRP_OFFSET), EFAULT, "invalid PRP offset" },
	{ G(0x15), EPERM, "operation denied" },
	{ G(0x1c), EBUSY, "sanitize failed" },
	{ G(0x1d), EBUSY, "sanitize in progress" },
	{ G(NVME_SC_NS_WRITE_PROTECTED), EROFS, "namespace is write protected" },
	{ G(0x21), EAGAIN, "command interrupted" },
	{ G(0x22), EAGAIN, "transient transport error" },
	{ G(NVME_SC_LBA_RANGE), ERANGE, "LBA out of range" },
	{ G(NVME_SC_CAP_EXCEEDED), ENOSPC, "capacity exceeded" },
	{ G(NVME_SC_NS_NOT_READY), EAGAIN, "namespace not ready" },
	{ G(0x83), EBUSY, "reservation conflict" },
	{ G(0x84), EBUSY, "format in progress" },
	{ C(NVME_SC_CQ_INVALID), EINVAL, "completion queue invalid" },
	{ C(NVME_SC_INVALID_QID), EINVAL, "invalid queue identifier" },
	{ C(NVME_SC_INVALID_QSIZE), EINVAL, "invalid queue size" },
	{ C(NVME_SC_ABORT_LIMIT), EAGAIN, "abort command limit exceeded" },
	{ C(NVME_SC_AER_LIMIT), EAGAIN, "asynchronous event request limit exceeded" },
	{ C(NVME_SC_INVALID_VECTOR), EINVAL, "invalid interrupt vector" },
	{ C(NVME_SC_INVALID_LOG_PAGE), EINVAL, "invalid log page" },
	{ C(0x0a), EINVAL, "invalid format" },
	{ C(NVME_SC_INVALID_QUEUE_DELETION), EBUSY, "invalid queue deletion" },
	{ C(0x0d), EOPNOTSUPP, "feature identifier not saveable" },
	{ C(NVME_SC_FEATURE_NOT_CHANGEABLE), EPERM, "feature not changeable" },
	{ C(0x15), ENOSPC, "namespace insufficient capacity" },
	{ C(0x80), EINVAL, "conflicting attributes" },
	{ C(0x81), EINVAL, "invalid protection information" },
	{ C(NVME_SC_READ_ONLY_RANGE), EROFS, "attempted write to read-only range" },
	{ M(NVME_SC_WRITE_FAULT), EIO, "write fault" },
	{ M(NVME_SC_UNRECOVERED_READ), EIO, "unrecovered read error" },
	{ M(0x82), EIO, "guard check error" },
	{ M(0x83), EIO, "application tag check error" },
	{ M(0x84), EIO, "reference tag check error" },
	{ M(NVME_SC_COMPARE_FAILURE), EILSEQ, "compare failure" },
	{ M(NVME_SC_ACCESS_DENIED), EACCES, "access denied" },
	{ M(NVME_SC_UNWRITTEN), ENODATA, "deallocated or unwritten block" },
	{ P(0x00), EIO, "internal path error" },
	{ P(0x01), EIO, "asymmetric access persistent loss" },
	{ P(0x02), EAGAIN, "asymmetric access inaccessible" },
	{ P(0x03), EAGAIN, "asymmetric access transition" },
};

static const struct entry *find(uint16_t status)
{
	uint16_t key = NVME_STATUS(NVME_STATUS_SCT(status), NVME_STATUS_SC(status));

	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		if (entries[i].status == key)
			return &entries[i];
	return NULL;
}

int nvme_status_errno(uint16_t status)
{
	const struct entry *e = find(status);

	/* "success" beside Do Not Retry or a retry delay is none: nothing was counted as moved */
	return e && (e->err || !status) ? -e->err : -EIO;
}

const char *nvme_status_name(uint16_t status)
{
	const struct entry *e = find(status);

	if (e)
		return e->name;
	return NVME_STATUS_SCT(status) == NVME_SCT_VENDOR ? "vendor specific error" : "error";
}
