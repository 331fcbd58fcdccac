/*
 * One token: the heads are turned, the new key and value stored, and the context attended to, for
 * caches of q8_0 and for heads of 256 values; decode_attend.cu has f16 and smaller heads. What
 * blocks and warps do is the same there. What differs is what registers and shared memory hold:
 *
 * - Queries lie in shared memory, and ldmatrix brings them: once, or for heads of 256 values, of which
 *   they would be 64 registers, with each piece.
 * - The second product is turned around: its rows are values, its columns the heads, of which there are
 *   8. So no row is there for the rest of a share alone, and what is summed up takes half the registers,
 *   64 of 256 values. Its other operand lies as the scores do. (Dividing a head among warps would have
 *   them wait for each other with every piece.)
 * - Of f16, a piece of 256 values has one stage, and the next one's keys come while values are multiplied:
 *   as many bytes are on their way as with two stages of 128 values.
 * - Of q8_0 a piece comes as it lies in the cache, where its 16 rows follow each other: 16 times 34
 *   bytes for each 32 values, which is a multiple of 16 for every size of heads. Lanes read pairs of
 *   bytes, which all lie at even addresses, and of what a warp reads at once hardly two in one bank. They
 *   are multiplied as the whole numbers that they are, keys as f16 and values as bf16, which is exact.
 *   Scales of keys multiply what comes of a block. Scales of values multiply the shares, which then
 *   become two bf16: those may be as small as any scale, f16 may not. So keys and values are not rounded
 *   a second time; shares have 16 bits.
 */
#ifndef LACE_BACKEND_CUDA_DECODE_ATTEND_ROWS_CUH
#define LACE_BACKEND_CUDA_DECODE_ATTEND_ROWS_CUH

#include "backend/cuda/decode_attend.cuh"
#include "backend/cuda/decode_turn_rows.cuh"

/* ---- Pieces in shared memory ----------------------------------------------------------------- */

/* BYTES: of a row in the cache; ROW: from row to row in shared memory. */
template <int HEAD_DIM, bool HAS_BYTES> struct row_form {
    static constexpr int DIM = HEAD_DIM;
    static constexpr bool IS_BYTES = HAS_BYTES;
    static constexpr int BYTES = turned_rows<DIM, IS_BYTES>::ROW;
    static constexpr int ROW = IS_BYTES ? BYTES : BYTES + 16;
    static constexpr int STAGE = 2 * PIECE * ROW; /* keys, then values */
    static constexpr int STAGES = IS_BYTES ? 2 : 1;
    static constexpr int WARP_BYTES = STAGES * STAGE;
    static constexpr bool KEEPS_QUERIES = DIM <= 128; /* in registers */
    /* Heads four floats apart, so that lanes write to different banks. */
    typedef parts_layout<DIM, WARP_BYTES, DIM + 4> parts;
    static_assert(MOST * (DIM + 4) * 4 <= WARP_BYTES, "a warp's part has room among its pieces");
    static_assert(WARP_BYTES % 16 == 0 && PIECE * ROW % 16 == 0, "pieces are copied in 16 bytes");
};

/* A piece of keys or values on its way; rows that are not written yet become zeros. (Of the new row some
 * bytes may come along. It is put there when they are there.) */
template <class F>
__device__ __forceinline__ void fetch_rows(const gpu_cache &kv, const int *table, int head,
                                           int piece, int last_piece, int position, uint32_t to,
                                           uint64_t offset, int lane)
{
    constexpr int CHUNKS = F::BYTES / 16; /* of a row of f16 */
    if (piece <= last_piece) {
        int page = __ldg(table + piece / 2);
        const uint8_t *from = kv.data + (uint64_t)page * kv.page_bytes + offset +
                              (uint64_t)(head * DECODE_PAGE + piece % 2 * PIECE) * F::BYTES;
        int n_rows = min((int)PIECE, position - piece * PIECE);
        for (int i = lane; i < PIECE * F::BYTES / 16; i += 32) {
            int at = F::IS_BYTES ? 16 * i : i / CHUNKS * F::ROW + i % CHUNKS * 16;
            copy_16(to + at, from + 16 * i, 16 * i < n_rows * F::BYTES);
        }
    }
    copies_commit();
}

