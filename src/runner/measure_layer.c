/* What stands in a layer beside products of whole matrices, timed on the CPU: experts and attention. */
#include <math.h>

#include "base/mem.h"
#include "model/outline.h"
#include "model/transformer.h"
#include "runner/measure.h"
#include "runner/measure_time.h"

/* A program on the CPU that begins with rows of a table. */
typedef struct layer_bench {
    device *d;
    queue *q;
    program *program;
    weight table;
    weight_rows table_rows;
    float *values; /* [table_rows.n_rows, table_rows.n_cols] */
} layer_bench;

static void layer_bench_deinit(layer_bench *b)
{
    program_free(b->program);
    queue_close(b->q);
    device_close(b->d);
    mem_free(b->values);
}

static lace_status open_bench(layer_bench *b, const device_options *o, int64_t n_rows,
                              int64_t n_cols, lace_error *err)
{
    b->values = mem_calloc((size_t)(n_rows * n_cols), sizeof *b->values);
    if (!b->values)
        return error_nomem(err, "a measurement");
    b->table_rows = (weight_rows){.type = DTYPE_F32,
                                  .kept = DTYPE_F32,
                                  .blocks = (const uint8_t *)b->values,
                                  .n_rows = n_rows,
                                  .n_cols = n_cols,
                                  .n_bytes = 4 * (uint64_t)(n_rows * n_cols),
                                  .is_table = true};
    TRY(device_open("cpu", o, &b->d, err));
    TRY(device_open_queue(b->d, &b->q, err));
    return device_place(b->d, &b->table_rows, &b->table, err);
}

/* The plan's result is the last row of y. */
static lace_status compile(layer_bench *b, plan *p, value y, const program_options *options,
                           const program_memory *memory, lace_error *err)
{
    if (p->status == LACE_OK)
        plan_result(p, plan_gather(p, y));
    TRY(plan_check(p, err));
    TRY(device_compile(b->d, p, options, &b->program, err));
    return program_prepare(b->program, memory, err);
}

/* ---- Experts --------------------------------------------------------------------------------- */

enum { MANY_TOKENS = 256, EXPERT_LISTS = 3 };

/* The experts of one layer. */
typedef struct expert_set {
    layer_bench base;
    moe_params moe;
    weight *weights;               /* [EXPERT_LISTS, n_experts] of which moe has the addresses */
    weight_rows *rows;             /* the same */
    const model_matrix **matrices; /* the same; NULL: there is none */
    int64_t width;                 /* what they read */
    int32_t n_choices;             /* that share no expert */
    double expert_bytes, expert_products;
} expert_set;

static lace_status find_experts(const model *m, int layer, expert_set *s, lace_error *err)
{
    s->moe = build_moe_params(m, layer, m->layers[layer].gate_experts ? GLU_SILU : GLU_RELU2);
    const int32_t n = s->moe.n_experts;
    const weight **lists[] = {&s->moe.gate, &s->moe.up, &s->moe.down};
    s->width = m->layers[layer].up_experts->n_cols;
    s->n_choices = n / s->moe.n_used;
    s->weights = mem_calloc((size_t)(EXPERT_LISTS * n), sizeof *s->weights);
    s->rows = mem_calloc((size_t)(EXPERT_LISTS * n), sizeof *s->rows);
    s->matrices = mem_calloc((size_t)(EXPERT_LISTS * n), sizeof *s->matrices);
    if (!s->weights || !s->rows || !s->matrices)
        return error_nomem(err, "a measurement");
    for (int k = 0; k < EXPERT_LISTS; k++) {
        const weight *first = *lists[k];
        if (!first)
            continue;
        for (int32_t i = 0; i < m->n_matrices; i++)
            if (m->matrices[i].target >= first && m->matrices[i].target < first + n)
                s->matrices[k * n + (m->matrices[i].target - first)] = &m->matrices[i];
        *lists[k] = s->weights + (size_t)(k * n);
    }
    return LACE_OK;
}

