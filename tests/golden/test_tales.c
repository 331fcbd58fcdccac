/*
 * The tales models: real text from a real (if small) model. Greedy continuations and logits were
 * recorded with the reference implementation in float32.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "golden_file.h"
#include "lace.h"
#include "tap.h"

/*
 * F16 weights with f32 arithmetic: only the order of summation differs from the reference. In fixed
 * point, which the fastest level uses for many tokens, a product is off by 3e-8 of its terms'
 * squares, and the layers add up.
 */
static const double TOLERANCE_EXACT = 1e-9, TOLERANCE = 1e-6;

typedef struct subject {
    const char *model, *folder; /* of the test data */
    bool is_large;              /* not in a clone */
} subject;

static lace_model *open_model(const subject *s, bool is_exact)
{
    lace_model_options o = lace_model_options_default();
    o.use_exact = is_exact;
    char *path = data_path(s->model);
    lace_model *model = NULL;
    lace_error err;
    if (path && !CHECK(lace_model_open(path, &o, &model, &err) == LACE_OK))
        tap_note("%s", err.text);
    free(path);
    return model;
}

static char *beside(const subject *s, const char *file)
{
    char relative[512];
    snprintf(relative, sizeof relative, "%s/%s", s->folder, file);
    return data_path(relative);
}

static lace_session *start(lace_model *model, int32_t n_outputs)
{
    lace_session_options o = lace_session_options_default();
    o.n_context = 1024;
    o.n_outputs = n_outputs;
    o.kv_type = LACE_KV_F32;
    lace_session *session = NULL;
    CHECK(lace_session_create(model, &o, &session, NULL) == LACE_OK);
    return session;
}

static void check_text(lace_model *model, const char *prompt, const json_t *expected)
{
    const json_t *prompt_ids = json_object_get(expected, "prompt_ids");
    const json_t *ids = json_object_get(expected, "ids");
    size_t n_prompt = json_array_size(prompt_ids), n_ids = json_array_size(ids), n;
    lace_token *tokens = calloc(n_ids + 8, sizeof *tokens);
    lace_item *items = calloc(n_ids + 8, sizeof *items);
    CHECK(lace_tokenize(model, prompt, strlen(prompt), LACE_TOKENIZE_ADD_SPECIAL, tokens, n_ids, &n,
                        NULL) == LACE_OK);
    CHECK(n == n_prompt && n < n_ids);
    for (size_t i = 0; i < n && i < n_prompt; i++) {
        CHECK(tokens[i] == json_integer_value(json_array_get(prompt_ids, i)));
        items[i] = (lace_item){tokens[i], 0, i + 1 == n};
    }
    lace_session *session = start(model, 1);
    lace_sampler_options greedy = lace_sampler_options_default();
    greedy.temperature = 0;
    lace_sampler *sampler;
    lace_model_info info;
    lace_model_describe(model, &info);
    CHECK(lace_sampler_create(&greedy, info.n_vocab, &sampler, NULL) == LACE_OK);
    CHECK(lace_session_eval(session, items, n, NULL) == LACE_OK);
    size_t at = n;
    for (; at < n_ids; at++) {
        lace_item next = {0, 0, true};
        CHECK(lace_sampler_sample(sampler, lace_session_logits(session, 0), &next.token, NULL) ==
              LACE_OK);
        if (!CHECK(next.token == json_integer_value(json_array_get(ids, at))))
            break;
        CHECK(lace_session_eval(session, &next, 1, NULL) == LACE_OK);
    }
    tap_note("%zu of %zu tokens after \"%s\"", at - n, n_ids - n, prompt);
    lace_sampler_free(sampler);
    lace_session_free(session);
    free(tokens);
    free(items);
}

static void greedy_text_is_the_reference_s(void *arg)
{
    const subject *s = arg;
    lace_model *model = open_model(s, false);
    char *path = beside(s, "reference.json");
    json_t *reference = path ? json_load_file(path, 0, NULL) : NULL;
    if (model) {
        const char *prompt;
        json_t *expected;
        CHECK(json_object_size(reference) > 0);
        json_object_foreach(reference, prompt, expected) check_text(model, prompt, expected);
    }
    json_decref(reference);
    free(path);
    lace_model_close(model);
}

static void check_logits(const subject *s, bool is_exact)
{
    double allowed = is_exact ? TOLERANCE_EXACT : TOLERANCE;
    lace_model *model = open_model(s, is_exact);
    char *path = beside(s, "golden.safetensors");
    golden g = {0};
    if (model && CHECK(path && golden_read(path, &g))) {
        lace_session *session = start(model, g.n_tokens);
        lace_item *items = calloc((size_t)g.n_tokens, sizeof *items);
        for (int32_t i = 0; i < g.n_tokens; i++)
            items[i] = (lace_item){g.tokens[i], 0, true};
        CHECK(lace_session_eval(session, items, (size_t)g.n_tokens, NULL) == LACE_OK);
        double worst = 0;
        for (int32_t i = 0; i < g.n_tokens; i++) {
            size_t n = (size_t)g.n_vocab;
            double e = nmse(lace_session_logits(session, (size_t)i), g.logits + (size_t)i * n, n);
            CHECK(e <= allowed);
            worst = e > worst ? e : worst;
        }
        tap_note("worst nmse of %d rows: %.2g", g.n_tokens, worst);
        free(items);
        lace_session_free(session);
    }
    golden_free(&g);
    free(path);
    lace_model_close(model);
}

static void logits_are_the_reference_s(void *arg)
{
    check_logits(arg, false);
}

static void exact_logits_are_the_reference_s(void *arg)
{
    check_logits(arg, true);
}

int main(void)
{
    static subject subjects[] = {
        {"models/tales-4m-f16.gguf", "models/tales-4m", false},
        {"models/tales-4m", "models/tales-4m", false},
        {"models/tales-26m", "models/tales-26m", true},
    };
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        char name[96];
        char *path = data_path_if_there(subjects[i].model);
        free(path);
        if (!path && subjects[i].is_large) {
            tap_note("%s is too large for a clone", subjects[i].model);
            continue;
        }
        snprintf(name, sizeof name, "%s: greedy text is the reference's", subjects[i].model);
        tap_case_arg(name, greedy_text_is_the_reference_s, &subjects[i]);
        snprintf(name, sizeof name, "%s: logits are the reference's", subjects[i].model);
        tap_case_arg(name, logits_are_the_reference_s, &subjects[i]);
        snprintf(name, sizeof name, "%s: exact logits are the reference's", subjects[i].model);
        tap_case_arg(name, exact_logits_are_the_reference_s, &subjects[i]);
    }
    return tap_end();
}
