/*
 * Opening models while calls of the operating system fail: open, fstat, read and mmap, one after
 * the other, and reads that give a few bytes or are interrupted. Each failure is one clear error,
 * or does not matter; short reads change nothing.
 *
 * The calls are replaced by those of this program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/gguf_write.h"
#include "lace.h"
#include "scratch.h"
#include "status_check.h"
#include "tap.h"
#include "tiny_hf.h"
#include "tiny_model.h"

enum { N_VOCAB = 16 };

/* ---- The calls ------------------------------------------------------------------------------- */

static struct {
    bool is_on;
    long fails_at; /* the number of the call that fails; -1: none */
    long n_calls;
    size_t most;         /* bytes of a read; 0: all */
    bool is_interrupted; /* every second read */
} faults = {.fails_at = -1};

static bool must_fail(int error)
{
    if (!faults.is_on || faults.n_calls++ != faults.fails_at)
        return false;
    errno = error;
    return true;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return must_fail(EMFILE) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fstat(int fd, struct stat *st)
{
    return must_fail(EIO) ? -1 : fstatat(fd, "", st, AT_EMPTY_PATH);
}

ssize_t read(int fd, void *out, size_t n)
{
    static bool was_interrupted;
    if (must_fail(EIO))
        return -1;
    was_interrupted = faults.is_on && faults.is_interrupted && !was_interrupted;
    if (was_interrupted) {
        errno = EINTR;
        return -1;
    }
    if (faults.is_on && faults.most && n > faults.most)
        n = faults.most;
    return syscall(SYS_read, fd, out, n);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (must_fail(ENOMEM))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

/* ---- The models ------------------------------------------------------------------------------ */

static void write_gguf(void)
{
    tiny_options o = tiny_options_least();
    buf file = tiny_model_bytes(o);
    CHECK(tiny_hf_write("m.gguf", &file));
    buf_deinit(&file);
}

/* With matrices that are copied out of the file. */
static void write_sparse(void)
{
    buf file;
    buf_init(&file, 1 << 20);
    CHECK(file_read("tests/fuzz/corpus/load/csr.gguf", &file, NULL) == LACE_OK);
    CHECK(tiny_hf_write("m.gguf", &file));
    buf_deinit(&file);
}

/* In two parts, of which the second has all tensors. */
static void write_parts(void)
{
    tiny_options o = tiny_options_least();
    buf file = tiny_model_bytes(o);
    gguf *g = NULL;
    CHECK(gguf_parse(span_of(&file), &g, NULL) == LACE_OK);
    for (int part = 0; part < 2; part++) {
        gguf_writer *w = NULL;
        CHECK(gguf_writer_create(&w, NULL) == LACE_OK);
        for (size_t i = 0; part == 0 && i < gguf_n_values(g); i++)
            gguf_writer_add_value(w, gguf_value_at(g, i), NULL);
        gguf_writer_add_int(w, "split.no", GGUF_U16, part, NULL);
        gguf_writer_add_int(w, "split.count", GGUF_U16, 2, NULL);
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const tensor *t = gguf_tensor_at(g, i);
            if ((i > 0) == part)
                gguf_writer_add_tensor(w, t->name, t->type, &t->shape, t->data, NULL);
        }
        CHECK(gguf_writer_to_file(
                  w, scratch_path(part ? "m-00002-of-00002.gguf" : "m-00001-of-00002.gguf"), NULL,
                  NULL, NULL) == LACE_OK);
        gguf_writer_free(w);
    }
    gguf_free(g);
    buf_deinit(&file);
}

static void write_directory(void)
{
    CHECK(tiny_hf_llama("F32"));
    CHECK(scratch_write("tokenizer.json",
                        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"h\":0,\"i\":1,\"hi\":2},"
                        "\"merges\":[\"h i\"]},\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                        "\"add_prefix_space\":false}}"));
    CHECK(scratch_write("tokenizer_config.json", "{\"eos_token\":\"i\"}"));
    CHECK(scratch_write("generation_config.json", "{\"eos_token_id\":1}"));
    CHECK(scratch_write("chat_template.jinja", "{{ messages }}"));
}

static const struct model_files {
    const char *name, *path;
    void (*write)(void);
} models[] = {
    {"a GGUF file", "m.gguf", write_gguf},
    {"a GGUF file with sparse matrices", "m.gguf", write_sparse},
    {"a split GGUF file", "m-00001-of-00002.gguf", write_parts},
    {"a directory", "", write_directory},
};

static lace_status open_and_run(const char *path, bool use_mmap, float logits[N_VOCAB],
                                lace_error *err)
{
    lace_model_options o = lace_model_options_default();
    lace_session_options so = lace_session_options_default();
    lace_model *model = NULL;
    lace_session *session = NULL;
    lace_model_info info;
    lace_item item = {1, 0, true};
    so.n_threads = 1;
    so.n_context = 8;
    o.use_mmap = use_mmap;
    lace_status status = lace_model_open(path, &o, &model, err);
    if (status == LACE_OK)
        status = lace_session_create(model, &so, &session, err);
    if (status == LACE_OK)
        status = lace_session_eval(session, &item, 1, err);
    memset(logits, 0, N_VOCAB * sizeof *logits);
    if (status == LACE_OK) {
        lace_model_describe(model, &info);
        memcpy(logits, lace_session_logits(session, 0), (size_t)info.n_vocab * sizeof *logits);
    }
    lace_session_free(session);
    lace_model_close(model);
    return status;
}

/* ---- The cases ------------------------------------------------------------------------------- */

static void every_failing_call_is_a_clean_error(void *arg)
{
    const struct model_files *m = arg;
    float expected[N_VOCAB], logits[N_VOCAB];
    lace_error err = {0};
    const char *folder = scratch_create();
    if (!CHECK(folder != NULL))
        return;
    m->write();
    const char *path = scratch_path(m->path);
    for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
        /* CSR in place is multiplied by another kernel than packed, in another order. */
        CHECK(is_ok(open_and_run(path, use_mmap, expected, &err), &err));
        long i = 0, n_failed = 0;
        for (bool is_done = false; !is_done; i++) {
            memset(&err, 0, sizeof err);
            faults.fails_at = i;
            faults.n_calls = 0;
            faults.is_on = true;
            lace_status status = open_and_run(path, use_mmap, logits, &err);
            faults.is_on = false;
            is_done = faults.n_calls <= i;
            n_failed += status != LACE_OK;
            bool is_clean = status == LACE_OK || status == LACE_E_IO || status == LACE_E_NOMEM;
            if (!CHECK(is_clean && (status == LACE_OK || (err.status == status && err.text[0]))))
                tap_note("call %ld: status %d, %s", i, (int)status, err.text);
            if (!CHECK(status != LACE_E_IO || strstr(err.text, folder)))
                tap_note("call %ld: %s", i, err.text);
            /* What did not matter changed nothing. */
            CHECK(status != LACE_OK || memcmp(logits, expected, sizeof logits) == 0);
        }
        tap_note("%s: %ld calls, %ld of them needed", use_mmap ? "in place" : "packed", i - 1,
                 n_failed);
        CHECK(n_failed > 3);
    }
    scratch_remove();
}

