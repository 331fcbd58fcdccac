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

#ifdef HAS_OVERLAP

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

/* One warp: the best experts, the lower number on a tie, and their shares of the softmax. */
__device__ __forceinline__ void choose_experts(const decode_experts &p, choices *out, int lane)
{
    constexpr int MANY = DECODE_MAX_EXPERTS / 32;
    const int none = 0x7fffffff;
    float x[MANY], most = -INFINITY, sum = 0, chosen = 0;
    uint32_t taken = 0;
#pragma unroll
    for (int i = 0; i < MANY; i++)
        x[i] = 32 * i + lane < p.n_experts ? __ldcg(p.logits + 32 * i + lane) + 0.0f : -INFINITY;
#pragma unroll
    for (int i = 0; i < MANY; i++)
        most = fmaxf(most, x[i]);
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < MANY; i++)
        if (32 * i < p.n_experts)
            sum += __expf(x[i] - most);
    sum = warp_sum(sum);
    for (int k = 0; k < p.n_used; k++) {
        float value = -INFINITY;
        int best = none;
#pragma unroll
        for (int i = 0; i < MANY; i++) {
            int e = 32 * i + lane;
            if (32 * i < p.n_experts && e < p.n_experts && !(taken >> i & 1) &&
                (best == none || x[i] > value)) {
                value = x[i];
                best = e;
            }
        }
        /* Numbers in the order of the floats. */
        uint32_t bits = __float_as_uint(value), key = bits ^ (bits >> 31 ? ~0u : 0x80000000u);
        uint32_t top = __reduce_max_sync(~0u, best == none ? 0u : key);
        int winner = (int)__reduce_min_sync(~0u, key == top ? (uint32_t)best : (uint32_t)none);
        if ((winner & 31) == lane)
            taken |= 1u << (winner >> 5);
        float share = __expf(__uint_as_float(top ^ (top >> 31 ? 0x80000000u : ~0u)) - most) / sum;
        chosen += share;
        if (lane == 0) {
            out->expert[k] = winner;
            out->share[k] = share;
        }
    }
    __syncwarp();
    if (lane < p.n_used && p.norms)
        out->share[lane] /= chosen;
}

/* The same by a rule of ops/route_rule.h without groups. */
__device__ __forceinline__ void choose_by_rule(const decode_experts &p, choices *out, int lane)
{
    constexpr int MANY = DECODE_MAX_EXPERTS / 32;
    const int none = 0x7fffffff;
    float keys[MANY], most = -INFINITY, sum = 0, chosen = 0;
    uint32_t taken = 0;
#pragma unroll
    for (int i = 0; i < MANY; i++)
        keys[i] = 32 * i + lane < p.n_experts ? __ldcg(p.logits + 32 * i + lane) : -INFINITY;
#pragma unroll
    for (int i = 0; i < MANY; i++)
        most = fmaxf(most, keys[i]);
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < MANY; i++)
        if (32 * i < p.n_experts)
            sum += __expf(keys[i] - most);
    sum = warp_sum(sum);
    auto score_of = [&](float x) {
        return p.is_sigmoid ? 1 / (1 + expf(-x)) : expf(x - most) / sum;
    };
#pragma unroll
    for (int i = 0; i < MANY; i++)
        if (p.choice_bias && 32 * i + lane < p.n_experts)
            keys[i] = score_of(keys[i]) + __ldg(p.choice_bias + 32 * i + lane);
    for (int k = 0; k < p.n_used; k++) {
        float value = -INFINITY;
        int best = none;
#pragma unroll
        for (int i = 0; i < MANY; i++) {
            int e = 32 * i + lane;
            if (e < p.n_experts && !(taken >> i & 1) && (best == none || keys[i] > value)) {
                value = keys[i];
                best = e;
            }
        }
        uint32_t bits = __float_as_uint(value + 0.0f);
        uint32_t key = bits ^ (bits >> 31 ? ~0u : 0x80000000u); /* in the order of the floats */
        uint32_t top = __reduce_max_sync(~0u, best == none ? 0u : key);
        int winner = (int)__reduce_min_sync(~0u, best != none && key == top ? (uint32_t)best
                                                                            : (uint32_t)none);
        winner = winner == none ? 0 : winner;
        if ((winner & 31) == lane)
            taken |= 1u << (winner >> 5);
        float share = score_of(__ldcg(p.logits + winner));
        chosen += share;
        if (lane == 0) {
            out->expert[k] = winner;
            out->share[k] = share;
        }
    }
    __syncwarp();
    if (lane >= p.n_used)
        return;
    const float by = p.norms ? fmaxf(chosen + p.norm_more, p.norm_least) : 1;
    out->share[lane] *=
        p.factor / by * (p.expert_scales ? __ldg(p.expert_scales + out->expert[lane]) : 1.0f);
}

