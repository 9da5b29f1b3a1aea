/* SPDX-License-Identifier: MIT */
/*
 * The life of an operation among its owner, housekeeping, the device and a reset: its end is told once, its memory is let
 * go only when the device is done with it (its own completion, or a reset that has stopped the device), a completion of
 * an earlier use of a command identifier is nobody's, and in the end everything is free again.
 *
 * owner()        nvme_chan_rw(), nvme_chan_reap(), nvme_chan_cancel() (nvme/io.c), nvme_chan_collected() (nvme/chan.c)
 * reap           qpair_reap() (pcie/qpair.c), command_done() (nvme/lane.c), nvme_op_end(), nvme_op_end_rare() (nvme/end.c)
 * housekeeping() nvme_lane_tick(), nvme_lane_expire(), nvme_lane_fail(), nvme_lane_abandon() (nvme/lane_clock.c, lane.c),
 *                nvme_op_stray() (nvme/end.c); reset_fn(), forget_lane(), reconnect_lane() (nvme/recovery.c), forgotten()
 * device()       put_cqe() (emu/cq.c), and what a faulty one does: a completion twice, or never
 * lock           support/lock.h: the owner waits, housekeeping only tries but in a reset
 *
 * breaks: BUG_FREE_AT_TIMEOUT BUG_FREE_STRAY BUG_TELL_STRAY_AGAIN BUG_NO_GEN BUG_FORGET_RUNNING BUG_NO_SECOND_FORGET
 * breaks: BUG_NO_LOCK BUG_CANCEL_ENDS_SENT BUG_SILENT_UNLOCKED
 */

#define CMDS 2 /* of an operation */
#define USES 2 /* of its slot, one after another */
#define RESETS 2

mtype = { FREE, QUEUED, SENT, ENDED, STRAY };
mtype = { NONE, RUNNING, ANSWERED, NOWHERE }; /* a command, as the device has it */

bool lock;
mtype state = FREE;
byte unsent, inflight; /* commands */
mtype cmd[CMDS] = NONE;
byte gen[CMDS]; /* use count of the identifier */
bool tracked[CMDS]; /* the queue pair waits for it */
chan cq = [4] of { byte, byte }; /* command, use count */
bool on = true; /* the device runs: it may touch memory */
bool live = true; /* ctrl->state */
bool mem; /* the operation's reference on its memory */
bool unknown, silent, timed, cancelled;
byte listed; /* on its way to the owner */
byte told; /* of this use */
byte resets;
byte uses;

inline acquire()
{
#ifdef BUG_NO_LOCK
	skip
#else
	atomic { !lock -> lock = true }
#endif
}

inline release() { lock = false }

/* The device has nothing of ours in its hands. */
inline put_memory()
{
	assert(mem);
	assert(!on || (cmd[0] != RUNNING && cmd[1] != RUNNING));
	mem = false
}

inline hand_over()
{
	atomic { assert(!listed); listed++ }
}

inline end_op()
{
	assert(state != FREE && state != ENDED);
	timed = false;
#ifdef BUG_FREE_AT_TIMEOUT
	if
	:: mem -> put_memory()
	:: else
	fi;
#else
	put_memory();
#endif
	if
#ifdef BUG_TELL_STRAY_AGAIN
	:: true -> state = ENDED; hand_over()
#else
	:: state != STRAY || silent -> state = ENDED; hand_over()
	:: else -> state = ENDED
#endif
	fi
}

inline abandon()
{
	if
	:: state == QUEUED || state == SENT ->
		unsent = 0;
		state = SENT;
		if
		:: inflight == 0 -> end_op()
		:: else ->
			timed = false;
			state = STRAY;
			unknown = true;
#ifdef BUG_FREE_AT_TIMEOUT
			put_memory();
#endif
			hand_over()
		fi
	:: else
	fi
}

/* Entries into the submission queue; @to: where they go. */
inline pump()
{
	do
	:: unsent && state == QUEUED ->
		i = CMDS - unsent;
		gen[i]++;
		tracked[i] = true;
		if
		:: on -> cmd[i] = RUNNING
		:: else -> cmd[i] = NOWHERE /* the queue does not exist just now */
		fi;
		unsent--;
		inflight++;
		if
		:: unsent == 0 -> state = SENT
		:: true -> break /* the queue is full: the rest goes when something completes */
		fi
	:: else -> break
	od
}

inline reap()
{
	do
	:: len(cq) > 0 ->
		cq ? i, g;
		if
#ifdef BUG_NO_GEN
		:: tracked[i] ->
#else
		:: tracked[i] && gen[i] == g ->
#endif
			tracked[i] = false;
			if
			:: gen[i] == g -> cmd[i] = NONE
			:: else
			fi;
			inflight--;
			if
			:: inflight == 0 && unsent == 0 -> end_op()
			:: else
			fi
		:: else /* late, or twice: nobody's */
		fi
	:: empty(cq) -> break
	od;
	pump()
}

