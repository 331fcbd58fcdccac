/* Hugging Face directories of Gemma 3n. */
#include "hf/family_gemma.h"

#include <math.h>

/* clang-format off */
static const name_row rows[] = {
    GEMMA_ROWS(RECIPE_COPY),
    LAYER_INPUT_ROWS,
    COPY("altup.correct_output_scale", "altup_correct_scale.weight"),
    COPY("altup.correction_coefs.weight", "altup_correct_coef.weight"),
    COPY("altup.prediction_coefs.weight", "altup_predict_coef.weight"),
    COPY("altup.modality_router.weight", "altup_router.weight"),
    COPY("altup.router_norm.weight", "altup_router_norm.weight"),
    COPY("laurel.linear_left.weight", "laurel_l.weight"),
    COPY("laurel.linear_right.weight", "laurel_r.weight"),
    COPY("laurel.post_laurel_norm.weight", "laurel_post_norm.weight"),
};

static const name_row ends[] = {
    LAYER_INPUT_ENDS,
    PART("altup_projections.*.weight", "altup_proj.weight", RECIPE_STACK, STACK_STREAMS, 0),
    PART("altup_unembed_projections.*.weight", "altup_unembd_proj.weight", RECIPE_STACK, STACK_STREAMS, 0),
};
/* clang-format on */

static const char *const keys[] = {"final_logit_softcapping", "intermediate_size", NULL};

/* One width for all layers, or a list of them. */
static lace_status read_widths(const source *s, model_config *c)
{
    static const char key[] = "intermediate_size";
    const json_t *value = source_get(s, key);
    int32_t one = 16384;
    if (!json_is_array(value))
        TRY(source_int(s, key, 1, CONFIG_MAX_WIDTH, &one, NULL));
    else
        TRY(source_layers(s, key, c->n_layers, &value));
    c->n_ff = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const json_t *item = json_array_get(value, (size_t)i);
        json_int_t width = item ? json_integer_value(item) : one;
        if (width < 1 || width > CONFIG_MAX_WIDTH)
            return source_fail(s, LACE_E_META, key, "expected widths of 1 or more");
        c->layers[i].n_ff = (int32_t)width;
        c->n_ff = c->n_ff > width ? c->n_ff : (int32_t)width;
    }
    return LACE_OK;
}

/* The deviations above the mean that this share of normally distributed values stays below. */
static double deviations_of(double share)
{
    double low = -40, high = 40;
    for (int i = 0; i < 200; i++) {
        double x = (low + high) / 2;
        *(0.5 * erfc(-x / sqrt(2)) < share ? &low : &high) = x;
    }
    return (low + high) / 2;
}

/* The share of each layer's gates that is cut off. */
static lace_status read_cutoffs(const source *s, model_config *c)
{
    static const char key[] = "activation_sparsity_pattern";
    const json_t *list;
    TRY(source_layers(s, key, c->n_layers, &list));
    for (int32_t i = 0; i < c->n_layers; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        double share = list ? json_number_value(item) : c->n_layers > 10 && i < 10 ? 0.95 : 0;
        if ((list && !json_is_number(item)) || !(share >= 0 && share < 1))
            return source_fail(s, LACE_E_META, key, "expected numbers from 0 to below 1");
        c->layers[i].has_cutoff = share > 0;
        c->layers[i].cutoff = share > 0 ? deviations_of((float)share) : 0; /* as the reference */
    }
    return LACE_OK;
}

static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t n_shared = 15;
    TRY(read_widths(s, c));
    TRY(read_cutoffs(s, c));
    if (json_is_null(json_object_get(s->object, "final_logit_softcapping"))) /* said: none */
        c->final_softcap = 0;
    TRY(source_float(s, "final_logit_softcapping", 0, 1e6, &c->final_softcap, NULL));
    TRY(source_int(s, "hidden_size_per_layer_input", 1, CONFIG_MAX_WIDTH / c->n_layers,
                   &c->n_embd_layer, NULL));
    TRY(source_int(s, "altup_num_inputs", 2, 16, &c->n_streams, NULL));
    TRY(source_int(s, "altup_active_idx", 0, c->n_streams - 1, &c->active_stream, NULL));
    TRY(source_expect_bool(s, "altup_correct_scale", true));
    TRY(source_int(s, "num_kv_shared_layers", 0, c->n_layers - 1, &n_shared, NULL));
    return config_share_kv(c, n_shared)
               ? LACE_OK
               : source_fail(s, LACE_E_META, "num_kv_shared_layers",
                             "a layer has no earlier one of its kind to share with");
}

static void set_defaults(model_config *c)
{
    set_gemma_defaults(c);
    c->n_context = 32768;
    c->n_embd = 2048;
    c->n_layers = 35;
    c->n_kv_heads = 2;
    c->n_vocab = 262400;
    c->window = 512;
    c->n_embd_layer = 256;
    c->n_streams = 4;
    c->final_softcap = 30;
    c->rope_local_base = 10000;
}

const hf_family family_gemma3n = {GEMMA_FAMILY(rows, ends, keys, read, 5),
                                  .set_defaults = set_defaults};
