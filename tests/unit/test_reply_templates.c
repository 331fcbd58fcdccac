/*
 * chat: every template of the test data, from the request to the reply. Which format it has, that it
 * shows tools, calls and results of several turns, and that a reply in its format, with reasoning
 * and one or two calls, is taken apart with the types that the tools' schemas have, however the text
 * is cut.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/call_grammar.h"
#include "chat/chat.h"
#include "chat_kit.h"
#include "data.h"
#include "tap.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "
    "\"tells\","
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\","
    " \"description\": \"a name\"}, \"days\": {\"type\": \"integer\", \"description\": \"how "
    "many\"},"
    " \"exact\": {\"type\": \"boolean\", \"description\": \"or not\"},"
    " \"tags\": {\"type\": \"array\", \"description\": \"some\", \"items\": {\"type\": "
    "\"string\"}},"
    " \"where\": {\"type\": \"object\", \"description\": \"a place\", \"properties\": {\"lat\":"
    " {\"type\": \"number\", \"description\": \"degrees\"}}}}, \"required\": [\"city\"]}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"search\", \"description\": \"finds\","
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"query\": {\"type\": \"string\","
    " \"description\": \"words\"}}, \"required\": [\"query\"]}}}]";

#define ARGS_1                                                                                     \
    "{\"city\": \"75001\", \"days\": 2, \"exact\": true, \"tags\": [\"a\", \"b\"],"                \
    " \"where\": {\"lat\": 1.5}}"
#define ARGS_2 "{\"query\": \"x < y\"}"
#define CALL_1                                                                                     \
    "{\"id\": \"call00001\", \"type\": \"function\", \"function\": {\"name\": \"get_weather\","    \
    " \"arguments\": " ARGS_1 "}}"
#define CALL_2                                                                                     \
    "{\"id\": \"call00002\", \"type\": \"function\", \"function\": {\"name\": \"search\","         \
    " \"arguments\": " ARGS_2 "}}"

static const char turns_text[] =
    "[{\"role\": \"user\", \"content\": \"question_one\"},"
    " {\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"thought_one\","
    " \"tool_calls\": [" CALL_1 ", " CALL_2 "]},"
    " {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"get_weather\", \"content\":"
    " \"result_one\"},"
    " {\"role\": \"tool\", \"tool_call_id\": \"call00002\", \"name\": \"search\", \"content\":"
    " \"result_two\"},"
    " {\"role\": \"assistant\", \"content\": \"answer_one\"},"
    " {\"role\": \"user\", \"content\": \"question_two\"}]";

/* ---- The tables ------------------------------------------------------------------------------ */

/* clang-format off */

/* What models of a format write: the first call, and both, as ARGS_1 and ARGS_2 have them. */
typedef struct format_row {
    const char *name, *one, *two;
} format_row;

