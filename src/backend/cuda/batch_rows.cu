/* Rows on their way to and from batched products: atoms, sums of parts, experts' slots. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/batch_params.h"
#include "backend/cuda/rows.cuh"

enum { ATOMS_THREADS = 512 };

/*
 * 16 neighbouring lanes rotate 128 values (tensor/rotate.h), 8 each: lane l has values l, l + 16,
 * ..., which are columns 8 l and on of tiles (gpu_tiles.h). They grow by sqrt(128) at most, for
 * which f16 has room behind 2^12.
 */
static __device__ __forceinline__ void rotate_values(float (&v)[8], int first)
{
    const uint64_t signs[2] = {0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t flips = (uint32_t)(signs[i / 4] >> (16 * (i % 4) + first));
        v[i] *= flips & 1 ? -0.08838834764831845f : 0.08838834764831845f;
    }
#pragma unroll
    for (int o = 1; o < 8; o <<= 1)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & o)) {
                float a = v[i], b = v[i | o];
                v[i] = a + b;
                v[i | o] = a - b;
            }
#pragma unroll
    for (int o = 1; o < 16; o <<= 1)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float other = __shfl_xor_sync(~0u, v[i], o);
            v[i] = threadIdx.x & o ? other - v[i] : v[i] + other;
        }
}

/*
 * A block for each row; missing values and rows are zeros. Rows are scaled by a power of 2 so that
 * the largest value is around 2^12: no value is too large for f16, small ones keep their bits.
 */
extern "C" __global__ void __launch_bounds__(ATOMS_THREADS)
    batch_atoms_rows(const __grid_constant__ batch_atoms p)
{
    int row = blockIdx.x;
    launch_next();
    wait_previous();
    int from = row >= p.n_rows ? -1 : p.map ? p.map[row] : row;
    const float *x = p.x + (from < 0 ? 0 : from) * p.x_stride;
    int width = from < 0 ? 0 : p.width;
    bool is_aligned = ((size_t)x & 15) == 0;
    float most = 0;
    for (int k = threadIdx.x * 4; k < width; k += blockDim.x * 4) {
        if (is_aligned && k + 4 <= width) {
            float4 a = *(const float4 *)(x + k);
            most = fmaxf(most, fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w))));
        } else {
            for (int i = k; i < min(k + 4, width); i++)
                most = fmaxf(most, fabsf(x[i]));
        }
    }
    most = block_max<ATOMS_THREADS>(most);
    int exponent = most > 0 && most < INFINITY ? min(max(12 - ilogbf(most), -100), 100) : 0;
    float scale = ldexpf(1.0f, exponent);
    if (threadIdx.x == 0 && row < p.n_rows)
        p.scales[row] = ldexpf(1.0f, -exponent);
    for (int k = threadIdx.x * 8; k < p.n_k64 * ATOM_K; k += blockDim.x * 8) {
        float v[8];
        const int first = k >> 3 & 15;
        if (p.rotates) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int at = (k & ~127) + 16 * i + first;
                v[i] = at < width ? x[at] : 0.0f;
            }
        } else if (is_aligned && k + 8 <= width) {
            float4 a = *(const float4 *)(x + k), b = *(const float4 *)(x + k + 4);
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
            v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = k + i < width ? x[k + i] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] *= scale;
        if (p.rotates) /* warps are whole: rows of atoms have multiples of 256 values */
            rotate_values(v, first);
        atom_store8(p.out, k, row, (p.n_rows + 7) / 8, v, p.is_half);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    batch_finish_rows(const __grid_constant__ batch_finish p)
{
    int at = (int)(blockIdx.x * blockDim.x + threadIdx.x), t = blockIdx.y, n = 0;
    launch_next();
    wait_previous();
    if (at >= p.part_stride)
        return;
    while (n + 1 < p.n_weights && at >= p.part_offset[n + 1])
        n++;
    int row = at - p.part_offset[n];
    float sum = p.bias[n] ? p.bias[n][row] : 0.0f;
    for (int part = 0; part < p.n_parts; part++)
        sum += p.parts[((int64_t)part * p.n_tokens + t) * p.part_stride + at];
    float *out = p.out[n] + t * p.out_stride[n] + row;
    *out = p.adds ? *out + sum : sum;
}

/* One block. Slots of an expert are in the order of their items. */
extern "C" __global__ void __launch_bounds__(1024)
    batch_sort_items(const __grid_constant__ batch_sort p)
{
    extern __shared__ int32_t begin[]; /* [n_experts + 1] */
    int n_items = p.n_tokens * p.n_used, lane = threadIdx.x & 31;
    wait_previous();
    auto expert_of = [&](int i) {
        return p.choices[(i / p.n_used) * p.choice_stride + i % p.n_used].expert;
    };
    for (int e = threadIdx.x; e <= p.n_experts; e += blockDim.x)
        begin[e] = 0;
    for (int i = threadIdx.x; i < p.n_slots; i += blockDim.x)
        p.items[i] = p.tokens[i] = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < n_items; i += blockDim.x)
        atomicAdd(&begin[1 + expert_of(i)], 1);
    __syncthreads();
    if (threadIdx.x == 0)
        for (int e = 0; e < p.n_experts; e++) {
            p.count[e] = begin[e + 1];
            begin[e + 1] = begin[e] + (begin[e + 1] + 7) / 8 * 8;
        }
    __syncthreads();
    for (int e = threadIdx.x; e <= p.n_experts; e += blockDim.x)
        p.begin[e] = begin[e];
    for (int e = threadIdx.x >> 5; e < p.n_experts; e += blockDim.x >> 5) {
        int slot = begin[e];
        for (int i0 = 0; i0 < n_items; i0 += 32) {
            int i = i0 + lane;
            bool is_mine = i < n_items && expert_of(i) == e;
            uint32_t mask = __ballot_sync(~0u, is_mine);
            if (is_mine) {
                int at = slot + __popc(mask & ((1u << lane) - 1));
                p.items[at] = i;
                p.tokens[at] = i / p.n_used;
            }
            slot += __popc(mask);
        }
    }
}

/* A thread for each slot. */
extern "C" __global__ void __launch_bounds__(256)
    batch_heads_items(const __grid_constant__ batch_heads p)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), head = i / p.padded;
    const int t = i % p.padded;
    wait_previous();
    if (i < p.n_heads) {
        p.begin[i] = i * p.padded;
        p.count[i] = p.n_tokens;
    }
    if (i >= p.n_heads * p.padded)
        return;
    p.items[i] = t < p.n_tokens ? t * p.items_each + head : -1;
    p.inputs[i] = t < p.n_tokens ? t * p.inputs_each + head : -1;
}
