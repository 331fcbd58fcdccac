/*
 * Attention of a run of tokens of one sequence (prefill) by warpgroups, for caches of f16: a block
 * takes 128 rows, and keys and values in blocks of 128 positions, or of 64 where heads have 256 values.
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
 * values 64 to 127 of all rows follow those before, and so on: "columns" of 64 values.
 */
#include "backend/cuda/attend_params.h"
#include "backend/cuda/attend_run.cuh"
#include "backend/cuda/batch_product.cuh"

enum {
    ROWS = ATTEND_GROUP_ROWS,
    STAGES = ATTEND_GROUP_STAGES,
    GROUP = 128,         /* threads of a group */
    WORKERS = 2 * GROUP, /* threads of both */
    THREADS = 3 * GROUP, /* a third group leaves the others its registers; its first warp copies */
    PAGE = 32            /* positions */
};

/* Heads with keys of D and values of V values. */
template <int D_, int V_> struct group_of {
    static constexpr int D = D_, V = V_, KEYS = attend_group_keys(V_);
    static constexpr int PAGES = KEYS / PAGE;             /* of a block of positions */
    static constexpr int SCORES = KEYS / 2, SUMS = V / 2; /* of a lane, for its two rows */
    /* 64 values of all rows, and of all positions; queries, and a stage of keys or of values. */
    static constexpr int Q_COLUMN = ROWS * 128, COLUMN = KEYS * 128;
    static constexpr int Q_BYTES = D / 64 * Q_COLUMN;
    static constexpr int K_BYTES = D / 64 * COLUMN, V_BYTES = V / 64 * COLUMN;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- Products -------------------------------------------------------------------------------- */

#define SUMS_64                                                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                             \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define SUMS_128                                                                                   \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                             \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                             \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"                             \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                             \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                             \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"                 \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
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

/* The same of 64 keys. */
static __device__ __forceinline__ void multiply_keys(float (&d)[32], uint64_t a, uint64_t b,
                                                     int adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SUMS_32
                 ", %32, %33, p, 1, 1, 0, 0;\n}"
                 : PRODUCT_16(d, 0), PRODUCT_16(d, 16)
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

static __device__ __forceinline__ void multiply_values(float (&d)[128], const uint32_t *a,
                                                       uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 " SUMS_128
                 ", {%128,%129,%130,%131}, %132, p, 1, 1, 1;\n}"
                 : PRODUCT_16(d, 0), PRODUCT_16(d, 16), PRODUCT_16(d, 32), PRODUCT_16(d, 48),
                   PRODUCT_16(d, 64), PRODUCT_16(d, 80), PRODUCT_16(d, 96), PRODUCT_16(d, 112)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Values: 8 positions are 1024 bytes apart, the next 64 values `column`. */
static __device__ __forceinline__ uint64_t values_operand(uint32_t address, int column)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(column >> 4) << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

template <class OF>
static __device__ __forceinline__ void ask_scores(float (&s)[OF::SCORES], uint32_t q_at,
                                                  uint32_t k_at)
{
    const uint64_t q = product_operand(q_at), k = product_operand(k_at);
    product_begin();
#pragma unroll
    for (int i = 0; i < OF::D / 16; i++)
        multiply_keys(s, q + ((i / 4 * OF::Q_COLUMN + i % 4 * 32) >> 4),
                      k + ((i / 4 * OF::COLUMN + i % 4 * 32) >> 4), i > 0);
    product_end();
}

template <class OF>
static __device__ __forceinline__ void
ask_sums(float (&out)[OF::SUMS], const uint32_t (&share)[OF::SCORES / 2], uint32_t v_at)
{
    const uint64_t v = values_operand(v_at, OF::COLUMN);
    product_begin();
#pragma unroll
    for (int i = 0; i < OF::KEYS / 16; i++)
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
template <class OF> struct group_memory {
    uint32_t at;

    __device__ __forceinline__ uint32_t keys(int i) const
    {
        return at + OF::Q_BYTES + i % STAGES * OF::K_BYTES;
    }
    __device__ __forceinline__ uint32_t values(int i) const
    {
        return at + OF::Q_BYTES + STAGES * OF::K_BYTES + i % STAGES * OF::V_BYTES;
    }
    /* Barriers: keys are there, keys have been read, the same of values. */
    __device__ __forceinline__ uint32_t barrier(int which, int i) const
    {
        return at + OF::Q_BYTES + STAGES * (OF::K_BYTES + OF::V_BYTES) +
               8 * (which * STAGES + i % STAGES);
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
template <class OF>
static __device__ __forceinline__ void copy_pages(const batch_attend_boxes &p, const run_block &b,
                                                  const group_memory<OF> &m, int first,
                                                  int n_blocks, int lane)
{
    const gpu_cache &c = p.in.a.cache;
    const int32_t *table = cache_table(c, c.sequences[b.token0]);
    const int part = lane % OF::PAGES, column = lane / OF::PAGES;
    const uint32_t place = column * OF::COLUMN + part * PAGE * 128;
    for (int i = 0; i < n_blocks; i++) {
        const int at = first + i * OF::KEYS;
        const int n_pages = min((int)OF::PAGES, (b.last - at) / PAGE + 1);
        const int page = part < n_pages ? table[at / PAGE + part] : 0;
        if (i >= STAGES)
            bar_wait(m.barrier(KEYS_READ, i), phase_of(i - STAGES));
        if (lane == 0)
            bar_expect(m.barrier(KEYS_THERE, i), n_pages * PAGE * 2 * OF::D);
        __syncwarp();
        if (part < n_pages && column < OF::D / 64)
            copy_box(m.keys(i) + place, p.keys, 64 * column, b.head * PAGE, page,
                     m.barrier(KEYS_THERE, i));
        if (i >= STAGES)
            bar_wait(m.barrier(VALUES_READ, i), phase_of(i - STAGES));
        if (lane == 0)
            bar_expect(m.barrier(VALUES_THERE, i), n_pages * PAGE * 2 * OF::V);
        __syncwarp();
        if (part < n_pages && column < OF::V / 64)
            copy_box(m.values(i) + place, p.values, 64 * column, b.head * PAGE, page,
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
        *(uint4 *)(to + chunk / 8 * (ROWS * 128) + row * 128 + ((chunk % 8 ^ row % 8) << 4)) =
            make_uint4(pack_f16(x.x, x.y), pack_f16(x.z, x.w), pack_f16(y.x, y.y),
                       pack_f16(y.z, y.w));
    }
}

/* Values behind the last position that is seen become 0: nothing was written there, and shares of 0
 * times that may be no number. */
template <class OF> static __device__ __forceinline__ void clear_values(uint8_t *values, int n_seen)
{
    for (int i = n_seen * 8 + (int)threadIdx.x; i < OF::KEYS * 8; i += WORKERS)
#pragma unroll
        for (int column = 0; column < OF::V / 64; column++)
            *(uint4 *)(values + column * OF::COLUMN + 16 * i) = make_uint4(0, 0, 0, 0);
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
    template <int N>
    __device__ __forceinline__ void mask(const gpu_attend &a, float (&s)[N], int at, int quad) const
    {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int key = at + n / 4 * 8 + 2 * quad + (n & 1), i = n >> 1 & 1;
            const bool is_seen = key <= end[i] && (a.window == 0 || key > position[i] - a.window);
            const float score = a.softcap > 0 ? finish_score(a, s[n]) : s[n];
            s[n] = is_seen ? score : -INFINITY;
        }
    }

    /* Scores become shares. */
    template <int N> __device__ __forceinline__ void share(float (&s)[N])
    {
        float now[2] = {most[0], most[1]}, base[2];
#pragma unroll
        for (int n = 0; n < N; n++)
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
        for (int n = 0; n < N; n++) {
            s[n] = power_of_2(s[n] * unit - base[n >> 1 & 1]);
            sum[n >> 1 & 1] += s[n];
        }
    }
};

template <int N>
static __device__ __forceinline__ void pack_all(uint32_t (&share)[N / 2], const float (&s)[N])
{
#pragma unroll
    for (int n = 0; n < N / 2; n++)
        share[n] = pack_shares(s[2 * n], s[2 * n + 1]);
}

/* A block of positions: its scores become shares while the shares of the one before are used. */
template <class OF, bool WHOLE>
static __device__ __forceinline__ void next_block(const gpu_attend &a, const group_memory<OF> &m,
                                                  lane_rows &rows, float (&out)[OF::SUMS],
                                                  uint32_t (&share)[OF::SCORES / 2], uint32_t q_at,
                                                  int i, int n_blocks, int at, int lane, int group)
{
    float s[OF::SCORES];
    meet(TURNS + group);
    bar_wait(m.barrier(KEYS_THERE, i), phase_of(i));
    ask_scores<OF>(s, q_at, m.keys(i));
    bar_wait(m.barrier(VALUES_THERE, i - 1), phase_of(i - 1));
    ask_sums<OF>(out, share, m.values(i - 1));
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
    for (int n = 0; n < OF::SUMS; n++)
        out[n] *= rows.fade[n >> 1 & 1];
    pack_all(share, s);
}

template <class OF>
static __device__ __forceinline__ void attend_group(const batch_attend_boxes &p, const run_block &b,
                                                    const group_memory<OF> &m, uint8_t *shared,
                                                    int first, int n_blocks)
{
    const gpu_attend &a = p.in.a;
    const int group = threadIdx.x / GROUP, warp = threadIdx.x % GROUP >> 5;
    const int lane = threadIdx.x & 31, quad = lane & 3;
    const int row = 64 * group + 16 * warp + (lane >> 2);
    const uint32_t q_at = m.at + group * 64 * 128;
    put_queries<OF::D>(a, b, shared);
    show_writes();
    meet(BOTH);
    if (group == 1 && n_blocks > 1)
        let_go(TURNS); /* the first begins */

    lane_rows rows(a, b, row);
    float out[OF::SUMS];
    uint32_t share[OF::SCORES / 2];
#pragma unroll
    for (int n = 0; n < OF::SUMS; n++)
        out[n] = 0;
    {
        float s[OF::SCORES];
        bar_wait(m.barrier(KEYS_THERE, 0), 0);
        ask_scores<OF>(s, q_at, m.keys(0));
        product_wait<0>();
        settle(s);
        if (lane == 0)
            bar_arrive(m.barrier(KEYS_READ, 0));
        rows.mask(a, s, first, quad);
        rows.share(s);
        pack_all(share, s);
    }
    for (int i = 1; i < n_blocks; i++) {
        const int at = first + i * OF::KEYS;
        if (sees_whole(a, b, at, OF::KEYS))
            next_block<OF, true>(a, m, rows, out, share, q_at, i, n_blocks, at, lane, group);
        else
            next_block<OF, false>(a, m, rows, out, share, q_at, i, n_blocks, at, lane, group);
    }
    const int i = n_blocks - 1, n_seen = b.last + 1 - (first + i * OF::KEYS);
    bar_wait(m.barrier(VALUES_THERE, i), phase_of(i));
    if (n_seen < OF::KEYS)
        clear_values<OF>(shared + (m.values(i) - m.at), n_seen);
    ask_sums<OF>(out, share, m.values(i));
    product_wait<0>();
    settle(out);
    launch_next();
#pragma unroll
    for (int n = 0; n < 2; n++)
        rows.most[n] *= rows.unit;
    float columns[OF::V / 8][4];
#pragma unroll
    for (int n = 0; n < OF::SUMS; n++)
        columns[n / 4][n % 4] = out[n];
    store_rows<OF::V>(a, b, row, quad, columns, rows.most, rows.sum);
}

template <class OF>
static __device__ __forceinline__ void attend_groups(const batch_attend_boxes &p)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    const group_memory<OF> m = {shared_u32(shared)};
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
    const int first = b.low / PAGE * PAGE, n_blocks = (b.last - first) / OF::KEYS + 1;
    if (threadIdx.x >= WORKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x < WORKERS + 32)
            copy_pages<OF>(p, b, m, first, n_blocks, (int)threadIdx.x - WORKERS);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        attend_group<OF>(p, b, m, shared, first, n_blocks);
    }
}

#else
template <class OF> static __device__ __forceinline__ void attend_groups(const batch_attend_boxes &)
{
}
#endif

#define ATTEND_GROUPS(d, v)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                       \
        attend_groups_##d##_##v(const __grid_constant__ batch_attend_boxes p)                      \
    {                                                                                              \
        attend_groups<group_of<d, v>>(p);                                                          \
    }
ATTEND_GROUPS(64, 64)
ATTEND_GROUPS(128, 128)
ATTEND_GROUPS(192, 128)
ATTEND_GROUPS(256, 256)
