/*
 * One token's attention in one launch (decode_attend*.cu), as a list of single tokens has it: norms and
 * rotation of heads, the new row of the cache, and attention, against the plain versions of these steps.
 */
#include <math.h>
#include <string.h>

#include "check_cache.h"
#include "check_gpu.h"
#include "backend/cuda/lower_layer.h"
#include "tensor/cache_row.h"

/*
 * Queries and shares are two f16 (of q8_0: shares two bf16), keys and values are as the cache has them;
 * sums are made in f32. The sharpest scores here are 30, of which exp() is off by 3e-6.
 */
static const double max_nmse = 1e-9;

/* A rotated key that differs in its last bit may be rounded to the next number of f16, or of q8_0: a few of
 * them. Where nothing is computed, the row has the same bits. */
static const double max_row_nmse = 1e-4;

enum { PAGE = DECODE_PAGE, MOST_DIM = 256 };

static const struct {
    dtype type;
    int head_dim;
} caches[] = {{DTYPE_F16, 64},  {DTYPE_F16, 80},   {DTYPE_F16, 96},
              {DTYPE_F16, 128}, {DTYPE_F16, 256},  {DTYPE_Q8_0, 64},
              {DTYPE_Q8_0, 96}, {DTYPE_Q8_0, 128}, {DTYPE_Q8_0, 256}};
enum { N_CACHES = sizeof caches / sizeof caches[0] };

static const struct {
    int n_heads, n_kv_heads;
} groups[] = {{4, 2}, {1, 1}, {8, 1}, {9, 3}, {14, 2}};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static const int pasts[] = {0, 1, 15, 16, 40, 97, 300, 1900};
enum { N_PASTS = sizeof pasts / sizeof pasts[0], LONG_PAST = 1000 };

/* parts: of a head are turned; 0: nothing is. */
typedef struct turn {
    int parts, of;
    bool is_neox;
} turn;
static const turn turns[] = {
    {1, 1, true}, {1, 1, false}, {0, 1, false}, {1, 2, true}, {1, 4, false}};
enum { N_TURNS = sizeof turns / sizeof turns[0] };

typedef struct extras {
    int window;
    float softcap;
    bool has_sinks, q_norm, k_norm;
} extras;
static const extras all_extras[] = {{0, 0, false, false, false},
                                    {37, 0, false, true, true},
                                    {0, 20, false, true, false},
                                    {0, 0, true, false, false},
                                    {16, 5, true, false, true}};
enum { N_EXTRAS = sizeof all_extras / sizeof all_extras[0] };

/* The steps, with addresses of the host. */
enum { QKV, Q_NORM, K_NORM, ROPE, ATTEND, OUTPUT, N_STEPS };

typedef struct token_case {
    const turn *t;
    const extras *e;
    int n_heads, position, cluster;
    check_cache c;
    int32_t *table; /* [2, pages]: the second row is the sequence's */
    int n_pages;
    operand q, k, v, out, angles;
    step steps[N_STEPS];
} token_case;

static float *random_row(int64_t n)
{
    float *x = check_alloc(4 * (uint64_t)n);
    check_fill_f32(x, n, CHECK_NORMAL);
    return x;
}

/* Rows that are not written yet have no meaning, and pages that no token sees are given back. */
static void spoil_what_is_not_there(token_case *k)
{
    const kv_layer *kv = &k->c.kv;
    const int32_t *pages = k->c.b.pages[1][0];
    uint8_t *page = kv->data + (uint64_t)pages[k->position / PAGE] * kv->page_bytes;
    for (int h = 0; h < kv->n_heads; h++)
        for (int i = k->position % PAGE; i < PAGE; i++) {
            uint64_t row = (uint64_t)(h * PAGE + i) * kv->row_bytes;
            memset(page + kv->k_offset + row, 0xff, kv->row_bytes);
            memset(page + kv->v_offset + row, 0xff, kv->row_bytes);
        }
    k->n_pages = k->position / PAGE + 1;
    k->table = check_alloc(8 * (uint64_t)k->n_pages);
    for (int i = 0; i < k->n_pages; i++) {
        bool is_seen = !k->e->window || (i + 1) * PAGE > k->position + 1 - k->e->window;
        k->table[i] = -1;
        k->table[k->n_pages + i] = is_seen ? pages[i] : -1;
    }
}

