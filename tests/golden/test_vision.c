/*
 * Models that see: tiny ones with one image in their prompt, whose rows, logits and continuation were
 * recorded with the reference implementation in float32. The tower comes from the directory and from
 * the mmproj file, the model from the directory and from its GGUF file. LACE_DEVICE names the model's
 * device; towers are always on the CPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/convert.h"
#include "data.h"
#include "engine/image.h"
#include "golden_file.h"
#include "lace.h"
#include "scratch.h"
#include "tap.h"
#include "vl_mixture.h"

#define IMAGE_TOLERANCE 1e-9

static bool device_is(const char *kind)
{
    const char *name = getenv("LACE_DEVICE");
    return name && strncmp(name, kind, strlen(kind)) == 0;
}

/* As test_golden.c has it for text. */
static double tolerance(void)
{
    return device_is("cuda") || device_is("vulkan") ? 1e-6 : 1e-9;
}

typedef struct subject {
    golden g;
    golden_tensor image, values, rows, deep, grid;
    int32_t begin, n_rows; /* of the image in the prompt */
    lace_model *model;
    lace_tower *tower;
} subject;

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Where value (colour, y, x) of the image lies among the recorded ones. */
static float value_at(const subject *s, int colour, int y, int x)
{
    const tower_config *c = &s->tower->config;
    const float *values = s->values.data;
    if (s->values.n_dims == 3)
        return values[((size_t)colour * (size_t)s->values.dims[1] + (size_t)y) *
                          (size_t)s->values.dims[2] +
                      (size_t)x];
    /* Patches in the order of squares, each [colour, frame, y, x]; both frames are the same. */
    int n_cols = ((int32_t *)s->grid.data)[2], row = y / c->patch, col = x / c->patch;
    int square = row / c->merge * (n_cols / c->merge) + col / c->merge;
    int patch = square * c->merge * c->merge + row % c->merge * c->merge + col % c->merge;
    int area = c->patch * c->patch, n_frames = s->values.dims[1] / (3 * area);
    int at = y % c->patch * c->patch + x % c->patch;
    const float *p = values + (size_t)patch * (size_t)s->values.dims[1];
    for (int f = 1; f < n_frames; f++)
        CHECK(p[(colour * n_frames + f) * area + at] == p[colour * n_frames * area + at]);
    return p[colour * n_frames * area + at];
}

/* The recorded values as the tower takes them. */
static float *make_patches(const subject *s, int n_rows, int n_cols)
{
    const tower_config *c = &s->tower->config;
    int merge = c->merge, area = c->patch * c->patch;
    float *out = calloc((size_t)n_rows * (size_t)n_cols * 3 * (size_t)area, sizeof *out), *to = out;
    for (int y = 0; y < n_rows; y += merge)
        for (int x = 0; x < n_cols; x += merge)
            for (int k = 0; k < merge * merge; k++)
                for (int i = 0; i < 3 * area; i++)
                    *to++ = value_at(s, i / area, (y + k / merge) * c->patch + i % area / c->patch,
                                     (x + k % merge) * c->patch + i % c->patch);
    return out;
}

static void check_rows(const subject *s, const lace_image *image)
{
    size_t width = (size_t)s->rows.dims[1], n = (size_t)s->rows.dims[0];
    if (!CHECK(image && lace_image_n_tokens(image) == n))
        return;
    float *main_rows = calloc(n * width, sizeof *main_rows);
    for (size_t i = 0; i < n; i++)
        memcpy(main_rows + i * width, lace_image_row(image, i), width * sizeof *main_rows);
    double error = nmse(main_rows, s->rows.data, n * width);
    tap_note("rows: nmse %.2g", error);
    CHECK(error <= IMAGE_TOLERANCE);
    for (int d = 0; s->deep.data && d < s->deep.dims[0]; d++) {
        for (size_t i = 0; i < n; i++)
            memcpy(main_rows + i * width, lace_image_row(image, i) + (size_t)(d + 1) * width,
                   width * sizeof *main_rows);
        error = nmse(main_rows, (float *)s->deep.data + (size_t)d * n * width, n * width);
        tap_note("rows for layer %d: nmse %.2g", d, error);
        CHECK(error <= IMAGE_TOLERANCE);
    }
    free(main_rows);
}

static lace_image *image_of_values(const subject *s)
{
    const tower_config *c = &s->tower->config;
    int n_rows = s->image.dims[0] / c->patch, n_cols = s->image.dims[1] / c->patch;
    lace_image *image = NULL;
    lace_error err = {0};
    digest key = {{1, 2, 3}};
    if (s->values.n_dims == 3) {
        n_rows = s->values.dims[1] / c->patch;
        n_cols = s->values.dims[2] / c->patch;
    } else {
        n_rows = ((int32_t *)s->grid.data)[1];
        n_cols = ((int32_t *)s->grid.data)[2];
    }
    float *patches = make_patches(s, n_rows, n_cols);
    if (!CHECK(image_of_patches(s->tower, patches, n_rows, n_cols, &key, &image, &err) == LACE_OK))
        tap_note("%s", err.text);
    free(patches);
    return image;
}

