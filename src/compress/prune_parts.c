/* Structured pruning: which heads and neurons stay, and cutting the others out. */
#include "compress/prune_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"

enum { NEURON_STEP = 32 }; /* rows of ffn_down stay whole blocks of activations */

static const prune_method methods[PART_N] = {
    [PART_HEADS] = PRUNE_HEADS,
    [PART_NEURONS] = PRUNE_NEURONS,
};

/* How the tensors of a layer are cut. */
static const struct {
    const char *name;
    part_kind kind;
    bool is_columns;
    bool is_of_queries; /* a KV head stands for all the heads that read it */
    bool is_of_heads;   /* one value for each head, not head_dim */
} patterns[] = {
    {"attn_q.weight", PART_HEADS, false, true, false},
    {"attn_k.weight", PART_HEADS, false, false, false},
    {"attn_v.weight", PART_HEADS, false, false, false},
    {"attn_output.weight", PART_HEADS, true, true, false},
    {"attn_q.bias", PART_HEADS, true, true, false},
    {"attn_k.bias", PART_HEADS, true, false, false},
    {"attn_v.bias", PART_HEADS, true, false, false},
    {"attn_q_norm.weight", PART_HEADS, true, true, false},
    {"attn_k_norm.weight", PART_HEADS, true, false, false},
    {"attn_sinks.weight", PART_HEADS, true, true, true},
    {"ffn_gate.weight", PART_NEURONS, false, false, false},
    {"ffn_up.weight", PART_NEURONS, false, false, false},
    {"ffn_down.weight", PART_NEURONS, true, false, false},
    {"ffn_gate.bias", PART_NEURONS, true, false, false},
    {"ffn_up.bias", PART_NEURONS, true, false, false},
};

/* ---- Planning -------------------------------------------------------------------------------- */

static lace_status find_rule(part_choice *c, part_kind kind, const surgery *s, int32_t n_layers,
                             lace_error *err)
{
    c->rule = -1;
    for (int32_t l = 0; l < n_layers; l++) {
        char layer[32];
        snprintf(layer, sizeof layer, "blk.%d", l);
        int32_t rule = surgery_match_method(s, layer, methods[kind]);
        if (l > 0 && rule != c->rule)
            return error_set(err, LACE_E_META,
                             "every layer must lose the same number of %s, but the rules for "
                             "layers %d and %d differ",
                             prune_method_name(methods[kind]), l, l - 1);
        c->rule = rule;
    }
    return LACE_OK;
}

static lace_status plan_kind(part_choice *c, part_kind kind, const source *model, const surgery *s,
                             lace_error *err)
{
    const model_config *config = source_config(model);
    TRY(find_rule(c, kind, s, config->n_layers, err));
    if (c->rule < 0)
        return LACE_OK;
    if (!config_is_uniform(config) || config->layers[0].kind != LAYER_ATTENTION)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "parts can be removed only from models whose layers are all of one shape");
    if (kind == PART_NEURONS && config->n_experts > 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "neurons of mixtures of experts cannot be removed");
    c->n = kind == PART_HEADS ? config->n_kv_heads : config->n_ff;
    int64_t n_gone = (int64_t)((double)c->n * s->rules[c->rule].sparsity);
    c->left = c->n - n_gone;
    if (kind == PART_NEURONS)
        c->left = divide_up(c->left, NEURON_STEP) * NEURON_STEP;
    if (c->left >= c->n)
        return error_set(err, LACE_E_META, "a share of %g of %" PRId64 " %s is not one of them%s",
                         s->rules[c->rule].sparsity, c->n,
                         kind == PART_HEADS ? "KV heads" : "neurons",
                         kind == PART_NEURONS ? " (32 go together)" : "");
    c->keeps = mem_calloc((size_t)config->n_layers, (size_t)c->n);
    return c->keeps ? LACE_OK : error_nomem(err, "the parts of a model");
}

/* "blk.7.attn_q.weight" to 7 and "attn_q.weight"; false for other names. */
static bool split_name(text name, int32_t *layer, text *rest)
{
    if (name.size < 6 || memcmp(name.data, "blk.", 4) != 0)
        return false;
    size_t at = 4;
    for (*layer = 0; at < name.size && name.data[at] >= '0' && name.data[at] <= '9'; at++)
        if (*layer < 100000)
            *layer = 10 * *layer + (name.data[at] - '0');
    if (at == 4 || at >= name.size || name.data[at] != '.')
        return false;
    *rest = (text){name.data + at + 1, name.size - at - 1};
    return true;
}

