/* lace pull: fetch a model by name, and models that verbs are given by the name of a hub. */
#define _POSIX_C_SOURCE 200809L
#include "cli/pull.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "formats/store.h"
#include "hub/hub.h"

typedef struct pull_args {
    int32_t n_connections;
    bool no_mmproj;
} pull_args;

static const arg_option options[] = {
    {"connections", 'j', ARG_INT, offsetof(pull_args, n_connections), .value = "N", .low = 1,
     .high = 16, .help = "parts of a file to fetch at the same time (default 8)"},
    {"no-mmproj", 0, ARG_FLAG, offsetof(pull_args, no_mmproj),
     .help = "leave out the part that reads images (mmproj)"},
};

/* ---- The bar --------------------------------------------------------------------------------- */

/* Bytes and how fast they come, smoothed over a few seconds. */
typedef struct pull_bar {
    progress bar;
    bool is_begun;
    uint64_t since_ns, n_since; /* when the rate was last looked at, and what was there */
    double rate;                /* bytes a second; 0: not known yet */
} pull_bar;

static void measure_rate(pull_bar *p, uint64_t n_done)
{
    uint64_t now = clock_ns(), spent = now - p->since_ns;
    if (spent < clock_seconds(1) / 2)
        return;
    double rate = n_done > p->n_since ? (double)(n_done - p->n_since) * 1e9 / (double)spent : 0;
    p->rate = p->rate > 0 ? 0.7 * p->rate + 0.3 * rate : rate;
    p->since_ns = now;
    p->n_since = n_done;
}

static bool show(void *user, const char *what, uint64_t n_done, uint64_t n_total)
{
    pull_bar *p = user;
    double share = n_total ? (double)n_done / (double)n_total : 0;
    char line[256], done[32], total[32], rate[32];
    if (!p->is_begun && n_total) { /* what an earlier try has left was not fetched just now */
        p->is_begun = true;
        p->bar.part_from = p->bar.done = share;
        p->bar.part_ns = p->since_ns = clock_ns();
        p->n_since = n_done;
    }
    measure_rate(p, n_done);
    if (!n_total)
        snprintf(line, sizeof line, "%.100s", what);
    else
        snprintf(line, sizeof line, "%.60s  %s of %s  %s/s", what, cli_format_bytes(n_done, done),
                 cli_format_bytes(n_total, total), cli_format_bytes((uint64_t)p->rate, rate));
    return progress_report(&p->bar, line, share);
}

static void note(void *user, const char *line)
{
    pull_bar *p = user;
    progress_end(&p->bar);
    fprintf(stderr, "lace: %s\n", line);
}

/* ---- Pulling --------------------------------------------------------------------------------- */

static lace_status pull(const char *name, const pull_args *a, hub_result *out, lace_error *err)
{
    pull_bar shown = {0};
    hub_options o = hub_options_default();
    o.n_connections = a->n_connections;
    o.skips_mmproj = a->no_mmproj;
    o.on_progress = show;
    o.on_note = note;
    o.user = &shown;
    cli_catch_stop();
    progress_init(&shown.bar, &cli_stop);
    lace_status status = hub_pull(name, &o, out, err);
    progress_end(&shown.bar);
    if (status == LACE_E_CANCELLED)
        fprintf(stderr, "lace: stopped; the same command goes on from here\n");
    return status;
}

static const pull_args usual = {.n_connections = 8};

lace_status pull_find(const char *name, char path[PULL_MAX_PATH], lace_error *err)
{
    hub_result got;
    char named[HUB_MAX_PATH];
    if (!hub_name_without_prefix(name, named)) {
        if (strlen(name) >= PULL_MAX_PATH)
            return error_set(err, LACE_E_ARG, "%.64s...: the path is too long", name);
        strcpy(path, name);
        return LACE_OK;
    }
    /* Ollama's own store has names that begin with hf.co. */
    if (store_find(name, path, NULL) == LACE_OK || store_find(named, path, NULL) == LACE_OK)
        return LACE_OK;
    TRY(pull(name, &usual, &got, err));
    strcpy(path, got.path);
    return LACE_OK;
}

bool pull_could_find(const char *name, lace_error *err)
{
    char named[HUB_MAX_PATH], path[STORE_MAX_PATH];
    return hub_name_without_prefix(name, named) || store_resolve(name, path, err) == LACE_OK;
}

static lace_status pull_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    pull_args a = usual;
    positional words;
    hub_result got;
    char bytes[32], line[PULL_MAX_PATH + 200];
    TRY(args_parse(v, argc, argv, &a, &words, err));
    TRY(pull(words.at[0], &a, &got, err));
    int n = snprintf(line, sizeof line, "%s  %zu file%s, %s%s\n", got.path, got.n_files,
                     got.n_files == 1 ? "" : "s", cli_format_bytes(got.n_bytes, bytes),
                     got.n_fetched ? "" : ", all here already");
    return cli_write(line, (size_t)n, err);
}

VERB(pull, "pull", "NAME [options]", "download a model from Hugging Face or Ollama's registry", 1,
     1,
     .description =
         "NAME is ORG/REPO, or ORG/REPO:QUANT for one of its GGUF files (without it Q4_K_M, or "
         "what\n"
         "there is), and @REVISION behind it for another version than main; or ollama:MODEL:TAG.\n"
         "Files go into the caches of Hugging Face and Ollama, where other programs see them. A\n"
         "file gets its name once its SHA-256 is right; what was cut off goes on with the same\n"
         "command. Every verb takes hf:ORG/REPO:QUANT for MODEL, and downloads it the first time.\n"
         "\n"
         "Environment: HF_TOKEN (or `hf auth login`) for gated models, HF_ENDPOINT for a mirror,\n"
         "HF_HOME for another folder, HF_HUB_OFFLINE=1 for no network, https_proxy.\n",
     .examples = "  lace pull Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
                 "  lace chat hf:Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
                 "  HF_TOKEN=hf_... lace pull meta-llama/Llama-3.2-1B-Instruct\n"
                 "  lace pull ollama:qwen3:0.6b\n")
