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
    uint32_t index = p.tokens ? (uint32_t)p.tokens[blockIdx.x] : 0;
    const uint8_t *row = p.table + (index < p.n_rows ? index * p.row_bytes : 0);
    float *y = p.out + (int64_t)blockIdx.x * p.out_stride;
    if (p.given && (int32_t)index == p.given_id) {
        const float *given = p.given + (int64_t)blockIdx.x * p.given_stride;
        for (int i = threadIdx.x; i < p.width; i += THREADS)
            y[i] = given[i];
        return;
    }
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = p.scale * block_value(p.type, row, i);
    if (!p.beside)
        return;
    const float *beside = p.beside + (int64_t)blockIdx.x * p.width;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[p.width + i] = beside[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) add_given_rows(gpu_add_given p)
{
    launch_next();
    wait_previous();
    const float *given = p.given + (int64_t)blockIdx.x * p.given_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    if (p.tokens[blockIdx.x] != p.given_id)
        return;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] += given[i];
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

/* The axis of positions that a frequency turns by, as rope_table_ref has it. */
static __device__ __forceinline__ int axis_of(const gpu_rope_table &p, int frequency)
{
    if (p.is_interleaved) {
        const int axis = frequency % 3;
        return frequency < 3 * p.sections[axis] ? axis : 0;
    }
    int end = 0;
    for (int axis = 0; axis < GPU_MAX_AXES; axis++) {
        end += p.sections[axis];
        if (frequency < end)
            return axis;
    }
    return 0;
}

/* Angles are products of two floats, as models were trained with them; then exact functions. */
extern "C" __global__ void __launch_bounds__(THREADS) rope_table_rows(gpu_rope_table p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    const int own = p.positions[blockIdx.x] + (p.turn ? *p.turn : 0);
    for (int i = threadIdx.x; i < p.width / 2; i += THREADS) {
        const int axis = p.axes ? axis_of(p, i) : 0;
        const int position =
            p.axes && axis < p.n_axes ? p.axes[(int64_t)axis * p.n_tokens + blockIdx.x] : own;
        float angle = __fmul_rn((float)position, p.frequencies[i]), s, c;
        sincosf(angle, &s, &c);
        y[2 * i] = c * p.magnitude;
        y[2 * i + 1] = s * p.magnitude;
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
    const float *by = p.weight + (p.kind ? (int64_t)blockIdx.y * p.group : 0);
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        y[i] = x[i] * scale * by[i];
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
    const int64_t wide = p.kind ? (int64_t)blockIdx.y * p.group : 0;
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        y[i] = (x[i] - mean) * scale * p.weight[wide + i] + (p.bias ? p.bias[wide + i] : 0.0f);
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

/* What MATMUL_HEADS copies. */
extern "C" __global__ void __launch_bounds__(THREADS) heads_rest_rows(gpu_rest p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.n_heads * p.n_rest; i += THREADS) {
        int head = i / p.n_rest, at = i % p.n_rest;
        y[head * (p.n_rows + p.n_rest) + p.n_rows + at] =
            x[head * (p.n_cols + p.n_rest) + p.n_cols + at];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) glu_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    const float *z = p.z + (int64_t)blockIdx.x * p.z_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = glu(p.kind, x[p.group > 1 ? i / p.group : i], p.z ? z[i] : 1.0f);
}

extern "C" __global__ void __launch_bounds__(THREADS) xielu_rows(gpu_xielu p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS) {
        float x = y[i];
        y[i] = x > 0 ? p.alpha_p * x * x + p.beta * x
                     : (expm1f(fminf(x, p.eps)) - x) * p.alpha_n + p.beta * x;
    }
}

