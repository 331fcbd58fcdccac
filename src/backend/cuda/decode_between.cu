/*
 * One token: what products and attention do not do by themselves. Norms behind a product, matrices
 * of floats, and vectors that other kernels made in floats.
 */
#include "backend/cuda/decode_input.cuh"

/* ---- Norms behind products ------------------------------------------------------------------- */

/*
 * The residual grows by a product's result, normed; and on as the input of what follows. One block,
 * since a norm needs all of its values: everything that does not wait for the product is there
 * before.
 */
extern "C" __global__ void __launch_bounds__(DECODE_JOIN_THREADS)
    decode_join_kernel(const __grid_constant__ decode_join p)
{
    constexpr int STEP = 4 * DECODE_JOIN_THREADS, MANY = DECODE_JOIN_WIDTH / STEP;
    const int tid = threadIdx.x;
    const float4 zero = make_float4(0, 0, 0, 0), one = make_float4(1, 1, 1, 1);
    float4 y[MANY], weight[MANY], next[MANY], x[MANY];
    float sum = 0;
    let_next_begin();
#pragma unroll
    for (int n = 0; n < MANY; n++) {
        int i = 4 * tid + n * STEP;
        bool is_in = i < p.width;
        weight[n] = is_in ? __ldg((const float4 *)(p.norm + i)) : zero;
        next[n] = is_in && p.next_norm ? __ldg((const float4 *)(p.next_norm + i)) : one;
    }
    wait_for_last();
#pragma unroll
    for (int n = 0; n < MANY; n++) {
        int i = 4 * tid + n * STEP;
        y[n] = i < p.width ? __ldcg((const float4 *)(p.y + i)) : zero;
        x[n] = i < p.width ? __ldcg((const float4 *)(p.before + i)) : zero;
    }
#pragma unroll
    for (int n = 0; n < MANY; n++)
        sum += dot4(y[n], y[n]);
    sum = block_sum<DECODE_JOIN_THREADS>(sum);
    const float scale = p.scale * rsqrtf(sum / (float)p.width + p.eps);
    sum = 0;
#pragma unroll
    for (int n = 0; n < MANY; n++) {
        x[n].x = fmaf(scale * y[n].x, weight[n].x, __fmul_rn(p.keep, x[n].x));
        x[n].y = fmaf(scale * y[n].y, weight[n].y, __fmul_rn(p.keep, x[n].y));
        x[n].z = fmaf(scale * y[n].z, weight[n].z, __fmul_rn(p.keep, x[n].z));
        x[n].w = fmaf(scale * y[n].w, weight[n].w, __fmul_rn(p.keep, x[n].w));
        sum += dot4(x[n], x[n]);
    }
#pragma unroll
    for (int n = 0; n < MANY; n++) {
        int i = 4 * tid + n * STEP;
        bool is_in = i < p.width; /* a multiple of 16: groups stay whole */
        if (is_in)
            *(float4 *)(p.residual + i) = x[n];
        float4 v = make_float4(x[n].x * next[n].x, x[n].y * next[n].y, x[n].z * next[n].z,
                               x[n].w * next[n].w);
        if (p.next.planes)
            act_put((gpu_act)p.next.act, v, i, p.next.planes, p.next.k, is_in);
    }
    if (!p.next_squares)
        return;
    sum = block_sum<DECODE_JOIN_THREADS>(sum);
    if (tid == 0)
        p.next_squares[0] = sum;
}

/* ---- Matrices of floats ---------------------------------------------------------------------- */

/* A block for each row: of routers, and of whatever else a model keeps in floats. */
extern "C" __global__ void __launch_bounds__(DECODE_ROUTER_THREADS)
    decode_rows_kernel(const __grid_constant__ decode_rows p)
{
    constexpr int THREADS = DECODE_ROUTER_THREADS, STEP = 4 * THREADS, HELD = 4;
    __shared__ float2 warps[THREADS / 32];
    const int tid = threadIdx.x;
    let_next_begin();
    int n = 0;
    while (n + 1 < p.n_parts && (int)blockIdx.x >= p.parts[n + 1].first)
        n++;
    const auto &part = p.parts[n];
    const decode_input &in = p.made;
    const int row = (int)blockIdx.x - part.first;
    const float *weights = part.weights + (int64_t)row * in.width;
    auto weights_at = [&](int i) {
        float4 w = i < in.width ? __ldg((const float4 *)(weights + i)) : all_four(0);
        return in.norm ? times(w, norm_at(in.norm, in, i)) : w;
    };
    float2 sum = make_float2(0, 0);
    auto multiply = [&](float4 w, int i) {
        if (i >= in.width)
            return;
        float4 v = input_at(in, i);
        sum.y += dot4(v, v);
        if (in.norms_first)
            v = gated(in, v, i);
        sum.x += dot4(w, v);
    };
    float4 held[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++)
        held[j] = weights_at(4 * tid + j * STEP);
    wait_for_last();
#pragma unroll
    for (int j = 0; j < HELD; j++)
        multiply(held[j], 4 * tid + j * STEP);
    for (int i = 4 * tid + HELD * STEP; i < in.width; i += STEP)
        multiply(weights_at(i), i);
    sum.x = warp_sum(sum.x);
    sum.y = warp_sum(sum.y);
    if ((tid & 31) == 0)
        warps[tid >> 5] = sum;
    __syncthreads();
    if (tid > 0)
        return;
    float dot = 0, squares = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
        dot += warps[w].x;
        squares += warps[w].y;
    }
    if (in.norm)
        dot *= 1.0f / sqrtf(squares / (float)in.width + in.eps);
    dot = part.scale * dot + (part.bias ? part.bias[row] : 0.0f);
    part.out[row] = p.adds ? part.out[row] + dot : dot;
}

/* ---- Floats ---------------------------------------------------------------------------------- */

/* A vector of floats as a product wants it. */
extern "C" __global__ void __launch_bounds__(DECODE_PACK_THREADS)
    decode_pack_kernel(const __grid_constant__ decode_pack p)
{
    const int i = 4 * (blockIdx.x * DECODE_PACK_THREADS + threadIdx.x);
    const bool is_in = i < p.width;
    let_next_begin();
    wait_for_last();
    float4 v = is_in ? __ldcg((const float4 *)(p.x + i)) : make_float4(0, 0, 0, 0);
    act_put((gpu_act)p.next.act, v, i, p.next.planes, p.next.k, is_in);
}
