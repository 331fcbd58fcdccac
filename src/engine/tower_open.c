/* Vision towers: found, opened, and their images put into prompts. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "engine/image.h"
#include "formats/store.h"

enum { MAX_TOKENS = 4096, MAX_THREADS = 1024 };

lace_tower_options lace_tower_options_default(void)
{
    return (lace_tower_options){0};
}

/* What towers of a kind are called, which models they belong to, and their marks for images. */
static const struct {
    const char *name, *architecture, *mixture; /* NULL: there are none with experts */
    const char *mark, *before, *after;         /* NULL: there is none */
} families[] = {
    [TOWER_GEMMA3] = {"gemma3", "gemma3", NULL, "<start_of_image>", "<start_of_image>",
                      "<end_of_image>"},
    [TOWER_QWEN3VL] = {"qwen3vl", "qwen3vl", "qwen3vlmoe", "<|image_pad|>", NULL, NULL},
};

/* ---- Opening --------------------------------------------------------------------------------- */

/* The token of this name; -1: none. */
static lace_token find_token(const lace_model *lm, const char *name)
{
    lace_token tokens[2];
    size_t n = 0;
    if (!name || !lm->tokens)
        return -1;
    lace_status status =
        lace_tokenize(lm, name, strlen(name), LACE_TOKENIZE_PARSE_SPECIAL, tokens, 2, &n, NULL);
    return status == LACE_OK && n == 1 ? tokens[0] : -1;
}

/* Whether models of this one's architecture read what towers of a kind make. */
static bool is_reader(const lace_model *lm, size_t kind)
{
    const char *own = lm->m->config.architecture, *mixture = families[kind].mixture;
    return strcmp(own, families[kind].architecture) == 0 || (mixture && strcmp(own, mixture) == 0);
}

static bool is_any_reader(const lace_model *lm)
{
    for (size_t kind = 0; kind < sizeof families / sizeof *families; kind++)
        if (is_reader(lm, kind))
            return true;
    return false;
}

static lace_status check_model(const lace_model *lm, const tower_config *c, lace_error *err)
{
    const model_config *reader = &lm->m->config;
    const char *expected = families[c->kind].architecture;
    if (!is_reader(lm, c->kind) || reader->n_embd != c->n_out || c->n_deep > reader->n_layers)
        return error_set(err, LACE_E_ARG,
                         "the tower makes rows of %d values for a %s model, and the model is a %s "
                         "whose embeddings have %d",
                         c->n_out, expected, reader->architecture, reader->n_embd);
    return LACE_OK;
}

/* What the options change: how large images may become. */
static lace_status set_sizes(lace_tower *t, const lace_model *lm, lace_error *err)
{
    tower_config *c = &t->config;
    const lace_tower_options *o = &t->options;
    int64_t square = (int64_t)c->patch * c->merge * c->patch * c->merge;
    if (o->min_tokens < 0 || o->max_tokens < 0 || o->max_tokens > (1 << 16) || o->n_threads < 0 ||
        o->n_threads > MAX_THREADS || o->max_pixels > UINT64_C(1) << 28)
        return error_set(err, LACE_E_ARG, "an option of the vision tower is outside its range");
    if (tower_is_fixed(c))
        return LACE_OK;
    int64_t most = o->max_tokens ? o->max_tokens : MAX_TOKENS;
    if (most > lm->m->config.n_context)
        most = lm->m->config.n_context;
    if (c->max_pixels > most * square || o->max_tokens)
        c->max_pixels = most * square;
    c->max_pixels = min_i64(c->max_pixels, (int64_t)TOWER_MAX_PATCHES * c->patch * c->patch);
    if (o->min_tokens)
        c->min_pixels = o->min_tokens * square;
    if (c->min_pixels > c->max_pixels)
        c->min_pixels = c->max_pixels;
    return LACE_OK;
}