static bool has_end(text name, const char *end)
{
    size_t n = strlen(end);
    return name.size >= n && memcmp(name.data + name.size - n, end, n) == 0;
}

static lace_status plan_tensor(prune_parts *p, const source *model, size_t i, prune_row *rows,
                               lace_error *err)
{
    const model_config *config = source_config(model);
    const tensor *t = source_at(model, i);
    int32_t layer;
    text rest;
    if (!split_name(t->name, &layer, &rest) || layer >= p->n_layers)
        return LACE_OK;
    if (text_is(rest, "attn_qkv.weight") && p->choices[PART_HEADS].rule >= 0)
        return error_set(
            err, LACE_E_UNSUPPORTED,
            "heads cannot be removed from attn_qkv, which holds q, k and v in one matrix");
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        const part_choice *c = &p->choices[patterns[k].kind];
        if (!text_is(rest, patterns[k].name) || c->rule < 0)
            continue;
        int64_t unit = 1;
        if (patterns[k].kind == PART_HEADS)
            unit = (patterns[k].is_of_heads ? 1 : config->head_dim) *
                   (patterns[k].is_of_queries ? config->n_heads / config->n_kv_heads : 1);
        int64_t along = t->shape.dims[patterns[k].is_columns ? 0 : 1];
        /* A norm that each head takes for itself is one for all, and stays. */
        bool is_shared = along == config->head_dim && along != unit * c->n;
        if (is_shared && has_end(rest, "_norm.weight"))
            continue;
        if (t->shape.n_dims > 2 || along != unit * c->n)
            return error_set(
                err, LACE_E_UNSUPPORTED,
                "tensor %.*s has %" PRId64 " values where %" PRId64 " parts of %" PRId64
                " were expected: heads and neurons of this architecture cannot be removed",
                text_width(t->name), t->name.data, along, c->n, unit);
        p->cuts[i] = (part_cut){patterns[k].kind, layer, patterns[k].is_columns, unit};
        prune_row *row = &rows[c->rule];
        row->n_tensors++;
        row->n_weights += t->n_values;
        row->bytes_before += t->n_bytes;
    }
    return LACE_OK;
}

lace_status prune_parts_plan(prune_parts *p, const source *model, const surgery *s, prune_row *rows,
                             lace_error *err)
{
    p->n_layers = source_config(model)->n_layers;
    p->n_tensors = source_count(model);
    p->cuts = mem_calloc(p->n_tensors, sizeof *p->cuts);
    if (!p->cuts)
        return error_nomem(err, "the parts of a model");
    for (int kind = 0; kind < PART_N; kind++)
        TRY(plan_kind(&p->choices[kind], (part_kind)kind, model, s, err));
    for (size_t i = 0; i < p->n_tensors; i++)
        TRY(plan_tensor(p, model, i, rows, err));
    return LACE_OK;
}

void prune_parts_deinit(prune_parts *p)
{
    for (int kind = 0; kind < PART_N; kind++)
        mem_free(p->choices[kind].keeps);
    mem_free(p->cuts);
    *p = (prune_parts){0};
}

/* ---- Choosing -------------------------------------------------------------------------------- */

