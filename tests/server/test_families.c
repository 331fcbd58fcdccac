/* The server's other APIs, Anthropic's and Ollama's, embeddings, responses,
 * and forms of replies. */
#define _GNU_SOURCE
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "tap.h"

static served s;
static answer a;

static void post(const char *path, const char *json)
{
    served_post(&s, path, json, &a);
}

/* The body as JSON; NULL fails the case. To be freed. */
static json_t *body(void)
{
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    if (!CHECK(json != NULL))
        tap_note("%s", a.body ? a.body : "");
    return json;
}

/* ---- Forms ----------------------------------------------------------------------------------- */

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"        \
    "\"age\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":99}},\"required\":[\"name\",\"age\"]" \
    ","                                                                                            \
    "\"additionalProperties\":false}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"tell\",\"parameters\":" SCHEMA     \
    "}},"                                                                                          \
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]"
#define HELLO                                                                                      \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of a king\"}],\"max_tokens\":120"

/* A JSON text that has exactly a name and an age in its range. */
static bool is_person(const char *reply)
{
    json_t *person = json_loads(reply ? reply : "", 0, NULL);
    json_int_t age = json_integer_value(json_object_get(person, "age"));
    bool ok = json_object_size(person) == 2 && json_is_string(json_object_get(person, "name")) &&
              age >= 1 && age <= 99;
    json_decref(person);
    return ok;
}

static const char *chat_content(json_t *json)
{
    json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    return json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
}

static void a_reply_follows_its_schema(void)
{
    for (int seed = 0; seed < 5; seed++) {
        char request[1024];
        snprintf(
            request, sizeof request,
            "{" HELLO ",\"seed\":%d,\"temperature\":1.5,\"response_format\":{\"type\":"
            "\"json_schema\",\"json_schema\":{\"name\":\"p\",\"strict\":true,\"schema\":" SCHEMA
            "}}}",
            seed);
        post("/v1/chat/completions", request);
        answer_check(&a, 200, "\"finish_reason\":\"stop\"");
        json_t *json = body();
        if (!CHECK(is_person(chat_content(json))))
            tap_note("%s", a.body);
        json_decref(json);
    }
}

static void a_text_follows_its_regex_and_grammar(void)
{
    post("/v1/completions",
         "{\"prompt\":\"Once\",\"max_tokens\":60,\"regex\":\"[A-Z][a-z]{2,5} [0-9]{3}\",\"n\":3}");
    json_t *json = body();
    for (size_t i = 0; i < 3; i++) {
        const char *reply = json_string_value(
            json_object_get(json_array_get(json_object_get(json, "choices"), i), "text"));
        size_t n = reply ? strlen(reply) : 0;
        CHECK(n >= 7 && n <= 10 && reply[0] >= 'A' && reply[0] <= 'Z' && reply[n - 4] == ' ');
    }
    json_decref(json);
    post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":60,\"grammar\":"
                            "\"root ::= \\\"yes\\\" | \\\"no\\\"\"}");
    CHECK(a.status == 200 &&
          (answer_has(&a, "\"text\":\"yes\"") || answer_has(&a, "\"text\":\"no\"")));
    post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":60,\"structured_outputs\":"
                            "{\"choice\":[\"red \\\"x\\\"\",\"green\"]}}");
    CHECK(a.status == 200 &&
          (answer_has(&a, "\"text\":\"red \\\"x\\\"\"") || answer_has(&a, "\"text\":\"green\"")));
    post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":200,\"seed\":1,"
                            "\"response_format\":{\"type\":\"json_object\"}}");
    answer_check(&a, 200, "\"text\":\"{");
}

