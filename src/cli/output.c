/* What a verb writes: not over its inputs, and only what can be run. */
#define _DEFAULT_SOURCE
#include "cli/output.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/store.h"

/* ---- Inputs ---------------------------------------------------------------------------------- */

static bool is_same_file(const struct stat *a, const char *path)
{
    struct stat b;
    return stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

/* The folder of a path, and the name in it. */
static const char *split_path(const char *path, struct stat *folder)
{
    char directory[STORE_MAX_PATH];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof directory)
        return NULL;
    memcpy(directory, path, n);
    directory[n] = 0;
    return stat(n ? directory : ".", folder) == 0 ? path + n : NULL;
}

bool output_is_same(const char *a, const char *b)
{
    struct stat folder_a, folder_b;
    const char *name_a = split_path(a, &folder_a), *name_b = split_path(b, &folder_b);
    return name_a && name_b && strcmp(name_a, name_b) == 0 && folder_a.st_dev == folder_b.st_dev &&
           folder_a.st_ino == folder_b.st_ino;
}

/* A file of a directory, by that or by a link in it; its path goes to `found`. */
static bool is_in_directory(const struct stat *st, const char *directory,
                            char found[STORE_MAX_PATH])
{
    DIR *d = opendir(directory);
    bool is_in = false;
    for (struct dirent *e; d && !is_in && (e = readdir(d));) {
        int n = snprintf(found, STORE_MAX_PATH, "%s/%s", directory, e->d_name);
        is_in = n < STORE_MAX_PATH && is_same_file(st, found);
    }
    if (d)
        closedir(d);
    return is_in;
}

/* Another part of a model in several files, NAME-00001-of-00003.gguf. */
static bool is_in_parts(const struct stat *st, const char *path, char found[STORE_MAX_PATH])
{
    enum { SUFFIX = 20, MAX_PARTS = 9999 };
    size_t n = strlen(path);
    int number, count, end = 0;
    if (n < SUFFIX || n >= STORE_MAX_PATH ||
        sscanf(path + n - SUFFIX, "-%5d-of-%5d.gguf%n", &number, &count, &end) != 2 ||
        end != SUFFIX)
        return false;
    for (int i = 1; i <= count && i <= MAX_PARTS; i++) {
        snprintf(found, STORE_MAX_PATH, "%.*s-%05d-of-%05d.gguf", (int)(n - SUFFIX), path, i,
                 count);
        if (is_same_file(st, found))
            return true;
    }
    return false;
}

/* A config.json beside a model's file is read with it. */
static bool is_config_beside(const struct stat *st, const char *path, char found[STORE_MAX_PATH])
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    int n = snprintf(found, STORE_MAX_PATH, "%.*sconfig.json", folder, path);
    return n < STORE_MAX_PATH && is_same_file(st, found);
}

/* Whether an input is this file, or is made of several of which it is one. */
static bool is_input(const struct stat *st, const char *input, char found[STORE_MAX_PATH])
{
    struct stat at, in;
    if (strcmp(input, "-") == 0) {
        snprintf(found, STORE_MAX_PATH, "standard input");
        return fstat(STDIN_FILENO, &in) == 0 && in.st_dev == st->st_dev && in.st_ino == st->st_ino;
    }
    char named[STORE_MAX_PATH];
    /* What is no file may be the name of a model. */
    if (stat(input, &at) != 0) {
        if (errno != ENOENT || store_find(input, named, NULL) != LACE_OK || stat(named, &at) != 0)
            return false;
        input = named;
    }
    snprintf(found, STORE_MAX_PATH, "%s", input);
    if (at.st_dev == st->st_dev && at.st_ino == st->st_ino)
        return true;
    if (S_ISDIR(at.st_mode))
        return is_in_directory(st, input, found);
    return is_in_parts(st, input, found) || is_config_beside(st, input, found);
}

lace_status output_begin(output *out, const char *path, bool is_forced, const char *const *inputs,
                         size_t n_inputs, lace_error *err)
{
    struct stat st;
    *out = (output){.path = path, .rules = {.keeps_old = !is_forced}};
    if (stat(path, &st) != 0)
        return LACE_OK;
    for (size_t i = 0; i < n_inputs; i++) {
        char found[STORE_MAX_PATH];
        if (inputs[i] && is_input(&st, inputs[i], found))
            return error_set(err, LACE_E_ARG,
                             "%.160s is an input (%.160s): give the output another name", path,
                             found);
    }
    if (!is_forced && S_ISREG(st.st_mode))
        return error_set(err, LACE_E_ARG,
                         "%.200s exists: give another name, or --force to replace it", path);
    return LACE_OK;
}

/* ---- Running what was written ---------------------------------------------------------------- */

lace_status output_run_once(lace_model *model, const char *name, lace_error *err)
{
    lace_session *session;
    lace_model_info info;
    lace_session_options o = lace_session_options_default();
    lace_item item = {.token = 0, .want_logits = true};
    lace_model_describe(model, &info);
    o.n_context = o.n_batch = o.n_outputs = 1;
    o.wants_hidden = info.is_encoder;
    TRY(lace_session_create(model, &o, &session, err));
    lace_status status = lace_session_eval(session, &item, 1, err);
    const float *logits = status == LACE_OK ? lace_session_logits(session, 0) : NULL;
    int32_t n = info.is_encoder ? info.n_embd : info.n_vocab;
    for (int32_t i = 0; status == LACE_OK && i < n; i++)
        if (!isfinite(logits[i]))
            status = error_set(err, LACE_E_NUMERIC, "%.200s: computes %g for %s %d", name,
                               (double)logits[i], info.is_encoder ? "value" : "token", i);
    lace_session_free(session);
    return status;
}

/* A check of file_rules. */
static lace_status check_model(void *user, span bytes, lace_error *err)
{
    const output *out = user;
    lace_model *model;
    lace_model_options o = lace_model_options_default();
    o.use_vocab = out->has_vocab;
    o.use_mmap = true; /* each weight is read once, and nothing is kept of it */
    o.device = "cpu";
    lace_status status = lace_model_open_memory(bytes.data, bytes.size, out->path, &o, &model, err);
    if (status == LACE_OK) {
        status = output_run_once(model, out->path, err);
        lace_model_close(model);
    }
    return status == LACE_OK
               ? status
               : error_prefix(err, status, "the new model does not run and was not written");
}

void output_must_run(output *out, bool has_vocab)
{
    out->has_vocab = has_vocab;
    out->rules.check = check_model;
    out->rules.user = out;
}
