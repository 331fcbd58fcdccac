/*
 * lace run: continue a text. What is generated goes to standard output as it comes; a line of
 * statistics with everything that is needed to repeat the run goes to standard error.
 */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/constraint.h"
#include "cli/progress.h"
#include "cli/surgery_run.h"

typedef struct run_args {
    const char *prompt;
    const char *file;
    int32_t n_predict; /* -1: until the text or the context ends */
    bool no_display_prompt;
    bool ignore_eos;
    lace_sampler_options sampler;
    int32_t n_context;
    int32_t n_batch;
    int32_t n_threads;
    int32_t kv_type;
    uint64_t memory_bytes;
    bool mmap;
    const char *surgery;
    const char *imatrix;
    const char *device;
    const char *activation_sparsity;
    const char *draft;
    bool lookup;
    int32_t n_draft;
    constraint_args constraint;
} run_args;

/* clang-format off */
#define SAMPLER(field) offsetof(run_args, sampler) + offsetof(lace_sampler_options, field)
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "Text"},
    {"prompt", 'p', ARG_TEXT, offsetof(run_args, prompt), .value = "TEXT",
     .help = "what the text begins with"},
    {"file", 'f', ARG_TEXT, offsetof(run_args, file), .value = "FILE",
     .help = "the beginning is in this file; a newline at its end is left out"},
    {"n-predict", 'n', ARG_INT, offsetof(run_args, n_predict), .low = -1, .high = INT32_MAX,
     .value = "N", .help = "tokens to generate; -1 (default): until the text or the context ends"},
    {"ignore-eos", 0, ARG_FLAG, offsetof(run_args, ignore_eos),
     .help = "never choose a token that ends the text"},
    {"no-display-prompt", 0, ARG_FLAG, offsetof(run_args, no_display_prompt),
     .help = "print the generated text only"},
    {.kind = ARG_HEADING, .help = "Choice of tokens, in this order"},
    {"repeat-penalty", 0, ARG_FLOAT, SAMPLER(repeat_penalty), .low = 0, .high = INFINITY,
     .is_low_open = true, .value = "R", .help = "divides logits of recent tokens; 1: off (default)"},
    {"presence-penalty", 0, ARG_FLOAT, SAMPLER(presence_penalty), .low = -INFINITY, .high = INFINITY,
     .value = "X", .help = "subtracted once from recent tokens (default 0)"},
    {"frequency-penalty", 0, ARG_FLOAT, SAMPLER(frequency_penalty), .low = -INFINITY,
     .high = INFINITY, .value = "X", .help = "subtracted for each occurrence (default 0)"},
    {"repeat-last-n", 0, ARG_INT, SAMPLER(penalty_last_n), .low = 0, .high = 1 << 20, .value = "N",
     .help = "how many tokens are recent (default 64)"},
    {"top-k", 0, ARG_INT, SAMPLER(top_k), .low = 0, .high = INT32_MAX, .value = "K",
     .help = "keep the K best; 0: all (default 40)"},
    {"typical", 0, ARG_FLOAT, SAMPLER(typical_p), .low = 0, .high = 1, .is_low_open = true,
     .value = "P", .help = "keep those that surprise about as much as expected; 1: off (default)"},
    {"top-p", 0, ARG_FLOAT, SAMPLER(top_p), .low = 0, .high = 1, .is_low_open = true, .value = "P",
     .help = "keep the best that sum up to P; 1: off (default 0.95)"},
    {"min-p", 0, ARG_FLOAT, SAMPLER(min_p), .low = 0, .high = 1, .value = "M",
     .help = "keep those with at least this share of the best's probability (default 0.05)"},
    {"dry-multiplier", 0, ARG_FLOAT, SAMPLER(dry_multiplier), .low = 0, .high = INFINITY, .value = "X",
     .help = "penalty for going on with a repetition, growing with its length; 0: off (default)"},
    {"dry-base", 0, ARG_FLOAT, SAMPLER(dry_base), .low = 1, .high = INFINITY, .value = "X",
     .help = "how it grows with each token (default 1.75)"},
    {"dry-allowed-length", 0, ARG_INT, SAMPLER(dry_allowed_length), .low = 0, .high = 1 << 20,
     .value = "N", .help = "repetitions shorter than this are free (default 2)"},
    {"dry-penalty-last-n", 0, ARG_INT, SAMPLER(dry_last_n), .low = 1, .high = 1 << 20, .value = "N",
     .help = "tokens that are looked at (default 1024)"},
    {"xtc-probability", 0, ARG_FLOAT, SAMPLER(xtc_probability), .low = 0, .high = 1, .value = "P",
     .help = "how often the most probable tokens are left out; 0: never (default)"},
    {"xtc-threshold", 0, ARG_FLOAT, SAMPLER(xtc_threshold), .low = 0, .high = 1, .value = "P",
     .help = "the probability from which they are, but for the last (default 0.1)"},
    {"mirostat", 0, ARG_INT, SAMPLER(mirostat), .low = 0, .high = 2, .value = "V",
     .help = "hold the surprise, in place of all cuts: version 1 or 2; 0: off (default)"},
    {"mirostat-ent", 0, ARG_FLOAT, SAMPLER(mirostat_tau), .low = 0, .high = INFINITY, .value = "T",
     .help = "the surprise to hold, in bits (default 5)"},
    {"mirostat-lr", 0, ARG_FLOAT, SAMPLER(mirostat_eta), .low = 0, .high = INFINITY, .value = "E",
     .help = "how quickly to get there (default 0.1)"},
    {"temp", 0, ARG_FLOAT, SAMPLER(temperature), .low = 0, .high = INFINITY, .value = "T",
     .help = "temperature: higher is more daring; 0: always the best token (default 0.8)"},
    {"seed", 's', ARG_U64, SAMPLER(seed), .value = "S",
     .help = "the same seed gives the same text (default: random, printed at the end)"},
    CONSTRAINT_OPTIONS(offsetof(run_args, constraint)),
    {.kind = ARG_HEADING, .help = "Machine"},
    {"ctx-size", 'c', ARG_INT, offsetof(run_args, n_context), .low = 0, .high = CLI_MAX_CONTEXT,
     .value = "N", .help = "tokens of prompt and text together; 0 (default): the model's own, at most 4096"},
    {"batch", 'b', ARG_INT, offsetof(run_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens of the prompt computed together (default 512, on a GPU 2048)"},
    {"threads", 't', ARG_INT, offsetof(run_args, n_threads), .low = 1, .high = CLI_MAX_THREADS,
     .value = "N", .help = "threads (default: one per core)"},
    {"kv-type", 0, ARG_CHOICE, offsetof(run_args, kv_type), .value = CLI_KV_TYPES,
     .help = "numbers of the KV cache (default f16)"},
    {"memory", 0, ARG_BYTES, offsetof(run_args, memory_bytes), .value = "BYTES",
     .help = "refuse to use more than this for weights, KV cache and scratch: 600M, 4G"},
    CLI_DEVICE_OPTION(run_args),
    CLI_SPARSITY_OPTION(run_args),
    {"mmap", 0, ARG_FLAG, offsetof(run_args, mmap),
     .help = "run from the file's own blocks: slower, less memory"},
    {"surgery", 0, ARG_TEXT, offsetof(run_args, surgery), .value = "FILE",
     .help = "prune by these rules while loading; see lace prune"},
    {"imatrix", 0, ARG_TEXT, offsetof(run_args, imatrix), .value = "FILE",
     .help = "which inputs matter, for rules that ask"},
    {.kind = ARG_HEADING, .help = "Speed by guessing ahead; the text stays the same"},
    {"draft", 0, ARG_TEXT, offsetof(run_args, draft), .value = "MODEL",
     .help = "a smaller model with the same vocabulary guesses tokens, this one checks them together"},
    {"lookup", 0, ARG_FLAG, offsetof(run_args, lookup),
     .help = "guess that the text goes on as it did where its last words stood before"},
    {"n-draft", 0, ARG_INT, offsetof(run_args, n_draft), .low = 1, .high = 32, .value = "N",
     .help = "the most tokens to guess at once (default 8)"},
};
#undef SAMPLER
/* clang-format on */

/* What a run is made of, and what it counts. */
typedef struct generation {
    const run_args *args;
    lace_model *model;
    lace_session *session;
    lace_sampler *sampler;
    lace_decoder *decoder;
    lace_model *draft_model; /* these three are NULL without --draft and --lookup */
    lace_session *draft;
    lace_speculator *speculator;
    constraint form;
    lace_token *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t n_context;
    int32_t n_vocab;
    float *logits;    /* [n_vocab], only with ignore_eos or a grammar: a copy to mask */
    lace_token *ends; /* [n_ends] the tokens that end a text, only with ignore_eos */
    size_t n_ends;
    size_t n_generated;   /* tokens */
    size_t n_steps;       /* evaluations after the prompt's */
    uint64_t prompt_ns;   /* without what packing the weights took */
    uint64_t generate_ns; /* likewise */
    uint64_t packing_ns;
    char last_byte;  /* of what was printed; 0: nothing */
    const char *end; /* why it ended, if that needs saying */
} generation;

static lace_status print_text(generation *g, const char *data, size_t n_bytes, lace_error *err)
{
    if (n_bytes == 0)
        return LACE_OK;
    g->last_byte = data[n_bytes - 1];
    return cli_write(data, n_bytes, err);
}

/* ---- Prompt ---------------------------------------------------------------------------------- */

static lace_status read_prompt(const verb *v, const run_args *a, bool is_builtin, buf *out,
                               lace_error *err)
{
    if (a->prompt && a->file)
        return args_error(v, err, "-p and -f exclude each other");
    bool is_terminal = isatty(STDIN_FILENO);
    if (!a->prompt && !a->file && is_terminal && !is_builtin)
        return args_error(v, err,
                          "no prompt: use -p TEXT, -f FILE, or a pipe; lace chat MODEL talks");
    if (!a->prompt && (a->file || !is_terminal)) {
        TRY(file_read(a->file ? a->file : "-", out, err));
        if (out->size > 0 && out->data[out->size - 1] == '\n')
            out->size--; /* editors and echo put it there; nobody means it */
        return LACE_OK;
    }
    if (buf_append_text(out, a->prompt ? a->prompt : "Once upon a time") != LACE_OK)
        return error_nomem(err, "the prompt");
    return LACE_OK;
}

static lace_status tokenize_prompt(generation *g, const buf *opening, lace_error *err)
{
    lace_model_info info;
    lace_model_describe(g->model, &info);
    g->n_vocab = info.n_vocab;
    g->n_context = g->args->n_context;
    if (g->n_context == 0)
        g->n_context = info.n_context < 4096 ? info.n_context : 4096;
    TRY(cli_tokenize(g->model, opening->data ? opening->data : "", opening->size,
                     LACE_TOKENIZE_ADD_SPECIAL | LACE_TOKENIZE_PARSE_SPECIAL, &g->prompt,
                     &g->n_prompt, err));
    /* A model computes what follows something; if there is nothing, BOS stands for it. */
    if (g->n_prompt == 0 && info.bos >= 0)
        g->prompt[g->n_prompt++] = info.bos; /* cli_tokenize leaves room for two */
    if (g->n_prompt == 0)
        return error_set(err, LACE_E_ARG, "the prompt is empty, and the model has no BOS token");
    if (g->n_prompt > (size_t)g->n_context)
        return error_set(err, LACE_E_CONTEXT,
                         "the prompt has %zu tokens, the context %d (-c changes that)", g->n_prompt,
                         g->n_context);
    return LACE_OK;
}

/*
 * The decoder must know what came before, as some tokenizers write a token's space only inside a
 * text. What it gives out here is the prompt, which the user has seen as typed.
 */
static lace_status decode_prompt(generation *g, lace_error *err)
{
    for (size_t i = 0; i < g->n_prompt; i++) {
        const char *piece;
        size_t n_bytes;
        TRY(lace_decoder_push(g->decoder, g->prompt[i], &piece, &n_bytes, err));
        lace_sampler_accept(g->sampler, g->prompt[i]);
    }
    return LACE_OK;
}

enum { LONG_PROMPT = 64 }; /* tokens; less needs no sign of life, whatever the model */

/* What packing the weights between evaluations has taken until now. */
static uint64_t packing_ns(const lace_model *model)
{
    lace_model_info info;
    lace_model_describe(model, &info);
    return info.packing_ns;
}

static lace_status eval_prompt(generation *g, lace_error *err)
{
    size_t n_batch = (size_t)(g->args->n_batch ? g->args->n_batch : cli_batch(g->model));
    size_t capacity = g->n_prompt < n_batch ? g->n_prompt : n_batch;
    lace_item *items = mem_calloc(capacity, sizeof *items);
    if (!items)
        return error_nomem(err, "a batch");
    lace_status status = LACE_OK;
    progress bar;
    progress_init(&bar, &cli_stop);
    if (g->n_prompt > LONG_PROMPT)
        progress_show(&bar, "reading the prompt");
    uint64_t begin = clock_ns();
    for (size_t from = 0; from < g->n_prompt && status == LACE_OK; from += capacity) {
        size_t n = g->n_prompt - from < capacity ? g->n_prompt - from : capacity;
        for (size_t i = 0; i < n; i++)
            items[i] = (lace_item){.token = g->prompt[from + i],
                                   .want_logits = from + i + 1 == g->n_prompt};
        status = lace_session_eval(g->session, items, n, err);
        if (status == LACE_OK &&
            !progress_report(&bar, "reading the prompt", (double)(from + n) / (double)g->n_prompt))
            status = LACE_E_CANCELLED;
    }
    g->packing_ns = packing_ns(g->model);
    g->prompt_ns = clock_ns() - begin - g->packing_ns;
    progress_end(&bar);
    mem_free(items);
    return status;
}

/* ---- Generation ------------------------------------------------------------------------------ */

static lace_status find_ends(generation *g, lace_error *err)
{
    g->logits = mem_calloc((size_t)g->n_vocab, sizeof *g->logits);
    g->ends = mem_calloc((size_t)g->n_vocab, sizeof *g->ends);
    if (!g->logits || !g->ends)
        return error_nomem(err, "logits");
    if (!g->args->ignore_eos)
        return LACE_OK;
    for (lace_token t = 0; t < g->n_vocab; t++)
        if (lace_token_is_end(g->model, t))
            g->ends[g->n_ends++] = t;
    return LACE_OK;
}

/*
 * The logits to choose from: without what leaves the grammar, and with --ignore-eos without what
 * ends the text.
 */
static lace_status current_logits(generation *g, const float **out, lace_error *err)
{
    *out =
        g->speculator ? lace_speculator_logits(g->speculator) : lace_session_logits(g->session, 0);
    if (!g->logits)
        return LACE_OK;
    memcpy(g->logits, *out, (size_t)g->n_vocab * sizeof **out);
    for (size_t i = 0; i < g->n_ends; i++)
        g->logits[g->ends[i]] = -INFINITY;
    *out = g->logits;
    return g->form.state ? lace_grammar_state_mask(g->form.state, g->logits, err) : LACE_OK;
}

static lace_status append_token(generation *g, lace_token token, lace_error *err)
{
    lace_item item = {.token = token, .want_logits = true};
    return g->speculator ? lace_speculator_push(g->speculator, token, err)
                         : lace_session_eval(g->session, &item, 1, err);
}

/* Print a token that was chosen. *goes_on: another one is wanted behind it. */
static lace_status take_token(generation *g, lace_token token, bool *goes_on, lace_error *err)
{
    *goes_on = false;
    if (lace_token_is_end(g->model, token)) {
        g->end = "end of text";
        return LACE_OK;
    }
    g->n_generated++;
    const char *piece;
    size_t n_bytes;
    TRY(lace_decoder_push(g->decoder, token, &piece, &n_bytes, err));
    TRY(print_text(g, piece, n_bytes, err));
    if (g->form.state) {
        TRY(lace_grammar_state_accept(g->form.state, token, err));
        if (lace_grammar_state_is_finished(g->form.state)) {
            g->end = "grammar complete";
            return LACE_OK;
        }
    }
    int32_t limit = g->args->n_predict;
    if (limit >= 0 && g->n_generated >= (size_t)limit)
        return LACE_OK;
    if (g->n_prompt + g->n_generated > (size_t)g->n_context) {
        g->end = "context full";
        return LACE_OK;
    }
    if (cli_stop)
        return LACE_E_CANCELLED;
    *goes_on = true;
    return LACE_OK;
}

/* Choose from the logits that are there. */
static lace_status choose_token(generation *g, lace_token *token, lace_error *err)
{
    const float *logits;
    TRY(current_logits(g, &logits, err));
    TRY(lace_sampler_sample(g->sampler, logits, token, err));
    lace_sampler_accept(g->sampler, *token);
    return LACE_OK;
}

/* Tokens that the session chooses by itself. */
typedef struct listener {
    generation *g;
    lace_status status;
    lace_error *err;
} listener;

static bool on_token(void *user, lace_token token)
{
    listener *l = user;
    bool goes_on;
    l->g->n_steps++;
    l->status = take_token(l->g, token, &goes_on, l->err);
    return goes_on;
}

static lace_status generate(generation *g, lace_error *err)
{
    lace_token token;
    bool goes_on;
    if (g->args->n_predict == 0)
        return LACE_OK;
    TRY(choose_token(g, &token, err));
    TRY(take_token(g, token, &goes_on, err));
    if (goes_on && !g->speculator && !g->logits) {
        listener l = {g, LACE_OK, err};
        TRY(lace_session_continue(g->session, 0, token, INT32_MAX, g->sampler, on_token, &l, err));
        return l.status;
    }
    while (goes_on) {
        TRY(append_token(g, token, err));
        g->n_steps++;
        TRY(choose_token(g, &token, err));
        TRY(take_token(g, token, &goes_on, err));
    }
    return LACE_OK;
}

static lace_status flush_text(generation *g, lace_error *err)
{
    const char *piece;
    size_t n_bytes;
    TRY(lace_decoder_flush(g->decoder, &piece, &n_bytes, err));
    TRY(print_text(g, piece, n_bytes, err));
    if (g->last_byte && g->last_byte != '\n')
        TRY(cli_write("\n", 1, err));
    return LACE_OK;
}

static void append_rate(char *line, size_t size, size_t n, uint64_t ns)
{
    if (n > 0 && ns > 0) {
        double rate = (double)n * 1e9 / (double)ns;
        size_t used = strlen(line);
        snprintf(line + used, size - used, rate < 100 ? " %.1f tok/s" : " %.0f tok/s", rate);
    }
}

/*
 * What was counted, and no ratio of speeds: the time without guesses is not known here. Whoever
 * wants it runs the text a second time.
 */
static size_t append_speculation(char *line, size_t size, const lace_speculator *speculator)
{
    lace_speculation c;
    lace_speculator_count(speculator, &c);
    int n = snprintf(line, size, " | %llu of %llu guesses right (%.0f %%)",
                     (unsigned long long)c.n_accepted, (unsigned long long)c.n_guessed,
                     c.n_guessed ? 100.0 * (double)c.n_accepted / (double)c.n_guessed : 0.0);
    if (c.n_evals > 0)
        n += snprintf(line + n, size - (size_t)n, ", %.2f tokens an evaluation",
                      (double)c.n_tokens / (double)c.n_evals);
    return (size_t)n;
}

static void print_statistics(const generation *g)
{
    char line[384];
    snprintf(line, sizeof line, "prompt %zu tokens", g->n_prompt);
    append_rate(line, sizeof line, g->n_prompt, g->prompt_ns);
    size_t used = strlen(line);
    snprintf(line + used, sizeof line - used, " | generated %zu tokens", g->n_generated);
    append_rate(line, sizeof line, g->n_steps, g->generate_ns);
    used = strlen(line);
    if (g->packing_ns >= 100000000)
        used += (size_t)snprintf(line + used, sizeof line - used, " | packed weights in %.1f s",
                                 (double)g->packing_ns * 1e-9);
    if (g->args->sampler.temperature > 0)
        used += (size_t)snprintf(line + used, sizeof line - used, " | seed %llu",
                                 (unsigned long long)g->args->sampler.seed);
    if (g->speculator)
        used += append_speculation(line + used, sizeof line - used, g->speculator);
    if (g->end)
        snprintf(line + used, sizeof line - used, " | %s", g->end);
    fprintf(stderr, "%s\n", line);
}

/* ---- The verb -------------------------------------------------------------------------------- */

/* A session of the run's kind, with a bar while weights are packed. */
static lace_status create_session(const generation *g, lace_model *model, int32_t n_outputs,
                                  lace_session **out, lace_error *err)
{
    const run_args *a = g->args;
    progress bar;
    progress_init(&bar, &cli_stop);
    lace_session_options o = lace_session_options_default();
    o.n_context = g->n_context;
    if (a->n_batch)
        o.n_batch = a->n_batch > n_outputs ? a->n_batch : n_outputs;
    o.n_outputs = n_outputs;
    o.n_threads = a->n_threads;
    o.kv_type = (lace_kv_type)a->kv_type;
    o.memory_bytes = a->memory_bytes;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    lace_status status = lace_session_create(model, &o, out, err);
    progress_end(&bar);
    return status;
}

static bool speculates(const run_args *a)
{
    return a->draft || a->lookup;
}

/* The second model, if there is one, and what guesses with it. */
static lace_status create_speculator(generation *g, lace_error *err)
{
    const run_args *a = g->args;
    if (a->draft) {
        lace_model_options o = lace_model_options_default();
        o.use_mmap = a->mmap;
        o.device = a->device;
        TRY(cli_open_model(a->draft, &o, &g->draft_model, err));
        TRY(create_session(g, g->draft_model, 1, &g->draft, err));
    }
    lace_speculator_options o = lace_speculator_options_default();
    o.draft = g->draft;
    o.use_lookup = a->lookup;
    o.n_draft = a->n_draft;
    return lace_speculator_create(g->session, 0, &o, &g->speculator, err);
}

/* With DRY, no repetition goes over the ends of lines and the like. */
static lace_status create_sampler(generation *g, lace_error *err)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    lace_sampler_options o = g->args->sampler;
    lace_token *tokens = mem_calloc((size_t)g->n_vocab, sizeof *tokens);
    if (!tokens)
        return error_nomem(err, "a sampler");
    o.dry_breakers = tokens;
    if (o.dry_multiplier > 0)
        o.n_dry_breakers = lace_tokens_with(
            g->model, breakers, sizeof breakers / sizeof breakers[0], tokens, (size_t)g->n_vocab);
    lace_status status = lace_sampler_create(&o, g->n_vocab, &g->sampler, err);
    mem_free(tokens);
    return status;
}

