/*
 * int8 products of prompts on sm_90a: atoms of weights (bytes_weights_*, matmul_bytes.cuh) times atoms
 * of activations, both brought by bulk copies.
 *
 * A block has 128 rows and N tokens, and three groups of four warps. In one, a thread brings weights
 * and another one activations. The others multiply 64 rows each: sums of 256 columns are whole numbers;
 * then they are scaled and added to sums in f32. Both do not fit into registers for all tokens, so whole
 * sums are those of a chunk of 128, and one group scales while the tensor cores work for the other: they
 * take turns in asking. Two groups that ask at once, as they would for what has just come, are done at
 * once, too, and then both scale while nobody multiplies. (Scaling takes about two thirds as long as
 * multiplying, by its instructions; what the turns bring no card has timed.) Registers go from the group
 * that brings to those that multiply.
 *
 * What L2 can give is the limit: 101 KB for 2,048 cycles of the tensor cores. So two blocks with the same
 * tokens and neighbouring rows are a cluster, if rows are enough for pairs: each brings one half of the
 * activations for both. A place is free when both have read it.
 */
#include "backend/cuda/bytes_common.cuh"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/bytes_product.cuh"
#include "backend/cuda/matmul_batch.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { MULTIPLY_WARPS = 8, BRING_WARPS = 4, GROUPS_THREADS = 32 * (MULTIPLY_WARPS + BRING_WARPS) };

/* Registers of a thread. A block has as many as it is launched with, which is the most that fit evenly;
 * one that asks for more than others have given back waits for ever. */
#define BRING_REGISTERS    40
#define MULTIPLY_REGISTERS 232
static_assert(32 * (BRING_REGISTERS * BRING_WARPS + MULTIPLY_REGISTERS * MULTIPLY_WARPS) <=
                  65536 / GROUPS_THREADS / 8 * 8 * GROUPS_THREADS,
              "registers");

/* Shared memory: stages of activations (a chunk, 256 columns) and of weights, their units, barriers. */
template <int N> struct bytes_stages {
    static constexpr int CHUNK = BYTES_CHUNK, ATOMS = CHUNK * 256, UNITS = CHUNK * 8;
    static constexpr int X = N > CHUNK ? BYTES_STAGES - 2 : BYTES_STAGES / 2, W = BYTES_STAGES - X;
    static constexpr int WEIGHTS_AT = X * ATOMS, UNITS_AT = WEIGHTS_AT + W * BYTES_WEIGHTS;
    static constexpr int ROW_UNITS_AT = UNITS_AT + X * UNITS;
    static constexpr int BARRIERS_AT = ROW_UNITS_AT + W * 4 * BYTES_BLOCK_ROWS;
    static_assert(BARRIERS_AT + 16 * BYTES_STAGES <= BYTES_SHARED, "as it is launched");
};

struct bytes_barriers {
    uint32_t x_full, x_empty, w_full, w_empty;
};

/* Blocks of a cluster, and their places in the grid: pairs of rows lie along x, beside each other. */
template <bool PAIRS> struct bytes_place {
    int token_block, row_block, rank;

    __device__ __forceinline__ bytes_place()
    {
        rank = PAIRS ? (int)blockIdx.x & 1 : 0;
        token_block = PAIRS ? (int)blockIdx.x >> 1 : (int)blockIdx.x;
        row_block = PAIRS ? 2 * (int)blockIdx.y + rank : (int)blockIdx.y;
    }
};

/* Which place comes next in a ring, and the parity of its barriers. */
template <int STAGES> struct ring_place {
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++at == STAGES) {
            at = 0;
            parity ^= 1;
        }
    }
};

template <int N>
static __device__ __forceinline__ void bring_weights(const bytes_matmul &all, const batch_work &w,
                                                     int row_block, uint8_t *shared,
                                                     const bytes_barriers &b)
{
    typedef bytes_stages<N> stages;
    ring_place<stages::W> place;
    size_t from = (size_t)row_block * all.m.n_tiles + w.tile0;
    for (int t = 0; t < w.n_tiles; t++, from++, place.advance()) {
        if (t >= stages::W)
            bar_wait(b.w_empty + 8 * place.at, place.parity ^ 1);
        const uint32_t bar = b.w_full + 8 * place.at;
        bar_expect(bar, BYTES_WEIGHTS + 4 * BYTES_BLOCK_ROWS);
        copy_in(shared_u32(shared + stages::WEIGHTS_AT + place.at * BYTES_WEIGHTS),
                all.weight_atoms + from * BYTES_WEIGHTS, BYTES_WEIGHTS, bar);
        copy_in(shared_u32(shared + stages::ROW_UNITS_AT + place.at * 4 * BYTES_BLOCK_ROWS),
                all.weight_units + from * BYTES_BLOCK_ROWS, 4 * BYTES_BLOCK_ROWS, bar);
    }
}

