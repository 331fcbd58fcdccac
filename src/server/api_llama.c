/*
 * POST /completion (also /completions) and /infill: text as llama.cpp's own routes give it. Requests
 * are read in llama_in.c.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "server/api.h"
#include "server/core.h"
#include "server/llama.h"
#include "server/openai.h"
#include "server/reply.h"

typedef struct llama_choice {
    json_out content, tokens, probabilities; /* of a stream: since the last chunk */
    lace_finish finish;
    const char *stop;
    bool is_over; /* by a limit of llama_request; what still comes is not wanted */
    bool has_new_line, is_at_indent;
    int n_indent; /* of the line that has just begun */
    lace_generation_stats stats;
} llama_choice;

typedef struct llama_reply {
    json_out chunk;
    json_out settings, prompt; /* parts that choices share; empty: not written yet */
    int prompt_number;         /* of the one in `prompt` */
    llama_choice choices[];
} llama_reply;

static const llama_request *asked(const call *c)
{
    return call_request(c)->user;
}

static const size_t outs[] = {offsetof(llama_reply, chunk), offsetof(llama_reply, settings),
                              offsetof(llama_reply, prompt)};
static const size_t choice_outs[] = {offsetof(llama_choice, content),
                                     offsetof(llama_choice, tokens),
                                     offsetof(llama_choice, probabilities)};
static const choices_kind choices = CHOICES_KIND(llama_reply, llama_choice, outs, choice_outs);

/* ---- What was asked for, in the answer ------------------------------------------------------- */

static void write_settings(const call *c, json_out *out)
{
    const gen_request *r = call_request(c);
    const lace_sampler_options *o = &r->options.sampler;
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"temperature", o->temperature},
        {"top_k", o->top_k},
        {"top_p", o->top_p},
        {"min_p", o->min_p},
        {"typical_p", o->typical_p},
        {"xtc_probability", o->xtc_probability},
        {"xtc_threshold", o->xtc_threshold},
        {"repeat_last_n", o->penalty_last_n},
        {"repeat_penalty", o->repeat_penalty},
        {"presence_penalty", o->presence_penalty},
        {"frequency_penalty", o->frequency_penalty},
        {"dry_multiplier", o->dry_multiplier},
        {"dry_base", o->dry_base},
        {"dry_allowed_length", o->dry_allowed_length},
        {"dry_penalty_last_n", o->dry_last_n},
        {"mirostat", o->mirostat},
        {"mirostat_tau", o->mirostat_tau},
        {"mirostat_eta", o->mirostat_eta},
        {"n_predict", asked(c)->is_empty ? 0 : r->options.max_tokens},
        {"max_tokens", asked(c)->is_empty ? 0 : r->options.max_tokens},
        {"n_probs", r->wants_logprobs ? r->options.n_top : 0},
    };
    json_out_printf(out, "{\"seed\":%" PRId64, (int64_t)o->seed);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        bool is_whole = numbers[i].value == floor(numbers[i].value);
        json_out_printf(out, is_whole ? ",\"%s\":%.0f" : ",\"%s\":%.6g", numbers[i].name,
                        numbers[i].value);
    }
    json_out_printf(out, ",\"stream\":%s,\"ignore_eos\":%s,\"timings_per_token\":%s,\"stop\":[",
                    r->is_stream ? "true" : "false", r->options.ignore_end ? "true" : "false",
                    r->times_tokens ? "true" : "false");
    for (size_t i = 0; i < r->options.n_stops; i++) {
        json_out_raw(out, i ? "," : "");
        json_out_string(out, r->options.stops[i]);
    }
    json_out_raw(out, "],\"logit_bias\":[");
    const char *comma = "";
    for (size_t i = 0; i < r->options.n_biases; i++, comma = ",") {
        json_out_printf(out, "%s{\"bias\":", comma);
        json_out_number(out, r->options.biases[i].bias); /* a ban is null */
        json_out_printf(out, ",\"token\":%d}", r->options.biases[i].token);
    }
    const server *s = call_server(c);
    for (lace_token t = 0; r->options.ignore_end && t < s->info.n_vocab; t++)
        if (lace_token_is_end(s->model, t)) {
            json_out_printf(out, "%s{\"bias\":null,\"token\":%d}", comma, t);
            comma = ",";
        }
    json_out_raw(out, "]}");
}

/* ---- Parts of answers ------------------------------------------------------------------------ */

