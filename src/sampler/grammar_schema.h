/* What the files that read a JSON schema share. */
#ifndef LACE_SAMPLER_GRAMMAR_SCHEMA_H
#define LACE_SAMPLER_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "base/hash.h"
#include "sampler/grammar_ast.h"

enum {
    SCHEMA_MAX_DEPTH = 64,    /* of schemas inside schemas */
    SCHEMA_MAX_PARTS = 20000, /* schemas that are read, those made by merging included */
};

typedef enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_OBJECT = 4,
    TYPE_ARRAY = 8,
    TYPE_NUMBER = 16,
    TYPE_STRING = 32,
    TYPE_INTEGER = 64,
    TYPE_ANY = 63, /* integers are numbers */
} schema_type;

typedef struct schema_reader {
    grammar_ast *g;
    const json_t *root;
    json_t *made;   /* an array of all schemas that merging has made */
    map refs;       /* "$ref" text to rule */
    json_t *queue;  /* an array of the refs' texts, in the order of their rules */
    size_t n_built; /* of the queue */
    int n_parts;
    lace_error *err;
    /* Rules that many schemas use; 0: not made yet, else 1 + rule. */
    uint32_t space, string, number, integer, any, object;
} schema_reader;

/* One line that begins with the schema's keyword. */
__attribute__((format(printf, 3, 4))) lace_status schema_fail(schema_reader *r, const char *keyword,
                                                              const char *format, ...);

/* schema_read.c: what a schema matches. */
lace_status schema_read(schema_reader *r, const json_t *schema, int depth,
                        const grammar_node **out);
const grammar_node *schema_space(schema_reader *r); /* a little white space, or none */
const grammar_node *schema_literal(schema_reader *r, const json_t *value); /* as compact JSON */
/* The types that "type" names, or that the other keywords speak of; TYPE_ANY if none. */
lace_status schema_types(schema_reader *r, const json_t *schema, unsigned *out);
/* The schema that a $ref leads to. */
lace_status schema_resolve(schema_reader *r, const char *ref, const json_t **out);

/* schema_compound.c */
lace_status schema_read_object(schema_reader *r, const json_t *schema, int depth,
                               const grammar_node **out);
lace_status schema_read_array(schema_reader *r, const json_t *schema, int depth,
                              const grammar_node **out);

/* schema_scalar.c */
lace_status schema_read_string(schema_reader *r, const json_t *schema, const grammar_node **out);
lace_status schema_read_number(schema_reader *r, const json_t *schema, bool is_integer,
                               const grammar_node **out);
const grammar_node *schema_any_string(schema_reader *r); /* with its quotes */
const grammar_node *schema_any_number(schema_reader *r, bool is_integer);
/* A count such as "maxItems"; `otherwise` if there is none. */
lace_status schema_count(schema_reader *r, const json_t *schema, const char *keyword,
                         uint32_t otherwise, uint32_t *out);

/* schema_merge.c: the reader takes a new value, which may be NULL: out of memory. */
lace_status schema_own(schema_reader *r, json_t *value, json_t **out);
/* A schema that both demand, owned by the reader. */
lace_status schema_merge(schema_reader *r, const json_t *a, const json_t *b, json_t **out);
/* The schema without a keyword, likewise. */
lace_status schema_without(schema_reader *r, const json_t *schema, const char *keyword,
                           json_t **out);
/* True if the keyword says nothing about what is valid: "title", "description", ... */
bool schema_is_annotation(const char *keyword);
/* Whether nothing that is written for `a` is valid for `b`, as far as one can tell. */
bool schema_excludes(schema_reader *r, const json_t *a, const json_t *b);

#endif
