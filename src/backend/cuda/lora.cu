/* Adapters (ops/lora.h): rows that use none of them are passed over. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/lora_params.h"
#include "backend/cuda/rows.cuh"

enum { LORA_THREADS = 256, LORA_WARPS = LORA_THREADS / 32 };

static __device__ __forceinline__ int token_of(const gpu_lora &p, int row)
{
    const int i = p.row_factor > 1 ? row / p.row_factor : row;
    return p.is_output ? p.outputs[i] : i;
}

static __device__ __forceinline__ float scale_of(const gpu_lora &p, int token, const lora_piece &of)
{
    return p.scales[(int64_t)p.sequences[token] * p.n_adapters + of.adapter];
}

static __device__ __forceinline__ float value_at(uint64_t from, int type, int64_t i)
{
    if (type == LORA_PIECE_F32)
        return ((const float *)from)[i];
    const unsigned short bits = ((const unsigned short *)from)[i];
    return type == LORA_PIECE_F16 ? __half2float(__ushort_as_half(bits))
                                  : __uint_as_float((uint32_t)bits << 16);
}

/* A warp for each of the few values: blockIdx.x is the row, its blocks share them. */
extern "C" __global__ void __launch_bounds__(LORA_THREADS) lora_down_rows(gpu_lora p)
{
    launch_next();
    wait_previous();
    const int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int token = token_of(p, row), step = LORA_WARPS * gridDim.y;
    const int64_t padded = (p.n_in + LORA_PIECE_PANEL - 1) / LORA_PIECE_PANEL * LORA_PIECE_PANEL;
    const float *x = p.x + (int64_t)row * p.x_stride;
    float *y = p.y + (int64_t)row * p.y_stride;
    for (int k = 0; k < p.n_pieces; k++) {
        const lora_piece of = p.pieces[k];
        if (scale_of(p, token, of) == 0.0f)
            continue;
        for (int r = LORA_WARPS * blockIdx.y + warp; r < of.rank; r += step) {
            float sum = 0;
            if (p.is_table) {
                const int id = p.tokens[token];
                sum = id < 0 ? 0.0f : value_at(of.down, of.type, (int64_t)id * of.rank + r);
            } else {
                for (int64_t i = lane; i < p.n_in; i += 32)
                    sum += value_at(of.down, of.type, r * padded + i) * x[i];
                sum = warp_sum(sum);
            }
            if (lane == 0)
                y[of.first + r] = sum;
        }
    }
}

/* A thread for each column of y. */
extern "C" __global__ void __launch_bounds__(LORA_THREADS) lora_up_rows(gpu_lora p)
{
    launch_next();
    wait_previous();
    const int row = blockIdx.x, token = token_of(p, row);
    const int64_t c = (int64_t)blockIdx.y * LORA_THREADS + threadIdx.x;
    const float *x = p.x + (int64_t)row * p.x_stride;
    for (int k = 0; k < p.n_pieces && c < p.n_out; k++) {
        const lora_piece of = p.pieces[k];
        const float scale = scale_of(p, token, of);
        if (scale == 0.0f)
            continue;
        const int64_t at = c / LORA_PIECE_PANEL * of.rank * LORA_PIECE_PANEL + c % LORA_PIECE_PANEL;
        float sum = 0;
        for (int r = 0; r < of.rank; r++)
            sum += value_at(of.up, of.type, at + (int64_t)r * LORA_PIECE_PANEL) * x[of.first + r];
        p.y[(int64_t)row * p.y_stride + c] += sum * (scale * of.factor * p.scale);
    }
}
