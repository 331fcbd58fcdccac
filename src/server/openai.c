/* What the two text routes of OpenAI's API share. */
#include "server/openai.h"

#include <inttypes.h>

#include "server/core.h"
#include "server/reply.h"

void openai_write_head(const call *c, json_out *out, const char *id_prefix, const char *object)
{
    json_out_printf(out, "{\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":",
                    id_prefix, call_id(c), object, c->created);
    json_out_string(out, call_model_id(c));
    json_out_raw(out, ",\"system_fingerprint\":\"lace-" LACE_VERSION "\"");
}

void openai_add_usage(openai_usage *u, const gen_event *e)
{
    const gen_request *r = call_request(e->c);
    bool is_first = r->prompts ? e->choice % r->n_each == 0 : e->choice == 0;
    u->n_prompt += is_first ? e->stats.n_prompt : 0; /* choices share it */
    u->n_cached += is_first ? e->stats.n_cached : 0;
    u->n_generated += e->stats.n_generated;
    lace_generation_stats *t = &u->total;
    t->n_read += is_first ? e->stats.n_read : 0;
    t->n_cached += is_first ? e->stats.n_cached : 0;
    t->n_generated += e->stats.n_generated;
    t->prompt_ns = e->stats.prompt_ns > t->prompt_ns ? e->stats.prompt_ns : t->prompt_ns;
    t->generate_ns = e->stats.generate_ns > t->generate_ns ? e->stats.generate_ns : t->generate_ns;
    t->n_guessed += e->stats.n_guessed;
    t->n_accepted += e->stats.n_accepted;
    u->n_choices++;
}

static double ratio(double x, double y)
{
    return y > 0 ? x / y : 0;
}

void openai_write_timings(json_out *out, const lace_generation_stats *s, int n_choices)
{
    int n_prompt = s->n_read - s->n_cached;
    int n_steps = s->n_generated - n_choices; /* the first token comes with the prompt */
    double prompt_ms = (double)s->prompt_ns / 1e6, generate_ms = (double)s->generate_ns / 1e6;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"prompt_ms", prompt_ms},
        {"prompt_per_token_ms", ratio(prompt_ms, n_prompt)},
        {"prompt_per_second", ratio(n_prompt * 1e3, prompt_ms)},
        {"predicted_ms", generate_ms},
        {"predicted_per_token_ms", ratio(generate_ms, n_steps)},
        {"predicted_per_second", n_steps > 0 ? ratio(n_steps * 1e3, generate_ms) : 0},
    };
    json_out_printf(out, ",\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"predicted_n\":%d",
                    s->n_cached, n_prompt, s->n_generated);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_out_printf(out, ",\"%s\":", rows[i].name);
        json_out_number(out, rows[i].value);
    }
    if (s->n_guessed > 0)
        json_out_printf(out, ",\"draft_n\":%d,\"draft_n_accepted\":%d", s->n_guessed,
                        s->n_accepted);
    json_out_raw(out, "}");
}

void openai_write_progress(json_out *out, const lace_generation_stats *s)
{
    json_out_printf(out,
                    ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":",
                    s->n_prompt, s->n_cached, s->n_read);
    json_out_number(out, (double)s->prompt_ns / 1e6);
    json_out_raw(out, "}");
}

void openai_write_usage(json_out *out, const openai_usage *u)
{
    json_out_printf(out,
                    "\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                    ",\"total_tokens\":%" PRId64
                    ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "}}",
                    u->n_prompt, u->n_generated, u->n_prompt + u->n_generated, u->n_cached);
    openai_write_timings(out, &u->total, u->n_choices);
}

const char *openai_finish(lace_finish finish)
{
    return finish == LACE_FINISH_LENGTH ? "length" : "stop";
}

/* "id":...,"token":...,"logprob":...,"bytes":[...] */
static void write_token(const call *c, json_out *out, lace_token token, float logprob)
{
    size_t n;
    const char *bytes = lace_token_bytes(call_server(c)->model, token, &n);
    json_out_printf(out, "\"id\":%d,\"token\":", token);
    json_out_text(out, bytes, n);
    json_out_raw(out, ",\"logprob\":");
    json_out_number(out, logprob >= -9999 ? (double)logprob : -9999.0);
    json_out_raw(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        json_out_printf(out, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
    json_out_raw(out, "]");
}

void openai_add_logprob(const call *c, json_out *out, const gen_event *e)
{
    if (!call_request(c)->wants_logprobs || e->token < 0)
        return;
    json_out_raw(out, out->b.size ? ",{" : "{");
    write_token(c, out, e->token, e->logprob);
    json_out_raw(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < e->n_top; i++) {
        json_out_raw(out, i ? ",{" : "{");
        write_token(c, out, e->top[i].token, e->top[i].logprob);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "]}");
}

void openai_begin_chunk(call *c, json_out *out)
{
    call_begin_stream(c, "text/event-stream");
    json_out_raw(out, "data: ");
}

void openai_end_chunk(call *c, json_out *out)
{
    json_out_raw(out, "}\n\n");
    call_write(c, out);
}

void openai_reply(call *c, json_out *out, const char *id_prefix, const char *object,
                  const openai_usage *u, int n_choices, openai_write_fn write, void *state)
{
    openai_write_head(c, out, id_prefix, object);
    json_out_raw(out, ",\"choices\":[");
    for (int i = 0; i < n_choices; i++) {
        json_out_raw(out, i ? "," : "");
        write(c, out, state, i);
    }
    json_out_raw(out, "],");
    openai_write_usage(out, u);
    json_out_raw(out, "}");
    call_reply(c, 200, "application/json", out);
}

void openai_end_stream(call *c, json_out *out, const char *id_prefix, const char *object,
                       const openai_usage *u)
{
    if (call_request(c)->wants_usage) {
        json_out_raw(out, "data: ");
        openai_write_head(c, out, id_prefix, object);
        json_out_raw(out, ",\"choices\":[],");
        openai_write_usage(out, u);
        json_out_raw(out, "}\n\n");
    }
    json_out_raw(out, "data: [DONE]\n\n");
    call_write(c, out);
    call_end(c);
}
