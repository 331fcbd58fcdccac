/*
 * Matrix products of many rows: weights are read once for up to 128 rows, go
 * from tiles to f16 in the registers of a warp, and meet f16 activations.
 *
 * On sm_90a a block has a number of groups of four warps. Each group takes 64
 * rows of weights, a warp 16 of them, and all share the activations of N tokens
 * (wgmma):
 *
 *     tiles  --bulk copies, a ring for each warp-->      shared memory  -->
 * registers (A) atoms  --bulk copies, one ring for the block-->    shared
 * memory (B)
 *
 * The tensor cores work on what one group has prepared while the others unpack.
 * Elsewhere a block has two groups, threads fill the rings, and each warp
 * multiplies on its own (mma.sync).
 *
 * The grid is token tiles x blocks of rows (of each expert) x parts of K.
 * Without parts, sums are finished here: scaled, biased, added, or gated. Parts
 * go to memory, and batch_finish_rows adds them in their order, so that results
 * have the same bits every time.
 */
#ifndef LACE_KERNELS_CUDA_MATMUL_BATCH_CUH
#define LACE_KERNELS_CUDA_MATMUL_BATCH_CUH

#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/batch_params.h"
#include "backend/cuda/batch_product.cuh"
#include "backend/cuda/batch_unpack.cuh"
#include "backend/cuda/rows.cuh"

/* What a warp works on. */
struct batch_work {
    int weight;           /* which of the step's */
    int row0;             /* the first of 16 rows */
    int n_rows;           /* of the weight */
    const uint8_t *tiles; /* of those rows */
    const float *bias;
    int token0, token_end; /* tokens, or slots of an expert */
    int tile0, n_tiles;    /* along K */
};

/* The 16 rows of a warp, in a block whose rows n_groups of four warps share. */
static __device__ __forceinline__ void find_rows(const batch_matmul &p, int warp, int n_groups,
                                                 int block, batch_work &w)
{
    int group = warp >> 2;
    if (p.mode == BATCH_GLU) { /* half of the groups take gate, the others the
                                  same rows of up */
        int half = n_groups / 2;
        w.weight = group >= half;
        w.row0 = (block * half + group % half) * 64;
    } else {
        int rows = n_groups * 64;
        for (w.weight = 0; w.weight + 1 < p.n_weights; w.weight++) {
            int blocks = (p.n_rows[w.weight] + rows - 1) / rows;
            if (block < blocks)
                break;
            block -= blocks;
        }
        w.row0 = block * rows + group * 64;
    }
    w.row0 += 16 * (warp & 3);
    w.n_rows = p.n_rows[w.weight];
}

/* False if there is nothing to do for the whole block. x, y: its place among tokens, and among rows. */
static __device__ __forceinline__ bool find_work_at(const batch_matmul &p, int bytes, int n,
                                                    int warp, int n_groups, int x, int y,
                                                    batch_work &w)
{
    int block = y, expert = 0;
    w.token0 = x * n;
    w.token_end = p.n_tokens;
    if (p.slots.tiles) {
        const batch_tile tile = p.slots.tiles[x];
        expert = tile.expert;
        w.token0 = tile.begin;
        w.token_end = tile.end;
        if (expert < 0)
            return false;
    } else if (p.slots.begin) {
        expert = block / p.blocks;
        block -= expert * p.blocks;
        int begin = p.slots.begin[expert];
        w.token0 += begin;
        w.token_end = begin + p.slots.count[expert];
        if (w.token0 >= w.token_end)
            return false;
    }
    find_rows(p, warp, n_groups, block, w);
    int per_part = (p.n_tiles + (int)gridDim.z - 1) / (int)gridDim.z;
    w.tile0 = (int)blockIdx.z * per_part;
    w.n_tiles = max(0, min(per_part, p.n_tiles - w.tile0));
    w.tiles = p.weights[w.weight] + (uint64_t)expert * p.expert_bytes[w.weight] +
              ((uint64_t)(w.row0 >> 4) * p.n_tiles + w.tile0) * bytes;
    w.bias = p.bias[w.weight] ? p.bias[w.weight] + (int64_t)expert * w.n_rows : NULL;
    return true;
}

