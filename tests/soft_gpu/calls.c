/* SPDX-License-Identifier: MIT */
/* Every call is counted under its name, and can be made to fail. */
#include <stdlib.h>
#include <string.h>

#include "soft.h"

pthread_mutex_t soft_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t soft_progress = PTHREAD_COND_INITIALIZER;

struct fault {
	struct fault *next;
	char name[64]; /* of a function; "" for an operation of @kind */
	uint32_t kind;
	uint32_t skip, count;
	int code;
	bool sticky;
	uint64_t hits;
};

/* Of a function that has versions, any. */
static bool named(const char *function, const char *wanted)
{
	size_t n = strlen(wanted);

	return !n || (!strncmp(function, wanted, n) && (!function[n] || !strncmp(function + n, "_v", 2)));
}

static struct fault *faults;
static struct soft_call *calls;

static bool strikes(struct fault *f)
{
	if (f->skip) {
		f->skip--;
		return false;
	}
	if (f->count && f->hits >= f->count)
		return false;
	f->hits++;
	return true;
}

static void make_sticky(int code)
{
	struct soft_ctx *c;

	if (!soft_current(&c))
		soft_lose(c->device, code);
}

int soft_call(struct soft_call *site)
{
	SOFT_LOCK();

	if (!site->listed) {
		site->listed = true;
		site->next = calls;
		calls = site;
	}
	site->count++;
	for (struct fault *f = faults; f; f = f->next)
		if (*f->name && named(site->name, f->name) && strikes(f)) {
			if (f->sticky)
				make_sticky(f->code);
			return f->code;
		}
	/* A host function may call nothing of the runtime. */
	return soft_thread()->in_host_func ? SOFT_NOT_PERMITTED : 0;
}

int soft_op_fault(uint32_t kind)
{
	for (struct fault *f = faults; f; f = f->next)
		if (!*f->name && f->kind == kind && strikes(f))
			return f->code;
	return 0;
}

void soft_fault_clear(void)
{
	while (faults) {
		struct fault *f = faults;

		faults = f->next;
		free(f);
	}
}

static void add(struct fault f)
{
	struct fault *copy = malloc(sizeof(f)), **end = &faults;

	*copy = f;
	while (*end)
		end = &(*end)->next;
	*end = copy;
}

/* After @skip calls of the function, @count (0: all) answer @code; @sticky: so does all that follows. */
SOFT_EXPORT void soft_gpu_fail(const char *function, uint32_t skip, uint32_t count, int code, int sticky)
{
	SOFT_LOCK();
	struct fault f = { .skip = skip, .count = count, .code = code, .sticky = sticky };

	strncpy(f.name, function, sizeof(f.name) - 1);
	add(f);
}

/* The same for operations as they are executed; their failure is sticky. */
SOFT_EXPORT void soft_gpu_fail_operation(uint32_t kind, uint32_t skip, int code)
{
	SOFT_LOCK();

	add((struct fault){ .kind = kind, .skip = skip, .count = 1, .code = code });
}

SOFT_EXPORT uint64_t soft_gpu_calls(const char *function)
{
	SOFT_LOCK();
	uint64_t sum = 0;

	for (struct soft_call *c = calls; c; c = c->next)
		if (named(c->name, function))
			sum += c->count;
	return sum;
}

SOFT_EXPORT void soft_gpu_calls_clear(void)
{
	SOFT_LOCK();

	for (struct soft_call *c = calls; c; c = c->next)
		c->count = 0;
}