/* The same where another kernel has chosen. */
__device__ __forceinline__ void take_choices(const decode_experts &p, choices *out, int lane)
{
    if (lane >= p.n_used)
        return;
    const int2 c = __ldcg((const int2 *)p.choices + lane);
    out->expert[lane] = c.x;
    out->share[lane] = __int_as_float(c.y);
}

/* The shared expert behind those that were chosen. */
__device__ __forceinline__ void add_shared(const decode_experts &p, choices *out, int lane)
{
    if (p.n_all == p.n_used || lane > 0)
        return;
    out->expert[p.n_used] = 0;
    out->share[p.n_used] = p.shared_by ? 1 / (1 + expf(-__ldcg(p.shared_by))) : 1.0f;
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
    uint32_t to = shared_address(b.ring) + c.place * stage + ((uint32_t)(uintptr_t)from & 127);
    uint64_t policy; /* made anew each time, since registers are scarce */
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    copy_bulk(to, from, tile_bytes, b.barriers + 8 * c.place, policy);
}

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
            from += ((uint32_t)(uintptr_t)b.places[c.slot].tiles + c.across * BYTES) & 127;
        const uint8_t *x_at = b.x + expert * b.x_stride;
        act_view x;
        x.high = x_at;
        x.low = x_at + plane + PLANE_PAD;
        x.scales = (const float2 *)(x_at + 2 * plane + PLANE_PAD);
        barrier_wait(b.barriers + 8 * c.place, parity);
        tile_frag<KIND> f;
        tile_load<KIND, false>(f, from, lane);
        act_frag<KIND> a;
        act_load<KIND>(a, x, c.across, lane);
        tile_multiply<KIND>(y0, y1, f, a, lane);
        __syncwarp(); /* everyone has read the place */
        if (ahead.t < n_all) {
            if (lane == 0)
                fill(b, ahead, BYTES, STAGE);
            ahead.advance(warp, n_tiles, n_places);
        }
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

    if (lane == 0) {
        for (int i = warp; i < p.n_places; i += DECODE_WARPS)
            barrier_init(b.barriers + 8 * i);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
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
    if (warp == 0) {
        if (ANY && p.choices)
            take_choices(p, chosen, lane);
        else if (ANY)
            choose_by_rule(p, chosen, lane);
        else
            choose_experts(p, chosen, lane);
        if (ANY)
            add_shared(p, chosen, lane);
        __syncwarp();
        for (int s = lane; s < b.n_slots; s += 32) {
            bool is_pair = !IS_DOWN && s >= b.n_units;
            int u = IS_DOWN ? u0 + s / p.n_all : u0 + s - (is_pair ? b.n_units : 0);
            int k = IS_DOWN ? s % p.n_all : u / each, group = IS_DOWN ? u : u - k * each;
            int expert = chosen->expert[k];
            const uint8_t *tiles = is_pair ? p.pair + (uint64_t)expert * p.pair_bytes
                                           : p.tiles + (uint64_t)expert * p.expert_bytes;
            if (ANY && k == p.n_used)
                tiles = is_pair ? p.shared_pair : p.shared;
            places[s].tiles = tiles + (uint64_t)group * p.n_tiles * p.tile_bytes;
            places[s].bias_row = expert * p.n_rows + group * TILE_ROWS;
        }
    }
    __syncthreads();

    tile_cursor ahead(warp, p.n_tiles);
    for (int t = warp; t < p.n_places && ahead.t < b.n_slots * p.n_tiles; t += DECODE_WARPS) {
        if (lane == 0)
            fill(b, ahead, p.tile_bytes, p.stage_bytes);
        ahead.advance(warp, p.n_tiles, p.n_places);
    }
    for (int i = tid; p.bias && i < 4 * b.n_slots; i += DECODE_THREADS) {
        const float *bias = !IS_DOWN && i >= 4 * b.n_units ? p.pair_bias : p.bias;
        copy_16(shared_address(biases) + 16 * i, bias + places[i / 4].bias_row + 4 * (i % 4), true);
    }
    if (IS_DOWN) {
        wait_for_last();
        copy_input();
    } else if (ANY) {
        make_input(p.made, (gpu_act)p.x.act, p.x.k, b.x, squares);
    }
    copies_commit();
    copies_wait<0>();
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

/* For two blocks on a processor, of products that follow each other. */
extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 2)
    decode_experts_glu(const __grid_constant__ decode_experts p)
{
    experts<false, false>(p);
}

extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 2)
    decode_experts_down(const __grid_constant__ decode_experts p)
{
    experts<true, false>(p);
}

/* Behind routers of any kind, with any input. */
extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 2)
    decode_experts_glu_any(const __grid_constant__ decode_experts p)
{
    experts<false, true>(p);
}

extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 2)
    decode_experts_down_any(const __grid_constant__ decode_experts p)
{
    experts<true, true>(p);
}

#endif