#define HERMES_1 "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " ARGS_1 "}\n</tool_call>"
#define CODER_1 "<tool_call>\n<function=get_weather>\n<parameter=city>\n75001\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n<parameter=where>\n{\"lat\": 1.5}\n</parameter>\n</function>\n</tool_call>"
#define SEED_1 "<seed:tool_call>\n<function=get_weather>\n<parameter=city>75001</parameter>\n<parameter=days>2</parameter>\n<parameter=exact>True</parameter>\n<parameter=tags>['a', 'b']</parameter>\n<parameter=where>{'lat': 1.5}</parameter>\n</function>\n</seed:tool_call>"
#define GLM_1 "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>75001</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>exact</arg_key>\n<arg_value>true</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>[\"a\", \"b\"]</arg_value>\n<arg_key>where</arg_key>\n<arg_value>{\"lat\": 1.5}</arg_value>\n</tool_call>"
#define HY_1 "<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>75001</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n<arg_key:opensource>exact</arg_key:opensource>\n<arg_value:opensource>true</arg_value:opensource>\n<arg_key:opensource>tags</arg_key:opensource>\n<arg_value:opensource>[\"a\", \"b\"]</arg_value:opensource>\n<arg_key:opensource>where</arg_key:opensource>\n<arg_value:opensource>{\"lat\": 1.5}</arg_value:opensource>\n</tool_call:opensource>\n"
#define HY_2 "<tool_call:opensource>search<tool_sep:opensource>\n<arg_key:opensource>query</arg_key:opensource>\n<arg_value:opensource>x < y</arg_value:opensource>\n</tool_call:opensource>\n"
#define INVOKE_1(ns) "<" ns "invoke name=\"get_weather\">\n<" ns "parameter name=\"city\">75001</" ns "parameter>\n<" ns "parameter name=\"days\">2</" ns "parameter>\n<" ns "parameter name=\"exact\">true</" ns "parameter>\n<" ns "parameter name=\"tags\">[\"a\", \"b\"]</" ns "parameter>\n<" ns "parameter name=\"where\">{\"lat\": 1.5}</" ns "parameter>\n</" ns "invoke>\n"
#define INVOKE_2(ns) "<" ns "invoke name=\"search\">\n<" ns "parameter name=\"query\">x < y</" ns "parameter>\n</" ns "invoke>\n"
#define DSML_1 "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">75001</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n<｜DSML｜parameter name=\"exact\" string=\"false\">true</｜DSML｜parameter>\n<｜DSML｜parameter name=\"tags\" string=\"false\">[\"a\", \"b\"]</｜DSML｜parameter>\n<｜DSML｜parameter name=\"where\" string=\"false\">{\"lat\": 1.5}</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
#define DSML_2 "<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter name=\"query\" string=\"true\">x < y</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
#define NS "]<]minimax[>["
#define M3_1 NS "<invoke name=\"get_weather\">" NS "<city>75001" NS "</city>" NS "<days>2" NS "</days>" NS "<exact>true" NS "</exact>" NS "<tags>" NS "<item>a" NS "</item>" NS "<item>b" NS "</item>" NS "</tags>" NS "<where>" NS "<lat>1.5" NS "</lat>" NS "</where>" NS "</invoke>\n"
#define M3_2 NS "<invoke name=\"search\">" NS "<query>x < y" NS "</query>" NS "</invoke>\n"
#define K3_ARG(key, type, value) "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"
#define K3_1 "<|open|>call tool=\"get_weather\" index=\"1\"<|sep|>" K3_ARG("city", "string", "75001") K3_ARG("days", "number", "2") K3_ARG("exact", "boolean", "true") K3_ARG("tags", "array", "[\"a\", \"b\"]") K3_ARG("where", "object", "{\"lat\": 1.5}") "<|close|>call<|sep|>"
#define K3_2 "<|open|>call tool=\"search\" index=\"2\"<|sep|>" K3_ARG("query", "string", "x < y") "<|close|>call<|sep|>"
#define K3_END "<|close|>message<|sep|>"
#define PARAM(key, value) "<param name=\"" key "\">" value "</param>"
#define CPM_1 "<function name=\"get_weather\">" PARAM("city", "75001") PARAM("days", "2") PARAM("exact", "true") PARAM("tags", "[\"a\", \"b\"]") PARAM("where", "{\"lat\": 1.5}") "</function>"
#define KIMI_1 "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" ARGS_1 "<|tool_call_end|>"
#define KIMI_2 "<|tool_call_begin|>functions.search:1<|tool_call_argument_begin|>" ARGS_2 "<|tool_call_end|>"
#define DS_1 "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" ARGS_1 "<｜tool▁call▁end｜>"
#define DS_2 "<｜tool▁call▁begin｜>search<｜tool▁sep｜>" ARGS_2 "<｜tool▁call▁end｜>"
#define R1_1 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" ARGS_1 "\n```<｜tool▁call▁end｜>"
#define R1_2 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n" ARGS_2 "\n```<｜tool▁call▁end｜>"
#define PYTHON_1 "get_weather(city=75001, days=2, exact=True, tags=['a', \"b\"], where={\"lat\": 1.5})"
#define PYTHON_2 "search(query=\"x < y\")"
#define GEMMA_1 "<|tool_call>call:get_weather{city:<|\"|>75001<|\"|>,days:2,exact:true,tags:[<|\"|>a<|\"|>,<|\"|>b<|\"|>],where:{lat:1.5}}<tool_call|>"
#define SOLAR_1 "<|tool_call:begin|>call00001<|tool_call:name|>get_weather<|tool_call:args|>" ARGS_1 "<|tool_call:end|>"
#define SOLAR_2 "<|tool_call:begin|>call00002<|tool_call:name|>search<|tool_call:args|>" ARGS_2 "<|tool_call:end|>"
#define OBJECT_1 "{\"name\": \"get_weather\", \"arguments\": " ARGS_1 "}"
#define OBJECT_2 "{\"name\": \"search\", \"arguments\": " ARGS_2 "}"
#define COHERE_1 "    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": " ARGS_1 "}"
#define COHERE_2 "    {\"tool_call_id\": \"1\", \"tool_name\": \"search\", \"parameters\": " ARGS_2 "}"
#define OSS_1 "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" ARGS_1 "<|call|>"
#define OSS_2 "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>" ARGS_2 "<|call|>"

