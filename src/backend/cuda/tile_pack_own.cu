/*
 * Blocks of lace's own types to tiles (gpu_tiles.h), and the rotation of rows that meet them. A block
 * of threads for each tile, a thread for each word.
 */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/tile_dot.cuh"
#include "tensor/blocks.h"
#include "tensor/dtype_list.h"

enum { THREADS = 256 };

/* clang-format off */
static __constant__ int8_t levels_2[] = {-127, -38, 38, 127};
static __constant__ int8_t levels_5[] = {
    -127, -105, -90, -79, -70, -61, -54, -47, -41, -35, -29, -24, -18, -13, -8, -3,
    3, 8, 13, 18, 24, 29, 35, 41, 47, 54, 61, 70, 79, 90, 105, 127};
static __constant__ int8_t levels_6[] = {
    -127, -110, -99, -91, -84, -78, -73, -68, -64, -60, -56, -53, -49, -46, -43, -40,
    -38, -35, -32, -30, -27, -24, -22, -20, -17, -15, -13, -10, -8, -6, -3, -1,
    1, 3, 6, 8, 10, 13, 15, 17, 20, 22, 24, 27, 30, 32, 35, 38,
    40, 43, 46, 49, 53, 56, 60, 64, 68, 73, 78, 84, 91, 99, 110, 127};
/* clang-format on */

/* A code of a part of 32 values, as s_codes_unpack of tensor/levels.h. */
static __device__ int code_of(int n_bits, const uint8_t *part, int value)
{
    const int k = value / 4;
    uint32_t w[6];
#pragma unroll
    for (int n = 0; n < 6; n++)
        w[n] = n < n_bits ? part[4 * n + value % 4] : 0;
    uint32_t c;
    switch (n_bits) {
    case 2:
        c = (k < 4 ? w[0] : w[1]) >> 2 * (k % 4);
        break;
    case 3:
        c = k < 2    ? w[0] >> 3 * k
            : k < 4  ? w[1] >> 3 * (k - 2)
            : k < 6  ? w[2] >> 3 * (k - 4)
            : k == 6 ? w[0] >> 6 | (w[2] >> 6 & 1) << 2
                     : w[1] >> 6 | (w[2] >> 7 & 1) << 2;
        break;
    case 4:
        c = (k % 4 == 0 ? w[0] : k % 4 == 1 ? w[1] : k % 4 == 2 ? w[2] : w[3]) >> 4 * (k / 4);
        break;
    case 5:
        c = k == 0   ? w[0]
            : k == 1 ? w[1]
            : k == 2 ? w[2]
            : k == 3 ? w[3]
            : k == 4 ? w[4]
            : k == 5 ? w[0] >> 5 | (w[3] >> 5 & 3) << 3
            : k == 6 ? w[1] >> 5 | (w[3] >> 7 & 1) << 3 | (w[4] >> 7 & 1) << 4
                     : w[2] >> 5 | (w[4] >> 5 & 3) << 3;
        break;
    default:
        c = k == 0   ? w[0]
            : k == 1 ? w[1]
            : k == 2 ? w[2]
            : k == 3 ? w[3]
            : k == 4 ? w[4]
            : k == 5 ? w[5]
            : k == 6 ? w[0] >> 6 | w[1] >> 6 << 2 | w[2] >> 6 << 4
                     : w[3] >> 6 | w[4] >> 6 << 2 | w[5] >> 6 << 4;
    }
    return (int)(c & ((1u << n_bits) - 1));
}

/* The value of a block that a column of tiles has (gpu_tiles.h). */
static __device__ int own_value(int col)
{
    return 16 * (col & 7) + (col >> 3 & 15);
}

struct own_source {
    const gpu_pack *p;
    int row0, col0, block_bytes, n_bits;

    /* The block of 128 values that a value of the tile is in, or NULL outside of the matrix. */
    __device__ const uint8_t *block_at(int row, int col) const
    {
        int y = row0 + row, x = col0 + col;
        if (y >= p->n_rows || x >= p->n_cols)
            return nullptr;
        return p->blocks + (uint64_t)y * p->row_bytes + (uint64_t)(x / 128) * block_bytes;
    }