/* DMA has stopped: the completion ring is cleared, every command is over. */
inline forget()
{
	do
	:: len(cq) > 0 -> cq ? i, g
	:: empty(cq) -> break
	od;
	i = 0;
	do
	:: i < CMDS ->
		if
		:: tracked[i] ->
			tracked[i] = false;
			inflight--;
			if
			:: state == QUEUED -> state = SENT
			:: else
			fi;
			if
			:: state != STRAY -> unsent = 0; unknown = true
			:: else
			fi;
			if
			:: inflight == 0 -> end_op()
			:: else
			fi
		:: else
		fi;
		i++
	:: i == CMDS -> break
	od;
	if
	:: state == QUEUED -> unsent = 0; state = SENT; end_op() /* pending ones: nvme_lane_cancel() */
	:: else
	fi
}

active proctype device()
{
	byte i;
	bool twice = false;

end:	do
	:: atomic { on && cmd[0] == RUNNING && nfull(cq) -> cmd[0] = ANSWERED; cq ! 0, gen[0] }
	:: atomic { on && cmd[1] == RUNNING && nfull(cq) -> cmd[1] = ANSWERED; cq ! 1, gen[1] }
	/* once more, for a use that may be over */
	:: atomic { on && !twice && gen[0] && nfull(cq) && cmd[0] != RUNNING -> twice = true; cq ! 0, gen[0] }
	:: atomic { on && !twice && gen[0] > 1 && nfull(cq) -> twice = true; cq ! 0, gen[0] - 1 }
	od
}

active proctype housekeeping()
{
	byte i, g;

end:	do
	/* nvme_lane_tick(): a deadline is over, or the controller is not LIVE */
#ifdef BUG_NO_LOCK
	:: timed ->
#else
	:: atomic { !lock && (timed || !live) -> lock = true } ->
#endif
		if
		:: timed || !live -> timed = false; abandon()
		:: true
		fi;
		release()
	/* asked for, or because all else is stuck */
	:: resets < RESETS ->
		resets++;
		live = false;
#ifndef BUG_FORGET_RUNNING
		on = false;
#endif
		acquire();
		forget();
		release();
		/* reconnect: what an owner sent that still saw the controller live is forgotten first */
		acquire();
#ifndef BUG_NO_SECOND_FORGET
		forget();
#endif
		assert(inflight == 0); /* a pair is never rewound under a command */
		cmd[0] = NONE;
		cmd[1] = NONE;
		on = true;
		release();
		live = true
	:: timeout -> /* nothing else can happen: a device that never answers, and a reset that ends it */
		if
		:: inflight ->
			on = false;
			acquire();
			forget();
			cmd[0] = NONE;
			cmd[1] = NONE;
			on = true;
			release()
		:: else -> break /* all is free, or whoever waits waits for ever */
		fi
	od
}

active proctype owner()
{
	byte i, g;
	bool over, saw_live;

	do
	:: state == FREE && uses < USES ->
		saw_live = live;
		if
		:: saw_live ->
			uses++;
			told = 0;
			unknown = false;
			silent = false;
			cancelled = false;
			mem = true;
			acquire();
			unsent = CMDS;
			inflight = 0;
			state = QUEUED;
			pump();
			if
			:: timed = true
			:: skip
			fi;
			release()
		:: else -> live
		fi
	/* nvme_chan_reap() */
	:: state != FREE && len(cq) > 0 -> acquire(); reap(); release()
	/* nvme_chan_cancel() */
	:: (state == QUEUED || state == SENT) && !cancelled ->
		acquire();
		cancelled = true;
		if
		:: state == QUEUED || state == SENT ->
			unsent = 0;
			state = SENT;
			if
#ifdef BUG_CANCEL_ENDS_SENT
			:: true -> end_op()
#else
			:: inflight == 0 -> end_op()
			:: else -> timed = true /* the grace */
#endif
			fi
		:: else
		fi;
		release()
	/* taken off the list; nvme_chan_collected() */
	:: listed ->
		listed--;
		if
		:: !silent -> told++; assert(told == 1)
		:: else -> assert(told == 1)
		fi;
		over = true;
		if
		:: unknown && !silent ->
#ifdef BUG_FREE_STRAY
			skip
#else
#ifdef BUG_SILENT_UNLOCKED
			over = (state == ENDED);
			silent = !over
#else
			acquire();
			over = (state == ENDED);
			silent = !over;
			release()
#endif
#endif
		:: else
		fi;
		if
		:: over ->
			assert(!mem && listed == 0 && state == ENDED);
			state = FREE
		:: else
		fi
	:: state == FREE && uses == USES -> break
	od;
	assert(told == 1)
}
