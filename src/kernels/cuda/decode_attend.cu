/*
 * One token: the heads are turned, the new key and value stored, and the context attended to.
 */
#include <cooperative_groups.h>

#include "kernels/cuda/decode_common.cuh"

#ifdef HAS_OVERLAP

template <bool TURNS>
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], uint32_t address)
{
    if (TURNS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(address)
                     : "memory");
}

__device__ __forceinline__ uint32_t pack_halves(float a, float b)
{
    __half2 h = __floats2half2_rn(a, b);
    return *(uint32_t *)&h;
}

/* What is left of two floats when their halves are taken away. */
__device__ __forceinline__ uint32_t pack_rest(float a, float b, uint32_t high)
{
    float2 h = half2_to_float2(high);
    return pack_halves(a - h.x, b - h.y);
}

/*
 * One cluster for each head of k; its blocks share the context, each warp takes pieces of 16
 * positions and has the next piece on its way while it works on one. The heads of q that belong to it are the rows of the mma: rows 0..7 their
 * high halves, rows 8..15 the rest, so scores have the precision of floats; the same for the
 * probabilities. Partial results are pushed to the block that adds them up.
 */
template <int DIM> __device__ __forceinline__ void attend_token(const decode_attention &parameters)
{
    namespace cg = cooperative_groups;
    constexpr int PAGE = 32, PIECE = 16, ROW = 2 * DIM + 16, CHUNKS = DIM / 8, WARPS = DECODE_ATTEND_WARPS;
    constexpr int THREADS = 32 * WARPS, MOST = DECODE_MAX_GROUP;
    extern __shared__ __align__(128) uint8_t page_memory[];
    __shared__ __align__(16) float raw[MOST + 2][DIM]; /* q of the heads, then k and v */
    __shared__ __align__(16) __half q_high[MOST][DIM + 8], q_low[MOST][DIM + 8];
    __shared__ __align__(16) __half new_rows[2][DIM];
    __shared__ float warp_most[WARPS][MOST], warp_sums[WARPS][MOST];
    __shared__ float all_most[DECODE_MAX_CLUSTER][MOST], all_sums[DECODE_MAX_CLUSTER][MOST];
    __shared__ __align__(16) float all_parts[MOST * DIM + 16 * DECODE_MAX_CLUSTER];
    __shared__ __align__(16) decode_attention p;
    cg::cluster_group cluster = cg::this_cluster();
    const int n_blocks = cluster.num_blocks(), rank = cluster.block_rank();
    const int head = blockIdx.x / n_blocks, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int r = lane >> 2, c = lane & 3;
    let_next_begin();
    copy_parameters(&p, parameters, THREADS);
    __syncthreads();

    const gpu_cache &kv = p.cache;
    const int group = p.n_heads / kv.n_heads;
    const int position = __ldcg(&p.state->position), sequence = __ldcg(&p.state->sequence);
    const int first = p.window && position + 1 > p.window ? position + 1 - p.window : 0;
    const int first_piece = first / PIECE, last_piece = position / PIECE;
    const int *table = kv.tables + (int64_t)sequence * kv.pages_per_sequence;
    const int stride = n_blocks * WARPS;
    /* Two stages, each of keys and values. */
    constexpr int STAGE = 2 * PIECE * ROW;
    uint8_t *pieces = page_memory + warp * 2 * STAGE;
    const uint32_t pieces_at = shared_address(pieces);

    /* A piece of keys or values on its way; rows that are not written yet become zeros. */
    auto fetch = [&](int piece, uint32_t to, uint64_t offset) {
        if (piece <= last_piece) {
            int page = __ldg(table + piece / 2);
            const uint8_t *from = kv.data + (uint64_t)page * kv.page_bytes + offset +
                                  (uint64_t)(head * PAGE + piece % 2 * PIECE) * (2 * DIM);
            int n_rows = min(PIECE, position - piece * PIECE);
            for (int i = lane; i < PIECE * CHUNKS; i += 32) {
                int row = i / CHUNKS, chunk = i - row * CHUNKS;
                copy_16(to + row * ROW + 16 * chunk, from + row * (2 * DIM) + 16 * chunk,
                        row < n_rows);
            }
        }
        copies_commit();
    };
    auto fetch_both = [&](int piece, int stage) {
        fetch(piece, pieces_at + stage * STAGE, kv.k_offset);
        fetch(piece, pieces_at + stage * STAGE + PIECE * ROW, kv.v_offset);
    };
    int piece = first_piece + rank * WARPS + warp;
    fetch_both(piece, 0);
    fetch_both(piece + stride, 1);
    for (int i = group * (DIM + 8) + tid; i < MOST * (DIM + 8); i += THREADS)
        (&q_high[0][0])[i] = (&q_low[0][0])[i] = __float2half_rn(0.0f);
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

    /* A thread turns pairs of values. Whatever it needs for that is there before it waits: which they
     * are, their angles (the first kernel of a token made them, long ago), where they go. */
    constexpr int PAIRS = DIM / 2, MANY = ((MOST + 2) * PAIRS + THREADS - 1) / THREADS;
    const int owner = (last_piece - first_piece) % stride;
    const bool owns = owner / WARPS == rank; /* the new key and value */
    const int n_vectors = group + (owns ? 2 : 0), n_turned = p.angles ? p.n_dims / 2 : 0;
    const bool norms = p.q_norm || p.k_norm;
    const float *sources[MANY];
    float2 pairs[MANY], turns[MANY];
    int d0[MANY], d1[MANY];
    auto source_of = [&](int n) {
        return n < group    ? p.q + (head * group + n) * DIM
               : n == group ? p.k + head * DIM
                            : p.v + head * DIM;
    };
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int i = tid + m * THREADS, n = i / PAIRS, pair = i - n * PAIRS;
        bool is_turned = pair < n_turned;
        d0[m] = is_turned && p.is_neox ? pair : 2 * pair;
        d1[m] = is_turned && p.is_neox ? pair + n_turned : 2 * pair + 1;
        sources[m] = source_of(n);
        turns[m] = is_turned && n <= group ? __ldcg((const float2 *)p.angles + pair)
                                           : make_float2(1, 0);
    }
    uint8_t *new_row = kv.data + (uint64_t)table[position / PAGE] * kv.page_bytes +
                       (uint64_t)(head * PAGE + position % PAGE) * (2 * DIM);

    wait_for_last();
    if (norms) { /* heads are normed first, a warp for each */
        for (int n = warp; n < n_vectors; n += WARPS) {
            const float *from = source_of(n);
            const float *norm = n < group ? p.q_norm : n == group ? p.k_norm : nullptr;
            float x[(DIM + 31) / 32], sum = 0;
#pragma unroll
            for (int i = 0; i < (DIM + 31) / 32; i++) {
                x[i] = 32 * i + lane < DIM ? __ldcg(from + 32 * i + lane) : 0.0f;
                sum += x[i] * x[i];
            }
            float scale = norm ? rsqrtf(warp_sum(sum) / (float)DIM + p.eps) : 1.0f;
#pragma unroll
            for (int i = 0; i < (DIM + 31) / 32; i++)
                if (32 * i + lane < DIM)
                    raw[n][32 * i + lane] = norm ? x[i] * scale * norm[32 * i + lane] : x[i];
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int n = (tid + m * THREADS) / PAIRS;
        pairs[m] = make_float2(0, 0);
        if (n < n_vectors)
            pairs[m] = norms ? make_float2(raw[n][d0[m]], raw[n][d1[m]])
                             : make_float2(__ldcg(sources[m] + d0[m]), __ldcg(sources[m] + d1[m]));
    }
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int n = (tid + m * THREADS) / PAIRS;
        float2 v = pairs[m], turn = turns[m];
        if (n <= group)
            v = make_float2(v.x * turn.x - v.y * turn.y, v.x * turn.y + v.y * turn.x);
        if (n < group) {
            v.x *= p.scale;
            v.y *= p.scale;
            __half h0 = __float2half_rn(v.x), h1 = __float2half_rn(v.y);
            q_high[n][d0[m]] = h0;
            q_high[n][d1[m]] = h1;
            q_low[n][d0[m]] = __float2half_rn(v.x - __half2float(h0));
            q_low[n][d1[m]] = __float2half_rn(v.y - __half2float(h1));
        } else if (n < n_vectors) { /* also into the cache */
            int is_value = n - group;
            __half *to = (__half *)(new_row + (is_value ? kv.v_offset : kv.k_offset));
            new_rows[is_value][d0[m]] = to[d0[m]] = __float2half_rn(v.x);
            new_rows[is_value][d1[m]] = to[d1[m]] = __float2half_rn(v.y);
        }
    }
    __syncthreads();

    uint32_t q[DIM / 16][4];
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        q[k][0] = *(const uint32_t *)&q_high[r][16 * k + 2 * c];
        q[k][1] = *(const uint32_t *)&q_low[r][16 * k + 2 * c];
        q[k][2] = *(const uint32_t *)&q_high[r][16 * k + 2 * c + 8];
        q[k][3] = *(const uint32_t *)&q_low[r][16 * k + 2 * c + 8];
    }
    float out[DIM / 8][4], most = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
        out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    for (int stage = 0; piece <= last_piece; piece += stride, stage ^= 1) {
        uint8_t *keys = pieces + stage * STAGE, *values = keys + PIECE * ROW;
        const uint32_t k_at = pieces_at + stage * STAGE, v_at = k_at + PIECE * ROW;
        copies_wait<3>(); /* the keys are there: this lane's, then everyone's */
        __syncwarp();
        if (piece == last_piece)
            for (int i = lane; i < CHUNKS; i += 32)
                *(uint4 *)(keys + (position % PIECE) * ROW + 16 * i) =
                    *(const uint4 *)&new_rows[0][8 * i];
        __syncwarp();
        float scores[2][2]; /* [8 positions][2 of them] of head r */
#pragma unroll
        for (int n = 0; n < 2; n++) {
            float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}; /* two chains, each half as long */
#pragma unroll
            for (int k = 0; k < DIM / 32; k++) {
                uint32_t b[4];
                load_matrices<false>(b, k_at + (8 * n + (lane & 7)) * ROW + 64 * k +
                                            16 * (lane >> 3));
                mma_f16(s[0], q[2 * k][0], q[2 * k][1], q[2 * k][2], q[2 * k][3], b[0], b[1]);
                mma_f16(s[1], q[2 * k + 1][0], q[2 * k + 1][1], q[2 * k + 1][2], q[2 * k + 1][3],
                        b[2], b[3]);
            }
            if (DIM % 32) { /* the last 16: two matrices, given twice */
                constexpr int k = DIM / 16 - 1;
                uint32_t b[4];
                load_matrices<false>(b, k_at + (8 * n + (lane & 7)) * ROW + 32 * k +
                                            16 * (lane >> 3 & 1));
                mma_f16(s[0], q[k][0], q[k][1], q[k][2], q[k][3], b[0], b[1]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int at = piece * PIECE + 8 * n + 2 * c + h;
                float v = s[0][h] + s[0][2 + h] + (s[1][h] + s[1][2 + h]);
                if (p.softcap > 0)
                    v = p.softcap * tanhf(v / p.softcap);
                scores[n][h] = at >= first && at <= position ? v : -INFINITY;
            }
        }
        float now = fmaxf(most, fmaxf(fmaxf(scores[0][0], scores[0][1]),
                                      fmaxf(scores[1][0], scores[1][1])));
        now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
        now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
        float fade = most == -INFINITY ? 0.0f : __expf(most - now), part = 0;
        most = now;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                scores[n][h] = now == -INFINITY ? 0.0f : __expf(scores[n][h] - now);
                part += scores[n][h];
            }
        part += __shfl_xor_sync(~0u, part, 1);
        part += __shfl_xor_sync(~0u, part, 2);
        sum = sum * fade + part;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[n][i] *= fade;
        copies_wait<2>(); /* the values are there */
        __syncwarp();
        if (piece == last_piece)
            for (int i = lane; i < CHUNKS; i += 32)
                *(uint4 *)(values + (position % PIECE) * ROW + 16 * i) =
                    *(const uint4 *)&new_rows[1][8 * i];
        __syncwarp();
        uint32_t a[4];
        a[0] = pack_halves(scores[0][0], scores[0][1]);
        a[1] = pack_rest(scores[0][0], scores[0][1], a[0]);
        a[2] = pack_halves(scores[1][0], scores[1][1]);
        a[3] = pack_rest(scores[1][0], scores[1][1], a[2]);