/* ---- Whole numbers --------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t two_bytes(const uint8_t *p)
{
    return *(const uint16_t *)p;
}

/* Two bytes with signs as f16: 1024 + 128 + x, less 1152. */
__device__ __forceinline__ uint32_t halves_of_bytes(uint32_t two)
{
    uint32_t x = __byte_perm(two ^ 0x8080, 0x64646464, 0x4140), less = 0x64806480;
    __half2 y = __hsub2(*(__half2 *)&x, *(__half2 *)&less);
    return *(uint32_t *)&y;
}

/* Two of four bytes with signs, the lower or the upper ones, as bf16: 128 and seven bits, less 128 or,
 * of negative ones, 256. */
template <bool UPPER> __device__ __forceinline__ uint32_t bfloats_of_bytes(uint32_t four)
{
    constexpr uint32_t which = UPPER ? 0x4342 : 0x4140;
    uint32_t x = __byte_perm(four & 0x7f7f7f7f, 0x43434343, which),
             less = __byte_perm(four & 0x80808080, 0x43434343, which);
    __nv_bfloat162 y = __hsub2(*(__nv_bfloat162 *)&x, *(__nv_bfloat162 *)&less);
    return *(uint32_t *)&y;
}

__device__ __forceinline__ float block_scale(const uint8_t *block)
{
    return __half2float(__ushort_as_half(*(const uint16_t *)block));
}

__device__ __forceinline__ uint32_t pack_bfloats(float a, float b)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
    return *(uint32_t *)&h;
}

/* What is left of two floats when their bf16 are taken away. */
__device__ __forceinline__ uint32_t pack_rest_of_bfloats(float a, float b, uint32_t high)
{
    return pack_bfloats(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000));
}

/* ---- Products -------------------------------------------------------------------------------- */

/* 16 values of the heads: rows 0..7 high halves, rows 8..15 the rest. Those of step k. */
template <int DIM>
__device__ __forceinline__ void load_queries(uint32_t (&q)[4], uint32_t q_at, int k, int lane)
{
    load_matrices<false>(q, q_at + (lane & 15) * (2 * DIM + 16) + 32 * k + 16 * (lane >> 4));
}

/* Products of 32 values of the heads with the keys of 8 positions, the n-th ones; of q8_0 without the
 * block's scale. */
template <class F>
__device__ __forceinline__ void multiply_keys(float (&near)[4], float (&far)[4],
                                              const uint32_t (&q)[2][4], const uint8_t *keys,
                                              uint32_t k_at, int n, int k, int lane)
{
    uint32_t b[4];
    if constexpr (F::IS_BYTES) {
        const uint8_t *block = keys + (8 * n + (lane >> 2)) * F::ROW + 34 * k + 2 + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i] = halves_of_bytes(two_bytes(block + 8 * i));
    } else {
        load_matrices<false>(b, k_at + (8 * n + (lane & 7)) * F::ROW + 64 * k + 16 * (lane >> 3));
    }
    mma_f16(near, q[0][0], q[0][1], q[0][2], q[0][3], b[0], b[1]);
    mma_f16(far, q[1][0], q[1][1], q[1][2], q[1][3], b[2], b[3]);
}

