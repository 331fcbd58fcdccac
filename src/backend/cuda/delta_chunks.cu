/*
 * The gated delta rule for prompts, in chunks. With the decays d[i] of a chunk's tokens, D[i][j] =
 * d[j + 1] ... d[i] and c[i] = d[0] ... d[i], what a token adds is
 *
 *     new[i] = beta[i] (v[i] - c[i] k[i] S - sum over j < i of D[i][j] (k[i] k[j]) new[j])
 *
 * with S the state before the chunk. So new = U - W S, where U and W solve the same system for the
 * right sides beta v and beta c k: they need no state, and are made for all chunks at once (Yang,
 * Wang, Zhang, Shen and Kim, "Parallelizing Linear Transformers with the Delta Rule over Sequence
 * Length", 2024).
 */
#include "backend/cuda/chunks.cuh"
#include "backend/cuda/rows.cuh"

enum { WARPS = CHUNK_THREADS / 32, ROWS = CHUNK_DELTA_ROWS };

/* Of each token of a chunk: what it leaves of the past, and beta. */
struct chunk_tokens {
    chunk_decays decays;
    float beta[CHUNK_TOKENS];
};

static __device__ __forceinline__ void load_rates(const gpu_delta &p, const gpu_chunk &c, int h,
                                                  chunk_tokens &tokens)
{
    const int i = threadIdx.x;
    double decay = 0;
    if (i < CHUNK_TOKENS) {
        const int64_t t = c.token0 + i;
        const bool is_there = i < c.n_tokens;
        const float z = is_there ? p.a[t * p.a_stride + h] + p.bias[h] : 0.0f;
        decay = is_there ? p.rate[h] * (z > 30.0f ? z : log1pf(expf(z))) : 0.0f;
        tokens.beta[i] = is_there ? 1.0f / (1.0f + expf(-p.b[t * p.b_stride + h])) : 0.0f;
    }
    sum_decays(tokens.decays, decay);
}

/* One half of four tokens, made `length` long and put beside each other, by row. */
static __device__ __forceinline__ void put_four(float (&x)[4][ROWS / 32], float length, float eps,
                                                float *to)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float squares = 0;
#pragma unroll
        for (int n = 0; n < ROWS / 32; n++)
            squares += x[j][n] * x[j][n];
        const float unit = rsqrtf(warp_sum(squares) + eps) * length;
#pragma unroll
        for (int n = 0; n < ROWS / 32; n++)
            x[j][n] *= unit;
    }
#pragma unroll
    for (int n = 0; n < ROWS / 32; n++)
        *(float4 *)&to[(lane + 32 * n) * CHUNK_STRIDE] =
            make_float4(x[0][n], x[1][n], x[2][n], x[3][n]);
}

/* Keys and queries, made 1 long, by row; a warp takes four tokens at a time. */
static __device__ __forceinline__ void load_tokens(const gpu_delta &p, const gpu_chunk &c, int h,
                                                   float *both)
{
    const int lane = threadIdx.x & 31;
    const int key = p.is_tiled ? h % p.n_key_heads : h / (p.n_heads / p.n_key_heads);
#pragma unroll
    for (int i = 4 * (threadIdx.x >> 5); i < CHUNK_TOKENS; i += 4 * WARPS) {
        float q[4][ROWS / 32], k[4][ROWS / 32];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float *row = p.qkv + (c.token0 + i + j) * p.qkv_stride + key * p.k_dim;
#pragma unroll
            for (int n = 0; n < ROWS / 32; n++) {
                const int at = lane + 32 * n;
                const bool is_there = i + j < c.n_tokens && at < p.k_dim;
                q[j][n] = is_there ? row[at] : 0.0f;
                k[j][n] = is_there ? row[p.n_key_heads * p.k_dim + at] : 0.0f;
            }
        }
        put_four(k, 1.0f, p.eps, both + i);
        put_four(q, rsqrtf((float)p.k_dim), p.eps, both + CHUNK_TOKENS + i);
    }
    __syncthreads();
}

