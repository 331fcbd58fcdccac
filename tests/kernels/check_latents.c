/*
 * Latent attention of prompts with keys and values (latents_cpu.h), against the three plain steps:
 * queries to latents, attention to these, sums to values.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/latents_cpu.h"
#include "backend/ref/ref.h"
#include "check_cache.h"
#include "random_blocks.h"
#include "tensor/dtype.h"

enum { MOST_HEADS = 4 };

/*
 * Of floats, what check_attend.c allows. F16 caches at levels with words are off by what it says, in
 * keys, scores and values. Bytes: latents are rounded to 8 bits of the largest of 32, which is off by
 * 1e-3 to 1e-2 of a value.
 */
static const double max_nmse = 1e-9, max_nmse_words = 3e-6, max_nmse_bytes = 3e-4;

static const struct {
    int n_heads, rank, nope, turned, value;
} shapes[] = {
    {4, 64, 32, 32, 64}, {2, 512, 192, 64, 256}, {3, 512, 128, 64, 128}, {1, 96, 64, 32, 32}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const struct {
    int n_sequences, n_past[CACHE_MAX_SEQUENCES], n_new[CACHE_MAX_SEQUENCES];
} batches[] = {
    {1, {0}, {33}}, {1, {0}, {300}}, {1, {530}, {41}}, {1, {255}, {101}}, {2, {0, 77}, {50, 70}}};
enum { N_BATCHES = sizeof batches / sizeof batches[0] };

/* n_heads random matrices of `type`, for impl; the same as floats for the plain kernels. */
static void make_weights(weight *of, weight *plain, const matmul_impl *impl,
                         const matmul_impl *of_floats, dtype type, int n_heads, int64_t n_rows,
                         int64_t n_cols)
{
    for (int h = 0; h < n_heads; h++) {
        uint64_t row = row_bytes(type, n_cols);
        uint8_t *blocks = check_alloc((uint64_t)n_rows * row);
        float *floats = check_alloc(4 * (uint64_t)(n_rows * n_cols));
        random_blocks(type, check_random(), n_rows * n_cols / dtype_describe(type)->block_values,
                      blocks);
        for (int64_t r = 0; r < n_rows; r++)
            unpack_row(type, blocks + (uint64_t)r * row, n_cols, floats + r * n_cols);
        of[h] = (weight){
            .type = type, .n_rows = n_rows, .n_cols = n_cols, .impl = impl, .data = blocks};
        plain[h] = (weight){.type = DTYPE_F32,
                            .n_rows = n_rows,
                            .n_cols = n_cols,
                            .impl = of_floats,
                            .data = (const uint8_t *)floats};
        weight *both[] = {&of[h], &plain[h]};
        for (int i = 0; i < 2; i++) {
            weight *w = both[i];
            if (!w->impl->packed_bytes)
                continue;
            uint8_t *packed = check_alloc(w->impl->packed_bytes(w->type, n_rows, n_cols));
            w->impl->pack(w->type, w->data, n_rows, n_cols, 0, n_rows, packed);
            w->data = packed;
        }
    }
}

static step heads_step(const kernel_table *t, const weight *w, int n_heads, int n_rest)
{
    step s = {.op = OP_MATMUL_HEADS, .row_factor = 1};
    s.a.heads.weights = w;
    s.a.heads.n_heads = n_heads;
    s.a.heads.n_rest = n_rest;
    s.a.heads.form = heads_form(t, w->impl->act);
    return s;
}

/* One over the size of scores before they are scaled. */
static float scale_of(const operand *q, int n, int dim, int n_heads)
{
    double sum = 0;
    for (int t = 0; t < n; t++)
        for (int64_t i = 0; i < q->width; i++)
            sum += pow(check_row(q, t)[i], 2);
    return (float)(1 / sqrt(sum / n / n_heads / dim * dim));
}

static void check_one(const kernel_table *ref, const kernel_table *table, kernel_fn attend,
                      dtype weights, dtype cache, int k, int i, int n_workers, double most)
{
    const int n_heads = shapes[k].n_heads, rank = shapes[k].rank, nope = shapes[k].nope;
    const int turned = shapes[k].turned, value = shapes[k].value;
    cache_shape cs = {.type = cache,
                      .n_heads = 1,
                      .head_dim = rank + turned,
                      .v_dim = rank,
                      .v_in_k = true,
                      .page_tokens = 32,
                      .n_sequences = batches[i].n_sequences};
    memcpy(cs.n_past, batches[i].n_past, sizeof cs.n_past);
    memcpy(cs.n_new, batches[i].n_new, sizeof cs.n_new);
    check_shape("%d heads, latents of %d, %d + %d, %d, batch %d, %s cache, %d workers", n_heads,
                rank, nope, turned, value, i, dtype_describe(cache)->name, n_workers);
    check_cache c;
    weight k_heads[MOST_HEADS], v_heads[MOST_HEADS], k_plain[MOST_HEADS], v_plain[MOST_HEADS];
    check_cache_init(&c, &cs);
    check_cache_fill(&c, 1.0f);
    make_weights(k_heads, k_plain, table->packed[weights], ref->packed[DTYPE_F32], weights, n_heads,
                 rank, nope);
    make_weights(v_heads, v_plain, table->packed[weights], ref->packed[DTYPE_F32], weights, n_heads,
                 value, rank);
    const int n = c.b.n_tokens;
    step to = heads_step(ref, k_plain, n_heads, turned),
         from = heads_step(ref, v_plain, n_heads, 0);
    step s = {.op = OP_ATTEND, .row_factor = 1, .kv = c.kv};
    to.in[0] = check_operand(ACT_F32, n_heads * (nope + turned), n);
    to.out[0] = s.in[0] = check_operand(ACT_F32, n_heads * (rank + turned), n);
    s.out[0] = from.in[0] = check_operand(ACT_F32, n_heads * rank, n);
    from.out[0] = check_operand(ACT_F32, n_heads * value, n);
    for (int t = 0; t < n; t++)
        check_fill_f32(check_row(&to.in[0], t), to.in[0].width, CHECK_NORMAL);
    check_run(ref->ops[OP_MATMUL_HEADS], &to, &c.b, 1, c.n_context);
    s.a.attend.n_heads = n_heads;
    s.a.attend.scale = scale_of(&s.in[0], n, rank + turned, n_heads);
    check_run(ref->ops[OP_ATTEND], &s, &c.b, 1, c.n_context);
    check_run(ref->ops[OP_MATMUL_HEADS], &from, &c.b, 1, c.n_context);

    s.in[1] = to.in[0];
    s.out[1] = check_operand(ACT_F32, n_heads * value, n);
    s.a.attend.latents = (latent_form){.n_heads = n_heads,
                                       .rank = rank,
                                       .nope = nope,
                                       .turned = turned,
                                       .value = value,
                                       .group = c.kv.group,
                                       .n_workers = n_workers};
    s.a.attend.k_heads = k_heads;
    s.a.attend.v_heads = v_heads;
    s.a.attend.k_form = heads_form(table, k_heads->impl->act);
    s.a.attend.v_form = heads_form(table, v_heads->impl->act);
    if (!check_true(latents_are_expanded(&s.a.attend.latents, &c.b), "it is expanded"))
        return;
    check_run(attend, &s, &c.b, n_workers, c.n_context);
    check_rows("values of heads", &from.out[0], &s.out[1], n, most);
}

void check_latents(const kernel_table *ref, const kernel_table *table)
{
    static const dtype weights[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0};
    if (table->ops[OP_ATTEND] == ref->ops[OP_ATTEND])
        return; /* plain kernels do not expand */
    setenv("LACE_LATENTS", "expanded", 1);
    for (int t = 0; t < 3; t++) {
        kernel_fn attend = table->ops[OP_ATTEND];
        const matmul_impl *impl = table->packed[weights[t]];
        /* The level's own attention with the level's own products. */
        if (!impl || !check_begin("latents", dtype_describe(weights[t])->name, CHECK_FN(attend)))
            continue;
        for (int k = 0; k < N_SHAPES; k++)
            for (int i = 0; i < N_BATCHES; i++) {
                bool has_bytes = impl->act != ACT_F32;
                double words =
                    impl->rounding == MATMUL_EXACT && !has_bytes ? max_nmse : max_nmse_words;
                check_one(ref, table, attend, weights[t], DTYPE_F32, k, i, 1 + (k + i) % 3,
                          has_bytes ? max_nmse_bytes : words);
                check_one(ref, table, attend, weights[t], DTYPE_F16, k, i, 1 + (k + i) % 3,
                          has_bytes ? max_nmse_bytes : max_nmse_words);
            }
        check_end();
    }
    unsetenv("LACE_LATENTS");
}
