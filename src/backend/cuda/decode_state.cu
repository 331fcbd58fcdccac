/*
 * One token: what layers without attention remember. A block has 32 columns of a head's state, a
 * warp of it an eighth of the rows, which are on their way before the kernel in front has ended:
 * they are of the token before.
 */
#include "backend/cuda/decode_common.cuh"

enum { ROWS = DECODE_STATE_ROWS / DECODE_STATE_WARPS };

/* This thread's rows of the state, in registers. */
struct state_rows {
    float *at;
    float s[ROWS];
    int first, n, step; /* rows of the state; floats from one to the next */

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            s[i] = i < n ? __ldcg(at + (int64_t)i * step) : 0.0f;
    }

    __device__ __forceinline__ void store() const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (i < n)
                at[(int64_t)i * step] = s[i];
    }
};

/* Column c of a matrix [n_rows, n_columns]; nothing if there is no such column. */
__device__ __forceinline__ state_rows rows_of(float *matrix, int n_rows, int n_columns, int c)
{
    const int warp = threadIdx.x >> 5,
              each = (n_rows + DECODE_STATE_WARPS - 1) / DECODE_STATE_WARPS;
    state_rows r;
    r.first = warp * each;
    r.n = c < n_columns ? max(0, min(each, n_rows - r.first)) : 0;
    r.step = n_columns;
    r.at = matrix + (int64_t)r.first * n_columns + c;
    return r;
}

/* The sum of all warps for each of 32 columns. */
__device__ __forceinline__ float sum_of_warps(const float parts[DECODE_STATE_WARPS][32])
{
    float sum = 0;
#pragma unroll
    for (int w = 0; w < DECODE_STATE_WARPS; w++)
        sum += parts[w][threadIdx.x & 31];
    return sum;
}

/* SCAN of ops/step.h. */
extern "C" __global__ void __launch_bounds__(32 * DECODE_STATE_WARPS)
    decode_scan_kernel(const __grid_constant__ gpu_scan p)
{
    __shared__ float parts[DECODE_STATE_WARPS][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.x;
    const int column = blockIdx.y * 32 + lane;
    let_next_begin();
    const int slot = __ldcg(p.sequences);
    state_rows r = rows_of(p.state + slot * p.slot_floats + (int64_t)head * p.n_state * p.head_dim,
                           p.n_state, p.head_dim, column);
    r.load();
    const float a = p.a[head], d = p.d[head], dt_bias = p.dt_bias[head];
    wait_for_last();
    const float z = __ldcg(p.dt + head) + dt_bias;
    float dt = fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z)));
    dt = fminf(fmaxf(dt, p.dt_min), p.dt_max);
    const bool is_in = column < p.head_dim;
    const float x = is_in ? __ldcg(p.x + head * p.head_dim + column) : 0.0f, decay = expf(dt * a);
    const int64_t group = (int64_t)(head / p.group_heads) * p.n_state + r.first;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (i < r.n) {
            r.s[i] = r.s[i] * decay + __ldcg(p.b + group + i) * (dt * x);
            sum += __ldcg(p.c + group + i) * r.s[i];
        }
    parts[warp][lane] = sum;
    r.store();
    __syncthreads();
    if (warp == 0 && is_in)
        p.out[head * p.head_dim + column] = d * x + sum_of_warps(parts);
}

/* DELTA of ops/step.h. Every warp makes the lengths of q and k 1 by itself. */
extern "C" __global__ void __launch_bounds__(32 * DECODE_STATE_WARPS)
    decode_delta_kernel(const __grid_constant__ gpu_delta p)
{
    __shared__ float seen[DECODE_STATE_WARPS][32], sums[DECODE_STATE_WARPS][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, h = blockIdx.x;
    const int c = blockIdx.y * 32 + lane;
    const int key = p.is_tiled ? h % p.n_key_heads : h / (p.n_heads / p.n_key_heads);
    let_next_begin();
    const int slot = __ldcg(p.sequences);
    state_rows r =
        rows_of((float *)(p.state + (uint64_t)slot * p.slot_bytes) + (int64_t)h * p.k_dim * p.v_dim,
                p.k_dim, p.v_dim, c);
    r.load();
    const float rate = p.rate[h], bias = p.bias[h];
    wait_for_last();
    const float *q = p.qkv + key * p.k_dim, *k = q + p.n_key_heads * p.k_dim;
    const float v =
        c < p.v_dim ? __ldcg(p.qkv + 2 * p.n_key_heads * p.k_dim + h * p.v_dim + c) : 0.0f;
    const float z = __ldcg(p.a + h) + bias, b = __ldcg(p.b + h);
    float own_q[ROWS], own_k[ROWS], qq = 0, kk = 0, qk = 0, from_k = 0, from_q = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        own_q[i] = i < r.n ? __ldcg(q + r.first + i) : 0.0f;
        own_k[i] = i < r.n ? __ldcg(k + r.first + i) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < DECODE_STATE_ROWS; i += 32) {
        const bool is_in = i + lane < p.k_dim;
        const float q_i = is_in ? __ldcg(q + i + lane) : 0.0f;
        const float k_i = is_in ? __ldcg(k + i + lane) : 0.0f;
        qq += q_i * q_i;
        kk += k_i * k_i;
        qk += q_i * k_i;
    }
    const float q_unit = rsqrtf(warp_sum(qq) + p.eps) * rsqrtf((float)p.k_dim);
    const float k_unit = rsqrtf(warp_sum(kk) + p.eps);
    qk = warp_sum(qk) * q_unit * k_unit;
    const float decay = expf(rate * (z > 30.0f ? z : log1pf(expf(z))));
    const float beta = 1.0f / (1.0f + expf(-b));
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        from_k += own_k[i] * r.s[i];
        from_q += own_q[i] * r.s[i];
    }
    seen[warp][lane] = from_k;
    sums[warp][lane] = from_q;
    __syncthreads();
    const float learned = beta * (v - decay * k_unit * sum_of_warps(seen));
    if (warp == 0 && c < p.v_dim)
        p.out[h * p.v_dim + c] = decay * q_unit * sum_of_warps(sums) + qk * learned;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        r.s[i] = decay * r.s[i] + k_unit * own_k[i] * learned;
    r.store();
}