/* What it will take is known then, and nothing is taken. */
static lace_status outline(lace_tower *t, lace_error *err)
{
    const tower_config *c = &t->config;
    int32_t most = (int32_t)tower_max_patches(c);
    runner_options o = {.n_sequences = 1,
                        .n_context = most,
                        .n_batch = most,
                        .n_outputs = most / (c->merge * c->merge),
                        .n_threads = t->options.n_threads ? t->options.n_threads : cpu_count(),
                        .kv_type = DTYPE_F32,
                        .v_type = DTYPE_F32,
                        .stops_at_hidden = true};
    return runner_outline(t->m, &o, &t->runner, err);
}

/* A runner that has failed keeps what it took; the next image gets a new one. */
static lace_status prepare(lace_tower *t, lace_error *err)
{
    if (!t->runner)
        TRY(outline(t, err));
    lace_status status = runner_prepare(t->runner, NULL, NULL, err);
    t->is_prepared = status == LACE_OK;
    if (t->is_prepared)
        return LACE_OK;
    runner_free(t->runner);
    t->runner = NULL;
    return status;
}

lace_status tower_start(lace_tower *t, lace_error *err)
{
    const tower_config *c = &t->config;
    size_t n = (size_t)tower_max_patches(c);
    if (t->is_started)
        return LACE_OK;
    if (!t->is_prepared)
        TRY(prepare(t, err));
    mem_free_all(t->segments, t->axes, t->items);
    if (!t->patches)
        t->patches = mem_map(n * (size_t)tower_patch_width(c) * sizeof *t->patches);
    t->segments = mem_calloc(n, sizeof *t->segments);
    t->axes = mem_calloc(2 * n, sizeof *t->axes);
    t->items = mem_calloc(n, sizeof *t->items);
    t->is_started = t->patches && t->segments && t->axes && t->items;
    return t->is_started ? LACE_OK : error_nomem(err, "a vision tower");
}

/* Rows depend on how large images become, too. */
static bool digest_sizes(lace_tower *t)
{
    const tower_config *c = &t->config;
    int64_t sizes[] = {c->min_pixels, c->max_pixels};
    digest files = t->files;
    return digest_of(&files, sizeof files, sizes, sizeof sizes, &t->files);
}

/* The files of a tower: named, or the model's directory, or beside its file. */
static lace_status open_files(const lace_model *lm, const char *path, weights **out,
                              lace_error *err)
{
    char beside[STORE_MAX_PATH];
    if (path)
        return weights_open(path, out, err);
    const char *own = weights_name(lm->files);
    if (weights_config(lm->files))
        return weights_open(own, out, err);
    if (!store_find_mmproj(own, beside))
        return error_set(err, LACE_E_UNSUPPORTED,
                         "there is no vision tower: no mmproj file lies beside %s; --mmproj names "
                         "one",
                         own);
    return weights_open(beside, out, err);
}

lace_status lace_tower_open(const lace_model *lm, const char *path,
                            const lace_tower_options *options, lace_tower **out, lace_error *err)
{
    *out = NULL;
    if (!lm->m)
        return error_set(err, LACE_E_ARG, "the model was opened for its vocabulary alone");
    if (!path && !is_any_reader(lm)) /* whatever lies beside it is another model's */
        return error_set(err, LACE_E_UNSUPPORTED,
                         "models of the architecture %s have no vision tower; lace computes those "
                         "of Gemma 3 and Qwen3-VL",
                         lm->m->config.architecture);
    lace_tower *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a vision tower");
    pthread_mutex_init(&t->lock, NULL);
    t->options = options ? *options : lace_tower_options_default();
    weights *files = NULL;
    lace_status status;
    device_options on_cpu = {.level = cpu_level_detect(), .mode = WEIGHTS_PACKED};
    TRY_GOTO(status, done, open_files(lm, path, &files, err));
    if (!weights_digest(files, &t->files)) {
        weights_close(files);
        status = error_nomem(err, "a vision tower");
        goto done;
    }
    TRY_GOTO(status, done, tower_create(files, &on_cpu, &t->m, err));
    t->config = t->m->tower->config;
    TRY_GOTO(status, done, check_model(lm, &t->config, err));
    TRY_GOTO(status, done, set_sizes(t, lm, err));
    t->marks = (image_marks){.mark = find_token(lm, families[t->config.kind].mark),
                             .before = find_token(lm, families[t->config.kind].before),
                             .after = find_token(lm, families[t->config.kind].after)};
    if (!digest_sizes(t)) {
        status = error_nomem(err, "a vision tower");
        goto done;
    }
    TRY_GOTO(status, done, outline(t, err));
    t->scratch = runner_bytes(t->runner) + states_bytes(t->runner->states) +
                 (uint64_t)tower_max_patches(&t->config) * (uint64_t)tower_patch_width(&t->config) *
                     sizeof *t->patches;
done:
    return GIVE_OR_FREE(status, t, out, lace_tower_close);
}

