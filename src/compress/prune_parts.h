/*
 * Structured pruning: attention heads and feed-forward neurons that go as a whole, so that matrices
 * become smaller and everything runs as before, only faster.
 *
 * A neuron is a row of ffn_gate and ffn_up and a column of ffn_down. A head is, because heads share
 * keys and values, a group: one KV head and the heads that read it; rows of attn_q, attn_k, attn_v
 * and columns of attn_output. All layers lose the same number, since a model has one number of
 * each; which ones go is each layer's own matter. Scores: how much a part adds to the residual, by
 * the norms of its columns and of what they are multiplied with.
 */
#ifndef LACE_COMPRESS_PRUNE_PARTS_H
#define LACE_COMPRESS_PRUNE_PARTS_H

#include "compress/prune.h"
#include "compress/source.h"

typedef enum part_kind { PART_HEADS, PART_NEURONS, PART_N } part_kind;

/* What is left of one kind. */
typedef struct part_choice {
    int32_t rule;    /* -1: nothing goes */
    int64_t n, left; /* parts of a layer: KV heads, neurons */
    uint8_t *keeps;  /* [n_layers, n] */
} part_choice;

/* How a tensor is cut: which kind, along rows or columns, in units of how many values. */
typedef struct part_cut {
    part_kind kind;
    int32_t layer;
    bool is_columns;
    int64_t unit;
} part_cut;

typedef struct prune_parts {
    part_choice choices[PART_N];
    part_cut *cuts; /* [n_tensors]; unit 0: not cut */
    size_t n_tensors;
    int32_t n_layers;
} prune_parts;

/* Which tensors are concerned; counts them in `rows`, [n_rules]. */
lace_status prune_parts_plan(prune_parts *p, const source *model, const surgery *s, prune_row *rows,
                             lace_error *err);
void prune_parts_deinit(prune_parts *p);

/* Choose what goes. */
lace_status prune_parts_choose(prune_parts *p, const source *model, const surgery *s,
                               const imatrix *importance, prune_row *rows, lace_error *err);

bool prune_parts_has(const prune_parts *p, size_t index);

/* Leave out of w what goes; *s becomes the shape of what is left. */
void prune_parts_cut(const prune_parts *p, size_t index, float *w, shape *s);

/* The same for numbers that belong to the columns, [n_experts, n_cols]. */
void prune_parts_cut_columns(const prune_parts *p, size_t index, int64_t n_experts, float *x);

/* The model's metadata, with the new numbers. */
lace_status prune_parts_add_meta(const prune_parts *p, const source *model, gguf_writer *w,
                                 lace_error *err);

#endif
