/*
 * Hugging Face directories of Falcon-H1. What its matrices make is multiplied with factors of the
 * config; in GGUF files they are in the weights, so converting multiplies.
 */
#include "hf/family_mamba.h"

static double key_factor(const model_config *c, int64_t row)
{
    return c->mup.key * c->mup.attention_in;
}

static double attention_factor(const model_config *c, int64_t row)
{
    return c->mup.attention_in;
}

static double attention_out_factor(const model_config *c, int64_t row)
{
    return c->mup.attention_out;
}

static double gate_factor(const model_config *c, int64_t row)
{
    return c->mup.gate;
}

static double down_factor(const model_config *c, int64_t row)
{
    return c->mup.down;
}

static double ssm_out_factor(const model_config *c, int64_t row)
{
    return c->mup.ssm_out;
}

/* Rows of z, x, b, c and dt. */
static double ssm_in_factor(const model_config *c, int64_t row)
{
    int64_t inner = c->ssm.n_inner, bc = (int64_t)c->ssm.n_groups * c->ssm.n_state;
    int part = row < inner                ? 0
               : row < 2 * inner          ? 1
               : row < 2 * inner + bc     ? 2
               : row < 2 * inner + 2 * bc ? 3
                                          : 4;
    return c->mup.ssm_in * c->mup.ssm[part];
}

static double embedding_factor(const model_config *c, int64_t row)
{
    return c->embedding_scale;
}

static double output_factor(const model_config *c, int64_t row)
{
    return 1 / c->logit_scale;
}

/* clang-format off */
static const name_row falcon_ends[] = {
    SCALED("embed_tokens.weight", "token_embd.weight", embedding_factor),
    COPY("final_layernorm.weight", "output_norm.weight"),
};

static const name_row falcon_heads[] = {SCALED("lm_head.weight", "output.weight", output_factor)};

static const name_row falcon_rows[] = {
    COPY("input_layernorm.weight", "attn_norm.weight"),
    COPY("pre_ff_layernorm.weight", "ffn_norm"),
    SCALED("self_attn.q_proj.weight", "attn_q.weight", attention_factor),
    SCALED("self_attn.k_proj.weight", "attn_k.weight", key_factor),
    SCALED("self_attn.v_proj.weight", "attn_v.weight", attention_factor),
    SCALED("self_attn.o_proj.weight", "attn_output.weight", attention_out_factor),
    SCALED("feed_forward.gate_proj.weight", "ffn_gate.weight", gate_factor),
    COPY("feed_forward.up_proj.weight", "ffn_up.weight"),
    SCALED("feed_forward.down_proj.weight", "ffn_down.weight", down_factor),
    SCALED("mamba.in_proj.weight", "ssm_in.weight", ssm_in_factor),
    SCALED("mamba.out_proj.weight", "ssm_out.weight", ssm_out_factor),
    MAMBA_STATE_ROWS("mamba."),
};
/* clang-format on */

/* ---- Keys ------------------------------------------------------------------------------------ */

static const char *const falcon_keys[] = {"embedding_multiplier", NULL};

static lace_status read_list(const source *s, const char *key, size_t n, double *out)
{
    const json_t *list = source_get(s, key);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        double x = json_number_value(item);
        out[i] = 1;
        if (!list)
            continue;
        if (json_array_size(list) != n || !json_is_number(item) || !(x >= 1e-6 && x <= 1e6))
            return error_set(s->err, LACE_E_META,
                             "config.json: %s: expected %d numbers from 1e-6 to 1e6", key, (int)n);
        out[i] = x;
    }
    return LACE_OK;
}

static lace_status read_factors(const source *s, model_config *c)
{
    const struct {
        const char *key;
        double *out;
    } factors[] = {{"attention_in_multiplier", &c->mup.attention_in},
                   {"attention_out_multiplier", &c->mup.attention_out},
                   {"key_multiplier", &c->mup.key},
                   {"ssm_in_multiplier", &c->mup.ssm_in},
                   {"ssm_out_multiplier", &c->mup.ssm_out},
                   {"embedding_multiplier", &c->embedding_scale}};
    double mlp[2], logits = 1;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        TRY(source_float(s, factors[i].key, 1e-6, 1e6, factors[i].out, NULL));
    TRY(source_float(s, "lm_head_multiplier", 1e-6, 1e6, &logits, NULL));
    c->logit_scale = 1 / logits;
    TRY(read_list(s, "mlp_multipliers", 2, mlp));
    c->mup.gate = mlp[0];
    c->mup.down = mlp[1];
    return read_list(s, "ssm_multipliers", 5, c->mup.ssm);
}

/* With biases the factors would act on them, too. */
static lace_status check_biases(const source *s)
{
    static const char *const flags[] = {"attention_bias", "projectors_bias", "mamba_proj_bias"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        TRY(source_expect_bool(s, flags[i], false));
    return LACE_OK;
}

static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    bool has_norm = false, norms_first = true;
    TRY(check_biases(s));
    TRY(read_factors(s, c));
    TRY(read_mamba(s, &mamba_d_keys, c));
    TRY(source_bool(s, "mamba_rms_norm", &has_norm));
    TRY(source_bool(s, "mamba_norm_before_gate", &norms_first));
    c->ssm.norms_first = has_norm && norms_first;
    return read_time_step_limit(s, c);
}

const hf_family family_falcon_h1 = {FAMILY(falcon_rows, falcon_keys, read),
                                    .ends = NAME_TABLE(falcon_ends),
                                    .heads = NAME_TABLE(falcon_heads)};
