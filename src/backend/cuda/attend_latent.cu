/*
 * Attention to latents: one row of the cache is the key of all heads, and its first v_dim values
 * are their value too.
 *
 * A row is a token and a head. A block takes 64 rows (32 of models with float weights, see
 * attend_run.cu) and positions in blocks of 32, each of which is brought to shared memory once for
 * keys and values. Eight warps: some share 16 rows. Each of these makes the scores of a part of the
 * positions, which all of them read, and then the sums of a part of the values.
 */
#include "backend/cuda/attend_rows.cuh"

/* Values of a row, and those of them that are values, at most. */
enum { DIM = 576, V_DIM = 512, THREADS = 256, STRIDE = 2 * DIM + 16 };

template <bool EXACT> struct latent_block {
    static constexpr int ROWS = EXACT ? 32 : 64, STAGES = EXACT ? 1 : 2;
    static constexpr int GROUPS = ROWS / 16, PARTS = 8 / GROUPS; /* warps that share 16 rows */
    static constexpr int PART_KEYS = KEYS / PARTS, PART_DIM = V_DIM / PARTS;
    static constexpr int APART = (ROWS + STAGES * KEYS) * STRIDE; /* to what f16 cannot hold */
    static constexpr int SCORES = KEYS + 4;
    static constexpr int BYTES = (EXACT ? 2 : 1) * APART; /* behind them: the scores */
};

/* 32 positions into shared memory; those behind `last` become 0. */
template <bool EXACT>
static __device__ __forceinline__ void fetch(const gpu_cache &c, int page_shift,
                                             const int32_t *table, int first, int last, uint8_t *to)
{
    const bool is_exact = EXACT && c.type != DTYPE_F16;
    for (int i = threadIdx.x; i < KEYS * (DIM / 8); i += THREADS) {
        const int key = i / (DIM / 8), at = i % (DIM / 8) * 8, position = first + key;
        uint8_t *place = to + key * STRIDE + 2 * at;
        if (position > last || at >= c.head_dim) {
            *(uint4 *)place = make_uint4(0, 0, 0, 0);
            if (is_exact)
                *(uint4 *)(place + latent_block<EXACT>::APART) = make_uint4(0, 0, 0, 0);
            continue;
        }
        const uint8_t *row = cache_keys(c, page_shift, table, 0, position);
        if (c.type == DTYPE_F16) {
            copy_16(place, row + 2 * at);
        } else if (is_exact) {
            uint4 rest;
            *(uint4 *)place = cache_split8(c.type, row, at, rest);
            *(uint4 *)(place + latent_block<EXACT>::APART) = rest;
        } else {
            *(uint4 *)place = cache_load8(c.type, row, at);
        }
    }
    copies_end();
}

/* Rows [row0, row0 + ROWS) of a unit of tokens, whose first is token0. */
struct latent_rows {
    int token0, row0, n_rows;
};

template <bool EXACT>
static __device__ __forceinline__ void put_queries(const gpu_attend &a, const latent_rows &b,
                                                   uint8_t *to)
{
    for (int i = threadIdx.x; i < latent_block<EXACT>::ROWS * (DIM / 8); i += THREADS) {
        const int row = b.row0 + i / (DIM / 8), at = i % (DIM / 8) * 8;
        uint4 v = make_uint4(0, 0, 0, 0), rest = v;
        if (row < b.n_rows && at < a.cache.head_dim) {
            const float *from = a.q + (int64_t)(b.token0 + row / a.n_heads) * a.q_stride +
                                (row % a.n_heads) * a.cache.head_dim + at;
            float x[8];
#pragma unroll
            for (int n = 0; n < 8; n++)
                x[n] = from[n];
            v = split8(x, rest);
        }
        uint8_t *place = to + i / (DIM / 8) * STRIDE + 2 * at;
        *(uint4 *)place = v;
        if (EXACT)
            *(uint4 *)(place + latent_block<EXACT>::APART) = rest;
    }
}

