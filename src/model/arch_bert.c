/*
 * BERT and its kin: BERT itself (RoBERTa and XLM-RoBERTa are the same), Nomic BERT, which rotates
 * and has gates, and ModernBERT, whose norms come first and most of whose layers see a window to
 * both sides.
 */
#include "model/config_source.h"
#include "model/encoder.h"

/* An architecture whose form FORM_form(m) makes of a model. */
#define ENCODER(id, name_, takes_, read_, configure_, form)                                        \
    static lace_status bind_##form(model *m, lace_error *err)                                      \
    {                                                                                              \
        encoder_form f = form##_form(m);                                                           \
        return encoder_bind(m, &f, err);                                                           \
    }                                                                                              \
    static void build_##form(const model *m, plan *p, const layer_memory *memory)                  \
    {                                                                                              \
        encoder_form f = form##_form(m);                                                           \
        encoder_build(m, p, memory, &f);                                                           \
    }                                                                                              \
    const arch arch_##id = {.name = name_,                                                         \
                            .takes = takes_,                                                       \
                            .read = read_,                                                         \
                            .configure = configure_,                                               \
                            .bind = bind_##form,                                                   \
                            .state = encoder_state,                                                \
                            .build = build_##form}

/* ---- BERT ------------------------------------------------------------------------------------ */

static encoder_form bert_form(const model *m)
{
    return (encoder_form){.has_positions = true, .activation = GLU_GELU};
}

static lace_status configure_bert(model_config *c, lace_error *err)
{
    c->encoder.is_on = true;
    c->centers_norms = true;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].skips_rope = true;
    return LACE_OK;
}

ENCODER(bert, "bert", ARCH_ENCODER, encoder_read, configure_bert, bert);

/* ---- Nomic BERT ------------------------------------------------------------------------------ */

static encoder_form nomic_form(const model *m)
{
    return (encoder_form){.is_gated = true, .activation = GLU_SILU};
}

static lace_status configure_rotated(model_config *c, lace_error *err)
{
    c->encoder.is_on = true;
    c->centers_norms = true;
    c->rope.is_neox = true;
    return LACE_OK;
}

ENCODER(nomic_bert, "nomic-bert", ARCH_ENCODER, encoder_read, configure_rotated, nomic);

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

ENCODER(modern_bert, "modern-bert", ARCH_ENCODER | ARCH_WINDOW, read_modern, configure_rotated,
        modern);
