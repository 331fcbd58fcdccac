/*
 * What coding agents send beside plain chat, and how it reaches the model: a template that shows
 * messages and tools lets prompts be compared by their lengths. The agents themselves run in
 * tests/clients/test_agents.mjs.
 */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scratch.h"
#include "served.h"
#include "tap.h"

static served s;
static answer a;

static const char template_source[] =
    "{% for tool in tools or [] %}[tool {{ tool.function.name }}] {% endfor %}"
    "{% for m in messages %}[{{ m.role }}] {% if m.reasoning_content %}<{{ m.reasoning_content }}>"
    "{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %} {{ call.function.name }}({{ call.function.arguments }})"
    "{% endfor %}\n{% endfor %}[assistant]{% if enable_thinking is false %} no thinking {% endif "
    "%}";

/* Tokens of a prompt; -1 if it was refused. */
static long n_tokens(const char *path, const char *body)
{
    served_post(&s, path, body, &a);
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    const json_t *usage = json_object_get(json, "usage");
    const json_t *n = json_object_get(usage ? usage : json, "input_tokens");
    long result = a.status == 200 ? (long)json_integer_value(n) : -1;
    if (result < 0)
        tap_note("%s: %d %s", body, a.status, a.body ? a.body : "");
    json_decref(json);
    return result;
}

/* ---- Anthropic ------------------------------------------------------------------------------- */

static long n_messages(const char *messages, const char *tools)
{
    char body[4096];
    snprintf(body, sizeof body, "{\"messages\":[%s],\"tools\":[%s]}", messages, tools);
    return n_tokens("/v1/messages/count_tokens", body);
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define TOOL(name) "{\"name\":\"" name "\",\"input_schema\":{\"type\":\"object\"}}"
#define LATE(name)                                                                                 \
    "{\"name\":\"" name "\",\"defer_loading\":true,\"input_schema\":{\"type\":\"object\"}}"

static void a_system_message_may_stand_anywhere(void)
{
    long first = n_messages("{\"role\":\"system\",\"content\":\"Be kind.\"}," USER("Hello"), "");
    long last = n_messages(USER("Hello") ",{\"role\":\"system\",\"content\":[{\"type\":\"text\","
                                         "\"text\":\"Be kind.\",\"cache_control\":{\"type\":"
                                         "\"ephemeral\"}}]}",
                           "");
    CHECK(first > 0 && first == last && first > n_messages(USER("Hello"), ""));
    served_post(
        &s, "/v1/messages",
        "{\"max_tokens\":2,\"messages\":[" USER(
            "Hello") ",{\"role\":\"system\",\"content\":\"Be kind.\"}],\"context_management\":"
                     "{\"edits\":[]},\"metadata\":{\"user_id\":\"u\"},\"thinking\":{\"type\":"
                     "\"adaptive\",\"display\":\"updates\"},\"output_config\":{\"effort\":"
                     "\"high\"}}",
        &a);
    CHECK(a.status == 200);
}

static void tokens_are_counted_as_the_reply_will_see_them(void)
{
    static const char *const modes[] = {"", ",\"thinking\":{\"type\":\"disabled\"}",
                                        ",\"thinking\":{\"type\":\"adaptive\"}"};
    long n[3];
    for (size_t i = 0; i < 3; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"max_tokens\":1,\"messages\":[%s]%s}", USER("Hello"),
                 modes[i]);
        n[i] = n_tokens("/v1/messages/count_tokens", body);
        CHECK(n[i] > 0 && n[i] == n_tokens("/v1/messages", body));
    }
    CHECK(n[1] > n[0] && n[2] == n[0]);
}

static void tools_that_only_anthropic_runs_are_left_out(void)
{
    long alone = n_messages(USER("Hello"), TOOL("read"));
    CHECK(alone > n_messages(USER("Hello"), ""));
    CHECK(alone == n_messages(USER("Hello"),
                              TOOL("read") ",{\"type\":\"web_search_20250305\",\"name\":"
                                           "\"web_search\",\"max_uses\":5}"));
    CHECK(alone == n_messages(USER("Hello"), "{\"type\":\"custom\",\"name\":\"read\","
                                             "\"input_schema\":{\"type\":\"object\"}}"));
}

static void a_deferred_tool_is_shown_when_it_is_asked_for(void)
{
    static const char found[] =
        USER("Hello") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\","
                      "\"name\":\"read\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":"
                      "\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{\"type\":"
                      "\"tool_reference\",\"tool_name\":\"write\"}]}]}";
    static const char added[] =
        USER("Hello") ",{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{"
                      "\"type\":\"tool_addition\",\"tool\":{\"type\":\"tool_reference\",\"name\":"
                      "\"write\"}}]}";
    static const char removed[] =
        USER("Hello") ",{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{"
                      "\"type\":\"tool_removal\",\"tool\":{\"type\":\"tool_reference\",\"name\":"
                      "\"write\"}}]}";
    CHECK(n_messages(USER("Hello"), TOOL("read") "," LATE("write")) ==
          n_messages(USER("Hello"), TOOL("read")));
    CHECK(n_messages(found, TOOL("read") "," LATE("write")) ==
          n_messages(found, TOOL("read") "," TOOL("write")));
    CHECK(n_messages(added, TOOL("read") "," LATE("write")) ==
          n_messages(added, TOOL("read") "," TOOL("write")));
    CHECK(n_messages(removed, TOOL("read") "," TOOL("write")) == n_messages(removed, TOOL("read")));
}

