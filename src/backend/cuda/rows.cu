/* General operations on rows of f32: a block of threads for each row. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/block_values.cuh"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/rows.cuh"

enum { THREADS = 256 };

extern "C" __global__ void __launch_bounds__(THREADS) embed_rows(gpu_embed p)
{
    launch_next();
    wait_previous();
    const uint8_t *row =
        p.table + (p.tokens ? (uint64_t)p.tokens[blockIdx.x] * p.row_bytes : 0);
    float *y = p.out + (int64_t)blockIdx.x * p.out_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = p.scale * block_value(p.type, row, i);
}

extern "C" __global__ void __launch_bounds__(THREADS) gather_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)p.indices[blockIdx.x] * p.x_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = x[i];
}

/* Angles are products of two floats, as models were trained with them; then exact functions. */
extern "C" __global__ void __launch_bounds__(THREADS) rope_table_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width / 2; i += THREADS) {
        float angle = __fmul_rn((float)p.indices[blockIdx.x], p.weight[i]), s, c;
        sincosf(angle, &s, &c);
        y[2 * i] = c * p.scale;
        y[2 * i + 1] = s * p.scale;
    }
}

/* blockIdx.y: which group of the row */
extern "C" __global__ void __launch_bounds__(THREADS) rms_norm_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride + (int64_t)blockIdx.y * p.group;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride + (int64_t)blockIdx.y * p.group;
    float sum = 0;
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        sum += x[i] * x[i];
    sum = block_sum<THREADS>(sum);
    float scale = 1.0f / sqrtf(sum / (float)p.group + p.eps);
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        y[i] = x[i] * scale * p.weight[i];
}

/* blockIdx.y: which group of the row */
extern "C" __global__ void __launch_bounds__(THREADS) layer_norm_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride + (int64_t)blockIdx.y * p.group;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride + (int64_t)blockIdx.y * p.group;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        sum += x[i];
    const float mean = block_sum<THREADS>(sum) / (float)p.group;
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        squares += (x[i] - mean) * (x[i] - mean);
    squares = block_sum<THREADS>(squares);
    const float scale = 1.0f / sqrtf(squares / (float)p.group + p.eps);
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        y[i] = (x[i] - mean) * scale * p.weight[i] + (p.bias ? p.bias[i] : 0.0f);
}

extern "C" __global__ void __launch_bounds__(THREADS) add_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] += p.scale * x[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) glu_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    const float *z = p.z + (int64_t)blockIdx.x * p.z_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = glu(p.kind, x[i], z[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS) softcap_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = p.scale * tanhf(y[i] / p.scale);
}

/* Softmax over all experts, then the best n_used of them, the lower number on a tie. One warp. */
extern "C" __global__ void __launch_bounds__(32) route_rows(gpu_route p)
{
    launch_next();
    wait_previous();
    const float *x = p.logits + (int64_t)blockIdx.x * p.logits_stride;
    gpu_choice *out = p.out + (int64_t)blockIdx.x * p.out_stride;
    const int lane = threadIdx.x;
    float most = -INFINITY, sum = 0, chosen = 0;
    for (int e = lane; e < p.n_experts; e += 32)
        most = fmaxf(most, x[e]);
    most = warp_max(most);
    for (int e = lane; e < p.n_experts; e += 32)
        sum += expf(x[e] - most);
    sum = warp_sum(sum);
    for (int k = 0; k < p.n_used; k++) {
        float value = -INFINITY;
        int best = p.n_experts;
        for (int e = lane; e < p.n_experts; e += 32) {
            bool taken = false;
            for (int j = 0; j < k && !taken; j++)
                taken = out[j].expert == e;
            if (!taken && (best == p.n_experts || x[e] > value)) {
                value = x[e];
                best = e;
            }
        }
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            float v = __shfl_xor_sync(~0u, value, o);
            int b = __shfl_xor_sync(~0u, best, o);
            if (b < p.n_experts && (best == p.n_experts || v > value || (v == value && b < best))) {
                value = v;
                best = b;
            }
        }
        float share = expf(value - most) / sum;
        chosen += share;
        if (lane == 0)
            out[k] = {best, share};
        __syncwarp();
    }
    for (int k = lane; k < p.n_used && p.norms; k += 32)
        out[k].weight /= chosen;
}

extern "C" __global__ void __launch_bounds__(THREADS) combine_rows(gpu_combine p)
{
    launch_next();
    wait_previous();
    const int64_t t = blockIdx.x;
    for (int i = threadIdx.x; i < p.width; i += THREADS) {
        float sum = 0;
        for (int k = 0; k < p.n_used; k++)
            sum += p.choices[t * p.choice_stride + k].weight *
                   p.rows[(t * p.n_used + k) * p.rows_stride + i];
        p.out[t * p.out_stride + i] += p.scale * sum;
    }
}
