/*
 * Choosing tokens on the card (sample.cu); read by C and by CUDA. All pointers are addresses on the
 * card.
 *
 * What a card promises stands in backend/choice.h. What it cannot do with little memory (see
 * SAMPLE_MAX_LIST) it refuses, and the host chooses.
 */
#ifndef LACE_BACKEND_CUDA_SAMPLE_PARAMS_H
#define LACE_BACKEND_CUDA_SAMPLE_PARAMS_H

#include "backend/choice.h"
#include "backend/cuda/decode_params.h"

enum {
    SAMPLE_CLUSTER = 16, /* blocks for a row of logits, where clusters can be so large */
    SAMPLE_THREADS = 512,
    SAMPLE_MAX_LIST = 2048, /* candidates that can be put in order */
    SAMPLE_BINS = 512
};

typedef struct sample_params {
    const float *logits; /* row i at i * stride floats */
    int64_t stride;
    int32_t n_vocab;
    choice_rule *rows; /* [rows] */
    int32_t *words;    /* [rows] the choices; NULL: to the ring alone */
    float *refused; /* pinned: [rows, n_vocab] gets the logits of rows that are refused, or NULL */
    /* Of a batch: what is chosen for a sequence, for the step behind this one. NULL: no batch. */
    const int32_t *outputs, *sequences; /* of row i: sequences[outputs[i]] */
    int32_t *last_tokens;               /* [sequences] */
    uint64_t (*randoms)[4];             /* [sequences] see choice_rule.goes_on */
    /* One token ahead of the host: the word goes to the ring, at the number of the choice. */
    const decode_state *state;
    int32_t *ring;     /* pinned: [DECODE_RING], or NULL */
    decode_best *best; /* the token for the kernel that begins the next one, or NULL */
} sample_params;

/* Tokens of a batch that are chosen_id become those that were chosen last (replay.cu). */
typedef struct fill_tokens_params {
    int32_t *tokens; /* [n] */
    const int32_t *sequences;
    const int32_t *last_tokens; /* [sequences] */
    int32_t n;
    int32_t chosen_id; /* TOKEN_CHOSEN */
} fill_tokens_params;

#endif
