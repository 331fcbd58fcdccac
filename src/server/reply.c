/* Replies whose parts are shown one by one: what all APIs that do so have in common. */
#include "server/reply.h"

#include "base/mem.h"
#include "server/core.h"

static json_out *out_at(reply_state *r, size_t offset)
{
    return (json_out *)((char *)r + offset);
}

void *reply_state_of(call *c)
{
    const reply_kind *kind = c->sink->reply;
    reply_state *r = call_state(c);
    if (r)
        return r;
    r = mem_calloc(1, kind->size);
    if (!r)
        return NULL;
    r->c = c;
    json_out_init(&r->out, REPLY_MAX_BYTES);
    json_outs_init(r, kind->outs, kind->n_outs, REPLY_MAX_BYTES);
    r->has_failed = gen_make_parser(c, 0, kind->on_part, r, &r->parser) != LACE_OK;
    call_set_state(c, r);
    return r;
}

static void free_reply(reply_state *r, const reply_kind *kind)
{
    json_out_deinit(&r->out);
    json_outs_deinit(r, kind->outs, kind->n_outs);
    reply_parser_free(r->parser);
}

void reply_take(call *c, const gen_event *e)
{
    const reply_kind *kind = c->sink->reply;
    if (!kind)
        return c->sink->on_event(c, e);
    reply_state *r = reply_state_of(c);
    bool is_stream = call_request(c)->is_stream;
    if (!r || r->has_failed)
        return;
    r->stats = e->stats;
    if (is_stream && kind->begin)
        kind->begin(r);
    if (kind->on_token && e->token >= 0)
        kind->on_token(r, e);
    if (reply_parser_feed(r->parser, (text){e->text, e->n_text}, NULL) != LACE_OK)
        r->has_failed = true;
    if (e->finish != LACE_FINISH_NONE) {
        r->finish = e->finish;
        r->stop = e->stop;
        if (!r->has_failed && reply_parser_finish(r->parser, NULL) != LACE_OK)
            r->has_failed = true;
        if (kind->end_parts)
            kind->end_parts(r);
    }
    if (is_stream && kind->end_event)
        kind->end_event(r);
    if (is_stream && r->out.b.size > 0)
        call_write(c, &r->out);
}

void *reply_finished(call *c)
{
    const reply_kind *kind = c->sink->reply;
    reply_state *r = reply_state_of(c);
    for (size_t i = 0; r && i < kind->n_outs; i++)
        r->out.has_failed = r->out.has_failed || out_at(r, kind->outs[i])->has_failed;
    if (r && !r->has_failed)
        return r;
    if (call_is_streaming(c))
        call_end(c);
    else
        call_nomem(c);
    return NULL;
}

void reply_write_arguments(json_out *out, const buf *arguments)
{
    json_error_t error;
    json_t *value = json_loadb(arguments->data ? arguments->data : "", arguments->size, 0, &error);
    if (json_is_object(value))
        json_out_bytes(out, arguments->data, arguments->size);
    else
        json_out_raw(out, "{}");
    json_decref(value);
}

static void *choice_at(const call *c, const choices_kind *kind, int i)
{
    return (char *)call_state(c) + kind->size + (size_t)i * kind->choice_size;
}

void *choices_of(call *c)
{
    const choices_kind *kind = c->sink->choices;
    int n = call_request(c)->n_choices;
    void *state = call_state(c);
    if (state || !(state = mem_calloc(1, kind->size + (size_t)n * kind->choice_size)))
        return state;
    call_set_state(c, state);
    json_outs_init(state, kind->outs, kind->n_outs, REPLY_MAX_BYTES);
    for (int i = 0; i < n; i++)
        json_outs_init(choice_at(c, kind, i), kind->choice_outs, kind->n_choice_outs,
                       REPLY_MAX_BYTES);
    if (kind->begin)
        kind->begin(c, state);
    return state;
}

static void free_choices(call *c, void *state, const choices_kind *kind)
{
    if (kind->end)
        kind->end(state);
    json_outs_deinit(state, kind->outs, kind->n_outs);
    for (int i = 0; i < call_request(c)->n_choices; i++)
        json_outs_deinit(choice_at(c, kind, i), kind->choice_outs, kind->n_choice_outs);
}

void reply_free(call *c)
{
    void *state = call_state(c);
    if (state && c->sink->reply)
        free_reply(state, c->sink->reply);
    else if (state)
        free_choices(c, state, c->sink->choices);
    mem_free(state);
}

void reply_ping(call *c)
{
    const char *line = c->sink->reply ? c->sink->reply->ping : c->sink->choices->ping;
    if (!line)
        return;
    json_out out;
    json_out_init(&out, 256);
    json_out_raw(&out, line);
    call_begin_stream(c, "text/event-stream");
    call_write(c, &out);
    json_out_deinit(&out);
}
