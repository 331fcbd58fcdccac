/*
 * State spaces for prompts, in chunks. With the decays d[i] of a chunk's tokens, D[i][j] = d[j + 1]
 * ... d[i] and c[i] = d[0] ... d[i], and S the state before the chunk,
 *
 *     out[i] = c[i] C[i] S + sum over j <= i of D[i][j] (C[i] B[j]) dt[j] x[j] + D x[i]
 *
 * (Dao and Gu, "Transformers are SSMs", 2024). What a token adds needs no state.
 */
#include "backend/cuda/chunks.cuh"
#include "backend/cuda/rows.cuh"

enum { WARPS = CHUNK_THREADS / 32 };

/* Of each token of a chunk: what it leaves of the past, and the step of time. */
struct chunk_tokens {
    chunk_decays decays;
    float dt[CHUNK_TOKENS];
};

static __device__ __forceinline__ float time_step(const gpu_scan &p, int64_t t, int head)
{
    const float x = p.dt[t * p.dt_stride + head] + p.dt_bias[head];
    const float dt = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    return fminf(fmaxf(dt, p.dt_min), p.dt_max);
}

static __device__ __forceinline__ void load_rates(const gpu_scan &p, const gpu_chunk &c, int head,
                                                  chunk_tokens &tokens)
{
    const int i = threadIdx.x;
    double decay = 0;
    if (i < CHUNK_TOKENS) {
        tokens.dt[i] = i < c.n_tokens ? time_step(p, c.token0 + i, head) : 0.0f;
        decay = tokens.dt[i] * p.a[head];
    }
    sum_decays(tokens.decays, decay);
}

/* Rows of b or c of the head's group, by row of the state; a warp takes four tokens at a time. */
template <int ROWS>
static __device__ __forceinline__ void load_side(const float *from, int64_t stride, int n_state,
                                                 int n_tokens, float *to)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 4 * (threadIdx.x >> 5); i < CHUNK_TOKENS; i += 4 * WARPS) {
        float x[4][ROWS / 32];
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int n = 0; n < ROWS / 32; n++) {
                const int row = lane + 32 * n;
                x[j][n] = i + j < n_tokens && row < n_state ? from[(i + j) * stride + row] : 0.0f;
            }
#pragma unroll
        for (int n = 0; n < ROWS / 32; n++)
            *(float4 *)&to[(lane + 32 * n) * CHUNK_STRIDE + i] =
                make_float4(x[0][n], x[1][n], x[2][n], x[3][n]);
    }
}

/* blockIdx.x: which chunk, blockIdx.y: which head. */
template <int ROWS> static __device__ __forceinline__ void make_chunks(const gpu_scan_chunks &p)
{
    extern __shared__ __align__(16) float both[];
    __shared__ chunk_tokens tokens;
    launch_next();
    wait_previous();
    const gpu_chunk c = p.c.chunks[blockIdx.x];
    const int head = blockIdx.y;
    const chunk_view<ROWS, false> v(p.c, blockIdx.x, head);
    const int group = head / p.a.group_heads * p.a.n_state;
    load_rates(p.a, c, head, tokens);
    load_side<ROWS>(p.a.b + c.token0 * p.a.b_stride + group, p.a.b_stride, p.a.n_state, c.n_tokens,
                    both);
    load_side<ROWS>(p.a.c + c.token0 * p.a.c_stride + group, p.a.c_stride, p.a.n_state, c.n_tokens,
                    both + CHUNK_TOKENS);
    __syncthreads();

    const int row = 4 * (threadIdx.x / 16), col = 4 * (threadIdx.x % 16);
    float sums[4][4] = {};
    multiply(sums, both + CHUNK_TOKENS + row, CHUNK_STRIDE, both + col, CHUNK_STRIDE, p.a.n_state);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = row + i, j = col + e;
            v.pair[j * CHUNK_TOKENS + t] =
                j <= t ? left_between(tokens.decays, j, t) * sums[i][e] : 0.0f;
        }
    write_sides(v, both, tokens.decays);

    const int news_stride = p.c.news_stride;
    for (int i = threadIdx.x; i < CHUNK_TOKENS * news_stride; i += CHUNK_THREADS) {
        const int t = i / news_stride, column = i % news_stride;
        v.news[i] =
            t < c.n_tokens && column < p.a.head_dim
                ? tokens.dt[t] * p.a.x[(c.token0 + t) * p.a.x_stride + head * p.a.head_dim + column]
                : 0.0f;
    }
}

/* blockIdx.x: which head, y: which 32 columns of it, z: which slot. */
template <int ROWS> static __device__ __forceinline__ void run(const gpu_scan_chunks &p)
{
    launch_next();
    wait_previous();
    run_chunks<ROWS, false>(p.c, p.a.state, p.a.slot_floats,
                            {p.a.out, p.a.out_stride, p.a.x, p.a.x_stride, p.a.d[blockIdx.x]});
}

/* For states of up to 128 and 256 rows. */
#define SCAN_CHUNKS(rows)                                                                          \
    extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)                                    \
        scan_make_chunks_##rows(const __grid_constant__ gpu_scan_chunks p)                         \
    {                                                                                              \
        make_chunks<rows>(p);                                                                      \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)                                    \
        scan_run_chunks_##rows(const __grid_constant__ gpu_scan_chunks p)                          \
    {                                                                                              \
        run<rows>(p);                                                                              \
    }
SCAN_CHUNKS(128)
SCAN_CHUNKS(256)
