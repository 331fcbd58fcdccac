/*
 * Kernels: what one step of a plan does, and the table that says which function does it.
 *
 * A step is one operation with its operands. Every worker thread calls the step's kernel with its
 * own index and does its share; the plan puts barriers between steps. The table is filled with
 * plain C first (ref/), then each higher CPU level overwrites what it has a faster version of. An
 * entry is a function or NULL: there is no second list of what is supported.
 *
 * Matrix products have a table of their own, by the type of the weights, because the type decides
 * how weights are laid out in memory and what form of activations the kernel reads.
 */
#ifndef LACE_BACKEND_CPU_KERNELS_H
#define LACE_BACKEND_CPU_KERNELS_H

#include <string.h>

#include "base/cpu.h"
#include "base/status.h"
#include "tensor/dtype.h"

/* ---- Activations ----------------------------------------------------------------------------- */

/*
 * ACT_F32: plain floats, [n_rows, width].
 *
 * ACT_Q8: int8 in blocks of 32 with one scale each. A row is three arrays, one after the other:
 *
 *     int8_t  q[width]        x is about d * q; |q| <= 127
 *     float   d[width / 32]   powers of two, see act_q8_scale
 *     int16_t s[width / 16]   sums of 16 q's, for kernels that add an offset to the weights
 *
 * and is padded to 64 bytes. width is a multiple of 32.
 *
 * ACT_ROTATED_Q8: the same of values that were rotated (tensor/rotate.h), 128 at a time.
 */
typedef enum act_format { ACT_F32, ACT_Q8, ACT_ROTATED_Q8, ACT_N_FORMATS } act_format;

uint64_t act_row_bytes(act_format format, int64_t width);

/*
 * The scale d of 32 values whose largest is `most`: the smallest power of two that keeps them
 * within 127. A power of two is an addition to an exponent where any other scale is a
 * multiplication, which is what limits large products (gemm_avx512vnni.c). For that, too, d stays
 * within 2^-60 ... 2^40: what is smaller than half of the former becomes 0.
 */
static inline float act_q8_scale(float most)
{
    float d = most / 127.0f;
    uint32_t bits;
    if (!(d > 0x1p-60f))
        return 0x1p-60f;
    if (d > 0x1p40f)
        return 0x1p40f;
    memcpy(&bits, &d, 4);
    bits = (bits + 0x7fffff) & 0x7f800000;
    memcpy(&d, &bits, 4);
    return d;
}

static inline const float *act_q8_scales(const void *row, int64_t width)
{
    return (const float *)((const int8_t *)row + width);
}

static inline const int16_t *act_q8_sums(const void *row, int64_t width)
{
    return (const int16_t *)(act_q8_scales(row, width) + width / 32);
}

/* ---- Workers and batches --------------------------------------------------------------------- */

typedef struct worker {
    int index, count; /* this one of that many */
    uint8_t *scratch; /* this worker's own, 64-byte aligned */
    uint64_t scratch_bytes;
    uint8_t *shared; /* of all workers together, for steps that need it; zeros at first */
    int n_more;      /* shares behind this one that are its work too; matrices only */
} worker;

/* What changes from one run of a plan to the next. Owned by the session. */
typedef struct batch {
    int32_t n_tokens;
    int32_t n_outputs;        /* tokens whose logits are wanted */
    const int32_t *tokens;    /* [n_tokens] ids */
    const int32_t *positions; /* [n_tokens] in their sequences */
    const int32_t *outputs;   /* [n_outputs] indices of tokens */
    /* Page tables: [group][token] -> the pages of the token's sequence,
     * by position / page_tokens. */
    const int32_t *const *const *pages;
} batch;

/* ---- Weights --------------------------------------------------------------------------------- */

typedef struct matmul_impl matmul_impl;
typedef struct columns_impl columns_impl; /* backend/cpu/columns.h */

/*
 * Activation sparsity: inputs of a matrix that are smaller than the threshold are taken as 0. For
 * single tokens, which then need not read the weights that meet them; for batches only where that
 * is to be measured. Matrices with the same input share one.
 */