/* blockIdx.y: which stream of what comes out */
extern "C" __global__ void __launch_bounds__(THREADS) mix_rows(gpu_mix p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    const float *by = p.weights + (int64_t)blockIdx.x * p.weights_stride + blockIdx.y * p.n_in;
    const int64_t at = (int64_t)blockIdx.y * p.width;
    const float *base = p.base + (int64_t)blockIdx.x * p.base_stride + at;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride + at;
    for (int i = threadIdx.x; i < p.width; i += THREADS) {
        float sum = base[i];
        for (int k = 0; k < p.n_in; k++)
            sum += by[k] * x[(int64_t)k * p.width + i];
        y[i] = sum;
    }
}

/* blockIdx.y: which stream of p.group columns of what comes out; p.kind: the first is the target. */
extern "C" __global__ void __launch_bounds__(THREADS) match_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *target = p.z + (int64_t)blockIdx.x * p.z_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride + (int64_t)blockIdx.y * p.group;
    if (p.kind && blockIdx.y == 0) {
        for (int i = threadIdx.x; i < p.group; i += THREADS)
            y[i] = target[i];
        return;
    }
    const int stream = p.kind ? blockIdx.y - 1 : blockIdx.y;
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride + (int64_t)stream * p.group;
    float wanted = 0, found = 0;
    for (int i = threadIdx.x; i < p.group; i += THREADS) {
        wanted += target[i] * target[i];
        found += x[i] * x[i];
    }
    wanted = block_sum<THREADS>(wanted) / (float)p.group;
    found = block_sum<THREADS>(found) / (float)p.group;
    const float scale = p.scale * sqrtf(wanted) / sqrtf(found > p.eps ? found : p.eps);
    for (int i = threadIdx.x; i < p.group; i += THREADS)
        y[i] = x[i] * scale;
}

extern "C" __global__ void __launch_bounds__(THREADS) cutoff_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        sum += y[i];
    const float mean = block_sum<THREADS>(sum) / (float)p.width;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        squares += (y[i] - mean) * (y[i] - mean);
    const float least = mean + p.scale * sqrtf(block_sum<THREADS>(squares) / (float)p.width);
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = y[i] < least ? 0.0f : y[i] - least;
}

/* Of every p.kind columns p.group. */
extern "C" __global__ void __launch_bounds__(THREADS) pick_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = x[i / p.group * p.kind + i % p.group];
}

/* p.kind is added to a position, p.group is the length. */
extern "C" __global__ void __launch_bounds__(THREADS) temperature_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    int n = (p.indices[blockIdx.x] + p.kind) / p.group;
    float factor = 1.0f + p.scale * logf((float)(1 + n));
    for (int i = threadIdx.x; i < p.width && n > 0; i += THREADS)
        y[i] *= factor;
}

extern "C" __global__ void __launch_bounds__(THREADS) softcap_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = threadIdx.x; i < p.width; i += THREADS)
        y[i] = p.scale * tanhf(y[i] / p.scale);
}

/* ---- The router ------------------------------------------------------------------------------ */

/* One warp: the largest of n keys that is not taken, the lower number on a tie. */
__device__ __forceinline__ int best_of(const float *keys, const int *taken, int n, int lane)
{
    float value = -INFINITY;
    int best = n;
    for (int e = lane; e < n; e += 32)
        if (!taken[e] && (best == n || keys[e] > value)) {
            value = keys[e];
            best = e;
        }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        float v = __shfl_xor_sync(~0u, value, o);
        int b = __shfl_xor_sync(~0u, best, o);
        if (b < n && (best == n || v > value || (v == value && b < best))) {
            value = v;
            best = b;
        }
    }
    /* Where a NaN is among them, lanes may disagree. */
    return __shfl_sync(~0u, best, 0);
}