static void rows_of_values(void *arg)
{
    lace_image *image = image_of_values(arg);
    check_rows(arg, image);
    lace_image_free(image);
}

/* Bytes that have the size already: what is done to their values. */
static void rows_of_pixels(void *arg)
{
    const subject *s = arg;
    lace_image *image = NULL, *again = NULL;
    lace_error err = {0};
    if (!CHECK(lace_image_create_rgb(s->tower, s->image.data, s->image.dims[1], s->image.dims[0],
                                     &image, &err) == LACE_OK))
        tap_note("%s", err.text);
    check_rows(s, image);
    CHECK(lace_image_create_rgb(s->tower, s->image.data, s->image.dims[1], s->image.dims[0], &again,
                                &err) == LACE_OK);
    CHECK(again == image); /* it was kept */
    lace_image_free(image);
    lace_image_free(again);
}

/* ---- Logits ---------------------------------------------------------------------------------- */

static lace_session *start(const subject *s, int32_t n_threads, int32_t n_batch)
{
    lace_session_options o = lace_session_options_default();
    o.n_context = 160;
    o.n_sequences = 2;
    o.n_threads = n_threads;
    o.n_batch = n_batch;
    o.n_outputs = s->g.n_tokens;
    o.kv_type = LACE_KV_F32;
    o.tower = s->tower;
    lace_session *session;
    lace_error err;
    if (!CHECK(lace_session_create(s->model, &o, &session, &err) == LACE_OK))
        tap_note("%s", err.text);
    return session;
}

static int32_t best(const float *row, int32_t n)
{
    int32_t at = 0;
    for (int32_t i = 1; i < n; i++)
        if (row[i] > row[at])
            at = i;
    return at;
}