static void a_form_that_cannot_be_kept_is_refused(void)
{
    static const struct {
        const char *form, *words;
    } rows[] = {
        {"\"grammar\":\"Root ::= \\\"a\\\"\"", "no rule named root"},
        {"\"grammar\":\"root ::= undefined-rule\"", "not defined"},
        {"\"grammar\":\"root ::= root \\\"a\\\"\"", "left recursion"},
        {"\"grammar\":\"root ::= \\\"a\\\"{1000000000}\"", "a million times at most"},
        {"\"grammar\":5", "string"},
        {"\"regex\":\"(?<=x)*\"", "look-behind"},
        {"\"regex\":\"a{2,1}\"", "is below its minimum"},
        {"\"regex\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\"", "more than one of grammar, regex"},
        {"\"json_schema\":{\"type\":\"banana\"}", "is not a type"},
        {"\"json_schema\":true", "expected near"},
        {"\"json_schema\":{\"$ref\":\"#\"}", "left recursion"},
        {"\"json_schema\":{\"$ref\":\"http://x.example/\"}", "only references inside"},
        {"\"json_schema\":{\"type\":\"integer\",\"multipleOf\":3}", "multipleOf"},
        {"\"response_format\":{\"type\":\"json_schema\"}", "no schema"},
        {"\"response_format\":{\"type\":\"xml\"}", "response_format"},
        {"\"response_format\":5", "response_format"},
        {"\"structured_outputs\":{\"wrong\":1}", "unknown member"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char request[1024];
        snprintf(request, sizeof request, "{\"prompt\":\"x\",\"max_tokens\":4,%s}", rows[i].form);
        post("/v1/completions", request);
        answer_check(&a, 400, rows[i].words);
        CHECK(answer_has(&a, "\"invalid_request_error\""));
    }
}

static void a_forced_call_is_a_call(void)
{
    post("/v1/chat/completions", "{" HELLO "," TOOLS ",\"seed\":3,\"tool_choice\":{\"type\":"
                                 "\"function\",\"function\":{\"name\":\"tell\"}}}");
    answer_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    json_t *json = body();
    json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    json_t *one =
        json_array_get(json_object_get(json_object_get(choice, "message"), "tool_calls"), 0);
    json_t *function = json_object_get(one, "function");
    CHECK(strcmp(json_string_value(json_object_get(function, "name")), "tell") == 0);
    CHECK(is_person(json_string_value(json_object_get(function, "arguments"))));
    json_decref(json);
    post("/v1/chat/completions",
         "{" HELLO "," TOOLS ",\"seed\":4,\"tool_choice\":\"required\",\"stream\":true}");
    CHECK(a.status == 200 && answer_count(&a, "\"function\":{\"name\":\"") == 1);
    post("/v1/chat/completions", "{" HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"function\","
                                 "\"function\":{\"name\":\"other\"}}}");
    answer_check(&a, 400, "not among the tools");
    post("/v1/chat/completions", "{" HELLO ",\"tool_choice\":\"required\"}");
    answer_check(&a, 400, "no tools");
}

/* ---- Anthropic ------------------------------------------------------------------------------- */

static void messages_are_answered(void)
{
    post("/v1/messages", "{\"model\":\"tale\",\"max_tokens\":8,\"system\":[{\"type\":\"text\","
                         "\"text\":\"Be kind.\"}],\"messages\":[{\"role\":\"user\",\"content\":"
                         "[{\"type\":\"text\",\"text\":\"Hello\"}]}]}");
    answer_check(&a, 200, "\"type\":\"message\",\"role\":\"assistant\"");
    CHECK(answer_has(&a, "\"content\":[{\"type\":\"text\",\"text\":\"") &&
          answer_has(&a, "\"stop_reason\":\"max_tokens\"") &&
          answer_has(&a, "\"output_tokens\":8"));
    json_decref(body());
    post("/v1/messages",
         "{\"max_tokens\":99,\"temperature\":0,\"messages\":[{\"role\":\"user\",\"content\":"
         "\"Once\"}],\"stop_sequences\":[\"e\"]}");
    answer_check(&a, 200, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"e\"");
}

static void a_stream_of_messages_has_named_events(void)
{
    static const char *const events[] = {"message_start",       "content_block_start",
                                         "content_block_delta", "content_block_stop",
                                         "message_delta",       "message_stop"};
    post("/v1/messages", "{\"max_tokens\":6,\"stream\":true,\"messages\":[{\"role\":\"user\","
                         "\"content\":\"Hello\"}]}");
    CHECK(a.status == 200 && strstr(a.head, "Content-Type: text/event-stream\r\n"));
    const char *at = a.body;
    for (size_t i = 0; at && i < sizeof events / sizeof events[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "event: %s\ndata: {\"type\":\"%s\"", events[i], events[i]);
        at = strstr(at, line);
        if (!CHECK(at != NULL))
            tap_note("%s is missing: %s", events[i], a.body);
    }
    CHECK(answer_count(&a, "event: ") == answer_count(&a, "\n\n"));
}

static void a_message_may_be_a_forced_call(void)
{
    post("/v1/messages",
         "{\"max_tokens\":120,\"tools\":[{\"name\":\"tell\",\"input_schema\":" SCHEMA "}],"
         "\"tool_choice\":{\"type\":\"any\"},\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"so\"},{\"type\":"
         "\"tool_use\",\"id\":\"t1\",\"name\":\"tell\",\"input\":{\"name\":\"a\",\"age\":3}}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
         "\"content\":\"done\"},{\"type\":\"text\",\"text\":\"again\"}]}]}");
    answer_check(&a, 200, "\"stop_reason\":\"tool_use\"");
    json_t *json = body();
    json_t *block = json_array_get(json_object_get(json, "content"), 0);
    CHECK(json_is_string(json_object_get(block, "id")));
    char *input = json_dumps(json_object_get(block, "input"), 0);
    CHECK(is_person(input));
    free(input);
    json_decref(json);
}

static void tokens_of_messages_are_counted(void)
{
    post("/v1/messages/count_tokens", "{\"system\":\"Be kind.\",\"messages\":[{\"role\":\"user\","
                                      "\"content\":\"Hello\"}]}");
    answer_check(&a, 200, "{\"input_tokens\":");
    char plain[128];
    snprintf(plain, sizeof plain, "%s", a.body);
    /* The line that differs in every request of one client does not reach the prompt. */
    post("/v1/messages/count_tokens",
         "{\"system\":\"x-anthropic-billing-header: cc_version=2; cch=abc123;\\nBe kind.\","
         "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}");
    CHECK(a.status == 200 && strcmp(a.body, plain) == 0);
    post("/v1/messages/count_tokens",
         "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=1\"},"
         "{\"type\":\"text\",\"text\":\"Be kind.\"}],"
         "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}");
    CHECK(a.status == 200 && strcmp(a.body, plain) == 0);
}

static void bad_messages_are_refused_in_their_form(void)
{
    static const char *const bad[] = {
        "{}",
        "{\"max_tokens\":5}",
        "{\"max_tokens\":5,\"messages\":[]}",
        "{\"max_tokens\":5,\"messages\":[5]}",
        "{\"max_tokens\":5,\"messages\":[{}]}",
        "{\"max_tokens\":5,\"messages\":[{\"role\":\"root\",\"content\":\"x\"}]}",
        "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":5}]}",
        "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
        "{\"max_tokens\":-1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"max_tokens\":\"5\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"max_tokens\":5,\"temperature\":1e30,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}"
        "]}",
        "{\"max_tokens\":5,\"tools\":[{}],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"max_tokens\":5,\"tool_choice\":{\"type\":\"any\"},\"messages\":[{\"role\":\"user\","
        "\"content\":\"x\"}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        post("/v1/messages", bad[i]);
        if (!CHECK(a.status == 400 && answer_has(&a, "{\"type\":\"error\",\"error\":{")))
            tap_note("%s: %d %s", bad[i], a.status, a.body ? a.body : "");
    }
}

