/*
 * Recurrent layers of prompts in chunks (chunk_params.h): what the kernels of the delta rule and of
 * state spaces share. All is f32: the products of a chunk are small, and a state is to be as exact
 * as if its tokens had come one by one.
 */
#ifndef LACE_KERNELS_CUDA_CHUNKS_CUH
#define LACE_KERNELS_CUDA_CHUNKS_CUH

#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/chunk_params.h"

/* The parts of a chunk of a head. */
template <int ROWS, bool IS_DELTA> struct chunk_view {
    float *rows, *keys, *pair, *news, *left;

    __device__ __forceinline__ chunk_view(const gpu_chunks &c, int chunk, int head)
    {
        rows = c.memory + ((int64_t)chunk * c.n_heads + head) * c.floats;
        keys = rows + ROWS * CHUNK_TOKENS * (IS_DELTA ? 2 : 1);
        pair = keys + ROWS * CHUNK_TOKENS;
        news = pair + CHUNK_TOKENS * CHUNK_TOKENS;
        left = news + CHUNK_TOKENS * c.news_stride;
    }
};

/* ---- Copies to shared memory ----------------------------------------------------------------- */

static __device__ __forceinline__ void bring(float *to, const float *from, int n_floats)
{
    for (int i = 4 * threadIdx.x; i < n_floats; i += 4 * CHUNK_THREADS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_u32(to + i)),
                     "l"(from + i)
                     : "memory");
}

static __device__ __forceinline__ void wait_brought(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
}

/* ---- Small products -------------------------------------------------------------------------- */

/* sums += a b, where a is [depth][a_stride] and b [depth][b_stride], of N_A and 4 values of each. */
template <int N_A>
static __device__ __forceinline__ void multiply(float (&sums)[N_A][4], const float *a, int a_stride,
                                                const float *b, int b_stride, int depth)
{
#pragma unroll 8
    for (int k = 0; k < depth; k++) {
        float x[N_A];
#pragma unroll
        for (int i = 0; i < N_A; i += 4)
            *(float4 *)&x[i] = *(const float4 *)(a + k * a_stride + i);
        const float4 y = *(const float4 *)(b + k * b_stride);
#pragma unroll
        for (int i = 0; i < N_A; i++) {
            sums[i][0] = fmaf(x[i], y.x, sums[i][0]);
            sums[i][1] = fmaf(x[i], y.y, sums[i][1]);
            sums[i][2] = fmaf(x[i], y.z, sums[i][2]);
            sums[i][3] = fmaf(x[i], y.w, sums[i][3]);
        }
    }
}

/* ---- Chunk after chunk ----------------------------------------------------------------------- */

/* Where results go, and what those of state spaces get from what came in: out = ... + share * x. */
struct chunk_result {
    float *out;
    int64_t out_stride;
    const float *x;
    int64_t x_stride;
    float share;
};

/* 4 tokens of a chunk and 4 columns of this block's head, where there are so many. */
static __device__ __forceinline__ void load_inputs(float (&x)[4][4], const gpu_chunks &c,
                                                   const chunk_result &to, int chunk, int token,
                                                   int column)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[i][e] = token + i < c.chunks[chunk].n_tokens && column + e < c.n_cols
                          ? to.x[(c.chunks[chunk].token0 + token + i) * to.x_stride +
                                 (int64_t)blockIdx.x * c.n_cols + column + e]
                          : 0.0f;
}

static __device__ __forceinline__ void store_results(const float (&x)[4][4], const gpu_chunks &c,
                                                     const chunk_result &to, int chunk, int token,
                                                     int column)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (token + i < c.chunks[chunk].n_tokens && column + e < c.n_cols)
                to.out[(c.chunks[chunk].token0 + token + i) * to.out_stride +
                       (int64_t)blockIdx.x * c.n_cols + column + e] = x[i][e];
}

/*
 * 32 columns of the state of a head of one slot, for all chunks of that slot. The first half of the
 * threads has the state in registers, 4 columns each, and a copy of it in shared memory for all. In
 * a chunk all multiply it with rows; then the second half makes results and the first the new
 * state. What is needed next comes meanwhile.
 */
