/*
 * BERT and its kin: BERT itself (RoBERTa and XLM-RoBERTa are the same), Nomic BERT, which rotates
 * and has gates, and ModernBERT, whose norms come first and most of whose layers see a window to
 * both sides.
 */
#include "model/config_source.h"
#include "model/encoder.h"

/* ---- BERT ------------------------------------------------------------------------------------ */

static const encoder_form bert_form = {.has_positions = true, .activation = GLU_GELU};

static lace_status configure_bert(model_config *c, lace_error *err)
{
    c->encoder.is_on = true;
    c->centers_norms = true;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = true;
    return LACE_OK;
}

static lace_status bind_bert(model *m, lace_error *err)
{
    return encoder_bind(m, &bert_form, err);
}

static void build_bert(const model *m, plan *p, const layer_memory *memory)
{
    encoder_build(m, p, memory, &bert_form);
}

const arch arch_bert = {.name = "bert",
                        .takes = ARCH_ENCODER,
                        .read = encoder_read,
                        .configure = configure_bert,
                        .bind = bind_bert,
                        .state = encoder_state,
                        .build = build_bert};

/* ---- Nomic BERT ------------------------------------------------------------------------------ */

static const encoder_form nomic_form = {.is_gated = true, .activation = GLU_SILU};

static lace_status configure_rotated(model_config *c, lace_error *err)
{
    c->encoder.is_on = true;
    c->centers_norms = true;
    c->rope.is_neox = true;
    return LACE_OK;
}

static lace_status bind_nomic(model *m, lace_error *err)
{
    return encoder_bind(m, &nomic_form, err);
}

static void build_nomic(const model *m, plan *p, const layer_memory *memory)
{
    encoder_build(m, p, memory, &nomic_form);
}

const arch arch_nomic_bert = {.name = "nomic-bert",
                              .takes = ARCH_ENCODER,
                              .read = encoder_read,
                              .configure = configure_rotated,
                              .bind = bind_nomic,
                              .state = encoder_state,
                              .build = build_nomic};

/* ---- ModernBERT ------------------------------------------------------------------------------ */

/*
 * Which layers see everything: each n-th, the first among them, or those for which a list has 0.
 */
static lace_status read_pattern(const config_source *s, model_config *c)
{
    enum { USUAL = 3 };
    const char *name = "attention.sliding_window_pattern";
    const gguf_value *v = gguf_find(s->g, config_key_of(s, name).text);
    bool is_list = v && v->type == GGUF_ARRAY;
    int32_t numbers[CONFIG_MAX_LAYERS];
    for (int32_t i = 0; i < c->n_layers; i++)
        numbers[i] = USUAL;
    if (is_list && v->item_type == GGUF_BOOL && v->n_items == (uint64_t)c->n_layers)
        for (int32_t i = 0; i < c->n_layers; i++)
            numbers[i] = v->bytes.data[i] != 0;
    else
        TRY(config_layers_int(s, name, c->n_layers, is_list ? 0 : 1, CONFIG_MAX_LAYERS, numbers,
                              sizeof *numbers, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].is_local = c->window > 0 && (is_list ? numbers[i] != 0 : i % numbers[i] != 0);
    return LACE_OK;
}

static lace_status read_modern(const config_source *s, model_config *c)
{
    text activation = {NULL, 0};
    bool found;
    const char *key = "hidden_activation";
    TRY(encoder_read(s, c));
    c->encoder.n_classes = 0; /* its heads read a mean */
    TRY(config_int(s, "attention.sliding_window", 2, CONFIG_MAX_CONTEXT, &c->window, NULL));
    TRY(read_pattern(s, c));
    TRY(config_float(s, "attention.layer_norm_epsilon", 1e-30, 0.999, &c->norm_eps, NULL));
    TRY(gguf_get_text(s->g, config_key_of(s, key).text, &activation, &found, s->err));
    c->encoder.has_swiglu = found && text_is(activation, "silu");
    if (found && !c->encoder.has_swiglu && !text_is(activation, "gelu"))
        return config_bad(s, key, LACE_E_UNSUPPORTED, "expected gelu or silu");
    return LACE_OK;
}

static encoder_form modern_form(const model *m)
{
    return (encoder_form){.norms_before = true,
                          .is_gated = true,
                          .activation = m->config.encoder.has_swiglu ? GLU_SILU : GLU_GELU};
}

static lace_status bind_modern(model *m, lace_error *err)
{
    encoder_form f = modern_form(m);
    return encoder_bind(m, &f, err);
}

static void build_modern(const model *m, plan *p, const layer_memory *memory)
{
    encoder_form f = modern_form(m);
    encoder_build(m, p, memory, &f);
}

const arch arch_modern_bert = {.name = "modern-bert",
                               .takes = ARCH_ENCODER | ARCH_WINDOW,
                               .read = read_modern,
                               .configure = configure_rotated,
                               .bind = bind_modern,
                               .state = encoder_state,
                               .build = build_modern};
