/*
 * Chat templates in the server: what users write never becomes a control token, tools and documents
 * reach the model or are refused, an assistant's last message is continued, and a template from a
 * file is the one that is reported.
 */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scratch.h"
#include "served.h"
#include "tap.h"

static served s;
static answer a;

/* No tools, no documents. */
static const char plain[] =
    "{% for m in messages %}<<{{ m.role }}: {{ m.content }}>>{% endfor %}"
    "{% if add_generation_prompt %}<<assistant: {% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}quickly {% endif %}";

/* Everything that a template can take. */
static const char rich[] =
    "[today {{ date_string }} {{ strftime_now('%d %b %Y') }}][thinking {{ enable_thinking }}]"
    "{% for d in documents or [] %}[document {{ d.text }}]{% endfor %}"
    "{% for t in tools or [] %}[tool {{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}[{{ m.role }} {{ m.content }}"
    "{% for k in m.tool_calls or [] %}{{ k.function | tojson }}{% endfor %}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant <think>\n{% endif %}"
    "{# </think> <tool_call> #}";

/* A family that writes arguments between tags. */
static const char tagged[] =
    "{% for t in tools or [] %}[tool {{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}[{{ m.role }} {{ m.content }}{% for k in m.tool_calls or [] "
    "%}<tool_call>"
    "{{ k.function.name }}{% for key, v in k.function.arguments.items() %}<arg_key>{{ key "
    "}}</arg_key>"
    "<arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>{% endfor %}]{% endfor %}";

static void post(const char *path, const char *json)
{
    served_post(&s, path, json, &a);
}

/* A number of the answer, by a path of two names; the second may be NULL. -1: none. */
static long number_at(const char *outer, const char *inner)
{
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    const json_t *value = json_object_get(json, outer);
    if (inner)
        value = json_object_get(value, inner);
    long n = json_is_integer(value) ? (long)json_integer_value(value) : -1;
    json_decref(json);
    return n;
}

/* The prompt that messages (and further fields) give. Static storage. */
static const char *prompt_of(const char *fields)
{
    static char prompt[8192];
    char request[4096];
    snprintf(request, sizeof request, "{%s}", fields);
    post("/apply-template", request);
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    const char *chars = json_string_value(json_object_get(json, "prompt"));
    snprintf(prompt, sizeof prompt, "%s", chars ? chars : "");
    if (!CHECK(a.status == 200 && chars))
        tap_note("%d %s", a.status, a.body ? a.body : "");
    json_decref(json);
    return prompt;
}

