/* SPDX-License-Identifier: MIT */
/*
 * No completion is slept through. The owner of a channel sets its word, fences, reaps once more and sleeps; whoever
 * completes stores first, fences, and looks at the word.
 *
 * owner()  nvme_chan_reap(), arm_collect() (nvme/io.c), nvme_chan_arm_lane(), nvme_chan_tell(), nvme_chan_disarm()
 *          (nvme/chan.c, chan.h); sleep_until() (nvme/housekeeping.c) and sleep_armed() (nvme/exec.c) do the same
 * device() put_cqe() and emu_signal() (emu/cq.c), emu_irq_raise() and wants() (emu/irq.c)
 * poster() nvme_chan_post_ended() and nvme_wake() (nvme/chan.c): the executor or housekeeping hands an operation over
 *
 * breaks: BUG_NO_OWNER_FENCE BUG_NO_DEVICE_FENCE BUG_NO_POSTER_FENCE BUG_NO_LAST_LOOK BUG_NO_TELL
 */
#include "tso.pmi"

#define CQES 3
#define POSTS 2
#define WORD 0
#define CQ 1
#define ENDED 2

byte mem[3]; /* what everybody sees */
BUFFER(owner_buf);
BUFFER(device_buf);
BUFFER(poster_buf);
bool fd; /* the eventfd is readable */
byte seen; /* completions reaped */
byte taken; /* operations taken off the list */

/* Memory takes what was stored, in each thread's order. */
active proctype memory()
{
	byte var, val;

end:	do
	:: atomic { owner_buf ? var, val -> mem[var] = val }
	:: atomic { device_buf ? var, val -> mem[var] = val }
	:: atomic { poster_buf ? var, val -> mem[var] = val }
	od
}

inline wake(buf)
{
	if
	:: mem[WORD] ->
		atomic {
			FENCE(buf);
			if
			:: mem[WORD] -> mem[WORD] = 0; signal = true
			:: else -> signal = false
			fi
		}
		if
		:: signal -> fd = true
		:: else
		fi
	:: else
	fi
}

active proctype device()
{
	byte n = 0;
	bool signal;

	do
	:: n < CQES ->
		n++;
		STORE(device_buf, CQ, n);
		if
		:: n < CQES /* several completions share one interrupt */
		:: skip ->
#ifndef BUG_NO_DEVICE_FENCE
			FENCE(device_buf);
#endif
			wake(device_buf)
		fi
	:: n == CQES -> break
	od;
	/* the last one is always followed by an interrupt */
#ifndef BUG_NO_DEVICE_FENCE
	FENCE(device_buf);
#endif
	wake(device_buf)
}

active proctype poster()
{
	byte n = 0;
	bool signal;

	do
	:: n < POSTS ->
		n++;
		STORE(poster_buf, ENDED, n);
#ifndef BUG_NO_POSTER_FENCE
		FENCE(poster_buf);
#endif
		wake(poster_buf)
	:: n == POSTS -> break
	od
}

active proctype owner()
{
	bool word = false; /* its own view: what it stored last, unless others have taken it */
	bool busy;

	do
	:: seen == CQES && taken == POSTS -> break
	:: else ->
		fd = false;
		seen = mem[CQ];
		taken = mem[ENDED];
		if
		:: seen == CQES && taken == POSTS -> break
		:: else
		fi;
		/* a call that spins disarms, looks, and arms again */
		if
		:: empty(owner_buf) -> word = mem[WORD]
		:: len(owner_buf) > 0
		fi;
		if
		:: word -> STORE(owner_buf, WORD, 0); word = false; seen = mem[CQ]
		:: true
		fi;
		if
		:: !word ->
			STORE(owner_buf, WORD, 1);
			word = true;
#ifndef BUG_NO_OWNER_FENCE
			FENCE(owner_buf);
#endif
#ifndef BUG_NO_LAST_LOOK
			seen = mem[CQ];
#endif
		:: else
		fi;
#ifndef BUG_NO_TELL
		if
		:: mem[ENDED] > taken -> fd = true
		:: else
		fi;
#endif
		if
		:: fd /* asleep until it is readable */
		:: seen == CQES && taken == POSTS
		fi
	od
}
