/*
 * Dense decoders that differ from llama by a few switches: where norms stand and of which kind they
 * are, whether attention and feed-forward part are parallel, which activation, which layers have a
 * window or no positions. Each architecture is a form (transformer.h), what it sets in the config,
 * and a row at the end.
 */
#include <math.h>
#include <stdio.h>

#include "model/config_source.h"
#include "model/transformer.h"

/* ---- Forms ----------------------------------------------------------------------------------- */

static const decoder_form post_norm_form = {
    .lacks_norms = true, .has_post_norms = true, .has_head_norms = true, .act = GLU_SILU};
static const decoder_form sandwich_form = {.has_post_norms = true, .act = GLU_SILU};
static const decoder_form seed_form = {.ffn_norm = "post_attention_norm", .act = GLU_SILU};
static const decoder_form relu2_form = {.lacks_gate = true, .act = GLU_RELU2};
static const decoder_form xielu_form = {
    .lacks_gate = true, .is_xielu = true, .has_head_norms = true};
static const decoder_form cohere_form = {.shares_norm = true, .act = GLU_SILU};
static const decoder_form gelu_form = {.lacks_gate = true, .act = GLU_GELU};
static const decoder_form gelu_tanh_form = {.lacks_gate = true, .act = GLU_GELU_TANH};
static const decoder_form phi2_form = {
    .lacks_gate = true, .shares_norm = true, .act = GLU_GELU_TANH};

/* ---- Rotary embedding of pairs or halves ----------------------------------------------------- */

static lace_status configure_halves(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    config_set_windows(c, 0);
    return LACE_OK;
}

static lace_status configure_pairs(model_config *c, lace_error *err)
{
    c->rope.is_neox = false;
    return LACE_OK;
}

/* ---- Mistral 3: queries grow warmer behind the context that it was first trained for --------- */

static lace_status configure_mistral3(model_config *c, lace_error *err)
{
    if (c->temperature_length == 0)
        c->temperature_length = c->rope.original_context;
    return LACE_OK;
}

/* ---- Cohere: LayerNorm without bias, parallel parts, logits times a factor ------------------- */

static lace_status configure_command_r(model_config *c, lace_error *err)
{
    c->rope.is_neox = false;
    c->centers_norms = true;
    c->is_parallel = true;
    c->norms_each_head = c->head_norms_differ = true;
    c->logit_scale = 1 / c->logit_scale;
    return LACE_OK;
}

