/* SPDX-License-Identifier: MIT */
/*
 * NVMe on the wire: registers, commands, completions, identify data, log pages (NVM Express Base 2.0
 * and NVM Command Set 1.0). The only thing that the host side and the embedded controller share.
 */
#ifndef SPEC_NVME_H
#define SPEC_NVME_H

#include <assert.h>
#include <endian.h>
#include <stdint.h>

typedef uint16_t le16_t;
typedef uint32_t le32_t;
typedef uint64_t le64_t;

static inline uint16_t le16_get(le16_t v) { return le16toh(v); }
static inline uint32_t le32_get(le32_t v) { return le32toh(v); }
static inline uint64_t le64_get(le64_t v) { return le64toh(v); }
static inline le16_t le16_put(uint16_t v) { return htole16(v); }
static inline le32_t le32_put(uint32_t v) { return htole32(v); }
static inline le64_t le64_put(uint64_t v) { return htole64(v); }

/* Controller properties (Base 3.1.3), byte offsets in BAR0. */
enum nvme_reg {
	NVME_REG_CAP = 0x00,
	NVME_REG_VS = 0x08,
	NVME_REG_INTMS = 0x0c,
	NVME_REG_INTMC = 0x10,
	NVME_REG_CC = 0x14,
	NVME_REG_CSTS = 0x1c,
	NVME_REG_NSSR = 0x20,
	NVME_REG_AQA = 0x24,
	NVME_REG_ASQ = 0x28,
	NVME_REG_ACQ = 0x30,
	NVME_REG_DBS = 0x1000,
};

#define NVME_CAP_MQES(cap) ((uint32_t)((cap) & 0xffff))
#define NVME_CAP_CQR(cap) ((uint32_t)(((cap) >> 16) & 1))
#define NVME_CAP_AMS(cap) ((uint32_t)(((cap) >> 17) & 3)) /* bit 0: weighted round robin */
#define NVME_CAP_TO(cap) ((uint32_t)(((cap) >> 24) & 0xff)) /* units of 500 ms */
#define NVME_CAP_DSTRD(cap) ((uint32_t)(((cap) >> 32) & 0xf))
#define NVME_CAP_CSS(cap) ((uint32_t)(((cap) >> 37) & 0xff)) /* bit 0: NVM command set */
#define NVME_CAP_MPSMIN(cap) ((uint32_t)(((cap) >> 48) & 0xf)) /* 2^(12 + n) bytes */
#define NVME_CAP_MPSMAX(cap) ((uint32_t)(((cap) >> 52) & 0xf))

#define NVME_CC_EN 0x1u
#define NVME_CC_CSS_NVM (0u << 4)
#define NVME_CC_MPS(n) ((uint32_t)(n) << 7)
#define NVME_CC_AMS(n) ((uint32_t)(n) << 11)
#define NVME_CC_SHN_NORMAL (1u << 14)
#define NVME_CC_SHN_ABRUPT (2u << 14)
#define NVME_CC_SHN_MASK (3u << 14)
#define NVME_CC_IOSQES(n) ((uint32_t)(n) << 16)
#define NVME_CC_IOCQES(n) ((uint32_t)(n) << 20)
#define NVME_CC_GET_MPS(cc) (((cc) >> 7) & 0xf)
#define NVME_CC_GET_AMS(cc) (((cc) >> 11) & 7)
#define NVME_CC_GET_SHN(cc) (((cc) >> 14) & 3)
#define NVME_CC_GET_IOSQES(cc) (((cc) >> 16) & 0xf)
#define NVME_CC_GET_IOCQES(cc) (((cc) >> 20) & 0xf)
#define NVME_AMS_RR 0u
#define NVME_AMS_WRR 1u

#define NVME_CSTS_RDY 0x1u
#define NVME_CSTS_CFS 0x2u
#define NVME_CSTS_SHST(v) (((v) >> 2) & 3)
#define NVME_CSTS_SHST_OCCURRING (1u << 2)
#define NVME_CSTS_SHST_COMPLETE (2u << 2)
#define NVME_CSTS_NSSRO (1u << 4)

#define NVME_SQES 6 /* log2 of an SQE */
#define NVME_CQES 4

