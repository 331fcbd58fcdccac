/* Checked values of config.json: what the files that read it share. */
#ifndef LACE_HF_CONFIG_JSON_H
#define LACE_HF_CONFIG_JSON_H

#include <jansson.h>

#include "hf/config_hf.h"

/* An object of the config; what it does not have may be in the one around it. */
typedef struct source {
    const json_t *object;
    const json_t *outer; /* or NULL */
    const char *name;    /* in front of the keys in messages: "rope_scaling"; or NULL */
    lace_error *err;
} source;

/* The value of a key; NULL if it is absent or null. */
const json_t *source_get(const source *s, const char *key);

/* "config.json: key: what" */
lace_status source_fail(const source *s, lace_status status, const char *key, const char *what);

/*
 * Optional values: *out stays as it is when the key is absent; found may be NULL. A value of
 * another kind or outside [low, high] is LACE_E_META with the key, what was found and what was
 * expected. Integers are taken as floats, too.
 */
lace_status source_int(const source *s, const char *key, int64_t low, int64_t high, int32_t *out,
                       bool *found);
lace_status source_float(const source *s, const char *key, double low, double high, double *out,
                         bool *found);
lace_status source_bool(const source *s, const char *key, bool *out);

/* A flag or a text of which lace computes only one value: others are LACE_E_UNSUPPORTED. */
lace_status source_expect_bool(const source *s, const char *key, bool expected);
lace_status source_expect_text(const source *s, const char *key, const char *expected);

/* Of several spellings of a key the one that the config has, or the first. */
const char *source_spelling(const source *s, const char *const *keys, size_t n);
#define SOURCE_SPELLING(s, ...)                                                                    \
    source_spelling(s, (const char *const[]){__VA_ARGS__},                                         \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* An array with an item for each layer; *out is NULL if the key is absent. */
lace_status source_layers(const source *s, const char *key, int32_t n_layers, const json_t **out);

/* An array of numbers of layers; is_listed[i] says whether layer i is one of them. */
lace_status source_layer_list(const source *s, const char *key, int32_t n_layers, bool *is_listed);

/* The same as source_int and source_float, but a key may be absent only if *out is not 0. */
lace_status source_need_int(const source *s, const char *key, int64_t low, int64_t high,
                            int32_t *out);
lace_status source_need_float(const source *s, const char *key, double low, double high,
                              double *out);

/* ---- Parts that several families read -------------------------------------------------------- */

/* The experts' number, how many are used, and their width; of every layer. */
lace_status hf_read_experts(const source *s, model_config *c);
extern const char *const hf_expert_keys[]; /* for hf_family.reads */

/*
 * The same for mixtures with all that there is: width of experts, shared experts, groups, factor,
 * and layers without experts. What a config does not say stays as it is.
 */
lace_status hf_read_mixture(const source *s, model_config *c);
extern const char *const hf_mixture_keys[];

/* An integer, or a list of equal ones with an item for each layer. */
lace_status source_same_int(const source *s, const char *key, int64_t low, int64_t high,
                            int32_t *out);

/* Granite's four factors. */
lace_status hf_read_multipliers(const source *s, model_config *c);

/* Layers without positions: no_rope_layers, or each no_rope_layer_interval-th. */
lace_status hf_read_no_rope(const source *s, model_config *c);

/* The rotary embedding, after the sizes. */
lace_status hf_rope_read(const source *s, hf_config *h);

/* How many frequencies turn by each axis of positions: mrope_section. */
lace_status hf_read_sections(const source *s, rope_config *r);

/* That nothing else in the config changes what is computed; when all has been read. */
lace_status hf_check_keys(const source *s, const hf_config *h);

#endif
