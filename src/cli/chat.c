/*
 * lace chat: a conversation in the terminal. Ctrl-C stops an answer and not the program. Without a
 * terminal each line of standard input is a message, and nothing but the answers is printed.
 */
#define _DEFAULT_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_write.h"
#include "base/json_read.h"
#include "cli/cli.h"
#include "cli/chat.h"

typedef struct chat_args {
    chat_options chat;
    int32_t mode, kv_type, v_type, thinking;
    const char *system, *prompt, *file;
} chat_args;

/* clang-format off */
#define CHAT(field) offsetof(chat_args, chat) + offsetof(chat_options, field)
static const arg_option options[] = {
    {.kind = ARG_HEADING, .help = "Conversation"},
    {"system", 0, ARG_TEXT, offsetof(chat_args, system), .value = "TEXT",
     .help = "system prompt: what the model is told about its task"},
    {"prompt", 'p', ARG_TEXT, offsetof(chat_args, prompt), .value = "TEXT",
     .help = "send one message, print the answer and end"},
    {"file", 'f', ARG_TEXT, offsetof(chat_args, file), .value = "FILE",
     .help = "the same, from a file; a newline at its end is left out"},
    {"mode", 0, ARG_CHOICE, offsetof(chat_args, mode), .value = "auto|chat|text",
     .help = "chat with the model's template, or continue the text (default auto: chat if there is a template)"},
    {"n-predict", 'n', ARG_INT, CHAT(max_tokens), .low = -1, .high = INT32_MAX, .value = "N",
     .help = "tokens of an answer; -1: until it ends (default: -1, or 300 if a text is continued)"},
    {"chat-template-file", 0, ARG_TEXT, CHAT(template_file), .value = "FILE",
     .help = "chat template in Jinja to use in place of the model's own"},
    {"image", 0, ARG_TEXT, CHAT(images), .value = "FILE", .help = CHAT_IMAGE_HELP},
    {"mmproj", 0, ARG_TEXT, CHAT(mmproj), .value = "FILE", .help = CHAT_MMPROJ_HELP},
    {"think", 0, ARG_CHOICE, offsetof(chat_args, thinking), .value = CHAT_THINK_WORDS,
     .help = CHAT_THINK_HELP},
    {"show-tags", 0, ARG_FLAG, CHAT(keeps_reasoning), .help = CHAT_TAGS_HELP},
    CHOOSE_OPTIONS(CHAT(choose)),
    {.kind = ARG_HEADING, .help = "Machine"},
    {"ctx-size", 'c', ARG_INT, CHAT(n_context), .low = 0, .high = CLI_MAX_CONTEXT, .value = "N",
     .help = "tokens of the whole conversation; 0 (default): the model's own, at most 4096"},
    {"threads", 't', ARG_INT, CHAT(n_threads), .low = 1, .high = CLI_MAX_THREADS, .value = "N",
     .help = "threads (default: one per core)"},
    CLI_KV_TYPE_OPTION(chat_args, "f16"),
    {"memory", 0, ARG_BYTES, CHAT(memory_bytes), .value = "BYTES",
     .help = "do not start if more memory than this is needed: 600M, 4G"},
    {"device", 0, ARG_TEXT, CHAT(device), .value = CLI_DEVICES, .help = CLI_DEVICE_HELP},
    CLI_RANKS_OPTIONS(CHAT(ranks)),
    CLI_PLACE_OPTIONS(CHAT(place)),
    CLI_LORA_OPTIONS(CHAT(loras)),
    {"activation-sparsity", 0, ARG_TEXT, CHAT(activation_sparsity), .value = "FILE",
     .help = CLI_SPARSITY_HELP},
    {"mmap", 0, ARG_FLAG, CHAT(use_mmap),
     .help = "use the weights as they are in the file: less memory, slower"},
};
#undef CHAT
/* clang-format on */

