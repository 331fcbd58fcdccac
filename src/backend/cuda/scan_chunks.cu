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

/* Of each token of a chunk: sums of the logarithms of decays, and the step of time. */
struct chunk_tokens {
    double sums[CHUNK_TOKENS];
    float dt[CHUNK_TOKENS];
};

static __device__ __forceinline__ float time_step(const gpu_scan &p, int64_t t, int head)
{
    const float x = p.dt[t * p.dt_stride + head] + p.dt_bias[head];
    const float dt = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    return fminf(fmaxf(dt, p.dt_min), p.dt_max);
}

/* b and c of the head's group, by row of the state; a warp takes a token. */
template <int ROWS>
static __device__ __forceinline__ void load_tokens(const gpu_scan &p, const gpu_chunk &c, int head,
                                                   float *both, chunk_tokens &tokens)
{
    const int lane = threadIdx.x & 31, group = head / p.group_heads * p.n_state;
    for (int i = threadIdx.x >> 5; i < CHUNK_TOKENS; i += WARPS) {
        const int64_t t = c.token0 + i;
        const bool is_there = i < c.n_tokens;
#pragma unroll
        for (int row = lane; row < ROWS; row += 32) {
            const bool is_row = is_there && row < p.n_state;
            both[row * CHUNK_STRIDE + i] = is_row ? p.b[t * p.b_stride + group + row] : 0.0f;
            both[row * CHUNK_STRIDE + CHUNK_TOKENS + i] =
                is_row ? p.c[t * p.c_stride + group + row] : 0.0f;
        }
        if (lane == 0) {
            tokens.dt[i] = is_there ? time_step(p, t, head) : 0.0f;
            tokens.sums[i] = tokens.dt[i] * p.a[head];
        }
    }
    __syncthreads();
    sum_decays(tokens.sums);
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
    load_tokens<ROWS>(p.a, c, head, both, tokens);

    const int row = 4 * (threadIdx.x / 16), col = 4 * (threadIdx.x % 16);
    float sums[4][4] = {};
    multiply(sums, both + CHUNK_TOKENS + row, CHUNK_STRIDE, both + col, CHUNK_STRIDE, p.a.n_state);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = row + i, j = col + e;
            v.pair[j * CHUNK_TOKENS + t] =
                j <= t ? left_between(tokens.sums, j, t) * sums[i][e] : 0.0f;
        }
    write_sides(v, both, tokens.sums);

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