static void make_angles(token_case *k, int n_dims)
{
    for (int i = 0; i < n_dims / 2; i++) {
        float angle = check_random_f32(-3.2f, 3.2f);
        check_row(&k->angles, 0)[2 * i] = cosf(angle);
        check_row(&k->angles, 0)[2 * i + 1] = sinf(angle);
    }
}

static void make_steps(token_case *k)
{
    const kv_layer *kv = &k->c.kv;
    int dim = kv->head_dim, n_dims = dim * k->t->parts / k->t->of;
    k->q = check_operand(ACT_F32, (int64_t)k->n_heads * dim, 1);
    k->k = check_operand(ACT_F32, (int64_t)kv->n_heads * dim, 1);
    k->v = check_operand(ACT_F32, (int64_t)kv->n_heads * dim, 1);
    k->out = check_operand(ACT_F32, (int64_t)k->n_heads * dim, 1);
    k->angles = check_operand(ACT_F32, n_dims ? n_dims : 2, 1);
    check_fill_f32(check_row(&k->q, 0), k->q.width, CHECK_NORMAL);
    check_fill_f32(check_row(&k->k, 0), k->k.width, CHECK_NORMAL);
    check_fill_f32(check_row(&k->v, 0), k->v.width, CHECK_NORMAL);
    for (int64_t i = 0; i < k->q.width && check_random_int(0, 2) == 0; i++)
        check_row(&k->q, 0)[i] *= 5;
    make_angles(k, n_dims);
    memset(k->steps, 0, sizeof k->steps);
    step *s = k->steps;
    s[QKV] = (step){.op = OP_MATMUL_GROUP, .out = {k->q, k->k, k->v}};
    s[Q_NORM] = (step){.op = OP_RMS_NORM, .in = {k->q}, .out = {k->q}};
    s[Q_NORM].a.norm.weight = random_row(dim);
    s[Q_NORM].a.norm.group = dim;
    s[Q_NORM].a.norm.eps = 1e-5f;
    s[K_NORM] = s[Q_NORM];
    s[K_NORM].in[0] = s[K_NORM].out[0] = k->k;
    s[K_NORM].a.norm.weight = random_row(dim);
    if (n_dims > 0)
        s[ROPE] = (step){.op = OP_ROPE_KV, .in = {k->angles, k->v}, .out = {k->q, k->k}};
    else
        s[ROPE] = (step){.op = OP_KV_WRITE, .in = {k->k, k->v}};
    s[ROPE].a.rope.n_heads = k->n_heads;
    s[ROPE].a.rope.head_dim = dim;
    s[ROPE].a.rope.n_dims = n_dims;
    s[ROPE].a.rope.is_neox = k->t->is_neox;
    s[ATTEND] = (step){.op = OP_ATTEND, .in = {k->q}, .out = {k->out}};
    s[ATTEND].a.attend.n_heads = k->n_heads;
    s[ATTEND].a.attend.scale = 1.0f / sqrtf((float)dim);
    s[ATTEND].a.attend.window = k->e->window;
    s[ATTEND].a.attend.softcap = k->e->softcap;
    s[ATTEND].a.attend.sinks = k->e->has_sinks ? random_row(k->n_heads) : NULL;
    s[ROPE].kv = s[ATTEND].kv = *kv;
    s[OUTPUT].op = OP_MATMUL_ADD;
    for (int i = 0; i < N_STEPS; i++)
        s[i].row_factor = 1;
}

