/* What the verbs share: opening a model, asking to stop, and writing to standard output. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/builtin_model.h"
#include "cli/pull.h"
#include "engine/placed.h"

const char *const cli_kv_names[] = {"f32", "f16", "q8_0", "q5_0", "iq4_nl"};

void cli_note_long_context(const lace_model *model, int32_t n_context)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    if (info.n_context > 0 && n_context > info.n_context)
        fprintf(
            stderr,
            "lace: note: the model was made for %d tokens; of a context of %d, what lies beyond "
            "may be nonsense\n",
            info.n_context, n_context);
}

lace_status cli_open_model(const char *path, const lace_model_options *options, lace_model **out,
                           lace_error *err)
{
    char found[PULL_MAX_PATH];
    *out = NULL;
    if (path) {
        TRY(pull_find(path, found, err));
        TRY(lace_model_open(found, options, out, err));
    } else {
        TRY(lace_model_open_memory(cli_builtin_model,
                                   (size_t)(cli_builtin_model_end - cli_builtin_model),
                                   CLI_BUILTIN_NAME, options, out, err));
    }
    const char *note = lace_model_placing_note(*out);
    if (note[0])
        fprintf(stderr, "lace: %s\n", note);
    return LACE_OK;
}

lace_status cli_open_tower(const lace_model *model, const char *path, lace_tower_options options,
                           int32_t n_context, lace_tower **out, lace_error *err)
{
    lace_tower_info info;
    TRY(lace_tower_open(model, path, &options, out, err));
    lace_tower_describe(*out, &info);
    if (options.max_tokens || n_context < 2 || info.max_tokens <= n_context / 2)
        return LACE_OK;
    lace_tower_close(*out); /* nothing of it is loaded yet */
    options.max_tokens = n_context / 2;
    return lace_tower_open(model, path, &options, out, err);
}

void cli_use_ranks(cli_ranks *r, lace_model_options *o)
{
    o->rank_net = r->net;
    o->rank_timeout_ms = 1000 * r->timeout_s;
    o->ranks = r->parts;
    if (!lace_ranks_are_started())
        return;
    snprintf(r->text, sizeof r->text, r->parts ? "mpi:%s" : "mpi%s", r->parts ? r->parts : "");
    o->ranks = r->text;
}

/* Layers for the GPU as llama.cpp has them: -1, all, auto and 99 or more say as many as fit. */
static lace_status read_layers(const char *layers, int64_t *out, lace_error *err)
{
    char *end;
    long n = strtol(layers, &end, 10);
    bool is_number = end != layers && *end == 0;
    *out = -1;
    if (strcmp(layers, "all") == 0 || strcmp(layers, "auto") == 0 || (is_number && n == -1))
        return LACE_OK;
    if (!is_number || n < 0)
        return error_set(err, LACE_E_ARG, "--gpu-layers %.40s, expected a number or all", layers);
    *out = n >= 99 ? -1 : n;
    return LACE_OK;
}