/* Scores of 16 rows and of this warp's part of the positions: 8 of them (EXACT) or 16. */
template <bool EXACT>
static __device__ __forceinline__ void multiply_keys(float (&s)[2][4], uint32_t q_at, uint32_t k_at,
                                                     int head_dim, bool has_rest)
{
    constexpr int APART = latent_block<EXACT>::APART;
#pragma unroll
    for (int i = 0; i < 8; i++)
        s[i / 4][i % 4] = 0;
#pragma unroll 2
    for (int k = 0; k < (head_dim + 31) / 32; k++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = 64 * k + 32 * half;
            uint32_t q[4], b[4];
            load_matrix(q, q_at + at);
            if (!EXACT) {
                load_matrix(b, k_at + at);
                mma_f16(s[0], q[0], q[1], q[2], q[3], b[0], b[1]);
                mma_f16(s[1], q[0], q[1], q[2], q[3], b[2], b[3]);
                continue;
            }
            /* Four matrices are 32 values of 8 positions. */
            load_matrix(b, k_at + 64 * k);
            mma_f16(s[half], q[0], q[1], q[2], q[3], b[2 * half], b[2 * half + 1]);
            if (has_rest) {
                uint32_t rest[4];
                load_matrix(rest, k_at + APART + 64 * k);
                mma_f16(s[half], q[0], q[1], q[2], q[3], rest[2 * half], rest[2 * half + 1]);
            }
            load_matrix(q, q_at + APART + at);
            mma_f16(s[half], q[0], q[1], q[2], q[3], b[2 * half], b[2 * half + 1]);
        }
    }
    if (EXACT)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[0][i] += s[1][i];
}

/* What a lane has of rows r and r + 8 to or from shared memory, 8 positions at a time. */
static __device__ __forceinline__ void put_scores(float *to, int stride, const float (&s)[4])
{
    *(float2 *)to = make_float2(s[0], s[1]);
    *(float2 *)(to + 8 * stride) = make_float2(s[2], s[3]);
}

static __device__ __forceinline__ void take_scores(const float *from, int stride, float (&s)[4])
{
    const float2 a = *(const float2 *)from, b = *(const float2 *)(from + 8 * stride);
    s[0] = a.x, s[1] = a.y, s[2] = b.x, s[3] = b.y;
}

/* Values times shares, added to what was before, faded: this warp's part of the values. */
template <bool EXACT>
static __device__ __forceinline__ void
add_values(float (&out)[latent_block<EXACT>::PART_DIM / 8][4], const float (&fade)[2],
           const uint32_t (&share)[KEYS / 8][2], const uint32_t (&share_rest)[KEYS / 8][2],
           uint32_t v_at, bool has_rest)
{
    constexpr int N = latent_block<EXACT>::PART_DIM;
#pragma unroll
    for (int i = 0; i < N / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            out[i][e] *= fade[e / 2];
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int i = 0; i < N / 16; i++) {
            uint32_t b[4];
            load_matrix_turned(b, v_at + k * 16 * STRIDE + i * 32);
            multiply_shares(out[2 * i], share + 2 * k, b[0], b[1]);
            multiply_shares(out[2 * i + 1], share + 2 * k, b[2], b[3]);
            if (EXACT) {
                multiply_shares(out[2 * i], share_rest + 2 * k, b[0], b[1]);
                multiply_shares(out[2 * i + 1], share_rest + 2 * k, b[2], b[3]);
            }
            if (has_rest) {
                load_matrix_turned(b, v_at + latent_block<EXACT>::APART + k * 16 * STRIDE + i * 32);
                multiply_shares(out[2 * i], share + 2 * k, b[0], b[1]);
                multiply_shares(out[2 * i + 1], share + 2 * k, b[2], b[3]);
            }
        }
}

/* A row's part of the values: the result, or a part of it that attend_parts joins. */
template <int N>
static __device__ __forceinline__ void store_row(const batch_attend &p, const latent_rows &b,
                                                 int row, int v_first, int quad, int e,
                                                 const float (&out)[N / 8][4], float most,
                                                 float sum)
{
    const int token = b.token0 + row / p.a.n_heads, h = row % p.a.n_heads;
    const int v_dim = p.a.cache.v_dim;
    float *to = p.a.out + (int64_t)token * p.a.out_stride + h * v_dim;
    float by = 1.0f / sum;
    if (p.n_parts > 1) {
        const int64_t part = ((int64_t)(token - p.token0) * p.a.n_heads + h) * p.n_parts;
        to = p.parts + (part + blockIdx.y) * (2 + p.a.cache.head_dim);
        if (v_first == 0 && quad == 0)
            *(float2 *)to = make_float2(most, sum);
        to += 2;
        by = 1.0f;
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const int at = v_first + 8 * n + 2 * quad;
        if (at < v_dim)
            *(float2 *)(to + at) = make_float2(out[n][2 * e] * by, out[n][2 * e + 1] * by);
    }
}

