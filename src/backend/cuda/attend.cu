/*
 * General attention: rotary embedding, the cache of any type, and softmax(q k) v with windows, soft
 * caps and sinks. Written to be right for every model; decode_attend.cu and launch_batched.c have what is
 * fast for most.
 */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/head_rows.cuh"

enum { THREADS = 128, MAX_HEAD_DIM = 1024, CHUNK = 256 };

/* ---- Rotation and the cache ------------------------------------------------------------------ */

/* blockIdx.x: token; blockIdx.y: a head of q, then those of k (turned and written with its v). */
extern "C" __global__ void __launch_bounds__(THREADS) rope_heads(gpu_rope p)
{
    launch_next();
    wait_previous();
    const int t = blockIdx.x;
    int h = blockIdx.y;
    const float *table = p.table ? p.table + (int64_t)t * p.table_stride : nullptr;
    if (h < p.n_heads) {
        turn_head<THREADS>(p.q + (int64_t)t * p.q_stride + h * p.head_dim, table, p.n_dims,
                           p.is_neox);
        return;
    }
    h -= p.n_heads;
    float *k = p.k + (int64_t)t * p.k_stride + h * p.head_dim;
    if (table)
        turn_head<THREADS>(k, table, p.n_dims, p.is_neox);
    if (!p.writes)
        return;
    __syncthreads();
    const gpu_cache &c = p.cache;
    int sequence = c.sequences[t], position = c.positions[t];
    const float *v = p.v + (int64_t)t * p.v_stride + h * p.head_dim;
    if (c.v_in_k) { /* one head: k is the first part of its row */
        uint8_t *row = cache_row(c, c.k_offset, sequence, 0, position);
        uint64_t k_bytes = c.type == DTYPE_F32   ? 4 * (uint64_t)c.v_dim
                           : c.type == DTYPE_F16 ? 2 * (uint64_t)c.v_dim
                                                 : (uint64_t)c.v_dim / 32 * sizeof(block_q8_0);
        write_row<THREADS>(row, k, c.v_dim, c.type);
        write_row<THREADS>(row + k_bytes, v, p.head_dim - c.v_dim, c.type);
        return;
    }
    write_row<THREADS>(cache_row(c, c.k_offset, sequence, h, position), k, p.head_dim, c.type);
    write_row<THREADS>(cache_row(c, c.v_offset, sequence, h, position), v, p.head_dim, c.type);
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* blockIdx.x: token; blockIdx.y: head of q. Positions come in chunks; sums are kept online. */
extern "C" __global__ void __launch_bounds__(THREADS) attend_heads(gpu_attend p)
{
    launch_next();
    wait_previous();
    __shared__ float q[MAX_HEAD_DIM], out[MAX_HEAD_DIM], scores[CHUNK];
    const gpu_cache &c = p.cache;
    const int t = blockIdx.x, h = blockIdx.y, dim = c.head_dim, v_dim = c.v_dim, tid = threadIdx.x;
    const int warp = tid >> 5, lane = tid & 31, head = h / (p.n_heads / c.n_heads);
    const int sequence = c.sequences[t], own = c.positions[t], last = last_seen(p, t, own);
    int first = p.window && own + 1 > p.window ? own + 1 - p.window : 0;
    if (p.chunk)
        first = max(first, own / p.chunk * p.chunk);
    for (int i = tid; i < dim; i += THREADS) {
        q[i] = p.q[(int64_t)t * p.q_stride + h * dim + i];
        out[i] = 0; /* v_dim is not larger */
    }
    __syncthreads();
    float most = p.sinks ? p.sinks[h] : -INFINITY, sum = p.sinks ? 1.0f : 0.0f;
    for (int at = first; at <= last; at += CHUNK) {
        int n = min(CHUNK, last + 1 - at);
        for (int i = warp; i < n; i += THREADS / 32) {
            const uint8_t *k = cache_row(c, c.k_offset, sequence, head, at + i);
            float dot = 0;
            for (int d = lane; d < dim; d += 32)
                dot += q[d] * block_value(c.type, k, d);
            dot = warp_sum(dot) * p.scale;
            if (p.softcap > 0)
                dot = p.softcap * tanhf(dot / p.softcap);
            if (lane == 0)
                scores[i] = dot;
        }
        __syncthreads();
        float now = most;
        for (int i = tid & 31; i < n; i += 32)
            now = fmaxf(now, scores[i]);
        now = warp_max(now);
        __syncthreads();
        for (int i = tid; i < n; i += THREADS)
            scores[i] = expf(scores[i] - now);
        __syncthreads();
        float part = 0;
        for (int i = lane; i < n; i += 32)
            part += scores[i];
        float fade = most == -INFINITY ? 0.0f : expf(most - now);
        sum = sum * fade + warp_sum(part);
        most = now;
        for (int d = tid; d < v_dim; d += THREADS) {
            float v = out[d] * fade;
            for (int i = 0; i < n; i++)
                v += scores[i] *
                     block_value(c.type, cache_row(c, c.v_offset, sequence, head, at + i), d);
            out[d] = v;
        }
        __syncthreads();
    }
    for (int i = tid; i < v_dim; i += THREADS)
        p.out[(int64_t)t * p.out_stride + h * v_dim + i] = out[i] / sum;
}
