/*
 * chat/call_grammar: calls that are demanded have the form that the model's template shows, and
 * arguments that are valid for the tools' schemas.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/call_grammar.h"
#include "chat_kit.h"
#include "grammar_kit.h"
#include "lace.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_model.h"

static const char tools_text[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                                 "\"parameters\": {\"type\": \"object\","
                                 " \"$defs\": {\"place\": {\"type\": \"object\", \"properties\": "
                                 "{\"lat\": {\"type\": \"number\"}},"
                                 " \"required\": [\"lat\"]}}, \"properties\": {\"city\": "
                                 "{\"type\": \"string\"}, \"days\": {\"type\":"
                                 " \"integer\"}, \"exact\": {\"type\": \"boolean\"}, \"unit\": "
                                 "{\"enum\": [\"C\", \"F\", 1]}, \"tags\":"
                                 " {\"type\": \"array\", \"items\": {\"type\": \"string\"}}, "
                                 "\"where\": {\"$ref\": \"#/$defs/place\"}},"
                                 " \"required\": [\"city\", \"unit\"]}}},"
                                 " {\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";
static const char limited_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\","
    " \"properties\": {\"city\": {\"type\": \"string\", \"pattern\": \"^[a-z]+$\"}}}}}]";

static lace_status make(const reply_format *f, const json_t *tools, const char *name,
                        bool is_thinking, buf *out)
{
    call_demand demand = {.tools = tools, .name = name, .is_thinking = is_thinking};
    buf_init(out, 1 << 20);
    return reply_call_grammar(f, &demand, out);
}

/* ---- As templates show them ------------------------------------------------------------------ */

/* Whether the grammar matches a part of the text. */
static bool is_found(grammar_matcher *m, const char *chars)
{
    for (; *chars; chars++) {
        grammar_position *p = NULL;
        lace_error err;
        bool is_whole = false;
        CHECK(grammar_position_create(m, &p, &err) == LACE_OK);
        for (const char *at = chars; *at && !is_whole; at++) {
            if (grammar_position_advance(p, (text){at, 1}, &err) != LACE_OK)
                break;
            is_whole = grammar_position_is_complete(p);
        }
        grammar_position_free(p);
        if (is_whole)
            return true;
    }
    return false;
}

/* These show an id of the call, or have no form for a demanded one. */
static bool is_exception(const char *key)
{
    return strstr(key, "Apriel") || strstr(key, "muse-glimmer") || strstr(key, "MiniMax-M3") ||
           strstr(key, "Solar") || strstr(key, "gpt-oss") || /* the older order of its header */
           strstr(key, "LFM2.5");                            /* quotes of the other kind */
}

static void demanded_calls_have_the_form_that_templates_show(void)
{
    json_t *cases = read_template_cases(), *shown;
    const json_t *tools =
        json_object_get(json_object_get(json_object_get(cases, "contexts"), "tools"), "tools");
    const char *key;
    int n = 0;
    json_object_foreach(json_object_get(cases, "expected"), key, shown)
    {
        size_t n_name = strcspn(key, "|");
        const char *chars = json_string_value(shown);
        if (strcmp(key + n_name, "|toolcall") != 0 || !chars || !strstr(chars, "Paris"))
            continue;
        char *source = read_template(key, n_name);
        reply_format f = reply_format_choose(text_of(source));
        buf gbnf;
        lace_error err = {0};
        lace_status status = make(&f, tools, NULL, false, &gbnf);
        grammar_matcher *m =
            status == LACE_OK ? kit_compile(LACE_GRAMMAR_GBNF, gbnf.data, &err) : NULL;
        bool is_right = m && is_found(m, chars);
        if (!CHECK(is_right != is_exception(key)))
            tap_note("%.*s (%s): %s\n%s", (int)n_name, key, reply_format_name(&f), err.text,
                     gbnf.data ? gbnf.data : "");
        n += is_right;
        grammar_matcher_free(m);
        buf_deinit(&gbnf);
        free(source);
    }
    tap_note("%d templates", n);
    CHECK(n == 47);
    json_decref(cases);
}

/* ---- Arguments ------------------------------------------------------------------------------- */

#define QWEN(args)    "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define K(key, value) "<arg_key>" key "</arg_key><arg_value>" value "</arg_value>"
#define D(key, s, value)                                                                           \
    "<｜DSML｜parameter name=\"" key "\" string=\"" s "\">" value "</｜DSML｜parameter>\n"

