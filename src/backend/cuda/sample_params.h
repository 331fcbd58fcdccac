/*
 * Choosing tokens on the card (sample.cu); read by C and by CUDA. All pointers are addresses on the
 * card.
 *
 * The card does what sampler/sampler.c does for the same logits, with the same numbers in the same
 * order, and steps the same random generator: the text of a seed is the same on all devices, but
 * for draws within rounding (1e-15) of the border between two tokens. What it cannot do with little
 * memory (see SAMPLE_MAX_LIST) it refuses, and the host chooses.
 */
#ifndef LACE_BACKEND_CUDA_SAMPLE_PARAMS_H
#define LACE_BACKEND_CUDA_SAMPLE_PARAMS_H

#include "backend/cuda/decode_params.h"

enum {
    SAMPLE_CLUSTER = 16, /* blocks for a row of logits; each holds a part in its shared memory */
    SAMPLE_THREADS = 512,
    SAMPLE_MAX_TOP_K = 1024,
    SAMPLE_MAX_LIST = 2048, /* candidates that can be put in order */
    SAMPLE_BINS = 512
};

/* What a choice is told as, in a word that is never 0. */
enum {
    SAMPLE_TOKEN = (1 << 30) - 1, /* these bits: the token + 1 */
    SAMPLE_DREW = 1 << 30,        /* a random number was used */
    SAMPLE_REFUSED = SAMPLE_TOKEN /* the host must choose */
};

/* How a row of logits is chosen from; the fields as in lace_sampler_options. */
typedef struct sample_row {
    uint64_t random[4]; /* xoshiro256**; the card steps it */
    float temperature;  /* 0: the best, without anything else; below 0: refuse */
    float top_p, min_p;
    int32_t top_k; /* 0 (all) to SAMPLE_MAX_TOP_K */
} sample_row;

typedef struct sample_params {
    const float *logits; /* row i at i * stride floats */
    int64_t stride;
    int32_t n_vocab;
    sample_row *rows; /* [gridDim.x / SAMPLE_CLUSTER] */
    int32_t *words;   /* [rows] the choices; NULL: to the ring alone */
    /* One token ahead of the host: the word goes to the ring, at the number of the choice. */
    const decode_state *state;
    int32_t *ring;     /* pinned: [DECODE_RING], or NULL */
    decode_best *best; /* the token for the kernel that begins the next one, or NULL */
} sample_params;

#endif