/* ---- Ollama ---------------------------------------------------------------------------------- */

static void ollama_clients_can_look_around(void)
{
    served_get(&s, "/api/version", &a);
    answer_check(&a, 200, "{\"version\":\"");
    served_get(&s, "/api/tags", &a);
    answer_check(&a, 200, "\"models\":[{\"name\":\"tale\"");
    json_decref(body());
    served_get(&s, "/api/ps", &a);
    answer_check(&a, 200, "\"context_length\":");
    json_decref(body());
    post("/api/show", "{\"model\":\"tale:latest\"}");
    answer_check(&a, 200, "\"capabilities\":[\"completion\"");
    json_decref(body());
    post("/api/show", "{\"model\":\"default:latest\"}");
    answer_check(&a, 200, "\"capabilities\"");
    post("/api/show", "{\"model\":\"other\"}");
    answer_check(&a, 404, "{\"error\":\"");
    post("/api/show", "{}");
    answer_check(&a, 400, "{\"error\":\"");
}

static void ollama_streams_lines(void)
{
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                      "\"options\":{\"num_predict\":6,\"temperature\":0,\"seed\":1}}");
    CHECK(a.status == 200 && strstr(a.head, "Content-Type: application/x-ndjson\r\n"));
    CHECK(answer_count(&a, "\"done\":true") == 1 && answer_has(&a, "\"done_reason\":\"length\"") &&
          answer_has(&a, "\"eval_count\":6") && answer_has(&a, "\"total_duration\":"));
    char *line = a.body;
    for (char *end; line && (end = strchr(line, '\n')); line = end + 1) {
        json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
        CHECK(json_is_object(json_object_get(json, "message")));
        json_decref(json);
    }
    post("/api/generate",
         "{\"model\":\"tale\",\"prompt\":\"Once upon\",\"raw\":true,\"stream\":false,"
         "\"options\":{\"num_predict\":4}}");
    answer_check(&a, 200, "\"response\":\"");
    json_decref(body());
    /* The model has no template: its prompt is the text, with no other model's marks. */
    static const char *const same[] = {"", "\"raw\":true,"};
    json_int_t n_prompt[2];
    for (int i = 0; i < 2; i++) {
        char request[256];
        snprintf(request, sizeof request,
                 "{\"model\":\"tale\",\"prompt\":\"Once upon\",%s\"stream\":false,"
                 "\"options\":{\"num_predict\":1}}",
                 same[i]);
        post("/api/generate", request);
        json_t *counted = body();
        n_prompt[i] = json_integer_value(json_object_get(counted, "prompt_eval_count"));
        json_decref(counted);
    }
    CHECK(n_prompt[0] > 0 && n_prompt[0] == n_prompt[1]);
    post("/api/generate",
         "{\"model\":\"tale\",\"prompt\":\"A king\",\"stream\":false,\"format\":" SCHEMA
         ",\"options\":{\"num_predict\":120}}");
    json_t *json = body();
    CHECK(is_person(json_string_value(json_object_get(json, "response"))));
    json_decref(json);
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                      "\"options\":{\"temperature\":-1}}");
    answer_check(&a, 400, "temperature");
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                      "\"options\":{\"num_ctx\":100000000}}");
    answer_check(&a, 400, "num_ctx");
}