static const format_row formats[] = {
    {"hermes", HERMES_1, HERMES_1 "\n<tool_call>\n" OBJECT_2 "\n</tool_call>"},
    {"qwen3-coder", CODER_1, CODER_1 "\n<tool_call>\n<function=search>\n<parameter=query>\nx < y\n</parameter>\n</function>\n</tool_call>"},
    {"seed-oss", SEED_1, SEED_1 "\n<seed:tool_call>\n<function=search>\n<parameter=query>x < y</parameter>\n</function>\n</seed:tool_call>"},
    {"glm", GLM_1, GLM_1 "<tool_call>search<arg_key>query</arg_key><arg_value>x < y</arg_value></tool_call>"},
    {"hunyuan", "<tool_calls:opensource>\n" HY_1 "</tool_calls:opensource>", "<tool_calls:opensource>\n" HY_1 HY_2 "</tool_calls:opensource>"},
    {"minimax-m2", "\n<minimax:tool_call>\n" INVOKE_1("") "</minimax:tool_call>", "<minimax:tool_call>\n" INVOKE_1("") INVOKE_2("") "</minimax:tool_call>"},
    {"minimax-m3", NS "<tool_call>\n" M3_1 NS "</tool_call>", NS "<tool_call>\n" M3_1 M3_2 NS "</tool_call>"},
    {"atem", "<atem:function_calls>\n" INVOKE_1("atem:") "</atem:function_calls>", "<atem:function_calls>\n" INVOKE_1("atem:") INVOKE_2("atem:") "</atem:function_calls>"},
    {"deepseek-v3.2", "\n\n<｜DSML｜function_calls>\n" DSML_1 "</｜DSML｜function_calls>", "<｜DSML｜function_calls>\n" DSML_1 DSML_2 "</｜DSML｜function_calls>"},
    {"deepseek-v4", "\n\n<｜DSML｜tool_calls>\n" DSML_1 "</｜DSML｜tool_calls>", "<｜DSML｜tool_calls>\n" DSML_1 DSML_2 "</｜DSML｜tool_calls>"},
    {"deepseek", "<｜tool▁calls▁begin｜>" DS_1 "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>" DS_1 DS_2 "<｜tool▁calls▁end｜>"},
    {"deepseek-r1", "<｜tool▁calls▁begin｜>" R1_1 "<｜tool▁calls▁end｜>", "<｜tool▁calls▁begin｜>" R1_1 "\n" R1_2 "<｜tool▁calls▁end｜>"},
    {"kimi-k2", "<|tool_calls_section_begin|>" KIMI_1 "<|tool_calls_section_end|>", "<|tool_calls_section_begin|>" KIMI_1 KIMI_2 "<|tool_calls_section_end|>"},
    {"kimi-k3", "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>" K3_1 "<|close|>tools<|sep|>" K3_END, "<|open|>tools<|sep|>" K3_1 K3_2 "<|close|>tools<|sep|>" K3_END},
    {"mistral", "[TOOL_CALLS]get_weather[ARGS]" ARGS_1, "[TOOL_CALLS]get_weather[ARGS]" ARGS_1 "[TOOL_CALLS]search[ARGS]" ARGS_2},
    {"mistral-list", "[TOOL_CALLS][" OBJECT_1 "]", "[TOOL_CALLS][" OBJECT_1 ", " OBJECT_2 "]"},
    {"functionary", "<function=get_weather>" ARGS_1 "</function>", "<function=get_weather>" ARGS_1 "</function><function=search>" ARGS_2 "</function>"},
    {"minicpm", CPM_1, CPM_1 "<function name=\"search\">" PARAM("query", "x < y") "</function>"},
    {"solar", "<|begin|>assistant<|tool_calls|>" SOLAR_1 "<|calls|>", "<|begin|>assistant<|tool_calls|>" SOLAR_1 SOLAR_2 "<|calls|>"},
    {"lfm2", "<|tool_call_start|>[" PYTHON_1 "]<|tool_call_end|>", "<|tool_call_start|>[" PYTHON_1 ", " PYTHON_2 "]<|tool_call_end|>"},
    {"olmo3", "<function_calls>\n" PYTHON_1 "\n</function_calls>", "<function_calls>" PYTHON_1 "\n" PYTHON_2 "</function_calls>"},
    {"pythonic", "[" PYTHON_1 "]", "[" PYTHON_1 ", " PYTHON_2 "]"},
    {"functiongemma", "<start_function_call>call:get_weather{city:<escape>75001<escape>,days:2,exact:true,tags:[<escape>a<escape>,<escape>b<escape>],where:{lat:1.5}}<end_function_call>",
     "<start_function_call>call:get_weather{city:<escape>75001<escape>,days:2,exact:<escape>True<escape>,tags:<escape>['a', 'b']<escape>,where:<escape>{'lat': 1.5}<escape>}<end_function_call><start_function_call>call:search{query:<escape>x < y<escape>}<end_function_call>"},
    {"internlm", "<|action_start|><|plugin|>\n" OBJECT_1 "<|action_end|>", "<|action_start|><|plugin|>\n" OBJECT_1 "<|action_end|><|action_start|><|plugin|>\n" OBJECT_2 "<|action_end|>"},
    {"granite-20b", "<function_call> " OBJECT_1, "<function_call> " OBJECT_1 "\n<function_call> " OBJECT_2},
    {"gemma4", GEMMA_1, GEMMA_1 "<|tool_call>call:search{query:<|\"|>x < y<|\"|>}<tool_call|>"},
    {"nemotron", "<TOOLCALL>[" OBJECT_1 "]</TOOLCALL>", "<TOOLCALL>[" OBJECT_1 ", " OBJECT_2 "]</TOOLCALL>"},
    {"cohere", "<|START_ACTION|>[\n" COHERE_1 "\n]<|END_ACTION|>", "<|START_ACTION|>[\n" COHERE_1 ",\n" COHERE_2 "\n]<|END_ACTION|>"},
    {"command-r", "Action:\n```json\n[\n" COHERE_1 "\n]```", "Action:\n```json\n[\n" COHERE_1 ",\n" COHERE_2 "\n]```"},
    {"apertus", "<|tools_prefix|>[{\"get_weather\": " ARGS_1 "}]<|tools_suffix|>", "<|tools_prefix|>[{\"get_weather\": " ARGS_1 "}, {\"search\": " ARGS_2 "}]<|tools_suffix|>"},
    {"apriel", "<tool_calls>[" OBJECT_1 "]</tool_calls>", "<tool_calls>[" OBJECT_1 ", " OBJECT_2 "]</tool_calls>"},
    {"tool-calls", "<tool_calls>\n" OBJECT_1 "\n</tool_calls>", "<tool_calls>\n" OBJECT_1 "\n" OBJECT_2 "\n</tool_calls>"},
    {"gigachat", "<|function_call|>" OBJECT_1, "<|function_call|>" OBJECT_1 "<|function_call|>" OBJECT_2},
    {"gigachat3", "function call<|role_sep|>\n" OBJECT_1, "function call<|role_sep|>\n" OBJECT_1 "function call<|role_sep|>\n" OBJECT_2},
    {"granite", "<|tool_call|>[" OBJECT_1 "]", "<|tool_call|>[" OBJECT_1 ", " OBJECT_2 "]"},
    {"phi4-mini", "<|tool_call|>[" OBJECT_1 "]<|/tool_call|>", "<|tool_call|>[" OBJECT_1 ", " OBJECT_2 "]<|/tool_call|>"},
    {"firefunction", " functools[" OBJECT_1 "]", " functools[" OBJECT_1 ", " OBJECT_2 "]"},
    {"llama3", "{\"name\": \"get_weather\", \"parameters\": " ARGS_1 "}", "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": " ARGS_1 "}; {\"name\": \"search\", \"parameters\": " ARGS_2 "}"},
    {"harmony", OSS_1, OSS_1 OSS_2},
};

