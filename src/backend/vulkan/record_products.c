/* Products with matrices: whole ones, those of a mixture's experts, those of heads. */
#include "backend/vulkan/recorder.h"
#include "backend/vulkan/vulkan_weights.h"
#include "base/mem.h"
#include "base/numbers.h"

enum { THREADS = 64, TOKENS_TOGETHER = 4 };

/* What most products have in common: n rows of x. */
static struct matmul_args params_of(const weight *w, const operand *x)
{
    return (struct matmul_args){.matrix = address_of(w->data),
                                .x = address_of(x->data),
                                .x_stride = floats_of(x),
                                .row_bytes = (uint32_t)weights_row_bytes(w->type, w->n_cols),
                                .n_rows = (uint32_t)w->n_rows,
                                .n_cols = (uint32_t)w->n_cols,
                                .n_used = 1,
                                .x_divisor = 1,
                                .scale = 1};
}

/* Each row of a matrix with n tokens; rows that have matrices of their own come one by one. */
static lace_status start(recorder *r, const weight *w, struct matmul_args *p, int64_t n,
                         int64_t n_heads, lace_error *err)
{
    uint32_t together = n > 1 && !p->choices ? TOKENS_TOGETHER : 1;
    p->n_tokens = (uint32_t)n;
    record_launch l = {SHADER_matmul,
                       {weights_number(w->type), together},
                       {divide_up(w->n_rows, THREADS), divide_up(n, together), n_heads}};
    return record_start(r, &l, p, sizeof *p, err);
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

static lace_status record_matmul_glu(recorder *r, const step *s, int64_t n, lace_error *err)
{
    int64_t n_ff = s->a.matmul.weights[0]->n_rows;
    uint64_t bytes = 4 * (uint64_t)n * (uint64_t)n_ff;
    for (int i = 0; i < 2; i++) {
        const weight *w = s->a.matmul.weights[i];
        struct matmul_args p = params_of(w, &s->in[0]);
        p.bias = address_of(s->a.matmul.biases[i]);
        p.result = r->scratch + (uint64_t)i * bytes;
        p.out_stride = (uint32_t)n_ff;
        p.scale = s->a.matmul.scale;
        record_reads(r, &s->in[0], n);
        record_writes_at(r, p.result, bytes);
        TRY(start(r, w, &p, n, 1, err));
    }
    return start_glu(r, &s->out[0], r->scratch, r->scratch + bytes, n_ff, n, s->a.matmul.glu, err);
}

lace_status record_matmul(recorder *r, const step *s, lace_error *err)
{
    int64_t n = record_rows(r, s);
    if (s->op == OP_MATMUL_GLU)
        return record_matmul_glu(r, s, n, err);
    for (int i = 0; i < s->a.matmul.n_weights; i++) {
        const weight *w = s->a.matmul.weights[i];
        struct matmul_args p = params_of(w, &s->in[0]);
        p.bias = address_of(s->a.matmul.biases[i]);
        p.result = address_of(s->out[i].data);
        p.out_stride = floats_of(&s->out[i]);
        p.adds = s->op == OP_MATMUL_ADD;
        p.scale = s->a.matmul.scale;
        record_reads(r, &s->in[0], n);
        record_writes(r, &s->out[i], n);
        TRY(start(r, w, &p, n, 1, err));
    }
    return LACE_OK;
}

/* The addresses of matrices that are alike. They need not lie one behind the other. */
static lace_status list_matrices(recorder *r, const weight *w, int32_t n, uint64_t *out,
                                 lace_error *err)
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

lace_status record_heads(recorder *r, const step *s, lace_error *err)
{
    int64_t n = record_rows(r, s), rest = s->a.heads.n_rest;
    const weight *w = s->a.heads.weights;
    struct matmul_args p = params_of(w, &s->in[0]);
    TRY(list_matrices(r, w, s->a.heads.n_heads, &p.matrices, err));
    p.result = address_of(s->out[0].data);
    p.out_stride = floats_of(&s->out[0]);
    p.x_head = (uint32_t)(w->n_cols + rest);
    p.out_head = (uint32_t)(w->n_rows + rest);
    record_reads(r, &s->in[0], n);
    record_writes(r, &s->out[0], n);
    TRY(start(r, w, &p, n, s->a.heads.n_heads, err));
    struct rest_args q = {.x = p.x,
                          .y = p.result,
                          .x_stride = p.x_stride,
                          .y_stride = p.out_stride,
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
static lace_status start_experts(recorder *r, const step *s, const weight *experts,
                                 struct matmul_args *p, int64_t n, lace_error *err)
{
    TRY(list_matrices(r, experts, s->a.moe.n_experts, &p->matrices, err));
    p->choices = address_of(s->in[1].data);
    p->choice_stride = floats_of(&s->in[1]) / 2;
    p->n_used = (uint32_t)s->a.moe.n_used;
    p->out_stride = (uint32_t)experts->n_rows;
    record_reads(r, &s->in[0], s->op == OP_MOE_DOWN ? n : n / s->a.moe.n_used);
    record_reads(r, &s->in[1], n / s->a.moe.n_used);
    record_writes_at(r, p->result, 4 * (uint64_t)n * (uint64_t)experts->n_rows);
    return start(r, experts, p, n, 1, err);
}

static lace_status record_moe_glu(recorder *r, const step *s, int64_t n, lace_error *err)
{
    const weight *gate = s->a.moe.gate, *up = s->a.moe.up;
    uint64_t behind = r->scratch + (gate ? 4 * (uint64_t)n * (uint64_t)up->n_rows : 0);
    for (int i = gate ? 0 : 1; i < 2; i++) {
        struct matmul_args p = params_of(i ? up : gate, &s->in[0]);
        p.bias = address_of(i ? s->a.moe.up_bias : s->a.moe.gate_bias);
        p.result = i ? behind : r->scratch;
        p.x_divisor = (uint32_t)s->a.moe.n_used;
        p.weighs = s->a.moe.weighs_inputs;
        TRY(start_experts(r, s, i ? up : gate, &p, n, err));
    }
    return start_glu(r, &s->out[0], r->scratch, gate ? behind : 0, up->n_rows, n, s->a.moe.glu,
                     err);
}

static lace_status record_moe_down(recorder *r, const step *s, int64_t n, lace_error *err)
{
    int64_t width = s->a.moe.down->n_rows, n_tokens = n / s->a.moe.n_used;
    struct matmul_args p = params_of(s->a.moe.down, &s->in[0]);
    p.bias = address_of(s->a.moe.down_bias);
    p.result = r->scratch;
    TRY(start_experts(r, s, s->a.moe.down, &p, n, err));
    struct combine_args c = {.rows = r->scratch,
                             .choices = p.choices,
                             .result = address_of(s->out[0].data),
                             .rows_stride = (uint32_t)width,
                             .choice_stride = p.choice_stride,
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
    switch (s->op) {
    case OP_MATMUL_GLU:
        return 8 * n * (uint64_t)s->a.matmul.weights[0]->n_rows;
    case OP_MOE_GLU:
        return 8 * n * (uint64_t)s->a.moe.n_used * (uint64_t)s->a.moe.up->n_rows;
    case OP_MOE_DOWN:
        return 4 * n * (uint64_t)s->a.moe.n_used * (uint64_t)s->a.moe.down->n_rows;
    default:
        return 0;
    }
}
