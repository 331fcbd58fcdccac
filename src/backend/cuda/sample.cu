/*
 * A token from a row of logits: the best, or drawn as sampler/sampler.c draws.
 *
 * Where clusters can have 16 blocks, one of them has the row in its shared memory, each block a part,
 * with the rule's edits made; elsewhere one block reads the row from memory, and knows what is
 * edited. With top-k or top-p the best candidates are gathered in the first block: those that lie in the first bins below the
 * maximum, as many bins as it takes; there they are put in order, cut and drawn from. Without a cut
 * that needs the order, tokens stay where they are, and their sums are searched for the draw.
 * Probabilities are doubles, as on the host; all sums are made in a fixed order.
 */
#include <cooperative_groups.h>

#include "backend/cuda/batch_common.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/sample_params.h"

namespace cg = cooperative_groups;

enum { WARPS = SAMPLE_THREADS / 32, EACH = SAMPLE_MAX_LIST / SAMPLE_THREADS };

/* The rule without what is read once. */
struct how {
    float temperature, top_p, min_p;
    int top_k;
};

/* What a block says to the others. */
struct share {
    float most;
    int best;   /* the first token that has it */
    int n_bad;  /* NaN and +inf */
    int n_open; /* above -inf */
    double sum; /* see choose_all and choose_from_list */
    int n_counted;
    int bins[SAMPLE_BINS];
};

/* What the first block alone uses. */
struct bench {
    unsigned long long list[SAMPLE_MAX_LIST]; /* larger is better: the logit's order, ~token */
    int n_list;
    int winner; /* choose_all: the last thread of all whose sum begins at or below the draw */
    int word;
};

/* ---- The blocks of a row --------------------------------------------------------------------- */

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900

/* The blocks that choose from a row together. */
struct row_team {
    static constexpr int N = SAMPLE_CLUSTER;
    cg::cluster_group cluster = cg::this_cluster();

    __device__ __forceinline__ int rank()
    {
        return cluster.block_rank();
    }

    __device__ __forceinline__ void sync()
    {
        cluster.sync();
    }

    /* What block b has in its shared memory. */
    template <class T> __device__ __forceinline__ T *at(T *mine, int b)
    {
        return cluster.map_shared_rank(mine, b);
    }
};

/* A block's part of the logits, with the edits made. */
typedef float *part_values;

/* Each edit is made by the thread that has read the logit. */
static __device__ void load_part(const choice_rule *rule, const float *from, int first_token, int n,
                                 void *memory, part_values *out)
{
    float *values = (float *)memory;
    for (int i = threadIdx.x; i < n; i += SAMPLE_THREADS)
        values[i] = __ldcg(from + i);
    const int n_edits = rule->n_edits;
    for (int e = 0; e < n_edits; e++) {
        int i = rule->edits[e].token - first_token;
        if (i >= 0 && i < n && i % SAMPLE_THREADS == threadIdx.x)
            values[i] += rule->edits[e].bias;
    }
    *out = values;
}

#else

struct row_team {
    static constexpr int N = 1;

    __device__ __forceinline__ int rank()
    {
        return 0;
    }

    __device__ __forceinline__ void sync()
    {
        __syncthreads();
    }

    template <class T> __device__ __forceinline__ T *at(T *mine, int)
    {
        return mine;
    }
};

/* Read where the model left them; a bit for each says whether it is edited. */
struct part_values {
    const float *from;
    const uint32_t *is_edited;
    const choice_rule *rule;

    __device__ __forceinline__ float operator[](int i) const
    {
        float v = from[i];
        if (is_edited[i >> 5] >> (i & 31) & 1)
            for (int e = 0; e < rule->n_edits; e++)
                if (rule->edits[e].token == i)
                    v += rule->edits[e].bias;
        return v;
    }
};

