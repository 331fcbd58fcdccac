/*
 * Files that another program changes while they are in use: what was checked is what is computed
 * with, or an error is reported; nothing crashes. In order (changed after it was checked) and as a
 * race (changed all the time).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_guard.h"
#include "formats/weights.h"
#include "lace.h"
#include "model/config.h"
#include "vocab/vocab_gguf.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tensor/sparse.h"
#include "tiny_hf.h"
#include "tiny_model.h"

enum { N_VOCAB = 16 };

/* ---- Files ----------------------------------------------------------------------------------- */

static tiny_options options(void)
{
    tiny_options o = tiny_options_least();
    o.n_embd = 32;
    o.n_ff = 32;
    o.n_heads = 2;
    o.type = DTYPE_F32;
    return o;
}

static uint32_t next_random(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* A matrix of this shape as a blob, with random values where half of them are kept. */
static void append_blob(sparse_kind kind, int64_t n_rows, int64_t n_cols, buf *out)
{
    size_t n = (size_t)(n_rows * n_cols);
    uint8_t *keeps = calloc(n, 1), *codes = calloc(n, 1), *scales = calloc(n, 1);
    float *values = calloc(n, sizeof *values);
    for (size_t i = 0; i < n; i++) {
        keeps[i] = kind == SPARSE_N24 ? i % 4 < 2 : next_random() & 1;
        codes[i] = (uint8_t)(next_random() & 15);
        scales[i] = 130;
        values[i] = keeps[i] ? (float)(codes[i] + 1) / 64 : 0;
    }
    sparse_source s = {n_rows, n_cols, keeps, codes, scales, values};
    CHECK(sparse_write(kind, &s, out, NULL) == LACE_OK);
    free(keeps);
    free(codes);
    free(scales);
    free(values);
}

/* The tiny model in a file; of a kind: with the matrices of its layers as blobs. */
static void write_model(const char *name, sparse_kind kind)
{
    buf plain = tiny_model_bytes(options()), file;
    gguf *g = NULL;
    gguf_writer *w = NULL;
    buf_init(&file, 1 << 22);
    CHECK(gguf_parse(span_of(&plain), &g, NULL) == LACE_OK);
    CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
    for (size_t i = 0; i < gguf_n_values(g); i++)
        gguf_writer_add_value(w, gguf_value_at(g, i), NULL);
    buf blobs[32];
    size_t n_blobs = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const tensor *t = gguf_tensor_at(g, i);
        if (!kind || t->shape.n_dims != 2 || memcmp(t->name.data, "blk.", 4) != 0) {
            gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
            continue;
        }
        char blob_name[80];
        buf *b = &blobs[n_blobs++];
        buf_init(b, 1 << 20);
        append_blob(kind, t->shape.dims[1], t->shape.dims[0], b);
        snprintf(blob_name, sizeof blob_name, "%.*s.sparse", (int)t->name.size, t->name.data);
        shape s = {1, {(int64_t)b->size}};
        gguf_writer_add_tensor(w, text_of(blob_name), DTYPE_I8, &s, b->data, NULL);
    }
    CHECK(gguf_writer_to_buf(w, &file, NULL) == LACE_OK);
    CHECK(tiny_hf_write(name, &file));
    for (size_t i = 0; i < n_blobs; i++)
        buf_deinit(&blobs[i]);
    gguf_writer_free(w);
    gguf_free(g);
    buf_deinit(&plain);
    buf_deinit(&file);
}

static void overwrite(const char *path, uint64_t begin, uint64_t end)
{
    int fd = open(path, O_WRONLY);
    for (uint64_t at = begin; at < end; at++)
        if (!CHECK(pwrite(fd, "\xFF", 1, (off_t)at) == 1))
            break;
    close(fd);
}

/* ---- Changed after it was checked ------------------------------------------------------------ */

static void metadata_is_what_was_parsed(void)
{
    lace_error err;
    weights *files = NULL;
    model_config config;
    tokenizer *t = NULL;
    if (!CHECK(scratch_create() != NULL))
        return;
    write_model("m.gguf", 0);
    CHECK(is_ok(weights_open(scratch_path("m.gguf"), &files, &err), &err));
    const gguf *g = weights_gguf(files);
    overwrite(scratch_path("m.gguf"), 0, gguf_data_offset(g));
    CHECK(is_ok(config_from_gguf(g, &config, &err), &err) && config.n_embd == 32);
    CHECK(is_ok(vocab_gguf_open(g, &t, &err), &err));
    CHECK(t && tokenizer_n_tokens(t) == N_VOCAB);
    CHECK(weights_find(files, "blk.0.attn_q.weight") != NULL);
    tokenizer_free(t);
    weights_close(files);
    scratch_remove();
}

