/* POST /v1/completions: a text is continued as it stands. */
#include <string.h>

#include "base/json_read.h"
#include "server/api.h"
#include "server/core.h"
#include "server/openai.h"
#include "server/reply.h"

/* A choice that is not streamed, as it grows. */
typedef struct text_choice {
    json_out text;
    json_out tokens, logprobs, tops, offsets; /* the four lists of "logprobs" */
    size_t n_sent;                            /* bytes of the text in chunks before this one */
    bool has_begun;
    lace_finish finish;
} text_choice;

typedef struct text_reply {
    openai_usage usage;
    json_out chunk; /* of a stream, being written */
    text_choice choices[];
} text_reply;

/* ---- Asking ---------------------------------------------------------------------------------- */

/* One prompt, a string or a list of tokens, to r->prompt. */
static bool read_prompt(gen_request *r, call *c, const json_t *prompt, const json_t *suffix)
{
    if (json_is_string(prompt) && json_string_length(suffix) > 0)
        return gen_request_infill(r, c,
                                  (text){json_string_value(prompt), json_string_length(prompt)},
                                  (text){json_string_value(suffix), json_string_length(suffix)});
    if (json_string_length(suffix) > 0)
        return call_refuse(c, "suffix", "a suffix needs a prompt that is a text");
    if (json_is_string(prompt))
        return gen_request_text(r, c, json_string_value(prompt), json_string_length(prompt));
    if (json_is_array(prompt) && json_is_integer(json_array_get(prompt, 0)))
        return gen_read_tokens(r, c, "prompt", prompt, 1 << 20, &r->prompt, &r->n_prompt) &&
               gen_check_length(c, r->n_prompt);
    call_fail(c, 400, "prompt", "invalid_type",
              "prompt is %s, expected a string or a list of tokens", json_kind(prompt));
    return false;
}

/* A list of prompts, each of which gets n choices. */
static bool read_prompts(gen_request *r, call *c, const json_t *list, const json_t *suffix)
{
    size_t n = json_array_size(list);
    if (n * (size_t)r->n_choices > GEN_MAX_CHOICES)
        return call_refuse(c, "prompt", "more prompts and choices than one request may have (128)");
    r->prompts = arena_alloc(&r->memory, n, sizeof *r->prompts);
    if (!r->prompts)
        return call_nomem(c);
    for (size_t i = 0; i < n; i++) {
        if (!read_prompt(r, c, json_array_get(list, i), suffix))
            return false;
        r->prompts[i] = (gen_prompt){r->prompt, r->n_prompt};
    }
    r->n_each = r->n_choices;
    r->n_choices *= (int32_t)n;
    return true;
}

static bool read_input(gen_request *r, call *c, const json_t *body)
{
    const json_t *prompt = json_object_get(body, "prompt"), *first = json_array_get(prompt, 0);
    const json_t *suffix = json_object_get(body, "suffix");
    if (suffix && !json_is_null(suffix) && !json_is_string(suffix))
        return call_refuse(c, "suffix", "suffix is not a string");
    if (json_is_array(prompt) && first && !json_is_integer(first))
        return read_prompts(r, c, prompt, suffix);
    r->n_each = r->n_choices;
    return read_prompt(r, c, prompt, suffix);
}

/* The text of one prompt, for "echo"; tokens are decoded. */
static bool read_echo(gen_request *r, call *c, const json_t *prompt, text *out)
{
    lace_error err = {0};
    buf decoded;
    if (json_is_string(prompt)) {
        *out = (text){json_string_value(prompt), json_string_length(prompt)};
        return true;
    }
    lace_token *tokens;
    size_t n;
    if (!gen_read_tokens(r, c, "prompt", prompt, 1 << 20, &tokens, &n))
        return false;
    buf_init(&decoded, REPLY_MAX_BYTES);
    lace_status status = gen_decode(call_server(c)->model, tokens, n, &decoded, &err);
    if (status == LACE_OK) {
        *out = (text){arena_strndup(&r->memory, decoded.data ? decoded.data : "", decoded.size),
                      decoded.size};
        status = out->data ? LACE_OK : error_nomem(&err, "a prompt");
    }
    buf_deinit(&decoded);
    if (status != LACE_OK)
        call_fail_error(c, "prompt", &err);
    return status == LACE_OK;
}

/* What goes before the answer, and what is not done here and must not be ignored. */
static bool read_rest(gen_request *r, call *c, const json_t *body)
{
    const json_t *echo = json_object_get(body, "echo"), *prompt = json_object_get(body, "prompt");
    size_t n = r->prompts ? json_array_size(prompt) : 1;
    if (echo && !json_is_null(echo) && !json_is_boolean(echo))
        return call_refuse(c, "echo", "echo is not a boolean");
    if (json_is_true(echo) && r->wants_logprobs)
        return call_refuse(c, "echo",
                           "echo together with logprobs is not supported: logprobs of the prompt "
                           "are not computed");
    if (json_is_true(echo) && !(r->echoes = arena_alloc(&r->memory, n, sizeof *r->echoes)))
        return call_nomem(c);
    for (size_t i = 0; r->echoes && i < n; i++)
        if (!read_echo(r, c, r->prompts ? json_array_get(prompt, i) : prompt, &r->echoes[i]))
            return false;
    return true;
}

static const size_t outs[] = {offsetof(text_reply, chunk)};
static const size_t choice_outs[] = {offsetof(text_choice, text), offsetof(text_choice, tokens),
                                     offsetof(text_choice, logprobs), offsetof(text_choice, tops),
                                     offsetof(text_choice, offsets)};
static const choices_kind choices = CHOICES_KIND(text_reply, text_choice, outs, choice_outs);

