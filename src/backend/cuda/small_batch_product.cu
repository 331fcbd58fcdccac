/*
 * Matrix products of up to 8 tokens (batched decode): weights stream through shared memory once, at
 * the speed of memory, and meet int8 slabs of activations (small_batch_tile.cuh).
 *
 * A block has a part of the rows and a part of K, at most 16 tiles of it: each warp has one column
 * of tiles, and with it one slab. It has places of a ring, which it fills again when it has
 * multiplied what was there. The sums of some rows of tiles meet in shared memory, in a fixed
 * order.
 */
#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/small_batch_common.cuh"
#include "backend/cuda/small_batch_tile.cuh"

#if __CUDA_ARCH__ == 900 /* others have too little shared memory */

/* Tiles begin at lines of 128 bytes, or anywhere in one. */
template <int KIND> __device__ constexpr int place_bytes()
{
    return tile_info<KIND>::bytes % 128 ? (tile_info<KIND>::bytes + 96 + 127) / 128 * 128
                                        : tile_info<KIND>::bytes;
}

/* What a block works on. */
struct small_work {
    const small_weight *weight;
    const uint8_t *tiles; /* of its first row of tiles and of the part */
    const uint8_t *x;     /* slabs of the part */
    float *out;           /* of the part and its first row */
    int row0, n_rows;     /* rows of tiles */
    int n_tiles;          /* of the part */
};

/* The sums of a lane (small_batch_tile.cuh) to their places. */
static __device__ __forceinline__ void small_store(const small_product &p, const small_work &w,
                                                   int row, int lane, const float (&y)[4])
{
    const float *bias = w.weight->bias;
    const int stride = w.weight->out_stride, token = 2 * (lane & 3);
    int at = row * TILE_ROWS + (lane >> 2);
    float *out = w.out + token * stride + at;
    at += w.row0 * TILE_ROWS;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int up = 8 * (e >> 1);
        if (at + up >= w.weight->n_rows || token + (e & 1) >= p.n_tokens)
            continue;
        float *to = out + (e & 1) * stride + up;
        float v = p.scale * y[e] + (bias ? bias[at + up] : 0.0f);
        *to = p.adds ? *to + v : v;
    }
}

