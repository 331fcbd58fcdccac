/* Hugging Face directories of Llama 4, its language part. */
#include "hf/hf_family.h"

/* clang-format off */
static const name_row llama4_rows[] = {
    COPY("self_attn.q_proj.weight", "attn_q.weight"),
    COPY("self_attn.k_proj.weight", "attn_k.weight"),
    COPY("self_attn.v_proj.weight", "attn_v.weight"),
    COPY("self_attn.o_proj.weight", "attn_output.weight"),
    PRE_NORM_ROWS,
    COPY("feed_forward.gate_proj.weight", "ffn_gate.weight"),
    COPY("feed_forward.up_proj.weight", "ffn_up.weight"),
    COPY("feed_forward.down_proj.weight", "ffn_down.weight"),
    COPY("feed_forward.router.weight", "ffn_gate_inp.weight"),
    PART("feed_forward.experts.gate_up_proj", "ffn_gate_exps.weight", RECIPE_TRANSPOSE_HALF, 0, 2),
    PART("feed_forward.experts.gate_up_proj", "ffn_up_exps.weight", RECIPE_TRANSPOSE_HALF, 1, 2),
    PART("feed_forward.experts.down_proj", "ffn_down_exps.weight", RECIPE_TRANSPOSE_HALF, 0, 1),
    SHARED_EXPERT_ROWS("feed_forward.shared_expert"),
};
/* clang-format on */

static const char *const keys[] = {"num_local_experts",    "num_experts", "no_rope_layers",
                                   "attention_chunk_size", "layer_types", NULL};

/* Which layers have experts: those of a list, or each n-th. */
static lace_status read_expert_layers(const source *s, model_config *c)
{
    int32_t step = 1;
    bool is_listed[CONFIG_MAX_LAYERS], has_list = source_get(s, "moe_layers") != NULL;
    TRY(source_int(s, "interleave_moe_layer_step", 1, CONFIG_MAX_LAYERS, &step, NULL));
    TRY(source_layer_list(s, "moe_layers", c->n_layers, is_listed));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].has_experts = has_list ? is_listed[i] : (i + 1) % step == 0;
    return LACE_OK;
}

static lace_status read_attention(const source *s, model_config *c)
{
    bool norms = true, tunes = true;
    double scale = 0.1;
    TRY(hf_read_no_rope(s, c));
    TRY(source_bool(s, "use_qk_norm", &norms));
    c->norms_turned = norms;
    c->windows_are_chunks = true;
    c->window = 8192;
    TRY(source_int(s, "attention_chunk_size", 1, CONFIG_MAX_CONTEXT, &c->window, NULL));
    for (int32_t i = 0; i < c->n_layers && !source_get(s, "layer_types"); i++)
        c->layers[i].is_local = !c->layers[i].skips_rope;
    TRY(source_bool(s, "attn_temperature_tuning", &tunes));
    TRY(source_float(s, "attn_scale", 0, 1e3, &scale, NULL));
    c->temperature_scale = tunes ? scale : 0;
    c->temperature_length = 8192;
    return source_int(s, "floor_scale", 1, CONFIG_MAX_CONTEXT, &c->temperature_length, NULL);
}

/* intermediate_size is the experts' width; layers without them have another key. */
static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    TRY(hf_read_experts(s, c));
    TRY(read_expert_layers(s, c));
    TRY(source_int(s, "intermediate_size_mlp", 1, CONFIG_MAX_WIDTH, &c->n_ff, NULL));
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_ff = c->n_ff;
    c->n_experts_shared = 1;
    return read_attention(s, c);
}

const hf_family family_llama4_text = {FAMILY(llama4_rows, keys, read)};
