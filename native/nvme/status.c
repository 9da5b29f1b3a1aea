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
	{ G(0x0d), EINVAL, "invalid SGL segment descriptor" },
	{ G(0x0e), EINVAL, "invalid number of SGL descriptors" },
	{ G(0x0f), EINVAL, "data SGL length invalid" },
	{ G(0x10), EINVAL, "metadata SGL length invalid" },
	{ G(0x11), EINVAL, "SGL descriptor type invalid" },
	{ G(0x12), EINVAL, "invalid use of controller memory buffer" },
	{ G(NVME_SC_INVALID_PRP_OFFSET), EFAULT, "invalid PRP offset" },
	{ G(0x14), EINVAL, "atomic write unit exceeded" },
	{ G(0x15), EPERM, "operation denied" },
	{ G(0x16), EFAULT, "SGL offset invalid" },
	{ G(0x18), EINVAL, "host identifier inconsistent format" },
	{ G(0x19), ETIME, "keep alive timer expired" },
	{ G(0x1a), EINVAL, "keep alive timeout invalid" },
	{ G(0x1b), ECANCELED, "aborted: preempt and abort" },
	{ G(0x1c), EBUSY, "sanitize failed" },
	{ G(0x1d), EBUSY, "sanitize in progress" },
	{ G(0x1e), EINVAL, "SGL data block granularity invalid" },
	{ G(0x1f), EOPNOTSUPP, "command not supported for queue in CMB" },
	{ G(NVME_SC_NS_WRITE_PROTECTED), EROFS, "namespace is write protected" },
	{ G(0x21), EAGAIN, "command interrupted" },
	{ G(0x22), EAGAIN, "transient transport error" },
	{ G(0x23), EPERM, "command prohibited by lockdown" },
	{ G(0x24), EAGAIN, "admin command: media not ready" },
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
	{ C(0x06), EINVAL, "invalid firmware slot" },
	{ C(0x07), EINVAL, "invalid firmware image" },
	{ C(NVME_SC_INVALID_VECTOR), EINVAL, "invalid interrupt vector" },
	{ C(NVME_SC_INVALID_LOG_PAGE), EINVAL, "invalid log page" },
	{ C(0x0a), EINVAL, "invalid format" },
	{ C(0x0b), EAGAIN, "firmware activation requires conventional reset" },
	{ C(NVME_SC_INVALID_QUEUE_DELETION), EBUSY, "invalid queue deletion" },
	{ C(0x0d), EOPNOTSUPP, "feature identifier not saveable" },
	{ C(NVME_SC_FEATURE_NOT_CHANGEABLE), EPERM, "feature not changeable" },
	{ C(0x0f), EINVAL, "feature not namespace specific" },
	{ C(0x10), EAGAIN, "firmware activation requires NVM subsystem reset" },
	{ C(0x11), EAGAIN, "firmware activation requires controller level reset" },
	{ C(0x12), ETIME, "firmware activation requires maximum time violation" },
	{ C(0x13), EPERM, "firmware activation prohibited" },
	{ C(0x14), EINVAL, "overlapping range" },
	{ C(0x15), ENOSPC, "namespace insufficient capacity" },
	{ C(0x16), ENOSPC, "namespace identifier unavailable" },
	{ C(0x18), EEXIST, "namespace already attached" },
	{ C(0x19), EPERM, "namespace is private" },
	{ C(0x1a), ENXIO, "namespace not attached" },
	{ C(0x1b), EOPNOTSUPP, "thin provisioning not supported" },
	{ C(0x1c), EINVAL, "controller list invalid" },
	{ C(0x1d), EBUSY, "device self-test in progress" },
	{ C(0x1e), EROFS, "boot partition write prohibited" },
	{ C(0x1f), EINVAL, "invalid controller identifier" },
	{ C(0x20), EINVAL, "invalid secondary controller state" },
	{ C(0x21), EINVAL, "invalid number of controller resources" },
	{ C(0x22), EINVAL, "invalid resource identifier" },
	{ C(0x23), EPERM, "sanitize prohibited while persistent memory region is enabled" },
	{ C(0x24), EINVAL, "ANA group identifier invalid" },
	{ C(0x25), EIO, "ANA attach failed" },
	{ C(0x26), ENOSPC, "insufficient capacity" },
	{ C(0x27), ENOSPC, "namespace attachment limit exceeded" },
	{ C(0x28), EOPNOTSUPP, "prohibition of command execution not supported" },
	{ C(0x29), EOPNOTSUPP, "I/O command set not supported" },
	{ C(0x2a), EOPNOTSUPP, "I/O command set not enabled" },
	{ C(0x2b), EINVAL, "I/O command set combination rejected" },
	{ C(0x2c), EINVAL, "invalid I/O command set" },
	{ C(0x2d), ENOSPC, "identifier unavailable" },
	{ C(0x80), EINVAL, "conflicting attributes" },
	{ C(0x81), EINVAL, "invalid protection information" },
	{ C(NVME_SC_READ_ONLY_RANGE), EROFS, "attempted write to read-only range" },
	{ C(0x83), EINVAL, "command size limit exceeded" },
	{ C(0xb8), EINVAL, "zoned boundary error" },
	{ C(0xb9), ENOSPC, "zone is full" },
	{ C(0xba), EROFS, "zone is read only" },
	{ C(0xbb), EIO, "zone is offline" },
	{ C(0xbc), EINVAL, "zone invalid write" },
	{ C(0xbd), EBUSY, "too many active zones" },
	{ C(0xbe), EBUSY, "too many open zones" },
	{ C(0xbf), EINVAL, "invalid zone state transition" },
	{ M(NVME_SC_WRITE_FAULT), EIO, "write fault" },
	{ M(NVME_SC_UNRECOVERED_READ), EIO, "unrecovered read error" },
	{ M(0x82), EIO, "guard check error" },
	{ M(0x83), EIO, "application tag check error" },
	{ M(0x84), EIO, "reference tag check error" },
	{ M(NVME_SC_COMPARE_FAILURE), EILSEQ, "compare failure" },
	{ M(NVME_SC_ACCESS_DENIED), EACCES, "access denied" },
	{ M(NVME_SC_UNWRITTEN), ENODATA, "deallocated or unwritten block" },
	{ M(0x88), EIO, "storage tag check error" },
	{ P(0x00), EIO, "internal path error" },
	{ P(0x01), EIO, "asymmetric access persistent loss" },
	{ P(0x02), EAGAIN, "asymmetric access inaccessible" },
	{ P(0x03), EAGAIN, "asymmetric access transition" },
	{ P(0x60), EIO, "controller pathing error" },
	{ P(0x70), EIO, "host pathing error" },
	{ P(0x71), ECANCELED, "command aborted by host" },
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

bool nvme_status_may_retry(uint16_t status)
{
	if (status & NVME_STATUS_DNR)
		return false;
	switch (status & 0x7ff) {
	case G(NVME_SC_ABORT_REQUESTED): /* by us, and the queue's deletion too */
	case G(NVME_SC_ABORT_SQ_DELETED):
	case M(NVME_SC_COMPARE_FAILURE): /* an answer, not a failure */
		return false;
	default:
		return true;
	}
}

const char *nvme_status_name(uint16_t status)
{
	const struct entry *e = find(status);

	if (e)
		return e->name;
	return NVME_STATUS_SCT(status) == NVME_SCT_VENDOR ? "vendor specific error" : "error";
}

bool nvme_status_no_ns(uint16_t status)
{
	return (status & 0x7ff) == NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_NS);
}
