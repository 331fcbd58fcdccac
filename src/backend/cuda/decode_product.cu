/*
 * One token: matrix products, with what comes before and after them.
 *
 * Measured on an H200: two blocks of one product on a processor cost a quarter of the speed, so
 * shared memory is asked for in a way that keeps them apart (decode_room.h).
 */
#include "backend/cuda/decode_input.cuh"
#include "backend/cuda/tile_grouped.cuh"

/*
 * A block's tiles, and the ring through which they come. Tile t is multiplied by warp t %
 * DECODE_WARPS. The places of the ring are dealt out in the same way, so some warps may have one
 * more than others: the ring fills what memory there is. A warp fills a place again when it has
 * multiplied what was there.
 */
struct tile_ring {
    const uint8_t *first,
        *second;        /* of gate and up: tile t lies behind tile t - 1 of one of them */
    int n_all, n_first; /* tiles of both, of the first */
    int n_places;
    uint32_t barriers, at;
    uint64_t policy;

    /* Both ends lie alike within 128 bytes, at which matrices begin. */
    __device__ __forceinline__ void fill(int place, int t, int bytes, int stage) const
    {
        const uint8_t *from = (t < n_first ? first : second) + (int64_t)t * bytes;
        tile_fetch(at + place * stage + tile_skew((uint32_t)(uintptr_t)from), from, bytes,
                   barriers + 8 * place, policy);
    }

    __device__ __forceinline__ uint32_t skew_of(int t, int bytes) const
    {
        return tile_skew((uint32_t)(uintptr_t)(t < n_first ? first : second) + t * bytes);
    }

    __device__ __forceinline__ void fill_again(int place, int t, int bytes, int stage,
                                               int lane) const;
};

#ifdef HAS_OVERLAP

/* A warp has multiplied what was in a place. */
__device__ __forceinline__ void tile_ring::fill_again(int place, int t, int bytes, int stage,
                                                      int lane) const
{
    if (lane == 0 && t < n_all)
        fill(place, t, bytes, stage);
}

/* As soon as a block begins: each warp's first tile, then the others that come early. */
__device__ __forceinline__ void begin_ring(const tile_ring &ring, const decode_part &part, int warp)
{
    if ((threadIdx.x & 31) != 0)
        return;
#pragma unroll 1
    for (int i = warp; i < ring.n_places; i += DECODE_WARPS) {
        barrier_init(ring.barriers + 8 * i);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (i < ring.n_all && i < part.n_early)
            ring.fill(i, i, part.tile_bytes, part.stage_bytes);
    }
}

/* The other tiles that the ring has room for. */
__device__ __forceinline__ void fill_ring(const tile_ring &ring, const decode_part &part, int warp)
{
    if ((threadIdx.x & 31) != 0)
        return;
#pragma unroll 1
    for (int i = warp + (part.n_early + DECODE_WARPS - 1 - warp) / DECODE_WARPS * DECODE_WARPS;
         i < ring.n_all && i < ring.n_places; i += DECODE_WARPS)
        ring.fill(i, i, part.tile_bytes, part.stage_bytes);
}

#else

__device__ __forceinline__ void tile_ring::fill_again(int place, int t, int bytes, int stage,
                                                      int) const
{
    if (t < n_all)
        fill(place, t, bytes, stage);
    copies_commit();
}

/* No kernel runs in front: the input is asked for first, and waited for first. */
__device__ __forceinline__ void begin_ring(const tile_ring &, const decode_part &, int)
{
}

__device__ __forceinline__ void fill_ring(const tile_ring &ring, const decode_part &part, int warp)
{
#pragma unroll 1
    for (int i = warp; i < ring.n_places; i += DECODE_WARPS)
        ring.fill_again(i, i, part.tile_bytes, part.stage_bytes, 0);
}

#endif

