/*
 * Batches on their way to a device, and what comes back of them.
 *
 * A batch that is under way has a place: memory that the host writes its numbers to, and memory that
 * results come back to. Two short lists of launches belong to it: one brings the numbers to where the
 * device reads all batches from, the other chooses tokens, or copies logits to the host. Between them
 * stands the list of the model's steps, which knows nothing of places; the three are one submission.
 *
 * The device finds the best token of a row by itself, and the next batch may begin with it before the
 * host has seen it. Of a row that is drawn from it finds the best candidates, and the host draws, with the
 * arithmetic of double that many devices lack.
 */
#ifndef LACE_BACKEND_VULKAN_BATCH_TRANSFER_H
#define LACE_BACKEND_VULKAN_BATCH_TRANSFER_H

#include "backend/backend.h"
#include "backend/vulkan/recorder.h"

typedef struct transfer_options {
    vulkan_queue *queue;
    int32_t max_tokens, max_outputs, n_vocab;
    int32_t n_sequences, pages_per_sequence, n_groups;
    int64_t given_width; /* floats that each token may bring along */
    int32_t n_adapters;
    uint64_t logits; /* where steps leave them, [max_outputs, logits_stride] */
    uint32_t logits_stride;
} transfer_options;

/* A batch under way. */
typedef struct transfer_place {
    int32_t max_tokens, max_outputs;
    uint64_t up, down, params; /* memory of the device, */
    uint32_t *up_host; /* which the host sees: numbers, as send_args has them, then rules, */
    const uint32_t *down_host; /* choices, then candidates, */
    uint8_t *params_host;      /* and parameters of both lists */
    uint64_t logits;           /* [logits_rows, n_vocab]; 0 until a row is refused */
    const float *logits_host;
    int32_t logits_rows;
    bool keeps_logits; /* rows that are refused come back */
    vulkan_list *send, *results;
    int32_t results_rows;   /* that the list of results is for, */
    bool results_choose;    /* and whether by rules, */
    uint64_t results_parts; /* with candidates there */

    int32_t n_tokens, n_outputs; /* of its batch */
    bool is_spread;              /* as vulkan_batch has it, of few tokens */
    bool has_adapters;           /* and this too */
    bool has_rules;
    bool draws;         /* a row is drawn from: it ends when the host has done that */
    choice_rule *rules; /* [max_outputs] */
    int32_t *sequences; /* [max_outputs] of each row */
    int32_t *words;     /* [max_outputs] choices, once they are read */
    uint64_t number;    /* of the submission; 0: it waits for tokens that are not drawn yet */
    bool is_read;
    lace_error failed; /* what went wrong when it was submitted late; LACE_OK: nothing */
} transfer_place;

typedef struct transfer {
    transfer_options o;
    vulkan *v;
    vulkan_batch batch; /* where steps read the numbers of any batch */
    uint64_t memory, last_tokens;
    uint64_t parts; /* candidates of parts of rows, for parts_rows of these; 0 at first */
    int32_t parts_rows;
    int32_t *tables_sent; /* what the tables hold, once the patches are made */
    int32_t *patches;     /* [TRANSFER_PATCHES] places and values that the next batch takes along */
    int32_t n_patches;
    int32_t
        *last_chosen; /* [n_sequences] on the host: 0 where the device chose and nobody read it */
    uint64_t (*randoms)[4]; /* [n_sequences] what the last choice left of its generator */
    choice_edit *list;      /* [CHOOSE_MOST] */
} transfer;

enum { TRANSFER_PATCHES = 512 };

/* Memory on the device, of the host's alone not counted. */
uint64_t transfer_bytes(const transfer_options *o);

/* *t starts as zeros; close is right also if open failed. */
lace_status transfer_open(transfer *t, const transfer_options *o, lace_error *err);
void transfer_close(transfer *t);

lace_status transfer_place_open(transfer *t, transfer_place *p, int32_t max_tokens,
                                int32_t max_outputs, bool keeps_logits, lace_error *err);
void transfer_place_close(transfer *t, transfer_place *p); /* zeros are fine */

/* Bring a sequence's table of a group up to date, with its first n pages. */
lace_status transfer_table(transfer *t, int32_t group, int32_t sequence, const int32_t *pages,
                           int32_t n, lace_error *err);

/* Copy a batch and its rules ([n_outputs], or NULL) to a place that is free, and its tables. */
lace_status transfer_put(transfer *t, transfer_place *p, const batch *b, const choice_rule *rules,
                         lace_error *err);

/* Tokens that are not known become those that were chosen last, as the host knows them. */
void transfer_fill_tokens(const transfer *t, transfer_place *p);

/* Submit it, with the list of its steps between its own. */
lace_status transfer_submit(transfer *t, transfer_place *p, vulkan_list *steps, lace_error *err);

/* Wait for it and read what was chosen; draw, where the host does. */
lace_status transfer_read(transfer *t, transfer_place *p, lace_error *err);

#endif
