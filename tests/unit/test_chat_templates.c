/* chat/chat with real templates: what clients send, what users wrote, calls, and messages that are
 * continued. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat.h"
#include "chat_kit.h"
#include "data.h"
#include "tap.h"

/* ---- Real templates -------------------------------------------------------------------------- */

/* Arguments as OpenAI's clients send them: as text. */
static void quote_arguments(json_t *messages)
{
    size_t i, k;
    json_t *message, *call;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            json_t *function = json_object_get(call, "function");
            char *dump = json_dumps(json_object_get(function, "arguments"), 0);
            json_object_set_new(function, "arguments", json_string(dump));
            free(dump);
        }
    }
}

static void real_templates_take_messages_as_clients_send_them(void)
{
    json_t *cases = read_template_cases(), *expected;
    const char *key;
    int n_same = 0, n_mended = 0, n_cases = 0;
    json_t *kwargs = read_json("{\"enable_thinking\": true}");
    json_object_foreach(json_object_get(cases, "expected"), key, expected)
    {
        size_t n_name = strcspn(key, "|");
        char *source = read_template(key, n_name);
        json_t *context =
            json_deep_copy(json_object_get(json_object_get(cases, "contexts"), key + n_name + 1));
        chat_request request = chat_request_default();
        chat_template *t = NULL;
        lace_error err = {0};
        buf out;
        buf_init(&out, 1 << 24);
        quote_arguments(json_object_get(context, "messages"));
        request.messages = json_object_get(context, "messages");
        request.tools = json_object_get(context, "tools");
        request.kwargs = kwargs;
        request.now = 1768480200;
        CHECK(chat_template_create(text_of(source), text_of("<s>"), text_of("</s>"), &t, &err) ==
              LACE_OK);
        lace_status status = chat_template_render(t, &request, &out, &err);
        if (json_is_string(expected)) {
            n_cases++;
            bool is_same =
                status == LACE_OK && out.data && strcmp(out.data, json_string_value(expected)) == 0;
            n_same += is_same;
            /* It shows calls only beside content that is null, and is given that. */
            bool is_mended =
                strcmp(key, "deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja|toolcall") == 0;
            n_mended += !is_same && is_mended && status == LACE_OK && strstr(out.data, "Paris");
            if (!is_same && !is_mended)
                tap_note("%s: %s", key, status == LACE_OK ? "differs" : err.text);
        }
        buf_deinit(&out);
        chat_template_free(t);
        json_decref(context);
        free(source);
    }
    json_decref(kwargs);
    json_decref(cases);
    tap_note("%d of %d as the template gives them itself", n_same, n_cases);
    CHECK(n_cases == 259 && n_same == 258 && n_mended == 1);
}

#define AGENT_TOOLS                                                                                \
    "[{\"type\": \"function\", \"function\": {\"name\": \"read_file\", \"description\": "          \
    "\"reads\","                                                                                   \
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\","    \
    " \"description\": \"where\"}}, \"required\": [\"path\"]}}}]"

/* What Claude Code and Codex send: rules twice in front, the user twice in a row, rules behind. */
#define AGENT_MESSAGES                                                                             \
    "{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"rule_one\"}]},"      \
    " {\"role\": \"developer\", \"content\": \"rule_two\"},"                                       \
    " {\"role\": \"user\", \"content\": \"place_three\"},"                                         \
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"question_four\"}]},"     \
    " {\"role\": \"system\", \"content\": \"rule_five\"}"
#define AGENT_CALL                                                                                 \
    ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": "                    \
    "\"call_a1b2c3d4e5f6\","                                                                       \
    " \"type\": \"function\", \"function\": {\"name\": \"read_file\","                             \
    " \"arguments\": \"{\\\"path\\\": \\\"path_six\\\"}\"}}]},"                                    \
    " {\"role\": \"tool\", \"tool_call_id\": \"call_a1b2c3d4e5f6\", \"content\": "                 \
    "[{\"type\": \"text\", \"text\": \"result_seven\"},"                                           \
    " {\"type\": \"text\", \"text\": \"result_eight\"}]}"

