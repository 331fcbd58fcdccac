/* The descriptions of all operations, and what follows from them. */
#include "ops/op_info.h"

#include "ops/lora.h"

/* ---- Matrices -------------------------------------------------------------------------------- */

static int matrices(const step *s, op_weight out[OP_MAX_WEIGHTS])
{
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        out[i] = (op_weight){s->a.matmul.weights[i], 1};
    return s->a.matmul.n_weights;
}

static int glu_experts(const step *s, op_weight out[OP_MAX_WEIGHTS])
{
    int n = 0;
    if (s->a.moe.gate)
        out[n++] = (op_weight){s->a.moe.gate, s->a.moe.n_experts};
    out[n++] = (op_weight){s->a.moe.up, s->a.moe.n_experts};
    return n;
}

static int down_experts(const step *s, op_weight out[OP_MAX_WEIGHTS])
{
    out[0] = (op_weight){s->a.moe.down, s->a.moe.n_experts};
    return 1;
}

static int head_matrices(const step *s, op_weight out[OP_MAX_WEIGHTS])
{
    out[0] = (op_weight){s->a.heads.weights, s->a.heads.n_heads};
    return 1;
}

/* ---- Vectors --------------------------------------------------------------------------------- */

/* One more vector, unless the step has none there. */
static int add_vector(op_vector *out, int count, const float **at, int64_t n)
{
    if (!*at)
        return count;
    out[count] = (op_vector){at, n};
    return count + 1;
}

static int frequencies(step *s, op_vector out[OP_MAX_VECTORS])
{
    return add_vector(out, 0, &s->a.rope_table.frequencies, s->out[0].width / 2);
}

static int norm_vectors(step *s, op_vector out[OP_MAX_VECTORS])
{
    int64_t n_values = s->a.norm.is_wide ? s->in[0].width : s->a.norm.group;
    int n = add_vector(out, 0, &s->a.norm.weight, n_values);
    return add_vector(out, n, &s->a.norm.bias, n_values);
}

static int biases(step *s, op_vector out[OP_MAX_VECTORS])
{
    int n = 0;
    for (int i = 0; i < s->a.matmul.n_weights; i++)
        n = add_vector(out, n, &s->a.matmul.biases[i], s->a.matmul.weights[i]->n_rows);
    return n;
}

static int glu_expert_biases(step *s, op_vector out[OP_MAX_VECTORS])
{
    int64_t n = s->a.moe.n_experts;
    int count = add_vector(out, 0, &s->a.moe.gate_bias, n * weight_total(s->a.moe.up));
    return add_vector(out, count, &s->a.moe.up_bias, n * weight_total(s->a.moe.up));
}

static int route_vectors(step *s, op_vector out[OP_MAX_VECTORS])
{
    int n = add_vector(out, 0, &s->a.moe.rule.bias, s->a.moe.n_experts);
    return add_vector(out, n, &s->a.moe.rule.scales, s->a.moe.n_experts);
}

static int down_expert_biases(step *s, op_vector out[OP_MAX_VECTORS])
{
    return add_vector(out, 0, &s->a.moe.down_bias,
                      s->a.moe.n_experts * weight_total(s->a.moe.down));
}

static int sinks(step *s, op_vector out[OP_MAX_VECTORS])
{
    return add_vector(out, 0, &s->a.attend.sinks, s->a.attend.n_heads);
}

static int conv_weights(step *s, op_vector out[OP_MAX_VECTORS])
{
    int n = add_vector(out, 0, &s->a.conv.weight, s->out[0].width * s->a.conv.n_taps);
    return add_vector(out, n, &s->a.conv.bias, s->out[0].width);
}

static int scan_vectors(step *s, op_vector out[OP_MAX_VECTORS])
{
    int n = add_vector(out, 0, &s->a.scan.a, s->a.scan.n_heads);
    n = add_vector(out, n, &s->a.scan.d, s->a.scan.n_heads);
    return add_vector(out, n, &s->a.scan.dt_bias, s->a.scan.n_heads);
}

static int delta_vectors(step *s, op_vector out[OP_MAX_VECTORS])
{
    int n = add_vector(out, 0, &s->a.delta.rate, s->a.delta.n_heads);
    return add_vector(out, n, &s->a.delta.bias, s->a.delta.n_heads);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static uint64_t table_bytes(const step *s, const batch *b)
{
    return (uint64_t)step_rows(s, b) * row_bytes(s->a.embed.table->type, s->a.embed.table->n_cols);
}

static uint64_t grid_bytes(const step *s, const batch *b)
{
    return 4 * (uint64_t)step_rows(s, b) * row_bytes(s->a.grid.table->type, s->out[0].width);
}

/* Cached positions that must be read: tokens of one sequence that lie together share them. */
static uint64_t attended_bytes(const step *s, const batch *b)
{
    const int32_t *const *pages = b->pages[s->kv.group];
    int32_t first = 0, from, to;
    uint64_t n = 0;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        attend_range(s, b, t, &from, &to);
        if (t == 0 || pages[t] != pages[t - 1])
            first = from;
        if (t + 1 == b->n_tokens || pages[t + 1] != pages[t])
            n += (uint64_t)(to - first);
    }
    uint64_t v_bytes = s->kv.v_in_k ? 0 : s->kv.v_row_bytes;
    return n * (uint64_t)s->kv.n_heads * (s->kv.row_bytes + v_bytes);
}

