/*
 * Keys and values of heads, made of the latents of a context, for prompts (plan/latents.h has the
 * sums, launch_latent.c the order).
 *
 *     latent_matrix_*   the matrices of heads, tiles of their type, become rows of f16: one for each
 *                       value that is made of a latent
 *     latent_make       latents, straight from the pages of the cache, times these rows
 *     latent_turned     the part of keys that is of the position goes behind, for all heads the same
 *
 * What comes out lies in pages like those of a cache of f16, so that the kernels of plain attention
 * read it.
 */
#include "backend/cuda/attend_rows.cuh"
#include "backend/cuda/batch_unpack.cuh"
#include "backend/cuda/latent_params.h"

/* ---- Matrices -------------------------------------------------------------------------------- */

/* A warp has 16 rows and 64 columns of a matrix. Int kinds are 256 times as large as they should
 * be, see batch_unpack.cuh. */
template <int KIND> static __device__ __forceinline__ void unpack_matrix(const latent_matrix &p)
{
    constexpr bool IS_HALF = KIND == TILE_F16 || KIND == TILE_BF16;
    constexpr int COLS = IS_HALF ? 64 : 256, STEPS = COLS / 64;
    const int lane = threadIdx.x & 31, r = lane >> 2, c = lane & 3;
    const int i = blockIdx.x * LATENT_MATRIX_WARPS + (threadIdx.x >> 5);
    const int n_steps = (p.n_cols + 63) / 64, n_tiles = (p.n_cols + COLS - 1) / COLS;
    const int group = i / n_steps, step = i % n_steps;
    if (16 * group >= p.n_rows)
        return;
    const uint8_t *t = p.tiles + blockIdx.y * p.head_bytes +
                       ((uint64_t)group * n_tiles + step / STEPS) * tile<KIND>::BYTES;
    uint16_t *out = p.out + (uint64_t)blockIdx.y * p.n_rows * p.n_cols;
    tile<KIND> of;
    uint32_t a[16];
    of.begin(t, lane);
    of.step(t, lane, step % STEPS, a);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int pair = k >> 2, e = k & 1, row = 16 * group + r + 8 * (k >> 1 & 1);
            const int at = IS_HALF ? 16 * n + 4 * c + 2 * pair + e
                                   : 32 * (n >> 1) + 8 * c + 4 * (n & 1) + pair + 2 * e;
            const int col = 64 * step + at;
            const uint32_t two = a[4 * n + 2 * pair + (k >> 1 & 1)];
            if (row < p.n_rows && col < p.n_cols)
                out[p.is_turned ? (int64_t)col * p.n_rows + row : (int64_t)row * p.n_cols + col] =
                    (uint16_t)(e ? two >> 16 : two);
        }
}

#define LATENT_MATRIX(kind)                                                                        \
    extern "C" __global__ void __launch_bounds__(32 * LATENT_MATRIX_WARPS)                         \
        latent_matrix_##kind(const __grid_constant__ latent_matrix p)                              \
    {                                                                                              \
        launch_next();                                                                             \
        wait_previous();                                                                           \
        unpack_matrix<TILE_##kind>(p);                                                             \
    }
LATENT_MATRIX(F16)
LATENT_MATRIX(BF16)
LATENT_MATRIX(Q8_0)
LATENT_MATRIX(Q8_1)
LATENT_MATRIX(Q4_0)
LATENT_MATRIX(Q4_1)
LATENT_MATRIX(NL4)
LATENT_MATRIX(FP4)
LATENT_MATRIX(Q2_K)
LATENT_MATRIX(Q4_K)
LATENT_MATRIX(Q5_K)
LATENT_MATRIX(IQ4_XS)
LATENT_MATRIX(Q6_K)

/* ---- Keys and values ------------------------------------------------------------------------- */

enum { ROWS = LATENT_MAKE_ROWS, COLS = LATENT_MAKE_COLS, DEPTH = LATENT_MAKE_DEPTH };
enum { STRIDE = LATENT_MAKE_STRIDE, STAGES = LATENT_MAKE_STAGES, THREADS = LATENT_MAKE_THREADS };
enum { CHUNKS = DEPTH / 8, LINES = THREADS / CHUNKS, MINE = ROWS / LINES };
static_assert(ROWS == COLS && ROWS % LINES == 0, "a thread brings as many rows of both");

/* What a thread brings to shared memory: 16 bytes of these positions and of these columns. NULL:
 * zeros. */
struct mine_of {
    const uint8_t *latents[MINE];
    const uint16_t *rows[MINE];
};

static __device__ __forceinline__ mine_of find_mine(const latent_keys &p)
{
    const int32_t *table = cache_table(p.cache, p.cache.sequences[p.token0]);
    mine_of out;
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const int line = threadIdx.x / CHUNKS + i * LINES;
        const int position = blockIdx.y * ROWS + line, column = blockIdx.x * COLS + line;
        out.latents[i] =
            position < p.n_positions ? cache_keys(p.cache, p.page_shift, table, 0, position) : NULL;
        out.rows[i] = column < p.n_heads * p.n_each ? p.matrix + (int64_t)column * p.rank : NULL;
    }
    return out;
}

