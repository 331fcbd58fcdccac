/*
 * From messages to an answer: the model's template makes a prompt of them, a writer continues it
 * (what is known of it from earlier answers is not computed again), and what the model writes is
 * split into reasoning and answer as it comes. Where the context is full, the oldest turns are left
 * out, and the rest is computed anew, with what is written of the answer.
 */
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/chat.h"
#include "cli/writer.h"

enum {
    N_CONTINUED = 300,
    MAX_TEMPLATE = 1 << 20,     /* bytes of a file */
    MAX_IMAGE_BYTES = 64 << 20, /* likewise */
    CHAT_MAX_IMAGES = 16,
};

static const char CONTEXT_FULL[] = "context full";

struct chat {
    chat_options options;
    lace_model *model;
    lace_model_info info;
    writer writer;
    chat_template *template; /* NULL: the text is continued */
    json_t *kwargs;          /* further variables of the template, or NULL */
    int32_t n_context;
    lace_tower *tower; /* NULL: it sees nothing */
    lace_image *images[CHAT_MAX_IMAGES];
    size_t n_images;
    lace_token *written; /* [n_context] the answer under way, n_written tokens */
    size_t n_written;
    uint64_t n_answers;
};

/* ---- Life ------------------------------------------------------------------------------------ */

/* The name of a token that templates may write, or "". */
static text token_text(const lace_model *model, lace_token token)
{
    text t = {"", 0};
    if (token >= 0)
        t.data = lace_token_bytes(model, token, &t.size);
    return t;
}

static lace_status create_writer(chat *t, const lace_model_options *model_options, lace_error *err)
{
    lace_session_options o = lace_session_options_default();
    o.n_context = t->n_context;
    o.n_batch = t->options.n_batch;
    o.n_threads = t->options.n_threads;
    o.kv_type = t->options.kv_type;
    o.v_type = t->options.v_type;
    o.memory_bytes = t->options.memory_bytes;
    o.tower = t->tower;
    return writer_init(&t->writer, &t->options.choose, t->model, model_options, &o, true, err);
}

/* Templates have no common word for it; one that has none cannot do it, and says so. */
static lace_status set_thinking(chat *t, const char *source, lace_error *err)
{
    static const char *const efforts[] = {
        [CHAT_THINK_LOW] = "low", [CHAT_THINK_MEDIUM] = "medium", [CHAT_THINK_HIGH] = "high"};
    chat_thinking how = t->options.thinking;
    if (how == CHAT_THINK_AUTO)
        return LACE_OK;
    bool is_effort = how != CHAT_THINK_ON && how != CHAT_THINK_OFF;
    static const char *const switches[] = {"enable_thinking", "thinking"};
    bool is_known = false;
    t->kwargs = json_object();
    for (int i = 0; i < 2; i++)
        if (strstr(source, switches[i])) {
            json_object_set_new(t->kwargs, switches[i], json_boolean(how != CHAT_THINK_OFF));
            is_known |= !is_effort;
        }
    if (is_effort && strstr(source, "reasoning_effort")) {
        json_object_set_new(t->kwargs, "reasoning_effort", json_string(efforts[how]));
        is_known = true;
    }
    if (!t->kwargs)
        return error_nomem(err, "a template");
    return is_known
               ? LACE_OK
               : error_set(err, LACE_E_ARG,
                           "--think: the chat template of this model has no switch for reasoning");
}

static lace_status open_template(chat *t, lace_error *err)
{
    const chat_options *o = &t->options;
    buf file;
    buf_init(&file, MAX_TEMPLATE);
    lace_status status = LACE_OK;
    if (o->template_file)
        status = file_read(o->template_file, &file, err);
    if (status == LACE_OK && buf_append(&file, "", 1) != LACE_OK)
        status = error_nomem(err, "a template");
    const char *source = o->template_file ? file.data : t->info.chat_template;
    if (status == LACE_OK)
        status = chat_template_create(text_of(source), token_text(t->model, t->info.bos),
                                      token_text(t->model, t->info.eos), &t->template, err);
    if (status != LACE_OK && o->template_file && t->template == NULL && file.size > 1)
        error_prefix(err, status, o->template_file);
    if (status == LACE_OK)
        status = set_thinking(t, source, err);
    buf_deinit(&file);
    return status;
}

