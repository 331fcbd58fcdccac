/*
 * One token: fused kernels that overlap (programmatic dependent launch).
 *
 * Each kernel loads what does not depend on the one in front (weights, old keys and values) before
 * it waits for it. Who makes a vector also norms it, up to the factor 1 / rms, and turns it into the
 * planes that tiles are multiplied with; the factor is applied to the consumer's result, which is
 * linear in it. So a product begins with one small copy.
 *
 * Measured on an H200 before this was written: two blocks of one product on a processor cost a
 * quarter of the speed, so a product asks for more than half of the shared memory.
 */
#include <cooperative_groups.h>

#include "kernels/cuda/decode_params.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tile_dot.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HAS_OVERLAP 1
#endif

#ifdef HAS_OVERLAP

/* ---- Order ----------------------------------------------------------------------------------- */

__device__ __forceinline__ void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void wait_for_last()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(uint32_t b)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t b, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\n"
                 "bra AGAIN;\n"
                 "DONE:\n"
                 "}" ::"r"(b),
                 "r"(parity)
                 : "memory");
}

/* Bytes from global to shared memory by the copy engine. Both ends lie alike within 128 bytes. */
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t n, uint32_t b,
                                          uint64_t policy)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n), "r"(b), "l"(policy)
                 : "memory");
}

/* ---- Vectors --------------------------------------------------------------------------------- */

/* 16 neighbouring lanes hold a group, one value each; i is the value's place. Lanes of a half that
 * is not `active` write nothing. */
__device__ __forceinline__ void vector_put(const decode_vector &to, float v, int i, bool active)
{
    if (to.act == GPU_ACT_ROTATED) {
        if (active)
            ((float *)to.planes)[i] = v;
        return;
    }
    float most = fabsf(v);
#pragma unroll
    for (int o = 8; o; o >>= 1)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    const float tiny = 1e-30f;
    bool is_some = most > tiny;
    float2 *scales = (float2 *)(to.planes + 2 * to.k * act_value_bytes((gpu_act)to.act));
    if (to.act == GPU_ACT_INT) {
        const float full = 127 * 256 + 127;
        float d = is_some ? most / full : 0.0f;
        int q = __float2int_rn(v * (is_some ? full / most : 0.0f)), sum = q;
#pragma unroll
        for (int o = 8; o; o >>= 1)
            sum += __shfl_xor_sync(~0u, sum, o);
        int high = (q + 128) >> 8;
        if (active) {
            to.planes[i] = (uint8_t)high;
            to.planes[to.k + i] = (uint8_t)(q - 256 * high);
            if ((i & 15) == 0)
                scales[i >> 4] = make_float2(d, d * (float)sum);
        }
        return;
    }
    float u = v * (is_some ? 1.0f / most : 0.0f);
    uint16_t high, low;
    if (to.act == GPU_ACT_F16) {
        __half h = __float2half_rn(u);
        high = __half_as_ushort(h);
        low = __half_as_ushort(__float2half_rn(u - __half2float(h)));
    } else {
        __nv_bfloat16 h = __float2bfloat16_rn(u);
        high = __bfloat16_as_ushort(h);
        low = __bfloat16_as_ushort(__float2bfloat16_rn(u - __bfloat162float(h)));
    }
    if (active) {
        ((uint16_t *)to.planes)[i] = high;
        ((uint16_t *)to.planes)[to.k + i] = low;
        if ((i & 15) == 0)
            scales[i >> 4] = make_float2(is_some ? most : 0.0f, 0.0f);
    }
}

