/*
 * The parameters of the general kernels (way 1 of gpu.h): one struct for each, read by C and by
 * CUDA. All pointers are addresses on the card; strides of f32 rows are in floats.
 */
#ifndef LACE_BACKEND_CUDA_GPU_PARAMS_H
#define LACE_BACKEND_CUDA_GPU_PARAMS_H

#include <stdint.h>

/* A choice of a router, as kernels.h has it. */
typedef struct gpu_choice {
    int32_t expert;
    float weight;
} gpu_choice;

/* out[y] (=, or +=) scale * W x[y / x_divisor] + bias, for blockIdx.y = y */
typedef struct gpu_matvec {
    const uint8_t *tiles;
    const float *bias; /* [n_rows] or NULL; of expert e at e * n_rows */
    const float *x;
    float *out;
    int64_t x_stride, out_stride;
    int32_t n_rows, n_cols;
    int32_t adds;
    float scale;
    /* Experts: which matrix a row takes. choices is NULL without. */
    const gpu_choice *choices; /* row t, choice k at t * choice_stride + k */
    int64_t choice_stride;     /* in choices */
    uint64_t expert_bytes;     /* from one expert's tiles to the next one's */
    int32_t n_used, x_divisor;
    int32_t weighs; /* the choice's weight multiplies scale */
    /* Heads: y is token * n_heads + head, each with its own matrix (expert_bytes); 0 without. */
    int32_t n_heads;
    int64_t head_x, head_out; /* from one head's values to the next one's */
} gpu_matvec;

/* Blocks of the file to tiles: one block of threads for each tile. */
typedef struct gpu_pack {
    const uint8_t *blocks;
    uint8_t *tiles;
    uint64_t row_bytes;     /* of a row of blocks */
    int32_t n_rows, n_cols; /* of what is in `blocks` */
    int32_t type;           /* dtype */
    uint32_t *error;        /* set to 1 if a scale cannot be kept */
} gpu_pack;

typedef struct gpu_embed {
    const uint8_t *table;
    const int32_t *tokens; /* or what else says which row is taken; NULL: the first */
    const float *beside;   /* [n_tokens, width] stands behind each row; NULL: nothing does */
    const float *given;    /* [n_tokens, given_stride] rows of tokens `given_id`; NULL: none */
    float *out;
    int64_t out_stride, given_stride;
    uint64_t row_bytes;
    uint32_t n_rows; /* what is not below takes the first */
    int32_t type, width;
    int32_t given_id; /* TOKEN_GIVEN */
    float scale;
} gpu_embed;

/* y += columns of the rows that tokens `given_id` bring along. */
typedef struct gpu_add_given {
    const float *given; /* its first column */
    const int32_t *tokens;
    float *y;
    int64_t given_stride, y_stride;
    int32_t width, given_id;
} gpu_add_given;

enum { GPU_MAX_AXES = 4 };

/* Rows of [width / 2] cosines and sines: angles of positions, or where a batch has axes, of those. */
typedef struct gpu_rope_table {
    const float *frequencies; /* [width / 2] */
    float *y;
    int64_t y_stride;
    const int32_t *positions; /* [n_tokens] */
    const int32_t *turn;      /* [1] is added to positions; NULL: nothing is */
    const int32_t *axes;      /* [n_axes, n_tokens], or NULL */
    int32_t n_axes, n_tokens, width, is_interleaved;
    int32_t sections[GPU_MAX_AXES];
    float magnitude;
} gpu_rope_table;

/* Row operations: y of row t at t * y_stride. Each uses what it needs. */
typedef struct gpu_rows {
    const float *x, *z; /* inputs */
    float *y;
    int64_t x_stride, z_stride, y_stride;
    const float *weight, *bias;
    const int32_t *indices;     /* gather: rows of x; temperature: positions */
    int32_t width, group, kind; /* group: of a norm; columns of each value of a gate */
    float scale, eps;
} gpu_rows;

typedef struct gpu_mix {
    const float *x, *weights, *base;
    float *y;
    int64_t x_stride, weights_stride, base_stride, y_stride;
    int32_t width, n_in; /* of a stream; streams of x */
} gpu_mix;

typedef struct gpu_xielu {
    float *y;
    int64_t y_stride;
    int32_t width;
    float alpha_p, alpha_n, beta, eps;
} gpu_xielu;

