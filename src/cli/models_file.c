/* Which models a server has: a folder of them, or a file in a small part of TOML. */
#define _GNU_SOURCE
#include "cli/models_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/args.h"
#include "formats/store.h"

enum { MAX_FILE = 1 << 20, MAX_TEXT = 16 << 20, MAX_VALUE = 4096 };

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Where we are in a file. */
typedef struct reader {
    text rest; /* of the line */
    int line;
    models_list *out;
    models_entry *entry; /* the table that we are in; NULL: above the first */
    const char *folder;
    const char *wanted_default;
    lace_error *err;
} reader;

__attribute__((format(printf, 2, 3))) static lace_status fail(reader *r, const char *format, ...)
{
    char message[300];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return error_set(r->err, LACE_E_ARG, "line %d: %s", r->line, message);
}

static char peek(const reader *r)
{
    return r->rest.size ? r->rest.data[0] : 0;
}

static void skip(reader *r, size_t n)
{
    r->rest.data += n;
    r->rest.size -= n;
}

static void skip_blanks(reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t')
        skip(r, 1);
}

static lace_status expect(reader *r, char c)
{
    skip_blanks(r);
    if (peek(r) != c)
        return fail(r, "expected '%c'", c);
    skip(r, 1);
    return LACE_OK;
}

/* Nothing but a comment may follow. */
static lace_status expect_end(reader *r)
{
    skip_blanks(r);
    return !r->rest.size || peek(r) == '#' ? LACE_OK : fail(r, "unexpected text behind the value");
}

static lace_status keep(reader *r, const char *data, size_t n, const char **out)
{
    if (memchr(data, 0, n))
        return fail(r, "a zero byte in a text");
    *out = arena_strndup(&r->out->a, data, n);
    return *out ? LACE_OK : error_nomem(r->err, "a list of models");
}

/* A text in quotes: "..." with \" \\ \n \t, or '...' as it is. */
static lace_status read_quoted(reader *r, const char **out)
{
    char quote = peek(r), value[MAX_VALUE];
    size_t n = 0;
    for (skip(r, 1); peek(r) != quote; skip(r, 1)) {
        char c = peek(r);
        if (!r->rest.size || n == sizeof value)
            return fail(r, r->rest.size ? "a text is too long" : "a text without its end");
        if (c == '\\' && quote == '"') {
            static const char codes[] = "\"\\nt", bytes[] = "\"\\\n\t";
            skip(r, 1);
            const char *code = peek(r) ? strchr(codes, peek(r)) : NULL;
            if (!code)
                return fail(r, "a text with an unknown escape; \\\" \\\\ \\n and \\t are known");
            c = bytes[code - codes];
        }
        value[n++] = c;
    }
    skip(r, 1);
    return keep(r, value, n, out);
}

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* A name without quotes, or in them. */
static lace_status read_key(reader *r, const char **out)
{
    size_t n = 0;
    skip_blanks(r);
    if (peek(r) == '"' || peek(r) == '\'')
        return read_quoted(r, out);
    while (n < r->rest.size && is_bare(r->rest.data[n]))
        n++;
    if (n == 0)
        return fail(r, "expected a name");
    const char *begin = r->rest.data;
    skip(r, n);
    return keep(r, begin, n, out);
}

typedef enum value_kind { VALUE_TEXT, VALUE_NUMBER, VALUE_TRUE, VALUE_FALSE } value_kind;

static lace_status read_value(reader *r, value_kind *kind, const char **out)
{
    skip_blanks(r);
    if (peek(r) == '"' || peek(r) == '\'') {
        *kind = VALUE_TEXT;
        return read_quoted(r, out);
    }
    size_t n = 0;
    while (n < r->rest.size && !strchr(" \t#", r->rest.data[n]))
        n++;
    TRY(keep(r, r->rest.data, n, out));
    skip(r, n);
    char *end = NULL;
    *kind = strcmp(*out, "true") == 0    ? VALUE_TRUE
            : strcmp(*out, "false") == 0 ? VALUE_FALSE
                                         : VALUE_NUMBER;
    if (*kind != VALUE_NUMBER)
        return LACE_OK;
    (void)strtod(*out, &end);
    bool is_number = n > 0 && !*end && strspn(*out, "+-0123456789.eE") == n;
    return is_number ? LACE_OK : fail(r, "expected a text in quotes, a number, true or false");
}

/* ---- What lines mean ------------------------------------------------------------------------- */

