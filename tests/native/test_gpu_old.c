/* SPDX-License-Identifier: MIT */
/* Drivers that lack what is optional, on the software GPU: what takes its place, and what is said to be missing. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "soft_gpu.h"
#include "tap.h"

static int hsa_offset;

/* hsa_amd_portable_export_dmabuf_v2 */
static int hsa_export(uint64_t addr, size_t n, int *fd, uint64_t *offset, uint64_t flags)
{
	(void)addr;
	(void)n;
	(void)flags;
	*fd = open("/dev/null", O_RDONLY);
	*offset = (uint64_t)hsa_offset;
	return hsa_offset < 0;
}

static uint64_t old(const struct soft *s, const struct gpu_symbol *symbol)
{
	/* The two that the words of CUDA are written one by one with. */
	bool kept = strstr(symbol->name, "Value32");

	return symbol->optional && !kept ? 0 : soft_address(s, symbol);
}

static uint64_t with_hsa(const struct soft *s, const struct gpu_symbol *symbol)
{
	return strncmp(symbol->name, "hsa_", 4) ? old(s, symbol) : (uintptr_t)hsa_export;
}

static void words(const struct soft *s)
{
	struct gpu_place p;
	struct gpu_before b;
	struct gpu_word w[2];
	uint64_t stream;

	s->rt->device_place(0, true, &p);
	s->rt->enter(&p, &b);
	s->rt->stream_new(&stream);
	s->rt->words_alloc(2, w);

	struct gpu_memop ops[] = { { .addr = w[0].dev, .val = 5 },
				   { .wait = true, .addr = w[0].dev, .val = 5 },
				   { .addr = w[1].dev, .val = 6 } };

	ok(!s->rt->memops(stream, ops, 3) && !s->rt->stream_sync(stream) && *w[0].host == 5 &&
		   *w[1].host == 6,
	   "%s: words one by one", s->rt->name);
	s->rt->words_free(2, w);
	s->rt->stream_free(stream);
	s->rt->leave(&p, &b);
}

static void pointer(const struct soft *s, uint64_t mem)
{
	struct gpu_pointer at;

	ok(!s->rt->pointer(mem + 1, &at) && at.base == mem && at.nbytes == 65536 && at.kind == GPU_MEM_DEVICE,
	   "%s: what lies at an address", s->rt->name);
}

static void cuda(void)
{
	struct soft s = soft_open_with(GPU_CUDA, old);
	struct gpu_place p;
	struct gpu_before b;
	uint64_t mem;
	uint32_t caps;
	int fd;

	words(&s);
	ok(!s.rt->caps(0, &caps) && caps & GPU_CAN_MEMOPS && !(caps & (GPU_CAN_DMABUF | GPU_HAS_FLUSH)),
	   "CUDA: what it can");
	s.rt->device_place(0, true, &p);
	s.rt->enter(&p, &b);
	s.rt->alloc(65536, &mem);
	pointer(&s, mem);
	ok(s.rt->export_range(mem, 65536, 0, &fd) == 801 && s.rt->flush_remote_writes() == 801,
	   "CUDA: what it cannot is not supported");
	s.rt->free(mem);
	s.rt->leave(&p, &b);
}

static void hip(void)
{
	struct soft s = soft_open_with(GPU_HIP, with_hsa);
	struct gpu_place p;
	struct gpu_before b;
	uint64_t mem;
	uint32_t caps;
	int fd = -1;

	words(&s);
	ok(!s.rt->caps(0, &caps) && caps & GPU_CAN_DMABUF, "HIP: HSA exports in its place");
	s.rt->device_place(0, true, &p);
	s.rt->enter(&p, &b);
	s.rt->alloc(65536, &mem);
	pointer(&s, mem);
	ok(!s.rt->export_range(mem, 65536, 0, &fd) && fd >= 0, "HIP: a dma-buf that begins with the range");
	close(fd);
	hsa_offset = 4096;
	ok(s.rt->export_range(mem, 65536, 0, &fd) == 801, "HIP: not one that begins before it");
	hsa_offset = -1;
	ok(s.rt->export_range(mem, 65536, 0, &fd) == 1, "HIP: an error of HSA");
	s.rt->free(mem);
	s.rt->leave(&p, &b);
}

int main(void)
{
	cuda();
	hip();
	return done_testing();
}
