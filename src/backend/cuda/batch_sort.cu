/*
 * The choices of a router, grouped by expert, and the tiles that blocks of products take.
 *
 * One block sorts by counting. Each warp has a run of neighbouring items and counts those of each
 * expert; sums over warps, then over experts, say where the first item of a warp goes. So slots of
 * an expert are in the order of their items whatever runs first.
 */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/batch_params.h"

/* Sums of a warp's lanes up to and with each of them. */
static __device__ __forceinline__ int sum_to_lane(int v, int lane)
{
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        int other = __shfl_up_sync(~0u, v, o);
        v += lane >= o ? other : 0;
    }
    return v;
}

/* Where the next item of each expert goes, for one warp: a count at first, then a slot. */
struct sort_run {
    int32_t *next; /* [n_experts] in shared memory */
    int first, end;

    /* Calls to(item, expert, place) for all items of the run, in groups of 32. Equal experts of a
     * group get places in the order of their items. */
    template <class F>
    __device__ __forceinline__ void visit(const batch_sort &p, int lane, const F &to) const
    {
        for (int i0 = first; i0 < end; i0 += 32) {
            const int i = i0 + lane;
            const int e =
                i < end ? p.choices[(i / p.n_used) * p.choice_stride + i % p.n_used].expert : -1;
            const uint32_t same = __match_any_sync(~0u, e);
            const int before = __popc(same & ((1u << lane) - 1));
            const int at = e >= 0 ? next[e] : 0;
            __syncwarp();
            if (e >= 0 && before == 0)
                next[e] = at + __popc(same);
            __syncwarp();
            if (e >= 0)
                to(i, e, at + before);
        }
    }
};

/* Counts, [warps][n_experts], to where each warp's items begin among those of their expert. */
static __device__ __forceinline__ void add_up_warps(int32_t *next, int32_t *count, int n_experts)
{
    const int n_warps = blockDim.x >> 5;
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) {
        int sum = 0;
        for (int w = 0; w < n_warps; w++) {
            int n = next[w * n_experts + e];
            next[w * n_experts + e] = sum;
            sum += n;
        }
        count[e] = sum;
    }
}

/* One warp: where slots and tiles of each expert begin. Returns how many tiles there are. */
static __device__ __forceinline__ int add_up_experts(const batch_sort &p, const int32_t *count,
                                                     int32_t *begin, int32_t *tile, int lane)
{
    int slots = 0, tiles = 0;
    for (int e0 = 0; e0 < p.n_experts; e0 += 32) {
        const int e = e0 + lane, n = e < p.n_experts ? count[e] : 0;
        const int padded = (n + 7) / 8 * 8, own = (n + p.tile_tokens - 1) / p.tile_tokens;
        const int slots_to = sum_to_lane(padded, lane), tiles_to = sum_to_lane(own, lane);
        if (e < p.n_experts) {
            begin[e] = slots + slots_to - padded;
            tile[e] = tiles + tiles_to - own;
        }
        slots += __shfl_sync(~0u, slots_to, 31);
        tiles += __shfl_sync(~0u, tiles_to, 31);
    }
    return tiles;
}

/* Tiles of an expert, from its first on. */
static __device__ __forceinline__ void write_tiles(const batch_sort &p, int expert, int begin,
                                                   int count, int tile)
{
    for (int at = begin; at < begin + count; at += p.tile_tokens, tile++) {
        p.tiles[tile].expert = expert;
        p.tiles[tile].begin = at;
        p.tiles[tile].end = begin + count;
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1)
    batch_sort_items(const __grid_constant__ batch_sort p)
{
    extern __shared__ int32_t numbers[];
    const int n = p.n_experts, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int n_warps = blockDim.x >> 5, n_items = p.n_tokens * p.n_used;
    const int each = (n_items + n_warps - 1) / n_warps;
    int32_t *next = numbers, *count = next + n_warps * n, *begin = count + n, *tile = begin + n;
    int32_t *n_tiles = tile + n;
    sort_run run;
    run.next = next + warp * n;
    run.first = min(warp * each, n_items);
    run.end = min(run.first + each, n_items);
    launch_next();
    wait_previous();
    for (int i = threadIdx.x; i < n_warps * n; i += blockDim.x)
        next[i] = 0;
    for (int i = threadIdx.x; i < p.n_slots; i += blockDim.x)
        p.items[i] = p.tokens[i] = -1;
    __syncthreads();
    run.visit(p, lane, [](int, int, int) {});
    __syncthreads();
    add_up_warps(next, count, n);
    __syncthreads();
    if (warp == 0) {
        int sum = add_up_experts(p, count, begin, tile, lane);
        if (lane == 0)
            *n_tiles = sum;
    }
    __syncthreads();
    run.visit(p, lane, [&](int i, int e, int place) {
        p.items[begin[e] + place] = i;
        p.tokens[begin[e] + place] = i / p.n_used;
    });
    for (int e = threadIdx.x; e < n; e += blockDim.x)
        write_tiles(p, e, begin[e], count[e], tile[e]);
    for (int i = *n_tiles + threadIdx.x; i < p.n_tiles; i += blockDim.x)
        p.tiles[i].expert = -1;
}
