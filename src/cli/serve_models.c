/* lace serve --models: several models, each in a process of its own. */
#define _GNU_SOURCE
#include "cli/serve_models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/foreign_names.h"
#include "cli/models_file.h"
#include "cli/pull.h"

enum { MAX_ARGS = 256 };
static const uint64_t PROCESS_BYTES = 24 << 20; /* of a process, beside its model */

/* ---- The process of a model ------------------------------------------------------------------ */

lace_status serve_wait_for_leave(uint64_t n_bytes, lace_error *err)
{
    char line[16];
    if (!getenv(SERVER_CHILD_VARIABLE))
        return LACE_OK;
    unsetenv(SERVER_CHILD_VARIABLE);
    printf("needs %" PRIu64 "\n", n_bytes + PROCESS_BYTES);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) && strcmp(line, "go\n") == 0
               ? LACE_OK
               : error_set(err, LACE_E_CANCELLED, "the server that started this one has ended");
}

/* ---- The server ------------------------------------------------------------------------------ */

/* Options that are the server's own; the others go to the processes of the models. */
static const struct {
    const char *name;
    bool has_value;
} own[] = {
    {"--models", true},
    {"--models-memory", true},
    {"--keep-alive", true},
    {"--load-timeout", true},
    {"--host", true},
    {"--port", true},
    {"--unix", true},
    {"--strict-model", false},
    {"--tls-cert", true},
    {"--tls-key", true},
    {"--allow-host", true},
    {"--allow-origin", true},
    {"--max-connections", true},
    {"--ssl-cert-file", true},
    {"--ssl-key-file", true},
};

/* How many words of argv an option of the server takes; 0: it is none. */
static int own_words(const char *word)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t n = strlen(own[i].name);
        if (strncmp(word, own[i].name, n) == 0 && (word[n] == 0 || word[n] == '='))
            return word[n] == '=' || !own[i].has_value ? 1 : 2;
    }
    return 0;
}

static lace_status parse_keep_alive(const verb *v, const char *word, int64_t *out, lace_error *err)
{
    if (server_parse_keep_alive(word, out))
        return LACE_OK;
    return args_error(
        v, err, "keep-alive \"%.60s\": expected a time like 5m, 90s or 1h, or -1 for ever", word);
}

static uint64_t machine_bytes(void)
{
    return server_default_kv_bytes() * 4;
}

static bool is_option(const verb *v, const char *word)
{
    for (size_t i = 0; i < v->n_options; i++)
        if (v->options[i].kind != ARG_HEADING && strcmp(v->options[i].name, word + 2) == 0)
            return true;
    return foreign_name_find(v, word, strlen(word)) != NULL;
}

/* Options by their names; their values are checked by the process that serves the model. */
static lace_status check_options(const verb *v, const models_entry *e, lace_error *err)
{
    for (size_t i = 0; i < e->n_args; i++) {
        if (!is_option(v, e->args[i]))
            return args_error(v, err,
                              "the model \"%.100s\": unknown key \"%.60s\"; it has path, pin, "
                              "keep_alive and the options of lace serve",
                              e->name, e->args[i] + 2);
        i += i + 1 < e->n_args && strncmp(e->args[i + 1], "--", 2) != 0;
    }
    return LACE_OK;
}

/* It may come later, so it is no error. */
static void warn_of_absence(const models_entry *e)
{
    lace_error problem;
    if (!pull_could_find(e->path, &problem))
        fprintf(stderr, "lace: warning: the model \"%.100s\": %s\n", e->name, problem.text);
}

/* What the file says, in the words of the server. */
static lace_status make_entries(const verb *v, const models_list *list, const char *usual,
                                router_entry *entries, lace_error *err)
{
    for (size_t i = 0; i < list->n_entries; i++) {
        const models_entry *e = &list->entries[i];
        entries[i] = (router_entry){.name = e->name,
                                    .path = e->path,
                                    .args = e->args,
                                    .n_args = e->n_args,
                                    .is_pinned = e->is_pinned};
        TRY(parse_keep_alive(v, e->keep_alive ? e->keep_alive : usual, &entries[i].keep_alive_s,
                             err));
        TRY(check_options(v, e, err));
        warn_of_absence(e);
    }
    return LACE_OK;
}

static lace_status run(const verb *v, const serve_models_args *a, const server_options *o,
                       const models_list *list, const char **args, size_t n_args, lace_error *err)
{
    char program[4096], kv_bytes[32];
    router_entry *entries = mem_calloc(list->n_entries, sizeof *entries);
    if (!entries)
        return error_nomem(err, "a list of models");
    router_options r = {.entries = entries,
                        .n_entries = list->n_entries,
                        .default_index = list->default_index,
                        .load_timeout_s = a->load_timeout_s,
                        .program = program,
                        .args = args,
                        .n_args = n_args};
    r.memory_bytes = a->memory            ? a->memory
                     : list->memory_bytes ? list->memory_bytes
                                          : machine_bytes() / 4 * 3;
    /* Room for the KV cache of each; an option that is given comes behind it, and counts. */
    snprintf(kv_bytes, sizeof kv_bytes, "%" PRIu64, r.memory_bytes / 8);
    args[1] = kv_bytes;
    const char *usual = a->keep_alive ? a->keep_alive : list->keep_alive ? list->keep_alive : "5m";
    lace_status status = make_entries(v, list, usual, entries, err);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (status == LACE_OK && n <= 0)
        status = error_set(err, LACE_E_IO, "cannot find this program's own file (/proc/self/exe)");
    if (status == LACE_OK)
        status = server_run_models(&r, o, err);
    mem_free(entries);
    return status;
}

lace_status serve_models(const verb *v, const serve_models_args *a, const server_options *o,
                         int argc, char **argv, lace_error *err)
{
    const char *args[MAX_ARGS];
    size_t n = 0;
    models_list list;
    if (argc + 2 > MAX_ARGS)
        return args_error(v, err, "more than %d arguments", MAX_ARGS - 2);
    args[n++] = "--kv-memory";
    args[n++] = NULL;
    for (int i = 0; i < argc; i++) {
        int n_own = own_words(argv[i]);
        if (n_own)
            i += n_own - 1;
        else
            args[n++] = argv[i];
    }
    TRY(models_read(a->models, &list, err));
    lace_status status = run(v, a, o, &list, args, n, err);
    models_deinit(&list);
    return status;
}
