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

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/surgery_run.h"
#include "cli/chat.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"
#include "cli/writer.h"

typedef struct run_args {
    const char *prompt, *file;
    int32_t n_predict; /* -1: until the text or the context ends */
    bool no_display_prompt;
    bool raw; /* the text as it is, whatever the model */
    const char *template_file;
    int32_t thinking;
    bool keeps_reasoning;
    choose_options choose;
    int32_t n_context, n_batch, n_threads, kv_type, v_type;
    uint64_t memory_bytes;
    bool mmap;
    const char *surgery, *imatrix, *device, *activation_sparsity, *images, *mmproj;
    cli_ranks ranks;
    cli_place place;
    cli_loras loras;
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
    {"image", 0, ARG_TEXT, offsetof(run_args, images), .value = "FILE", .help = CHAT_IMAGE_HELP},
    {"mmproj", 0, ARG_TEXT, offsetof(run_args, mmproj), .value = "FILE", .help = CHAT_MMPROJ_HELP},
    {"think", 0, ARG_CHOICE, offsetof(run_args, thinking), .value = CHAT_THINK_WORDS,
     .help = CHAT_THINK_HELP},
    {"show-tags", 0, ARG_FLAG, offsetof(run_args, keeps_reasoning), .help = CHAT_TAGS_HELP},
    CHOOSE_OPTIONS(offsetof(run_args, choose)),
    {.kind = ARG_HEADING, .help = "Machine"},
    {"ctx-size", 'c', ARG_INT, offsetof(run_args, n_context), .low = 0, .high = CLI_MAX_CONTEXT,
     .value = "N", .help = "tokens of prompt and text together; 0 (default): the model's own, at most 4096"},
    {"batch", 'b', ARG_INT, offsetof(run_args, n_batch), .low = 1, .high = CLI_MAX_BATCH,
     .value = "N", .help = "tokens of the prompt computed together (default 512, on a GPU 2048)"},
    CLI_THREADS_OPTION(run_args),
    CLI_KV_TYPE_OPTION(run_args, "f16"),
    {"memory", 0, ARG_BYTES, offsetof(run_args, memory_bytes), .value = "BYTES",
     .help = "do not start if weights, KV cache and scratch need more than this: 600M, 4G"},
    CLI_DEVICE_OPTION(run_args),
    CLI_RANKS_OPTIONS(offsetof(run_args, ranks)),
    CLI_PLACE_OPTIONS(offsetof(run_args, place)),
    CLI_LORA_OPTIONS(offsetof(run_args, loras)),
    CLI_SPARSITY_OPTION(run_args),
    CLI_MMAP_OPTION(run_args),
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
    writer writer;
    const buf *opening; /* what the text begins with */
    lace_token *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t n_context;
    writer_report report;
    char last_byte; /* of what was printed; 0: nothing */
    word_wrap wrap; /* lines of a terminal end between words */
    buf lines;
    const char *end; /* why it ended, if that needs saying */
} generation;

static lace_status print_text(generation *g, const char *data, size_t n_bytes, lace_error *err)
{
    if (n_bytes == 0)
        return LACE_OK;
    g->last_byte = data[n_bytes - 1];
    if (g->wrap.n_columns == 0)
        return cli_write(data, n_bytes, err);
    buf_clear(&g->lines);
    if (word_wrap_push(&g->wrap, data, n_bytes, &g->lines) != LACE_OK)
        return error_nomem(err, "the text");
    return cli_write(g->lines.data, g->lines.size, err);
}

