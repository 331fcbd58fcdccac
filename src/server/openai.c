/* What the two text routes of OpenAI's API share. */
#include "server/openai.h"

#include <inttypes.h>

#include "server/core.h"

void openai_write_head(const call *c, json_out *out, const char *id_prefix, const char *object)
{
    const server *s = call_server(c);
    json_out_printf(out, "{\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":",
                    id_prefix, call_id(c), object, c->created);
    json_out_string(out, s->model_id);
    json_out_raw(out, ",\"system_fingerprint\":\"lace-" LACE_VERSION "\"");
}

void openai_add_usage(openai_usage *u, const gen_event *e)
{
    const gen_request *r = call_request(e->c);
    bool is_first = r->prompts ? e->choice % r->n_each == 0 : e->choice == 0;
    u->n_prompt += is_first ? e->stats.n_prompt : 0; /* choices share it */
    u->n_cached += is_first ? e->stats.n_cached : 0;
    u->n_generated += e->stats.n_generated;
}

void openai_write_usage(json_out *out, const openai_usage *u)
{
    json_out_printf(out,
                    "{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                    ",\"total_tokens\":%" PRId64
                    ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "}}",
                    u->n_prompt, u->n_generated, u->n_prompt + u->n_generated, u->n_cached);
}

const char *openai_finish(lace_finish finish)
{
    return finish == LACE_FINISH_LENGTH ? "length" : "stop";
}

/* "token":...,"logprob":...,"bytes":[...] */
static void write_token(const call *c, json_out *out, lace_token token, float logprob)
{
    size_t n;
    const char *bytes = lace_token_bytes(call_server(c)->model, token, &n);
    json_out_raw(out, "\"token\":");
    json_out_text(out, bytes, n);
    json_out_raw(out, ",\"logprob\":");
    json_out_number(out, logprob >= -9999 ? (double)logprob : -9999.0);
    json_out_raw(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        json_out_printf(out, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
    json_out_raw(out, "]");
}

void openai_write_logprob(const call *c, json_out *out, const gen_event *e)
{
    json_out_raw(out, "{");
    write_token(c, out, e->token, e->logprob);
    json_out_raw(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < e->n_top; i++) {
        json_out_raw(out, i ? ",{" : "{");
        write_token(c, out, e->top[i].token, e->top[i].logprob);
        json_out_raw(out, "}");
    }
    json_out_raw(out, "]}");
}

void openai_end_stream(call *c, json_out *out, const char *id_prefix, const char *object,
                       const openai_usage *u)
{
    if (call_request(c)->wants_usage) {
        json_out_raw(out, "data: ");
        openai_write_head(c, out, id_prefix, object);
        json_out_raw(out, ",\"choices\":[],\"usage\":");
        openai_write_usage(out, u);
        json_out_raw(out, "}\n\n");
    }
    json_out_raw(out, "data: [DONE]\n\n");
    call_write(c, out);
    call_end(c);
}

void openai_ping(call *c)
{
    json_out out;
    json_out_init(&out, 64);
    call_begin_stream(c, "text/event-stream");
    json_out_raw(&out, ": waiting\n\n");
    call_write(c, &out);
    json_out_deinit(&out);
}