static void short_and_interrupted_reads_change_nothing(void *arg)
{
    const struct model_files *m = arg;
    float expected[N_VOCAB], logits[N_VOCAB];
    lace_error err = {0};
    if (!CHECK(scratch_create() != NULL))
        return;
    m->write();
    const char *path = scratch_path(m->path);
    CHECK(is_ok(open_and_run(path, false, expected, &err), &err));
    for (size_t most = 1; most <= 7; most += 3) {
        memset(logits, 0, sizeof logits);
        faults.fails_at = -1;
        faults.most = most;
        faults.is_interrupted = true;
        faults.is_on = true;
        CHECK(is_ok(open_and_run(path, false, logits, &err), &err));
        faults.is_on = false;
        CHECK(memcmp(logits, expected, sizeof logits) == 0);
    }
    faults.most = 0;
    faults.is_interrupted = false;
    scratch_remove();
}

int main(void)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s: every_failing_call_is_a_clean_error", models[i].name);
        tap_case_arg(name, every_failing_call_is_a_clean_error, (void *)&models[i]);
        snprintf(name, sizeof name, "%s: short_and_interrupted_reads_change_nothing",
                 models[i].name);
        tap_case_arg(name, short_and_interrupted_reads_change_nothing, (void *)&models[i]);
    }
    return tap_end();
}
