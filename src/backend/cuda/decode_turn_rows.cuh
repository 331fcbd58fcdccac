/*
 * One token: queries and the new key are normed and turned into shared memory, and the new row is
 * made as the cache has it, f16 or q8_0.
 *
 * A warp has whole heads: it needs no other one for a norm, and pairs of any form (neighbours, half a
 * head apart, a part of the head, none) lie in its lanes. All that does not depend on the product in
 * front is loaded before the wait, and the block meets once.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_TURN_ROWS_CUH
#define LACE_BACKEND_CUDA_DECODE_TURN_ROWS_CUH

#include "backend/cuda/decode_turn.cuh"

/* Queries as ldmatrix reads them, and the new row. */
template <int DIM, bool IS_BYTES> struct turned_rows {
    static constexpr int ROW = IS_BYTES ? DIM / 32 * (int)sizeof(block_q8_0) : 2 * DIM;
    __half q[2][DECODE_MAX_GROUP][DIM + 8]; /* high halves, then what is left */
    float turned[2][IS_BYTES ? DIM : 1];    /* key and value, before they become bytes */
    uint8_t rows[2][ROW];                   /* as they lie in the cache */
};

/* 32 values of a row as a block of q8_0, one of each lane: what write_row makes of them. */
__device__ __forceinline__ void put_block(block_q8_0 *to, float x, int lane)
{
    float d = warp_max(fabsf(x)) / 127.0f, inverse = d ? 1.0f / d : 0.0f;
    to->quants[lane] = (int8_t)roundf(x * inverse);
    if (lane == 0)
        to->scale = __half_as_ushort(__float2half_rn(d));
}

/* 16 neighbouring bits at a time: rows of the cache lie at even addresses. */
template <int BYTES>
__device__ __forceinline__ void copy_row(uint8_t *to, const uint8_t *from, int lane)
{
#pragma unroll
    for (int i = 0; i < BYTES / 2; i += 32)
        if (i + lane < BYTES / 2)
            ((uint16_t *)to)[i + lane] = ((const uint16_t *)from)[i + lane];
}

/*
 * The heads of q that belong to a head of k, then its key, then its value: vector n is warp n % 4's.
 * Each lane has the pairs lane, lane + 32, ... of them.
 */
