/* What lace chat prints: answers as they come, reasoning apart from them, and notes for people. */
#define _DEFAULT_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/chat.h"
#include "cli/terminal.h"

#define DIM "\033[2m"

void chat_printer_init(chat_printer *p, bool is_terminal)
{
    *p = (chat_printer){.is_terminal = is_terminal,
                        .has_colour = is_terminal && terminal_has_colour(STDOUT_FILENO)};
    buf_init(&p->content, CLI_MAX_TEXT);
    buf_init(&p->clean, CLI_MAX_TEXT);
    buf_init(&p->lines, CLI_MAX_TEXT);
    word_wrap_init(&p->wrap, 0);
}

void chat_printer_deinit(chat_printer *p)
{
    buf_deinit(&p->content);
    buf_deinit(&p->clean);
    buf_deinit(&p->lines);
    word_wrap_deinit(&p->wrap);
}

static lace_status print(chat_printer *p, const char *chars, size_t n, lace_error *err)
{
    if (n == 0)
        return LACE_OK;
    p->last_byte = chars[n - 1];
    return cli_write(chars, n, err);
}

/* What a terminal obeys; nothing where no colours are wanted. */
static lace_status print_code(const chat_printer *p, const char *code, lace_error *err)
{
    return p->has_colour ? cli_write(code, strlen(code), err) : LACE_OK;
}

lace_status chat_note(chat_printer *p, lace_error *err, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!p->is_terminal)
        return LACE_OK;
    p->clean.size = 0; /* names of models and files may hold what a terminal obeys */
    if (cli_append_clean(&p->clean, line, strlen(line)) != LACE_OK)
        return error_nomem(err, "a line");
    TRY(print_code(p, DIM, err));
    TRY(cli_write(p->clean.data, p->clean.size, err));
    TRY(print_code(p, CHAT_NORMAL, err));
    return cli_write("\n", 1, err);
}

/* Text of a model must not steer the terminal: line ends and tabs stay, other controls do not. */
static lace_status make_safe(buf *out, text piece)
{
    buf_clear(out);
    for (size_t i = 0; i < piece.size;) {
        size_t n = 0;
        while (i + n < piece.size && piece.data[i + n] != '\n' && piece.data[i + n] != '\t')
            n++;
        TRY(cli_append_clean(out, piece.data + i, n));
        i += n;
        if (i < piece.size)
            TRY(buf_append(out, piece.data + i++, 1));
    }
    return LACE_OK;
}

/* The word that is held back. */
static lace_status print_rest(chat_printer *p, lace_error *err)
{
    buf_clear(&p->lines);
    if (word_wrap_end(&p->wrap, &p->lines) != LACE_OK)
        return error_nomem(err, "the answer");
    return print(p, p->lines.data, p->lines.size, err);
}

/* Reasoning is dimmed, or stands between two lines where there are no colours. */
static lace_status set_reasoning(chat_printer *p, bool is_reasoning, lace_error *err)
{
    if (p->is_reasoning == is_reasoning)
        return LACE_OK;
    TRY(print_rest(p, err));
    p->is_reasoning = is_reasoning;
    if (is_reasoning)
        return p->has_colour ? print_code(p, DIM, err) : print(p, "[reasoning]\n", 12, err);
    TRY(print_code(p, CHAT_NORMAL, err));
    if (p->last_byte != '\n')
        TRY(print(p, "\n\n", 2, err));
    return p->has_colour ? LACE_OK : print(p, "[answer]\n", 9, err);
}

static lace_status on_piece(void *user, bool is_reasoning, text piece, lace_error *err)
{
    chat_printer *p = user;
    if (!is_reasoning && buf_append(&p->content, piece.data, piece.size) != LACE_OK)
        return error_nomem(err, "the answer");
    if (!p->is_terminal) /* the answer itself, as it is */
        return is_reasoning ? LACE_OK : print(p, piece.data, piece.size, err);
    TRY(set_reasoning(p, is_reasoning, err));
    buf_clear(&p->lines);
    if (make_safe(&p->clean, piece) != LACE_OK ||
        word_wrap_push(&p->wrap, p->clean.data, p->clean.size, &p->lines) != LACE_OK)
        return error_nomem(err, "the answer");
    return print(p, p->lines.data, p->lines.size, err);
}

/* Whoever reads the answer must know that the model has forgotten; in a pipe, on the other one. */
static lace_status tell_of_dropped(chat_printer *p, size_t n, lace_error *err)
{
    if (p->is_terminal)
        return chat_note(p, err, "[the context is full: %zu older message%s dropped]", n,
                         n == 1 ? " was" : "s were");
    fprintf(stderr,
            "lace: the context is full: %zu older message%s dropped (-c N makes it longer)\n", n,
            n == 1 ? " was" : "s were");
    return LACE_OK;
}

lace_status chat_print_answer(chat_printer *p, chat *t, const json_t *messages, size_t *n_dropped,
                              chat_stats *stats, lace_error *err)
{
    size_t n_before = *n_dropped;
    lace_error ignored;
    buf_clear(&p->content);
    p->last_byte = '\n';
    if (p->is_terminal && terminal_can_draw(STDOUT_FILENO))
        p->wrap.n_columns = terminal_columns(STDOUT_FILENO);
    lace_status status = chat_answer(t, messages, n_dropped, on_piece, p, &cli_stop, stats, err);
    if (status == LACE_OK)
        status = print_rest(p, err);
    else
        print_rest(p, &ignored);
    if (p->is_reasoning) { /* it was cut in the middle of it */
        p->is_reasoning = false;
        print_code(p, CHAT_NORMAL, &ignored);
    }
    if (p->last_byte != '\n' && print(p, "\n", 1, &ignored) != LACE_OK && status == LACE_OK)
        return error_set(err, LACE_E_IO, "%s", ignored.text);
    TRY(status);
    if (stats->end)
        TRY(chat_note(p, err, "[%s]", stats->end));
    return *n_dropped > n_before ? tell_of_dropped(p, *n_dropped - n_before, err) : LACE_OK;
}

lace_status chat_add_message(json_t *messages, const char *role, const char *content, size_t n,
                             lace_error *err)
{
    json_t *chars = json_stringn(content, n);
    if (!chars) /* not UTF-8, or no memory */
        return error_set(err, LACE_E_UTF8, "the message is not UTF-8");
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", chars);
    if (!message || json_array_append_new(messages, message) != 0)
        return error_nomem(err, "a message");
    return LACE_OK;
}

lace_status chat_ask(chat *t, const char *system, const char *message, size_t n_bytes,
                     chat_stats *stats, lace_error *err)
{
    chat_printer p;
    size_t n_dropped = 0;
    json_t *messages = json_array();
    chat_printer_init(&p, isatty(STDOUT_FILENO));
    lace_status status = messages ? LACE_OK : error_nomem(err, "messages");
    if (status == LACE_OK && system)
        status = chat_add_message(messages, "system", system, strlen(system), err);
    if (status == LACE_OK)
        status = chat_add_message(messages, "user", message, n_bytes, err);
    if (status == LACE_OK)
        status = chat_print_answer(&p, t, messages, &n_dropped, stats, err);
    json_decref(messages);
    chat_printer_deinit(&p);
    return status == LACE_OK && cli_stop ? LACE_E_CANCELLED : status;
}
