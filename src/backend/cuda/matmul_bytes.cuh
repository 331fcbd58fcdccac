/*
 * int8 products of prompts (--fast-prompts): weights go from tiles to bytes in the registers of a
 * warp, with one scale for each row and 256 columns (bytes_unpack.cuh), and meet bytes of activations
 * (bytes_common.cuh).
 *
 * The block is that of matmul_batch.cuh: two groups of four warps on sm_90a, each with 64 rows, and N
 * tokens. Sums of 256 columns are whole numbers; then they are scaled and added to sums in f32. Both
 * do not fit into registers for all tokens of a block: whole sums are those of CHUNK tokens, twice, so
 * that one is scaled while the tensor cores work on the other. AHEAD: a tile is unpacked while the one
 * before it is multiplied.
 */
#ifndef LACE_KERNELS_CUDA_MATMUL_BYTES_CUH
#define LACE_KERNELS_CUDA_MATMUL_BYTES_CUH

#include "backend/cuda/bytes_common.cuh"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/bytes_product.cuh"
#include "backend/cuda/bytes_unpack.cuh"
#include "backend/cuda/matmul_batch.cuh"

/* Stages of 256 values of the tokens, with their units, as many as fit beside the tiles. */
template <int KIND, int N> struct bytes_ring {
    static constexpr int ATOMS = N * 256, BYTES = N * 264;
    static constexpr int ROOM =
        MATMUL_BATCH_SHARED - 1024 - WIDE_WARPS * tile_ring<KIND>::STAGES * tile_ring<KIND>::STRIDE;
    static constexpr int STAGES = ROOM / BYTES < 5 ? ROOM / BYTES : 5;
    /* How many tiles ago everyone must have been done with a stage that is filled again. */
    static constexpr int SLACK = STAGES > 3 ? 2 : 1;
    static_assert(STAGES >= 2, "no room for atoms");
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <int KIND, int N, int CHUNK, bool AHEAD>
static __device__ __forceinline__ void matmul_bytes(const bytes_matmul &all)
{
    const batch_matmul &p = all.m;
    typedef tile_ring<KIND> tring;
    typedef bytes_ring<KIND, N> aring;
    constexpr int CHUNKS = N / CHUNK, ST = aring::STAGES;
    static_assert(CHUNKS % 2 == 0, "sums of a tile end in the second place");
    extern __shared__ __align__(1024) uint8_t shared[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_warps = blockDim.x >> 5;

    uint8_t *atoms = shared, *units = atoms + ST * aring::ATOMS, *tiles = units + ST * N * 8;
    const uint32_t full = shared_u32(tiles + n_warps * tring::STAGES * tring::STRIDE);
    const uint32_t empty = full + 8 * ST;
    const uint32_t loaded = empty + 8 * ST + 8 * tring::STAGES * warp;
    uint8_t *mine = tiles + warp * tring::STAGES * tring::STRIDE;

    launch_next();
    if (p.slots.rows)
        wait_previous();
    batch_work w;
    if (!find_work(p, tring::BYTES, N, w))
        return;
    const bool has_rows = w.row0 < w.n_rows;
    const int far = all.far[w.weight];

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
    const int n_atoms = (p.n_tokens + 7) / 8;
    const uint32_t n_here = (uint32_t)min(N / 8, (w.token_end - w.token0 + 7) / 8);
    auto copy_atoms = [&](int i) {
        int s = i % ST;
        size_t k = (size_t)(w.tile0 + i) * n_atoms, row = (size_t)w.token0 / 8;
        bar_expect(full + 8 * s, n_here * (2 * ATOM_BYTES + 64));
        copy_in(shared_u32(atoms + s * aring::ATOMS), p.x + (2 * k + row) * ATOM_BYTES,
                n_here * ATOM_BYTES, full + 8 * s);
        copy_in(shared_u32(atoms + s * aring::ATOMS + N * 128),
                p.x + (2 * k + n_atoms + row) * ATOM_BYTES, n_here * ATOM_BYTES, full + 8 * s);
        copy_in(shared_u32(units + s * N * 8), all.units + (k + row) * 16, n_here * 64,
                full + 8 * s);
    };

    if (threadIdx.x == 0)
        for (int s = 0; s < ST; s++) {
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
        for (int i = 0; i < ST - aring::SLACK && i < w.n_tiles; i++)
            copy_atoms(i);

    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    int sums[2][CHUNK / 2];
    byte_tile<KIND> unpacked;
    uint32_t a[AHEAD ? 2 : 1][32];
    float unit[2] = {0, 0}, next_unit[2] = {0, 0};

    auto unpack = [&](int t, uint32_t(&to)[32], float(&u)[2]) {
        const uint8_t *at = mine + t % tring::STAGES * tring::STRIDE + place(t);
        /* Without rows: whatever lies there, for sums that nobody stores. */
        if (has_rows)
            bar_wait(loaded + 8 * (t % tring::STAGES), t / tring::STAGES & 1);
        unpacked.begin(at, lane, far, u);
#pragma unroll
        for (int j = 0; j < 4; j++)
            unpacked.step(at, lane, j, far, to + 8 * j);
        __syncwarp();
        if (lane == 0 && has_rows && t + tring::STAGES < w.n_tiles)
            copy_tile(t + tring::STAGES); /* this one has been read */
    };
    auto multiply = [&](int t, int chunk, const uint32_t(&from)[32], int(&to)[CHUNK / 2]) {
        uint64_t b = product_operand(
            shared_u32(atoms + t % ST * aring::ATOMS + chunk * CHUNK * 128));
        product_begin();
#pragma unroll
        for (int k = 0; k < 8; k++)
            bytes_add(to, from + 4 * k, b + (k >> 2) * (N * 128 >> 4) + 2 * (k & 3), k > 0);
        product_end();
    };
    auto scale = [&](int t, int chunk, int(&from)[CHUNK / 2], const float(&u)[2]) {
        const uint8_t *at = units + t % ST * N * 8 + chunk * CHUNK * 8 + 16 * (lane & 3);
        bytes_hold(from);
#pragma unroll
        for (int j = 0; j < CHUNK / 8; j++) {
            const float4 x = *(const float4 *)(at + 64 * j);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float sum = fmaf((float)from[4 * j + e], e & 1 ? x.z : x.x, e & 1 ? x.w : x.y);
                float &to = d[CHUNK / 2 * chunk + 4 * j + e];
                to = fmaf(sum, u[e >> 1], to);
            }
        }
    };
    auto release = [&](int t) {
        if (lane == 0)
            bar_arrive(empty + 8 * (t % ST));
    };
    auto refill = [&](int t) { /* once tile t has begun */
        int next = t + ST - aring::SLACK;
        if (threadIdx.x == 0 && next < w.n_tiles) {
            if (next >= ST)
                bar_wait(empty + 8 * (next % ST), (next / ST - 1) & 1);
            copy_atoms(next);
        }
        __syncwarp();
    };

    /* The last sums of the tile before are scaled while the first ones of this one are made. */
    auto rest_of_turn = [&](int t, uint32_t(&now)[32], uint32_t(&next)[32]) {
        unit[0] = next_unit[0], unit[1] = next_unit[1];
#pragma unroll
        for (int c = 1; c < CHUNKS; c++) {
            multiply(t, c, now, sums[c & 1]);
            if (c == 1)
                refill(t);
            if (AHEAD && c == CHUNKS - 1 && t + 1 < w.n_tiles)
                unpack(t + 1, next, next_unit);
            product_wait<1>();
            scale(t, c - 1, sums[(c - 1) & 1], unit);
        }
        product_wait<0>();
        bytes_hold(sums[1]);
    };
    auto turn = [&](int t, uint32_t(&now)[32], uint32_t(&next)[32]) {
        if (!AHEAD)
            unpack(t, now, next_unit);
        bar_wait(full + 8 * (t % ST), t / ST & 1);
        multiply(t, 0, now, sums[0]);
        scale(t - 1, CHUNKS - 1, sums[1], unit);
        release(t - 1); /* its units have been read, too */
        rest_of_turn(t, now, next);
    };
    if (w.n_tiles > 0) {
        unpack(0, a[0], next_unit);
        bar_wait(full, 0);
        multiply(0, 0, a[0], sums[0]);
        rest_of_turn(0, a[0], a[AHEAD]);
        int t = 1;
        for (; AHEAD && t + 1 < w.n_tiles; t += 2) {
            turn(t, a[AHEAD], a[0]);
            turn(t + 1, a[0], a[AHEAD]);
        }
        for (; t < w.n_tiles; t++) /* one at most, if AHEAD */
            turn(t, a[AHEAD], a[0]);
        scale(w.n_tiles - 1, CHUNKS - 1, sums[1], unit);
    }
    if (p.mode == BATCH_GLU)
        store_glu<N>(p, w, d, lane, (float *)shared);
    else
        store_sums<N>(p, w, d, lane);
}
#else

/* ---- Elsewhere ------------------------------------------------------------------------------- */

/*
 * As matmul_ring: threads fill the rings (cp.async), of which one place is multiplied while the other
 * one is filled, and each warp multiplies on its own.
 */
template <int KIND, int N, int CHUNK, bool AHEAD>
static __device__ __forceinline__ void matmul_bytes(const bytes_matmul &all)
{
    const batch_matmul &p = all.m;
    constexpr int BYTES = tile<KIND>::BYTES;
    extern __shared__ __align__(1024) uint8_t shared[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_atoms = (p.n_tokens + 7) / 8;
    batch_work w;
    wait_previous();
    if (!find_work(p, BYTES, N, w))
        return;
    const int n_here = min(N / 8, (w.token_end - w.token0 + 7) / 8), far = all.far[w.weight];
    const bool has_rows = w.row0 < w.n_rows;
    uint8_t *units = shared + 2 * N * 256, *tiles = units + 2 * N * 8 + warp * 2 * BYTES;
    auto fetch = [&](int i) {
        if (i < w.n_tiles) {
            const size_t k = (size_t)(w.tile0 + i) * n_atoms, row = (size_t)w.token0 / 8;
            const uint8_t *from = p.x + (2 * k + row) * ATOM_BYTES;
            uint32_t to = shared_u32(shared) + i % 2 * (N * 256);
            for (int c = 16 * threadIdx.x; c < n_here * ATOM_BYTES; c += 16 * blockDim.x) {
                copy_chunk(to + c, from + c);
                copy_chunk(to + N * 128 + c, from + (size_t)n_atoms * ATOM_BYTES + c);
            }
            to = shared_u32(units) + i % 2 * (N * 8);
            for (int c = 16 * threadIdx.x; c < n_here * 64; c += 16 * blockDim.x)
                copy_chunk(to + c, (const uint8_t *)all.units + (k + row) * 64 + c);
            to = shared_u32(tiles) + i % 2 * BYTES;
            for (int c = 16 * lane; has_rows && c < BYTES; c += 16 * 32)
                copy_chunk(to + c, w.tiles + (size_t)i * BYTES + c);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = 0;
    fetch(0);
    byte_tile<KIND> unpacked;
    for (int t = 0; t < w.n_tiles; t++) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads(); /* this tile is there, and everyone has read the one before */
        fetch(t + 1);
        if (!has_rows)
            continue;
        const uint8_t *at = tiles + t % 2 * BYTES;
        float unit[2];
        uint32_t a[32];
        unpacked.begin(at, lane, far, unit);
#pragma unroll
        for (int j = 0; j < 4; j++)
            unpacked.step(at, lane, j, far, a + 8 * j);
        const int row = lane >> 2;
        const uint8_t *x = shared + t % 2 * (N * 256) + row * 128 + 4 * (lane & 3);
        const uint8_t *u = units + t % 2 * (N * 8) + 16 * (lane & 3);
#pragma unroll
        for (int nb = 0; nb < N / 8; nb++) {
            if (nb >= n_here)
                break;
            int sum[4] = {0, 0, 0, 0};
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const uint8_t *at_x = x + (k >> 2) * (N * 128) + nb * ATOM_BYTES;
                const int chunk = 2 * (k & 3);
                const uint32_t b0 = *(const uint32_t *)(at_x + ((chunk ^ row) << 4));
                const uint32_t b1 = *(const uint32_t *)(at_x + (((chunk + 1) ^ row) << 4));
                asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, "
                             "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                             : "r"(a[4 * k]), "r"(a[4 * k + 1]), "r"(a[4 * k + 2]),
                               "r"(a[4 * k + 3]), "r"(b0), "r"(b1));
            }
            const float4 q = *(const float4 *)(u + 64 * nb);
#pragma unroll
            for (int e = 0; e < 4; e++)
                d[4 * nb + e] =
                    fmaf(fmaf((float)sum[e], e & 1 ? q.z : q.x, e & 1 ? q.w : q.y), unit[e >> 1],
                         d[4 * nb + e]);
        }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); /* the rings are free */
    if (p.mode == BATCH_GLU)
        store_glu<N>(p, w, d, lane, (float *)shared);
    else
        store_sums<N>(p, w, d, lane);
}
#endif

#define MATMUL_BYTES(kind, n, chunk, ahead)                                                        \
    extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 1)                               \
        matmul_bytes_##kind##_##n(const __grid_constant__ bytes_matmul p)                          \
    {                                                                                              \
        matmul_bytes<TILE_##kind, n, chunk, ahead>(p);                                             \
    }
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MATMUL_BYTES_ALL(kind) MATMUL_BYTES(kind, 128, 64, true)
#define MATMUL_BYTES_WIDE(kind) MATMUL_BYTES(kind, 256, 64, false)
#else
#define MATMUL_BYTES_ALL(kind) MATMUL_BYTES(kind, 64, 64, false)
#define MATMUL_BYTES_WIDE(kind)
#endif

#endif
