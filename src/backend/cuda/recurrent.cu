/* General operations with recurrent state, token by token: convolutions and the delta rule. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/rows.cuh"

/* ---- Convolution ----------------------------------------------------------------------------- */

enum { CONV_THREADS = 128, CONV_TOKENS = 8, CONV_TAPS = 4 };

__device__ __forceinline__ float *conv_past(const gpu_conv &p, int sequence)
{
    return (float *)(p.state + (uint64_t)sequence * p.slot_bytes);
}

/* Eight tokens of one sequence, which begins the batch or has the tokens before them too. */
__device__ __forceinline__ void conv_together(const gpu_conv &p, int c, int t0, const float *past)
{
    const float *taps = p.weight + (int64_t)c * p.n_taps;
    float x[CONV_TOKENS + CONV_TAPS - 1], w[CONV_TAPS];
#pragma unroll
    for (int i = 0; i < CONV_TOKENS + CONV_TAPS - 1; i++) {
        const int t = t0 + i - (CONV_TAPS - 1), before = p.n_taps - 1 + t;
        x[i] = t >= p.n_tokens ? 0.0f
               : t >= 0        ? p.x[t * p.x_stride + c]
               : before >= 0   ? past[(int64_t)before * p.width]
                               : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < CONV_TAPS; k++) /* counted back from the last */
        w[k] = k < p.n_taps ? taps[p.n_taps - 1 - k] : 0.0f;
    const float bias = p.bias ? p.bias[c] : 0.0f;
#pragma unroll
    for (int i = 0; i < CONV_TOKENS; i++) {
        float sum = bias;
#pragma unroll
        for (int k = 0; k < CONV_TAPS; k++)
            if (k < p.n_taps)
                sum += w[k] * x[CONV_TAPS - 1 + i - k];
        if (t0 + i < p.n_tokens)
            p.y[(t0 + i) * p.y_stride + c] = p.is_silu ? sum / (1.0f + expf(-sum)) : sum;
    }
}

/* One token, with those before it wherever they are. */
__device__ __forceinline__ void conv_one(const gpu_conv &p, int c, int t)
{
    const float x = p.x[t * p.x_stride + c], *taps = p.weight + (int64_t)c * p.n_taps;
    float sum = (p.bias ? p.bias[c] : 0.0f) + taps[p.n_taps - 1] * x;
    int at = t, n_before = 0; /* inputs that the batch has not */
    const int sequence = p.sequences[t];
    float *past = conv_past(p, sequence) + c;
    for (int k = p.n_taps - 2; k >= 0; k--) {
        while (at >= 0 && --at >= 0 && p.sequences[at] != sequence)
            ;
        sum += taps[k] * (at >= 0 ? p.x[at * p.x_stride + c]
                                  : past[(int64_t)(p.n_taps - 2 - n_before++) * p.width]);
    }
    p.y[t * p.y_stride + c] = p.is_silu ? sum / (1.0f + expf(-sum)) : sum;
    if (p.n_tokens > 1)
        return;
    for (int k = 0; k < p.n_taps - 2; k++)
        past[(int64_t)k * p.width] = past[(int64_t)(k + 1) * p.width];
    past[(int64_t)(p.n_taps - 2) * p.width] = x;
}

/* A thread for each channel, blockIdx.y: which eight tokens. One token alone also moves the state
 * on. */
extern "C" __global__ void __launch_bounds__(CONV_THREADS) conv_channels(gpu_conv p)
{
    launch_next();
    wait_previous();
    const int c = blockIdx.x * CONV_THREADS + threadIdx.x, t0 = blockIdx.y * CONV_TOKENS;
    const int end = min(t0 + CONV_TOKENS, p.n_tokens);
    bool is_one = p.n_taps <= CONV_TAPS && p.n_tokens > 1;
    for (int t = max(0, t0 - p.n_taps + 1); is_one && t < end; t++)
        is_one = p.sequences[t] == p.sequences[t0];
    if (c >= p.width)
        return;
    if (is_one) {
        conv_together(p, c, t0, conv_past(p, p.sequences[t0]) + c);
        return;
    }
    for (int t = t0; t < end; t++)
        conv_one(p, c, t);
}

/* Behind it, for several tokens: what the next ones will need. blockIdx.y: which sequence. */
extern "C" __global__ void __launch_bounds__(CONV_THREADS) conv_keep(gpu_conv p)
{
    launch_next();
    wait_previous();
    const int c = blockIdx.x * CONV_THREADS + threadIdx.x, sequence = blockIdx.y;
    if (c >= p.width)
        return;
    float *past = conv_past(p, sequence) + c;
    int n = 0; /* tokens of the sequence */
    for (int t = 0; t < p.n_tokens && n < p.n_taps - 1; t++)
        n += p.sequences[t] == sequence;
    if (n == 0)
        return;
    for (int k = 0; k < p.n_taps - 1 - n; k++)
        past[(int64_t)k * p.width] = past[(int64_t)(k + n) * p.width];
    for (int t = p.n_tokens - 1, k = p.n_taps - 2; n > 0; t--)
        if (p.sequences[t] == sequence) {
            past[(int64_t)k-- * p.width] = p.x[t * p.x_stride + c];
            n--;
        }
}