enum nvme_admin_opcode {
	NVME_ADM_DELETE_SQ = 0x00,
	NVME_ADM_CREATE_SQ = 0x01,
	NVME_ADM_GET_LOG = 0x02,
	NVME_ADM_DELETE_CQ = 0x04,
	NVME_ADM_CREATE_CQ = 0x05,
	NVME_ADM_IDENTIFY = 0x06,
	NVME_ADM_ABORT = 0x08,
	NVME_ADM_SET_FEATURES = 0x09,
	NVME_ADM_GET_FEATURES = 0x0a,
	NVME_ADM_ASYNC_EVENT = 0x0c,
	NVME_ADM_KEEP_ALIVE = 0x18,
	NVME_ADM_DBBUF = 0x7c, /* Doorbell Buffer Config */
	NVME_ADM_FORMAT = 0x80,
};

enum nvme_io_opcode {
	NVME_IO_FLUSH = 0x00,
	NVME_IO_WRITE = 0x01,
	NVME_IO_READ = 0x02,
	NVME_IO_COMPARE = 0x05,
	NVME_IO_WRITE_ZEROES = 0x08,
	NVME_IO_DSM = 0x09,
	NVME_IO_VERIFY = 0x0c,
};

struct nvme_sqe {
	uint8_t opcode;
	uint8_t flags; /* FUSE, PSDT: 0 = PRP */
	le16_t cid;
	le32_t nsid;
	le32_t cdw2;
	le32_t cdw3;
	le64_t mptr;
	le64_t prp1;
	le64_t prp2;
	le32_t cdw10;
	le32_t cdw11;
	le32_t cdw12;
	le32_t cdw13;
	le32_t cdw14;
	le32_t cdw15;
};
static_assert(sizeof(struct nvme_sqe) == 64, "SQE size (Base 3.3.3.1)");

struct nvme_cqe {
	le32_t dw0; /* command specific result */
	le32_t dw1;
	le16_t sqhd;
	le16_t sqid;
	le32_t dw3; /* cid in 15:0, phase in 16, status in 31:17; written last */
};
static_assert(sizeof(struct nvme_cqe) == 16, "CQE size (Base 3.3.3.2)");

#define NVME_CQE_CID(dw3) ((uint16_t)((dw3) & 0xffff))
#define NVME_CQE_PHASE(dw3) (((dw3) >> 16) & 1)
#define NVME_CQE_STATUS(dw3) \
	((uint16_t)((dw3) >> 17)) /* 15 bits: SC 7:0, SCT 10:8, CRD 12:11, M 13, DNR 14 */

#define NVME_STATUS(sct, sc) ((uint16_t)(((sct) << 8) | (sc)))
#define NVME_STATUS_SC(st) ((st) & 0xff)
#define NVME_STATUS_SCT(st) (((st) >> 8) & 7)
#define NVME_STATUS_CRD(st) (((st) >> 11) & 3)
#define NVME_STATUS_MORE 0x2000u
#define NVME_STATUS_DNR 0x4000u

enum nvme_sct {
	NVME_SCT_GENERIC = 0,
	NVME_SCT_CMD = 1,
	NVME_SCT_MEDIA = 2,
	NVME_SCT_PATH = 3,
	NVME_SCT_VENDOR = 7
};

enum nvme_sc_generic {
	NVME_SC_SUCCESS = 0x00,
	NVME_SC_INVALID_OPCODE = 0x01,
	NVME_SC_INVALID_FIELD = 0x02,
	NVME_SC_CID_CONFLICT = 0x03,
	NVME_SC_DATA_TRANSFER = 0x04,
	NVME_SC_POWER_LOSS = 0x05,
	NVME_SC_INTERNAL = 0x06,
	NVME_SC_ABORT_REQUESTED = 0x07,
	NVME_SC_ABORT_SQ_DELETED = 0x08,
	NVME_SC_INVALID_NS = 0x0b,
	NVME_SC_INVALID_PRP_OFFSET = 0x13,
	NVME_SC_NS_WRITE_PROTECTED = 0x20,
	NVME_SC_LBA_RANGE = 0x80,
	NVME_SC_CAP_EXCEEDED = 0x81,
	NVME_SC_NS_NOT_READY = 0x82,
};