/* The steps on the card, as one launch; out and the cache come back. */
static void run_on_card(token_case *k, float *out, uint8_t *cache)
{
    const kv_layer *kv = &k->c.kv;
    gpu *g = check_gpu_card();
    lace_error err;
    step s[N_STEPS];
    memcpy(s, k->steps, sizeof s);
    s[ROPE].kv.data = s[ATTEND].kv.data = check_gpu_copy(kv->data, k->c.n_bytes);
    s[Q_NORM].a.norm.weight = check_gpu_copy(s[Q_NORM].a.norm.weight, 4 * (uint64_t)kv->head_dim);
    s[K_NORM].a.norm.weight = check_gpu_copy(s[K_NORM].a.norm.weight, 4 * (uint64_t)kv->head_dim);
    s[ATTEND].a.attend.sinks = check_gpu_copy(s[ATTEND].a.attend.sinks, 4 * (uint64_t)k->n_heads);
    s[ROPE].in[0].data = check_gpu_copy(k->angles.data, k->angles.stride);
    weight w[4] = {{.n_rows = k->q.width}, {.n_rows = k->k.width}, {.n_rows = k->v.width}};
    w[3] = (weight){.type = DTYPE_M4, .n_rows = 256, .n_cols = k->q.width}; /* reads floats */
    for (int i = 0; i < 3; i++) {
        w[i].type = DTYPE_Q4_K;
        w[i].n_cols = 256;
        s[QKV].a.matmul.weights[i] = &w[i];
    }
    s[QKV].a.matmul.n_weights = 3;
    s[OUTPUT].a.matmul.weights[0] = &w[3];
    s[OUTPUT].a.matmul.n_weights = 1;
    decode_segment of = {.first = s, .n_steps = N_STEPS, .is_fused = true};
    of.l = (layer_steps){.qkv = &s[QKV],
                         .q_norm = k->e->q_norm ? &s[Q_NORM] : NULL,
                         .k_norm = k->e->k_norm ? &s[K_NORM] : NULL,
                         .rope = &s[ROPE],
                         .attend = &s[ATTEND],
                         .o = &s[OUTPUT],
                         .is_attention = true};
    decode_form form = {
        .entry = {.width = 256}, .segments = &of, .n_segments = 1, .n_layers = 1, .steps = s};
    decode_layout layout;
    check_gpu_must(decode_layout_init(&form, g, &layout, &err));
    void *zeros = check_alloc(layout.n_bytes);
    memset(zeros, 0, layout.n_bytes);
    decode_layout_place(&layout, &form, g, check_gpu_copy(zeros, layout.n_bytes));
    decode_state state = {.position = k->position, .sequence = 1};
    layout.state = check_gpu_copy(&state, sizeof state);
    layout.q = check_gpu_copy(k->q.data, 4 * (uint64_t)k->q.width);
    layout.k = check_gpu_copy(k->k.data, 4 * (uint64_t)k->k.width);
    layout.v = check_gpu_copy(k->v.data, 4 * (uint64_t)k->v.width);
    gpu_batch tables = {.pages_per_sequence = k->n_pages};
    tables.tables[1] = check_gpu_copy(k->table, 8 * (uint64_t)k->n_pages);
    token_list list = {0};
    lowering low = {.g = g, .tables = &tables, .f = &form, .m = &layout, .out = &list, .err = &err};
    lower_add_attention(&low, &of.l);
    check_gpu_must(low.status);
    check_gpu_must(device_list_prepare(g, list.list.steps, list.list.n_steps, &err));
    gpu_job job = {.g = g, .queue = check_gpu_queue(), .batch = &tables, .cluster = k->cluster};
    device_step *d = list.list.steps;
    check_true(list.list.n_steps == 1 && d->kernel, "it is one launch");
    for (int i = 0; i < list.list.n_steps; i++)
        check_gpu_must(d[i].launch(&job, &d[i], &err));
    check_gpu_fetch(out, decode_layout_vector(&layout, FOR_OUTPUT, &w[3]).planes,
                    4 * (uint64_t)k->q.width);
    check_gpu_fetch(cache, s[ROPE].kv.data, k->c.n_bytes);
    token_list_free(&list);
    decode_layout_free(&layout);
    gpu_step_release();
}