/* Every file: its format and the words that begin and end its reasoning. */
typedef struct template_row {
    const char *file, *format, *think_begin, *think_end;
    int flags;
} template_row;

#define THINK "<think>", "</think>"
enum {
    NO_TOOLS = 1,  /* it has no place for them: they are described */
    NO_RENDER = 2, /* it wants variables that nobody gives it, or fails on these tools */
    OPAQUE = 4,    /* its calls are known by their place only, and are not taken apart */
};

static const template_row templates[] = {
    {"Apertus-8B-Instruct", "apertus", "<|inner_prefix|>", "<|inner_suffix|>", 0},
    {"Apriel-1.6-15b-Thinker-fixed", "apriel", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", 0},
    {"Bielik-11B-v3.0-Instruct", "hermes", THINK, 0},
    {"ByteDance-Seed-OSS", "seed-oss", "<seed:think>", "</seed:think>", 0},
    {"Cohere2MoE", "cohere", "<|START_THINKING|>", "<|END_THINKING|>", 0},
    {"CohereForAI-c4ai-command-r-plus-tool_use", "command-r", NULL, NULL, NO_RENDER},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere", "<|START_THINKING|>", "<|END_THINKING|>", 0},
    {"GLM-4.6", "glm", THINK, 0},
    {"GLM-4.7-Flash", "glm", THINK, 0},
    {"GigaChat3-10B-A1.8B", "gigachat3", NULL, NULL, 0},
    {"GigaChat3.1-10B-A1.8B", "gigachat", NULL, NULL, 0},
    {"HuggingFaceTB-SmolLM3-3B", "hermes", THINK, NO_TOOLS},
    {"Kimi-K2-Instruct", "kimi-k2", NULL, NULL, 0},
    {"Kimi-K2-Thinking", "kimi-k2", THINK, 0},
    {"Kimi-K3", "kimi-k3", "<|open|>think<|sep|>", "<|close|>think<|sep|>", 0},
    {"LFM2-8B-A1B", "lfm2", NULL, NULL, 0},
    {"LFM2.5-8B-A1B", "lfm2", THINK, 0},
    {"LFM2.5-Instruct", "lfm2", THINK, 0},
    {"MiMo-VL", "hermes", NULL, NULL, 0},
    {"MiniMax-M1", "tool-calls", NULL, NULL, 0},
    {"MiniMax-M2", "minimax-m2", THINK, 0},
    {"MiniMax-M3", "minimax-m3", "<mm:think>", "</mm:think>", 0},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", NULL, NULL, 0},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder", THINK, 0},
    {"NVIDIA-Nemotron-Nano-v2", "nemotron", THINK, 0},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", NULL, NULL, 0},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", NULL, NULL, 0},
    {"Qwen-QwQ-32B", "hermes", THINK, 0},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", NULL, NULL, 0},
    {"Qwen-Qwen3-0.6B", "hermes", THINK, 0},
    {"Qwen3-Coder", "qwen3-coder", NULL, NULL, 0},
    {"Qwen3.5-4B", "qwen3-coder", THINK, 0},
    {"Reka-Edge", "hermes", THINK, 0},
    {"StepFun3.5-Flash", "qwen3-coder", THINK, 0},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-r1", THINK, NO_TOOLS},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1", THINK, NO_TOOLS},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek", THINK, NO_TOOLS},
    {"deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2", THINK, 0},
    {"deepseek-ai-DeepSeek-V4", "deepseek-v4", THINK, 0},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek-v4", THINK, 0},
    {"fireworks-ai-llama-3-firefunction-v2", "firefunction", NULL, NULL, NO_TOOLS | NO_RENDER},
    {"google-gemma-2-2b-it", "hermes", NULL, NULL, NO_TOOLS},
    {"google-gemma-4-31B-it", "gemma4", "<|channel>thought", "<channel|>", 0},
    {"google-gemma-4-31B-it-interleaved", "gemma4", "<|channel>thought", "<channel|>", 0},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", THINK, 0},
    {"ibm-granite-granite-4.0", "hermes", NULL, NULL, 0},
    {"ibm-granite-granite-4.1", "hermes", NULL, NULL, 0},
    {"llama-cpp-deepseek-r1", "deepseek-r1", THINK, NO_TOOLS},
    {"llama-cpp-rwkv-world", "hermes", THINK, NO_TOOLS},
    {"meetkai-functionary-medium-v3.1", "functionary", NULL, NULL, 0},
    {"meetkai-functionary-medium-v3.2", "hermes", NULL, NULL, OPAQUE},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3", NULL, NULL, 0},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3", NULL, NULL, 0},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3", NULL, NULL, 0},
    {"microsoft-Phi-3.5-mini-instruct", "hermes", NULL, NULL, NO_TOOLS},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "[THINK]", "[/THINK]", 0},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral-list", NULL, NULL, 0},
    {"moonshotai-Kimi-K2", "kimi-k2", NULL, NULL, 0},
    {"muse-glimmer", "atem", NULL, NULL, 0},
    {"openai-gpt-oss-120b", "harmony", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant", 0},
    {"openbmb-MiniCPM5-1B", "minicpm", THINK, 0},
    {"poolside-Laguna-S-2.1", "glm", THINK, 0},
    {"poolside-Laguna-XS-2.1", "glm", THINK, 0},
    {"poolside-Laguna-XS.2", "glm", THINK, 0},
    {"tencent-Hy3", "hunyuan", "<think:opensource>", "</think:opensource>", 0},
    {"unsloth-Apriel-1.5", "apriel", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", 0},
    {"unsloth-mistral-Devstral-Small-2507", "mistral", NULL, NULL, 0},
    {"upstage-Solar-Open-100B", "solar", "<|think|>", "<|end|>", 0},
};
/* clang-format on */

enum {
    N_FORMATS = sizeof formats / sizeof formats[0],
    N_TEMPLATES = sizeof templates / sizeof templates[0],
    MAX_PIECE = 7,
};

static json_t *tools, *turns;

static chat_template *open_template(const template_row *row)
{
    char name[128];
    chat_template *t = NULL;
    lace_error err = {0};
    snprintf(name, sizeof name, "%s.jinja", row->file);
    char *source = read_template(name, strlen(name));
    if (!CHECK(chat_template_create(text_of(source), text_of("<s>"), text_of("</s>"), &t, &err) ==
               LACE_OK))
        tap_note("%s: %s", name, err.text);
    free(source);
    return t;
}

/* ---- Prompts --------------------------------------------------------------------------------- */

static void every_template_is_in_the_table(void)
{
    char *path = data_path("templates");
    DIR *folder = path ? opendir(path) : NULL;
    struct dirent *entry;
    int n = 0;
    while (folder && (entry = readdir(folder))) {
        char *end = strstr(entry->d_name, ".jinja");
        bool is_known = false;
        if (!end)
            continue;
        for (int i = 0; i < N_TEMPLATES; i++)
            is_known = is_known || (strlen(templates[i].file) == (size_t)(end - entry->d_name) &&
                                    strncmp(templates[i].file, entry->d_name,
                                            (size_t)(end - entry->d_name)) == 0);
        n++;
        if (!CHECK(is_known))
            tap_note("%s is not", entry->d_name);
    }
    CHECK(n == N_TEMPLATES);
    if (folder)
        closedir(folder);
    free(path);
}

/* Tools, two calls of one message, their results and what follows: nothing is left out. */
static void several_turns_with_tools_are_shown(void)
{
    static const char *const wanted[] = {"get_weather", "question_one", "75001",
                                         "x < y",       "result_one",   "result_two",
                                         "answer_one",  "question_two"};
    for (int i = 0; i < N_TEMPLATES; i++) {
        chat_template *t = open_template(&templates[i]);
        chat_request request = chat_request_default();
        lace_error err = {0};
        buf out;
        buf_init(&out, 1 << 24);
        request.messages = turns;
        request.tools = tools;
        request.describes_tools = true;
        CHECK(t && chat_template_caps(t)->takes_tools != (bool)(templates[i].flags & NO_TOOLS));
        lace_status status = t ? chat_template_render(t, &request, &out, &err) : LACE_E_ARG;
        if (!CHECK((status == LACE_OK) != (bool)(templates[i].flags & NO_RENDER)))
            tap_note("%s: %s", templates[i].file, err.text);
        for (size_t k = 0; status == LACE_OK && k < sizeof wanted / sizeof wanted[0]; k++)
            if (!CHECK(strstr(out.data, wanted[k]) != NULL))
                tap_note("%s: %s is not in the prompt", templates[i].file, wanted[k]);
        buf_deinit(&out);
        chat_template_free(t);
    }
}

/* ---- Replies --------------------------------------------------------------------------------- */

typedef struct heard {
    buf content, reasoning;
    json_t *calls; /* [name, arguments, name, arguments, ...] */
    buf args;
} heard;

static lace_status hear(void *arg, const reply_event *e)
{
    heard *h = arg;
    if (e->kind == REPLY_CONTENT || e->kind == REPLY_REASONING)
        return buf_append(e->kind == REPLY_CONTENT ? &h->content : &h->reasoning, e->chars.data,
                          e->chars.size);
    if (e->kind == REPLY_CALL_BEGIN) {
        json_array_append_new(h->calls, json_stringn(e->chars.data, e->chars.size));
        buf_clear(&h->args);
        return LACE_OK;
    }
    if (e->kind == REPLY_CALL_ARGS)
        return buf_append(&h->args, e->chars.data, e->chars.size);
    CHECK(e->is_complete);
    json_t *args = json_loadb(h->args.data ? h->args.data : "", h->args.size, 0, NULL);
    json_array_append_new(h->calls, args ? args : json_null());
    return LACE_OK;
}

/* Whether the reply, fed in pieces of `step` bytes, is this reasoning and these calls. */
static bool is_heard(const reply_format *f, const char *reply, size_t step, bool is_thinking,
                     const char *reasoning, const json_t *calls)
{
    reply_options options = {.tools = tools, .is_thinking = is_thinking};
    reply_parser *p = NULL;
    lace_error err = {0};
    heard h = {.calls = json_array()};
    size_t n = strlen(reply);
    buf_init(&h.content, 1 << 16);
    buf_init(&h.reasoning, 1 << 16);
    buf_init(&h.args, 1 << 16);
    CHECK(reply_parser_create(f, &options, hear, &h, &p, &err) == LACE_OK);
    for (size_t i = 0; i < n; i += step)
        CHECK(reply_parser_feed(p, (text){reply + i, n - i < step ? n - i : step}, &err) == 0);
    CHECK(reply_parser_finish(p, &err) == LACE_OK);
    reply_parser_free(p);
    bool is_right =
        h.content.size == 0 && json_equal(h.calls, calls) &&
        h.reasoning.size == strlen(reasoning) &&
        (h.reasoning.size == 0 || memcmp(h.reasoning.data, reasoning, h.reasoning.size) == 0);
    if (!is_right) {
        char *dump = json_dumps(h.calls, 0);
        tap_note("%s in pieces of %zu: content '%.*s', reasoning '%.*s', calls %s",
                 reply_format_name(f), step, (int)h.content.size,
                 h.content.data ? h.content.data : "", (int)h.reasoning.size,
                 h.reasoning.data ? h.reasoning.data : "", dump);
        free(dump);
    }
    buf_deinit(&h.content);
    buf_deinit(&h.reasoning);
    buf_deinit(&h.args);
    json_decref(h.calls);
    return is_right;
}

static const format_row *find_format(const char *name)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

static void replies_are_taken_apart_as_the_template_says(void)
{
    static const char thought[] = "I look.\nThen I call.";
    json_t *one = read_json("[\"get_weather\", " ARGS_1 "]");
    json_t *two = read_json("[\"get_weather\", " ARGS_1 ", \"search\", " ARGS_2 "]");
    int n_replies = 0;
    for (int i = 0; i < N_TEMPLATES; i++) {
        const template_row *row = &templates[i];
        const format_row *as = find_format(row->format);
        chat_template *t = open_template(row);
        const reply_format *f = t ? chat_template_reply_format(t) : NULL;
        char reply[4096];
        if (!CHECK(f && as && strcmp(reply_format_name(f), row->format) == 0)) {
            tap_note("%s: %s", row->file, f ? reply_format_name(f) : "");
            chat_template_free(t);
            continue;
        }
        bool is_harmony = strcmp(row->format, "harmony") == 0;
        if (!CHECK((f->thinking || is_harmony) == (row->think_begin != NULL)))
            tap_note("%s: reasoning", row->file);
        for (size_t step = 1; step <= MAX_PIECE + 1; step++) {
            size_t n = step <= MAX_PIECE ? step : sizeof reply;
            bool ok = CHECK(is_heard(f, as->one, n, false, "", one)) &&
                      CHECK(is_heard(f, as->two, n, false, "", two));
            n_replies += 2;
            if (ok && row->think_begin) {
                snprintf(reply, sizeof reply, "%s\n%s\n%s%s", row->think_begin, thought,
                         row->think_end, as->two);
                ok = CHECK(is_heard(f, reply, n, false, thought, two));
                ok = ok && (is_harmony || CHECK(is_heard(f, reply + strlen(row->think_begin), n,
                                                         true, thought, two)));
                n_replies += 2;
            }
            if (!ok)
                tap_note("%s", row->file);
        }
        chat_template_free(t);
    }
    tap_note("%d replies of %d templates", n_replies, (int)N_TEMPLATES);
    CHECK(n_replies > 1500);
    json_decref(one);
    json_decref(two);
}

/* ---- Words around what is said ---------------------------------------------------------------- */

static void check_said(const char *source, const char *reply, const char *reasoning,
                       const char *content)
{
    reply_format f = reply_format_choose(text_of(source));
    for (size_t step = 1; step <= MAX_PIECE; step++) {
        reply_options options = {0};
        reply_parser *p = NULL;
        lace_error err = {0};
        heard h = {0};
        size_t n = strlen(reply);
        buf_init(&h.content, 1 << 16);
        buf_init(&h.reasoning, 1 << 16);
        CHECK(reply_parser_create(&f, &options, hear, &h, &p, &err) == LACE_OK);
        for (size_t i = 0; i < n; i += step)
            CHECK(reply_parser_feed(p, (text){reply + i, n - i < step ? n - i : step}, &err) == 0);
        CHECK(reply_parser_finish(p, &err) == LACE_OK);
        reply_parser_free(p);
        if (!CHECK(strcmp(h.content.data ? h.content.data : "", content) == 0 &&
                   strcmp(h.reasoning.data ? h.reasoning.data : "", reasoning) == 0))
            tap_note("%s: content '%s', reasoning '%s'", reply,
                     h.content.data ? h.content.data : "",
                     h.reasoning.data ? h.reasoning.data : "");
        buf_deinit(&h.content);
        buf_deinit(&h.reasoning);
    }
}

static void words_around_what_is_said_are_left_out(void)
{
    static const struct {
        const char *file, *reply, *reasoning, *content;
    } rows[] = {
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use",
         "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hi.<|END_RESPONSE|>", "Hm.",
         "Hi."},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|START_RESPONSE|>Hi.", "", "Hi."},
        {"Cohere2MoE", "<|START_TEXT|>a <b> c<|END_TEXT|>", "", "a <b> c"},
        {"Kimi-K3",
         "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Hi."
         "<|close|>response<|sep|><|close|>message<|sep|>",
         "Hm.", "Hi."},
        {"Kimi-K3", "Hi.<|close|>response<|sep|><|close|>message<|sep|>", "", "Hi."},
        {"upstage-Solar-Open-100B", "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hi.", "Hm.",
         "Hi."},
        {"Apriel-1.6-15b-Thinker-fixed",
         "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nHi.\n[END FINAL RESPONSE]",
         "Hm.", "Hi."},
        {"ibm-granite-granite-3.3-2B-Instruct",
         "<think>Hm.</think><response>Hi <response>.</response>", "Hm.", "Hi <response>."},
        /* Where no such words are known, they are text, and so is an end without a beginning. */
        {"ibm-granite-granite-3.3-2B-Instruct", "Hi.</response>", "", "Hi.</response>"},
        {"MiniMax-M2", "<response>Hi.</response>", "", "<response>Hi.</response>"},
        {"Qwen-Qwen3-0.6B", "<answer>Hi.</answer>", "", "<answer>Hi.</answer>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s.jinja", rows[i].file);
        char *source = read_template(name, strlen(name));
        check_said(source, rows[i].reply, rows[i].reasoning, rows[i].content);
        free(source);
    }
    /* ERNIE and Hunyuan, of whose templates only the words matter. */
    check_said("'<think>' '\\n<response>\\n' + content",
               "<think>\nHm.\n</think>\n\n<response>\nHi.\n</response>\n", "Hm.", "Hi.");
    check_said("<think> '<|extra_0|>'", "<think>Hm.</think>\n<answer>\nHi.\n</answer>", "Hm.",
               "Hi.");
    check_said("<think> content.split('<answer>')", "<think>Hm.</think>\n<answer>\nHi.\n</answer>",
               "Hm.", "Hi.");
}

