/* How the tensors of a Hugging Face directory are made into those of a GGUF file. Private. */
#ifndef LACE_HF_HF_RECIPES_H
#define LACE_HF_HF_RECIPES_H

#include "base/arena.h"
#include "hf/hf_names.h"
#include "hf/hf_packed.h"

typedef enum recipe_kind {
    RECIPE_COPY,
    RECIPE_ADD_ONE,
    RECIPE_PERMUTE_Q, /* becomes a copy where the layout needs no other order */
    RECIPE_PERMUTE_K,
    RECIPE_STACK,
    RECIPE_STRIDE,
    RECIPE_TRANSPOSE,
    RECIPE_TRANSPOSE_HALF, /* the same, of parts that lie one behind the other */
    RECIPE_HALVE,
    RECIPE_MXFP4,   /* of NAME_blocks and NAME_scales */
    RECIPE_ROWS,    /* rows in another order, or some of them: name_row.rows */
    RECIPE_COLUMNS, /* the same for columns of a matrix */
    RECIPE_VALUES,  /* each value changed by itself: name_row.value_of; with rows, of a vector in
                       another order */
    RECIPE_HEADS, /* of each head's rows: the first, as columns (part 0), or the others (part 1) */
    RECIPE_SCALE, /* rows times factors, in files alone; who runs it multiplies: name_row.factor_of */
} recipe_kind;

/* Another shape for the same values. */
typedef enum shape_kind {
    SHAPE_SAME,
    SHAPE_SQUEEZED, /* without dimensions of 1 */
    SHAPE_COLUMN,   /* a vector as rows of one value */
    SHAPE_GROUPS,   /* a vector as a row for each group of the state space */
} shape_kind;

/* RECIPE_STACK: how many there are, in name_row.part. */
enum { STACK_EXPERTS, STACK_HEADS, STACK_KV_HEADS, STACK_STREAMS };

/* How many rows (or columns) come out, and which one of the source each is. */
typedef struct row_map {
    int64_t (*count)(const model_config *c, int32_t layer);
    int64_t (*source)(const model_config *c, int32_t layer, int64_t row);
} row_map;

typedef struct name_row {
    const char *hf, *gguf;
    recipe_kind kind;
    int part, n_parts; /* this tensor is number `part` of n_parts in the source; 0 is one */
    const row_map *rows;
    float (*value_of)(float x);
    double (*factor_of)(const model_config *c, int64_t row);
    shape_kind shape;
} name_row;

/* How a tensor is made. */
typedef struct recipe {
    recipe_kind kind;
    int part, n_parts;
    int32_t n_heads;        /* permute */
    const tensor *source;   /* its data is NULL: see hf_packed.h; or for stack: */
    const tensor **sources; /* [n_experts] */
    const tensor *scales;   /* mxfp4 */
    const row_map *rows;
    float (*value_of)(float x);
    double (*factor_of)(const model_config *c, int64_t row);
    int32_t layer; /* rows */
} recipe;

struct hf_tensors {
    model_config config;
    arena memory; /* names, lists of sources, rope factors */
    tensor *tensors;
    recipe *recipes;
    size_t count, capacity;
};

#endif
