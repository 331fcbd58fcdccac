/*
 * Attention of batches: runs of tokens of one sequence (attend_run.cu, attend_groups.cu), single tokens
 * (attend_single.cu), and both for large heads (attend_wide.cu) and latents (attend_latent.cu).
 */
#include <assert.h>

#include "base/numbers.h"
#include "backend/cuda/attend_params.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/small_batch_params.h"

enum {
    N_DIMS = 3,
    MIN_RUN = 8,
    PART_KEYS = 128,
    RUN_ROWS = 64,
    RUN_KEYS = 32,
    RUN_THREADS = 128,
    GROUP_PAGE = 32, /* positions of a box */
    GROUP_THREADS = 384,
    BOX_ALIGN = 16,
    LATENT_DIM = 576,
    LATENT_V_DIM = 512,
    LATENT_THREADS = 256,
    MAX_CONTEXT_PARTS = 32,
    MAX_SHARING = 16, /* heads of q for one of k, of small heads */
    NARROW_DIM = 128, /* larger heads are wide */
    WIDE_DIM = 512,
    WIDE_SINGLE_ROWS = 16,
    MAX_WIDE_PARTS = 64
};

static const struct {
    int32_t dim;
    const char *run[2], *single[2]; /* the second for models whose weights are floats */
} dims[N_DIMS] = {
    {64, {"attend_run_64", "attend_run_exact_64"}, {"attend_single_64", "attend_single_exact_64"}},
    {128,
     {"attend_run_128", "attend_run_exact_128"},
     {"attend_single_128", "attend_single_exact_128"}},
    {256, {"attend_run_256", "attend_run_exact_256"}, {NULL, NULL}},
};

static int dim_for(int32_t head_dim)
{
    int i = 0;
    while (i < N_DIMS && dims[i].dim < head_dim)
        i++;
    return i;
}

int32_t gpu_run_length(const gpu_batch *b, int32_t t)
{
    int32_t n = 1;
    while (t + n < b->n_tokens && b->host_sequences[t + n] == b->host_sequences[t] &&
           b->host->positions[t + n] == b->host->positions[t] + n)
        n++;
    return n;
}

static uint32_t run_bytes(bool is_exact, int d)
{
    uint32_t bytes = (uint32_t)((RUN_ROWS + 4 * RUN_KEYS) * (2 * dims[d].dim + 16));
    return is_exact ? 2 * bytes : bytes;
}

/* Kernels of attend_groups.cu: values of keys and of values. */
static const struct group_kernel {
    const char *name;
    int32_t head_dim, v_dim;
} groups[] = {{"attend_groups_64_64", 64, 64},
              {"attend_groups_128_128", 128, 128},
              {"attend_groups_192_128", 192, 128},
              {"attend_groups_256_256", 256, 256}};
enum { N_GROUP_KERNELS = sizeof groups / sizeof groups[0] };

/* Queries, stages of keys and of values, and barriers. */
static uint32_t group_bytes(const struct group_kernel *k)
{
    int32_t stages = ATTEND_GROUP_STAGES * attend_group_keys(k->v_dim);
    return (uint32_t)(2 * (ATTEND_GROUP_ROWS * k->head_dim + stages * (k->head_dim + k->v_dim))) +
           4 * ATTEND_GROUP_STAGES * 8;
}

/* Who takes runs by warpgroups; NULL: nobody. is_expanded: keys and values that were made of latents. */
static const struct group_kernel *group_kernel_of(const gpu_job *j, const batch_attend *p,
                                                  bool is_expanded)
{
    const gpu_cache *c = &p->a.cache;
    if (!j->g->can.wgmma || j->is_exact || (!is_expanded && c->head_dim > NARROW_DIM) ||
        c->type != DTYPE_F16 || c->page_tokens != GROUP_PAGE ||
        c->row_bytes != 2 * (uint64_t)c->head_dim ||
        (c->page_bytes | c->k_offset | c->v_offset) % BOX_ALIGN != 0)
        return NULL;
    for (int i = 0; i < N_GROUP_KERNELS; i++)
        if (groups[i].head_dim == c->head_dim && groups[i].v_dim == c->v_dim)
            return group_bytes(&groups[i]) <= (uint32_t)j->g->info.max_shared_bytes ? &groups[i]
                                                                                    : NULL;
    return NULL;
}