__device__ __forceinline__ void copy_16(uint32_t to, const void *from, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- Products -------------------------------------------------------------------------------- */

/* Tiles are as long as lines of 128 bytes, or begin anywhere in one. */
template <int KIND> __host__ __device__ constexpr int stage_bytes()
{
    return tile_info<KIND>::bytes % 128 ? (tile_info<KIND>::bytes + 96 + 127) / 128 * 128
                                        : tile_info<KIND>::bytes;
}

/* The second plane is moved by half the banks, so that both can be read at once. */
enum { PLANE_PAD = 64, MAX_SQUARES = 256 /* blocks of a product */ };

/* Of the planes in shared memory. */
__device__ __forceinline__ int vector_bytes(const decode_vector &v)
{
    return 2 * v.k * act_value_bytes((gpu_act)v.act) + v.k / GPU_GROUP * 8;
}

/*
 * Floats from the producer to rotated planes in shared memory, a warp for each 128. Several at a
 * time: their loads are on their way together, and a rotation is a chain in which each step waits.
 */
__device__ __forceinline__ void rotate_vector(const decode_vector &v, uint8_t *to)
{
    constexpr int MANY = 4, APART = 128 * DECODE_WARPS;
    const int lane = threadIdx.x & 31;
    const float *from = (const float *)v.planes + 4 * lane;
    for (int i0 = 128 * (threadIdx.x >> 5); i0 < v.k; i0 += MANY * APART) {
        float4 x[MANY];
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            int i = i0 + n * APART;
            x[n] = i < v.k ? __ldcg((const float4 *)(from + i)) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int n = 0; n < MANY; n++)
            x[n] = rotate_values(x[n], lane);
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            int i = i0 + n * APART;
            act_put(GPU_ACT_INT, x[n], min(i, v.k - 128) + 4 * lane, to, v.k, i < v.k, PLANE_PAD);
        }
    }
}

/* Multiply this block's tiles; slots has the sums of each warp afterwards. */
template <int KIND>
__device__ __forceinline__ void product_tiles(const decode_product &p, const decode_part &part,
                                              uint8_t *shared, int u0, int n_slots, float *slots,
                                              uint8_t *x_shared, int row, float &rms, float &before)
{
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, n_stages = p.n_stages;
    constexpr int BYTES = tile_info<KIND>::bytes, STAGE = stage_bytes<KIND>();
    const int n_all = n_slots * part.n_tiles;
    const uint32_t barriers = shared_address(shared) + 8 * DECODE_MAX_STAGES * warp;
    uint8_t *ring = shared + 1024 + warp * n_stages * STAGE;
    const uint32_t ring_at = shared_address(ring);
    uint64_t policy = 0;
    const int n_tiles = part.n_tiles, first_slot = warp / n_tiles;
    /* A tile's number in its matrix; matrices begin at lines, so it says where in one it begins. */
    auto number_of = [&](int slot, int across) {
        return (u0 + (part.pair ? slot >> 1 : slot)) * n_tiles + across;
    };
    auto skew_of = [&](int number) { return BYTES % 128 ? (uint32_t)(number * BYTES) & 127 : 0u; };
    auto step_on = [&](int &slot, int &across) { /* to this warp's next tile */
        across += DECODE_WARPS;
        while (across >= n_tiles) {
            across -= n_tiles;
            slot++;
        }
    };
    auto fill = [&](int stage, int slot, int across) {
        int number = number_of(slot, across);
        const uint8_t *base = part.pair && (slot & 1) ? part.pair : part.tiles;
        copy_bulk(ring_at + stage * STAGE + skew_of(number), base + (uint64_t)number * BYTES, BYTES,
                  barriers + 8 * stage, policy);
    };
    int fill_slot = first_slot, fill_across = warp - first_slot * n_tiles;
    if (lane == 0) {
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        for (int s = 0; s < n_stages; s++)
            barrier_init(barriers + 8 * s);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    for (int s = 0; s < n_stages; s++) {
        if (lane == 0 && warp + s * DECODE_WARPS < n_all)
            fill(s, fill_slot, fill_across);
        step_on(fill_slot, fill_across);
    }
    for (int i = tid; i < DECODE_WARPS * n_slots * 4; i += DECODE_THREADS)
        ((float4 *)slots)[i] = make_float4(0, 0, 0, 0);

    wait_for_last();
    if (p.triggers_late)
        let_next_begin();
    const int n_bytes = vector_bytes(p.x), plane = p.x.k * act_value_bytes((gpu_act)p.x.act);
    const uint32_t x_at = shared_address(x_shared);
    if (p.x.act == GPU_ACT_ROTATED)
        rotate_vector(p.x, x_shared);
    for (int i = 16 * tid; i < n_bytes && p.x.act != GPU_ACT_ROTATED; i += 16 * DECODE_THREADS)
        copy_16(x_at + i + (i >= plane ? PLANE_PAD : 0), p.x.planes + i, true);
    copies_commit();
    /* All of these are on their way together; a load behind another costs as much as the first. */
    float parts[MAX_SQUARES / 32], sum = 0;
#pragma unroll
    for (int i = 0; i < MAX_SQUARES / 32; i++)
        parts[i] = p.squares && 32 * i + lane < p.n_squares ? __ldcg(p.squares + 32 * i + lane) : 0;
    if (row >= 0)
        before = __ldcg(p.residual + row);
#pragma unroll
    for (int i = 0; i < MAX_SQUARES / 32; i++)
        sum += parts[i];
    rms = p.squares ? rsqrtf(warp_sum(sum) / (float)p.width + p.eps) : 1.0f;
    copies_wait<0>();
    __syncthreads();

    act_view x;
    x.high = x_shared;
    x.low = x_shared + plane + PLANE_PAD;
    x.scales = (const float2 *)(x_shared + 2 * plane + PLANE_PAD);
    float y0 = 0, y1 = 0;
    int stage = 0, slot = first_slot, across = warp - slot * n_tiles;
    uint32_t parity = 0;
    for (int t = warp; t < n_all; t += DECODE_WARPS) {
        barrier_wait(barriers + 8 * stage, parity);
        tile_frag<KIND> f;
        tile_load<KIND, false>(f, ring + stage * STAGE + skew_of(number_of(slot, across)), lane);
        tile_multiply<KIND>(y0, y1, f, x, across, lane);
        __syncwarp(); /* everyone has read the stage */
        if (lane == 0 && t + n_stages * DECODE_WARPS < n_all)
            fill(stage, fill_slot, fill_across);
        step_on(fill_slot, fill_across);
        if (++stage == n_stages) {
            stage = 0;
            parity ^= 1;
        }
        int next = slot;
        step_on(next, across);
        if (next != slot || t + DECODE_WARPS >= n_all) {
            y0 = tile_reduce(y0);
            y1 = tile_reduce(y1);
            if ((lane & 3) == 0) {
                float *s = slots + (warp * n_slots + slot) * TILE_ROWS + (lane >> 2);
                s[0] = y0;
                s[8] = y1;
            }
            y0 = y1 = 0;
            slot = next;
        }
    }
    __syncthreads();
}

__device__ __forceinline__ float slot_sum(const float *slots, int n_slots, int i)
{
    float sum = 0;
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++)
        sum += slots[w * n_slots * TILE_ROWS + i];
    return sum;
}

