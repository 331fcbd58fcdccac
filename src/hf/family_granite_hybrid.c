/* Hugging Face directories of Granite 4: state spaces or attention, experts or none. */
#include "hf/family_mamba.h"

#include <stdio.h>
#include <string.h>

/* ---- The shared network: gate rows, then up rows, in one tensor ------------------------------ */

static int64_t shared_width(const model_config *c, int32_t layer)
{
    return c->n_experts > 0 ? c->n_ff_shared : c->layers[layer].n_ff;
}

static int64_t gate_row(const model_config *c, int32_t layer, int64_t row)
{
    return row;
}

static int64_t up_row(const model_config *c, int32_t layer, int64_t row)
{
    return row + shared_width(c, layer);
}

static const row_map gate_half = {shared_width, gate_row};
static const row_map up_half = {shared_width, up_row};

/* clang-format off */
static const name_row dense_rows[] = {
    ATTENTION_ROWS, PRE_NORM_ROWS, MAMBA_ROWS("mamba."),
    ROWS("shared_mlp.input_linear.weight", "ffn_gate.weight", &gate_half),
    ROWS("shared_mlp.input_linear.weight", "ffn_up.weight", &up_half),
    COPY("shared_mlp.output_linear.weight", "ffn_down.weight"),
};

static const name_row moe_rows[] = {
    ATTENTION_ROWS, PRE_NORM_ROWS, MAMBA_ROWS("mamba."),
    COPY("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"),
    PART("block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", RECIPE_HALVE, 0, 2),
    PART("block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", RECIPE_HALVE, 1, 2),
    COPY("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"),
    ROWS("shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", &gate_half),
    ROWS("shared_mlp.input_linear.weight", "ffn_up_shexp.weight", &up_half),
    COPY("shared_mlp.output_linear.weight", "ffn_down_shexp.weight"),
};
/* clang-format on */

/* ---- Keys ------------------------------------------------------------------------------------ */

static const char *const granite_keys[] = {
    "layer_types",         "num_local_experts", "shared_intermediate_size", "embedding_multiplier",
    "residual_multiplier", "logits_scaling",    "attention_multiplier",     NULL};

static const hf_family granite_moe;

static lace_status read_widths(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t n_experts = 8, n_shared = 1024;
    TRY(source_int(s, "num_local_experts", 0, CONFIG_MAX_EXPERTS, &n_experts, NULL));
    TRY(source_int(s, "shared_intermediate_size", 1, CONFIG_MAX_WIDTH, &n_shared, NULL));
    if (n_experts > 0) {
        h->family = &granite_moe;
        c->n_ff_shared = n_shared;
        return hf_read_experts(s, c);
    }
    c->n_ff = n_shared;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_ff = n_shared;
    return LACE_OK;
}

static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    const char *positions = json_string_value(source_get(s, "position_embedding_type"));
    bool is_hybrid = false;
    c->has_no_rope = !positions || strcmp(positions, "rope") != 0;
    c->attention_scale = 1;
    TRY(hf_read_multipliers(s, c));
    TRY(read_widths(s, h));
    for (int32_t i = 0; i < c->n_layers; i++) {
        layer_config *l = &c->layers[i];
        if (!source_get(s, "layer_types"))
            l->kind = LAYER_RECURRENT;
        l->n_kv_heads = l->kind == LAYER_RECURRENT ? 0 : c->n_kv_heads;
        l->skips_rope = c->has_no_rope;
        is_hybrid = is_hybrid || l->kind == LAYER_RECURRENT;
    }
    if (!is_hybrid && !c->has_no_rope && c->n_experts == 0) { /* as GGUF files call it then */
        snprintf(c->architecture, sizeof c->architecture, "granite");
        return LACE_OK;
    }
    TRY(read_mamba(s, &mamba_d_keys, c));
    c->ssm.norms_all = c->ssm.n_groups > 1;
    return read_time_step_limit(s, c);
}

#define GRANITE(rows)                                                                              \
    {                                                                                              \
        .layers = NAME_TABLE(rows), .is_permuted = true, .reads = granite_keys, .read = read       \
    }

const hf_family family_granite_hybrid = GRANITE(dense_rows);
static const hf_family granite_moe = GRANITE(moe_rows);
