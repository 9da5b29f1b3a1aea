/* SPDX-License-Identifier: MIT */
/*
 * Static user-space probes (USDT) in the notes that bpftrace, perf and SystemTap read: a no-operation each, and where its
 * arguments are then. What it takes of <sys/sdt.h>, which not every machine has.
 */
#ifndef SUPPORT_PROBE_H
#define SUPPORT_PROBE_H

/*
 * @args: for each a size in bytes and its place, "2@%0". In memory, "m", it costs nothing to have; a value that is in a
 * register anyway is "r".
 */
#define PROBE(name, args, ...)                                                                   \
	__asm__ volatile("990: nop\n"                                                            \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"                           \
			 ".balign 4\n"                                                           \
			 ".4byte 992f-991f, 994f-993f, 3\n"                                      \
			 "991: .asciz \"stapsdt\"\n"                                             \
			 "992: .balign 4\n"                                                      \
			 "993: .8byte 990b\n"                                                    \
			 ".8byte _.stapsdt.base\n"                                               \
			 ".8byte 0\n"                                                            \
			 ".asciz \"aiougds\"\n"                                                  \
			 ".asciz \"" name "\"\n"                                                 \
			 ".asciz \"" args "\"\n"                                                 \
			 "994: .balign 4\n"                                                      \
			 ".popsection\n"                                                         \
			 ".ifndef _.stapsdt.base\n"                                              \
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
			 ".weak _.stapsdt.base\n"                                                \
			 ".hidden _.stapsdt.base\n"                                              \
			 "_.stapsdt.base: .space 1\n"                                            \
			 ".size _.stapsdt.base, 1\n"                                             \
			 ".popsection\n"                                                         \
			 ".endif\n" ::__VA_ARGS__)

/* Not every reader of notes knows indexed addresses: @p is to be a register by itself. */
#define PROBE_BASE(p) __asm__("" : "+r"(p))

#endif