static lace_status attend_groups(const gpu_job *j, const batch_attend *p,
                                 const struct group_kernel *k, lace_error *err)
{
    const gpu_cache *c = &p->a.cache;
    batch_attend_boxes all = {.in = *p};
    uint32_t dim = (uint32_t)c->head_dim, page_rows = (uint32_t)(c->n_heads * GROUP_PAGE);
    TRY(cuda_describe_boxes(c->data + c->k_offset, dim, page_rows, c->page_bytes, GROUP_PAGE,
                            &all.keys, err));
    TRY(cuda_describe_boxes(c->data + c->v_offset, dim, page_rows, c->page_bytes, GROUP_PAGE,
                            &all.values, err));
    int32_t tokens = ATTEND_GROUP_ROWS / (p->a.n_heads / c->n_heads);
    uint32_t grid[3] = {(uint32_t)divide_up(p->n_tokens, tokens), (uint32_t)c->n_heads, 1};
    return gpu_start(j, k->name, grid, GROUP_THREADS, group_bytes(k), &all, err);
}

static lace_status attend_run(const gpu_job *j, batch_attend *p, bool is_expanded, lace_error *err)
{
    const struct group_kernel *k = group_kernel_of(j, p, is_expanded);
    if (k)
        return attend_groups(j, p, k, err);
    int d = dim_for(p->a.cache.head_dim);
    int32_t tokens = RUN_ROWS / (p->a.n_heads / p->a.cache.n_heads);
    uint32_t grid[3] = {(uint32_t)divide_up(p->n_tokens, tokens), (uint32_t)p->a.cache.n_heads, 1};
    return gpu_start(j, dims[d].run[j->is_exact], grid, RUN_THREADS, run_bytes(j->is_exact, d), p,
                     err);
}

/* The same for single tokens: parts of all warps, and results. */
static uint32_t single_bytes(const batch_attend *p, int d)
{
    int32_t results = p->a.n_heads / p->a.cache.n_heads * p->a.cache.head_dim;
    return (uint32_t)(4 * 16 * (dims[d].dim + 2) * 4 + 4 * results);
}

/* Short contexts of one token cost little, so that nothing is rounded there. */
static bool is_short(const gpu_batch *b)
{
    return b->n_tokens < 2 && b->host->positions[0] < PART_KEYS;
}

/* Parts of a context of so many positions, for n_tokens. */
static int32_t n_parts_of(const gpu *g, int32_t n_tokens, int32_t n_kv_heads, int32_t longest)
{
    int32_t wanted = divide_up(3 * g->info.n_processors, n_tokens * n_kv_heads);
    int32_t most = divide_up(longest, PART_KEYS), n = wanted < most ? wanted : most;
    return n > MAX_CONTEXT_PARTS ? MAX_CONTEXT_PARTS : n;
}

batch_shape gpu_shape_of(const gpu_batch *b)
{
    batch_shape out = {.n_tokens = b->n_tokens, .n_outputs = b->n_outputs, .is_short = true};
    if (b->n_tokens > SMALL_TOKENS) /* what follows matters to small batches alone */
        return out;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        out.has_runs |= gpu_run_length(b, t) >= MIN_RUN || b->seen;
        out.is_short &= b->host->positions[t] < PART_KEYS;
    }
    return out;
}

bool gpu_attend_leaves_slabs(const gpu *g, const step *s, const batch_shape *of)
{
    const kv_layer *kv = &s->kv;
    int32_t longest = of->is_short ? PART_KEYS : INT32_MAX - PART_KEYS;
    return !of->has_runs && !kv->v_in_k && kv->head_dim <= NARROW_DIM &&
           s->a.attend.n_heads / kv->n_heads * kv->head_dim % SMALL_COLS == 0 &&
           n_parts_of(g, of->n_tokens, kv->n_heads, longest) == 1;
}

/* Positions up to the last one that any of these tokens sees without looking ahead. */
static int32_t longest_of(const gpu_batch *b, const batch_attend *p)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < p->n_tokens; i++) {
        int32_t position = b->host->positions[p->token0 + i];
        longest = position > longest ? position : longest;
    }
    return longest + 1;
}

