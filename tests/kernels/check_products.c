/* Products with matrices and experts of any device against the plain versions. */
#include "check_products.h"

#include <string.h>

#include "random_blocks.h"

weight check_random_weight(const kernel_table *ref, dtype type, int64_t n_rows, int64_t n_cols,
                           int n)
{
    int64_t n_blocks = n_rows * n_cols / dtype_describe(type)->block_values * n;
    uint8_t *data = check_alloc(row_bytes(type, n_cols) * (uint64_t)(n_rows * n));
    if (type == DTYPE_F32)
        random_floats(check_random(), n_blocks, (float *)(void *)data);
    else
        random_blocks(type, check_random(), n_blocks, data);
    return (weight){
        .type = type, .n_rows = n_rows, .n_cols = n_cols, .data = data, .impl = ref->exact[type]};
}

static const float *random_vector(int64_t n)
{
    float *x = check_alloc(4 * (uint64_t)n);
    check_fill_f32(x, n, CHECK_NORMAL);
    return x;
}

static void fill_rows(const operand *x, int64_t n, check_fill kind)
{
    for (int64_t t = 0; t < n; t++)
        check_fill_f32(check_row(x, t), x->width, kind);
}

operand check_strided(int64_t width, int64_t n)
{
    /* As plans have them: rows are padded to 64 bytes. */
    operand o = {.format = ACT_F32, .width = width, .stride = act_row_bytes(ACT_F32, width)};
    o.data = check_alloc(o.stride * (uint64_t)n);
    return o;
}

static operand copied(const operand *o, int64_t n)
{
    operand c = *o;
    c.data = check_alloc(o->stride * (uint64_t)n);
    memcpy(c.data, o->data, o->stride * (uint64_t)n);
    return c;
}

void check_product(const product_check *c, op o, dtype type, int n, int n_rows, int n_cols,
                   check_fill kind)
{
    const kernel_table *ref = c->ref;
    check_shape("%s %d x %d, %d tokens, %s", op_name(o), n_rows, n_cols, n, check_fill_name(kind));
    batch b = {.n_tokens = n};
    step s = {.op = o, .row_factor = 1};
    s.in[0] = check_strided(n_cols, n);
    fill_rows(&s.in[0], n, kind);
    int n_weights = o == OP_MATMUL_GROUP ? 3 : o == OP_MATMUL_GLU ? 2 : 1;
    weight w[3];
    operand want[3];
    for (int i = 0; i < n_weights; i++) {
        int rows = o == OP_MATMUL_GROUP && i > 0 ? n_rows / 2 + 8 * i : n_rows;
        w[i] = check_random_weight(ref, type, rows, n_cols, 1);
        s.a.matmul.weights[i] = &w[i];
        s.a.matmul.biases[i] = check_random_int(0, 1) ? random_vector(rows) : NULL;
        want[i] = check_strided(rows, n);
        fill_rows(&want[i], n, CHECK_NORMAL);
        if (o == OP_MATMUL_GLU && i == 1)
            continue;
        s.out[i] = copied(&want[i], n);
    }
    s.a.matmul.n_weights = n_weights;
    s.a.matmul.scale = o == OP_MATMUL_GLU ? 0.01f : 0.5f;
    s.a.matmul.glu = (glu_kind)check_random_int(0, 2);
    s.a.matmul.glu_row = ref->glu_row;
    c->fn(&s, &b, &(worker){.count = 1});
    step plain = s;
    for (int i = 0; i < n_weights && s.out[i].data; i++)
        plain.out[i] = want[i];
    check_run(ref->ops[o], &plain, &b, 1, 0);
    /* A gate multiplies two errors. With outliers a few values decide, and sums cancel. */
    double most = c->max_nmse * (kind != CHECK_NORMAL ? 50 : o == OP_MATMUL_GLU ? 4 : 1);
    for (int i = 0; i < n_weights && s.out[i].data; i++)
        check_rows("out", &want[i], &s.out[i], n, most);
}

/* ---- Experts --------------------------------------------------------------------------------- */

static void fill_choices(const operand *o, int n, int n_experts, int n_used)
{
    for (int t = 0; t < n; t++) {
        expert_choice *c = (expert_choice *)(void *)check_row(o, t);
        for (int k = 0; k < n_used; k++) {
            bool is_new;
            do { /* most tokens like the first few */
                c[k].expert = check_random_int(0, check_random_int(0, n_experts - 1));
                is_new = true;
                for (int i = 0; i < k; i++)
                    is_new = is_new && c[i].expert != c[k].expert;
            } while (!is_new);
            c[k].weight = check_random_f32(0, 1);
        }
    }
}

void check_expert_product(const product_check *c, bool is_down, dtype type, int n, int n_experts,
                          int n_used, bool has_gate, bool weighs)
{
    const kernel_table *ref = c->ref;
    int n_in = is_down ? 512 * check_random_int(1, 3) : 256, n_out = is_down ? 256 : 200;
    check_shape("%s, %d experts, %d of them, %d tokens", is_down ? "down" : "glu", n_experts,
                n_used, n);
    batch b = {.n_tokens = n};
    step s = {.op = is_down ? OP_MOE_DOWN : OP_MOE_GLU, .row_factor = 1};
    s.in[0] = check_strided(n_in, is_down ? n * n_used : n);
    fill_rows(&s.in[0], is_down ? n * n_used : n, CHECK_NORMAL);
    s.in[1] = check_strided(2 * n_used, n);
    fill_choices(&s.in[1], n, n_experts, n_used);
    int64_t n_results = is_down ? n : n * n_used;
    operand want = check_strided(n_out, n_results);
    fill_rows(&want, n_results, CHECK_NORMAL);
    s.out[0] = copied(&want, n_results);
    weight all[2], *each[2];
    for (int i = 0; i < 2; i++) {
        all[i] = check_random_weight(ref, type, n_out, n_in, n_experts);
        each[i] = check_alloc(sizeof(weight) * (uint64_t)n_experts);
        for (int e = 0; e < n_experts; e++) {
            each[i][e] = all[i];
            each[i][e].data += row_bytes(type, n_in) * (uint64_t)(n_out * e);
        }
    }
    s.a.moe.n_experts = n_experts;
    s.a.moe.n_used = n_used;
    s.a.moe.scale = 0.3f;
    s.a.moe.glu_row = ref->glu_row;
    s.a.moe.glu = has_gate ? GLU_SILU : GLU_RELU2;
    s.a.moe.weighs_inputs = weighs;
    if (is_down) {
        s.a.moe.down = each[0];
        if (check_random_int(0, 1))
            s.a.moe.down_bias = random_vector((int64_t)n_experts * n_out);
    } else {
        s.a.moe.gate = has_gate ? each[0] : NULL;
        s.a.moe.up = each[1];
        s.a.moe.gate_bias = has_gate ? random_vector((int64_t)n_experts * n_out) : NULL;
        s.a.moe.up_bias = random_vector((int64_t)n_experts * n_out);
    }
    step plain = s, again = s;
    plain.out[0] = want;
    again.out[0] = copied(&want, n_results);
    c->fn(&s, &b, &(worker){.count = 1});
    if (c->repeats) {
        c->fn(&again, &b, &(worker){.count = 1});
        check_rows("the second run", &s.out[0], &again.out[0], n_results, 0);
    }
    check_run(ref->ops[s.op], &plain, &b, 1, 0);
    check_rows("out", &want, &s.out[0], n_results, 4 * c->max_nmse);
}
