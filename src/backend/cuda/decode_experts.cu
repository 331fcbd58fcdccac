/*
 * One token: the experts that its router chooses.
 *
 * Three kernels: logits of the router; gate and up with the activation, of all chosen experts at
 * once; down, where their answers are added up. Rows of all experts are dealt out to the blocks, in
 * slots of 16. Each block makes the choice by itself from the logits: that takes less time than to
 * be told by another kernel. Gate and up lets down begin only when the logits are there, so down
 * chooses too before it waits, and has its weights on their way while gate and up work.
 */
#include "backend/cuda/decode_input.cuh"

/* ---- The router ------------------------------------------------------------------------------ */

/* A block for each expert. Weights are there, times those of the norm, before the input is. */
extern "C" __global__ void __launch_bounds__(DECODE_ROUTER_THREADS)
    decode_router_kernel(const __grid_constant__ decode_router p)
{
    constexpr int THREADS = DECODE_ROUTER_THREADS, STEP = 4 * THREADS, HELD = 4;
    __shared__ float2 parts[THREADS / 32];
    const int tid = threadIdx.x, expert = blockIdx.x;
    let_next_begin();
    const float *row = p.weights + (int64_t)expert * p.width;
    auto weights_at = [&](int i) {
        float4 w = __ldg((const float4 *)(row + i)), n = __ldg((const float4 *)(p.norm + i));
        return make_float4(w.x * n.x, w.y * n.y, w.z * n.z, w.w * n.w);
    };
    auto multiply = [&](float4 w, int i) {
        float4 v = __ldcg((const float4 *)(p.residual + i));
        return w.x * v.x + w.y * v.y + (w.z * v.z + w.w * v.w);
    };
    float4 held[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        int i = 4 * tid + j * STEP;
        held[j] = i < p.width ? weights_at(i) : make_float4(0, 0, 0, 0);
    }
    const float bias = p.bias ? p.bias[expert] : 0.0f;
    wait_for_last();
    float2 sum = make_float2(0, tid < p.n_squares ? __ldcg(p.squares + tid) : 0.0f);
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        int i = 4 * tid + j * STEP;
        sum.x += i < p.width ? multiply(held[j], i) : 0.0f;
    }
    for (int i = 4 * tid + HELD * STEP; i < p.width; i += STEP)
        sum.x += multiply(weights_at(i), i);
    sum.x = warp_sum(sum.x);
    sum.y = warp_sum(sum.y);
    if ((tid & 31) == 0)
        parts[tid >> 5] = sum;
    __syncthreads();
    if (tid == 0) {
        float dot = 0, squares = 0;
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            dot += parts[w].x;
            squares += parts[w].y;
        }
        p.logits[expert] = p.scale * rsqrtf(squares / (float)p.width + p.eps) * dot + bias;
    }
}

/* ---- The choice ------------------------------------------------------------------------------ */

struct choices {
    int32_t expert[DECODE_MAX_USED];
    float share[DECODE_MAX_USED];
};

/* Where the tiles of a slot begin, and its rows of the biases. */
struct slot_place {
    const uint8_t *tiles;
    int32_t bias_row;
};

/* Shared memory of a block while it chooses: it is used for something else before and after. */
struct chooser {
    float *logits;    /* [n_experts] */
    float2 *sums;     /* [warps] the largest of 32 logits, and the sum of their exp without it */
    uint32_t *keys;   /* [32 * warps] what is compared, in the order of the floats; 0: none */
    uint32_t *best;   /* [n_used * warps] the largest keys of each warp, largest first */
    int32_t *experts; /* [n_used * warps] whose they are */
};

