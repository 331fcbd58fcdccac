/*
 * A call that a request demands, as a grammar: in GBNF, every text of it is one call of the given
 * tools, written as the model's format has it, with arguments that are valid for their schemas.
 */
#ifndef LACE_CHAT_CALL_GRAMMAR_H
#define LACE_CHAT_CALL_GRAMMAR_H

#include "base/buf.h"
#include "chat/parse_reply.h"

/* What is demanded. */
typedef struct call_demand {
    const json_t *tools; /* as in the request */
    const char *name;    /* of the one that must be called; NULL: any */
    bool is_thinking;    /* the reply begins inside of reasoning, which goes before the call */
} call_demand;

/*
 * Append the grammar to `out`. LACE_E_UNSUPPORTED if the format has no form for a call, or its form
 * cannot be held to a schema (a string with a pattern, written without quotes): the described
 * format, a JSON object alone, takes every schema. LACE_E_ARG if no tool has the name. On failure
 * `out` is undefined.
 */
lace_status reply_call_grammar(const reply_format *f, const call_demand *demand, buf *out);

#endif
