/*
 * From messages to an answer: the model's template makes a prompt of them, the part of it that the
 * session holds already is kept, the rest is computed, and what the model writes is split into
 * reasoning and answer as it comes.
 */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/talk.h"

enum { N_CONTINUED = 300 };

struct talk {
    talk_options options;
    lace_model *model;
    lace_model_info info;
    lace_session *session;
    chat_template *chat; /* NULL: the text is continued */
    int32_t n_context;
    lace_token *held; /* [n_context] what is in the session; its length is the session's */
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

static lace_status create_session(talk *t, lace_error *err)
{
    progress bar;
    progress_init(&bar, &cli_stop);
    lace_session_options o = lace_session_options_default();
    o.n_context = t->n_context;
    o.n_threads = t->options.n_threads;
    o.kv_type = t->options.kv_type;
    o.memory_bytes = t->options.memory_bytes;
    o.on_progress = progress_report;
    o.progress_user = &bar;
    lace_status status = lace_session_create(t->model, &o, &t->session, err);
    progress_end(&bar);
    return status;
}

static lace_status open_talk(talk *t, lace_error *err)
{
    const talk_options *o = &t->options;
    lace_model_options model_options = lace_model_options_default();
    model_options.use_mmap = o->use_mmap;
    model_options.packs_later = true;
    model_options.device = o->device;
    model_options.activation_sparsity = o->activation_sparsity;
    TRY(cli_open_model(o->model, &model_options, &t->model, err));
    lace_model_describe(t->model, &t->info);
    t->n_context = o->n_context;
    if (t->n_context == 0)
        t->n_context = t->info.n_context < 4096 ? t->info.n_context : 4096;
    t->held = mem_calloc((size_t)t->n_context, sizeof *t->held);
    if (!t->held)
        return error_nomem(err, "tokens");
    if (o->mode == TALK_CHAT || (o->mode == TALK_AUTO && t->info.chat_template[0]))
        TRY(chat_template_create(text_of(t->info.chat_template), token_text(t->model, t->info.bos),
                                 token_text(t->model, t->info.eos), &t->chat, err));
    if (o->max_tokens == 0)
        t->options.max_tokens = t->chat ? -1 : N_CONTINUED;
    return create_session(t, err);
}

lace_status talk_create(const talk_options *options, talk **out, lace_error *err)
{
    *out = NULL;
    talk *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "a conversation");
    t->options = *options;
    lace_status status = open_talk(t, err);
    if (status != LACE_OK) {
        talk_free(t);
        return status;
    }
    *out = t;
    return LACE_OK;
}

void talk_free(talk *t)
{
    if (!t)
        return;
    lace_session_free(t->session);
    chat_template_free(t->chat);
    mem_free(t->held);
    lace_model_close(t->model);
    mem_free(t);
}

bool talk_is_chat(const talk *t)
{
    return t->chat != NULL;
}

void talk_describe(const talk *t, lace_model_info *info, int32_t *n_context)
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

static lace_status make_prompt(const talk *t, const json_t *messages, buf *out, lace_error *err)
{
    if (!t->chat) {
        lace_status status = join_messages(messages, out);
        return status == LACE_OK ? status : error_set(err, status, "the text is too long");
    }
    chat_request request = chat_request_default();
    time_t now = time(NULL);
    request.messages = messages;
    request.now = (int64_t)now;
    return chat_template_render(t->chat, &request, out, err);
}

/* A template writes the special tokens itself; a plain text gets them from the tokenizer. */
static lace_status tokenize(const talk *t, const buf *prompt, lace_token **tokens, size_t *n,
                            lace_error *err)
{
    unsigned flags = t->chat ? LACE_TOKENIZE_PARSE_SPECIAL : LACE_TOKENIZE_ADD_SPECIAL;
    TRY(cli_tokenize(t->model, prompt->data ? prompt->data : "", prompt->size, flags, tokens, n,
                     err));
    if (*n == 0 && t->info.bos >= 0)
        (*tokens)[(*n)++] = t->info.bos; /* cli_tokenize leaves room for two */
    if (*n == 0)
        return error_set(err, LACE_E_ARG, "there is nothing to answer");
    if (*n >= (size_t)t->n_context)
        return error_set(
            err, LACE_E_CONTEXT,
            "the conversation has %zu tokens, the context %d: /clear begins a new one, "
            "-c makes it longer",
            *n, t->n_context);
    return LACE_OK;
}

/* Let the session hold what it shares with the prompt, but for the last token. */
static lace_status keep_common(talk *t, const lace_token *tokens, size_t n, size_t *n_kept,
                               lace_error *err)
{
    size_t n_held = (size_t)lace_session_length(t->session, 0), i = 0;
    while (i < n_held && i + 1 < n && t->held[i] == tokens[i])
        i++;
    lace_status status = lace_session_truncate(t->session, 0, (int32_t)i, err);
    if (status == LACE_E_UNSUPPORTED) { /* layers with a window cannot go back so far */
        i = 0;
        status = lace_session_truncate(t->session, 0, 0, err);
    }
    *n_kept = i;
    return status;
}

static lace_status eval_prompt(talk *t, const lace_token *tokens, size_t from, size_t n,
                               const volatile int *stop, lace_error *err)
{
    lace_item items[CLI_CARD_BATCH];
    const size_t n_batch = (size_t)cli_batch(t->model);
    for (size_t at = from; at < n && !*stop; at += n_batch) {
        size_t n_items = n - at < n_batch ? n - at : n_batch;
        for (size_t i = 0; i < n_items; i++) {
            items[i] = (lace_item){.token = tokens[at + i], .want_logits = at + i + 1 == n};
            t->held[at + i] = tokens[at + i];
        }
        TRY(lace_session_eval(t->session, items, n_items, err));
    }
    return LACE_OK;
}

