/*
 * Attention of 16 rows that several warps share: each of these makes the scores of a part of the
 * positions, which all of them read from shared memory, and then the sums of a part of the values.
 *
 * BLOCK says how a kernel does that: EXACT (see attend_run.cu), ROWS and DIM, the rows of a block
 * and the values of each, THREADS, STRIDE, the bytes from one row in shared memory to the next, APART, those
 * to what f16 cannot hold, PART_KEYS and PART_DIM, the positions (8 or 16) and the values of a warp.
 */
#ifndef LACE_KERNELS_CUDA_ATTEND_SPLIT_CUH
#define LACE_KERNELS_CUDA_ATTEND_SPLIT_CUH

#include "backend/cuda/attend_rows.cuh"

/* Rows [row0, row0 + ROWS) of a unit of tokens of one sequence, whose first is token0. A row is a
 * token and one of the heads of q that share a head of k. */
struct split_rows {
    int token0, row0, n_rows, per_head, head;
};

static __device__ __forceinline__ int token_of(const split_rows &b, int row)
{
    return b.token0 + row / b.per_head;
}

static __device__ __forceinline__ int head_of(const split_rows &b, int row)
{
    return b.head * b.per_head + row % b.per_head;
}

template <class BLOCK>
static __device__ __forceinline__ void put_queries(const gpu_attend &a, const split_rows &b,
                                                   uint8_t *to)
{
    constexpr int CHUNKS = BLOCK::DIM / 8;
#pragma unroll 2
    for (int i = threadIdx.x; i < BLOCK::ROWS * CHUNKS; i += BLOCK::THREADS) {
        const int row = b.row0 + i / CHUNKS, at = i % CHUNKS * 8;
        uint4 v = make_uint4(0, 0, 0, 0), rest = v;
        if (row < b.n_rows && at < a.cache.head_dim) {
            const float *from = a.q + (int64_t)token_of(b, row) * a.q_stride +
                                head_of(b, row) * a.cache.head_dim + at;
            const float4 x = *(const float4 *)from, y = *(const float4 *)(from + 4);
            const float all[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
            v = split8(all, rest);
        }
        uint8_t *place = to + i / CHUNKS * BLOCK::STRIDE + 2 * at;
        *(uint4 *)place = v;
        if (BLOCK::EXACT)
            *(uint4 *)(place + BLOCK::APART) = rest;
    }
}

/* Where the lanes of a warp point ldmatrix to: at queries, at their part of keys, at values. Of 8
 * positions four matrices are 32 values, of 16 positions 16 values. */
template <class BLOCK> static __device__ __forceinline__ uint32_t query_place(int group, int lane)
{
    return (16 * group + (lane & 15)) * BLOCK::STRIDE + (lane >> 4) * 16;
}

template <class BLOCK> static __device__ __forceinline__ uint32_t key_place(int part, int lane)
{
    return part * BLOCK::PART_KEYS * BLOCK::STRIDE +
           (BLOCK::PART_KEYS == 8
                ? (lane & 7) * BLOCK::STRIDE + (lane >> 3) * 16
                : ((lane & 7) + (lane >> 4) * 8) * BLOCK::STRIDE + (lane >> 3 & 1) * 16);
}

template <class BLOCK> static __device__ __forceinline__ uint32_t value_place(int part, int lane)
{
    return (lane & 15) * BLOCK::STRIDE + (lane >> 4) * 16 + 2 * part * BLOCK::PART_DIM;
}

/* 32 values of 16 rows and 8 positions: two chains of sums. */
template <class BLOCK>
static __device__ __forceinline__ void multiply_8_keys(float (&s)[2][4], uint32_t q_at,
                                                       uint32_t k_at, bool has_rest)
{
    uint32_t b[4], rest[4];
    load_matrix(b, k_at);
    if (BLOCK::EXACT && has_rest)
        load_matrix(rest, k_at + BLOCK::APART);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t q[4];
        load_matrix(q, q_at + 32 * half);
        mma_f16(s[half], q[0], q[1], q[2], q[3], b[2 * half], b[2 * half + 1]);
        if (!BLOCK::EXACT)
            continue;
        if (has_rest)
            mma_f16(s[half], q[0], q[1], q[2], q[3], rest[2 * half], rest[2 * half + 1]);
        load_matrix(q, q_at + BLOCK::APART + 32 * half);
        mma_f16(s[half], q[0], q[1], q[2], q[3], b[2 * half], b[2 * half + 1]);
    }
}

/* The same of 16 positions. */
static __device__ __forceinline__ void multiply_16_keys(float (&s)[2][4], uint32_t q_at,
                                                        uint32_t k_at)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t q[4], b[4];
        load_matrix(q, q_at + 32 * half);
        load_matrix(b, k_at + 32 * half);
        mma_f16(s[0], q[0], q[1], q[2], q[3], b[0], b[1]);
        mma_f16(s[1], q[0], q[1], q[2], q[3], b[2], b[3]);
    }
}

