/* Rows of f32 to the atoms of int8 products. */
#include "backend/cuda/bytes_common.cuh"
#include "backend/cuda/bytes_params.h"
#include "backend/cuda/rotate_rows.cuh"

enum { BYTES_WARPS = 8 };

/* A warp for each row and 256 columns: blockIdx.x has 8 rows, blockIdx.y the columns. */
extern "C" __global__ void __launch_bounds__(32 * BYTES_WARPS)
    batch_bytes_rows(const __grid_constant__ batch_bytes p)
{
    const int row = blockIdx.x * BYTES_WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    const int k = blockIdx.y * BYTES_UNIT_K + 8 * lane;
    launch_next();
    wait_previous();
    const int from = row >= p.n_rows ? -1 : p.map ? p.map[row] : row;
    const float *x = p.x + (from < 0 ? 0 : from) * p.x_stride;
    const int width = from < 0 ? 0 : p.width;
    float v[8];
    if (p.rotates) {
        const int first = k >> 3 & 15;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int at = (k & ~127) + 16 * i + first;
            v[i] = at < width ? x[at] : 0.0f;
        }
        rotate_values(v, first);
    } else if (((size_t)x & 15) == 0 && k + 8 <= width) {
        const float4 a = *(const float4 *)(x + k), b = *(const float4 *)(x + k + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = k + i < width ? x[k + i] : 0.0f;
    }
    if (lane == 0 && blockIdx.y == 0 && row < p.n_rows)
        p.ones[row] = 1;
    bytes_store8(p.out, p.units, blockIdx.y, row, p.n_rows, v, lane);
}
