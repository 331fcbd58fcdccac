/* Texts of a command line, and the embedder that reads them. */
#define _POSIX_C_SOURCE 200809L
#include "cli/texts.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static lace_status make_room(text_list *list, size_t n, lace_error *err)
{
    list->data = mem_calloc(n + 1, sizeof *list->data);
    list->sizes = mem_calloc(n + 1, sizeof *list->sizes);
    return list->data && list->sizes ? LACE_OK : error_nomem(err, "texts");
}

static void add(text_list *list, const char *data, size_t size)
{
    list->data[list->n] = data;
    list->sizes[list->n++] = size;
}

/* Where the line at `at` ends, and where the next one begins. */
static size_t line_end(const buf *b, size_t at, size_t *next)
{
    const char *end = memchr(b->data + at, '\n', b->size - at);
    size_t n = end ? (size_t)(end - b->data) : b->size;
    *next = n + 1;
    return n > at && b->data[n - 1] == '\r' ? n - 1 : n;
}

static lace_status read_lines(const char *file, text_list *out, lace_error *err)
{
    buf_init(&out->lines, CLI_MAX_TEXT);
    TRY(file_read(file, &out->lines, err));
    size_t n = 0, next;
    for (size_t at = 0; at < out->lines.size; at = next, n++)
        line_end(&out->lines, at, &next);
    TRY(make_room(out, n, err));
    for (size_t at = 0; at < out->lines.size; at = next) {
        size_t end = line_end(&out->lines, at, &next);
        if (end > at)
            add(out, out->lines.data + at, end - at);
    }
    return out->n > 0 ? LACE_OK
                      : error_set(err, LACE_E_ARG, "%.200s has no text",
                                  strcmp(file, "-") == 0 ? "standard input" : file);
}

lace_status texts_read(const verb *v, const positional *words, int first, const char *file,
                       text_list *out, lace_error *err)
{
    *out = (text_list){0};
    bool has_words = words->count > first;
    if (has_words && file)
        return args_error(v, err, "texts and -f exclude each other");
    if (!has_words && !file && isatty(STDIN_FILENO))
        return args_error(v, err, "a text or -f FILE is missing");
    if (!has_words)
        return read_lines(file ? file : "-", out, err);
    TRY(make_room(out, (size_t)(words->count - first), err));
    for (int i = first; i < words->count; i++)
        add(out, words->at[i], strlen(words->at[i]));
    return LACE_OK;
}

void texts_free(text_list *list)
{
    buf_deinit(&list->lines);
    mem_free_all(list->data, list->sizes);
}

lace_status embedder_open(const char *path, const embedder_args *a, bool use_vocab,
                          lace_model **model, lace_embedder **out, lace_error *err)
{
    *model = NULL;
    *out = NULL;
    lace_model_options mo = lace_model_options_default();
    lace_embedder_options o = lace_embedder_options_default();
    mo.use_exact = a->exact;
    mo.use_mmap = a->mmap;
    mo.device = a->device;
    mo.use_vocab = use_vocab;
    o.session.n_context = a->n_context;
    o.session.n_batch = a->n_batch;
    o.session.n_threads = a->n_threads;
    o.session.kv_type = (lace_kv_type)a->kv_type;
    o.session.v_type = (lace_kv_type)a->v_type;
    TRY(lace_model_open(path, &mo, model, err));
    lace_status status = lace_embedder_create(*model, &o, out, err);
    if (status != LACE_OK) {
        lace_model_close(*model);
        *model = NULL;
    }
    return status;
}
