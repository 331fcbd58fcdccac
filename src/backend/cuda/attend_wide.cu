/*
 * Attention of heads of up to 256 or 512 values.
 *
 * What a warp alone would have to keep of such a head does not fit into its registers, so several
 * warps share 16 rows (attend_split.cuh). There are two forms: runs of tokens of one sequence take
 * 64 rows (32 of models with float weights, see attend_run.cu) and eight warps, single tokens 16
 * rows, four warps and a part of the context, which attend_parts joins with the others.
 *
 * Positions come in blocks of 32. Keys and values have one place each in shared memory: the next
 * keys come while values are added up, the next values while keys are multiplied.
 */
#include "backend/cuda/attend_split.cuh"

template <int D, int N_ROWS, bool IS_EXACT> struct wide_block {
    static constexpr bool EXACT = IS_EXACT;
    static constexpr int DIM = D, STRIDE = 2 * D + 16, ROWS = N_ROWS;
    static constexpr int GROUPS = ROWS / 16, WARPS = GROUPS == 1 ? 4 : 8, THREADS = 32 * WARPS;
    static constexpr int PARTS = WARPS / GROUPS; /* warps that share 16 rows */
    static constexpr int PART_KEYS = KEYS / PARTS, PART_DIM = D / PARTS;
    static constexpr int APART = (ROWS + 2 * KEYS) * STRIDE; /* to what f16 cannot hold */
    static constexpr int SCORES = KEYS + 8;                  /* floats of a row: no two in a bank */
    static constexpr int BYTES = (EXACT ? 2 : 1) * APART;    /* behind them: the scores */
};

/* What a block sees: positions [first, last] of the sequence with this table. Those before `low`
 * have no page any more. */
struct wide_context {
    const int32_t *table;
    int low, first, last;
};

/* The page of 32 positions from `first` on, which are never in two. */
static __device__ __forceinline__ int page_of(const batch_attend &p, const wide_context &x,
                                              int first)
{
    return first <= x.last ? x.table[first >> p.page_shift] : 0;
}

/* These positions of keys, or of what lies `apart` behind them, into shared memory. Those that
 * nobody sees become 0. */
template <class BLOCK>
static __device__ __forceinline__ void fetch(const batch_attend &p, const wide_context &x, int head,
                                             int first, int page, uint64_t apart, uint8_t *to)
{
    constexpr int CHUNKS = BLOCK::DIM / 8;
    const gpu_cache &c = p.a.cache;
    const bool is_exact = BLOCK::EXACT && c.type != DTYPE_F16;
    const int at = threadIdx.x % CHUNKS * 8, in_page = first & ((1 << p.page_shift) - 1);
    const uint8_t *rows = c.data + (uint64_t)page * c.page_bytes + c.k_offset + apart +
                          (uint64_t)((head << p.page_shift) + in_page) * c.row_bytes;
#pragma unroll 4
    for (int key = threadIdx.x / CHUNKS; key < KEYS; key += BLOCK::THREADS / CHUNKS) {
        const int position = first + key;
        uint8_t *place = to + key * BLOCK::STRIDE + 2 * at;
        if (position < x.low || position > x.last || at >= c.head_dim) {
            *(uint4 *)place = make_uint4(0, 0, 0, 0);
            if (is_exact)
                *(uint4 *)(place + BLOCK::APART) = make_uint4(0, 0, 0, 0);
            continue;
        }
        const uint8_t *row = rows + (uint64_t)key * c.row_bytes;
        if (c.type == DTYPE_F16) {
            copy_16(place, row + 2 * at);
        } else if (is_exact) {
            uint4 rest;
            *(uint4 *)place = cache_split8(c.type, row, at, rest);
            *(uint4 *)(place + BLOCK::APART) = rest;
        } else {
            *(uint4 *)place = cache_load8(c.type, row, at);
        }
    }
    copies_end();
}

