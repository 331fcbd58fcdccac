/*
 * One token: queries and the new key are normed and turned by their position.
 *
 * Where pairs are those of whole heads, each lane has both values of its pairs in registers, in the
 * places where the mma wants them. Other forms go through shared memory.
 */
#ifndef LACE_KERNELS_CUDA_DECODE_TURN_CUH
#define LACE_KERNELS_CUDA_DECODE_TURN_CUH

#include "backend/cuda/decode_common.cuh"

__device__ __forceinline__ uint32_t pack_halves(float a, float b)
{
    __half2 h = __floats2half2_rn(a, b);
    return *(uint32_t *)&h;
}

/* What is left of two floats when their halves are taken away. */
__device__ __forceinline__ uint32_t pack_rest(float a, float b, uint32_t high)
{
    float2 h = half2_to_float2(high);
    return pack_halves(a - h.x, b - h.y);
}

/* How pairs of values are turned: neighbours, or those half a head apart, or some way that only the
 * parameters know (a part of the head, caps on scores). */
enum turn_form { TURN_ANY, TURN_NEIGHBOURS, TURN_HALVES };

__device__ __forceinline__ float2 turned(float x, float y, float2 by)
{
    return make_float2(x * by.x - y * by.y, x * by.y + y * by.x);
}

/* The new key and value: a warp holds their pairs, as halves. */
template <int DIM> struct new_row {
    static constexpr int PAIRS = DIM / 2, MANY = (PAIRS + 31) / 32;
    uint32_t k[MANY], v[MANY];
};

/*
 * The heads of q as the mma wants them (rows 0..7 the high halves, 8..15 the rest), straight from
 * memory: whoever needs a pair has both of its values.
 */
template <int DIM, turn_form FORM> struct query_turner {
    static constexpr int N = DIM / 16, FAR = DIM / 32;
    float2 by[N][2]; /* of this lane's pairs */

    __device__ __forceinline__ query_turner(const decode_attention &p, int c)
    {
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                /* Halves: the pairs of both values, of which the first half has N in all. */
                int pair = FORM == TURN_HALVES ? 16 * (k / 2) + 8 * (k % 2) + 2 * c + i
                                               : 8 * k + 4 * i + c;
                by[k][i] = p.angles ? __ldcg((const float2 *)p.angles + pair) : make_float2(1, 0);
                by[k][i].x *= p.scale;
                by[k][i].y *= p.scale;
            }
    }

    __device__ __forceinline__ void load(uint32_t (&q)[N][4], const decode_attention &p,
                                         const float *from, bool is_there, int c)
    {
        float2 x[N][2];
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                x[k][i] = is_there ? __ldcg((const float2 *)(from + 16 * k + 8 * i + 2 * c))
                                   : make_float2(0, 0);
        if (p.q_norm) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < N; k++)
                sum += x[k][0].x * x[k][0].x + x[k][0].y * x[k][0].y + x[k][1].x * x[k][1].x +
                       x[k][1].y * x[k][1].y;
            float factor = rsqrtf(tile_reduce(sum) / (float)DIM + p.eps);
#pragma unroll
            for (int k = 0; k < N; k++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float2 w = *(const float2 *)(p.q_norm + 16 * k + 8 * i + 2 * c);
                    x[k][i] = make_float2(x[k][i].x * factor * w.x, x[k][i].y * factor * w.y);
                }
        }
        if (FORM == TURN_NEIGHBOURS) {
#pragma unroll
            for (int k = 0; k < N; k++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    x[k][i] = turned(x[k][i].x, x[k][i].y, by[k][i]);
        } else {
#pragma unroll
            for (int k = 0; k < N / 2; k++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float2 &near = x[k][i], &far = x[k + FAR][i];
                    float2 a = turned(near.x, far.x, by[2 * k + i][0]);
                    float2 b = turned(near.y, far.y, by[2 * k + i][1]);
                    near = make_float2(a.x, b.x);
                    far = make_float2(a.y, b.y);
                }
        }
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                q[k][2 * i] = pack_halves(x[k][i].x, x[k][i].y);
                q[k][2 * i + 1] = pack_rest(x[k][i].x, x[k][i].y, q[k][2 * i]);
            }
    }
};

/* The new key and value, by one warp, which also puts them into the cache. */
template <int DIM, bool IS_FAR>
__device__ __forceinline__ void turn_new_row(new_row<DIM> &row, const decode_attention &p, int head,
                                             __half *k_to, __half *v_to, int lane)
{
    constexpr int PAIRS = DIM / 2, MANY = new_row<DIM>::MANY;
    float2 k[MANY], v[MANY];
    const float *k_from = p.k + head * DIM, *v_from = p.v + head * DIM;
    float sum = 0;
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int i = min(lane + 32 * m, PAIRS - 1);
        k[m] = IS_FAR ? make_float2(__ldcg(k_from + i), __ldcg(k_from + i + PAIRS))
                      : __ldcg((const float2 *)k_from + i);
        v[m] = __ldcg((const float2 *)v_from + i);
        if (lane + 32 * m < PAIRS)
            sum += k[m].x * k[m].x + k[m].y * k[m].y;
    }
    float factor = p.k_norm ? rsqrtf(warp_sum(sum) / (float)DIM + p.eps) : 1.0f;
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int i = min(lane + 32 * m, PAIRS - 1), d0 = IS_FAR ? i : 2 * i,
            d1 = IS_FAR ? i + PAIRS : 2 * i + 1;
        if (p.k_norm)
            k[m] = make_float2(k[m].x * factor * p.k_norm[d0], k[m].y * factor * p.k_norm[d1]);
        if (p.angles)
            k[m] = turned(k[m].x, k[m].y, __ldcg((const float2 *)p.angles + i));
        row.k[m] = pack_halves(k[m].x, k[m].y);
        row.v[m] = pack_halves(v[m].x, v[m].y);
        if (lane + 32 * m < PAIRS) {
            __half2 both = *(__half2 *)&row.k[m];
            k_to[d0] = __low2half(both);
            k_to[d1] = __high2half(both);
            *(uint32_t *)(v_to + 2 * i) = row.v[m];
        }
    }
}

