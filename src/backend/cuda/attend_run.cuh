/* What the kernels for runs of tokens of one sequence share: what a block works on, and its results. */
#ifndef LACE_KERNELS_CUDA_ATTEND_RUN_CUH
#define LACE_KERNELS_CUDA_ATTEND_RUN_CUH

#include "backend/cuda/attend_batch.cuh"

/* What a block works on. */
struct run_block {
    int per_head, head;       /* heads of q for each of k; the head of k */
    int token0, n_tokens;     /* of the batch */
    int position0, position1; /* of the first token and of the last */
    int low, last, least;     /* what is seen by any of them, and up to where all see */
};

/* Block blockIdx.x of n_rows rows of a run, for the head of k blockIdx.y. Waits for the kernel before. */
static __device__ __forceinline__ run_block find_run_block(const batch_attend &p, int n_rows)
{
    const gpu_attend &a = p.a;
    const gpu_cache &c = a.cache;
    run_block b;
    b.per_head = a.n_heads / c.n_heads;
    b.head = blockIdx.y;
    int tokens = n_rows / b.per_head;
    /* The last tokens see most: they begin first. */
    int local = (int)(gridDim.x - 1 - blockIdx.x) * tokens;
    b.n_tokens = min(tokens, p.n_tokens - local);
    b.token0 = p.token0 + local;
    wait_previous();
    b.position0 = c.positions[b.token0];
    b.position1 = b.position0 + b.n_tokens - 1;
    b.last = b.position1;
    b.least = b.position0;
    if (c.seen) {
        b.last = b.least = last_seen(a, b.token0, b.position0);
        for (int t = 1; t < b.n_tokens; t++) {
            int end = last_seen(a, b.token0 + t, b.position0 + t);
            b.last = max(b.last, end);
            b.least = min(b.least, end);
        }
    }
    b.low = a.window && b.position0 + 1 > a.window ? b.position0 + 1 - a.window : 0;
    return b;
}

/* Whether every row sees all of n positions from `at` on, and nothing has to be done to scores. */
static __device__ __forceinline__ bool sees_whole(const gpu_attend &a, const run_block &b, int at,
                                                  int n)
{
    return a.softcap <= 0 && at + n - 1 <= b.least &&
           (a.window == 0 || at > b.position1 - a.window);
}

/* Rows row0 and row0 + 8 of a block, divided by the sums of their shares. A lane has the columns
 * 8 n + 2 quad and the next. */
template <int D>
static __device__ __forceinline__ void store_rows(const gpu_attend &a, const run_block &b, int row0,
                                                  int quad, const float (&out)[D / 8][4],
                                                  const float (&most)[2], float (&sum)[2])
{
    const gpu_cache &c = a.cache;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
        sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
        int row = row0 + 8 * i, t = row / b.per_head;
        if (t >= b.n_tokens)
            continue;
        int h = b.head * b.per_head + row % b.per_head;
        float fade = 1.0f;
        if (a.sinks) { /* one more score, without a value */
            float sink = a.sinks[h] * LOG2_E, top = fmaxf(most[i], sink);
            fade = power_of_2(most[i] - top);
            sum[i] = sum[i] * fade + power_of_2(sink - top);
        }
        fade /= sum[i];
        float *y = a.out + (int64_t)(b.token0 + t) * a.out_stride + h * c.v_dim;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int at = 8 * n + 2 * quad;
            if (at < c.v_dim)
                *(float2 *)(y + at) = make_float2(out[n][2 * i] * fade, out[n][2 * i + 1] * fade);
        }
    }
}

#endif
