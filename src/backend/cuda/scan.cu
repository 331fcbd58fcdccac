/* State spaces, token by token: SCAN of few tokens of a sequence. */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/rows.cuh"

enum { THREADS = 256, COLUMNS = 32, WARPS = THREADS / COLUMNS };

__device__ __forceinline__ float softplus(float x)
{
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

/* The state of a slot, [n_state, COLUMNS] in shared memory, brought or taken back. */
__device__ __forceinline__ void move_state(const gpu_scan &p, float *held, int slot, int head,
                                           int column, bool is_back)
{
    const int lane = threadIdx.x % COLUMNS;
    float *state = p.state + slot * p.slot_floats + (int64_t)head * p.n_state * p.head_dim;
    for (int i = threadIdx.x / COLUMNS; i < p.n_state && column < p.head_dim; i += WARPS) {
        float *at = state + (int64_t)i * p.head_dim + column;
        if (is_back)
            *at = held[i * COLUMNS + lane];
        else
            held[i * COLUMNS + lane] = *at;
    }
}

/*
 * blockIdx.x: the head, y: which 32 columns of it, z: the slot. A thread has one column and every
 * WARPS-th row of the state, so it alone touches them; only sums of columns meet. The tokens of a
 * slot go one by one, in the order of the batch.
 */
extern "C" __global__ void __launch_bounds__(THREADS) scan_heads(gpu_scan p)
{
    extern __shared__ float held[];
    __shared__ float sums[2][WARPS][COLUMNS];
    launch_next();
    wait_previous();
    const int head = blockIdx.x, lane = threadIdx.x % COLUMNS, warp = threadIdx.x / COLUMNS;
    const int column = blockIdx.y * COLUMNS + lane;
    const int64_t group = (int64_t)(head / p.group_heads) * p.n_state;
    const int64_t at = (int64_t)head * p.head_dim + column;
    const int slot = p.n_tokens == 1 ? p.sequences[0] : blockIdx.z;
    tokens_of mine(p.sequences, slot, p.n_tokens);
    if (mine.n == 0 || (p.few > 0 && mine.n >= p.few))
        return;
    move_state(p, held, slot, head, column, false);
    int turn = 0;
    for (int t = mine.first; mine.n > 0; t++) {
        if (p.n_tokens > 1 && p.sequences[t] != slot)
            continue;
        mine.n--;
        float dt = softplus(p.dt[t * p.dt_stride + head] + p.dt_bias[head]);
        dt = fminf(fmaxf(dt, p.dt_min), p.dt_max);
        const float decay = expf(dt * p.a[head]);
        const float x = column < p.head_dim ? p.x[t * p.x_stride + at] : 0.0f;
        const float *b = p.b + t * p.b_stride + group, *c = p.c + t * p.c_stride + group;
        float sum = 0;
        for (int i = warp; i < p.n_state; i += WARPS) {
            float s = held[i * COLUMNS + lane] * decay + b[i] * (dt * x);
            held[i * COLUMNS + lane] = s;
            sum += c[i] * s;
        }
        sums[turn][warp][lane] = sum;
        __syncthreads(); /* one a token: the other half may still be read */
        if (warp == 0 && column < p.head_dim) {
            sum = p.d[head] * x;
#pragma unroll
            for (int i = 0; i < WARPS; i++)
                sum += sums[turn][i][lane];
            p.out[t * p.out_stride + at] = sum;
        }
        turn ^= 1;
    }
    move_state(p, held, slot, head, column, true);
}
