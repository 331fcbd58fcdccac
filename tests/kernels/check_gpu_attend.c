/* Attention on a GPU against the plain version: runs, single tokens, mixed batches. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_cache.h"
#include "check_gpu.h"

/*
 * Queries and the weights of the softmax are rounded to f16, scores are sums in f32: a score of
 * size 10 is off by 10 * 2^-12 at most, and its weight by as much; on average 1e-3, squared 1e-6.
 * The sharpest shapes here have scores of 30.
 */
static const double max_nmse = 5e-6;
static const double max_f32_nmse = 1e-5;   /* keys and values of f32 become f16, too */
static const double max_exact_nmse = 1e-9; /* for float weights: everything is two f16 */

static const struct {
    int n_heads, n_kv_heads, head_dim;
    int v_dim; /* of latents; 0: V is not a part of K */
    int n_new; /* only batches that begin with so many new tokens; 0: all */
} heads[] = {{4, 4, 64, 0, 0},      {8, 2, 128, 0, 0},    {8, 1, 64, 0, 0},   {6, 2, 96, 0, 0},
             {5, 1, 80, 0, 0},      {4, 2, 16, 0, 0},     {2, 1, 256, 0, 0},  {8, 2, 256, 0, 0},
             {20, 1, 192, 0, 0},    {4, 2, 512, 0, 0},    {40, 1, 512, 0, 0}, {3, 1, 320, 0, 0},
             {34, 17, 256, 0, 300}, {20, 1, 576, 512, 0}, {3, 1, 96, 64, 0},  {70, 1, 160, 128, 0}};
enum { N_HEADS = sizeof heads / sizeof heads[0] };

static const struct {
    const char *name;
    int n_sequences, n_past[CACHE_MAX_SEQUENCES], n_new[CACHE_MAX_SEQUENCES];
} batches[] = {
    {"decode of four", 4, {5, 64, 130, 1}, {1, 1, 1, 1}},
    {"long decode of two", 2, {1500, 700}, {1, 1}},
    {"one token", 1, {97}, {1}},
    {"one token at depth", 1, {1900}, {1}},
    {"draft of three", 1, {90}, {3}},
    {"prefill 70", 1, {0}, {70}},
    {"prefill 17 after 100", 1, {100}, {17}},
    {"prefill 300", 1, {0}, {300}},
    {"mixed", 3, {40, 0, 77}, {1, 30, 6}},
};
enum { N_BATCHES = sizeof batches / sizeof batches[0] };

typedef struct extras {
    int window;
    float softcap;
    bool has_sinks;
    bool sees_all; /* of the sequence, or `ahead` positions of it */
    int ahead;
} extras;
static const extras all_extras[] = {{0, 0, false, false, 0},  {37, 0, false, false, 0},
                                    {0, 20, false, false, 0}, {0, 0, true, false, 0},
                                    {8, 5, true, false, 0},   {0, 0, false, true, 0},
                                    {9, 0, false, true, 8},   {0, 5, true, true, 20}};
enum { N_EXTRAS = sizeof all_extras / sizeof all_extras[0] };

typedef struct shape_of {
    dtype type;
    int n_heads, n_kv_heads, head_dim, v_dim;
    extras e;
} shape_of;

/* A step and its cache; sequences and tables as the GPU wants them. */
typedef struct attend_case {
    check_cache c;
    step s;
    int32_t *sequences;
    const int32_t *tables[CACHE_MAX_SEQUENCES];
    int pages_per_sequence;
} attend_case;