/* The word that is held back, and the end of the last line. */
static lace_status print_end(generation *g, lace_error *err)
{
    buf_clear(&g->lines);
    if (word_wrap_end(&g->wrap, &g->lines) != LACE_OK)
        return error_nomem(err, "the text");
    if (g->lines.size > 0)
        TRY(cli_write(g->lines.data, g->lines.size, err));
    return g->last_byte && g->last_byte != '\n' ? cli_write("\n", 1, err) : LACE_OK;
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

static lace_status tokenize_prompt(generation *g, lace_error *err)
{
    const buf *opening = g->opening;
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

/* ---- Generation ------------------------------------------------------------------------------ */

/* The prompt is read. Not before: the progress bar would wipe out its last line. */
static lace_status print_opening(void *user, lace_error *err)
{
    generation *g = user;
    const buf *opening = g->opening;
    return g->args->no_display_prompt
               ? LACE_OK
               : print_text(g, opening->data ? opening->data : "", opening->size, err);
}

static lace_status print_piece(void *user, lace_token token, text piece, lace_error *err)
{
    (void)token;
    return print_text(user, piece.data, piece.size, err);
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
    snprintf(line, size, "prompt %zu token%s", g->n_prompt, g->n_prompt == 1 ? "" : "s");
    append_rate(line, size, g->n_prompt, g->report.prompt_ns);
    size_t used = strlen(line);
    snprintf(line + used, size - used, " | generated %zu token%s", g->report.n_generated,
             g->report.n_generated == 1 ? "" : "s");
    append_rate(line, size, g->report.n_steps, g->report.generate_ns);
    used = strlen(line);
    if (g->report.packing_ns >= 100000000)
        used += (size_t)snprintf(line + used, size - used, " | packed weights in %.1f s",
                                 (double)g->report.packing_ns * 1e-9);
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

static lace_status create_writer(generation *g, const lace_model_options *model_options,
                                 lace_error *err)
{
    const run_args *a = g->args;
    lace_session_options o = lace_session_options_default();
    o.n_context = g->n_context;
    o.n_batch = a->n_batch;
    o.n_threads = a->n_threads;
    o.kv_type = (lace_kv_type)a->kv_type;
    o.v_type = (lace_kv_type)a->v_type;
    o.memory_bytes = a->memory_bytes;
    return writer_init(&g->writer, &a->choose, g->model, model_options, &o, false, err);
}

static lace_status continue_text(generation *g, const lace_model_options *model_options,
                                 lace_error *err)
{
    static const char *const ends[] = {[WRITER_STOPPED] = "stopped",
                                       [WRITER_ENDED] = "end of text",
                                       [WRITER_COMPLETE] = "grammar complete",
                                       [WRITER_CUT] = NULL, /* -n is nothing that needs saying */
                                       [WRITER_FULL] = "context full"};
    char line[512];
    TRY(tokenize_prompt(g, err));
    TRY(create_writer(g, model_options, err));
    writer_order order = {.prompt = g->prompt,
                          .n_prompt = g->n_prompt,
                          .seed = g->args->choose.sampler.seed,
                          .max_tokens = g->args->n_predict,
                          .stop = &cli_stop,
                          .on_begin = print_opening,
                          .on_piece = print_piece,
                          .user = g};
    lace_status status = writer_write(&g->writer, &order, &g->report, err);
    lace_error ignored;
    lace_status ended = print_end(g, status == LACE_OK ? err : &ignored);
    TRY(status);
    TRY(ended);
    g->end = ends[g->report.end];
    begin_statistics(g, line, sizeof line);
    writer_append_counts(&g->writer, line, sizeof line);
    end_statistics(g, line, sizeof line);
    return g->report.end == WRITER_STOPPED ? LACE_E_CANCELLED : LACE_OK;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* The text is a question for the model's chat template, as in lace chat -p. */
static lace_status answer_text(generation *g, lace_error *err)
{
    const run_args *a = g->args;
    const buf *question = g->opening;
    chat_options o = {.opened = g->model,
                      .device = a->device,
                      .mode = CHAT_MODE_CHAT,
                      .template_file = a->template_file,
                      .thinking = (chat_thinking)a->thinking,
                      .choose = a->choose,
                      .max_tokens = a->n_predict,
                      .n_context = a->n_context,
                      .n_threads = a->n_threads,
                      .n_batch = a->n_batch,
                      .kv_type = (lace_kv_type)a->kv_type,
                      .v_type = (lace_kv_type)a->v_type,
                      .memory_bytes = a->memory_bytes,
                      .use_mmap = a->mmap,
                      .keeps_reasoning = a->keeps_reasoning,
                      .images = a->images,
                      .mmproj = a->mmproj};
    chat *t;
    chat_stats stats = {0};
    TRY(chat_create(&o, &t, err));
    lace_status status =
        chat_ask(t, NULL, question->data ? question->data : "", question->size, &stats, err);
    if (status == LACE_OK || status == LACE_E_CANCELLED) {
        char line[512];
        g->n_prompt = stats.n_prompt;
        g->report = (writer_report){.n_generated = stats.n_generated,
                                    .n_steps = stats.n_generated ? stats.n_generated - 1 : 0,
                                    .prompt_ns = stats.prompt_ns,
                                    .generate_ns = stats.generate_ns,
                                    .packing_ns = stats.packing_ns};
        if (stats.end && strcmp(stats.end, CHAT_CUT) != 0) /* -n is nothing that needs saying */
            g->end = stats.end;
        begin_statistics(g, line, sizeof line);
        chat_append_counts(t, line, sizeof line);
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " | by its chat template (--raw: not)");
        end_statistics(g, line, sizeof line);
    }
    chat_free(t);
    return status;
}

/* Whether the text is a question. */
static bool is_question(const generation *g)
{
    lace_model_info info;
    lace_model_describe(g->model, &info);
    return !g->args->raw && (info.chat_template[0] || g->args->template_file);
}

static lace_status run_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    run_args a = {
        .n_predict = -1,
        .choose = choose_options_default(),
        .kv_type = LACE_KV_F16,
        .v_type = LACE_KV_SAME,
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
    generation g = {.args = &a, .opening = &opening};
    buf_init(&g.lines, SIZE_MAX / 2);
    word_wrap_init(&g.wrap, terminal_can_draw(STDOUT_FILENO) ? terminal_columns(STDOUT_FILENO) : 0);
    lace_model_options model_options = lace_model_options_default();
    model_options.use_mmap = a.mmap;
    model_options.packs_later = true;
    model_options.device = a.device;
    cli_use_ranks(&a.ranks, &model_options);
    TRY(cli_use_place(&a.place, a.n_context, &model_options, err));
    model_options.activation_sparsity = a.activation_sparsity;
    model_options.use_mtp = a.choose.mtp;
    lace_status status = read_prompt(v, &a, words.count == 0, &opening, err);
    cli_catch_stop(); /* not before: Ctrl-C while a prompt is typed ends the program */
    buf pruned;       /* lives as long as the model */
    buf_init(&pruned, SIZE_MAX / 2);
    if (status == LACE_OK)
        status = a.surgery ? surgery_open(words.at[0], a.surgery, a.imatrix, &model_options,
                                          &pruned, &g.model, err)
                           : cli_open_model(words.at[0], &model_options, &g.model, err);
    if (status == LACE_OK)
        status = cli_add_loras(g.model, &a.loras, err);
    if (status == LACE_OK && !is_question(&g) && a.images)
        status = error_set(err, LACE_E_ARG,
                           "--image: the text is continued as it is; images need "
                           "the model's chat template");
    if (status == LACE_OK && !is_question(&g) && a.thinking)
        status = error_set(err, LACE_E_ARG,
                           "--think: the model has no chat template, so it cannot be told");
    if (status == LACE_OK)
        status = is_question(&g) ? answer_text(&g, err) : continue_text(&g, &model_options, err);
    writer_deinit(&g.writer);
    lace_model_close(g.model);
    buf_deinit(&pruned);
    mem_free(g.prompt);
    buf_deinit(&opening);
    buf_deinit(&g.lines);
    word_wrap_deinit(&g.wrap);
    return status;
}

VERB(run, "run", "[MODEL [TEXT]] [-p TEXT | -f FILE] [options]",
     "continue a text, or answer a question", 0, 2,
     .description =
         "Prints the prompt and what the model writes after it. A model with a chat template is\n"
         "asked: the text is a message, and the answer is printed; --raw continues the text as it\n"
         "is. MODEL is a GGUF file or a Hugging Face directory; without it, a small story teller\n"
         "inside the program is used. Without -p and -f the prompt comes from standard input.\n"
         "Statistics go to standard error; lace chat holds a conversation.\n"
         "Ctrl-C ends the text in good order (exit code 130).\n",
     .examples =
         "  lace run\n"
         "  lace run chat-model.gguf \"Name three rivers.\"\n"
         "  lace run -p \"The king said\" -n 100 --temp 0.6 --seed 42\n"
         "  lace run model.gguf -f letter.txt --no-display-prompt > answer.txt\n"
         "  echo \"Dear Ada,\" | lace run model.gguf -c 2048 --memory 4G\n"
         "  lace run large.gguf -p \"In short:\" --draft small.gguf --temp 0\n"
         "  lace run -p \"A letter: \" --grammar 'root ::= [A-Z][a-z]+ \", \" [a-z]{3,9}'\n")