static void arguments_are_valid_for_the_schema(void)
{
    static const struct {
        const char *format, *chars;
        bool matches;
    } rows[] = {
        {"qwen3-coder", QWEN(P("city", "75001") P("unit", "C")), true},
        {"qwen3-coder", QWEN(P("city", "a < b\n\n</par") P("days", "2") P("unit", "1")), true},
        {"qwen3-coder",
         QWEN(P("city", "") P("exact", "true") P("unit", "F") P("tags", "[\"a\", \"b\"]")
                  P("where", "{\"lat\": 1.5}")),
         true},
        {"qwen3-coder", QWEN(P("city", "x")), false},                /* unit is required */
        {"qwen3-coder", QWEN(P("city", "x") P("unit", "K")), false}, /* and one of three */
        {"qwen3-coder", QWEN(P("city", "x") P("days", "two") P("unit", "C")), false},
        {"qwen3-coder", QWEN(P("city", "x") P("unit", "C") P("where", "{\"lat\": \"x\"}")), false},
        {"qwen3-coder", "<tool_call>\n<function=g>\n</function>\n</tool_call>", true},
        {"qwen3-coder", "<tool_call>\n<function=h>\n</function>\n</tool_call>", false},
        {"glm", "<tool_call>f" K("city", "x") K("unit", "C") "</tool_call>", true},
        {"glm",
         "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n" K("unit",
                                                                               "1") "</tool_call>",
         true},
        {"glm", "<tool_call>f" K("unit", "C") K("city", "x") "</tool_call>", false},
        {"deepseek-v3.2",
         "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n" D("city", "true", "x")
             D("days", "false", "2")
                 D("unit", "true", "C") "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         true},
        {"hermes",
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"x\", \"unit\": "
         "1}}\n</tool_call>",
         true},
        {"hermes",
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": 5, \"unit\": 1}}\n</tool_call>",
         false},
        {"mistral", "[TOOL_CALLS]f[ARGS]{\"city\": \"x\", \"unit\": \"F\"}", true},
        {"lfm2",
         "<|tool_call_start|>[f(city=\"x\", exact=True, unit=\"C\", where={\"lat\": "
         "1})]<|tool_call_end|>",
         true},
        {"lfm2", "<|tool_call_start|>[f(city=\"x\", unit=1)]<|tool_call_end|>", true},
        {"lfm2", "<|tool_call_start|>[f(unit=1)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(, unit=1)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[g()]<|tool_call_end|>", true},
        {"gemma4",
         "<|tool_call>call:f{city:<|\"|>it's "
         "\"x\"<|\"|>,days:2,unit:<|\"|>C<|\"|>,tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>],where:{lat:1.5}}"
         "<tool_call|>",
         true},
        {"gemma4", "<|tool_call>call:f{city:<|\"|>x<|\"|>,unit:1,tags:[]}<tool_call|>", true},
        {"gemma4", "<|tool_call>call:f{city:x,unit:1}<tool_call|>", false},
        {"harmony",
         "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"city\": \"x\", "
         "\"unit\": 1}",
         true},
        {"cohere",
         "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"g\", \"parameters\": "
         "{}}\n]<|END_ACTION|>",
         true},
    };
    json_t *tools = read_json(tools_text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reply_format f = reply_format_by_name(rows[i].format);
        buf gbnf;
        CHECK(make(&f, tools, NULL, false, &gbnf) == LACE_OK);
        if (!CHECK(kit_matches(LACE_GRAMMAR_GBNF, gbnf.data, rows[i].chars) == rows[i].matches))
            tap_note("%s: %s", rows[i].format, rows[i].chars);
        buf_deinit(&gbnf);
    }
    json_decref(tools);
}

static void one_tool_reasoning_and_what_cannot_be_kept(void)
{
    json_t *tools = read_json(tools_text), *limited = read_json(limited_text);
    reply_format hermes = reply_format_by_name("hermes"),
                 coder = reply_format_by_name("qwen3-coder");
    reply_format described = reply_format_described(&hermes);
    buf gbnf;
    CHECK(make(&coder, tools, "g", false, &gbnf) == LACE_OK);
    CHECK(kit_matches(LACE_GRAMMAR_GBNF, gbnf.data,
                      "<tool_call>\n<function=g>\n</function>\n</tool_call>"));
    CHECK(!kit_matches(LACE_GRAMMAR_GBNF, gbnf.data, QWEN(P("city", "x") P("unit", "C"))));
    buf_deinit(&gbnf);
    CHECK(make(&coder, tools, "h", false, &gbnf) == LACE_E_ARG);
    buf_deinit(&gbnf);
    /* The reply begins inside of reasoning. */
    CHECK(make(&coder, tools, "g", true, &gbnf) == LACE_OK);
    CHECK(kit_matches(LACE_GRAMMAR_GBNF, gbnf.data,
                      "Hm. <tool_call>\n</think>\n\n<tool_call>\n<function=g>\n</function>\n"
                      "</tool_call>"));
    CHECK(!kit_matches(LACE_GRAMMAR_GBNF, gbnf.data,
                       "<tool_call>\n<function=g>\n</function>\n</tool_call>"));
    buf_deinit(&gbnf);
    /* Text without quotes cannot be held to a pattern; JSON can. */
    CHECK(make(&coder, limited, NULL, false, &gbnf) == LACE_E_UNSUPPORTED);
    buf_deinit(&gbnf);
    CHECK(make(&described, limited, NULL, false, &gbnf) == LACE_OK);
    CHECK(kit_matches(LACE_GRAMMAR_GBNF, gbnf.data,
                      "{\"name\": \"f\", \"arguments\": {\"city\": \"abc\"}}"));
    CHECK(!kit_matches(LACE_GRAMMAR_GBNF, gbnf.data,
                       "{\"name\": \"f\", \"arguments\": {\"city\": \"75001\"}}"));
    buf_deinit(&gbnf);
    json_decref(tools);
    json_decref(limited);
}

/* ---- With a model's own tokens --------------------------------------------------------------- */

static size_t count_allowed(lace_grammar_state *state, float *logits, size_t n_vocab)
{
    size_t n = 0;
    for (size_t i = 0; i < n_vocab; i++)
        logits[i] = 0;
    CHECK(lace_grammar_state_mask(state, logits, NULL) == LACE_OK);
    for (size_t i = 0; i < n_vocab; i++)
        n += logits[i] == 0;
    return n;
}

/* A control token passes where %marked names it, as the one token that may come. */
static void marks_of_a_model_are_its_control_tokens(void)
{
    static const char gbnf[] = "root ::= %marked \"<fim_prefix>\" %until \"<fim_suffix>\""
                               " %marked \"<fim_suffix>\"";
    enum { N_VOCAB = 320 };
    tiny_options o = tiny_options_default();
    o.has_infill = true;
    buf bytes = tiny_model_bytes(o);
    float logits[N_VOCAB];
    const lace_token prefix = N_VOCAB - 3, suffix = N_VOCAB - 2;
    lace_model *model = NULL;
    lace_grammar *grammar = NULL;
    lace_grammar_state *state = NULL;
    lace_error err = {0};
    FILE *f = scratch_create() ? fopen(scratch_path("model.gguf"), "wb") : NULL;
    CHECK(f && fwrite(bytes.data, 1, bytes.size, f) == bytes.size);
    if (f)
        fclose(f);
    if (!CHECK(lace_model_open(scratch_path("model.gguf"), NULL, &model, &err) == LACE_OK))
        tap_note("%s", err.text);
    CHECK(model && lace_grammar_create(model, LACE_GRAMMAR_GBNF, gbnf, strlen(gbnf), &grammar,
                                       &err) == LACE_OK);
    if (CHECK(grammar && lace_grammar_state_create(grammar, &state, &err) == LACE_OK)) {
        CHECK(count_allowed(state, logits, N_VOCAB) == 1 && logits[prefix] == 0);
        CHECK(lace_grammar_state_accept(state, prefix, &err) == LACE_OK);
        /* Then text, or the next mark; no other control token, and this one not again. */
        CHECK(count_allowed(state, logits, N_VOCAB) > 100 && logits[suffix] == 0);
        CHECK(logits[prefix] < 0 && logits[N_VOCAB - 1] < 0 && logits[1] < 0);
        CHECK(lace_grammar_state_accept(state, suffix, &err) == LACE_OK);
        CHECK(lace_grammar_state_is_finished(state));
    }
    lace_grammar_state_free(state);
    lace_grammar_free(grammar);
    lace_model_close(model);
    buf_deinit(&bytes);
    scratch_remove();
}

/* As many tools as agents bring, and more. */
static void a_hundred_tools_fit_a_grammar(void)
{
    static const char *const names[] = {"qwen3-coder", "hermes", "lfm2", "gemma4", "glm"};
    json_t *many = json_array();
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "tool_%d", i);
        json_t *properties = json_object();
        for (int k = 0; k < 12; k++) {
            static const char *const types[] = {"integer", "string", "boolean", "string"};
            char key[32];
            snprintf(key, sizeof key, "param_%d", k);
            json_object_set_new(properties, key,
                                json_pack("{s:s, s:s}", "type", types[k % 4], "description",
                                          "A sentence about this parameter, of some length."));
        }
        json_array_append_new(many, json_pack("{s:s, s:{s:s, s:o}}", "name", name, "input_schema",
                                              "type", "object", "properties", properties));
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        reply_format f = reply_format_by_name(names[i]);
        buf gbnf;
        lace_error err = {0};
        CHECK(make(&f, many, NULL, false, &gbnf) == LACE_OK);
        grammar_matcher *m = kit_compile(LACE_GRAMMAR_GBNF, gbnf.data, &err);
        if (!CHECK(m != NULL))
            tap_note("%s: %s", names[i], err.text);
        grammar_matcher_free(m);
        buf_deinit(&gbnf);
    }
    json_decref(many);
}

int main(void)
{
    CASE(demanded_calls_have_the_form_that_templates_show);
    CASE(arguments_are_valid_for_the_schema);
    CASE(one_tool_reasoning_and_what_cannot_be_kept);
    CASE(marks_of_a_model_are_its_control_tokens);
    CASE(a_hundred_tools_fit_a_grammar);
    return tap_end();
}
