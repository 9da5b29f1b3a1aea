/* SPDX-License-Identifier: MIT */
/* What an embedded controller can be asked to be. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "emu/internal.h"

#define MAX_CHANNELS 4096u
#define MAX_THREADS 64u
#define MAX_VECTORS 2048u
#define MAX_MPS 4u /* 64 KiB */
#define MAX_DSTRD 10u

static bool in_range(const char *name, uint64_t v, uint64_t low, uint64_t high, char *err, size_t err_len)
{
	if (v >= low && v <= high)
		return true;
	snprintf(err, err_len, "%s is %llu; the embedded controller takes %llu to %llu", name,
		 (unsigned long long)v, (unsigned long long)low, (unsigned long long)high);
	return false;
}

#define CHECK(field, low, high) in_range(#field, p->field, low, high, err, err_len)

static bool check_ns(const struct emu_params *p, uint32_t i, char *err, size_t err_len)
{
	const struct emu_ns_params *n = &p->ns[i];

	if (!in_range("nsid", n->nsid, 1, NVME_NSID_ALL - 2, err, err_len) ||
	    !in_range("lba", n->lba_bytes, 512, 65536, err, err_len) ||
	    !in_range("metadata", n->metadata_bytes, 0, 0xffff, err, err_len) ||
	    !in_range("size", n->nbytes, 0, 1ull << 62, err, err_len))
		return false;
	if (!is_pow2(n->lba_bytes)) {
		snprintf(err, err_len, "lba is %u; a block size is a power of two from 512 to 65536",
			 n->lba_bytes);
		return false;
	}
	for (uint32_t j = 0; j < i; j++) {
		if (p->ns[j].nsid == n->nsid) {
			snprintf(err, err_len, "namespace %u is given twice", n->nsid);
			return false;
		}
	}
	return true;
}

int emu_check_params(const struct emu_params *p, char *err, size_t err_len)
{
	if (!CHECK(nr_ns, 1, EMU_MAX_NS) || !CHECK(queues, 1, EMU_MAX_QID) ||
	    !CHECK(vectors, 1, MAX_VECTORS) || !CHECK(threads, 1, MAX_THREADS) || !CHECK(mqes, 1, 0xffff) ||
	    !CHECK(dstrd, 0, MAX_DSTRD) || !CHECK(mpsmin, 0, MAX_MPS) || !CHECK(mpsmax, p->mpsmin, MAX_MPS) ||
	    !CHECK(channels, 0, MAX_CHANNELS) || !CHECK(window, 0, MAX_CHANNELS) || !CHECK(mdts, 0, 20) ||
	    !CHECK(aerl, 0, EMU_AER_MAX - 1) || !CHECK(latency_ns, 0, 1ull << 50) ||
	    !CHECK(latency_per_kib_ns, 0, 1ull << 30) || !CHECK(jitter_ns, 0, 1ull << 50) ||
	    !CHECK(volatile_bytes, 0, 1ull << 40))
		return -EINVAL;
	if (p->volatile_bytes && p->nodata) {
		snprintf(err, err_len,
			 "volatile needs data that can be lost; leave out data=none, or volatile");
		return -EINVAL;
	}
	for (uint32_t i = 0; i < p->nr_ns; i++)
		if (!check_ns(p, i, err, err_len))
			return -EINVAL;
	if (p->path && (!*p->path || strlen(p->path) >= EMU_PATH_MAX)) {
		snprintf(err, err_len, "the path has %zu characters; 1 to %d are possible", strlen(p->path),
			 EMU_PATH_MAX - 1);
		return -ENAMETOOLONG;
	}
	if (p->readonly && !p->path) {
		snprintf(err, err_len, "a read-only namespace in memory would stay empty; name a file");
		return -EINVAL;
	}
	return 0;
}