static __device__ void load_part(const choice_rule *rule, const float *from, int, int n,
                                 void *memory, part_values *out)
{
    uint32_t *bits = (uint32_t *)memory;
    for (int i = threadIdx.x; i < (n + 31) / 32; i += SAMPLE_THREADS)
        bits[i] = 0;
    __syncthreads();
    for (int e = threadIdx.x; e < rule->n_edits; e += SAMPLE_THREADS) {
        int i = rule->edits[e].token;
        if (i >= 0 && i < n)
            atomicOr(&bits[i >> 5], 1u << (i & 31));
    }
    __syncthreads();
    *out = {from, bits, rule};
}

#endif

/* ---- Sums of a block ------------------------------------------------------------------------- */

/* The sum of all threads before this one, and of all. Fixed order. */
static __device__ __forceinline__ double scan_block(double v, double *total)
{
    __shared__ double parts[WARPS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double sum = v;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        double before = __shfl_up_sync(~0u, sum, o);
        if (lane >= o)
            sum += before;
    }
    __syncthreads(); /* the scan before may still be read */
    if (lane == 31)
        parts[warp] = sum;
    __syncthreads();
    double base = 0, all = 0;
    for (int w = 0; w < WARPS; w++) {
        base += w < warp ? parts[w] : 0;
        all += parts[w];
    }
    *total = all;
    double before = __shfl_up_sync(~0u, sum, 1);
    return lane ? base + before : base;
}