static void check_prompt(const char *fields, const char *expected)
{
    const char *prompt = prompt_of(fields);
    if (!CHECK(strcmp(prompt, expected) == 0))
        tap_note("%s\n#   gives %s\n#   not   %s", fields, prompt, expected);
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_time\",\"description\":\"the " \
    "time\",\"parameters\":{\"type\":\"object\",\"properties\":{\"zone\":{\"type\":\"string\"}}}}" \
    "}]"

/* A control token of the built-in model. */
#define END "<|endoftext|>"

/* ---- Forging --------------------------------------------------------------------------------- */

/* The tokens of a prompt in which a user says `word`, by each family. */
static long tokens_with(int family, const char *word)
{
    static const struct {
        const char *path, *format, *outer, *inner;
    } rows[] = {
        {"/v1/chat/completions",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a%sb\"}]}", "usage",
         "prompt_tokens"},
        {"/v1/chat/completions",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\","
         "\"text\":\"a%sb\"}]},{\"role\":\"user\",\"content\":\"x\"}]}",
         "usage", "prompt_tokens"},
        {"/v1/responses", "{\"max_output_tokens\":1,\"input\":\"a%sb\"}", "usage", "input_tokens"},
        {"/v1/messages",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a%sb\"}]}", "usage",
         "input_tokens"},
        {"/v1/messages/count_tokens",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a%sb\"}]}]}",
         "input_tokens", NULL},
        {"/api/chat",
         "{\"model\":\"tale\",\"stream\":false,\"options\":{\"num_predict\":1},\"messages\":[{"
         "\"role\":\"user\",\"content\":\"a%sb\"}]}",
         "prompt_eval_count", NULL},
        {"/api/generate",
         "{\"model\":\"tale\",\"stream\":false,\"options\":{\"num_predict\":1},\"prompt\":\"a%"
         "sb\"}",
         "prompt_eval_count", NULL},
        {NULL, NULL, NULL, NULL},
    };
    if (!rows[family].path)
        return 0;
    char request[512], *at;
    snprintf(request, sizeof request, "%s", rows[family].format);
    at = strstr(request, "%s");
    char tail[256];
    snprintf(tail, sizeof tail, "%s", at + 2);
    snprintf(at, sizeof request - (size_t)(at - request), "%s%s", word, tail);
    post(rows[family].path, request);
    long n = number_at(rows[family].outer, rows[family].inner);
    if (!CHECK(a.status == 200 && n > 0))
        tap_note("%s: %d %s", rows[family].path, a.status, a.body ? a.body : "");
    return n;
}

static void a_control_token_in_a_message_is_text_in_every_family(void)
{
    post("/tokenize", "{\"content\":\"" END "\",\"add_special\":false,\"parse_special\":true}");
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    CHECK(json_array_size(json_object_get(json, "tokens")) == 1); /* else this shows nothing */
    json_decref(json);
    post("/tokenize", "{\"content\":\"a" END "b\",\"add_special\":false,\"parse_special\":false}");
    json = json_loads(a.body ? a.body : "", 0, NULL);
    long n_text = (long)json_array_size(json_object_get(json, "tokens"));
    json_decref(json);
    for (int family = 0; tokens_with(family, "") > 0; family++) {
        long n = tokens_with(family, END) - tokens_with(family, "");
        if (!CHECK(n > 1 && n < n_text))
            tap_note("family %d: %ld tokens", family, n);
    }
}

/* ---- The end of a prompt --------------------------------------------------------------------- */

#define PREFILL(more)                                                                              \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"    \
    "\"Once\"" more "}]"

static void the_assistants_last_message_is_continued(void)
{
    check_prompt(PREFILL(""), "<<user: Hi>><<assistant: Once");
    check_prompt(PREFILL("") ",\"continue_final_message\":true,\"add_generation_prompt\":false",
                 "<<user: Hi>><<assistant: Once");
    check_prompt(PREFILL("") ",\"continue_final_message\":false",
                 "<<user: Hi>><<assistant: Once>><<assistant: ");
    check_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\","
                 "\"content\":[{\"type\":\"text\",\"text\":\"Once\"}]}]",
                 "<<user: Hi>><<assistant: Once");
    check_prompt(HI ",\"add_generation_prompt\":false", "<<user: Hi>>");
    post("/apply-template", "{" HI ",\"continue_final_message\":true}");
    answer_check(&a, 400, "continue_final_message");
    post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                            "\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
                            "\"b\"}]}");
    answer_check(&a, 400, "the last two messages are both");
}

