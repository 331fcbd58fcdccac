/*
 * lace chat: a conversation in the terminal.
 *
 *     chat.c          the verb: commands
 *     chat_print.c    what is printed, and one question asked alone
 *     chat_answer.c   from messages to an answer: template, writer, parser
 *     chat_input.c    lines from a keyboard or a pipe
 */
#ifndef LACE_CLI_CHAT_H
#define LACE_CLI_CHAT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "base/bytes.h"
#include "cli/choose.h"
#include "cli/word_wrap.h"

/* ---- Answers --------------------------------------------------------------------------------- */

typedef enum chat_mode {
    CHAT_MODE_AUTO, /* chat if the model has a template, else text */
    CHAT_MODE_CHAT, /* by the model's template, or ChatML if it has none */
    CHAT_MODE_TEXT, /* what was written so far is one text, and the answer goes on with it */
} chat_mode;

/* What the template is told about reasoning before the answer; the words of --think. */
typedef enum chat_thinking {
    CHAT_THINK_AUTO, /* nothing: as the model does by itself */
    CHAT_THINK_ON,
    CHAT_THINK_OFF,
    CHAT_THINK_LOW, /* these say how much */
    CHAT_THINK_MEDIUM,
    CHAT_THINK_HIGH,
} chat_thinking;
#define CHAT_THINK_WORDS "auto|on|off|low|medium|high"
#define CHAT_THINK_HELP                                                                            \
    "whether, or how much, it reasons before the answer, if its template has a switch for it"

#define CHAT_TAGS_HELP "print reasoning as the model writes it, not dimmed or left out"

enum { CHAT_MAX_AUTO = -2 };

typedef struct chat_options {
    const char *model;  /* NULL: the built-in one */
    lace_model *opened; /* in place of it, one that is open already (borrowed); default NULL */
    const char *device; /* lace_model_options */
    cli_ranks ranks;
    cli_place place;
    cli_loras loras; /* of a model that is opened here */
    chat_mode mode;
    const char *template_file; /* in place of the model's own, or NULL */
    chat_thinking thinking;
    choose_options choose; /* each answer adds one to the seed */
    int32_t max_tokens;    /* of an answer; -1: as many as the context takes; CHAT_MAX_AUTO:
                              -1 in a chat, 300 where a text is continued */
    int32_t n_context, n_threads;
    int32_t n_batch; /* tokens of a prompt computed together; 0 (default): as many as go */
    lace_kv_type kv_type, v_type;
    uint64_t memory_bytes;
    const char *activation_sparsity; /* thresholds, or NULL */
    bool use_mmap, keeps_reasoning;  /* the latter: do not split it off the answer */
    const char *mmproj; /* the vision tower, or NULL: what lies in or beside the model */
    const char *images; /* files, separated by commas, that go with the first message; or NULL */
} chat_options;

#define CHAT_IMAGE_HELP                                                                            \
    "an image (JPEG, PNG, WebP) that goes with the first message; several with commas"
#define CHAT_MMPROJ_HELP                                                                           \
    "the model's vision tower (default: in its directory, or the mmproj file beside it)"

typedef struct chat chat;

lace_status chat_create(const chat_options *options, chat **out, lace_error *err);
void chat_free(chat *t);

bool chat_uses_template(const chat *t);
bool chat_has_template(const chat *t); /* of its own, or from a file; else a chat uses ChatML */
void chat_describe(const chat *t, lace_model_info *info, int32_t *n_context);

#define CHAT_CUT "cut; -n says how long" /* an answer had max_tokens */

/* What an answer took. */
typedef struct chat_stats {
    size_t n_prompt, n_reused, n_generated; /* tokens; those reused were in the cache */
    size_t n_used;                          /* of the context, when it had ended */
    uint64_t prompt_ns, generate_ns;        /* without what packing the weights took: */
    uint64_t packing_ns;
    const char *end; /* "stopped", "context full", CHAT_CUT; NULL: it ended by itself */
} chat_stats;

/* A piece of the answer, or of the reasoning before it. */
typedef lace_status (*chat_sink)(void *user, bool is_reasoning, text piece, lace_error *err);

/*
 * Answer messages in OpenAI's form, the last of them the user's. What is in the KV cache from the
 * answer before is used again. The model does not see the first *n_dropped messages behind the
 * system's; where the context is full, the number grows by whole turns. Ends early, with LACE_OK,
 * when *stop becomes nonzero. LACE_E_CONTEXT if the last message alone is too long.
 */
lace_status chat_answer(chat *t, const json_t *messages, size_t *n_dropped, chat_sink sink,
                        void *user, const volatile int *stop, chat_stats *stats, lace_error *err);

/* Append how many guesses of all answers were right to a line; nothing without guesses. */
void chat_append_counts(const chat *t, char *line, size_t size);

/* ---- Printing -------------------------------------------------------------------------------- */

/* Where answers and notes go. */
typedef struct chat_printer {
    buf content, clean; /* the answer so far; a piece of it made safe for a terminal */
    buf lines;          /* the same, in lines that end between words */
    word_wrap wrap;
    bool is_terminal;  /* notes are for people */
    bool has_colour;   /* and so are colours */
    bool is_reasoning; /* is being printed */
    char last_byte;    /* printed */
} chat_printer;

#define CHAT_NORMAL "\033[0m"

/* For a person (or the pipe) at standard output. */
void chat_printer_init(chat_printer *p, bool is_terminal);
void chat_printer_deinit(chat_printer *p);

/* A line for people, dimmed; nothing if there is no terminal. */
__attribute__((format(printf, 3, 4))) lace_status chat_note(chat_printer *p, lace_error *err,
                                                            const char *format, ...);

/* Answer, and print it: pieces as they come, a last line end, and why it ended. */
lace_status chat_print_answer(chat_printer *p, chat *t, const json_t *messages, size_t *n_dropped,
                              chat_stats *stats, lace_error *err);

/*
 * One message, alone or behind a system prompt (may be NULL): print the answer. LACE_E_CANCELLED
 * if it was stopped.
 */
lace_status chat_ask(chat *t, const char *system, const char *message, size_t n_bytes,
                     chat_stats *stats, lace_error *err);

/* A message for a list of them. */
lace_status chat_add_message(json_t *messages, const char *role, const char *content, size_t n,
                             lace_error *err);

/* ---- Input ----------------------------------------------------------------------------------- */

typedef struct chat_input chat_input;

lace_status chat_input_create(chat_input **out, lace_error *err);
void chat_input_free(chat_input *in);

/*
 * The next message: a line; or several, each but the last ended by a backslash; or those between
 * two lines of """. False at the end. *is_interrupted: Ctrl-C, and no message.
 */
bool chat_input_read(chat_input *in, buf *out, bool *is_interrupted);

#endif