static lace_status read_image(chat *t, const char *path, lace_error *err)
{
    buf bytes;
    if (t->n_images == CHAT_MAX_IMAGES)
        return error_set(err, LACE_E_ARG, "--image: more than %d images", CHAT_MAX_IMAGES);
    buf_init(&bytes, MAX_IMAGE_BYTES);
    lace_status status = file_read(path, &bytes, err);
    if (status == LACE_OK) {
        status = lace_image_create(t->tower, bytes.data, bytes.size, &t->images[t->n_images], err);
        if (status == LACE_OK)
            t->n_images++;
        else
            error_prefix(err, status, path);
    }
    buf_deinit(&bytes);
    return status;
}

/* The vision tower and the images, if there are images. */
static lace_status open_images(chat *t, lace_error *err)
{
    const chat_options *o = &t->options;
    lace_tower_options options = lace_tower_options_default();
    if (!o->images)
        return LACE_OK;
    if (!t->template)
        return error_set(err, LACE_E_ARG,
                         "--image: the model has no chat template, which says "
                         "where images stand");
    options.n_threads = o->n_threads;
    TRY(cli_open_tower(t->model, o->mmproj, options, t->n_context, &t->tower, err));
    lace_status status = LACE_OK;
    for (const char *at = o->images; *at && status == LACE_OK;) {
        size_t n = strcspn(at, ",");
        char *path = mem_strndup(at, n);
        status = path ? read_image(t, path, err) : error_nomem(err, "images");
        mem_free(path);
        at += n + (at[n] == ',');
    }
    return status;
}

static lace_status open_chat(chat *t, lace_error *err)
{
    const chat_options *o = &t->options;
    lace_model_options model_options = lace_model_options_default();
    model_options.use_mmap = o->use_mmap;
    model_options.packs_later = true;
    model_options.device = o->device;
    cli_use_ranks(&t->options.ranks, &model_options);
    TRY(cli_use_place(&t->options.place, o->n_context, &model_options, err));
    model_options.activation_sparsity = o->activation_sparsity;
    model_options.use_mtp = o->choose.mtp;
    t->model = o->opened;
    if (!t->model)
        TRY(cli_open_model(o->model, &model_options, &t->model, err));
    if (!o->opened)
        TRY(cli_add_loras(t->model, &o->loras, err));
    lace_model_describe(t->model, &t->info);
    t->n_context = o->n_context;
    if (t->n_context == 0)
        t->n_context = t->info.n_context < 4096 ? t->info.n_context : 4096;
    t->written = mem_calloc((size_t)t->n_context, sizeof *t->written);
    if (!t->written)
        return error_nomem(err, "tokens");
    bool has_template = t->info.chat_template[0] || o->template_file;
    if (o->mode == CHAT_MODE_CHAT || (o->mode == CHAT_MODE_AUTO && has_template))
        TRY(open_template(t, err));
    else if (o->thinking != CHAT_THINK_AUTO)
        return error_set(err, LACE_E_ARG,
                         "--think: the model has no chat template, so it cannot be told");
    if (o->max_tokens == CHAT_MAX_AUTO)
        t->options.max_tokens = t->template ? -1 : N_CONTINUED;
    TRY(open_images(t, err));
    return create_writer(t, &model_options, err);
}

lace_status chat_create(const chat_options *options, chat **out, lace_error *err)
{
    *out = NULL;
    chat *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a conversation");
    t->options = *options;
    lace_status status = open_chat(t, err);
    return GIVE_OR_FREE(status, t, out, chat_free);
}

void chat_free(chat *t)
{
    if (!t)
        return;
    writer_deinit(&t->writer);
    for (size_t i = 0; i < t->n_images; i++)
        lace_image_free(t->images[i]);
    lace_tower_close(t->tower);
    chat_template_free(t->template);
    json_decref(t->kwargs);
    mem_free(t->written);
    if (!t->options.opened)
        lace_model_close(t->model);
    mem_free(t);
}

bool chat_uses_template(const chat *t)
{
    return t->template != NULL;
}

bool chat_has_template(const chat *t)
{
    return t->template && chat_template_caps(t->template)->has_own_template;
}

