/* SPDX-License-Identifier: MIT */
/*
 * A batch's owner is told once as many items have ended as it asked for, and its handle is never on the list twice.
 *
 * lane()  nvme_batch_item_ended() (nvme/end.h), on the executor's thread: the item into the ring, fence, the mark
 * owner() nvme_batch_notify(), nvme_batch_next() (nvme/batch.c), nvme_chan_collected() (nvme/chan.c). Putting the handle
 *         on the list and waking the owner is one step here: wake.pml is about that. It asks again after every notice:
 *         one for a question that it gave up may have used up the mark of the question after it
 *
 * breaks: BUG_NO_LANE_FENCE BUG_NO_NOTIFY_FENCE BUG_NO_TOLD
 */
#include "tso.pmi"

#define ITEMS 4
#define TAIL 0
#define NOTIFY 1
#define AT 2
#define TOLD 3

byte mem[4];
BUFFER(lane_buf);
BUFFER(owner_buf);
bool listed; /* the handle is on the channel's list, and its eventfd is readable */

active proctype memory()
{
	byte var, val;

end:	do
	:: atomic { lane_buf ? var, val -> mem[var] = val }
	:: atomic { owner_buf ? var, val -> mem[var] = val }
	od
}

/* An exchange waits for the stores before it, and is one step. */
inline exchange(buf, var, val, old)
{
	atomic { FENCE(buf); old = mem[var]; mem[var] = val }
}

active proctype lane()
{
	byte n = 0;
	bool notify, told;

	do
	:: n < ITEMS ->
		n++;
		STORE(lane_buf, TAIL, n);
#ifndef BUG_NO_LANE_FENCE
		FENCE(lane_buf);
#endif
		if
		:: mem[NOTIFY] ->
			if
			:: n >= mem[AT] ->
				exchange(lane_buf, NOTIFY, 0, notify);
				told = 0;
				if
				:: notify -> exchange(lane_buf, TOLD, 1, told)
				:: else
				fi;
#ifdef BUG_NO_TOLD
				told = 0;
#endif
				if
				:: notify && !told -> atomic { assert(!listed); listed = true }
				:: else
				fi
			:: else
			fi
		:: else
		fi
	:: n == ITEMS -> break
	od
}

inline harvest()
{
	head = mem[TAIL]
}

active proctype owner()
{
	byte head = 0, at;
	bool old;

	do
	:: head == ITEMS -> break
	:: else ->
		/* any number of those to come */
		at = head + 1;
		do
		:: at < ITEMS -> at++
		:: break
		od;
		if
		:: mem[TAIL] >= at -> harvest()
		:: else ->
			STORE(owner_buf, AT, at);
			STORE(owner_buf, NOTIFY, 1);
#ifndef BUG_NO_NOTIFY_FENCE
			FENCE(owner_buf); /* a sequentially consistent store */
#endif
			old = false;
			if
			:: mem[TAIL] >= at -> exchange(owner_buf, NOTIFY, 0, old)
			:: else
			fi;
			if
			:: old -> harvest()
			:: else ->
				if
				:: true -> /* asleep until told */
					listed;
					listed = false;
					STORE(owner_buf, TOLD, 0);
					FENCE(owner_buf);
					harvest()
				:: true -> harvest() /* it gives up, takes what there is, and asks again */
				fi
			fi
		fi
	od
}
