/*
 * Fuzzing replies of models: whatever they write, the parser gives out well-nested events, and the
 * same ones however the text is cut.
 *
 * The first byte chooses the format, the second the flags and the lengths of the pieces.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "chat/parse_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const formats[] = {
    "hermes",        "llama3",      "mistral", "mistral-list", "deepseek", "deepseek-r1",
    "harmony",       "qwen3-coder", "glm",     "minimax-m2",   "kimi-k2",  "deepseek-v3.2",
    "lfm2",          "functionary", "solar",   "cohere",       "apertus",  "tool-calls",
    "gemma4",        "minimax-m3",  "kimi-k3", "olmo3",        "seed-oss", "phi4-mini",
    "command-r",     "hunyuan",     "granite", "gigachat3",    "minicpm",  "pythonic",
    "functiongemma",
};

/* Words of templates whose replies have more around them. */
static const char *const sources[] = {
    "<think> <response></response> <tool_call>",
    "assistant<|think|> assistant<|content|> <|tool_call:begin|>",
    "<|open|> <|close|> open_tag('think') open_tag('response')",
    "[BEGIN FINAL RESPONSE] <tool_calls>",
};

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\":"
    " {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": \"array\"}, \"c\": {\"anyOf\": [{\"$ref\":"
    " \"#\"}, {\"type\": \"boolean\"}]}}}}}]";

typedef struct record {
    buf text;
    reply_event_kind last;
    bool has_events, is_in_call;
    int n_calls;
} record;

static lace_status add(void *arg, const reply_event *e)
{
    record *r = arg;
    bool is_call = e->kind == REPLY_CALL_ARGS || e->kind == REPLY_CALL_END;
    if (is_call != r->is_in_call || (e->kind >= REPLY_CALL_BEGIN && e->call != r->n_calls))
        abort();
    if (e->kind != REPLY_CALL_END && e->chars.size == 0)
        abort();
    r->is_in_call = e->kind == REPLY_CALL_BEGIN || e->kind == REPLY_CALL_ARGS;
    r->n_calls += e->kind == REPLY_CALL_END;
    /* Pieces of one kind count as one. */
    if (!r->has_events || r->last != e->kind || e->kind >= REPLY_CALL_END)
        TRY(buf_printf(&r->text, "\n%d%d", (int)e->kind, e->is_complete));
    r->has_events = true;
    r->last = e->kind;
    return buf_append(&r->text, e->chars.data, e->chars.size);
}

static void parse(const reply_format *f, const reply_options *options, text reply, size_t step,
                  record *r)
{
    reply_parser *p;
    lace_error err;
    *r = (record){0};
    buf_init(&r->text, 1 << 24);
    if (reply_parser_create(f, options, add, r, &p, &err) != LACE_OK)
        abort();
    for (size_t i = 0; i < reply.size; i += step) {
        size_t n = reply.size - i < step ? reply.size - i : step;
        if (reply_parser_feed(p, (text){reply.data + i, n}, &err) != LACE_OK)
            abort();
    }
    if (reply_parser_finish(p, &err) != LACE_OK || r->is_in_call)
        abort();
    reply_parser_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools;
    if (!tools)
        tools = json_loads(tools_text, 0, NULL);
    if (size < 2)
        return 0;
    enum { N_NAMED = sizeof formats / sizeof formats[0] };
    size_t which = data[0] % (N_NAMED + sizeof sources / sizeof sources[0]);
    reply_format f = which < N_NAMED ? reply_format_by_name(formats[which])
                                     : reply_format_choose(text_of(sources[which - N_NAMED]));
    reply_options options = {.is_thinking = data[1] & 1,
                             .keeps_calls = data[1] & 2 && data[1] & 4,
                             .tools = data[1] & 8 ? tools : NULL};
    text reply = {(const char *)data + 2, size - 2};
    record whole, pieces;
    parse(&f, &options, reply, reply.size + 1, &whole);
    parse(&f, &options, reply, 1 + (data[1] >> 4), &pieces);
    if (whole.text.size != pieces.text.size ||
        (whole.text.size && memcmp(whole.text.data, pieces.text.data, whole.text.size) != 0))
        abort();
    buf_deinit(&whole.text);
    buf_deinit(&pieces.text);
    return 0;
}
