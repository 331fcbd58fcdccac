/*
 * Vision towers in the hands of callers who err: memory that runs out, images and towers of other
 * models, sequences cut in the middle of an image. test_vision.c compares what they compute.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "golden_file.h"
#include "lace.h"
#include "scratch.h"
#include "tap.h"

enum { SIDE = 64 };

typedef struct seeing {
    lace_model *model;
    lace_tower *tower;
} seeing;

static bool open_seeing(const char *name, seeing *out)
{
    lace_error err = {0};
    lace_tower_options o = lace_tower_options_default();
    char *folder = golden_path(name, "");
    o.n_threads = 3;
    *out = (seeing){0};
    bool ok = folder && lace_model_open(folder, NULL, &out->model, &err) == LACE_OK &&
              lace_tower_open(out->model, NULL, &o, &out->tower, &err) == LACE_OK;
    if (!CHECK(ok))
        tap_note("%s: %s", name, err.text);
    free(folder);
    return ok;
}

static void close_seeing(seeing *s)
{
    lace_tower_close(s->tower);
    lace_model_close(s->model);
}

/* An image of one colour. */
static lace_status make_image(lace_tower *tower, int colour, lace_image **out, lace_error *err)
{
    uint8_t *rgb = malloc(3 * SIDE * SIDE);
    memset(rgb, colour, 3 * SIDE * SIDE);
    lace_status status = lace_image_create_rgb(tower, rgb, SIDE, SIDE, out, err);
    free(rgb);
    return status;
}

