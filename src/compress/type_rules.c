/* Types of single tensors. */
#define _POSIX_C_SOURCE       200809L
#define PCRE2_CODE_UNIT_WIDTH 8
#include "compress/type_rules.h"

#include <inttypes.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "compress/codec.h"
#include "compress/source.h"
#include "tensor/codec/pack.h"

/* ---- Names of types -------------------------------------------------------------------------- */

/* What llama.cpp writes and lace only reads, with what comes nearest in bits. */
static const struct {
    const char *names, *instead;
} only_read[] = {
    {"iq1_s iq1_m iq2_xxs iq2_xs", "t2 (2.0 bits, lace's own) or q2_k_s (2.6 bits)"},
    {"iq2_s iq2_m tq1_0 tq2_0 q1_0 q2_0", "q2_k_s (2.6 bits) or t2 (2.0 bits, lace's own)"},
    {"iq3_xxs", "t3 (3.0 bits, lace's own) or q3_k_s (3.4 bits)"},
    {"iq3_xs iq3_s iq3_m", "q3_k_s (3.4 bits) or t3 (3.0 bits, lace's own)"},
    {"nvfp4", "mxfp4 or q4_0"},
};

static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (; *list; list += strcspn(list, " "), list += *list == ' ')
        if (strcspn(list, " ") == n && strncasecmp(list, name, n) == 0)
            return true;
    return false;
}

/* True, with an error, for a type that lace reads but does not write. */
static bool is_only_read(const char *name, lace_error *err)
{
    for (size_t i = 0; i < sizeof only_read / sizeof *only_read; i++)
        if (is_listed(only_read[i].names, name)) {
            error_set(err, LACE_E_ARG, "lace reads %s but does not write it; use %s", name,
                      only_read[i].instead);
            return true;
        }
    return false;
}

lace_status mix_refuse(const char *name, lace_error *err)
{
    if (is_only_read(name, err))
        return LACE_E_ARG;
    if (is_listed("f32 f16 bf16 copy", name))
        return error_set(err, LACE_E_ARG,
                         "lace quantize writes smaller types; for %.40s use lace convert on a "
                         "Hugging Face directory",
                         name);
    return error_set(err, LACE_E_ARG,
                     "unknown type %.40s; common ones are q4_k_m, q5_k_m, q6_k and q8_0", name);
}

lace_status type_find_writable(const char *name, dtype *out, lace_error *err)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcasecmp(dtype_describe((dtype)i)->name, name) != 0)
            continue;
        *out = (dtype)i;
        if (codec_find(*out) || pack_ref[i])
            return LACE_OK;
    }
    if (is_only_read(name, err))
        return LACE_E_ARG;
    const mix *m = mix_find(name);
    if (m)
        return error_set(err, LACE_E_ARG,
                         "%s is a mix of types; a single tensor needs one type, like %s", name,
                         dtype_describe(m->type)->name);
    return error_set(err, LACE_E_ARG, "unknown type %.40s; a tensor may be f16, q8_0, q6_k ...",
                     name);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* A pattern at work. */
typedef struct rule {
    pcre2_code *pattern;
    dtype type;
    size_t n_matched;
} rule;

typedef struct rules {
    const type_rules *given;
    rule *tensors; /* [given->n_tensors] */
    dtype output, embedding;
    pcre2_match_data *found;
    pcre2_match_context *limits;
} rules;

bool type_rules_are_any(const type_rules *r)
{
    return r->is_pure || r->output || r->embedding || r->n_tensors > 0;
}

static lace_status read_rule(const char *word, rule *out, lace_error *err)
{
    char pattern[256];
    const char *sign = strrchr(word, '=');
    int problem;
    PCRE2_SIZE at;
    if (!sign || sign == word || (size_t)(sign - word) >= sizeof pattern)
        return error_set(err, LACE_E_ARG, "--tensor-type %.80s: expected PATTERN=TYPE", word);
    snprintf(pattern, sizeof pattern, "%.*s", (int)(sign - word), word);
    lace_status status = type_find_writable(sign + 1, &out->type, err);
    if (status == LACE_OK) {
        out->pattern = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_NEVER_UTF,
                                     &problem, &at, NULL);
        if (!out->pattern) {
            char why[128] = "";
            pcre2_get_error_message(problem, (PCRE2_UCHAR *)why, sizeof why);
            status = error_set(err, LACE_E_ARG, "%s, at character %zu", why, (size_t)at + 1);
        }
    }
    if (status != LACE_OK) {
        char where[160];
        snprintf(where, sizeof where, "--tensor-type %.80s", word);
        error_prefix(err, status, where);
    }
    return status;
}