/* ---- Responses ------------------------------------------------------------------------------- */

static long n_input(const char *input, const char *tools)
{
    char body[4096];
    snprintf(body, sizeof body,
             "{\"max_output_tokens\":1,\"input\":[%s],\"tools\":[%s],\"store\":false,\"include\":["
             "\"reasoning.encrypted_content\"],\"prompt_cache_key\":\"k\",\"client_metadata\":{},"
             "\"reasoning\":{\"summary\":\"auto\"},\"parallel_tool_calls\":true,\"tool_choice\":"
             "\"auto\",\"text\":{\"verbosity\":\"low\"}}",
             input, tools);
    return n_tokens("/v1/responses", body);
}

#define SAY(text)                                                                                  \
    "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"      \
    "\"" text "\"}]}"
#define FUNCTION(name)                                                                             \
    "{\"type\":\"function\",\"name\":\"" name "\",\"parameters\":{\"type\":\"object\"}}"

static void tools_that_are_no_functions_are_left_out(void)
{
    static const char *const others[] = {
        "{\"type\":\"web_search\",\"external_web_access\":true}",
        "{\"type\":\"namespace\",\"name\":\"agents\",\"tools\":[" FUNCTION("spawn") "]}",
        "{\"type\":\"custom\",\"name\":\"apply_patch\",\"format\":{\"type\":\"grammar\"}}",
        "{\"type\":\"local_shell\"}",
        "{\"type\":\"tool_search\"}",
    };
    long alone = n_input(SAY("Hello"), FUNCTION("read"));
    CHECK(alone > n_input(SAY("Hello"), ""));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char tools[512];
        snprintf(tools, sizeof tools, "%s,%s", FUNCTION("read"), others[i]);
        CHECK(n_input(SAY("Hello"), tools) == alone);
        CHECK(n_input(SAY("Hello"), others[i]) == n_input(SAY("Hello"), ""));
    }
}

static void items_of_earlier_turns_are_taken(void)
{
    static const char call[] =
        ",{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"read\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"seven\"}";
    static const char custom[] =
        ",{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"patch\",\"input\":\"x\"},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":"
        "\"input_text\",\"text\":\"seven\"}]}";
    static const char passed[] =
        ",{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"},"
        "{\"type\":\"web_search_call\",\"id\":\"w\",\"status\":\"completed\"}";
    char input[2048];
    long alone = n_input(SAY("Hello"), "");
    snprintf(input, sizeof input, "%s%s", SAY("Hello"), call);
    CHECK(n_input(input, "") > alone);
    snprintf(input, sizeof input, "%s%s", SAY("Hello"), custom);
    CHECK(n_input(input, "") > alone);
    snprintf(input, sizeof input, "%s%s", SAY("Hello"), passed);
    CHECK(n_input(input, "") == alone);
    /* A text and the calls behind it are one turn, and what was thought belongs to it. */
    static const char text[] =
        ",{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"output_text\",\"text\":\"Yes.\"}]}";
    static const char thought[] = ",{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":"
                                  "\"reasoning_text\",\"text\":\"Is it?\"}]}";
    snprintf(input, sizeof input, "%s%s", SAY("Hello"), call);
    long with_call = n_input(input, "");
    snprintf(input, sizeof input, "%s%s%s", SAY("Hello"), text, call);
    long with_text = n_input(input, "");
    snprintf(input, sizeof input, "%s%s%s%s", SAY("Hello"), thought, text, call);
    long with_thought = n_input(input, "");
    snprintf(input, sizeof input, "%s%s%s", SAY("Hello"), thought, call);
    long thought_alone = n_input(input, "");
    snprintf(input, sizeof input, "%s,%s%s", SAY("Hello"), SAY("Yes."), call);
    CHECK(with_text > with_call && with_text < n_input(input, "")); /* no turn more */
    CHECK(with_thought > with_text && thought_alone > with_call);
    served_post(&s, "/v1/responses", "{\"input\":[{\"type\":\"compaction\"}]}", &a);
    CHECK(a.status == 400 && strstr(a.body, "compaction"));
}

int main(void)
{
    char arguments[512];
    scratch_write("template", template_source);
    snprintf(arguments, sizeof arguments, "-c 512 --threads 1 --chat-template-file %s",
             scratch_path("template"));
    if (!served_start(&s, arguments)) {
        printf("1..0 # SKIP the server does not start\n");
        return 1;
    }
    CASE(a_system_message_may_stand_anywhere);
    CASE(tokens_are_counted_as_the_reply_will_see_them);
    CASE(tools_that_only_anthropic_runs_are_left_out);
    CASE(a_deferred_tool_is_shown_when_it_is_asked_for);
    CASE(tools_that_are_no_functions_are_left_out);
    CASE(items_of_earlier_turns_are_taken);
    tap_note("exit code %d", served_stop(&s));
    answer_free(&a);
    return tap_end();
}