/* 1 / rms of the input, whose squares the blocks in front have added up. */
template <class P>
__device__ __forceinline__ float rms_of(const P &p, const float *squares, int lane)
{
    float sum = 0;
    for (int i = lane; i < p.n_squares; i += 32)
        sum += squares[i];
    return rsqrtf(warp_sum(sum) / (float)p.width + p.eps);
}

/* What a kind of tiles is multiplied with. */
__device__ __forceinline__ gpu_act act_of_kind(int kind)
{
    return kind == TILE_F16 ? GPU_ACT_F16 : kind == TILE_BF16 ? GPU_ACT_BF16 : GPU_ACT_INT;
}

template <bool ANY, class P> __device__ __forceinline__ bool makes_input(const P &p)
{
    if constexpr (ANY)
        return p.made.x != nullptr;
    else
        return false;
}

#ifdef HAS_ROUNDS

enum { ROUNDS = 1, MOST_THREADS = DECODE_THREADS };

/* All warps have multiplied the slots from s0 on, n at most: their rows are added up. */
__device__ __forceinline__ void end_round(float *slots, float *sums, int n, int s0, int n_slots)
{
    __syncthreads();
    for (int i = threadIdx.x; i < min(n, n_slots - s0) * TILE_ROWS; i += DECODE_THREADS) {
        sums[s0 * TILE_ROWS + i] = slot_sum(slots, n, i);
        for (int w = 0; w < DECODE_WARPS; w++)
            slots[w * n * TILE_ROWS + i] = 0;
    }
    __syncthreads();
}

/* Slots whose sums are held for each warp. */
__device__ __forceinline__ int slots_at_once(const decode_part &part, int n_slots)
{
    return min(n_slots, DECODE_ROUND(part.n_tiles));
}

#else

enum { ROUNDS = 0, MOST_THREADS = DECODE_THREADS * 3 / 2 };

__device__ __forceinline__ void end_round(float *, float *, int, int, int)
{
}

__device__ __forceinline__ int slots_at_once(const decode_part &, int n_slots)
{
    return n_slots;
}

#endif

/* Multiply this block's tiles; sums has those of its rows afterwards (row_sum). slots: of each warp.
 * ANY: the input may be there already. */
