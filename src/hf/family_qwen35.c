/*
 * Hugging Face directories of Qwen3-Next and Qwen3.5: layers of a gated delta net, each few of them
 * followed by one that attends.
 *
 * Qwen3-Next has the rows of q, k, v and the gate of a key head together. Qwen3.5 has them apart, with
 * the heads of values that share a key side by side; in GGUF files those lie n_key_heads apart.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hf/hf_family.h"

/* ---- Orders of rows -------------------------------------------------------------------------- */

static int64_t count_heads(const model_config *c, int32_t layer)
{
    return c->delta.n_heads;
}

static int64_t count_values(const model_config *c, int32_t layer)
{
    return (int64_t)c->delta.n_heads * c->delta.v_dim;
}

static int64_t count_qkv(const model_config *c, int32_t layer)
{
    return config_delta_width(&c->delta);
}

/* Head h of GGUF's order, n_key_heads apart where they share a key. */
static int64_t tiled_head(const model_config *c, int32_t layer, int64_t h)
{
    const delta_config *d = &c->delta;
    return h % d->n_key_heads * (d->n_heads / d->n_key_heads) + h / d->n_key_heads;
}

static int64_t tiled_value(const model_config *c, int32_t layer, int64_t row)
{
    int64_t dim = c->delta.v_dim;
    return tiled_head(c, layer, row / dim) * dim + row % dim;
}

static int64_t tiled_qkv(const model_config *c, int32_t layer, int64_t row)
{
    int64_t keys = 2 * (int64_t)c->delta.n_key_heads * c->delta.k_dim;
    return row < keys ? row : keys + tiled_value(c, layer, row - keys);
}

/*
 * Rows of a key head of Qwen3-Next: q, k, then v and the gate of each of its heads.
 * `first` is where a part begins there, `n` how many rows of it a key head has.
 */
static int64_t of_key_head(const delta_config *d, int64_t first, int64_t n, int64_t row)
{
    int64_t values = (int64_t)(d->n_heads / d->n_key_heads) * d->v_dim;
    return row / n * 2 * (d->k_dim + values) + first + row % n;
}

static int64_t sorted_gate(const model_config *c, int32_t layer, int64_t row)
{
    const delta_config *d = &c->delta;
    int64_t values = (int64_t)(d->n_heads / d->n_key_heads) * d->v_dim;
    return of_key_head(d, 2 * d->k_dim + values, values, row);
}

static int64_t sorted_qkv(const model_config *c, int32_t layer, int64_t row)
{
    const delta_config *d = &c->delta;
    int64_t keys = (int64_t)d->n_key_heads * d->k_dim;
    int64_t values = (int64_t)(d->n_heads / d->n_key_heads) * d->v_dim;
    if (row < 2 * keys)
        return of_key_head(d, row < keys ? 0 : d->k_dim, d->k_dim, row % keys);
    return of_key_head(d, 2 * d->k_dim, values, row - 2 * keys);
}

static const row_map heads = {count_heads, tiled_head};
static const row_map values = {count_values, tiled_value};
static const row_map qkv = {count_qkv, tiled_qkv};
static const row_map next_qkv = {count_qkv, sorted_qkv};
static const row_map next_gate = {count_values, sorted_gate};

/* ---- Names ----------------------------------------------------------------------------------- */

/* How fast a head forgets. */
static float rate(float x)
{
    return -expf(x);
}

/* clang-format off */
#define COMMON_ROWS                                                                                \
    ATTENTION_ROWS, HEAD_NORM_ROWS(RECIPE_ADD_ONE), MLP_ROWS,                                      \
    MADE("input_layernorm.weight", "attn_norm.weight", RECIPE_ADD_ONE),                            \
    MADE("post_attention_layernorm.weight", "post_attention_norm.weight", RECIPE_ADD_ONE),         \
    COPY("linear_attn.norm.weight", "ssm_norm.weight")

#define DELTA_ROWS                                                                                 \
    ROWS("linear_attn.in_proj_qkv.weight", "attn_qkv.weight", &qkv),                               \
    ROWS("linear_attn.in_proj_z.weight", "attn_gate.weight", &values),                             \
    ROWS("linear_attn.in_proj_a.weight", "ssm_alpha.weight", &heads),                              \
    ROWS("linear_attn.in_proj_b.weight", "ssm_beta.weight", &heads),                               \
    ROWS("linear_attn.conv1d.weight", "ssm_conv1d.weight", &qkv),                                  \
    {.hf = "linear_attn.A_log", .gguf = "ssm_a", .kind = RECIPE_VALUES, .rows = &heads,            \
     .value_of = rate},                                                                            \
    ROWS("linear_attn.dt_bias", "ssm_dt.bias", &heads),                                            \
    COLUMNS("linear_attn.out_proj.weight", "ssm_out.weight", &values)

