/*
 * Metadata that changes what is computed, and whether an architecture computes it: a key that it
 * does not understand must have the value that changes nothing, or the file is refused by its name.
 *
 * Each architecture says what it understands in arch.takes. Keys that are in no row here describe,
 * and change nothing ("rope.scaling.finetuned"); files carry many of them.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

/* When a value changes nothing, apart from the two that each row lists. */
typedef enum neutral_rule {
    RULE_LISTED,   /* only those */
    RULE_CONTEXT,  /* a window that is not smaller than the context */
    RULE_BASE,     /* the base that all layers turn by */
    RULE_HEAD_DIM, /* 1 / sqrt(head_dim) */
    RULE_HEADS,    /* head_dim */
    RULE_ROTATED,  /* the rotated dimensions of all layers */
    RULE_EXPERTS,  /* any, in a model without experts */
    RULE_YARN,     /* any, if the rope is not stretched by yarn */
} neutral_rule;

typedef struct graph_key {
    const char *name;    /* after the architecture and a dot */
    unsigned takes;      /* who computes it; 0: nobody */
    double neutral, too; /* values that change nothing */
    neutral_rule rule;
} graph_key;

/* clang-format off */
static const graph_key keys[] = {
    {"expert_count",                      ARCH_EXPERTS,      0, 0, RULE_LISTED},
    {"expert_shared_count",               ARCH_ROUTING,      0, 0, RULE_EXPERTS},
    {"expert_shared_feed_forward_length", ARCH_ROUTING,      0, 0, RULE_EXPERTS},
    {"expert_group_count",                ARCH_ROUTING,      0, 1, RULE_EXPERTS},
    {"expert_group_used_count",           ARCH_ROUTING,      0, 1, RULE_EXPERTS},
    {"expert_weights_scale",              ARCH_ROUTING,      0, 1, RULE_EXPERTS},
    {"expert_gating_func",                ARCH_ROUTING,      0, 1, RULE_EXPERTS}, /* 1: softmax */
    {"leading_dense_block_count",         ARCH_ROUTING,      0, 0, RULE_EXPERTS},
    {"interleave_moe_layer_step",         ARCH_ROUTING,      0, 1, RULE_EXPERTS},
    {"moe_every_n_layers",                0,                 0, 1, RULE_EXPERTS},
    {"attention.sliding_window",          ARCH_WINDOW,       0, 0, RULE_CONTEXT},
    {"rope.freq_base_swa",                ARCH_WINDOW,       0, 0, RULE_BASE},
    {"embedding_scale",                   ARCH_FACTORS,      1, 1, RULE_LISTED},
    {"residual_scale",                    ARCH_FACTORS,      1, 1, RULE_LISTED},
    {"logit_scale",                       ARCH_FACTORS,      1, 1, RULE_LISTED},
    {"attention.scale",                   ARCH_ATTENTION_SCALE, 0, 0, RULE_HEAD_DIM},
    {"attn_logit_softcapping",            ARCH_SOFTCAPS,     0, 0, RULE_LISTED},
    {"final_logit_softcapping",           ARCH_SOFTCAPS,     0, 0, RULE_LISTED},
    {"attention.causal",                  ARCH_ENCODER,      1, 1, RULE_LISTED},
    {"attention.clamp_kqv",               0,                 0, 0, RULE_LISTED},
    {"attention.max_alibi_bias",          0,                 0, 0, RULE_LISTED},
    {"attention.q_lora_rank",             ARCH_LATENTS,      0, 0, RULE_LISTED},
    {"attention.kv_lora_rank",            ARCH_LATENTS,      0, 0, RULE_LISTED},
    {"attention.shared_kv_layers",        ARCH_LAYER_SHAPES, 0, 0, RULE_LISTED},
    {"attention.key_length_swa",          ARCH_LAYER_SHAPES, 0, 0, RULE_HEADS},
    {"attention.value_length_swa",        ARCH_LAYER_SHAPES, 0, 0, RULE_HEADS},
    {"rope.dimension_count_swa",          ARCH_LAYER_SHAPES, 0, 0, RULE_ROTATED},
    {"embedding_length_per_layer_input",  ARCH_LAYER_SHAPES, 0, 0, RULE_LISTED},
    {"altup.num_inputs",                  ARCH_STREAMS,      0, 1, RULE_LISTED},
    {"activation_sparsity_scale",         ARCH_STREAMS, -INFINITY, 0, RULE_LISTED},
    {"attention.temperature_length",      ARCH_TEMPERATURE,                 0, 0, RULE_LISTED},
    {"attention.temperature_scale",       ARCH_TEMPERATURE,                 0, 0, RULE_LISTED},
    {"attention.output_scale",            0,                 0, 1, RULE_LISTED},
    {"full_attention_interval",           ARCH_RECURRENT,    0, 1, RULE_LISTED},
    {"nextn_predict_layers",              ARCH_NEXTN,        0, 0, RULE_LISTED},
    {"swin_norm",                         0,                 0, 0, RULE_LISTED},
    {"ssm.conv_kernel", ARCH_STATE_SPACE | ARCH_RECURRENT, 0, 0, RULE_LISTED},
    {"ssm.inner_size", ARCH_STATE_SPACE | ARCH_RECURRENT, 0, 0, RULE_LISTED},
    {"ssm.state_size", ARCH_STATE_SPACE | ARCH_RECURRENT, 0, 0, RULE_LISTED},
    {"rope.dimension_sections",           ARCH_SECTIONS,     0, 0, RULE_LISTED},
    {"rope.scaling.alpha",                0,                 0, 1, RULE_LISTED},
    {"rope.scaling.yarn_ext_factor",      0,                -1, 1, RULE_YARN},
    {"rope.scaling.yarn_attn_factor",     ARCH_YARN_FACTOR,                 1, 1, RULE_YARN},
};
/* clang-format on */

