/* Adapters of PEFT: its config, and its names. */
#include "hf/peft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "hf/hf_family.h"

/* ---- The config ------------------------------------------------------------------------------ */

/* A key whose value must be absent, null, false, empty or `allowed`. */
static lace_status expect_off(const json_t *config, const char *key, const char *allowed,
                              lace_error *err)
{
    const json_t *v = json_get(config, key);
    const char *word = json_string_value(v);
    bool is_off = !v || json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
                  (json_is_object(v) && json_object_size(v) == 0) ||
                  (word && allowed && strcmp(word, allowed) == 0);
    if (is_off)
        return LACE_OK;
    return error_set(err, LACE_E_UNSUPPORTED,
                     "adapter_config.json: %s is set, which lace does not support", key);
}

static lace_status check_kind(const json_t *config, lace_error *err)
{
    static const char *const off[] = {"use_dora",
                                      "use_qalora",
                                      "lora_bias",
                                      "layer_replication",
                                      "modules_to_save",
                                      "target_parameters",
                                      "trainable_token_indices",
                                      "alora_invocation_tokens",
                                      "arrow_config",
                                      "use_bdlora"};
    const char *type = json_string_value(json_get(config, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0)
        return error_set(err, LACE_E_UNSUPPORTED,
                         "adapter_config.json: peft_type is \"%.32s\", expected \"LORA\"",
                         type ? type : "");
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        TRY(expect_off(config, off[i], NULL, err));
    return expect_off(config, "bias", "none", err);
}

lace_status peft_config_read(const json_t *config, peft_config *out, lace_error *err)
{
    *out = (peft_config){.base_model = ""};
    TRY(check_kind(config, err));
    const json_t *alpha = json_get(config, "lora_alpha");
    out->alpha = json_is_number(alpha) ? json_number_value(alpha) : NAN;
    if (!(fabs(out->alpha) <= 1e6))
        return error_set(err, LACE_E_META,
                         "adapter_config.json: lora_alpha is %s, expected a number up to 1000000",
                         json_is_number(alpha) ? "too large" : json_kind(alpha));
    out->is_rank_stabilized = json_is_true(json_get(config, "use_rslora"));
    const char *base = json_string_value(json_get(config, "base_model_name_or_path"));
    out->base_model = base ? base : "";
    out->alpha_pattern = json_get(config, "alpha_pattern");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)out->alpha_pattern, key, value)
    {
        if (strpbrk(key, "^$*+?()[]{}|\\") || !json_is_number(value) ||
            !(fabs(json_number_value(value)) <= 1e6))
            return error_set(err, LACE_E_UNSUPPORTED,
                             "adapter_config.json: alpha_pattern: \"%.64s\": expected the end of a "
                             "name, and a number",
                             key);
    }
    return LACE_OK;
}

static bool ends_with_part(const char *module, const char *key)
{
    size_t n = strlen(module), k = strlen(key);
    return n >= k && strcmp(module + n - k, key) == 0 && (n == k || module[n - k - 1] == '.');
}

double peft_factor(const peft_config *c, const char *module, int32_t rank)
{
    double alpha = c->alpha;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)c->alpha_pattern, key, value)
    {
        if (ends_with_part(module, key)) {
            alpha = json_number_value(value);
            break;
        }
    }
    return alpha / (c->is_rank_stabilized ? sqrt(rank) : (double)rank);
}

/* ---- Names ----------------------------------------------------------------------------------- */

enum { NAME_BYTES = 320 };

/* Whether a name is that of a row; a '*' stands for digits. */
static bool is_name(const char *name, const char *pattern)
{
    while (*pattern) {
        if (*pattern == '*') {
            if (*name < '0' || *name > '9')
                return false;
            while (*name >= '0' && *name <= '9')
                name++;
            pattern++;
        } else if (*name++ != *pattern++) {
            return false;
        }
    }
    return *name == 0;
}

static bool is_permuted(const name_row *row, const hf_family *f)
{
    return f->is_permuted && (row->kind == RECIPE_PERMUTE_Q || row->kind == RECIPE_PERMUTE_K);
}

static lace_status map_row(const peft_base *base, const hf_family *f, const name_row *row,
                           int32_t layer, const char *name, peft_map *out, lace_error *err)
{
    const model_config *c = base->config;
    bool is_gguf = base->layout == HF_AS_GGUF;
    *out = (peft_map){.row = row, .layer = layer};
    switch (row->kind) {
    case RECIPE_COPY:
    case RECIPE_ROWS:
    case RECIPE_COLUMNS:
    case RECIPE_SCALE:
        return LACE_OK;
    case RECIPE_PERMUTE_Q:
    case RECIPE_PERMUTE_K:
        if (is_gguf && is_permuted(row, f))
            out->n_permuted = row->kind == RECIPE_PERMUTE_Q ? c->n_heads : c->n_kv_heads;
        return LACE_OK;
    case RECIPE_TRANSPOSE: /* a matrix that is stored by columns; adapters are not */
        if (row->n_parts <= 1 && row->part == 0 && !strstr(row->gguf, "_exps"))
            return LACE_OK;
        break;
    default:
        break;
    }
    return error_set(err, LACE_E_UNSUPPORTED, "%.200s: adapters cannot change it%s", name,
                     strstr(row->gguf, "_exps") ? ": it is of the experts of a mixture" : "");
}

