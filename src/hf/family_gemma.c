/* Hugging Face directories of Gemma 2 and 3: weights of norms are stored as the difference from 1. */
#include "hf/family_gemma.h"

#include <math.h>

/* clang-format off */
static const name_row gemma_rows[] = {GEMMA_ROWS(RECIPE_ADD_ONE)};

static const name_row ends[] = {
    COPY("embed_tokens.weight", "token_embd.weight"),
    MADE("norm.weight", "output_norm.weight", RECIPE_ADD_ONE),
};
/* clang-format on */

static const char *const keys[] = {"query_pre_attn_scalar", "attn_logit_softcapping",
                                   "final_logit_softcapping", NULL};

static lace_status read(const source *s, hf_config *h)
{
    model_config *c = &h->model;
    double scalar = 0;
    bool found;
    TRY(source_float(s, "attn_logit_softcapping", 0, 1e6, &c->attention_softcap, NULL));
    TRY(source_float(s, "final_logit_softcapping", 0, 1e6, &c->final_softcap, NULL));
    TRY(source_float(s, "query_pre_attn_scalar", 1e-3, 1e6, &scalar, &found));
    if (found)
        c->attention_scale = 1 / sqrt(scalar);
    return LACE_OK;
}

void set_gemma_defaults(model_config *c)
{
    c->n_context = 131072;
    c->n_heads = 8;
    c->n_kv_heads = 4;
    c->head_dim = 256;
    c->norm_eps = 1e-6;
    c->rope.base = 1e6;
}

static void set_gemma3_defaults(model_config *c)
{
    set_gemma_defaults(c);
    c->n_vocab = 262208;
    c->window = 4096;
    c->attention_scale = 1.0 / 16;
}

const hf_family family_gemma2 = {GEMMA_FAMILY(gemma_rows, ends, keys, read, 2)};
const hf_family family_gemma3 = {GEMMA_FAMILY(gemma_rows, ends, keys, read, 6),
                                 .set_defaults = set_gemma3_defaults};
