/* Adapters over HTTP: models of their own, "lora" in requests, /lora-adapters, and what is shared. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lora_kit.h"
#include "scratch.h"
#include "served.h"
#include "tap.h"

#define MODEL "models/tales-4m.gguf"

static served s;
static answer a;

static const char *const words[] = {"blk.", NULL};

/* More than a page of tokens, so that a prompt's beginning can be shared. */
#define STORY                                                                                      \
    "Once upon a time there was a king who had a daughter and three sons, and the eldest of them " \
    "went out into the wood to look for the bird with the golden feathers that had been stolen. "

/* The text that a request gets; for free(). *cached: tokens of the prompt that were known. */
static char *ask(const char *fields, int *cached)
{
    char body[1024];
    snprintf(body, sizeof body,
             "{\"prompt\":\"" STORY "\",\"max_tokens\":12,\"temperature\":0,\"ignore_eos\":true%s}",
             fields);
    served_post(&s, "/v1/completions", body, &a);
    answer_check(&a, 200, "\"text\":");
    json_t *json = json_loads(a.body ? a.body : "", 0, NULL);
    const json_t *choice = json_array_get(json_object_get(json, "choices"), 0);
    const char *said = json_string_value(json_object_get(choice, "text"));
    if (cached)
        *cached =
            (int)json_integer_value(json_object_get(json_object_get(json, "timings"), "cache_n"));
    char *copy = strdup(said ? said : "");
    json_decref(json);
    return copy;
}

static void named_adapters_are_models(void)
{
    served_get(&s, "/v1/models", &a);
    answer_check(&a, 200, "\"id\":\"tales-4m\"");
    answer_check(&a, 200, "\"id\":\"one\"");
    answer_check(&a, 200, "\"id\":\"two\"");
    answer_check(&a, 200, "\"parent\":\"tales-4m\"");
    CHECK(answer_count(&a, "\"object\":\"model\"") == 3);
    served_get(&s, "/v1/models/two", &a);
    answer_check(&a, 200, "\"id\":\"two\"");
    served_get(&s, "/v1/models/three", &a);
    answer_check(&a, 404, NULL);
}

static void requests_choose_an_adapter(void)
{
    char *none = ask("", NULL), *one = ask(",\"model\":\"one\"", NULL);
    answer_check(&a, 200, "\"model\":\"one\"");
    char *two = ask(",\"model\":\"two\"", NULL), *base = ask(",\"model\":\"tales-4m\"", NULL);
    answer_check(&a, 200, "\"model\":\"tales-4m\"");
    char *listed = ask(",\"lora\":[{\"id\":1,\"scale\":1}]", NULL);
    char *off = ask(",\"model\":\"one\",\"lora\":[]", NULL);
    char *zero = ask(",\"lora\":[{\"id\":0,\"scale\":0.0}]", NULL);
    CHECK(strcmp(none, one) != 0 && strcmp(none, two) != 0 && strcmp(one, two) != 0);
    CHECK(strcmp(none, base) == 0 && strcmp(none, off) == 0 && strcmp(none, zero) == 0);
    CHECK(strcmp(two, listed) == 0);
    char *all[] = {none, one, two, base, listed, off, zero};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void beginnings_are_shared_with_the_same_adapters_alone(void)
{
    static const char *const fields[] = {
        ",\"lora\":[{\"id\":0,\"scale\":0.25}]", ",\"lora\":[{\"id\":1,\"scale\":0.25}]",
        ",\"lora\":[{\"id\":0,\"scale\":0.75}]",
        ",\"lora\":[{\"id\":0,\"scale\":0.25},{\"id\":1,\"scale\":0.25}]"};
    char *first[4];
    for (int i = 0; i < 4; i++) {
        int cached = -1;
        first[i] = ask(fields[i], &cached);
        CHECK(cached == 0);
    }
    for (int i = 0; i < 4; i++) {
        int cached = -1;
        char *again = ask(fields[i], &cached);
        CHECK(cached >= 32);
        CHECK(strcmp(again, first[i]) == 0);
        free(again);
        free(first[i]);
    }
}

static void scales_for_all_can_be_set(void)
{
    char *none = ask("", NULL), *one = ask(",\"model\":\"one\"", NULL);
    served_get(&s, "/lora-adapters", &a);
    answer_check(&a, 200,
                 "[{\"id\":0,\"path\":\"one.gguf\",\"scale\":0,\"name\":\"one\",\"rank\":4");
    served_post(&s, "/lora-adapters", "[{\"id\":0,\"scale\":1}]", &a);
    answer_check(&a, 200, "\"success\":true");
    served_get(&s, "/lora-adapters", &a);
    answer_check(&a, 200, "\"id\":0,\"path\":\"one.gguf\",\"scale\":1,");
    char *set = ask("", NULL);
    CHECK(strcmp(set, one) == 0);
    served_post(&s, "/lora-adapters", "[]", &a);
    answer_check(&a, 200, "\"success\":true");
    char *back = ask("", NULL);
    CHECK(strcmp(back, none) == 0);
    free(none);
    free(one);
    free(set);
    free(back);
}

static void bad_lists_are_refused(void)
{
    static const char *const bad[] = {"3",
                                      "{}",
                                      "[3]",
                                      "[{\"id\":0}]",
                                      "[{\"id\":2,\"scale\":1}]",
                                      "[{\"id\":-1,\"scale\":1}]",
                                      "[{\"id\":0,\"scale\":1e99}]",
                                      "[{\"id\":0,\"scale\":\"1\"}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":1,\"lora\":%s}", bad[i]);
        served_post(&s, "/v1/completions", body, &a);
        answer_check(&a, 400, "lora");
        served_post(&s, "/lora-adapters", bad[i], &a);
        answer_check(&a, 400, NULL);
    }
    served_post(&s, "/v1/embeddings", "{\"model\":\"one\",\"input\":\"a\"}", &a);
    answer_check(&a, 400, "adapters");
}