/* Nothing that an agent sends may be refused by a template, or be left out of the prompt. */
static void check_agent(const char *name, const chat_template *t)
{
    const chat_caps *caps = chat_template_caps(t);
    /* Nemo shows its rules only to a user's message at the end, whoever renders it. */
    bool has_calls = caps->takes_tools && caps->takes_calls && !strstr(name, "Mistral-Nemo");
    chat_request request = chat_request_default();
    lace_error err = {0};
    buf out;
    json_t *messages =
        json_loads(has_calls ? "[" AGENT_MESSAGES AGENT_CALL "]" : "[" AGENT_MESSAGES "]", 0, NULL);
    json_t *tools = json_loads(AGENT_TOOLS, 0, NULL);
    static const char *const texts[] = {"rule_one",  "rule_two", "place_three",  "question_four",
                                        "rule_five", "path_six", "result_seven", "result_eight"};
    request.messages = messages;
    request.tools = has_calls ? tools : NULL;
    buf_init(&out, 1 << 24);
    if (!CHECK(chat_template_render(t, &request, &out, &err) == LACE_OK))
        tap_note("%s: %s", name, err.text);
    else
        for (size_t i = 0; i < (has_calls ? 8 : 5); i++)
            if (!CHECK(strstr(out.data, texts[i]) != NULL))
                tap_note("%s: %s is not in the prompt", name, texts[i]);
    if (out.data && !CHECK(!strstr(out.data, "'text'") && !strstr(out.data, "\"text\"")))
        tap_note("%s: a list of parts is printed as a value", name);
    buf_deinit(&out);
    json_decref(messages);
    json_decref(tools);
}

static void real_templates_take_all_that_agents_send(void)
{
    char *path = data_path("templates");
    DIR *folder = path ? opendir(path) : NULL;
    struct dirent *entry;
    int n = 0;
    if (!CHECK(folder)) {
        free(path);
        return;
    }
    while ((entry = readdir(folder))) {
        chat_template *t;
        lace_error err = {0};
        size_t n_name = strlen(entry->d_name);
        if (n_name < 6 || strcmp(entry->d_name + n_name - 6, ".jinja") != 0)
            continue;
        if (strstr(entry->d_name, "firefunction")) /* wants tools under another name */
            continue;
        char *source = read_template(entry->d_name, n_name);
        if (CHECK(chat_template_create(text_of(source), text_of("<s>"), text_of("</s>"), &t,
                                       &err) == LACE_OK)) {
            check_agent(entry->d_name, t);
            chat_template_free(t);
            n++;
        }
        free(source);
    }
    CHECK(n > 50);
    closedir(folder);
    free(path);
}

/* Every string in a JSON but for roles, types and the like, which templates also write themselves.
 */
static int count_unmarked(const json_t *json, const char *key, const chat_prompt *p)
{
    int n = 0;
    size_t i;
    const char *name;
    json_t *member;
    json_array_foreach(json, i, member) n += count_unmarked(member, key, p);
    json_object_foreach((json_t *)json, name, member) n += count_unmarked(member, name, p);
    if (!json_is_string(json) || (strcmp(key, "content") != 0 && strcmp(key, "text") != 0 &&
                                  strcmp(key, "description") != 0))
        return n;
    const char *chars = json_string_value(json), *at = p->chars.data;
    for (size_t length = strlen(chars); length > 8 && (at = strstr(at, chars)); at += length) {
        size_t begin = (size_t)(at - p->chars.data);
        bool is_marked = false;
        for (size_t k = 0; k < p->n_contents; k++)
            is_marked = is_marked ||
                        (p->contents[k].begin <= begin && p->contents[k].end >= begin + length);
        n += !is_marked;
        if (!is_marked)
            tap_note("not marked: %s", chars);
    }
    return n;
}

static void real_templates_mark_what_users_wrote(void)
{
    json_t *cases = read_template_cases(), *expected;
    const char *key;
    int n_prompts = 0, n_unmarked = 0, n_same = 0;
    size_t n_bytes = 0, n_content = 0;
    json_object_foreach(json_object_get(cases, "expected"), key, expected)
    {
        size_t n_name = strcspn(key, "|");
        char *source = read_template(key, n_name);
        const json_t *with = json_object_get(json_object_get(cases, "contexts"), key + n_name + 1);
        chat_request request = chat_request_default();
        request.messages = json_object_get(with, "messages");
        request.tools = json_object_get(with, "tools");
        request.now = 1768480200;
        chat_template *t = NULL;
        lace_error err = {0};
        chat_prompt prompt;
        buf whole;
        buf_init(&whole, 1 << 24);
        chat_prompt_init(&prompt, 1 << 24);
        CHECK(chat_template_create(text_of(source), text_of("<s>"), text_of("</s>"), &t, &err) ==
              LACE_OK);
        if (chat_template_prompt(t, &request, &prompt, &err) == LACE_OK) {
            n_prompts++;
            n_unmarked += count_unmarked(with, "", &prompt);
            n_bytes += prompt.chars.size;
            for (size_t i = 0; i < prompt.n_contents; i++)
                n_content += prompt.contents[i].end - prompt.contents[i].begin;
            n_same += chat_template_render(t, &request, &whole, &err) == LACE_OK &&
                      strcmp(whole.data, prompt.chars.data) == 0;
        }
        chat_prompt_deinit(&prompt);
        buf_deinit(&whole);
        chat_template_free(t);
        free(source);
    }
    json_decref(cases);
    tap_note("%d prompts, %zu of %zu bytes are contents", n_prompts, n_content, n_bytes);
    CHECK(n_prompts >= 259 && n_same == n_prompts && n_unmarked == 0 && n_content > 0);
}