/* The new rows are near those of the plain steps, and nothing else has changed. */
static bool check_new_rows(const token_case *k, uint8_t *got)
{
    const kv_layer *kv = &k->c.kv;
    const uint64_t page = (uint64_t)k->c.b.pages[1][0][k->position / PAGE] * kv->page_bytes;
    uint8_t *saved = check_alloc(k->c.n_bytes);
    float want_row[MOST_DIM], got_row[MOST_DIM];
    memcpy(saved, got, k->c.n_bytes);
    for (int n = 0; n < 2 * kv->n_heads; n++) {
        uint64_t at = page + (n % 2 ? kv->v_offset : kv->k_offset) +
                      (uint64_t)(n / 2 * PAGE + k->position % PAGE) * kv->row_bytes;
        cache_get(kv->type, 0, kv->data + at, kv->head_dim, want_row);
        cache_get(kv->type, 0, got + at, kv->head_dim, got_row);
        if (!check_f32(n % 2 ? "the new value" : "the new key", want_row, got_row, kv->head_dim,
                       n % 2 ? 0 : max_row_nmse))
            return false;
        memcpy(saved + at, kv->data + at, kv->row_bytes);
    }
    return check_bytes("the rest of the cache", kv->data, saved, k->c.n_bytes);
}

static void check_one(const kernel_table *ref, int of, const turn *t, const extras *e, int group,
                      int past, int cluster)
{
    token_case k = {
        .t = t, .e = e, .n_heads = groups[group].n_heads, .position = past, .cluster = cluster};
    cache_shape cs = {.type = caches[of].type,
                      .n_heads = groups[group].n_kv_heads,
                      .head_dim = caches[of].head_dim,
                      .page_tokens = PAGE,
                      .n_sequences = 1,
                      .n_past = {past},
                      .n_new = {1}};
    check_shape("%d heads, %d of kv, of %d, %d before, window %d cap %g sinks %d norms %d %d, "
                "%d/%d turned%s, 2^%d blocks",
                k.n_heads, cs.n_heads, cs.head_dim, past, e->window, (double)e->softcap,
                e->has_sinks, e->q_norm, e->k_norm, t->parts, t->of, t->is_neox ? " neox" : "",
                cluster);
    check_cache_init(&k.c, &cs);
    check_cache_fill(&k.c, 1);
    make_steps(&k);
    spoil_what_is_not_there(&k);
    float *out = check_alloc(4 * (uint64_t)k.q.width);
    uint8_t *cache = check_alloc(k.c.n_bytes);
    run_on_card(&k, out, cache);
    for (int i = Q_NORM; i < ATTEND; i++)
        if ((i != Q_NORM || e->q_norm) && (i != K_NORM || e->k_norm))
            check_run(ref->ops[k.steps[i].op], &k.steps[i], &k.c.b, 1, k.c.n_context);
    bool is_computed = e->k_norm || t->parts > 0;
    if (is_computed ? !check_new_rows(&k, cache)
                    : !check_bytes("the cache", k.c.kv.data, cache, k.c.n_bytes))
        return;
    k.steps[ATTEND].kv.data = cache; /* what comes of these rows */
    check_run(ref->ops[OP_ATTEND], &k.steps[ATTEND], &k.c.b, 1, k.c.n_context);
    check_f32("out", check_row(&k.out, 0), out, k.out.width, max_nmse);
}

void check_gpu_token(const kernel_table *ref)
{
    enum { MOST_CLUSTER = 4 };
    static const dtype types[] = {DTYPE_F16, DTYPE_Q8_0};
    for (int i = 0; i < 2; i++) {
        if (!check_begin("gpu_token", dtype_describe(types[i])->name, ref))
            continue;
        for (int of = 0; of < N_CACHES; of++)
            for (int p = 0; p < N_PASTS && caches[of].type == types[i]; p++)
                for (int t = 0; t < N_TURNS; t++) {
                    if (check_is_quick() && (pasts[p] > LONG_PAST || (of + p + t) % 3 > 0))
                        continue;
                    check_one(ref, of, &turns[t], &all_extras[(of + 2 * p + t) % N_EXTRAS],
                              (p + t) % N_GROUPS, pasts[p], 1 + (of + p + t) % MOST_CLUSTER);
                }
        check_end();
    }
}
