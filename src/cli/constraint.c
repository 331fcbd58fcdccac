/* Options that confine generated text to a form. */
#include "cli/constraint.h"

#include <string.h>

#include "base/file.h"

enum { MAX_FILE = 1 << 20 };

lace_status constraint_check(const verb *v, const constraint_args *a, lace_error *err)
{
    int n = (a->grammar != NULL) + (a->grammar_file != NULL) + (a->json_schema != NULL) +
            (a->json_schema_file != NULL) + (a->regex != NULL) + a->json;
    if (n > 1)
        return args_error(v, err,
                          "--grammar, --json-schema, --json and --regex exclude each other");
    return LACE_OK;
}

lace_status constraint_create(const constraint_args *a, lace_model *model, lace_grammar **out,
                              lace_error *err)
{
    lace_grammar_kind kind = a->grammar || a->grammar_file           ? LACE_GRAMMAR_GBNF
                             : a->json_schema || a->json_schema_file ? LACE_GRAMMAR_JSON_SCHEMA
                             : a->regex                              ? LACE_GRAMMAR_REGEX
                                                                     : LACE_GRAMMAR_JSON_OBJECT;
    const char *given = a->grammar ? a->grammar : a->json_schema ? a->json_schema : a->regex;
    const char *file = a->grammar_file ? a->grammar_file : a->json_schema_file;
    *out = NULL;
    if (!given && !file && !a->json)
        return LACE_OK;
    buf source;
    buf_init(&source, MAX_FILE);
    lace_status status = file ? file_read(file, &source, err) : LACE_OK;
    if (status == LACE_OK && file)
        given = source.data ? source.data : "";
    size_t n_bytes = file ? source.size : given ? strlen(given) : 0;
    if (status == LACE_OK)
        status = lace_grammar_create(model, kind, given, n_bytes, out, err);
    if (status != LACE_OK && file && err)
        error_prefix(err, status, file);
    buf_deinit(&source);
    return status;
}
