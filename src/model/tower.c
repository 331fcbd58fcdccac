/* Vision towers, bound and written as plans. */
#include "model/tower.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"

/* ---- Binding --------------------------------------------------------------------------------- */

static const encoder_form form = {.norms_before = true, .activation = GLU_GELU_TANH};

/* A norm, a matrix to a wider row, and one to a row of the language model. */
static lace_status bind_merger(model *m, tower_merger *out, const char *stem, int64_t norm_width,
                               const char *norm, lace_error *err)
{
    const tower_config *c = &m->tower->config;
    int64_t width = (int64_t)c->n_embd * c->merge * c->merge;
    TRY(bind_vector(m, &out->norm.scales, norm_width, err, "%s.weight", norm));
    TRY(bind_vector(m, &out->norm.bias, norm_width, err, "%s.bias", norm));
    TRY(bind_matrix(m, &out->up, width, width, err, "%s.up.weight", stem));
    TRY(bind_vector(m, &out->up_bias, width, err, "%s.up.bias", stem));
    TRY(bind_matrix(m, &out->down, c->n_out, width, err, "%s.down.weight", stem));
    return bind_vector(m, &out->down_bias, c->n_out, err, "%s.down.bias", stem);
}

static lace_status bind_deep(model *m, int layer, lace_error *err)
{
    const tower_config *c = &m->tower->config;
    char stem[32], norm[48];
    snprintf(stem, sizeof stem, "deep.%d", layer);
    snprintf(norm, sizeof norm, "%s.norm", stem);
    return bind_merger(m, &m->tower->deep[layer], stem, (int64_t)c->n_embd * c->merge * c->merge,
                       norm, err);
}

/* Frequencies for rows, and the same for columns. */
static lace_status bind_axes(model *m, lace_error *err)
{
    int32_t dim = m->config.head_dim, n = dim / 4;
    float *frequencies = arena_alloc(&m->memory, (size_t)(2 * n), sizeof *frequencies);
    if (!frequencies)
        return error_nomem(err, "rope frequencies");
    for (int32_t i = 0; i < n; i++)
        frequencies[i] = frequencies[n + i] =
            (float)pow(m->tower->config.rope_base, -(double)i / n);
    m->rope = (rope_params){.frequencies = frequencies,
                            .magnitude = 1,
                            .n_dims = dim,
                            .is_neox = true,
                            .sections = {n, n}};
    return LACE_OK;
}

static lace_status bind_gemma(model *m, lace_error *err)
{
    tower_parts *t = m->tower;
    TRY(encoder_bind_norm(m, &t->output, -1, "output_norm", err));
    TRY(bind_vector(m, &t->soft_norm, t->config.n_embd, err, "soft_norm.weight"));
    return bind_matrix(m, &t->projection, t->config.n_out, t->config.n_embd, err,
                       "projection.weight");
}

static lace_status bind_qwen(model *m, lace_error *err)
{
    tower_parts *t = m->tower;
    const tower_config *c = &t->config;
    t->deep = arena_alloc(&m->memory, (size_t)c->n_layers, sizeof *t->deep);
    if (!t->deep)
        return error_nomem(err, "a vision tower");
    TRY(bind_merger(m, &t->merger, "merge", c->n_embd, "output_norm", err));
    for (int i = 0; i < c->n_layers; i++)
        if (c->is_deep[i])
            TRY(bind_deep(m, i, err));
    return bind_axes(m, err);
}

static lace_status bind(model *m, lace_error *err)
{
    tower_parts *t = m->tower;
    const tower_config *c = &t->config;
    TRY(encoder_create_parts(m, err));
    TRY(bind_matrix(m, &t->patch, c->n_embd, tower_patch_width(c), err, "patch_embd.weight"));
    TRY(bind_optional(m, &t->patch_bias, c->n_embd, err, "patch_embd.bias"));
    TRY(bind_table(m, &m->encoder->positions, (int64_t)c->side * c->side, c->n_embd, err,
                   "position_embd.weight"));
    for (int i = 0; i < c->n_layers; i++)
        TRY(encoder_bind_layer(m, i, &form, err));
    return c->kind == TOWER_GEMMA3 ? bind_gemma(m, err) : bind_qwen(m, err);
}

/*
 * All layers write keys and values to the same pages: a batch is a whole image, and a layer begins
 * when the one before has been computed.
 */
static void state(const model_config *c, int32_t layer, layer_state *out)
{
    out->window = 0;
    out->shares = layer > 0 ? 0 : -1;
}

/* ---- Building -------------------------------------------------------------------------------- */

static value build_network(plan *p, value x, const tower_merger *by)
{
    x = plan_act(p, GLU_GELU, plan_linear(p, x, &by->up, by->up_bias, 1));
    return plan_linear(p, x, &by->down, by->down_bias, 1);
}

