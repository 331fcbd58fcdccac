/* lace list: the models on this machine, or its devices. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

typedef struct list_args {
    int32_t format;
    bool devices;
} list_args;

enum { FORMAT_TABLE, FORMAT_JSON, FORMAT_NAMES };

static const arg_option options[] = {
    {"output", 'o', ARG_CHOICE, offsetof(list_args, format), .value = "table|json|names",
     .help = "how to print (default table; names: one a line)"},
    {"devices", 0, ARG_FLAG, offsetof(list_args, devices),
     .help = "show what models can run on here, as --device takes it"},
};

/* Both forms are put together before anything is printed, so that columns can be aligned. */
typedef struct table {
    json_t *rows;
    size_t name_width;
} table;

static bool add_row(void *user, const lace_model_entry *e)
{
    table *t = user;
    json_t *row = json_pack("{s:s, s:I, s:s, s:s}", "name", e->name, "bytes",
                            (json_int_t)e->n_bytes, "from", e->origin, "path", e->path);
    if (row)
        json_array_append_new(t->rows, row);
    if (strlen(e->name) > t->name_width)
        t->name_width = strlen(e->name);
    return true;
}

/* The first thing that somebody without a model wants to know. */
static const char no_models[] =
    "There are no models on this machine yet. Each of these gets one, and lace list then shows "
    "it:\n"
    "\n"
    "  lace pull Qwen/Qwen3-0.6B-GGUF:Q8_0    from Hugging Face\n"
    "  lace pull ollama:qwen3:0.6b            from Ollama's registry\n"
    "  LACE_MODELS=DIR lace list              a folder of GGUF files\n"
    "\n"
    "A path works as well: lace chat model.gguf. Without any, lace run tells a story with the "
    "model\n"
    "that it carries.\n";

static const char *text_in(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static const char *bytes_in(const json_t *row, const char *key, char out[32])
{
    uint64_t n = (uint64_t)json_integer_value(json_object_get(row, key));
    return n ? cli_format_bytes(n, out) : "-";
}

static void add_devices(table *t)
{
    lace_device found[64];
    size_t n = lace_device_list(found, sizeof found / sizeof *found);
    for (size_t i = 0; i < n && i < sizeof found / sizeof *found; i++) {
        json_t *row = json_pack("{s:s, s:s, s:I, s:I}", "name", found[i].id, "what", found[i].name,
                                "bytes", (json_int_t)found[i].total_bytes, "free_bytes",
                                (json_int_t)found[i].free_bytes);
        if (row)
            json_array_append_new(t->rows, row);
    }
}

static lace_status append_devices(const table *t, buf *out)
{
    size_t i;
    json_t *row;
    TRY(buf_printf(out, "%-9s  %9s  %9s  %s\n", "DEVICE", "MEMORY", "FREE", "NAME"));
    json_array_foreach(t->rows, i, row)
    {
        char size[32], room[32];
        TRY(buf_printf(out, "%-9s  %9s  %9s  %s\n", text_in(row, "name"),
                       bytes_in(row, "bytes", size), bytes_in(row, "free_bytes", room),
                       text_in(row, "what")));
    }
    if (json_array_size(t->rows) > 1)
        return LACE_OK;
    return buf_append_text(out,
                           "\nlace inspect --device cuda, or vulkan, says why there is no GPU.\n");
}

static lace_status append_table(const table *t, buf *out)
{
    if (json_array_size(t->rows) == 0)
        return buf_append_text(out, no_models);
    TRY(buf_printf(out, "%-*s  %9s  %-11s  %s\n", (int)t->name_width, "NAME", "SIZE", "FROM",
                   "PATH"));
    size_t i;
    json_t *row;
    json_array_foreach(t->rows, i, row)
    {
        char size[32];
        TRY(buf_printf(
            out, "%-*s  %9s  %-11s  ", (int)t->name_width,
            json_string_value(json_object_get(row, "name")),
            cli_format_bytes((uint64_t)json_integer_value(json_object_get(row, "bytes")), size),
            json_string_value(json_object_get(row, "from"))));
        const char *path = json_string_value(json_object_get(row, "path"));
        TRY(cli_append_clean(out, path, strlen(path)));
        TRY(buf_append_text(out, "\n"));
    }
    return LACE_OK;
}

static lace_status append_json(const table *t, buf *out)
{
    char *dump = json_dumps(t->rows, JSON_INDENT(2));
    lace_status status = dump ? buf_printf(out, "%s\n", dump) : LACE_E_NOMEM;
    free(dump);
    return status;
}

static lace_status append_names(const table *t, buf *out)
{
    size_t i;
    json_t *row;
    json_array_foreach(t->rows, i, row)
        TRY(buf_printf(out, "%s\n", json_string_value(json_object_get(row, "name"))));
    return LACE_OK;
}

static lace_status list_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    list_args a = {0};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    table t = {.rows = json_array(), .name_width = strlen("NAME")};
    buf out;
    buf_init(&out, SIZE_MAX / 2);
    if (a.devices)
        add_devices(&t);
    else
        lace_model_list(add_row, &t);
    static lace_status (*const forms[])(const table *t, buf *out) = {
        [FORMAT_TABLE] = append_table, [FORMAT_JSON] = append_json, [FORMAT_NAMES] = append_names};
    lace_status status = a.devices && a.format == FORMAT_TABLE ? append_devices(&t, &out)
                                                               : forms[a.format](&t, &out);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    else
        error_nomem(err, "the list");
    buf_deinit(&out);
    json_decref(t.rows);
    return status;
}

VERB(
    list, "list", "[options]", "show the models on this machine", 0, 0,
    .description =
        "Looks into the folder $LACE_MODELS, Ollama's store, the Hugging Face cache, llama.cpp's\n"
        "cache and LM Studio's models. Any name that it prints can stand for MODEL in every verb;\n"
        "nothing is copied.\n",
    .examples = "  lace list\n"
                "  lace run mistral:latest -p \"Dear Ada,\"\n"
                "  LACE_MODELS=~/models lace list -o json\n"
                "  lace list --devices\n")