/* {"index":..,"content":..,"tokens":[..],"stop":.., without its end */
static void begin_object(json_out *out, int index, const llama_choice *t, bool has_tokens,
                         bool is_last)
{
    json_out_printf(out, "{\"index\":%d,\"content\":", index);
    json_out_text(out, t->content.b.data ? t->content.b.data : "", t->content.b.size);
    json_out_raw(out, ",\"tokens\":[");
    if (has_tokens)
        json_out_bytes(out, t->tokens.b.data, t->tokens.b.size);
    json_out_printf(out,
                    "],\"id_slot\":-1,\"stop\":%s,\"tokens_predicted\":%d,\"tokens_evaluated\":%d",
                    is_last ? "true" : "false", t->stats.n_generated, t->stats.n_prompt);
    out->has_failed = out->has_failed || t->content.has_failed || t->tokens.has_failed ||
                      t->probabilities.has_failed;
}

static void write_probabilities(json_out *out, const llama_choice *t)
{
    if (t->probabilities.b.size == 0)
        return;
    json_out_raw(out, ",\"completion_probabilities\":[");
    json_out_bytes(out, t->probabilities.b.data, t->probabilities.b.size);
    json_out_raw(out, "]");
}

static void append_part(json_out *out, const json_out *part)
{
    json_out_bytes(out, part->b.data, part->b.size);
    out->has_failed = out->has_failed || part->has_failed;
}

/* The text of a choice's prompt; choices of the same prompt come one after the other. */
static void write_prompt(const call *c, json_out *out, llama_reply *state, int index)
{
    const gen_request *r = call_request(c);
    int number = r->prompts ? index / r->n_each : 0;
    json_out *kept = &state->prompt;
    if (kept->b.size == 0 || state->prompt_number != number) {
        const lace_token *tokens = r->prompts ? r->prompts[number].tokens : r->prompt;
        size_t n = r->prompts ? r->prompts[number].n : r->n_prompt;
        buf decoded;
        buf_init(&decoded, REPLY_MAX_BYTES);
        buf_clear(&kept->b);
        if (gen_decode(call_server(c)->model, tokens, n, &decoded, NULL) != LACE_OK)
            kept->has_failed = true;
        json_out_text(kept, decoded.data ? decoded.data : "", decoded.size);
        buf_deinit(&decoded);
        state->prompt_number = number;
    }
    append_part(out, kept);
}

/* The whole answer of a choice. */
static void write_last(const call *c, json_out *out, llama_reply *state, int index)
{
    const gen_request *r = call_request(c);
    const llama_choice *t = &state->choices[index];
    bool is_limit = t->is_over || t->finish == LACE_FINISH_LENGTH;
    bool is_cut = t->finish == LACE_FINISH_LENGTH && !asked(c)->is_empty &&
                  (r->options.max_tokens < 0 || t->stats.n_generated < r->options.max_tokens);
    begin_object(out, index, t, asked(c)->returns_tokens, true);
    json_out_raw(out, ",\"model\":");
    json_out_string(out, call_model_id(c));
    json_out_raw(out, ",\"generation_settings\":");
    if (state->settings.b.size == 0)
        write_settings(c, &state->settings);
    append_part(out, &state->settings);
    json_out_raw(out, ",\"prompt\":");
    write_prompt(c, out, state, index);
    json_out_printf(out,
                    ",\"has_new_line\":%s,\"truncated\":%s,\"stop_type\":\"%s\",\"stopping_word\":",
                    t->has_new_line ? "true" : "false", is_cut ? "true" : "false",
                    is_limit  ? "limit"
                    : t->stop ? "word"
                              : "eos");
    json_out_string(out, t->stop ? t->stop : "");
    json_out_printf(out, ",\"tokens_cached\":%d", t->stats.n_prompt + t->stats.n_generated);
    openai_write_timings(out, &t->stats, 1);
    write_probabilities(out, t);
    json_out_raw(out, "}");
}

/* "a/b": what is called b inside of a. */
static json_t *find_field(const json_t *whole, const char *path)
{
    json_t *at = (json_t *)whole;
    while (at) {
        size_t n = strcspn(path, "/");
        at = json_object_getn(at, path, n);
        if (!path[n])
            return at;
        path += n + 1;
    }
    return NULL;
}