template <int KIND, bool ANY, class P>
__device__ __forceinline__ void
product_tiles(const P &p, const decode_part &part, const tile_ring &ring, uint8_t *shared, int u0,
              int n_slots, float *slots, float *sums, uint8_t *x_shared, float &rms)
{
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    constexpr int BYTES = tile_info<KIND>::bytes, STAGE = stage_bytes<KIND>();
    const int n_tiles = part.n_tiles, n_all = ring.n_all, n_places = ring.n_places;
    /* How far it is from a tile to the one that takes its place. */
    const int n_own = places_of(n_places, warp), ahead = n_own * DECODE_WARPS;
    const bool is_made = makes_input<ANY>(p);
    if (!is_made) {
        wait_for_last();
        if (p.triggers_late)
            let_next_begin();
    }
    const int n_bytes = vector_bytes(p.x);
    const int plane = p.x.k * act_value_bytes(is_made ? act_of_kind(KIND) : (gpu_act)p.x.act);
    const uint32_t x_at = shared_address(x_shared);
    const float *squares = (const float *)(shared + DECODE_SQUARES_AT),
                *floats = (const float *)p.x.planes;
    float4 pieces[N_PIECES][2];
    if (is_made)
        ;
    else if constexpr (tile_is_own<KIND>())
        pieces_load(pieces, floats, p.x.k, warp, lane);
    else if (p.x.act == GPU_ACT_FLOATS && !tile_is_half<KIND>()) /* other products want them */
        for (int i = 4 * tid; i < p.x.k; i += 4 * DECODE_THREADS)
            act_put(GPU_ACT_INT, __ldcg((const float4 *)(floats + i)), i, x_shared, p.x.k, true,
                    PLANE_PAD);
    else
        for (int i = 16 * tid; i < n_bytes; i += 16 * DECODE_THREADS)
            copy_16(x_at + i + (i >= plane ? PLANE_PAD : 0), p.x.planes + i, true);
    if (!is_made && p.squares && 4 * tid < p.n_squares)
        copy_16(shared_address(squares + 4 * tid), p.squares + 4 * tid, true);
    if (p.mode == DECODE_RESIDUAL && tid < 4 * n_slots) /* of all rows, 4 each */
        copy_16(shared_address(shared + DECODE_BEFORE_AT) + 16 * tid,
                p.residual + TILE_ROWS * u0 + 4 * tid, true);
    copies_commit();
    if (!is_made)
        fill_ring(ring, part, warp);
    if constexpr (tile_is_own<KIND>())
        pieces_to_planes<KIND>(pieces, floats, p.x.k, x_shared, PLANE_PAD, warp, lane);
    input_wait(n_own, is_made);
    __syncthreads();

    act_view x;
    x.high = x_shared;
    x.low = x_shared + plane + PLANE_PAD;
    x.scales = (const float2 *)(x_shared + 2 * plane + PLANE_PAD);
    const uint8_t *places = shared + DECODE_RING_AT;
    float y0 = 0, y1 = 0;
    int place = warp, slot = warp / n_tiles, across = warp - slot * n_tiles;
    uint32_t parity = 0;
    const int n_held = slots_at_once(part, n_slots);
    int t = warp;
    for (int s0 = 0; ROUNDS ? s0 < n_slots : s0 == 0; s0 += ROUNDS ? n_held : 1) {
        const int end = ROUNDS ? min(s0 + n_held, n_slots) * n_tiles : n_all;
        for (; t < end; t += DECODE_WARPS) {
            tile_wait(n_own, ring.barriers + 8 * place, parity);
            tile_frag<KIND> f;
            tile_load<KIND, false>(
                f, places + place * STAGE + (BYTES % 128 ? ring.skew_of(t, BYTES) : 0), lane);
            if constexpr (tile_is_own<KIND>()) {
                tile_multiply_grouped<KIND>(y0, y1, f, x, across, lane);
            } else {
                act_frag<KIND> a;
                act_load<KIND>(a, x, across, lane);
                tile_multiply<KIND>(y0, y1, f, a, lane);
            }
            __syncwarp(); /* everyone has read the place */
            ring.fill_again(place, t + ahead, BYTES, STAGE, lane);
            place += DECODE_WARPS;
            if (place >= n_places) {
                place = warp;
                parity ^= 1;
            }
            int next = slot;
            across += DECODE_WARPS;
            while (across >= n_tiles) {
                across -= n_tiles;
                next++;
            }
            if (next != slot || t + DECODE_WARPS >= n_all) {
                if constexpr (!tile_is_own<KIND>()) {
                    y0 = tile_reduce(y0);
                    y1 = tile_reduce(y1);
                }
                if ((lane & 3) == 0) {
                    float *s = slots + (warp * n_held + slot - s0) * TILE_ROWS + (lane >> 2);
                    s[0] = y0;
                    s[8] = y1;
                }
                y0 = y1 = 0;
                slot = next;
            }
        }
        end_round(slots, sums, n_held, s0, n_slots);
    }
    input_end();
    bool has_rms = p.squares != nullptr;
    if constexpr (ANY)
        has_rms = is_made ? input_is_scaled_later(p.made) : has_rms;
    if (has_rms) /* only now: it is not needed before */
        rms = rms_of(p, squares, lane);
    __syncthreads();
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

/* Behind a row of the product: its last inputs are remembered, and summed up with this one. */
__device__ __forceinline__ float convolved(const decode_product_any &p, int n_rows, int row,
                                           float x)
{
    const decode_conv &c = p.conv;
    float *past = (float *)(c.state + (uint64_t)__ldcg(p.sequence) * c.slot_bytes) + row;
    const float *taps = c.weight + (int64_t)row * c.n_taps;
    float sum = (c.bias ? c.bias[row] : 0.0f) + taps[c.n_taps - 1] * x;
    for (int k = 0; k < c.n_taps - 1; k++) {
        const float v = past[(int64_t)k * n_rows];
        sum += taps[k] * v;
        if (k > 0)
            past[(int64_t)(k - 1) * n_rows] = v;
    }
    past[(int64_t)(c.n_taps - 2) * n_rows] = x;
    return c.is_silu ? sum / (1.0f + expf(-sum)) : sum;
}

/* Row i of the block's gates, which is `row` of the matrix, times that of up. */
template <class P>
__device__ __forceinline__ float gate_row(const P &p, const decode_part &part, const float *sums,
                                          int n_slots, int n_values, int i, int row, float scale,
                                          float rms)
{
    float gate = scale * rms * row_sum(sums, n_slots, i);
    float up = scale * rms * row_sum(sums, n_slots, n_values + i);
    gate += part.bias ? part.bias[row] : 0.0f;
    up += part.pair_bias ? part.pair_bias[row] : 0.0f;
    return glu_of_product(p.glu, gate, up);
}

template <bool ANY, class P> __device__ __forceinline__ void product(const P &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    if (!p.triggers_late)
        let_next_begin();
    const int block = blockIdx.x, tid = threadIdx.x, warp = tid >> 5;
    if (block >= p.n_blocks) { /* it only keeps a place */
        wait_for_last();
        return;
    }
    int n = (p.n_parts > 1 && block >= p.parts[1].first_block) +
            (p.n_parts > 2 && block >= p.parts[2].first_block);
    while (ANY && n >= 2 && n + 1 < p.n_parts && block >= p.parts[n + 1].first_block)
        n++;
    const decode_part &part = p.parts[n];
    const int b = block - part.first_block;
    const int u0 = b * part.each + min(b, part.more), n_units = part.each + (b < part.more);
    const int n_slots = part.pair ? 2 * n_units : n_units;
    tile_ring ring;
    ring.n_first = n_units * part.n_tiles;
    ring.n_all = n_slots * part.n_tiles;
    ring.n_places = part.n_places;
    ring.barriers = shared_address(shared);
    ring.at = ring.barriers + DECODE_RING_AT;
    ring.first = part.tiles + (int64_t)u0 * part.n_tiles * part.tile_bytes;
    ring.second = part.pair + (int64_t)(u0 - n_units) * part.n_tiles * part.tile_bytes;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(ring.policy));
    begin_ring(ring, part, warp);
    float *parts = (float *)(shared + 8 * DECODE_MAX_PLACES); /* behind the barriers */
    uint8_t *x_shared = shared + DECODE_RING_AT + p.ring_bytes;
    decode_vector held = p.x;
    if (makes_input<ANY>(p))
        held.act = act_of_kind(part.kind);
    float *slots = (float *)(x_shared + ((vector_bytes(held) + PLANE_PAD + 127) & ~127));
    float scale = p.scale;
    if constexpr (ANY)
        scale = p.scales[n];
    float *norms = (float *)(shared + DECODE_NORMS_AT), rms = 1.0f;
    const float *before = (const float *)(shared + DECODE_BEFORE_AT);
    const int n_held = slots_at_once(part, n_slots);
    float *sums = ROUNDS ? slots + DECODE_WARPS * n_held * TILE_ROWS : slots;
    for (int i = tid; i < DECODE_WARPS * n_held * 4; i += DECODE_THREADS)
        ((float4 *)slots)[i] = make_float4(0, 0, 0, 0);
    /* Unless results are only stored, each of the first threads finishes one row. */
    const int n_values = n_units * TILE_ROWS, row = u0 * TILE_ROWS + tid;
    const bool finishes = p.mode != DECODE_STORE && tid < n_values && row < part.n_rows;
    const bool adds = finishes && p.mode == DECODE_RESIDUAL;
    if (adds && (!ANY || p.next_norm)) /* nobody waits for it here */
        copy_4(shared_address(norms + tid), p.next_norm + row);
    touch_parameters(p);
    if constexpr (ANY)
        if (p.made.x) {
            wait_for_last();
            if (p.triggers_late)
                let_next_begin();
            fill_ring(ring, part, warp);
            make_input(p.made, (gpu_act)held.act, p.x.k, x_shared,
                       (float *)(shared + DECODE_SQUARES_AT));
        }
    switch (part.kind) {
#define X(id, name, n_bytes, n_cols)                                                               \
    case TILE_##id:                                                                                \
        if constexpr (TILE_##id != TILE_F32 && !(ANY && tile_is_own<TILE_##id>())) {               \
            product_tiles<TILE_##id, ANY>(p, part, ring, shared, u0, n_slots, slots, sums,         \
                                          x_shared, rms);                                          \
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
            float v = scale * rms * row_sum(sums, n_slots, i);
            v += part.bias ? part.bias[to] : 0.0f;
            if (p.softcap > 0)
                v = p.softcap * tanhf(v / p.softcap);
            if constexpr (ANY)
                if (p.conv.weight && n == p.conv_part)
                    v = convolved(p, part.n_rows, to, v);
            part.out[to] = v;
            if (v > most) {
                most = v;
                at = to;
            }
        }
        if (p.best)
            keep_best(most, at, p.best + blockIdx.x,
                      sums + (ROUNDS ? 1 : DECODE_WARPS) * n_slots * TILE_ROWS);
        return;
    }
    float v = 0, squares = 0;
    if (adds) {
        if constexpr (ANY)
            if (p.share)
                rms *= 1.0f / (1.0f + expf(-__ldcg(p.share)));
        v = scale * rms * row_sum(sums, n_slots, tid) + before[tid];
        v += part.bias ? part.bias[row] : 0.0f;
        p.residual[row] = v;
        squares = v * v;
        v *= !ANY || p.next_norm ? norms[tid] : 1.0f;
    } else if (finishes) {
        v = gate_row(p, part, sums, n_slots, n_values, tid, row, scale, rms);
    }
    if ((tid & ~31) < n_values && (!ANY || p.next.planes))
        vector_put(p.next, v, row, tid < n_values);
    /* Rounds leave room for more gates than there are threads. */
    for (int i = tid + DECODE_THREADS; ROUNDS && p.mode == DECODE_GLU && (i & ~31) < n_values;
         i += DECODE_THREADS) {
        const int more = u0 * TILE_ROWS + i;
        v = i < n_values && more < part.n_rows
                ? gate_row(p, part, sums, n_slots, n_values, i, more, scale, rms)
                : 0.0f;
        if (!ANY || p.next.planes)
            vector_put(p.next, v, more, i < n_values);
    }
    if (p.mode == DECODE_RESIDUAL && (!ANY || p.next_squares)) {
        /* Most often all rows are in the first warp. */
        squares = n_values <= 32 ? warp_sum(squares) : block_total(squares, parts);
        if (tid == 0)
            p.next_squares[blockIdx.x] = squares;
    }
}

/* Bounds for more threads than there are, where there is shared memory for both: at most 80
 * registers, so that attention's blocks fit beside this one's and load keys while it runs. */
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1)
    decode_product_kernel(const __grid_constant__ decode_product p)
{
    product<false>(p);
}

#ifndef HAS_ROUNDS
/* For two blocks on a processor, of products that follow each other. */
extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 2)
    decode_product_shared(const __grid_constant__ decode_product p)
{
    product<false>(p);
}
#endif

/* Any input, results that nobody waits for in another form, and more parts. Not lace's own types. */
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1)
    decode_product_any_kernel(const __grid_constant__ decode_product_any p)
{
    product<true>(p);
}

#ifndef HAS_ROUNDS
extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 2)
    decode_product_any_shared(const __grid_constant__ decode_product_any p)
{
    product<true>(p);
}
#endif
