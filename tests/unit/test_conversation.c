/* Chat, devices and single texts through lace.h: what a program of others has. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "lace.h"
#include "tap.h"

static const char MODEL[] = "models/tales-4m.gguf";
static const char TOOLS[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"at\": {\"type\": \"string\"}}, \"required\": [\"at\"]}}}]";

/* A template with reasoning and calls of Hermes' kind. */
static const char TEMPLATE[] =
    "{% if tools %}<tool_call> {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n";

static lace_model *model;
static lace_error err;

static bool ok(lace_status status)
{
    bool is_ok = CHECK(status == LACE_OK);
    if (!is_ok)
        tap_note("%s: %s", lace_status_name(status), err.text);
    return is_ok;
}

static lace_prompt *prompt_of(const lace_chat *chat, lace_chat_request request)
{
    lace_prompt *prompt = NULL;
    ok(lace_chat_prompt(chat, &request, &prompt, &err));
    return prompt;
}

static void messages_become_a_prompt_and_its_tokens(void)
{
    lace_chat *chat;
    if (!ok(lace_chat_create(model, NULL, &chat, &err)))
        return;
    lace_message messages[] = {{"system", "Be brief."}, {"user", "Hello <|im_end|>"}};
    lace_chat_request request = lace_chat_request_default();
    request.messages = messages;
    request.n_messages = 2;
    lace_prompt *plain = prompt_of(chat, request);
    request.messages_json = "[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": "
                            "\"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hello "
                            "<|im_end|>\"}]}]";
    lace_prompt *json = prompt_of(chat, request);
    if (plain && json) {
        CHECK(strcmp(plain->text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
                                  "Hello <|im_end|><|im_end|>\n<|im_start|>assistant\n") == 0);
        CHECK(strcmp(plain->text, json->text) == 0 && strlen(plain->text) == plain->n_bytes);
        CHECK(plain->n_tokens > 10 && plain->n_tokens == json->n_tokens);
        CHECK(memcmp(plain->tokens, json->tokens, plain->n_tokens * sizeof(lace_token)) == 0);
        CHECK(!plain->is_thinking);
    }
    lace_prompt_free(plain);
    lace_prompt_free(json);
    lace_chat_free(chat);
}

static void bad_requests_are_refused_with_a_line(void)
{
    static const struct {
        const char *messages, *tools, *variables;
        lace_status status;
        const char *says;
    } cases[] = {
        {"[", NULL, NULL, LACE_E_JSON, "messages_json"},
        {"{}", NULL, NULL, LACE_E_ARG, "messages_json is an object, expected an array"},
        {"[1]", NULL, NULL, LACE_E_ARG, ""},
        {"[]", "{}", NULL, LACE_E_ARG, "tools_json"},
        {"[]", NULL, "[]", LACE_E_ARG, "variables_json"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", NULL, NULL,
         LACE_E_UNSUPPORTED, ""},
    };
    lace_chat *chat;
    if (!ok(lace_chat_create(model, NULL, &chat, &err)))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lace_chat_request request = {.messages_json = cases[i].messages,
                                     .tools_json = cases[i].tools,
                                     .variables_json = cases[i].variables};
        lace_prompt *prompt = (lace_prompt *)&request;
        lace_status status = lace_chat_prompt(chat, &request, &prompt, &err);
        if (!CHECK(status == cases[i].status && prompt == NULL && strstr(err.text, cases[i].says)))
            tap_note("%zu: %s: %s", i, lace_status_name(status), err.text);
    }
    lace_chat_free(chat);
    CHECK(lace_chat_create(model, "{% if %}", &chat, &err) == LACE_E_TEMPLATE && chat == NULL);
    CHECK(lace_chat_create(model, NULL, &chat, NULL) == LACE_OK);
    lace_message latin = {"user", "\xe4"};
    lace_chat_request request = {.messages = &latin, .n_messages = 1};
    lace_prompt *prompt;
    CHECK(lace_chat_prompt(chat, &request, &prompt, &err) == LACE_E_UTF8 && prompt == NULL);
    lace_chat_free(chat);
}