typedef struct thinning {
    float threshold;
    bool in_batches;
} thinning;

/* A matrix of weights, y[row] = sum over col of W[row][col] x[col]. */
typedef struct weight {
    dtype type;
    int64_t n_rows, n_cols;
    const uint8_t *data;     /* file blocks, or what impl->pack made of them; tiles on a GPU */
    const matmul_impl *impl; /* how `data` lies and who multiplies with it */
    const thinning *thin;    /* of its inputs, or NULL */
    const columns_impl *columns_impl; /* who multiplies with `columns`; NULL: nobody */
    const uint8_t *columns;           /* the weights once more, for single tokens: see columns.h */
    int64_t next; /* of rows packed in passing: how far behind `data` lies what is packed next; 0 */
} weight;

/*
 * What is rounded before many tokens are multiplied: nothing; weights and activations, to 13 bits
 * of the largest near them; or weights of few bits with their scales, to 8 bits of the largest of
 * 256.
 */
typedef enum matmul_rounding { MATMUL_EXACT, MATMUL_TO_13_BITS, MATMUL_TO_BYTES } matmul_rounding;

enum { MATMUL_TILE_ROWS = 16 }; /* rows are handed out in multiples of this */

struct matmul_impl {
    const char *name;
    act_format act; /* the form of activations that `rows` reads */

    matmul_rounding rounding; /* of many tokens */

    /*
     * For blocks that stay in place: who multiplies with them when a few rows at a time have been
     * packed into scratch. NULL for all others.
     */
    const matmul_impl *panels;

    /* Size of the packed form; NULL: the file's blocks are used in place, and there is no pack. */
    uint64_t (*packed_bytes)(dtype type, int64_t n_rows, int64_t n_cols);

    /* The same for types whose size depends on the values; instead of packed_bytes. */
    uint64_t (*packed_bytes_of)(const uint8_t *blocks, int64_t n_rows);

    /*
     * Pack rows [row_begin, row_end) of the file's blocks. row_begin is a multiple of the tile,
     * row_end too or n_rows. `out` is the start of the whole packed matrix. Called in parallel.
     */
    void (*pack)(dtype type, const uint8_t *blocks, int64_t n_rows, int64_t n_cols,
                 int64_t row_begin, int64_t row_end, uint8_t *out);

    /* Scratch that `rows` needs for up to n_tokens; NULL: none. Ask matmul_scratch_bytes. */
    uint64_t (*scratch_bytes)(int64_t n_cols, int64_t n_tokens);

    /*
     * out[t * out_stride + (row - row_begin)] = W[row] . x[t], for n_tokens rows of activations
     * that are x_stride bytes apart. Row limits as for pack. Must not write outside.
     */
    void (*rows)(const weight *w, int64_t row_begin, int64_t row_end, const uint8_t *x,
                 uint64_t x_stride, int64_t n_tokens, float *out, int64_t out_stride,
                 uint8_t *scratch);
};

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef enum op {
#define X(id, name, what) OP_##id,
#include "ops/ops.def"
#undef X
    OP_COUNT
} op;

const char *op_name(op o);

/* A buffer that a step reads or writes: [rows, width]. */
typedef struct operand {
    int32_t value; /* the plan's number for it; -1: none */
    act_format format;
    int64_t width;   /* values in a row */
    uint64_t stride; /* bytes from row to row */
    uint8_t *data;   /* set when the plan's memory is placed */
} operand;

static inline float *operand_row(const operand *o, int64_t row)
{
    return (float *)(o->data + (uint64_t)row * o->stride);
}

/*
 * GLU_CLAMPED is gpt-oss's: with gate at most 7 and up in -7..7, gate * sigmoid(1.702 gate) * (up +
 * 1).
 */
typedef enum glu_kind { GLU_SILU, GLU_GELU_TANH, GLU_CLAMPED, GLU_COUNT } glu_kind;

/* One row: out[i] = act(gate[i]) * up[i]. Every level has every kind; plans refuse others. */
typedef void (*glu_row_fn)(glu_kind kind, const float *gate, const float *up, int64_t n,
                           float *out);