/* The cache of a layer, as kernels.h has it, and where its pages are found. */
typedef struct gpu_cache {
    uint8_t *data;
    uint64_t page_bytes, k_offset, v_offset, row_bytes;
    int32_t type; /* dtype: F32, F16, Q8_0 */
    int32_t page_tokens, n_heads, head_dim;
    int32_t v_dim, v_in_k;
    const int32_t *tables; /* [n_sequences, pages_per_sequence] */
    int32_t pages_per_sequence;
    const int32_t *sequences, *positions; /* [n_tokens] */
    const int32_t *seen; /* [n_tokens] positions that a token sees; NULL: up to its own */
} gpu_cache;

/* Of each head of x, the n_rest values behind n_cols go behind n_rows of y. */
typedef struct gpu_rest {
    const float *x;
    float *y;
    int64_t x_stride, y_stride;
    int32_t n_heads, n_rest, n_cols, n_rows;
} gpu_rest;

typedef struct gpu_rope {
    const float *table; /* [n_tokens, n_dims]: cos, sin */
    float *q, *k;       /* k: NULL if only q is turned */
    const float *v;     /* with k: both are written to the cache; with v_in_k as one row */
    int64_t table_stride, q_stride, k_stride, v_stride;
    int32_t n_heads, n_kv_heads, head_dim, n_dims, is_neox;
    int32_t writes; /* to the cache */
    gpu_cache cache;
} gpu_rope;

typedef struct gpu_attend {
    const float *q;
    float *out;
    int64_t q_stride, out_stride;
    gpu_cache cache;
    const float *sinks;
    float scale, softcap;
    int32_t n_heads, window, chunk;
    int32_t ahead; /* with cache.seen: at most so many behind a token's own; 0: as it says */
} gpu_attend;

/* A state space: SCAN. Inputs of row t at t * their stride; the state of a slot as in ops/step.h. */
typedef struct gpu_scan {
    const float *x, *b, *c, *dt;
    float *out;
    int64_t x_stride, b_stride, c_stride, dt_stride, out_stride;
    const float *a, *d, *dt_bias; /* [n_heads] */
    float dt_min, dt_max;
    float *state;             /* of slot 0 */
    int64_t slot_floats;      /* from one slot to the next */
    const int32_t *sequences; /* [n_tokens] whose slot is used */
    int32_t n_tokens, head_dim, n_state;
    int32_t group_heads; /* heads of a group */
    int32_t few;         /* slots with so many tokens are left alone; 0: none is */
} gpu_scan;

/* A short convolution; `state` is where slot 0 has this layer's inputs, [n_taps - 1, width]. */
typedef struct gpu_conv {
    const float *x;
    float *y;
    int64_t x_stride, y_stride;
    const float *weight, *bias; /* [width, n_taps]; [width] or NULL */
    uint8_t *state;
    uint64_t slot_bytes;
    const int32_t *sequences; /* [n_tokens] whose slots they are */
    int32_t n_tokens, width, n_taps, is_silu;
} gpu_conv;

/* The gated delta rule; `state` is where slot 0 has this layer's heads, [n_heads, k_dim, v_dim]. */
typedef struct gpu_delta {
    const float *qkv, *a, *b;
    float *out;
    int64_t qkv_stride, a_stride, b_stride, out_stride;
    const float *rate, *bias; /* [n_heads] */
    uint8_t *state;
    uint64_t slot_bytes;
    const int32_t *sequences; /* [n_tokens] whose slots they are */
    int32_t n_tokens, n_heads, n_key_heads, k_dim, v_dim, is_tiled;
    int32_t few; /* slots with so many tokens are left alone; 0: none is */
    float eps;
} gpu_delta;

/* route_rule of ops/step.h, field by field. Shared memory: 12 bytes for each expert. */
typedef struct gpu_route {
    const float *logits;
    gpu_choice *out;
    int64_t logits_stride, out_stride; /* floats; choices */
    int32_t n_experts, n_used;
    int32_t scores; /* route_scores */
    const float *bias, *scales;
    int32_t n_groups, n_groups_used, n_ranking;
    int32_t norms;
    float norm_more, norm_least, factor, jitter;
} gpu_route;

/* out[t] += scale * sum over k of weight(t, k) * rows[t * n_used + k]; is_weighed: they are. Rows are
 * sums of n_parts, part_stride apart. */
typedef struct gpu_combine {
    const float *rows;
    int64_t part_stride;
    const gpu_choice *choices;
    float *out;
    int64_t rows_stride, choice_stride, out_stride;
    int32_t width, n_used, is_weighed, n_parts;
    int32_t makes; /* out[t] = instead of += */
    float scale;
} gpu_combine;

#endif
