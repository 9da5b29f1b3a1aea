/* SPDX-License-Identifier: MIT */
/* The tables over CUDA and HIP, on the software GPU. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "soft_gpu.h"
#include "support/util.h"
#include "tap.h"

#define PAGE 65536ull

static struct gpu_place place(const struct soft *s, int device)
{
	struct gpu_place p;

	s->rt->device_place(device, true, &p);
	return p;
}

static int drained(const struct soft *s, uint64_t stream, int64_t ns)
{
	int64_t end = now_ns() + ns;
	int code;

	while ((code = s->rt->stream_query(stream)) == GPU_NOT_READY && now_ns() < end)
		usleep(200);
	return code;
}

static void current(const struct soft *s)
{
	struct gpu_place p = { s->vendor, 1, 0 };
	struct gpu_before b, c;
	uint64_t made = s->contexts(1), stream;
	struct gpu_place at;

	if (s->vendor == GPU_CUDA) {
		ok(s->rt->enter(&p, &b) == 201, "%s: no context is made to enter one", s->rt->name);
		ok(s->contexts(1) == made, "%s: none is there now", s->rt->name);
	}
	p = place(s, 1);
	ok(!s->rt->enter(&p, &b), "%s: a device is entered", s->rt->name);
	ok(!s->rt->stream_new(&stream) && !s->rt->stream_place(stream, &at) && at.device == 1 &&
		   at.ctx == p.ctx,
	   "%s: a stream lies where it was made", s->rt->name);
	ok(!s->rt->enter(&p, &c), "%s: it is entered again inside", s->rt->name);
	s->rt->leave(&p, &c);
	s->rt->stream_free(stream);
	s->rt->leave(&p, &b);
	/* CUDA has no current context then, HIP device 0. */
	ok(s->vendor == GPU_CUDA ? s->rt->stream_place(0, &at) == 201
				 : !s->rt->stream_place(0, &at) && !at.device,
	   "%s: what was current before is again", s->rt->name);
}

static void gate(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_word words[3];
	struct gpu_before b;
	uint64_t stream, mem, dev;
	void *host;

	s->rt->enter(&p, &b);
	ok(!s->rt->words_alloc(3, words) && !*words[0].host, "%s: words are there, and zero", s->rt->name);
	ok(!s->rt->host_alloc(PAGE, &host, &dev) && !s->rt->alloc(PAGE, &mem) && !s->rt->stream_new(&stream),
	   "%s: memory and a stream are there", s->rt->name);
	memset(host, 0, PAGE);

	struct gpu_memop ops[] = { { .addr = words[0].dev, .val = 1 },
				   { .wait = true, .addr = words[1].dev, .val = 1 } };
	struct gpu_memop passed = { .addr = words[2].dev, .val = 7 };

	ok(!s->rt->memops(stream, ops, 2) && !s->rt->copy_in(mem, host, PAGE, stream) &&
		   !s->rt->memops(stream, &passed, 1),
	   "%s: go, wait, copy, passed", s->rt->name);
	for (int i = 0; i < 5000 && !__atomic_load_n(words[0].host, __ATOMIC_ACQUIRE); i++)
		usleep(200);
	ok(*words[0].host == 1 && drained(s, stream, 20000000) == GPU_NOT_READY, "%s: the stream waits",
	   s->rt->name);
	memset(host, 0x5a, PAGE); /* the copy is behind the wait */
	__atomic_store_n(words[1].host, 1, __ATOMIC_RELEASE);
	ok(!drained(s, stream, NSEC_PER_SEC * 5) && *words[2].host == 7, "%s: it passes", s->rt->name);
	memset(host, 0, PAGE);
	ok(!s->rt->copy_out(host, mem + 1, 3, stream) && !s->rt->stream_sync(stream) &&
		   !memcmp(host, "\x5a\x5a\x5a", 4),
	   "%s: what was written meanwhile has moved", s->rt->name);

	struct gpu_memop many[300];

	for (uint32_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (struct gpu_memop){ .addr = words[0].dev, .val = i };
	ok(!s->rt->memops(stream, many, ARRAY_SIZE(many)) && !s->rt->stream_sync(stream) &&
		   *words[0].host == 299,
	   "%s: more words than a call takes", s->rt->name);
	s->rt->stream_free(stream);
	ok(!s->rt->words_free(3, words) && !s->rt->host_free(host) && !s->rt->free(mem),
	   "%s: all of it is given back", s->rt->name);
	s->rt->leave(&p, &b);
	ok(!s->allocations(~0u), "%s: nothing is left", s->rt->name);
}

static void order(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_before b;
	uint64_t first, second, event;
	bool capturing = true;

	s->rt->enter(&p, &b);
	s->rt->stream_new(&first);
	s->rt->stream_new(&second);
	ok(!s->rt->event_new(&event) && !s->rt->event_query(event),
	   "%s: an event that was never recorded is reached", s->rt->name);
	s->kernel(first, 0);
	ok(!s->rt->event_record(event, first) && !s->rt->stream_wait_event(second, event),
	   "%s: a stream waits for an event", s->rt->name);
	ok(s->rt->event_query(event) == GPU_NOT_READY && drained(s, second, 20000000) == GPU_NOT_READY,
	   "%s: neither goes on", s->rt->name);
	s->end_kernels(1);
	ok(!s->rt->stream_sync(second) && !s->rt->event_query(event), "%s: both go on", s->rt->name);
	ok(!s->rt->stream_capturing(first, &capturing) && !capturing, "%s: nothing is captured", s->rt->name);
	s->rt->event_free(event);
	s->rt->stream_free(first);
	s->rt->stream_free(second);
	s->rt->leave(&p, &b);
}

static void count(void *arg) { __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELEASE); }

