/*
 * Attention of single tokens of many sequences (batched decode): a block for
 * each token, KV head and part of the context.
 *
 * The query heads that share a KV head, up to 16, are the rows of a matrix
 * instruction. Each of four warps takes 16 positions at a time, straight from
 * the cache into the order of the instruction: a lane reads 16 bytes of a key,
 * and the dimensions are permuted for both sides alike; of values it reads 16
 * bytes of four positions and pairs them up. What the warps and the parts have
 * is put together at the end, in a fixed order. "Exact": as in attend_run.cu.
 * Heads of more than 128 values: attend_wide.cu.
 */
#include "backend/cuda/attend_batch.cuh"
#include "backend/cuda/small_batch_common.cuh"

/* GROUP: rows, and positions of a step; MOST_PARTS: of a context, in launch_attend.c too. */
enum { WARPS = 4, THREADS = 32 * WARPS, GROUP = 16, MOST_PARTS = 64 };

/* Where the parts of the context of a token lie. */
static __device__ __forceinline__ float *part_at(const batch_attend &p, int t, int h, int part)
{
    int64_t n = (int64_t)(t * p.a.n_heads + h) * p.n_parts + part;
    return p.parts + n * (2 + p.a.cache.head_dim);
}

/* 32 dimensions of the heads and of 8 positions. */
static __device__ __forceinline__ void multiply_keys(float (&s)[4], const uint32_t (&q)[8], uint4 k)
{
    mma_f16(s, q[0], q[1], q[2], q[3], k.x, k.y);
    mma_f16(s, q[4], q[5], q[6], q[7], k.z, k.w);
}

/* Values of four positions, 8 dimensions of each, times shares; eight sums from `out` on. */
static __device__ __forceinline__ void
multiply_values(float (*out)[4], const uint32_t (&share)[2][2], const uint4 (&v)[4])
{
    uint32_t x[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i][0] = v[i].x, x[i][1] = v[i].y, x[i][2] = v[i].z, x[i][3] = v[i].w;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t which = j & 1 ? 0x7632 : 0x5410;
        mma_f16(out[j], share[0][0], share[0][1], share[1][0], share[1][1],
                __byte_perm(x[0][j >> 1], x[1][j >> 1], which),
                __byte_perm(x[2][j >> 1], x[3][j >> 1], which));
    }
}

/* What a block works on: positions of a part of one token's context. */
struct single_block {
    int head, per_head, dim, token; /* head of k, heads of q for it */
    int begin, end, last;           /* of the part; the token's own position */
    const int32_t *table;
};