/* ---- Replies as templates write them --------------------------------------------------------- */

typedef struct seen_calls {
    int n;
    buf name, args;
} seen_calls;

static lace_status note_call(void *arg, const reply_event *e)
{
    seen_calls *seen = arg;
    seen->n += e->kind == REPLY_CALL_END && e->is_complete;
    if (e->kind == REPLY_CALL_BEGIN)
        return buf_append(&seen->name, e->chars.data, e->chars.size);
    return e->kind == REPLY_CALL_ARGS ? buf_append(&seen->args, e->chars.data, e->chars.size)
                                      : LACE_OK;
}

/* Whether the reply is the call get_weather(city="Paris", days=2). */
static bool is_understood(const char *source, text reply, const json_t *tools)
{
    reply_format f = reply_format_choose(text_of(source));
    reply_options options = {.tools = tools};
    reply_parser *p;
    lace_error err;
    seen_calls seen = {0};
    buf_init(&seen.name, 1 << 16);
    buf_init(&seen.args, 1 << 16);
    CHECK(reply_parser_create(&f, &options, note_call, &seen, &p, &err) == LACE_OK);
    CHECK(reply_parser_feed(p, reply, &err) == LACE_OK);
    CHECK(reply_parser_finish(p, &err) == LACE_OK);
    reply_parser_free(p);
    json_t *args = json_loads(seen.args.data ? seen.args.data : "", 0, NULL);
    json_t *wanted = json_pack("{s:s, s:i}", "city", "Paris", "days", 2);
    bool is_right =
        seen.n == 1 && strcmp(seen.name.data, "get_weather") == 0 && json_equal(args, wanted);
    json_decref(args);
    json_decref(wanted);
    buf_deinit(&seen.name);
    buf_deinit(&seen.args);
    return is_right;
}

/*
 * A template shows the model's earlier calls as the model wrote them: what it adds to the prompt is
 * a reply that the format chosen for it must understand.
 */
static void calls_are_understood_as_templates_show_them(void)
{
    json_t *cases = read_template_cases(), *shown;
    const json_t *expected = json_object_get(cases, "expected");
    const char *key;
    int n_shown = 0, n_understood = 0;
    json_object_foreach((json_t *)expected, key, shown)
    {
        size_t n_name = strcspn(key, "|"), n = 0;
        char before_key[256];
        snprintf(before_key, sizeof before_key, "%.*s|tools", (int)n_name, key);
        const char *before = json_string_value(json_object_get(expected, before_key));
        const char *after = json_string_value(shown);
        if (strcmp(key + n_name, "|toolcall") != 0 || !before || !after)
            continue;
        while (before[n] && before[n] == after[n])
            n++;
        const char *result = strstr(after + n, "sunny");
        const char *call = strstr(after + n, "Paris");
        if (!result || !call || call > result)
            continue; /* it shows no calls */
        char *source = read_template(key, n_name);
        /* The common start may reach into the first marker. */
        while (n > 0 && after[n] != '<' && after[n] != '[' && after[n] != '{')
            n--;
        const json_t *tools =
            json_object_get(json_object_get(json_object_get(cases, "contexts"), "tools"), "tools");
        bool is_right =
            is_understood(source, (text){after + n, (size_t)(result - after) - n}, tools);
        n_shown++;
        n_understood += is_right;
        if (!is_right)
            tap_note("not understood: %.*s: %.*s", (int)n_name, key, 60, after + n);
        free(source);
    }
    tap_note("%d of %d", n_understood, n_shown);
    CHECK(n_shown == 54 && n_understood == 54);
    json_decref(cases);
}

static void a_long_conversation_fits_the_budgets(void)
{
    char *source = read_template("google-gemma-4-31B-it.jinja", 27);
    chat_template *t;
    lace_error err = {0};
    buf out;
    buf_init(&out, 1 << 24);
    json_t *messages = json_array();
    for (int i = 0; i < 1001; i++)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user",
                                        "content", "A sentence of about forty characters...."));
    chat_request request = chat_request_default();
    request.messages = messages;
    if (source[0] && CHECK(chat_template_create(text_of(source), text_of(""), text_of(""), &t,
                                                &err) == LACE_OK)) {
        if (!CHECK(chat_template_render(t, &request, &out, &err) == LACE_OK))
            tap_note("%s", err.text);
        CHECK(out.size > 1001 * 40);
        chat_template_free(t);
    }
    json_decref(messages);
    free(source);
    buf_deinit(&out);
}

/* ---- Messages that are continued ------------------------------------------------------------- */

typedef struct seen_text {
    buf content, reasoning;
} seen_text;

