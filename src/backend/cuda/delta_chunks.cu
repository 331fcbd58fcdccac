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

/* Of each token of a chunk: sums of the logarithms of decays, and beta. */
struct chunk_tokens {
    double sums[CHUNK_TOKENS];
    float beta[CHUNK_TOKENS];
};

/* Keys and queries, made 1 long, by row; a warp takes a token. */
static __device__ __forceinline__ void load_tokens(const gpu_delta &p, const gpu_chunk &c, int h,
                                                   float *both, chunk_tokens &tokens)
{
    const int lane = threadIdx.x & 31;
    const int key = p.is_tiled ? h % p.n_key_heads : h / (p.n_heads / p.n_key_heads);
    for (int i = threadIdx.x >> 5; i < CHUNK_TOKENS; i += WARPS) {
        const int64_t t = c.token0 + i;
        const bool is_there = i < c.n_tokens;
        const float *q_row = p.qkv + t * p.qkv_stride + key * p.k_dim;
        const float *k_row = q_row + p.n_key_heads * p.k_dim;
        float q[ROWS / 32], k[ROWS / 32], qq = 0, kk = 0;
#pragma unroll
        for (int n = 0; n < ROWS / 32; n++) {
            const int at = lane + 32 * n;
            q[n] = is_there && at < p.k_dim ? q_row[at] : 0.0f;
            k[n] = is_there && at < p.k_dim ? k_row[at] : 0.0f;
            qq += q[n] * q[n];
            kk += k[n] * k[n];
        }
        const float q_unit = rsqrtf(warp_sum(qq) + p.eps) * rsqrtf((float)p.k_dim);
        const float k_unit = rsqrtf(warp_sum(kk) + p.eps);
#pragma unroll
        for (int n = 0; n < ROWS / 32; n++) {
            both[(lane + 32 * n) * CHUNK_STRIDE + i] = k_unit * k[n];
            both[(lane + 32 * n) * CHUNK_STRIDE + CHUNK_TOKENS + i] = q_unit * q[n];
        }
        if (lane == 0) {
            const float z = is_there ? p.a[t * p.a_stride + h] + p.bias[h] : 0.0f;
            tokens.sums[i] = is_there ? p.rate[h] * (z > 30.0f ? z : log1pf(expf(z))) : 0.0f;
            tokens.beta[i] = is_there ? 1.0f / (1.0f + expf(-p.b[t * p.b_stride + h])) : 0.0f;
        }
    }
    __syncthreads();
    sum_decays(tokens.sums);
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
                    j < t ? tokens.beta[t] * left_between(tokens.sums, j, t) * sums[i][e] : 0.0f;
            else
                pair[j * CHUNK_TOKENS + t] =
                    j <= t ? left_between(tokens.sums, j, t) * sums[i][e] : 0.0f;
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
    load_tokens(p.a, c, h, both, tokens);
    multiply_keys(p.a, both, tokens, system, v.pair);
    write_sides(v, both, tokens.sums);

    /* A thread for each column of W, then for each of U. */
    const int news_stride = p.c.news_stride, column = tid - ROWS;
    const float *values = p.a.qkv + c.token0 * p.a.qkv_stride + 2 * p.a.n_key_heads * p.a.k_dim +
                          h * p.a.v_dim + column;
    if (column >= news_stride)
        return;
    float x[CHUNK_TOKENS];
#pragma unroll
    for (int i = 0; i < CHUNK_TOKENS; i++) {
        if (column < 0)
            x[i] = expf((float)tokens.sums[i]) * both[tid * CHUNK_STRIDE + i];
        else
            x[i] = i < c.n_tokens && column < p.a.v_dim ? values[i * p.a.qkv_stride] : 0.0f;
        x[i] *= tokens.beta[i];
    }
    solve(x, system);
    if (column < 0) {
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS; i += 4)
            *(float4 *)&v.rows[tid * 2 * CHUNK_TOKENS + i] =
                make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < CHUNK_TOKENS; i++)
            v.news[i * news_stride + column] = x[i];
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