static void host_function(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_before b;
	uint64_t stream;
	int n = 0;

	s->rt->enter(&p, &b);
	s->rt->stream_new(&stream);
	ok(!s->rt->host_func(stream, count, &n) && !s->rt->stream_sync(stream) && n == 1,
	   "%s: a host function runs in the stream's order", s->rt->name);
	s->rt->stream_free(stream);
	s->rt->leave(&p, &b);
}

static void capture(const struct soft *s)
{
	int (*begin)(uintptr_t, int), (*end)(uintptr_t, uintptr_t *), (*destroy)(uintptr_t);
	bool cuda = s->vendor == GPU_CUDA, capturing = false;
	struct gpu_place p = place(s, 0);
	struct gpu_before b, c;
	uint64_t stream, event, mem;
	uintptr_t graph;

	*(void **)&begin = soft_symbol(s->lib, cuda ? "cuStreamBeginCapture_v2" : "hipStreamBeginCapture");
	*(void **)&end = soft_symbol(s->lib, cuda ? "cuStreamEndCapture" : "hipStreamEndCapture");
	*(void **)&destroy = soft_symbol(s->lib, cuda ? "cuGraphDestroy" : "hipGraphDestroy");
	s->rt->enter(&p, &b);
	s->rt->stream_new(&stream);
	s->rt->event_new(&event);
	s->rt->leave(&p, &b);
	begin(stream, 0); /* in global mode: other threads, and this one, could break it */
	s->rt->enter(&p, &c);
	ok(!s->rt->stream_capturing(stream, &capturing) && capturing, "%s: a capture is seen", s->rt->name);
	ok(!s->rt->event_query(event) && !s->rt->alloc(PAGE, &mem), "%s: calls that might wait are made",
	   s->rt->name);
	s->rt->leave(&p, &c);
	ok(!end(stream, &graph) && !destroy(graph), "%s: they have not broken it", s->rt->name);
	s->rt->enter(&p, &b);
	s->rt->free(mem);
	s->rt->event_free(event);
	s->rt->stream_free(stream);
	s->rt->leave(&p, &b);
}

static void pointers(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_pointer at, again;
	struct gpu_before b;
	uint64_t mem, dev;
	void *host;
	int fd = -1;

	s->rt->enter(&p, &b);
	s->rt->alloc(2 << 20, &mem);
	s->rt->host_alloc(PAGE, &host, &dev);
	s->rt->leave(&p, &b);
	ok(!s->rt->pointer(mem + 5, &at) && at.base == mem && at.nbytes == 2 << 20 &&
		   at.kind == GPU_MEM_DEVICE && at.place.device == 0 && at.place.ctx == p.ctx && at.buffer_id,
	   "%s: an address in device memory", s->rt->name);
	ok(!s->rt->pointer((uintptr_t)host + 5, &again) && again.kind == GPU_MEM_HOST &&
		   again.base == (uintptr_t)host && again.buffer_id != at.buffer_id,
	   "%s: one in pinned memory", s->rt->name);
	ok(!s->rt->pointer((uintptr_t)&fd, &again) && again.kind == GPU_MEM_NONE,
	   "%s: one that it does not know", s->rt->name);
	s->rt->enter(&p, &b);
	ok(s->rt->export_range(mem + 512, 1000, 0, &fd) && !s->rt->export_range(mem, 2 << 20, 0, &fd) &&
		   fd >= 0,
	   "%s: whole pages are exported", s->rt->name);
	close(fd);
	s->rt->free(mem);
	s->rt->host_free(host);
	s->rt->leave(&p, &b);
}

