/*
 * Attention of a run of tokens of one sequence (prefill) by warpgroups, for caches of f16: a block
 * takes 128 rows, and keys and values in blocks of 128 positions.
 *
 * Rows are as in attend_run.cu. One warp lets the copy engine fetch pages, two stages ahead; each of
 * two groups of four warps has 64 rows:
 *
 *     pages  --boxes of 32 positions by 64 values, swizzled-->  shared memory (B)
 *     scores = queries (shared memory, A) x keys;  sums += shares (registers, A) x values
 *
 * A group asks for the next scores, then for the sums of the shares it has, and makes shares of the
 * scores while the sums are made. The groups take turns in asking: one has the tensor cores while
 * the other is at its softmax.
 *
 * In shared memory rows of 64 values lie 128 bytes apart, 16-byte chunk n of row i in place n ^ i % 8;
 * values 64 to 127 of all rows follow those before.
 */
#include "backend/cuda/attend_params.h"
#include "backend/cuda/attend_run.cuh"
#include "backend/cuda/batch_product.cuh"

enum {
    ROWS = ATTEND_GROUP_ROWS,
    KEYS = ATTEND_GROUP_KEYS,
    STAGES = ATTEND_GROUP_STAGES,
    GROUP = 128,         /* threads of a group */
    WORKERS = 2 * GROUP, /* threads of both */
    THREADS = 3 * GROUP, /* a third group leaves the others its registers; its first warp copies */
    PAGE = 32,           /* positions */
    PAGES = KEYS / PAGE, /* of a block of positions */
    HALF_BYTES = 128 * 128 /* 64 values of as many rows, or positions, as a block has */
};
static_assert(ROWS == 128 && KEYS == 128, "HALF_BYTES");

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- Products -------------------------------------------------------------------------------- */

#define SUMS_64                                                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                             \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define SUMS_32                                                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"

/* 64 rows of queries times 128 keys, 16 values deep; `adds`: to what is there. */
static __device__ __forceinline__ void multiply_keys(float (&d)[64], uint64_t a, uint64_t b,
                                                     int adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " SUMS_64
                 ", %64, %65, p, 1, 1, 0, 0;\n}"
                 : PRODUCT_16(d, 0), PRODUCT_16(d, 16), PRODUCT_16(d, 32), PRODUCT_16(d, 48)
                 : "l"(a), "l"(b), "r"(adds));
}