static void ollama_without_a_prompt_loads_or_unloads_and_answers_at_once(void)
{
    static const struct {
        const char *fields, *reason;
    } rows[] = {{"", "load"},
                {",\"keep_alive\":\"5m\"", "load"},
                {",\"keep_alive\":-1", "load"},
                {",\"keep_alive\":0", "unload"},
                {",\"keep_alive\":\"0s\"", "unload"},
                {",\"stream\":true", "load"}};
    static const struct {
        const char *path, *empty;
    } ways[] = {{"/api/generate", ""},
                {"/api/generate", ",\"prompt\":\"\""},
                {"/api/chat", ""},
                {"/api/chat", ",\"messages\":[]"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            char request[256];
            snprintf(request, sizeof request, "{\"model\":\"tale\"%s%s}", ways[k].empty,
                     rows[i].fields);
            post(ways[k].path, request);
            json_t *json = body();
            const char *reason = json_string_value(json_object_get(json, "done_reason"));
            CHECK(a.status == 200 && json_is_true(json_object_get(json, "done")));
            CHECK(reason && strcmp(reason, rows[i].reason) == 0);
            CHECK(json_object_get(json, k < 2 ? "response" : "message") != NULL);
            json_decref(json);
        }
    post("/api/generate", "{\"model\":\"tale\",\"keep_alive\":\"soon\"}");
    answer_check(&a, 400, "keep_alive");
    post("/api/generate", "{\"model\":\"tale\",\"keep_alive\":[]}");
    answer_check(&a, 400, "keep_alive");
}

static void ollama_calls_need_no_content_type(void)
{
    static const char ask[] = "{\"model\":\"tale\",\"prompt\":\"Once\",\"stream\":false,"
                              "\"options\":{\"num_predict\":2}}";
    served_request(&s, "POST", "/api/generate", "", ask, strlen(ask), &a);
    answer_check(&a, 200, "\"eval_count\":2");
    /* What curl -d says, as in Ollama's own documentation. */
    served_request(&s, "POST", "/api/generate",
                   "Content-Type: application/x-www-form-urlencoded\r\n", ask, strlen(ask), &a);
    answer_check(&a, 200, "\"eval_count\":2");
    served_request(&s, "POST", "/v1/completions", "", ask, strlen(ask), &a);
    answer_check(&a, 415, NULL);
    /* A form in a stranger's page. */
    served_request(
        &s, "POST", "/api/generate",
        "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://x.example\r\n", ask,
        strlen(ask), &a);
    answer_check(&a, 403, "{\"error\":\"");
}

static void ollama_gives_logprobs(void)
{
    post("/api/generate", "{\"model\":\"tale\",\"prompt\":\"Once upon\",\"logprobs\":true,"
                          "\"top_logprobs\":3,\"stream\":false,\"options\":{\"num_predict\":5,"
                          "\"temperature\":0}}");
    json_t *json = body();
    const json_t *list = json_object_get(json, "logprobs");
    CHECK(a.status == 200 && json_array_size(list) == 5);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *top = json_object_get(one, "top_logprobs");
        CHECK(json_number_value(json_object_get(one, "logprob")) <= 0);
        CHECK(json_array_size(top) == 3);
        CHECK(json_equal(json_object_get(json_array_get(top, 0), "token"),
                         json_object_get(one, "token"))); /* greedy */
    }
    json_decref(json);
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                      "\"logprobs\":true,\"options\":{\"num_predict\":6}}");
    CHECK(a.status == 200 && answer_count(&a, "\"logprob\":") == 6);
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                      "\"logprobs\":7}");
    answer_check(&a, 400, "{\"error\":\"logprobs");
}