__device__ __forceinline__ chooser chooser_in(uint8_t *shared)
{
    static_assert(DECODE_MAX_EXPERTS <= DECODE_THREADS, "a thread for each expert");
    static_assert(8 * DECODE_WARPS <= DECODE_SQUARES_AT - 8 * DECODE_MAX_PLACES, "sums");
    static_assert(4 * DECODE_THREADS + 8 * DECODE_WARPS * DECODE_MAX_USED <= 16 * DECODE_MAX_SLOTS,
                  "keys are where the table will be");
    chooser c;
    c.logits = (float *)(shared + DECODE_BEFORE_AT);
    c.sums = (float2 *)(shared + 8 * DECODE_MAX_PLACES); /* behind the barriers */
    c.keys = (uint32_t *)(shared + DECODE_TABLE_AT);
    c.best = c.keys + DECODE_THREADS;
    c.experts = (int32_t *)(c.best + DECODE_WARPS * DECODE_MAX_USED);
    return c;
}

/* How many of n keys, a multiple of 4, are larger than the one at a place, or equal and in front of
 * it. The key is not 0. */
__device__ __forceinline__ int rank_of(const uint32_t *keys, int n, uint32_t key, int place)
{
    int rank = 0;
    for (int j = 0; j < n; j += 4) {
        const uint4 k = *(const uint4 *)(keys + j);
        rank += (k.x > key - (j < place)) + (k.y > key - (j + 1 < place)) +
                (k.z > key - (j + 2 < place)) + (k.w > key - (j + 3 < place));
    }
    return rank;
}

/* The largest logit and the sum of exp of all without it, from those of the warps. */
__device__ __forceinline__ float2 add_up(const float2 *sums, int n)
{
    float2 all = make_float2(-INFINITY, 0);
    for (int w = 0; w < n; w++)
        all.x = fmaxf(all.x, sums[w].x);
    for (int w = 0; w < n; w++)
        all.y += sums[w].y * __expf(sums[w].x - all.x);
    return all;
}

__device__ __forceinline__ float score_of(const decode_experts &p, float x, float2 sum)
{
    return p.is_sigmoid ? 1 / (1 + expf(-x)) : expf(x - sum.x) / sum.y;
}

/* The share of the shared expert, behind those of the chosen ones. */
__device__ __forceinline__ void add_shared(const decode_experts &p, choices *out)
{
    if (p.n_all > p.n_used)
        out->share[p.n_used] = p.shared_by ? 1 / (1 + expf(-__ldcg(p.shared_by))) : 1.0f;
}

/* The shares of the chosen experts, by the first warp. */
template <bool ANY>
__device__ __forceinline__ void weigh(const decode_experts &p, const chooser &c, choices *out,
                                      int n_warps, int lane)
{
    const int expert = lane < p.n_used ? out->expert[lane] : 0;
    const float2 sum = add_up(c.sums, n_warps);
    float share = lane < p.n_used ? score_of(p, c.logits[expert], sum) : 0.0f;
    const float chosen = warp_sum(share);
    if (ANY) {
        const float by = p.norms ? fmaxf(chosen + p.norm_more, p.norm_least) : 1;
        share *= p.factor / by * (p.expert_scales ? __ldg(p.expert_scales + expert) : 1.0f);
    } else if (p.norms) {
        share /= chosen;
    }
    if (lane < p.n_used)
        out->share[lane] = share;
    if (ANY && lane == 0)
        add_shared(p, out);
}

/*
 * The best experts, the lower number on a tie, and their shares, by a rule of ops/route_rule.h without
 * groups. A thread for each expert counts how many of its warp are larger; those that may be among the
 * best are counted once more among all of them. For all threads of a block.
 */
