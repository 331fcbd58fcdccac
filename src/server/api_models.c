/* GET /v1/models and /v1/models/{id}: there is one model, and adapters that count as models. */
#include <inttypes.h>
#include <string.h>

#include "server/api.h"
#include "server/core.h"

/* The model, or an adapter of it, whose parent it is, as vLLM says it. */
static void write_model(const server *s, const char *name, json_out *out)
{
    json_out_raw(out, "{\"id\":");
    json_out_string(out, name);
    json_out_printf(out,
                    ",\"object\":\"model\",\"created\":%" PRId64
                    ",\"owned_by\":\"lace\",\"context_length\":%d,\"max_model_len\":%d",
                    s->started_at, s->limits.n_context, s->limits.n_context);
    if (name != s->model_id) {
        json_out_raw(out, ",\"parent\":");
        json_out_string(out, s->model_id);
    }
    json_out_raw(out, "}");
}

void api_models(call *c)
{
    json_out out;
    const server *s = call_server(c);
    json_out_init(&out, 1 << 20);
    json_out_raw(&out, "{\"object\":\"list\",\"data\":[");
    write_model(s, s->model_id, &out);
    for (size_t i = 0; i < s->n_adapters; i++)
        if (adapter_model_name(s, i)) {
            json_out_raw(&out, ",");
            write_model(s, adapter_model_name(s, i), &out);
        }
    json_out_raw(&out, "]}");
    call_reply(c, 200, "application/json", &out);
}

static int hex_digit(char h)
{
    return h >= '0' && h <= '9'   ? h - '0'
           : h >= 'a' && h <= 'f' ? h - 'a' + 10
           : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                  : -1;
}

bool api_path_is_name(text given, const char *name)
{
    size_t n = strlen(name), at = 0;
    for (size_t i = 0; i < given.size; i++, at++) {
        char byte = given.data[i];
        if (byte == '%' && i + 2 < given.size + 0 && hex_digit(given.data[i + 1]) >= 0 &&
            hex_digit(given.data[i + 2]) >= 0) {
            byte = (char)(hex_digit(given.data[i + 1]) << 4 | hex_digit(given.data[i + 2]));
            i += 2;
        }
        if (at >= n || name[at] != byte)
            return false;
    }
    return at == n;
}

void api_model(call *c)
{
    const server *s = call_server(c);
    size_t n = strlen("/v1/models/");
    text path = call_path(c);
    text given = {path.data + n, path.size - n};
    const char *name = api_path_is_name(given, s->model_id) ? s->model_id : NULL;
    for (size_t i = 0; !name && i < s->n_adapters; i++)
        if (adapter_model_name(s, i) && api_path_is_name(given, adapter_model_name(s, i)))
            name = adapter_model_name(s, i);
    if (!name) {
        call_fail(c, 404, "model", "model_not_found",
                  "there is no such model here; GET /v1/models lists the models");
        return;
    }
    json_out out;
    json_out_init(&out, 1 << 16);
    write_model(s, name, &out);
    call_reply(c, 200, "application/json", &out);
}

void api_models_load(call *c)
{
    call_fail(c, 400, NULL, NULL,
              "this server has one model, which is loaded (lace serve --models has several)");
}
