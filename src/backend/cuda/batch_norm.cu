/* Rows of a batch between two products: sums of parts, norms, atoms, rotations. */
#include "backend/cuda/bytes_common.cuh"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/small_batch_common.cuh"
#include "backend/cuda/rows.cuh"

enum { NORM_THREADS = 512, NORM_VALUES = 8 * NORM_THREADS, NORM_ROUNDS = 4 };

static __device__ __forceinline__ void add8(float (&v)[8], const float *from)
{
    float4 a = *(const float4 *)from, b = *(const float4 *)(from + 4);
    v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
    v[4] += b.x, v[5] += b.y, v[6] += b.z, v[7] += b.w;
}

static __device__ __forceinline__ void store8(float *to, const float (&v)[8])
{
    *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    *(float4 *)(to + 4) = make_float4(v[4], v[5], v[6], v[7]);
}

/*
 * A block for each row, 8 values of a thread at a time, all of which stay in registers. With atoms
 * or slabs there are as many blocks as rows of those; blocks without a row write zeros. Scales as
 * in batch_atoms_rows.
 */
static __device__ __forceinline__ void norm_row(const batch_norm &p, float (&v)[NORM_ROUNDS][8])
{
    const int row = blockIdx.x, tid = threadIdx.x;
    const bool is_there = row < p.n_rows;
    const int width = is_there ? p.width : 0;
    launch_next();
    wait_previous();
    float *x = p.x + row * p.x_stride, sum = 0;
#pragma unroll
    for (int n = 0; n < NORM_ROUNDS; n++) {
        int k = 8 * tid + n * NORM_VALUES;
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[n][i] = 0;
        if (k >= width)
            continue;
        if (p.added.n_parts > 0) {
            if (p.added.bias)
                add8(v[n], p.added.bias + k);
            const float *part = p.added.parts + row * p.added.row_stride + k;
#pragma unroll 4
            for (int i = 0; i < p.added.n_parts; i++, part += p.added.stride)
                add8(v[n], part);
        }
        add8(v[n], x + k);
        if (p.added.n_parts > 0)
            store8(x + k, v[n]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum += v[n][i] * v[n][i];
    }
    sum = block_sum<NORM_THREADS>(sum);
    const float rms = 1.0f / sqrtf(sum / (float)p.width + p.eps);
#pragma unroll
    for (int n = 0; n < NORM_ROUNDS; n++) {
        int k = 8 * tid + n * NORM_VALUES;
        if (k >= width)
            continue;
        float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        add8(w, p.weight + k);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[n][i] = v[n][i] * rms * w[i];
        store8(p.y + row * p.y_stride + k, v[n]);
    }
}

extern "C" __global__ void __launch_bounds__(NORM_THREADS)
    batch_norm_rows(const __grid_constant__ batch_norm p)
{
    const int row = blockIdx.x, tid = threadIdx.x, n_atoms = (p.n_rows + 7) / 8;
    float v[NORM_ROUNDS][8], most = 0;
    norm_row(p, v);
    if (p.slabs) {
#pragma unroll
        for (int n = 0; n < NORM_ROUNDS; n++) {
            int slab = (8 * tid + n * NORM_VALUES) / SMALL_COLS;
            if (slab * SMALL_COLS < p.width)
                slab_store8(p.slabs + (int64_t)slab * SMALL_SLAB_BYTES, row, v[n], tid & 31);
        }
        return;
    }
    if (!p.atoms)
        return;
#pragma unroll
    for (int n = 0; n < NORM_ROUNDS; n++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            most = fmaxf(most, fabsf(v[n][i]));
    most = block_max<NORM_THREADS>(most);
    int exponent = most > 0 && most < INFINITY ? min(max(12 - ilogbf(most), -100), 100) : 0;
    const float scale = ldexpf(1.0f, exponent);
    if (tid == 0 && row < p.n_rows)
        p.scales[row] = ldexpf(1.0f, -exponent);
#pragma unroll
    for (int n = 0; n < NORM_ROUNDS; n++) {
        int k = 8 * tid + n * NORM_VALUES;
        if (k >= p.n_k64 * ATOM_K)
            continue;
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[n][i] *= scale;
        atom_store8(p.atoms, k, row, n_atoms, v[n], p.is_half);
    }
}

/* The same, to atoms of int8 products. */
extern "C" __global__ void __launch_bounds__(NORM_THREADS)
    batch_norm_bytes_rows(const __grid_constant__ batch_norm_bytes p)
{
    const int row = blockIdx.x, tid = threadIdx.x;
    float v[NORM_ROUNDS][8];
    norm_row(p.n, v);
    if (tid == 0 && row < p.n.n_rows)
        p.ones[row] = 1;
#pragma unroll
    for (int n = 0; n < NORM_ROUNDS; n++) {
        const int k256 = (8 * tid + n * NORM_VALUES) / BYTES_UNIT_K; /* of a whole warp */
        if (k256 * BYTES_UNIT_K < p.n.width)
            bytes_store8(p.out, p.units, k256, row, p.n.n_rows, v[n], tid & 31);
    }
}

static __device__ __forceinline__ float2 sum_pair(const batch_sum &s, int t, int d0, int d1)
{
    float2 v = s.bias ? make_float2(s.bias[d0], s.bias[d1]) : make_float2(0, 0);
    const float *part = s.parts + t * s.row_stride;
#pragma unroll 4
    for (int i = 0; i < s.n_parts; i++, part += s.stride) {
        v.x += part[d0];
        v.y += part[d1];
    }
    return v;
}

/* blockIdx.x: token; blockIdx.y: a head of q, then those of k (turned and stored with its v). */
extern "C" __global__ void __launch_bounds__(64)
    batch_rope_heads(const __grid_constant__ batch_rope p)
{
    const gpu_rope &r = p.r;
    const int t = blockIdx.x, dim = r.head_dim, half = r.n_dims / 2;
    const bool is_q = (int)blockIdx.y < r.n_heads;
    const int head = is_q ? blockIdx.y : blockIdx.y - r.n_heads;
    launch_next();
    wait_previous();
    __half *keys = nullptr, *values = nullptr;
    if (!is_q) {
        int sequence = r.cache.sequences[t], position = r.cache.positions[t];
        keys = (__half *)cache_row(r.cache, r.cache.k_offset, sequence, head, position);
        values = (__half *)cache_row(r.cache, r.cache.v_offset, sequence, head, position);
    }
    for (int pair = threadIdx.x; pair < dim / 2; pair += blockDim.x) {
        const bool turns = pair < half;
        int d0 = turns && r.is_neox ? pair : 2 * pair;
        int d1 = turns && r.is_neox ? pair + half : 2 * pair + 1;
        float2 v = sum_pair(is_q ? p.q : p.k, t, head * dim + d0, head * dim + d1);
        float2 value = is_q ? v : sum_pair(p.v, t, head * dim + d0, head * dim + d1);
        if (turns) {
            const float *turn = r.table + t * r.table_stride + 2 * pair;
            v = make_float2(v.x * turn[0] - v.y * turn[1], v.x * turn[1] + v.y * turn[0]);
        }
        if (is_q) {
            float *to = r.q + t * r.q_stride + head * dim;
            to[d0] = v.x;
            to[d1] = v.y;
        } else {
            keys[d0] = __float2half_rn(v.x);
            keys[d1] = __float2half_rn(v.y);
            values[d0] = __float2half_rn(value.x);
            values[d1] = __float2half_rn(value.y);
        }
    }
}

/* Values d to d + 1 and e to e + 1 of a row. */
static __device__ __forceinline__ float4 sum_pairs(const batch_sum &s, int t, int d, int e)
{
    float4 v = make_float4(0, 0, 0, 0);
    if (s.bias)
        v = make_float4(s.bias[d], s.bias[d + 1], s.bias[e], s.bias[e + 1]);
    const float *part = s.parts + t * s.row_stride;
    for (int i = 0; i < s.n_parts; i++, part += s.stride) {
        const float2 x = *(const float2 *)(part + d), y = *(const float2 *)(part + e);
        v = make_float4(v.x + x.x, v.y + x.y, v.z + y.x, v.w + y.y);
    }
    return v;
}

static __device__ __forceinline__ void put_halves(__half *to, int d, int e, float4 v)
{
    *(__half2 *)(to + d) = __floats2half2_rn(v.x, v.y);
    *(__half2 *)(to + e) = __floats2half2_rn(v.z, v.w);
}

/* The same for many tokens and heads whose sizes are multiples of 4: a warp for each head, a lane
 * takes two pairs. */
extern "C" __global__ void __launch_bounds__(256)
    batch_rope_rows(const __grid_constant__ batch_rope p)
{
    const gpu_rope &r = p.r;
    const int t = blockIdx.x, lane = threadIdx.x & 31, dim = r.head_dim, half = r.n_dims / 2;
    const int n = (int)blockIdx.y * 8 + (threadIdx.x >> 5),
              head = n < r.n_heads ? n : n - r.n_heads;
    const bool is_q = n < r.n_heads;
    launch_next();
    wait_previous();
    if (n >= r.n_heads + r.n_kv_heads)
        return;
    __half *keys = nullptr, *values = nullptr;
    if (!is_q) {
        int sequence = r.cache.sequences[t], position = r.cache.positions[t];
        keys = (__half *)cache_row(r.cache, r.cache.k_offset, sequence, head, position);
        values = (__half *)cache_row(r.cache, r.cache.v_offset, sequence, head, position);
    }
    for (int pair = 2 * lane; pair < dim / 2; pair += 64) {
        const bool turns = pair < half, is_far = turns && r.is_neox;
        const int d = is_far ? pair : 2 * pair, e = is_far ? pair + half : d + 2, at = head * dim;
        float4 v = sum_pairs(is_q ? p.q : p.k, t, at + d, at + e);
        if (turns) { /* the cosine and the sine of two pairs */
            const float4 by = *(const float4 *)(r.table + t * r.table_stride + 2 * pair);
            if (is_far)
                v = make_float4(v.x * by.x - v.z * by.y, v.y * by.z - v.w * by.w,
                                v.x * by.y + v.z * by.x, v.y * by.w + v.w * by.z);
            else
                v = make_float4(v.x * by.x - v.y * by.y, v.x * by.y + v.y * by.x,
                                v.z * by.z - v.w * by.w, v.z * by.w + v.w * by.z);
        }
        if (is_q) {
            float *to = r.q + t * r.q_stride + at;
            *(float2 *)(to + d) = make_float2(v.x, v.y);
            *(float2 *)(to + e) = make_float2(v.z, v.w);
        } else {
            put_halves(keys, d, e, v);
            put_halves(values, d, e, sum_pairs(p.v, t, at + d, at + e));
        }
    }
}
