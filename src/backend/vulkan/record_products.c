/* Operations that multiply with matrices, and products with matrices that lie in rows. */
#include "backend/vulkan/record_products.h"
#include "base/mem.h"
#include "base/numbers.h"

enum { THREADS = 64, TOKENS_TOGETHER = 4 };

lace_status record_matrices(recorder *r, const weight *w, int32_t n, uint64_t *out, lace_error *err)
{
    uint64_t *addresses = mem_alloc((size_t)n * sizeof *addresses);
    if (!addresses)
        return error_nomem(err, "a list of matrices");
    for (int32_t i = 0; i < n; i++)
        addresses[i] = address_of(w[i].data);
    *out = record_numbers(r, addresses, (uint64_t)n * sizeof *addresses);
    mem_free(addresses);
    return LACE_OK;
}

uint64_t record_result(recorder *r, const product *d, uint32_t *stride)
{
    if (d->result) {
        *stride = (uint32_t)d->w->n_rows;
        record_writes_at(r, d->result, 4 * (uint64_t)d->n * (uint64_t)d->w->n_rows);
        return d->result;
    }
    *stride = floats_of(d->out);
    record_writes(r, d->out, d->n);
    return address_of(d->out->data);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Each row of a matrix with n tokens; rows that have matrices of their own come one by one. */
static lace_status record_row_product(recorder *r, const product *d, lace_error *err)
{
    const weight *w = d->w;
    int64_t n_heads = d->n_heads > 0 ? d->n_heads : 1;
    uint32_t together = d->n > 1 && !d->choices ? TOKENS_TOGETHER : 1;
    struct matmul_args p = {.matrix = address_of(w->data),
                            .bias = address_of(d->bias),
                            .x = address_of(d->x->data),
                            .x_stride = floats_of(d->x),
                            .row_bytes = (uint32_t)weights_row_bytes(w->type, w->n_cols),
                            .n_rows = (uint32_t)w->n_rows,
                            .n_cols = (uint32_t)w->n_cols,
                            .n_tokens = (uint32_t)d->n,
                            .adds = d->adds,
                            .n_used = 1,
                            .x_divisor = (uint32_t)(d->n / max_i64(d->n_x, 1)),
                            .x_head = (uint32_t)(w->n_cols + d->n_rest),
                            .out_head = (uint32_t)(w->n_rows + d->n_rest),
                            .weighs = d->weighs,
                            .scale = d->scale};
    if (d->n_heads > 0)
        TRY(record_matrices(r, w, d->n_heads, &p.matrices, err));
    if (d->choices) {
        TRY(record_matrices(r, w, d->n_experts, &p.matrices, err));
        p.choices = address_of(d->choices->data);
        p.choice_stride = floats_of(d->choices) / 2;
        p.n_used = (uint32_t)d->n_used;
        record_reads(r, d->choices, d->n / d->n_used);
    }
    record_reads(r, d->x, d->n_x);
    p.result = record_result(r, d, &p.out_stride);
    record_launch l = {SHADER_matmul,
                       {weights_number(w->type), together},
                       {divide_up(w->n_rows, THREADS), divide_up(d->n, together), n_heads}};
    return record_start(r, &l, &p, sizeof p, err);
}

/* act(gate) * up of products that lie in scratch, `up` behind `gate`; up 0: act(gate) alone. */
static lace_status start_glu(recorder *r, const operand *out, uint64_t gate, uint64_t up,
                             int64_t width, int64_t n, glu_kind kind, lace_error *err)
{
    struct rows_args p = {.x = gate,
                          .z = up,
                          .y = address_of(out->data),
                          .x_stride = (uint32_t)width,
                          .z_stride = (uint32_t)width,
                          .y_stride = floats_of(out),
                          .width = (uint32_t)width,
                          .group = 1,
                          .kind = (uint32_t)kind};
    uint64_t bytes = 4 * (uint64_t)n * (uint64_t)width;
    record_reads_at(r, gate, bytes);
    record_reads_at(r, up, up ? bytes : 0);
    record_writes(r, out, n);
    record_launch l = {SHADER_glu, .grid = {n, 1, 1}};
    return record_start(r, &l, &p, sizeof p, err);
}

/* ---- Both ------------------------------------------------------------------------------------ */

static bool is_tiled(const weight *w)
{
    return weights_in_tiles(w->type, false);
}

/* A product without a pair. */
static lace_status start_single(recorder *r, const product *d, lace_error *err)
{
    return is_tiled(d->w) ? record_tile_product(r, d, err) : record_row_product(r, d, err);
}

/* A pair: at once if both lie alike, else one after the other, and then what is made of them. */
static lace_status start_pair(recorder *r, const product *d, lace_error *err)
{
    uint64_t bytes = 4 * (uint64_t)d->n * (uint64_t)d->w->n_rows;
    bool is_many = record_is_many(d->choices ? d->n / d->n_used : d->n);
    if (is_tiled(d->w) && d->pair->type == d->w->type && !is_many)
        return record_tile_product(r, d, err);
    for (int i = 0; i < 2; i++) {
        product one = *d;
        one.w = i ? d->pair : d->w;
        one.bias = i ? d->pair_bias : d->bias;
        one.pair = NULL;
        one.result = r->scratch + (uint64_t)i * bytes;
        one.is_sorted = i > 0 && is_tiled(d->w) && d->pair->type == d->w->type;
        TRY(start_single(r, &one, err));
    }
    return start_glu(r, d->out, r->scratch, r->scratch + bytes, d->w->n_rows, d->n, d->glu, err);
}

/* The matrices behind number i of a group that can share its launch. */
static void add_alike(const step *s, int i, int64_t n, product *d)
{
    d->n_more = 0;
    for (int k = i + 1; k < s->a.matmul.n_weights && is_tiled(d->w) && !record_is_many(n); k++) {
        if (s->a.matmul.weights[k]->type != d->w->type)
            return;
        d->more[d->n_more] = s->a.matmul.weights[k];
        d->more_bias[d->n_more] = s->a.matmul.biases[k];
        d->more_out[d->n_more++] = &s->out[k];
    }
}

lace_status record_matmul(recorder *r, const step *s, lace_error *err)
{
    int64_t n = record_rows(r, s);
    product d = {.x = &s->in[0],
                 .n_x = n,
                 .n = n,
                 .adds = s->op == OP_MATMUL_ADD,
                 .scale = s->a.matmul.scale,
                 .glu = s->a.matmul.glu};
    if (s->op == OP_MATMUL_GLU) {
        d.w = s->a.matmul.weights[0];
        d.pair = s->a.matmul.weights[1];
        d.bias = s->a.matmul.biases[0];
        d.pair_bias = s->a.matmul.biases[1];
        d.out = &s->out[0];
        return start_pair(r, &d, err);
    }
    const step *norm = s->a.matmul.n_weights == 1 && is_tiled(s->a.matmul.weights[0])
                           ? record_norm_behind(r, &s->out[0], n)
                           : NULL;
    for (int i = 0; i < s->a.matmul.n_weights; i += 1 + d.n_more) {
        d.w = s->a.matmul.weights[i];
        d.bias = s->a.matmul.biases[i];
        d.out = &s->out[i];
        d.norm = norm;
        add_alike(s, i, n, &d);
        TRY(start_single(r, &d, err));
    }
    r->n_taken = norm ? 2 : 1;
    return LACE_OK;
}

lace_status record_heads(recorder *r, const step *s, lace_error *err)
{
    int64_t n = record_rows(r, s), rest = s->a.heads.n_rest;
    const weight *w = s->a.heads.weights;
    product d = {.w = w,
                 .x = &s->in[0],
                 .n_x = n,
                 .n = n,
                 .out = &s->out[0],
                 .scale = 1,
                 .n_heads = s->a.heads.n_heads,
                 .n_rest = s->a.heads.n_rest};
    TRY(start_single(r, &d, err));
    struct rest_args q = {.x = address_of(s->in[0].data),
                          .y = address_of(s->out[0].data),
                          .x_stride = floats_of(&s->in[0]),
                          .y_stride = floats_of(&s->out[0]),
                          .n_heads = (uint32_t)s->a.heads.n_heads,
                          .n_rest = (uint32_t)rest,
                          .n_cols = (uint32_t)w->n_cols,
                          .n_rows = (uint32_t)w->n_rows};
    record_reads(r, &s->in[0], n);
    record_writes(r, &s->out[0], n);
    record_launch l = {SHADER_heads_rest, .grid = {rest > 0 ? n : 0, 1, 1}};
    return record_start(r, &l, &q, sizeof q, err);
}

/* ---- Experts --------------------------------------------------------------------------------- */

/* n: choices of all tokens. */
static lace_status record_moe_glu(recorder *r, const step *s, int64_t n, lace_error *err)
{
    const weight *gate = s->a.moe.gate, *up = s->a.moe.up;
    product d = {.w = gate ? gate : up,
                 .pair = gate ? up : NULL,
                 .bias = gate ? s->a.moe.gate_bias : s->a.moe.up_bias,
                 .pair_bias = s->a.moe.up_bias,
                 .x = &s->in[0],
                 .n_x = n / s->a.moe.n_used,
                 .n = n,
                 .out = &s->out[0],
                 .scale = 1,
                 .glu = s->a.moe.glu,
                 .choices = &s->in[1],
                 .n_experts = s->a.moe.n_experts,
                 .n_used = s->a.moe.n_used,
                 .weighs = s->a.moe.weighs_inputs};
    d.sorted = r->scratch + 8 * (uint64_t)n * (uint64_t)d.w->n_rows;
    if (gate)
        return start_pair(r, &d, err);
    d.result = r->scratch;
    TRY(start_single(r, &d, err));
    return start_glu(r, &s->out[0], r->scratch, 0, up->n_rows, n, s->a.moe.glu, err);
}

static lace_status record_moe_down(recorder *r, const step *s, int64_t n, lace_error *err)
{
    int64_t width = s->a.moe.down->n_rows, n_tokens = n / s->a.moe.n_used;
    product d = {.w = s->a.moe.down,
                 .bias = s->a.moe.down_bias,
                 .x = &s->in[0],
                 .n_x = n,
                 .n = n,
                 .result = r->scratch,
                 .scale = 1,
                 .choices = &s->in[1],
                 .n_experts = s->a.moe.n_experts,
                 .n_used = s->a.moe.n_used,
                 .sorted = r->scratch + 4 * (uint64_t)n * (uint64_t)width};
    TRY(start_single(r, &d, err));
    struct combine_args c = {.rows = r->scratch,
                             .choices = address_of(s->in[1].data),
                             .result = address_of(s->out[0].data),
                             .rows_stride = (uint32_t)width,
                             .choice_stride = floats_of(&s->in[1]) / 2,
                             .out_stride = floats_of(&s->out[0]),
                             .width = (uint32_t)width,
                             .n_used = (uint32_t)s->a.moe.n_used,
                             .is_weighed = s->a.moe.weighs_inputs,
                             .makes = s->a.moe.makes,
                             .scale = s->a.moe.scale};
    record_reads_at(r, r->scratch, 4 * (uint64_t)n * (uint64_t)width);
    record_reads(r, &s->in[1], n_tokens);
    record_writes(r, &s->out[0], n_tokens);
    record_launch l = {SHADER_combine, .grid = {n_tokens, 1, 1}};
    return record_start(r, &l, &c, sizeof c, err);
}

lace_status record_moe(recorder *r, const step *s, lace_error *err)
{
    int64_t n_tokens = s->is_output ? r->batch->n_outputs : r->batch->n_tokens;
    int64_t n = n_tokens * s->a.moe.n_used;
    return s->op == OP_MOE_GLU ? record_moe_glu(r, s, n, err) : record_moe_down(r, s, n, err);
}

uint64_t record_scratch_bytes(const step *s, int64_t n_rows)
{
    uint64_t n = (uint64_t)n_rows;
    bool has_experts = s->op == OP_MOE_GLU || s->op == OP_MOE_DOWN;
    int64_t choices = has_experts ? n_rows * s->a.moe.n_used : 0;
    uint64_t sorted = has_experts ? record_sorted_bytes(choices, s->a.moe.n_experts) : 0;
    switch (s->op) {
    case OP_ATTEND:
        return record_attend_bytes(s, n_rows);
    case OP_MATMUL_GLU:
        return 8 * n * (uint64_t)s->a.matmul.weights[0]->n_rows;
    case OP_MOE_GLU:
        return 8 * (uint64_t)choices * (uint64_t)s->a.moe.up->n_rows + sorted;
    case OP_MOE_DOWN:
        return 4 * (uint64_t)choices * (uint64_t)s->a.moe.down->n_rows + sorted;
    default:
        return 0;
    }
}
