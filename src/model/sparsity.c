/* Activation sparsity of a model: thresholds, and the text that holds them. */
#include "model/sparsity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"

#define VERSION_KEY "lace.activation_sparsity"

static const char *const names[SPARSITY_INPUTS] = {"qkv", "o", "gate_up", "down"};

int sparsity_weights(model *m, int32_t layer, sparsity_input kind,
                     weight *out[SPARSITY_MAX_WEIGHTS])
{
    model_layer *l = &m->layers[layer];
    weight *all[SPARSITY_INPUTS][SPARSITY_MAX_WEIGHTS] = {
        {&l->wq, &l->wk, &l->wv}, {&l->wo}, {&l->gate, &l->up}, {&l->down}};
    int n = 0;
    for (int i = 0; i < SPARSITY_MAX_WEIGHTS; i++)
        if (all[kind][i] && all[kind][i]->n_rows > 0)
            out[n++] = all[kind][i];
    return n;
}

sparsity_rule *sparsity_of(const model *m, int32_t layer, sparsity_input kind)
{
    return &m->sparsities[layer * SPARSITY_INPUTS + (int32_t)kind];
}

static void set_sparsity(model *m, int32_t layer, sparsity_input kind, const sparsity_rule *rule)
{
    weight *w[SPARSITY_MAX_WEIGHTS];
    int n = sparsity_weights(m, layer, kind, w);
    for (int i = 0; i < n; i++)
        w[i]->sparsity = rule;
}

lace_status model_use_sparsity(model *m, bool in_batches, lace_error *err)
{
    if (!m->device->backend->place_columns)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "activation sparsity has kernels for the CPU only (--device cpu)");
    int32_t n = m->config.n_layers;
    m->sparsities = arena_alloc(&m->memory, (size_t)n * SPARSITY_INPUTS, sizeof *m->sparsities);
    if (!m->sparsities)
        return error_nomem(err, "thresholds");
    for (int32_t layer = 0; layer < n; layer++)
        for (int kind = 0; kind < SPARSITY_INPUTS; kind++) {
            *sparsity_of(m, layer, kind) = (sparsity_rule){.in_batches = in_batches};
            set_sparsity(m, layer, kind, sparsity_of(m, layer, kind));
        }
    return LACE_OK;
}

/* ---- The text -------------------------------------------------------------------------------- */