static void ollama_says_a_version_that_its_clients_can_compare(void)
{
    int major = -1, minor = -1, patch = -1;
    served_get(&s, "/api/version", &a);
    json_t *json = body();
    const char *version = json_string_value(json_object_get(json, "version"));
    /* 0.12.11 is the first with all that is done here. */
    CHECK(version && sscanf(version, "%d.%d.%d", &major, &minor, &patch) == 3);
    CHECK(major > 0 || minor > 12 || (minor == 12 && patch >= 11));
    json_decref(json);
    served_get(&s, "/api/tags", &a);
    json = body();
    const json_t *model = json_array_get(json_object_get(json, "models"), 0);
    CHECK(json_string_length(json_object_get(model, "digest")) == 64);
    json_decref(json);
}

/* ---- Embeddings ------------------------------------------------------------------------------ */

static double dot(const json_t *x, const json_t *y)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(x); i++)
        sum += json_number_value(json_array_get(x, i)) * json_number_value(json_array_get(y, i));
    return sum;
}

static const json_t *embedding(const json_t *json, size_t i)
{
    return json_object_get(json_array_get(json_object_get(json, "data"), i), "embedding");
}

static void embeddings_have_length_one(void)
{
    static const char *const poolings[] = {"mean", "last", "cls"};
    for (size_t k = 0; k < 3; k++) {
        char request[256];
        snprintf(request, sizeof request,
                 "{\"input\":[\"The king rode home.\",\"The king rode home.\",\"A fish\"],"
                 "\"pooling\":\"%s\"}",
                 poolings[k]);
        post("/v1/embeddings", request);
        answer_check(&a, 200, "\"object\":\"embedding\",\"index\":2");
        json_t *json = body();
        const json_t *x = embedding(json, 0), *y = embedding(json, 1), *z = embedding(json, 2);
        /* Sums of f32 values, printed with 9 digits: 1e-5 leaves room for their rounding. */
        CHECK(json_array_size(x) > 8 && fabs(dot(x, x) - 1) < 1e-5 && fabs(dot(x, y) - 1) < 1e-5);
        CHECK(k == 2 || dot(x, z) < 0.999999); /* the first token may be the same */
        json_decref(json);
    }
}