template <bool ANY>
__device__ __forceinline__ void choose_experts(const decode_experts &p, const chooser &c,
                                               choices *out)
{
    const int e = threadIdx.x, warp = e >> 5, lane = e & 31;
    const int n_warps = (p.n_experts + 31) / 32, n_best = n_warps * p.n_used;
    const bool is_expert = e < p.n_experts;
    float x = -INFINITY;
    if (warp < n_warps) {
        x = is_expert ? __ldcg(p.logits + e) + 0.0f : x;
        const float most = warp_max(x), sum = warp_sum(is_expert ? __expf(x - most) : 0.0f);
        c.logits[e] = x;
        if (lane == 0)
            c.sums[warp] = make_float2(most, sum);
        if (lane < p.n_used)
            c.best[warp * p.n_used + lane] = 0;
    } else if (warp == DECODE_WARPS - 1 && lane < 4 &&
               n_best + lane < DECODE_WARPS * DECODE_MAX_USED) {
        c.best[n_best + lane] = 0; /* up to a multiple of 4 */
    }
    float wanted = x;
    if (ANY && p.choice_bias) {
        if (!p.is_sigmoid)
            __syncthreads(); /* sums are there */
        if (is_expert) {
            const float2 sum = p.is_sigmoid ? make_float2(0, 1) : add_up(c.sums, n_warps);
            wanted = score_of(p, x, sum) + __ldg(p.choice_bias + e) + 0.0f;
        }
    }
    if (warp < n_warps) {
        const uint32_t bits = __float_as_uint(wanted);
        const uint32_t key = is_expert ? max(bits ^ (bits >> 31 ? ~0u : 0x80000000u), 1u) : 0;
        c.keys[e] = key;
        __syncwarp();
        const int rank = rank_of(c.keys + 32 * warp, 32, key, lane);
        if (is_expert && rank < p.n_used) {
            c.best[warp * p.n_used + rank] = key;
            c.experts[warp * p.n_used + rank] = e;
        }
    }
    __syncthreads();
    if (e < n_best && c.best[e] > 0) {
        const int rank = rank_of(c.best, (n_best + 3) & ~3, c.best[e], e);
        if (rank < p.n_used)
            out->expert[rank] = c.experts[e];
    }
    __syncthreads();
    if (warp == 0)
        weigh<ANY>(p, c, out, n_warps, lane);
}

/* The same where another kernel has chosen. */
__device__ __forceinline__ void take_choices(const decode_experts &p, choices *out)
{
    if ((int)threadIdx.x < p.n_used) {
        const int2 c = __ldcg((const int2 *)p.choices + threadIdx.x);
        out->expert[threadIdx.x] = c.x;
        out->share[threadIdx.x] = __int_as_float(c.y);
    }
    if (threadIdx.x == 0)
        add_shared(p, out);
    __syncthreads();
}

/* ---- Products -------------------------------------------------------------------------------- */

/* The tiles of a warp, one after the other: which slot they are of, and their
 * places in the ring. */
struct tile_cursor {
    int t, place, slot, across;

    __device__ __forceinline__ tile_cursor(int warp, int n_tiles)
        : t(warp), place(warp), slot(warp / n_tiles), across(warp % n_tiles)
    {
    }

    /* Whether the ring begins anew. */
    __device__ __forceinline__ bool advance(int warp, int n_tiles, int n_places)
    {
        t += DECODE_WARPS;
        place += DECODE_WARPS;
        across += DECODE_WARPS;
        while (across >= n_tiles) {
            across -= n_tiles;
            slot++;
        }
        if (place < n_places)
            return false;
        place = warp;
        return true;
    }
};

/* What a block's threads need to find their way. */
struct expert_block {
    uint8_t *ring, *x;
    const slot_place *places;
    const choices *chosen;
    float *sums; /* [warps][n_sums][16] */
    uint32_t barriers;
    int u0, n_units, n_slots, n_sums, x_stride;
};

__device__ __forceinline__ void fill(const expert_block &b, const tile_cursor &c, int tile_bytes,
                                     int stage)
{
    const uint8_t *from = b.places[c.slot].tiles + c.across * tile_bytes;
    uint32_t to = shared_address(b.ring) + c.place * stage + tile_skew((uint32_t)(uintptr_t)from);
    uint64_t policy; /* made anew each time, since registers are scarce */
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    tile_fetch(to, from, tile_bytes, b.barriers + 8 * c.place, policy);
}

#ifdef HAS_OVERLAP

enum { OVERLAPS = 1 };

