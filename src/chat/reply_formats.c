/* The formats in which models write reasoning and tool calls. */
#include "chat/reply_formats.h"

#include <string.h>

/* clang-format off */

/* In the order in which clues are looked for: the special before the general. */
static const reply_calls calls[] = {
    {.name = "harmony", .clues = {"<|channel|>", "<|message|>"}, .style = CALL_HARMONY,
     .shape = "<|channel|>commentary to=functions.$n <|constrain|>json<|message|>$a"},
    {.name = "deepseek-r1", .clues = {"<｜tool▁calls▁begin｜>", "```json"}, .style = CALL_NAME_JSON,
     .section_begin = "<｜tool▁calls▁begin｜>", .section_end = "<｜tool▁calls▁end｜>",
     .call_begin = "<｜tool▁call▁begin｜>", .call_end = "<｜tool▁call▁end｜>",
     .name_begin = "<｜tool▁sep｜>", .name_end = "\n```json\n",
     .shape = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>$n\n```json\n$a\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {.name = "deepseek", .clues = {"<｜tool▁calls▁begin｜>"}, .style = CALL_NAME_JSON,
     .section_begin = "<｜tool▁calls▁begin｜>", .section_end = "<｜tool▁calls▁end｜>",
     .call_begin = "<｜tool▁call▁begin｜>", .call_end = "<｜tool▁call▁end｜>",
     .name_end = "<｜tool▁sep｜>",
     .shape = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>$n<｜tool▁sep｜>$a<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {.name = "deepseek-v3.2", .clues = {"｜DSML｜", "function_calls>"}, .style = CALL_TAGGED,
     .section_begin = "<｜DSML｜function_calls>", .section_end = "</｜DSML｜function_calls>",
     .call_begin = "<｜DSML｜invoke name=\"", .call_end = "</｜DSML｜invoke>", .name_end = "\">",
     .key_begin = "<｜DSML｜parameter name=\"", .key_end = ">", .value_end = "</｜DSML｜parameter>",
     .shape = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"$n\">\n$p</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     .param = "<｜DSML｜parameter name=\"$k\" string=\"$s\">$v</｜DSML｜parameter>\n"},
    {.name = "deepseek-v4", .clues = {"｜DSML｜", "tool_calls>"}, .style = CALL_TAGGED,
     .section_begin = "<｜DSML｜tool_calls>", .section_end = "</｜DSML｜tool_calls>",
     .call_begin = "<｜DSML｜invoke name=\"", .call_end = "</｜DSML｜invoke>", .name_end = "\">",
     .key_begin = "<｜DSML｜parameter name=\"", .key_end = ">", .value_end = "</｜DSML｜parameter>",
     .shape = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"$n\">\n$p</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     .param = "<｜DSML｜parameter name=\"$k\" string=\"$s\">$v</｜DSML｜parameter>\n"},
    {.name = "kimi-k3", .clues = {"<|open|>", "<|close|>"}, .style = CALL_TAGGED,
     .section_begin = "<|open|>tools<|sep|>", .section_end = "<|close|>tools<|sep|>",
     .call_begin = "<|open|>call tool=\"", .call_end = "<|close|>call<|sep|>",
     .name_end = "<|sep|>",
     .key_begin = "<|open|>argument key=\"", .key_end = "<|sep|>",
     .value_end = "<|close|>argument<|sep|>",
     .shape = "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"$n\" index=\"1\"<|sep|>$p<|close|>call<|sep|><|close|>tools<|sep|>",
     .param = "<|open|>argument key=\"$k\" type=\"$t\"<|sep|>$v<|close|>argument<|sep|>"},
    {.name = "mistral", .clues = {"[TOOL_CALLS]", "[ARGS]"}, .style = CALL_NAME_JSON,
     .call_begin = "[TOOL_CALLS]", .name_end = "[ARGS]",
     .shape = "[TOOL_CALLS]$n[ARGS]$a"},
    {.name = "mistral-list", .clues = {"[TOOL_CALLS]"}, .style = CALL_JSON,
     .call_begin = "[TOOL_CALLS]",
     .shape = "[TOOL_CALLS][{\"name\": \"$n\", \"arguments\": $a}]"},
    {.name = "kimi-k2", .clues = {"<|tool_calls_section_begin|>"}, .style = CALL_NAME_JSON,
     .section_begin = "<|tool_calls_section_begin|>", .section_end = "<|tool_calls_section_end|>",
     .call_begin = "<|tool_call_begin|>", .call_end = "<|tool_call_end|>",
     .name_end = "<|tool_call_argument_begin|>",
     .shape = "<|tool_calls_section_begin|><|tool_call_begin|>functions.$n:0<|tool_call_argument_begin|>$a<|tool_call_end|><|tool_calls_section_end|>"},
    {.name = "seed-oss", .clues = {"<seed:tool_call>"}, .style = CALL_TAGGED,
     .section_begin = "<seed:tool_call>", .section_end = "</seed:tool_call>",
     .call_begin = "<function=", .call_end = "</function>", .name_end = ">",
     .key_begin = "<parameter=", .key_end = ">", .value_end = "</parameter>",
     .shape = "<seed:tool_call>\n<function=$n>\n$p</function>\n</seed:tool_call>",
     .param = "<parameter=$k>$v</parameter>\n"},
    {.name = "qwen3-coder", .clues = {"<function=", "<parameter="}, .style = CALL_TAGGED,
     .section_begin = "<tool_call>", .section_end = "</tool_call>",
     .call_begin = "<function=", .call_end = "</function>", .name_end = ">",
     .key_begin = "<parameter=", .key_end = ">", .value_end = "</parameter>",
     .shape = "<tool_call>\n<function=$n>\n$p</function>\n</tool_call>",
     .param = "<parameter=$k>\n$v\n</parameter>\n"},
    {.name = "functionary", .clues = {"<function=", "</function>"}, .style = CALL_NAME_JSON,
     .call_begin = "<function=", .call_end = "</function>", .name_end = ">",
     .shape = "<function=$n>$a</function>"},
    {.name = "glm", .clues = {"<arg_key>"}, .style = CALL_TAGGED,
     .call_begin = "<tool_call>", .call_end = "</tool_call>",
     .key_begin = "<arg_key>", .key_end = "</arg_key>",
     .value_begin = "<arg_value>", .value_end = "</arg_value>",
     .shape = "<tool_call>$n\v$p</tool_call>",
     .param = "<arg_key>$k</arg_key>\v<arg_value>$v</arg_value>\v"},
    {.name = "hunyuan", .clues = {"<arg_key{}>"}, .style = CALL_TAGGED,
     .section_begin = "<tool_calls:opensource>", .section_end = "</tool_calls:opensource>",
     .call_begin = "<tool_call:opensource>", .call_end = "</tool_call:opensource>",
     .name_end = "<tool_sep:opensource>",
     .key_begin = "<arg_key:opensource>", .key_end = "</arg_key:opensource>",
     .value_begin = "<arg_value:opensource>", .value_end = "</arg_value:opensource>",
     .shape = "<tool_calls:opensource>\n<tool_call:opensource>$n<tool_sep:opensource>\n$p</tool_call:opensource>\n</tool_calls:opensource>",
     .param = "<arg_key:opensource>$k</arg_key:opensource>\n<arg_value:opensource>$v</arg_value:opensource>\n"},
    {.name = "minimax-m2", .clues = {"<minimax:tool_call>"}, .style = CALL_TAGGED,
     .section_begin = "<minimax:tool_call>", .section_end = "</minimax:tool_call>",
     .call_begin = "<invoke name=\"", .call_end = "</invoke>", .name_end = "\">",
     .key_begin = "<parameter name=\"", .key_end = "\">", .value_end = "</parameter>",
     .shape = "<minimax:tool_call>\n<invoke name=\"$n\">\n$p</invoke>\n</minimax:tool_call>",
     .param = "<parameter name=\"$k\">$v</parameter>\n"},
    {.name = "minimax-m3", .clues = {"]<]minimax[>["}, .style = CALL_XML,
     .section_begin = "]<]minimax[>[<tool_call>", .section_end = "]<]minimax[>[</tool_call>",
     .call_begin = "]<]minimax[>[<invoke name=\"", .call_end = "]<]minimax[>[</invoke>",
     .name_end = "\">", .key_begin = "]<]minimax[>[<", .key_end = ">"},
    {.name = "atem", .clues = {"atem:function_calls"}, .style = CALL_TAGGED,
     .section_begin = "<atem:function_calls>", .section_end = "</atem:function_calls>",
     .call_begin = "<atem:invoke name=\"", .call_end = "</atem:invoke>", .name_end = "\">",
     .key_begin = "<atem:parameter name=\"", .key_end = "\">", .value_end = "</atem:parameter>"},
    {.name = "minicpm", .clues = {"<function name=", "<param name="}, .style = CALL_TAGGED,
     .call_begin = "<function name=\"", .call_end = "</function>", .name_end = "\">",
     .key_begin = "<param name=\"", .key_end = "\">", .value_end = "</param>",
     .shape = "<function name=\"$n\">$p</function>",
     .param = "<param name=\"$k\">$v</param>"},
    {.name = "solar", .clues = {"<|tool_call:begin|>"}, .style = CALL_NAME_JSON,
     .section_begin = "<|tool_calls|>", .section_end = "<|calls|>",
     .call_begin = "<|tool_call:begin|>", .call_end = "<|tool_call:end|>",
     .name_begin = "<|tool_call:name|>", .name_end = "<|tool_call:args|>",
     .shape = "<|tool_calls|><|tool_call:begin|>call_1<|tool_call:name|>$n<|tool_call:args|>$a<|tool_call:end|>"},
    {.name = "lfm2", .clues = {"<|tool_call_start|>"}, .style = CALL_PYTHON,
     .call_begin = "<|tool_call_start|>", .call_end = "<|tool_call_end|>",
     .shape = "<|tool_call_start|>[$n($y)]<|tool_call_end|>"},
    {.name = "lfm2", .clues = {"List of tools: "}, .style = CALL_PYTHON,
     .call_begin = "<|tool_call_start|>", .call_end = "<|tool_call_end|>",
     .shape = "<|tool_call_start|>[$n($y)]<|tool_call_end|>"},
    {.name = "gemma4", .clues = {"<|tool_call>", "<tool_call|>"}, .style = CALL_PYTHON,
     .call_begin = "<|tool_call>", .call_end = "<tool_call|>", .value_begin = "<|\"|>",
     .shape = "<|tool_call>call:$n{$g}<tool_call|>"},
    {.name = "olmo3", .clues = {"<function_calls>", "</function_calls>"}, .style = CALL_PYTHON,
     .call_begin = "<function_calls>", .call_end = "</function_calls>",
     .shape = "<function_calls>$n($y)</function_calls>"},
    {.name = "functiongemma", .clues = {"<start_function_call>", "<escape>"},
     .style = CALL_PYTHON,
     .call_begin = "<start_function_call>", .call_end = "<end_function_call>",
     .value_begin = "<escape>",
     .shape = "<start_function_call>call:$n{$g}<end_function_call>"},
    {.name = "pythonic", .clues = {"[func_name1("}, .style = CALL_PYTHON,
     .call_begin = "<|python_start|>", .call_end = "<|python_end|>", .is_bare = true,
     .shape = "[$n($y)]"},
    {.name = "nemotron", .clues = {"<TOOLCALL>"}, .style = CALL_JSON,
     .call_begin = "<TOOLCALL>", .call_end = "</TOOLCALL>",
     .shape = "<TOOLCALL>[{\"name\": \"$n\", \"arguments\": $a}]</TOOLCALL>"},
    {.name = "cohere", .clues = {"<|START_ACTION|>"}, .style = CALL_JSON,
     .call_begin = "<|START_ACTION|>", .call_end = "<|END_ACTION|>",
     .shape = "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"$n\", \"parameters\": $a}\n]<|END_ACTION|>"},
    {.name = "command-r", .clues = {"Action:", "\"tool_name\""}, .style = CALL_JSON,
     .call_begin = "Action:\n```json\n", .call_end = "```",
     .shape = "Action:\n```json\n[\n    {\n        \"tool_name\": \"$n\",\n        \"parameters\": $a\n    }\n]```"},
    {.name = "apertus", .clues = {"<|tools_prefix|>"}, .style = CALL_JSON,
     .call_begin = "<|tools_prefix|>", .call_end = "<|tools_suffix|>",
     .shape = "<|tools_prefix|>[{\"$n\": $a}]<|tools_suffix|>"},
    {.name = "apriel", .clues = {"<tool_calls>["}, .style = CALL_JSON,
     .call_begin = "<tool_calls>", .call_end = "</tool_calls>",
     .shape = "<tool_calls>[{\"name\": \"$n\", \"arguments\": $a}]</tool_calls>"},
    {.name = "tool-calls", .clues = {"<tool_calls>"}, .style = CALL_JSON,
     .call_begin = "<tool_calls>", .call_end = "</tool_calls>",
     .shape = "<tool_calls>\n{\"name\": \"$n\", \"arguments\": $a}\n</tool_calls>"},
    {.name = "gigachat", .clues = {"<|function_call|>"}, .style = CALL_JSON,
     .call_begin = "<|function_call|>",
     .shape = "<|function_call|>{\"name\": \"$n\", \"arguments\": $a}"},
    {.name = "gigachat3", .clues = {"'role': 'function call'", "<|role_sep|>"}, .style = CALL_JSON,
     .call_begin = "function call<|role_sep|>",
     .shape = "function call<|role_sep|>\n{\"name\": \"$n\", \"arguments\": $a}"},
    {.name = "phi4-mini", .clues = {"<|tool|>", "<|/tool|>"}, .style = CALL_JSON,
     .call_begin = "<|tool_call|>", .call_end = "<|/tool_call|>",
     .shape = "<|tool_call|>[{\"name\": \"$n\", \"arguments\": $a}]<|/tool_call|>"},
    {.name = "granite", .clues = {"<|tool_call|>"}, .style = CALL_JSON,
     .call_begin = "<|tool_call|>",
     .shape = "<|tool_call|>[{\"name\": \"$n\", \"arguments\": $a}]"},
    {.name = "internlm", .clues = {"<|action_start|>", "<|plugin|>"}, .style = CALL_JSON,
     .call_begin = "<|action_start|><|plugin|>", .call_end = "<|action_end|>",
     .shape = "<|action_start|><|plugin|>\n{\"name\": \"$n\", \"arguments\": $a}<|action_end|>"},
    {.name = "granite-20b", .clues = {"<function_call> "}, .style = CALL_JSON,
     .call_begin = "<function_call>",
     .shape = "<function_call> {\"name\": \"$n\", \"arguments\": $a}"},
    {.name = "firefunction", .clues = {"functools["}, .style = CALL_JSON,
     .call_begin = "functools",
     .shape = " functools[{\"name\": \"$n\", \"arguments\": $a}]"},
    {.name = "llama3", .clues = {"{\"name\": function name, \"parameters\""}, .style = CALL_JSON,
     .call_begin = "<|python_tag|>", .is_bare = true,
     .shape = "{\"name\": \"$n\", \"parameters\": $a}"},
    {.name = "llama3", .clues = {"<|python_tag|>"}, .style = CALL_JSON,
     .call_begin = "<|python_tag|>", .is_bare = true,
     .shape = "{\"name\": \"$n\", \"parameters\": $a}"},
    {.name = "hermes", .clues = {"<tool_call>"}, .style = CALL_JSON,
     .call_begin = "<tool_call>", .call_end = "</tool_call>",
     .shape = "<tool_call>\v{\"name\": \"$n\", \"arguments\": $a}\v</tool_call>"},
};

/* What described_tools.c asks for, and what many models write by themselves. */
static const reply_calls described = {.name = "json", .style = CALL_JSON,
    .call_begin = "<tool_call>", .call_end = "</tool_call>", .is_bare = true,
     .shape = "{\"name\": \"$n\", \"arguments\": $a}"};

static const reply_thinking thinkings[] = {
    {"<think>", "</think>", NULL},
    {"<seed:think>", "</seed:think>", NULL},
    {"<mm:think>", "</mm:think>", NULL},
    {"<|channel>thought", "<channel|>", NULL},
    {"[THINK]", "[/THINK]", NULL},
    {"<|START_THINKING|>", "<|END_THINKING|>", NULL},
    {"<|inner_prefix|>", "<|inner_suffix|>", NULL},
    {"<think:opensource>", "</think:opensource>", "<think{}>"},
    {"<|open|>think<|sep|>", "<|close|>think<|sep|>", "open_tag('think')"},
    {"<|think|>", "<|end|>", "assistant<|think|>"},
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", NULL},
};

static const reply_answer answers[] = {
    {.begin = "<|START_RESPONSE|>", .end = "<|END_RESPONSE|>", .is_marked = true},
    {.begin = "<|START_TEXT|>", .end = "<|END_TEXT|>", .is_marked = true},
    {.begin = "<|open|>response<|sep|>", .end = "<|close|>response<|sep|>", .is_marked = true,
     .clue = "open_tag('response')", .trailer = "<|close|>message<|sep|>"},
    {.begin = "<|content|>", .clue = "assistant<|content|>", .trailer = "<|begin|>assistant"},
    {.end = "[END FINAL RESPONSE]", .clue = "[BEGIN FINAL RESPONSE]", .is_marked = true},
    {.begin = "<response>", .end = "</response>", .clue = "<response></response>"},
    {.begin = "<response>", .end = "</response>", .clue = "<response>\\n"},
    {.begin = "<answer>", .end = "</answer>"},
    {.begin = "<answer>", .end = "</answer>", .clue = "<|extra_0|>"},
};

/* clang-format on */

enum {
    N_CALLS = sizeof calls / sizeof calls[0],
    N_THINKINGS = sizeof thinkings / sizeof thinkings[0],
    N_ANSWERS = sizeof answers / sizeof answers[0]
};

static bool contains(text t, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; n <= t.size && i <= t.size - n; i++)
        if (t.data[i] == word[0] && memcmp(t.data + i, word, n) == 0)
            return true;
    return false;
}

static reply_format with_thinking(const reply_calls *row, text template_source)
{
    reply_format f = {.calls = row};
    for (int i = 0; i < N_THINKINGS && !f.thinking; i++) {
        const reply_thinking *t = &thinkings[i];
        if (t->clue ? contains(template_source, t->clue)
                    : contains(template_source, t->begin) || contains(template_source, t->end))
            f.thinking = t;
    }
    for (int i = 0; i < N_ANSWERS && !f.answer; i++) {
        const reply_answer *a = &answers[i];
        if (contains(template_source, a->clue ? a->clue : a->begin))
            f.answer = a;
    }
    return f;
}

reply_format reply_format_choose(text template_source)
{
    for (int i = 0; i < N_CALLS; i++)
        if (contains(template_source, calls[i].clues[0]) &&
            (!calls[i].clues[1] || contains(template_source, calls[i].clues[1])))
            return with_thinking(&calls[i], template_source);
    return with_thinking(&calls[N_CALLS - 1], template_source);
}

reply_format reply_format_by_name(const char *name)
{
    for (int i = 0; i < N_CALLS; i++)
        if (strcmp(calls[i].name, name) == 0)
            return (reply_format){.calls = &calls[i], .thinking = &thinkings[0]};
    return (reply_format){0};
}

reply_format reply_format_described(const reply_format *f)
{
    return (reply_format){.calls = &described, .thinking = f->thinking, .answer = f->answer};
}

const char *reply_format_name(const reply_format *f)
{
    return f->calls->name;
}

bool reply_thinking_words(const reply_format *f, const char **begin, const char **end)
{
    *begin = f->thinking ? f->thinking->begin : NULL;
    *end = f->thinking ? f->thinking->end : NULL;
    return f->thinking != NULL;
}

bool reply_opens_thinking(const reply_format *f, text prompt)
{
    if (!f->thinking)
        return false;
    size_t n = strlen(f->thinking->begin);
    while (prompt.size > 0 &&
           (prompt.data[prompt.size - 1] == '\n' || prompt.data[prompt.size - 1] == ' '))
        prompt.size--;
    return prompt.size >= n && memcmp(prompt.data + prompt.size - n, f->thinking->begin, n) == 0;
}