/* blockIdx.x: rows of a unit, then the next unit; blockIdx.y: the part of the context. */
template <bool EXACT> static __device__ __forceinline__ void attend_latent(const batch_attend &p)
{
    using block = latent_block<EXACT>;
    extern __shared__ __align__(128) uint8_t shared[];
    uint8_t *q_at = shared, *k_at = q_at + block::ROWS * STRIDE;
    float *scores = (float *)(shared + block::BYTES);
    const gpu_attend &a = p.a;
    const gpu_cache &c = a.cache;
    const bool has_rest = EXACT && c.type != DTYPE_F16;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, quad = lane & 3;
    const int group = warp % block::GROUPS, part = warp / block::GROUPS;
    const int blocks = (p.unit * a.n_heads + block::ROWS - 1) / block::ROWS;
    /* The last tokens see most: they begin first. */
    const int at_block = (int)(gridDim.x - 1 - blockIdx.x), unit = at_block / blocks;
    const latent_rows b = {p.token0 + unit * p.unit, at_block % blocks * block::ROWS,
                           p.unit * a.n_heads};
    wait_previous();
    const int32_t *table = cache_table(c, c.sequences[b.token0]);
    int end[2], last = -1; /* what this lane's two rows see; what any of the block does */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = b.row0 + 16 * group + r + 8 * i, t = b.token0 + row / a.n_heads;
        end[i] = row < b.n_rows ? last_seen(a, t, c.positions[t]) : -1;
    }
    const int row1 = min(b.row0 + block::ROWS, b.n_rows) - 1;
    for (int t = b.token0 + b.row0 / a.n_heads; t <= b.token0 + row1 / a.n_heads; t++)
        last = max(last, last_seen(a, t, c.positions[t]));
    int first = 0;
    if (p.n_parts > 1) {
        first = (int)blockIdx.y * p.part_keys;
        last = min(last, first + p.part_keys - 1);
    }
    fetch<EXACT>(c, p.page_shift, table, first, last, k_at);
    put_queries<EXACT>(a, b, q_at);

    float out[block::PART_DIM / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < block::PART_DIM / 8; i++)
        out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
    /* ldmatrix: lanes name rows; see attend_run.cu. Exactly 8 positions: 32 values of each. */
    const uint32_t q_mine = shared_u32(q_at) + (16 * group + (lane & 15)) * STRIDE + (lane >> 4) * 16;
    const uint32_t k_mine =
        part * block::PART_KEYS * STRIDE +
        (EXACT ? (lane & 7) * STRIDE + (lane >> 3) * 16
               : ((lane & 7) + (lane >> 4) * 8) * STRIDE + (lane >> 3 & 1) * 16);
    const uint32_t v_mine = (lane & 15) * STRIDE + (lane >> 4) * 16 + 2 * part * block::PART_DIM;
    float *score = scores + (16 * group + r) * block::SCORES + 2 * quad;

    for (int at = first, stage = 0; at <= last; at += KEYS, stage ^= block::STAGES - 1) {
        copies_wait();
        __syncthreads();
        if (block::STAGES > 1 && at + KEYS <= last)
            fetch<EXACT>(c, p.page_shift, table, at + KEYS, last,
                         k_at + (stage ^ 1) * KEYS * STRIDE);
        const uint32_t k_now = shared_u32(k_at + stage * KEYS * STRIDE);
        float s[KEYS / 8][4], mine[2][4], fade[2], now[2] = {most[0], most[1]};
        uint32_t share[KEYS / 8][2], share_rest[KEYS / 8][2];
        multiply_keys<EXACT>(mine, q_mine, k_now + k_mine, c.head_dim, has_rest);
#pragma unroll
        for (int i = 0; i < block::PART_KEYS / 8; i++)
            put_scores(score + part * block::PART_KEYS + 8 * i, block::SCORES, mine[i]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            take_scores(score + 8 * i, block::SCORES, s[i]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const bool is_seen = at + 8 * i + 2 * quad + (e & 1) <= end[e >> 1];
                s[i][e] = is_seen && at + 8 * i + 2 * quad + (e & 1) <= last
                              ? s[i][e] * a.scale * LOG2_E
                              : -INFINITY;
                now[e >> 1] = fmaxf(now[e >> 1], s[i][e]);
            }
        }
        share_scores<EXACT>(s, now, most, sum, fade, share, share_rest);
        if (part * block::PART_DIM < c.v_dim)
            add_values<EXACT>(out, fade, share, share_rest, k_now + v_mine, has_rest);
        if (block::STAGES > 1 || at + KEYS > last)
            continue;
        __syncthreads();
        fetch<EXACT>(c, p.page_shift, table, at + KEYS, last, k_at);
    }
    launch_next();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
        sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
        const int row = b.row0 + 16 * group + r + 8 * i;
        if (row < b.n_rows)
            store_row<block::PART_DIM>(p, b, row, part * block::PART_DIM, quad, i, out, most[i],
                                       sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_latent_rows(const __grid_constant__ batch_attend p)
{
    attend_latent<false>(p);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attend_latent_exact(const __grid_constant__ batch_attend p)
{
    attend_latent<true>(p);
}