static void pooled(const struct soft *s)
{
	int (*alloc)(uint64_t *, size_t, uintptr_t), (*release)(uint64_t, uintptr_t);
	bool cuda = s->vendor == GPU_CUDA;
	struct gpu_place p = place(s, 0);
	struct gpu_pointer at;
	struct gpu_before b;
	uint64_t mem;

	*(void **)&alloc = soft_symbol(s->lib, cuda ? "cuMemAllocAsync" : "hipMallocAsync");
	*(void **)&release = soft_symbol(s->lib, cuda ? "cuMemFreeAsync" : "hipFreeAsync");
	s->rt->enter(&p, &b);
	alloc(&mem, PAGE, 0);
	s->rt->leave(&p, &b);
	ok(!s->rt->pointer(mem, &at) && at.base == mem && at.nbytes == PAGE && at.place.ctx == p.ctx,
	   "%s: memory of a pool is of the primary context that is active", s->rt->name);
	s->rt->enter(&p, &b);
	release(mem, 0);
	s->rt->stream_sync(0);
	s->rt->leave(&p, &b);
}

static void errors(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_before b;
	uint64_t mem, stream;
	int code;

	s->rt->enter(&p, &b);
	code = s->rt->alloc(1ull << 40, &mem);
	ok(gpu_errno(s->rt, code) == -12 && !s->rt->sticky(code) && *s->rt->error_name(code),
	   "%s: %s is ENOMEM", s->rt->name, s->rt->error_name(code));
	ok(*s->rt->error_name(123456), "%s: a code that has no name: %s", s->rt->name,
	   s->rt->error_name(123456));
	s->rt->stream_new(&stream);
	s->kernel(stream, 0);
	s->lose(0, 719);
	code = s->rt->stream_sync(stream);
	ok(code == 719 && s->rt->sticky(code) && gpu_errno(s->rt, code) == -5, "%s: a lost device",
	   s->rt->name);
	s->rt->leave(&p, &b);
}

static void hip_words(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_before b;
	uint64_t stream, dev;
	void *host;

	s->rt->enter(&p, &b);
	s->rt->stream_new(&stream);
	s->rt->host_alloc(PAGE, &host, &dev);
	ok(s->rt->memops(stream, &(struct gpu_memop){ .wait = true, .addr = dev }, 1) == 1 && !s->in_flight(),
	   "HIP: a wait on ordinary memory is refused");
	s->rt->stream_free(stream);
	s->rt->host_free(host);
	s->rt->leave(&p, &b);
}

/* What a peer wrote is made visible: by a call, or with a wait. */
static void flush(const struct soft *s)
{
	struct gpu_place p = place(s, 0);
	struct gpu_word word;
	struct gpu_before b;
	uint64_t stream;
	uint32_t caps;

	s->missing(8); /* writes that are not ordered */
	s->rt->enter(&p, &b);
	s->rt->stream_new(&stream);
	s->rt->words_alloc(1, &word);
	ok(!s->rt->caps(0, &caps) && caps & GPU_NEEDS_FLUSH && caps & GPU_HAS_FLUSH, "%s: a flush is needed",
	   s->rt->name);
	ok(!s->rt->flush_remote_writes(), "%s: a call flushes", s->rt->name);
	if (s->vendor == GPU_CUDA) {
		struct gpu_memop wait = { .wait = true, .flush = true, .addr = word.dev };

		ok(s->calls("cuFlushGPUDirectRDMAWrites") == 1, "CUDA: that of the driver");
		ok(caps & GPU_CAN_FLUSH && !s->rt->memops(stream, &wait, 1) && !s->rt->stream_sync(stream),
		   "CUDA: a wait flushes");
		s->missing(4);
		ok(s->rt->memops(stream, &wait, 1) == 801, "CUDA: where it can");
	} else {
		uint32_t *(*hdp)(int);

		*(void **)&hdp = soft_symbol(s->lib, "soft_gpu_hdp_flush");
		ok(*hdp(0) == 1 && !*hdp(1), "HIP: the register of the device is written");
	}
	s->missing(0);
	ok(!s->rt->caps(0, &caps) && !(caps & GPU_NEEDS_FLUSH), "%s: none is needed else", s->rt->name);
	s->rt->words_free(1, &word);
	s->rt->stream_free(stream);
	s->rt->leave(&p, &b);
}

int main(void)
{
	uint64_t none[128] = { 0 };
	const char *missing = "";

	ok(!gpu_find(GPU_CUDA) && !gpu_find(0) && !gpu_find(99) && !gpu_symbol(99, 0), "nothing is loaded");
	ok(gpu_load(99, none, 1, &missing) == -22 && gpu_load(GPU_CUDA, none, 1, &missing) == -22,
	   "no such vendor, too few addresses");
	for (uint32_t vendor = GPU_CUDA; vendor < GPU_VENDORS; vendor++) {
		uint32_t n = 0;

		while (gpu_symbol(vendor, n))
			n++;
		int rc = gpu_load(vendor, none, n, &missing);

		ok(rc == -38 && *missing && !gpu_find(vendor), "%s is missing", missing);

		struct soft s = soft_open(vendor);

		current(&s);
		gate(&s);
		order(&s);
		host_function(&s);
		capture(&s);
		pointers(&s);
		pooled(&s);
		flush(&s);
		if (vendor == GPU_HIP)
			hip_words(&s);
		errors(&s);
		s.reset();
	}
	return done_testing();
}