/* Where a layer's keys and values are. K of (page, head, position) is a row of head_dim values. */
typedef struct kv_layer {
    uint8_t *data;
    uint64_t page_bytes;         /* from one page to the next */
    uint64_t k_offset, v_offset; /* of this layer in a page */
    uint64_t row_bytes;          /* one head of one position */
    dtype type;                  /* F32, F16 or Q8_0 */
    int32_t page_tokens;         /* positions in a page: rows of one head lie together */
    int32_t n_heads, head_dim;
    int32_t group; /* which page tables of the batch */
} kv_layer;

enum { STEP_MAX_IN = 4, STEP_MAX_OUT = 3 };

typedef struct step {
    op op;
    bool is_output;       /* rows are the batch's outputs, not its tokens */
    int32_t row_factor;   /* rows for each token; 1, or experts per token */
    bool skips_barrier;   /* the next step does not depend on this one */
    int32_t layer;        /* for traces; -1 outside of layers */
    const thinning *thin; /* THIN, QUANTIZE, RMS_NORM(_QUANTIZE): of what comes out; or NULL */
    operand in[STEP_MAX_IN];
    operand out[STEP_MAX_OUT];
    union {
        struct {                  /* EMBED: -> out[0] */
            const uint8_t *table; /* file blocks */
            dtype type;
            int64_t n_rows;
            float scale;
        } embed;
        struct { /* ROPE_TABLE: -> out[0], n_dims values a row: cos, sin of each frequency */
            const float *frequencies; /* [n_dims / 2] radians per position */
            float magnitude;          /* multiplies cos and sin */
        } rope_table;
        struct { /* RMS_NORM(_QUANTIZE): in[0] -> out[0]; each row is `width / group` norms */
            const float *weight; /* [group] */
            int64_t group;       /* values that are normed together */
            float eps;
        } norm;
        struct { /* MATMUL: in[0] -> out[0]; _ADD: out[0] += ; _GROUP: in[0] -> out[0..n-1];
                    _GLU: weights 0 gate and 1 up, in[0] -> out[0]; _JOIN: sums -> out */
            const weight *weights[STEP_MAX_OUT];
            const float *biases[STEP_MAX_OUT]; /* [n_rows], or NULL */
            int n_weights;
            float scale; /* multiplies W x (not the bias) */
            glu_kind glu;
            glu_row_fn glu_row; /* the table's */
            op joins;           /* JOIN: the step whose sums it joins */
            float *sums;        /* with columns: products of parts, until they are joined */
        } matmul;
        struct { /* GLU: gate in[0], up in[1] -> out[0] */
            glu_kind kind;
        } glu;
        struct { /* ADD: out[0] += scale * in[0] */
            float scale;
        } add;
        struct { /* SOFTCAP: out[0] in place */
            float cap;
        } softcap;
        struct {                            /* ROUTE: logits in[0] -> out[0], n_used choices a row.
                                               MOE_GLU: x in[0], choices in[1] -> out[0], n_used rows a token.
                                               MOE_DOWN: n_used rows a token in[0], choices in[1], out[0] += */
            const weight *gate, *up, *down; /* [n_experts] each */
            const float *gate_bias, *up_bias; /* [n_experts, n_ff], or NULL */
            const float *down_bias;           /* [n_experts, n_embd], or NULL */
            int32_t n_experts, n_used;
            bool norms; /* weights of the chosen sum up to 1 */
            glu_kind glu;
            glu_row_fn glu_row;
            float scale;
        } moe;
        struct {             /* ROPE: in[0] table, out[0] rotated in place.
                                KV_WRITE: keys in[0], values in[1].
                                ROPE_KV: table in[0], values in[1], q out[0] in place, k out[1] in place */
            int32_t n_heads; /* of out[0] */
            int32_t head_dim;
            int32_t n_dims; /* rotated */
            bool is_neox;
            kv_layer kv;
        } rope;
        struct { /* ATTEND: q in[0] -> out[0] */
            kv_layer kv;
            int32_t n_heads;
            float scale;
            int32_t window;     /* a position sees this many, itself included; 0: all */
            float softcap;      /* scores become cap * tanh(score / cap); 0: off */
            const float *sinks; /* [n_heads] extra scores without a value, or NULL */
        } attend;
    } a;
} step;

