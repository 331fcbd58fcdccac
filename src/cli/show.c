/* lace show: where a model is on this machine, and what it is. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* The entry of a name in the list of models. */
typedef struct search {
    const char *name;
    buf found; /* lines to be printed */
    lace_status status;
} search;

static bool compare(void *user, const lace_model_entry *e)
{
    search *s = user;
    char size[32];
    if (strcmp(e->name, s->name) != 0)
        return true;
    s->status = buf_printf(&s->found, "name          %s\nfrom          %s\nsize          %s\n",
                           e->name, e->origin, cli_format_bytes(e->n_bytes, size));
    if (s->status == LACE_OK)
        s->status = buf_append_text(&s->found, "path          ");
    if (s->status == LACE_OK)
        s->status = cli_append_clean(&s->found, e->path, strlen(e->path));
    if (s->status == LACE_OK)
        s->status = buf_append_text(&s->found, "\n");
    return false;
}

static lace_status show_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    bool is_json = false;
    for (int i = 0; i < argc; i++)
        is_json = is_json || strcmp(argv[i], "json") == 0 || strcmp(argv[i], "-ojson") == 0 ||
                  strcmp(argv[i], "--output=json") == 0;
    search s = {.name = argc > 0 ? argv[0] : "", .status = LACE_OK};
    buf_init(&s.found, 1 << 16);
    lace_model_list(compare, &s);
    lace_status status = s.status;
    if (status == LACE_OK && s.found.size && !is_json)
        status = cli_write(s.found.data, s.found.size, err);
    buf_deinit(&s.found);
    return status == LACE_OK ? verb_inspect.run(&verb_inspect, argc, argv, err) : status;
}

BARE_VERB(
    show, "show", "[MODEL] [options]", "say where a model is, and describe it as inspect does", 0,
    1,
    .description =
        "For a name of lace list: its place and its size on the disk, then what lace inspect\n"
        "says. lace help inspect has the options.\n",
    .examples = "  lace show Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0\n"
                "  lace show qwen3:0.6b -c 32768\n")
