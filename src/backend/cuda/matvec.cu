/*
 * General products of a matrix with rows of f32 activations: one row of blocks for each row of x.
 *
 * A block turns its row of x into the planes that tiles are multiplied with, in shared memory, then
 * takes groups of 16 rows; its warps share the tiles of a group. Sums are made in a fixed order.
 */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/tile_dot.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

template <int KIND> __device__ __forceinline__ gpu_act act_of()
{
    return KIND == TILE_F16 ? GPU_ACT_F16 : KIND == TILE_BF16 ? GPU_ACT_BF16 : GPU_ACT_INT;
}

/* Where what row y of the grid multiplies lies: offsets, since loads through pointers that were
 * chosen are slower than those through parameters. */
struct matvec_row {
    uint64_t tiles;
    int64_t bias, x, out;
    float scale;
};

__device__ __forceinline__ matvec_row row_of(const gpu_matvec &p, int y)
{
    if (p.n_heads > 0) {
        const int64_t t = y / p.n_heads, head = y % p.n_heads;
        return {(uint64_t)head * p.expert_bytes, 0, t * p.x_stride + head * p.head_x,
                t * p.out_stride + head * p.head_out, p.scale};
    }
    int expert = 0;
    float scale = p.scale;
    if (p.choices) {
        gpu_choice c = p.choices[(int64_t)(y / p.n_used) * p.choice_stride + y % p.n_used];
        expert = c.expert;
        scale *= p.weighs ? c.weight : 1;
    }
    return {(uint64_t)expert * p.expert_bytes, (int64_t)expert * p.n_rows,
            (int64_t)(y / p.x_divisor) * p.x_stride, (int64_t)y * p.out_stride, scale};
}

template <int KIND> __device__ __forceinline__ void matvec(const gpu_matvec &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ float parts[WARPS][TILE_ROWS];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int k = (p.n_cols + GPU_K_ALIGN - 1) / GPU_K_ALIGN * GPU_K_ALIGN;
    const matvec_row r = row_of(p, blockIdx.y);
    const uint8_t *tiles = p.tiles + r.tiles;
    const float *x = p.x + r.x;

    for (int i = 4 * tid; i < k; i += 4 * THREADS) {
        float4 v;
        v.x = i < p.n_cols ? x[i] : 0.0f;
        v.y = i + 1 < p.n_cols ? x[i + 1] : 0.0f;
        v.z = i + 2 < p.n_cols ? x[i + 2] : 0.0f;
        v.w = i + 3 < p.n_cols ? x[i + 3] : 0.0f;
        act_put(act_of<KIND>(), v, i, shared, k); /* k is a multiple of 256: warps stay whole */
    }
    __syncthreads();
    const act_view view = act_view_of(shared, k, act_value_bytes(act_of<KIND>()));

    const int n_groups = (p.n_rows + TILE_ROWS - 1) / TILE_ROWS;
    const int n_tiles = (p.n_cols + tile_info<KIND>::cols - 1) / tile_info<KIND>::cols;
    for (int g = blockIdx.x; g < n_groups; g += gridDim.x) {
        const uint8_t *row = tiles + (uint64_t)g * n_tiles * tile_info<KIND>::bytes;
        float y0 = 0, y1 = 0;
        for (int t = warp; t < n_tiles; t += WARPS) {
            tile_frag<KIND> f;
            tile_load<KIND, true>(f, row + (uint64_t)t * tile_info<KIND>::bytes, lane);
            act_frag<KIND> a;
            act_load<KIND>(a, view, t, lane);
            tile_multiply<KIND>(y0, y1, f, a, lane);
        }
        y0 = tile_reduce(y0);
        y1 = tile_reduce(y1);
        if ((lane & 3) == 0) {
            parts[warp][lane >> 2] = y0;
            parts[warp][8 + (lane >> 2)] = y1;
        }
        __syncthreads();
        int out_row = TILE_ROWS * g + tid;
        if (tid < TILE_ROWS && out_row < p.n_rows) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                sum += parts[w][tid];
            sum = r.scale * sum + (p.bias ? p.bias[r.bias + out_row] : 0.0f);
            float *out = p.out + r.out + out_row;
            *out = p.adds ? *out + sum : sum;
        }
        __syncthreads();
    }
}

#define X(id, name, n_bytes, n_cols)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS) matvec_##id(gpu_matvec p)                \
    {                                                                                              \
        launch_next();                                                                             \
        wait_previous();                                                                           \
        matvec<TILE_##id>(p);                                                                      \
    }
template <> __device__ __forceinline__ void matvec<TILE_F32>(const gpu_matvec &p)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const matvec_row r = row_of(p, blockIdx.y);
    const float *w = (const float *)(p.tiles + r.tiles), *x = p.x + r.x;
    for (int row = blockIdx.x * WARPS + warp; row < p.n_rows; row += gridDim.x * WARPS) {
        float sum = 0;
        for (int i = lane; i < p.n_cols; i += 32)
            sum += w[(int64_t)row * p.n_cols + i] * x[i];
#pragma unroll
        for (int o = 16; o; o >>= 1)
            sum += __shfl_xor_sync(~0u, sum, o);
        if (lane == 0) {
            sum = r.scale * sum + (p.bias ? p.bias[r.bias + row] : 0.0f);
            float *out = p.out + r.out + row;
            *out = p.adds ? *out + sum : sum;
        }
    }
}
TILE_LIST(X)
#undef X