/* A template that shows tools and no calls gets them as its model writes them. */
static void calls_that_no_template_shows_are_written_as_the_model_does(void)
{
    static const struct {
        const char *file, *word, *shown;
    } rows[] = {
        {"LFM2-8B-A1B", "<|tool_call_start|>",
         "<|im_start|>assistant\n<|tool_call_start|>[get_weather(city=\"75001\", days=2, "
         "exact=True,"
         " tags=[\"a\", \"b\"], where={\"lat\": 1.5}), search(query=\"x < y\")]<|tool_call_end|>"
         "<|im_end|>\n<|im_start|>tool\n<|tool_response_start|>result_one<|tool_response_end|>"},
        {"ibm-granite-granite-3.3-2B-Instruct", "<|tool_call|>",
         "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": " ARGS_1
         "}, {\"name\": \"search\", \"arguments\": " ARGS_2 "}]<|end_of_text|>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        template_row row = {.file = rows[i].file};
        chat_template *t = open_template(&row);
        chat_request request = chat_request_default();
        lace_error err = {0};
        chat_prompt prompt;
        chat_prompt_init(&prompt, 1 << 24);
        request.messages = turns;
        request.tools = tools;
        request.describes_tools = true;
        CHECK(t && chat_template_prompt(t, &request, &prompt, &err) == LACE_OK);
        const char *chars = prompt.chars.data ? prompt.chars.data : err.text;
        const char *shown = strstr(chars, rows[i].shown), *word = strstr(chars, rows[i].word);
        if (!CHECK(shown && word))
            tap_note("%s: %s", rows[i].file, chars);
        /* Its words may become control tokens, the arguments between them never. */
        const char *value = shown ? strstr(shown, "75001") : NULL;
        bool is_marked = false;
        for (size_t k = 0; value && k < prompt.n_contents; k++) {
            size_t begin = (size_t)(value - chars), at = (size_t)(word - chars);
            const lace_range *c = &prompt.contents[k];
            is_marked = is_marked || (c->begin <= begin && begin < c->end);
            CHECK(c->end <= at || c->begin >= at + strlen(rows[i].word));
        }
        CHECK(is_marked);
        chat_prompt_deinit(&prompt);
        chat_template_free(t);
    }
}

/* A template that shows calls and no tools: they are described, and asked for in the form it shows. */
static void described_tools_are_asked_for_in_the_form_of_the_family(void)
{
    static const char *const files[] = {"deepseek-ai-DeepSeek-V3.1", "llama-cpp-deepseek-r1",
                                        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                                        "google-gemma-2-2b-it"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        template_row row = {.file = files[i]};
        chat_template *t = open_template(&row);
        chat_request request = chat_request_default();
        bool is_own = strstr(files[i], "deepseek");
        lace_error err = {0};
        buf out;
        buf_init(&out, 1 << 24);
        json_t *messages = read_json("[{\"role\": \"user\", \"content\": \"question_one\"}]");
        request.messages = messages;
        request.tools = tools;
        request.describes_tools = true;
        CHECK(t && chat_template_render(t, &request, &out, &err) == LACE_OK);
        reply_format f = chat_template_described_format(t);
        const char *form = !is_own ? "{\"name\": \"the tool's name\""
                           : strstr(files[i], "V3.1")
                               ? "<｜tool▁call▁begin｜>TOOL<｜tool▁sep｜>ARGUMENTS"
                               : "<｜tool▁sep｜>TOOL\n```json\nARGUMENTS\n```";
        if (!CHECK(out.data && strstr(out.data, form) && strstr(out.data, "\"name\":\"search\"") &&
                   (strcmp(reply_format_name(&f), "json") != 0) == is_own))
            tap_note("%s: %s", files[i], out.data ? out.data : err.text);
        json_decref(messages);
        buf_deinit(&out);
        chat_template_free(t);
    }
}

/* ---- Without memory --------------------------------------------------------------------------- */

/* A prompt, and the grammar of a demanded call. */
static lace_status make_both(const chat_template *t, buf *gbnf, chat_prompt *prompt,
                             lace_error *err)
{
    chat_request request = chat_request_default();
    call_demand demand = {.tools = tools, .is_thinking = true};
    request.messages = turns;
    request.tools = tools;
    request.describes_tools = true;
    TRY(chat_template_prompt(t, &request, prompt, err));
    lace_status status = reply_call_grammar(chat_template_reply_format(t), &demand, gbnf);
    return status == LACE_E_NOMEM ? error_nomem(err, "a grammar") : status;
}

static void every_allocation_may_fail(void)
{
    static const char *const files[] = {"meta-llama-Llama-3.1-8B-Instruct", "LFM2-8B-A1B",
                                        "deepseek-ai-DeepSeek-V3.1", "google-gemma-4-31B-it",
                                        "Qwen3.5-4B"};
    long total = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        template_row row = {.file = files[i]};
        chat_template *t = open_template(&row);
        char *right = NULL;
        /* Every step of the first 2000, then some: a template makes many strings. */
        for (long k = 0, n = LONG_MAX; t && k < n; k += k < 2000 ? 1 : 37) {
            chat_prompt prompt;
            buf gbnf;
            lace_error err = {0};
            chat_prompt_init(&prompt, 1 << 24);
            buf_init(&gbnf, 1 << 20);
            mem_fail_at(k, false);
            lace_status status = make_both(t, &gbnf, &prompt, &err);
            n = mem_count() > k ? LONG_MAX : k;
            mem_fail_at(-1, false);
            if (!CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.status == status)))
                tap_note("%s, %ld: %s", files[i], k, err.text);
            /* What comes out in spite of a failure is what comes out without one. */
            if (status == LACE_OK && right)
                CHECK(strcmp(prompt.chars.data, right) == 0);
            else if (status == LACE_OK)
                right = strdup(prompt.chars.data);
            chat_prompt_deinit(&prompt);
            buf_deinit(&gbnf);
            total += n == k ? k : 0;
        }
        free(right);
        chat_template_free(t);
    }
    tap_note("%ld allocations", total);
    CHECK(total > 500);
}

