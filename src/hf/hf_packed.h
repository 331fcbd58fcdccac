/*
 * Matrices that others have quantized or pruned, as they lie in Hugging Face directories, each
 * shown as one tensor of a type that lace computes with.
 *
 *     NAME.qweight, .qzeros, .scales, .g_idx       gptq, and awq (without g_idx)
 *     NAME.weight_packed, .weight_scale, .weight_zero_point, .weight_g_idx, .weight_shape
 *                                                  compressed-tensors, pack-quantized
 *     NAME.weight (int8), .weight_scale            compressed-tensors, int-quantized
 *     NAME.weight (e4m3), .weight_scale[_inv]      fp8 and float-quantized: of a tensor, a row or a
 *                                                  block
 *     NAME.compressed, .bitmask, .row_offsets, .shape    sparse-bitmask; without offsets: 2:4
 *
 * Integers that share a scale with at least 32 neighbours of their row become Q4_0 or Q8_0, which
 * hold them as they are: the scale is an f16 there, as it is in nearly all of these files. Columns
 * in another order (act-order) and floats of 8 bits become F16, or F32 where an f16 is too small;
 * values without a scale keep their type.
 */
#ifndef LACE_HF_HF_PACKED_H
#define LACE_HF_HF_PACKED_H

#include "base/arena.h"
#include "formats/weights.h"
#include "hf/hf_quant.h"

typedef enum hf_packed_kind {
    PACKED_GPTQ,  /* words down the columns of a row */
    PACKED_AWQ,   /* words along the rows, interleaved */
    PACKED_WORDS, /* words along the columns */
    PACKED_BYTES, /* int8 */
    PACKED_FLOAT, /* any type of floats */
    PACKED_MASK,  /* what is not 0, and where */
} hf_packed_kind;

typedef struct hf_packed {
    tensor shown; /* [rows, cols]; its data is NULL: that is how it is told from others */
    hf_packed_kind kind;
    int bits; /* of a code */
    int64_t rows, cols;
    const tensor *codes;
    const tensor *zeros;  /* or NULL: `zero` */
    int zero;             /* of all codes, or added to what zeros holds */
    const tensor *scales; /* or NULL: 1 */
    int64_t group_rows;   /* rows and columns that share a scale */
    int64_t group_cols;
    int64_t step_row, step_col; /* from scale to scale */
    const tensor *order;        /* the group of each column, or NULL: col / group_cols */
    uint32_t n_groups;          /* with an order: how many there are */
    const tensor *mask, *offsets;
} hf_packed;

typedef struct hf_packed_search {
    const weights *files;
    const hf_quant *quant;
    arena *memory;
    bool *is_used; /* [weights_count]: set for the tensors that a matrix is made of */
    lace_error *err;
} hf_packed_search;

/*
 * The matrix that would be called NAME.weight; NULL if nothing in the files is a part of it. All
 * shapes, types and indices are checked: LACE_E_SHAPE, LACE_E_META.
 */
lace_status hf_packed_find(const hf_packed_search *s, const char *name, const tensor **out);

/* The matrix behind a tensor that hf_packed_find made; NULL for any other. */
const hf_packed *hf_packed_of(const tensor *t);

/* Columns [col, col + n) of a row in the type of p->shown; whole blocks. */
void hf_packed_make(const hf_packed *p, int64_t row, int64_t col, int64_t n, void *out);

#endif