/* How many rows the step has in this batch. */
static inline int64_t step_rows(const step *s, const batch *b)
{
    int64_t n = s->is_output ? b->n_outputs : b->n_tokens;
    return s->row_factor > 1 ? n * s->row_factor : n;
}

/* What must not be smaller to count; 0: everything counts. */
static inline float step_threshold(const step *s, const batch *b)
{
    return s->thin && (b->n_tokens == 1 || s->thin->in_batches) ? s->thin->threshold : 0;
}

typedef void (*kernel_fn)(const step *s, const batch *b, const worker *w);

/* One choice of a router: a row of a ROUTE value is n_used of them, best first. */
typedef struct expert_choice {
    int32_t expert;
    float weight;
} expert_choice;

/* ---- The table ------------------------------------------------------------------------------- */

typedef struct kernel_table {
    cpu_level level;
    kernel_fn ops[OP_COUNT];
    kernel_fn exact_attend;                   /* ATTEND without rounding of f16 and q8_0 caches */
    glu_row_fn glu_row;                       /* for MATMUL_GLU */
    const matmul_impl *packed[DTYPE_COUNT];   /* the fastest: repacked at load */
    const matmul_impl *in_place[DTYPE_COUNT]; /* from the file's blocks */
    const matmul_impl *exact[DTYPE_COUNT];    /* f32 activations, whatever the type */
    const columns_impl *columns[DTYPE_COUNT]; /* skip inputs that are 0; few types have one */
} kernel_table;

/* The table for a CPU level: plain C, then every level up to this one that the build has. */
void kernels_init(kernel_table *table, cpu_level level);

/* Whether an impl packs, and how much it takes. */
bool matmul_packs(const matmul_impl *impl);
uint64_t matmul_packed_bytes(const matmul_impl *impl, dtype type, const uint8_t *blocks,
                             int64_t n_rows, int64_t n_cols);

/* Scratch that impl->rows needs for a matrix of this type. */
uint64_t matmul_scratch_bytes(const matmul_impl *impl, dtype type, int64_t n_cols,
                              int64_t n_tokens);

/* Scratch that a step needs for each worker, for batches up to n_tokens and contexts up to
 * n_context. */
uint64_t step_scratch_bytes(const step *s, int64_t n_tokens, int64_t n_context);

/*
 * Memory that all workers of a step share: results of parts until the last worker joins them. A
 * step leaves what it counts there as it was before.
 */
uint64_t step_shared_bytes(const step *s, int64_t n_context);

/* Into how many items, of about the same size, attention for this batch can be cut. */
int64_t attend_n_items(const step *s, const batch *b);

/* What a step must move through memory for one run, for traces: weights, cache and activations. */
uint64_t step_bytes(const step *s, const batch *b);

/*
 * Matrix steps work on blocks of rows: the products of a block stay in a buffer of this size until
 * they are added, or gated, into their place.
 */
uint64_t matmul_block_bytes(int64_t n_tokens);

/* The matrix steps; the same for all levels, because the impl of each weight does the work. */
void matmul_step(const step *s, const batch *b, const worker *w);
void matmul_add_step(const step *s, const batch *b, const worker *w);
void matmul_glu_step(const step *s, const batch *b, const worker *w);
void moe_glu_step(const step *s, const batch *b, const worker *w);
void moe_down_step(const step *s, const batch *b, const worker *w);
uint64_t moe_scratch_bytes(const step *s, int64_t n_tokens);

/* Each level fills in what it has. */
void kernels_init_ref(kernel_table *table);
#if defined(__x86_64__)
void kernels_init_avx2(kernel_table *table);
void kernels_init_avx512(kernel_table *table);
#elif defined(__aarch64__)
void kernels_init_neon(kernel_table *table);
#endif

#endif