typedef struct dialogue {
    chat *model;
    json_t *messages; /* the first one may be the system's */
    size_t n_dropped; /* of the others, the first ones, which the model does not see any more */
    chat_input *input;
    chat_printer out;
    chat_stats stats; /* of the last answer */
    size_t n_answers, n_tokens;
} dialogue;

/* ---- Messages -------------------------------------------------------------------------------- */

static const char *role_at(const dialogue *d, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(d->messages, i), "role"));
    return role ? role : "";
}

/* Ctrl-C in an answer stops it; while a line is typed it drops the line. */
static void on_interrupt(int number)
{
    cli_stop = number;
}

/* How the terminal was, and what makes it look so; whoever ends the program finds it so. */
static struct termios terminal_before;
static const char *last_words;

/* What it calls is safe in a handler; the signal then does what it does without one. */
static void on_end(int number)
{
    (void)!write(STDOUT_FILENO, last_words, strlen(last_words));
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
    signal(number, SIG_DFL);
    raise(number);
}

static lace_status answer(dialogue *d, lace_error *err)
{
    TRY(chat_print_answer(&d->out, d->model, d->messages, &d->n_dropped, &d->stats, err));
    d->n_answers++;
    d->n_tokens += d->stats.n_generated;
    const buf *content = &d->out.content;
    return chat_add_message(d->messages, "assistant", content->data ? content->data : "",
                            content->size, err);
}

/* ---- Commands -------------------------------------------------------------------------------- */

static lace_status set_system(dialogue *d, const char *value, lace_error *err)
{
    bool has_one = json_array_size(d->messages) && strcmp(role_at(d, 0), "system") == 0;
    if (has_one)
        json_array_remove(d->messages, 0);
    if (!*value)
        return chat_note(&d->out, err,
                         has_one ? "the system prompt is removed" : "there is no system prompt");
    json_t *message = json_pack("{s:s, s:s}", "role", "system", "content", value);
    if (!message || json_array_insert_new(d->messages, 0, message) != 0)
        return error_set(err, LACE_E_UTF8, "the system prompt is not UTF-8");
    return chat_note(&d->out, err, "the system prompt is set; the next message uses it");
}

/* The figures are those of a conversation. */
static void forget_stats(dialogue *d)
{
    d->stats = (chat_stats){0};
    d->n_answers = d->n_tokens = d->n_dropped = 0;
}

static lace_status clear(dialogue *d, const char *value, lace_error *err)
{
    forget_stats(d);
    while (json_array_size(d->messages) &&
           strcmp(role_at(d, json_array_size(d->messages) - 1), "system") != 0)
        json_array_remove(d->messages, json_array_size(d->messages) - 1);
    return chat_note(&d->out, err, "a new conversation begins");
}

static bool is_message(const json_t *m)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = json_string_value(json_object_get(m, "role"));
    bool is_known = false;
    for (size_t i = 0; role && i < sizeof roles / sizeof roles[0]; i++)
        is_known |= strcmp(role, roles[i]) == 0;
    return is_known && json_is_string(json_object_get(m, "content"));
}

/* The conversation in a file; *out is to be released. */
static lace_status read_conversation(const char *path, json_t **out, lace_error *err)
{
    buf content;
    json_t *list = NULL;
    *out = NULL;
    buf_init(&content, CLI_MAX_TEXT);
    lace_status status = file_read(path, &content, err);
    if (status == LACE_OK) {
        status = json_read((span){(const uint8_t *)content.data, content.size}, 0, &list, err);
        if (status != LACE_OK)
            error_prefix(err, status, path);
    }
    buf_deinit(&content);
    TRY(status);
    bool is_valid = json_is_array(list);
    for (size_t i = 0; is_valid && i < json_array_size(list); i++)
        is_valid = is_message(json_array_get(list, i));
    if (!is_valid) {
        json_decref(list);
        return error_set(err, LACE_E_JSON, "%s: expected a list of messages with role and content",
                         path);
    }
    *out = list;
    return LACE_OK;
}

