/*
 * attend: softmax(q k) v over the paged cache, for decode, prefill and mixed batches; with windows,
 * caps and sinks; of K and V of the same and of different widths, and of latents.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_cache.h"

/*
 * The plain version adds in double, the others in float: a score of size x is off by a few 1e-7 x,
 * and its weight by as much. With scores up to about 30 that is 1e-5 in a weight, which averages
 * out over positions and values; squared, 1e-10. Both decode the same stored bytes, whatever the
 * type.
 */
static const double max_nmse = 1e-9;

/*
 * AVX-512 VNNI has many rows in fixed point, if the cache is not of floats: 13 bits are off by 1e-4
 * and so are scores of size 1, those of size 5 by 5e-4; squared, 3e-7.
 */
static const double max_nmse_words = 1e-6;
static bool has_words;

/*
 * Cooperative matrices take weights as halves, which are off by 2^-12 at most, 1.4e-4 on average: squared,
 * 2e-8, and with room.
 */
static const double max_nmse_halves = 1e-7;
bool check_has_matrices;

static double allowed(dtype type)
{
    if (check_has_matrices && type == DTYPE_F16)
        return max_nmse_halves;
    return has_words && type != DTYPE_F32 ? max_nmse_words : max_nmse;
}

static const struct {
    int n_heads, n_kv_heads, head_dim, v_dim;
    bool v_in_k;
} heads[] = {{4, 4, 64, 64, false},    {8, 2, 128, 128, false},  {8, 1, 64, 64, false},
             {6, 2, 96, 96, false},    {5, 1, 80, 80, false},    {7, 1, 32, 32, false},
             {2, 1, 256, 256, false},  {12, 1, 64, 64, false},   {60, 1, 32, 32, false},
             {3, 3, 24, 24, false},    {16, 2, 128, 128, false}, {4, 2, 96, 64, false},
             {3, 3, 64, 160, false},   {20, 1, 576, 512, true},  {6, 1, 96, 64, true},
             {100, 1, 160, 128, true}, {5, 1, 40, 32, true}};
enum { N_HEADS = sizeof heads / sizeof heads[0] };

/* Sequences: positions before, tokens now. Lengths around the blocks of 64 and the
 * runs of a few. */
static const struct {
    const char *name;
    int n_sequences, n_past[CACHE_MAX_SEQUENCES], n_new[CACHE_MAX_SEQUENCES];
} batches[] = {
    {"first token", 1, {0}, {1}},
    {"decode 63", 1, {63}, {1}},
    {"decode 200", 1, {199}, {1}},
    {"decode 700, in parts", 1, {699}, {1}},
    {"draft of two in parts", 1, {510}, {2}},
    {"decode of six in parts", 6, {5, 300, 255, 256, 511, 600}, {1, 1, 1, 1, 1, 1}},
    {"decode of four", 4, {5, 64, 130, 1}, {1, 1, 1, 1}},
    {"draft of three", 1, {90}, {3}},
    {"prefill 70", 1, {0}, {70}},
    {"prefill 17 after 100", 1, {100}, {17}},
    {"decode in step", 3, {40, 41, 42}, {1, 1, 1}},
    {"any order", 1, {0}, {40}},
    {"mixed", 3, {40, 0, 77}, {1, 30, 6}},
};
enum { N_BATCHES = sizeof batches / sizeof batches[0] };

/* What tokens see, if not what is before them: all of their sequence, or up to any position. */
typedef enum sight { SEES_PAST, SEES_ALL, SEES_ANY } sight;