void lace_tower_close(lace_tower *t)
{
    if (!t)
        return;
    while (t->kept) {
        lace_image *i = t->kept;
        t->kept = i->next;
        lace_image_free(i);
    }
    runner_free(t->runner);
    if (t->patches)
        mem_unmap(t->patches, (size_t)tower_max_patches(&t->config) *
                                  (size_t)tower_patch_width(&t->config) * sizeof *t->patches);
    model_free(t->m);
    pthread_mutex_destroy(&t->lock);
    mem_free_all(t->segments, t->axes, t->items, t);
}

void lace_tower_describe(const lace_tower *t, lace_tower_info *out)
{
    const tower_config *c = &t->config;
    int64_t n = tower_max_patches(c);
    *out = (lace_tower_info){.name = families[c->kind].name,
                             .max_tokens = (int32_t)(n / (c->merge * c->merge)),
                             .row_width = (int32_t)tower_row_width(c),
                             .sees_both_ways = tower_is_fixed(c),
                             .weights = model_weight_bytes(t->m),
                             .scratch = t->scratch};
}

/* ---- Prompts --------------------------------------------------------------------------------- */

const char *lace_tower_mark(const lace_tower *t)
{
    return t->config.kind == TOWER_QWEN3VL ? "<|vision_start|><|image_pad|><|vision_end|>"
                                           : families[t->config.kind].mark;
}

/* A prompt that grows. */
typedef struct growing {
    lace_token *out;
    size_t n, capacity;
} growing;

static void add(growing *g, lace_token token)
{
    if (g->n < g->capacity)
        g->out[g->n] = token;
    g->n++;
}

static void add_image(growing *g, const lace_tower *t, const lace_image *image)
{
    if (t->marks.before >= 0)
        add(g, t->marks.before);
    for (int32_t i = 0; i < image->n; i++) {
        lace_token row;
        image_tokens_of(image, i, 1, &row);
        add(g, row);
    }
    if (t->marks.after >= 0)
        add(g, t->marks.after);
}

lace_status lace_tower_place(const lace_tower *t, const lace_token *tokens, size_t n_tokens,
                             lace_image *const *images, size_t n_images, lace_token *out,
                             size_t capacity, size_t *n_out, lace_error *err)
{
    growing g = {.out = out, .capacity = capacity};
    size_t n_marks = 0;
    if (t->marks.mark < 0)
        return error_set(err, LACE_E_VOCAB, "the vocabulary has no token %s for images",
                         families[t->config.kind].mark);
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] != t->marks.mark)
            add(&g, tokens[i]);
        else if (n_marks++ < n_images)
            add_image(&g, t, images[n_marks - 1]);
    }
    *n_out = g.n;
    if (n_marks != n_images)
        return error_set(err, LACE_E_ARG,
                         "the prompt has %zu places for images (%s), and there are %zu images",
                         n_marks, families[t->config.kind].mark, n_images);
    return LACE_OK;
}