static void make_case(attend_case *a, const cache_shape *cs, const shape_of *o, float q_size)
{
    check_cache_init(&a->c, cs);
    check_cache_fill(&a->c, 1.0f);
    int n = a->c.b.n_tokens, dim = o->head_dim;
    a->s = (step){.op = OP_ATTEND, .row_factor = 1};
    operand *q = &a->s.in[0];
    *q = (operand){.width = (int64_t)o->n_heads * dim};
    q->stride = act_row_bytes(ACT_F32, q->width);
    q->data = check_alloc(q->stride * (uint64_t)n);
    operand *out = &a->s.out[0];
    *out = (operand){.width = (int64_t)o->n_heads * (o->v_dim ? o->v_dim : dim)};
    out->stride = act_row_bytes(ACT_F32, out->width);
    out->data = check_alloc(out->stride * (uint64_t)n);
    for (int t = 0; t < n; t++) {
        check_fill_f32(check_row(q, t), q->width, CHECK_NORMAL);
        for (int64_t i = 0; i < q->width; i++)
            check_row(q, t)[i] *= q_size;
    }
    a->s.kv = a->c.kv;
    a->s.a.attend.n_heads = o->n_heads;
    a->s.a.attend.scale = 1.0f / sqrtf((float)dim);
    a->s.a.attend.window = o->e.window;
    a->s.a.attend.ahead = o->e.ahead;
    a->s.a.attend.softcap = o->e.softcap;
    if (o->e.has_sinks) {
        float *sinks = check_alloc(4 * (uint64_t)o->n_heads);
        check_fill_f32(sinks, o->n_heads, CHECK_NORMAL);
        a->s.a.attend.sinks = sinks;
    }
    /* Tables of one length, filled up with pages that are not there. */
    a->pages_per_sequence = (a->c.n_context + cs->page_tokens - 1) / cs->page_tokens;
    a->sequences = check_alloc(4 * (uint64_t)n);
    int32_t *seen = check_alloc(4 * (uint64_t)n);
    int t = 0;
    for (int i = 0; i < cs->n_sequences; i++) {
        int used = (cs->n_past[i] + cs->n_new[i] + cs->page_tokens - 1) / cs->page_tokens;
        int32_t *table = check_alloc(4 * (uint64_t)a->pages_per_sequence);
        for (int k = 0; k < a->pages_per_sequence; k++)
            table[k] = k < used ? a->c.b.pages[1][t][k] : -1;
        /* Pages that no token's window reaches are given back. */
        for (int k = 0; o->e.window && k < used; k++)
            if ((k + 1) * cs->page_tokens <= cs->n_past[i] + 1 - o->e.window)
                table[k] = -1;
        a->tables[i] = table;
        for (int k = 0; k < cs->n_new[i]; k++) {
            seen[t] = cs->n_past[i] + cs->n_new[i];
            a->sequences[t++] = i;
        }
    }
    a->c.b.seen = o->e.sees_all ? seen : NULL;
}

static void prepare(gpu_step *g, const attend_case *a, int n_sequences)
{
    gpu_step_prepare(g, &a->s, &a->c.b, a->sequences, a->tables, n_sequences, a->pages_per_sequence,
                     a->c.n_bytes, a->c.n_context);
}

static void check_one(const kernel_table *ref, const shape_of *o, int k, bool is_exact)
{
    cache_shape cs = {.type = o->type,
                      .n_heads = o->n_kv_heads,
                      .head_dim = o->head_dim,
                      .v_dim = o->v_dim,
                      .v_in_k = o->v_dim > 0,
                      .page_tokens = 32,
                      .n_sequences = batches[k].n_sequences};
    memcpy(cs.n_past, batches[k].n_past, sizeof cs.n_past);
    memcpy(cs.n_new, batches[k].n_new, sizeof cs.n_new);
    float size = check_random_int(0, 2) == 0 ? 5.0f : 1.0f;
    check_shape("%s, %d heads, %d of kv, of %d, window %d cap %g sinks %d size %g sees all %d",
                batches[k].name, o->n_heads, o->n_kv_heads, o->head_dim, o->e.window,
                (double)o->e.softcap, o->e.has_sinks, (double)size, o->e.sees_all);
    attend_case a;
    gpu_step g;
    make_case(&a, &cs, o, size);
    int n = a.c.b.n_tokens;
    prepare(&g, &a, cs.n_sequences);
    g.job.is_exact = is_exact;
    gpu_step_run(&g);
    gpu_step_fetch(&g, 0, &a.s.out[0], n);
    gpu_step_release();
    step plain = a.s;
    plain.out[0].data = check_alloc(a.s.out[0].stride * (uint64_t)n);
    check_run(ref->ops[OP_ATTEND], &plain, &a.c.b, 1, a.c.n_context);
    const double most = is_exact ? max_exact_nmse : o->type == DTYPE_F32 ? max_f32_nmse : max_nmse;
    for (int t = 0; t < n; t++)
        if (!check_f32("out", check_row(&plain.out[0], t), check_row(&a.s.out[0], t),
                       a.s.out[0].width, most))
            return;
}

