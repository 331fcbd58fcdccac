/* What the files that read a JSON schema share. */
#ifndef LACE_GRAMMAR_GRAMMAR_SCHEMA_H
#define LACE_GRAMMAR_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "base/hash.h"
#include "grammar/grammar_ast.h"

enum {
    SCHEMA_MAX_DEPTH = 64,     /* of schemas inside schemas */
    SCHEMA_MAX_PARTS = 100000, /* schemas that are read, those made by merging included */
    SCHEMA_MAX_MADE = 1000000, /* members and entries of schemas that merging makes */
};

/* Words of our own, which no schema from outside may have. */
#define SCHEMA_OWN     '\x01'
#define SCHEMA_STRINGS "\x01strings" /* a list of further {"pattern": ...} and {"format": ...} */
#define SCHEMA_JOINED  "\x01joined"  /* the number of the merging that made this allOf */

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
    map strings;    /* strings with a pattern or a format, by those, to rule */
    json_t *queue;  /* an array of the refs' texts, in the order of their rules */
    size_t n_built; /* of the queue */
    int n_parts;
    size_t n_made;
    int64_t n_merged;
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
unsigned schema_type_of(const json_t *value); /* an integer is a number, too */
/* The schema that a $ref leads to. */
lace_status schema_resolve(schema_reader *r, const char *ref, const json_t **out);

/* A rule of its own: what is used in several places must not be written out in each. */
const grammar_node *schema_as_rule(schema_reader *r, const char *name, const grammar_node *body);

/* schema_object.c, schema_array.c */
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

/* Count a schema that is read, or members that are made; an error if that is too much. */
lace_status schema_count_part(schema_reader *r);
lace_status schema_spend(schema_reader *r, size_t n_members);

/* schema_merge.c: the reader takes a new value, which may be NULL: out of memory. */
lace_status schema_own(schema_reader *r, json_t *value, json_t **out);
/* A schema that both demand, owned by the reader, without $ref and allOf. b may be NULL. */
lace_status schema_merge(schema_reader *r, const json_t *a, const json_t *b, json_t **out);
/* The schema without a keyword, likewise. */
lace_status schema_without(schema_reader *r, const json_t *schema, const char *keyword,
                           json_t **out);
/* True if the keyword says nothing about what is valid: "title", "description", ... */
bool schema_is_annotation(const char *keyword);

/* schema_exclude.c: refuses branches of which one may be valid for what is written for another. */
lace_status schema_check_one_of(schema_reader *r, const json_t *branches);

/* A set of JSON values, each with a number. */
typedef struct schema_values {
    map known; /* what the value is as text */
    arena memory;
} schema_values;

void schema_values_init(schema_values *s);
void schema_values_deinit(schema_values *s);
/* *before (may be NULL): the number of an equal value that was there, or -1. */
lace_status schema_values_add(schema_reader *r, schema_values *s, const json_t *value,
                              int32_t number, int32_t *before);
lace_status schema_values_find(schema_reader *r, const schema_values *s, const json_t *value,
                               bool *is_known);

#endif
