/* SPDX-License-Identifier: MIT */
/*
 * The software GPU: what its two faces, CUDA's driver API and HIP's runtime API, have in common. Codes are the numbers
 * that both vendors use. Everything is under one lock, soft_lock, unless it says otherwise.
 */
#ifndef SOFT_H
#define SOFT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_EXPORT __attribute__((visibility("default")))
#define SOFT_DEVICES 4 /* at most; soft_gpu_devices() says how many are there */
#define SOFT_CONNECTIONS 32 /* at most */
#define SOFT_DEPTH 16 /* of a thread's stack of contexts */

enum {
	SOFT_OK = 0,
	SOFT_INVALID_VALUE = 1,
	SOFT_OUT_OF_MEMORY = 2,
	SOFT_NOT_INITIALIZED = 3,
	SOFT_NO_DEVICE = 100,
	SOFT_INVALID_DEVICE = 101,
	SOFT_INVALID_CONTEXT = 201,
	SOFT_INVALID_HANDLE = 400,
	SOFT_NOT_FOUND = 500,
	SOFT_NOT_READY = 600,
	SOFT_ILLEGAL_ADDRESS = 700,
	SOFT_CONTEXT_DESTROYED = 709,
	SOFT_ALREADY_REGISTERED = 712,
	SOFT_NOT_REGISTERED = 713,
	SOFT_NOT_PERMITTED = 800,
	SOFT_NOT_SUPPORTED = 801,
	SOFT_CAPTURE_UNSUPPORTED = 900,
	SOFT_CAPTURE_INVALIDATED = 901,
	SOFT_CAPTURE_UNMATCHED = 903,
	SOFT_CAPTURE_IMPLICIT = 906,
	SOFT_CAPTURED_EVENT = 907,
};

extern pthread_mutex_t soft_lock;
extern pthread_cond_t soft_progress; /* an operation ended, or what was held is let go */

/* ---- the vendor that this library is ---- */

struct soft_vendor {
	const char *name;
	const char *connections_env;
	bool signal_words; /* a stream waits for signal memory only */
	bool cyclic_waits;
	uint32_t alignment; /* of small allocations */
	const char *(*error_name)(int code);
};

extern const struct soft_vendor soft_vendor;

/* ---- calls: counted, and made to fail (calls.c) ---- */

struct soft_call {
	const char *name;
	uint64_t count;
	struct soft_call *next;
	bool listed;
};

/* 0, or what the call answers instead of doing anything. Without the lock. */
int soft_call(struct soft_call *site);

#define SOFT_CALL()                                                  \
	do {                                                         \
		static struct soft_call site = { .name = __func__ }; \
		int code_ = soft_call(&site);                        \
		if (code_)                                           \
			return soft_answer(code_);                   \
	} while (0)

int soft_answer(int code); /* HIP keeps a thread's last error */
void soft_fault_clear(void);
/* What the operation that is executed answers instead: 0 or a code, which is then sticky. */
int soft_op_fault(uint32_t kind);

/* ---- threads, devices and contexts (device.c) ---- */

struct soft_stream;

struct soft_ctx {
	struct soft_ctx *next;
	int device;
	bool primary, active, destroyed;
	unsigned retains;
	int sticky; /* every call in it answers this from now on */
	struct soft_stream *legacy;
};

struct soft_thread {
	uint64_t generation;
	struct soft_ctx *stack[SOFT_DEPTH];
	int depth;
	int device; /* HIP's current one */
	int capture_mode;
	int last_error;
	bool in_host_func;
};

struct soft_thread *soft_thread(void);
extern uint64_t soft_generation; /* counts resets: what threads remember of before is void */
extern int soft_nr_devices;
extern bool soft_initialized;

int soft_init(void);
bool soft_device_exists(int device);
struct soft_ctx *soft_primary(int device);
struct soft_ctx *soft_primary_activate(int device);
struct soft_ctx *soft_ctx_find(uintptr_t handle); /* NULL: none, or destroyed */
struct soft_ctx *soft_ctx_new(int device);
/* A context ends: what is in flight in it is cut short, its memory, streams and events are gone. Without the lock. */
void soft_ctx_end(struct soft_ctx *c);
uint64_t soft_contexts_made(int device);
/* The calling thread's: CUDA the top of its stack, HIP its device's primary one. */
int soft_current(struct soft_ctx **ret);
void soft_lose(int device, int code);
void soft_devices_reset(void);

