/*
 * What products of one token share: tiles that are streamed through a ring in shared memory, the
 * planes of activations beside it, and sums of what warps have multiplied.
 */
#ifndef LACE_KERNELS_CUDA_DECODE_RING_CUH
#define LACE_KERNELS_CUDA_DECODE_RING_CUH

#include "backend/cuda/decode_common.cuh"

/* The second plane is moved by half the banks, so that both can be read at once. */
enum { PLANE_PAD = 64 };

/*
 * The ring. Each warp has places of its own in it, every DECODE_WARPS-th, and multiplies the tiles in
 * them in the order in which it asked for them. It comes in two forms.
 *
 * Bulk copies: one lane asks for a tile, and a barrier for each place counts the bytes. A place is so
 * large that a tile lies in it as in memory, within 128 bytes.
 *
 * The lanes' own copies: all of them ask for a tile, as one group. Groups end in their order, so of a
 * warp with n places the oldest tile is there when at most n - 1 groups are on their way. To keep
 * that count, a warp commits a group for each tile that it has multiplied, if need be an empty one.
 */
#ifdef HAS_OVERLAP

/* Tiles are as long as lines of 128 bytes, or begin anywhere in one. */
template <int KIND> __host__ __device__ constexpr int stage_bytes()
{
    return tile_info<KIND>::bytes % 128 ? (tile_info<KIND>::bytes + 96 + 127) / 128 * 128
                                        : tile_info<KIND>::bytes;
}

/* Where in its place a tile lies. */
__device__ __forceinline__ uint32_t tile_skew(uint32_t from)
{
    return from & 127;
}

/* A tile on its way to its place; by one lane. */
__device__ __forceinline__ void tile_fetch(uint32_t to, const uint8_t *from, int bytes,
                                           uint32_t barrier, uint64_t policy)
{
    copy_bulk(to, from, bytes, barrier, policy);
}

/* A warp with so many places waits for the oldest of its tiles. */
__device__ __forceinline__ void tile_wait(int, uint32_t barrier, uint32_t parity)
{
    barrier_wait(barrier, parity);
}

/* What a thread has asked for in front of its ring, or beside it, is there. */
__device__ __forceinline__ void input_wait(int, bool)
{
    copies_wait<0>();
}

/* And what was asked for beside the ring. */
__device__ __forceinline__ void input_end()
{
}

#else

template <int KIND> __host__ __device__ constexpr int stage_bytes()
{
    return tile_info<KIND>::bytes;
}

__device__ __forceinline__ uint32_t tile_skew(uint32_t)
{
    return 0;
}

/* By all lanes of a warp. */
__device__ __forceinline__ void tile_fetch(uint32_t to, const uint8_t *from, int bytes, uint32_t,
                                           uint64_t policy)
{
    for (int i = 16 * (threadIdx.x & 31); i < bytes; i += 16 * 32)
        copy_16_once(to + i, from + i, policy);
}

/* At most n groups are on their way; n is not known to the compiler, and small. */
__device__ __forceinline__ void copies_wait_for(int n)
{
    static_assert(DECODE_MAX_PLACES / DECODE_WARPS <= 6, "there are cases for all");
    switch (n) {
    case 0:
        return copies_wait<0>();
    case 1:
        return copies_wait<1>();
    case 2:
        return copies_wait<2>();
    case 3:
        return copies_wait<3>();
    case 4:
        return copies_wait<4>();
    case 5:
        return copies_wait<5>();
    default:
        return copies_wait<6>();
    }
}

__device__ __forceinline__ void tile_wait(int n_places, uint32_t, uint32_t)
{
    copies_wait_for(n_places - 1);
    __syncwarp(); /* of the other lanes, too */
}

/* The ring was filled behind the input; one that is made here has nothing to wait for. */
__device__ __forceinline__ void input_wait(int n_places, bool is_made)
{
    if (!is_made)
        copies_wait_for(n_places);
}

__device__ __forceinline__ void input_end()
{
    copies_wait<0>();
}

#endif

/* The places that a warp has of a ring. */
__device__ __forceinline__ int places_of(int n_places, int warp)
{
    return (n_places - warp + DECODE_WARPS - 1) / DECODE_WARPS;
}

/* Of the planes in shared memory. */
__device__ __forceinline__ int vector_bytes(const decode_vector &v)
{
    return 2 * v.k * act_value_bytes((gpu_act)v.act) + v.k / GPU_GROUP * 8;
}

/* Row i of a block's sums: those of its warps, added up. */
__device__ __forceinline__ float slot_sum(const float *slots, int n_slots, int i)
{
    float sums[4] = {0, 0, 0, 0}; /* short chains */
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++)
        sums[w % 4] += slots[w * n_slots * TILE_ROWS + i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Row i when all tiles are multiplied: of sums as above, or of rows that are added up already. */
__device__ __forceinline__ float row_sum(const float *sums, int n_slots, int i)
{
#ifdef HAS_ROUNDS
    return sums[i];
#else
    return slot_sum(sums, n_slots, i);
#endif
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

#endif