static __device__ __forceinline__ int count_block(int n)
{
    __shared__ int parts[WARPS];
    n = __reduce_add_sync(~0u, n);
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        parts[threadIdx.x >> 5] = n;
    __syncthreads();
    n = 0;
    for (int w = 0; w < WARPS; w++)
        n += parts[w];
    return n;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* A float's place in the order of floats; 0 and -0 are equal. */
static __device__ __forceinline__ uint32_t order_of(float v)
{
    uint32_t u = __float_as_uint(v + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

static __device__ __forceinline__ float logit_of(unsigned long long entry)
{
    uint32_t u = (uint32_t)(entry >> 32);
    return __uint_as_float(u >> 31 ? u & 0x7fffffffu : ~u);
}

static __device__ __forceinline__ int token_of(unsigned long long entry)
{
    return (int)~(uint32_t)entry;
}

static __device__ __forceinline__ uint64_t rotate_left(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

/* xoshiro256**, as base/random.c has it: in [0, 1). */
static __device__ __forceinline__ double draw(uint64_t (&s)[4])
{
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

/* Which bin a logit falls into: they are as wide as 1/16, and the last is open. */
static __device__ __forceinline__ int bin_of(float most, float v)
{
    float at = (most - v) * 16.0f;
    return at < (float)(SAMPLE_BINS - 1) ? (int)at : SAMPLE_BINS - 1;
}

/* ---- From all tokens ------------------------------------------------------------------------- */

/* In the order of tokens, with min-p as the only cut. Every block calls this. */
static __device__ void choose_all(const how &row, uint64_t (&random)[4], const part_values &values,
                                  int first_token, int n, float most, share *mine, bench *first,
                                  row_team &team)
{
    const int rank = team.rank(), tid = threadIdx.x;
    const int each = ((n + SAMPLE_THREADS - 1) / SAMPLE_THREADS) | 1; /* odd: no bank conflicts */
    const int begin = min(n, tid * each), end = min(n, begin + each);
    const double temperature = row.temperature, least = row.min_p;
    auto weight_of = [&](float v) {
        double above = (double)v - (double)most;
        return v > -INFINITY && (least <= 0 || exp(above) >= least) ? exp(above / temperature)
                                                                    : -1.0;
    };
    double sum = 0, all;
    int n_counted = 0;
    for (int i = begin; i < end; i++) {
        double w = weight_of(values[i]);
        if (w >= 0) {
            sum += w;
            n_counted++;
        }
    }
    double before = scan_block(sum, &all);
    n_counted = count_block(n_counted);
    if (tid == 0) {
        mine->sum = all;
        mine->n_counted = n_counted;
        if (rank == 0)
            first->winner = -1;
    }
    team.sync();
    double base = 0, total = 0;
    n_counted = 0;
    for (int b = 0; b < row_team::N; b++) {
        const share *other = team.at(mine, b);
        base += b < rank ? other->sum : 0;
        total += other->sum;
        n_counted += other->n_counted;
    }
    double target = n_counted > 1 ? draw(random) * total : 0;
    bench *root = team.at(first, 0);
    const int me = rank * SAMPLE_THREADS + tid;
    if (sum > 0 && base + before <= target)
        atomicMax(&root->winner, me);
    team.sync();
    if (root->winner == me) {
        double at = base + before;
        int chosen = begin;
        for (int i = begin; i < end; i++) {
            double w = weight_of(values[i]);
            if (w <= 0)
                continue;
            chosen = i;
            at += w;
            if (at > target)
                break;
        }
        root->word = (first_token + chosen + 1) | (n_counted > 1 ? CHOICE_DREW : 0);
    }
    team.sync();
}

/* ---- From the best --------------------------------------------------------------------------- */

/* The best first; the list is filled up with zeros, which are worse than everything. */
static __device__ void sort_list(unsigned long long *list, int n)
{
    int size = 32;
    while (size < n)
        size *= 2;
    for (int i = n + threadIdx.x; i < size; i += SAMPLE_THREADS)
        list[i] = 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int apart = run / 2; apart > 0; apart /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += SAMPLE_THREADS) {
                int a = 2 * i - (i & (apart - 1)), b = a + apart;
                bool is_down = (a & run) == 0;
                unsigned long long x = list[a], y = list[b];
                if ((x < y) == is_down) {
                    list[a] = y;
                    list[b] = x;
                }
            }
            __syncthreads();
        }
}

/*
 * The first block, with n candidates in order of which at most row.top_k count. sum_all: of the
 * probabilities of all tokens, where all count; is_whole: there are no more than those in the list.
 */
static __device__ int choose_from_list(const how &row, uint64_t (&random)[4], bench *b, int n,
                                       double sum_all, bool is_whole)
{
    __shared__ int chosen;
    const int tid = threadIdx.x, from = tid * EACH;
    const double most = logit_of(b->list[0]), temperature = row.temperature;
    if (row.top_k > 0 && n > row.top_k)
        n = row.top_k;
    if (row.top_p < 1) {
        double weights[EACH], sum = 0, total;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            weights[i] = from + i < n ? exp((double)logit_of(b->list[from + i]) - most) : 0;
            sum += weights[i];
        }
        double before = scan_block(sum, &total), listed = total;
        if (row.top_k == 0 && !is_whole)
            total = sum_all;
        int n_kept = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (from + i < n && (from + i == 0 || before / total < (double)row.top_p))
                n_kept++;
            before += weights[i];
        }
        n_kept = count_block(n_kept);
        if (row.top_k == 0 && !is_whole && n_kept == n && listed / total < (double)row.top_p)
            return CHOICE_REFUSED; /* some of them are not in the list */
        n = n_kept;
    }
    if (row.min_p > 0) {
        int n_kept = 0;
        for (int i = 0; i < EACH; i++)
            n_kept += from + i < n &&
                      exp((double)logit_of(b->list[from + i]) - most) >= (double)row.min_p;
        n = count_block(n_kept);
    }
    double weights[EACH], sum = 0, total;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        weights[i] =
            from + i < n ? exp(((double)logit_of(b->list[from + i]) - most) / temperature) : 0;
        sum += weights[i];
    }
    double before = scan_block(sum, &total), target = n > 1 ? draw(random) * total : 0;
    if (tid == 0)
        chosen = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (weights[i] > 0 && before <= target)
            atomicMax(&chosen, from + i);
        before += weights[i];
    }
    __syncthreads();
    return (token_of(b->list[chosen]) + 1) | (n > 1 ? CHOICE_DREW : 0);
}