static lace_status read_type(const char *option, const char *name, dtype *out, lace_error *err)
{
    if (!name)
        return LACE_OK;
    lace_status status = type_find_writable(name, out, err);
    return status == LACE_OK ? status : error_prefix(err, status, option);
}

static lace_status read_rules(rules *r, lace_error *err)
{
    enum { MATCH_LIMIT = 100000 }; /* names have 63 letters at most */
    size_t n = r->given->n_tensors;
    r->tensors = mem_calloc(n ? n : 1, sizeof *r->tensors);
    r->found = pcre2_match_data_create(1, NULL);
    r->limits = pcre2_match_context_create(NULL);
    if (!r->tensors || !r->found || !r->limits)
        return error_nomem(err, "the types of tensors");
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    for (size_t i = 0; i < n; i++)
        TRY(read_rule(r->given->tensors[i], &r->tensors[i], err));
    TRY(read_type("--output-tensor-type", r->given->output, &r->output, err));
    return read_type("--token-embedding-type", r->given->embedding, &r->embedding, err);
}

static void end_rules(rules *r)
{
    for (size_t i = 0; r->tensors && i < r->given->n_tensors; i++)
        pcre2_code_free(r->tensors[i].pattern);
    mem_free(r->tensors);
    pcre2_match_data_free(r->found);
    pcre2_match_context_free(r->limits);
}

/* The type that a tensor is given by name; false: none is. */
static bool find_given(const rules *r, const tensor *t, bool is_tied, dtype *out)
{
    bool is_embedding = text_is(t->name, "token_embd.weight");
    bool is_output = text_is(t->name, "output.weight") || (is_embedding && is_tied);
    bool has_type = false;
    for (size_t i = r->given->n_tensors; i-- > 0;)
        if (pcre2_match(r->tensors[i].pattern, (PCRE2_SPTR)t->name.data, t->name.size, 0, 0,
                        r->found, r->limits) >= 0) {
            r->tensors[i].n_matched++;
            *out = r->tensors[i].type;
            has_type = true;
        }
    if (has_type)
        return true;
    if (is_embedding && r->given->embedding)
        *out = r->embedding;
    else if (is_output && r->given->output)
        *out = r->output;
    else
        return false;
    return true;
}

static lace_status add_tensor(const rules *r, const mix *m, const mix_context *c, const tensor *t,
                              quantize_made *made, lace_error *err)
{
    dtype type;
    if (!find_given(r, t, c->is_tied, &type)) {
        type =
            r->given->is_pure ? mix_type_for_rows(m->type, t->shape.dims[0]) : mix_type_of(m, c, t);
    } else if (t->shape.dims[0] % dtype_describe(type)->block_values != 0) {
        return error_set(err, LACE_E_ARG,
                         "tensor %.*s has rows of %" PRId64
                         " values, but %s needs a multiple of %d",
                         text_width(t->name), t->name.data, t->shape.dims[0],
                         dtype_describe(type)->name, dtype_describe(type)->block_values);
    }
    quantize_made_add(made, t, type);
    return LACE_OK;
}

static lace_status apply(const rules *r, const source *model, const mix *m, bool has_importance,
                         quantize_made **out, lace_error *err)
{
    mix_context context = source_mix_context(model, has_importance);
    *out = quantize_made_create(source_count(model));
    if (!*out)
        return error_nomem(err, "the types of tensors");
    for (size_t i = 0; i < source_count(model); i++)
        if (mix_is_matrix(source_at(model, i)))
            TRY(add_tensor(r, m, &context, source_at(model, i), *out, err));
    for (size_t i = 0; i < r->given->n_tensors; i++)
        if (r->tensors[i].n_matched == 0)
            return error_set(err, LACE_E_ARG,
                             "--tensor-type %.80s: no matrix has such a name (see: lace inspect)",
                             r->given->tensors[i]);
    return LACE_OK;
}

lace_status type_rules_apply(const char *input, const mix *m, const type_rules *given,
                             bool has_importance, quantize_made **out, lace_error *err)
{
    rules r = {.given = given};
    source *model = NULL;
    *out = NULL;
    lace_status status = read_rules(&r, err);
    if (status == LACE_OK)
        status = source_open(input, &model, err);
    if (status == LACE_OK)
        status = apply(&r, model, m, has_importance, out, err);
    source_close(model);
    end_rules(&r);
    if (status != LACE_OK) {
        quantize_made_free(*out);
        *out = NULL;
    }
    return status;
}