enum nvme_sc_command {
	NVME_SC_CQ_INVALID = 0x00,
	NVME_SC_INVALID_QID = 0x01,
	NVME_SC_INVALID_QSIZE = 0x02,
	NVME_SC_ABORT_LIMIT = 0x03,
	NVME_SC_AER_LIMIT = 0x05,
	NVME_SC_INVALID_VECTOR = 0x08,
	NVME_SC_INVALID_LOG_PAGE = 0x09,
	NVME_SC_INVALID_QUEUE_DELETION = 0x0c,
	NVME_SC_FEATURE_NOT_CHANGEABLE = 0x0e,
	NVME_SC_READ_ONLY_RANGE = 0x82,
};

enum nvme_sc_media {
	NVME_SC_WRITE_FAULT = 0x80,
	NVME_SC_UNRECOVERED_READ = 0x81,
	NVME_SC_COMPARE_FAILURE = 0x85,
	NVME_SC_ACCESS_DENIED = 0x86,
	NVME_SC_UNWRITTEN = 0x87,
};

/* Create I/O queue (Base 5.4, 5.5). */
#define NVME_QUEUE_PC 0x1u
#define NVME_CQ_IEN 0x2u
#define NVME_PRIO_URGENT 0
#define NVME_PRIO_LOW 3
#define NVME_SQ_QPRIO(n) ((uint32_t)(n) << 1) /* 0 urgent, 1 high, 2 medium, 3 low */

/* Read and write (NVM 3.2.4, 3.2.6): cdw10/11 SLBA, cdw12 NLB 15:0 (zero based) and flags. */
#define NVME_RW_FUA (1u << 30)
#define NVME_RW_LR (1u << 31)
#define NVME_WZ_DEAC (1u << 25)
#define NVME_DSM_AD (1u << 2)

enum nvme_feature {
	NVME_FEAT_ARBITRATION = 0x01,
	NVME_FEAT_POWER = 0x02,
	NVME_FEAT_TEMP = 0x04,
	NVME_FEAT_ERROR_RECOVERY = 0x05,
	NVME_FEAT_VWC = 0x06,
	NVME_FEAT_NUM_QUEUES = 0x07,
	NVME_FEAT_IRQ_COALESCE = 0x08,
	NVME_FEAT_IRQ_CONFIG = 0x09,
	NVME_FEAT_WRITE_ATOMICITY = 0x0a,
	NVME_FEAT_ASYNC_EVENT = 0x0b,
	NVME_FEAT_HOST_BEHAVIOR = 0x16,
};

/* Interrupt Coalescing (Base 5.27.1.6): dword 11 has completions, zero based, and their time in 100 us. Interrupt Vector
 * Configuration: the vector, and whether it takes no part. */
#define NVME_IRQ_ALONE (1u << 16)

enum nvme_cns {
	NVME_CNS_NS = 0x00,
	NVME_CNS_CTRL = 0x01,
	NVME_CNS_ACTIVE_NS = 0x02,
	NVME_CNS_NS_DESC = 0x03
};

#define NVME_OACS_DBBUF (1u << 8)
#define NVME_ONCS_COMPARE (1u << 0)
#define NVME_ONCS_DSM (1u << 2)
#define NVME_ONCS_WRITE_ZEROES (1u << 3)
#define NVME_ONCS_VERIFY (1u << 7)
#define NVME_VWC_PRESENT 0x1u