static lace_status load_experts(const model *m, expert_set *s, pool *workers, lace_error *err)
{
    layer_bench *b = &s->base;
    const int32_t n = EXPERT_LISTS * s->moe.n_experts;
    for (int32_t i = 0; i < n; i++) {
        if (!s->matrices[i])
            continue;
        s->rows[i] = s->matrices[i]->rows;
        s->rows[i].kept = matrix_kept_as(b->d, s->matrices[i]);
        TRY(device_place(b->d, &s->rows[i], &s->weights[i], err));
        s->expert_bytes += (double)s->weights[i].n_bytes / s->moe.n_experts;
        s->expert_products += (double)(s->rows[i].n_rows * s->rows[i].n_cols) / s->moe.n_experts;
    }
    TRY(device_begin_load(b->d, err));
    lace_status status = device_load(b->d, &b->table_rows, &b->table, workers, err);
    for (int32_t i = 0; i < n && status == LACE_OK; i++) {
        if (!s->matrices[i])
            continue;
        status = weights_prepare(m->files, s->matrices[i]->source, err);
        if (status == LACE_OK)
            status = device_load(b->d, &s->rows[i], &s->weights[i], workers, err);
    }
    lace_status ended = device_end_load(b->d, status == LACE_OK ? err : NULL);
    return status == LACE_OK ? ended : status;
}

/* Row r of the table: zeros for the experts to read, and logits for every n_choices-th of them. */
static void write_choices(expert_set *s)
{
    for (int32_t r = 0; r < s->n_choices; r++) {
        float *row = s->base.values + r * s->base.table_rows.n_cols;
        for (int32_t e = 0; e < s->moe.n_experts; e++)
            row[s->width + e] = e % s->n_choices == r ? 4.0f : -4.0f;
    }
}

static lace_status make_expert_program(expert_set *s, pool *workers, lace_error *err)
{
    plan_limits limits = {.max_tokens = MANY_TOKENS,
                          .max_outputs = 1,
                          .n_context = MANY_TOKENS,
                          .n_workers = pool_size(workers)};
    program_options options = {.n_sequences = 1, .pages_per_sequence = 1};
    program_memory memory = {.queue = s->base.q, .workers = workers};
    plan *p;
    TRY(plan_create(&limits, &p, err));
    value all = plan_embed(p, &s->base.table, 1);
    value x = plan_slice(p, all, 0, s->width);
    value logits = plan_slice(p, all, s->width, s->moe.n_experts);
    value y = plan_moe(p, x, logits, &s->moe, 1);
    lace_status status = compile(&s->base, p, y, &options, &memory, err);
    plan_free(p);
    return status;
}

static lace_status time_experts(const model *m, const device_options *o, expert_set *s,
                                const spoiler *spoil, type_speed *out, lace_error *err)
{
    int32_t tokens[MANY_TOKENS], zeros[MANY_TOKENS] = {0}, last = 0;
    double one, many;
    TRY(open_bench(&s->base, o, s->n_choices, s->width + s->moe.n_experts, err));
    write_choices(s);
    TRY(load_experts(m, s, spoil->workers, err));
    TRY(make_expert_program(s, spoil->workers, err));
    for (int32_t i = 0; i < MANY_TOKENS; i++)
        tokens[i] = i % s->n_choices;
    batch b = {.n_tokens = 1,
               .n_outputs = 1,
               .tokens = tokens,
               .positions = zeros,
               .sequences = zeros,
               .slots = zeros,
               .outputs = &last};
    TRY(time_batch(s->base.program, &b, spoil, &one, err));
    b.n_tokens = MANY_TOKENS;
    last = MANY_TOKENS - 1;
    TRY(time_batch(s->base.program, &b, spoil, &many, err));
    out->bytes_s = s->moe.n_used * s->expert_bytes / one;
    out->products_s = (double)MANY_TOKENS * s->moe.n_used * s->expert_products / many;
    return LACE_OK;
}

lace_status measure_experts(const model *m, const device_options *o, pool *workers, type_speed *out,
                            lace_error *err)
{
    const model_config *c = &m->config;
    int layer = c->n_layers / 2; /* in the middle types are those of most layers */
    *out = (type_speed){0};
    while (layer < c->n_layers && !(c->layers[layer].has_experts && m->layers[layer].up_experts))
        layer++;
    if (layer == c->n_layers || c->n_experts_used < 1 || c->n_experts_used > c->n_experts)
        return LACE_OK;
    expert_set s = {0};
    spoiler spoil;
    spoiler_init(&spoil, workers);
    lace_status status = find_experts(m, layer, &s, err);
    if (status == LACE_OK)
        status = time_experts(m, o, &s, &spoil, out, err);
    spoiler_deinit(&spoil);
    layer_bench_deinit(&s.base);
    mem_free_all(s.weights, s.rows, s.matrices);
    return status;
}

/* ---- Attention ------------------------------------------------------------------------------- */

