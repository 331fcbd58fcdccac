/*
 * Parameters of the batched kernels (way 2 of gpu.h); read by C and by CUDA.
 * Strides are in floats.
 */
#ifndef LACE_BACKEND_CUDA_BATCH_PARAMS_H
#define LACE_BACKEND_CUDA_BATCH_PARAMS_H

#include "backend/cuda/gpu_params.h"

/* Tiles of more bytes meet 64 tokens at a time, others 128, on cards without wgmma. */
enum { MATMUL_LARGE_TILE = 3000 };

/* ---- Matrices -------------------------------------------------------------------------------- */

enum { BATCH_STORE, BATCH_ADD, BATCH_GLU };

/* Slots of one expert that a block multiplies, as many as its kernel has room for. */
typedef struct batch_tile {
    int32_t expert;     /* -1: there is nothing to do */
    int32_t begin, end; /* of all slots of the expert from this tile on */
} batch_tile;

/*
 * Choices of a router grouped by expert: the slots of an expert are neighbours
 * and begin at a multiple of 8. An item is token * n_used + choice.
 */
typedef struct batch_slots {
    const batch_tile *tiles; /* [gridDim.x]; NULL: blocks count tiles by begin and count */
    const int32_t *begin;    /* [n_experts + 1]; NULL: there are no experts, a slot
                             is a token */
    const int32_t *count;    /* [n_experts] */
    const int32_t *rows;     /* [n_slots] the row of the result that a slot makes */
    int32_t n_slots;         /* at most */
    int32_t n_experts;
} batch_slots;

typedef struct batch_matmul {
    const uint8_t *weights[3]; /* tiles */
    const float *bias[3];      /* [n_rows] or NULL; of expert e at e * n_rows */
    float *out[3];             /* a row for each token; BATCH_GLU: the first alone */
    int64_t out_stride[3];
    int32_t n_rows[3];
    int32_t n_weights;
    int32_t n_tiles;       /* along K */
    const uint8_t *x;      /* atoms, batch_common.cuh */
    const float *x_scales; /* [n_tokens] what the atoms of a row are to be
                              multiplied with */
    int32_t n_tokens;      /* or slots at most */
    int32_t mode, glu;
    float scale;            /* of the products, with the kind's unit divided out */
    float *parts;           /* [gridDim.z][n_tokens][part_stride], if gridDim.z > 1 */
    int32_t part_stride;    /* rows of all weights */
    int32_t part_offset[3]; /* where each weight's rows begin */
    batch_slots slots;
    uint64_t expert_bytes[3]; /* from one expert's tiles to the next one's */
    int32_t blocks; /* of rows; gridDim.y is that, times experts where slots have no tiles */
} batch_matmul;

/* Rows of f32 to atoms. */
typedef struct batch_atoms {
    const float *x;
    const int32_t *map; /* [n_rows] the row of x, or < 0: zeros; NULL: as they are */
    uint8_t *out;
    float *scales; /* [n_rows] powers of 2 */
    int64_t x_stride;
    int32_t width, n_rows, n_k64, is_half;
    int32_t rotates; /* by 128s (tensor/rotate.h); width is a multiple of it */
} batch_atoms;

/* The sums of parts, and bias, to or added to their places: fields as in
 * batch_matmul. */
typedef struct batch_finish {
    const float *parts;
    const float *bias[3];
    float *out[3];
    int64_t out_stride[3];
    int32_t n_rows[3], part_offset[3];
    int32_t n_weights, n_parts, n_tokens, part_stride, adds;
} batch_finish;

/* Shared memory: (warps + 3) * n_experts + 1 numbers of 32 bits. */
typedef struct batch_sort {
    const gpu_choice *choices;
    int64_t choice_stride;
    int32_t *items;    /* [n_slots] -1: none */
    int32_t *tokens;   /* [n_slots] -1: none */
    batch_tile *tiles; /* [n_tiles], those with tokens first */
    int32_t n_tokens, n_used, n_experts, n_slots;
    int32_t n_tiles, tile_tokens; /* tile_tokens: slots of a tile at most, a multiple of 8 */
} batch_sort;

/* The same for heads, each of which has all tokens: heads are experts. */
typedef struct batch_heads {
    int32_t *begin, *count;
    int32_t *items, *inputs; /* [n_slots] rows of the result and of x; -1: none */
    int32_t n_tokens, n_heads;
    int32_t padded;                  /* slots of a head */
    int32_t items_each, inputs_each; /* rows of these for a token */
} batch_heads;

/* ---- Attention ------------------------------------------------------------------------------- */

typedef struct batch_attend {
    gpu_attend a;             /* q and out begin at the batch's first token */
    int32_t token0, n_tokens; /* of the batch */
    int32_t page_shift;       /* a page has 1 << page_shift positions */
    int32_t n_parts;          /* single tokens: the context is cut into so many */
    int32_t part_keys;        /* keys of a part, a multiple of a page; attend_wide.cu has its own */
    float *parts;             /* [n_tokens][n_heads][n_parts][2 + head_dim]: most, sum, out */
    int32_t
        unit; /* latents, large heads: tokens of one sequence, whose rows are shared out among blocks */
    uint8_t *
        slabs; /* single tokens: results as these too (small_batch_params.h), or NULL; for one part */
} batch_attend;

#endif