static lace_status join_parts(const gpu_job *j, const batch_attend *p, lace_error *err)
{
    uint32_t heads[3] = {(uint32_t)p->n_tokens, (uint32_t)p->a.n_heads,
                         (uint32_t)divide_up(p->a.cache.v_dim, 128)};
    return p->n_parts == 1 ? LACE_OK : gpu_start(j, "attend_parts", heads, 128, 0, p, err);
}

static lace_status attend_singles(const gpu_job *j, const device_step *ds, batch_attend *p,
                                  lace_error *err)
{
    int d = dim_for(p->a.cache.head_dim);
    bool is_exact = j->is_exact || is_short(j->batch);
    int32_t longest = longest_of(j->batch, p);
    p->n_parts = n_parts_of(j->g, p->n_tokens, p->a.cache.n_heads, longest);
    p->part_keys = (int32_t)round_up((uint64_t)divide_up(longest, p->n_parts), RUN_ROWS);
    p->parts = (float *)j->scratch;
    p->slabs = ds->leaves == ROWS_SLABS ? j->handover->memory : NULL;
    assert(!p->slabs || (p->n_parts == 1 && p->n_tokens == j->batch->n_tokens));
    uint32_t grid[3] = {(uint32_t)p->n_tokens, (uint32_t)p->a.cache.n_heads, (uint32_t)p->n_parts};
    TRY(gpu_start(j, dims[d].single[is_exact], grid, 128, single_bytes(p, d), p, err));
    return join_parts(j, p, err);
}

/* ---- Large heads ----------------------------------------------------------------------------- */

/* A kernel of attend_wide.cu. */
typedef struct wide_kernel {
    const char *name;
    int32_t rows; /* of a block */
    uint32_t threads, shared_bytes;
} wide_kernel;

static wide_kernel wide_kernel_of(int32_t head_dim, bool is_exact, bool is_run)
{
    static const char *const names[2][2][2] = {
        {{"attend_wide_single_256", "attend_wide_run_256"},
         {"attend_wide_single_exact_256", "attend_wide_run_exact_256"}},
        {{"attend_wide_single_512", "attend_wide_run_512"},
         {"attend_wide_single_exact_512", "attend_wide_run_exact_512"}}};
    bool is_512 = head_dim > WIDE_DIM / 2;
    int32_t dim = is_512 ? WIDE_DIM : WIDE_DIM / 2;
    int32_t rows = !is_run ? WIDE_SINGLE_ROWS : is_exact ? RUN_ROWS / 2 : RUN_ROWS;
    int32_t kept = (is_exact ? 2 : 1) * (rows + 2 * RUN_KEYS) * (2 * dim + 16);
    return (wide_kernel){.name = names[is_512][is_exact][is_run],
                         .rows = rows,
                         .threads = is_run ? 256 : 128,
                         .shared_bytes = (uint32_t)(kept + rows * (RUN_KEYS + 8) * 4)};
}

static bool wide_fits(const gpu *g, int32_t head_dim, bool is_exact, bool is_run)
{
    return wide_kernel_of(head_dim, is_exact, is_run).shared_bytes <=
           (uint32_t)g->info.max_shared_bytes;
}

/* Parts of a context of so many positions: as many as give each processor two blocks. */
static int32_t wide_parts(const gpu *g, int32_t n_blocks, int32_t longest)
{
    int32_t wanted = (int32_t)divide_up(2 * g->info.n_processors, n_blocks);
    int32_t most = (int32_t)divide_up(longest, RUN_KEYS), n = wanted < most ? wanted : most;
    return n > MAX_WIDE_PARTS ? MAX_WIDE_PARTS : n;
}

/* Tokens in units of so many, each of one sequence. */
static lace_status attend_wide(const gpu_job *j, batch_attend *p, int32_t unit, lace_error *err)
{
    const gpu_cache *c = &p->a.cache;
    bool is_run = unit > 1 && wide_fits(j->g, c->head_dim, j->is_exact, true);
    bool is_exact =
        j->is_exact || (is_short(j->batch) && wide_fits(j->g, c->head_dim, true, is_run));
    wide_kernel k = wide_kernel_of(c->head_dim, is_exact, is_run);
    int32_t n_blocks =
        p->n_tokens / unit * (int32_t)divide_up(unit * (p->a.n_heads / c->n_heads), k.rows);
    int32_t longest = longest_of(j->batch, p), seen = p->a.window + RUN_KEYS - 1;
    longest = p->a.window && seen < longest ? seen : longest;
    p->unit = unit;
    /* Only single tokens are cut, of which it is known how far they see. */
    p->n_parts = unit > 1 || j->batch->seen ? 1 : wide_parts(j->g, n_blocks * c->n_heads, longest);
    p->parts = (float *)j->scratch;
    uint32_t grid[3] = {(uint32_t)n_blocks, (uint32_t)c->n_heads, (uint32_t)p->n_parts};
    TRY(gpu_start(j, k.name, grid, k.threads, k.shared_bytes, p, err));
    return join_parts(j, p, err);
}