/* What the rows of a block see: of a window all that any of them does. Positions of a unit follow
 * each other. */
template <class BLOCK>
static __device__ __forceinline__ wide_context context_of(const batch_attend &p,
                                                          const split_rows &b)
{
    const gpu_attend &a = p.a;
    const gpu_cache &c = a.cache;
    const int t0 = token_of(b, b.row0), t1 = token_of(b, min(b.row0 + BLOCK::ROWS, b.n_rows) - 1);
    wide_context x;
    x.table = cache_table(c, c.sequences[b.token0]);
    x.low = a.window ? max(0, c.positions[t0] + 1 - a.window) : 0;
    x.first = x.low / KEYS * KEYS;
    x.last = c.positions[t1];
    for (int t = t0; c.seen && t <= t1; t++)
        x.last = max(x.last, last_seen(a, t, c.positions[t]));
    if (p.n_parts > 1) { /* equal ones of what this token sees */
        const int n_keys = ((x.last - x.first) / KEYS / p.n_parts + 1) * KEYS;
        x.first += (int)blockIdx.z * n_keys;
        x.last = min(x.last, x.first + n_keys - 1);
    }
    return x;
}

/* Positions that a lane's two rows see: [begin, end]. */
struct seen_rows {
    int begin[2], end[2];
};

template <class BLOCK>
static __device__ __forceinline__ seen_rows seen_of(const gpu_attend &a, const split_rows &b,
                                                    int row0, int last)
{
    seen_rows out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = row0 + 8 * i;
        out.begin[i] = 0;
        out.end[i] = -1;
        if (row >= b.n_rows)
            continue;
        const int t = token_of(b, row), own = a.cache.positions[t];
        out.begin[i] = a.window ? own + 1 - a.window : 0;
        out.end[i] = min(last, last_seen(a, t, own));
    }
    return out;
}

/* Scores of 32 positions from `at` on, as powers of 2, without what a row does not see; the largest
 * of each row goes to `now`, which has the largest before. */
template <class BLOCK>
static __device__ __forceinline__ void read_scores(const gpu_attend &a, const seen_rows &seen,
                                                   const float *from, int at, int quad,
                                                   float (&s)[KEYS / 8][4], float (&now)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
        take_scores(from + 8 * i, BLOCK::SCORES, s[i]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = at + 8 * i + 2 * quad + (e & 1);
            const bool is_seen = key >= seen.begin[e >> 1] && key <= seen.end[e >> 1];
            s[i][e] = is_seen ? finish_score(a, s[i][e]) : -INFINITY;
            now[e >> 1] = fmaxf(now[e >> 1], s[i][e]);
        }
    }
}