/* One warp: takes the experts of all groups but the best. ranks: [n_groups] */
__device__ __forceinline__ void limit_groups(const gpu_route &p, const float *keys, float *ranks,
                                             int *taken, int lane)
{
    const int size = p.n_experts / p.n_groups;
    for (int g = lane; g < p.n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            second = fmaxf(second, fminf(first, keys[e]));
            first = fmaxf(first, keys[e]);
        }
        ranks[g] = p.n_ranking > 1 && size > 1 ? first + second : first;
    }
    __syncwarp();
    for (int k = 0; k < p.n_groups_used; k++) {
        int best = best_of(ranks, taken, p.n_groups, lane);
        if (lane == 0)
            taken[best] = 1;
        __syncwarp();
    }
    /* The marks of groups stand where those of the first experts will. */
    for (int begin = (p.n_experts - 1) / 32 * 32; begin >= 0; begin -= 32) {
        int e = begin + lane, is_out = e < p.n_experts ? !taken[e / size] : 0;
        __syncwarp();
        if (e < p.n_experts)
            taken[e] = is_out;
        __syncwarp();
    }
}

/* One warp, SparseMixer: the share of the best among those that are left and near it. */
__device__ __forceinline__ float share_of_near(const gpu_route &p, const float *x, int best,
                                               const int *taken, int lane)
{
    float most = x[best], sum = 0;
    for (int e = lane; e < p.n_experts; e += 32)
        if (!taken[e] && most - x[e] <= 2 * p.jitter * fmaxf(fabsf(x[e]), most))
            sum += expf(x[e] - most);
    return 1 / warp_sum(sum);
}

/* The experts of a token by the rule of ops/step.h. One warp. */
extern "C" __global__ void __launch_bounds__(32) route_rows(gpu_route p)
{
    enum { SOFTMAX, SIGMOID, MIXER };
    extern __shared__ float route_shared[];
    float *keys = route_shared, *ranks = keys + p.n_experts; /* [n_experts] each */
    int *taken = (int *)(ranks + p.n_experts);
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
    auto score_of = [&](int e) {
        return p.scores == SIGMOID ? 1 / (1 + expf(-x[e])) : expf(x[e] - most) / sum;
    };
    for (int e = lane; e < p.n_experts; e += 32) {
        taken[e] = 0;
        keys[e] = !p.bias && p.n_groups <= 1 ? x[e] : score_of(e) + (p.bias ? p.bias[e] : 0);
    }
    __syncwarp();
    if (p.n_groups > 1)
        limit_groups(p, keys, ranks, taken, lane);
    for (int k = 0; k < p.n_used; k++) {
        int best = best_of(keys, taken, p.n_experts, lane);
        float share = p.scores == MIXER ? share_of_near(p, x, best, taken, lane) : score_of(best);
        chosen += share;
        __syncwarp();
        if (lane == 0) {
            taken[best] = 1;
            out[k] = {best, share};
        }
        __syncwarp();
    }
    float divisor = p.norms ? fmaxf(chosen + p.norm_more, p.norm_least) : 1;
    for (int k = lane; k < p.n_used; k += 32)
        out[k].weight =
            out[k].weight / divisor * p.factor * (p.scales ? p.scales[out[k].expert] : 1);
}

/* A block for each token and some of its columns; gridDim.y of them share a token. */
extern "C" __global__ void __launch_bounds__(THREADS) combine_rows(gpu_combine p)
{
    launch_next();
    wait_previous();
    const int64_t t = blockIdx.x;
    const gpu_choice *choices = p.choices + t * p.choice_stride;
    const float *rows = p.rows + t * p.n_used * p.rows_stride;
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < p.width; i += gridDim.y * THREADS) {
        float sum = 0;
        if (p.n_parts > 1) {
            for (int k = 0; k < p.n_used; k++) {
                float v = 0;
                for (int part = 0; part < p.n_parts; part++)
                    v += rows[part * p.part_stride + k * p.rows_stride + i];
                sum += (p.is_weighed ? 1 : choices[k].weight) * v;
            }
        } else {
#pragma unroll 8 /* all are on their way before the first is added */
            for (int k = 0; k < p.n_used; k++)
                sum += (p.is_weighed ? 1 : choices[k].weight) * rows[k * p.rows_stride + i];
        }
        float *out = p.out + t * p.out_stride + i;
        *out = (p.makes ? 0 : *out) + p.scale * sum;
    }
}