/* Sum over a block in a fixed order; thread 0 has it. */
__device__ __forceinline__ float block_total(float v, float *parts)
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0)
        parts[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; threadIdx.x == 0 && w < DECODE_WARPS; w++)
        v += parts[w];
    return v;
}

__device__ __forceinline__ bool is_better(float a, int i, float b, int j)
{
    return a > b || (a == b && i < j);
}

__device__ __forceinline__ void keep_best(float value, int row, decode_best *out, float *parts)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        float v = __shfl_xor_sync(~0u, value, o);
        int r = __shfl_xor_sync(~0u, row, o);
        if (is_better(v, r, value, row)) {
            value = v;
            row = r;
        }
    }
    if ((threadIdx.x & 31) == 0) {
        parts[2 * (threadIdx.x >> 5)] = value;
        parts[2 * (threadIdx.x >> 5) + 1] = __int_as_float(row);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < DECODE_WARPS; w++)
            if (is_better(parts[2 * w], __float_as_int(parts[2 * w + 1]), value, row)) {
                value = parts[2 * w];
                row = __float_as_int(parts[2 * w + 1]);
            }
        *out = {value, row};
    }
}

/* Bounds for more threads than there are: at most 80 registers, so that attention's blocks fit beside
 * this one's and load keys while it runs. */