/* Scores of a piece: [8 positions][2 of them] of head r. kept: the queries, if they are kept. */
template <class F>
__device__ __forceinline__ void score_rows(float (&scores)[2][2], const uint32_t (*kept)[4],
                                           uint32_t q_at, const uint8_t *keys, uint32_t k_at,
                                           int first_here, int first, int position,
                                           const decode_attention &p, int lane, int c)
{
    float s[2][2][4] = {}; /* of 8 positions: two chains */
    scores[0][0] = scores[0][1] = scores[1][0] = scores[1][1] = 0;
#pragma unroll
    for (int k = 0; k < F::DIM / 32; k++) {
        uint32_t q[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            if constexpr (F::KEEPS_QUERIES)
                q[i][0] = kept[2 * k + i][0], q[i][1] = kept[2 * k + i][1],
                q[i][2] = kept[2 * k + i][2], q[i][3] = kept[2 * k + i][3];
            else
                load_queries<F::DIM>(q[i], q_at, 2 * k + i, lane);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            multiply_keys<F>(s[n][0], s[n][1], q, keys, k_at, n, k, lane);
#pragma unroll
            for (int h = 0; h < 2 && F::IS_BYTES; h++) {
                const uint8_t *block = keys + (8 * n + 2 * c + h) * F::ROW + 34 * k;
                scores[n][h] += block_scale(block) *
                                (s[n][0][h] + s[n][0][2 + h] + (s[n][1][h] + s[n][1][2 + h]));
                s[n][0][h] = s[n][0][2 + h] = s[n][1][h] = s[n][1][2 + h] = 0;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = first_here + 8 * n + 2 * c + h;
            float v = F::IS_BYTES ? scores[n][h]
                                  : s[n][0][h] + s[n][0][2 + h] + (s[n][1][h] + s[n][1][2 + h]);
            if (p.softcap > 0)
                v = p.softcap * tanhf(v / p.softcap);
            scores[n][h] = at >= first && at <= position ? v : -INFINITY;
        }
}

/*
 * Values of a piece, times shares, of which this lane has those of head r and four positions. Rows of
 * out[m] are values, columns heads: a lane has heads 2 c and the next, of q8_0 values 16 m + 2 r and the
 * next, else 16 m + r and 8 further.
 */
template <class F>
__device__ __forceinline__ void add_rows(float (&out)[F::DIM / 16][4], const float (&shares)[2][2],
                                         const uint8_t *values, uint32_t v_at, int lane, int r,
                                         int c)
{
    if constexpr (F::IS_BYTES) {
#pragma unroll
        for (int k = 0; k < F::DIM / 32; k++) {
            uint32_t high[2], rest[2], a[2][4];
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float w[2];
#pragma unroll
                for (int h = 0; h < 2; h++)
                    w[h] =
                        shares[n][h] * block_scale(values + (8 * n + 2 * c + h) * F::ROW + 34 * k);
                high[n] = pack_bfloats(w[0], w[1]);
                rest[n] = pack_rest_of_bfloats(w[0], w[1], high[n]);
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const uint8_t *two =
                        values + (8 * n + 2 * c) * F::ROW + 34 * k + 2 + 16 * i + 2 * r;
                    uint32_t four = __byte_perm(two_bytes(two), two_bytes(two + F::ROW), 0x5140);
                    a[i][2 * n] = bfloats_of_bytes<false>(four);
                    a[i][2 * n + 1] = bfloats_of_bytes<true>(four);
                }
#pragma unroll
            for (int i = 0; i < 2; i++)
                mma_bf16(out[2 * k + i], a[i][0], a[i][1], a[i][2], a[i][3], high[0], high[1]);
#pragma unroll
            for (int i = 0; i < 2; i++)
                mma_bf16(out[2 * k + i], a[i][0], a[i][1], a[i][2], a[i][3], rest[0], rest[1]);
        }
    } else {
        uint32_t high[2], rest[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            high[n] = pack_halves(shares[n][0], shares[n][1]);
            rest[n] = pack_rest(shares[n][0], shares[n][1], high[n]);
        }
#pragma unroll
        for (int m = 0; m < F::DIM / 16; m += 2) {
            uint32_t a[2][4]; /* positions 0..7 of 8 values, of the next 8; then positions 8..15 */
#pragma unroll
            for (int i = 0; i < 2; i++)
                load_matrices<true>(a[i], v_at + ((lane & 7) + (lane >> 4) * 8) * F::ROW +
                                              32 * (m + i) + 16 * (lane >> 3 & 1));
#pragma unroll
            for (int i = 0; i < 2; i++)
                mma_f16(out[m + i], a[i][0], a[i][1], a[i][2], a[i][3], high[0], high[1]);
#pragma unroll
            for (int i = 0; i < 2; i++)
                mma_f16(out[m + i], a[i][0], a[i][1], a[i][2], a[i][3], rest[0], rest[1]);
        }
    }
}

/* What was summed up fades: each head's share is with the lanes of row r, its sums with those of c. */
template <int N> __device__ __forceinline__ void fade_rows(float (&out)[N][4], float fade, int c)
{
    float first = __shfl_sync(~0u, fade, 8 * c), second = __shfl_sync(~0u, fade, 8 * c + 4);
#pragma unroll
    for (int m = 0; m < N; m++) {
        out[m][0] *= first;
        out[m][1] *= second;
        out[m][2] *= first;
        out[m][3] *= second;
    }
}

/* A warp's part, in the memory of its pieces. */
template <class F>
__device__ __forceinline__ void put_part(float *to, const float (&out)[F::DIM / 16][4], int group,
                                         int r, int c)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float *part = to + (2 * c + h) * F::parts::HEAD_STEP;
        if (2 * c + h >= group)
            continue;
#pragma unroll
        for (int m = 0; m < F::DIM / 16; m++)
            if constexpr (F::IS_BYTES) {
                *(float2 *)(part + 16 * m + 2 * r) = make_float2(out[m][h], out[m][2 + h]);
            } else {
                part[16 * m + r] = out[m][h];
                part[16 * m + 8 + r] = out[m][2 + h];
            }
    }
}

