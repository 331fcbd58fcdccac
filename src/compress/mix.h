/*
 * Mixes: which type each tensor of a compressed file gets. A mix has a main type; tensors that
 * matter more get a better one. The rules are llama.cpp's, so that a file of a mix has the same
 * tensors in the same types, and the same size, whoever wrote it. lace's own types have mixes, too.
 */
#ifndef LACE_COMPRESS_MIX_H
#define LACE_COMPRESS_MIX_H

#include "model/config.h"
#include "tensor/tensor.h"

typedef struct mix {
    const char *name; /* "q4_k_m" */
    int file_type;    /* general.file_type */
    dtype type;       /* the main one */
} mix;

const mix *mix_find(const char *name); /* in any case; NULL if there is none */
const mix *mix_at(size_t i);           /* in the order of size; NULL past the end */

/* What the rules look at besides the tensor. */
typedef struct mix_context {
    int32_t n_layers, n_experts;
    int32_t n_heads_per_kv; /* heads that share one of keys and values */
    bool is_tied;           /* no output.weight: the embedding is the output too */
    bool has_importance;
} mix_context;

/* Matrices are written anew; norms, biases, routers and other small tensors stay as they are. */
bool mix_is_matrix(const tensor *t);

/* The type for a matrix. Rows that are not whole blocks get a type of smaller blocks, or F16. */
dtype mix_type_of(const mix *m, const mix_context *c, const tensor *t);

/* This type for rows of n_cols, or in its place one of smaller blocks, or F16. */
dtype mix_type_for_rows(dtype type, int64_t n_cols);

/* True for lace's own types, which only lace reads. */
bool mix_is_own(const mix *m);

#endif