static lace_status note_text(void *arg, const reply_event *e)
{
    seen_text *seen = arg;
    buf *to = e->kind == REPLY_CONTENT ? &seen->content : &seen->reasoning;
    return buf_append(to, e->chars.data, e->chars.size);
}

/* Continue a message, check how the prompt ends, and that " upon" behind it is what it should be.
 */
static void check_continued(const char *source, const char *last, const char *ending,
                            bool is_reasoning)
{
    char messages[512];
    snprintf(messages, sizeof messages,
             "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", %s}]", last);
    json_t *json = read_json(messages);
    chat_request request = chat_request_default();
    request.messages = json;
    request.continues_last = true;
    chat_template *t = NULL;
    chat_prompt prompt;
    lace_error err = {0};
    seen_text seen = {0};
    buf_init(&seen.content, 1 << 16);
    buf_init(&seen.reasoning, 1 << 16);
    chat_prompt_init(&prompt, 1 << 20);
    CHECK(chat_template_create(text_of(source), text_of(""), text_of(""), &t, &err) == LACE_OK);
    CHECK(chat_template_prompt(t, &request, &prompt, &err) == LACE_OK);
    size_t n = strlen(ending);
    if (!CHECK(prompt.chars.size >= n &&
               strcmp(prompt.chars.data + prompt.chars.size - n, ending) == 0))
        tap_note("%s, not %s", prompt.chars.data ? prompt.chars.data : "", ending);
    CHECK(prompt.n_contents > 0 && prompt.contents[prompt.n_contents - 1].end == prompt.chars.size);
    const reply_format *f = chat_template_reply_format(t);
    text chars = {prompt.chars.data, prompt.chars.size};
    reply_options options = {.is_thinking = reply_opens_thinking(f, chars),
                             .opening = prompt.opening};
    reply_parser *p = NULL;
    CHECK(reply_parser_create(f, &options, note_text, &seen, &p, &err) == LACE_OK);
    CHECK(reply_parser_feed(p, text_of(" upon"), &err) == LACE_OK);
    CHECK(reply_parser_finish(p, &err) == LACE_OK);
    const buf *is = is_reasoning ? &seen.reasoning : &seen.content;
    const buf *is_not = is_reasoning ? &seen.content : &seen.reasoning;
    if (!CHECK(is->data && strcmp(is->data, " upon") == 0 && is_not->size == 0))
        tap_note("content '%s', reasoning '%s'", seen.content.data ? seen.content.data : "",
                 seen.reasoning.data ? seen.reasoning.data : "");
    reply_parser_free(p);
    chat_prompt_deinit(&prompt);
    chat_template_free(t);
    json_decref(json);
    buf_deinit(&seen.content);
    buf_deinit(&seen.reasoning);
}

static void a_last_message_is_continued_in_its_format(void)
{
    static const char said[] = "\"content\": \"Once\"";
    static const char thought[] = "\"content\": \"\", \"reasoning_content\": \"Hm\"";
    static const char both[] = "\"content\": \"Once\", \"reasoning_content\": \"Hm\"";
    check_continued("", said, "<|im_start|>assistant\nOnce", false);
    check_continued("{{ messages[0].content }}{% if add_generation_prompt %}A:<think>\n{% endif %}",
                    said, "A:<think>\n\n</think>\n\nOnce", false);
    check_continued("{{ messages[0].content }}{% if add_generation_prompt %}A:<think>\n{% endif %}",
                    thought, "A:<think>\nHm", true);
    char *source = read_template("openai-gpt-oss-120b.jinja", strlen("openai-gpt-oss-120b.jinja"));
    if (source[0]) {
        check_continued(source, said, "<|start|>assistant<|channel|>final<|message|>Once", false);
        check_continued(source, thought, "<|start|>assistant<|channel|>analysis<|message|>Hm",
                        true);
        check_continued(source, both,
                        "<|start|>assistant<|channel|>analysis<|message|>Hm<|end|><|start|>"
                        "assistant<|channel|>final<|message|>Once",
                        false);
    }
    free(source);
    source = read_template("Qwen-Qwen3-0.6B.jinja", strlen("Qwen-Qwen3-0.6B.jinja"));
    if (source[0]) {
        check_continued(source, said, "<|im_start|>assistant\nOnce", false);
        check_continued(source, both, "<|im_start|>assistant\n<think>\nHm\n</think>\n\nOnce",
                        false);
    }
    free(source);
}

int main(void)
{
    CASE(real_templates_take_messages_as_clients_send_them);
    CASE(real_templates_take_all_that_agents_send);
    CASE(real_templates_mark_what_users_wrote);
    CASE(calls_are_understood_as_templates_show_them);
    CASE(a_long_conversation_fits_the_budgets);
    CASE(a_last_message_is_continued_in_its_format);
    return tap_end();
}
