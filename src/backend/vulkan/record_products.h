/* A product as a launch or several: with a matrix, or with those of a mixture's experts or of heads. */
#ifndef LACE_BACKEND_VULKAN_RECORD_PRODUCTS_H
#define LACE_BACKEND_VULKAN_RECORD_PRODUCTS_H

#include "backend/vulkan/recorder.h"
#include "backend/vulkan/vulkan_weights.h"

/* out (=, or +=) scale * W x + bias; with a pair, act(scale * W x + bias) * (scale * pair x + its). */
typedef struct product {
    const weight *w, *pair; /* of experts and heads the first */
    const float *bias, *pair_bias;
    const operand *x;
    int64_t n_x, n; /* rows of x; rows of the result: tokens, or choices of all tokens */
    const operand *out;
    uint64_t result; /* in place of out: scratch; 0: out */
    bool adds;
    float scale;
    glu_kind glu;
    int32_t n_heads, n_rest; /* heads; 0: none. Of each, n_rest values are not the matrix's */
    const operand *choices;  /* experts; NULL: none */
    int32_t n_experts, n_used;
    bool weighs;
    /* Experts of many tokens: room for the order of their choices, and whether it is made. */
    uint64_t sorted;
    bool is_sorted;
    /* Further matrices of the same type for the same rows, side by side with the first. */
    const weight *more[2];
    const float *more_bias[2];
    const operand *more_out[2];
    int n_more;
    const step *norm; /* of the result, for the products behind it alone; NULL: there is none */
} product;

/* The addresses of matrices that are alike. They need not lie one behind the other. */
lace_status record_matrices(recorder *r, const weight *w, int32_t n, uint64_t *out,
                            lace_error *err);

/* Room for the order of n choices of experts. */
uint64_t record_sorted_bytes(int64_t n, int64_t n_experts);

/* Where the result goes: its address and stride, which the next launch is said to write. */
uint64_t record_result(recorder *r, const product *d, uint32_t *stride);

/*
 * The norm behind a product of few rows, if the product can hand its rows over to the products that
 * are the only ones to read what is normed. NULL: it cannot.
 */
const step *record_norm_behind(const recorder *r, const operand *out, int64_t n_rows);

/* With matrices in tiles; a pair has the type of the first. */
lace_status record_tile_product(recorder *r, const product *d, lace_error *err);

#endif