/* Pairs of halves into a row of shared memory. */
template <int DIM, bool IS_FAR>
__device__ __forceinline__ void put_row(uint8_t *to, const uint32_t (&pairs)[new_row<DIM>::MANY],
                                        int lane)
{
    constexpr int PAIRS = DIM / 2;
#pragma unroll
    for (int m = 0; m < new_row<DIM>::MANY; m++) {
        int i = lane + 32 * m;
        if (i < PAIRS && IS_FAR) {
            __half2 both = *(const __half2 *)&pairs[m];
            ((__half *)to)[i] = __low2half(both);
            ((__half *)to)[i + PAIRS] = __high2half(both);
        } else if (i < PAIRS) {
            ((uint32_t *)to)[i] = pairs[m];
        }
    }
}

/*
 * The same in any form, through shared memory and by all threads: pairs (d0, d1) of each head. The
 * new row ends up as neighbours.
 */
template <int DIM> struct any_turner {
    static constexpr int PAIRS = DIM / 2, MOST = DECODE_MAX_GROUP,
                         THREADS = 32 * DECODE_ATTEND_WARPS;
    __half q_high[MOST][DIM + 8], q_low[MOST][DIM + 8];
    __half rows[2][DIM];
    float raw[MOST + 2][DIM]; /* normed: q of the heads, then k and v */

    __device__ void turn(const decode_attention &p, int head, int group, bool owns, __half *k_to,
                         __half *v_to)
    {
        const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
        const int n_vectors = group + (owns ? 2 : 0), n_turned = p.angles ? p.n_dims / 2 : 0;
        for (int n = warp; n < n_vectors; n += DECODE_ATTEND_WARPS) {
            const float *from = n < group    ? p.q + (head * group + n) * DIM
                                : n == group ? p.k + head * DIM
                                             : p.v + head * DIM;
            const float *norm = n < group ? p.q_norm : n == group ? p.k_norm : nullptr;
            float x[(DIM + 31) / 32], sum = 0;
#pragma unroll
            for (int i = 0; i < (DIM + 31) / 32; i++) {
                x[i] = 32 * i + lane < DIM ? __ldcg(from + 32 * i + lane) : 0.0f;
                sum += x[i] * x[i];
            }
            float scale = norm ? rsqrtf(warp_sum(sum) / (float)DIM + p.eps) : 1.0f;
#pragma unroll
            for (int i = 0; i < (DIM + 31) / 32; i++)
                if (32 * i + lane < DIM)
                    raw[n][32 * i + lane] = norm ? x[i] * scale * norm[32 * i + lane] : x[i];
        }
        __syncthreads();
#pragma unroll 1
        for (int i = tid; i < MOST * PAIRS; i += THREADS) {
            int n = i / PAIRS, pair = i - n * PAIRS;
            float2 v = turn_pair(p, n < group ? n : -1, pair, n_turned, true);
            v.x *= p.scale;
            v.y *= p.scale;
            int d0 = first_of(p, pair, n_turned), d1 = second_of(p, pair, n_turned);
            __half h0 = __float2half_rn(v.x), h1 = __float2half_rn(v.y);
            q_high[n][d0] = h0;
            q_high[n][d1] = h1;
            q_low[n][d0] = __float2half_rn(v.x - __half2float(h0));
            q_low[n][d1] = __float2half_rn(v.y - __half2float(h1));
        }
        for (int i = tid; owns && i < 2 * PAIRS; i += THREADS) {
            int is_value = i / PAIRS, pair = i - is_value * PAIRS;
            float2 v = turn_pair(p, group + is_value, pair, n_turned, !is_value);
            int d0 = first_of(p, pair, n_turned), d1 = second_of(p, pair, n_turned);
            __half *to = is_value ? v_to : k_to;
            rows[is_value][d0] = to[d0] = __float2half_rn(v.x);
            rows[is_value][d1] = to[d1] = __float2half_rn(v.y);
        }
        __syncthreads();
    }

    __device__ __forceinline__ int first_of(const decode_attention &p, int pair, int n_turned)
    {
        return pair < n_turned && p.is_neox ? pair : 2 * pair;
    }

    __device__ __forceinline__ int second_of(const decode_attention &p, int pair, int n_turned)
    {
        return pair < n_turned && p.is_neox ? pair + n_turned : 2 * pair + 1;
    }

    __device__ __forceinline__ float2 turn_pair(const decode_attention &p, int n, int pair,
                                                int n_turned, bool turns)
    {
        if (n < 0)
            return make_float2(0, 0);
        float2 v =
            make_float2(raw[n][first_of(p, pair, n_turned)], raw[n][second_of(p, pair, n_turned)]);
        return turns && pair < n_turned ? turned(v.x, v.y, __ldcg((const float2 *)p.angles + pair))
                                        : v;
    }
};

/* Nothing, where queries are turned in registers. */
template <int DIM, turn_form FORM> struct turn_memory {
};
template <int DIM> struct turn_memory<DIM, TURN_ANY> : any_turner<DIM> {
};
template <int DIM> struct query_turner<DIM, TURN_ANY> {
    __device__ __forceinline__ query_turner(const decode_attention &, int)
    {
    }
};

#endif