/* [models.NAME] */
static lace_status read_table(reader *r)
{
    models_list *l = r->out;
    const char *word, *name;
    skip(r, 1);
    TRY(read_key(r, &word));
    if (strcmp(word, "models") != 0)
        return fail(r, "unknown table \"%.60s\", expected [models.NAME]", word);
    TRY(expect(r, '.'));
    TRY(read_key(r, &name));
    TRY(expect(r, ']'));
    TRY(expect_end(r));
    if (!name[0])
        return fail(r, "a model without a name");
    for (size_t i = 0; i < l->n_entries; i++)
        if (strcmp(l->entries[i].name, name) == 0)
            return fail(r, "a second model of the name \"%.100s\"", name);
    if (l->n_entries == MODELS_MAX)
        return fail(r, "more than %d models", MODELS_MAX);
    r->entry = &l->entries[l->n_entries++];
    r->entry->name = name;
    return LACE_OK;
}

/* A path that is there beside the file; everything else is a name for lace serve to find. */
static lace_status set_path(reader *r, const char *value)
{
    char beside[STORE_MAX_PATH];
    int n = snprintf(beside, sizeof beside, "%s/%s", r->folder, value);
    bool is_beside =
        value[0] != '/' && n > 0 && (size_t)n < sizeof beside && access(beside, F_OK) == 0;
    return keep(r, is_beside ? beside : value, is_beside ? (size_t)n : strlen(value),
                &r->entry->path);
}

/* An option of lace serve. It is checked by the process that serves the model. */
static lace_status add_option(reader *r, const char *key, value_kind kind, const char *value)
{
    static const char *const not_here[] = {"host",     "port",          "unix",    "alias",
                                           "models",   "models-memory", "api-key", "api-key-file",
                                           "tls-cert", "tls-key",       "help",    "h"};
    models_entry *e = r->entry;
    char name[MAX_VALUE + 8];
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++)
        if (strcmp(key, not_here[i]) == 0)
            return fail(r, "\"%.60s\" is of the whole server, not of a model", key);
    if (kind == VALUE_FALSE)
        return LACE_OK;
    if (e->n_args + 2 > 2 * MODELS_MAX_ARGS)
        return fail(r, "more than %d options", MODELS_MAX_ARGS);
    snprintf(name, sizeof name, "--%s", key);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    TRY(keep(r, name, strlen(name), &e->args[e->n_args++]));
    if (kind != VALUE_TRUE)
        e->args[e->n_args++] = value;
    return LACE_OK;
}

static lace_status set_in_table(reader *r, const char *key, value_kind kind, const char *value)
{
    bool is_text = kind == VALUE_TEXT;
    if (strcmp(key, "path") == 0)
        return is_text ? set_path(r, value) : fail(r, "path: expected a text in quotes");
    if (strcmp(key, "pin") == 0) {
        r->entry->is_pinned = kind == VALUE_TRUE;
        return kind == VALUE_TRUE || kind == VALUE_FALSE ? LACE_OK
                                                         : fail(r, "pin: expected true or false");
    }
    if (strcmp(key, "keep_alive") == 0) {
        r->entry->keep_alive = value;
        return LACE_OK;
    }
    return add_option(r, key, kind, value);
}

static lace_status set_above(reader *r, const char *key, value_kind kind, const char *value)
{
    if (strcmp(key, "memory") == 0)
        return args_read_bytes(value, &r->out->memory_bytes) && r->out->memory_bytes
                   ? LACE_OK
                   : fail(r, "memory: expected bytes, like \"12G\"");
    if (strcmp(key, "keep_alive") == 0)
        r->out->keep_alive = value;
    else if (strcmp(key, "default") == 0)
        r->wanted_default = value;
    else
        return fail(r,
                    "unknown key \"%.60s\"; above the first [models.NAME] are memory, keep_alive "
                    "and default",
                    key);
    return LACE_OK;
}

static lace_status read_line(reader *r)
{
    const char *key, *value;
    value_kind kind;
    skip_blanks(r);
    if (!r->rest.size || peek(r) == '#')
        return LACE_OK;
    if (peek(r) == '[')
        return read_table(r);
    TRY(read_key(r, &key));
    TRY(expect(r, '='));
    TRY(read_value(r, &kind, &value));
    TRY(expect_end(r));
    return r->entry ? set_in_table(r, key, kind, value) : set_above(r, key, kind, value);
}

/* ---- Whole files ----------------------------------------------------------------------------- */