static lace_status evaluate(lace_model *model, float logits[N_VOCAB], lace_error *err)
{
    lace_session *session = NULL;
    lace_session_options o = lace_session_options_default();
    o.n_threads = 1;
    o.n_context = 8;
    o.memory_bytes = 1 << 26; /* changed numbers may ask for much; that is refused, not tried */
    lace_item items[2] = {{3, 0, false}, {5, 0, true}};
    lace_status status = lace_session_create(model, &o, &session, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, items, 2, err);
    if (status == LACE_OK)
        memcpy(logits, lace_session_logits(session, 0), N_VOCAB * sizeof *logits);
    lace_session_free(session);
    return status;
}

/* Tables of panels, masks and columns: where values are read from, and where they are written. */
static void sparse_matrices_are_what_was_checked(void)
{
    static const sparse_kind kinds[] = {SPARSE_CSR, SPARSE_M4, SPARSE_M8, SPARSE_N24};
    for (int i = 0; i < 12; i++) {
        lace_model_options o = lace_model_options_default();
        lace_model *model = NULL;
        lace_error err = {0};
        float before[N_VOCAB] = {0}, after[N_VOCAB] = {1};
        o.use_mmap = i / 4 == 0;
        o.use_exact = i / 4 == 1;
        if (!CHECK(scratch_create() != NULL))
            return;
        write_model("m.gguf", kinds[i % 4]);
        const char *path = scratch_path("m.gguf");
        CHECK(is_ok(lace_model_open(path, &o, &model, &err), &err));
        CHECK(is_ok(evaluate(model, before, &err), &err));
        lace_model_close(model);
        model = NULL;

        CHECK(is_ok(lace_model_open(path, &o, &model, &err), &err));
        weights *files = NULL; /* to know where the blobs are */
        buf bytes;
        gguf *g = NULL;
        buf_init(&bytes, 1 << 22);
        CHECK(file_read(path, &bytes, &err) == LACE_OK);
        CHECK(gguf_parse(span_of(&bytes), &g, &err) == LACE_OK);
        for (size_t k = 0; k < gguf_n_tensors(g); k++) {
            const tensor *t = gguf_tensor_at(g, k);
            uint64_t begin = (uint64_t)(t->data - (const uint8_t *)bytes.data);
            if (t->type == DTYPE_I8)
                overwrite(path, begin, begin + t->n_bytes);
        }
        CHECK(is_ok(evaluate(model, after, &err), &err));
        CHECK(memcmp(before, after, sizeof before) == 0);
        lace_model_close(model);
        weights_close(files);
        gguf_free(g);
        buf_deinit(&bytes);
        scratch_remove();
    }
}

/* ---- Changed all the time -------------------------------------------------------------------- */

typedef struct spoiler {
    const char *path;
    size_t first, size; /* bytes that it changes */
    char *good;
    bool cuts; /* it also cuts the file short for moments */
    atomic_bool is_done;
    pthread_t thread;
} spoiler;

static void *spoil(void *arg)
{
    spoiler *s = arg;
    uint32_t state = 7;
    int fd = open(s->path, O_RDWR);
    size_t n = s->size - s->first;
    while (!atomic_load(&s->is_done)) {
        char junk[16];
        state = state * 1664525u + 1013904223u;
        size_t at = s->first + (state >> 3) % n;
        size_t count = s->size - at < sizeof junk ? s->size - at : sizeof junk;
        for (size_t i = 0; i < count; i++)
            junk[i] = (state >> 28) < 8 ? (char)0xFF : (char)(state >> (i % 4 * 8));
        bool ok = pwrite(fd, junk, count, (off_t)at) == (ssize_t)count;
        if (s->cuts && state >> 28 == 0)
            ok = ok && ftruncate(fd, (off_t)at) == 0;
        sched_yield();
        ok = ok && pwrite(fd, s->good + s->first, n, (off_t)s->first) == (ssize_t)n;
        if (!ok)
            break;
    }
    close(fd);
    return NULL;
}