/* Shares of 16 positions times their values, which lie with the positions far apart. */
static __device__ __forceinline__ void multiply_values(float (&d)[64], const uint32_t *a,
                                                       uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " SUMS_64
                 ", {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}"
                 : PRODUCT_16(d, 0), PRODUCT_16(d, 16), PRODUCT_16(d, 32), PRODUCT_16(d, 48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

static __device__ __forceinline__ void multiply_values(float (&d)[32], const uint32_t *a,
                                                       uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SUMS_32
                 ", {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
                 : PRODUCT_16(d, 0), PRODUCT_16(d, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* The same for values: 8 positions are 1024 bytes apart, 64 values HALF_BYTES. */
static __device__ __forceinline__ uint64_t values_operand(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(HALF_BYTES >> 4) << 16 |
           (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

template <int D>
static __device__ __forceinline__ void ask_scores(float (&s)[64], uint32_t q_at, uint32_t k_at)
{
    const uint64_t q = product_operand(q_at), k = product_operand(k_at);
    product_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const int at = (i / 4 * HALF_BYTES + i % 4 * 32) >> 4;
        multiply_keys(s, q + at, k + at, i > 0);
    }
    product_end();
}

template <int D>
static __device__ __forceinline__ void ask_sums(float (&out)[D / 2], const uint32_t (&share)[32],
                                                uint32_t v_at)
{
    const uint64_t v = values_operand(v_at);
    product_begin();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        multiply_values(out, share + 4 * i, v + (i * 16 * 128 >> 4));
    product_end();
}

/* What was asked for is there: nothing that uses it comes before this. */
template <int N> static __device__ __forceinline__ void settle(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Barriers of named threads: 1 and 2 are the turns of the groups. */
enum { TURNS = 1, BOTH = 3 };

static __device__ __forceinline__ void meet(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"((int)WORKERS) : "memory");
}

static __device__ __forceinline__ void let_go(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"((int)WORKERS) : "memory");
}

/* What threads have written to shared memory is seen by tensor cores, once a barrier is met. */
static __device__ __forceinline__ void show_writes(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Shared memory of a block: queries, then the stages of keys, and those of values. */
template <int D> struct group_memory {
    static constexpr int BYTES = D / 64 * HALF_BYTES; /* of queries, and of a stage */
    uint32_t at;

    __device__ __forceinline__ uint32_t keys(int i) const
    {
        return at + (1 + i % STAGES) * BYTES;
    }
    __device__ __forceinline__ uint32_t values(int i) const
    {
        return at + (1 + STAGES + i % STAGES) * BYTES;
    }
    /* Barriers: keys are there, keys have been read, the same of values. */
    __device__ __forceinline__ uint32_t barrier(int which, int i) const
    {
        return at + (1 + 2 * STAGES) * BYTES + 8 * (which * STAGES + i % STAGES);
    }
};

enum { KEYS_THERE, KEYS_READ, VALUES_THERE, VALUES_READ };

/* The phase of a barrier that ends with the i-th block of positions. */
static __device__ __forceinline__ uint32_t phase_of(int i)
{
    return i / STAGES & 1;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ void copy_box(uint32_t to, const gpu_boxes &from, int column,
                                                int row, int page, uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(&from), "r"(column), "r"(row), "r"(page), "r"(bar)
                 : "memory");
}

/* One warp: the pages of all blocks of positions, those of a block by a lane for each box. */
template <int D>
static __device__ __forceinline__ void copy_pages(const batch_attend_boxes &p, const run_block &b,
                                                  const group_memory<D> &m, int first, int n_blocks,
                                                  int lane)
{
    const gpu_cache &c = p.in.a.cache;
    const int32_t *table = cache_table(c, c.sequences[b.token0]);
    const int part = lane % PAGES, half = lane / PAGES;
    const uint32_t place = half * HALF_BYTES + part * PAGE * 128;
    for (int i = 0; i < n_blocks; i++) {
        const int at = first + i * KEYS, n_pages = min((int)PAGES, (b.last - at) / PAGE + 1);
        const bool copies = half < D / 64 && part < n_pages;
        const int page = copies ? table[at / PAGE + part] : 0;
        const uint32_t n_bytes = n_pages * PAGE * 2 * D;
        if (i >= STAGES)
            bar_wait(m.barrier(KEYS_READ, i), phase_of(i - STAGES));
        if (lane == 0)
            bar_expect(m.barrier(KEYS_THERE, i), n_bytes);
        __syncwarp();
        if (copies)
            copy_box(m.keys(i) + place, p.keys, 64 * half, b.head * PAGE, page,
                     m.barrier(KEYS_THERE, i));
        if (i >= STAGES)
            bar_wait(m.barrier(VALUES_READ, i), phase_of(i - STAGES));
        if (lane == 0)
            bar_expect(m.barrier(VALUES_THERE, i), n_bytes);
        __syncwarp();
        if (copies)
            copy_box(m.values(i) + place, p.values, 64 * half, b.head * PAGE, page,
                     m.barrier(VALUES_THERE, i));
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

template <int D>
static __device__ __forceinline__ void put_queries(const gpu_attend &a, const run_block &b,
                                                   uint8_t *to)
{
    constexpr int CHUNKS = D / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += WORKERS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, t = row / b.per_head;
        float4 x = make_float4(0, 0, 0, 0), y = x;
        if (t < b.n_tokens) {
            const float *from = a.q + (int64_t)(b.token0 + t) * a.q_stride +
                                (b.head * b.per_head + row % b.per_head) * D + 8 * chunk;
            x = *(const float4 *)from;
            y = *(const float4 *)(from + 4);
        }
        *(uint4 *)(to + chunk / 8 * HALF_BYTES + row * 128 + ((chunk % 8 ^ row % 8) << 4)) =
            make_uint4(pack_f16(x.x, x.y), pack_f16(x.z, x.w), pack_f16(y.x, y.y),
                       pack_f16(y.z, y.w));
    }
}

/* Values behind the last position that is seen become 0: nothing was written there, and shares of 0
 * times that may be no number. */
template <int D> static __device__ __forceinline__ void clear_values(uint8_t *values, int n_seen)
{
    for (int i = n_seen * 8 + (int)threadIdx.x; i < KEYS * 8; i += WORKERS)
#pragma unroll
        for (int half = 0; half < D / 64; half++)
            *(uint4 *)(values + half * HALF_BYTES + 16 * i) = make_uint4(0, 0, 0, 0);
    show_writes();
    meet(BOTH);
}

/* The rows of a lane, row and row + 8, and their softmax, kept online. */
struct lane_rows {
    int position[2], end[2]; /* and what they see; -1: no such row */
    float unit;              /* scores times this are powers of 2 */
    float most[2], sum[2], fade[2];

    __device__ __forceinline__ lane_rows(const gpu_attend &a, const run_block &b, int row)
    {
        unit = a.softcap > 0 ? 1.0f : a.scale * LOG2_E;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int t = (row + 8 * i) / b.per_head;
            position[i] = t < b.n_tokens ? b.position0 + t : -1;
            end[i] = t < b.n_tokens ? last_seen(a, b.token0 + t, position[i]) : -1;
            most[i] = -INFINITY;
            sum[i] = 0;
        }
    }

    /* Without what a row does not see. */
    __device__ __forceinline__ void mask(const gpu_attend &a, float (&s)[64], int at,
                                         int quad) const
    {
#pragma unroll
        for (int n = 0; n < 64; n++) {
            const int key = at + n / 4 * 8 + 2 * quad + (n & 1), i = n >> 1 & 1;
            const bool is_seen = key <= end[i] && (a.window == 0 || key > position[i] - a.window);
            const float score = a.softcap > 0 ? finish_score(a, s[n]) : s[n];
            s[n] = is_seen ? score : -INFINITY;
        }
    }

    /* Scores become shares. */
    __device__ __forceinline__ void share(float (&s)[64])
    {
        float now[2] = {most[0], most[1]}, base[2];
#pragma unroll
        for (int n = 0; n < 64; n++)
            now[n >> 1 & 1] = fmaxf(now[n >> 1 & 1], s[n]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 1));
            now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 2));
            base[i] = now[i] == -INFINITY ? 0.0f : now[i] * unit;
            fade[i] = now[i] == -INFINITY ? 1.0f : power_of_2(most[i] * unit - base[i]);
            most[i] = now[i];
            sum[i] *= fade[i];
        }
#pragma unroll
        for (int n = 0; n < 64; n++) {
            s[n] = power_of_2(s[n] * unit - base[n >> 1 & 1]);
            sum[n >> 1 & 1] += s[n];
        }
    }
};

static __device__ __forceinline__ void pack_all(uint32_t (&share)[32], const float (&s)[64])
{
#pragma unroll
    for (int n = 0; n < 32; n++)
        share[n] = pack_shares(s[2 * n], s[2 * n + 1]);
}

/* A block of positions: its scores become shares while the shares of the one before are used. */
template <int D, bool WHOLE>
static __device__ __forceinline__ void
next_block(const gpu_attend &a, const group_memory<D> &m, lane_rows &rows, float (&out)[D / 2],
           uint32_t (&share)[32], uint32_t q_at, int i, int n_blocks, int at, int lane, int group)
{
    float s[64];
    meet(TURNS + group);
    bar_wait(m.barrier(KEYS_THERE, i), phase_of(i));
    ask_scores<D>(s, q_at, m.keys(i));
    bar_wait(m.barrier(VALUES_THERE, i - 1), phase_of(i - 1));
    ask_sums<D>(out, share, m.values(i - 1));
    if (group == 0 || i + 1 < n_blocks)
        let_go(TURNS + (group ^ 1));
    product_wait<1>();
    settle(s);
    if (lane == 0)
        bar_arrive(m.barrier(KEYS_READ, i));
    if (!WHOLE)
        rows.mask(a, s, at, lane & 3);
    rows.share(s);
    product_wait<0>();
    settle(out);
    if (lane == 0)
        bar_arrive(m.barrier(VALUES_READ, i - 1));
#pragma unroll
    for (int n = 0; n < D / 2; n++)
        out[n] *= rows.fade[n >> 1 & 1];
    pack_all(share, s);
}

template <int D>
static __device__ __forceinline__ void attend_group(const batch_attend_boxes &p, const run_block &b,
                                                    const group_memory<D> &m, uint8_t *shared,
                                                    int first, int n_blocks)
{
    const gpu_attend &a = p.in.a;
    const int group = threadIdx.x / GROUP, warp = threadIdx.x % GROUP >> 5;
    const int lane = threadIdx.x & 31, quad = lane & 3;
    const int row = 64 * group + 16 * warp + (lane >> 2);
    const uint32_t q_at = m.at + group * 64 * 128;
    put_queries<D>(a, b, shared);
    show_writes();
    meet(BOTH);
    if (group == 1 && n_blocks > 1)
        let_go(TURNS); /* the first begins */

    lane_rows rows(a, b, row);
    float out[D / 2];
    uint32_t share[32];
#pragma unroll
    for (int n = 0; n < D / 2; n++)
        out[n] = 0;
    {
        float s[64];
        bar_wait(m.barrier(KEYS_THERE, 0), 0);
        ask_scores<D>(s, q_at, m.keys(0));
        product_wait<0>();
        settle(s);
        if (lane == 0)
            bar_arrive(m.barrier(KEYS_READ, 0));
        rows.mask(a, s, first, quad);
        rows.share(s);
        pack_all(share, s);
    }
    for (int i = 1; i < n_blocks; i++) {
        const int at = first + i * KEYS;
        if (sees_whole(a, b, at, KEYS))
            next_block<D, true>(a, m, rows, out, share, q_at, i, n_blocks, at, lane, group);
        else
            next_block<D, false>(a, m, rows, out, share, q_at, i, n_blocks, at, lane, group);
    }
    const int i = n_blocks - 1, n_seen = b.last + 1 - (first + i * KEYS);
    bar_wait(m.barrier(VALUES_THERE, i), phase_of(i));
    if (n_seen < KEYS)
        clear_values<D>(shared + (m.values(i) - m.at), n_seen);
    ask_sums<D>(out, share, m.values(i));
    product_wait<0>();
    settle(out);
    launch_next();
#pragma unroll
    for (int n = 0; n < 2; n++)
        rows.most[n] *= rows.unit;
    float columns[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 2; n++)
        columns[n / 4][n % 4] = out[n];
    store_rows<D>(a, b, row, quad, columns, rows.most, rows.sum);
}

template <int D> static __device__ __forceinline__ void attend_groups(const batch_attend_boxes &p)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    const group_memory<D> m = {shared_u32(shared)};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            bar_init(m.barrier(KEYS_THERE, i), 1);
            bar_init(m.barrier(KEYS_READ, i), WORKERS / 32);
            bar_init(m.barrier(VALUES_THERE, i), 1);
            bar_init(m.barrier(VALUES_READ, i), WORKERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const run_block b = find_run_block(p.in, ROWS);
    const int first = b.low / PAGE * PAGE, n_blocks = (b.last - first) / KEYS + 1;
    if (threadIdx.x >= WORKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x < WORKERS + 32)
            copy_pages<D>(p, b, m, first, n_blocks, (int)threadIdx.x - WORKERS);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        attend_group<D>(p, b, m, shared, first, n_blocks);
    }
}

#else
template <int D> static __device__ __forceinline__ void attend_groups(const batch_attend_boxes &)
{
}
#endif

#define ATTEND_GROUPS(d)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                       \
        attend_groups_##d(const __grid_constant__ batch_attend_boxes p)                            \
    {                                                                                              \
        attend_groups<d>(p);                                                                       \
    }
ATTEND_GROUPS(64)
ATTEND_GROUPS(128)
