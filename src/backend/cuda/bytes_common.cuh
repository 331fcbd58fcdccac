/*
 * Activations of int8 products: "atoms" of 8 rows (tokens) by 128 values, 1024 bytes, in the order in
 * which the tensor cores read shared memory:
 *
 *     x[k / 128][row / 8] -> 1024 bytes: row % 8 -> 128 bytes: 8 chunks of 16 bytes
 *
 * Chunk number n of row i lies in place n ^ i. k is permuted as weights lie in the registers of a warp:
 *
 *     k = 32 s + 8 c + 4 h + b  ->  chunk 2 s + h, place 4 c + b
 *
 * 256 columns of a row share a unit: a value is unit * byte, byte = x * (127 / largest) rounded.
 * Weights come as bytes that are 128 too large, so -128 * unit * the sum of the bytes is kept beside.
 */
#ifndef LACE_KERNELS_CUDA_BYTES_COMMON_CUH
#define LACE_KERNELS_CUDA_BYTES_COMMON_CUH

#include "backend/cuda/batch_common.cuh"

enum { BYTES_K = 128, BYTES_UNIT_K = 256 };

static __device__ __forceinline__ uint32_t pack_bytes(int a, int b, int c, int d)
{
    uint32_t low = __byte_perm((uint32_t)a, (uint32_t)b, 0x0040);
    return __byte_perm(low, __byte_perm((uint32_t)c, (uint32_t)d, 0x0040), 0x5410);
}

/*
 * A warp makes 256 values of a row, 8 of each lane: k = 256 k256 + 8 lane. Backend ref does the same
 * (bytes_ref.c).
 */
static __device__ __forceinline__ void bytes_store8(uint8_t *x, float *units, int k256, int row,
                                                    int n_rows, const float (&v)[8], int lane)
{
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        most = fmaxf(most, fabsf(v[i]));
#pragma unroll
    for (int o = 16; o > 0; o >>= 1)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    const float inv = most > 1e-30f ? __fdiv_rn(127.0f, most) : 0.0f;
    int q[8], sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] = __float2int_rn(__fmul_rn(v[i], inv));
        sum += q[i];
    }
    sum = __reduce_add_sync(~0u, sum);
    const int n_atoms = (n_rows + 7) / 8;
    uint8_t *atom = x + ((size_t)(2 * k256 + (lane >> 4)) * n_atoms + (row >> 3)) * ATOM_BYTES +
                    (row & 7) * 128 + 4 * (lane & 3);
    const int chunk = 2 * (lane >> 2 & 3);
    *(uint32_t *)(atom + ((chunk ^ (row & 7)) << 4)) = pack_bytes(q[0], q[1], q[2], q[3]);
    *(uint32_t *)(atom + (((chunk + 1) ^ (row & 7)) << 4)) = pack_bytes(q[4], q[5], q[6], q[7]);
    if (lane == 0) {
        const float unit = most > 1e-30f ? __fmul_rn(most, 1.0f / 127) : 0.0f;
        *(float2 *)(units + 2 * ((size_t)k256 * n_atoms * 8 + row)) =
            make_float2(unit, __fmul_rn(-128.0f * unit, (float)sum));
    }
}

#endif