template <int ROWS, bool IS_DELTA>
static __device__ __forceinline__ void run_chunks(const gpu_chunks &c, float *states,
                                                  int64_t slot_floats, chunk_result to)
{
    constexpr int HALF = CHUNK_THREADS / 2, WIDE = CHUNK_TOKENS * (IS_DELTA ? 2 : 1);
    constexpr int MINE = ROWS / 16; /* rows of the state in a thread's registers */
    extern __shared__ __align__(16) float shared[];
    float *rows = shared, *keys = rows + ROWS * WIDE, *pair = keys + ROWS * CHUNK_TOKENS;
    float *state = pair + CHUNK_TOKENS * CHUNK_TOKENS, *news = state + ROWS * CHUNK_COLUMNS;
    const int tid = threadIdx.x, head = blockIdx.x, slot = blockIdx.z;
    const bool has_state = tid < HALF;
    const int col = 4 * (tid % 8), at = tid % HALF / 8;   /* 16 groups of rows, or of 4 tokens */
    const int column0 = blockIdx.y * CHUNK_COLUMNS + col; /* of the head */
    int chunk = c.first[slot];
    float *held = states + c.chunks[chunk].slot * slot_floats + (int64_t)head * c.n_rows * c.n_cols;
    float s[MINE][4];
    bring(rows, chunk_view<ROWS, IS_DELTA>(c, chunk, head).rows, ROWS * WIDE);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const int row = MINE * at + i;
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[i][e] = has_state && row < c.n_rows && column0 + e < c.n_cols
                          ? held[(int64_t)row * c.n_cols + column0 + e]
                          : 0.0f;
        if (has_state)
            *(float4 *)&state[row * CHUNK_COLUMNS + col] = *(float4 *)s[i];
    }
    for (; chunk < c.first[slot + 1]; chunk++) {
        const chunk_view<ROWS, IS_DELTA> v(c, chunk, head);
        wait_brought();
        bring(keys, v.keys, ROWS * CHUNK_TOKENS);
        bring(pair, v.pair, CHUNK_TOKENS * CHUNK_TOKENS);
        /* What comes from memory is asked for before there is anything to do. */
        const float left = *v.left;
        float sums[4][4] = {}, ready[4][4];
        if (has_state) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(float4 *)ready[i] =
                    *(const float4 *)(v.news + (4 * at + i) * c.news_stride + column0);
        } else if (!IS_DELTA) {
            load_inputs(ready, c, to, chunk, 4 * at, column0);
        }
        if (IS_DELTA || !has_state)
            multiply(sums, rows + 4 * (IS_DELTA ? tid / 8 : at), WIDE, state + col, CHUNK_COLUMNS,
                     ROWS);
        if (has_state) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(float4 *)&news[(4 * at + i) * CHUNK_COLUMNS + col] =
                    make_float4(ready[i][0] - sums[i][0], ready[i][1] - sums[i][1],
                                ready[i][2] - sums[i][2], ready[i][3] - sums[i][3]);
        }
        wait_brought(); /* rows and the state's copy are free */
        if (chunk + 1 < c.first[slot + 1])
            bring(rows, chunk_view<ROWS, IS_DELTA>(c, chunk + 1, head).rows, ROWS * WIDE);
        if (has_state) {
#pragma unroll
            for (int i = 0; i < MINE; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[i][e] *= left;
            multiply(s, keys + MINE * at, ROWS, news + col, CHUNK_COLUMNS, CHUNK_TOKENS);
#pragma unroll
            for (int i = 0; i < MINE; i++)
                *(float4 *)&state[(MINE * at + i) * CHUNK_COLUMNS + col] = *(float4 *)s[i];
        } else {
            /* No token sees what comes behind it. */
            multiply(sums, pair + 4 * at, CHUNK_TOKENS, news + col, CHUNK_COLUMNS, 4 * at + 4);
            if (!IS_DELTA) {
#pragma unroll
                for (int i = 0; i < 16; i++)
                    sums[i / 4][i % 4] += to.share * ready[i / 4][i % 4];
            }
            store_results(sums, c, to, chunk, 4 * at, column0);
        }
    }
    if (!has_state)
        return;
#pragma unroll
    for (int i = 0; i < MINE; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (MINE * at + i < c.n_rows && column0 + e < c.n_cols)
                held[(int64_t)(MINE * at + i) * c.n_cols + column0 + e] = s[i][e];
}

/* ---- What a chunk is by itself --------------------------------------------------------------- */

/* Keys and queries lie by row of the state, [row][keys of all tokens, queries of all tokens]. */
enum { CHUNK_STRIDE = 2 * CHUNK_TOKENS + 4 };

/*
 * What is left of the state from the beginning of the chunk to each token, and from each to the
 * end. Logarithms of what is left are doubles: between two tokens they are a difference of sums
 * that may be large.
 */
struct chunk_decays {
    double sums[CHUNK_TOKENS];
    float left[CHUNK_TOKENS], to_end[CHUNK_TOKENS];
};

/* mine: of the token that a thread of the first ones has, the logarithm. For all threads. */
static __device__ __forceinline__ void sum_decays(chunk_decays &d, double mine)
{
    const int tid = threadIdx.x, lane = tid & 31;
    static_assert(CHUNK_TOKENS == 64, "two warps have a token in each lane");
    if (tid < CHUNK_TOKENS) {
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const double before = __shfl_up_sync(~0u, mine, o);
            mine += lane >= o ? before : 0.0;
        }
        d.sums[tid] = mine;
    }
    __syncthreads();
    if (tid >= 32 && tid < CHUNK_TOKENS)
        d.sums[tid] = mine + d.sums[31];
    __syncthreads();
    if (tid < CHUNK_TOKENS) {
        d.left[tid] = expf((float)d.sums[tid]);
        d.to_end[tid] = expf((float)(d.sums[CHUNK_TOKENS - 1] - d.sums[tid]));
    }
    __syncthreads();
}

static __device__ __forceinline__ float left_between(const chunk_decays &d, int from, int to)
{
    return expf((float)(d.sums[to] - d.sums[from]));
}

/* Queries as they are to meet the state before the chunk, and keys as its end has them. */
template <int ROWS, bool IS_DELTA>
static __device__ __forceinline__ void write_sides(const chunk_view<ROWS, IS_DELTA> &v,
                                                   const float *both, const chunk_decays &d)
{
    constexpr int WIDE = CHUNK_TOKENS * (IS_DELTA ? 2 : 1);
    for (int i = threadIdx.x; i < ROWS * CHUNK_TOKENS; i += CHUNK_THREADS) {
        const int row = i / CHUNK_TOKENS, t = i % CHUNK_TOKENS;
        v.rows[row * WIDE + WIDE - CHUNK_TOKENS + t] =
            both[row * CHUNK_STRIDE + CHUNK_TOKENS + t] * d.left[t];
    }
    for (int i = threadIdx.x; i < ROWS * CHUNK_TOKENS; i += CHUNK_THREADS) {
        const int t = i / ROWS, row = i % ROWS;
        v.keys[i] = both[row * CHUNK_STRIDE + t] * d.to_end[t];
    }
    if (threadIdx.x == 0)
        *v.left = d.left[CHUNK_TOKENS - 1];
}

#endif
