/*
 * Records: what rank 0 tells the others. A record is a row of integers, without addresses, offsets
 * or code; whoever hears it checks every number against what it knows itself (record_limits), so a
 * wrong record is an error and nothing else.
 *
 *     header  RECORD_MAGIC, kind, runner
 *     OPEN    the numbers of record_open, in their order
 *     CLOSE   nothing
 *     COPY    what, from, to
 *     RUN     n_tokens, n_outputs, n_edits, has_more; then n_tokens each of tokens, sequences and
 *             positions; with has_more as many of seen and segments; n_outputs indices of tokens;
 *             n_edits times sequence, group, index, page
 *     IDLE    nothing: rank 0 lives
 *     END     nothing: there will be no more
 */
#ifndef LACE_RANK_RECORD_H
#define LACE_RANK_RECORD_H

#include "base/status.h"

enum {
    RECORD_MAGIC = 0x6c616365, /* "lace" */
    RECORD_RUNNERS = 16,       /* at a time */
    RECORD_GROUPS = 4,         /* of pages */
    RECORD_SLOTS = -1,         /* record_copy.what: slots of recurrent state; else a group */
    RECORD_NOTHING = -1,       /* record_copy.from: zeros */
};

typedef enum record_kind {
    RECORD_OPEN,
    RECORD_CLOSE,
    RECORD_COPY,
    RECORD_RUN,
    RECORD_IDLE,
    RECORD_END,
    RECORD_N_KINDS
} record_kind;

/* How a runner is made; see runner_options. All numbers, so that they are told in a row. */
typedef struct record_open {
    int32_t n_sequences, n_context, n_batch, n_outputs, n_threads, kv_type, v_type;
    int32_t stops_at_hidden, wants_scores;
    int32_t n_groups, n_pages[RECORD_GROUPS];
} record_open;

/* A page of a group, or a slot, becomes a copy of another. */
typedef struct record_copy {
    int32_t what, from, to;
} record_copy;

/* An entry of a page table changes. */
typedef struct record_edit {
    int32_t sequence, group, index, page; /* page -1: none */
} record_edit;

/* A batch. Pointers go into the record. */
typedef struct record_run {
    int32_t n_tokens, n_outputs, n_edits;
    const int32_t *tokens, *sequences, *positions; /* [n_tokens] */
    const int32_t *seen, *segments;                /* [n_tokens], or NULL */
    const int32_t *outputs;                        /* [n_outputs] */
    const record_edit *edits;                      /* [n_edits] */
} record_run;

typedef struct record {
    record_kind kind;
    int32_t runner;
    union {
        record_open open;
        record_copy copy;
        record_run run;
    };
} record;

/* What a runner of this rank has: no number of a record is beyond it. */
typedef struct record_limits {
    int32_t n_batch, n_outputs, n_sequences, n_context, n_vocab, n_segments;
    int32_t pages_per_sequence, n_groups, n_pages[RECORD_GROUPS];
    int32_t n_slots;
} record_limits;

/* What kind it is and whose. The rest is read by those who know the runner's limits. */
lace_status record_read_header(const int32_t *words, int64_t n, record *out, lace_error *err);
lace_status record_read(const int32_t *words, int64_t n, const record_limits *limits, record *out,
                        lace_error *err);

/* ---- Writing --------------------------------------------------------------------------------- */

/* Words that grow. Starts as {0}. */
typedef struct record_writer {
    int32_t *words;
    int64_t n, capacity;
    bool has_failed; /* without memory */
} record_writer;

void record_begin(record_writer *w, record_kind kind, int32_t runner);
void record_add(record_writer *w, const int32_t *words, int64_t n);
void record_add_one(record_writer *w, int32_t word);
void record_deinit(record_writer *w);

#endif
