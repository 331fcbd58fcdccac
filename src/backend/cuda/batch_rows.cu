/* Rows on their way to and from batched products: atoms, sums of parts, slots of heads. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/batch_params.h"
#include "backend/cuda/rotate_rows.cuh"
#include "backend/cuda/rows.cuh"

enum { ATOMS_THREADS = 512 };

/*
 * One row by THREADS threads, of which this is number `thread`: a warp or the whole block. Missing
 * values and rows are zeros. Rows are scaled by a power of 2 so that the largest value is around
 * 2^12: no value is too large for f16, small ones keep their bits.
 */
template <int THREADS>
static __device__ __forceinline__ void make_row(const batch_atoms &p, int row, int thread)
{
    int from = row >= p.n_rows ? -1 : p.map ? p.map[row] : row;
    const float *x = p.x + (from < 0 ? 0 : from) * p.x_stride;
    int width = from < 0 ? 0 : p.width;
    bool is_aligned = ((size_t)x & 15) == 0;
    float most = 0;
    for (int k = thread * 4; k < width; k += THREADS * 4) {
        if (is_aligned && k + 4 <= width) {
            float4 a = *(const float4 *)(x + k);
            most = fmaxf(most, fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w))));
        } else {
            for (int i = k; i < min(k + 4, width); i++)
                most = fmaxf(most, fabsf(x[i]));
        }
    }
    most = THREADS == 32 ? warp_max(most) : block_max<THREADS>(most);
    int exponent = most > 0 && most < INFINITY ? min(max(12 - ilogbf(most), -100), 100) : 0;
    float scale = ldexpf(1.0f, exponent);
    if (thread == 0 && row < p.n_rows)
        p.scales[row] = ldexpf(1.0f, -exponent);
    for (int k = thread * 8; k < p.n_k64 * ATOM_K; k += THREADS * 8) {
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

/* A block for each row. */
extern "C" __global__ void __launch_bounds__(ATOMS_THREADS)
    batch_atoms_rows(const __grid_constant__ batch_atoms p)
{
    launch_next();
    wait_previous();
    make_row<ATOMS_THREADS>(p, blockIdx.x, threadIdx.x);
}

/* A warp for each row: for those that are short. */
extern "C" __global__ void __launch_bounds__(32 * ATOM_ROWS)
    batch_atoms_short_rows(const __grid_constant__ batch_atoms p)
{
    launch_next();
    wait_previous();
    make_row<32>(p, blockIdx.x * ATOM_ROWS + (threadIdx.x >> 5), threadIdx.x & 31);
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