typedef struct extras {
    int window;
    float softcap;
    bool has_sinks;
    sight sight;
    int ahead, chunk;
} extras;
static const extras all_extras[] = {
    {0, 0, false, SEES_PAST, 0, 0},  {37, 0, false, SEES_PAST, 0, 0},
    {0, 20, false, SEES_PAST, 0, 0}, {0, 0, true, SEES_PAST, 0, 0},
    {8, 5, true, SEES_PAST, 0, 0},   {0, 0, false, SEES_ALL, 0, 0},
    {9, 0, false, SEES_ALL, 8, 0},   {37, 5, true, SEES_ALL, 20, 0},
    {0, 0, false, SEES_ANY, 0, 0},   {70, 0, false, SEES_ANY, 40, 0},
    {0, 0, false, SEES_PAST, 0, 32}, {0, 9, true, SEES_PAST, 0, 50},
};
enum { N_EXTRAS = sizeof all_extras / sizeof all_extras[0] };

static step make_step(const check_cache *c, int n_heads, extras e, float q_size)
{
    int dim = c->kv.head_dim, n = c->b.n_tokens;
    int64_t v_width = (int64_t)n_heads * c->kv.v_dim;
    step s = {.op = OP_ATTEND,
              .in = {check_operand(ACT_F32, (int64_t)n_heads * dim, n)},
              .out = {check_operand(ACT_F32, v_width, n)}};
    for (int t = 0; t < n; t++) {
        float *q = check_row(&s.in[0], t);
        check_fill_f32(q, s.in[0].width, CHECK_NORMAL);
        for (int64_t i = 0; i < s.in[0].width; i++)
            q[i] *= q_size;
    }
    s.kv = c->kv;
    s.a.attend.n_heads = n_heads;
    s.a.attend.scale = 1.0f / sqrtf((float)dim);
    s.a.attend.window = e.window;
    s.a.attend.chunk = e.chunk;
    s.a.attend.ahead = e.ahead;
    s.a.attend.softcap = e.softcap;
    if (e.has_sinks) {
        float *sinks = check_alloc(4 * (uint64_t)n_heads);
        check_fill_f32(sinks, n_heads, CHECK_NORMAL);
        s.a.attend.sinks = sinks;
    }
    return s;
}

static cache_shape make_shape(dtype type, int h, int k)
{
    cache_shape cs = {.type = type,
                      .n_heads = heads[h].n_kv_heads,
                      .head_dim = heads[h].head_dim,
                      .v_dim = heads[h].v_dim,
                      .v_in_k = heads[h].v_in_k,
                      .page_tokens = 1 << check_random_int(3, 7),
                      .n_sequences = batches[k].n_sequences};
    memcpy(cs.n_past, batches[k].n_past, sizeof cs.n_past);
    memcpy(cs.n_new, batches[k].n_new, sizeof cs.n_new);
    int v_dim = heads[h].v_dim ? heads[h].v_dim : heads[h].head_dim;
    cs.is_mixed = !check_is_gpu() && (h + k) % 3 == 1 && v_dim % 32 == 0;
    cs.v_type = type == DTYPE_IQ4_NL ? DTYPE_Q8_0 : type == DTYPE_Q5_0 ? DTYPE_F16 : DTYPE_IQ4_NL;
    return cs;
}

/* What each token sees, in memory of the check; NULL: what is before it. Call it when the positions
 * are final. */
static const int32_t *make_seen(const check_cache *c, sight which)
{
    if (which == SEES_PAST)
        return NULL;
    int32_t *seen = check_alloc(4 * (uint64_t)c->b.n_tokens);
    for (int t = 0; t < c->b.n_tokens; t++) {
        int own = c->b.positions[t] + 1, all = own;
        for (int i = 0; i < c->b.n_tokens; i++)
            if (c->b.pages[1][i] == c->b.pages[1][t] && c->b.positions[i] >= all)
                all = c->b.positions[i] + 1;
        seen[t] = which == SEES_ALL ? all : check_random_int(own, all);
    }
    return seen;
}