/* Gather the best, and choose from them. Every block calls this; the first has the word. */
static __device__ void choose_best(const how &row, uint64_t (&random)[4], const part_values &values,
                                   int first_token, int n, float most, int n_open, share *mine,
                                   bench *first, row_team &team)
{
    __shared__ int last_bin;
    const int rank = team.rank(), tid = threadIdx.x;
    for (int i = tid; i < SAMPLE_BINS; i += SAMPLE_THREADS)
        mine->bins[i] = 0;
    if (tid == 0 && rank == 0)
        first->n_list = 0;
    __syncthreads();
    const bool sums_all = row.top_k == 0;
    double sum = 0, all;
    for (int i = tid; i < n; i += SAMPLE_THREADS) {
        float v = values[i];
        int bin = bin_of(most, v);
        if (bin < SAMPLE_BINS - 1)
            atomicAdd(&mine->bins[bin], 1);
        if (sums_all)
            sum += exp((double)v - (double)most);
    }
    scan_block(sum, &all);
    if (tid == 0)
        mine->sum = all;
    team.sync();

    /* The bins up to last_bin are gathered: all if there is room; else as many as top_k needs, or
     * as have room. -1: too many. */
    const bool is_whole = n_open <= SAMPLE_MAX_LIST;
    int count = 0;
    for (int b = 0; tid < SAMPLE_BINS && b < row_team::N; b++)
        count += team.at(mine, b)->bins[tid];
    double before = scan_block((double)count, &all); /* counts are exact */
    if (tid == 0)
        last_bin = is_whole ? SAMPLE_BINS - 1 : -1;
    __syncthreads();
    if (tid < SAMPLE_BINS - 1 && !is_whole && before + count <= SAMPLE_MAX_LIST &&
        (row.top_k == 0 || before < row.top_k))
        atomicMax(&last_bin, tid);
    __syncthreads();
    bench *root = team.at(first, 0);
    const int last = last_bin;
    for (int i = tid; i < n && last >= 0; i += SAMPLE_THREADS) {
        float v = values[i];
        if (v > -INFINITY && bin_of(most, v) <= last) {
            int at = atomicAdd(&root->n_list, 1);
            root->list[at] =
                (unsigned long long)order_of(v) << 32 | (uint32_t) ~(uint32_t)(first_token + i);
        }
    }
    team.sync();
    if (rank == 0) {
        int n_list = first->n_list, word = CHOICE_REFUSED;
        sum = 0;
        for (int b = 0; b < row_team::N; b++)
            sum += team.at(mine, b)->sum;
        /* Those that are too far down to be gathered have no probability to speak of (1e-13). */
        bool is_enough = is_whole || row.top_k == 0 || n_list >= row.top_k ||
                         (last == SAMPLE_BINS - 2 && row.temperature <= 1);
        if (n_list > 0 && is_enough) {
            sort_list(first->list, n_list);
            word = choose_from_list(row, random, first, n_list, sum, is_whole);
        }
        if (tid == 0)
            first->word = word;
    }
    team.sync();
}

/* ---- The kernel ------------------------------------------------------------------------------ */

/* This block's part of the row, and what it has to say of it. */
static __device__ void read_part(const part_values &values, int first_token, int n, share *mine)
{
    __shared__ float most_of[WARPS];
    __shared__ int best_of[WARPS];
    const int tid = threadIdx.x;
    float most = -INFINITY;
    int best = 0x7fffffff, n_bad = 0, n_open = 0;
    for (int i = tid; i < n; i += SAMPLE_THREADS) {
        float v = values[i];
        n_bad += !(v < INFINITY);
        n_open += v > -INFINITY;
        if (v > most) {
            most = v;
            best = first_token + i;
        }
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        float v = __shfl_xor_sync(~0u, most, o);
        int b = __shfl_xor_sync(~0u, best, o);
        if (v > most || (v == most && b < best)) {
            most = v;
            best = b;
        }
    }
    if ((tid & 31) == 0) {
        most_of[tid >> 5] = most;
        best_of[tid >> 5] = best;
    }
    n_bad = count_block(n_bad);
    n_open = count_block(n_open);
    if (tid == 0) {
        for (int w = 1; w < WARPS; w++)
            if (most_of[w] > most || (most_of[w] == most && best_of[w] < best)) {
                most = most_of[w];
                best = best_of[w];
            }
        mine->most = most;
        mine->best = best;
        mine->n_bad = n_bad;
        mine->n_open = n_open;
    }
}

