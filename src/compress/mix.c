/* Which type each tensor of a compressed file gets. */
#define _POSIX_C_SOURCE 200809L
#include "compress/mix.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { Q4_0 = 2, Q4_1, Q8_0 = 7, Q5_0, Q5_1, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M };
enum { Q5_K_S = 16, Q5_K_M, Q6_K, Q2_K_S = 21, IQ4_NL = 25, IQ4_XS = 30, MXFP4_MOE = 38 };

/* lace's own: the number of the type. */
enum { FIRST_OWN = 1000 };

static const mix mixes[] = {
    {"s2", 1002, DTYPE_S2},           {"s3", 1003, DTYPE_S3},
    {"s4", 1004, DTYPE_S4},           {"s5", 1005, DTYPE_S5},
    {"s6", 1006, DTYPE_S6},           {"s8", 1008, DTYPE_S8},
    {"t2", 1012, DTYPE_T2},           {"t3", 1013, DTYPE_T3},
    {"t4", 1014, DTYPE_T4},           {"t5", 1015, DTYPE_T5},
    {"q2_k_s", Q2_K_S, DTYPE_Q2_K},   {"q2_k", Q2_K, DTYPE_Q2_K},
    {"q3_k_s", Q3_K_S, DTYPE_Q3_K},   {"q3_k_m", Q3_K_M, DTYPE_Q3_K},
    {"q3_k_l", Q3_K_L, DTYPE_Q3_K},   {"iq4_xs", IQ4_XS, DTYPE_IQ4_XS},
    {"iq4_nl", IQ4_NL, DTYPE_IQ4_NL}, {"mxfp4", MXFP4_MOE, DTYPE_MXFP4},
    {"q4_0", Q4_0, DTYPE_Q4_0},       {"q4_k_s", Q4_K_S, DTYPE_Q4_K},
    {"q4_k_m", Q4_K_M, DTYPE_Q4_K},   {"q4_1", Q4_1, DTYPE_Q4_1},
    {"q5_0", Q5_0, DTYPE_Q5_0},       {"q5_k_s", Q5_K_S, DTYPE_Q5_K},
    {"q5_k_m", Q5_K_M, DTYPE_Q5_K},   {"q5_1", Q5_1, DTYPE_Q5_1},
    {"q6_k", Q6_K, DTYPE_Q6_K},       {"q8_0", Q8_0, DTYPE_Q8_0},
};

static const struct {
    const char *name, *means;
} aliases[] = {{"q3_k", "q3_k_m"}, {"q4_k", "q4_k_m"}, {"q5_k", "q5_k_m"}};

const mix *mix_at(size_t i)
{
    return i < sizeof mixes / sizeof *mixes ? &mixes[i] : NULL;
}

const mix *mix_find(const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcasecmp(aliases[i].name, name) == 0)
            name = aliases[i].means;
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcasecmp(mixes[i].name, name) == 0)
            return &mixes[i];
    return NULL;
}

bool mix_is_own(const mix *m)
{
    return m->file_type >= FIRST_OWN;
}

/* ---- What a tensor is ------------------------------------------------------------------------ */

static bool has(text name, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= name.size; i++)
        if (memcmp(name.data + i, part, n) == 0)
            return true;
    return false;
}

bool mix_is_matrix(const tensor *t)
{
    static const char *const kept[] = {
        "_norm.weight",   "ffn_gate_inp.weight", "ffn_gate_inp_shexp", "ssm_conv1d",
        "shortconv.conv", "position_embd",       "token_types.weight", "altup",
        "laurel",         "per_layer_model_proj"}; /* small, or all layers' */
    static const char end[] = "weight";
    size_t n = sizeof end - 1;
    if (t->shape.n_dims < 2 || t->name.size < n ||
        memcmp(t->name.data + t->name.size - n, end, n) != 0)
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (has(t->name, kept[i]))
            return false;
    return true;
}

static int layer_of(text name)
{
    char start[32];
    int layer = 0;
    snprintf(start, sizeof start, "%.*s", text_width(name), name.data);
    return sscanf(start, "blk.%d.", &layer) == 1 ? layer : 0;
}

/* ---- The rules ------------------------------------------------------------------------------- */

