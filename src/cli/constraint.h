/* Options that confine generated text to a form: the same words for every verb that generates. */
#ifndef LACE_CLI_CONSTRAINT_H
#define LACE_CLI_CONSTRAINT_H

#include <stddef.h>

#include "cli/args.h"

typedef struct constraint_args {
    const char *grammar, *grammar_file;
    const char *json_schema, *json_schema_file;
    const char *regex;
    bool json;
} constraint_args;

/* Rows of a verb's table of options, for a constraint_args at `offset` of its struct. */
/* clang-format off */
#define CONSTRAINT_OPTIONS(offset)                                                                  \
    {.kind = ARG_HEADING, .help = "Form of the text; at most one of these"},                        \
    {"grammar", 0, ARG_TEXT, (offset) + offsetof(constraint_args, grammar), .value = "GBNF",        \
     .help = "the text matches the rule root of this grammar"},                                     \
    {"grammar-file", 0, ARG_TEXT, (offset) + offsetof(constraint_args, grammar_file),               \
     .value = "FILE", .help = "the same, from a file"},                                             \
    {"json-schema", 'j', ARG_TEXT, (offset) + offsetof(constraint_args, json_schema),               \
     .value = "JSON", .help = "the text is a JSON value that is valid for this schema"},            \
    {"json-schema-file", 0, ARG_TEXT, (offset) + offsetof(constraint_args, json_schema_file),       \
     .value = "FILE", .help = "the same, from a file"},                                             \
    {"json", 0, ARG_FLAG, (offset) + offsetof(constraint_args, json),                               \
     .help = "the text is a JSON object"},                                                          \
    {"regex", 0, ARG_TEXT, (offset) + offsetof(constraint_args, regex), .value = "REGEX",           \
     .help = "the text matches this regular expression"}
/* clang-format on */

/* LACE_E_ARG if more than one is given. */
lace_status constraint_check(const verb *v, const constraint_args *a, lace_error *err);

/* The grammar of the form; NULL without any of the options. */
lace_status constraint_create(const constraint_args *a, lace_model *model, lace_grammar **out,
                              lace_error *err);

#endif