void chat_describe(const chat *t, lace_model_info *info, int32_t *n_context)
{
    *info = t->info;
    *n_context = t->n_context;
}

/* ---- Prompt ---------------------------------------------------------------------------------- */

/* One text: what the user adds is a new paragraph, what the model adds goes on where it ended. */
static lace_status join_messages(const json_t *messages, buf *out)
{
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        const json_t *content = json_object_get(message, "content");
        bool is_answer = role && strcmp(role, "assistant") == 0;
        char last = out->size ? out->data[out->size - 1] : '\n';
        if (!is_answer && last != '\n')
            TRY(buf_append_text(out, "\n\n"));
        TRY(buf_append(out, json_string_value(content) ? json_string_value(content) : "",
                       json_string_length(content)));
    }
    return LACE_OK;
}

static lace_status make_prompt(const chat *t, const json_t *messages, chat_prompt *out,
                               lace_error *err)
{
    if (!t->template) {
        lace_status status = join_messages(messages, &out->chars);
        return status == LACE_OK ? status : error_set(err, status, "the text is too long");
    }
    chat_request request = chat_request_default();
    request.messages = messages;
    request.kwargs = t->kwargs;
    request.gives_date = true;
    request.now = clock_wall_seconds();
    return chat_template_prompt(t->template, &request, out, err);
}

/* Images go with the first message that is asked; whoever clears the conversation asks anew. */
static bool has_images(const json_t *messages)
{
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        if (json_is_array(json_object_get(message, "content")))
            return true;
    }
    return false;
}

static lace_status attach_images(const chat *t, const json_t *messages, lace_error *err)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1), *parts = NULL;
    json_t *content = json_object_get(last, "content");
    if (t->n_images == 0 || has_images(messages))
        return LACE_OK;
    parts = json_array();
    for (size_t i = 0; parts && i < t->n_images; i++)
        json_array_append_new(parts, json_pack("{s:s}", "type", "image"));
    if (parts &&
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content)) ==
            0 &&
        json_object_set_new(last, "content", parts) == 0)
        return LACE_OK;
    return error_nomem(err, "messages");
}

/* The rows of the images into a prompt that has places for them. */
static lace_status place_images(const chat *t, lace_token **tokens, size_t *n, lace_error *err)
{
    size_t capacity = *n, n_out = 0;
    for (size_t i = 0; i < t->n_images; i++)
        capacity += lace_image_n_tokens(t->images[i]) + 2;
    lace_token *whole = mem_calloc(capacity, sizeof *whole);
    if (!whole)
        return error_nomem(err, "tokens");
    lace_status status = lace_tower_place(t->tower, *tokens, *n, t->images, t->n_images, whole,
                                          capacity, &n_out, err);
    mem_free(*tokens);
    *tokens = whole;
    *n = n_out;
    return status;
}

/* A template writes the special tokens itself; a plain text gets them from the tokenizer. */
static lace_status tokenize(const chat *t, const chat_prompt *prompt, lace_token **tokens,
                            size_t *n, lace_error *err)
{
    const buf *chars = &prompt->chars;
    unsigned flags = t->template ? LACE_TOKENIZE_PARSE_SPECIAL : LACE_TOKENIZE_ADD_SPECIAL;
    TRY(cli_tokenize_contents(t->model, chars->data ? chars->data : "", chars->size,
                              prompt->contents, prompt->n_contents, flags, tokens, n, err));
    if (*n == 0 && t->info.bos >= 0)
        (*tokens)[(*n)++] = t->info.bos; /* cli_tokenize leaves room for two */
    if (*n == 0)
        return error_set(err, LACE_E_ARG, "there is nothing to answer");
    return LACE_OK;
}

static bool has_role(const json_t *messages, size_t i, const char *role)
{
    const char *found = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return found && strcmp(found, role) == 0;
}

/* The prompt of the messages without the first n_dropped of them that are not the system's. */
static lace_status make_tokens(const chat *t, const json_t *messages, size_t n_dropped,
                               chat_prompt *prompt, lace_token **tokens, size_t *n, lace_error *err)
{
    json_t *seen = json_copy((json_t *)messages);
    if (!seen)
        return error_nomem(err, "messages");
    size_t n_system = has_role(messages, 0, "system");
    for (size_t i = 0; i < n_dropped; i++)
        json_array_remove(seen, n_system);
    chat_prompt_deinit(prompt);
    chat_prompt_init(prompt, CLI_MAX_TEXT);
    lace_status status = make_prompt(t, seen, prompt, err);
    bool shows_images = has_images(seen);
    json_decref(seen);
    if (status == LACE_OK)
        status = tokenize(t, prompt, tokens, n, err);
    return status == LACE_OK && shows_images ? place_images(t, tokens, n, err) : status;
}