static double worst_row(const subject *s, const lace_session *session, int32_t from, int32_t n)
{
    size_t width = (size_t)s->g.n_vocab;
    double worst = 0;
    for (int32_t i = 0; i < n; i++) {
        const float *row = lace_session_logits(session, (size_t)i);
        double error = row ? nmse(row, s->g.logits + (size_t)(from + i) * width, width) : 1;
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* Tokens [from, from + n) of the prompt, in sequence 0. */
static double eval_text(const subject *s, lace_session *session, int32_t from, int32_t n)
{
    lace_item *items = calloc((size_t)n + 1, sizeof *items);
    lace_error err = {0};
    for (int32_t i = 0; i < n; i++)
        items[i] = (lace_item){s->g.tokens[from + i], 0, true};
    if (!CHECK(n == 0 || lace_session_eval(session, items, (size_t)n, &err) == LACE_OK))
        tap_note("%s", err.text);
    free(items);
    return worst_row(s, session, from, n);
}

static void prompt_in(const subject *s, int32_t n_threads, int32_t n_batch)
{
    lace_session *session = start(s, n_threads, n_batch);
    lace_image *image = image_of_values(s);
    lace_error err = {0};
    if (!session || !image)
        return;
    double before = eval_text(s, session, 0, s->begin);
    if (!CHECK(lace_session_eval_image(session, 0, image, true, &err) == LACE_OK))
        tap_note("%s", err.text);
    double within = worst_row(s, session, s->begin, s->n_rows);
    int32_t end = s->begin + s->n_rows;
    double after = eval_text(s, session, end, s->g.n_tokens - end);
    tap_note("worst rows: nmse %.2g before the image, %.2g in it, %.2g behind it", before, within,
             after);
    CHECK(before <= tolerance() && within <= tolerance() && after <= tolerance());
    int32_t next =
        best(lace_session_logits(session, (size_t)(s->g.n_tokens - end) - 1), s->g.n_vocab);
    for (int32_t i = 0; i < s->g.n_greedy; i++) {
        CHECK(next == s->g.greedy[i]);
        lace_item item = {next, 0, true};
        CHECK(lace_session_eval(session, &item, 1, NULL) == LACE_OK);
        next = best(lace_session_logits(session, 0), s->g.n_vocab);
    }
    /* Nobody goes back to the middle of an image. */
    CHECK(lace_session_truncate(session, 0, s->begin + 1, &err) != LACE_OK || s->n_rows == 1);
    CHECK(lace_session_truncate(session, 0, 0, &err) == LACE_OK);
    lace_image_free(image);
    lace_session_free(session);
}

static void prompt_1_thread(void *arg)
{
    prompt_in(arg, 1, 96);
}

static void prompt_2_threads(void *arg)
{
    prompt_in(arg, 2, 96);
}

/* Images that see themselves both ways need a batch of their size. */
static void prompt_small_batches(void *arg)
{
    const subject *s = arg;
    prompt_in(s, 2, tower_is_fixed(&s->tower->config) ? s->n_rows : 3);
}

/* ---- Generations ----------------------------------------------------------------------------- */

typedef struct heard {
    int32_t tokens[64];
    int32_t n, n_cached;
    bool has_failed;
} heard;

static void hear(void *user, const lace_piece *piece)
{
    heard *h = user;
    if (piece->token >= 0 && h->n < 64)
        h->tokens[h->n++] = piece->token;
    h->n_cached = piece->stats->n_cached;
    if (piece->error) {
        tap_note("%s", piece->error->text);
        h->has_failed = true;
    }
}

/* The prompt in a batcher; *n_cached: what was there already. */
static void generate(const subject *s, lace_batcher *b, lace_image *image, bool is_right,
                     int32_t *n_cached)
{
    lace_token *prompt = calloc((size_t)s->g.n_tokens, sizeof *prompt);
    heard h = {0};
    lace_error err = {0};
    lace_generation *g;
    memcpy(prompt, s->g.tokens, (size_t)s->g.n_tokens * sizeof *prompt);
    lace_image_tokens(image, prompt + s->begin);
    lace_generation_options o = lace_generation_options_default();
    o.prompt = prompt;
    o.n_prompt = (size_t)s->g.n_tokens;
    o.sampler.temperature = 0;
    o.max_tokens = s->g.n_greedy;
    o.ignore_end = true;
    o.images = &image;
    o.n_images = 1;
    o.on_piece = hear;
    o.user = &h;
    if (!CHECK(lace_batcher_add(b, &o, &g, &err) == LACE_OK))
        tap_note("%s", err.text);
    while (lace_batcher_step(b))
        continue;
    CHECK(!h.has_failed && h.n == s->g.n_greedy);
    bool is_same = memcmp(h.tokens, s->g.greedy, (size_t)s->g.n_greedy * sizeof *h.tokens) == 0;
    CHECK(is_same == is_right);
    *n_cached = h.n_cached;
    free(prompt);
}

static void in_a_batcher(void *arg)
{
    const subject *s = arg;
    lace_batcher_options o = lace_batcher_options_default();
    lace_error err = {0};
    lace_batcher *b = NULL;
    int32_t n_cached = 0;
    o.session.tower = s->tower;
    o.session.kv_type = LACE_KV_F32;
    o.session.n_context = 160;
    o.session.n_sequences = 2;
    o.session.n_batch = s->n_rows + 8; /* so that the prompt comes in pieces */
    lace_image *image = image_of_values(s), *other = NULL;
    if (!image || !CHECK(lace_batcher_create(s->model, &o, &b, &err) == LACE_OK)) {
        tap_note("%s", err.text);
        return;
    }
    generate(s, b, image, true, &n_cached);
    CHECK(n_cached == 0);
    generate(s, b, image, true, &n_cached);
    CHECK(n_cached == s->g.n_tokens - 1); /* the image is a part of what is known */
    /* Another image of the same size is not taken for it. */
    size_t n = image->n * (size_t)image->row_width * sizeof(float);
    other = malloc(sizeof *other + n);
    memcpy(other, image, sizeof *other + n);
    atomic_init(&other->n_users, 1);
    for (size_t i = 0; i < n / sizeof(float); i++)
        other->rows[i] = -other->rows[i];
    other->key.bytes[5] ^= 1;
    generate(s, b, other, false, &n_cached);
    CHECK(n_cached <= s->begin + 1);
    /* Rows that are none of its images. */
    lace_token row = -5;
    lace_generation *g;
    lace_generation_options bad = lace_generation_options_default();
    bad.prompt = &row;
    bad.n_prompt = 1;
    CHECK(lace_batcher_add(b, &bad, &g, &err) == LACE_E_ARG);
    lace_batcher_free(b);
    lace_image_free(image);
    free(other);
}

/* ---- All of it ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void *);
} ways[] = {
    {"rows of recorded values", rows_of_values},     {"rows of pixels", rows_of_pixels},
    {"prompt, 1 thread", prompt_1_thread},           {"prompt, 2 threads", prompt_2_threads},
    {"prompt, small batches", prompt_small_batches}, {"in a batcher, and again", in_a_batcher},
};

static void failed(void *arg)
{
    tap_note("%s", (const char *)arg);
    CHECK(!"it opens");
}

static void check_pair(const char *name, subject *s, const char *model_path, const char *tower_path)
{
    char title[200];
    lace_error err = {0};
    lace_tower_options o = lace_tower_options_default();
    o.n_threads = 2;
    o.min_tokens = 1; /* mmproj files do not say how small images may be */
    lace_model_options at = lace_model_options_default();
    at.device = getenv("LACE_DEVICE");
    if (lace_model_open(model_path, &at, &s->model, &err) != LACE_OK ||
        lace_tower_open(s->model, tower_path, &o, &s->tower, &err) != LACE_OK) {
        tap_case_arg(name, failed, err.text);
        lace_model_close(s->model);
        return;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(title, sizeof title, "%s: %s", name, ways[i].name);
        tap_case_arg(title, ways[i].run, s);
    }
    lace_tower_close(s->tower);
    lace_model_close(s->model);
}

/* What lace makes of the directory is the same model. */
static void check_converted(const char *name, subject *s, const char *directory)
{
    char title[160];
    lace_error err = {0};
    convert_options o = convert_options_default();
    snprintf(title, sizeof title, "%s, converted", name);
    scratch_create();
    if (convert_directory(directory, scratch_path("model.gguf"), &o, NULL, &err) == LACE_OK)
        check_pair(title, s, scratch_path("model.gguf"), directory);
    else
        tap_case_arg(title, failed, err.text);
    scratch_remove();
}

/* A mixture that computes the same, from its directory and as lace converts that. */
static void check_mixture(const char *name, subject *s, const char *directory, bool is_cut)
{
    char title[200];
    lace_error err = {0};
    convert_options o = convert_options_default();
    const char *kind = is_cut ? "in experts" : "with equal experts";
    snprintf(title, sizeof title, "%s %s", name, kind);
    const char *folder = scratch_create();
    if (!vl_mixture_write(directory, is_cut)) {
        tap_case_arg(title, failed, "a mixture could not be written");
    } else {
        check_pair(title, s, folder, NULL);
        snprintf(title, sizeof title, "%s %s, as a file", name, kind);
        if (convert_directory(folder, scratch_path("model.gguf"), &o, NULL, &err) == LACE_OK)
            check_pair(title, s, scratch_path("model.gguf"), directory);
        else
            tap_case_arg(title, failed, err.text);
    }
    scratch_remove();
}

/* The longest run of one token is the image. */
static void find_run(subject *s)
{
    for (int32_t i = 0; i < s->g.n_tokens;) {
        int32_t n = 1;
        while (i + n < s->g.n_tokens && s->g.tokens[i + n] == s->g.tokens[i])
            n++;
        if (n == s->rows.dims[0] && n > s->n_rows) {
            s->begin = i;
            s->n_rows = n;
        }
        i += n;
    }
}

/* False: the folder has no image. */
static bool check_model(const char *name)
{
    char *path = golden_path(name, "golden.safetensors"), *folder = golden_path(name, "");
    char *file = golden_path(name, "model.gguf"), *mmproj = golden_path(name, "mmproj.gguf");
    char title[160];
    subject s = {0};
    s.image = path ? golden_tensor_read(path, "image") : (golden_tensor){0};
    bool has_image = s.image.data != NULL;
    if (has_image && golden_read(path, &s.g)) {
        s.values = golden_tensor_read(path, "pixel_values");
        s.rows = golden_tensor_read(path, "image_embeds");
        s.deep = golden_tensor_read(path, "deepstack_embeds");
        s.grid = golden_tensor_read(path, "image_grid_thw");
        find_run(&s);
        snprintf(title, sizeof title, "%s, directory", name);
        check_pair(title, &s, folder, NULL);
        snprintf(title, sizeof title, "%s, GGUF and mmproj", name);
        if (file && mmproj)
            check_pair(title, &s, file, NULL); /* it lies beside the model */
        check_converted(name, &s, folder);
        snprintf(title, sizeof title, "%s, directory and mmproj", name);
        if (mmproj)
            check_pair(title, &s, folder, mmproj);
        for (int i = 0; i < 2 && strcmp(name, "qwen3_vl") == 0; i++)
            check_mixture(name, &s, folder, i == 0);
        golden_free(&s.g);
        free(s.values.data);
        free(s.rows.data);
        free(s.deep.data);
        free(s.grid.data);
    }
    free(s.image.data);
    free(path);
    free(folder);
    free(file);
    free(mmproj);
    return has_image;
}

static void check_enough(void *arg)
{
    CHECK(*(const int *)arg >= 2);
}

int main(void)
{
    int n = 0;
    const char **models;
    size_t n_models = data_names("golden2", &models);
    for (size_t i = 0; i < n_models; i++)
        n += check_model(models[i]);
    free(models);
    tap_case_arg("there_are_golden_models_that_see", check_enough, &n);
    return tap_end();
}
