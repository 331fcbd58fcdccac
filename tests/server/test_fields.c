/* Fields of requests: what goes before the text and behind it, what ends it
 * early, what is refused. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "served.h"
#include "scratch.h"
#include "tap.h"
#include "tiny_model.h"

static served s;
static answer a;

static void post(const char *path, const char *json)
{
    served_post(&s, path, json, &a);
}

/* ---- Echo and suffix ------------------------------------------------------------------------- */

static void an_echo_goes_before_the_text(void)
{
    post("/v1/completions", "{\"prompt\":\"Once upon a\",\"max_tokens\":3,\"echo\":true,\"n\":2}");
    answer_check(&a, 200, "{\"index\":1,\"text\":\"Once upon a");
    answer_check(&a, 200, "{\"index\":0,\"text\":\"Once upon a");
    post("/v1/completions",
         "{\"prompt\":[\"The king\",\"A fish\"],\"max_tokens\":3,\"echo\":true}");
    answer_check(&a, 200, "{\"index\":0,\"text\":\"The king");
    answer_check(&a, 200, "{\"index\":1,\"text\":\"A fish");
    post("/tokenize", "{\"content\":\"The king\",\"add_special\":false}");
    json_t *json = json_loads(a.body, 0, NULL), *request = json_object();
    json_object_set(request, "prompt", json_object_get(json, "tokens"));
    json_object_set_new(request, "echo", json_true());
    json_object_set_new(request, "max_tokens", json_integer(2));
    char *dumped = json_dumps(request, 0);
    post("/v1/completions", dumped);
    answer_check(&a, 200, "\"text\":\"The king");
    free(dumped);
    json_decref(json);
    json_decref(request);
}

static void a_stream_begins_with_the_echo_once(void)
{
    post("/v1/completions",
         "{\"prompt\":\"Once upon\",\"max_tokens\":5,\"echo\":true,\"stream\":true}");
    answer_check(&a, 200, "\"text\":\"Once upon");
    const char *first = strstr(a.body, "Once upon");
    CHECK(first && !strstr(first + 1, "Once upon"));
}

static void a_suffix_needs_a_model_for_it(void)
{
    post("/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"b\",\"max_tokens\":3}");
    answer_check(&a, 400, "no tokens for filling in");
    answer_check(&a, 400, "\"param\":\"suffix\"");
    post("/api/generate", "{\"model\":\"tale\",\"prompt\":\"a\",\"suffix\":\"b\"}");
    answer_check(&a, 400, "no tokens for filling in");
    post("/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"\",\"max_tokens\":3}");
    answer_check(&a, 200, NULL);
    post("/v1/completions", "{\"prompt\":\"a\",\"suffix\":5,\"max_tokens\":3}");
    answer_check(&a, 400, "suffix is not a string");
}

/* <s> <fim_prefix> th e <fim_suffix> a n d <fim_middle>, with a mark for the space in front. */
static void a_suffix_is_put_behind_the_hole(void)
{
    tiny_options o = tiny_options_default();
    o.has_infill = true;
    buf file;
    buf_init(&file, 16 << 20);
    lace_error err = {0};
    const char *folder = scratch_create();
    if (!CHECK(folder && tiny_model_build(&o, &file, &err) == LACE_OK))
        return;
    const char *path = scratch_path("fim.gguf");
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(file.data, 1, file.size, f) == file.size);
    fclose(f);
    char arguments[600];
    snprintf(arguments, sizeof arguments, "%s --threads 1", path);
    served other;
    if (CHECK(served_start(&other, arguments))) {
        static const char *const bodies[] = {
            "{\"content\":\"<fim_prefix>the<fim_suffix>and<fim_middle>\",\"add_special\":true}",
            "{\"prompt\":\"the\",\"suffix\":\"and\",\"max_tokens\":2}"};
        served_post(&other, "/tokenize", bodies[0], &a);
        json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
        json_int_t n = json_integer_value(json_object_get(json, "count"));
        json_decref(json);
        served_post(&other, "/v1/completions", bodies[1], &a);
        char expected[64];
        snprintf(expected, sizeof expected, "\"prompt_tokens\":%d,", (int)n);
        CHECK(n >= 6 && n <= 8); /* were the words no tokens, there would be some thirty */
        answer_check(&a, 200, expected);
        served_stop(&other);
    }
    buf_deinit(&file);
    scratch_remove();
}