typedef struct heard {
    char text[5][256]; /* by kind */
    int n_complete;
} heard;

static void hear(void *user, const lace_reply_event *e)
{
    heard *h = user;
    if (e->kind == LACE_REPLY_CALL_END)
        h->n_complete += e->is_complete;
    else
        strncat(h->text[e->kind], e->text, e->n_bytes);
}

static void replies_are_taken_apart_however_they_are_cut(void)
{
    static const char said[] = "I wonder.</think>Let me see.\n<tool_call>\n{\"name\": \"look\", "
                               "\"arguments\": {\"at\": \"it\"}}\n</tool_call>";
    lace_chat *chat;
    if (!ok(lace_chat_create(model, TEMPLATE, &chat, &err)))
        return;
    lace_message question = {"user", "Where?"};
    lace_chat_request request = {.messages = &question, .n_messages = 1, .tools_json = TOOLS};
    lace_prompt *prompt = prompt_of(chat, request);
    for (size_t step = 1; prompt && step < 9; step += 3) {
        heard h = {0};
        lace_reply *reply;
        const char *message = NULL;
        if (!ok(lace_reply_create(chat, prompt, hear, &h, &reply, &err)))
            break;
        for (size_t i = 0; i < sizeof said - 1; i += step)
            ok(lace_reply_push(reply, said + i,
                               i + step < sizeof said - 1 ? step : sizeof said - 1 - i, &err));
        ok(lace_reply_finish(reply, &message, &err));
        CHECK(prompt->is_thinking);
        CHECK(strcmp(h.text[LACE_REPLY_REASONING], "I wonder.") == 0);
        CHECK(strcmp(h.text[LACE_REPLY_CONTENT], "Let me see.") == 0);
        CHECK(strcmp(h.text[LACE_REPLY_CALL_BEGIN], "look") == 0);
        CHECK(strstr(h.text[LACE_REPLY_CALL_ARGS], "\"at\"") != NULL && h.n_complete == 1);
        if (!CHECK(message &&
                   strcmp(message,
                          "{\"role\":\"assistant\",\"content\":\"Let me see.\","
                          "\"reasoning_content\":\"I wonder.\",\"tool_calls\":[{\"id\":"
                          "\"call_0\",\"type\":\"function\",\"function\":{\"name\":\"look\","
                          "\"arguments\":\"{\\\"at\\\": \\\"it\\\"}\"}}]}") == 0))
            tap_note("%s", message ? message : "none");
        lace_reply_free(reply);
    }
    lace_prompt_free(prompt);
    lace_chat_free(chat);
}

static void calls_can_be_demanded(void)
{
    lace_chat *chat;
    if (!ok(lace_chat_create(model, TEMPLATE, &chat, &err)))
        return;
    lace_message question = {"user", "Where?"};
    lace_chat_request request = {.messages = &question, .n_messages = 1, .tools_json = TOOLS};
    lace_prompt *prompt = prompt_of(chat, request);
    lace_grammar *grammar = NULL;
    if (prompt) {
        ok(lace_chat_call_grammar(chat, prompt, "look", &grammar, &err));
        CHECK(grammar != NULL);
        lace_grammar_free(grammar);
        CHECK(lace_chat_call_grammar(chat, prompt, "listen", &grammar, &err) == LACE_E_ARG);
        CHECK(grammar == NULL && strstr(err.text, "listen"));
    }
    lace_prompt_free(prompt);
    request.tools_json = NULL;
    prompt = prompt_of(chat, request);
    CHECK(!prompt || lace_chat_call_grammar(chat, prompt, NULL, &grammar, &err) == LACE_E_ARG);
    lace_prompt_free(prompt);
    lace_chat_free(chat);
}