static lace_session *start(const seeing *s, lace_tower *tower, lace_error *err)
{
    lace_session_options o = lace_session_options_default();
    lace_session *session = NULL;
    o.n_context = 200;
    o.n_sequences = o.n_outputs = 2;
    o.n_threads = 2;
    o.tower = tower;
    lace_session_create(s->model, &o, &session, err);
    return session;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Threads of this process; -1: the system does not say it. */
static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = tasks ? 0 : -1;
    for (struct dirent *e; tasks && (e = readdir(tasks));)
        n += e->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

/* Each allocation of the first image fails in its turn, all with one tower, until there is one. */
static void a_tower_starts_when_there_is_memory_again(void)
{
    seeing s;
    int n_before = count_threads();
    lace_image *image = NULL;
    if (!open_seeing("gemma3-vision", &s))
        return;
    long n_failures = 0;
    for (lace_status status = LACE_E_NOMEM; status != LACE_OK && n_failures < 10000; n_failures++) {
        lace_error err = {0};
        mem_fail_at(n_failures, false);
        status = make_image(s.tower, 100, &image, &err);
        mem_fail_at(-1, false);
        if (!CHECK(status == LACE_OK || (status == LACE_E_NOMEM && err.text[0] && !image)))
            tap_note("allocation %ld: %s", n_failures, err.text);
    }
    tap_note("%ld allocations failed", n_failures);
    CHECK(n_failures > 20 && image && lace_image_n_tokens(image) == 4);
    lace_image_free(image);
    close_seeing(&s);
    if (!CHECK(count_threads() == n_before))
        tap_note("%d threads before, %d now", n_before, count_threads());
}

/* ---- What does not go together --------------------------------------------------------------- */

static void images_of_another_tower_are_refused(void)
{
    seeing gemma, qwen;
    lace_image *image = NULL;
    lace_error err = {0};
    if (!open_seeing("gemma3-vision", &gemma) || !open_seeing("qwen3_vl", &qwen))
        return;
    CHECK(make_image(gemma.tower, 7, &image, &err) == LACE_OK);
    lace_session *session = start(&qwen, qwen.tower, &err);
    if (CHECK(image && session)) {
        CHECK(lace_session_eval_image(session, 0, image, false, &err) == LACE_E_ARG);
        tap_note("%s", err.text);
        CHECK(strstr(err.text, "another tower") && lace_session_length(session, 0) == 0);
    }
    lace_session_free(session);
    lace_batcher *b = NULL;
    lace_batcher_options o = lace_batcher_options_default();
    o.session.tower = qwen.tower;
    o.session.n_context = 200;
    CHECK(lace_batcher_create(qwen.model, &o, &b, &err) == LACE_OK);
    if (image && b) {
        lace_token prompt[16];
        lace_generation *g;
        lace_generation_options ask = lace_generation_options_default();
        lace_image_tokens(image, prompt);
        ask.prompt = prompt;
        ask.n_prompt = lace_image_n_tokens(image);
        ask.images = &image;
        ask.n_images = 1;
        CHECK(lace_batcher_add(b, &ask, &g, &err) == LACE_E_ARG);
        CHECK(strstr(err.text, "another tower"));
    }
    lace_batcher_free(b);
    lace_image_free(image);
    close_seeing(&gemma);
    close_seeing(&qwen);
}

static void a_tower_of_another_model_is_refused(void)
{
    seeing gemma, plain = {0};
    lace_error err = {0};
    if (!open_seeing("gemma3-vision", &gemma))
        return;
    CHECK(lace_model_open("models/tales-4m.gguf", NULL, &plain.model, &err) == LACE_OK);
    CHECK(!start(&plain, gemma.tower, &err) && err.status == LACE_E_ARG);
    tap_note("%s", err.text);
    CHECK(strstr(err.text, "another model"));
    lace_model_close(plain.model);
    close_seeing(&gemma);
}

/* A folder of many models: what lies beside a model that reads text only is not even opened. */
static void files_of_other_models_are_no_concern(void)
{
    lace_model *model = NULL;
    lace_tower *tower = NULL;
    lace_error err = {0};
    CHECK(scratch_create() != NULL &&
          scratch_copy("models/tales-4m.gguf", scratch_path("tales.gguf")));
    CHECK(scratch_write("mmproj-broken.gguf", "GGUF"));
    CHECK(lace_model_open(scratch_path("tales.gguf"), NULL, &model, &err) == LACE_OK);
    CHECK(lace_tower_open(model, NULL, NULL, &tower, &err) == LACE_E_UNSUPPORTED && !tower);
    tap_note("%s", err.text);
    CHECK(lace_tower_open(model, scratch_path("mmproj-broken.gguf"), NULL, &tower, &err) !=
          LACE_E_UNSUPPORTED); /* it was named, and is broken */
    lace_model_close(model);
    scratch_remove();
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* Two images with a word between them; then what comes next. */
static void look_at_two(lace_session *session, int32_t sequence, lace_image *const *images)
{
    lace_error err = {0};
    lace_item word = {65, sequence, false};
    bool ok = lace_session_eval_image(session, sequence, images[0], false, &err) == LACE_OK &&
              lace_session_eval(session, &word, 1, &err) == LACE_OK &&
              lace_session_eval_image(session, sequence, images[1], false, &err) == LACE_OK;
    if (!CHECK(ok))
        tap_note("%s", err.text);
}

static void a_cut_that_is_refused_changes_nothing(void)
{
    seeing s;
    lace_error err = {0};
    lace_image *images[2] = {NULL, NULL};
    if (!open_seeing("qwen3_vl", &s))
        return;
    lace_session *session = start(&s, s.tower, &err);
    for (int i = 0; i < 2; i++)
        CHECK(make_image(s.tower, 50 * i, &images[i], &err) == LACE_OK);
    if (CHECK(session && images[0] && images[1] && lace_image_n_tokens(images[0]) > 1)) {
        look_at_two(session, 0, images);
        look_at_two(session, 1, images);
        CHECK(lace_session_truncate(session, 0, 1, &err) == LACE_E_ARG);
        CHECK(lace_session_length(session, 0) == lace_session_length(session, 1));
        lace_item next[] = {{66, 0, true}, {66, 1, true}};
        CHECK(lace_session_eval(session, next, 2, &err) == LACE_OK);
        const float *cut = lace_session_logits(session, 0),
                    *whole = lace_session_logits(session, 1);
        CHECK(cut && whole && memcmp(cut, whole, 256 * sizeof *cut) == 0);
    }
    lace_session_free(session);
    for (int i = 0; i < 2; i++)
        lace_image_free(images[i]);
    close_seeing(&s);
}

int main(void)
{
    CASE(a_tower_starts_when_there_is_memory_again);
    CASE(images_of_another_tower_are_refused);
    CASE(a_tower_of_another_model_is_refused);
    CASE(files_of_other_models_are_no_concern);
    CASE(a_cut_that_is_refused_changes_nothing);
    return tap_end();
}
