/* lace ps: which models a running server has loaded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "cli/ask_server.h"
#include "cli/cli.h"

typedef struct ps_args {
    const char *url;
    bool all;
    int32_t format;
} ps_args;

enum { FORMAT_TABLE, FORMAT_JSON };

static const arg_option options[] = {
    {"all", 'a', ARG_FLAG, offsetof(ps_args, all), .help = "those that are not loaded, too"},
    ASK_SERVER_OPTION(ps_args),
    {"output", 'o', ARG_CHOICE, offsetof(ps_args, format), .value = "table|json",
     .help = "how to print (default table)"},
};

static const char *word(const json_t *row, const char *key, const char *usual)
{
    const char *value = json_string_value(json_get(row, key));
    return value ? value : usual;
}

/* "4:10", or what is known instead. */
static const char *time_left(const json_t *row, char out[32])
{
    const json_t *left = json_get(row, "expires_in_s");
    bool is_ready = strcmp(word(row, "state", "ready"), "ready") == 0;
    if (!left)
        return !is_ready ? "" : json_is_true(json_get(row, "pinned")) ? "pinned" : "stays";
    int64_t s = json_integer_value(left);
    if (s >= 3600)
        snprintf(out, 32, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(out, 32, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return out;
}

static lace_status append_row(buf *out, const json_t *row, int width)
{
    char size[32] = "", left[32];
    uint64_t n = (uint64_t)json_integer_value(json_get(row, "memory_bytes"));
    if (n)
        cli_format_bytes(n, size);
    TRY(buf_printf(out, "%-*s  %-9s  %9s  %7d  %7d  %s\n", width, word(row, "id", ""),
                   word(row, "state", "ready"), size,
                   (int)json_integer_value(json_get(row, "requests_running")),
                   (int)json_integer_value(json_get(row, "requests_waiting")),
                   time_left(row, left)));
    return LACE_OK;
}

static lace_status append_table(buf *out, const json_t *json, bool has_all)
{
    size_t i, n_shown = 0;
    json_t *row;
    int width = 5;
    const json_t *rows = json_get(json, "data");
    json_array_foreach(rows, i, row) if ((int)strlen(word(row, "id", "")) > width) width =
        (int)strlen(word(row, "id", ""));
    TRY(buf_printf(out, "%-*s  %-9s  %9s  %7s  %7s  %s\n", width, "MODEL", "STATE", "MEMORY",
                   "RUNNING", "WAITING", "UNLOADS IN"));
    json_array_foreach(rows, i, row)
    {
        bool is_shown = has_all || strcmp(word(row, "state", "ready"), "unloaded") != 0;
        n_shown += is_shown;
        if (is_shown)
            TRY(append_row(out, row, width));
    }
    uint64_t limit = (uint64_t)json_integer_value(json_get(json, "memory_limit"));
    char used[32], all[32];
    if (limit)
        TRY(buf_printf(
            out, "%zu of %zu models, %s of %s\n", n_shown, json_array_size(rows),
            cli_format_bytes((uint64_t)json_integer_value(json_get(json, "memory_bytes")), used),
            cli_format_bytes(limit, all)));
    return LACE_OK;
}

static lace_status append_json(buf *out, const json_t *json)
{
    char *dump = json_dumps(json, JSON_INDENT(2));
    lace_status status = dump ? buf_printf(out, "%s\n", dump) : LACE_E_NOMEM;
    free(dump);
    return status;
}

static lace_status ps_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    ps_args a = {0};
    positional words;
    json_t *json;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    TRY(ask_server(a.url, "/v1/models", NULL, &json, err));
    buf out, clean;
    buf_init(&out, 16 << 20);
    lace_status status =
        a.format == FORMAT_JSON ? append_json(&out, json) : append_table(&out, json, a.all);
    if (status != LACE_OK)
        error_nomem(err, "the list");
    /* Names come from the server's file: nothing that a terminal would obey. */
    buf_init(&clean, 64 << 20);
    for (size_t at = 0; status == LACE_OK && at < out.size;) {
        size_t n = strcspn(out.data + at, "\n");
        status = cli_append_clean(&clean, out.data + at, n);
        if (status == LACE_OK)
            status = buf_append_text(&clean, "\n");
        at += n + 1;
    }
    if (status == LACE_OK)
        status = cli_write(clean.data, clean.size, err);
    buf_deinit(&clean);
    buf_deinit(&out);
    json_decref(json);
    return status;
}

VERB(ps, "ps", "[options]", "show what a running server has loaded", 0, 0,
     .description =
         "Asks a server of several models (lace serve --models) what is loaded, how much\n"
         "memory it takes and when it goes. $OPENAI_API_KEY is the key, if one is needed.\n",
     .examples = "  lace ps\n"
                 "  lace ps -a --url http://127.0.0.1:9000\n")
