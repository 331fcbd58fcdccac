/* What a plan on a GPU consists of: for gpu_plan.c, which makes it, and run_gpu.c, which runs it. */
#ifndef LACE_BACKEND_CUDA_GPU_PLAN_H
#define LACE_BACKEND_CUDA_GPU_PLAN_H

#include "backend/cuda/card_border.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/run_gpu.h"
#include "backend/cuda/token_player.h"
#include "backend/cuda/weight_stream.h"

/* A vector of the model: norm weights, biases, frequencies. Each is uploaded once. */
typedef struct vector {
    const float *host;
    int64_t n;
    float *device;
} vector;

/* The list of batches of a shape. */
typedef struct batch_list {
    batch_shape shape; /* no tokens: there is none */
    device_list list;
} batch_list;

enum { N_BATCH_LISTS = 8 };

/*
 * A batch on its way, and what comes of it; all pinned. [max_tokens] tokens, positions, sequences,
 * [max_outputs] outputs, then [max_tokens] segments, what tokens see and [ROPE_MAX_AXES, n_tokens]
 * axes, where there are any, then of the page tables of all groups what is sent with it.
 */
typedef struct gpu_slot {
    int32_t *batch;
    choice_rule *rules;             /* [max_outputs] */
    int32_t *words;                 /* [max_outputs] what the card chose */
    float *logits, *logits_on_card; /* [max_outputs, n_vocab] and how the card writes there */
    float *hidden;                  /* [rows, width] what is given out beside them, or NULL */
    float *given;                   /* [max_tokens, given_width] what tokens bring along, or NULL */
    float *scales;                  /* [n_sequences, n_adapters] of adapters, or NULL */
    cuda_event *done;
    int32_t n_outputs;
} gpu_slot;

struct gpu_plan {
    plan *p;
    gpu *g;
    cuda_queue *queue;
    int32_t n_sequences, pages_per_sequence, n_groups;

    uint8_t *memory;  /* on the card: values, scratch, what steps hand over */
    bool has_room;    /* that is somebody else's */
    uint8_t *own;     /* the batch, choices, vectors */
    uint8_t *scratch; /* of the first */
    uint64_t scratch_bytes;
    gpu_handover handover;
    bool is_exact; /* gpu_job */
    vector *vectors;
    int32_t n_vectors, vectors_capacity;

    card_border border;            /* of a part of a plan */
    weight_stream stream;          /* where steps have weights that are brought */
    gpu_slot slots[PROGRAM_SLOTS]; /* in turn */
    int32_t n_submitted, n_collected;
    int32_t *batch_device; /* as in a slot */
    int32_t *tables_sent;  /* [groups, sequences, pages] what the card has, or will have */
    int32_t *tables_device;
    int64_t given_width; /* of rows that tokens bring along; 0: none do */
    float *given;        /* [max_tokens, given_width] on the card */
    float *scales;       /* [n_sequences, n_adapters] on the card, */
    float *scales_sent;  /* and what is there, or will be */

    token_player *player;              /* of single tokens; NULL: the plan ends early */
    batch_list batches[N_BATCH_LISTS]; /* the last few, the newest at last_batch */
    int32_t last_batch;
    const device_list *last_list;
    uint64_t *ns; /* [last_list's steps] of the last traced run, or NULL */
    bool can_sample;
    choice_rule *rules;       /* [max_outputs] on the card */
    int32_t *words;           /* [max_outputs] */
    int32_t *last_tokens;     /* [n_sequences] that the card chose */
    uint64_t (*randoms)[4];   /* [n_sequences] */
    const float *last_logits; /* on the card, of the last run, and a row's floats */
    int64_t last_stride;
};

/* Numbers of a batch in front of its tables. */
uint64_t gpu_plan_batch_head(const plan *p);

/* A sequence's part of the tables. */
int32_t *gpu_plan_table(const gpu_plan *gp, int32_t *tables, int32_t group, int32_t sequence);

#endif
