/*
 * Latent attention of batches: the three steps as they are (absorbed), or, for runs of tokens where
 * that is less work, with keys and values of each head (expanded; plan/latents.h has the sums).
 *
 * Keys lie where the first step would leave its results, values where the second would:
 * plan_keep_latents sees to it that both, the queries and the result have memory of their own. So
 * nothing has to be kept ready for it but the matrices of heads in f16, which are in the scratch. If
 * not all heads have room, they are taken in groups.
 *
 * Models with float weights stay with latents, whose kernels are exact to more than f16.
 */
#include "base/numbers.h"
#include "backend/cuda/handover.h"
#include "backend/cuda/latent_params.h"

/* Nothing below is worth the launches; and small batches must not depend on what is beside them. */
enum { LEAST_ROWS = 64 };

static const char *const matrix_names[TILE_COUNT] = {
#define X(kind) [TILE_##kind] = "latent_matrix_" #kind
    X(F16), X(BF16), X(Q8_0), X(Q8_1), X(Q4_0),   X(Q4_1), X(NL4),
    X(FP4), X(Q2_K), X(Q4_K), X(Q5_K), X(IQ4_XS), X(Q6_K),
#undef X
};

bool gpu_latents_are_batched(const gpu *g, bool is_exact, const step *s, const latent_form *f,
                             int64_t n_rows)
{
    uint64_t k_bytes, v_bytes;
    const weight *k = s[0].a.heads.weights, *v = s[2].a.heads.weights;
    const uint64_t key = 4 * (uint64_t)(f->nope + f->turned);
    return n_rows >= LEAST_ROWS && !is_exact && gpu_attend_is_batched(g, is_exact, &s[1]) &&
           f->rank % 8 == 0 && f->nope % 8 == 0 && f->turned % 8 == 0 && f->turned > 0 &&
           f->value % 8 == 0 && f->value <= f->nope + f->turned &&
           gpu_attends_expanded(g, f->nope + f->turned) && matrix_names[tile_kind_of(k->type)] &&
           matrix_names[tile_kind_of(v->type)] && gpu_heads_bytes(&s[0], &k_bytes) &&
           gpu_heads_bytes(&s[2], &v_bytes) && s[0].in[0].stride % 16 == 0 &&
           s[2].out[0].stride % 8 == 0 && key % 16 == 0 &&
           LATENT_MAKE_BYTES <= g->info.max_shared_bytes;
}

uint64_t gpu_latent_scratch_bytes(const step *s, int64_t n_rows)
{
    const weight *w = s->a.heads.weights;
    uint64_t matrix = 2 * (uint64_t)w->n_rows * (uint64_t)w->n_cols;
    return n_rows < LEAST_ROWS ? 0 : (uint64_t)s->a.heads.n_heads * matrix;
}

/* ---- Absorbed -------------------------------------------------------------------------------- */

/* Tokens [begin, end) of a batch, which are whole runs. */
static lace_status attend_absorbed(const gpu_job *j, const step *s, int32_t begin, int32_t end,
                                   lace_error *err)
{
    gpu_batch part = *j->batch;
    part.n_tokens = end - begin;
    gpu_job of_part = *j;
    of_part.batch = &part;
    for (int i = 0; i < 3; i++) {
        step one = s[i];
        device_step d = lower_alone(j->g, j->is_exact, &one, part.n_tokens, part.n_outputs);
        if (i == 1) { /* it counts tokens from the batch's first */
            d.first = &s[1];
            TRY(d.launch == gpu_launch_attention ? gpu_attend_tokens(j, &d, begin, end, err)
                                                 : gpu_launch_general(j, &s[1], err));
            continue;
        }
        one.in[0].data += (uint64_t)begin * one.in[0].stride;
        one.out[0].data += (uint64_t)begin * one.out[0].stride;
        TRY(d.launch(&of_part, &d, err));
    }
    return LACE_OK;
}

/* ---- Expanded -------------------------------------------------------------------------------- */

