/*
 * Slots: recurrent state of sequences, and snapshots of it.
 *
 * A slot is memory for the recurrent layers of one sequence. Every token changes all of it, so the
 * only way back is a copy that was made before: a snapshot, which is the state behind one number of
 * tokens. Snapshots lie in further slots. They are counted: the sequences that can go back to one
 * and the nodes of the prefix tree that offer it hold it together.
 *
 *     slots:  [sequence 0] [sequence 1] ... | [snapshot 0] [snapshot 1] ...
 *
 * A sequence keeps the snapshots behind the last two full pages where it stopped, which are made on
 * their own, and the latest one that was asked for. When no slot is free, whoever keeps snapshots
 * for later (the prefix tree) is asked to give one up; then the sequence gives up its older ones;
 * then there is no snapshot. That is never an error: it only means to compute more again.
 *
 * Going back costs nothing at first: the snapshot is copied when the next token is reserved.
 *
 * In models without recurrent layers a slot has no bytes, and all of this does nothing.
 */
#ifndef LACE_STATE_SLOTS_H
#define LACE_STATE_SLOTS_H

#include "backend/queue.h"
#include "base/status.h"

/* Which snapshots a sequence keeps: behind the last page, behind one before, and as asked for. */
enum { KEPT_PAGE, KEPT_EARLIER_PAGE, KEPT_ASKED, SLOT_KEPT };

typedef struct slot_state {
    int32_t n_tokens;        /* that the slot has seen, if there is no source */
    int32_t source;          /* the snapshot that it will be filled with; -1: none */
    int32_t kept[SLOT_KEPT]; /* -1: none */
} slot_state;

typedef struct snapshot_state {
    int32_t n_tokens; /* behind which it was made */
    int32_t n_users;  /* 0: free */
} snapshot_state;

/* What of every slot lies on one device. */
typedef struct slot_part {
    uint64_t slot_bytes; /* 0: nothing */
    queue *queue;        /* whose memory it is, and in which it is copied */
    uint8_t *data;       /* [n_sequences + n_snapshots] slots */
} slot_part;

typedef struct slots {
    uint64_t slot_bytes; /* of all recurrent layers; 0: there are none */
    slot_part parts[DEVICES_MAX];
    int32_t n_sequences, n_snapshots;
    slot_state *of;            /* [n_sequences] */
    snapshot_state *snapshots; /* [n_snapshots] */
    int32_t *free_snapshots;   /* [n_free] a stack */
    int32_t n_free;

    /* Asked for a slot when none is free: gives one snapshot up, or returns false. May be NULL. */
    bool (*give_up)(void *keeper);
    void *keeper;
} slots;

uint64_t slots_bytes(const slots *p);
uint64_t slots_bytes_on(const slots *p, int32_t device);

/* The first device that has some of every slot: of a rank's, the only one. */
int32_t slots_device(const slots *p);

/* Take the memory, of a queue. slots_free is right also if that failed. */
lace_status slots_allocate(slots *p, queue *q, lace_error *err);
void slots_free(slots *p);

/*
 * Before a sequence computes tokens, so that it has seen n_tokens afterwards: fill the slot with its
 * source, or with zeros if the sequence is empty.
 */
lace_status slot_reserve(slots *p, int32_t sequence, int32_t n_tokens, lace_error *err);

/* The most tokens, up to n_tokens, that a sequence can go back or stay at; else 0. */
int32_t slot_reach(const slots *p, int32_t sequence, int32_t n_tokens);

/*
 * A sequence gets another length: it has computed all tokens that were reserved, or goes to a length
 * that slot_reach allows.
 */
void slot_set_length(slots *p, int32_t sequence, int32_t n_tokens);

/* Make the snapshot that a sequence keeps behind a full page. */
void slot_keep_page(slots *p, int32_t sequence);

/* Let the empty sequence `to` have the state of `from`, and its snapshots. */
lace_status slot_fork(slots *p, int32_t from, int32_t to, lace_error *err);

/* A snapshot of a sequence as it is. -1: empty, or no slot is free. Drop it when it is not needed. */
int32_t slot_snapshot(slots *p, int32_t sequence);

/* The snapshot behind n_tokens that a sequence keeps, or -1. Not counted for the caller. */
int32_t slot_kept_at(const slots *p, int32_t sequence, int32_t n_tokens);

/* Let a sequence have the state of a snapshot, and keep that. */
void slot_restore(slots *p, int32_t sequence, int32_t snapshot);

/* Hold a snapshot once more. */
int32_t snapshot_hold(slots *p, int32_t snapshot);

/*
 * A snapshot behind n_tokens of what somebody kept, in the host's memory, for the caller; -1: no slot
 * is free. And back: its state to the host's memory.
 */
int32_t snapshot_load(slots *p, int32_t n_tokens, const void *data);
lace_status snapshot_read(const slots *p, int32_t snapshot, void *out, lace_error *err);

/* Let go of *snapshot, which becomes -1 (and may be); free when nobody else holds it. */
void snapshot_drop(slots *p, int32_t *snapshot);

#endif