/* ---- What is not done ------------------------------------------------------------------------ */

static void what_would_change_the_text_and_is_not_done_is_refused(void)
{
    static const struct {
        const char *path, *field, *words;
    } rows[] = {
        {"/v1/completions", "\"min_keep\":2", "min_keep is not supported"},
        {"/v1/completions", "\"stop_regex\":\"a+\"", "stop_regex is not supported; use stop"},
        {"/v1/completions", "\"grammar\":\"\"", "grammar"},
        {"/v1/completions", "\"min_tokens\":5", "min_tokens is 5, but max_tokens is 4"},
        {"/v1/completions", "\"tools\":[{\"type\":\"x\"}]", "tools is not supported on this route"},
        {"/v1/chat/completions", "\"suffix\":\"end\"", "suffix is not supported on this route"},
        {"/v1/chat/completions", "\"echo\":true", "echo is not supported on this route"},
        {"/v1/chat/completions", "\"best_of\":3", "best_of other than n"},
        {"/v1/chat/completions", "\"best_of\":\"1\"", "best_of other than n"},
        {"/v1/chat/completions", "\"min_keep\":3", "min_keep"},
        {"/v1/chat/completions", "\"verbosity\":\"low\"", "verbosity"},
        {"/v1/chat/completions", "\"min_tokens\":9", "min_tokens"},
        {"/v1/responses", "\"min_keep\":3", "min_keep"},
        {"/v1/embeddings", "\"embd_normalize\":-1", "embd_normalize"},
        {"/v1/embeddings", "\"normalize\":false", "normalize"},
        {"/v1/embeddings", "\"add_special_tokens\":false", "add_special_tokens"},
        {"/v1/embeddings", "\"truncate_prompt_tokens\":5", "truncate_prompt_tokens"},
        {"/v1/completions", "\"tfs_z\":0.9", "tfs_z is not supported"},
        {"/v1/completions", "\"top_n_sigma\":1.5", "not supported"},
        {"/v1/completions", "\"use_beam_search\":true", "not supported"},
        {"/v1/completions", "\"echo\":true,\"logprobs\":2", "not computed"},
        {"/v1/completions", "\"echo\":1", "echo is not a boolean"},
        {"/v1/completions", "\"best_of\":3", "best_of"},
        {"/v1/completions", "\"guided_json\":{\"type\":\"object\"}", "structured_outputs.json"},
        {"/v1/chat/completions", "\"functions\":[{\"name\":\"f\"}]", "use tools"},
        {"/v1/chat/completions", "\"modalities\":[\"text\",\"audio\"]", "modalities"},
        {"/v1/chat/completions", "\"parallel_tool_calls\":1", "parallel_tool_calls"},
        {"/v1/responses", "\"truncation\":\"auto\"", "truncation"},
        {"/v1/responses", "\"background\":true", "background"},
        {"/v1/responses", "\"n\":2", "n"},
        {"/v1/messages", "\"stop_sequences\":\"x\"", "stop_sequences is not a list"},
        {"/v1/messages", "\"mcp_servers\":[{}]", "mcp_servers"},
        {"/v1/messages", "\"output_format\":{\"type\":\"xml\"}", "json_schema"},
        {"/v1/messages", "\"thinking\":{\"type\":\"often\"}", "thinking has no type enabled"},
        {"/v1/messages", "\"system\":5", "system: a content is neither"},
        {"/v1/messages", "\"system\":[{\"type\":\"image\"}]",
         "system: a block is not of type text"},
        {"/completion", "\"image_data\":[{\"data\":\"\"}]", "image_data is not supported"},
        {"/completion", "\"n_indent\":\"x\"", "n_indent is not an integer"},
        {"/api/chat", "\"options\":{\"num_ctx\":\"x\"}", "options.num_ctx is not an integer"},
        {"/api/chat", "\"options\":{\"tfs_z\":0.5}", "options.tfs_z"},
        {"/api/generate", "\"template\":\"x\"", "template is not supported"},
        {"/api/generate", "\"images\":[\"x\"]", "no vision tower"},
        {"/api/chat", "\"top_logprobs\":2", "logprobs is not true"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "{\"model\":\"tale\",\"prompt\":\"x\",\"input\":\"x\",\"messages\":[{\"role\":"
                 "\"user\",\"content\":\"x\"}],\"max_tokens\":4,%s}",
                 rows[i].field);
        if (strcmp(rows[i].path, "/v1/responses") == 0)
            memcpy(strstr(request, "prompt"), "ignore", 6);
        post(rows[i].path, request);
        answer_check(&a, 400, rows[i].words);
    }
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"x\","
                      "\"images\":\"y\"}]}");
    answer_check(&a, 400, "images is not a list");
}