/* Drop the oldest turn, up to the next message of the user. False if that is the only one. */
static bool drop_turn(const json_t *messages, size_t *n_dropped)
{
    size_t n_system = has_role(messages, 0, "system"), i = n_system + *n_dropped + 1;
    while (i < json_array_size(messages) && !has_role(messages, i, "user"))
        i++;
    if (i >= json_array_size(messages))
        return false;
    *n_dropped = i - n_system;
    return true;
}

/*
 * The prompt, with room for what is written of the answer and a token more. If it does not fit, the
 * oldest turns go, until a quarter of the context is free: the next messages then find room.
 */
static lace_status fit_prompt(const chat *t, const json_t *messages, size_t *n_dropped,
                              chat_prompt *prompt, lace_token **tokens, size_t *n, lace_error *err)
{
    const size_t room = (size_t)t->n_context / 4 * 3;
    size_t most = t->n_written ? room : (size_t)t->n_context - 1;
    for (;;) {
        mem_free(*tokens);
        *tokens = NULL;
        TRY(make_tokens(t, messages, *n_dropped, prompt, tokens, n, err));
        if (*n + t->n_written <= most)
            return LACE_OK;
        most = room;
        if (!drop_turn(messages, n_dropped))
            break;
    }
    if (*n + t->n_written < (size_t)t->n_context)
        return LACE_OK;
    return error_set(err, LACE_E_CONTEXT,
                     "the conversation has %zu tokens, the context %d: send a shorter message, or "
                     "use a longer context (-c)",
                     *n, t->n_context);
}

/* ---- Answer ---------------------------------------------------------------------------------- */

/* Where pieces go, through the parser of replies. */
typedef struct route {
    chat_sink sink;
    void *user;
    lace_error *err;
} route;

static lace_status on_reply(void *arg, const reply_event *event)
{
    route *r = arg;
    if (event->kind != REPLY_CONTENT && event->kind != REPLY_REASONING)
        return LACE_OK;
    return r->sink(r->user, event->kind == REPLY_REASONING, event->chars, r->err);
}

typedef struct answer {
    reply_parser *parser; /* NULL: the text is continued */
    route to;
} answer;

static lace_status begin_answer(chat *t, answer *a, const buf *prompt, lace_error *err)
{
    if (!t->template)
        return LACE_OK;
    const reply_format *format = chat_template_reply_format(t->template);
    reply_options options = {
        .keeps_calls = true,
        .keeps_thinking = t->options.keeps_reasoning,
        .is_thinking = !t->writer.form && /* a form holds from the first token */
                       reply_opens_thinking(format, (text){prompt->data, prompt->size}),
    };
    return reply_parser_create(format, &options, on_reply, &a->to, &a->parser, err);
}

static lace_status give(answer *a, text piece, lace_error *err)
{
    if (piece.size == 0)
        return LACE_OK;
    return a->parser ? reply_parser_feed(a->parser, piece, err)
                     : a->to.sink(a->to.user, false, piece, err);
}

/* A conversation on its way to an answer. */
typedef struct question {
    const json_t *messages;
    size_t n_dropped;
    chat_prompt prompt;
    lace_token *tokens; /* [n_tokens] of the prompt, and what is written */
    size_t n_tokens;
} question;

/* The prompt, and behind it what is written of the answer. */
static lace_status fit_question(chat *t, question *q, lace_error *err)
{
    TRY(fit_prompt(t, q->messages, &q->n_dropped, &q->prompt, &q->tokens, &q->n_tokens, err));
    if (t->n_written == 0)
        return LACE_OK;
    lace_token *both = mem_calloc(q->n_tokens + t->n_written, sizeof *both);
    if (!both)
        return error_nomem(err, "tokens");
    memcpy(both, q->tokens, q->n_tokens * sizeof *both);
    memcpy(both + q->n_tokens, t->written, t->n_written * sizeof *both);
    mem_free(q->tokens);
    q->tokens = both;
    q->n_tokens += t->n_written;
    return LACE_OK;
}

