/*
 * The product of F32, F16 and BF16 matrices in tiles with float activations. Compiled once per CPU
 * level (level.h); matmul_float_type.h is the part that each type has for itself.
 *
 * A product works on two vectors of rows: two panels where a vector has 16 floats, the halves of
 * one where it has 8. One token walks several panels at once. More tokens are multiplied in parts of
 * at most LEVEL_FLOAT_TOKENS with a block of columns whose activations have been put in the order in
 * which they are used, so that the strides of rows do not fight for the same sets of the cache.
 *
 * Meanwhile the weights of the next product are fetched. A processor does not do that by itself:
 * between two lines of a panel it multiplies for longer than it looks ahead. One core of Zen 5, the
 * matrices of tales-26m in F16 from memory, GMAC/s of 133 that it can do:
 *
 *     tokens           2     4     8    12    16    23
 *     not fetched     25    41    64    77    86    93
 *     fetched         44    95   122   122   122   120
 */
#include "backend/cpu/level.h"

#include "base/numbers.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/tiles.h"

enum {
    STREAMS = 4,
    HALVES = TILE_ROWS / VW, /* vectors in a panel */
    PAIR_ROWS = 2 * VW,      /* rows of a product */
    BLOCK_TOKENS = 48 / LEVEL_FLOAT_TOKENS * LEVEL_FLOAT_TOKENS,
    BLOCK_FLOATS = 96 * 1024, /* of activations, 3/8 of an L2 cache of 1 MB */
    PAIR_PANELS = 2 / HALVES,
    PREFETCH_BYTES = 4096,
};

/* Activations of some tokens and columns: parts of at most LEVEL_FLOAT_TOKENS tokens, each [n_cols,
 * tokens]. */
typedef struct block {
    int64_t n_tokens, n_cols;
    int64_t part; /* tokens of a part; the last one may have fewer */
    const float *x;
    bool adds; /* to products of earlier columns */
} block;

/* What is wanted next, of two panels: `step` bytes of each are asked for with each column. */
typedef struct ahead {
    const uint8_t *at[2];
    int64_t step;
} ahead;

ALWAYS_INLINE void fetch(ahead *a, int64_t n_cols)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        __builtin_prefetch(a->at[i], 0, 2);
        a->at[i] += n_cols * a->step;
    }
}

/* Zen's own prefetching is better: 73 GB/s with F16 on two cores of Zen 4, else 59. */
static bool fetches_ahead(void)
{
#if defined(__x86_64__)
    return !__builtin_cpu_is("amd");
#else
    return true;
#endif
}

/* Tokens that are multiplied at once: as even as it goes, for then none wait for loads. */
static int64_t part_tokens(int64_t n_tokens)
{
    int64_t n_parts = (n_tokens + LEVEL_FLOAT_TOKENS - 1) / LEVEL_FLOAT_TOKENS;
    return (n_tokens + n_parts - 1) / n_parts;
}

/* Columns in a block of this many tokens. */
static int64_t block_cols(int64_t n_tokens, int64_t n_cols)
{
    return min_i64(n_cols, BLOCK_FLOATS / min_i64(n_tokens, BLOCK_TOKENS) / 64 * 64);
}

static uint64_t scratch_bytes(int64_t n_cols, int64_t n_tokens)
{
    int64_t n = min_i64(n_tokens, BLOCK_TOKENS);
    return n_tokens <= 1 ? 0 : 4 * (uint64_t)(n * block_cols(n, n_cols) + VW);
}

/* n tokens' rows of columns to [n_cols, n]. Writes up to VW floats behind the end. */
static void interleave(const uint8_t *x, uint64_t stride, int64_t n, int64_t n_cols, float *out,
                       ahead next)
{
    int64_t k = 0;
    for (; k + VW <= n_cols; k += VW) {
        vf rows[VW];
        for (int t = 0; t < VW; t++)
            rows[t] = v_load((const float *)(x + (uint64_t)(t < n ? t : 0) * stride) + k);
        v_transpose(rows);
        for (int i = 0; i < VW; i++) {
            fetch(&next, 1);
            v_store(out + (k + i) * n, rows[i]);
        }
    }
    for (; k < n_cols; k++)
        for (int64_t t = 0; t < n; t++)
            out[k * n + t] = ((const float *)(x + (uint64_t)t * stride))[k];
}

/* What a sum begins with: that of earlier columns, of the first n of VW rows. */
ALWAYS_INLINE vf begin(const float *y, int64_t n, bool adds)
{
    return !adds || n <= 0 ? v_set(0) : n >= VW ? v_load(y) : v_load_n(y, n);
}

ALWAYS_INLINE void finish(float *y, vf sum, int64_t n)
{
    if (n >= VW)
        v_store(y, sum);
    else if (n > 0)
        v_store_n(y, sum, n);
}

static inline vf load_f32(const uint8_t *at)
{
    return v_load((const float *)at);
}

#define FLOAT_TYPE  f32
#define FLOAT_BYTES 4
#define FLOAT_LOAD  load_f32
#include "backend/cpu/matmul_float_type.h"

#define FLOAT_TYPE  f16
#define FLOAT_BYTES 2
#define FLOAT_LOAD  v_load_f16
#include "backend/cpu/matmul_float_type.h"

#define FLOAT_TYPE  bf16
#define FLOAT_BYTES 2
#define FLOAT_LOAD  v_load_bf16
#include "backend/cpu/matmul_float_type.h"