/* Prompts, and one token of one or several sequences. */
static void bench(const char *name, const shape_of *o)
{
    static const struct {
        int n_sequences, n_past, n_new;
    } shapes[] = {{1, 0, 512},  {1, 0, 2048},  {1, 1536, 512}, {1, 100, 1},
                  {1, 1000, 1}, {1, 16000, 1}, {4, 511, 1},    {4, 4000, 1}};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        cache_shape cs = {.type = o->type,
                          .n_heads = o->n_kv_heads,
                          .head_dim = o->head_dim,
                          .v_dim = o->v_dim,
                          .v_in_k = o->v_dim > 0,
                          .page_tokens = 32,
                          .n_sequences = shapes[k].n_sequences};
        for (int i = 0; i < cs.n_sequences; i++) {
            cs.n_past[i] = shapes[k].n_past;
            cs.n_new[i] = shapes[k].n_new;
        }
        check_shape("bench");
        attend_case a;
        gpu_step g;
        char what[64];
        make_case(&a, &cs, o, 1);
        prepare(&g, &a, cs.n_sequences);
        double keys = 0, all = fmin(shapes[k].n_past, o->e.window ? o->e.window : INFINITY);
        for (int i = 0; i < shapes[k].n_new; i++)
            keys += fmin(shapes[k].n_past + i + 1, o->e.window ? o->e.window : INFINITY);
        snprintf(what, sizeof what, "%s %s, %d x %d tokens after %d", name,
                 dtype_describe(o->type)->name, cs.n_sequences, shapes[k].n_new, shapes[k].n_past);
        int values = o->head_dim + (o->v_dim ? o->v_dim : o->head_dim);
        int kept = o->n_kv_heads * (o->v_dim ? o->head_dim : 2 * o->head_dim);
        gpu_step_bench(&g, what,
                       cs.n_sequences * (all + shapes[k].n_new) * (double)row_bytes(o->type, kept),
                       cs.n_sequences * keys * o->n_heads * values * 2);
        gpu_step_release();
    }
}

static void bench_all(dtype type)
{
    static const struct {
        const char *name;
        int n_heads, n_kv_heads, head_dim, v_dim, window;
        bool is_any; /* for caches of bytes too */
    } all[] = {{"attend", 32, 8, 128, 0, 0, false},
               {"attend 256", 8, 4, 256, 0, 0, true},
               {"windows 256", 8, 2, 256, 0, 512, true},
               {"attend 512", 8, 2, 512, 0, 0, true},
               {"latents", 20, 1, 576, 512, 0, false}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (type == DTYPE_F16 || (type == DTYPE_Q8_0 && all[i].is_any))
            bench(all[i].name, &(shape_of){.type = type,
                                           .n_heads = all[i].n_heads,
                                           .n_kv_heads = all[i].n_kv_heads,
                                           .head_dim = all[i].head_dim,
                                           .v_dim = all[i].v_dim,
                                           .e = {.window = all[i].window}});
}

void check_gpu_attend(const kernel_table *ref)
{
    static const dtype types[] = {DTYPE_F16, DTYPE_Q8_0, DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        if (!check_begin("gpu_attend", dtype_describe(types[i])->name, ref))
            continue;
        for (int h = 0; h < N_HEADS; h++)
            for (int k = 0; k < N_BATCHES; k++) {
                if (batches[k].n_new[0] < heads[h].n_new)
                    continue;
                enum { CAUSAL = 5 }; /* the first of them */
                const int e = h + k + i, some[] = {e % CAUSAL, CAUSAL + e % (N_EXTRAS - CAUSAL)};
                for (int n = 0; n < 2; n++) {
                    shape_of o = {types[i],          heads[h].n_heads, heads[h].n_kv_heads,
                                  heads[h].head_dim, heads[h].v_dim,   all_extras[some[n]]};
                    if (o.v_dim) /* latents have fast kernels without any */
                        o.e = all_extras[n ? CAUSAL : 0];
                    if (types[i] == DTYPE_Q8_0 && o.head_dim % 32 != 0)
                        continue;
                    check_one(ref, &o, k, false);
                    check_one(ref, &o, k, true);
                }
            }
        check_end();
        if (check_is_bench())
            bench_all(types[i]);
    }
}
