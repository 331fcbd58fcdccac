/*
 * The types that a tool's schema has for its arguments: many formats write values as plain text, and
 * only the schema tells the string "75001" from a number. Inside src/chat only.
 */
#ifndef LACE_CHAT_REPLY_TYPES_H
#define LACE_CHAT_REPLY_TYPES_H

#include "chat/reply_parser.h"

/* A schema, and the whole in which its "$ref" are looked up. NULL: nothing is known. */
typedef struct type_schema {
    const json_t *root, *schema;
} type_schema;

/* Types of values, as bits. */
enum {
    VALUE_STRING = 1,
    VALUE_NUMBER = 2,
    VALUE_BOOLEAN = 4,
    VALUE_NULL = 8,
    VALUE_OBJECT = 16,
    VALUE_LIST = 32,
    VALUE_ANY = 63,
};

/* The types that a schema allows; all, where it says nothing. */
unsigned reply_schema_types(type_schema of);
/* The schema itself, behind its references; NULL if they lead nowhere. */
const json_t *reply_schema_resolve(type_schema of);

/* Of the arguments of a tool. */
type_schema reply_schema_of_tool(const json_t *tool);
/* Of the arguments of the function that is being called. */
type_schema reply_schema_of_call(const reply_parser *p);
/* Of a member of an object, and of the items of a list. */
type_schema reply_schema_member(type_schema of, text key);
type_schema reply_schema_items(type_schema of);

bool reply_wants_string(type_schema of); /* and nothing else but null */
bool reply_takes_list(type_schema of);
bool reply_takes_object(type_schema of);

/* A value that was written as text, as JSON into the arguments: by its type, or by its looks. */
lace_status reply_put_value(reply_parser *p, type_schema of, text value);

#endif
