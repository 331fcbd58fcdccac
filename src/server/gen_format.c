/*
 * What holds generated text to a form, in the words of several families of clients, compiled to a
 * grammar. A form that cannot be kept is refused; none is ever ignored.
 */
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "chat/call_grammar.h"
#include "server/core.h"

enum {
    QUICK_MS = 10,      /* for a grammar of a request that others may wait for */
    MAX_GBNF = 1 << 20, /* bytes of a grammar that is made for tools */
};

static bool compile(gen_request *r, call *c, const char *param, lace_grammar_kind kind,
                    const char *source, size_t n_bytes)
{
    lace_error err = {0};
    lace_grammar_options o = lace_grammar_options_default();
    if (r->options.grammar)
        return call_refuse(c, param, "more than one of grammar, regex, choice and schema is given");
    bool is_quick = !c->is_slow;
    if (is_quick)
        o.max_ms = QUICK_MS;
    o.is_unwanted = call_is_unwanted;
    o.user = c;
    if (lace_grammar_create_within(call_server(c)->model, kind, source, n_bytes, &o,
                                   &r->options.grammar, &err) == LACE_OK)
        return true;
    if (err.status == LACE_E_LIMIT && is_quick) {
        c->wants_time = true; /* once more, where it may take long */
        return false;
    }
    /* Whatever is wrong with a form is the request's fault, unless memory is out. */
    if (err.status == LACE_E_NOMEM)
        call_fail_error(c, param, &err);
    else
        call_fail(c, 400, param, "invalid_grammar", "%s: %s", param, err.text);
    return false;
}

bool gen_use_schema(gen_request *r, call *c, const char *param, const json_t *schema)
{
    if (!schema)
        return compile(r, c, param, LACE_GRAMMAR_JSON_OBJECT, NULL, 0);
    char *source = json_dumps(schema, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!source)
        return call_nomem(c);
    bool ok = compile(r, c, param, LACE_GRAMMAR_JSON_SCHEMA, source, strlen(source));
    mem_free(source);
    return ok;
}

static bool use_text(gen_request *r, call *c, const char *param, lace_grammar_kind kind,
                     const json_t *value)
{
    if (!json_is_string(value))
        return call_refuse(c, param, "a grammar or regex is a string");
    return compile(r, c, param, kind, json_string_value(value), json_string_length(value));
}

/* {"type": "text" | "json_object" | "json_schema", ...}, as OpenAI and llama.cpp have it. */
static bool read_response_format(gen_request *r, call *c, const json_t *format)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    if (type && strcmp(type, "text") == 0)
        return true;
    if (type && strcmp(type, "json_object") == 0)
        return gen_use_schema(r, c, "response_format", json_object_get(format, "schema"));
    if (!type || strcmp(type, "json_schema") != 0)
        return call_refuse(
            c, "response_format",
            "response_format has no type \"text\", \"json_object\" or \"json_schema\"");
    const json_t *outer = json_object_get(format, "json_schema");
    const json_t *schema = json_object_get(outer ? outer : format, "schema");
    if (!schema)
        return call_refuse(c, "response_format", "response_format: json_schema has no schema");
    return gen_use_schema(r, c, "response_format", schema);
}

/* A list of texts, one of which is written. */
static bool use_choices(gen_request *r, call *c, const json_t *choices)
{
    buf gbnf;
    if (!json_is_array(choices) || json_array_size(choices) == 0)
        return call_refuse(c, "structured_outputs", "choice is not a list of at least one text");
    buf_init(&gbnf, 1 << 20);
    lace_status status = buf_append_text(&gbnf, "root ::= ");
    for (size_t i = 0; i < json_array_size(choices) && status == LACE_OK; i++) {
        const json_t *choice = json_array_get(choices, i);
        if (!json_is_string(choice)) {
            buf_deinit(&gbnf);
            return call_refuse(c, "structured_outputs", "a choice is not a text");
        }
        status = buf_append_text(&gbnf, i ? " | \"" : "\"");
        for (const char *p = json_string_value(choice); *p && status == LACE_OK; p++)
            status = *p == '"' || *p == '\\' || (unsigned char)*p < 0x20
                         ? buf_printf(&gbnf, "\\x%02X", (unsigned)*p)
                         : buf_append(&gbnf, p, 1);
        if (status == LACE_OK)
            status = buf_append_text(&gbnf, "\"");
    }
    bool ok = status == LACE_OK;
    if (ok)
        ok = compile(r, c, "structured_outputs", LACE_GRAMMAR_GBNF, gbnf.data, gbnf.size);
    else
        call_fail(c, 400, "structured_outputs", "invalid_value", "choice is too long");
    buf_deinit(&gbnf);
    return ok;
}