/* blockIdx.x: rows of a unit, then the next unit; y: head of k; z: the part of the context. */
template <class BLOCK> static __device__ __forceinline__ void attend_wide(const batch_attend &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    uint8_t *q_at = shared, *k_at = q_at + BLOCK::ROWS * BLOCK::STRIDE,
            *v_at = k_at + KEYS * BLOCK::STRIDE;
    float *scores = (float *)(shared + BLOCK::BYTES);
    const gpu_attend &a = p.a;
    const gpu_cache &c = a.cache;
    const bool has_rest = BLOCK::EXACT && c.type != DTYPE_F16;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, quad = lane & 3;
    const int group = warp % BLOCK::GROUPS, part = warp / BLOCK::GROUPS;
    const int per_head = a.n_heads / c.n_heads, n_rows = p.unit * per_head;
    const int blocks = (n_rows + BLOCK::ROWS - 1) / BLOCK::ROWS;
    /* The last tokens see most: they begin first. */
    const int at_block = (int)(gridDim.x - 1 - blockIdx.x), unit = at_block / blocks;
    const split_rows b = {p.token0 + unit * p.unit, at_block % blocks * BLOCK::ROWS, n_rows,
                          per_head, (int)blockIdx.y};
    const int row0 = b.row0 + 16 * group + r;
    const uint64_t apart = c.v_offset - c.k_offset;
    if (BLOCK::GROUPS == 1)
        launch_next();
    wait_previous();
    const wide_context x = context_of<BLOCK>(p, b);
    int page = page_of(p, x, x.first);
    fetch<BLOCK>(p, x, b.head, x.first, page, 0, k_at);
    fetch<BLOCK>(p, x, b.head, x.first, page, apart, v_at);
    put_queries<BLOCK>(a, b, q_at);
    const seen_rows seen = seen_of<BLOCK>(a, b, row0, x.last);

    float out[BLOCK::PART_DIM / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < BLOCK::PART_DIM / 8; i++)
        out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
    const uint32_t q_mine = shared_u32(q_at) + query_place<BLOCK>(group, lane);
    const uint32_t k_mine = shared_u32(k_at) + key_place<BLOCK>(part, lane);
    const uint32_t v_mine = shared_u32(v_at) + value_place<BLOCK>(part, lane);
    float *score = scores + (16 * group + r) * BLOCK::SCORES + 2 * quad;

    copies_wait_first(); /* the first keys; their values may still be on their way */
    for (int at = x.first; at <= x.last; at += KEYS) {
        __syncthreads(); /* keys are there, and nobody needs the last values any more */
        if (at > x.first)
            fetch<BLOCK>(p, x, b.head, at, page, apart, v_at);
        page = page_of(p, x, at + KEYS); /* long before it is used */
        float s[KEYS / 8][4], mine[2][4], fade[2], now[2] = {most[0], most[1]};
        uint32_t share[KEYS / 8][2], share_rest[KEYS / 8][2];
        multiply_keys<BLOCK>(mine, q_mine, k_mine, c.head_dim, has_rest);
#pragma unroll
        for (int i = 0; i < BLOCK::PART_KEYS / 8; i++)
            put_scores(score + part * BLOCK::PART_KEYS + 8 * i, BLOCK::SCORES, mine[i]);
        copies_wait();
        __syncthreads(); /* values and scores are there, and nobody needs these keys any more */
        if (at + KEYS <= x.last)
            fetch<BLOCK>(p, x, b.head, at + KEYS, page, 0, k_at);
        read_scores<BLOCK>(a, seen, score, at, quad, s, now);
        share_scores<BLOCK::EXACT>(s, now, most, sum, fade, share, share_rest);
        if (part * BLOCK::PART_DIM < c.head_dim)
            add_values<BLOCK>(out, fade, share, share_rest, v_mine, has_rest);
        copies_wait();
    }
    if (BLOCK::GROUPS > 1)
        launch_next();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
        sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
        const int row = row0 + 8 * i;
        if (row < n_rows)
            store_row<BLOCK>(p, token_of(b, row), head_of(b, row), (int)blockIdx.z, part, quad, i,
                             out, most[i], sum[i]);
    }
}

#define ATTEND_WIDE(name, dim, rows, is_exact, n_blocks)                                           \
    extern "C" __global__ void __launch_bounds__(wide_block<dim, rows, is_exact>::THREADS,         \
                                                 n_blocks)                                         \
        attend_wide_##name##_##dim(const __grid_constant__ batch_attend p)                         \
    {                                                                                              \
        attend_wide<wide_block<dim, rows, is_exact>>(p);                                           \
    }
/* The last number: blocks that shared memory lets a processor of sm_90 have. */
ATTEND_WIDE(run, 256, 64, false, 2)
ATTEND_WIDE(run, 512, 64, false, 1)
ATTEND_WIDE(run_exact, 256, 32, true, 2)
ATTEND_WIDE(run_exact, 512, 32, true, 1)
ATTEND_WIDE(single, 256, 16, false, 4)
ATTEND_WIDE(single, 512, 16, false, 2)
ATTEND_WIDE(single_exact, 256, 16, true, 2)
ATTEND_WIDE(single_exact, 512, 16, true, 1)