extern "C" __global__ void __launch_bounds__(DECODE_THREADS * 3 / 2, 1)
    decode_product_kernel(const __grid_constant__ decode_product p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    if (!p.triggers_late)
        let_next_begin();
    int n = 0;
    while (n + 1 < p.n_parts && (int)blockIdx.x >= p.parts[n + 1].first_block)
        n++;
    const decode_part &part = p.parts[n];
    const int b = blockIdx.x - part.first_block, per_unit = part.pair ? 2 : 1;
    const int n_units = (part.n_rows + TILE_ROWS - 1) / TILE_ROWS;
    const int u0 = (int)((int64_t)n_units * b / part.n_blocks);
    const int u1 = (int)((int64_t)n_units * (b + 1) / part.n_blocks);
    const int n_slots = (u1 - u0) * per_unit;
    float *parts = (float *)(shared + 896); /* barriers end before */
    uint8_t *x_shared = shared;             /* set below: behind the ring of this kind */
    float *slots = nullptr, rms = 1.0f, before = 0;
    /* Unless results are only stored, each of the first threads finishes one row. */
    const int tid = threadIdx.x, n_values = (u1 - u0) * TILE_ROWS, row = u0 * TILE_ROWS + tid;
    const bool finishes = p.mode != DECODE_STORE && tid < n_values && row < part.n_rows;
    const bool adds = finishes && p.mode == DECODE_RESIDUAL;
    const float norm = adds ? p.next_norm[row] : 0.0f;
    const float bias = finishes && part.bias ? part.bias[row] : 0.0f;
    const float pair_bias = finishes && part.pair_bias ? part.pair_bias[row] : 0.0f;
    switch (part.kind) {
#define X(id, name, n_bytes, n_cols)                                                               \
    case TILE_##id:                                                                                \
        if constexpr (TILE_##id != TILE_F32) {                                                     \
            x_shared = shared + 1024 + DECODE_WARPS * p.n_stages * stage_bytes<TILE_##id>();       \
            slots = (float *)(x_shared + ((vector_bytes(p.x) + PLANE_PAD + 127) & ~127));          \
            product_tiles<TILE_##id>(p, part, shared, u0, n_slots, slots, x_shared,                \
                                     adds ? row : -1, rms, before);                                \
        }                                                                                          \
        break;
        TILE_LIST(X)
#undef X
    }

    if (p.mode == DECODE_STORE) {
        float most = -INFINITY;
        int at = 0;
        for (int i = tid; i < n_slots * TILE_ROWS; i += DECODE_THREADS) {
            int to = u0 * TILE_ROWS + i;
            if (to >= part.n_rows)
                continue;
            float v = p.scale * rms * slot_sum(slots, n_slots, i);
            v += part.bias ? part.bias[to] : 0.0f;
            if (p.softcap > 0)
                v = p.softcap * tanhf(v / p.softcap);
            part.out[to] = v;
            if (v > most) {
                most = v;
                at = to;
            }
        }
        if (p.best)
            keep_best(most, at, p.best + blockIdx.x, slots + DECODE_WARPS * n_slots * TILE_ROWS);
        return;
    }
    float v = 0, squares = 0;
    if (adds) {
        v = p.scale * rms * slot_sum(slots, n_slots, tid) + bias + before;
        p.residual[row] = v;
        squares = v * v;
        v *= norm;
    } else if (finishes) {
        int slot = 2 * (tid / TILE_ROWS) * TILE_ROWS + tid % TILE_ROWS;
        float gate = p.scale * rms * slot_sum(slots, n_slots, slot) + bias;
        float up = p.scale * rms * slot_sum(slots, n_slots, slot + TILE_ROWS) + pair_bias;
        v = glu(p.glu, gate, up);
    }
    if ((tid & ~31) < n_values)
        vector_put(p.next, v, row, tid < n_values);
    if (p.mode == DECODE_RESIDUAL) {
        squares = block_total(squares, parts);
        if (tid == 0)
            p.next_squares[blockIdx.x] = squares;
    }
}

