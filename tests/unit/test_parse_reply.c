/*
 * chat/parse_reply: reasoning, content and tool calls of every format, and that it never matters
 * where the text is cut into pieces.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_read.h"
#include "base/mem.h"
#include "chat/parse_reply.h"
#include "data.h"
#include "tap.h"

/*
 * Events as text, pieces of one kind joined: [content] {reasoning} name(arguments) and, behind a
 * call, '!' if it is not complete and '#id' if it has one.
 */
typedef struct transcript {
    buf text;
    reply_event_kind last;
    int n_events, n_calls;
} transcript;

static lace_status add_event(void *arg, const reply_event *e)
{
    transcript *t = arg;
    static const char open[] = "[{", close[] = "]}";
    bool goes_on = t->n_events++ > 0 && t->last == e->kind && e->kind <= REPLY_REASONING;
    if (e->kind <= REPLY_REASONING) {
        if (goes_on)
            t->text.size--; /* the closing bracket */
        else
            TRY(buf_append(&t->text, &open[e->kind], 1));
        TRY(buf_append(&t->text, e->chars.data, e->chars.size));
        TRY(buf_append(&t->text, &close[e->kind], 1));
    } else if (e->kind == REPLY_CALL_BEGIN) {
        TRY(buf_append(&t->text, e->chars.data, e->chars.size));
        if (e->id.size > 0)
            TRY(buf_printf(&t->text, "#%.*s", (int)e->id.size, e->id.data));
        TRY(buf_append_text(&t->text, "("));
        CHECK(e->call == t->n_calls);
    } else if (e->kind == REPLY_CALL_ARGS) {
        TRY(buf_append(&t->text, e->chars.data, e->chars.size));
    } else {
        TRY(buf_append_text(&t->text, e->is_complete ? ")" : ")!"));
        t->n_calls++;
    }
    CHECK(e->kind == REPLY_CALL_END || e->chars.size > 0);
    t->last = e->kind;
    return LACE_OK;
}

static json_t *tools;

/* Feed a text cut at two places, or byte by byte if the first is SIZE_MAX. */
static void parse(const reply_format *f, const reply_options *options, const char *reply,
                  size_t cut1, size_t cut2, transcript *t)
{
    size_t n = strlen(reply);
    reply_parser *p;
    lace_error err = {0};
    *t = (transcript){0};
    buf_init(&t->text, 1 << 20);
    if (!CHECK(reply_parser_create(f, options, add_event, t, &p, &err) == LACE_OK))
        return;
    if (cut1 == SIZE_MAX) {
        for (size_t i = 0; i < n; i++)
            CHECK(reply_parser_feed(p, (text){reply + i, 1}, &err) == LACE_OK);
    } else {
        CHECK(reply_parser_feed(p, (text){reply, cut1}, &err) == LACE_OK);
        CHECK(reply_parser_feed(p, (text){reply + cut1, cut2 - cut1}, &err) == LACE_OK);
        CHECK(reply_parser_feed(p, (text){reply + cut2, n - cut2}, &err) == LACE_OK);
    }
    CHECK(reply_parser_finish(p, &err) == LACE_OK);
    reply_parser_free(p);
}

typedef struct row {
    const char *format, *reply, *expected;
    int flags;
} row;

enum { THINKING = 1, KEEPS_CALLS = 2, KEEPS_THINKING = 4 };