lace_status cli_use_place(cli_place *p, int32_t n_context, lace_model_options *o, lace_error *err)
{
    const char *device = o->device ? o->device : "cpu";
    o->fast_prompts = p->fast_prompts;
    int64_t layers = -1;
    int32_t host_experts = p->host_experts ? INT32_MAX : p->n_host_experts;
    if (p->layers)
        TRY(read_layers(p->layers, &layers, err));
    bool by_rows = p->split_mode && strcmp(p->split_mode, "row") == 0;
    if (p->split_mode && !by_rows && strcmp(p->split_mode, "layer") != 0)
        return error_set(err, LACE_E_ARG, "--split-mode %.40s, expected layer or row",
                         p->split_mode);
    if ((o->ranks || by_rows) && (p->layers || host_experts || p->file || p->card_bytes))
        return error_set(err, LACE_E_ARG,
                         "%s divides every layer: it excludes --gpu-layers, --cpu-moe, "
                         "--n-cpu-moe, --gpu-memory and --place",
                         o->ranks ? "--ranks" : "--split-mode row");
    if (o->ranks && p->split)
        return error_set(err, LACE_E_ARG, "--ranks A,B says the shares: no --tensor-split");
    if (p->file && (p->layers || host_experts || p->split || p->card_bytes))
        return error_set(err, LACE_E_ARG,
                         "--place says where everything goes: it excludes --gpu-layers, --cpu-moe, "
                         "--n-cpu-moe, --gpu-memory and --tensor-split");
    if (p->file && strcmp(device, "auto") != 0)
        return error_set(err, LACE_E_ARG,
                         "--device %.60s beside --place, which says where everything goes: leave "
                         "one of them out",
                         device);
    if (o->ranks)
        return LACE_OK;
    bool wants_card = (p->layers && layers != 0) || host_experts || p->split || p->card_bytes;
    if (wants_card && strcmp(device, "auto") == 0 && lace_device_list(NULL, 0) < 2)
        fprintf(stderr, "lace: note: there is no GPU here, so all is on the CPU (lace list "
                        "--devices)\n");
    size_t n = (size_t)snprintf(p->text, sizeof p->text, p->file ? "place=%s" : "%s",
                                p->file       ? p->file
                                : layers == 0 ? "cpu"
                                              : device);
    if (layers > 0 && n < sizeof p->text)
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, ";layers=%d", (int)layers);
    if (host_experts > 0 && layers != 0 && n < sizeof p->text)
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, ";host-experts=%d",
                              host_experts > 10000 ? 10000 : host_experts);
    if (by_rows && n < sizeof p->text)
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, ";rows");
    if (p->split && layers != 0 && n < sizeof p->text)
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, ";split=%s", p->split);
    if (p->card_bytes && layers != 0 && !p->file && n < sizeof p->text)
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, ";memory=%" PRIu64, p->card_bytes);
    if ((strcmp(device, "auto") == 0 || p->card_bytes) && !p->file && n_context > 0 &&
        n < sizeof p->text)
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, ";tokens=%d", n_context);
    if (n >= sizeof p->text)
        return error_set(err, LACE_E_ARG, "the names of devices and files are too long");
    o->device = p->text;
    return LACE_OK;
}

int32_t cli_batch(const lace_model *model)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    return strcmp(info.device, "cpu") == 0 ? 512 : CLI_CARD_BATCH;
}

lace_status cli_tokenize(const lace_model *model, const char *text, size_t n_bytes, unsigned flags,
                         lace_token **out, size_t *n_out, lace_error *err)
{
    return cli_tokenize_contents(model, text, n_bytes, NULL, 0, flags, out, n_out, err);
}

lace_status cli_tokenize_contents(const lace_model *model, const char *text, size_t n_bytes,
                                  const lace_range *contents, size_t n_contents, unsigned flags,
                                  lace_token **out, size_t *n_out, lace_error *err)
{
    *out = NULL;
    *n_out = 0;
    /* Enough for nearly every text; malformed bytes can become more tokens than that. */
    for (size_t capacity = n_bytes + 2;; capacity = *n_out) {
        size_t n_needed;
        lace_token *tokens =
            mem_mul(capacity, sizeof *tokens, &n_needed) ? mem_alloc(n_needed) : NULL;
        if (!tokens)
            return error_nomem(err, "tokens");
        lace_status status = lace_tokenize_contents(model, text, n_bytes, contents, n_contents,
                                                    flags, tokens, capacity, n_out, err);
        if (status == LACE_OK && *n_out <= capacity) {
            *out = tokens;
            return LACE_OK;
        }
        mem_free(tokens);
        if (status != LACE_OK)
            return status;
    }
}

volatile int cli_stop;

static void on_signal(int number)
{
    cli_stop = number;
}

void cli_catch_stop(void)
{
    /* Calls that wait, like a read from the keyboard, must end: no SA_RESTART. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

lace_status cli_write(const void *data, size_t n_bytes, lace_error *err)
{
    if (fwrite(data, 1, n_bytes, stdout) != n_bytes || fflush(stdout) != 0)
        return error_set(err, LACE_E_IO, "cannot write to standard output: %s", strerror(errno));
    return LACE_OK;
}

lace_status cli_append_clean(buf *out, const char *data, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        uint32_t code;
        int n = utf8_decode(data + i, n_bytes - i, &code);
        char encoded[4];
        /* C0, DEL and C1: what a terminal might obey. */
        if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            code = '?';
        TRY(buf_append(out, encoded, (size_t)utf8_encode(code, encoded)));
        i += (size_t)n;
    }
    return LACE_OK;
}

const char *cli_format_bytes(uint64_t n_bytes, char out[32])
{
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    double x = (double)n_bytes;
    size_t unit = 0;
    while (x >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        x /= 1000;
        unit++;
    }
    snprintf(out, 32, unit && x < 99.5 ? "%.1f %s" : "%.0f %s", x, units[unit]);
    return out;
}