/* The first and last eighth of the layers, and every third between them. */
static bool is_worth_more(int layer, int n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static dtype type_of_values(const mix *m, const mix_context *c, int layer)
{
    dtype type = m->type;
    bool are_shared = c->n_heads_per_kv >= 4;
    if (m->file_type == Q2_K)
        type = are_shared ? DTYPE_Q4_K : DTYPE_Q3_K;
    else if (m->file_type == Q2_K_S && are_shared)
        type = DTYPE_Q4_K;
    else if (m->file_type == Q3_K_M)
        type = layer < 2 ? DTYPE_Q5_K : DTYPE_Q4_K;
    else if (m->file_type == Q3_K_L)
        type = DTYPE_Q5_K;
    else if ((m->file_type == IQ4_NL || m->file_type == IQ4_XS) && are_shared)
        type = DTYPE_Q5_K;
    else if ((m->file_type == Q4_K_M || m->file_type == Q5_K_M) &&
             is_worth_more(layer, c->n_layers))
        type = DTYPE_Q6_K;
    else if (m->file_type == Q4_K_S && layer < 4)
        type = DTYPE_Q5_K;
    /* Models of 80 layers share each of keys and values among 8 heads: the matrix is small. */
    if (c->n_layers == 80 && c->n_heads_per_kv == 8 && (type == DTYPE_Q3_K || type == DTYPE_Q4_K))
        type = DTYPE_Q5_K;
    return c->n_experts == 8 ? DTYPE_Q8_0 : type;
}

static dtype type_of_down(const mix *m, const mix_context *c, int layer)
{
    bool is_first = layer < c->n_layers / 8;
    switch (m->file_type) {
    case Q2_K:
        return DTYPE_Q3_K;
    case Q2_K_S:
        return is_first ? DTYPE_Q4_K : m->type;
    case Q3_K_M:
        return layer < c->n_layers / 16 ? DTYPE_Q5_K : DTYPE_Q4_K;
    case Q3_K_L:
        return DTYPE_Q5_K;
    case Q4_K_M:
    case Q5_K_M:
        return is_worth_more(layer, c->n_layers) ? DTYPE_Q6_K : m->type;
    case IQ4_NL:
    case IQ4_XS:
        return is_first && !c->has_importance ? DTYPE_Q5_K : m->type;
    case Q4_K_S:
        return is_first ? DTYPE_Q5_K : m->type;
    case Q4_0:
        return is_first && c->has_importance ? DTYPE_Q4_1 : m->type;
    case Q5_0:
        return is_first && c->has_importance ? DTYPE_Q5_1 : m->type;
    default:
        return m->type;
    }
}

static dtype type_of_attention_output(const mix *m, const mix_context *c)
{
    int f = m->file_type;
    if (c->n_experts == 8) {
        bool gains = f == Q2_K || f == Q3_K_S || f == Q3_K_M || f == Q4_K_S || f == Q4_K_M ||
                     f == IQ4_NL || f == IQ4_XS;
        return gains ? DTYPE_Q5_K : m->type;
    }
    return f == Q2_K ? DTYPE_Q3_K : f == Q3_K_M ? DTYPE_Q4_K : f == Q3_K_L ? DTYPE_Q5_K : m->type;
}

/* lace's own types have no rules but this: the output, and a table that is one,
 * get two bits more. */
static dtype type_of_own(const mix *m, const mix_context *c, const tensor *t)
{
    bool is_output =
        text_is(t->name, "output.weight") || (c->is_tied && text_is(t->name, "token_embd.weight"));
    if (!is_output)
        return m->type;
    switch (m->type) {
    case DTYPE_S2:
        return DTYPE_S4;
    case DTYPE_S3:
        return DTYPE_S5;
    case DTYPE_S4:
    case DTYPE_T4:
        return DTYPE_S6;
    case DTYPE_T2:
        return DTYPE_T4;
    case DTYPE_T3:
        return DTYPE_T5;
    default:
        return DTYPE_S8;
    }
}

static dtype type_by_rules(const mix *m, const mix_context *c, const tensor *t)
{
    if (mix_is_own(m))
        return type_of_own(m, c, t);
    int layer = layer_of(t->name), f = m->file_type;
    bool is_embedding = text_is(t->name, "token_embd.weight");
    if (text_is(t->name, "output.weight") || (c->is_tied && is_embedding)) {
        bool is_whole = t->shape.dims[0] % dtype_describe(m->type)->block_values == 0;
        if (f == MXFP4_MOE || m->type == DTYPE_Q8_0 || !is_whole)
            return DTYPE_Q8_0;
        return DTYPE_Q6_K;
    }
    if (f == MXFP4_MOE && c->n_experts > 0)
        return t->shape.n_dims > 2 && !has(t->name, "attn_") ? DTYPE_MXFP4 : DTYPE_Q8_0;
    if (is_embedding)
        return m->type;
    if (has(t->name, "attn_qkv.weight") || has(t->name, "attn_kv_b.weight") ||
        has(t->name, "attn_v.weight"))
        return type_of_values(m, c, layer);
    if (has(t->name, "attn_k.weight"))
        return c->n_experts == 8 ? DTYPE_Q8_0 : m->type;
    if (has(t->name, "attn_output.weight"))
        return type_of_attention_output(m, c);
    if (has(t->name, "ffn_down"))
        return type_of_down(m, c, layer);
    return m->type;
}

dtype mix_type_of(const mix *m, const mix_context *c, const tensor *t)
{
    return mix_type_for_rows(type_by_rules(m, c, t), t->shape.dims[0]);
}

dtype mix_type_for_rows(dtype type, int64_t n_cols)
{
    if (n_cols % dtype_describe(type)->block_values == 0)
        return type;
    switch (type) { /* half a block of a trellis type */
    case DTYPE_T2:
        type = DTYPE_S2;
        break;
    case DTYPE_T3:
        type = DTYPE_S3;
        break;
    case DTYPE_T4:
        type = DTYPE_S4;
        break;
    case DTYPE_T5:
        type = DTYPE_S5;
        break;
    default:
        break;
    }
    if (n_cols % dtype_describe(type)->block_values == 0)
        return type;
    switch (type) {
    case DTYPE_IQ4_XS:
        type = DTYPE_IQ4_NL;
        break;
    case DTYPE_Q2_K:
    case DTYPE_Q3_K:
    case DTYPE_S2:
    case DTYPE_S3:
    case DTYPE_S4:
        type = DTYPE_Q4_0;
        break;
    case DTYPE_Q4_K:
    case DTYPE_S5:
        type = DTYPE_Q5_0;
        break;
    case DTYPE_Q5_K:
        type = DTYPE_Q5_1;
        break;
    case DTYPE_Q6_K:
    case DTYPE_S6:
    case DTYPE_S8:
        type = DTYPE_Q8_0;
        break;
    default:
        return DTYPE_F16;
    }
    return n_cols % dtype_describe(type)->block_values == 0 ? type : DTYPE_F16;
}