/* Rows of a table that are called `rest`; `start` is in front of their names in GGUF. */
static lace_status add_rows(const peft_base *base, const hf_family *f, const name_table *rows,
                            int32_t layer, const char *rest, const char *start, peft_target *out,
                            int *n_out, lace_error *err)
{
    for (size_t i = 0; i < rows->n_rows; i++) {
        if (!is_name(rest, rows->rows[i].hf))
            continue;
        if (*n_out == PEFT_MOST_TARGETS)
            return error_set(err, LACE_E_UNSUPPORTED, "%.200s: has too many parts", rest);
        peft_target *t = &out[*n_out];
        snprintf(t->name, sizeof t->name, "%s%s", start, rows->rows[i].gguf);
        TRY(map_row(base, f, &rows->rows[i], layer, rest, &t->map, err));
        ++*n_out;
    }
    return LACE_OK;
}

/* Behind the prefix and "layers." the number of a layer; -1: there is none. *rest is behind it. */
static int32_t layer_of(const char *name, const char *layer_start, int32_t n_layers,
                        const char **rest)
{
    size_t n = strlen(layer_start);
    if (strncmp(name, layer_start, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    char *end;
    long layer = strtol(name + n, &end, 10);
    *rest = end + 1;
    return *end == '.' && layer >= 0 && layer < n_layers ? (int32_t)layer : -1;
}

/* Behind one of the prefixes. */
static lace_status find_behind(const peft_base *base, const hf_family *f, const char *name,
                               peft_target *out, int *n_out, lace_error *err)
{
    const char *rest;
    char start[32];
    int32_t layer =
        layer_of(name, f->layer_start ? f->layer_start : "layers.", base->config->n_layers, &rest);
    name_table ends = hf_family_ends(f);
    if (layer < 0)
        return add_rows(base, f, &ends, -1, name, "", out, n_out, err);
    snprintf(start, sizeof start, "blk.%d.", layer);
    return add_rows(base, f, &f->layers, layer, rest, start, out, n_out, err);
}

static lace_status find_in_family(const peft_base *base, const hf_family *f, const char *name,
                                  peft_target *out, int *n_out, lace_error *err)
{
    name_table heads = hf_family_heads(f);
    TRY(add_rows(base, f, &heads, -1, name, "", out, n_out, err));
    for (size_t i = 0; *n_out == 0 && hf_name_prefixes[i]; i++) {
        size_t n = strlen(hf_name_prefixes[i]);
        if (strncmp(name, hf_name_prefixes[i], n) == 0)
            TRY(find_behind(base, f, name + n, out, n_out, err));
    }
    return LACE_OK;
}

lace_status peft_find(const peft_base *base, const char *module, peft_target *out, int *n_out,
                      lace_error *err)
{
    char name[NAME_BYTES];
    *n_out = 0;
    snprintf(name, sizeof name, "%s.weight", module);
    const hf_model_type *type;
    for (size_t i = 0; *n_out == 0 && (type = hf_model_type_of(base->config->architecture, i)); i++)
        TRY(find_in_family(base, type->family, name, out, n_out, err));
    if (*n_out == 0)
        return error_set(err, LACE_E_META,
                         "%.200s: a model of architecture %s with %d layers has no such matrix; is "
                         "the adapter for another model?",
                         module, base->config->architecture, base->config->n_layers);
    return LACE_OK;
}

lace_status peft_map_gguf(const peft_base *base, const char *name, peft_map *out, lace_error *err)
{
    const char *rest;
    int32_t layer = layer_of(name, "blk.", base->config->n_layers, &rest);
    *out = (peft_map){0};
    const hf_model_type *type = hf_model_type_of(base->config->architecture, 0);
    if (base->layout == HF_AS_GGUF || layer < 0 || !type)
        return LACE_OK;
    const name_table *rows = &type->family->layers;
    for (size_t i = 0; i < rows->n_rows; i++) {
        const name_row *row = &rows->rows[i];
        if (strcmp(row->gguf, rest) != 0)
            continue;
        if (row->kind == RECIPE_SCALE)
            return error_set(
                err, LACE_E_UNSUPPORTED,
                "%s: an adapter in GGUF does not fit a directory of this architecture; "
                "lace convert makes a file of it",
                name);
        if (is_permuted(row, type->family)) {
            bool is_q = row->kind == RECIPE_PERMUTE_Q;
            out->n_permuted = is_q ? base->config->n_heads : base->config->n_kv_heads;
            out->is_unpermuted = true;
        }
        return LACE_OK;
    }
    return LACE_OK;
}

/* ---- Rows and columns ------------------------------------------------------------------------ */

int64_t peft_n_rows(const peft_base *base, const peft_map *m, int64_t n_source)
{
    return m->row && m->row->kind == RECIPE_ROWS ? m->row->rows->count(base->config, m->layer)
                                                 : n_source;
}

int64_t peft_row(const peft_base *base, const peft_map *m, int64_t n_rows, int64_t r)
{
    if (m->row && m->row->kind == RECIPE_ROWS)
        return m->row->rows->source(base->config, m->layer, r);
    if (m->n_permuted == 0)
        return r;
    int64_t head_dim = n_rows / m->n_permuted, in_head = r % head_dim, half = head_dim / 2;
    return r - in_head +
           (m->is_unpermuted ? in_head % half * 2 + in_head / half
                             : in_head % 2 * half + in_head / 2);
}

int64_t peft_n_columns(const peft_base *base, const peft_map *m, int64_t n_source)
{
    return m->row && m->row->kind == RECIPE_COLUMNS ? m->row->rows->count(base->config, m->layer)
                                                    : n_source;
}

int64_t peft_column(const peft_base *base, const peft_map *m, int64_t column)
{
    return m->row && m->row->kind == RECIPE_COLUMNS
               ? m->row->rows->source(base->config, m->layer, column)
               : column;
}

double peft_row_factor(const peft_base *base, const peft_map *m, int64_t r)
{
    return m->row && m->row->kind == RECIPE_SCALE && base->layout == HF_AS_GGUF
               ? m->row->factor_of(base->config, r)
               : 1.0;
}