/* State in and out: for tokens of one sequence that lie together, once. */
static uint64_t recurrent_bytes(const step *s, const batch *b)
{
    uint64_t bytes = 0;
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (t == 0 || b->slots[t] != b->slots[t - 1])
            bytes += 2 * s->recurrent.n_bytes;
    return bytes;
}

/* Taps once, and the state. */
static uint64_t conv_bytes(const step *s, const batch *b)
{
    return 4 * (uint64_t)s->out[0].width * (uint64_t)s->a.conv.n_taps + recurrent_bytes(s, b);
}

/* Whether a row of the step uses the adapter of a pair. */
static bool lora_is_used(const step *s, const batch *b, const lora_pair *p)
{
    int64_t n = step_rows(s, b);
    for (int64_t row = 0; row < n; row++)
        if (lora_scale(s, b, p, row) != 0)
            return true;
    return false;
}

/* One part of each adapter that some row uses: n_values for each of its rank. */
static uint64_t lora_bytes(const step *s, const batch *b, int64_t n_values)
{
    const lora_site *site = s->a.lora.site;
    uint64_t bytes = 0;
    for (int32_t i = 0; b->adapter_scales && i < site->n_pairs; i++)
        if (lora_is_used(s, b, &site->pairs[i]))
            bytes += (uint64_t)site->pairs[i].rank * row_bytes(site->pairs[i].type, n_values);
    return bytes;
}

static uint64_t lora_down_bytes(const step *s, const batch *b)
{
    const lora_site *site = s->a.lora.site;
    return lora_bytes(s, b, site->is_table ? step_rows(s, b) : site->n_in);
}

static uint64_t lora_up_bytes(const step *s, const batch *b)
{
    return lora_bytes(s, b, s->a.lora.site->n_out);
}

/* ---- The table ------------------------------------------------------------------------------- */

const op_info op_infos[OP_COUNT] = {
#define MATRIX                   .weights = matrices, .vectors = biases, .pieces = OP_BY_COLUMNS, .is_matmul = true
#define X(id, name_, what_, ...) [OP_##id] = {.name = #name_, .what = what_, __VA_ARGS__},
#include "ops/ops.def"
#undef X
#undef MATRIX
};

int step_weights(const step *s, op_weight out[OP_MAX_WEIGHTS])
{
    return op_infos[s->op].weights ? op_infos[s->op].weights(s, out) : 0;
}

int step_vectors(step *s, op_vector out[OP_MAX_VECTORS])
{
    return op_infos[s->op].vectors ? op_infos[s->op].vectors(s, out) : 0;
}

/* How many of a mixture's experts the batch has chosen. */
static uint64_t n_chosen(const step *s, const batch *b, int32_t n_experts, bool sees_values)
{
    int32_t n_used = s->a.moe.n_used, n_choices = b->n_tokens * n_used;
    if (!sees_values)
        return (uint64_t)(n_choices < n_experts ? n_choices : n_experts);
    uint64_t n = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        bool is_chosen = false;
        for (int32_t i = 0; i < n_choices && !is_chosen; i++)
            is_chosen =
                ((const expert_choice *)operand_row(&s->in[1], i / n_used))[i % n_used].expert == e;
        n += is_chosen;
    }
    return n;
}

uint64_t step_bytes(const step *s, const batch *b, bool sees_values)
{
    uint64_t rows = (uint64_t)step_rows(s, b), bytes = 0;
    for (int i = 0; i < STEP_MAX_IN; i++)
        bytes += s->in[i].value >= 0 ? rows * s->in[i].stride : 0;
    for (int i = 0; i < STEP_MAX_OUT; i++)
        bytes += s->out[i].value >= 0 ? rows * s->out[i].stride : 0;
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(s, w);
    bool chooses = !op_infos[s->op].uses_all_weights;
    for (int i = 0; i < n; i++)
        bytes += w[i].w->n_bytes * (w[i].n_experts > 1 && chooses
                                        ? n_chosen(s, b, w[i].n_experts, sees_values)
                                        : (uint64_t)w[i].n_experts);
    return op_infos[s->op].more_bytes ? bytes + op_infos[s->op].more_bytes(s, b) : bytes;
}

uint64_t step_products(const step *s, const batch *b)
{
    uint64_t products = 0;
    op_weight w[OP_MAX_WEIGHTS];
    int n = step_weights(s, w);
    for (int i = 0; i < n; i++) {
        /* Of experts, some steps have a row for each choice, others one for each token. */
        int64_t rows = step_is_matmul(s)                  ? step_rows(s, b)
                       : op_infos[s->op].uses_all_weights ? step_rows(s, b) * w[i].n_experts
                                                          : (int64_t)b->n_tokens * s->a.moe.n_used;
        products += (uint64_t)(w[i].w->n_rows * w[i].w->n_cols * rows);
    }
    return products;
}