static void embeddings_come_as_base64_too(void)
{
    post("/v1/embeddings", "{\"input\":\"fish\",\"encoding_format\":\"float\"}");
    json_t *json = body();
    size_t n = json_array_size(embedding(json, 0));
    json_decref(json);
    post("/v1/embeddings", "{\"input\":\"fish\",\"encoding_format\":\"base64\"}");
    json = body();
    CHECK(json_string_length(embedding(json, 0)) == (n * 4 + 2) / 3 * 4);
    json_decref(json);
    post("/v1/embeddings", "{\"input\":[1,2,3]}");
    answer_check(&a, 200, "\"prompt_tokens\":3");
    post("/api/embed", "{\"model\":\"tale\",\"input\":[\"a\",\"b\"]}");
    answer_check(&a, 200, "\"embeddings\":[[");
    json_decref(body());
}

static void ollamas_older_route_gives_one_embedding(void)
{
    post("/api/embeddings", "{\"model\":\"tale\",\"prompt\":\"a king\"}");
    json_t *one = body();
    const json_t *vector = json_object_get(one, "embedding");
    post("/api/embed", "{\"model\":\"tale\",\"input\":\"a king\"}");
    json_t *same = body();
    CHECK(json_array_size(vector) > 0 &&
          json_equal(vector, json_array_get(json_object_get(same, "embeddings"), 0)));
    json_decref(one);
    json_decref(same);
    post("/api/embeddings", "{\"model\":\"tale\"}");
    answer_check(&a, 200, "{\"embedding\":[]}");
    post("/api/embeddings", "{\"model\":\"tale\",\"prompt\":5}");
    answer_check(&a, 400, "{\"error\":\"prompt");
}

static void bad_inputs_of_embeddings_are_refused(void)
{
    static const char *const bad[] = {
        "{}",
        "{\"input\":[]}",
        "{\"input\":5}",
        "{\"input\":[-1]}",
        "{\"input\":[999999999]}",
        "{\"input\":[[1],5]}",
        "{\"input\":\"x\",\"encoding_format\":\"hex\"}",
        "{\"input\":\"x\",\"dimensions\":3}",
        "{\"input\":\"x\",\"pooling\":\"max\"}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        post("/v1/embeddings", bad[i]);
        if (!CHECK(a.status == 400))
            tap_note("%s: %d %s", bad[i], a.status, a.body ? a.body : "");
    }
    char *longer = malloc(40000);
    size_t n = (size_t)sprintf(longer, "{\"input\":\"");
    while (n < 30000)
        n += (size_t)sprintf(longer + n, "fish and bird ");
    sprintf(longer + n, "\"}");
    post("/v1/embeddings", longer);
    answer_check(&a, 400, "context_length_exceeded");
    free(longer);
}