/* Files of a cache belong to the adapters too. */
static void a_restart_finds_what_the_same_adapter_left(void)
{
    int cached = -1;
    free(ask(",\"model\":\"one\"", &cached));
    CHECK(served_stop(&s) == 0);
    char arguments[1024];
    snprintf(arguments, sizeof arguments,
             MODEL " --port 0 -c 256 --cache-dir %s --strict-model --lora two=%s --lora one=%s",
             scratch_path("cache"), scratch_path("two.gguf"), scratch_path("one.gguf"));
    if (!CHECK(served_start(&s, arguments)))
        return;
    free(ask(",\"lora\":[{\"id\":0,\"scale\":0.5}]", &cached));
    CHECK(cached == 0);
    free(ask(",\"model\":\"one\"", &cached));
    CHECK(cached >= 32);
    served_post(&s, "/v1/completions", "{\"model\":\"three\",\"prompt\":\"a\",\"max_tokens\":1}",
                &a);
    answer_check(&a, 404, NULL);
}

int main(void)
{
    weights *files = NULL;
    kit_adapter k[2];
    char arguments[1024], command[512];
    scratch_create();
    CHECK(weights_open(MODEL, &files, NULL) == LACE_OK);
    for (int i = 0; i < 2; i++) {
        kit_make(&k[i], files, words, 4, 2, DTYPE_F32, 11 + (uint32_t)i);
        kit_write_gguf(&k[i], "llama", scratch_path(i ? "two.gguf" : "one.gguf"));
        kit_free(&k[i]);
    }
    weights_close(files);
    snprintf(arguments, sizeof arguments,
             MODEL " --port 0 -c 256 --cache-dir %s --lora one=%s --lora two=%s",
             scratch_path("cache"), scratch_path("one.gguf"), scratch_path("two.gguf"));
    if (served_start(&s, arguments)) {
        CASE(named_adapters_are_models);
        CASE(requests_choose_an_adapter);
        CASE(beginnings_are_shared_with_the_same_adapters_alone);
        CASE(scales_for_all_can_be_set);
        CASE(bad_lists_are_refused);
        CASE(a_restart_finds_what_the_same_adapter_left);
        served_stop(&s);
    } else {
        CHECK(false);
    }
    answer_free(&a);
    snprintf(command, sizeof command, "rm -r '%s'", scratch_path("cache"));
    CHECK(system(command) == 0);
    scratch_remove();
    return tap_end();
}