static __device__ __forceinline__ void fetch(const latent_keys &p, const mine_of &mine, int step,
                                             uint8_t *to)
{
    const int at = step * DEPTH + threadIdx.x % CHUNKS * 8;
    uint8_t *place = to + threadIdx.x / CHUNKS * STRIDE + threadIdx.x % CHUNKS * 16;
    const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        uint8_t *a = place + i * LINES * STRIDE, *b = a + ROWS * STRIDE;
        const bool is_inside = at < p.rank;
        if (!is_inside || !mine.latents[i])
            *(uint4 *)a = none;
        else if (p.cache.type == DTYPE_F16)
            copy_16(a, mine.latents[i] + 2 * at);
        else
            *(uint4 *)a = cache_load8(p.cache.type, mine.latents[i], at);
        if (!is_inside || !mine.rows[i])
            *(uint4 *)b = none;
        else
            copy_16(b, (const uint8_t *)(mine.rows[i] + at));
    }
    copies_end();
}

/* A warp has 32 positions and 64 columns: sums of 2 by 8 matrix instructions. */
static __device__ __forceinline__ void multiply(float (&sums)[2][8][4], uint32_t a_at,
                                                uint32_t b_at)
{
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_matrix(a[m], a_at + 16 * m * STRIDE + 32 * k);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t b[4];
            load_matrix(b, b_at + 16 * n * STRIDE + 32 * k);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                mma_f16(sums[m][2 * n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
                mma_f16(sums[m][2 * n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
            }
        }
    }
}

static __device__ __forceinline__ uint8_t *row_of(const latent_keys &p, int head, int position)
{
    const int page = position / LATENT_PAGE, in_page = position % LATENT_PAGE;
    return p.out + (((int64_t)page * p.n_heads + head) * LATENT_PAGE + in_page) * p.row_bytes;
}

/* blockIdx.x: columns, those of all heads one after the other; y: positions. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    latent_make(const __grid_constant__ latent_keys p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, quad = lane & 3;
    const int row0 = warp % 4 * 32, col0 = warp / 4 * 64;
    const int n_steps = (p.rank + DEPTH - 1) / DEPTH;
    constexpr int STAGE = (ROWS + COLS) * STRIDE;
    launch_next();
    wait_previous();
    const mine_of mine = find_mine(p);
    float sums[2][8][4];
#pragma unroll
    for (int i = 0; i < 64; i++)
        sums[i / 32][i / 4 % 8][i % 4] = 0;
    const uint32_t a_at = shared_u32(shared) + (row0 + (lane & 15)) * STRIDE + (lane >> 4) * 16;
    const uint32_t b_at = shared_u32(shared) +
                          (ROWS + col0 + (lane & 7) + (lane >> 4) * 8) * STRIDE +
                          (lane >> 3 & 1) * 16;
    for (int i = 0; i < STAGES - 1; i++)
        if (i < n_steps)
            fetch(p, mine, i, shared + i * STAGE);
        else
            copies_end();
    static_assert(STAGES == 3, "all but the last copies are there");
    for (int i = 0; i < n_steps; i++) {
        copies_wait_first();
        __syncthreads();
        if (i + STAGES - 1 < n_steps)
            fetch(p, mine, i + STAGES - 1, shared + (i + STAGES - 1) % STAGES * STAGE);
        else
            copies_end();
        const uint32_t stage = i % STAGES * STAGE;
        multiply(sums, a_at + stage, b_at + stage);
    }
    const int n_rows = (p.n_positions + LATENT_PAGE - 1) / LATENT_PAGE * LATENT_PAGE;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const int column = blockIdx.x * COLS + col0 + 8 * n + 2 * quad;
        const int head = column / p.n_each, at = column % p.n_each;
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int position = blockIdx.y * ROWS + row0 + 8 * m + r;
            const float *x = &sums[m / 2][n][m % 2 * 2];
            if (head < p.n_heads && position < n_rows)
                *(uint32_t *)(row_of(p, head, position) + 2 * at) =
                    pack_f16(x[0] * p.scale, x[1] * p.scale);
        }
    }
}

/* A block for each position of a page that is there: what is turned, behind what was made. */
extern "C" __global__ void __launch_bounds__(128)
    latent_turned(const __grid_constant__ latent_keys p)
{
    launch_next();
    wait_previous();
    const int position = blockIdx.x, n_chunks = p.n_turned / 8;
    if (threadIdx.x == 0 && position % LATENT_PAGE == 0)
        p.table[position / LATENT_PAGE] = position / LATENT_PAGE;
    if (position >= p.n_positions) { /* nobody sees it, but it is multiplied */
        for (int i = threadIdx.x; i < p.n_heads * n_chunks; i += 128)
            *(uint4 *)(row_of(p, i / n_chunks, position) + 2 * (p.n_each + i % n_chunks * 8)) =
                make_uint4(0, 0, 0, 0);
        return;
    }
    const int32_t *table = cache_table(p.cache, p.cache.sequences[p.token0]);
    const uint8_t *row = cache_keys(p.cache, p.page_shift, table, 0, position);
    for (int i = threadIdx.x; i < p.n_heads * n_chunks; i += 128)
        *(uint4 *)(row_of(p, i / n_chunks, position) + 2 * (p.n_each + i % n_chunks * 8)) =
            cache_load8(p.cache.type, row, p.rank + i % n_chunks * 8);
}
