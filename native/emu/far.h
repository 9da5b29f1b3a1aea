/* SPDX-License-Identifier: MIT */
/*
 * Commands on far memory: memory that no thread here can address. A command becomes a job, in a slot of its queue,
 * and its bytes go through a ring of staging memory, piece by piece: a read is read into a piece, which is then
 * copied out there; what is written or compared is copied into a piece first. No thread waits for a copy: whoever
 * looks next goes on with what is over, a device thread or a stepper. Of a long read each device thread that has nothing
 * else to do reads a piece.
 *
 * A job is counted in on its mapping from beginning to end, as an actor is on what it uses. Lock order: stage->lock
 * before wait_lock; none is held while copies are begun.
 */
#ifndef EMU_FAR_H
#define EMU_FAR_H

#include "emu/internal.h"

#define FAR_TRANSFER_ERROR NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_DATA_TRANSFER)
#define FAR_ABORTED NVME_STATUS(NVME_SCT_GENERIC, NVME_SC_ABORT_REQUESTED)
#define EMU_FAR_PIECE (512u << 10) /* bytes of a piece at most: one is read while another is copied */
#define EMU_FAR_PIECE_LONE (128u << 10) /* and while few commands are under way */
#define EMU_FAR_LONE 3u
#define EMU_FAR_LIGHT \
	(64u << 10) /* a read that is served at once: its copy costs no more than waking a thread */
#define EMU_STAGE_BYTES (16u << 20)
#define EMU_STAGE_CHUNKS 1024u
#define EMU_FAR_STEP_COPIES 32u
#define EMU_FAR_GATHER_BYTES (64u << 10) /* not worth waiting for more */

/* A piece of a ring. */
struct emu_chunk {
	struct emu_chunk *next; /* gathered, or under way */
	struct emu_job *job;
	uint8_t *near;
	uint32_t nbytes;
	uint32_t room; /* what it takes of the ring, with what was left over before its end */
	uint32_t last_copy; /* while it is gathered */
	uint32_t why; /* dword 0 of what failed */
	bool failed;
	bool begun; /* there is a ticket */
	bool spoiled; /* its command has failed already */
	bool taken;
	uint64_t off; /* in the namespace */
	uint64_t ticket;
};

struct emu_job {
	struct emu_job *next; /* waiting for room in the ring */
	struct emu_job *next_open;
	struct emu_cmd *slot;
	struct emu_ctrl *e;
	struct emu_map *map; /* counted in on */
	struct emu_ns *ns;
	struct emu_prp walk;
	uint64_t off; /* of what was not begun yet, in the namespace */
	uint64_t nbytes;
	uint8_t opcode;
	/* under stage->lock */
	bool begun; /* every piece was, or none will be any more */
	bool walking; /* somebody is at @walk and @off, without the lock */
	bool parked; /* it waits for room */
	bool open; /* other threads may begin pieces of it */
	uint16_t status;
	uint32_t why;
	uint32_t nr_holds; /* pieces under way, and whoever begins some */
};

/* The staging memory of a place. Pieces are taken in order and given back in any. */
struct emu_stage {
	struct emu_stage *next;
	void *place;
	uint8_t *mem;
	uint32_t nbytes;
	pthread_mutex_t lock;
	uint64_t head, tail; /* bytes ever taken, and given back */
	uint32_t first, nr; /* chunks, in the order they were taken */
	struct emu_chunk *under_way, *under_way_last;
	struct emu_job *waiting, *waiting_last;
	struct emu_job *_Atomic open; /* under the lock; others look whether there is one */
	struct emu_chunk chunk[EMU_STAGE_CHUNKS];
};

/* Copies that are begun together, all of one ring and direction: neighbours become one. */
struct emu_gather {
	struct emu_stage *stage;
	struct emu_chunk *first, *last;
	bool out;
	uint32_t n;
	uint32_t max;
	uint32_t before; /* a stepper's: jobs of the queue that were there before */
	uint64_t nbytes;
	struct emu_copy copy[];
};

/* staging.c */
int emu_stage_for(struct emu_ctrl *e, void *place, struct emu_stage **ret);
void emu_stages_done(struct emu_ctrl *e);
/* Under stage->lock. */
struct emu_chunk *emu_chunk_take(struct emu_stage *r, struct emu_job *job, uint32_t nbytes);
void emu_chunk_give(struct emu_stage *r, struct emu_chunk *c);
bool emu_stage_fits(const struct emu_stage *r, uint32_t nbytes);
/* gather.c */
struct emu_gather *emu_gather_new(uint32_t max);
void emu_gather_add(struct emu_actor *a, struct emu_chunk *c, bool out);
void emu_gather_begin(struct emu_actor *a);

/* piece.c */
enum emu_took { TOOK, TOOK_LAST, TOOK_NONE, TOOK_AGAIN };
uint64_t emu_piece_bytes(const struct emu_job *job); /* at most */
/* The next piece, with what it is of far memory in a->iov. TOOK_NONE: none is left, somebody else is at it, or the job waits
 * for room now; TOOK_AGAIN: a stepper does not wait. @again: the job has waited. */
enum emu_took emu_piece_next(struct emu_actor *a, struct emu_job *job, bool again, struct emu_chunk **ret);
/* Its copy, once it has its bytes. 0, a status, or EMU_STATUS_AGAIN: a stepper's that has them not at once. */
uint16_t emu_piece_begin(struct emu_actor *a, struct emu_job *job, struct emu_chunk *c);

/* far.c */
/* No command goes on: what is under way is awaited, and nothing is begun. */
static inline bool emu_far_stopped(struct emu_ctrl *e)
{
	return atomic_load_explicit(&e->halted, memory_order_seq_cst) ||
	       atomic_load_explicit(&e->io.off, memory_order_seq_cst);
}

/* Does the command's first byte lie in far memory? */
static inline bool emu_far_here(struct emu_ctrl *e, const struct nvme_sqe *s)
{
	return emu_iommu_leaf(&e->io, le64_get(s->prp1)) & EMU_FAR(EMU_DMA_READ | EMU_DMA_WRITE);
}

/* Begin a command that emu_io_exec() answered EMU_STATUS_FAR for: EMU_STATUS_BEGUN, EMU_STATUS_AGAIN (a stepper's) or a
 * status of the wire. */
uint16_t emu_far_start(struct emu_actor *a, const struct emu_cmd *c);
/* Go on with what is over; a stepper with reads of @sq only. Whether anything was. */
bool emu_far_poll(struct emu_actor *a, struct emu_sq *sq);
/* Every job of @sq is over when it returns. */
void emu_far_drain(struct emu_actor *a, struct emu_sq *sq);
/* A read that a device thread may gather with others, because it does not wait for a file. */
bool emu_far_light(struct emu_ctrl *e, const struct nvme_sqe *s);

/* Is there a piece for a thread that has nothing else to do? */
static inline bool emu_far_open(struct emu_ctrl *e)
{
	const struct emu_stage *r = atomic_load_explicit(&e->stages, memory_order_acquire);

	while (r && !atomic_load_explicit(&r->open, memory_order_relaxed))
		r = r->next;
	return r;
}

static inline bool emu_far_any(struct emu_ctrl *e)
{
	return unlikely(atomic_load_explicit(&e->nr_far, memory_order_relaxed));
}

#endif