__device__ __forceinline__ void init_barriers(const expert_block &b, int n_places, int warp,
                                              int lane)
{
    if (lane == 0) {
        for (int i = warp; i < n_places; i += DECODE_WARPS)
            barrier_init(b.barriers + 8 * i);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
}

/* The next of n_all tiles into its place, if there is one. */
__device__ __forceinline__ void fill_next(const expert_block &b, tile_cursor &ahead, int n_all,
                                          int n_tiles, int n_places, int tile_bytes, int stage,
                                          int warp, int lane)
{
    if (ahead.t < n_all) {
        if (lane == 0)
            fill(b, ahead, tile_bytes, stage);
        ahead.advance(warp, n_tiles, n_places);
    }
}

/* The first tiles, into all places. */
__device__ __forceinline__ void fill_all(const decode_experts &p, const expert_block &b,
                                         tile_cursor &ahead, int warp, int lane)
{
    for (int t = warp; t < p.n_places && ahead.t < b.n_slots * p.n_tiles; t += DECODE_WARPS) {
        if (lane == 0)
            fill(b, ahead, p.tile_bytes, p.stage_bytes);
        ahead.advance(warp, p.n_tiles, p.n_places);
    }
}

#else

enum { OVERLAPS = 0 };

__device__ __forceinline__ void init_barriers(const expert_block &, int, int, int)
{
}

__device__ __forceinline__ void fill_next(const expert_block &b, tile_cursor &ahead, int n_all,
                                          int n_tiles, int n_places, int tile_bytes, int stage,
                                          int warp, int)
{
    if (ahead.t < n_all) {
        fill(b, ahead, tile_bytes, stage);
        ahead.advance(warp, n_tiles, n_places);
    }
    copies_commit();
}

__device__ __forceinline__ void fill_all(const decode_experts &p, const expert_block &b,
                                         tile_cursor &ahead, int warp, int lane)
{
    for (int t = warp; t < p.n_places; t += DECODE_WARPS)
        fill_next(b, ahead, b.n_slots * p.n_tiles, p.n_tiles, p.n_places, p.tile_bytes,
                  p.stage_bytes, warp, lane);
}

#endif

/*
 * Multiply this block's tiles. Sums of a warp are kept for each slot, or with down for each 16
 * rows: products of an expert are weighted by its share before they are added to those of others.
 */
template <int KIND, bool IS_DOWN>
__device__ __forceinline__ void multiply_tiles(const decode_experts &p, const expert_block &b,
                                               tile_cursor ahead)
{
    constexpr int BYTES = tile_info<KIND>::bytes, STAGE = stage_bytes<KIND>();
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_tiles = p.n_tiles;
    const int n_all = b.n_slots * n_tiles, n_places = p.n_places;
    const int plane = p.x.k * act_value_bytes((gpu_act)p.x.act);
    float y0 = 0, y1 = 0, z0 = 0, z1 = 0;
    uint32_t parity = 0;
    tile_cursor c(warp, n_tiles);
    int unit = IS_DOWN ? c.slot / p.n_all : c.slot, expert = IS_DOWN ? c.slot - unit * p.n_all : 0;
    while (c.t < n_all) {
        const uint8_t *from = b.ring + c.place * STAGE;
        if (BYTES % 128)
            from += tile_skew((uint32_t)(uintptr_t)b.places[c.slot].tiles + c.across * BYTES);
        const uint8_t *x_at = b.x + expert * b.x_stride;
        act_view x;
        x.high = x_at;
        x.low = x_at + plane + PLANE_PAD;
        x.scales = (const float2 *)(x_at + 2 * plane + PLANE_PAD);
        tile_wait(places_of(n_places, warp), b.barriers + 8 * c.place, parity);
        tile_frag<KIND> f;
        tile_load<KIND, false>(f, from, lane);
        act_frag<KIND> a;
        act_load<KIND>(a, x, c.across, lane);
        tile_multiply<KIND>(y0, y1, f, a, lane);
        __syncwarp(); /* everyone has read the place */
        fill_next(b, ahead, n_all, n_tiles, n_places, BYTES, STAGE, warp, lane);
        const int slot = c.slot;
        parity ^= c.advance(warp, n_tiles, n_places);
        if (c.slot == slot && c.t < n_all)
            continue;
        int next = c.slot;
        if (IS_DOWN) {
            const float share = b.chosen->share[expert];
            z0 += share * y0;
            z1 += share * y1;
            y0 = y1 = 0;
            next = c.slot / p.n_all;
            expert = c.slot - next * p.n_all;
        } else {
            z0 = y0;
            z1 = y1;
            y0 = y1 = 0;
        }
        if (next != unit || c.t >= n_all) {
            z0 = tile_reduce(z0);
            z1 = tile_reduce(z1);
            if ((lane & 3) == 0) {
                float *s = b.sums + (warp * b.n_sums + unit) * TILE_ROWS + (lane >> 2);
                s[0] = z0;
                s[8] = z1;
            }
            z0 = z1 = 0;
            unit = next;
        }
    }
}

/* Into the residual, and on as the input of what follows. */
template <bool ANY>
__device__ __forceinline__ void finish_down(const decode_experts &p, const expert_block &b,
                                            const choices *chosen, const float *biases,
                                            uint8_t *shared)
{
    const int tid = threadIdx.x, n_values = b.n_units * TILE_ROWS, row = b.u0 * TILE_ROWS + tid;
    const float *norms = (const float *)(shared + DECODE_NORMS_AT);
    const float *before = (const float *)(shared + DECODE_BEFORE_AT);
    float *parts = (float *)(shared + 8 * DECODE_MAX_PLACES); /* behind the barriers */
    float v = 0, square = 0;
    if (tid < n_values) {
        float sum = slot_sum(b.sums, b.n_sums, tid);
        for (int k = 0; p.bias && k < p.n_all; k++)
            sum += chosen->share[k] * biases[((tid >> 4) * p.n_all + k) * TILE_ROWS + (tid & 15)];
        v = p.scale * sum + (ANY && p.makes ? 0.0f : before[tid]);
        p.residual[row] = v;
        square = v * v;
        v *= ANY ? 1.0f : norms[tid];
    }
    if (ANY) /* nobody waits for another form */
        return;
    if ((tid & ~31) < n_values)
        vector_put(p.next, v, row, tid < n_values);
    square = n_values <= 32 ? warp_sum(square) : block_total(square, parts);
    if (tid == 0)
        p.next_squares[blockIdx.x] = square;
}

/* Into the vectors of the experts. */
__device__ __forceinline__ void finish_glu(const decode_experts &p, const expert_block &b,
                                           const float *biases, float rms)
{
    const int lane = threadIdx.x & 31, each = p.n_rows / TILE_ROWS;
    const int n_values = b.n_units * TILE_ROWS;
    for (int i0 = threadIdx.x & ~31; i0 < n_values; i0 += DECODE_THREADS) {
        const int i = i0 + lane, u = b.u0 + (i >> 4), k = min(u / each, p.n_all - 1);
        const bool is_in = i < n_values;
        decode_vector next = p.next;
        next.planes += (int64_t)k * p.next_stride;
        float v = 0;
        if (is_in) {
            float gate = p.scale * rms * slot_sum(b.sums, b.n_sums, i);
            float up = p.scale * rms * slot_sum(b.sums, b.n_sums, n_values + i);
            if (p.bias) {
                gate += biases[i];
                up += biases[n_values + i];
            }
            v = glu_of_product(p.glu, gate, up);
        }
        vector_put(next, v, (u - k * each) * TILE_ROWS + (i & 15), is_in);
    }
}

/* Of all slots, on their way. */
template <bool IS_DOWN>
__device__ __forceinline__ void copy_biases(const decode_experts &p, const expert_block &b,
                                            float *biases, int tid)
{
    for (int i = tid; p.bias && i < 4 * b.n_slots; i += DECODE_THREADS) {
        const float *bias = !IS_DOWN && i >= 4 * b.n_units ? p.pair_bias : p.bias;
        copy_16(shared_address(biases) + 16 * i, bias + b.places[i / 4].bias_row + 4 * (i % 4),
                true);
    }
}

template <bool IS_DOWN, bool ANY> __device__ __forceinline__ void experts(const decode_experts &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    if (IS_DOWN)
        let_next_begin();
    touch_parameters(p);
    if ((int)blockIdx.x >= p.n_blocks) { /* it only keeps a place */
        wait_for_last();
        return;
    }
    const int each = p.n_rows / TILE_ROWS, n_units = IS_DOWN ? each : each * p.n_all;
    const int u0 = (int)((int64_t)n_units * blockIdx.x / p.n_blocks);
    const int u1 = (int)((int64_t)n_units * (blockIdx.x + 1) / p.n_blocks);
    const int n_bytes = vector_bytes(p.x), n_vectors = IS_DOWN ? p.n_all : 1;
    const int plane = p.x.k * act_value_bytes((gpu_act)p.x.act);
    slot_place *places = (slot_place *)(shared + DECODE_TABLE_AT);
    choices *chosen = (choices *)(shared + DECODE_CHOICES_AT);
    expert_block b;
    b.u0 = u0;
    b.n_units = u1 - u0;
    b.n_slots = b.n_units * (IS_DOWN ? p.n_all : 2);
    b.n_sums = IS_DOWN ? b.n_units : b.n_slots;
    b.x_stride = (n_bytes + PLANE_PAD + 127) & ~127;
    b.ring = shared + DECODE_EXPERTS_RING_AT;
    b.x = b.ring + p.n_places * p.stage_bytes;
    b.sums = (float *)(b.x + n_vectors * b.x_stride);
    float *biases = b.sums + DECODE_WARPS * b.n_sums * TILE_ROWS; /* [n_slots][16] */
    b.places = places;
    b.chosen = chosen;
    b.barriers = shared_address(shared);
    float *squares = (float *)(shared + DECODE_SQUARES_AT);
    float *norms = (float *)(shared + DECODE_NORMS_AT);
    float *before = (float *)(shared + DECODE_BEFORE_AT);
    const int n_values = b.n_units * TILE_ROWS;

    /* What the kernel in front has made. */
    auto copy_input = [&]() {
        const int chunks = n_bytes / 16;
        for (int i = tid; i < n_vectors * chunks; i += DECODE_THREADS) {
            int v = i / chunks, at = 16 * (i - v * chunks);
            copy_16(shared_address(b.x) + v * b.x_stride + at + (at >= plane ? PLANE_PAD : 0),
                    p.x.planes + (int64_t)v * p.x_stride + at, true);
        }
        if (p.squares && 4 * tid < p.n_squares)
            copy_16(shared_address(squares + 4 * tid), p.squares + 4 * tid, true);
        if (IS_DOWN && 4 * tid < n_values)
            copy_16(shared_address(before + 4 * tid), p.residual + u0 * TILE_ROWS + 4 * tid, true);
    };

    init_barriers(b, p.n_places, warp, lane);
    for (int i = tid; i < DECODE_WARPS * b.n_sums * 4; i += DECODE_THREADS)
        ((float4 *)b.sums)[i] = make_float4(0, 0, 0, 0);
    if (IS_DOWN && !ANY && tid < n_values)
        norms[tid] = p.next_norm[u0 * TILE_ROWS + tid];
    if (!IS_DOWN) {
        wait_for_last();
        let_next_begin(); /* now the logits are there for it, too */
        if (!ANY)
            copy_input();
    }
    if (!ANY || !p.choices)
        choose_experts<ANY>(p, chooser_in(shared), chosen);
    else
        take_choices(p, chosen);
    /* The first warp may still be at the shares. */
    for (int s = DECODE_THREADS - 1 - tid; s < b.n_slots; s += DECODE_THREADS) {
        bool is_pair = !IS_DOWN && s >= b.n_units;
        int u = IS_DOWN ? u0 + s / p.n_all : u0 + s - (is_pair ? b.n_units : 0);
        int k = IS_DOWN ? s % p.n_all : u / each, group = IS_DOWN ? u : u - k * each;
        int expert = k < p.n_used ? chosen->expert[k] : 0;
        const uint8_t *tiles = is_pair ? p.pair + (uint64_t)expert * p.pair_bytes
                                       : p.tiles + (uint64_t)expert * p.expert_bytes;
        if (ANY && k == p.n_used)
            tiles = is_pair ? p.shared_pair : p.shared;
        places[s].tiles = tiles + (uint64_t)group * p.n_tiles * p.tile_bytes;
        places[s].bias_row = expert * p.n_rows + group * TILE_ROWS;
    }
    __syncthreads();

    if (!OVERLAPS) { /* the input is asked for first, and waited for first */
        if (IS_DOWN)
            copy_input();
        copy_biases<IS_DOWN>(p, b, biases, tid);
        copies_commit();
    }
    tile_cursor ahead(warp, p.n_tiles);
    fill_all(p, b, ahead, warp, lane);
    if (OVERLAPS)
        copy_biases<IS_DOWN>(p, b, biases, tid);
    if (IS_DOWN) {
        wait_for_last();
        if (OVERLAPS)
            copy_input();
    } else if (ANY) {
        make_input(p.made, (gpu_act)p.x.act, p.x.k, b.x, squares);
    }
    if (OVERLAPS)
        copies_commit();
    input_wait(places_of(p.n_places, warp), false);
    __syncthreads();

    switch (p.kind) {
#define X(id, name, n_bytes, n_cols)                                                               \
    case TILE_##id:                                                                                \
        if constexpr (TILE_##id != TILE_F32 && TILE_##id != TILE_S3 && TILE_##id != TILE_S4 &&     \
                      TILE_##id != TILE_S8) {                                                      \
            multiply_tiles<TILE_##id, IS_DOWN>(p, b, ahead);                                       \
        }                                                                                          \
        break;
        TILE_LIST(X)
#undef X
    }
    input_end();
    float rms = 1.0f;
    if (ANY ? !IS_DOWN && input_is_scaled_later(p.made) : p.squares != nullptr) {
        float sum = 0;
        for (int i = lane; i < p.n_squares; i += 32)
            sum += squares[i];
        rms = rsqrtf(warp_sum(sum) / (float)p.width + p.eps);
    }
    __syncthreads();

    if constexpr (IS_DOWN)
        finish_down<ANY>(p, b, chosen, biases, shared);
    else
        finish_glu(p, b, biases, rms);
}

#ifdef HAS_ROUNDS
enum { EXPERT_BLOCKS = 1 };
#else
enum { EXPERT_BLOCKS = 2 }; /* on a processor, of products that follow each other */
#endif

extern "C" __global__ void __launch_bounds__(DECODE_THREADS, EXPERT_BLOCKS)
    decode_experts_glu(const __grid_constant__ decode_experts p)
{
    experts<false, false>(p);
}

extern "C" __global__ void __launch_bounds__(DECODE_THREADS, EXPERT_BLOCKS)
    decode_experts_down(const __grid_constant__ decode_experts p)
{
    experts<true, false>(p);
}

/* Behind routers of any kind, with any input. */
extern "C" __global__ void __launch_bounds__(DECODE_THREADS, EXPERT_BLOCKS)
    decode_experts_glu_any(const __grid_constant__ decode_experts p)
{
    experts<false, true>(p);
}

extern "C" __global__ void __launch_bounds__(DECODE_THREADS, EXPERT_BLOCKS)
    decode_experts_down_any(const __grid_constant__ decode_experts p)
{
    experts<true, true>(p);
}