static lace_status continue_text(generation *g, const buf *opening, lace_error *err)
{
    const run_args *a = g->args;
    TRY(tokenize_prompt(g, opening, err));
    TRY(create_sampler(g, err));
    TRY(lace_decoder_create(g->model, &g->decoder, err));
    TRY(constraint_init(&g->form, &a->constraint, g->model, err));
    if (a->ignore_eos || g->form.state)
        TRY(find_ends(g, err));
    TRY(create_session(g, g->model, speculates(a) ? a->n_draft + 1 : 1, &g->session, err));
    if (speculates(a))
        TRY(create_speculator(g, err));
    TRY(decode_prompt(g, err));
    lace_status status = eval_prompt(g, err);
    if (status == LACE_OK && g->speculator)
        status = lace_speculator_begin(g->speculator, g->prompt, g->n_prompt, err);
    /* Not before: the progress bar would wipe out its last line. */
    if (status == LACE_OK && !a->no_display_prompt)
        TRY(print_text(g, opening->data ? opening->data : "", opening->size, err));
    uint64_t begin = clock_ns();
    if (status == LACE_OK)
        status = generate(g, err);
    g->generate_ns = clock_ns() - begin - (packing_ns(g->model) - g->packing_ns);
    g->packing_ns = packing_ns(g->model);
    if (status != LACE_OK && status != LACE_E_CANCELLED)
        return status;
    TRY(flush_text(g, err));
    if (status == LACE_E_CANCELLED)
        g->end = "stopped";
    print_statistics(g);
    return status;
}