/* This block's part of a row for the host, as the model gave it. */
static __device__ void give_part(const sample_params &p, int number, int first_token, int n)
{
    const float *from = p.logits + (int64_t)number * p.stride + first_token;
    float *to = p.refused + (int64_t)number * p.n_vocab + first_token;
    for (int i = threadIdx.x; i < n; i += SAMPLE_THREADS)
        to[i] = __ldcg(from + i);
}

extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_rows(const __grid_constant__ sample_params p)
{
    extern __shared__ float memory[];
    __shared__ share mine;
    __shared__ bench first;
    row_team team;
    launch_next();
    wait_previous();
    const int number = blockIdx.x / team.N, rank = team.rank(), tid = threadIdx.x;
    const int part = (p.n_vocab + team.N - 1) / team.N;
    const int first_token = min(p.n_vocab, rank * part), n = min(part, p.n_vocab - first_token);
    const choice_rule *rule = p.rows + number;
    const how row = {rule->temperature, rule->top_p, rule->min_p, rule->top_k};
    const int sequence = p.outputs ? p.sequences[p.outputs[number]] : 0;
    const uint64_t *from = rule->goes_on ? p.randoms[sequence] : rule->random;
    uint64_t random[4] = {from[0], from[1], from[2], from[3]};
    part_values values;
    load_part(rule, p.logits + (int64_t)number * p.stride + first_token, first_token, n, memory,
              &values);
    read_part(values, first_token, n, &mine);
    team.sync(); /* also: everyone has read the row's random numbers */
    float most = -INFINITY;
    int best = 0x7fffffff, n_bad = 0, n_open = 0;
    for (int b = 0; b < row_team::N; b++) {
        const share *other = team.at(&mine, b);
        if (other->most > most) { /* parts are in the order of tokens */
            most = other->most;
            best = other->best;
        }
        n_bad += other->n_bad;
        n_open += other->n_open;
    }
    const bool refuses = n_bad > 0 || n_open == 0 || row.temperature < 0;
    if (refuses || row.temperature == 0) {
        if (tid == 0)
            first.word = refuses ? CHOICE_REFUSED : best + 1;
        team.sync(); /* nobody leaves while others read what it said */
    } else if (row.top_k == 0 && row.top_p >= 1) {
        choose_all(row, random, values, first_token, n, most, &mine, &first, team);
    } else {
        choose_best(row, random, values, first_token, n, most, n_open, &mine, &first, team);
    }
    if (p.refused) {
        if (team.at(&first, 0)->word == CHOICE_REFUSED)
            give_part(p, number, first_token, n);
        team.sync(); /* the first block stays until all have looked */
    }
    if (rank > 0 || tid > 0)
        return;
    const int word = first.word, token = (word & CHOICE_TOKEN) - 1;
    for (int i = 0; i < 4 && (word & CHOICE_DREW); i++)
        p.rows[number].random[i] = random[i];
    if (p.outputs && row.temperature >= 0) {
        p.last_tokens[sequence] = word == CHOICE_REFUSED ? 0 : token;
        for (int i = 0; i < 4; i++)
            p.randoms[sequence][i] = random[i];
    }
    if (p.words)
        p.words[number] = word;
    if (p.best)
        *p.best = {0.0f, word == CHOICE_REFUSED ? 0 : token};
    if (p.ring)
        asm volatile(
            "st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p.ring + p.state->n_chosen % DECODE_RING),
            "r"(word)
            : "memory");
}