/* Formats of families whose templates are not among the test data. */
static void every_format_has_its_replies(void)
{
    json_t *two = read_json("[\"get_weather\", " ARGS_1 ", \"search\", " ARGS_2 "]");
    for (int i = 0; i < N_FORMATS; i++) {
        reply_format f = reply_format_by_name(formats[i].name);
        if (!CHECK(f.calls != NULL))
            tap_note("%s", formats[i].name);
        else if (strcmp(formats[i].name, "kimi-k3") != 0 && strcmp(formats[i].name, "solar") != 0)
            for (size_t step = 1; step <= MAX_PIECE; step++)
                CHECK(is_heard(&f, formats[i].two, step, false, "", two));
    }
    json_decref(two);
}

int main(void)
{
    tools = read_json(tools_text);
    turns = read_json(turns_text);
    CASE(every_template_is_in_the_table);
    CASE(several_turns_with_tools_are_shown);
    CASE(replies_are_taken_apart_as_the_template_says);
    CASE(every_format_has_its_replies);
    CASE(words_around_what_is_said_are_left_out);
    CASE(calls_that_no_template_shows_are_written_as_the_model_does);
    CASE(described_tools_are_asked_for_in_the_form_of_the_family);
    CASE(every_allocation_may_fail);
    json_decref(tools);
    json_decref(turns);
    return tap_end();
}