/* A seed short enough to be typed again. */
static uint64_t random_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint32_t)clock_ns();
    return seed;
}

static lace_status run_run(const verb *v, int argc, char **argv, lace_error *err)
{
    run_args a = {
        .n_predict = -1,
        .sampler = lace_sampler_options_default(),
        .kv_type = LACE_KV_F16,
        .n_draft = 8,
        .device = "auto",
    };
    a.sampler.seed = random_seed();
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    TRY(constraint_check(v, &a.constraint, err));
    if (words.count == 2 && a.prompt)
        return args_error(v, err, "-p and the argument \"%.60s\" exclude each other", words.at[1]);
    if (words.count == 2)
        a.prompt = words.at[1];
    buf opening;
    buf_init(&opening, CLI_MAX_TEXT);
    generation g = {.args = &a};
    lace_model_options model_options = lace_model_options_default();
    model_options.use_mmap = a.mmap;
    model_options.packs_later = true;
    model_options.device = a.device;
    model_options.activation_sparsity = a.activation_sparsity;
    lace_status status = read_prompt(v, &a, words.count == 0, &opening, err);
    cli_catch_stop(); /* not before: Ctrl-C while a prompt is typed ends the program */
    buf pruned;       /* lives as long as the model */
    buf_init(&pruned, SIZE_MAX / 2);
    if (status == LACE_OK)
        status = a.surgery ? surgery_open(words.at[0], a.surgery, a.imatrix, &model_options,
                                          &pruned, &g.model, err)
                           : cli_open_model(words.at[0], &model_options, &g.model, err);
    if (status == LACE_OK)
        status = continue_text(&g, &opening, err);
    constraint_deinit(&g.form);
    lace_speculator_free(g.speculator);
    lace_session_free(g.draft);
    lace_session_free(g.session);
    lace_sampler_free(g.sampler);
    lace_decoder_free(g.decoder);
    lace_model_close(g.draft_model);
    lace_model_close(g.model);
    buf_deinit(&pruned);
    mem_free(g.logits);
    mem_free(g.ends);
    mem_free(g.prompt);
    buf_deinit(&opening);
    return status;
}

const verb verb_run = {
    .name = "run",
    .summary = "continue a text",
    .usage = "[MODEL [TEXT]] [-p TEXT | -f FILE] [options]",
    .description =
        "Prints the prompt and what the model writes after it. MODEL is a GGUF file or a Hugging\n"
        "Face directory; without it, a small story teller inside the program is used. Without\n"
        "-p and -f the prompt comes from standard input. Statistics go to standard error.\n"
        "Ctrl-C ends the text in good order (exit code 130).\n",
    .examples = "  lace run\n"
                "  lace run -p \"The king said\" -n 100 --temp 0.6 --seed 42\n"
                "  lace run model.gguf -f letter.txt --no-display-prompt > answer.txt\n"
                "  echo \"Dear Ada,\" | lace run model.gguf -c 2048 --memory 4G\n"
                "  lace run large.gguf -p \"In short:\" --draft small.gguf --temp 0\n"
                "  lace run -p \"A letter: \" --grammar 'root ::= [A-Z][a-z]+ \", \" [a-z]{3,9}'\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .max_positional = 2,
    .run = run_run,
};