#define MIXTURE_ROWS                                                                               \
    EXPERT_ROWS, SHARED_EXPERT_ROWS("mlp.shared_expert"),                                          \
    COPY("mlp.gate.weight", "ffn_gate_inp.weight"),                                                \
    COPY("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight")

static const name_row next_rows[] = {
    COMMON_ROWS, MIXTURE_ROWS,
    ROWS("linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", &next_qkv),
    ROWS("linear_attn.in_proj_qkvz.weight", "attn_gate.weight", &next_gate),
    COPY("linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
    SHAPED("linear_attn.conv1d.weight", "ssm_conv1d.weight", SHAPE_SQUEEZED),
    VALUES("linear_attn.A_log", "ssm_a", rate),
    COPY("linear_attn.dt_bias", "ssm_dt.bias"),
    COPY("linear_attn.out_proj.weight", "ssm_out.weight"),
};

static const name_row dense_rows[] = {COMMON_ROWS, DELTA_ROWS};
static const name_row moe_rows[] = {COMMON_ROWS, DELTA_ROWS, MIXTURE_ROWS};

static const name_row predicting[] = {
    COPY("fc.weight", "nextn.eh_proj.weight"),
    MADE("pre_fc_norm_embedding.weight", "nextn.enorm.weight", RECIPE_ADD_ONE),
    MADE("pre_fc_norm_hidden.weight", "nextn.hnorm.weight", RECIPE_ADD_ONE),
    COPY("embed_tokens.weight", "nextn.embed_tokens.weight"),
    MADE("norm.weight", "nextn.shared_head_norm.weight", RECIPE_ADD_ONE),
    COPY("shared_head.head.weight", "nextn.shared_head_head.weight"),
};

static const name_row ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    MADE("norm.weight", "output_norm.weight", RECIPE_ADD_ONE),
};
/* clang-format on */

/* ---- Numbers --------------------------------------------------------------------------------- */

static lace_status read_delta(const source *s, delta_config *d)
{
    TRY(source_need_int(s, "linear_num_value_heads", 1, CONFIG_MAX_HEADS, &d->n_heads));
    TRY(source_need_int(s, "linear_num_key_heads", 1, CONFIG_MAX_HEADS, &d->n_key_heads));
    TRY(source_need_int(s, "linear_key_head_dim", 1, CONFIG_MAX_HEAD_DIM, &d->k_dim));
    TRY(source_need_int(s, "linear_value_head_dim", 1, CONFIG_MAX_HEAD_DIM, &d->v_dim));
    TRY(source_need_int(s, "linear_conv_kernel_dim", 2, 64, &d->n_taps));
    if (d->n_heads % d->n_key_heads != 0)
        return source_fail(s, LACE_E_META, "linear_num_value_heads",
                           "is not a multiple of linear_num_key_heads");
    return LACE_OK;
}

static void set_defaults(model_config *c)
{
    c->delta =
        (delta_config){.n_heads = 32, .n_key_heads = 16, .k_dim = 128, .v_dim = 128, .n_taps = 4};
}

/* Where layer_types is silent, each n-th layer attends. */
static lace_status read_dense(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    int32_t interval = 4;
    TRY(read_delta(s, &c->delta));
    TRY(hf_read_sections(s, &c->rope));
    TRY(source_int(s, "full_attention_interval", 1, CONFIG_MAX_LAYERS, &interval, NULL));
    for (int32_t i = 0; i < c->n_layers && !source_get(s, "layer_types"); i++)
        c->layers[i].kind = (i + 1) % interval == 0 ? LAYER_ATTENTION : LAYER_RECURRENT;
    return LACE_OK;
}

/* Configs of mixtures may leave the width of layers without experts out: then there are none. */
static lace_status read_moe(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    TRY(read_dense(s, h));
    TRY(hf_read_mixture(s, c));
    if (source_get(s, "intermediate_size"))
        return LACE_OK;
    c->n_ff = 0;
    for (int32_t i = 0; i < c->n_layers; i++)
        c->layers[i].n_ff = 0;
    return LACE_OK;
}

static const char *const dense_keys[] = {"layer_types", NULL};
static const char *const moe_keys[] = {
    "layer_types",     "num_experts",         "shared_expert_intermediate_size",
    "mlp_only_layers", "decoder_sparse_step", NULL};

#define DELTA_FAMILY                                                                               \
    .ends = NAME_TABLE(ends), .predicting = NAME_TABLE(predicting), .predicting_start = "mtp.",    \
    .set_defaults = set_defaults

const hf_family family_qwen3_next = {FAMILY(next_rows, moe_keys, read_moe), .lacks = HF_LACKS_FFN,
                                     DELTA_FAMILY};
const hf_family family_qwen3_5_text = {FAMILY(dense_rows, dense_keys, read_dense), DELTA_FAMILY};
const hf_family family_qwen3_5_moe_text = {FAMILY(moe_rows, moe_keys, read_moe),
                                           .lacks = HF_LACKS_FFN, DELTA_FAMILY};