static void values_that_ask_for_nothing_pass(void)
{
    post("/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":4,\"functions\":[],"
         "\"tfs_z\":1.0,\"min_keep\":1,\"best_of\":1,\"suffix\":null,\"top_n_sigma\":-1,\"n_keep\":"
         "0,\"modalities\":[\"text\"],\"audio\":null,"
         "\"user\":\"me\",\"store\":false,\"metadata\":{\"a\":\"b\"},\"service_tier\":\"auto\"}");
    answer_check(&a, 200, NULL);
    post("/api/chat", "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                      "\"stream\":false,\"options\":{\"num_predict\":3,\"num_thread\":2,"
                      "\"mirostat\":2,\"num_keep\":4}}");
    answer_check(&a, 200, "\"done\":true");
}

static void minus_one_is_taken_where_others_take_it(void)
{
    static const char *const fields[] = {
        "\"max_tokens\":-1,\"stop\":\" the\"",
        "\"n_predict\":-1,\"stop\":\" the\"",
        "\"top_k\":-1",
        "\"repeat_last_n\":-1,\"repeat_penalty\":1.2",
        "\"seed\":-1",
        "\"dry_penalty_last_n\":-1,\"dry_multiplier\":0.8",
        "\"top_p\":0",
        "\"dry_penalty_last_n\":0,\"dry_multiplier\":0.8",
        "\"tfs_z\":1",
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "{\"prompt\":\"Once upon\",\"max_tokens\":4,%s}",
                 fields[i]);
        if (i < 2) /* the limit is what is tried */
            snprintf(request, sizeof request, "{\"prompt\":\"Once upon\",%s}", fields[i]);
        post("/v1/completions", request);
        answer_check(&a, 200, NULL);
    }
    post("/api/generate",
         "{\"model\":\"tale\",\"prompt\":\"Once\",\"stream\":false,\"options\":{\"num_predict\":3,"
         "\"top_k\":-1,\"repeat_last_n\":-1,\"seed\":-1,\"top_p\":0,\"tfs_z\":1}}");
    answer_check(&a, 200, "\"done\":true");
    /* All tokens, and the best alone: not what the default of 40 tokens gives. */
    char texts[3][400];
    static const char *const cuts[] = {"\"top_k\":-1", "\"top_k\":0", "\"top_p\":0"};
    for (int i = 0; i < 3; i++) {
        char request[256];
        snprintf(request, sizeof request,
                 "{\"prompt\":\"Once "
                 "upon\",\"max_tokens\":12,\"temperature\":2,\"min_p\":0,\"seed\":3,%s}",
                 cuts[i]);
        post("/v1/completions", request);
        const char *at = a.body ? strstr(a.body, "\"text\":") : NULL;
        snprintf(texts[i], sizeof texts[i], "%.*s", at ? (int)strcspn(at, "}") : 0, at ? at : "");
    }
    CHECK(strcmp(texts[0], texts[1]) == 0 && strcmp(texts[0], texts[2]) != 0);
    post("/v1/completions", "{\"prompt\":\"Once upon\",\"max_tokens\":12,\"temperature\":0}");
    const char *greedy = a.body ? strstr(a.body, "\"text\":") : NULL;
    CHECK(greedy && strncmp(greedy, texts[2], strlen(texts[2])) == 0);
}