/* clang-format off */
static const row rows[] = {
    /* Text without anything special keeps every byte. */
    {"hermes", "Hello, world!", "[Hello, world!]", 0},
    {"hermes", "  a\n\n b \n", "[  a\n\n b \n]", 0},
    {"hermes", "", "", 0},
    {"hermes", "a < b <tool <tool_cal <thin", "[a < b <tool <tool_cal <thin]", 0},
    {"hermes", "é😀<", "[é😀<]", 0},
    /* Reasoning. */
    {"hermes", "<think>\nhm\n\nok\n</think>\n\nHi", "{hm\n\nok}[Hi]", 0},
    {"hermes", "hm</think>Hi", "{hm}[Hi]", THINKING},
    {"hermes", "hm, no end", "{hm, no end}", THINKING},
    {"hermes", "<think></think>\n\nHi ", "[Hi ]", 0},
    {"hermes", "A<think>b</think>c", "[A]{b}[c]", 0},
    {"hermes", "<think>a <tool_call>{}</tool_call></think>c", "{a <tool_call>{}</tool_call>}[c]", 0},
    {"hermes", "<think>x</think>y", "[<think>x</think>y]", KEEPS_THINKING},
    {"hermes", "</think>x", "[</think>x]", 0},
    /* Hermes, Qwen. */
    {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n</tool_call>",
     "get_weather({\"city\": \"Paris\", \"days\": 2})", 0},
    {"hermes", "<think>I look.</think>\n\nWait.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":[1,{\"b\":\"}]\\\"\"}]}}</tool_call>\n",
     "{I look.}[Wait.]f({})g({\"a\":[1,{\"b\":\"}]\\\"\"}]})", 0},
    {"hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", "f({\"a\": 1})", 0},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\\"}\"}</tool_call>", "f({\"a\": \"é\"})", 0},
    {"hermes", "<tool_call>{\"id\": \"c7\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": null}}}</tool_call>",
     "f#c7({\"a\": null})", 0},
    {"hermes", "<tool_call>{\"name\": \"f\"}</tool_call>done", "f({})[done]", 0},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "f({\"a\": 1})", 0},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"unfin", "f({\"a\": \"unfin)!", 0},
    {"hermes", "<tool_call>{\"name\": \"f\", \"argu", "[<tool_call>{\"name\": \"f\", \"argu]", 0},
    {"hermes", "<tool_call>not json</tool_call> ok", "[<tool_call>not json</tool_call> ok]", 0},
    {"hermes", "<tool_call>{\"nam: 5}</tool_call>", "[<tool_call>{\"nam: 5}</tool_call>]", 0},
    {"hermes", "<tool_call>x<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "[<tool_call>x]f({})", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}\n<tool_call>{\"name\":\"g\",\"arguments\":{}}", "f({})g({})", 0},
    {"hermes", "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{}}]</tool_call>", "f({})g({})", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1} oops</tool_call>", "f({\"a\":1})[oops</tool_call>]", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}</tool_call>.", "f({\"a\":1})[.]", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}", "f({\"a\":1})", 0},
    {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call>", "[<tool_call>{\"name\":\"f\"}</tool_call>]", KEEPS_CALLS},
    {"hermes", "  \n<tool_call>bad", "[  \n<tool_call>bad]", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n\nThen text \n", "f({})[Then text \n]", 0},
    /* Llama 3. */
    {"llama3", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}", "get_weather({\"city\": \"Paris\"})", 0},
    {"llama3", "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {}}", "get_weather({})", 0},
    {"llama3", "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"a\": 1}}; {\"name\": \"search\", \"parameters\": {}}",
     "get_weather({\"a\": 1})search({})", 0},
    {"llama3", "{\"name\": \"Bob\", \"age\": 5}", "[{\"name\": \"Bob\", \"age\": 5}]", 0},
    {"llama3", "{\"name\": \"unknown_tool\", \"parameters\": {}}", "[{\"name\": \"unknown_tool\", \"parameters\": {}}]", 0},
    {"llama3", "{a} is a set", "[{a} is a set]", 0},
    {"llama3", "Sure: {\"name\": \"get_weather\", \"parameters\": {}}", "[Sure: {\"name\": \"get_weather\", \"parameters\": {}}]", 0},
    {"llama3", "<|python_tag|>print(1)", "[<|python_tag|>print(1)]", 0},
    /* Mistral. */
    {"mistral-list", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc123456\"}, {\"name\": \"g\", \"arguments\": {}}]",
     "f({\"a\": 1})g({})", 0},
    {"mistral-list", "[TOOL_CALLS] [{\"id\": \"abc\", \"name\": \"f\", \"arguments\": {}}] ", "f#abc({})", 0},
    {"mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]g[ARGS]{}", "get_weather({\"city\": \"Paris\"})g({})", 0},
    {"mistral", "Ok.[TOOL_CALLS]f[CALL_ID]c9[ARGS]{\"a\": {}}", "[Ok.]f#c9({\"a\": {}})", 0},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "f({})", 0},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": \"x", "f({\"a\": \"x)!", 0},
    {"mistral", "[TOOL_CALLS]never a name", "[[TOOL_CALLS]never a name]", 0},
    /* DeepSeek. */
    {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "f({\"a\": 1})g({})", 0},
    {"deepseek", "hm</think>Look.<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "{hm}[Look.]f({})", THINKING},
    {"deepseek", "<｜tool▁calls▁begin｜>nothing", "[<｜tool▁calls▁begin｜>nothing]", 0},
    {"deepseek-r1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "f({\"a\": 1})g({})", 0},
    {"deepseek-v3.2", "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">[1, 2]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "f({\"a\":\"12\",\"b\":[1,2]})", 0},
    {"deepseek-v4", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", "f({})", 0},
    /* gpt-oss. */
    {"harmony", "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>Hi there<|return|>", "{Let me see.}[Hi there]", 0},
    {"harmony", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
     "{hm}get_weather({\"city\": \"Paris\"})", 0},
    {"harmony", " to=functions.f<|channel|>commentary json<|message|>{\"a\":1}", "f({\"a\":1})", 0},
    {"harmony", "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Done",
     "[I will look.]f({})[Done]", 0},
    {"harmony", "<|channel|>final<|message|>a<|b", "[a<|b]", 0},
    {"harmony", "No header at all", "[No header at all]", 0},
    {"harmony", "<|channel|>anal", "", 0},
    {"harmony", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "[{}]", KEEPS_CALLS},
    /* Tags. */
    {"qwen3-coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
     "get_weather({\"city\":\"Paris\",\"days\":2})", 0},
    {"qwen3-coder", "Ok\n\n<function=f>\n<parameter=a>\nline 1\n\nline <2>\n</parameter>\n</function>\n</tool_call>", "[Ok]f({\"a\":\"line 1\\n\\nline <2>\"})", 0},
    {"qwen3-coder", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>.", "f({})[.]", 0},
    {"qwen3-coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\n75001\n</parameter>\n</function>\n</tool_call>", "get_weather({\"city\":\"75001\"})", 0},
    {"qwen3-coder", "<tool_call>\n<function=f>\n<parameter=a>\n{\"k\": [true]}\n</parameter>", "f({\"a\":{\"k\":[true]}})", 0},
    {"qwen3-coder", "<tool_call>\n<function=f>\n<parameter=a>\nhalf a val", "f({})!", 0},
    {"qwen3-coder", "<tool_call>\n<function=f>\nwhat?", "f({})![what?]", 0},
    {"qwen3-coder", "<tool_call> or not", "[<tool_call> or not]", 0},
    {"qwen3-coder", "<function=a b>", "[<function=a b>]", 0},
    {"seed-oss", "<seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</function>\n</seed:tool_call>", "f({\"a\":\"x\"})", 0},
    {"glm", "\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x y</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2.5</arg_value>\n</tool_call>", "f({\"a\":\"x y\",\"b\":2.5})", 0},
    {"glm", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call><tool_call>g</tool_call>", "f({\"a\":1})g({})", 0},
    {"minimax-m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>", "f({\"a\":\"x\"})g({})", 0},
    {"minicpm", "<function name=\"f\"><param name=\"a\">x</param></function>", "f({\"a\":\"x\"})", 0},
    {"hunyuan", "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n<arg_value:opensource>x</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>", "f({\"a\":\"x\"})", 0},
    /* Others. */
    {"kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "get_weather({\"city\": \"Paris\"})g({})", 0},
    {"functionary", "<function=f>{\"a\": 1}</function>", "f({\"a\": 1})", 0},
    {"solar", "<|tool_calls|><|tool_call:begin|>call_1<|tool_call:name|>f<|tool_call:args|>{\"a\": 1}<|tool_call:end|><|calls|>", "f({\"a\": 1})", 0},
    {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "f({})", 0},
    {"cohere", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>", "f#0({\"a\": 1})", 0},
    {"apertus", "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>", "f({\"a\": 1})g({})", 0},
    {"tool-calls", "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>", "f({})g({})", 0},
    {"lfm2", "<|tool_call_start|>[f(a='x', b=2, c=[1, {'k': True}], d=None), g()]<|tool_call_end|>ok", "f({\"a\":\"x\",\"b\":2,\"c\":[1,{\"k\":true}],\"d\":null})g({})[ok]", 0},
    {"lfm2", "<|tool_call_start|>[f(a=\"it's\", b='q\"\\n')]", "f({\"a\":\"it's\",\"b\":\"q\\\"\\n\"})", 0},
    {"gemma4", "<|tool_call>call:get_weather{city:<|\"|>Pa'r\"is<|\"|>,days:2,l:[true,{<|\"|>k<|\"|>:null,j:-1.5}]}<tool_call|>ok", "get_weather({\"city\":\"Pa'r\\\"is\",\"days\":2,\"l\":[true,{\"k\":null,\"j\":-1.5}]})[ok]", 0},
    {"gemma4", "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:<|\"|><tool_call|>", "f({})[<|tool_call>call:g{a:<|\"|><tool_call|>]", 0},
    {"lfm2", "<|tool_call_start|>[get_weather(city=75001, days=2)]<|tool_call_end|>", "get_weather({\"city\":\"75001\",\"days\":2})", 0},
    {"lfm2", "<|tool_call_start|>[f(a='\\u00e9\\ud83d\\ude00\\ud83d \\u12 \\q')]<|tool_call_end|>", "f({\"a\":\"é😀� \\\\u12 \\\\q\"})", 0},
    {"olmo3", "<function_calls>\nf(a=\"x\")\ng(b=true)\n</function_calls>ok", "f({\"a\":\"x\"})g({\"b\":true})[ok]", 0},
    {"olmo3", "<function_calls>\nf(a=\"x\") and\n</function_calls>", "[<function_calls>\nf(a=\"x\") and\n</function_calls>]", 0},
    {"phi4-mini", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>ok", "f({})[ok]", 0},
    {"command-r", "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {}\n    }\n]```", "f({})", 0},
    {"command-r", "Action: none", "[Action: none]", 0},
    {"kimi-k3", "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>12<|close|>argument<|sep|><|open|>argument key=\"b\" type=\"number\"<|sep|>12<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
     "f({\"a\":\"12\",\"b\":12})", 0},
    {"minimax-m3", "Ok]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>x]<]minimax[>[</a>]<]minimax[>[<l>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</l>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>.", "[Ok]f({\"a\":\"x\",\"l\":[1]})[.]", 0},
    {"minimax-m3", "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>x]<]minimax[>[</b>]<]minimax[>[</invoke>", "[]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>x]<]minimax[>[</b>]<]minimax[>[</invoke>]", 0},
    {"minimax-m3", "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[</invoke>", "f({})", 0},
    {"pythonic", "[get_weather(city=\"Paris\", days=\"2\"), search(q='x')]", "get_weather({\"city\":\"Paris\",\"days\":2})search({\"q\":\"x\"})", 0},
    {"pythonic", "<|python_start|>[f(a=1)]<|python_end|>ok", "f({\"a\":1})[ok]", 0},
    {"pythonic", "[Note] that (this) is text", "[[Note] that (this) is text]", 0},
    {"pythonic", "[unknown(a=1)]", "[[unknown(a=1)]]", 0},
    {"pythonic", "[search(a=1)", "[[search(a=1)]", 0},
    {"pythonic", "[", "[[]", 0},
    {"pythonic", "Ok: [search(a=1)]", "[Ok: [search(a=1)]]", 0},
    {"functiongemma", "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:<escape>2<escape>,l:[<escape>a<escape>]}<end_function_call>", "get_weather({\"city\":\"Paris\",\"days\":2,\"l\":[\"a\"]})", 0},
    {"internlm", "Ok<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {}}<|action_end|>", "[Ok]f({})", 0},
    {"granite-20b", "<function_call> {\"name\": \"f\", \"arguments\": {}}\n<function_call> {\"name\": \"g\", \"arguments\": {}}", "f({})g({})", 0},
    /* The types of a schema. */
    {"qwen3-coder", "<function=typed>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=either>\n5\n</parameter>\n<parameter=choice>\n5\n</parameter>\n<parameter=place>\n5\n</parameter>\n<parameter=flag>\nFalse\n</parameter>\n<parameter=list>\n['a', None]\n</parameter>\n<parameter=other>\n[1]\n</parameter>\n</function>",
     "typed({\"maybe\":null,\"either\":5,\"choice\":\"5\",\"place\":\"5\",\"flag\":false,\"list\":[\"a\",null],\"other\":[1]})", 0},
    {"qwen3-coder", "<function=typed>\n<parameter=maybe>\nx\n</parameter>\n<parameter=either>\ntrue\n</parameter>\n<parameter=flag>\nperhaps\n</parameter>\n<parameter=list>\n['a'\n</parameter>\n<parameter=loop>\n5\n</parameter>\n</function>",
     "typed({\"maybe\":\"x\",\"either\":\"true\",\"flag\":\"perhaps\",\"list\":\"['a'\",\"loop\":5})", 0},
    {"lfm2", "<|tool_call_start|>[f(a=]<|tool_call_end|>", "[<|tool_call_start|>[f(a=]<|tool_call_end|>]", 0},
    {"lfm2", "<|tool_call_start|>[f(a=1), oops]<|tool_call_end|>", "[<|tool_call_start|>[f(a=1), oops]<|tool_call_end|>]", 0},
};
/* clang-format on */

static bool check_row(const row *r, size_t cut1, size_t cut2)
{
    reply_format f = reply_format_by_name(r->format);
    reply_options options = {.is_thinking = r->flags & THINKING,
                             .keeps_calls = r->flags & KEEPS_CALLS,
                             .keeps_thinking = r->flags & KEEPS_THINKING,
                             .tools = tools};
    transcript t;
    if (!CHECK(f.calls != NULL))
        return false;
    parse(&f, &options, r->reply, cut1, cut2, &t);
    const char *got = t.text.data ? t.text.data : "";
    if (t.text.data)
        t.text.data[t.text.size] = 0;
    bool is_right = strcmp(got, r->expected) == 0;
    if (!CHECK(is_right))
        tap_note("%s: %s\n#   gives %s\n#   not   %s\n#   cut at %zu, %zu", r->format, r->reply,
                 got, r->expected, cut1, cut2);
    buf_deinit(&t.text);
    return is_right;
}

static void check_format(void *arg)
{
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].format, arg) != 0)
            continue;
        size_t length = strlen(rows[i].reply);
        bool is_right = check_row(&rows[i], length, length) && check_row(&rows[i], SIZE_MAX, 0);
        for (size_t cut = 1; cut < length && is_right; cut++)
            is_right = check_row(&rows[i], cut, length);
        for (size_t cut = 1; cut + 3 < length && is_right; cut++)
            is_right = check_row(&rows[i], cut, cut + 3);
        n++;
    }
    CHECK(n > 0);
}

static void every_format_reads_the_same_however_it_is_cut(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[96];
        bool is_first = true;
        for (size_t k = 0; k < i; k++)
            is_first = is_first && strcmp(rows[k].format, rows[i].format) != 0;
        snprintf(name, sizeof name, "%s_reads_the_same_however_it_is_cut", rows[i].format);
        if (is_first)
            tap_case_arg(name, check_format, (void *)rows[i].format);
    }
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static void formats_are_chosen_by_the_template(void)
{
    static const struct {
        const char *file, *calls, *thinking;
    } known[] = {
        {"Qwen-Qwen3-0.6B", "hermes", "<think>"},
        {"Qwen-Qwen2.5-7B-Instruct", "hermes", NULL},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", NULL},
        {"Qwen3-Coder", "qwen3-coder", NULL},
        {"Qwen3.5-4B", "qwen3-coder", "<think>"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3", NULL},
        {"meta-llama-Llama-3.2-3B-Instruct", "llama3", NULL},
        {"mistralai-Mistral-Nemo-Instruct-2407", "mistral-list", NULL},
        {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", NULL},
        {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "[THINK]"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1", "<think>"},
        {"deepseek-ai-DeepSeek-V3.1", "deepseek", "<think>"},
        {"deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2", "<think>"},
        {"deepseek-ai-DeepSeek-V4", "deepseek-v4", "<think>"},
        {"openai-gpt-oss-120b", "harmony", NULL},
        {"GLM-4.6", "glm", "<think>"},
        {"Kimi-K2-Instruct", "kimi-k2", NULL},
        {"ByteDance-Seed-OSS", "seed-oss", "<seed:think>"},
        {"MiniMax-M2", "minimax-m2", "<think>"},
        {"LFM2.5-8B-A1B", "lfm2", "<think>"},
        {"meetkai-functionary-medium-v3.1", "functionary", NULL},
        {"tencent-Hy3", "hunyuan", "<think:opensource>"},
        {"openbmb-MiniCPM5-1B", "minicpm", "<think>"},
        {"upstage-Solar-Open-100B", "solar", "<|think|>"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char relative[200];
        snprintf(relative, sizeof relative, "templates/%s.jinja", known[i].file);
        char *path = data_path(relative);
        FILE *file = path ? fopen(path, "rb") : NULL;
        free(path);
        if (!CHECK(file))
            return;
        char *source = calloc(1, 1 << 20);
        size_t n = source ? fread(source, 1, (1 << 20) - 1, file) : 0;
        fclose(file);
        reply_format f = reply_format_choose((text){source, n});
        if (!CHECK(strcmp(reply_format_name(&f), known[i].calls) == 0))
            tap_note("%s is %s, not %s", known[i].file, reply_format_name(&f), known[i].calls);
        if (known[i].thinking) {
            char prompt[64];
            snprintf(prompt, sizeof prompt, "x%s\n", known[i].thinking);
            CHECK(reply_opens_thinking(&f, text_of(prompt)));
        } else if (!CHECK(!f.thinking)) {
            tap_note("%s: reasoning", known[i].file);
        }
        free(source);
    }
    reply_format f = reply_format_choose(text_of("no clue"));
    CHECK(strcmp(reply_format_name(&f), "hermes") == 0 && !f.thinking);
    CHECK(!reply_opens_thinking(&f, text_of("<think>")));
}

/* ---- Streaming ------------------------------------------------------------------------------- */

static void arguments_come_as_they_are_written(void)
{
    reply_format f = reply_format_by_name("hermes");
    reply_options options = {0};
    reply_parser *p;
    lace_error err = {0};
    transcript t = {0};
    buf_init(&t.text, 1 << 20);
    CHECK(reply_parser_create(&f, &options, add_event, &t, &p, &err) == LACE_OK);
    CHECK(reply_parser_feed(p, text_of("Hi <tool_call>{\"name\": \"f\", \"argum"), &err) == 0);
    CHECK(strcmp(t.text.data, "[Hi]") == 0);
    CHECK(reply_parser_feed(p, text_of("ents\": {\"a\""), &err) == LACE_OK);
    CHECK(strcmp(t.text.data, "[Hi]f({\"a\"") == 0);
    CHECK(reply_parser_feed(p, text_of(": 12"), &err) == LACE_OK);
    CHECK(strcmp(t.text.data, "[Hi]f({\"a\": 12") == 0);
    CHECK(reply_parser_feed(p, text_of("3}}"), &err) == LACE_OK);
    CHECK(strcmp(t.text.data, "[Hi]f({\"a\": 123})") == 0);
    CHECK(reply_parser_finish(p, &err) == LACE_OK);
    reply_parser_free(p);
    buf_deinit(&t.text);
}

static lace_status refuse(void *arg, const reply_event *e)
{
    return LACE_E_CANCELLED;
}

static void a_sink_can_stop_the_parser(void)
{
    reply_format f = reply_format_by_name("hermes");
    reply_options options = {0};
    reply_parser *p;
    lace_error err = {0};
    CHECK(reply_parser_create(&f, &options, refuse, NULL, &p, &err) == LACE_OK);
    CHECK(reply_parser_feed(p, text_of("Hi"), &err) == LACE_E_CANCELLED);
    CHECK(err.status == LACE_E_CANCELLED);
    reply_parser_free(p);
}

static lace_status ignore(void *arg, const reply_event *e)
{
    return LACE_OK;
}

static lace_status parse_quietly(const char *format, const char *reply, lace_error *err)
{
    reply_format f = reply_format_by_name(format);
    reply_options options = {.tools = tools};
    reply_parser *p;
    lace_status status = reply_parser_create(&f, &options, ignore, NULL, &p, err);
    if (status == LACE_OK)
        status = reply_parser_feed(p, text_of(reply), err);
    if (status == LACE_OK)
        status = reply_parser_finish(p, err);
    reply_parser_free(p);
    return status;
}

static void every_allocation_may_fail(void)
{
    long total = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (long k = 0; k < 1000; k++) {
            lace_error err = {0};
            mem_fail_at(k, false);
            lace_status status = parse_quietly(rows[i].format, rows[i].reply, &err);
            long n = mem_count();
            mem_fail_at(-1, false);
            total += n <= k ? n : 0;
            CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.status == status));
            if (n <= k)
                break;
        }
    }
    tap_note("%ld allocations", total);
    CHECK(total > 300);
}

int main(void)
{
    static const char tools_text[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\":"
        " {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\":"
        " {\"type\": \"integer\"}}}}}, {\"type\": \"function\", \"function\": {\"name\":"
        " \"search\"}}, {\"name\": \"typed\", \"input_schema\": {\"$defs\": {\"place\": {\"type\":"
        " \"string\"}, \"loop\": {\"$ref\": \"#/$defs/loop\"}}, \"properties\": {\"maybe\": "
        "{\"type\":"
        " [\"string\", \"null\"]}, \"either\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\":"
        " \"integer\"}]}, \"choice\": {\"enum\": [\"5\", \"6\"]}, \"place\": {\"$ref\":"
        " \"#/$defs/place\"}, \"flag\": {\"type\": \"boolean\"}, \"list\": {\"type\": \"array\"},"
        " \"loop\": {\"$ref\": \"#/$defs/loop\"}}}}]";
    lace_error err;
    if (json_read((span){(const uint8_t *)tools_text, strlen(tools_text)}, 0, &tools, &err) != 0)
        return 1;
    every_format_reads_the_same_however_it_is_cut();
    CASE(formats_are_chosen_by_the_template);
    CASE(arguments_come_as_they_are_written);
    CASE(a_sink_can_stop_the_parser);
    CASE(every_allocation_may_fail);
    json_decref(tools);
    return tap_end();
}