struct nvme_id_ctrl {
	le16_t vid;
	le16_t ssvid;
	char sn[20];
	char mn[40];
	char fr[8];
	uint8_t rab;
	uint8_t ieee[3];
	uint8_t cmic;
	uint8_t mdts; /* 2^n minimum pages, 0: no limit */
	le16_t cntlid;
	le32_t ver;
	le32_t rtd3r;
	le32_t rtd3e;
	le32_t oaes;
	le32_t ctratt;
	uint8_t rsvd100[28];
	le16_t crdt[3]; /* command retry delay times 1 to 3, units of 100 ms */
	uint8_t rsvd134[122];
	le16_t oacs;
	uint8_t acl;
	uint8_t aerl;
	uint8_t frmw;
	uint8_t lpa;
	uint8_t elpe;
	uint8_t npss;
	uint8_t rsvd264[248];
	uint8_t sqes;
	uint8_t cqes;
	le16_t maxcmd;
	le32_t nn;
	le16_t oncs;
	le16_t fuses;
	uint8_t fna;
	uint8_t vwc;
	le16_t awun;
	le16_t awupf;
	uint8_t icsvscc;
	uint8_t nwpc;
	le16_t acwu;
	uint8_t rsvd534[2];
	le32_t sgls;
	le32_t mnan;
	uint8_t rsvd544[3552];
};
static_assert(sizeof(struct nvme_id_ctrl) == 4096, "Identify Controller (Base 5.17.2.1)");

struct nvme_lbaf {
	le16_t ms;
	uint8_t lbads;
	uint8_t rp;
};

struct nvme_id_ns {
	le64_t nsze;
	le64_t ncap;
	le64_t nuse;
	uint8_t nsfeat;
	uint8_t nlbaf; /* zero based */
	uint8_t flbas; /* 3:0 and 6:5: format index; bit 4: metadata at the end of the data */
	uint8_t mc;
	uint8_t dpc;
	uint8_t dps;
	uint8_t nmic;
	uint8_t rescap;
	uint8_t fpi;
	uint8_t dlfeat;
	le16_t nawun;
	le16_t nawupf;
	uint8_t rsvd38[61];
	uint8_t nsattr; /* bit 0: write protected */
	uint8_t rsvd100[28];
	struct nvme_lbaf lbaf[64];
	uint8_t rsvd384[3712];
};
static_assert(sizeof(struct nvme_id_ns) == 4096, "Identify Namespace (NVM 4.1.5.1)");

struct nvme_dsm_range {
	le32_t cattr;
	le32_t nlb;
	le64_t slba;
};
static_assert(sizeof(struct nvme_dsm_range) == 16, "DSM range (NVM 3.2.3)");

enum nvme_log {
	NVME_LOG_ERROR = 0x01,
	NVME_LOG_SMART = 0x02,
	NVME_LOG_FW_SLOT = 0x03,
	NVME_LOG_CHANGED_NS = 0x04,
};

struct nvme_smart_log {
	uint8_t critical_warning;
	uint8_t temperature[2];
	uint8_t avail_spare;
	uint8_t spare_thresh;
	uint8_t percent_used;
	uint8_t rsvd6[26];
	uint8_t data_units_read[16];
	uint8_t data_units_written[16];
	uint8_t host_reads[16];
	uint8_t host_writes[16];
	uint8_t ctrl_busy_time[16];
	uint8_t power_cycles[16];
	uint8_t power_on_hours[16];
	uint8_t unsafe_shutdowns[16];
	uint8_t media_errors[16];
	uint8_t num_err_log_entries[16];
	uint8_t rsvd192[320];
};
static_assert(sizeof(struct nvme_smart_log) == 512, "SMART log (Base 5.16.1.3)");

struct nvme_error_log {
	le64_t error_count;
	le16_t sqid;
	le16_t cid;
	le16_t status; /* phase in bit 0 */
	le16_t parm_err_loc;
	le64_t lba;
	le32_t nsid;
	uint8_t vs;
	uint8_t trtype;
	uint8_t rsvd30[2];
	le64_t cs;
	le16_t trtype_spec;
	uint8_t rsvd42[22];
};
static_assert(sizeof(struct nvme_error_log) == 64, "Error log entry (Base 5.16.1.2)");

/* Asynchronous event, CQE dw0 (Base 5.2.1). */
#define NVME_AER_TYPE(dw0) ((dw0) & 7)
#define NVME_AER_INFO(dw0) (((dw0) >> 8) & 0xff)
#define NVME_AER_LOG(dw0) (((dw0) >> 16) & 0xff)
#define NVME_AER_ERROR 0u
#define NVME_AER_SMART 1u
#define NVME_AER_NOTICE 2u
#define NVME_AER_NOTICE_NS 0u

#define NVME_NSID_ALL 0xffffffffu

#endif
