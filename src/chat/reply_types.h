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