/* ---- memory (memory.c, vmm.c, export.c) ---- */

enum soft_kind {
	SOFT_DEVICE,
	SOFT_POOLED, /* cuMemAllocAsync: of no context */
	SOFT_MAPPED, /* cuMemMap: of no context */
	SOFT_MANAGED,
	SOFT_HOST,
	SOFT_REGISTERED, /* host memory of others */
	SOFT_SIGNAL,
};

struct soft_block { /* what has a memfd */
	struct soft_block *next; /* by address */
	int device;
	int fd;
	uint64_t base;
	size_t nbytes;
	char *shadow; /* where the "GPU" reaches it; the address itself is not accessible to the CPU */
	unsigned users;
	bool shared; /* by small allocations */
	bool fixed; /* the shadow lies in addresses that somebody else keeps */
};

struct soft_alloc {
	struct soft_alloc *next;
	enum soft_kind kind;
	int device;
	struct soft_ctx *ctx; /* NULL: of none */
	uint64_t addr;
	size_t nbytes;
	uint64_t id, block_id;
	struct soft_block *block; /* NULL: host memory */
	unsigned flags;
};

int soft_alloc(struct soft_ctx *ctx, int device, enum soft_kind kind, size_t nbytes, uint64_t *ret);
int soft_register(struct soft_ctx *ctx, void *host, size_t nbytes, unsigned flags);
int soft_free(uint64_t addr, unsigned kinds); /* bits of kinds that the call frees */
struct soft_alloc *soft_find(uint64_t addr);
/* Where the GPU reaches a range; NULL: not within one allocation. */
void *soft_reach(uint64_t addr, size_t nbytes);
bool soft_is_pinned(const void *host);
int soft_export(uint64_t addr, size_t nbytes, int *ret_fd);
uint64_t soft_memory_used(int device);
extern uint64_t soft_memory_total[SOFT_DEVICES];
extern uint64_t soft_next_id;
/* Room of a device's addresses: 0 if there is none. */
uint64_t soft_va_take(int device, size_t nbytes);
/* @managed: the CPU reaches it at its address too. */
struct soft_block *soft_block_new(int device, uint64_t base, size_t nbytes, bool managed);
/* @shadow: where; NULL: anywhere. The block owns @fd from here on. */
struct soft_block *soft_block_map(int device, uint64_t base, size_t nbytes, int fd, char *shadow);
void soft_block_free(struct soft_block *b);
struct soft_alloc *soft_alloc_add(struct soft_alloc a);
void soft_memory_of(struct soft_ctx *ctx); /* gone */
void soft_memory_reset(void);
void soft_vmm_reset(void);
bool soft_vmm_reserved(int device, uint64_t base, size_t nbytes, uint64_t *ret_end);
/* While a copy touches memory (read), and while what lies at an address changes (write). Taken before soft_lock. */
extern pthread_rwlock_t soft_memory;

/* ---- streams and events (stream.c, channel.c, event.c, capture.c) ---- */

struct soft_ticket { /* of an operation: is it over? */
	unsigned refs;
	bool done;
};

struct soft_ticket *soft_ticket_get(struct soft_ticket *t);
void soft_ticket_put(struct soft_ticket *t);
int soft_ticket_wait(struct soft_ticket *t, struct soft_ctx *ctx); /* lets go of the lock meanwhile */

enum soft_op_kind {
	SOFT_COPY,
	SOFT_WAIT,
	SOFT_WRITE,
	SOFT_HOST_FUNC,
	SOFT_RECORD,
	SOFT_JOIN, /* wait for tickets only */
	SOFT_FREE,
	SOFT_FILL,
	SOFT_KERNEL, /* runs until the test lets it end */
	SOFT_OPS,
};

struct soft_op {
	struct soft_op *next;
	enum soft_op_kind kind;
	struct soft_stream *stream;
	struct soft_ticket *ticket;
	struct soft_ticket **after; /* ends first */
	unsigned nr_after;
	uint64_t dst, src; /* of a copy: 0 where host memory is meant */
	void *host;
	bool owns_host;
	size_t nbytes;
	uint32_t value, flags, mask;
	void (*fn)(void *arg);
	void *arg;
};

