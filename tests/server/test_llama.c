/* llama-server's clients: its own routes, its fields and its answers. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scratch.h"
#include "served.h"
#include "tap.h"
#include "tiny_model.h"

static served s;
static answer a;
static json_t *json; /* the last answer */

static json_t *post(const char *path, const char *body)
{
    served_post(&s, path, body, &a);
    json_decref(json);
    json = json_loads(a.body ? a.body : "", 0, NULL);
    return json;
}

static const json_t *at(const json_t *object, const char *outer, const char *inner)
{
    return json_object_get(json_object_get(object, outer), inner);
}

/* ---- /completion ----------------------------------------------------------------------------- */

static void a_completion_has_llama_cpps_form(void)
{
    post("/completion", "{\"prompt\":\"Once upon a time\",\"n_predict\":6,\"seed\":3,\"n_probs\":2,"
                        "\"return_tokens\":true,\"stop\":[\"zzz\"],\"logit_bias\":[[5,false]]}");
    answer_check(&a, 200, "\"stop\":true");
    CHECK(json_array_size(json_object_get(json, "tokens")) == 6);
    CHECK(json_array_size(json_object_get(json, "completion_probabilities")) == 6);
    CHECK(json_integer_value(json_object_get(json, "tokens_predicted")) == 6);
    CHECK(json_integer_value(at(json, "timings", "predicted_n")) == 6);
    CHECK(json_integer_value(at(json, "timings", "prompt_n")) +
              json_integer_value(at(json, "timings", "cache_n")) ==
          json_integer_value(json_object_get(json, "tokens_evaluated")));
    CHECK(json_number_value(at(json, "timings", "predicted_per_second")) > 0);
    CHECK(json_integer_value(at(json, "generation_settings", "seed")) == 3);
    CHECK(json_array_size(at(json, "generation_settings", "logit_bias")) == 1);
    answer_check(&a, 200, "\"stop_type\":\"limit\"");
    answer_check(&a, 200, "\"truncated\":false");
    answer_check(&a, 200, "\"prompt\":\"Once upon a time\"");
    post("/completions", "{\"prompt\":\"Once upon a time\",\"n_predict\":60,\"stop\":\" \"}");
    answer_check(&a, 200, "\"stop_type\":\"word\",\"stopping_word\":\" \"");
    post("/completion", "{\"prompt\":\"Once\",\"n_predict\":-1,\"ignore_eos\":true}");
    answer_check(&a, 200, "\"truncated\":true"); /* the context is full */
    answer_check(&a, 200, "{\"bias\":null,\"token\":");
}