static value build_wide_norm(const model *m, plan *p, value x, const encoder_norm *n, int64_t width)
{
    norm_params norm = {.kind = OP_LAYER_NORM,
                        .scales = n->scales,
                        .bias = n->bias,
                        .group = width,
                        .eps = m->config.norm_eps};
    return plan_norm(p, x, &norm);
}

/* Gemma's rows: means of squares, normed, projected. */
static void build_means(const model *m, plan *p, value x)
{
    const tower_parts *t = m->tower;
    int32_t n = t->config.merge * t->config.merge;
    norm_params soft = {.kind = OP_RMS_NORM,
                        .scales = t->soft_norm,
                        .group = t->config.n_embd,
                        .eps = m->config.norm_eps};
    x = encoder_build_norm(m, p, x, &t->output);
    x = plan_norm(p, plan_gather_run(p, x, n, true), &soft);
    plan_result(p, plan_linear(p, x, &t->projection, NULL, 1));
}

/* Qwen's rows behind a layer inside: squares, normed, through a network. */
static value build_deep(const model *m, plan *p, value x, int layer)
{
    const tower_parts *t = m->tower;
    int32_t n = t->config.merge * t->config.merge;
    x = plan_gather_run(p, x, n, false);
    x = build_wide_norm(m, p, x, &t->deep[layer].norm, (int64_t)n * t->config.n_embd);
    return build_network(p, x, &t->deep[layer]);
}

/* And behind all: patches, normed, in squares through a network; those of inner layers beside. */
static void build_merged(const model *m, plan *p, value x, value *parts)
{
    const tower_parts *t = m->tower;
    int32_t n = t->config.merge * t->config.merge;
    x = build_wide_norm(m, p, x, &t->merger.norm, t->config.n_embd);
    parts[0] = build_network(p, plan_gather_run(p, x, n, false), &t->merger);
    plan_result(p, plan_side_by_side(p, parts, 1 + t->config.n_deep));
}

static void build(const model *m, plan *p, const layer_memory *memory)
{
    const tower_parts *t = m->tower;
    const tower_config *c = &t->config;
    bool is_gemma = c->kind == TOWER_GEMMA3;
    value parts[1 + TOWER_MAX_LAYERS], n_parts = 1;
    value x = plan_given(p, 0, tower_patch_width(c));
    x = plan_linear(p, x, &t->patch, t->patch_bias, 1);
    x = plan_add(p, x,
                 is_gemma ? plan_lookup(p, &m->encoder->positions, EMBED_BY_SEGMENT)
                          : plan_grid_embed(p, &m->encoder->positions, c->side),
                 1);
    angles turn = {-1, -1};
    if (!is_gemma)
        turn = build_angles(m, p);
    for (int i = 0; i < c->n_layers; i++) {
        x = encoder_build_layer(m, p, i, x, turn, memory, &form);
        if (c->is_deep[i])
            parts[n_parts++] = build_deep(m, p, x, i);
    }
    p->layer = -1;
    if (is_gemma)
        build_means(m, p, x);
    else
        build_merged(m, p, x, parts);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static const arch tower_arch = {.name = "clip", .bind = bind, .state = state, .build = build};

/* The numbers of the encoder that a tower is. */
static model_config encoder_of(const tower_config *c)
{
    model_config e = config_default();
    snprintf(e.architecture, sizeof e.architecture, "%s", tower_arch.name);
    e.n_layers = c->n_layers;
    e.n_embd = c->n_embd;
    e.n_heads = e.n_kv_heads = c->n_heads;
    e.head_dim = e.value_dim = c->n_embd / c->n_heads;
    e.n_ff = c->n_ff;
    e.n_context = (int32_t)tower_max_patches(c);
    e.norm_eps = c->norm_eps;
    e.centers_norms = true;
    e.encoder.is_on = true;
    for (int32_t i = 0; i < c->n_layers; i++)
        e.layers[i] = (layer_config){.n_heads = e.n_heads,
                                     .n_kv_heads = e.n_heads,
                                     .head_dim = e.head_dim,
                                     .n_ff = c->n_ff,
                                     .skips_rope = c->kind == TOWER_GEMMA3};
    return e;
}

lace_status tower_create(weights *files, const device_options *o, model **out, lace_error *err)
{
    tower_config c;
    model *m = NULL;
    lace_status status;
    *out = NULL;
    TRY_GOTO(status, fail, tower_config_read(files, &c, err));
    TRY_GOTO(status, fail, tower_set_names(files, &c, err));
    model_config e = encoder_of(&c);
    TRY_GOTO(status, fail, model_create_shell(files, "cpu", o, &m, err));
    m->config = e;
    m->arch = &tower_arch;
    m->tower = arena_alloc(&m->memory, 1, sizeof *m->tower);
    if (!m->tower) {
        status = error_nomem(err, "a vision tower");
        goto fail;
    }
    m->tower->config = c;
    TRY_GOTO(status, fail, model_bind(m, err));
    *out = m;
    return LACE_OK;

fail:
    error_prefix(err, status, weights_name(files));
    if (m)
        model_free(m);
    else
        weights_close(files);
    return status;
}
