/*
 * The numbers that define a model, from config.json of a Hugging Face directory.
 *
 * Architectures get the names that they have in GGUF files ("mistral" and "mixtral" are "llama").
 * Both spellings of the rotary embedding are read: rope_parameters, and rope_theta with
 * rope_scaling before it. The limits are those of config.h; a failure is LACE_E_META or
 * LACE_E_UNSUPPORTED and names the key.
 */
#ifndef LACE_HF_CONFIG_HF_H
#define LACE_HF_CONFIG_HF_H

#include "model/config.h"
#include "hf/hf_quant.h"

struct json_t;

enum { HF_MAX_ROPE_FACTORS = CONFIG_MAX_HEAD_DIM / 2 };

typedef struct hf_family hf_family; /* hf_family.h */

typedef struct hf_config {
    /* has_layer_kinds is true; rope.is_neox is true, as Q and K have it in these directories. */
    model_config model;
    const hf_family *family;
    hf_quant quant;         /* how others have quantized it */
    int32_t n_later_layers; /* behind the last: they predict further tokens; files may lack them */
    bool is_tied;           /* the output matrix is the embedding, whatever else is in the files */
    bool has_head_dim;      /* head_dim is written in the config */

    /* Divisors of the rotary frequencies, [rope.n_dims / 2]: llama3's, or longrope's two lists. */
    bool has_rope_factors, has_long_factors;
    float rope_factors[HF_MAX_ROPE_FACTORS];
    float long_factors[HF_MAX_ROPE_FACTORS], short_factors[HF_MAX_ROPE_FACTORS];
} hf_config;

/* Read and check. `config` is an object. */
lace_status hf_config_read(const struct json_t *config, hf_config *out, lace_error *err);

#endif