static lace_status load(dialogue *d, const char *path, lace_error *err)
{
    json_t *list;
    if (!*path)
        return error_set(err, LACE_E_ARG, "/load needs a file: /load FILE");
    TRY(read_conversation(path, &list, err));
    json_decref(d->messages);
    d->messages = list;
    forget_stats(d);
    return chat_note(&d->out, err, "loaded %zu messages from %s", json_array_size(list), path);
}

/* An older conversation is replaced; anything else that exists is not. */
static lace_status check_replaceable(const char *path, lace_error *err)
{
    json_t *old;
    struct stat st;
    if (stat(path, &st) != 0)
        return LACE_OK;
    lace_status status = S_ISREG(st.st_mode) ? read_conversation(path, &old, NULL) : LACE_E_IO;
    if (status != LACE_OK)
        return error_set(err, LACE_E_ARG,
                         "%s exists and is not a conversation; give /save another name", path);
    json_decref(old);
    return LACE_OK;
}

static lace_status save(dialogue *d, const char *path, lace_error *err)
{
    if (!*path)
        return error_set(err, LACE_E_ARG, "/save needs a file: /save FILE");
    TRY(check_replaceable(path, err));
    char *dumped = json_dumps(d->messages, JSON_INDENT(1));
    if (!dumped)
        return error_nomem(err, "the conversation");
    file_writer *w;
    lace_status status = file_writer_create(path, &w, err);
    if (status == LACE_OK) {
        status = file_writer_write(w, dumped, strlen(dumped), err);
        if (status == LACE_OK)
            status = file_writer_write(w, "\n", 1, err);
        if (status == LACE_OK)
            status = file_writer_commit(w, err);
        else
            file_writer_abort(w);
    }
    free(dumped);
    if (status != LACE_OK)
        return status;
    return chat_note(&d->out, err, "saved %zu messages to %s", json_array_size(d->messages), path);
}

