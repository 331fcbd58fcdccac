/*
 * Types of single tensors, where they shall not be what a mix gives them. The options are those of
 * llama-quantize.
 */
#ifndef LACE_COMPRESS_TYPE_RULES_H
#define LACE_COMPRESS_TYPE_RULES_H

#include "compress/quantize.h"

typedef struct type_rules {
    bool is_pure;               /* all matrices in the main type of the mix */
    const char *output;         /* of output.weight, or of an embedding that is one; or NULL */
    const char *embedding;      /* of token_embd.weight; or NULL */
    const char *const *tensors; /* "PATTERN=TYPE": a regular expression that is found in a name */
    size_t n_tensors;           /* the first that matches counts, before all others */
} type_rules;

bool type_rules_are_any(const type_rules *r);

/*
 * Every matrix of a model with its type. A pattern that no matrix matches, a type that cannot be
 * written or whose blocks do not fit the rows is LACE_E_ARG, and named.
 */
lace_status type_rules_apply(const char *input, const mix *m, const type_rules *r,
                             bool has_importance, quantize_made **out, lace_error *err);

/*
 * The type of that name, in any case, if lace writes it. LACE_E_ARG says what to use in place of
 * one that lace only reads.
 */
lace_status type_find_writable(const char *name, dtype *out, lace_error *err);

/* Why there is no mix of that name: an error that says what to use. */
lace_status mix_refuse(const char *name, lace_error *err);

#endif