#pragma unroll
        for (int n = 0; n < DIM / 16; n++) {
            uint32_t b[4]; /* positions 0..7 and 8..15 of 8 dimensions, then of the next 8 */
            load_matrices<true>(b, v_at + (lane & 15) * ROW + 32 * n + 16 * (lane >> 4));
            mma_f16(out[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
            mma_f16(out[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
        __syncwarp();
        fetch_both(piece + 2 * stride, stage);
    }
    copies_wait<0>();
    __syncthreads();

    /* The warps' parts: in the memory of the pages, [warp][head][DIM]. */
    float *parts = (float *)page_memory;
    if (c == 0) {
        warp_most[warp][r] = most;
        warp_sums[warp][r] = sum;
    }
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
        if (r < group)
            *(float2 *)&parts[(warp * MOST + r) * DIM + 8 * n + 2 * c] =
                make_float2(out[n][0] + out[n][2], out[n][1] + out[n][3]);
    __syncthreads();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); /* everyone runs: write there */
    const int n_values = group * DIM;
    const int share = (n_values / 16 + n_blocks - 1) / n_blocks * 16; /* of each block */
    for (int i = tid; i < n_values; i += THREADS) {
        int h = i / DIM, d = i - h * DIM;
        float m = -INFINITY, l = 0, v = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            m = fmaxf(m, warp_most[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float e = warp_most[w][h] == -INFINITY ? 0.0f : __expf(warp_most[w][h] - m);
            l += e * warp_sums[w][h];
            v += e * parts[(w * MOST + h) * DIM + d];
        }
        int to = i / share;
        cluster.map_shared_rank(all_parts, to)[rank * share + i - to * share] = v;
        if (d < n_blocks) {
            cluster.map_shared_rank(&all_most[0][0], d)[rank * MOST + h] = m;
            cluster.map_shared_rank(&all_sums[0][0], d)[rank * MOST + h] = l;
        }
    }
    cluster.sync();
    for (int i0 = tid & ~31; i0 < share; i0 += THREADS) {
        int k = i0 + lane, i = rank * share + k;
        bool is_in = k < share && i < n_values;
        float v = 0;
        if (is_in) {
            int h = i / DIM;
            float m = p.sinks ? p.sinks[head * group + h] : -INFINITY, l, sink = m;
            for (int b = 0; b < n_blocks; b++)
                m = fmaxf(m, all_most[b][h]);
            l = p.sinks ? __expf(sink - m) : 0.0f;
            for (int b = 0; b < n_blocks; b++) {
                float e = all_most[b][h] == -INFINITY ? 0.0f : __expf(all_most[b][h] - m);
                l += e * all_sums[b][h];
                v += e * all_parts[b * share + k];
            }
            v = __fdividef(v, l);
        }
        vector_put(p.next, v, head * n_values + i, is_in);
    }
}

/* At most 128 registers, so that a block fits beside one of a product. */
#define ATTEND(dim)                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * DECODE_ATTEND_WARPS, 4)                      \
        decode_attend_##dim(const __grid_constant__ decode_attention p)                            \
    {                                                                                              \
        attend_token<dim>(p);                                                                      \
    }
ATTEND(64)
ATTEND(80)
ATTEND(96)
ATTEND(128)

#endif