/* The queries of this lane, and what f16 cannot hold of them. */
template <int D>
static __device__ __forceinline__ void
load_queries(uint32_t (&q)[D / 32][8], uint32_t (&q_rest)[D / 32][8], const float *q_row,
             int per_head, int dim, int r, int quad)
{
#pragma unroll
    for (int m = 0; m < D / 32; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = r + 8 * i, at = 32 * m + 8 * quad;
            float4 x = make_float4(0, 0, 0, 0), y = x;
            if (row < per_head && at < dim) {
                x = *(const float4 *)(q_row + row * dim + at);
                y = *(const float4 *)(q_row + row * dim + at + 4);
            }
            const float all[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
            uint4 rest, high = split8(all, rest);
            q[m][i] = high.x, q[m][2 + i] = high.y, q[m][4 + i] = high.z, q[m][6 + i] = high.w;
            q_rest[m][i] = rest.x, q_rest[m][2 + i] = rest.y;
            q_rest[m][4 + i] = rest.z, q_rest[m][6 + i] = rest.w;
        }
}

/* Keys and values of 16 positions. They are asked for together: there is one wait for memory, not
 * two. */
template <int D>
static __device__ __forceinline__ void load_positions(uint4 (&k)[2][D / 32], uint4 (&v)[D / 64][4],
                                                      const batch_attend &p, const single_block &b,
                                                      int at, int r, int quad, int64_t apart)
{
    const gpu_cache &c = p.a.cache;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int key = max(b.begin, min(at + 8 * i + r, b.last)); /* others have no page */
        const uint8_t *row = cache_keys(c, p.page_shift, b.table, b.head, key);
#pragma unroll
        for (int m = 0; m < D / 32; m++) {
            int n = 32 * m + 8 * quad;
            k[i][m] = n < b.dim ? cache_load8(c.type, row, n) : make_uint4(0, 0, 0, 0);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) { /* positions 2 quad + 0, 1, 8, 9 */
        int key = max(b.begin, min(at + 2 * quad + (i & 1) + 8 * (i >> 1), b.last));
        const uint8_t *row = cache_keys(c, p.page_shift, b.table, b.head, key) + apart;
#pragma unroll
        for (int m = 0; m < D / 64; m++) {
            int n = 64 * m + 8 * r;
            v[m][i] = n < b.dim ? cache_load8(c.type, row, n) : make_uint4(0, 0, 0, 0);
        }
    }
}

/* Scores of 16 positions. */
template <int D, bool EXACT>
static __device__ __forceinline__ void
score_positions(float (&s)[2][4], const uint32_t (&q)[D / 32][8],
                const uint32_t (&q_rest)[D / 32][8], uint4 (&k)[2][D / 32], const batch_attend &p,
                const single_block &b, int at, int r, int quad, bool has_rest)
{
    const gpu_cache &c = p.a.cache;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
        for (int m = 0; m < D / 32; m++) {
            multiply_keys(s[i], q[m], k[i][m]);
            if (EXACT)
                multiply_keys(s[i], q_rest[m], k[i][m]);
            if (has_rest && 32 * m + 8 * quad < b.dim) {
                uint4 rest;
                int key = max(b.begin, min(at + 8 * i + r, b.last));
                cache_split8(c.type, cache_keys(c, p.page_shift, b.table, b.head, key),
                             32 * m + 8 * quad, rest);
                k[i][m] = rest;
            }
            if (has_rest)
                multiply_keys(s[i], q[m], k[i][m]);
        }
    }
}

/* The softmax, kept online: shares of these positions, and how what was before fades. */
static __device__ __forceinline__ void share_scores(float (&s)[2][4], const gpu_attend &a,
                                                    const single_block &b, int at, int quad,
                                                    float (&most)[2], float (&sum)[2],
                                                    float (&fade)[2], uint32_t (&share)[2][2],
                                                    uint32_t (&share_rest)[2][2])
{
    float now[2] = {most[0], most[1]};
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int key = at + 8 * i + 2 * quad + (e & 1);
            s[i][e] = key >= b.begin && key < b.end ? finish_score(a, s[i][e]) : -INFINITY;
            now[e >> 1] = fmaxf(now[e >> 1], s[i][e]);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 1));
        now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 2));
        fade[i] = now[i] == -INFINITY ? 1.0f : power_of_2(most[i] - now[i]);
        most[i] = now[i];
        sum[i] *= fade[i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float base = most[e >> 1] == -INFINITY ? 0.0f : most[e >> 1];
            s[i][e] = power_of_2(s[i][e] - base);
            sum[e >> 1] += s[i][e];
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            share[i][e] = pack_shares(s[i][2 * e], s[i][2 * e + 1]);
            float2 back = __half22float2(*(__half2 *)&share[i][e]);
            share_rest[i][e] = pack_shares(s[i][2 * e] - back.x, s[i][2 * e + 1] - back.y);
        }
    }
}

/* Values times shares, added to what was before, faded. */
template <int D, bool EXACT>
static __device__ __forceinline__ void
add_values(float (&out)[D / 8][4], const float (&fade)[2], const uint32_t (&share)[2][2],
           const uint32_t (&share_rest)[2][2], uint4 (&v)[D / 64][4], const batch_attend &p,
           const single_block &b, int at, int r, int quad, int64_t apart, bool has_rest)
{
    const gpu_cache &c = p.a.cache;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        out[i][0] *= fade[0];
        out[i][1] *= fade[0];
        out[i][2] *= fade[1];
        out[i][3] *= fade[1];
    }
