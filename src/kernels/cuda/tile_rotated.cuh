/*
 * Tiles of rotated weights (S3, S4, S8 of gpu_tiles.h) times the activations of one token, and the
 * rotation of those.
 *
 * Rotated values are all of about the same size, so 128 of them share one scale: behind the planes
 * lie float [K / 128], not the pairs for each 16 that other kinds have. Column 0 of the mma is the
 * high plane, column 1 the low one. The other columns repeat them, and nobody uses their sums.
 */
#ifndef LACE_KERNELS_CUDA_TILE_ROTATED_CUH
#define LACE_KERNELS_CUDA_TILE_ROTATED_CUH

#include "kernels/cuda/tile_dot.cuh"

template <int KIND> __host__ __device__ constexpr bool tile_is_rotated_kind()
{
    return KIND == TILE_S3 || KIND == TILE_S4 || KIND == TILE_S8;
}

/* One or two sums of 128 columns: values below zero of S4 are added up apart. */
template <int KIND>
__device__ __forceinline__ void multiply_half(int (&acc)[4], const tile_frag<KIND> &f,
                                              const uint8_t *plane, int half)
{
    int less[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 2 * half; j < 2 * half + 2; j++) {
        uint2 even = *(const uint2 *)(plane + 64 * j), odd = *(const uint2 *)(plane + 64 * j + 32);
        uint32_t a[4], o[4];
        if constexpr (KIND == TILE_S4) {
            uint32_t b[4], p[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t w = (&f.q[j % tile_words<KIND>()].x)[i];
                tile_split_s4(w, a[i], o[i]);
                tile_split_s4(w ^ 0x88888888, b[i], p[i]);
            }
            mma_s8(less, b[0], b[1], b[2], b[3], even.x, even.y);
            mma_s8(less, p[0], p[1], p[2], p[3], odd.x, odd.y);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                tile_word<KIND>(f, j, i, a[i], o[i]);
        }
        mma_s8(acc, a[0], a[1], a[2], a[3], even.x, even.y);
        mma_s8(acc, o[0], o[1], o[2], o[3], odd.x, odd.y);
    }
    if constexpr (KIND == TILE_S4)
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] -= less[i];
}

/* As tile_multiply; the sums of a row are all in its first lane. */
template <int KIND>
__device__ __forceinline__ void tile_multiply_rotated(float &y0, float &y1,
                                                      const tile_frag<KIND> &f, const act_view &x,
                                                      int t, int lane)
{
    const int c = lane & 3;
    const uint8_t *plane = (lane & 4 ? x.low : x.high) + 256 * t + 8 * c;
    const float2 d = ((const float2 *)x.scales)[t];
    const float2 s0 = tile_own_scales(f.s0.x), s1 = tile_own_scales(f.s0.y);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int acc[4] = {0, 0, 0, 0};
        multiply_half<KIND>(acc, f, plane, half);
        const float scale = c ? 0.0f : half ? d.y : d.x;
        y0 += scale * (half ? s0.y : s0.x) * (float)(256 * acc[0] + acc[1]);
        y1 += scale * (half ? s1.y : s1.x) * (float)(256 * acc[2] + acc[3]);
    }
}

/* ---- Rotation -------------------------------------------------------------------------------- */

__device__ __forceinline__ void mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

/* What tf32 holds of a value exactly; the rest is another. */
__device__ __forceinline__ float tf32_part(float v)
{
    return __uint_as_float(__float_as_uint(v) & 0xffffe000);
}

__device__ __forceinline__ float hadamard(int i, int k)
{
    return __popc(i & k) & 1 ? -1.0f : 1.0f;
}

/*
 * The Walsh-Hadamard matrix of 128 is that of 16 times that of 8: with i = 8 hi + lo, values are a
 * matrix [16 hi][8 lo] that one is multiplied with from the left and the other from the right. Both
 * are exact in tf32, values are the sum of two. Lane (r, c) has values 8 (4c + n) + r before, and
 * 16 r + 2 c, + 1, + 8, + 9 afterwards. What a lane needs for it is the same for all, and made while
 * there is nothing else to do. IS_ANY: false for kinds that are not rotated.
 */