/* ---- Answer ---------------------------------------------------------------------------------- */

/* Where pieces go, through the parser of replies. */
typedef struct route {
    talk_sink sink;
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
    lace_sampler *sampler;
    lace_decoder *decoder;
    reply_parser *parser; /* NULL: the text is continued */
    route to;
} answer;

static lace_status begin_answer(talk *t, answer *a, const buf *prompt, const lace_token *tokens,
                                size_t n, lace_error *err)
{
    lace_sampler_options sampler = t->options.sampler;
    sampler.seed += t->n_answers++;
    TRY(lace_sampler_create(&sampler, t->info.n_vocab, &a->sampler, err));
    TRY(lace_decoder_create(t->model, &a->decoder, err));
    for (size_t i = 0; i < n; i++) { /* some tokenizers write a space only inside of a text */
        const char *piece;
        size_t n_bytes;
        TRY(lace_decoder_push(a->decoder, tokens[i], &piece, &n_bytes, err));
        lace_sampler_accept(a->sampler, tokens[i]);
    }
    if (!t->chat)
        return LACE_OK;
    const reply_format *format = chat_template_reply_format(t->chat);
    reply_options options = {
        .keeps_calls = true,
        .keeps_thinking = t->options.keeps_reasoning,
        .is_thinking = reply_opens_thinking(format, (text){prompt->data, prompt->size}),
    };
    return reply_parser_create(format, &options, on_reply, &a->to, &a->parser, err);
}

static lace_status give(answer *a, const char *piece, size_t n_bytes, lace_error *err)
{
    if (n_bytes == 0)
        return LACE_OK;
    text t = {piece, n_bytes};
    return a->parser ? reply_parser_feed(a->parser, t, err) : a->to.sink(a->to.user, false, t, err);
}

/* An answer on its way. */
typedef struct listener {
    talk *t;
    answer *a;
    const volatile int *stop;
    talk_stats *stats;
    int32_t length; /* of what the session holds when the next token is asked for */
    lace_status status;
    lace_error *err;
} listener;

static lace_status take_token(listener *l, lace_token token, bool *goes_on)
{
    talk *t = l->t;
    talk_stats *stats = l->stats;
    int32_t limit = t->options.max_tokens;
    *goes_on = false;
    if (lace_token_is_end(t->model, token))
        return LACE_OK;
    const char *piece;
    size_t n_bytes;
    stats->n_generated++;
    TRY(lace_decoder_push(l->a->decoder, token, &piece, &n_bytes, l->err));
    TRY(give(l->a, piece, n_bytes, l->err));
    if (limit >= 0 && stats->n_generated >= (size_t)limit) {
        stats->end = "cut";
    } else if (l->length >= t->n_context) {
        stats->end = "context full";
    } else if (!*l->stop) {
        t->held[l->length++] = token;
        *goes_on = true;
    }
    return LACE_OK;
}

static bool on_token(void *user, lace_token token)
{
    listener *l = user;
    bool goes_on;
    l->status = take_token(l, token, &goes_on);
    return goes_on;
}

static lace_status generate(talk *t, answer *a, const volatile int *stop, talk_stats *stats,
                            lace_error *err)
{
    listener l = {t, a, stop, stats, lace_session_length(t->session, 0), LACE_OK, err};
    if (!*stop) {
        lace_token first;
        bool goes_on;
        TRY(lace_sampler_sample(a->sampler, lace_session_logits(t->session, 0), &first, err));
        lace_sampler_accept(a->sampler, first);
        TRY(take_token(&l, first, &goes_on));
        if (goes_on)
            TRY(lace_session_continue(t->session, 0, first, INT32_MAX, a->sampler, on_token, &l,
                                      err));
        TRY(l.status);
    }
    if (*stop)
        stats->end = "stopped";
    const char *piece;
    size_t n_bytes;
    TRY(lace_decoder_flush(a->decoder, &piece, &n_bytes, err));
    TRY(give(a, piece, n_bytes, err));
    return a->parser ? reply_parser_finish(a->parser, err) : LACE_OK;
}

static lace_status answer_prompt(talk *t, answer *a, const buf *prompt, const volatile int *stop,
                                 talk_stats *stats, lace_error *err)
{
    lace_token *tokens = NULL;
    uint64_t begin = clock_ns();
    lace_status status = tokenize(t, prompt, &tokens, &stats->n_prompt, err);
    if (status == LACE_OK)
        status = begin_answer(t, a, prompt, tokens, stats->n_prompt, err);
    if (status == LACE_OK)
        status = keep_common(t, tokens, stats->n_prompt, &stats->n_reused, err);
    if (status == LACE_OK)
        status = eval_prompt(t, tokens, stats->n_reused, stats->n_prompt, stop, err);
    stats->prompt_ns = clock_ns() - begin;
    if (status == LACE_OK)
        status = generate(t, a, stop, stats, err);
    stats->generate_ns = clock_ns() - begin - stats->prompt_ns;
    mem_free(tokens);
    return status;
}

lace_status talk_answer(talk *t, const json_t *messages, talk_sink sink, void *user,
                        const volatile int *stop, talk_stats *stats, lace_error *err)
{
    answer a = {.to = {sink, user, err}};
    buf prompt;
    *stats = (talk_stats){.n_prompt = 0};
    buf_init(&prompt, CLI_MAX_TEXT);
    lace_status status = make_prompt(t, messages, &prompt, err);
    if (status == LACE_OK)
        status = answer_prompt(t, &a, &prompt, stop, stats, err);
    reply_parser_free(a.parser);
    lace_decoder_free(a.decoder);
    lace_sampler_free(a.sampler);
    buf_deinit(&prompt);
    return status;
}