/* ---- The token ------------------------------------------------------------------------------- */

template <int DIM, bool IS_BYTES>
__device__ __forceinline__ void attend_token_rows(const attend_parameters &parameters)
{
    typedef row_form<DIM, IS_BYTES> F;
    extern __shared__ __align__(128) uint8_t page_memory[];
    __shared__ __align__(16) turned_rows<DIM, IS_BYTES> turned_to;
    __shared__ __align__(16) warp_numbers warp_most, warp_sums;
    __shared__ __align__(16) block_sums all_sums;
    __shared__ __align__(16) float all_parts[MOST * DIM + 32 * DECODE_MAX_CLUSTER];
    __shared__ __align__(8) uint64_t parts_barrier;
    meeting<typename F::parts> others{all_sums, all_parts, parts_barrier};
    __shared__ __align__(16) attend_parameters all;
    const attend_team team(parameters);
    const int n_blocks = team.n_blocks, rank = team.rank;
    const int head = blockIdx.x / n_blocks, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int r = lane >> 2, c = lane & 3;
    let_next_begin();
    copy_parameters(&all, parameters, THREADS);
    __syncthreads();

    const decode_attention &p = attention_of(all);
    const gpu_cache &kv = p.cache;
    const int group = p.n_heads / kv.n_heads;
    const int position = __ldcg(&p.state->position), sequence = __ldcg(&p.state->sequence);
    const int first = p.window && position + 1 > p.window ? position + 1 - p.window : 0;
    const int first_piece = first / PIECE, last_piece = position / PIECE;
    const int *table = kv.tables + (int64_t)sequence * kv.pages_per_sequence;
    const int stride = n_blocks * WARPS;
    uint8_t *pieces = page_memory + warp * F::WARP_BYTES;
    const uint32_t pieces_at = shared_address(pieces);
    auto fetch_keys = [&](int piece, int stage) {
        fetch_rows<F>(kv, table, head, piece, last_piece, position, pieces_at + stage * F::STAGE,
                      kv.k_offset, lane);
    };
    auto fetch_values = [&](int piece, int stage) {
        fetch_rows<F>(kv, table, head, piece, last_piece, position,
                      pieces_at + stage * F::STAGE + PIECE * F::ROW, kv.v_offset, lane);
    };
    int piece = first_piece + rank * WARPS + warp;
#pragma unroll
    for (int stage = 0; stage < F::STAGES; stage++) {
        fetch_keys(piece + stage * stride, stage);
        fetch_values(piece + stage * stride, stage);
    }

    /* What this block adds up. */
    const int n_values = group * DIM, share = others.share_of(n_values, n_blocks);
    const int n_shared = max(0, min(share, n_values - rank * share));
    others.announce(n_blocks, n_shared, group, tid);

    /* Addresses and angles (the first kernel of a token made them, long ago). */
    const bool owns = (last_piece - first_piece) % stride / WARPS == rank;
    const row_turner<DIM, IS_BYTES> turner(turned_to, p, group, warp, lane);
    uint8_t *row_at = kv.data + (uint64_t)__ldg(table + position / DECODE_PAGE) * kv.page_bytes +
                      (uint64_t)(head * DECODE_PAGE + position % DECODE_PAGE) * F::BYTES;
    /* Which of the block's sums this thread pushes first, and where to. */
    const int first_to = 4 * tid / share;

    wait_for_last();
    turner.turn(p, head, group, owns, row_at + kv.k_offset, row_at + kv.v_offset, warp, lane);
    const uint32_t q_at = shared_address(turned_to.q);
    uint32_t q[F::KEEPS_QUERIES ? DIM / 16 : 1][4];
#pragma unroll
    for (int k = 0; k < DIM / 16 && F::KEEPS_QUERIES; k++)
        load_queries<DIM>(q[k], q_at, k, lane);
    float out[DIM / 16][4] = {}, most = -INFINITY, sum = 0;
    for (int stage = 0; piece <= last_piece; piece += stride, stage = (stage + 1) % F::STAGES) {
        uint8_t *keys = pieces + stage * F::STAGE, *values = keys + PIECE * F::ROW;
        const uint32_t k_at = pieces_at + stage * F::STAGE, v_at = k_at + PIECE * F::ROW;
        copies_wait<2 * F::STAGES - 1>(); /* the keys are there: this lane's, then everyone's */
        __syncwarp();
        if (piece == last_piece)
            copy_row<F::BYTES>(keys + (position % PIECE) * F::ROW, turned_to.rows[0], lane);
        __syncwarp();
        float scores[2][2];
        score_rows<F>(scores, q, q_at, keys, k_at, piece * PIECE, first, position, p, lane, c);
        __syncwarp(); /* everyone has read the keys: the next ones may come */
        fetch_keys(piece + F::STAGES * stride, stage);
        fade_rows(out, share_scores(scores, most, sum), c);
        copies_wait<2 * F::STAGES - 1>(); /* the values are there */
        __syncwarp();
        if (piece == last_piece)
            copy_row<F::BYTES>(values + (position % PIECE) * F::ROW, turned_to.rows[1], lane);
        __syncwarp();
        add_rows<F>(out, scores, values, v_at, lane, r, c);
        __syncwarp();
        fetch_values(piece + F::STAGES * stride, stage);
    }
    copies_wait<0>();
    __syncwarp();

    sum = tile_reduce(sum);
    if (c == 0) {
        warp_most[r][warp] = most;
        warp_sums[r][warp] = sum;
    }
    put_part<F>((float *)pieces, out, group, r, c);
    __syncthreads();
    others.add_up(warp_most, warp_sums, page_memory, all, n_blocks, rank, head, group, n_values,
                  share, n_shared, first_to, tid, lane);
}

/* At most 128 registers where kernels overlap, so that a block fits beside one of a product. */
#define ATTEND_ROWS(dim, name, is_bytes)                                                           \
    extern "C" __global__ void __launch_bounds__(32 * DECODE_ATTEND_WARPS, ATTEND_BLOCKS)          \
        decode_attend_##dim##name(const __grid_constant__ attend_parameters p)                     \
    {                                                                                              \
        attend_token_rows<dim, is_bytes>(p);                                                       \
    }

#endif