/* Layers that see everything know no positions: each fourth. */
static lace_status configure_cohere2(model_config *c, lace_error *err)
{
    TRY(configure_command_r(c, err));
    config_set_windows(c, 4);
    for (int i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = !c->layers[i].is_local;
    return LACE_OK;
}

/* ---- EXAONE 4: where there are windows, the other layers know no positions ------------------- */

static lace_status configure_exaone4(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    config_set_windows(c, 4);
    for (int i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = c->window > 0 && !c->layers[i].is_local;
    return LACE_OK;
}

/* ---- Hunyuan: q and k are normed behind the rotation ----------------------------------------- */

static lace_status configure_hunyuan(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = c->norms_after_rope = true;
    return LACE_OK;
}

/* ---- LayerNorm ------------------------------------------------------------------------------- */

static lace_status configure_centered(model_config *c, lace_error *err)
{
    c->centers_norms = true;
    c->norms_each_head = c->head_norms_differ = true; /* StableLM 2 12B */
    return configure_halves(c, err);
}

static lace_status read_parallel(const config_source *s, model_config *c)
{
    return config_bool(s, "use_parallel_residual", &c->is_parallel, NULL);
}

/* The window is in all layers. Files of other converters do not have it. */
static lace_status configure_starcoder2(model_config *c, lace_error *err)
{
    TRY(configure_centered(c, err));
    config_set_windows(c, 1);
    return LACE_OK;
}

static lace_status configure_phi2(model_config *c, lace_error *err)
{
    c->is_parallel = true;
    return configure_centered(c, err);
}

/* The 12B form has one norm for both parts; it is known by what the file lacks. */
static lace_status bind_stablelm(model *m, lace_error *err)
{
    decoder_form form = llama_form;
    form.shares_norm = !bind_has(m, "blk.0.ffn_norm.weight");
    return bind_decoder(m, &form, err);
}

/* ---- Apertus: xIELU, whose numbers are metadata or, in directories, tensors ------------------ */

static lace_status configure_apertus(model_config *c, lace_error *err)
{
    c->rope.is_neox = true;
    c->norms_each_head = true;
    return LACE_OK;
}

static const char *const xielu_names[] = {"alpha_p", "alpha_n", "beta", "eps"};

/* One of the four numbers of a layer, as it is stored. */
static lace_status bind_xielu_number(model *m, int i, int which, float *out, lace_error *err)
{
    const float *values = NULL;
    char key[32];
    TRY(bind_optional(m, &values, 1, err, "blk.%d.xielu.%s", i, xielu_names[which]));
    if (values) {
        *out = values[0];
        return LACE_OK;
    }
    snprintf(key, sizeof key, "xielu.%s", xielu_names[which]);
    const gguf_value *v = weights_gguf(m->files) ? gguf_find(weights_gguf(m->files), key) : NULL;
    if (!v || v->item_type != GGUF_F32 || v->n_items != (uint64_t)m->config.n_layers)
        return error_set(err, LACE_E_META, "%s: expected a float for each of %d layers", key,
                         m->config.n_layers);
    *out = load_f32(v->bytes.data + 4 * (size_t)i);
    return LACE_OK;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static lace_status bind_apertus(model *m, lace_error *err)
{
    TRY(bind_decoder(m, &xielu_form, err));
    for (int i = 0; i < m->config.n_layers; i++) {
        float number[4];
        for (int k = 0; k < 4; k++) {
            TRY(bind_xielu_number(m, i, k, &number[k], err));
            if (!isfinite(number[k]))
                return error_set(err, LACE_E_META, "xielu.%s: layer %d has no finite number",
                                 xielu_names[k], i);
        }
        m->layers[i].xielu = (xielu_params){.alpha_p = softplus(number[0]),
                                            .alpha_n = number[2] + softplus(number[1]),
                                            .beta = number[2],
                                            .eps = number[3]};
    }
    return LACE_OK;
}

/* ---- Falcon: parallel parts; the 40B form has a norm for each, named the other way round ----- */

static lace_status bind_falcon(model *m, lace_error *err)
{
    const int64_t n = m->config.n_embd;
    bool has_two = bind_has(m, "blk.0.attn_norm_2.weight");
    bool is_parallel = has_two || !bind_has(m, "blk.0.ffn_norm.weight");
    m->config.is_parallel = is_parallel;
    decoder_form form = gelu_form;
    form.shares_norm = is_parallel;
    TRY(bind_decoder(m, &form, err));
    for (int i = 0; i < m->config.n_layers && has_two; i++) {
        model_layer *l = &m->layers[i];
        l->ffn_norm = l->attn_norm;
        l->ffn_norm_bias = l->attn_norm_bias;
        TRY(bind_vector(m, &l->attn_norm, n, err, "blk.%d.attn_norm_2.weight", i));
        TRY(bind_optional(m, &l->attn_norm_bias, n, err, "blk.%d.attn_norm_2.bias", i));
    }
    return LACE_OK;
}

/* ---- GPT-2: learned positions ---------------------------------------------------------------- */

static lace_status configure_gpt2(model_config *c, lace_error *err)
{
    for (int i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = true;
    return configure_centered(c, err);
}

static lace_status bind_gpt2(model *m, lace_error *err)
{
    TRY(bind_table(m, &m->positions, m->config.n_context, m->config.n_embd, err,
                   "position_embd.weight"));
    return bind_decoder(m, &gelu_tanh_form, err);
}

/* ---- The rows -------------------------------------------------------------------------------- */

/* clang-format off */
#define ARCH(id, name_, takes_, read_, configure_, bind_, form_)                                   \
    const arch arch_##id = {.name = name_, .takes = takes_, .read = read_, .configure = configure_, \
                            .bind = bind_, .form = &form_};

ARCH(mistral3,      "mistral3",      ARCH_TEMPERATURE,           NULL, configure_mistral3,  NULL, llama_form)
ARCH(command_r,     "command-r",     ARCH_FACTORS,               NULL, configure_command_r, NULL, cohere_form)
ARCH(cohere2,       "cohere2",       ARCH_FACTORS | ARCH_WINDOW | ARCH_PERIOD, NULL, configure_cohere2, NULL, cohere_form)
ARCH(seed_oss,      "seed_oss",      0,                          NULL, configure_halves,    NULL, seed_form)
ARCH(exaone4,       "exaone4",       ARCH_WINDOW | ARCH_PATTERN, NULL, configure_exaone4,   NULL, post_norm_form)
ARCH(apertus,       "apertus",       0,                          NULL, configure_apertus,   bind_apertus, xielu_form)
ARCH(arcee,         "arcee",         0,                          NULL, NULL,                NULL, relu2_form)
ARCH(starcoder2,    "starcoder2",    ARCH_WINDOW,                NULL, configure_starcoder2, NULL, gelu_tanh_form)
ARCH(stablelm,      "stablelm",      ARCH_PARALLEL,     read_parallel, configure_centered,  bind_stablelm, llama_form)
ARCH(gptneox,       "gptneox",       ARCH_PARALLEL,     read_parallel, configure_centered,  NULL, gelu_form)
ARCH(nemotron,      "nemotron",      0,                          NULL, configure_centered,  NULL, relu2_form)
ARCH(falcon,        "falcon",        0,                          NULL, configure_centered,  bind_falcon, gelu_form)
ARCH(gpt2,          "gpt2",          0,                          NULL, configure_gpt2,      bind_gpt2, gelu_tanh_form)
ARCH(phi2,          "phi2",          0,                          NULL, configure_phi2,      NULL, phi2_form)
ARCH(glm4,          "glm4",          0,                          NULL, configure_pairs,     NULL, sandwich_form)
ARCH(ernie4_5,      "ernie4_5",      0,                          NULL, configure_pairs,     NULL, llama_form)
ARCH(hunyuan_dense, "hunyuan-dense", 0,                          NULL, configure_hunyuan,   NULL, llama_form)
/* clang-format on */
