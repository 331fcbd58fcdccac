/* What requests in llama.cpp's own words ask for beyond the fields that all have. */
#ifndef LACE_SERVER_LLAMA_H
#define LACE_SERVER_LLAMA_H

#include "server/generate.h"

/* gen_request.user of /completion and /infill. */
typedef struct llama_request {
    const json_t *fields; /* of the answer, those that are wanted; NULL: all */
    bool returns_tokens;
    bool is_empty; /* the prompt is read, and no text is wanted */
    double max_ms; /* the text ends behind a line once it took so long; 0 or less: no limit */
    int n_indent;  /* it ends before a line that is indented less */
} llama_request;

/* Whole requests, for gen_start. False: answered. */
bool llama_read_completion(gen_request *r, call *c, json_t *body);
bool llama_read_infill(gen_request *r, call *c, json_t *body);

#endif