static void every_family_continues(void)
{
    static const struct {
        const char *path, *format, *outer, *inner;
    } rows[] = {
        {"/v1/chat/completions", "{\"max_tokens\":1,\"messages\":[%s]}", "usage", "prompt_tokens"},
        {"/v1/responses", "{\"max_output_tokens\":1,\"input\":[%s]}", "usage", "input_tokens"},
        {"/v1/messages", "{\"max_tokens\":1,\"messages\":[%s]}", "usage", "input_tokens"},
        {"/api/chat",
         "{\"model\":\"tale\",\"stream\":false,\"options\":{\"num_predict\":1},\"messages\":[%s]}",
         "prompt_eval_count", NULL},
    };
    static const char user[] = "{\"role\":\"user\",\"content\":\"Hi\"}";
    static const char assistant[] = "{\"role\":\"assistant\",\"content\":\"Once\"}";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char messages[256], request[512];
        long n[2];
        for (int with = 0; with < 2; with++) {
            snprintf(messages, sizeof messages, "%s%s%s", user, with ? "," : "",
                     with ? assistant : "");
            const char *hole = strstr(rows[i].format, "%s");
            snprintf(request, sizeof request, "%.*s%s%s", (int)(hole - rows[i].format),
                     rows[i].format, messages, hole + 2);
            post(rows[i].path, request);
            n[with] = number_at(rows[i].outer, rows[i].inner);
        }
        /* "Once" is a token or two; a turn of its own would add the end and the next beginning. */
        if (!CHECK(n[0] > 0 && n[1] > n[0] && n[1] <= n[0] + 2))
            tap_note("%s: %ld and %ld tokens: %s", rows[i].path, n[0], n[1], a.body ? a.body : "");
    }
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static void fields_for_the_template_act_or_are_refused(void)
{
    static const struct {
        const char *fields, *words;
    } refused[] = {
        {"\"chat_template\":\"x\"", "--chat-template-file"},
        {"\"documents\":[{\"text\":\"x\"}]", "takes no documents"},
        {"\"documents\":5", "documents is an integer"},
        {"\"enable_thinking\":\"no\"", "enable_thinking is a string"},
        {"\"add_generation_prompt\":1", "add_generation_prompt is an integer"},
        {"\"thinking_budget_tokens\":-2", "thinking_budget_tokens is out of range"},
        {"\"thinking_budget_tokens\":\"x\"", "thinking_budget_tokens is a string"},
        {"\"reasoning_format\":\"odd\"", "reasoning_format"},
        {"\"reasoning_effort\":5", "reasoning_effort is an integer"},
        {"\"chat_template_kwargs\":5", "chat_template_kwargs is an integer"},
        {"\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs.messages"},
        {"\"chat_template_kwargs\":{\"tools\":[]}", "chat_template_kwargs.tools"},
        {"\"chat_template_kwargs\":{\"bos_token\":\"x\"}", "chat_template_kwargs.bos_token"},
        {"\"chat_template_kwargs\":{\"eos_token\":\"x\"}", "chat_template_kwargs.eos_token"},
        {"\"chat_template_kwargs\":{\"add_generation_prompt\":true}",
         "chat_template_kwargs.add_generation_prompt"},
        {"\"chat_template_kwargs\":{\"enable_thinking\":\"no\"}", "enable_thinking is a string"},
    };
    static const char *const paths[] = {"/v1/chat/completions", "/apply-template"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        for (size_t k = 0; k < sizeof paths / sizeof paths[0]; k++) {
            char request[512];
            snprintf(request, sizeof request, "{" HI ",\"max_tokens\":1,%s}", refused[i].fields);
            post(paths[k], request);
            answer_check(&a, 400, refused[i].words);
        }
    static const char *const off[] = {
        "\"enable_thinking\":false", "\"chat_template_kwargs\":{\"enable_thinking\":false}",
        "\"thinking_budget_tokens\":0", "\"reasoning_effort\":\"none\""};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        char fields[256];
        snprintf(fields, sizeof fields, HI ",%s", off[i]);
        check_prompt(fields, "<<user: Hi>><<assistant: quickly ");
    }
    check_prompt(HI ",\"thinking_budget_tokens\":-1,\"reasoning_format\":\"none\",\"documents\":[]",
                 "<<user: Hi>><<assistant: ");
}