/* Whether a run of n tokens goes by attend_wide.cu: 256 values alone do while there are fewer blocks
 * than processors, of which each then has twice the warps. */
static bool run_is_wide(const gpu_job *j, const batch_attend *p, int32_t n)
{
    const gpu_cache *c = &p->a.cache;
    int32_t per_head = p->a.n_heads / c->n_heads;
    if (c->head_dim <= NARROW_DIM)
        return false;
    return c->head_dim > WIDE_DIM / 2 || per_head > MAX_SHARING ||
           run_bytes(j->is_exact, dim_for(c->head_dim)) > (uint32_t)j->g->info.max_shared_bytes ||
           divide_up(n * per_head, RUN_ROWS) * c->n_heads < j->g->info.n_processors;
}

static bool is_wide(const gpu *g, bool is_exact, const step *s)
{
    const kv_layer *kv = &s->kv;
    return kv->head_dim > NARROW_DIM && kv->head_dim <= WIDE_DIM && kv->page_tokens >= RUN_KEYS &&
           wide_fits(g, kv->head_dim, is_exact, false);
}

/* ---- Latents --------------------------------------------------------------------------------- */

/* Rows of a block, and its shared memory, as attend_latent.cu counts them. */
static int32_t latent_rows(bool is_exact)
{
    return is_exact ? 32 : 64;
}

static uint32_t latent_bytes(bool is_exact)
{
    uint32_t rows = (uint32_t)latent_rows(is_exact);
    uint32_t kept = (rows + (is_exact ? 1 : 2) * RUN_KEYS) * (2 * LATENT_DIM + 16);
    return (is_exact ? 2 : 1) * kept + rows * (RUN_KEYS + 4) * 4;
}