/* ---- Delta rule ------------------------------------------------------------------------------ */

enum { DELTA_WARPS = 8 };

/*
 * 32 columns of a head of one sequence: a thread for each column, and a warp for an eighth of the
 * state's rows, which stay in registers from the first token to the last. Every warp makes the
 * lengths of q and k 1 by itself; what the warps see is added up in shared memory, in turns, so that
 * a token takes one barrier.
 */
template <int ROWS> __device__ __forceinline__ void delta_columns(const gpu_delta &p)
{
    launch_next();
    wait_previous();
    __shared__ float seen[2][DELTA_WARPS][32], sums[2][DELTA_WARPS][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, h = blockIdx.x;
    const int c = blockIdx.y * 32 + lane;
    const int sequence = p.n_tokens == 1 ? p.sequences[0] : blockIdx.z;
    const int key = p.is_tiled ? h % p.n_key_heads : h / (p.n_heads / p.n_key_heads);
    const int n_rows = (p.k_dim + DELTA_WARPS - 1) / DELTA_WARPS, first = warp * n_rows;
    float *state = (float *)(p.state + (uint64_t)sequence * p.slot_bytes) +
                   ((int64_t)h * p.k_dim + first) * p.v_dim + c;
    tokens_of mine(p.sequences, sequence, p.n_tokens);
    if (mine.n == 0 || (p.few > 0 && mine.n >= p.few))
        return;
    float s[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        s[i] =
            i < n_rows && first + i < p.k_dim && c < p.v_dim ? state[(int64_t)i * p.v_dim] : 0.0f;
    int turn = 0;
    for (int t = mine.first; mine.n > 0; t++) {
        if (p.n_tokens > 1 && p.sequences[t] != sequence)
            continue;
        mine.n--;
        const float *row = p.qkv + t * p.qkv_stride;
        const float *q = row + key * p.k_dim, *k = q + p.n_key_heads * p.k_dim;
        const float v = c < p.v_dim ? row[2 * p.n_key_heads * p.k_dim + h * p.v_dim + c] : 0.0f;
        float qq = 0, kk = 0, qk = 0;
        for (int i = lane; i < p.k_dim; i += 32) {
            qq += q[i] * q[i];
            kk += k[i] * k[i];
            qk += q[i] * k[i];
        }
        const float q_unit = rsqrtf(warp_sum(qq) + p.eps) * rsqrtf((float)p.k_dim);
        const float k_unit = rsqrtf(warp_sum(kk) + p.eps);
        qk = warp_sum(qk) * q_unit * k_unit;
        const float z = p.a[t * p.a_stride + h] + p.bias[h];
        const float decay = expf(p.rate[h] * (z > 30.0f ? z : log1pf(expf(z))));
        const float beta = 1.0f / (1.0f + expf(-p.b[t * p.b_stride + h]));
        float from_k = 0, from_q = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (i < n_rows && first + i < p.k_dim) {
                from_k += k[first + i] * s[i];
                from_q += q[first + i] * s[i];
            }
        seen[turn][warp][lane] = from_k;
        sums[turn][warp][lane] = from_q;
        __syncthreads();
        from_k = from_q = 0;
#pragma unroll
        for (int w = 0; w < DELTA_WARPS; w++) {
            from_k += seen[turn][w][lane];
            from_q += sums[turn][w][lane];
        }
        turn ^= 1;
        const float learned = beta * (v - decay * k_unit * from_k);
        if (warp == 0 && c < p.v_dim)
            p.out[t * p.out_stride + h * p.v_dim + c] = decay * q_unit * from_q + qk * learned;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (i < n_rows && first + i < p.k_dim)
                s[i] = decay * s[i] + k_unit * k[first + i] * learned;
    }
    if (c >= p.v_dim)
        return;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (i < n_rows && first + i < p.k_dim)
            state[(int64_t)i * p.v_dim] = s[i];
}

/* For keys of up to 128, 256 and 1024 values. */
extern "C" __global__ void __launch_bounds__(32 * DELTA_WARPS) delta_columns_16(gpu_delta p)
{
    delta_columns<16>(p);
}

extern "C" __global__ void __launch_bounds__(32 * DELTA_WARPS) delta_columns_32(gpu_delta p)
{
    delta_columns<32>(p);
}

extern "C" __global__ void __launch_bounds__(32 * DELTA_WARPS) delta_columns_128(gpu_delta p)
{
    delta_columns<128>(p);
}
