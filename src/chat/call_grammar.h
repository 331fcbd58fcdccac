/*
 * Calls as grammars, in GBNF: written as the model's format has them, with arguments that are valid
 * for their schemas. Of a call that is demanded, every text is one call of the given tools. Where
 * calls are up to the model, any text will do until it begins one in its format.
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
    bool is_optional;    /* the model may answer with text as well, and with several calls */
    bool is_single;      /* if so: one call at most */
} call_demand;

/* Whether a tool asks that its arguments are held to their schema ("strict"). */
bool reply_has_strict_tools(const json_t *tools);

/*
 * Append the grammar to `out`. LACE_E_UNSUPPORTED if the format has no form for a call, or its form
 * cannot be held to a schema (a string with a pattern, written without quotes): the described
 * format, a JSON object alone, takes every schema. Calls that are up to the model are also not
 * supported where text itself stands between words of the format. LACE_E_ARG if no tool has the name.
 * On failure `out` is undefined.
 */
lace_status reply_call_grammar(const reply_format *f, const call_demand *demand, buf *out);

#endif