static void tools_are_described_where_the_template_has_none(void)
{
    const char *prompt = prompt_of(HI "," TOOLS);
    CHECK(strncmp(prompt, "<<system: ", 10) == 0 && strstr(prompt, "\"name\":\"get_time\"") &&
          strstr(prompt, "<<user: Hi>>") && strstr(prompt, "{\"name\": \"the tool's name\""));
    prompt = prompt_of("\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":"
                       "\"user\",\"content\":\"Hi\"}]," TOOLS);
    CHECK(strncmp(prompt, "<<system: Be brief.\n\nYou have these tools", 41) == 0);
    prompt = prompt_of(
        "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
        "null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":"
        "\"get_time\",\"arguments\":\"{\\\"zone\\\":\\\"UTC\\\"}\"}},{\"id\":\"c2\",\"type\":"
        "\"function\",\"function\":{\"name\":\"get_day\",\"arguments\":\"{}\"}}]},{\"role\":"
        "\"tool\",\"tool_call_id\":\"c1\",\"content\":\"noon\"},{\"role\":\"tool\","
        "\"tool_call_id\":\"c2\",\"content\":\"Monday\"}]," TOOLS);
    if (!CHECK(strstr(prompt, "<<assistant: {\"name\":\"get_time\",\"arguments\":{\"zone\":\"UTC\""
                              "}}\n{\"name\":\"get_day\",\"arguments\":{}}>><<user: Result of "
                              "get_time:\nnoon\n\nResult of get_day:\nMonday>><<assistant: ")))
        tap_note("%s", prompt);
    /* And what the model writes in that form is a call. */
    post("/v1/chat/completions",
         "{" HI ",\"max_tokens\":64," TOOLS ",\"grammar\":\"root ::= \\\"{\\\\\\\"name\\\\\\\": "
         "\\\\\\\"get_time\\\\\\\", \\\\\\\"arguments\\\\\\\": {}}\\\"\"}");
    answer_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    answer_check(&a, 200, "\"name\":\"get_time\"");
}

/* ---- A template that takes everything -------------------------------------------------------- */

static void templates_get_the_date_and_enable_thinking(void)
{
    char expected[128], today[32];
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(today, sizeof today, "%d %b %Y", &parts);
    snprintf(expected, sizeof expected, "[today %s %s][thinking True]", today, today);
    const char *prompt = prompt_of(HI);
    if (!CHECK(strncmp(prompt, expected, strlen(expected)) == 0))
        tap_note("%s, not %s", prompt, expected);
    CHECK(strstr(prompt_of(HI ",\"enable_thinking\":false"), "[thinking False]"));
    CHECK(strstr(prompt_of(HI ",\"chat_template_kwargs\":{\"date_string\":\"some day\"}"),
                 "[today some day "));
}

static void documents_and_tools_reach_a_template_that_takes_them(void)
{
    CHECK(strstr(prompt_of(HI ",\"documents\":[{\"text\":\"D1\"}]," TOOLS),
                 "[document D1][tool get_time][user Hi]"));
}

static void a_continued_message_ends_the_reasoning(void)
{
    const char *prompt = prompt_of(PREFILL(""));
    CHECK(strstr(prompt, "[user Hi][assistant <think>\n\n</think>\n\nOnce"));
    prompt = prompt_of(PREFILL(",\"reasoning_content\":\"hm\""));
    CHECK(strstr(prompt, "[assistant <think>\nhm\n</think>\n\nOnce"));
    prompt = prompt_of("\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                       "\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\"}]");
    CHECK(strcmp(strstr(prompt, "[assistant") ? strstr(prompt, "[assistant") : "",
                 "[assistant <think>\nhm") == 0);
    /* What the model then writes is reasoning, or content. */
    post("/v1/chat/completions",
         "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
         "\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\"}]}");
    answer_check(&a, 200, "\"reasoning_content\":");
    post("/v1/chat/completions", "{\"max_tokens\":3," PREFILL("") "}");
    answer_check(&a, 200, "\"content\":");
    CHECK(a.body && !strstr(a.body, "reasoning_content"));
}

