/* SPDX-License-Identifier: MIT */
/*
 * What we use of a GPU runtime, the same for both vendors. Nothing is linked: entry points come by address. Calls
 * answer 0 or the runtime's own code (> 0), of which gpu_errno() makes an errno. None of them may be made with a
 * lock held that a callback of the runtime may take.
 */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As UGDS_GPU_* of ugds_gpu.h. */
enum gpu_vendor { GPU_CUDA = 1, GPU_HIP = 2, GPU_VENDORS };
enum gpu_mem { GPU_MEM_NONE, GPU_MEM_DEVICE, GPU_MEM_HOST, GPU_MEM_MANAGED };
enum gpu_cap {
	GPU_CAN_MEMOPS = 0x1,
	GPU_CAN_DMABUF = 0x2,
	GPU_CAN_FLUSH = 0x4,
	GPU_NEEDS_FLUSH = 0x8,
	GPU_HAS_FLUSH = 0x10
};

#define GPU_NOT_READY (-1) /* of stream_query, event_query: going on still */

struct gpu_place {
	uint32_t vendor; /* GPU_CUDA, GPU_HIP */
	int32_t device; /* ordinal */
	uint64_t ctx; /* CUDA: the context that the memory or stream belongs to; HIP: 0 */
};

struct gpu_before { /* what was current, as leave() needs it */
	bool pushed;
	int32_t device;
	int32_t capture_mode;
};

struct gpu_pointer {
	struct gpu_place place;
	uint32_t kind; /* GPU_MEM_* */
	uint64_t base, nbytes; /* of the allocation that it lies in */
	uint64_t buffer_id; /* another one for each allocation, also at the same address */
};

/* A 32-bit word that streams wait for and write, alone in its cache line. */
struct gpu_word {
	uint32_t *host;
	uint64_t dev;
};

struct gpu_memop {
	bool wait; /* until the word is >= val; else write. CUDA compares cyclically, HIP does not: no wrap around 2^32 */
	bool flush; /* of a wait: what a peer wrote before the word is visible after it; where GPU_CAN_FLUSH only */
	uint64_t addr; /* device address of the word */
	uint32_t val;
};

struct gpu_rt {
	uint32_t vendor;
	const char *name;
	/* Make the place's context (HIP: device) current for the calls below, then put back what was. Context 0 is the
	 * device's primary one if it is active; none is ever made. Between them the thread may also allocate and query
	 * while streams are captured (relaxed mode). */
	int (*enter)(const struct gpu_place *p, struct gpu_before *b);
	void (*leave)(const struct gpu_place *p, const struct gpu_before *b);
	/* Between host and device, in the stream's order; @host is pinned, or small. */
	int (*copy_in)(uint64_t dst, const void *host, size_t nbytes, uint64_t stream);
	int (*copy_out)(void *host, uint64_t src, size_t nbytes, uint64_t stream);
	int (*stream_new)(uint64_t *ret); /* non-blocking */
	int (*stream_free)(uint64_t stream);
	int (*stream_place)(uint64_t stream,
			    struct gpu_place *ret); /* of a default stream: what is current */
	/* What no other stream of the process has, though it may get the handle of one that was destroyed. 0: not told. */
	int (*stream_id)(uint64_t stream, uint64_t *ret);
	int (*stream_alone)(uint64_t stream, bool *ret); /* non-blocking: no default stream orders it */
	int (*stream_query)(uint64_t stream);
	int (*stream_sync)(uint64_t stream);
	int (*stream_capturing)(uint64_t stream, bool *ret);
	int (*stream_wait_event)(uint64_t stream, uint64_t event);
	int (*event_new)(uint64_t *ret); /* without timing */
	int (*event_free)(uint64_t event);
	int (*event_record)(uint64_t event, uint64_t stream);
	int (*event_query)(uint64_t event);
	int (*host_alloc)(size_t nbytes, void **ret, uint64_t *ret_dev); /* pinned, mapped, portable */
	int (*host_free)(void *host);
	/* CUDA: one mapped pinned allocation; HIP: a cell of signal memory each. Zero. Freed as they were allocated. */
	int (*words_alloc)(uint32_t n, struct gpu_word *ret);
	int (*words_free)(uint32_t n, const struct gpu_word *words);
	int (*memops)(uint64_t stream, const struct gpu_memop *ops,
		      uint32_t n); /* one call, if there is a batch form */
	int (*host_func)(uint64_t stream, void (*fn)(void *arg), void *arg);
	int (*pointer)(uint64_t addr,
		       struct gpu_pointer *ret); /* 0 and GPU_MEM_NONE: the runtime does not know it */
	int (*export_range)(uint64_t addr, uint64_t nbytes, uint64_t flags, int *ret_fd); /* a dma-buf */
	int (*alloc)(uint64_t nbytes, uint64_t *ret);
	int (*free)(uint64_t addr);
	int (*flush_remote_writes)(
		void); /* what the SSD wrote is visible after it; where GPU_HAS_FLUSH only */
	/* The device's primary context: 0 where it is not active, unless @make, which keeps it for good. */
	int (*device_place)(int32_t device, bool make, struct gpu_place *ret);
	int (*caps)(int32_t device, uint32_t *ret); /* GPU_CAN_* */
	const char *(*error_name)(int code); /* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL */
	bool (*sticky)(int code); /* the context is lost: nothing in it will work again */
};

const struct gpu_rt *gpu_find(uint32_t vendor); /* NULL: not loaded */
int gpu_errno(const struct gpu_rt *rt, int code); /* negative: -ENOMEM, -ENODEV, -EINVAL, -EOPNOTSUPP, -EIO */

/* The entry points of a runtime, in the order that gpu_load() wants their addresses in; NULL: no more. */
struct gpu_symbol {
	const char *name;
	uint32_t version; /* as cuGetProcAddress wants it */
	bool optional;
};

const struct gpu_symbol *gpu_symbol(uint32_t vendor, uint32_t i);
/* @addrs: 0 where it is not there. -ENOSYS: a needed one is missing, named in *@ret_missing. Again is no error. */
int gpu_load(uint32_t vendor, const uint64_t *addrs, uint32_t n, const char **ret_missing);

#endif