static void fingerprint(const model *m, char out[17])
{
    uint64_t h = 14695981039346656037u; /* FNV-1a, 64 bits */
    const uint8_t *bytes = (const uint8_t *)m->output_norm;
    for (size_t i = 0; i < (size_t)m->config.n_embd * sizeof *m->output_norm; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    snprintf(out, 17, "%016" PRIx64, h);
}

static lace_status wrong(lace_error *err, const char *key, const char *expected,
                         const json_t *found)
{
    return error_set(err, LACE_E_META, "%s is %s, expected %s", key, json_kind(found), expected);
}

/* The text is of this form, and of this model. */
static lace_status check_head(const model *m, const json_t *root, lace_error *err)
{
    const json_t *version = json_object_get(root, VERSION_KEY);
    if (!json_is_object(root) || !version)
        return error_set(err, LACE_E_META,
                         "no thresholds for activation sparsity: " VERSION_KEY " is missing");
    if (json_integer_value(version) != 1)
        return error_set(err, LACE_E_META,
                         VERSION_KEY " is not 1, the only version that lace knows");
    const json_t *kind = json_object_get(root, "architecture");
    const json_t *print = json_object_get(root, "fingerprint");
    const json_t *layers = json_object_get(root, "layers");
    char own[17];
    fingerprint(m, own);
    if (!json_is_string(kind))
        return wrong(err, "architecture", "a string", kind);
    if (!json_is_string(print))
        return wrong(err, "fingerprint", "a string", print);
    if (!json_is_array(layers))
        return wrong(err, "layers", "a list", layers);
    if (strcmp(json_string_value(kind), m->config.architecture) != 0 ||
        json_array_size(layers) != (size_t)m->config.n_layers)
        return error_set(err, LACE_E_META,
                         "these thresholds are for another model: %.40s with %zu layers; this "
                         "model is %s with %d",
                         json_string_value(kind), json_array_size(layers), m->config.architecture,
                         m->config.n_layers);
    if (strcmp(json_string_value(print), own) != 0)
        return error_set(
            err, LACE_E_META,
            "these thresholds are for another model: its fingerprint is %.16s, this model has %s",
            json_string_value(print), own);
    return LACE_OK;
}

static lace_status read_layer(model *m, int32_t layer, const json_t *object, lace_error *err)
{
    if (!json_is_object(object))
        return error_set(err, LACE_E_META, "layers[%d] is %s, expected an object", layer,
                         json_kind(object));
    const char *key;
    json_t *number;
    for (int kind = 0; kind < SPARSITY_INPUTS; kind++)
        set_sparsity(m, layer, kind, NULL);
    json_object_foreach((json_t *)object, key, number)
    {
        int kind = 0;
        while (kind < SPARSITY_INPUTS && strcmp(key, names[kind]) != 0)
            kind++;
        if (kind == SPARSITY_INPUTS)
            return error_set(err, LACE_E_META, "layers[%d].%.40s: expected qkv, o, gate_up or down",
                             layer, key);
        double x = json_number_value(number);
        if (!json_is_number(number) || !(x >= 0 && x <= 1e30))
            return error_set(err, LACE_E_META,
                             "layers[%d].%s is %s, expected a number from 0 to 1e30", layer, key,
                             json_is_number(number) ? "out of range" : json_kind(number));
        weight *w[SPARSITY_MAX_WEIGHTS];
        if (sparsity_weights(m, layer, kind, w) == 0)
            return error_set(err, LACE_E_META, "layers[%d].%s: the layer has no such matrix", layer,
                             key);
        sparsity_of(m, layer, kind)->threshold = (float)x;
        set_sparsity(m, layer, kind, sparsity_of(m, layer, kind));
    }
    return LACE_OK;
}

lace_status sparsity_read(model *m, span json, lace_error *err)
{
    json_t *root;
    TRY(json_read(json, 0, &root, err));
    lace_status status = check_head(m, root, err);
    const json_t *layers = json_object_get(root, "layers");
    for (int32_t i = 0; i < m->config.n_layers && status == LACE_OK; i++)
        status = read_layer(m, i, json_array_get(layers, (size_t)i), err);
    json_decref(root);
    return status;
}

lace_status sparsity_write(const model *m, const sparsity_note *note, buf *out, lace_error *err)
{
    char own[17];
    fingerprint(m, own);
    lace_status status = buf_printf(out,
                                    "{\n  \"" VERSION_KEY "\": 1,\n  \"architecture\": \"%s\",\n"
                                    "  \"fingerprint\": \"%s\",\n",
                                    m->config.architecture, own);
    if (status == LACE_OK && note->sparsity >= 0)
        status = buf_printf(out, "  \"sparsity\": %.4f,\n", note->sparsity);
    if (status == LACE_OK && note->kld >= 0)
        status = buf_printf(out, "  \"kld\": %.6f,\n", note->kld);
    if (status == LACE_OK)
        status = buf_append_text(out, "  \"layers\": [\n");
    for (int32_t layer = 0; layer < m->config.n_layers && status == LACE_OK; layer++) {
        const char *before = "    {";
        for (int kind = 0; kind < SPARSITY_INPUTS && status == LACE_OK; kind++) {
            weight *w[SPARSITY_MAX_WEIGHTS];
            if (sparsity_weights((model *)m, layer, kind, w) == 0)
                continue;
            status = buf_printf(out, "%s\"%s\": %.9g", before, names[kind],
                                (double)sparsity_of(m, layer, kind)->threshold);
            before = ", ";
        }
        if (status == LACE_OK)
            status = buf_printf(out, "%s}%s\n", before[0] == ' ' ? before : "",
                                layer + 1 < m->config.n_layers ? "," : "");
    }
    if (status == LACE_OK)
        status = buf_append_text(out, "  ]\n}\n");
    return status == LACE_OK ? status : error_nomem(err, "thresholds");
}
