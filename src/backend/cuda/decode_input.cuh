/*
 * Vectors that the blocks of a product make by themselves, of floats that other steps have left: as
 * they are, gated, normed. So a product stands for the norm and the gate in front of it, and takes
 * one launch.
 */
#ifndef LACE_KERNELS_CUDA_DECODE_INPUT_CUH
#define LACE_KERNELS_CUDA_DECODE_INPUT_CUH

#include "backend/cuda/decode_ring.cuh"

__device__ __forceinline__ float dot4(float4 a, float4 b)
{
    return a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
}

__device__ __forceinline__ float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ __forceinline__ float4 all_four(float v)
{
    return make_float4(v, v, v, v);
}

/* The gate of columns i to i + 3. */
__device__ __forceinline__ float4 gate_at(const decode_input &in, int i)
{
    if (in.gate_each > 1)
        return all_four(__ldcg(in.gate + i / in.gate_each));
    const int at = in.gate_step > in.gate_n ? i / in.gate_n * in.gate_step + i % in.gate_n : i;
    return __ldcg((const float4 *)(in.gate + at));
}

/* Out of line: kernels that run for some microseconds wait for every line of code that they need. */
static __device__ __noinline__ float glu_apart(int kind, float g, float u)
{
    return glu(kind, g, u);
}

__device__ __forceinline__ float gated(int kind, float g, float u)
{
    enum { SILU = 0, SIGMOID = 5 };
    if (kind != SILU && kind != SIGMOID)
        return glu_apart(kind, g, u);
    const float s = __fdividef(u, 1.0f + __expf(-g));
    return kind == SILU ? g * s : s;
}

__device__ __forceinline__ float4 gated(const decode_input &in, float4 v, int i)
{
    const float4 g = in.gate ? gate_at(in, i) : v, u = in.gate ? v : all_four(1);
    return make_float4(gated(in.glu, g.x, u.x), gated(in.glu, g.y, u.y), gated(in.glu, g.z, u.z),
                       gated(in.glu, g.w, u.w));
}

/* Columns i to i + 3 in front of the norm. */
__device__ __forceinline__ float4 input_at(const decode_input &in, int i)
{
    if (i >= in.width)
        return all_four(0);
    const float4 v = __ldcg((const float4 *)(in.x + i));
    return in.glu >= 0 && !in.norms_first ? gated(in, v, i) : v;
}

__device__ __forceinline__ float4 norm_at(const float *by, const decode_input &in, int i)
{
    const int at = in.is_wide || in.group == in.width ? i : i % in.group;
    return i < in.width ? __ldg((const float4 *)(by + at)) : all_four(0);
}

__device__ __forceinline__ float4 by_at(const decode_input &in, int i)
{
    return in.norm ? norm_at(in.norm, in, i) : all_four(1);
}

/* The factor 1 / rms of all columns is left to who multiplies. */
__device__ __forceinline__ bool input_is_scaled_later(const decode_input &in)
{
    return in.norm && !in.centers && in.group == in.width;
}

/* The sums of [first, first + n) columns, whose chunks have theirs in `sums`; a warp. */
__device__ __forceinline__ float chunks_sum(const float *sums, int first, int n)
{
    float v = 0;
    for (int c = first / DECODE_CHUNK + (threadIdx.x & 31); c < (first + n) / DECODE_CHUNK; c += 32)
        v += sums[c];
    return warp_sum(v);
}

/*
 * The vector as planes in shared memory, padded with zeros to k values; all threads of the block.
 * sums: 256 floats of shared memory. If the norm is of all columns, each warp leaves its sum of
 * squares there. Ends without a barrier.
 */
__device__ __forceinline__ void make_input(const decode_input &in, gpu_act act, int k, uint8_t *to,
                                           float *sums)
{
    constexpr int STEP = 4 * DECODE_THREADS, HALF = 128;
    const int tid = threadIdx.x, lane = tid & 31;
    const bool is_later = input_is_scaled_later(in);
    const bool is_small = in.norm && !in.centers && !is_later && in.group <= DECODE_CHUNK;
    const bool is_wide = in.norm && !in.centers && !is_later && !is_small;
    float mean = 0, factor = 1, squares = 0;
    if (in.centers || is_wide) {
        for (int i = 4 * tid; i < k; i += STEP) {
            const float4 v = input_at(in, i);
            const float sum = warp_sum(in.centers ? v.x + v.y + (v.z + v.w) : dot4(v, v));
            if (lane == 0)
                sums[i / DECODE_CHUNK] = sum;
        }
        __syncthreads();
    }
    if (in.centers) {
        mean = chunks_sum(sums, 0, k) / (float)in.width;
        for (int i = 4 * tid; i < k; i += STEP) {
            float4 v = input_at(in, i);
            v = make_float4(v.x - mean, v.y - mean, v.z - mean, v.w - mean);
            const float sum = warp_sum(i < in.width ? dot4(v, v) : 0.0f);
            if (lane == 0)
                sums[HALF + i / DECODE_CHUNK] = sum;
        }
        __syncthreads();
        factor = 1.0f / sqrtf(chunks_sum(sums + HALF, 0, k) / (float)in.width + in.eps);
    }
    float4 ahead = input_at(in, 4 * tid), ahead_by = by_at(in, 4 * tid);
#pragma unroll 1
    for (int i = 4 * tid; i < k; i += STEP) { /* whole warps */
        float4 v = ahead;
        const float4 by = ahead_by;
        ahead = input_at(in, i + STEP);
        ahead_by = by_at(in, i + STEP);
        if (is_later)
            squares += dot4(v, v);
        if (is_small) {
            float sum = dot4(v, v);
            for (int o = 1; o < in.group / 4; o <<= 1)
                sum += __shfl_xor_sync(~0u, sum, o);
            factor = rsqrtf(sum / (float)in.group + in.eps);
        }
        if (is_wide)
            factor = rsqrtf(chunks_sum(sums, i / in.group * in.group, in.group) / (float)in.group +
                            in.eps);
        v = make_float4((v.x - mean) * factor, (v.y - mean) * factor, (v.z - mean) * factor,
                        (v.w - mean) * factor);
        v = times(v, by);
        if (in.bias && i < in.width) {
            const float4 b = norm_at(in.bias, in, i);
            v = make_float4(v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w);
        }
        if (in.norms_first && i < in.width)
            v = gated(in, v, i);
        if (i >= in.width) /* what pads the vector, whatever factors are there */
            v = all_four(0);
        act_put(act, v, i, to, k, true, PLANE_PAD);
    }
    if (is_later) {
        squares = warp_sum(squares);
        if (lane == 0)
            sums[tid >> 5] = squares;
    }
}

#endif