/* ---- Attention ------------------------------------------------------------------------------- */

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
template <int DIM> __device__ __forceinline__ void attend_token(const decode_attention &p)
{
    namespace cg = cooperative_groups;
    constexpr int PAGE = 32, PIECE = 16, ROW = 2 * DIM + 16, CHUNKS = DIM / 8, WARPS = DECODE_ATTEND_WARPS;
    constexpr int THREADS = 32 * WARPS, MOST = DECODE_MAX_GROUP;
    extern __shared__ __align__(128) uint8_t page_memory[];
    __shared__ __align__(16) float raw[MOST + 2][DIM]; /* q of the heads, then k and v */
    __shared__ __align__(16) float turns[DIM];         /* cos, sin */
    __shared__ __align__(16) __half q_high[MOST][DIM + 8], q_low[MOST][DIM + 8];
    __shared__ __align__(16) __half new_rows[2][DIM];
    __shared__ float warp_most[WARPS][MOST], warp_sums[WARPS][MOST];
    __shared__ float all_most[DECODE_MAX_CLUSTER][MOST], all_sums[DECODE_MAX_CLUSTER][MOST];
    __shared__ __align__(16) float all_parts[MOST * DIM + 16 * DECODE_MAX_CLUSTER];
    cg::cluster_group cluster = cg::this_cluster();
    const int n_blocks = cluster.num_blocks(), rank = cluster.block_rank();
    const int head = blockIdx.x / n_blocks, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int r = lane >> 2, c = lane & 3;
    let_next_begin();

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
    /* The first kernel of a token made the angles, long ago. */
    for (int i = tid; p.angles && i < p.n_dims; i += THREADS)
        turns[i] = __ldcg(p.angles + i);
    for (int i = group * (DIM + 8) + tid; i < MOST * (DIM + 8); i += THREADS)
        (&q_high[0][0])[i] = (&q_low[0][0])[i] = __float2half_rn(0.0f);
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    __syncthreads(); /* for `turns`: nobody waits for it behind the wait */

    wait_for_last();
    const int owner = (last_piece - first_piece) % stride;
    const bool owns = owner / WARPS == rank;
    const int n_vectors = group + (owns ? 2 : 0);
    const bool norms = p.q_norm || p.k_norm;
    if (norms) { /* heads are normed first, a warp for each */
        for (int n = warp; n < n_vectors; n += WARPS) {
            const float *from = n < group    ? p.q + (head * group + n) * DIM
                                : n == group ? p.k + head * DIM
                                             : p.v + head * DIM;
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
    /* A thread turns pairs: all of its loads first. The new key and value go into the cache. */
    constexpr int PAIRS = DIM / 2, MANY = ((MOST + 2) * PAIRS + THREADS - 1) / THREADS;
    float2 pairs[MANY];
    const int n_turned = p.angles ? p.n_dims / 2 : 0;
    auto place = [&](int pair, int &d0, int &d1) {
        bool turns_it = pair < n_turned;
        d0 = turns_it && p.is_neox ? pair : 2 * pair;
        d1 = turns_it && p.is_neox ? pair + n_turned : 2 * pair + 1;
    };
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int i = tid + m * THREADS, n = i / PAIRS, d0, d1;
        place(i - n * PAIRS, d0, d1);
        pairs[m] = make_float2(0, 0);
        if (n < n_vectors) {
            const float *from = n < group    ? p.q + (head * group + n) * DIM
                                : n == group ? p.k + head * DIM
                                             : p.v + head * DIM;
            pairs[m] = norms ? make_float2(raw[n][d0], raw[n][d1])
                             : make_float2(__ldcg(from + d0), __ldcg(from + d1));
        }
    }
#pragma unroll
    for (int m = 0; m < MANY; m++) {
        int i = tid + m * THREADS, n = i / PAIRS, pair = i - n * PAIRS, d0, d1;
        place(pair, d0, d1);
        float2 v = pairs[m];
        if (pair < n_turned && n <= group) {
            float cosine = turns[2 * pair], sine = turns[2 * pair + 1];
            v = make_float2(v.x * cosine - v.y * sine, v.x * sine + v.y * cosine);
        }
        if (n < group) {
            v.x *= p.scale;
            v.y *= p.scale;
            __half h0 = __float2half_rn(v.x), h1 = __float2half_rn(v.y);
            q_high[n][d0] = h0;
            q_high[n][d1] = h1;
            q_low[n][d0] = __float2half_rn(v.x - __half2float(h0));
            q_low[n][d1] = __float2half_rn(v.y - __half2float(h1));
        } else if (n < n_vectors) {
            int is_value = n - group;
            __half *to = (__half *)(kv.data + (uint64_t)table[position / PAGE] * kv.page_bytes +
                                    (is_value ? kv.v_offset : kv.k_offset) +
                                    (uint64_t)(head * PAGE + position % PAGE) * (2 * DIM));
            new_rows[is_value][d0] = to[d0] = __float2half_rn(v.x);
            new_rows[is_value][d1] = to[d1] = __float2half_rn(v.y);
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
            v /= l;
        }
        vector_put(p.next, v, head * n_values + i, is_in);
    }
}

#define ATTEND(dim)                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * DECODE_ATTEND_WARPS, 1)                      \
        decode_attend_##dim(const __grid_constant__ decode_attention p)                            \
    {                                                                                              \
        attend_token<dim>(p);                                                                      \
    }
ATTEND(64)
ATTEND(80)
ATTEND(96)
ATTEND(128)

/* ---- The beginning of a token ---------------------------------------------------------------- */

enum { BEGIN_THREADS = 1024 };

/* Choose the token if asked to, look it up, and prepare what the first product reads. */
extern "C" __global__ void __launch_bounds__(BEGIN_THREADS)
    decode_begin_kernel(const __grid_constant__ decode_begin p)
{
    __shared__ int token, position;
    __shared__ float parts[BEGIN_THREADS / 32];
    const int tid = threadIdx.x, lane = tid & 31;
    wait_for_last();
    let_next_begin();
    if (tid < 32) {
        if (p.best) {
            float value = -INFINITY, v[MAX_SQUARES / 32];
            int row = 0x7fffffff, at[MAX_SQUARES / 32];
#pragma unroll
            for (int i = 0; i < MAX_SQUARES / 32; i++) {
                bool is_in = 32 * i + lane < p.n_best;
                v[i] = is_in ? __ldcg(&p.best[32 * i + lane].value) : -INFINITY;
                at[i] = is_in ? __ldcg(&p.best[32 * i + lane].row) : 0x7fffffff;
            }
#pragma unroll
            for (int i = 0; i < MAX_SQUARES / 32; i++)
                if (is_better(v[i], at[i], value, row)) {
                    value = v[i];
                    row = at[i];
                }
#pragma unroll
            for (int o = 16; o; o >>= 1) {
                float other = __shfl_xor_sync(~0u, value, o);
                int other_row = __shfl_xor_sync(~0u, row, o);
                if (is_better(other, other_row, value, row)) {
                    value = other;
                    row = other_row;
                }
            }
            if (lane == 0) {
                if (row == 0x7fffffff)
                    row = 0; /* all of them NaN: the host's check of logits speaks of it */
                token = row;
                position = p.state->position + 1;
                int n = p.state->n_chosen;
                p.state->token = row;
                p.state->position = position;
                p.state->n_chosen = n + 1;
                /* The host reads nothing but this word. */
                if (p.ring)
                    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p.ring +
                                                                             n % DECODE_RING),
                                 "r"(row + 1)
                                 : "memory");
            }
        } else if (lane == 0) {
            token = p.state->token;
            position = p.state->position;
        }
    }
    __syncthreads();
    for (int n = 0; n < 2; n++)
        for (int i = tid; p.angles[n] && i < p.n_dims[n] / 2; i += BEGIN_THREADS) {
            float angle = __fmul_rn((float)position, p.frequencies[n][i]), s, c;
            sincosf(angle, &s, &c);
            p.angles[n][2 * i] = c * p.magnitudes[n];
            p.angles[n][2 * i + 1] = s * p.magnitudes[n];
        }
    const uint8_t *row = p.table + (uint64_t)token * p.row_bytes;
    float squares = 0;
    for (int i0 = 4 * (tid & ~31); i0 < p.width; i0 += 4 * BEGIN_THREADS) {
        int i = i0 + 4 * lane; /* the width is a multiple of 16 */
        float v[4] = {0, 0, 0, 0}, w[4] = {0, 0, 0, 0};
        bool is_in = i < p.width;
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (is_in) {
                v[n] = p.scale * block_value(p.type, row, i + n);
                w[n] = p.next_norm[i + n];
            }
        if (is_in)
            *(float4 *)(p.residual + i) = make_float4(v[0], v[1], v[2], v[3]);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            squares += v[n] * v[n];
            v[n] *= w[n];
        }
        act_put((gpu_act)p.next.act, make_float4(v[0], v[1], v[2], v[3]), i, p.next.planes, p.next.k,
                is_in);
    }
    squares = warp_sum(squares);
    if (lane == 0)
        parts[tid >> 5] = squares;
    __syncthreads();
    if (tid == 0) {
        squares = 0;
        for (int w = 0; w < BEGIN_THREADS / 32; w++)
            squares += parts[w];
        p.next_squares[0] = squares;
    }
}

#endif