/* After a cut was seen nothing runs any more in this process, so all others come before. */
static void race(const char *model_path, const char *file, size_t first, bool cuts, int n_times)
{
    buf good;
    lace_error err = {0};
    lace_model *quiet = NULL;
    float logits[N_VOCAB];
    CHECK(is_ok(lace_model_open(model_path, NULL, &quiet, &err), &err));
    CHECK(file_guard_is_broken() || is_ok(evaluate(quiet, logits, &err), &err));
    lace_model_close(quiet);
    buf_init(&good, 1 << 22);
    CHECK(file_read(file, &good, &err) == LACE_OK);
    spoiler s = {.path = file, .first = first, .size = good.size, .good = good.data, .cuts = cuts};
    int n_ran = 0;
    CHECK(pthread_create(&s.thread, NULL, spoil, &s) == 0);
    for (int i = 0; i < n_times; i++) {
        lace_model_options o = lace_model_options_default();
        lace_model *model = NULL;
        o.use_mmap = i % 2;
        lace_status status = lace_model_open(model_path, &o, &model, &err);
        for (int k = 0; k < 3 && status == LACE_OK; k++)
            status = evaluate(model, logits, &err);
        n_ran += status == LACE_OK;
        if (status != LACE_OK && !CHECK(err.text[0] && err.status == status))
            tap_note("status %d: %s", (int)status, err.text);
        lace_model_close(model);
    }
    atomic_store(&s.is_done, true);
    pthread_join(s.thread, NULL);
    tap_note("%d of %d ran", n_ran, n_times);
    buf_deinit(&good);
}

static void a_gguf_that_changes_never_crashes(void)
{
    if (!CHECK(scratch_create() != NULL))
        return;
    write_model("m.gguf", 0);
    race(scratch_path("m.gguf"), scratch_path("m.gguf"), 24, false, 200);
    scratch_remove();
}

static void a_sparse_model_that_changes_never_crashes(void)
{
    static const sparse_kind kinds[] = {SPARSE_CSR, SPARSE_M4, SPARSE_M8};
    for (int i = 0; i < 3; i++) {
        buf b;
        gguf *g = NULL;
        if (!CHECK(scratch_create() != NULL))
            return;
        write_model("m.gguf", kinds[i]);
        buf_init(&b, 1 << 22);
        CHECK(file_read(scratch_path("m.gguf"), &b, NULL) == LACE_OK);
        CHECK(gguf_parse(span_of(&b), &g, NULL) == LACE_OK);
        race(scratch_path("m.gguf"), scratch_path("m.gguf"), (size_t)gguf_data_offset(g), false,
             150);
        gguf_free(g);
        buf_deinit(&b);
        scratch_remove();
    }
}

static void a_directory_that_changes_never_crashes(void)
{
    const char *folder = scratch_create();
    if (!CHECK(folder != NULL))
        return;
    CHECK(tiny_hf_llama("F32"));
    race(folder, scratch_path("model.safetensors"), 0, false, 200);
    race(folder, scratch_path("config.json"), 0, false, 100);
    scratch_remove();
}

static void files_that_are_cut_short_never_crash(void)
{
    const char *folder = scratch_create();
    if (!CHECK(folder != NULL))
        return;
    write_model("m.gguf", SPARSE_M4);
    CHECK(tiny_hf_llama("F32"));
    race(scratch_path("m.gguf"), scratch_path("m.gguf"), 0, true, 150);
    race(folder, scratch_path("model.safetensors"), 0, true, 150);
    scratch_remove();
}

/* ---- The guard ------------------------------------------------------------------------------- */

/* More mappings than its table once had room for: a model of 1,100 parts ended with SIGBUS. */
static void every_mapping_is_guarded(void)
{
    enum { N = 2500 };
    static file_map maps[N];
    lace_error err;
    int n_zero = 0;
    if (!CHECK(scratch_create() != NULL && scratch_write("f", "some bytes")))
        return;
    const char *path = scratch_path("f");
    for (int i = 0; i < N; i++)
        if (!CHECK(is_ok(file_map_open(path, &maps[i], &err), &err)))
            return;
    CHECK(maps[0].bytes.data[0] == 's');
    int cut = scratch_empty(path);
    if (cut == EACCES) {
        tap_skip("this system cuts no file that is mapped");
    } else {
        CHECK(cut == 0);
        for (int i = 0; i < N; i++)
            n_zero += maps[i].bytes.data[0] == 0;
        CHECK(n_zero == N && file_guard_is_broken());
    }
    for (int i = 0; i < N; i++)
        file_map_close(&maps[i]);
    scratch_remove();
}

int main(void)
{
    file_guard_install();
    CASE(metadata_is_what_was_parsed);
    CASE(sparse_matrices_are_what_was_checked);
    CASE(a_gguf_that_changes_never_crashes);
    CASE(a_sparse_model_that_changes_never_crashes);
    CASE(a_directory_that_changes_never_crashes);
    CASE(every_mapping_is_guarded);
    CASE(files_that_are_cut_short_never_crash);
    return tap_end();
}