/* To this block, or to both of a pair. */
template <bool PAIRS>
static __device__ __forceinline__ void bring(const uint8_t *to, const void *from, uint32_t n_bytes,
                                             uint32_t bar)
{
    if (PAIRS)
        copy_in_all(shared_u32(to), from, n_bytes, bar, 3);
    else
        copy_in(shared_u32(to), from, n_bytes, bar);
}

template <int N, bool PAIRS>
static __device__ __forceinline__ void
bring_activations(const bytes_matmul &all, const batch_work &w, int n_chunks, int rank,
                  uint8_t *shared, const bytes_barriers &b)
{
    typedef bytes_stages<N> stages;
    constexpr int CHUNK = stages::CHUNK;
    const batch_matmul &p = all.m;
    const int n_atoms = (p.n_tokens + 7) / 8;
    ring_place<stages::X> place;
    for (int t = 0, i = 0; t < w.n_tiles; t++)
        for (int c = 0; c < n_chunks; c++, i++, place.advance()) {
            if (i >= stages::X) {
                if (PAIRS)
                    bar_wait_cluster(b.x_empty + 8 * place.at, place.parity ^ 1);
                else
                    bar_wait(b.x_empty + 8 * place.at, place.parity ^ 1);
            }
            const int token0 = w.token0 + c * CHUNK;
            const uint32_t n = (uint32_t)min(CHUNK / 8, (w.token_end - token0 + 7) / 8);
            /* Of n atoms this block brings `some`, from number `first` on. */
            const uint32_t first = rank ? (n + 1) / 2 : 0;
            const uint32_t some = !PAIRS ? n : rank ? n - first : (n + 1) / 2;
            const size_t k = (size_t)(w.tile0 + t) * n_atoms, row = (size_t)token0 / 8 + first;
            const uint8_t *to = shared + place.at * stages::ATOMS + first * ATOM_BYTES;
            const uint32_t bar = b.x_full + 8 * place.at;
            bar_expect(bar, n * (2 * ATOM_BYTES + 64));
            if (some == 0)
                continue;
            bring<PAIRS>(to, p.x + (2 * k + row) * ATOM_BYTES, some * ATOM_BYTES, bar);
            bring<PAIRS>(to + CHUNK * 128, p.x + (2 * k + n_atoms + row) * ATOM_BYTES,
                         some * ATOM_BYTES, bar);
            bring<PAIRS>(shared + stages::UNITS_AT + place.at * stages::UNITS + first * 64,
                         all.units + (k + row) * 16, some * 64, bar);
        }
}

/* Barriers of named threads, one for each group's turn: it waits there, and the other one lets it go. */
enum { TURNS = 1 };

static __device__ __forceinline__ void take_turn(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(TURNS + group), "n"(32 * MULTIPLY_WARPS) : "memory");
}

static __device__ __forceinline__ void give_turn(int group)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(TURNS + group), "n"(32 * MULTIPLY_WARPS) : "memory");
}

/* Sums of a group's 64 rows: as store_sums has them. */
template <int N, bool PAIRS>
static __device__ __forceinline__ void multiply_all(int n_tiles, int n_chunks, int rank, int warp,
                                                    int lane, uint8_t *shared,
                                                    const bytes_barriers &b, float (&d)[N / 2])
{
    typedef bytes_stages<N> stages;
    constexpr int CHUNK = stages::CHUNK, CHUNKS = N / CHUNK;
    const int group = warp >> 2;
    if (group == 1 && n_tiles > 0)
        give_turn(0); /* the first begins */
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    ring_place<stages::W> w;
    ring_place<stages::X> x;
#pragma unroll 1
    for (int t = 0; t < n_tiles; t++, w.advance()) {
        bar_wait(b.w_full + 8 * w.at, w.parity);
        const float *units = (const float *)(shared + stages::ROW_UNITS_AT) +
                             w.at * BYTES_BLOCK_ROWS + 16 * warp + (lane >> 2);
        const float unit[2] = {units[0], units[8]};
        const uint64_t rows = product_operand(
            shared_u32(shared + stages::WEIGHTS_AT + w.at * BYTES_WEIGHTS + group * 64 * 128));
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (c > 0 && c >= n_chunks)
                break;
            int sums[CHUNK / 2];
            const bool ends_tile = c + 1 >= min(CHUNKS, n_chunks);
            bar_wait(b.x_full + 8 * x.at, x.parity);
            const uint64_t tokens = product_operand(shared_u32(shared + x.at * stages::ATOMS));
            take_turn(group);
            product_begin();
#pragma unroll
            for (int k = 0; k < 8; k++)
                bytes_add(sums, rows + (k >> 2) * (BYTES_BLOCK_ROWS * 128 >> 4) + 2 * (k & 3),
                          tokens + (k >> 2) * (CHUNK * 128 >> 4) + 2 * (k & 3), k > 0);
            product_end();
            if (group == 0 || t + 1 < n_tiles || !ends_tile)
                give_turn(group ^ 1);
            product_wait<0>();
            bytes_hold(sums);
            if (lane == 0 && ends_tile)
                bar_arrive(b.w_empty + 8 * w.at);
            const uint8_t *at = shared + stages::UNITS_AT + x.at * stages::UNITS + 16 * (lane & 3);
#pragma unroll
            for (int j = 0; j < CHUNK / 8; j++) {
                const float4 by = *(const float4 *)(at + 64 * j);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float sum =
                        fmaf((float)sums[4 * j + e], e & 1 ? by.z : by.x, e & 1 ? by.w : by.y);
                    float &to = d[CHUNK / 2 * c + 4 * j + e];
                    to = fmaf(sum, unit[e >> 1], to);
                }
            }
            __syncwarp();
            if (lane == 0)
                bar_arrive(b.x_empty + 8 * x.at);
            if (PAIRS && lane == 0)
                bar_arrive_at(b.x_empty + 8 * x.at, rank ^ 1);
            x.advance();
        }
    }
}