#pragma unroll
    for (int m = 0; m < D / 64; m++) {
        multiply_values(out + 8 * m, share, v[m]);
        if (EXACT)
            multiply_values(out + 8 * m, share_rest, v[m]);
        if (has_rest) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = max(b.begin, min(at + 2 * quad + (i & 1) + 8 * (i >> 1), b.last));
                const uint8_t *row = cache_keys(c, p.page_shift, b.table, b.head, key) + apart;
                uint4 rest = make_uint4(0, 0, 0, 0);
                if (64 * m + 8 * r < b.dim)
                    cache_split8(c.type, row, 64 * m + 8 * r, rest);
                v[m][i] = rest;
            }
            multiply_values(out + 8 * m, share, v[m]);
        }
    }
}

/* The warps' parts into shared memory. Column 2 quad + e of block 8 m + j is dimension 64 m + 8 (2
 * quad + e) + j. */
template <int D>
static __device__ __forceinline__ void put_warp(float *shared, const float (&out)[D / 8][4],
                                                const float (&most)[2], float (&sum)[2],
                                                int per_head, int warp, int r, int quad)
{
    constexpr int STRIDE = D + 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
        sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
        int row = r + 8 * i;
        if (row >= per_head)
            continue;
        float *to = shared + (warp * GROUP + row) * STRIDE;
        if (quad == 0) {
            to[D] = most[i];
            to[D + 1] = sum[i];
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                to[64 * (n / 8) + 8 * (2 * quad + e) + n % 8] = out[n][2 * i + e];
    }
}

/* What the warps have, put together: results, or a part of them. */
template <int D>
static __device__ __forceinline__ void join_warps(const batch_attend &p, const single_block &b,
                                                  const float *shared, float *results)
{
    constexpr int STRIDE = D + 2;
    const gpu_attend &a = p.a;
    for (int i = threadIdx.x; i < b.per_head * b.dim; i += THREADS) {
        int row = i / b.dim, n = i % b.dim, h = b.head * b.per_head + row;
        const float *from = shared + row * STRIDE;
        float top = -INFINITY, total = 0, value = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            top = fmaxf(top, from[w * GROUP * STRIDE + D]);
        if (p.n_parts == 1 && a.sinks)
            top = fmaxf(top, a.sinks[h] * LOG2_E);
        float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float fade = power_of_2(from[w * GROUP * STRIDE + D] - base);
            total += fade * from[w * GROUP * STRIDE + D + 1];
            value += fade * from[w * GROUP * STRIDE + n];
        }
        if (p.n_parts == 1) {
            if (a.sinks)
                total += power_of_2(a.sinks[h] * LOG2_E - base);
            a.out[(int64_t)b.token * a.out_stride + h * b.dim + n] = value / total;
            results[i] = value / total;
            continue;
        }
        float *to = part_at(p, (int)blockIdx.x, h, (int)blockIdx.z);
        to[2 + n] = value;
        if (n == 0) {
            to[0] = top;
            to[1] = total;
        }
    }
}

