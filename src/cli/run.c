/*
 * lace run: continue a text, or answer it where the model has a chat template. What is generated
 * goes to standard output as it comes; a line of statistics with everything that is needed to
 * repeat the run goes to standard error.
 */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/choose.h"
#include "cli/progress.h"
#include "cli/surgery_run.h"
#include "cli/chat.h"

typedef struct run_args {
    const char *prompt;
    const char *file;
    int32_t n_predict; /* -1: until the text or the context ends */
    bool no_display_prompt;
    bool raw; /* the text as it is, whatever the model */
    const char *template_file;
    int32_t thinking;
    bool keeps_reasoning;
    choose_options choose;
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
} run_args;

/* clang-format off */
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "Text"},
    {"prompt", 'p', ARG_TEXT, offsetof(run_args, prompt), .value = "TEXT",
     .help = "what the text begins with, or the question"},
    {"file", 'f', ARG_TEXT, offsetof(run_args, file), .value = "FILE",
     .help = "read the prompt from this file; a newline at its end is left out"},
    {"n-predict", 'n', ARG_INT, offsetof(run_args, n_predict), .low = -1, .high = INT32_MAX,
     .value = "N", .help = "tokens to generate; -1 (default): until the text or the context ends"},
    {"no-display-prompt", 0, ARG_FLAG, offsetof(run_args, no_display_prompt),
     .help = "print the generated text only"},
    {"raw", 0, ARG_FLAG, offsetof(run_args, raw),
     .help = "continue the text as it is, without the chat template"},
    {"chat-template-file", 0, ARG_TEXT, offsetof(run_args, template_file), .value = "FILE",
     .help = "chat template in Jinja to use in place of the model's own"},
    {"think", 0, ARG_CHOICE, offsetof(run_args, thinking), .value = TALK_THINK_WORDS,
     .help = TALK_THINK_HELP},
    {"show-tags", 0, ARG_FLAG, offsetof(run_args, keeps_reasoning), .help = TALK_TAGS_HELP},
    CHOOSE_OPTIONS(offsetof(run_args, choose)),
    {.kind = ARG_HEADING, .help = "Machine"},
    {"ctx-size", 'c', ARG_INT, offsetof(run_args, n_context), .low = 0, .high = CLI_MAX_CONTEXT,
     .value = "N", .help = "tokens of prompt and text together; 0 (default): the model's own, at most 4096"},
    {"batch", 'b', ARG_INT, offsetof(run_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens of the prompt computed together (default 512, on a GPU 2048)"},
    {"threads", 't', ARG_INT, offsetof(run_args, n_threads), .low = 1, .high = CLI_MAX_THREADS,
     .value = "N", .help = "threads (default: one per core)"},
    {"kv-type", 0, ARG_CHOICE, offsetof(run_args, kv_type), .value = CLI_KV_TYPES,
     .help = "type of the numbers in the KV cache (default f16)"},
    {"memory", 0, ARG_BYTES, offsetof(run_args, memory_bytes), .value = "BYTES",
     .help = "do not start if weights, KV cache and scratch need more than this: 600M, 4G"},
    CLI_DEVICE_OPTION(run_args),
    CLI_SPARSITY_OPTION(run_args),
    {"mmap", 0, ARG_FLAG, offsetof(run_args, mmap),
     .help = "use the weights as they are in the file: less memory, slower"},
    {"surgery", 0, ARG_TEXT, offsetof(run_args, surgery), .value = "FILE",
     .help = "prune by these rules while loading; see lace prune"},
    {"imatrix", 0, ARG_TEXT, offsetof(run_args, imatrix), .value = "FILE",
     .help = "which inputs matter, for rules that need it (lace imatrix)"},
};
/* clang-format on */

/* What a run is made of, and what it counts. */
typedef struct generation {
    const run_args *args;
    lace_model *model;
    lace_session *session;
    lace_decoder *decoder;
    chooser choose;
    lace_token *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t n_context;
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
                          "the prompt is missing: use -p TEXT, -f FILE or a pipe; for a "
                          "conversation use lace chat MODEL");
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
                         "the prompt has %zu tokens, but the context has %d (-c N makes it longer)",
                         g->n_prompt, g->n_context);
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
    bool is_complete;
    TRY(chooser_accept(&g->choose, token, &is_complete, err));
    if (is_complete) {
        g->end = "grammar complete";
        return LACE_OK;
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
    chooser *c = &g->choose;
    lace_token token;
    bool goes_on;
    if (g->args->n_predict == 0)
        return LACE_OK;
    TRY(chooser_next(c, &token, err));
    TRY(take_token(g, token, &goes_on, err));
    if (goes_on && chooser_is_plain(c)) {
        listener l = {g, LACE_OK, err};
        TRY(lace_session_continue(g->session, 0, token, INT32_MAX, c->sampler, on_token, &l, err));
        return l.status;
    }
    while (goes_on) {
        TRY(chooser_push(c, token, err));
        g->n_steps++;
        TRY(chooser_next(c, &token, err));
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

/* All but what follows the guesses. */
static void begin_statistics(const generation *g, char *line, size_t size)
{
    snprintf(line, size, "prompt %zu tokens", g->n_prompt);
    append_rate(line, size, g->n_prompt, g->prompt_ns);
    size_t used = strlen(line);
    snprintf(line + used, size - used, " | generated %zu tokens", g->n_generated);
    append_rate(line, size, g->n_steps, g->generate_ns);
    used = strlen(line);
    if (g->packing_ns >= 100000000)
        used += (size_t)snprintf(line + used, size - used, " | packed weights in %.1f s",
                                 (double)g->packing_ns * 1e-9);
    if (g->args->choose.sampler.temperature > 0)
        snprintf(line + used, size - used, " | seed %llu",
                 (unsigned long long)g->args->choose.sampler.seed);
}

static void end_statistics(const generation *g, char *line, size_t size)
{
    size_t used = strlen(line);
    if (g->end)
        snprintf(line + used, size - used, " | %s", g->end);
    fprintf(stderr, "%s\n", line);
}

/* ---- The verb -------------------------------------------------------------------------------- */

/* A session of the run's kind, with a bar while weights are packed, and what chooses tokens. */
static lace_status create_session(generation *g, const lace_model_options *model_options,
                                  lace_error *err)
{
    const run_args *a = g->args;
    int32_t n_outputs = choose_n_outputs(&a->choose);
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
    lace_status status = lace_session_create(g->model, &o, &g->session, err);
    progress_end(&bar);
    TRY(status);
    return chooser_init(&g->choose, &a->choose, g->model, g->session, model_options, &o, err);
}

static lace_status continue_text(generation *g, const buf *opening,
                                 const lace_model_options *model_options, lace_error *err)
{
    const run_args *a = g->args;
    char line[512];
    TRY(tokenize_prompt(g, opening, err));
    TRY(lace_decoder_create(g->model, &g->decoder, err));
    TRY(create_session(g, model_options, err));
    TRY(decode_prompt(g, err));
    lace_status status = eval_prompt(g, err);
    if (status == LACE_OK)
        status = chooser_begin(&g->choose, a->choose.sampler.seed, g->prompt, g->n_prompt, err);
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
    begin_statistics(g, line, sizeof line);
    chooser_append_counts(&g->choose, line, sizeof line);
    end_statistics(g, line, sizeof line);
    return status;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* The text is a question for the model's chat template, as in lace chat -p. */
static lace_status answer_text(generation *g, const buf *question, lace_error *err)
{
    const run_args *a = g->args;
    talk_options o = {.opened = g->model,
                      .device = a->device,
                      .mode = TALK_CHAT,
                      .template_file = a->template_file,
                      .thinking = (talk_thinking)a->thinking,
                      .choose = a->choose,
                      .max_tokens = a->n_predict,
                      .n_context = a->n_context,
                      .n_threads = a->n_threads,
                      .n_batch = a->n_batch,
                      .kv_type = (lace_kv_type)a->kv_type,
                      .memory_bytes = a->memory_bytes,
                      .use_mmap = a->mmap,
                      .keeps_reasoning = a->keeps_reasoning};
    talk *t;
    talk_stats stats = {0};
    TRY(talk_create(&o, &t, err));
    lace_status status =
        talk_ask(t, NULL, question->data ? question->data : "", question->size, &stats, err);
    if (status == LACE_OK || status == LACE_E_CANCELLED) {
        char line[512];
        g->n_prompt = stats.n_prompt;
        g->n_generated = stats.n_generated;
        g->n_steps = stats.n_generated ? stats.n_generated - 1 : 0;
        g->prompt_ns = stats.prompt_ns;
        g->generate_ns = stats.generate_ns;
        g->packing_ns = stats.packing_ns;
        if (stats.end && strcmp(stats.end, TALK_CUT) != 0) /* -n is nothing that needs saying */
            g->end = stats.end;
        begin_statistics(g, line, sizeof line);
        talk_append_counts(t, line, sizeof line);
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " | by its chat template (--raw: not)");
        end_statistics(g, line, sizeof line);
    }
    talk_free(t);
    return status;
}

/* Whether the text is a question. */
static bool is_question(const generation *g)
{
    lace_model_info info;
    lace_model_describe(g->model, &info);
    return !g->args->raw && (info.chat_template[0] || g->args->template_file);
}

static lace_status run_run(const verb *v, int argc, char **argv, lace_error *err)
{
    run_args a = {
        .n_predict = -1,
        .choose = choose_options_default(),
        .kv_type = LACE_KV_F16,
        .device = "auto",
    };
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    TRY(constraint_check(v, &a.choose.constraint, err));
    if (a.raw && (a.template_file || a.thinking))
        return args_error(v, err,
                          "--raw uses no chat template: it excludes --chat-template-file "
                          "and --think");
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
    if (status == LACE_OK && !is_question(&g) && a.thinking)
        status = error_set(err, LACE_E_ARG,
                           "--think: the model has no chat template, so it cannot be told");
    if (status == LACE_OK)
        status = is_question(&g) ? answer_text(&g, &opening, err)
                                 : continue_text(&g, &opening, &model_options, err);
    chooser_deinit(&g.choose);
    lace_session_free(g.session);
    lace_decoder_free(g.decoder);
    lace_model_close(g.model);
    buf_deinit(&pruned);
    mem_free(g.prompt);
    buf_deinit(&opening);
    return status;
}

const verb verb_run = {
    .name = "run",
    .summary = "continue a text, or answer a question",
    .usage = "[MODEL [TEXT]] [-p TEXT | -f FILE] [options]",
    .description =
        "Prints the prompt and what the model writes after it. A model with a chat template is\n"
        "asked: the text is a message, and the answer is printed; --raw continues the text as it\n"
        "is. MODEL is a GGUF file or a Hugging Face directory; without it, a small story teller\n"
        "inside the program is used. Without -p and -f the prompt comes from standard input.\n"
        "Statistics go to standard error; lace chat holds a conversation.\n"
        "Ctrl-C ends the text in good order (exit code 130).\n",
    .examples = "  lace run\n"
                "  lace run chat-model.gguf \"Name three rivers.\"\n"
                "  lace run -p \"The king said\" -n 100 --temp 0.6 --seed 42\n"
                "  lace run model.gguf -f letter.txt --no-display-prompt > answer.txt\n"
                "  echo \"Dear Ada,\" | lace run model.gguf -c 2048 --memory 4G\n"
                "  lace run large.gguf -p \"In short:\" --draft small.gguf --temp 0\n"
                "  lace run -p \"A letter: \" --grammar 'root ::= [A-Z][a-z]+ \", \" [a-z]{3,9}'\n",
    VERB_OPTIONS(options),
    .max_positional = 2,
    .run = run_run,
};