/* Tokens in units of so many, each of one sequence. */
static lace_status attend_latents(const gpu_job *j, batch_attend *p, int32_t unit, lace_error *err)
{
    bool is_exact = j->is_exact || is_short(j->batch);
    int32_t n_processors = j->g->info.n_processors, longest = longest_of(j->batch, p);
    int32_t n_blocks =
        p->n_tokens / unit * (int32_t)divide_up(unit * p->a.n_heads, latent_rows(is_exact));
    /* Parts of a context while there are too few blocks: as many as there is scratch for. */
    int32_t wanted = (int32_t)divide_up(n_processors, n_blocks);
    int32_t most = 1 + 4 * n_processors / p->n_tokens,
            parts = (int32_t)divide_up(longest, PART_KEYS);
    most = most < MAX_CONTEXT_PARTS ? most : MAX_CONTEXT_PARTS;
    parts = parts < most ? parts : most;
    p->unit = unit;
    p->n_parts = wanted < parts ? wanted : parts;
    p->part_keys = (int32_t)round_up((uint64_t)divide_up(longest, p->n_parts), RUN_KEYS);
    p->parts = (float *)j->scratch;
    p->slabs = NULL;
    uint32_t grid[3] = {(uint32_t)n_blocks, (uint32_t)p->n_parts, 1};
    const char *name = is_exact ? "attend_latent_exact" : "attend_latent_rows";
    TRY(gpu_start(j, name, grid, LATENT_THREADS, latent_bytes(is_exact), p, err));
    return join_parts(j, p, err);
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* log2 of the positions of a page; -1: they are no power of two. */
static int page_shift(const kv_layer *kv)
{
    int shift = 0;
    while (1 << shift < kv->page_tokens)
        shift++;
    return 1 << shift == kv->page_tokens ? shift : -1;
}

static bool is_latent(const gpu *g, const step *s)
{
    const kv_layer *kv = &s->kv;
    return kv->v_in_k && kv->n_heads == 1 && kv->head_dim <= LATENT_DIM &&
           kv->v_dim <= LATENT_V_DIM && kv->head_dim % 8 == 0 && kv->v_dim % 8 == 0 &&
           s->a.attend.window == 0 && s->a.attend.chunk == 0 && s->a.attend.softcap <= 0 &&
           !s->a.attend.sinks && page_shift(kv) >= 0 &&
           latent_bytes(false) <= (uint32_t)g->info.max_shared_bytes &&
           latent_bytes(true) <= (uint32_t)g->info.max_shared_bytes;
}

bool gpu_attend_is_batched(const gpu *g, bool is_exact, const step *s)
{
    const kv_layer *kv = &s->kv;
    if (kv->v_in_k)
        return is_latent(g, s);
    if (s->a.attend.chunk != 0 || kv->v_dim != kv->head_dim || kv->head_dim % 8 != 0 ||
        page_shift(kv) < 0)
        return false;
    if (kv->head_dim > NARROW_DIM)
        return is_wide(g, is_exact, s);
    return s->a.attend.n_heads / kv->n_heads <= MAX_SHARING &&
           run_bytes(is_exact, dim_for(kv->head_dim)) <= (uint32_t)g->info.max_shared_bytes;
}

lace_status gpu_attend_tokens(const gpu_job *j, const device_step *ds, int32_t begin, int32_t end,
                              lace_error *err)
{
    const gpu_batch *b = j->batch;
    const bool has_latents = ds->first->kv.v_in_k;
    batch_attend p = {.a = gpu_attend_of(j, ds->first), .page_shift = page_shift(&ds->first->kv)};
    for (int32_t t = begin; t < end;) {
        int32_t n = gpu_run_length(b, t);
        p.token0 = t;
        /* Only runs know of tokens that see what is ahead. */
        if (n >= MIN_RUN || b->seen) {
            p.n_tokens = n;
            TRY(has_latents             ? attend_latents(j, &p, n, err)
                : run_is_wide(j, &p, n) ? attend_wide(j, &p, n, err)
                                        : attend_run(j, &p, false, err));
            t += n;
            continue;
        }
        /* All short runs up to the next long one, token by token. */
        while (t < end && (n = gpu_run_length(b, t)) < MIN_RUN)
            t += n;
        p.n_tokens = t - p.token0;
        TRY(has_latents                       ? attend_latents(j, &p, 1, err)
            : p.a.cache.head_dim > NARROW_DIM ? attend_wide(j, &p, 1, err)
                                              : attend_singles(j, ds, &p, err));
    }
    return LACE_OK;
}

lace_status gpu_launch_attention(const gpu_job *j, const device_step *ds, lace_error *err)
{
    return gpu_attend_tokens(j, ds, 0, j->batch->n_tokens, err);
}

lace_status gpu_attend_expanded(const gpu_job *j, batch_attend *p, lace_error *err)
{
    return attend_run(j, p, true, err);
}

bool gpu_attends_expanded(const gpu *g, int32_t head_dim)
{
    return head_dim <= dims[N_DIMS - 1].dim && head_dim % 8 == 0 &&
           run_bytes(false, dim_for(head_dim)) <= (uint32_t)g->info.max_shared_bytes;
}

uint64_t gpu_attend_scratch_bytes(const gpu *g, const step *s, int64_t n_rows, int64_t n_context)
{
    bool is_cut_more = !s->kv.v_in_k && s->kv.head_dim > NARROW_DIM;
    uint64_t parts = (uint64_t)divide_up(n_context, is_cut_more ? RUN_KEYS : PART_KEYS);
    uint64_t most_parts = is_cut_more ? MAX_WIDE_PARTS : MAX_CONTEXT_PARTS;
    parts = parts < most_parts ? parts : most_parts;
    /* More than one part only while there are few blocks. */
    uint64_t blocks = (uint64_t)n_rows * (uint64_t)s->kv.n_heads;
    uint64_t most = 4 * (uint64_t)g->info.n_processors + blocks;
    uint64_t used = blocks * parts < most ? blocks * parts : most;
    uint64_t per_head = (uint64_t)(s->a.attend.n_heads / s->kv.n_heads);
    return 4 * used * per_head * (uint64_t)(2 + s->kv.head_dim);
}