static lace_status begin(models_list *out, lace_error *err)
{
    memset(out, 0, sizeof *out);
    arena_init(&out->a, MAX_TEXT);
    out->entries = arena_alloc(&out->a, MODELS_MAX, sizeof *out->entries);
    return out->entries ? LACE_OK : error_nomem(err, "a list of models");
}

static lace_status finish(reader *r)
{
    models_list *l = r->out;
    for (size_t i = 0; i < l->n_entries; i++)
        if (!l->entries[i].path)
            return error_set(r->err, LACE_E_ARG, "the model \"%.100s\" has no path",
                             l->entries[i].name);
    if (!l->n_entries)
        return error_set(r->err, LACE_E_ARG,
                         "there is no model, expected [models.NAME] and a path");
    while (r->wanted_default && l->default_index < l->n_entries &&
           strcmp(l->entries[l->default_index].name, r->wanted_default) != 0)
        l->default_index++;
    if (l->default_index == l->n_entries)
        return error_set(r->err, LACE_E_ARG, "default: there is no model \"%.100s\"",
                         r->wanted_default);
    return LACE_OK;
}

lace_status models_parse(text source, const char *folder, models_list *out, lace_error *err)
{
    reader r = {.out = out, .folder = folder, .err = err};
    lace_status status = begin(out, err);
    while (status == LACE_OK && source.size) {
        const char *end = memchr(source.data, '\n', source.size);
        size_t n = end ? (size_t)(end - source.data) : source.size;
        r.rest = (text){source.data, n && source.data[n - 1] == '\r' ? n - 1 : n};
        r.line++;
        status = read_line(&r);
        n += end != NULL;
        source.data += n;
        source.size -= n;
    }
    if (status == LACE_OK)
        status = finish(&r);
    if (status != LACE_OK)
        models_deinit(out);
    return status;
}

/* ---- Folders --------------------------------------------------------------------------------- */

/* A model of a folder: its name without ".gguf", or with config.json in it; "" for what is none. */
static void name_in_folder(const char *folder, const char *file, char out[STORE_MAX_PART])
{
    char config[STORE_MAX_PATH];
    size_t n = strlen(file);
    bool is_gguf = n > 5 && strcmp(file + n - 5, ".gguf") == 0;
    out[0] = 0;
    if (!store_is_part(file, n) || store_is_later_part(file) || strcasestr(file, "mmproj"))
        return;
    if (is_gguf)
        snprintf(out, STORE_MAX_PART, "%.*s", (int)(n - 5), file);
    else if (snprintf(config, sizeof config, "%s/%s/config.json", folder, file) > 0 &&
             access(config, R_OK) == 0)
        snprintf(out, STORE_MAX_PART, "%s", file);
}

static lace_status read_folder(const char *folder, models_list *out, lace_error *err)
{
    struct dirent **files;
    lace_status status = begin(out, err);
    int n = status == LACE_OK ? scandir(folder, &files, NULL, alphasort) : -1;
    if (status == LACE_OK && n < 0)
        status = error_set(err, LACE_E_IO, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        char name[STORE_MAX_PART], path[STORE_MAX_PATH];
        const char *file = files[i]->d_name;
        name_in_folder(folder, file, name);
        if (status == LACE_OK && name[0] && out->n_entries < MODELS_MAX) {
            models_entry *e = &out->entries[out->n_entries++];
            snprintf(path, sizeof path, "%s/%s", folder, file);
            e->name = arena_strndup(&out->a, name, strlen(name));
            e->path = arena_strndup(&out->a, path, strlen(path));
            status = e->name && e->path ? LACE_OK : error_nomem(err, "a list of models");
        }
        free(files[i]);
    }
    if (n >= 0)
        free(files);
    if (status == LACE_OK && !out->n_entries)
        status =
            error_set(err, LACE_E_ARG, "%s: the folder has no model (NAME.gguf) in it", folder);
    if (status != LACE_OK)
        models_deinit(out);
    return status;
}

lace_status models_read(const char *path, models_list *out, lace_error *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    char folder[STORE_MAX_PATH];
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return read_folder(path, out, err);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    buf bytes;
    buf_init(&bytes, MAX_FILE);
    lace_status status = file_read(path, &bytes, err);
    if (status == LACE_OK) {
        status = models_parse((text){bytes.data ? bytes.data : "", bytes.size}, folder, out, err);
        if (status != LACE_OK)
            error_prefix(err, status, path);
    }
    buf_deinit(&bytes);
    return status;
}

void models_deinit(models_list *l)
{
    arena_deinit(&l->a);
    l->entries = NULL;
    l->n_entries = 0;
}