    __device__ int code_at(int row, int col) const
    {
        const uint8_t *b = block_at(row, col);
        int v = own_value(col0 + col);
        return b ? code_of(n_bits, b + 1 + v / 32 * (4 * n_bits), v % 32) : 0;
    }

    /* For tiles of bytes. */
    __device__ int value_at(int row, int col) const
    {
        if (p->type == DTYPE_S8) {
            const uint8_t *b = block_at(row, col);
            return b ? (int8_t)b[1 + own_value(col0 + col)] : 0;
        }
        int code = code_at(row, col);
        return n_bits == 2 ? levels_2[code] : n_bits == 5 ? levels_5[code] : levels_6[code];
    }
};

static __device__ int bits_of(int type)
{
    return type == DTYPE_S2   ? 2
           : type == DTYPE_S3 ? 3
           : type == DTYPE_S4 ? 4
           : type == DTYPE_S5 ? 5
           : type == DTYPE_S6 ? 6
                              : 8;
}

extern "C" __global__ void __launch_bounds__(THREADS) pack_tiles_own(gpu_pack p, int kind)
{
    int n_tiles = (p.n_cols + 255) / 256, n_bits = bits_of(p.type);
    own_source s = {&p, (int)(blockIdx.x / n_tiles) * 16, (int)(blockIdx.x % n_tiles) * 256,
                    1 + 16 * n_bits, n_bits};
    int n_quants = kind == TILE_S3 ? 1536 : kind == TILE_S4 ? 2048 : 4096;
    uint8_t *tile = p.tiles + (uint64_t)blockIdx.x * (n_quants + 32);
    /* Words of 4 bytes: word i of a lane belongs to row r + 8 (i & 1), columns 8 c + 4 (i / 2). */
    for (int at = threadIdx.x; at < n_quants / 4; at += THREADS) {
        int lane = at % 128 / 4, x = at % 4, y = at / 128;
        uint32_t word = 0;
        if (kind == TILE_S3) { /* y: which of the three; x: j */
            for (int n = 0; n < 8; n++) {
                int col = 32 * (2 * x + n / 4) + 8 * (lane % 4) + n % 4;
                int code = s.code_at(lane / 4 + 8 * (y & 1), col + 4 * (y / 2));
                int last = s.code_at(lane / 4 + 8, col + 4);
                word |= (uint32_t)(code | (last >> y & 1) << 3) << 4 * n;
            }
        } else {
            int row = lane / 4 + 8 * (x & 1), col = 8 * (lane % 4) + 4 * (x / 2);
            for (int n = 0; kind == TILE_S4 && n < 8; n++) {
                int code = s.code_at(row, col + n % 4 + 64 * y + 32 * (n / 4));
                word |= (uint32_t)(code < 8 ? 15 - code : code - 8) << 4 * n;
            }
            for (int b = 0; kind == TILE_S8 && b < 4; b++)
                word |= ((uint32_t)s.value_at(row, col + b + 32 * y) & 255) << 8 * b;
        }
        ((uint32_t *)tile)[at] = word;
    }
    for (int o = threadIdx.x; o < 32; o += THREADS) {
        const uint8_t *b = s.block_at(o / 2, 128 * (o % 2));
        tile[n_quants + o] = b ? b[0] : 0;
    }
}

/*
 * Rows of floats, rotated, in the order of tiles; a warp for each 128 values, lane l has columns 4 l
 * to 4 l + 3. width is a multiple of 128.
 */
extern "C" __global__ void __launch_bounds__(THREADS) rotate_rows(gpu_rows p)
{
    launch_next();
    wait_previous();
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const float *x = p.x + (int64_t)blockIdx.x * p.x_stride;
    float *y = p.y + (int64_t)blockIdx.x * p.y_stride;
    for (int i = 128 * warp; i < p.width; i += 4 * THREADS) {
        float v[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int at = own_value(4 * lane + n);
            v[n] = x[i + at] * rotation_sign(at);
        }
        float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
        v[0] = a + c, v[1] = b + d, v[2] = a - c, v[3] = b - d;
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int o = 1; o < 32; o <<= 1)
                v[n] = rotation_step(v[n], lane, o, o);
        }
        *(float4 *)(y + i + 4 * lane) = make_float4(v[0], v[1], v[2], v[3]);
    }
}