/* Item i of a value as a number; false if it is none. */
static bool number_at(const gguf_value *v, uint64_t i, double *out)
{
    int64_t n;
    if (gguf_value_int(v, i, &n)) {
        *out = (double)n;
    } else if (v->item_type == GGUF_BOOL) {
        *out = v->bytes.data[i] != 0;
    } else if (v->item_type == GGUF_F32) {
        *out = (double)load_f32(v->bytes.data + 4 * i);
    } else if (v->item_type == GGUF_F64) {
        uint64_t bits = load_u64(v->bytes.data + 8 * i);
        memcpy(out, &bits, sizeof *out);
    } else {
        *out = NAN;
        return false;
    }
    return true;
}

static bool is_close(double x, double y)
{
    return fabs(x - y) <= 1e-6 * fabs(y); /* files have floats of 32 bits */
}

static bool is_neutral(const graph_key *k, const model_config *c, double x)
{
    if (x == k->neutral || x == k->too)
        return true;
    switch (k->rule) {
    case RULE_CONTEXT:
        return x >= c->n_context;
    case RULE_BASE:
        return is_close(x, c->rope.base);
    case RULE_HEAD_DIM:
        return is_close(x, 1 / sqrt((double)c->head_dim));
    case RULE_HEADS:
        return x == c->head_dim;
    case RULE_ROTATED:
        return x == c->rope.n_dims;
    case RULE_EXPERTS:
        return c->n_experts == 0;
    case RULE_YARN:
        return c->rope.scaling != ROPE_YARN;
    case RULE_LISTED:
        break;
    }
    return false;
}

static lace_status refuse(const arch *a, const gguf_value *v, double x, const char *expected,
                          lace_error *err)
{
    return error_at(err, LACE_E_UNSUPPORTED, v->offset,
                    "%.*s: is %g, which changes what is computed; of %s models lace computes only "
                    "%s",
                    text_width(v->key), v->key.data, x, a->name, expected);
}

static lace_status check_key(const arch *a, const graph_key *k, const gguf_value *v,
                             const model_config *c, lace_error *err)
{
    for (uint64_t i = 0; i < v->n_items; i++) {
        double x;
        char expected[64];
        if (!number_at(v, i, &x))
            return error_at(err, LACE_E_META, v->offset, "%.*s: is %s, expected a number",
                            text_width(v->key), v->key.data, gguf_type_name(v->item_type));
        if (is_neutral(k, c, x))
            continue;
        snprintf(expected, sizeof expected, "%g, or files without the key", k->neutral);
        return refuse(a, v, x, expected, err);
    }
    return LACE_OK;
}

lace_status arch_check_keys(const arch *a, const gguf *g, const model_config *c, lace_error *err)
{
    char name[160];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "%s.%s", a->name, keys[i].name);
        const gguf_value *v = gguf_find(g, name);
        if (v && !(a->takes & keys[i].takes))
            TRY(check_key(a, &keys[i], v, c, err));
    }
    return LACE_OK;
}