static lace_status make_attention(layer_bench *b, const model *m, int layer, const states *kv,
                                  const plan_limits *limits, const program_memory *memory,
                                  lace_error *err)
{
    const layer_config *l = &m->config.layers[layer];
    const int64_t q_width = config_q_width(&m->config, layer);
    const int64_t kv_width = config_kv_width(&m->config, layer);
    program_options options = {
        .n_sequences = 1, .pages_per_sequence = kv->pages_per_sequence, .n_groups = kv->n_groups};
    attend_params params = {.n_heads = l->n_heads, .scale = 1 / sqrtf((float)l->head_dim)};
    plan *p;
    TRY(plan_create(limits, &p, err));
    value all = plan_embed(p, &b->table, 1);
    value q = plan_slice(p, all, 0, q_width);
    value k = plan_slice(p, all, q_width, kv_width);
    value v = plan_slice(p, all, q_width + kv_width, kv_width);
    plan_kv_write(p, k, v, &kv->layers[layer].kv);
    value y = plan_attend(p, q, &kv->layers[layer].kv, &params);
    lace_status status = compile(b, p, y, &options, memory, err);
    plan_free(p);
    return status;
}

static lace_status time_attention(const model *m, int layer, layer_bench *b, states *kv,
                                  pool *workers, int32_t n, double *out, lace_error *err)
{
    enum { MOST_PAGES = MEASURE_MOST_ROWS / PAGE_TOKENS };
    int32_t zeros[MEASURE_MOST_ROWS] = {0}, positions[MEASURE_MOST_ROWS], last = n - 1;
    int32_t numbers[MOST_PAGES];
    const int32_t *tables[MEASURE_MOST_ROWS];
    const int32_t *const *groups[STATES_MAX_GROUPS];
    uint8_t *pages[STATES_MAX_GROUPS] = {0}, *recurrent[DEVICES_MAX] = {0};
    plan_limits limits = {
        .max_tokens = n, .max_outputs = 1, .n_context = n, .n_workers = pool_size(workers)};
    TRY(device_begin_load(b->d, err));
    lace_status status = device_load(b->d, &b->table_rows, &b->table, workers, err);
    lace_status ended = device_end_load(b->d, status == LACE_OK ? err : NULL);
    TRY(status != LACE_OK ? status : ended);
    TRY(states_allocate(kv, b->q, err));
    for (int32_t i = 0; i < MOST_PAGES; i++)
        numbers[i] = i;
    for (int32_t i = 0; i < n; i++) {
        positions[i] = i;
        tables[i] = numbers;
    }
    for (int32_t g = 0; g < STATES_MAX_GROUPS; g++)
        groups[g] = tables;
    for (int32_t g = 0; g < kv->n_groups; g++)
        pages[g] = kv->groups[g].data;
    program_memory memory = {.queue = b->q, .workers = workers, .pages = pages, .slots = recurrent};
    TRY(make_attention(b, m, layer, kv, &limits, &memory, err));
    batch prompt = {.n_tokens = n,
                    .n_outputs = 1,
                    .tokens = zeros,
                    .positions = positions,
                    .sequences = zeros,
                    .slots = zeros,
                    .outputs = &last,
                    .pages = groups};
    TRY(time_batch(b->program, &prompt, NULL, out, err));
    *out /= n;
    return LACE_OK;
}

lace_status measure_attention(model *m, const device_options *o, pool *workers, int32_t n_tokens,
                              double *out, lace_error *err)
{
    const model_config *c = &m->config;
    const int32_t n = n_tokens < MEASURE_MOST_ROWS ? n_tokens : MEASURE_MOST_ROWS;
    states_options options = {
        .type = DTYPE_F16, .v_type = DTYPE_F16, .n_sequences = 1, .n_context = n, .n_batch = n};
    states *kv = NULL;
    layer_bench b = {0};
    int layer = 0;
    *out = 0;
    TRY(model_states(m, &options, &kv, err));
    while (layer < c->n_layers &&
           !(kv->layers[layer].kind == STATE_PAGED && c->layers[layer].n_heads > 0))
        layer++;
    /* Latents have forms of their own. */
    bool is_usual = layer < c->n_layers && c->latent.kv_rank == 0 && c->value_dim == c->head_dim;
    lace_status status = LACE_OK;
    if (is_usual) {
        int64_t width = config_q_width(c, layer) + 2 * config_kv_width(c, layer);
        status = open_bench(&b, o, 1, width, err);
        if (status == LACE_OK)
            status = time_attention(m, layer, &b, kv, workers, n, out, err);
    }
    states_free(kv); /* they give their memory back to the queue */
    layer_bench_deinit(&b);
    return status;
}
