/*
 * int8 products of prompts (--fast-prompts): weights become bytes with one scale for each row and 256
 * columns (bytes_unpack.cuh), and meet bytes of activations (bytes_common.cuh).
 *
 * On sm_90a that takes two kernels. Unpacking costs more instructions than multiplying leaves room
 * for, and would be done again for each 256 tokens. So one kernel for each kind of tiles, here, makes
 * atoms of a whole matrix, and one for all kinds multiplies them (matmul_bytes_groups.cu). Elsewhere
 * a kernel for each kind does both.
 */
#ifndef LACE_KERNELS_CUDA_MATMUL_BYTES_CUH
#define LACE_KERNELS_CUDA_MATMUL_BYTES_CUH

#include "backend/cuda/bytes_common.cuh"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/bytes_unpack.cuh"
#include "backend/cuda/matmul_batch.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- sm_90a ---------------------------------------------------------------------------------- */

/*
 * blockIdx.x: 256 columns, blockIdx.y: a block of rows as the product has it; a warp for each 16 of
 * them. Atoms meet in shared memory, and leave it in whole lines.
 */
template <int KIND> static __device__ __forceinline__ void bytes_weights(const bytes_matmul &all)
{
#if defined(__CUDA_ARCH__)
    const batch_matmul &p = all.m;
    __shared__ __align__(1024) uint8_t atoms[BYTES_WEIGHTS];
    __shared__ __align__(16) float units[BYTES_BLOCK_ROWS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, c = lane & 3;
    const int t = blockIdx.x;
    launch_next();
    batch_work w;
    find_rows(p, warp, 2, (int)blockIdx.y, w);
    uint8_t *rows = atoms + 16 * warp * 128 + r * 128 + 4 * c;
    float unit[2] = {0, 0};
    byte_tile<KIND> unpacked;
    const bool has_rows = w.row0 < w.n_rows;
    const int far = all.far[w.weight];
    const uint8_t *at = p.weights[w.weight] +
                        ((size_t)(has_rows ? w.row0 >> 4 : 0) * p.n_tiles + t) * tile<KIND>::BYTES;
    unpacked.begin(at, lane, far, unit);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t a[8];
        unpacked.step(at, lane, j, far, a);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int sub = 2 * j + (i >> 2), chunk = 2 * (sub & 3) + (i >> 1 & 1);
            *(uint32_t *)(rows + (sub >> 2) * (BYTES_BLOCK_ROWS * 128) + (i & 1) * ATOM_BYTES +
                          ((chunk ^ r) << 4)) = a[i];
        }
    }
    if (c == 0) {
        units[16 * warp + r] = unit[0];
        units[16 * warp + r + 8] = unit[1];
    }
    wait_previous(); /* the product before this one may still read its own weights there */
    __syncthreads();
    const size_t to = (size_t)blockIdx.y * p.n_tiles + t;
    uint4 *out = (uint4 *)(all.weight_atoms + to * BYTES_WEIGHTS);
#pragma unroll
    for (int i = threadIdx.x; i < BYTES_WEIGHTS / 16; i += 2 * BYTES_BLOCK_ROWS)
        out[i] = ((const uint4 *)atoms)[i];
    if (threadIdx.x < BYTES_BLOCK_ROWS)
        all.weight_units[to * BYTES_BLOCK_ROWS + threadIdx.x] = units[threadIdx.x];
#endif
}

#define MATMUL_BYTES_ALL(kind)                                                                     \
    extern "C" __global__ void __launch_bounds__(2 * BYTES_BLOCK_ROWS)                             \
        bytes_weights_##kind(const __grid_constant__ bytes_matmul p)                               \
    {                                                                                              \
        bytes_weights<TILE_##kind>(p);                                                             \
    }

#else

/* ---- Elsewhere ------------------------------------------------------------------------------- */

/*
 * As matmul_ring: threads fill the rings (cp.async), of which one place is multiplied while the other
 * one is filled, and each warp multiplies on its own.
 */
template <int KIND, int N>
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
                d[4 * nb + e] = fmaf(fmaf((float)sum[e], e & 1 ? q.z : q.x, e & 1 ? q.w : q.y),
                                     unit[e >> 1], d[4 * nb + e]);
        }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); /* the rings are free */
    if (p.mode == BATCH_GLU)
        store_glu<N>(p, w, d, lane, (float *)shared);
    else
        store_sums<N>(p, w, d, lane);
}

#define MATMUL_BYTES_ALL(kind)                                                                     \
    extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 1)                               \
        matmul_bytes_##kind##_64(const __grid_constant__ bytes_matmul p)                           \
    {                                                                                              \
        matmul_bytes<TILE_##kind, 64>(p);                                                          \
    }
#endif

#endif
