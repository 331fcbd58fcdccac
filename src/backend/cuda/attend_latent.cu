/*
 * Attention to latents: one row of the cache is the key of all heads, and its first v_dim values
 * are their value too.
 *
 * A row is a token and a head. A block takes 64 rows (32 of models with float weights, see
 * attend_run.cu) and positions in blocks of 32, each of which is brought to shared memory once for
 * keys and values. Eight warps: some share 16 rows. Each of these makes the scores of a part of the
 * positions, which all of them read, and then the sums of a part of the values.
 */
#include "backend/cuda/attend_split.cuh"

/* Values of a row, and those of them that are values, at most. */
enum { DIM = 576, V_DIM = 512, THREADS = 256, STRIDE = 2 * DIM + 16 };

template <bool IS_EXACT> struct latent_block {
    static constexpr bool EXACT = IS_EXACT;
    static constexpr int DIM = ::DIM, STRIDE = ::STRIDE, THREADS = ::THREADS;
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
    const split_rows b = {p.token0 + unit * p.unit, at_block % blocks * block::ROWS,
                          p.unit * a.n_heads, a.n_heads, 0};
    wait_previous();
    const int32_t *table = cache_table(c, c.sequences[b.token0]);
    int end[2], last = -1; /* what this lane's two rows see; what any of the block does */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = b.row0 + 16 * group + r + 8 * i, t = token_of(b, row);
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
    put_queries<block>(a, b, q_at);

    float out[block::PART_DIM / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < block::PART_DIM / 8; i++)
        out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
    const uint32_t q_mine = shared_u32(q_at) + query_place<block>(group, lane);
    const uint32_t k_mine = key_place<block>(part, lane), v_mine = value_place<block>(part, lane);
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
        multiply_keys<block>(mine, q_mine, k_now + k_mine, c.head_dim, has_rest);
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
            add_values<block>(out, fade, share, share_rest, k_now + v_mine, has_rest);
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
            store_row<block>(p, token_of(b, row), head_of(b, row), (int)blockIdx.y, part, quad, i,
                             out, most[i], sum[i]);
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
