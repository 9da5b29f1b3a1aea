/* SPDX-License-Identifier: MIT */
/* Log pages (Base 5.16) and what is written into them. */
#include <string.h>

#include "emu/power.h"

#define RETAIN_EVENT (1u << 15)
#define DATA_UNIT 512000ull
#define KELVIN_30C 303

void emu_error_log(struct emu_ctrl *e, const struct emu_cmd *c, uint16_t status)
{
	struct nvme_error_log *entry;

	emu_lock(&e->errlog_lock);
	entry = &e->errlog[e->nr_errors++ % EMU_ERRLOG];
	memset(entry, 0, sizeof(*entry));
	entry->error_count = le64_put(e->nr_errors);
	entry->sqid = le16_put(c->sq->qid);
	entry->cid = c->sqe.cid;
	entry->status = le16_put((uint16_t)(status << 1));
	entry->parm_err_loc = le16_put(0xffff);
	entry->nsid = c->sqe.nsid;
	if (c->sq->qid)
		entry->lba = le64_put(le32_get(c->sqe.cdw10) | (uint64_t)le32_get(c->sqe.cdw11) << 32);
	emu_unlock(&e->errlog_lock);
}

/* Newest first. */
static void fill_errors(struct emu_ctrl *e, struct nvme_error_log *out)
{
	emu_lock(&e->errlog_lock);
	for (uint64_t i = 0; i < EMU_ERRLOG && i < e->nr_errors; i++)
		out[i] = e->errlog[(e->nr_errors - 1 - i) % EMU_ERRLOG];
	emu_unlock(&e->errlog_lock);
}

static void put128(uint8_t field[16], uint64_t value)
{
	le64_t le = le64_put(value);

	memcpy(field, &le, sizeof(le));
}

static void sum(struct emu_stats *all, struct emu_stats *s)
{
	emu_stat_own(&all->reads, emu_stat_get(&s->reads));
	emu_stat_own(&all->writes, emu_stat_get(&s->writes));
	emu_stat_own(&all->read_bytes, emu_stat_get(&s->read_bytes));
	emu_stat_own(&all->written_bytes, emu_stat_get(&s->written_bytes));
}

static void fill_smart(struct emu_ctrl *e, struct nvme_smart_log *log)
{
	struct emu_stats all = { 0 };

	sum(&all, &e->stopped);
	for (uint32_t i = 1; i <= EMU_MAX_QID; i++)
		sum(&all, &e->sq[i].stepped);
	for (uint32_t i = 0; i < e->nr_workers; i++)
		sum(&all, &e->workers[i].served);
	log->critical_warning = e->readonly ? 1u << 3 : 0;
	log->temperature[0] = KELVIN_30C & 0xff;
	log->temperature[1] = KELVIN_30C >> 8;
	log->avail_spare = 100;
	log->spare_thresh = 10;
	put128(log->data_units_read, (all.read_bytes + DATA_UNIT - 1) / DATA_UNIT);
	put128(log->data_units_written, (all.written_bytes + DATA_UNIT - 1) / DATA_UNIT);
	put128(log->host_reads, all.reads);
	put128(log->host_writes, all.writes);
	put128(log->power_cycles, 1 + emu_power_cuts(e));
	put128(log->unsafe_shutdowns, emu_power_cuts(e));
	emu_lock(&e->errlog_lock);
	put128(log->num_err_log_entries, e->nr_errors);
	emu_unlock(&e->errlog_lock);
}

static void fill_changed_ns(struct emu_ctrl *e, le32_t *list, bool retain)
{
	uint32_t n = 0;

	pthread_mutex_lock(&e->aer_lock);
	for (uint32_t i = 0; i < e->nr_ns; i++)
		if (e->ns_changed >> i & 1)
			list[n++] = le32_put(e->ns[i].id);
	if (!retain)
		e->ns_changed = 0;
	pthread_mutex_unlock(&e->aer_lock);
}

uint16_t emu_get_log(struct emu_actor *a, const struct nvme_sqe *s)
{
	struct emu_ctrl *e = a->e;
	uint32_t cdw10 = le32_get(s->cdw10), size, type;
	uint64_t nbytes = (((uint64_t)(le32_get(s->cdw11) & 0xffff) << 16 | cdw10 >> 16) + 1) * 4;
	uint64_t off = le32_get(s->cdw12) | (uint64_t)le32_get(s->cdw13) << 32;
	bool retain = cdw10 & RETAIN_EVENT;
	uint16_t st;

	memset(a->scratch, 0, EMU_SCRATCH_BYTES);
	switch (cdw10 & 0xff) {
	case NVME_LOG_ERROR:
		size = sizeof(e->errlog);
		type = NVME_AER_ERROR;
		fill_errors(e, (void *)a->scratch);
		break;
	case NVME_LOG_SMART:
		size = sizeof(struct nvme_smart_log);
		type = NVME_AER_SMART;
		fill_smart(e, (void *)a->scratch);
		break;
	case NVME_LOG_FW_SLOT:
		size = 512;
		type = NVME_AER_NOTICE;
		a->scratch[0] = 1; /* slot 1 is active */
		memcpy(a->scratch + 8, "1.0     ", 8);
		break;
	case NVME_LOG_CHANGED_NS:
		size = 4096;
		type = NVME_AER_NOTICE;
		fill_changed_ns(e, (void *)a->scratch, retain);
		break;
	default:
		return NVME_STATUS(NVME_SCT_CMD, NVME_SC_INVALID_LOG_PAGE) | EMU_DNR;
	}
	/* past the page's end there are zeros, as far as the scratch buffer goes */
	if (off & 3 || off >= size || nbytes > EMU_SCRATCH_BYTES - off)
		return NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_INVALID_FIELD) | EMU_DNR;
	emu_garble(e, EMU_PAGE_LOG, a->scratch + off, (uint32_t)nbytes);
	st = emu_copy_to_host(a, s, a->scratch + off, (uint32_t)nbytes);
	if (!st && !retain)
		emu_aer_unmask(a, type);
	return st;
}