template <int DIM, bool IS_BYTES> struct row_turner {
    static constexpr int PAIRS = DIM / 2, MANY = (PAIRS + 31) / 32, WARPS = DECODE_ATTEND_WARPS,
                         ROUNDS = (DECODE_MAX_GROUP + 2 + WARPS - 1) / WARPS;
    turned_rows<DIM, IS_BYTES> &to;
    float2 by[MANY];
    int n_turned;

    __device__ __forceinline__ row_turner(turned_rows<DIM, IS_BYTES> &to, const decode_attention &p,
                                          int group, int warp, int lane)
        : to(to), n_turned(p.angles ? p.n_dims / 2 : 0)
    {
#pragma unroll
        for (int m = 0; m < MANY; m++) {
            int pair = lane + 32 * m;
            by[m] = pair < n_turned ? __ldcg((const float2 *)p.angles + pair) : make_float2(1, 0);
        }
        /* Rows of the mma that are no heads. */
        for (int n = group + warp; n < DECODE_MAX_GROUP; n += WARPS)
            for (int i = lane; i < PAIRS; i += 32)
                ((uint32_t *)to.q[0][n])[i] = ((uint32_t *)to.q[1][n])[i] = 0;
    }

    __device__ __forceinline__ int first_of(const decode_attention &p, int pair) const
    {
        return pair < n_turned && p.is_neox ? pair : 2 * pair;
    }

    __device__ __forceinline__ int second_of(const decode_attention &p, int pair) const
    {
        return pair < n_turned && p.is_neox ? pair + n_turned : 2 * pair + 1;
    }

    __device__ __forceinline__ void norm(float2 (&x)[MANY], const decode_attention &p,
                                         const float *weight, int lane) const
    {
        float sum = 0;
#pragma unroll
        for (int m = 0; m < MANY; m++)
            sum += x[m].x * x[m].x + x[m].y * x[m].y; /* zeros where there is no pair */
        float factor = rsqrtf(warp_sum(sum) / (float)DIM + p.eps);
#pragma unroll
        for (int m = 0; m < MANY; m++) {
            int pair = min(lane + 32 * m, PAIRS - 1);
            x[m].x = x[m].x * factor * weight[first_of(p, pair)];
            x[m].y = x[m].y * factor * weight[second_of(p, pair)];
        }
    }

    __device__ __forceinline__ void put_query(const float2 (&x)[MANY], const decode_attention &p,
                                              int n, int lane) const
    {
#pragma unroll
        for (int m = 0; m < MANY; m++) {
            int pair = lane + 32 * m, d0 = first_of(p, pair), d1 = second_of(p, pair);
            float2 v = make_float2(x[m].x * p.scale, x[m].y * p.scale);
            __half h0 = __float2half_rn(v.x), h1 = __float2half_rn(v.y);
            if (pair < PAIRS) {
                to.q[0][n][d0] = h0;
                to.q[0][n][d1] = h1;
                to.q[1][n][d0] = __float2half_rn(v.x - __half2float(h0));
                to.q[1][n][d1] = __float2half_rn(v.y - __half2float(h1));
            }
        }
    }

    /* is_value: or a key. */
    __device__ __forceinline__ void put_new_row(const float2 (&x)[MANY], const decode_attention &p,
                                                int is_value, uint8_t *cache_to, int lane) const
    {
        uint8_t *row = to.rows[is_value];
#pragma unroll
        for (int m = 0; m < MANY; m++) {
            int pair = lane + 32 * m, d0 = first_of(p, pair), d1 = second_of(p, pair);
            if (pair < PAIRS && IS_BYTES) {
                to.turned[is_value][d0] = x[m].x;
                to.turned[is_value][d1] = x[m].y;
            } else if (pair < PAIRS) {
                ((__half *)row)[d0] = __float2half_rn(x[m].x);
                ((__half *)row)[d1] = __float2half_rn(x[m].y);
            }
        }
        __syncwarp();
        if (IS_BYTES) {
#pragma unroll
            for (int b = 0; b < DIM / 32; b++)
                put_block((block_q8_0 *)row + b, to.turned[is_value][32 * b + lane], lane);
            __syncwarp();
        }
        copy_row<turned_rows<DIM, IS_BYTES>::ROW>(cache_to, row, lane);
    }

    /* owns: the new row, which goes to k_to and v_to, too. The whole block comes together behind. */
    __device__ __forceinline__ void turn(const decode_attention &p, int head, int group, bool owns,
                                         uint8_t *k_to, uint8_t *v_to, int warp, int lane) const
    {
        const int n_vectors = group + (owns ? 2 : 0);
        float2 x[ROUNDS][MANY];
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            int n = warp + WARPS * round;
            const float *from = n < group    ? p.q + (head * group + n) * DIM
                                : n == group ? p.k + head * DIM
                                             : p.v + head * DIM;
#pragma unroll
            for (int m = 0; m < MANY; m++) {
                int pair = lane + 32 * m;
                bool is_there = n < n_vectors && pair < PAIRS;
                x[round][m].x = is_there ? __ldcg(from + first_of(p, pair)) : 0.0f;
                x[round][m].y = is_there ? __ldcg(from + second_of(p, pair)) : 0.0f;
            }
        }
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            int n = warp + WARPS * round;
            const float *weight = n < group ? p.q_norm : n == group ? p.k_norm : nullptr;
            if (n >= n_vectors)
                break;
            if (weight)
                norm(x[round], p, weight, lane);
#pragma unroll
            for (int m = 0; m < MANY; m++)
                if (n <= group && lane + 32 * m < n_turned)
                    x[round][m] = turned(x[round][m].x, x[round][m].y, by[m]);
            if (n < group)
                put_query(x[round], p, n, lane);
            else
                put_new_row(x[round], p, n > group, n > group ? v_to : k_to, lane);
        }
        __syncthreads();
    }
};

#endif