static double rate(size_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

static lace_status show_stats(dialogue *d, const char *value, lace_error *err)
{
    const chat_stats *s = &d->stats;
    lace_model_info info;
    int32_t n_context;
    char line[512];
    chat_describe(d->model, &info, &n_context);
    snprintf(
        line, sizeof line,
        "last answer: prompt %zu tokens (%zu of them cached), %.1f ms; generated %zu tokens, "
        "%.1f tok/s\nconversation: %zu answer%s, %zu tokens generated, %zu of %d tokens of the "
        "context used\n",
        s->n_prompt, s->n_reused, (double)s->prompt_ns / 1e6, s->n_generated,
        rate(s->n_generated, s->generate_ns), d->n_answers, d->n_answers == 1 ? "" : "s",
        d->n_tokens, s->n_used, n_context);
    return cli_write(line, strlen(line), err);
}

static lace_status regenerate(dialogue *d, const char *value, lace_error *err)
{
    size_t n = json_array_size(d->messages);
    if (n && strcmp(role_at(d, n - 1), "assistant") == 0)
        json_array_remove(d->messages, --n);
    if (n == 0 || strcmp(role_at(d, n - 1), "user") != 0)
        return error_set(err, LACE_E_ARG, "/regen: there is nothing to answer yet");
    return answer(d, err);
}

static lace_status quit(dialogue *d, const char *value, lace_error *err)
{
    return LACE_E_CANCELLED;
}

static lace_status help(dialogue *d, const char *value, lace_error *err);

static const struct command {
    const char *name, *value, *help;
    lace_status (*run)(dialogue *d, const char *value, lace_error *err);
} commands[] = {
    {"/system", "TEXT", "what the model is told about its task; without TEXT: nothing", set_system},
    {"/clear", "", "begin a new conversation; the system prompt stays", clear},
    {"/regen", "", "another answer to the last message", regenerate},
    {"/save", "FILE", "write the conversation as JSON", save},
    {"/load", "FILE", "go on with a conversation that was saved", load},
    {"/stats", "", "tokens and speed", show_stats},
    {"/help", "", "this list", help},
    {"/quit", "", "end; so does Ctrl-D", quit},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static lace_status help(dialogue *d, const char *value, lace_error *err)
{
    char line[256];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        snprintf(line, sizeof line, "  %-8s %-5s %s\n", commands[i].name, commands[i].value,
                 commands[i].help);
        TRY(cli_write(line, strlen(line), err));
    }
    static const char more[] = "A line that ends with \\ goes on; \"\"\" begins and ends several "
                               "lines.\nCtrl-C stops an answer.\n";
    return cli_write(more, strlen(more), err);
}

static lace_status run_command(dialogue *d, const char *line, lace_error *err)
{
    size_t n = strcspn(line, " ");
    const char *value = line + n + strspn(line + n, " ");
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, line, n) == 0)
            return commands[i].run(d, value, err);
    if (strcmp(line, "/bye") == 0 || strcmp(line, "/exit") == 0) /* Ollama's and llama.cpp's */
        return quit(d, value, err);
    return error_set(err, LACE_E_ARG, "unknown command %.*s (see: /help)", (int)(n < 40 ? n : 40),
                     line);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static lace_status greet(dialogue *d, lace_error *err)
{
    lace_model_info info;
    int32_t n_context;
    chat_describe(d->model, &info, &n_context);
    TRY(chat_note(&d->out, err, "%s, %s %s, context %d. /help shows the commands, Ctrl-D ends.",
                  info.name[0] ? info.name : "a model", info.architecture, info.type, n_context));
    if (!chat_uses_template(d->model))
        return chat_note(&d->out, err,
                         "It has no chat template, so it continues the text that you begin.");
    if (!chat_has_template(d->model))
        return chat_note(&d->out, err,
                         "It has no chat template, so ChatML is used; the model may not know it.");
    return LACE_OK;
}

static lace_status take_message(dialogue *d, const char *line, size_t n, lace_error *err)
{
    if (n == 0)
        return LACE_OK;
    if (line[0] == '/' && strcspn(line, " \n") < 16 && memchr(line, '\n', n) == NULL)
        return run_command(d, line, err);
    TRY(chat_add_message(d->messages, "user", line, n, err));
    lace_status status = answer(d, err);
    if (status != LACE_OK) /* as if it had not been asked */
        json_array_remove(d->messages, json_array_size(d->messages) - 1);
    return status;
}

/* Mistakes are told and the conversation goes on; at a pipe they end it. */
static lace_status converse(dialogue *d, lace_error *err)
{
    buf line;
    bool is_interrupted, was_interrupted = false;
    lace_status status = LACE_OK;
    buf_init(&line, CLI_MAX_TEXT);
    for (;;) {
        bool is_read = chat_input_read(d->input, &line, &is_interrupted);
        if (is_interrupted) {
            status = cli_write("\n", 1, err);
            if (status == LACE_OK && was_interrupted)
                status = chat_note(&d->out, err, "Ctrl-D or /quit ends");
            if (status != LACE_OK)
                break;
            was_interrupted = true;
            continue;
        }
        was_interrupted = false;
        if (!is_read)
            break;
        cli_stop = 0;
        status = take_message(d, line.data ? line.data : "", line.size, err);
        if (status == LACE_E_CANCELLED) { /* /quit */
            status = LACE_OK;
            break;
        }
        if (status != LACE_OK && d->out.is_terminal)
            status = chat_note(&d->out, err, "%s", err->text); /* fails if the terminal is gone */
        if (status != LACE_OK)
            break;
        if (!d->out.is_terminal && cli_stop) {
            status = LACE_E_CANCELLED;
            break;
        }
    }
    if (d->out.is_terminal)
        cli_write("\n", 1, err);
    buf_deinit(&line);
    return status;
}

