/* How the server is: GET /health, /ready, /metrics, /props. */
#include <inttypes.h>

#include "server/api.h"
#include "server/core.h"

static void reply_status(call *c, int status, const char *word)
{
    json_out out;
    json_out_init(&out, 256);
    json_out_printf(&out, "{\"status\":\"%s\"}", word);
    call_reply(c, status, "application/json", &out);
}

/* Whether the engine computes: it made a step lately, or had nothing to do. */
void api_health(call *c)
{
    inference_state state;
    inference_read(call_server(c)->inference, &state);
    if (state.is_broken)
        reply_status(c, 503, "the model cannot be read");
    else if (state.is_stuck)
        reply_status(c, 503, "the engine does not step");
    else
        reply_status(c, 200, "ok");
}

/* Whether new work is welcome. */
void api_ready(call *c)
{
    server *s = call_server(c);
    inference_state state;
    inference_read(s->inference, &state);
    if (state.is_broken || state.is_stuck)
        reply_status(c, 503, "broken");
    else if (server_is_draining(s))
        reply_status(c, 503, "draining");
    else if (server_queue_is_full(s))
        reply_status(c, 503, "full");
    else
        reply_status(c, 200, "ready");
}

void api_metrics(call *c)
{
    json_out out;
    json_out_init(&out, 1 << 20);
    metrics_write(call_server(c), &out);
    call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

void api_props(call *c)
{
    const server *s = call_server(c);
    const chat_caps *caps = chat_template_caps(s->chat);
    json_out out;
    json_out_init(&out, 4 << 20);
    json_out_raw(&out, "{\"version\":\"" LACE_VERSION "\",\"model\":");
    json_out_string(&out, s->model_id);
    json_out_raw(&out, ",\"architecture\":");
    json_out_string(&out, s->info.architecture);
    json_out_raw(&out, ",\"type\":");
    json_out_string(&out, s->info.type);
    json_out_printf(
        &out,
        ",\"n_parameters\":%" PRIu64 ",\"n_vocab\":%d,\"n_context\":%d"
        ",\"n_context_trained\":%d,\"kv_tokens\":%" PRId64
        ",\"max_running\":%d,\"total_slots\":%d,\"max_queue\":%d,\"max_body_bytes\":%" PRIu64,
        s->info.n_parameters, s->info.n_vocab, s->limits.n_context, s->info.n_context,
        s->limits.kv_tokens, s->options.batcher.session.n_sequences,
        s->options.batcher.session.n_sequences, s->options.max_queue, s->options.max_body);
    json_out_printf(&out, ",\"modalities\":{\"vision\":%s,\"audio\":false}",
                    s->options.batcher.session.tower ? "true" : "false");
    json_out_printf(&out, ",\"takes_tools\":%s,\"reply_format\":\"%s\",\"chat_template\":",
                    caps->takes_tools ? "true" : "false",
                    reply_format_name(chat_template_reply_format(s->chat)));
    json_out_string(&out, s->chat_source);
    json_out_printf(&out, ",\"default_generation_settings\":{\"n_ctx\":%d,\"params\":{",
                    s->limits.n_context);
    gen_write_defaults(s, &out);
    if (s->options.has_seed)
        json_out_printf(&out, ",\"seed\":%" PRId64, (int64_t)s->options.sampler.seed);
    json_out_printf(&out, ",\"n_predict\":%d", s->options.max_tokens);
    json_out_raw(&out, "}}}");
    call_reply(c, 200, "application/json", &out);
}