static __device__ __forceinline__ bool find_work(const batch_matmul &p, int bytes, int n, int warp,
                                                 int n_groups, batch_work &w)
{
    return find_work_at(p, bytes, n, warp, n_groups, (int)blockIdx.x, (int)blockIdx.y, w);
}

static __device__ __forceinline__ bool find_work(const batch_matmul &p, int bytes, int n,
                                                 batch_work &w)
{
    return find_work(p, bytes, n, threadIdx.x >> 5, blockDim.x >> 7, w);
}

/* ---- Results --------------------------------------------------------------------------------- */

/*
 * Sums of a warp: d[4 j + 2 i + e] is row lane / 4 + 8 i, token 8 j + 2 (lane %
 * 4) + e. Everything that a few tokens need is read before the first of them is
 * written: the compiler cannot know that these are different places, and one
 * wait for memory after the other took as long as the product.
 */
template <int N>
static __device__ __forceinline__ void store_sums(const batch_matmul &p, const batch_work &w,
                                                  const float (&d)[N / 2], int lane)
{
    constexpr int SOME = N / 8 < 4 ? N / 8 : 4; /* of j at once */
    bool is_part = gridDim.z > 1, adds = p.mode == BATCH_ADD && !is_part;
    float *out = p.out[w.weight];
    int64_t stride = p.out_stride[w.weight];
    if (is_part) {
        out = p.parts + (int64_t)blockIdx.z * p.n_tokens * p.part_stride + p.part_offset[w.weight];
        stride = p.part_stride;
    }
    int row = w.row0 + (lane >> 2);
    bool has[2] = {row < w.n_rows, row + 8 < w.n_rows};
    float bias[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        bias[i] = w.bias && !is_part && has[i] ? w.bias[row + 8 * i] : 0.0f;
#pragma unroll
    for (int j0 = 0; j0 < N / 8; j0 += SOME) {
        float scale[SOME][2], old[SOME][4];
        int64_t at[SOME][2]; /* -1: no such token */
#pragma unroll
        for (int j = 0; j < SOME; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int t = w.token0 + 8 * (j0 + j) + 2 * (lane & 3) + e;
                bool is_any = t < w.token_end;
                scale[j][e] = is_any ? p.scale * p.x_scales[t] : 0.0f;
                at[j][e] = !is_any ? -1 : (p.slots.rows ? p.slots.rows[t] : t) * stride + row;
            }
#pragma unroll
        for (int j = 0; j < SOME; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                old[j][e] = adds && at[j][e & 1] >= 0 && has[e >> 1]
                                ? out[at[j][e & 1] + 8 * (e >> 1)]
                                : 0.0f;
#pragma unroll
        for (int j = 0; j < SOME; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (at[j][e & 1] >= 0 && has[e >> 1])
                    out[at[j][e & 1] + 8 * (e >> 1)] =
                        scale[j][e & 1] * d[4 * (j0 + j) + e] + bias[e >> 1] + old[j][e];
    }
}

/*
 * gate and up of the same rows are in different groups of warps. They exchange half of their sums
 * through shared memory, [row][N + 1]: one finishes the even tokens, the other the odd ones.
 */
template <int N>
static __device__ __forceinline__ void store_glu(const batch_matmul &p, const batch_work &w,
                                                 const float (&d)[N / 2], int lane, float *shared)
{
    constexpr int SOME = N / 8 < 4 ? N / 8 : 4;
    int group = threadIdx.x >> 7, half = blockDim.x >> 8, row = w.row0 + (lane >> 2);
    bool is_up = group >= half, has[2] = {row < w.n_rows, row + 8 < w.n_rows};
    float *mine = shared + ((group % half) * 64 + (w.row0 & 63) + (lane >> 2)) * (N + 1);
    float bias[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        bias[i] = w.bias && has[i] ? w.bias[row + 8 * i] : 0.0f;
    __syncthreads(); /* nobody reads the rings any more */
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        int n = 8 * j + 2 * (lane & 3) + !is_up;
        float scale = p.scale * p.x_scales[min(w.token0 + n, w.token_end - 1)];
        mine[n] = scale * (is_up ? d[4 * j] : d[4 * j + 1]) + bias[0];
        mine[8 * (N + 1) + n] = scale * (is_up ? d[4 * j + 2] : d[4 * j + 3]) + bias[1];
    }
    __syncthreads();
#pragma unroll
    for (int j0 = 0; j0 < N / 8; j0 += SOME) {
        float scale[SOME], other[SOME][2];
        int64_t at[SOME];
#pragma unroll
        for (int j = 0; j < SOME; j++) {
            int n = 8 * (j0 + j) + 2 * (lane & 3) + is_up, t = w.token0 + n;
            bool is_any = t < w.token_end;
            scale[j] = is_any ? p.scale * p.x_scales[t] : 0.0f;
            at[j] = !is_any ? -1 : (p.slots.rows ? p.slots.rows[t] : t) * p.out_stride[0] + row;
            other[j][0] = mine[n];
            other[j][1] = mine[8 * (N + 1) + n];
        }
#pragma unroll
        for (int j = 0; j < SOME; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float *sums = d + 4 * (j0 + j) + 2 * i;
                float own = scale[j] * (is_up ? sums[1] : sums[0]) + bias[i];
                if (at[j] >= 0 && has[i])
                    p.out[0][at[j] + 8 * i] = is_up ? glu_fast(p.glu, other[j][i], own)
                                                    : glu_fast(p.glu, own, other[j][i]);
            }
    }
}

/* Shared memory that a block may have on sm_90. */
enum { MATMUL_BATCH_SHARED = 227 * 1024, WIDE_WARPS = 8 };

/* ---- sm_90a ---------------------------------------------------------------------------------- */

/* Stages of the rings, as many as fit beside each other in shared memory. */
template <int KIND> struct tile_ring {
    static constexpr int BYTES = tile<KIND>::BYTES;
    /* A copy is fastest where it has the same offset within 128 bytes as its
     * source. */
    static constexpr int STRIDE = BYTES % 128 ? (BYTES + 96 + 127) / 128 * 128 : BYTES;
    static constexpr int STAGES = BYTES > 3000 ? 2 : tile<KIND>::COLS == 64 ? 4 : 3;
};

/*
 * For many tokens a stage is 64 values of them; for few a whole tile's, so that
 * barriers are met less often.
 */
template <int KIND, int N, int WARPS, int BLOCKS> struct atom_ring {
    static constexpr int MOST_STEPS = BLOCKS > 1 ? 64 / N : N < 64 ? 4 : N < 128 ? 2 : 1;
    static constexpr int STEPS = /* of 64 values in a stage */
        tile<KIND>::COLS / 64 < MOST_STEPS ? tile<KIND>::COLS / 64 : MOST_STEPS;
    static constexpr int BYTES = N * 128 * STEPS;
    static constexpr int ROOM = (MATMUL_BATCH_SHARED - 1024 * BLOCKS) / BLOCKS -
                                WARPS * tile_ring<KIND>::STAGES * tile_ring<KIND>::STRIDE;
    static constexpr int MOST = N < 64 ? 8 : 6;
    static constexpr int STAGES = ROOM / BYTES < MOST ? ROOM / BYTES : MOST;
    static_assert(STAGES >= 3, "no room for atoms");
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <int KIND, int N, int WARPS, int BLOCKS>
static __device__ __forceinline__ void matmul_batch(const batch_matmul &p)
{
    typedef tile_ring<KIND> tring;
    typedef atom_ring<KIND, N, WARPS, BLOCKS> aring;
    constexpr int STEPS = tile<KIND>::COLS / 64;   /* of 64 values in a tile */
    constexpr int PER_TILE = STEPS / aring::STEPS; /* stages of atoms */
    /* Unpack the next step while the last is multiplied: where registers allow
     * it. */
    constexpr bool AHEAD = (N < 128 || WARPS == WIDE_WARPS) && STEPS > 1;
    extern __shared__ __align__(1024) uint8_t shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_warps = blockDim.x >> 5;

    /* Atoms first: they must begin at multiples of 1024. */
    uint8_t *atoms = shared, *tiles = shared + aring::STAGES * aring::BYTES;
    uint32_t full = shared_u32(tiles + n_warps * tring::STAGES * tring::STRIDE);
    uint32_t empty = full + 8 * aring::STAGES;
    uint32_t loaded = empty + 8 * aring::STAGES + 8 * tring::STAGES * warp;
    uint8_t *mine = tiles + warp * tring::STAGES * tring::STRIDE;

    launch_next();
    if (p.slots.rows)
        wait_previous();
    batch_work w;
    if (!find_work(p, tring::BYTES, N, w))
        return;
    bool has_rows = w.row0 < w.n_rows;

    uint64_t policy = 0;
    auto place = [&](int i) { /* in a stage */
                              return tring::BYTES % 128
                                         ? (uint32_t)(size_t)(w.tiles + (size_t)i * tring::BYTES) &
                                               127
                                         : 0;
    };
    auto copy_tile = [&](int i) {
        int s = i % tring::STAGES;
        bar_expect(loaded + 8 * s, tring::BYTES);
        copy_in_once(shared_u32(mine + s * tring::STRIDE) + place(i),
                     w.tiles + (size_t)i * tring::BYTES, tring::BYTES, loaded + 8 * s, policy);
    };
    int n_atoms = (p.n_tokens + 7) / 8, n_stages = w.n_tiles * PER_TILE;
    uint32_t atom_bytes = (uint32_t)min(N / 8, (w.token_end - w.token0 + 7) / 8) * ATOM_BYTES;
    auto copy_atoms = [&](int i) {
        int s = i % aring::STAGES;
        bar_expect(full + 8 * s, aring::STEPS * atom_bytes);
#pragma unroll
        for (int k = 0; k < aring::STEPS; k++) {
            size_t at = (size_t)(w.tile0 * STEPS + i * aring::STEPS + k) * n_atoms + w.token0 / 8;
            copy_in(shared_u32(atoms + s * aring::BYTES + k * N * 128), p.x + at * ATOM_BYTES,
                    atom_bytes, full + 8 * s);
        }
    };

    if (threadIdx.x == 0)
        for (int s = 0; s < aring::STAGES; s++) {
            bar_init(full + 8 * s, 1);
            bar_init(empty + 8 * s, n_warps);
        }
    if (lane == 0)
        for (int s = 0; s < tring::STAGES; s++)
            bar_init(loaded + 8 * s, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    if (lane == 0 && has_rows) { /* weights never change: they need not wait */
        policy = policy_evict_first();
        for (int i = 0; i < tring::STAGES && i < w.n_tiles; i++)
            copy_tile(i);
    }
    wait_previous();
    if (threadIdx.x == 0)
        for (int i = 0; i < aring::STAGES - 2 && i < n_stages; i++)
            copy_atoms(i);

    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    tile<KIND> unpacked;
    uint32_t a[AHEAD ? 2 : 1][16];
    for (int t = 0; t < w.n_tiles; t++) {
        const uint8_t *at = mine + t % tring::STAGES * tring::STRIDE + place(t);
        /* Without rows: whatever lies there, for sums that nobody stores. */
        if (has_rows)
            bar_wait(loaded + 8 * (t % tring::STAGES), t / tring::STAGES & 1);
        unpacked.begin(at, lane);
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            int i = t * PER_TILE + j / aring::STEPS, s = i % aring::STAGES;
            bool is_first = j % aring::STEPS == 0; /* of a stage */
            /* Two stages behind the others, so that they are not waited for. */
            int next = i + aring::STAGES - 2;
            if (is_first && threadIdx.x == 0 && next < n_stages) {
                if (next >= aring::STAGES)
                    bar_wait(empty + 8 * (next % aring::STAGES), (next / aring::STAGES - 1) & 1);
                copy_atoms(next);
            }
            unpacked.step(at, lane, j, a[AHEAD ? j & 1 : 0]);
            __syncwarp();
            if (j == STEPS - 1 && lane == 0 && has_rows && t + tring::STAGES < w.n_tiles)
                copy_tile(t + tring::STAGES); /* this one has been read */
            __syncwarp();
            if (is_first)
                bar_wait(full + 8 * s, i / aring::STAGES & 1);
            uint64_t b =
                product_operand(shared_u32(atoms + s * aring::BYTES + j % aring::STEPS * N * 128));
            product_begin();
#pragma unroll
            for (int n = 0; n < 4; n++)
                product_add(d, a[AHEAD ? j & 1 : 0] + 4 * n, b + 2 * n);
            product_end();
            product_wait<AHEAD ? 1 : 0>();
            /* What is certainly multiplied: everything, or all but this step. */
            if (lane == 0) {
                if (!AHEAD && (j + 1) % aring::STEPS == 0)
                    bar_arrive(empty + 8 * s);
                if (AHEAD && is_first && i > 0)
                    bar_arrive(empty + 8 * ((i - 1) % aring::STAGES));
            }
        }
    }
    product_wait<0>();
    if (p.mode == BATCH_GLU)
        store_glu<N>(p, w, d, lane, (float *)shared);
    else
        store_sums<N>(p, w, d, lane);
}

#else

/* ---- Elsewhere ------------------------------------------------------------------------------- */

static __device__ __forceinline__ void copy_chunk(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/*
 * N tokens times the rows of a block: the same rings, filled by threads (cp.async). A stage has 64
 * values of the tokens, and a tile where one begins there; two are on their way while one is
 * multiplied. Not inlined: all kernels of a kind share it.
 */
template <int KIND, int N>
static __device__ __noinline__ void matmul_ring(const batch_matmul &p, const batch_work &w)
{
    constexpr int STEPS = tile<KIND>::COLS / 64, BYTES = tile<KIND>::BYTES, AHEAD = 2;
    constexpr int ATOM_STAGES = AHEAD + 1, TILE_STAGES = STEPS == 1 ? AHEAD + 1 : 2;
    extern __shared__ __align__(1024) uint8_t shared[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_atoms = (p.n_tokens + 7) / 8;
    const int n_here = min(N / 8, (w.token_end - w.token0 + 7) / 8), n_stages = w.n_tiles * STEPS;
    const bool has_rows = w.row0 < w.n_rows;
    uint8_t *tiles = shared + ATOM_STAGES * N * 128 + warp * TILE_STAGES * BYTES;
    auto fetch = [&](int i) {
        if (i < n_stages) {
            size_t at = (size_t)(w.tile0 * STEPS + i) * n_atoms + w.token0 / 8;
            uint32_t to = shared_u32(shared) + i % ATOM_STAGES * (N * 128);
            for (int c = 16 * threadIdx.x; c < n_here * ATOM_BYTES; c += 16 * blockDim.x)
                copy_chunk(to + c, p.x + at * ATOM_BYTES + c);
            to = shared_u32(tiles) + i / STEPS % TILE_STAGES * BYTES;
            for (int c = 16 * lane; i % STEPS == 0 && has_rows && c < BYTES; c += 16 * 32)
                copy_chunk(to + c, w.tiles + (size_t)(i / STEPS) * BYTES + c);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    for (int i = 0; i < AHEAD; i++)
        fetch(i);
    tile<KIND> unpacked;
    for (int t = 0; t < w.n_tiles; t++) {
        const uint8_t *at = tiles + t % TILE_STAGES * BYTES;
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            const int i = t * STEPS + j;
            asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
            __syncthreads(); /* this stage is there, and everyone has read the one before */
            fetch(i + AHEAD);
            if (!has_rows)
                continue;
            if (j == 0)
                unpacked.begin(at, lane);
            uint32_t a[16];
            unpacked.step(at, lane, j, a);
            const int row = lane >> 2;
            const uint8_t *x = shared + i % ATOM_STAGES * (N * 128) + row * 128 + 4 * (lane & 3);
#pragma unroll
            for (int nb = 0; nb < N / 8; nb++) {
                if (nb >= n_here)
                    break;
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const uint8_t *at_x = x + nb * ATOM_BYTES;
                    uint32_t b0 = *(const uint32_t *)(at_x + ((2 * n ^ row) << 4));
                    uint32_t b1 = *(const uint32_t *)(at_x + (((2 * n + 1) ^ row) << 4));
                    float *s = d + 4 * nb;
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                                 "{%0,%1,%2,%3}, "
                                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                                 : "r"(a[4 * n]), "r"(a[4 * n + 1]), "r"(a[4 * n + 2]),
                                   "r"(a[4 * n + 3]), "r"(b0), "r"(b1));
                }
            }
        }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); /* the rings are free */
    if (p.mode == BATCH_GLU)
        store_glu<N>(p, w, d, lane, (float *)shared);
    else
        store_sums<N>(p, w, d, lane);
}

/* Few tokens, or as many as 99 KB have room for beside tiles of this kind. */
template <int KIND, int N, int WARPS, int BLOCKS>
static __device__ __forceinline__ void matmul_batch(const batch_matmul &p)
{
    constexpr int EACH = N <= 32 ? 32 : tile<KIND>::BYTES > MATMUL_LARGE_TILE ? 64 : 128;
    batch_work w;
    wait_previous();
    if (!find_work(p, tile<KIND>::BYTES, N, w))
        return;
    w.token_end = min(w.token0 + N, w.token_end);
    for (; w.token0 < w.token_end; w.token0 += EACH) {
        matmul_ring<KIND, EACH>(p, w);
        __syncthreads(); /* gates have met */
    }
}
#endif

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
enum { MATMUL_THREADS = 512 };
#else
enum { MATMUL_THREADS = 256 };
#endif

/* One kernel for a kind of tiles and a number of tokens. */
#define MATMUL_BATCH(kind, n)                                                                      \
    extern "C" __global__ void __launch_bounds__(MATMUL_THREADS, 1)                                \
        matmul_batch_##kind##_##n(const __grid_constant__ batch_matmul p)                          \
    {                                                                                              \
        matmul_batch<TILE_##kind, n, 16, 1>(p);                                                    \
    }
#define MATMUL_BATCH_ALL(kind)                                                                     \
    MATMUL_BATCH(kind, 8)                                                                          \
    MATMUL_BATCH(kind, 32) MATMUL_BATCH(kind, 64) MATMUL_BATCH(kind, 128)

/*
 * For prompts: half as many threads, which have twice the registers. So a group can unpack while its
 * products run, and what it unpacks meets up to 256 tokens.
 */
#define MATMUL_WIDE(kind, n)                                                                       \
    extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 1)                               \
        matmul_wide_##kind##_##n(const __grid_constant__ batch_matmul p)                           \
    {                                                                                              \
        matmul_batch<TILE_##kind, n, WIDE_WARPS, 1>(p);                                            \
    }
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MATMUL_WIDE_ALL(kind) MATMUL_WIDE(kind, 128) MATMUL_WIDE(kind, 256)
#else
#define MATMUL_WIDE_ALL(kind)
#endif

/*
 * For experts with few tokens each: two blocks on a processor. A block has little to do, so that one
 * begins and ends while the other multiplies.
 */
#define MATMUL_EXPERTS(kind, n)                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 2)                               \
        matmul_experts_##kind##_##n(const __grid_constant__ batch_matmul p)                        \
    {                                                                                              \
        matmul_batch<TILE_##kind, n, WIDE_WARPS, 2>(p);                                            \
    }
#define MATMUL_EXPERTS_ALL(kind) MATMUL_EXPERTS(kind, 16) MATMUL_EXPERTS(kind, 32)

#endif