static void catch_signals(const dialogue *d)
{
    /* No SA_RESTART: a read from the keyboard must end. */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    if (!d->out.is_terminal || tcgetattr(STDIN_FILENO, &terminal_before) != 0)
        return;
    last_words = d->out.has_colour ? CHAT_NORMAL "\n" : "\n";
    action.sa_handler = on_end;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* The conversation at a keyboard or a pipe. */
static lace_status hold_dialogue(dialogue *d, const char *system, lace_error *err)
{
    TRY(chat_input_create(&d->input, err));
    if (system)
        TRY(chat_add_message(d->messages, "system", system, strlen(system), err));
    TRY(greet(d, err));
    return converse(d, err);
}

/* -p and -f: one message. */
static lace_status ask_once(chat *t, const chat_args *a, lace_error *err)
{
    buf file;
    chat_stats stats;
    buf_init(&file, CLI_MAX_TEXT);
    lace_status status = a->file ? file_read(a->file, &file, err) : LACE_OK;
    if (file.size > 0 && file.data[file.size - 1] == '\n')
        file.size--;
    const char *message = a->prompt ? a->prompt : file.data ? file.data : "";
    if (status == LACE_OK)
        status =
            chat_ask(t, a->system, message, a->prompt ? strlen(a->prompt) : file.size, &stats, err);
    buf_deinit(&file);
    return status;
}

static lace_status chat_verb(const verb *v, int argc, char **argv, lace_error *err)
{
    chat_args a = {
        .chat = {.choose = choose_options_default(), .device = "auto", .max_tokens = CHAT_MAX_AUTO},
        .kv_type = LACE_KV_F16,
        .v_type = LACE_KV_SAME};
    positional words;
    TRY(args_parse(v, argc, argv, &a, &words, err));
    TRY(constraint_check(v, &a.chat.choose.constraint, err));
    if (a.prompt && a.file)
        return args_error(v, err, "-p and -f exclude each other");
    if (a.mode == CHAT_MODE_TEXT && a.chat.template_file)
        return args_error(v, err, "--mode text uses no template: it excludes --chat-template-file");
    a.chat.model = words.at[0];
    a.chat.mode = (chat_mode)a.mode;
    a.chat.thinking = (chat_thinking)a.thinking;
    a.chat.kv_type = (lace_kv_type)a.kv_type;
    a.chat.v_type = (lace_kv_type)a.v_type;
    bool is_single = a.prompt || a.file;
    dialogue d = {.messages = json_array()};
    chat_printer_init(&d.out, isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
    if (is_single)
        cli_catch_stop();
    else
        catch_signals(&d);
    lace_status status = d.messages ? LACE_OK : error_nomem(err, "messages");
    if (status == LACE_OK)
        status = chat_create(&a.chat, &d.model, err);
    if (status == LACE_OK)
        status = is_single ? ask_once(d.model, &a, err) : hold_dialogue(&d, a.system, err);
    chat_input_free(d.input);
    chat_free(d.model);
    json_decref(d.messages);
    chat_printer_deinit(&d.out);
    return status;
}

VERB(
    chat, "chat", "[MODEL] [options]", "chat with a model in the terminal", 0, 1,
    .description =
        "Answers as they come, with the model's own chat template. A model without one, like\n"
        "the small story teller inside the program, continues the text that you begin. Lines\n"
        "can be edited and are remembered; /help shows the commands. Ctrl-C stops an answer.\n"
        "When the context is full, the oldest turns are dropped, and a line says so. From a pipe,\n"
        "each line is a message and only the answers are printed; -p asks one question.\n",
    .examples = "  lace chat model.gguf\n"
                "  lace chat model.gguf --system \"You are brief.\" --temp 0.5\n"
                "  lace chat model.gguf -p \"Name three rivers.\" --json\n"
                "  lace chat model.gguf --think off --draft small.gguf\n")