/* Leave of an answer what was asked for; the rest of `out` stays as it is. */
static void select_fields(const call *c, json_out *out, size_t from)
{
    const json_t *fields = asked(c)->fields;
    if (!fields || out->has_failed)
        return;
    json_t *whole = json_loadb(out->b.data + from, out->b.size - from, 0, NULL),
           *some = json_object();
    for (size_t i = 0; whole && some && i < json_array_size(fields); i++) {
        const char *path = json_string_value(json_array_get(fields, i));
        json_t *value = find_field(whole, path);
        if (value && json_object_set(some, path, value) != 0)
            out->has_failed = true;
    }
    char *dumped = whole && some ? json_dumps(some, JSON_COMPACT) : NULL;
    out->b.size = from;
    if (dumped)
        json_out_raw(out, dumped);
    else
        out->has_failed = true;
    mem_free(dumped);
    json_decref(whole);
    json_decref(some);
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* How much of a piece is wanted: all, unless a line is indented less than was asked for. */
static size_t follow_lines(llama_choice *t, const gen_event *e, int n_indent)
{
    size_t line = 0;
    for (size_t i = 0; i < e->n_text; i++) {
        char ch = e->text[i];
        if (ch == '\n') {
            t->has_new_line = t->is_at_indent = true;
            t->n_indent = 0;
            line = i + 1;
        } else if (t->is_at_indent && (ch == ' ' || ch == '\t')) {
            t->n_indent++;
        } else if (t->is_at_indent) {
            t->is_at_indent = false;
            if (n_indent > 0 && t->n_indent < n_indent) {
                t->is_over = true;
                return line;
            }
        }
    }
    return e->n_text;
}

static void add_event(call *c, llama_choice *t, const gen_event *e)
{
    const llama_request *q = asked(c);
    t->stats = e->stats;
    t->finish = e->finish;
    t->stop = e->stop;
    if (q->is_empty) {
        t->stats.n_generated = 0;
        t->stats.generate_ns = 0;
        t->finish = LACE_FINISH_LENGTH;
        return;
    }
    if (t->is_over)
        return;
    size_t n = follow_lines(t, e, q->n_indent);
    t->is_over = t->is_over || (q->max_ms > 0 && t->has_new_line &&
                                (double)e->stats.generate_ns > q->max_ms * 1e6);
    json_out_bytes(&t->content, e->text, n);
    if (e->token >= 0)
        json_out_printf(&t->tokens, t->tokens.b.size ? ",%d" : "%d", e->token);
    openai_add_logprob(c, &t->probabilities, e);
    if (t->is_over && e->finish == LACE_FINISH_NONE)
        call_satisfy(c, e->choice);
}

/* What a choice has brought since the last chunk; openai_end_chunk completes it. */
static void begin_chunk(call *c, json_out *out, int index, const llama_choice *t)
{
    openai_begin_chunk(c, out);
    begin_object(out, index, t, true, false);
    if (call_request(c)->times_tokens)
        openai_write_timings(out, &t->stats, 1);
}

static void send_chunk(call *c, llama_reply *state, int index)
{
    llama_choice *t = &state->choices[index];
    json_out *out = &state->chunk;
    begin_chunk(c, out, index, t);
    write_probabilities(out, t);
    openai_end_chunk(c, out);
    buf_clear(&t->content.b);
    buf_clear(&t->tokens.b);
    buf_clear(&t->probabilities.b);
}

static void on_event(call *c, const gen_event *e)
{
    llama_reply *state = choices_of(c);
    if (!state)
        return;
    llama_choice *t = &state->choices[e->choice];
    add_event(c, t, e);
    if (!call_request(c)->is_stream)
        return;
    if (t->tokens.b.size && (t->content.b.size || e->finish == LACE_FINISH_NONE))
        send_chunk(c, state, e->choice);
    if (e->finish == LACE_FINISH_NONE)
        return;
    openai_begin_chunk(c, &state->chunk);
    size_t from = state->chunk.b.size;
    write_last(c, &state->chunk, state, e->choice);
    select_fields(c, &state->chunk, from);
    json_out_raw(&state->chunk, "\n\n");
    call_write(c, &state->chunk);
}

static void on_prompt(call *c, const gen_event *e)
{
    llama_reply *state = choices_of(c);
    if (!state)
        return;
    llama_choice *t = &state->choices[e->choice];
    t->stats = e->stats;
    begin_chunk(c, &state->chunk, e->choice, t);
    openai_write_progress(&state->chunk, &e->stats);
    openai_end_chunk(c, &state->chunk);
}

static void on_end(call *c)
{
    llama_reply *state = call_state(c);
    if (!state)
        return call_fail(c, 503, NULL, NULL, "out of memory");
    if (call_is_streaming(c))
        return call_end(c);
    json_out *out = &state->chunk;
    bool is_list = call_request(c)->n_choices > 1 || call_request(c)->prompts;
    json_out_raw(out, is_list ? "[" : "");
    for (int i = 0; i < call_request(c)->n_choices; i++) {
        json_out_raw(out, i ? "," : "");
        size_t from = out->b.size;
        write_last(c, out, state, i);
        select_fields(c, out, from);
    }
    json_out_raw(out, is_list ? "]" : "");
    call_reply(c, 200, "application/json", out);
}

static const gen_sink sink = {
    .choices = &choices, .on_event = on_event, .on_prompt = on_prompt, .on_end = on_end};

void api_llama_completion(call *c)
{
    gen_start(c, llama_read_completion, &sink);
}

void api_llama_infill(call *c)
{
    gen_start(c, llama_read_infill, &sink);
}
