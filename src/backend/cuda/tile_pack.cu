/*
 * Blocks of a file to tiles (gpu_tiles.h): a block of threads for each tile, a thread for each byte
 * or scale of it. Bytes are gathered one by one: loading a model is bound by the way to the card.
 */
#include "backend/cuda/block_values.cuh"
#include "backend/cuda/gpu_params.h"
#include "backend/cuda/gpu_tiles.h"

enum { THREADS = 256 };

/* Where the tile of this block begins, and the rows that it is made of. */
struct source {
    const gpu_pack *p;
    int row0, col0;
};

/* The block that holds value (row, col) of the tile, or NULL outside of the matrix. */
__device__ __forceinline__ const uint8_t *block_at(const source &s, int row, int col, int n_values,
                                                   int n_bytes)
{
    int y = s.row0 + row, x = s.col0 + col;
    if (y >= s.p->n_rows || x >= s.p->n_cols)
        return nullptr;
    return s.p->blocks + (uint64_t)y * s.p->row_bytes + (uint64_t)(x / n_values) * n_bytes;
}

struct block_size {
    int n_values, n_bytes;
};

__device__ __forceinline__ block_size size_of(int type)
{
    switch (type) {
#define X(id, name, number, n_values, n_bytes)                                                     \
    case DTYPE_##id:                                                                               \
        return {n_values, n_bytes};
#include "tensor/dtype.def"
#undef X
    }
    return {1, 0};
}

__device__ __forceinline__ int quant_at(const source &s, block_size size, int row, int col)
{
    const uint8_t *b = block_at(s, row, col, size.n_values, size.n_bytes);
    return b ? block_quant(s.p->type, b, (s.col0 + col) % size.n_values) : 0;
}

/* Row and column of byte `at` of 512 bytes: 16 of each lane. */
__device__ __forceinline__ void place_of(int at, int *row, int *col)
{
    int lane = at / 16, i = at % 16 / 4, b = at % 4;
    *row = lane / 4 + 8 * (i & 1);
    *col = 8 * (lane % 4) + 4 * (i / 2) + b;
}

__device__ __forceinline__ void pack_nibbles(const source &s, block_size size, uint8_t *tile)
{
    for (int o = threadIdx.x; o < 2048; o += THREADS) {
        int row, col;
        place_of(o % 512, &row, &col);
        col += 64 * (o / 512);
        int low = quant_at(s, size, row, col), high = quant_at(s, size, row, col + 32);
        tile[o] = (uint8_t)((low & 15) | (high & 15) << 4);
    }
}