/* ---- Answering ------------------------------------------------------------------------------- */

static void write_token_text(const call *c, json_out *out, lace_token token)
{
    size_t n;
    const char *bytes = lace_token_bytes(call_server(c)->model, token, &n);
    json_out_text(out, bytes, n);
}

/* Adds a token to the four lists. */
static void add_logprob(const call *c, text_choice *t, const gen_event *e)
{
    if (!call_request(c)->wants_logprobs || e->token < 0)
        return;
    const char *comma = t->tokens.b.size ? "," : "";
    json_out_raw(&t->tokens, comma);
    write_token_text(c, &t->tokens, e->token);
    json_out_raw(&t->logprobs, comma);
    json_out_number(&t->logprobs, e->logprob);
    json_out_printf(&t->offsets, "%s%zu", comma, t->n_sent + t->text.b.size);
    json_out_raw(&t->tops, comma);
    json_out_raw(&t->tops, "{");
    for (size_t i = 0; i < e->n_top; i++) {
        json_out_raw(&t->tops, i ? "," : "");
        write_token_text(c, &t->tops, e->top[i].token);
        json_out_raw(&t->tops, ":");
        json_out_number(&t->tops, e->top[i].logprob);
    }
    json_out_raw(&t->tops, "}");
}

/* {"index":..,"text":..,"logprobs":..,"finish_reason":..} */
static void write_choice(const call *c, json_out *out, void *state, int choice)
{
    const text_choice *t = &((const text_reply *)state)->choices[choice];
    json_out_printf(out, "{\"index\":%d,\"text\":", choice);
    json_out_text(out, t->text.b.data, t->text.b.size);
    json_out_raw(out, ",\"logprobs\":");
    if (call_request(c)->wants_logprobs) {
        const struct {
            const char *name;
            const json_out *list;
        } lists[] = {{"{\"tokens\":[", &t->tokens},
                     {"],\"token_logprobs\":[", &t->logprobs},
                     {"],\"top_logprobs\":[", &t->tops},
                     {"],\"text_offset\":[", &t->offsets}};
        for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
            json_out_raw(out, lists[i].name);
            json_out_bytes(out, lists[i].list->b.data, lists[i].list->b.size);
            out->has_failed = out->has_failed || lists[i].list->has_failed;
        }
        json_out_raw(out, "]}");
    } else {
        json_out_raw(out, "null");
    }
    json_out_raw(out, ",\"finish_reason\":");
    if (t->finish == LACE_FINISH_NONE)
        json_out_raw(out, "null}");
    else
        json_out_printf(out, "\"%s\"}", openai_finish(t->finish));
    out->has_failed = out->has_failed || t->text.has_failed;
}

static void clear_choice(text_choice *t)
{
    json_out *written[] = {&t->text, &t->tokens, &t->logprobs, &t->tops, &t->offsets};
    t->n_sent += t->text.b.size;
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        buf_clear(&written[i]->b);
}

static void on_event(call *c, const gen_event *e)
{
    text_reply *state = choices_of(c);
    if (!state)
        return;
    text_choice *t = &state->choices[e->choice];
    const gen_request *r = call_request(c);
    if (r->echoes && !t->has_begun)
        json_out_bytes(&t->text, r->echoes[e->choice / r->n_each].data,
                       r->echoes[e->choice / r->n_each].size);
    t->has_begun = true;
    add_logprob(c, t, e);
    json_out_bytes(&t->text, e->text, e->n_text);
    t->finish = e->finish;
    if (e->finish != LACE_FINISH_NONE)
        openai_add_usage(&state->usage, e);
    if (!call_request(c)->is_stream || (t->text.b.size == 0 && e->finish == LACE_FINISH_NONE))
        return;
    openai_begin_chunk(c, &state->chunk);
    openai_write_head(c, &state->chunk, "cmpl", "text_completion");
    json_out_raw(&state->chunk, ",\"choices\":[");
    write_choice(c, &state->chunk, state, e->choice);
    json_out_raw(&state->chunk, call_request(c)->wants_usage ? "],\"usage\":null" : "]");
    if (r->times_tokens || (e->finish != LACE_FINISH_NONE && !r->wants_usage))
        openai_write_timings(&state->chunk, &e->stats, 1);
    openai_end_chunk(c, &state->chunk);
    clear_choice(t);
}

static void on_prompt(call *c, const gen_event *e)
{
    text_reply *state = choices_of(c);
    if (!state)
        return;
    json_out *out = &state->chunk;
    openai_begin_chunk(c, out);
    openai_write_head(c, out, "cmpl", "text_completion");
    json_out_printf(out,
                    ",\"choices\":[{\"index\":%d,\"text\":\"\",\"logprobs\":null,"
                    "\"finish_reason\":null}]",
                    e->choice);
    openai_write_progress(out, &e->stats);
    openai_end_chunk(c, out);
}

static void on_end(call *c)
{
    text_reply *state = call_state(c);
    if (!state)
        return call_fail(c, 503, NULL, NULL, "out of memory");
    if (call_request(c)->is_stream)
        return openai_end_stream(c, &state->chunk, "cmpl", "text_completion", &state->usage);
    openai_reply(c, &state->chunk, "cmpl", "text_completion", &state->usage,
                 call_request(c)->n_choices, write_choice, state);
}

static const gen_sink sink = {
    .choices = &choices, .on_event = on_event, .on_prompt = on_prompt, .on_end = on_end};

static bool read_request(gen_request *r, call *c, json_t *body)
{
    return gen_check_model(c, body) && gen_request_read(r, c, body, GEN_TEXT) &&
           read_input(r, c, body) && read_rest(r, c, body);
}

void api_completions(call *c)
{
    gen_start(c, read_request, &sink);
}