typedef struct scored {
    double score;
    int64_t part;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* What each part of a layer adds: [n] scores from the columns of the matrix that adds it. */
static void score_parts(const float *w, const shape *s, const float *inputs, int64_t unit,
                        int64_t n, scored *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (scored){0, i};
    for (int64_t r = 0; r < s->dims[1]; r++)
        for (int64_t c = 0; c < s->dims[0]; c++) {
            double x = w[r * s->dims[0] + c];
            out[c / unit].score += x * x * (inputs ? inputs[c] : 1);
        }
}

static lace_status choose_layer(const part_choice *c, const part_cut *cut, const source *model,
                                size_t i, const imatrix *importance, lace_error *err)
{
    const tensor *t = source_at(model, i);
    imatrix_entry *e = importance ? imatrix_find(importance, t->name) : NULL;
    if (e && !imatrix_fits(e, t->shape.dims[0], 1))
        return error_set(err, LACE_E_SHAPE, "%.*s: the importance matrix is of another model",
                         text_width(t->name), t->name.data);
    float *w = mem_alloc((size_t)t->n_values * sizeof *w);
    float *inputs = mem_alloc((size_t)t->shape.dims[0] * sizeof *inputs);
    scored *scores = mem_alloc((size_t)c->n * sizeof *scores);
    lace_status status = LACE_OK;
    if (!w || !inputs || !scores)
        status = error_nomem(err, "the parts of a model");
    if (status == LACE_OK) {
        source_read(model, i, 0, t->n_values, w);
        if (e)
            imatrix_means(e, 0, inputs);
        score_parts(w, &t->shape, e ? inputs : NULL, cut->unit, c->n, scores);
        qsort(scores, (size_t)c->n, sizeof *scores, by_score);
        for (int64_t k = c->n - c->left; k < c->n; k++)
            c->keeps[cut->layer * c->n + scores[k].part] = 1;
    }
    mem_free_all(w, inputs, scores);
    return status;
}

lace_status prune_parts_choose(prune_parts *p, const source *model, const surgery *s,
                               const imatrix *importance, prune_row *rows, lace_error *err)
{
    for (size_t i = 0; i < p->n_tensors; i++) {
        const part_cut *cut = &p->cuts[i];
        if (!cut->unit)
            continue;
        const tensor *t = source_at(model, i);
        const part_choice *c = &p->choices[cut->kind];
        prune_row *row = &rows[c->rule];
        uint64_t left = t->n_values / (uint64_t)c->n * (uint64_t)c->left;
        row->n_gone += t->n_values - left;
        row->bytes_after += t->n_bytes / t->n_values * left;
        if (cut->is_columns && t->shape.n_dims == 2)
            TRY(choose_layer(c, cut, model, i, importance, err));
    }
    return LACE_OK;
}

/* ---- Cutting --------------------------------------------------------------------------------- */

bool prune_parts_has(const prune_parts *p, size_t index)
{
    return p->cuts[index].unit > 0;
}

void prune_parts_cut(const prune_parts *p, size_t index, float *w, shape *s)
{
    const part_cut *cut = &p->cuts[index];
    if (!cut->unit)
        return;
    const part_choice *c = &p->choices[cut->kind];
    const uint8_t *keeps = c->keeps + cut->layer * c->n;
    int64_t n_cols = s->dims[0], n_rows = s->n_dims > 1 ? s->dims[1] : 1;
    float *to = w;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t col = 0; col < n_cols; col++)
            if (keeps[(cut->is_columns ? col : r) / cut->unit])
                *to++ = w[r * n_cols + col];
    s->dims[cut->is_columns ? 0 : 1] = c->left * cut->unit;
}

void prune_parts_cut_columns(const prune_parts *p, size_t index, int64_t n_experts, float *x)
{
    const part_cut *cut = &p->cuts[index];
    if (!cut->unit || !cut->is_columns || n_experts != 1)
        return;
    shape s = {1, {p->choices[cut->kind].n * cut->unit}};
    prune_parts_cut(p, index, x, &s);
}

lace_status prune_parts_add_meta(const prune_parts *p, const source *model, gguf_writer *w,
                                 lace_error *err)
{
    const model_config *c = source_config(model);
    const part_choice *heads = &p->choices[PART_HEADS], *neurons = &p->choices[PART_NEURONS];
    int64_t n_kv = heads->rule >= 0 ? heads->left : c->n_kv_heads;
    struct {
        const char *key;
        int64_t value;
        bool is_new;
    } numbers[] = {
        {"feed_forward_length", neurons->left, neurons->rule >= 0},
        {"attention.head_count", n_kv * (c->n_heads / c->n_kv_heads), heads->rule >= 0},
        {"attention.head_count_kv", n_kv, heads->rule >= 0},
        {"attention.key_length", c->head_dim, heads->rule >= 0},
        {"attention.value_length", c->head_dim, heads->rule >= 0},
    };
    enum { N = sizeof numbers / sizeof *numbers };
    char names[N][128];
    const char *replaced[N];
    size_t n = 0;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%.63s.%s", source_architecture(model), numbers[i].key);
        if (numbers[i].is_new)
            replaced[n++] = names[i];
    }
    TRY(source_add_meta_but(model, replaced, n, w, err));
    for (int i = 0; i < N; i++)
        if (numbers[i].is_new)
            TRY(gguf_writer_add_int(w, names[i], GGUF_U32, numbers[i].value, err));
    return LACE_OK;
}
