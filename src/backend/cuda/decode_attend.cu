/*
 * One token: the heads are turned, the new key and value stored, and the context attended to: caches
 * of f16, heads of up to 128 values (others: decode_attend_rows.cuh).
 */
#include "backend/cuda/decode_attend.cuh"

/* ---- Pieces of the context ------------------------------------------------------------------- */

/* What a row of keys or values takes in shared memory. */
template <int DIM> constexpr int ROW = 2 * DIM + 16;
template <int DIM> constexpr int STAGE = 2 * PIECE *ROW<DIM>; /* keys, then values */
template <int DIM> using layout = parts_layout<DIM, 2 * STAGE<DIM>, DIM>;

/* A piece of keys or values on its way; rows that are not written yet become zeros. */
template <int DIM>
__device__ __forceinline__ void fetch_piece(const gpu_cache &kv, const int *table, int head,
                                            int piece, int last_piece, int position, uint32_t to,
                                            uint64_t offset, int lane)
{
    constexpr int CHUNKS = DIM / 8;
    if (piece <= last_piece) {
        int page = __ldg(table + piece / 2);
        const uint8_t *from = kv.data + (uint64_t)page * kv.page_bytes + offset +
                              (uint64_t)(head * DECODE_PAGE + piece % 2 * PIECE) * (2 * DIM);
        int n_rows = min((int)PIECE, position - piece * PIECE);
        for (int i = lane; i < PIECE * CHUNKS; i += 32) {
            int row = i / CHUNKS, chunk = i - row * CHUNKS;
            copy_16(to + row * ROW<DIM> + 16 * chunk, from + row * (2 * DIM) + 16 * chunk,
                    row < n_rows);
        }
    }
    copies_commit();
}

/* Scores of a piece: [8 positions][2 of them] of head r. */
template <int DIM, turn_form FORM>
__device__ __forceinline__ void score_piece(float (&scores)[2][2], const uint32_t (&q)[DIM / 16][4],
                                            uint32_t k_at, int first_here, int first, int position,
                                            const decode_attention &p, int lane, int c)
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}; /* two chains, each half as long */
#pragma unroll
        for (int k = 0; k < DIM / 32; k++) {
            uint32_t b[4];
            load_matrices<false>(b, k_at + (8 * n + (lane & 7)) * ROW<DIM> + 64 * k +
                                        16 * (lane >> 3));
            mma_f16(s[0], q[2 * k][0], q[2 * k][1], q[2 * k][2], q[2 * k][3], b[0], b[1]);
            mma_f16(s[1], q[2 * k + 1][0], q[2 * k + 1][1], q[2 * k + 1][2], q[2 * k + 1][3], b[2],
                    b[3]);
        }
        if (DIM % 32) { /* the last 16: two matrices, given twice */
            constexpr int k = DIM / 16 - 1;
            uint32_t b[4];
            load_matrices<false>(b, k_at + (8 * n + (lane & 7)) * ROW<DIM> + 32 * k +
                                        16 * (lane >> 3 & 1));
            mma_f16(s[0], q[k][0], q[k][1], q[k][2], q[k][3], b[0], b[1]);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = first_here + 8 * n + 2 * c + h;
            float v = s[0][h] + s[0][2 + h] + (s[1][h] + s[1][2 + h]);
            if (FORM == TURN_ANY && p.softcap > 0)
                v = p.softcap * tanhf(v / p.softcap);
            scores[n][h] = at >= first && at <= position ? v : -INFINITY;
        }
    }
}

/* Shares of a piece; what was summed up before fades. */
template <int DIM>
__device__ __forceinline__ void weigh_piece(float (&scores)[2][2], float &most, float &sum,
                                            float (&out)[DIM / 8][4])
{
    float fade = share_scores(scores, most, sum);
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[n][i] *= fade;
}