/* All keys with all keys, for the system; all queries with all keys, for the results. */
static __device__ __forceinline__ void multiply_keys(const gpu_delta &p, const float *both,
                                                     const chunk_tokens &tokens, float *system,
                                                     float *pair)
{
    const int group = threadIdx.x / 16, col = 4 * (threadIdx.x % 16);
    float sums[8][4] = {};
    multiply(sums, both + 8 * group, CHUNK_STRIDE, both + col, CHUNK_STRIDE, p.k_dim);
    const int row = 8 * (group % 8);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int t = row + i, j = col + e;
            if (group < 8)
                system[t * CHUNK_TOKENS + j] =
                    j < t ? tokens.beta[t] * left_between(tokens.decays, j, t) * sums[i][e] : 0.0f;
            else
                pair[j * CHUNK_TOKENS + t] =
                    j <= t ? left_between(tokens.decays, j, t) * sums[i][e] : 0.0f;
        }
    __syncthreads();
}

/* x = b - system x, from the first token to the last. */
static __device__ __forceinline__ void solve(float (&x)[CHUNK_TOKENS], const float *system)
{
#pragma unroll
    for (int i = 1; i < CHUNK_TOKENS; i++) {
#pragma unroll
        for (int j = 0; j < i; j += 4) {
            const float4 a = *(const float4 *)&system[i * CHUNK_TOKENS + j];
            x[i] = fmaf(-a.x, x[j], x[i]);
            if (j + 1 < i)
                x[i] = fmaf(-a.y, x[j + 1], x[i]);
            if (j + 2 < i)
                x[i] = fmaf(-a.z, x[j + 2], x[i]);
            if (j + 3 < i)
                x[i] = fmaf(-a.w, x[j + 3], x[i]);
        }
    }
}

/* blockIdx.x: which chunk, blockIdx.y: which head. */
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)
    delta_make_chunks(const __grid_constant__ gpu_delta_chunks p)
{
    extern __shared__ __align__(16) float both[];
    __shared__ __align__(16) float system[CHUNK_TOKENS * CHUNK_TOKENS];
    __shared__ chunk_tokens tokens;
    launch_next();
    wait_previous();
    const gpu_chunk c = p.c.chunks[blockIdx.x];
    const int h = blockIdx.y, tid = threadIdx.x;
    const chunk_view<ROWS, true> v(p.c, blockIdx.x, h);
    load_rates(p.a, c, h, tokens);
    load_tokens(p.a, c, h, both);
    multiply_keys(p.a, both, tokens, system, v.pair);
    write_sides(v, both, tokens.decays);

    /* A thread for each column of W, then for each of U. */
    const int column = tid - ROWS;
    const float *values = p.a.qkv + c.token0 * p.a.qkv_stride + 2 * p.a.n_key_heads * p.a.k_dim +
                          h * p.a.v_dim + column;
    float x[CHUNK_TOKENS];
#pragma unroll
    for (int i = 0; i < CHUNK_TOKENS; i += 4) {
        if (column < 0)
            *(float4 *)&x[i] = *(const float4 *)&both[tid * CHUNK_STRIDE + i];
#pragma unroll
        for (int e = i; e < i + 4; e++) {
            const bool is_there = column >= 0 && e < c.n_tokens && column < p.a.v_dim;
            x[e] = column < 0 ? tokens.decays.left[e] * x[e]
                   : is_there ? values[e * p.a.qkv_stride]
                              : 0.0f;
            x[e] *= tokens.beta[e];
        }
    }
    solve(x, system);
    __syncthreads(); /* the keys are not read any more */
#pragma unroll
    for (int i = 0; i < CHUNK_TOKENS; i += 4) {
        if (column < 0)
            *(float4 *)&both[tid * CHUNK_STRIDE + i] =
                make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
    if (column >= 0 && column < p.c.news_stride) {
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS; i++)
            v.news[i * p.c.news_stride + column] = x[i];
    }
    __syncthreads();
    for (int i = tid; i < ROWS * CHUNK_TOKENS; i += CHUNK_THREADS) {
        const int row = i / CHUNK_TOKENS, t = i % CHUNK_TOKENS;
        v.rows[row * 2 * CHUNK_TOKENS + t] = both[row * CHUNK_STRIDE + t];
    }
}

/* blockIdx.x: which head, y: which 32 columns of it, z: which slot. */
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS)
    delta_run_chunks(const __grid_constant__ gpu_delta_chunks p)
{
    launch_next();
    wait_previous();
    run_chunks<ROWS, true>(p.c, (float *)p.a.state, (int64_t)(p.a.slot_bytes / 4),
                           {p.a.out, p.a.out_stride, nullptr, 0, 0.0f});
}