template <int D, bool EXACT>
static __device__ __forceinline__ void attend_single(const batch_attend &p)
{
    extern __shared__ float shared[]; /* [WARPS][GROUP][D + 2]: out, most, sum; then results */
    const gpu_attend &a = p.a;
    const gpu_cache &c = a.cache;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, quad = lane & 3;
    single_block b;
    b.per_head = a.n_heads / c.n_heads;
    b.head = blockIdx.y;
    b.dim = c.head_dim;
    b.token = p.token0 + (int)blockIdx.x;
    launch_next();
    wait_previous();
    int sequence = c.sequences[b.token];
    b.last = c.positions[b.token];
    int first = a.window && b.last + 1 > a.window ? b.last + 1 - a.window : 0;
    b.table = cache_table(c, sequence);
    int64_t apart = (int64_t)(c.v_offset - c.k_offset);
    /* Parts are counted from position 0, so that they do not move with the
     * window. */
    b.begin = p.n_parts > 1 ? max(first, (int)blockIdx.z * p.part_keys) : first;
    b.end = p.n_parts > 1 ? min(b.last + 1, ((int)blockIdx.z + 1) * p.part_keys) : b.last + 1;

    const bool has_rest = EXACT && c.type != DTYPE_F16;
    uint32_t q[D / 32][8], q_rest[D / 32][8];
    const float *q_row = a.q + (int64_t)b.token * a.q_stride + b.head * b.per_head * b.dim;
    load_queries<D>(q, q_rest, q_row, b.per_head, b.dim, r, quad);

    float out[D / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
    for (int at = b.begin / GROUP * GROUP + GROUP * warp; at < b.end; at += GROUP * WARPS) {
        uint4 k[2][D / 32], v[D / 64][4];
        float s[2][4], fade[2];
        uint32_t share[2][2], share_rest[2][2];
        load_positions<D>(k, v, p, b, at, r, quad, apart);
        score_positions<D, EXACT>(s, q, q_rest, k, p, b, at, r, quad, has_rest);
        share_scores(s, a, b, at, quad, most, sum, fade, share, share_rest);
        add_values<D, EXACT>(out, fade, share, share_rest, v, p, b, at, r, quad, apart, has_rest);
    }

    put_warp<D>(shared, out, most, sum, b.per_head, warp, r, quad);
    __syncthreads();
    float *results = shared + WARPS * GROUP * (D + 2);
    join_warps<D>(p, b, shared, results);
    if (!p.slabs)
        return;
    __syncthreads();
    for (int i = 256 * warp; i < b.per_head * b.dim; i += 256 * WARPS) {
        float x[8];
#pragma unroll
        for (int n = 0; n < 8; n++)
            x[n] = results[i + 8 * lane + n];
        slab_store8(p.slabs + (b.head * b.per_head * b.dim + i) / SMALL_COLS * SMALL_SLAB_BYTES,
                    (int)blockIdx.x, x, lane);
    }
}

/* Parts of contexts joined. blockIdx.x: token; y: head of q; z: 128 values of it. */
extern "C" __global__ void __launch_bounds__(THREADS)
    attend_parts(const __grid_constant__ batch_attend p)
{
    __shared__ float most[MOST_PARTS], weights[MOST_PARTS], sums[MOST_PARTS];
    const int t = blockIdx.x, h = blockIdx.y, dim = p.a.cache.v_dim;
    const int n = (int)blockIdx.z * THREADS + (int)threadIdx.x;
    launch_next();
    wait_previous();
    for (int i = threadIdx.x; i < p.n_parts; i += THREADS) {
        most[i] = part_at(p, t, h, i)[0];
        sums[i] = part_at(p, t, h, i)[1];
    }
    __syncthreads();
    float top = p.a.sinks ? p.a.sinks[h] * LOG2_E : -INFINITY, total = 0, value = 0;
    for (int i = 0; i < p.n_parts; i++)
        top = fmaxf(top, most[i]);
    if (p.a.sinks)
        total = power_of_2(p.a.sinks[h] * LOG2_E - top);
    for (int i = threadIdx.x; i < p.n_parts; i += THREADS)
        weights[i] = power_of_2(most[i] - top);
    __syncthreads();
    if (n >= dim)
        return;
    const float *from = part_at(p, t, h, 0) + 2 + n; /* part by part: many are asked for at once */
#pragma unroll 8
    for (int i = 0; i < p.n_parts; i++) {
        total += weights[i] * sums[i];
        value += weights[i] * from[(int64_t)i * (2 + p.a.cache.head_dim)];
    }
    p.a.out[(int64_t)(p.token0 + t) * p.a.out_stride + h * dim + n] = value / total;
}

#define ATTEND_SINGLE(d)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        attend_single_##d(const __grid_constant__ batch_attend p)                                  \
    {                                                                                              \
        attend_single<d, false>(p);                                                                \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        attend_single_exact_##d(const __grid_constant__ batch_attend p)                            \
    {                                                                                              \
        attend_single<d, true>(p);                                                                 \
    }
ATTEND_SINGLE(64)
ATTEND_SINGLE(128)