/* ---- Responses ------------------------------------------------------------------------------- */

static void responses_are_given_without_state(void)
{
    post("/v1/responses",
         "{\"input\":\"Hello\",\"max_output_tokens\":5,\"instructions\":\"Be kind.\"}");
    answer_check(&a, 200, "\"object\":\"response\"");
    CHECK(answer_has(&a, "\"status\":\"incomplete\"") &&
          answer_has(&a, "\"type\":\"output_text\"") && answer_has(&a, "\"output_tokens\":5"));
    json_decref(body());
    post("/v1/responses",
         "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"Hi\"}]},"
         "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"tell\",\"arguments\":\"{}\"},"
         "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"done\"}],"
         "\"max_output_tokens\":120,\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"p\","
         "\"schema\":" SCHEMA "}}}");
    answer_check(&a, 200, "\"status\":\"completed\"");
    json_t *json = body();
    json_t *item = json_array_get(json_object_get(json, "output"), 0);
    json_t *part = json_array_get(json_object_get(item, "content"), 0);
    CHECK(is_person(json_string_value(json_object_get(part, "text"))));
    json_decref(json);
    post("/v1/responses", "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}");
    answer_check(&a, 400, "not kept");
    post("/v1/responses", "{\"input\":[]}");
    answer_check(&a, 400, "input");
}

static void a_stream_of_responses_has_its_events(void)
{
    static const char *const events[] = {
        "response.created",           "response.in_progress",
        "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done",
        "response.content_part.done", "response.output_item.done",
        "response.incomplete"};
    post("/v1/responses", "{\"input\":\"Hello\",\"max_output_tokens\":5,\"stream\":true}");
    const char *at = a.body;
    for (size_t i = 0; at && i < sizeof events / sizeof events[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "event: %s\ndata: {\"type\":\"%s\"", events[i], events[i]);
        at = strstr(at, line);
        if (!CHECK(at != NULL))
            tap_note("%s is missing: %s", events[i], a.body);
    }
    post("/v1/responses",
         "{\"input\":\"x\",\"max_output_tokens\":120,\"tools\":[{\"type\":\"function\",\"name\":"
         "\"tell\",\"parameters\":" SCHEMA "}],\"tool_choice\":\"required\"}");
    answer_check(&a, 200, "\"type\":\"function_call\"");
    json_decref(body());
}

int main(void)
{
    if (!served_start(&s, "--alias tale -c 512 --threads 2")) {
        printf("1..0 # SKIP the server does not start\n");
        return 1;
    }
    CASE(a_reply_follows_its_schema);
    CASE(a_text_follows_its_regex_and_grammar);
    CASE(a_form_that_cannot_be_kept_is_refused);
    CASE(a_forced_call_is_a_call);
    CASE(messages_are_answered);
    CASE(a_stream_of_messages_has_named_events);
    CASE(a_message_may_be_a_forced_call);
    CASE(tokens_of_messages_are_counted);
    CASE(bad_messages_are_refused_in_their_form);
    CASE(ollama_clients_can_look_around);
    CASE(ollama_streams_lines);
    CASE(ollama_without_a_prompt_loads_or_unloads_and_answers_at_once);
    CASE(ollama_calls_need_no_content_type);
    CASE(ollama_gives_logprobs);
    CASE(ollama_says_a_version_that_its_clients_can_compare);
    CASE(embeddings_have_length_one);
    CASE(embeddings_come_as_base64_too);
    CASE(ollamas_older_route_gives_one_embedding);
    CASE(bad_inputs_of_embeddings_are_refused);
    CASE(responses_are_given_without_state);
    CASE(a_stream_of_responses_has_its_events);
    tap_note("exit code %d", served_stop(&s));
    answer_free(&a);
    return tap_end();
}
