/*
 * Attention of a run of tokens of one sequence (prefill): a block takes 64
 * rows, and keys and values in blocks of 32 positions.
 *
 * A row is a token and one of the query heads that share a KV head, so that a
 * block of keys is read once for all of them. Each of four warps has 16 rows;
 * sums and scores stay in registers, the softmax is kept online, and the next
 * keys come while the last ones are multiplied.
 *
 * Queries and shares are f16, which is off by 2^-12; a score of 20 is off by
 * more than what models with float weights are to be off by. For those there
 * are "exact" kernels: queries, shares, and what caches of other types hold, are
 * the sum of two f16.
 */
#include "backend/cuda/attend_rows.cuh"
#include "backend/cuda/attend_run.cuh"

enum { ROWS = 64, THREADS = 128 };

/* Rows of D values in shared memory, 16 bytes apart more than that: no two in
 * the same banks. */
template <int D> struct row_of {
    static constexpr int BYTES = 2 * D + 16;
};

/*
 * 32 positions of keys and values into shared memory. Those before `low` and
 * after `last` become 0: their pages may be gone, or not yet written. EXACT:
 * what f16 cannot hold of other caches, `apart` bytes behind.
 */
template <int D, bool EXACT>
static __device__ __forceinline__ void fetch(const gpu_cache &c, int page_shift,
                                             const int32_t *table, int head, int first, int low,
                                             int last, uint8_t *k_to, uint8_t *v_to, int apart)
{
    constexpr int CHUNKS = D / 8;
    int64_t v_apart = (int64_t)(c.v_offset - c.k_offset);
    int at = threadIdx.x % CHUNKS * 8;
#pragma unroll 4
    for (int key = threadIdx.x / CHUNKS; key < KEYS; key += THREADS / CHUNKS) {
        int position = first + key, to = key * row_of<D>::BYTES + 2 * at;
        bool is_exact = EXACT && c.type != DTYPE_F16;
        if (position < low || position > last || at >= c.head_dim) {
            const uint4 none = make_uint4(0, 0, 0, 0);
            *(uint4 *)(k_to + to) = *(uint4 *)(v_to + to) = none;
            if (is_exact)
                *(uint4 *)(k_to + apart + to) = *(uint4 *)(v_to + apart + to) = none;
            continue;
        }
        const uint8_t *row = cache_keys(c, page_shift, table, head, position);
        if (c.type == DTYPE_F16) {
            copy_16(k_to + to, row + 2 * at);
            copy_16(v_to + to, row + v_apart + 2 * at);
        } else if (is_exact) {
            uint4 rest;
            *(uint4 *)(k_to + to) = cache_split8(c.type, row, at, rest);
            *(uint4 *)(k_to + apart + to) = rest;
            *(uint4 *)(v_to + to) = cache_split8(c.type, row + v_apart, at, rest);
            *(uint4 *)(v_to + apart + to) = rest;
        } else {
            *(uint4 *)(k_to + to) = cache_load8(c.type, row, at);
            *(uint4 *)(v_to + to) = cache_load8(c.type, row + v_apart, at);
        }
    }
}

/* The queries into shared memory, [ROWS] of D values. */
template <int D, bool EXACT>
static __device__ __forceinline__ void put_queries(const gpu_attend &a, const run_block &b,
                                                   uint8_t *q_at, int apart)
{
    constexpr int STRIDE = row_of<D>::BYTES;
    const gpu_cache &c = a.cache;
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
        int row = i / (D / 8), at = i % (D / 8) * 8, t = row / b.per_head;
        uint4 v = make_uint4(0, 0, 0, 0), rest = v;
        if (t < b.n_tokens && at < c.head_dim) {
            const float *from = a.q + (int64_t)(b.token0 + t) * a.q_stride +
                                (b.head * b.per_head + row % b.per_head) * c.head_dim + at;
            float x[8];
#pragma unroll
            for (int n = 0; n < 8; n++)
                x[n] = from[n];
            v = split8(x, rest);
        }
        *(uint4 *)(q_at + row * STRIDE + 2 * at) = v;
        if (EXACT)
            *(uint4 *)(q_at + apart + row * STRIDE + 2 * at) = rest;
    }
}