/* Values of a piece, times shares. */
template <int DIM>
__device__ __forceinline__ void add_values(float (&out)[DIM / 8][4], const float (&scores)[2][2],
                                           uint32_t v_at, int lane)
{
    uint32_t a[4];
    a[0] = pack_halves(scores[0][0], scores[0][1]);
    a[1] = pack_rest(scores[0][0], scores[0][1], a[0]);
    a[2] = pack_halves(scores[1][0], scores[1][1]);
    a[3] = pack_rest(scores[1][0], scores[1][1], a[2]);
#pragma unroll
    for (int n = 0; n < DIM / 16; n++) {
        uint32_t b[4]; /* positions 0..7 and 8..15 of 8 dimensions, then of the next 8 */
        load_matrices<true>(b, v_at + (lane & 15) * ROW<DIM> + 32 * n + 16 * (lane >> 4));
        mma_f16(out[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_f16(out[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
}

/* ---- The token ------------------------------------------------------------------------------- */

/* The queries and the new row of this token, turned: through shared memory, or by each warp. */
template <int DIM, turn_form FORM>
__device__ __forceinline__ void
turn(uint32_t (&q)[DIM / 16][4], new_row<DIM> &row, turn_memory<DIM, FORM> &through,
     query_turner<DIM, FORM> &queries, const decode_attention &p, int head, int group, bool owns,
     bool is_owner, __half *k_to, __half *v_to, int lane, int r, int c)
{
    if constexpr (FORM == TURN_ANY) {
        through.turn(p, head, group, owns, k_to, v_to);
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            q[k][0] = *(const uint32_t *)&through.q_high[r][16 * k + 2 * c];
            q[k][1] = *(const uint32_t *)&through.q_low[r][16 * k + 2 * c];
            q[k][2] = *(const uint32_t *)&through.q_high[r][16 * k + 2 * c + 8];
            q[k][3] = *(const uint32_t *)&through.q_low[r][16 * k + 2 * c + 8];
        }
#pragma unroll
        for (int m = 0; m < row.MANY; m++) {
            int i = min(lane + 32 * m, DIM / 2 - 1);
            row.k[m] = ((const uint32_t *)through.rows[0])[i];
            row.v[m] = ((const uint32_t *)through.rows[1])[i];
        }
    } else {
        if (is_owner)
            turn_new_row<DIM, FORM == TURN_HALVES>(row, p, head, k_to, v_to, lane);
        queries.load(q, p, p.q + (head * group + r) * DIM, r < group, c);
    }
}

/*
 * Some blocks for each head of k, which share the context; each warp takes pieces of 16
 * positions and has the next piece on its way while it works on one. The heads of q that belong to
 * it are the rows of the mma: rows 0..7 their high halves, rows 8..15 the rest, so scores have the
 * precision of floats; the same for the probabilities. Each block adds up what its warps have, and
 * meets the others.
 *
 * Little is done between the wait and the end, since one warp of a scheduler waits for each of its
 * instructions: what can be known before is loaded before, and nobody waits for the whole block
 * more than once.
 */
template <int DIM, turn_form FORM>
__device__ __forceinline__ void attend_token(const attend_parameters &parameters)
{
    constexpr int PAGE = DECODE_PAGE;
    extern __shared__ __align__(128) uint8_t page_memory[];
    __shared__ turn_memory<DIM, FORM> through;
    __shared__ __align__(16) warp_numbers warp_most, warp_sums;
    __shared__ __align__(16) block_sums all_sums;
    __shared__ __align__(16) float all_parts[MOST * DIM + 32 * DECODE_MAX_CLUSTER];
    __shared__ __align__(8) uint64_t parts_barrier;
    meeting<layout<DIM>> others{all_sums, all_parts, parts_barrier};
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
    /* Two stages, each of keys and values. */
    uint8_t *pieces = page_memory + warp * 2 * STAGE<DIM>;
    const uint32_t pieces_at = shared_address(pieces);
    auto fetch_keys = [&](int piece, int stage) {
        fetch_piece<DIM>(kv, table, head, piece, last_piece, position,
                         pieces_at + stage * STAGE<DIM>, kv.k_offset, lane);
    };
    auto fetch_values = [&](int piece, int stage) {
        fetch_piece<DIM>(kv, table, head, piece, last_piece, position,
                         pieces_at + stage * STAGE<DIM> + PIECE * ROW<DIM>, kv.v_offset, lane);
    };
    int piece = first_piece + rank * WARPS + warp;
    fetch_keys(piece, 0);
    fetch_values(piece, 0);
    fetch_keys(piece + stride, 1);
    fetch_values(piece + stride, 1);

    /* What this block adds up. */
    const int n_values = group * DIM, share = others.share_of(n_values, n_blocks);
    const int n_shared = max(0, min(share, n_values - rank * share));
    others.announce(n_blocks, n_shared, group, tid);

    /* Addresses and angles (the first kernel of a token made them, long ago). */
    const int owner = (last_piece - first_piece) % stride;
    const bool owns = owner / WARPS == rank, is_owner = owns && owner % WARPS == warp;
    query_turner<DIM, FORM> queries(p, c);
    uint8_t *row_at = kv.data + (uint64_t)__ldg(table + position / PAGE) * kv.page_bytes +
                      (uint64_t)(head * PAGE + position % PAGE) * (2 * DIM);
    __half *k_to = (__half *)(row_at + kv.k_offset), *v_to = (__half *)(row_at + kv.v_offset);
    /* Which of the block's sums this thread pushes first, and where to. */
    const int first_to = 4 * tid / share;

    wait_for_last();
    uint32_t q[DIM / 16][4];
    new_row<DIM> row;
    turn<DIM, FORM>(q, row, through, queries, p, head, group, owns, is_owner, k_to, v_to, lane, r,
                    c);
    float out[DIM / 8][4], most = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
        out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    for (int stage = 0; piece <= last_piece; piece += stride, stage ^= 1) {
        uint8_t *keys = pieces + stage * STAGE<DIM>, *values = keys + PIECE * ROW<DIM>;
        const uint32_t k_at = pieces_at + stage * STAGE<DIM>, v_at = k_at + PIECE * ROW<DIM>;
        copies_wait<3>(); /* the keys are there: this lane's, then everyone's */
        __syncwarp();
        if (piece == last_piece)
            put_row<DIM, FORM == TURN_HALVES>(keys + (position % PIECE) * ROW<DIM>, row.k, lane);
        __syncwarp();
        float scores[2][2];
        score_piece<DIM, FORM>(scores, q, k_at, piece * PIECE, first, position, p, lane, c);
        __syncwarp(); /* everyone has read the keys: the next ones may come */
        fetch_keys(piece + 2 * stride, stage);
        weigh_piece<DIM>(scores, most, sum, out);
        copies_wait<3>(); /* the values are there */
        __syncwarp();
        if (piece == last_piece)
            put_row<DIM, false>(values + (position % PIECE) * ROW<DIM>, row.v, lane);
        __syncwarp();
        add_values<DIM>(out, scores, v_at, lane);
        __syncwarp();
        fetch_values(piece + 2 * stride, stage);
    }
    copies_wait<0>();
    __syncwarp();

    /* The warps' parts, each in the memory of its own pieces: [head][DIM]. */
    sum = tile_reduce(sum);
    if (c == 0) {
        warp_most[r][warp] = most;
        warp_sums[r][warp] = sum;
    }
    if (r < group) {
        float *part = (float *)pieces + r * DIM + 2 * c;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
            *(float2 *)(part + 8 * n) = make_float2(out[n][0] + out[n][2], out[n][1] + out[n][3]);
    }
    __syncthreads();
    others.add_up(warp_most, warp_sums, page_memory, all, n_blocks, rank, head, group, n_values,
                  share, n_shared, first_to, tid, lane);
}

/* At most 128 registers where kernels overlap, so that a block fits beside one of a product. */
#define ATTEND(dim, name, form)                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * DECODE_ATTEND_WARPS, ATTEND_BLOCKS)          \
        decode_attend_##dim##name(const __grid_constant__ attend_parameters p)                     \
    {                                                                                              \
        attend_token<dim, form>(p);                                                                \
    }
ATTEND(64, , TURN_ANY)
ATTEND(80, , TURN_ANY)
ATTEND(96, , TURN_ANY)
ATTEND(128, , TURN_ANY)
ATTEND(64, _neighbours, TURN_NEIGHBOURS)
ATTEND(96, _neighbours, TURN_NEIGHBOURS)
ATTEND(128, _neighbours, TURN_NEIGHBOURS)
ATTEND(64, _halves, TURN_HALVES)
ATTEND(96, _halves, TURN_HALVES)
ATTEND(128, _halves, TURN_HALVES)
