/* SPDX-License-Identifier: MIT */
/* A fuzzer's bytes, taken from the front; what is past the end reads as zero. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/util.h"

struct input {
	const uint8_t *p;
	size_t left;
};

static inline void input_take(struct input *in, void *dst, size_t n)
{
	size_t k = n < in->left ? n : in->left;

	memset(dst, 0, n);
	if (k)
		memcpy(dst, in->p, k);
	in->p += k;
	in->left -= k;
}

static inline uint8_t input_u8(struct input *in)
{
	uint8_t v;

	input_take(in, &v, sizeof(v));
	return v;
}

static inline uint16_t input_u16(struct input *in)
{
	uint16_t v;

	input_take(in, &v, sizeof(v));
	return v;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t v;

	input_take(in, &v, sizeof(v));
	return v;
}

static inline uint64_t input_u64(struct input *in)
{
	uint64_t v;

	input_take(in, &v, sizeof(v));
	return v;
}

/* A finding: the fuzzer keeps the input, a replay fails. */
#define MUST(cond)                                                                 \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                   \
		}                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
