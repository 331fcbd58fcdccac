/*
 * LoRA adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021) as steps
 * see them. An adapter adds to a matrix W of the model a product of two small ones:
 *
 *     y = W x + factor * scale * up (down x)         down: [rank, n_in], up: [n_out, rank]
 *
 * Rows of a batch belong to sequences, and each sequence says how much of each adapter it wants
 * (batch.adapter_scales). So LORA_DOWN makes, beside W x, the few values that each row's adapters
 * make of x, and LORA_UP adds what comes of them.
 *
 * What LORA_DOWN leaves of a row: `rank` values of each adapter that knows the matrix, at
 * lora_pair.first. Those of adapters that the row does not use are not written, and not read.
 */
#ifndef LACE_OPS_LORA_H
#define LACE_OPS_LORA_H

#include "ops/step.h"

enum {
    LORA_PANEL = 32, /* columns of `up` that lie together; rows of `down` are padded to these */
    LORA_MAX_RANK = 1024, /* of one adapter */
};

/* What one adapter has for one matrix. Both parts are of `type`: F32, F16 or BF16. */
typedef struct lora_pair {
    int32_t adapter; /* its number */
    int32_t rank;
    int32_t first; /* of its values in a row between the two steps */
    float factor;  /* alpha / rank */
    dtype type;
    const uint8_t *down; /* [rank, lora_padded(n_in)], zeros behind n_in; of a table, whose rows are
                            looked up: [n_in, rank] */
    const uint8_t *up;   /* panels: [lora_padded(n_out) / LORA_PANEL, rank, LORA_PANEL] */
} lora_pair;

/* What all adapters have for one matrix. */
typedef struct lora_site {
    lora_pair *pairs; /* [n_pairs] */
    int32_t n_pairs;
    int32_t n_low; /* values of a row between the two steps: all ranks together */
    int64_t n_in, n_out;
    bool is_table; /* the matrix is a table of embeddings: n_in are its rows */
} lora_site;

static inline int64_t lora_padded(int64_t n)
{
    return (n + LORA_PANEL - 1) / LORA_PANEL * LORA_PANEL;
}

/* Where value (row r, column c) of `up` stands, in values. */
static inline int64_t lora_up_at(const lora_pair *p, int64_t r, int64_t c)
{
    return (c / LORA_PANEL * p->rank + r) * LORA_PANEL + c % LORA_PANEL;
}

/* The token that a row of a step belongs to. */
static inline int32_t lora_token(const step *s, const batch *b, int64_t row)
{
    int64_t i = s->row_factor > 1 ? row / s->row_factor : row;
    return s->is_output ? b->outputs[i] : (int32_t)i;
}

/* How much of an adapter a row wants; 0: nothing. */
static inline float lora_scale(const step *s, const batch *b, const lora_pair *p, int64_t row)
{
    int32_t sequence = b->sequences[lora_token(s, b, row)];
    return b->adapter_scales[(int64_t)sequence * b->n_adapters + p->adapter];
}

#endif