/* What is made for a run: n tokens from t on, behind n_past positions. */
typedef struct expansion {
    const step *s;
    const latent_form *f;
    int32_t t, n, n_past;
    int32_t n_group; /* heads at a time; 0: there is no room for one */
    int64_t n_pages;
    int32_t *table; /* of pages */
    uint8_t *keys, *values;
    uint64_t row_bytes; /* of both */
} expansion;

static expansion plan_expansion(const gpu_job *j, const step *s, const latent_form *f, int32_t t,
                                int32_t n)
{
    expansion x = {.s = s, .f = f, .t = t, .n = n, .n_past = j->batch->host->positions[t]};
    x.n_pages = divide_up((int64_t)x.n_past + n, LATENT_PAGE);
    x.row_bytes = 2 * (uint64_t)(f->nope + f->turned);
    const uint64_t n_rows = (uint64_t)j->batch->n_tokens;
    const uint64_t head_bytes = (uint64_t)x.n_pages * LATENT_PAGE * x.row_bytes;
    const uint64_t table_bytes = round_up(4 * (uint64_t)x.n_pages, 1024);
    const uint64_t k_bytes = n_rows * s[0].out[0].stride, v_bytes = n_rows * s[1].out[0].stride;
    const uint64_t matrix =
        2 * (uint64_t)f->rank * (uint64_t)(f->nope > f->value ? f->nope : f->value);
    x.table = (int32_t *)s[0].out[0].data;
    x.keys = s[0].out[0].data + table_bytes;
    x.values = s[1].out[0].data;
    uint64_t heads = k_bytes < table_bytes ? 0 : (k_bytes - table_bytes) / head_bytes;
    heads = heads < v_bytes / head_bytes ? heads : v_bytes / head_bytes;
    heads = heads < j->scratch_bytes / matrix ? heads : j->scratch_bytes / matrix;
    x.n_group = heads < (uint64_t)f->n_heads ? (int32_t)heads : f->n_heads;
    return x;
}

static bool is_worth_it(const expansion *x)
{
    if (x->n_group == 0 || x->n < LEAST_ROWS)
        return false;
    /*
     * From prompts of GLM-4.7-Flash on an H200. Behind 8,192 tokens 2,048 have 16.8 million pairs more:
     * 231 ms absorbed, and 51 ms expanded, of which a part makes keys and values of the 8,192. Making
     * costs so much that 128 tokens at the beginning stay absorbed, which is 5 % sooner there.
     */
    static const latent_costs costs = {
        .matrices = 0.9, .absorbed = 1.3, .making = 1.3, .expanded = 0.4};
    return latents_expand(x->f, &costs, x->n, x->n_past);
}