template <int N, bool PAIRS>
static __device__ __forceinline__ void matmul_bytes_groups(const bytes_matmul &all)
{
#if defined(__CUDA_ARCH__)
    typedef bytes_stages<N> stages;
    const batch_matmul &p = all.m;
    extern __shared__ __align__(1024) uint8_t shared[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    launch_next();
    const bytes_place<PAIRS> at;
    batch_work w;
    if (!find_work_at(p, 0, N, warp % MULTIPLY_WARPS, 2, at.token_block, at.row_block, w))
        return; /* both of a pair, as their tokens are the same */
    const int n_chunks =
        min(N / stages::CHUNK, (w.token_end - w.token0 + stages::CHUNK - 1) / stages::CHUNK);
    bytes_barriers b;
    b.x_full = shared_u32(shared + stages::BARRIERS_AT);
    b.x_empty = b.x_full + 8 * stages::X;
    b.w_full = b.x_empty + 8 * stages::X;
    b.w_empty = b.w_full + 8 * stages::W;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages::X; s++) {
            bar_init(b.x_full + 8 * s, 1);
            bar_init(b.x_empty + 8 * s, PAIRS ? 2 * MULTIPLY_WARPS : MULTIPLY_WARPS);
        }
        for (int s = 0; s < stages::W; s++) {
            bar_init(b.w_full + 8 * s, 1);
            bar_init(b.w_empty + 8 * s, MULTIPLY_WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (PAIRS) { /* the other block's barriers are there, too */
        cluster_arrive();
        cluster_wait();
    }
    __syncthreads();
    wait_previous();
    if (warp >= MULTIPLY_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(BRING_REGISTERS));
        if (warp == MULTIPLY_WARPS && lane == 0)
            bring_weights<N>(all, w, at.row_block, shared, b);
        if (warp == MULTIPLY_WARPS + 1 && lane == 0)
            bring_activations<N, PAIRS>(all, w, n_chunks, at.rank, shared, b);
        __syncwarp();
        if (PAIRS)
            cluster_arrive();
        if (p.mode == BATCH_GLU) { /* where gates meet */
            __syncthreads();
            __syncthreads();
        }
        if (PAIRS)
            cluster_wait();
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS));
    float d[N / 2];
    multiply_all<N, PAIRS>(w.n_tiles, n_chunks, at.rank, warp, lane, shared, b, d);
    __syncwarp();
    if (PAIRS) /* the other one may end: nothing more goes there from this warp */
        cluster_arrive();
    if (p.mode == BATCH_GLU)
        store_glu<N>(p, w, d, lane, (float *)shared);
    else
        store_sums<N>(p, w, d, lane);
    if (PAIRS)
        cluster_wait();
#endif
}

#define MATMUL_BYTES_GROUPS(n, name, pairs)                                                        \
    extern "C" __global__ void __launch_bounds__(GROUPS_THREADS, 1)                                \
        matmul_bytes_##name##_##n(const __grid_constant__ bytes_matmul p)                          \
    {                                                                                              \
        matmul_bytes_groups<n, pairs>(p);                                                          \
    }
MATMUL_BYTES_GROUPS(128, groups, false)
MATMUL_BYTES_GROUPS(256, groups, false)
MATMUL_BYTES_GROUPS(128, pairs, true)
MATMUL_BYTES_GROUPS(256, pairs, true)

#endif