/* One shape: sharp attention (scores of 10 and more) on every third. */
static void check_one(const kernel_table *ref, kernel_fn fn, dtype type, int h, int k, int e,
                      int n_workers)
{
    check_cache c;
    cache_shape cs = make_shape(type, h, k);
    float size = check_random_int(0, 2) == 0 ? 5.0f : 1.0f;
    check_shape("%s, %d heads, %d of kv, of %d%s %d, pages of %d, window %d ahead %d chunk %d "
                "sight %d cap %g "
                "sinks %d size %g workers %d",
                batches[k].name, heads[h].n_heads, heads[h].n_kv_heads, heads[h].head_dim,
                heads[h].v_in_k ? " with" : ",", heads[h].v_dim, cs.page_tokens,
                all_extras[e].window, all_extras[e].ahead, all_extras[e].chunk, all_extras[e].sight,
                (double)all_extras[e].softcap, all_extras[e].has_sinks, (double)size, n_workers);
    check_cache_init(&c, &cs);
    check_cache_fill(&c, 1.0f);
    if (strcmp(batches[k].name, "any order") == 0) {
        int32_t *positions = check_alloc(4 * (uint64_t)c.b.n_tokens);
        for (int t = 0; t < c.b.n_tokens; t++)
            positions[t] = check_random_int(0, c.n_context - 1);
        c.b.positions = positions;
    }
    c.b.seen = make_seen(&c, all_extras[e].sight);
    step s = make_step(&c, heads[h].n_heads, all_extras[e], size);
    operand want = s.out[0];
    operand got = check_operand_copy(&want, c.b.n_tokens);
    s.out[0] = want;
    check_run(ref->ops[OP_ATTEND], &s, &c.b, 1, c.n_context);
    s.out[0] = got;
    check_run(fn, &s, &c.b, n_workers, c.n_context);
    check_rows("out", &want, &got, c.b.n_tokens, allowed(type));
    if (check_is_gpu()) /* there are no workers */
        return;
    operand again = check_operand_copy(&got, c.b.n_tokens);
    s.out[0] = again;
    check_run(fn, &s, &c.b, n_workers % CHECK_MAX_WORKERS + 1, c.n_context);
    check_bytes("out, by another number of workers", got.data, again.data,
                (uint64_t)c.b.n_tokens * got.stride);
}

/* Positions after a token's own hold NaNs and must not be seen. */
static void check_future(const kernel_table *ref, kernel_fn fn, dtype type)
{
    check_cache c;
    cache_shape cs = {.type = type,
                      .n_heads = 1,
                      .head_dim = 64,
                      .page_tokens = 32,
                      .n_sequences = 1,
                      .n_past = {0},
                      .n_new = {100}};
    check_shape("unwritten positions of the last page");
    check_cache_init(&c, &cs);
    check_cache_fill(&c, 1.0f);
    c.b.n_tokens = 70;
    const int32_t *pages = c.b.pages[1][0];
    for (int p = 70; p < 128; p++)
        for (int i = 0; i < 2; i++)
            memset(c.kv.data + (uint64_t)pages[p / 32] * c.kv.page_bytes +
                       (i ? c.kv.v_offset : c.kv.k_offset) + (uint64_t)(p % 32) * c.kv.row_bytes,
                   0xFF, c.kv.row_bytes);
    step s = make_step(&c, 2, all_extras[0], 1.0f);
    operand want = s.out[0], got = check_operand_copy(&want, 70);
    s.out[0] = want;
    check_run(ref->ops[OP_ATTEND], &s, &c.b, 1, c.n_context);
    s.out[0] = got;
    check_run(fn, &s, &c.b, 1, c.n_context);
    check_rows("out", &want, &got, 70, allowed(type));
}