/* {"json": schema, "regex": ..., "choice": [...], "grammar": ..., "json_object": true}: vLLM's. */
static bool read_structured_outputs(gen_request *r, call *c, const json_t *given)
{
    const char *key;
    json_t *value;
    if (!json_is_object(given))
        return call_refuse(c, "structured_outputs", "structured_outputs is not an object");
    json_object_foreach((json_t *)given, key, value)
    {
        bool ok;
        if (json_is_null(value))
            continue;
        if (strcmp(key, "json") == 0)
            ok = json_is_string(value)
                     ? use_text(r, c, "structured_outputs", LACE_GRAMMAR_JSON_SCHEMA, value)
                     : gen_use_schema(r, c, "structured_outputs", value);
        else if (strcmp(key, "regex") == 0)
            ok = use_text(r, c, "structured_outputs", LACE_GRAMMAR_REGEX, value);
        else if (strcmp(key, "grammar") == 0)
            ok = use_text(r, c, "structured_outputs", LACE_GRAMMAR_GBNF, value);
        else if (strcmp(key, "choice") == 0)
            ok = use_choices(r, c, value);
        else if (strcmp(key, "json_object") == 0 && json_is_boolean(value))
            ok = json_is_false(value) || gen_use_schema(r, c, "structured_outputs", NULL);
        else
            ok = call_refuse(c, "structured_outputs", "structured_outputs has an unknown member");
        if (!ok)
            return false;
    }
    return true;
}

bool gen_read_format(gen_request *r, call *c, const json_t *body)
{
    const json_t *format = json_object_get(body, "response_format");
    const json_t *grammar = json_object_get(body, "grammar");
    const json_t *regex = json_object_get(body, "regex");
    const json_t *schema = json_object_get(body, "json_schema");
    const json_t *structured = json_object_get(body, "structured_outputs");
    bool has_grammar = grammar && !json_is_null(grammar);
    return (!format || json_is_null(format) || read_response_format(r, c, format)) &&
           (!has_grammar || use_text(r, c, "grammar", LACE_GRAMMAR_GBNF, grammar)) &&
           (!regex || json_is_null(regex) || use_text(r, c, "regex", LACE_GRAMMAR_REGEX, regex)) &&
           (!schema || json_is_null(schema) || gen_use_schema(r, c, "json_schema", schema)) &&
           (!structured || json_is_null(structured) || read_structured_outputs(r, c, structured));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

bool gen_force_call(gen_request *r, call *c, const char *name)
{
    r->forces_call = true;
    if (!name)
        return true;
    r->forced_name = arena_strndup(&r->memory, name, strlen(name));
    return r->forced_name ? true : call_nomem(c);
}

/* The call in a format, as a grammar; LACE_E_UNSUPPORTED: the format cannot be held to it. */
static lace_status write_call(gen_request *r, const reply_format *format, buf *gbnf)
{
    text prompt = {r->prompt_text, r->n_prompt_text};
    call_demand demand = {.tools = r->tools,
                          .name = r->forced_name,
                          .is_thinking = reply_opens_thinking(format, prompt),
                          .is_optional = !r->forces_call,
                          .is_single = !r->parallel_calls};
    r->call_format = *format;
    buf_clear(gbnf);
    return reply_call_grammar(format, &demand, gbnf);
}

bool gen_use_call(gen_request *r, call *c)
{
    const chat_template *t = call_server(c)->chat;
    reply_format described = chat_template_described_format(t);
    bool is_own = chat_template_caps(t)->takes_tools;
    buf gbnf;
    buf_init(&gbnf, MAX_GBNF);
    lace_status status = write_call(r, is_own ? chat_template_reply_format(t) : &described, &gbnf);
    if (status == LACE_E_UNSUPPORTED && is_own)
        status = write_call(r, &described, &gbnf);
    bool ok = false;
    if (status == LACE_OK)
        ok = compile(r, c, "tools", LACE_GRAMMAR_GBNF, gbnf.data, gbnf.size);
    else if (status == LACE_E_NOMEM)
        call_nomem(c);
    else if (status == LACE_E_ARG)
        call_refuse(c, "tool_choice", "tool_choice names a function that is not among the tools");
    else
        call_refuse(c, "tools",
                    "the tools are too many or too large, or a name has a quote or a "
                    "bracket: no call of them can be demanded");
    buf_deinit(&gbnf);
    return ok;
}

bool gen_hold_calls(gen_request *r, call *c)
{
    const chat_template *t = call_server(c)->chat;
    reply_format described = chat_template_described_format(t);
    bool is_own = chat_template_caps(t)->takes_tools;
    bool goes_on = r->reply_opening && *r->reply_opening; /* behind words of the format */
    if (r->options.grammar || goes_on || !reply_has_strict_tools(r->tools))
        return true;
    buf gbnf;
    buf_init(&gbnf, MAX_GBNF);
    lace_status status = write_call(r, is_own ? chat_template_reply_format(t) : &described, &gbnf);
    bool ok = status != LACE_E_NOMEM || call_nomem(c);
    if (status == LACE_OK)
        ok = r->holds_calls = compile(r, c, "tools", LACE_GRAMMAR_GBNF, gbnf.data, gbnf.size);
    buf_deinit(&gbnf);
    return ok;
}
