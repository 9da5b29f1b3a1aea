/* SPDX-License-Identifier: MIT */
/*
 * Operations handed to the executor are sent, whoever moves them onto its lane, and however it is about to sleep.
 *
 * poster()   nvme_exec_post() and nvme_wake() (nvme/exec.c, chan.c)
 * drainer()  nvme_exec_drain(): a channel that cancels or sets a deadline moves what was posted under the lane's lock
 * executor() turn(), sleep_armed(), exec_main() (nvme/exec.c); poll()'s time-out is left out: nothing may rest on it
 *
 * breaks: BUG_NO_EXEC_FENCE BUG_NO_POST_FENCE BUG_NO_MARK BUG_NO_DRAIN_FENCE BUG_MARK_LATE BUG_UNMARK_LATE
 */
#include "tso.pmi"

#define OPS 3
#define WORD 0
#define DRAINED 1

byte mem[2];
BUFFER(exec_buf);
BUFFER(post_buf);
BUFFER(drain_buf);
bool fd;
byte posted; /* the stack: a compare-and-swap, so never in a buffer alone */
byte late; /* ... but on a weaker machine it may become visible late: see poster() */
byte lane; /* pending on the lane */
byte sent;
bool lock;

active proctype memory()
{
	byte var, val;

end:	do
	:: atomic { exec_buf ? var, val -> mem[var] = val }
	:: atomic { drain_buf ? var, val -> mem[var] = val }
	:: atomic { late -> posted = posted + late; late = 0 }
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

active proctype poster()
{
	byte n = 0;
	bool signal;

	do
	:: n < OPS ->
		n++;
		late++;
#ifndef BUG_NO_POST_FENCE
		late == 0;
#endif
		wake(post_buf)
	:: n == OPS -> break
	od
}

inline take()
{
	some = posted > 0;
	lane = lane + posted;
	posted = 0
}

active proctype drainer()
{
	bool some, signal;
	byte turns = 0;

	do
	:: turns < 2 ->
		turns++;
		atomic { !lock -> lock = true };
		atomic { take() };
		lock = false;
		if
		:: some ->
#ifndef BUG_NO_MARK
#ifndef BUG_MARK_LATE
			STORE(drain_buf, DRAINED, 1);
#endif
#endif
#ifndef BUG_NO_DRAIN_FENCE
			FENCE(drain_buf);
#endif
			wake(drain_buf);
#ifdef BUG_MARK_LATE
			STORE(drain_buf, DRAINED, 1);
#endif
		:: else
		fi
	:: break
	od
}

active proctype executor()
{
	bool some;

	do
	:: sent == OPS -> break
	:: else ->
		/* turn() */
#ifndef BUG_UNMARK_LATE
		STORE(exec_buf, DRAINED, 0);
#endif
		atomic { !lock && empty(exec_buf) -> lock = true }; /* an exchange */
		atomic { take() };
		if
		:: lane -> some = true; sent = sent + lane; lane = 0
		:: else
		fi;
		lock = false;
#ifdef BUG_UNMARK_LATE
		STORE(exec_buf, DRAINED, 0);
#endif
		if
		:: some || sent == OPS
		:: else -> /* sleep_armed() */
			STORE(exec_buf, WORD, 1);
#ifndef BUG_NO_EXEC_FENCE
			FENCE(exec_buf);
#endif
			if
			:: !posted && !mem[DRAINED] -> fd
			:: posted || mem[DRAINED]
			fi;
			STORE(exec_buf, WORD, 0);
			fd = false
		fi
	od
}