/* Scores of this warp's rows and KEYS positions. */
template <int D, bool EXACT>
static __device__ __forceinline__ void multiply_keys(float (&s)[KEYS / 8][4], uint32_t q_mine,
                                                     uint32_t k_now, int apart, bool has_rest)
{
    constexpr int STRIDE = row_of<D>::BYTES;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
        s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t q[4], q_rest[4];
        load_matrix(q, q_mine + k * 32);
        if (EXACT)
            load_matrix(q_rest, q_mine + apart + k * 32);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) {
            uint32_t b[4];
            load_matrix(b, k_now + i * 16 * STRIDE + k * 32);
            mma_f16(s[2 * i], q[0], q[1], q[2], q[3], b[0], b[1]);
            mma_f16(s[2 * i + 1], q[0], q[1], q[2], q[3], b[2], b[3]);
            if (EXACT) {
                mma_f16(s[2 * i], q_rest[0], q_rest[1], q_rest[2], q_rest[3], b[0], b[1]);
                mma_f16(s[2 * i + 1], q_rest[0], q_rest[1], q_rest[2], q_rest[3], b[2], b[3]);
            }
            if (has_rest) {
                load_matrix(b, k_now + apart + i * 16 * STRIDE + k * 32);
                mma_f16(s[2 * i], q[0], q[1], q[2], q[3], b[0], b[1]);
                mma_f16(s[2 * i + 1], q[0], q[1], q[2], q[3], b[2], b[3]);
            }
        }
    }
}

/* Scores as powers of 2, without what a row does not see; the largest of each row goes to `now`,
 * which has the largest before. */
static __device__ __forceinline__ void mask_scores(const gpu_attend &a, const run_block &b, int at,
                                                   int quad, const int (&position)[2],
                                                   const int (&end)[2], float (&s)[KEYS / 8][4],
                                                   float (&now)[2])
{
    /* Masks cost nothing to speak of where a block is seen as a whole. */
    const bool is_whole = sees_whole(a, b, at, KEYS);
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (is_whole) {
                s[i][e] *= a.scale * LOG2_E;
            } else {
                int key = at + 8 * i + 2 * quad + (e & 1), mine = position[e >> 1];
                bool is_seen = key <= end[e >> 1] && (a.window == 0 || key > mine - a.window);
                s[i][e] = is_seen ? finish_score(a, s[i][e]) : -INFINITY;
            }
            now[e >> 1] = fmaxf(now[e >> 1], s[i][e]);
        }
}

/* Values times shares, added to what was before, faded. */
template <int D, bool EXACT>
static __device__ __forceinline__ void
add_values(float (&out)[D / 8][4], const float (&fade)[2], const uint32_t (&share)[KEYS / 8][2],
           const uint32_t (&share_rest)[KEYS / 8][2], uint32_t v_now, int apart, bool has_rest)
{
    constexpr int STRIDE = row_of<D>::BYTES;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        out[i][0] *= fade[0];
        out[i][1] *= fade[0];
        out[i][2] *= fade[1];
        out[i][3] *= fade[1];
    }
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t b[4];
            load_matrix_turned(b, v_now + k * 16 * STRIDE + i * 32);
            multiply_shares(out[2 * i], share + 2 * k, b[0], b[1]);
            multiply_shares(out[2 * i + 1], share + 2 * k, b[2], b[3]);
            if (EXACT) {
                multiply_shares(out[2 * i], share_rest + 2 * k, b[0], b[1]);
                multiply_shares(out[2 * i + 1], share_rest + 2 * k, b[2], b[3]);
            }
            if (has_rest) {
                load_matrix_turned(b, v_now + apart + k * 16 * STRIDE + i * 32);
                multiply_shares(out[2 * i], share + 2 * k, b[0], b[1]);
                multiply_shares(out[2 * i + 1], share + 2 * k, b[2], b[3]);
            }
        }
}

