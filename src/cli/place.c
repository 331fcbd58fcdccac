/* lace place: which forms a model has on a card and the CPU, what each needs, and how fast it is. */
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/file_write.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "engine/placed.h"
#include "place/place_file.h"

typedef struct place_args {
    const char *device, *output, *what_if;
    uint64_t card_bytes;
    int32_t goal, n_context, n_threads;
    bool force;
} place_args;

static const arg_option options[] = {
    {"device", 0, ARG_TEXT, offsetof(place_args, device), .value = "cuda[:N]|vulkan[:N]",
     .help = "the card (default: the first GPU)"},
    {"goal", 0, ARG_CHOICE, offsetof(place_args, goal), .value = "latency|throughput",
     .help = "the time of one task of 512 tokens in and 128 out (default), or tokens of many"},
    {"ctx-size", 'c', ARG_INT, offsetof(place_args, n_context), .low = 0, .high = CLI_MAX_CONTEXT,
     .value = "N", .help = "leave room for so many tokens in the KV cache (default 4096)"},
    {"gpu-memory", 0, ARG_BYTES, offsetof(place_args, card_bytes), .value = "BYTES",
     .help = "as if the card had so much memory free"},
    CLI_THREADS_OPTION(place_args),
    {"output", 'o', ARG_TEXT, offsetof(place_args, output), .value = "FILE",
     .help = "write the chosen form, for --place of run, chat, serve and bench"},
    OUTPUT_FORCE_OPTION(place_args),
    {"what-if", 0, ARG_TEXT, offsetof(place_args, what_if), .value = "MACHINES",
     .help = "compute, without measuring, for machines that are not here: \"4x60GB/s,10GbE\" are "
             "four that read 60 GB/s each, with 10 Gbit Ethernet between them; "
             "\"60GB/s,card:24GB,1000GB/s,pcie:25GB/s\" is one with a card"},
};

static lace_status print_forms(const place_survey *s, const char *by, lace_error *err)
{
    buf out;
    buf_init(&out, 1 << 16);
    char card[32], host[32], room[32];
    lace_status status =
        buf_printf(&out, "%s has %s free; a switch takes %.0f us\n\n%-2s%-32s%10s%10s%12s%12s\n",
                   s->card, cli_format_bytes(s->facts.card_free, room), 1e6 * s->facts.switch_s, "",
                   "form", "card", "RAM", "prompt t/s", "text t/s");
    for (int32_t i = 0; i < s->forms.n_forms && status == LACE_OK; i++) {
        const place_form *f = &s->forms.forms[i];
        char name[64];
        snprintf(name, sizeof name, "%s%s", f->name, f->fits ? "" : " (no room)");
        if (f->layers_on_card > 0 && f->layers_on_card < s->facts.n_layers)
            snprintf(name, sizeof name, "the last %d layers on the card", f->layers_on_card);
        if (f->host_experts > 0 && f->host_experts < s->facts.n_layers)
            snprintf(name, sizeof name, "experts of %d layers in RAM", f->host_experts);
        status =
            buf_printf(&out, "%-2s%-32s%10s%10s%12.1f%12.1f\n", i == s->forms.chosen ? "*" : "",
                       name, cli_format_bytes(f->card_bytes, card),
                       cli_format_bytes(f->host_bytes, host), 1 / f->prompt_s, 1 / f->token_s);
    }
    if (status == LACE_OK)
        status = buf_printf(&out, "\n* the fastest that fits; predicted %s\n", by);
    if (status == LACE_OK)
        status = cli_write(out.data, out.size, err);
    buf_deinit(&out);
    return status;
}

static lace_status write_placement(const place_args *a, const char *model, const placement *p,
                                   lace_error *err)
{
    output made;
    buf json;
    buf_init(&json, 1 << 20);
    lace_status status = output_begin(&made, a->output, a->force, &model, 1, err);
    if (status == LACE_OK)
        status = placement_write(p, &json);
    if (status == LACE_OK)
        status = file_write_whole(made.path, &made.rules, json.data, json.size, err);
    buf_deinit(&json);
    return status;
}

static lace_status print_what_if(lace_model *model, const place_args *a, place_survey *s,
                                 lace_error *err)
{
    const char *said = a->what_if;
    what_if_machines m;
    what_if_model of;
    char line[400], limit[64] = "";
    TRY(what_if_parse(said, &m, err));
    if (m.card_bytes > 0) {
        TRY(place_survey_imagine(model, &m, (place_goal)a->goal, a->n_context, s, err));
        return print_forms(s, "by the formulas of docs/scale.md, for a machine that is not here",
                           err);
    }
    place_describe_model(model, &of);
    if (m.n > 1)
        snprintf(limit, sizeof limit, "; prompts: the link allows %.0f t/s",
                 what_if_prompts(&m, &of));
    int n = snprintf(line, sizeof line,
                     "%s, text of one request: %.1f t/s on one machine, %.1f on all%s (predicted "
                     "by the formulas of docs/scale.md)\n",
                     said, 1 / what_if_one(&m, &of), 1 / what_if_all(&m, &of), limit);
    return cli_write(line, (size_t)n, err);
}

static lace_status place_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    place_args a = {0};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    lace_model_options o = lace_model_options_default();
    o.use_vocab = false;
    o.device = "cpu";
    lace_model *model = NULL;
    place_survey *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "a survey");
    lace_status status = cli_open_model(words.at[0], &o, &model, err);
    if (status == LACE_OK && a.what_if) {
        status = print_what_if(model, &a, s, err);
    } else if (status == LACE_OK) {
        status = place_survey_make(model, a.device, a.card_bytes, (place_goal)a.goal, a.n_context,
                                   a.n_threads, s, err);
        if (status == LACE_OK)
            status = print_forms(s, "from measured kernels and copies", err);
        if (status == LACE_OK && a.output)
            status = write_placement(&a, words.at[0], &s->where, err);
    }
    lace_model_close(model);
    mem_free(s);
    return status;
}

VERB(place, "place", "[MODEL] [options]",
     "show how a model can lie on a card and the CPU, and how fast", 0, 1,
     .description =
         "Times the model's own matrices on the card and on the CPU, and copies between them, and\n"
         "prints every form (all on the CPU, all on the card, experts in RAM, the last layers on "
         "the\n"
         "card) with its bytes and its predicted speeds. run, chat, serve and bench choose by\n"
         "themselves where a model does not fit; --place FILE makes them take this choice.\n",
     .examples = "  lace place model.gguf\n"
                 "  lace place model.gguf -c 32768 -o place.json\n"
                 "  lace serve model.gguf --place place.json\n"
                 "  lace place model.gguf --what-if 4x60GB/s,10GbE\n"
                 "  lace place model.gguf --what-if 60GB/s,card:24GB,1000GB/s,pcie:25GB/s\n")