static void a_stream_gives_the_text_of_the_whole_answer(void)
{
    static const char body[] = "{\"prompt\":\"Once upon a time\",\"n_predict\":24,\"seed\":9%s}";
    char request[256], *whole, streamed[2048] = "";
    snprintf(request, sizeof request, body, "");
    post("/completion", request);
    whole = strdup(json_string_value(json_object_get(json, "content")));
    snprintf(request, sizeof request, body, ",\"stream\":true,\"timings_per_token\":true");
    served_post(&s, "/completion", request, &a);
    int n_chunks = 0, n_last = 0;
    for (char *line = strtok(a.body, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *chunk = json_loads(line + 6, 0, NULL);
        CHECK(chunk && at(chunk, "timings", "predicted_ms"));
        strcat(streamed, json_string_value(json_object_get(chunk, "content")));
        n_last += json_is_true(json_object_get(chunk, "stop"));
        n_chunks++;
        json_decref(chunk);
    }
    CHECK(strcmp(streamed, whole) == 0 && n_chunks == 25 && n_last == 1);
    free(whole);
}

static void prompts_are_texts_tokens_or_both(void)
{
    post("/completion", "{\"prompt\":[\"The king\",\"A fish\"],\"n_predict\":2}");
    answer_check(&a, 200, "[{\"index\":0");
    CHECK(json_array_size(json) == 2);
    post("/completion", "{\"prompt\":[5,\"The king\",7,\" and\"],\"n_predict\":2}");
    answer_check(&a, 200, "{\"index\":0");
    CHECK(json_integer_value(json_object_get(json, "tokens_evaluated")) >= 5);
    post("/completion",
         "{\"prompt\":[[5,6],\"The king\",{\"prompt_string\":\"x\"}],\"n_predict\":2}");
    CHECK(json_array_size(json) == 3);
    char parts[4096] = "5"; /* more than the context of 512 */
    for (int i = 0; i < 600; i++)
        strcat(parts, i % 2 ? ",7" : ",\"x\"");
    char request_of_parts[4200];
    snprintf(request_of_parts, sizeof request_of_parts, "{\"prompt\":[%s]}", parts);
    post("/completion", request_of_parts);
    answer_check(&a, 400, "context_length_exceeded");
    static const char *const bad[] = {
        "5",        "[]", "[5,-1]", "[5,99999999]",
        "[5,null]", "{}", "[[]]",   "{\"prompt_string\":\"x\",\"multimodal_data\":[\"y\"]}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char request[128];
        snprintf(request, sizeof request, "{\"prompt\":%s,\"n_predict\":2}", bad[i]);
        post("/completion", request);
        answer_check(&a, 400, "prompt");
    }
}

static void a_prompt_can_be_read_without_a_text(void)
{
    post("/completion", "{\"prompt\":\"A tale of the sea\",\"n_predict\":0}");
    answer_check(&a, 200, "\"content\":\"\"");
    answer_check(&a, 200, "\"tokens_predicted\":0");
    answer_check(&a, 200, "\"truncated\":false");
    post("/completion", "{\"prompt\":\"A tale of the sea\",\"n_predict\":1}");
    CHECK(json_integer_value(at(json, "timings", "cache_n")) > 0);
}

static void only_wanted_members_are_answered(void)
{
    post("/completion", "{\"prompt\":\"x\",\"n_predict\":2,\"response_fields\":[\"content\","
                        "\"timings/prompt_n\",\"generation_settings/n_predict\",\"nothing\"]}");
    answer_check(&a, 200, "\"timings/prompt_n\":");
    CHECK(json_object_size(json) == 3);
    CHECK(json_integer_value(json_object_get(json, "generation_settings/n_predict")) == 2);
}

static void whole_numbers_are_told_whole(void)
{
    post("/completion", "{\"prompt\":\"x\",\"n_predict\":1,\"repeat_last_n\":1048575}");
    answer_check(&a, 200, "\"repeat_last_n\":1048575,");
}

static char *repeated(const char *before, const char *part, int n, const char *after)
{
    size_t n_part = strlen(part);
    char *whole = malloc(strlen(before) + (size_t)n * n_part + strlen(after) + 1);
    char *at = stpcpy(whole, before);
    for (int i = 0; i < n; i++)
        at = stpcpy(at, part);
    strcpy(at, after);
    return whole;
}

/* Each choice's answer tells all biases, and is searched for each of the fields: that is done where
 * everybody's answers are written. */
static void what_an_answer_repeats_is_bounded(void)
{
    static const struct {
        const char *before, *part;
        int n;
        const char *after, *param;
    } rows[] = {
        {"{\"prompt\":\"x\",\"n\":128,\"n_predict\":1,\"logit_bias\":[[5,1]", ",[5,1]", 2048, "]}",
         "logit_bias"},
        {"{\"prompt\":[\"x\",\"y\"],\"n\":64,\"n_predict\":1,\"logit_bias\":[[5,1]", ",[5,1]", 2048,
         "]}", "logit_bias"},
        {"{\"prompt\":\"x\",\"n_predict\":1,\"response_fields\":[\"content\"", ",\"content\"", 256,
         "]}", "response_fields"},
        {"{\"prompt\":\"x\",\"n_predict\":1,\"dry_multiplier\":1,\"dry_sequence_breakers\":[\"",
         "x", 257, "\"]}", "dry_sequence_breakers"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int is_less = 0; is_less < 2; is_less++) {
            char *request =
                repeated(rows[i].before, rows[i].part, rows[i].n - is_less, rows[i].after);
            post("/completion", request);
            answer_check(&a, is_less ? 200 : 400, is_less ? NULL : rows[i].param);
            free(request);
        }
}

static void samplers_that_are_not_named_are_off(void)
{
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        post("/completion",
             i ? "{\"prompt\":\"Once\",\"n_predict\":12,\"top_k\":1}"
               : "{\"prompt\":\"Once\",\"n_predict\":12,\"temperature\":9,\"min_p\":0,"
                 "\"top_p\":1,\"top_k\":1,\"repeat_penalty\":50,\"samplers\":[\"top_k\"]}");
        answer_check(&a, 200, NULL);
        texts[i] = strdup(json_string_value(json_object_get(json, "content")));
    }
    CHECK(strcmp(texts[0], texts[1]) == 0); /* neither a penalty nor heat */
    free(texts[0]);
    free(texts[1]);
    post("/completion", "{\"prompt\":\"x\",\"n_predict\":2,\"samplers\":[\"top_x\"]}");
    answer_check(&a, 400, "samplers[0]");
}

/* A grammar makes the model write lines. */
static void a_text_ends_before_a_line_that_is_indented_less(void)
{
#define LINES                                                                                      \
    "{\"prompt\":\"x\",\"n_predict\":60,\"grammar\":\"root ::= \\\"if\\\\n    a\\\\n    b\\\\n  "  \
    "c\\\\n"                                                                                       \
    "    d\\\"\"%s}"
    char request[256];
    snprintf(request, sizeof request, LINES, "");
    post("/completion", request);
    answer_check(&a, 200, "\"content\":\"if\\n    a\\n    b\\n  c\\n    d\"");
    snprintf(request, sizeof request, LINES, ",\"n_indent\":4");
    post("/completion", request);
    const char *content = json_string_value(json_object_get(json, "content"));
    CHECK(content && strncmp(content, "if\n    a\n    b\n", 15) == 0 && !strchr(content, 'c'));
    answer_check(&a, 200, "\"stop_type\":\"limit\"");
    snprintf(request, sizeof request, LINES, ",\"n_indent\":\"x\"");
    post("/completion", request);
    answer_check(&a, 400, "n_indent");
    snprintf(request, sizeof request, LINES, ",\"t_max_predict_ms\":-2");
    post("/completion", request);
    answer_check(&a, 400, "t_max_predict_ms");
    post("/completion",
         "{\"prompt\":\"x\",\"n_predict\":400,\"t_max_predict_ms\":1,\"grammar\":\"root "
         "::= [a-z\\\\n]*\"}");
    answer_check(&a, 200, "\"stop_type\":\"limit\"");
    CHECK(!strstr(a.body, "\"has_new_line\":true") ||
          json_integer_value(json_object_get(json, "tokens_predicted")) < 400);
}

static void a_hole_is_filled_by_models_that_can(void)
{
    post("/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}");
    answer_check(&a, 400, "no tokens for filling in");
    post("/infill", "{\"input_prefix\":\"a\"}");
    answer_check(&a, 400, "input_suffix is not a text");
    tiny_options o = tiny_options_default();
    o.has_infill = true;
    buf file;
    buf_init(&file, 16 << 20);
    if (!CHECK(scratch_create() && tiny_model_build(&o, &file, NULL) == LACE_OK))
        return;
    FILE *f = fopen(scratch_path("fim.gguf"), "wb");
    CHECK(f && fwrite(file.data, 1, file.size, f) == file.size);
    fclose(f);
    buf_deinit(&file);
    char arguments[600];
    snprintf(arguments, sizeof arguments, "%s --threads 1", scratch_path("fim.gguf"));
    served other;
    if (CHECK(served_start(&other, arguments))) {
        static const char *const pairs[][2] = {
            {"<fim_prefix>the<fim_suffix>and<fim_middle>an", "\"prompt\":\"an\""},
            {"\\n\\n--- snippet ---\\n\\nthe<fim_prefix>the<fim_suffix>and<fim_middle>",
             "\"input_extra\":[{\"filename\":\"x\",\"text\":\"the\"}]"},
        };
        for (int i = 0; i < 2; i++) {
            char request[256], expected[64];
            snprintf(request, sizeof request, "{\"add_special\":true,\"content\":\"%s\"}",
                     pairs[i][0]);
            served_post(&other, "/tokenize", request, &a);
            const char *n = a.body ? strstr(a.body, "\"count\":") : NULL;
            snprintf(expected, sizeof expected, "\"tokens_evaluated\":%d,", n ? atoi(n + 8) : -1);
            snprintf(request, sizeof request,
                     "{\"input_prefix\":\"the\",\"input_suffix\":\"and\",\"n_predict\":2,%s}",
                     pairs[i][1]);
            served_post(&other, "/infill", request, &a);
            answer_check(&a, 200, expected);
        }
        served_post(&other, "/infill",
                    "{\"input_prefix\":\"the\",\"input_suffix\":\"and\",\"input_extra\":[{}]}", &a);
        answer_check(&a, 400, "input_extra");
        served_stop(&other);
    }
    scratch_remove();
}

/* ---- OpenAI's routes ------------------------------------------------------------------------- */

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Name three rivers, please\"}]"

static void routes_answer_without_v1(void)
{
    served_get(&s, "/models", &a);
    answer_check(&a, 200, "\"object\":\"list\"");
    served_get(&s, "/v1/health", &a);
    answer_check(&a, 200, "ok");
    post("/chat/completions", "{" HI ",\"max_tokens\":2}");
    answer_check(&a, 200, "\"object\":\"chat.completion\"");
    post("/responses", "{\"input\":\"x\",\"max_output_tokens\":2}");
    answer_check(&a, 200, "\"object\":\"response\"");
    post("/embeddings", "{\"input\":[\"x\",\"y\"]}");
    answer_check(&a, 200, "[{\"index\":0,\"embedding\":[[");
    CHECK(json_array_size(json) == 2);
    post("/embedding", "{\"content\":\"x\"}");
    answer_check(&a, 200, "[{\"index\":0,\"embedding\":[[");
}

static void prompts_are_counted_without_a_generation(void)
{
    static const char *const paths[] = {"/v1/chat/completions", "/chat/completions",
                                        "/v1/responses", "/responses"};
    for (int i = 0; i < 4; i++) {
        char path[64];
        const char *body =
            i < 2 ? "{" HI ",\"max_tokens\":1}"
                  : "{\"input\":\"Name three rivers, please\",\"max_output_tokens\":1}";
        post(paths[i], body);
        const json_t *usage = json_object_get(json, "usage");
        json_int_t n =
            json_integer_value(json_object_get(usage, i < 2 ? "prompt_tokens" : "input_tokens"));
        snprintf(path, sizeof path, "%s/input_tokens", paths[i]);
        post(path, body);
        CHECK(n > 5 && json_integer_value(json_object_get(json, "input_tokens")) == n);
    }
    post("/v1/responses/input_tokens", "{\"input\":5}");
    answer_check(&a, 400, NULL);
}

static void answers_have_timings(void)
{
    post("/v1/chat/completions", "{" HI ",\"max_tokens\":4,\"n\":2}");
    CHECK(json_integer_value(at(json, "timings", "predicted_n")) == 8);
    CHECK(json_number_value(at(json, "timings", "prompt_ms")) > 0);
    post("/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":4}");
    CHECK(json_integer_value(at(json, "timings", "predicted_n")) == 4);
    static const struct {
        const char *path, *body;
        int n_timings;
    } rows[] = {
        {"/v1/chat/completions", HI ",\"max_tokens\":4", 1},
        {"/v1/chat/completions", HI ",\"max_tokens\":4,\"stream_options\":{\"include_usage\":true}",
         1},
        {"/v1/completions", "\"prompt\":\"x\",\"max_tokens\":4", 1},
        {"/v1/responses", "\"input\":\"x\",\"max_output_tokens\":4", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "{%s,\"stream\":true}", rows[i].body);
        served_post(&s, rows[i].path, request, &a);
        if (!CHECK(answer_count(&a, "\"timings\":{") == rows[i].n_timings))
            tap_note("%s %s: %s", rows[i].path, request, a.body);
        snprintf(request, sizeof request, "{%s,\"stream\":true,\"timings_per_token\":true}",
                 rows[i].body);
        served_post(&s, rows[i].path, request, &a);
        CHECK(answer_count(&a, "\"timings\":{") > rows[i].n_timings);
    }
}

static void telemetry_is_refused_where_there_is_none(void)
{
    static const char *const fields[] = {"timings_per_token", "return_progress"};
    for (int i = 0; i < 2; i++) {
        char request[256];
        snprintf(request, sizeof request, "{" HI ",\"max_tokens\":2,\"%s\":true}", fields[i]);
        post("/v1/messages", request);
        answer_check(&a, 400, fields[i]);
    }
}

static void progress_is_told_while_a_prompt_is_read(void)
{
    char words[1200] = "";
    for (int i = 0; i < 200; i++)
        strcat(words, "king ");
    static const struct {
        const char *path, *body;
    } rows[] = {
        {"/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"%d %s\"}]"},
        {"/v1/completions", "\"prompt\":\"%d %s\""},
        {"/completion", "\"prompt\":\"%d %s\""},
        {"/v1/responses", "\"input\":\"%d %s\""},
    };
    for (int i = 0; i < 4; i++) {
        char body[1400], request[1600];
        snprintf(body, sizeof body, rows[i].body, i, words);
        snprintf(request, sizeof request,
                 "{%s,\"max_tokens\":2,\"stream\":true,\"return_progress\":true}", body);
        served_post(&s, rows[i].path, request, &a);
        CHECK(a.status == 200);
        int n = 0, last = -1, total = -2;
        for (const char *p = a.body; p && (p = strstr(p, "\"prompt_progress\":{")); n++, p++) {
            int cache = -1, processed = -1;
            CHECK(sscanf(p, "\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d",
                         &total, &cache, &processed) == 3);
            CHECK(n > 0 ? processed > last : processed == cache);
            last = processed;
        }
        if (!CHECK(n >= 4 && last == total)) /* pieces of 64 tokens */
            tap_note("%s: %d pieces, %d of %d", rows[i].path, n, last, total);
    }
}

static void reasoning_stays_in_the_content_if_asked_to(void)
{
#define THINK ",\"max_tokens\":60,\"grammar\":\"root ::= \\\"<think>why</think>so\\\"\""
    post("/v1/chat/completions", "{" HI THINK ",\"reasoning_format\":\"none\"}");
    answer_check(&a, 200, "\"content\":\"<think>why</think>so\"");
    post("/v1/chat/completions", "{" HI THINK ",\"reasoning_format\":\"deepseek\"}");
    CHECK(a.status == 200);
    CHECK(!strstr(a.body, "\"content\":\"<think>why</think>so\"") ||
          !strstr(a.body, "reasoning_content"));
    post("/v1/chat/completions", "{" HI ",\"max_tokens\":2,\"reasoning_format\":\"x\"}");
    answer_check(&a, 400, "reasoning_format");
}

static void the_command_line_has_the_defaults(void)
{
    served_get(&s, "/props", &a);
    answer_check(&a, 200, "\"n_predict\":20");
    post("/completion", "{\"prompt\":\"Once upon\",\"ignore_eos\":true}");
    CHECK(json_integer_value(at(json, "timings", "predicted_n")) == 20);
    CHECK(json_integer_value(at(json, "generation_settings", "seed")) == 11);
    CHECK(json_integer_value(at(json, "generation_settings", "top_k")) == 7);
    char *first = strdup(json_string_value(json_object_get(json, "content")));
    post("/completion", "{\"prompt\":\"Once upon\",\"ignore_eos\":true}");
    CHECK(strcmp(first, json_string_value(json_object_get(json, "content"))) == 0);
    post("/completion",
         "{\"prompt\":\"Once upon\",\"ignore_eos\":true,\"seed\":-1,\"n_predict\":3}");
    CHECK(json_integer_value(at(json, "timings", "predicted_n")) == 3);
    free(first);
}

int main(void)
{
    if (!served_start(&s, "-c 512 -b 64 --threads 2 --seed 11 --top-k 7 -n 20")) {
        printf("1..0 # SKIP the server does not start\n");
        return 1;
    }
    CASE(a_completion_has_llama_cpps_form);
    CASE(a_stream_gives_the_text_of_the_whole_answer);
    CASE(prompts_are_texts_tokens_or_both);
    CASE(a_prompt_can_be_read_without_a_text);
    CASE(only_wanted_members_are_answered);
    CASE(whole_numbers_are_told_whole);
    CASE(what_an_answer_repeats_is_bounded);
    CASE(samplers_that_are_not_named_are_off);
    CASE(a_text_ends_before_a_line_that_is_indented_less);
    CASE(a_hole_is_filled_by_models_that_can);
    CASE(routes_answer_without_v1);
    CASE(prompts_are_counted_without_a_generation);
    CASE(answers_have_timings);
    CASE(telemetry_is_refused_where_there_is_none);
    CASE(progress_is_told_while_a_prompt_is_read);
    CASE(reasoning_stays_in_the_content_if_asked_to);
    CASE(the_command_line_has_the_defaults);
    CHECK(served_stop(&s) == 0);
    json_decref(json);
    answer_free(&a);
    return tap_end();
}