template <int D, bool EXACT>
static __device__ __forceinline__ void attend_run(const batch_attend &p)
{
    constexpr int STRIDE = row_of<D>::BYTES;
    constexpr int APART = (ROWS + 4 * KEYS) * STRIDE; /* to what f16 cannot hold */
    extern __shared__ __align__(128) uint8_t shared[];
    uint8_t *q_at = shared, *k_at = q_at + ROWS * STRIDE, *v_at = k_at + 2 * KEYS * STRIDE;
    const gpu_attend &a = p.a;
    const gpu_cache &c = a.cache;
    const bool has_rest = EXACT && c.type != DTYPE_F16;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, quad = lane & 3;
    const run_block b = find_run_block(p, ROWS);
    int first = b.low / KEYS * KEYS;

    const int32_t *table = cache_table(c, c.sequences[b.token0]);
    fetch<D, EXACT>(c, p.page_shift, table, b.head, first, b.low, b.last, k_at, v_at, APART);
    copies_end();
    put_queries<D, EXACT>(a, b, q_at, APART);

    float out[D / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
    int position[2], end[2]; /* of this lane's two rows, and what they see; -1: no such row */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int t = (16 * warp + r + 8 * i) / b.per_head;
        position[i] = t < b.n_tokens ? b.position0 + t : -1;
        end[i] = t < b.n_tokens ? last_seen(a, b.token0 + t, position[i]) : -1;
    }
    /* ldmatrix: lanes 0-15 name rows, lanes 16-31 the same rows 8 values on. */
    uint32_t q_mine = shared_u32(q_at) + (16 * warp + (lane & 15)) * STRIDE + (lane >> 4) * 16;
    uint32_t k_mine = ((lane & 7) + (lane >> 4) * 8) * STRIDE + (lane >> 3 & 1) * 16;
    uint32_t v_mine = (lane & 15) * STRIDE + (lane >> 4) * 16;

    int stage = 0;
    for (int at = first; at <= b.last; at += KEYS, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (at + KEYS <= b.last) {
            int other = (stage ^ 1) * KEYS * STRIDE;
            fetch<D, EXACT>(c, p.page_shift, table, b.head, at + KEYS, b.low, b.last, k_at + other,
                            v_at + other, APART);
            copies_end();
        }
        uint32_t k_now = shared_u32(k_at + stage * KEYS * STRIDE) + k_mine;
        uint32_t v_now = shared_u32(v_at + stage * KEYS * STRIDE) + v_mine;
        float s[KEYS / 8][4], fade[2];
        uint32_t share[KEYS / 8][2], share_rest[KEYS / 8][2];
        multiply_keys<D, EXACT>(s, q_mine, k_now, APART, has_rest);
        float now[2] = {most[0], most[1]};
        mask_scores(a, b, at, quad, position, end, s, now);
        share_scores<EXACT>(s, now, most, sum, fade, share, share_rest);
        add_values<D, EXACT>(out, fade, share, share_rest, v_now, APART, has_rest);
    }
    launch_next();
    store_rows<D>(a, b, 16 * warp + r, quad, out, most, sum);
}

#define ATTEND_RUN(d)                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        attend_run_##d(const __grid_constant__ batch_attend p)                                     \
    {                                                                                              \
        attend_run<d, false>(p);                                                                   \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        attend_run_exact_##d(const __grid_constant__ batch_attend p)                               \
    {                                                                                              \
        attend_run<d, true>(p);                                                                    \
    }
ATTEND_RUN(64)
ATTEND_RUN(128)
ATTEND_RUN(256)