/* Scores of 16 rows and of this warp's part of the positions: s[0] has 8 of them, s[1] the next. */
template <class BLOCK>
static __device__ __forceinline__ void multiply_keys(float (&s)[2][4], uint32_t q_at, uint32_t k_at,
                                                     int head_dim, bool has_rest)
{
    static_assert(BLOCK::PART_KEYS == 8 || (BLOCK::PART_KEYS == 16 && !BLOCK::EXACT));
#pragma unroll
    for (int i = 0; i < 8; i++)
        s[i / 4][i % 4] = 0;
    constexpr int AT_ONCE = BLOCK::PART_KEYS == 8 ? 4 : 2;
#pragma unroll AT_ONCE
    for (int k = 0; k < (head_dim + 31) / 32; k++) {
        if constexpr (BLOCK::PART_KEYS == 8)
            multiply_8_keys<BLOCK>(s, q_at + 64 * k, k_at + 64 * k, has_rest);
        else
            multiply_16_keys(s, q_at + 64 * k, k_at + 64 * k);
    }
    if (BLOCK::PART_KEYS == 8)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[0][i] += s[1][i];
}

/* What a lane has of rows r and r + 8 to or from shared memory, 8 positions at a time. */
static __device__ __forceinline__ void put_scores(float *to, int stride, const float (&s)[4])
{
    *(float2 *)to = make_float2(s[0], s[1]);
    *(float2 *)(to + 8 * stride) = make_float2(s[2], s[3]);
}

static __device__ __forceinline__ void take_scores(const float *from, int stride, float (&s)[4])
{
    const float2 a = *(const float2 *)from, b = *(const float2 *)(from + 8 * stride);
    s[0] = a.x, s[1] = a.y, s[2] = b.x, s[3] = b.y;
}

/* Values times shares, added to what was before, faded: this warp's part of the values. */
template <class BLOCK>
static __device__ __forceinline__ void
add_values(float (&out)[BLOCK::PART_DIM / 8][4], const float (&fade)[2],
           const uint32_t (&share)[KEYS / 8][2], const uint32_t (&share_rest)[KEYS / 8][2],
           uint32_t v_at, bool has_rest)
{
    constexpr int N = BLOCK::PART_DIM;
#pragma unroll
    for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            out[i][e] *= fade[e / 2];
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int i = 0; i < N / 16; i++) {
            uint32_t b[4];
            const uint32_t from = v_at + k * 16 * BLOCK::STRIDE + i * 32;
            load_matrix_turned(b, from);
            multiply_shares(out[2 * i], share + 2 * k, b[0], b[1]);
            multiply_shares(out[2 * i + 1], share + 2 * k, b[2], b[3]);
            if (!BLOCK::EXACT)
                continue;
            multiply_shares(out[2 * i], share_rest + 2 * k, b[0], b[1]);
            multiply_shares(out[2 * i + 1], share_rest + 2 * k, b[2], b[3]);
            if (has_rest) {
                load_matrix_turned(b, from + BLOCK::APART);
                multiply_shares(out[2 * i], share + 2 * k, b[0], b[1]);
                multiply_shares(out[2 * i + 1], share + 2 * k, b[2], b[3]);
            }
        }
}

/* A warp's part of the values of head h of q: the result, or a part of it that attend_parts joins.
 * e: which of the lane's two rows it is; context: the part of the context. */
template <class BLOCK>
static __device__ __forceinline__ void
store_row(const batch_attend &p, int token, int h, int context, int part, int quad, int e,
          const float (&out)[BLOCK::PART_DIM / 8][4], float most, float sum)
{
    const int v_dim = p.a.cache.v_dim;
    float *to = p.a.out + (int64_t)token * p.a.out_stride + h * v_dim, by = 1.0f;
    if (p.n_parts > 1) {
        const int64_t at = ((int64_t)(token - p.token0) * p.a.n_heads + h) * p.n_parts + context;
        to = p.parts + at * (2 + p.a.cache.head_dim);
        if (part == 0 && quad == 0)
            *(float2 *)to = make_float2(most, sum);
        to += 2;
    } else {
        if (p.a.sinks) { /* one more score, without a value */
            const float sink = p.a.sinks[h] * LOG2_E, top = fmaxf(most, sink);
            by = power_of_2(most - top);
            sum = sum * by + power_of_2(sink - top);
        }
        by /= sum;
    }
#pragma unroll
    for (int n = 0; n < BLOCK::PART_DIM / 8; n++) {
        const int at = part * BLOCK::PART_DIM + 8 * n + 2 * quad;
        if (at < v_dim)
            *(float2 *)(to + at) = make_float2(out[n][2 * e] * by, out[n][2 * e + 1] * by);
    }
}

#endif