struct soft_stream {
	struct soft_stream *next;
	uintptr_t handle; /* another's as soon as it is destroyed, though what was enqueued ends first */
	uint64_t id;
	struct soft_ctx *ctx;
	int device;
	bool blocking, legacy, destroyed;
	unsigned pending; /* operations in a channel */
	int channel; /* that it has while it has work */
	struct soft_ticket *last;
	int capture; /* 0, 1 active, 2 invalidated */
	int capture_mode;
	uint64_t capture_thread;
};

struct soft_event {
	struct soft_event *next;
	struct soft_ctx *ctx;
	struct soft_ticket *ticket; /* NULL: never recorded */
	bool captured;
};

int soft_stream_new(struct soft_ctx *ctx, bool blocking, struct soft_stream **ret);
int soft_stream_destroy(uintptr_t handle);
/* 0 and 1 are the legacy default stream of the current context, 2 the thread's own (here: the same). */
int soft_stream_find(uintptr_t handle, struct soft_stream **ret);
int soft_enqueue(struct soft_stream *s, struct soft_op op, struct soft_ticket **ret_ticket);
void soft_op_drop(struct soft_op *op);
int soft_stream_query(struct soft_stream *s);
int soft_stream_sync(struct soft_stream *s);
int soft_sync_device(int device, struct soft_ctx *ctx);
void soft_streams_of(struct soft_ctx *ctx); /* gone; returns when nothing is in flight in them */
void soft_streams_reset(void);

void soft_channel_push(struct soft_op *op);
void soft_channels_stop(void); /* every operation ends at once, unexecuted; returns when all have */
extern int soft_connections;

int soft_copy(struct soft_stream *s, uint64_t dst, uint64_t src, void *host, size_t nbytes, bool now);
int soft_wait_value(struct soft_stream *s, uint64_t addr, uint32_t value, uint32_t flags, uint32_t mask);
int soft_write_value(struct soft_stream *s, uint64_t addr, uint32_t value);

int soft_event_new(struct soft_ctx *ctx, struct soft_event **ret);
int soft_event_destroy(uintptr_t handle);
struct soft_event *soft_event_find(uintptr_t handle);
int soft_event_record(struct soft_event *e, struct soft_stream *s);
int soft_event_query(struct soft_event *e);
int soft_event_sync(struct soft_event *e);
int soft_stream_wait_event(struct soft_stream *s, struct soft_event *e);
void soft_events_of(struct soft_ctx *ctx); /* gone */
void soft_events_reset(void);

int soft_capture_begin(struct soft_stream *s, int mode);
int soft_capture_end(struct soft_stream *s);
/* What an operation on a stream, or a call that may not be made while anything is captured, answers. */
int soft_capture_enqueue(struct soft_stream *s, bool *ret_captured);
int soft_capture_sync(struct soft_stream *s);
int soft_capture_unsafe(void);
int soft_capture_status(struct soft_stream *s, int *ret);

/* ---- what a test has changed (control.c) ---- */

struct soft_counters {
	uint64_t copies, copied_bytes, synchronises, waits, writes, host_funcs, events_recorded, exports;
	uint64_t most_waiting; /* channels at once */
};

struct soft_controls {
	uint64_t copy_ns; /* a copy takes this long, */
	uint64_t copy_ns_per_mib; /* and this for each MiB */
	bool hold_copies;
	uint64_t ticks; /* held copies that may run */
	uint64_t kernels; /* kernels that may end */
	bool stopping;
	uint64_t pinned_limit;
	uint32_t missing; /* SOFT_NO_*: what device and driver lack */
};

enum {
	SOFT_NO_MEMOPS = 1,
	SOFT_NO_DMABUF = 2,
	SOFT_NO_FLUSH = 4,
	SOFT_UNORDERED_WRITES = 8,
	SOFT_NO_FLUSH_CALL = 16 /* of those who ask for functions from now on */
};

extern struct soft_counters soft_counters;
extern struct soft_controls soft_controls;

#define soft_locked __attribute__((cleanup(soft_unlock))) pthread_mutex_t *
static inline pthread_mutex_t *soft_do_lock(void)
{
	pthread_mutex_lock(&soft_lock);
	return &soft_lock;
}
static inline void soft_unlock(pthread_mutex_t **l) { pthread_mutex_unlock(*l); }
#define SOFT_LOCK() soft_locked lock_ __attribute__((unused)) = soft_do_lock()

#endif