/* ---- One call -------------------------------------------------------------------------------- */

/* A grammar makes the model write two calls. */
#define TWO_CALLS                                                                                  \
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":200,\"tools\":[{"         \
    "\"type\":"                                                                                    \
    "\"function\",\"function\":{\"name\":\"f\"}}],\"grammar\":\"root ::= call call\\ncall ::= "    \
    "\\\"<tool_call>{\\\\\\\"name\\\\\\\": \\\\\\\"f\\\\\\\", \\\\\\\"arguments\\\\\\\": {}}"      \
    "</tool_call>\\\"\""

static void one_call_is_enough_without_parallel_calls(void)
{
    post("/v1/chat/completions", "{" TWO_CALLS "}");
    answer_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    CHECK(answer_count(&a, "\"name\":\"f\"") == 2);
    post("/v1/chat/completions", "{" TWO_CALLS ",\"parallel_tool_calls\":false}");
    answer_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    CHECK(answer_count(&a, "\"name\":\"f\"") == 1);
    post("/v1/chat/completions", "{" TWO_CALLS ",\"parallel_tool_calls\":false,\"stream\":true}");
    answer_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    CHECK(answer_count(&a, "\"name\":\"f\"") == 1 && answer_count(&a, "data: [DONE]") == 1);
}

/* ---- Embeddings ------------------------------------------------------------------------------ */

/* A request for many long texts, which takes minutes. */
static char *many_texts(void)
{
    char *json = malloc(4 << 20);
    size_t n = (size_t)sprintf(json, "{\"input\":[");
    for (int i = 0; i < 2000; i++) {
        n += (size_t)sprintf(json + n, "%s\"", i ? "," : "");
        for (int k = 0; k < 120; k++)
            n += (size_t)sprintf(json + n, "king and fish ");
        n += (size_t)sprintf(json + n, "\"");
    }
    sprintf(json + n, "]}");
    return json;
}

static int send_embeddings(const char *json)
{
    char head[200];
    int fd = served_connect(&s);
    int n = snprintf(head, sizeof head,
                     "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nContent-Length: %zu\r\n\r\n",
                     strlen(json));
    CHECK(fd >= 0 && served_send(fd, head, (size_t)n) && served_send(fd, json, strlen(json)));
    return fd;
}

static void embeddings_stop_nobody_and_end_with_their_clients(void)
{
    char *json = many_texts();
    double n_before = served_metric(&s, "lace_disconnects_total");
    int fds[4];
    for (int i = 0; i < 4; i++)
        fds[i] = send_embeddings(json);
    /* Two workers would be busy with the first two of them. */
    post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":4}");
    answer_check(&a, 200, NULL);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    post("/v1/embeddings", "{\"input\":\"fish\"}"); /* before or behind them */
    answer_check(&a, 200, "\"prompt_tokens\"");
    /* Reading the bodies takes a moment, computing all of it minutes. */
    double n_gone = 0;
    for (int i = 0; i < 600 && n_gone < 4; i++) {
        n_gone = served_metric(&s, "lace_disconnects_total") - n_before;
        usleep(50000);
    }
    CHECK(n_gone == 4);
    free(json);
}

int main(void)
{
    if (!served_start(&s, "--alias tale --ctx 512 --threads 2")) {
        printf("1..0 # SKIP the server does not start\n");
        return 1;
    }
    CASE(an_echo_goes_before_the_text);
    CASE(a_stream_begins_with_the_echo_once);
    CASE(a_suffix_needs_a_model_for_it);
    CASE(a_suffix_is_put_behind_the_hole);
    CASE(what_would_change_the_text_and_is_not_done_is_refused);
    CASE(values_that_ask_for_nothing_pass);
    CASE(minus_one_is_taken_where_others_take_it);
    CASE(one_call_is_enough_without_parallel_calls);
    CASE(embeddings_stop_nobody_and_end_with_their_clients);
    tap_note("exit code %d", served_stop(&s));
    answer_free(&a);
    return tap_end();
}
