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

#include "base/cpu.h"
#include "ops/step.h"

/* Rows are handed out in multiples of tiles. Up to so many tokens, memory sets the pace. */
enum { MATMUL_TILE_ROWS = 16, MATMUL_FEW_TOKENS = 16 };

/* ---- Workers --------------------------------------------------------------------------------- */

typedef struct worker {
    int index, count; /* this one of that many */
    uint8_t *scratch; /* this worker's own, 64-byte aligned */
    uint64_t scratch_bytes;
    uint8_t *shared; /* of all workers together, for steps that need it; zeros at first */
    int n_more;      /* shares behind this one that are its work too; matrices only */
} worker;

/* ---- Weights --------------------------------------------------------------------------------- */

/*
 * What is rounded before many tokens are multiplied: nothing; weights and activations, to 13 bits
 * of the largest near them; or weights of few bits with their scales, to 8 bits of the largest of
 * 256.
 */
typedef enum matmul_rounding { MATMUL_EXACT, MATMUL_TO_13_BITS, MATMUL_TO_BYTES } matmul_rounding;

enum { MATMUL_SAME_ALWAYS = INT32_MAX }; /* for same_tokens */

struct matmul_impl {
    const char *name;
    act_format act; /* the form of activations that `rows` reads */

    matmul_rounding rounding; /* of many tokens */

    /*
     * What comes of a token is the same to the bit in batches of up to so many; 0: where it is alone.
     * Ask matmul_same_tokens.
     */
    int32_t same_tokens;

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

/* ---- The table ------------------------------------------------------------------------------- */

typedef void (*kernel_fn)(const step *s, const batch *b, const worker *w);

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

/* See matmul_impl. */
int32_t matmul_same_tokens(const matmul_impl *impl);

/* Tokens of a batch up to which what the step makes of one does not depend on the others. */
int32_t step_same_tokens(const step *s);

/*
 * Memory that all workers of a step share: results of parts until the last worker joins them. A
 * step leaves what it counts there as it was before.
 */
uint64_t step_shared_bytes(const step *s, int64_t n_context);

/* Into how many items, of about the same size, attention for this batch can be cut. */
int64_t attend_n_items(const step *s, const batch *b);

/*
 * Matrix steps work on blocks of rows: the products of a block stay in a buffer of this size until
 * they are added, or gated, into their place.
 */
uint64_t matmul_block_bytes(int64_t n_tokens);

uint64_t moe_scratch_bytes(const step *s, int64_t n_tokens);

/* Into how many pieces a step of experts is cut for a batch of MATMUL_FEW_TOKENS at most. */
int64_t moe_n_pieces(const step *s, const batch *b, int n_workers);

/* MATMUL_HEADS: who brings rows into a form; and its scratch. */
step_fn heads_form(const kernel_table *table, act_format act);
uint64_t heads_scratch_bytes(const step *s, int64_t n_tokens);

/* A product of one head's matrix: out[n, w->n_rows] = rows[n, w->n_cols], and its scratch. */
void heads_product(const weight *w, step_fn form, const float *rows, int64_t n, float *out,
                   uint8_t *scratch);
uint64_t heads_product_bytes(const weight *w, int64_t n);

/* Each level fills in what it has. */
void kernels_init_ref(kernel_table *table);
#if defined(__x86_64__)
void kernels_init_avx2(kernel_table *table);
void kernels_init_avx512(kernel_table *table);
#elif defined(__aarch64__)
void kernels_init_neon(kernel_table *table);
#endif

#endif