/* Whether rows of images are among the tokens: turns may have been dropped. */
static bool shows_row(const lace_token *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0)
            return true;
    return false;
}

/* An answer on its way. */
typedef struct answering {
    chat *t;
    question *q;
    answer *a;
    const volatile int *stop;
    lace_status status; /* of an exchange of the context */
    lace_error *err;
} answering;

static lace_status on_piece(void *user, lace_token token, text piece, lace_error *err)
{
    answering *x = user;
    if (token >= 0) /* there is room: the context has one for each of them */
        x->t->written[x->t->n_written++] = token;
    return give(x->a, piece, err);
}

/* The context is full in the middle of an answer: go on without the oldest turns, if there are. */
static size_t on_full(void *user, const lace_token **tokens)
{
    answering *x = user;
    question *q = x->q;
    size_t n_before = q->n_dropped;
    if (*x->stop || !drop_turn(q->messages, &q->n_dropped))
        return 0;
    lace_status status = fit_question(x->t, q, x->err);
    if (status == LACE_E_CONTEXT) /* the last message and the answer fill it by themselves */
        q->n_dropped = n_before;
    else
        x->status = status;
    *tokens = q->tokens;
    return status == LACE_OK ? q->n_tokens : 0;
}

static const char *name_end(const chat *t, writer_end end)
{
    if (end == WRITER_FULL)
        return CONTEXT_FULL;
    return end == WRITER_CUT && t->options.max_tokens != 0 ? CHAT_CUT : NULL;
}

static lace_status answer_question(chat *t, question *q, answer *a, const volatile int *stop,
                                   chat_stats *stats, lace_error *err)
{
    uint64_t begin = clock_ns();
    answering x = {t, q, a, stop, LACE_OK, err};
    writer_report report;
    TRY(attach_images(t, q->messages, err));
    TRY(fit_question(t, q, err));
    bool shows_images = shows_row(q->tokens, q->n_tokens);
    TRY(begin_answer(t, a, &q->prompt.chars, err));
    writer_order order = {.prompt = q->tokens,
                          .n_prompt = q->n_tokens,
                          .images = t->images,
                          .n_images = shows_images ? t->n_images : 0,
                          .seed = t->options.choose.sampler.seed + t->n_answers,
                          .max_tokens = t->options.max_tokens,
                          .stop = stop,
                          .on_piece = on_piece,
                          .on_full = on_full,
                          .user = &x};
    stats->n_prompt = q->n_tokens;
    stats->prompt_ns = clock_ns() - begin;
    TRY(writer_write(&t->writer, &order, &report, err));
    TRY(x.status);
    t->n_answers += report.is_read;
    stats->n_reused = report.n_cached;
    stats->n_generated = report.n_generated;
    stats->n_used = report.n_used < (size_t)t->n_context ? report.n_used : (size_t)t->n_context;
    stats->prompt_ns += report.prompt_ns;
    stats->generate_ns = report.generate_ns;
    stats->packing_ns = report.packing_ns;
    stats->end = *stop ? "stopped" : name_end(t, report.end);
    return a->parser ? reply_parser_finish(a->parser, err) : LACE_OK;
}

lace_status chat_answer(chat *t, const json_t *messages, size_t *n_dropped, chat_sink sink,
                        void *user, const volatile int *stop, chat_stats *stats, lace_error *err)
{
    answer a = {.to = {sink, user, err}};
    question q = {.messages = messages, .n_dropped = *n_dropped};
    *stats = (chat_stats){.n_prompt = 0};
    t->n_written = 0;
    chat_prompt_init(&q.prompt, CLI_MAX_TEXT);
    lace_status status = answer_question(t, &q, &a, stop, stats, err);
    if (status == LACE_OK)
        *n_dropped = q.n_dropped;
    reply_parser_free(a.parser);
    mem_free(q.tokens);
    chat_prompt_deinit(&q.prompt);
    return status;
}

void chat_append_counts(const chat *t, char *line, size_t size)
{
    writer_append_counts(&t->writer, line, size);
}