static void bench_shape(kernel_fn fn, const char *what, int n_heads, cache_shape cs)
{
    check_cache c;
    int n_past = cs.n_past[0], n_new = cs.n_new[0];
    cs.page_tokens = 32;
    cs.n_sequences = 1;
    check_shape("bench");
    check_cache_init(&c, &cs);
    check_cache_fill(&c, 1.0f);
    step s = make_step(&c, n_heads, all_extras[0], 1.0f);
    double seen = (double)n_new * n_past + 0.5 * n_new * (n_new + 1.0);
    check_rate rate = {.n_macs = (double)n_heads * (c.kv.head_dim + c.kv.v_dim) * seen};
    if (n_new == 1)
        rate.n_bytes = cs.n_heads * (n_past + 1.0) *
                       (double)(c.kv.row_bytes + (cs.v_in_k ? 0 : c.kv.v_row_bytes));
    check_bench_step(what, fn, &s, &c.b, c.n_context, rate);
}

static void bench(kernel_fn fn, const char *what, dtype type, int n_heads, int n_kv_heads, int dim,
                  int n_past, int n_new)
{
    if (check_is_bench())
        bench_shape(fn, what, n_heads,
                    (cache_shape){.type = type,
                                  .n_heads = n_kv_heads,
                                  .head_dim = dim,
                                  .n_past = {n_past},
                                  .n_new = {n_new}});
}

/* Latents of 512 with 64 rotated, of 20 heads. */
static void bench_latent(kernel_fn fn, const char *what, dtype type, int n_past, int n_new)
{
    if (check_is_bench())
        bench_shape(fn, what, 20,
                    (cache_shape){.type = type,
                                  .n_heads = 1,
                                  .head_dim = 576,
                                  .v_dim = 512,
                                  .v_in_k = true,
                                  .n_past = {n_past},
                                  .n_new = {n_new}});
}

static void check_type(const kernel_table *ref, const kernel_table *table, dtype type)
{
    kernel_fn fn = table->ops[OP_ATTEND];
    has_words = table->level == CPU_AVX512_VNNI || table->level == CPU_AVX512_VBMI;
    if (!check_begin("attend", dtype_describe(type)->name, CHECK_FN(fn)))
        return;
    /* All of them take minutes; on a processor that pretends to be a GPU, many. */
    bool is_short = check_is_quick() && check_is_gpu();
    int some = is_short ? 29 : check_is_quick() ? 12 : 4;
    for (int h = 0; h < N_HEADS; h++) {
        if (is_short && heads[h].n_heads * heads[h].head_dim > 2048)
            continue;
        for (int k = 0;
             k < N_BATCHES && heads[h].head_dim % dtype_describe(type)->block_values == 0; k++)
            for (int e = 0; e < N_EXTRAS; e++)
                if ((h + k + e) % some == 0)
                    check_one(ref, fn, type, h, k, e, 1 + (h + k + e) % CHECK_MAX_WORKERS);
    }
    check_future(ref, fn, type);
    bench(fn, "decode 32/8x128 at 2048", type, 32, 8, 128, 2047, 1);
    bench(fn, "decode 32/4x64 at 2048", type, 32, 4, 64, 2047, 1);
    bench(fn, "decode 32/32x128 at 2048", type, 32, 32, 128, 2047, 1);
    bench(fn, "verify 4, 32/8x128 at 2048", type, 32, 8, 128, 2044, 4);
    bench(fn, "prefill 512, 8/2x128", type, 8, 2, 128, 0, 512);
    bench(fn, "prefill 512, 8/1x64", type, 8, 1, 64, 0, 512);
    bench_latent(fn, "latent decode at 2048", type, 2047, 1);
    bench_latent(fn, "latent prefill 512", type, 0, 512);
    bench_latent(fn, "latent prefill 512 at 2048", type, 2048, 512);
    check_end();
}

void check_attend(const kernel_table *ref, const kernel_table *table)
{
    check_type(ref, table, DTYPE_F32);
    check_type(ref, table, DTYPE_F16);
    check_type(ref, table, DTYPE_Q8_0);
    if (check_is_gpu()) /* has no others */
        return;
    check_type(ref, table, DTYPE_Q5_0);
    check_type(ref, table, DTYPE_IQ4_NL);
}