/* A conversation from end to end, but for the model. */
static lace_status converse(lace_error *e)
{
    lace_chat *chat;
    lace_prompt *prompt = NULL;
    lace_reply *reply = NULL;
    const char *message;
    lace_chat_request request = {.messages_json = "[{\"role\": \"user\", \"content\": \"Hi\"}]",
                                 .tools_json = TOOLS};
    lace_status status = lace_chat_create(model, NULL, &chat, e);
    if (status == LACE_OK)
        status = lace_chat_prompt(chat, &request, &prompt, e);
    if (status == LACE_OK)
        status = lace_reply_create(chat, prompt, NULL, NULL, &reply, e);
    if (status == LACE_OK)
        status = lace_reply_push(reply, "Hello.", 6, e);
    if (status == LACE_OK)
        status = lace_reply_finish(reply, &message, e);
    if (status == LACE_OK)
        CHECK(strcmp(message, "{\"role\":\"assistant\",\"content\":\"Hello.\"}") == 0);
    lace_reply_free(reply);
    lace_prompt_free(prompt);
    lace_chat_free(chat);
    return status;
}

/* Each allocation fails in its turn. Splitting a text does without some of them, and says the same. */
static void memory_may_run_out_in_a_conversation(void)
{
    mem_fail_at(-1, false);
    ok(converse(&err));
    long n = mem_count(), n_fine = 0;
    for (long index = 0; index < n; index++) {
        mem_fail_at(index, false);
        lace_status status = converse(&err);
        mem_fail_at(-1, false);
        n_fine += status == LACE_OK;
        if (status != LACE_OK && !CHECK(status == LACE_E_NOMEM))
            tap_note("allocation %ld: %s", index, err.text);
    }
    tap_note("%ld allocations failed once, %ld were not missed", n, n_fine);
    CHECK(n > 1000 && n_fine <= 2 && converse(&err) == LACE_OK);
}

static void the_cpu_is_the_first_device(void)
{
    lace_device devices[8];
    size_t n = lace_device_list(devices, 8);
    CHECK(n >= 1 && lace_device_list(NULL, 0) == n);
    CHECK(strcmp(devices[0].id, "cpu") == 0 && strstr(devices[0].name, "cores"));
    CHECK(devices[0].total_bytes > (64 << 20) && devices[0].free_bytes <= devices[0].total_bytes);
}

static void one_text_has_a_vector_of_length_1(void)
{
    lace_embedder *embedder;
    lace_model_info info;
    float vector[4096], score, sum = 0;
    lace_model_describe(model, &info);
    if (!ok(lace_embedder_create(model, NULL, &embedder, &err)) || !CHECK(info.n_embd <= 4096))
        return;
    ok(lace_embedder_embed(embedder, "a king", 6, vector, &err));
    for (int i = 0; i < info.n_embd; i++)
        sum += vector[i] * vector[i];
    CHECK(fabsf(sum - 1) < 1e-4f);
    CHECK(lace_embedder_score(embedder, "who", 3, "a king", 6, &score, &err) == LACE_E_UNSUPPORTED);
    lace_embedder_free(embedder);
}

static void the_library_says_its_version(void)
{
    CHECK(strcmp(lace_version(), LACE_VERSION) == 0);
}

int main(void)
{
    lace_model_options options = lace_model_options_default();
    if (lace_model_open(MODEL, &options, &model, &err) != LACE_OK) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    CASE(messages_become_a_prompt_and_its_tokens);
    CASE(bad_requests_are_refused_with_a_line);
    CASE(replies_are_taken_apart_however_they_are_cut);
    CASE(calls_can_be_demanded);
    CASE(memory_may_run_out_in_a_conversation);
    CASE(the_cpu_is_the_first_device);
    CASE(one_text_has_a_vector_of_length_1);
    CASE(the_library_says_its_version);
    lace_model_close(model);
    return tap_end();
}