/* Multiplies all tiles and stores the sums. */
template <int KIND, int TOKENS>
static __device__ __forceinline__ void small_tiles(const small_product &p, const small_work &w,
                                                   uint8_t *shared)
{
    constexpr int BYTES = tile_info<KIND>::bytes, PLACE = place_bytes<KIND>();
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    /* Warp n has column n % part_tiles of the tiles, and each n_sharing-th of its rows. */
    const int n_sharing = p.n_sharing, n_active = n_sharing * p.part_tiles;
    const int row_first = warp * p.tiles_inverse >> 16, column = warp - row_first * p.part_tiles;
    const bool is_active = warp < n_active && column < w.n_tiles;
    const int n_rows = is_active ? w.n_rows : 0; /* for this warp */
    const int n_places = min(p.ring_bytes / PLACE, (int)SMALL_MAX_PLACES);
    uint8_t *slab = shared + SMALL_X_AT + column * SMALL_SLAB_BYTES;
    uint8_t *slots = shared + SMALL_X_AT + p.part_tiles * SMALL_SLAB_BYTES;
    uint8_t *ring = slots + p.slot_bytes;
    const uint32_t filled = shared_u32(shared);
    const uint32_t arrived = filled + 8 * SMALL_MAX_PLACES + 8 * column;
    uint64_t policy = 0;

    auto address = [&](int row) {
        return w.tiles + (uint32_t)(row * p.n_tiles + column) * (uint32_t)BYTES;
    };
    auto skew = [&](int row) { return BYTES % 128 ? (uint32_t)(size_t)address(row) & 127 : 0u; };
    auto fill = [&](int place, int row) {
        bar_expect(filled + 8 * place, BYTES);
        copy_in_once(shared_u32(ring + place * PLACE) + skew(row), address(row), BYTES,
                     filled + 8 * place, policy);
    };
    int ahead = row_first; /* the row that is asked for next */
    if (lane == 0 && is_active) {
        for (int i = warp; i < n_places; i += n_active)
            bar_init(filled + 8 * i, 1);
        if (row_first == 0)
            bar_init(arrived, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        policy = policy_evict_first();
    }
#pragma unroll 1
    for (int i = warp; i < n_places && ahead < n_rows; i += n_active, ahead += n_sharing)
        if (lane == 0) /* weights never change: they need not wait */
            fill(i, ahead);
    __syncthreads();

    int place = warp, row = row_first;
    uint32_t parity = 0;
    /*
     * A kernel finds its code in no cache. So it multiplies before weights and input are there,
     * whatever lies in their places.
     */
    bool is_trial = true;
#pragma unroll 1
    for (int group = 0; group < w.n_rows; group += p.group_rows) {
        const int end = min(group + p.group_rows, w.n_rows);
        /* Sums of the last group but one have been read: its slots are free. */
        uint8_t *mine = slots;
        if (group & p.group_rows) /* groups are of a power of 2, unless there is one */
            mine += p.slot_bytes / 2;
#pragma unroll 1
        while (row < min(end, n_rows)) {
            float y[4];
            if (!is_trial)
                bar_wait(filled + 8 * place, parity);
            small_tile<KIND, TOKENS>::multiply(y, ring + place * PLACE + skew(row), slab, lane);
            *(float4 *)(mine + ((row - group) * p.part_tiles + column) * SMALL_SLOT_BYTES +
                        16 * lane) = make_float4(y[0], y[1], y[2], y[3]);
            if (is_trial) {
                is_trial = false;
                wait_previous();
                if (row_first == 0 && lane == 0) {
                    bar_expect(arrived, SMALL_SLAB_BYTES);
                    copy_in(shared_u32(slab), w.x + column * SMALL_SLAB_BYTES, SMALL_SLAB_BYTES,
                            arrived);
                }
                bar_wait(arrived, 0);
                continue;
            }
            __syncwarp(); /* everyone has read the place */
            if (lane == 0 && ahead < n_rows)
                fill(place, ahead);
            ahead += n_sharing;
            row += n_sharing;
            place += n_active;
            if (place >= n_places) {
                place = warp;
                parity ^= 1;
            }
        }
        if (is_trial) { /* nothing to multiply, but maybe to store */
            is_trial = false;
            wait_previous();
        }
        __syncthreads();
#pragma unroll 1
        for (int i = warp; i < end - group; i += SMALL_WARPS) {
            const uint8_t *slot = mine + i * p.part_tiles * SMALL_SLOT_BYTES + 16 * lane;
            float y[4] = {0, 0, 0, 0};
#pragma unroll 1
            for (int k = 0; k < w.n_tiles; k++) {
                float4 more = *(const float4 *)(slot + k * SMALL_SLOT_BYTES);
                y[0] += more.x, y[1] += more.y, y[2] += more.z, y[3] += more.w;
            }
            if constexpr (TOKENS <= 4) { /* the planes meet; other lanes have no tokens */
#pragma unroll
                for (int e = 0; e < 4; e++)
                    y[e] += __shfl_down_sync(~0u, y[e], 2, 4);
            }
            small_store(p, w, group + i, lane, y);
        }
    }
}

/* What this block has of the launch. */
template <int TOKENS> static __device__ __forceinline__ void small_block(const small_product &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    launch_next();
    int n = 0;
    while (n + 1 < p.n_weights && (int)blockIdx.x >= p.weights[n + 1].first_block)
        n++;
    const small_weight &weight = p.weights[n];
    const int block = (int)blockIdx.x - weight.first_block;
    const int part = block * weight.blocks_inverse >> 16, tile0 = part * p.part_tiles;
    const int b = block - part * weight.part_blocks;
    small_work w;
    w.weight = &weight;
    w.row0 = b * weight.block_rows + min(b, weight.n_larger);
    w.n_rows = weight.block_rows + (b < weight.n_larger);
    w.n_tiles = min(p.part_tiles, p.n_tiles - tile0);
    w.x = p.x + tile0 * SMALL_SLAB_BYTES;
    w.out = weight.out + part * weight.part_stride + w.row0 * TILE_ROWS;
    const int64_t first = (int64_t)w.row0 * p.n_tiles + tile0;
    switch (weight.kind) {
#define X(id, name, n_bytes, n_cols)                                                               \
    case TILE_##id:                                                                                \
        if constexpr (small_has_kind<TILE_##id>()) {                                               \
            w.tiles = weight.tiles + first * n_bytes;                                              \
            small_tiles<TILE_##id, TOKENS>(p, w, shared);                                          \
        }                                                                                          \
        break;
        TILE_LIST(X)
#undef X
    }
}

/* For up to so many tokens. Bounds for more threads than there are: at most 80 registers, so that
 * what comes next has room. */
#define SMALL_PRODUCT(tokens)                                                                      \
    extern "C" __global__ void __launch_bounds__(SMALL_THREADS * 3 / 2, 1)                         \
        small_product_##tokens(const __grid_constant__ small_product p)                            \
    {                                                                                              \
        small_block<tokens>(p);                                                                    \
    }
SMALL_PRODUCT(4)
SMALL_PRODUCT(8)

#endif

/*
 * 8 values of row t from k on, the sums of all parts. Rows and parts begin at multiples of 16
 * bytes, and their number is padded (small_batch_params.h).
 */
static __device__ __forceinline__ void rows_load8(float (&v)[8], const batch_sum &s, int t, int k)
{
    const float *part = s.parts + t * s.row_stride + k;
    float4 a = make_float4(0, 0, 0, 0), b = a;
    if (s.bias) {
        a = make_float4(s.bias[k], s.bias[k + 1], s.bias[k + 2], s.bias[k + 3]);
        b = make_float4(s.bias[k + 4], s.bias[k + 5], s.bias[k + 6], s.bias[k + 7]);
    }
#pragma unroll 2
    for (int n = 0; n < s.n_parts; n++, part += s.stride) {
        float4 c = *(const float4 *)part, d = *(const float4 *)(part + 4);
        a.x += c.x, a.y += c.y, a.z += c.z, a.w += c.w;
        b.x += d.x, b.y += d.y, b.z += d.z, b.w += d.w;
    }
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

/* blockIdx.y: a token of the 8; a warp for each slab. width is a multiple of 8. */
extern "C" __global__ void __launch_bounds__(128)
    small_slab_rows(const __grid_constant__ small_rows p)
{
    const int token = blockIdx.y, lane = threadIdx.x & 31;
    const int slab = (int)blockIdx.x * 4 + (threadIdx.x >> 5), k = slab * SMALL_COLS + 8 * lane;
    launch_next();
    wait_previous();
    if (slab * SMALL_COLS >= p.width)
        return;
    float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (token < p.n_rows && k < p.width) {
        rows_load8(v, p.first, token, k);
        if (p.glu >= 0) {
            float up[8];
            rows_load8(up, p.second, token, k);
            if (p.glu == 0) { /* apart, so that the usual way is short */
#pragma unroll
                for (int i = 0; i < 8; i++)
                    v[i] = glu_fast(0, v[i], up[i]);
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++)
                    v[i] = glu_fast(p.glu, v[i], up[i]);
            }
        }
        if (p.out) {
            float *out = p.out + token * p.out_stride + k;
            *(float4 *)out = make_float4(v[0], v[1], v[2], v[3]);
            *(float4 *)(out + 4) = make_float4(v[4], v[5], v[6], v[7]);
        }
    }
    slab_store8(p.slabs + slab * SMALL_SLAB_BYTES, token, v, lane);
}