/* Values that a matrix of heads [head, head + n) makes of all positions, into `out`. */
static lace_status make(const gpu_job *j, const expansion *x, bool is_keys, int32_t head, int32_t n,
                        lace_error *err)
{
    const step *s = &x->s[is_keys ? 0 : 2];
    const weight *w = s->a.heads.weights;
    tile_kind kind = tile_kind_of(w->type);
    latent_matrix m = {.out = (uint16_t *)j->scratch,
                       .n_rows = (int32_t)w->n_rows,
                       .n_cols = (int32_t)w->n_cols,
                       .is_turned = is_keys};
    gpu_heads_bytes(s, &m.head_bytes);
    m.tiles = w->data + (uint64_t)head * m.head_bytes;
    int64_t n_pieces = divide_up(w->n_rows, TILE_ROWS) * divide_up(w->n_cols, 64);
    uint32_t grid[3] = {(uint32_t)divide_up(n_pieces, LATENT_MATRIX_WARPS), (uint32_t)n, 1};
    TRY(gpu_start(j, matrix_names[kind], grid, 32 * LATENT_MATRIX_WARPS, 0, &m, err));

    gpu_attend a = gpu_attend_of(j, &x->s[1]);
    int shift = 0;
    while (1 << shift < a.cache.page_tokens)
        shift++;
    latent_keys p = {.cache = a.cache,
                     .matrix = m.out,
                     .out = is_keys ? x->keys : x->values,
                     .table = x->table,
                     .row_bytes = x->row_bytes,
                     .scale = kind == TILE_F16 || kind == TILE_BF16 ? 1.0f : 1.0f / 256,
                     .token0 = x->t,
                     .page_shift = shift,
                     .n_positions = x->n_past + x->n,
                     .n_heads = n,
                     .n_each = is_keys ? x->f->nope : x->f->value,
                     .rank = x->f->rank,
                     .n_turned = is_keys ? x->f->turned : 0};
    grid[0] = (uint32_t)divide_up((int64_t)n * p.n_each, LATENT_MAKE_COLS);
    grid[1] = (uint32_t)divide_up(p.n_positions, LATENT_MAKE_ROWS);
    TRY(gpu_start(j, "latent_make", grid, LATENT_MAKE_THREADS, LATENT_MAKE_BYTES, &p, err));
    uint32_t positions[3] = {(uint32_t)(x->n_pages * LATENT_PAGE), 1, 1};
    return is_keys ? gpu_start(j, "latent_turned", positions, 128, 0, &p, err) : LACE_OK;
}

static lace_status attend_expanded(const gpu_job *j, const expansion *x, lace_error *err)
{
    const latent_form *f = x->f;
    const operand *q = &x->s[0].in[0], *out = &x->s[2].out[0];
    for (int32_t head = 0; head < f->n_heads; head += x->n_group) {
        int32_t left = f->n_heads - head, n = left < x->n_group ? left : x->n_group;
        TRY(make(j, x, true, head, n, err));
        TRY(make(j, x, false, head, n, err));
        batch_attend p = {.a = gpu_attend_of(j, &x->s[1]),
                          .token0 = x->t,
                          .n_tokens = x->n,
                          .page_shift = 5,
                          .n_parts = 1};
        _Static_assert(LATENT_PAGE == 1 << 5, "page_shift");
        p.a.q = (const float *)q->data + head * (f->nope + f->turned);
        p.a.q_stride = (int64_t)(q->stride / 4);
        p.a.out = (float *)out->data + head * f->value;
        p.a.out_stride = (int64_t)(out->stride / 4);
        p.a.n_heads = n;
        gpu_cache *c = &p.a.cache;
        c->data = x->keys;
        c->page_bytes = (uint64_t)n * LATENT_PAGE * x->row_bytes;
        c->k_offset = 0;
        c->v_offset = (uint64_t)(x->values - x->keys);
        c->row_bytes = x->row_bytes;
        c->type = DTYPE_F16;
        c->page_tokens = LATENT_PAGE;
        c->n_heads = n;
        c->head_dim = f->nope + f->turned;
        c->v_dim = f->value;
        c->v_in_k = 0;
        c->tables = x->table;
        c->pages_per_sequence = 0; /* all sequences have this table */
        TRY(gpu_attend_expanded(j, &p, err));
    }
    return LACE_OK;
}

/* ---- A batch --------------------------------------------------------------------------------- */

lace_status gpu_launch_latents(const gpu_job *j, const device_step *d, lace_error *err)
{
    const gpu_batch *b = j->batch;
    const step *s = d->first;
    int32_t begin = 0; /* of what is left with latents */
    for (int32_t t = 0; t < b->n_tokens && !b->seen;) {
        int32_t n = gpu_run_length(b, t);
        expansion x = plan_expansion(j, s, &d->a.latents, t, n);
        if (is_worth_it(&x)) {
            if (begin < t)
                TRY(attend_absorbed(j, s, begin, t, err));
            TRY(attend_expanded(j, &x, err));
            begin = t + n;
        }
        t += n;
    }
    return begin < b->n_tokens ? attend_absorbed(j, s, begin, b->n_tokens, err) : LACE_OK;
}