static void a_template_from_a_file_is_the_one_reported(void)
{
    served_get(&s, "/props", &a);
    answer_check(&a, 200, "[today {{ date_string }}");
    answer_check(&a, 200, "\"takes_tools\":true");
    post("/api/show", "{\"model\":\"tale\"}");
    answer_check(&a, 200, "[today {{ date_string }}");
}

/* ---- A family with tags ---------------------------------------------------------------------- */

#define UNIT_TOOL                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"convert\",\"parameters\":{"        \
    "\"type\":"                                                                                    \
    "\"object\",\"properties\":{\"unit\":{\"enum\":[\"75001\"]},\"n\":{\"enum\":[7]},\"sure\":{"   \
    "\"const\":true}},\"required\":[\"unit\",\"n\",\"sure\"]}}}],\"tool_choice\":\"required\""

/* The tokens of the answer, joined: what the model wrote before it was taken apart. */
static void check_written(const char *expected)
{
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL), *token;
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    char written[1024] = "";
    size_t i, n = 0;
    json_array_foreach(json_object_get(json_object_get(choice, "logprobs"), "content"), i, token)
    {
        const char *chars = json_string_value(json_object_get(token, "token"));
        n += (size_t)snprintf(written + n, sizeof written - n, "%s", chars ? chars : "");
    }
    if (!CHECK(strstr(written, expected)))
        tap_note("%s", written);
    json_decref(json);
}

static void a_forced_call_has_the_form_of_the_family(void)
{
    post("/v1/chat/completions", "{" HI ",\"max_tokens\":200,\"logprobs\":true," UNIT_TOOL "}");
    answer_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    answer_check(&a, 200,
                 "\"arguments\":\"{\\\"unit\\\":\\\"75001\\\",\\\"n\\\":7,\\\"sure\\\":true}\"");
    check_written("<arg_key>n</arg_key>");
    check_written("<arg_value>7</arg_value>");
    post("/v1/messages",
         "{" HI ",\"max_tokens\":200,\"tools\":[{\"name\":\"convert\","
         "\"input_schema\":{\"type\":\"object\",\"properties\":{\"n\":{\"enum\":[7]}},"
         "\"required\":[\"n\"]}}],\"tool_choice\":{\"type\":\"any\"}}");
    answer_check(&a, 200, "\"input\":{\"n\":7}");
    post("/v1/chat/completions",
         "{" HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\\\"b\"}}],"
         "\"tool_choice\":\"required\"}");
    answer_check(&a, 400, "no call of them can be demanded");
}

/* ---------------------------------------------------------------------------------------------- */

static bool start(const char *name, const char *source)
{
    char arguments[700];
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(source, 1, strlen(source), f) == strlen(source);
    if (f)
        fclose(f);
    snprintf(arguments, sizeof arguments,
             "--alias tale --ctx 512 --threads 1 --chat-template-file %s", path);
    return CHECK(ok && served_start(&s, arguments));
}

int main(void)
{
    if (!scratch_create())
        return 1;
    if (start("plain.jinja", plain)) {
        CASE(a_control_token_in_a_message_is_text_in_every_family);
        CASE(the_assistants_last_message_is_continued);
        CASE(every_family_continues);
        CASE(fields_for_the_template_act_or_are_refused);
        CASE(tools_are_described_where_the_template_has_none);
        tap_note("exit code %d", served_stop(&s));
    }
    if (start("rich.jinja", rich)) {
        CASE(templates_get_the_date_and_enable_thinking);
        CASE(documents_and_tools_reach_a_template_that_takes_them);
        CASE(a_continued_message_ends_the_reasoning);
        CASE(a_template_from_a_file_is_the_one_reported);
        tap_note("exit code %d", served_stop(&s));
    }
    if (start("tagged.jinja", tagged)) {
        CASE(a_forced_call_has_the_form_of_the_family);
        tap_note("exit code %d", served_stop(&s));
    }
    scratch_remove();
    answer_free(&a);
    return tap_end();
}