/* f16 scales (at byte 0 of a block) or mins (at byte 2), [16 rows][2 parities][4]. */
__device__ __forceinline__ void pack_scales(const source &s, block_size size, int at, uint8_t *out)
{
    for (int o = threadIdx.x; o < 128; o += THREADS) {
        int row = o / 8, sub = 2 * (o % 4) + o / 4 % 2;
        const uint8_t *b = block_at(s, row, 32 * sub, size.n_values, size.n_bytes);
        uint16_t v = 0;
        if (b && s.p->type == DTYPE_MXFP4) {
            float d = e8m0_half(b[0]);
            v = __half_as_ushort(__float2half_rn(d));
            if (__half2float(__ushort_as_half(v)) != d)
                *s.p->error = 1;
        } else if (b) {
            v = (uint16_t)load_u16_at(b + at);
        }
        ((uint16_t *)out)[o] = v;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) pack_tiles_small(gpu_pack p, int kind)
{
    int n_tiles = (p.n_cols + 255) / 256;
    source s = {&p, (int)(blockIdx.x / n_tiles) * 16, (int)(blockIdx.x % n_tiles) * 256};
    block_size size = size_of(p.type);
    bool has_bytes = kind == TILE_Q8_0 || kind == TILE_Q8_1;
    bool has_mins = kind == TILE_Q4_1 || kind == TILE_Q8_1;
    int n_quants = has_bytes ? 4096 : 2048;
    uint8_t *tile = p.tiles + (uint64_t)blockIdx.x * (n_quants + (has_mins ? 512 : 256));
    if (has_bytes) {
        for (int o = threadIdx.x; o < 4096; o += THREADS) {
            int row, col;
            place_of(o % 512, &row, &col);
            tile[o] = (uint8_t)quant_at(s, size, row, col + 32 * (o / 512));
        }
    } else {
        pack_nibbles(s, size, tile);
    }
    pack_scales(s, size, 0, tile + n_quants);
    if (has_mins)
        pack_scales(s, size, 2, tile + n_quants + 256);
}

extern "C" __global__ void __launch_bounds__(THREADS) pack_tiles_k(gpu_pack p, int kind)
{
    int n_tiles = (p.n_cols + 255) / 256;
    source s = {&p, (int)(blockIdx.x / n_tiles) * 16, (int)(blockIdx.x % n_tiles) * 256};
    block_size size = size_of(p.type);
    int n_quants = kind == TILE_Q5_K ? 2560 : 2048;
    uint8_t *tile = p.tiles + (uint64_t)blockIdx.x * (n_quants + 256);
    pack_nibbles(s, size, tile);
    if (kind == TILE_Q5_K) {
        /* Byte o holds, of one value in each of the 8 sub-blocks, the fifth bit. */
        for (int o = threadIdx.x; o < 512; o += THREADS) {
            int row, col, bits = 0;
            place_of(o, &row, &col);
            for (int sub = 0; sub < 8; sub++)
                bits |= (quant_at(s, size, row, col + 32 * sub) >> 4 & 1) << sub;
            tile[2048 + o] = (uint8_t)bits;
        }
    }
    uint16_t *header = (uint16_t *)(tile + n_quants);
    uint32_t *packed = (uint32_t *)(tile + n_quants + 64);
    for (int o = threadIdx.x; o < 32; o += THREADS) { /* d and dmin: r, then r + 8 */
        int row = o / 4 + 8 * (o / 2 % 2), is_min = o % 2;
        const uint8_t *b = block_at(s, row, 0, size.n_values, size.n_bytes);
        bool has = b && !(is_min && p.type == DTYPE_IQ4_XS);
        header[o] = has ? (uint16_t)load_u16_at(b + 2 * is_min) : (uint16_t)0;
    }
    for (int o = threadIdx.x; o < 16; o += THREADS) { /* r, parity */
        uint64_t bits[2] = {0, 0};
        for (int h = 0; h < 2; h++) {
            const uint8_t *b = block_at(s, o / 2 + 8 * h, 0, size.n_values, size.n_bytes);
            for (int j = 0; b && j < 4; j++) {
                int scale, min = 0, sub = 2 * j + o % 2;
                if (p.type == DTYPE_IQ4_XS)
                    scale = iq4_xs_scale((const block_iq4_xs *)b, sub);
                else
                    k_scale_min(b + 4, sub, &scale, &min);
                bits[h] |= (uint64_t)scale << (6 * j) | (uint64_t)min << (24 + 6 * j);
            }
        }
        packed[3 * o] = (uint32_t)bits[0];
        packed[3 * o + 1] = (uint32_t)(bits[0] >> 32) | (uint32_t)bits[1] << 16;
        packed[3 * o + 2] = (uint32_t)(bits[1] >> 16);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) pack_tiles_q2_k(gpu_pack p, int kind)
{
    int n_tiles = (p.n_cols + 255) / 256;
    source s = {&p, (int)(blockIdx.x / n_tiles) * 16, (int)(blockIdx.x % n_tiles) * 256};
    block_size size = size_of(p.type);
    uint8_t *tile = p.tiles + (uint64_t)blockIdx.x * TILE_BYTES_Q2_K;
    for (int o = threadIdx.x; o < 1024; o += THREADS) {
        int row, col, bits = 0;
        place_of(o % 512, &row, &col);
        for (int n = 0; n < 4; n++)
            bits |= quant_at(s, size, row, col + 32 * (4 * (o / 512) + n)) << (2 * n);
        tile[o] = (uint8_t)bits;
    }
    for (int o = threadIdx.x; o < 256; o += THREADS) {
        int lane = o / 8, row = lane / 4 + 8 * (o / 4 % 2), group = 4 * (o % 4) + lane % 4;
        const uint8_t *b = block_at(s, row, 0, size.n_values, size.n_bytes);
        tile[1024 + o] = b ? ((const block_q2_k *)b)->scales[group] : (uint8_t)0;
    }
    for (int o = threadIdx.x; o < 32; o += THREADS) {
        const uint8_t *b = block_at(s, o / 4 + 8 * (o / 2 % 2), 0, size.n_values, size.n_bytes);
        const uint16_t *d = &((const block_q2_k *)b)->scale;
        ((uint16_t *)(tile + 1280))[o] = b ? (uint16_t)load_u16_at(d + o % 2) : (uint16_t)0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) pack_tiles_q6_k(gpu_pack p, int kind)
{
    int n_tiles = (p.n_cols + 255) / 256;
    source s = {&p, (int)(blockIdx.x / n_tiles) * 16, (int)(blockIdx.x % n_tiles) * 256};
    block_size size = size_of(p.type);
    uint8_t *tile = p.tiles + (uint64_t)blockIdx.x * TILE_BYTES_Q6_K;
    pack_nibbles(s, size, tile);
    for (int o = threadIdx.x; o < 1024; o += THREADS) {
        /* Byte b of sub-block `sub` in a lane: the high bits of its four words. */
        int lane = o % 512 / 16, sub = 4 * (o / 512) + o % 16 / 4, b = o % 4, bits = 0;
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + 8 * (i & 1), col = 32 * sub + 8 * (lane % 4) + 4 * (i / 2) + b;
            bits |= (quant_at(s, size, row, col) >> 4 & 3) << (2 * i);
        }
        tile[2048 + o] = (uint8_t)bits;
    }
    for (int o = threadIdx.x; o < 256; o += THREADS) {
        int lane = o / 8, row = lane / 4 + 8 * (o / 4 % 2), group = 4 * (o % 4) + lane % 4;
        const uint8_t *b = block_at(s, row, 0, size.n_values, size.n_bytes);
        int scale = 0;
        if (b && p.type == DTYPE_Q6_K)
            scale = ((const block_q6_k *)b)->scales[group];
        else if (b)
            scale = q3_k_scale(((const block_q3_k *)b)->scales, group) - 32;
        tile[3072 + o] = (uint8_t)scale;
    }
    for (int o = threadIdx.x; o < 16; o += THREADS) {
        const uint8_t *b = block_at(s, o / 2 + 8 * (o % 2), 0, size.n_values, size.n_bytes);
        const void *d = p.type == DTYPE_Q6_K ? (const void *)&((const block_q6_k *)b)->scale
                                             : (const void *)&((const block_q3_k *)b)->scale;
        ((uint16_t *)(tile + 3328))[o] = b ? (uint16_t)load_u16_at(d) : (uint16_t)0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) pack_tiles_half(gpu_pack p, int kind)
{
    int n_tiles = (p.n_cols + 63) / 64;
    int row0 = (int)(blockIdx.x / n_tiles) * 16, col0 = (int)(blockIdx.x % n_tiles) * 64;
    uint16_t *tile = (uint16_t *)(p.tiles + (uint64_t)blockIdx.x * TILE_BYTES_F16);
    for (int o = threadIdx.x; o < 1024; o += THREADS) {
        int j = o / 256, lane = o % 256 / 8, i = o % 8 / 2, h = o % 2;
        int row = row0 + lane / 4 + 8 * (i & 1);
        int col = col0 + 16 * j + 4 * (lane % 4) + 2 * (i / 2) + h;
        uint16_t v = 0;
        if (row < p.n_rows && col < p.n_cols) {
            const uint8_t *at = p.blocks + (uint64_t)row * p.row_bytes;
            if (p.type == DTYPE_F16 || p.type == DTYPE_BF16)
                v = (uint16_t)load_u16_at(at + 2 * (uint64_t)col);
            else
                v = __half_as_ushort(__float2half_rn(block_value(p.type, at, col)));
        }
        tile[o] = v;
    }
}
