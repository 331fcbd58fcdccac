/* JSON of any kind, not only objects and arrays, from what models and templates write. */
#ifndef LACE_JINJA_JSON_ANY_H
#define LACE_JINJA_JSON_ANY_H

#include <jansson.h>

#include "base/bytes.h"

/* As json_read, for a text that holds one value; *out is to be freed with json_decref. */
lace_status json_read_any(text chars, json_t **out, lace_error *err);

#endif