template <bool IS_ANY> struct rotation {
    float left[2][4], right[2], signs[4];

    __device__ __forceinline__ explicit rotation(int lane)
    {
        const int r = lane >> 2, c = lane & 3;
        const uint64_t flips[2] = {0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int hi = 4 * c + n, i = 8 * hi + r;
            left[n / 2][2 * (n % 2)] = hadamard(2 * r, hi);
            left[n / 2][2 * (n % 2) + 1] = hadamard(2 * r + 1, hi);
            const float scale = 0.08838834764831845f; /* 1 / sqrt(128) */
            signs[n] = (c < 2 ? flips[0] : flips[1]) >> (i & 63) & 1 ? -scale : scale;
        }
        right[0] = hadamard(2 * c, r);
        right[1] = hadamard(2 * c + 1, r);
    }

    __device__ __forceinline__ float4 turn(const float (&x)[4]) const
    {
        float v[4], rest[4], d[4] = {0, 0, 0, 0};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float whole = x[n] * signs[n];
            v[n] = tf32_part(whole);
            rest[n] = whole - v[n];
        }
#pragma unroll
        for (int s = 0; s < 2; s++) {
            mma_tf32(d, left[s], v[2 * s], v[2 * s + 1]);
            mma_tf32(d, left[s], rest[2 * s], rest[2 * s + 1]);
        }
        const float a[4] = {tf32_part(d[0]), tf32_part(d[2]), tf32_part(d[1]), tf32_part(d[3])};
        const float b[4] = {d[0] - a[0], d[2] - a[1], d[1] - a[2], d[3] - a[3]};
        float y[4] = {0, 0, 0, 0};
        mma_tf32(y, a, right[0], right[1]);
        mma_tf32(y, b, right[0], right[1]);
        return make_float4(y[0], y[1], y[2], y[3]);
    }
};

template <> struct rotation<false> {
    __device__ __forceinline__ explicit rotation(int)
    {
    }
};

/*
 * k floats in global memory that another kernel made, rotated to planes in shared memory; `pad`
 * bytes are between the planes. A warp takes 128s, several at a time, so that their loads are on
 * their way together.
 */
__device__ __forceinline__ void rotate_to_planes(const rotation<true> &turn, const float *from,
                                                 int k, uint8_t *to, int pad, int warp,
                                                 int n_warps, int lane)
{
    constexpr int MANY = 4;
    const int r = lane >> 2, c = lane & 3;
    float *scales = (float *)(to + 2 * k + pad);
    for (int b0 = warp; 128 * b0 < k; b0 += MANY * n_warps) {
        float x[MANY][4];
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            const int at = 128 * (b0 + n * n_warps);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[n][i] = at < k ? __ldcg(from + at + 32 * c + 8 * i + r) : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            const int b = b0 + n * n_warps;
            if (128 * b >= k)
                break;
            float4 v = turn.turn(x[n]);
            float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
            most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
            const float full = 127 * 256 + 127;
            const float inverse = most > 1e-30f ? __fdividef(full, most) : 0.0f;
            /* The sum's low bits are the quant plus 128: its high byte, and its low byte plus 128. */
            const float magic = 12582912.0f + 128.0f;
            uint32_t q0 = __float_as_uint(fmaf(v.x, inverse, magic));
            uint32_t q1 = __float_as_uint(fmaf(v.y, inverse, magic));
            uint32_t q2 = __float_as_uint(fmaf(v.z, inverse, magic));
            uint32_t q3 = __float_as_uint(fmaf(v.w, inverse, magic));
            uint32_t first = __byte_perm(q0, q1, 0x5140) ^ 0x8080;
            uint32_t second = __byte_perm(q2, q3, 0x5140) ^ 0x8080;
            uint8_t *high = to + 128 * b + 16 * r + 2 * c, *low = high + k + pad;
            *(uint16_t *)high = (uint16_t)(first >> 16);
            *(uint16_t *)(high + 8) = (uint16_t)(second >> 16);
            *(uint16_t *)low = (uint16_t)first;
            *(uint16_t *)(low + 8) = (uint16_t)second;
            if (lane == 0)
                scales[b] = most > 1e-30f ? most * (1.0f / full) : 0.0f;
        }
    }
}

#endif
